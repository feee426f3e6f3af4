"""Bundles in Python: what is written is read, the right variant is taken, damage and absence are explained."""

from __future__ import annotations

import json
import os
import random
import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tileir
from tileir import Bundle, BundleError, kernels
from tileir.bundle import container
from tileir.bundle.bundle import bundle_bytes
from tileir.runtime.standin import build
from tileir.tools import bundle as tool
from tileir.tools import opt

CHIPS = ("gfx942", "gfx950")
SCALE = """tileir 1

kernel @scale<B: int = 256, T: type = f32>(%X: global<T[N]>, %Y: global<T[N]>, %a: T) grid(cdiv(N, B)) {
  %i = program_id()
  store(load(%X[%i * B +: B]) * %a, %Y[%i * B +: B])
}
"""


@pytest.fixture(scope="module")
def compiled() -> list[tileir.CompiledKernel]:
    return [tileir.compile(SCALE, chip, params={"B": b}) for b in (512, 64) for chip in CHIPS]


@pytest.fixture(scope="module")
def data(compiled: list[tileir.CompiledKernel]) -> bytes:
    return bundle_bytes(compiled)


def test_variants_keep_their_order_and_code(compiled: list[tileir.CompiledKernel], tmp_path: Path) -> None:
    path = tmp_path / "scale.tileb"
    tileir.write_bundle(path, compiled)
    bundle = tileir.load_bundle(path)
    assert [(v["target"], v["params"]["B"]) for v in bundle.variants] == [(c, b) for b in (512, 64) for c in CHIPS]
    for kernel in compiled:
        found = bundle.select(kernel.target, B=kernel.kernel.params["B"])
        assert found.hsaco == kernel.hsaco and found.block == kernel.block and found.interface == kernel.interface
        assert found.params == {"B": kernel.kernel.params["B"], "T": "f32"} and found.name == "scale"
    assert bundle.select("gfx950").params["B"] == 512, "the first is preferred"
    assert bundle.select("gfx950", T=tileir.f32) is bundle.select("gfx950", T="f32")
    assert (
        "scale for gfx942 (B=512, T=f32)" in repr(bundle)
        and repr(bundle.select("gfx942")) in f"{bundle.select('gfx942')}"
    )


def test_the_file_is_deterministic_and_aligned(compiled: list[tileir.CompiledKernel], data: bytes) -> None:
    assert bundle_bytes(compiled) == data == bundle_bytes([k.hsaco for k in compiled])
    manifest, codes = container.unpack(data)
    assert all(v["offset"] % 256 == 0 and v["size"] == len(c) for v, c in zip(manifest["variants"], codes, strict=True))
    assert len(data) == manifest["variants"][-1]["offset"] + len(codes[-1])


@pytest.mark.parametrize("length", [*range(1, 300, 13), 65_000])
def test_manifests_of_any_length(length: int) -> None:
    """Offsets stand in the manifest, whose length moves them."""
    codes = [bytes([i]) * (length * 7 + i) for i in range(5)]
    variants = [{"kernel": "k" * length, "target": "t"} for _ in codes]
    manifest, found = container.unpack(container.pack({"variants": variants}, codes))
    assert found == codes and [v["kernel"] for v in manifest["variants"]] == ["k" * length] * 5


@pytest.mark.parametrize("chip", CHIPS)
def test_launch(data: bytes, chip: str) -> None:
    kernel = Bundle(data).select(chip, B=64)
    x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    binding = kernel.launch(X=x, Y=y, a=3.0, device=f"simulator:{chip}")
    assert (y == 3 * x).all() and binding.grid == (2,)
    device = tileir.get_device(f"simulator:{chip}")
    Bundle(data).select(device).launch({"X": x, "Y": y}, a=-1.0, device=device)
    assert (y == -x).all()
    with pytest.raises(tileir.LaunchError, match="no value for %a"):
        kernel.launch(X=x, Y=y, device=device)


def test_a_gpu_takes_its_variant(data: bytes, tmp_path: Path) -> None:
    """Through HIP, on a GPU that the simulator stands in for; the second of two, of another chip than the first."""
    (tmp_path / "a.tileb").write_bytes(data)
    program = (
        "import sys, numpy as np, tileir\n"
        "bundle, device = tileir.load_bundle(sys.argv[1]), tileir.get_device('hip:1')\n"
        "kernel = bundle.select(device, B=64)\n"
        "x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)\n"
        "kernel.launch(X=x, Y=y, a=3.0, device=device)\n"
        "print(device.isa, kernel.target, (y == 3 * x).all())\n"
    )
    library = build(tmp_path / "hip")
    devices = "gfx950:sramecc+:xnack-,gfx942:sramecc+:xnack-"
    environment = {**os.environ, "TILEIR_HIP_LIBRARY": str(library), "TILEIR_STANDIN_DEVICES": devices}
    command = [sys.executable, "-c", program, str(tmp_path / "a.tileb")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout == "gfx942:sramecc+:xnack- gfx942 True\n", done.stderr


def test_the_default_device_is_one_of_the_chip(data: bytes) -> None:
    x, y = np.ones(5, np.float32), np.zeros(5, np.float32)
    Bundle(data).select("gfx942").launch(X=x, Y=y, a=2.0)
    assert (y == 2).all()


def test_what_is_not_there_is_answered_with_what_is(data: bytes) -> None:
    bundle = Bundle(data)
    everything = "scale for gfx942 (B=512, T=f32); scale for gfx950 (B=512, T=f32); scale for gfx942 (B=64, T=f32)"
    cases: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        (("gfx90a",), {}, "no scale for gfx90a;"),
        (("gfx950", "gemm"), {}, "no gemm for gfx950;"),
        (("gfx950",), {"B": 128}, "no scale for gfx950 with B=128;"),
        (("gfx950",), {"Q": True}, "no scale for gfx950 with Q=true;"),
    ]
    for place, params, message in cases:
        with pytest.raises(BundleError) as e:
            bundle.select(*place, **params)
        assert message in str(e.value) and everything in str(e.value)
    with pytest.raises(BundleError, match="interpreter runs no code objects"):
        bundle.select(tileir.get_device("interpreter"))


def test_several_kernels(tmp_path: Path) -> None:
    both = [tileir.compile(SCALE, "gfx950"), tileir.compile(kernels.source("vector_add"), "gfx950")]
    bundle = Bundle(bundle_bytes(both))
    with pytest.raises(BundleError, match="say which: scale, vector_add"):
        bundle.select("gfx950")
    assert bundle.select("gfx950", "vector_add").name == "vector_add"
    with pytest.raises(BundleError, match=r"scale for gfx950 .* is in the bundle twice"):
        bundle_bytes([both[0], both[0]])
    with pytest.raises(BundleError, match="at least one"):
        bundle_bytes([])
    with pytest.raises(BundleError, match="not a usable code object"):
        bundle_bytes([b"\x7fELF"])


def with_modes(data: bytes, **modes: str) -> Bundle:
    manifest, codes = container.unpack(data)
    return Bundle(container.pack({**manifest, "variants": [{**v, **modes} for v in manifest["variants"]]}, codes))


@pytest.mark.parametrize(
    ("modes", "isa", "suits"),
    [
        ({}, "gfx950:sramecc+:xnack-", True),
        ({}, "gfx950:sramecc+:xnack+", True),
        ({"xnack": "on"}, "gfx950:sramecc+:xnack-", False),
        ({"xnack": "on"}, "gfx950:sramecc+:xnack+", True),
        ({"xnack": "off"}, "gfx950:sramecc+:xnack+", False),
        ({"sramecc": "off"}, "gfx950:sramecc+:xnack+", False),
        ({"sramecc": "on", "xnack": "off"}, "gfx950:sramecc+:xnack-", True),
        ({"xnack": "on"}, "gfx950", True),
        ({}, "gfx95", False),
        ({}, "gfx9500", False),
    ],
)
def test_modes_of_the_device(data: bytes, modes: dict[str, str], isa: str, suits: bool) -> None:
    bundle = with_modes(data, **modes)
    if suits:
        assert bundle.select(isa).target == "gfx950"
    else:
        with pytest.raises(BundleError, match=f"no scale for {re.escape(isa)};"):
            bundle.select(isa)


def test_damage_is_seen_everywhere(data: bytes) -> None:
    """Bits of the header, the manifest and every code object; every truncation."""
    manifest, _ = container.unpack(data)
    length = struct.unpack_from("<Q", data, 16)[0]
    used = [range(0, 12), range(16, 24 + length)]
    used += [range(v["offset"], v["offset"] + v["size"]) for v in manifest["variants"]]
    chance = random.Random(1)
    for region in used:
        for at in {region[0], region[-1], *chance.sample(region, min(len(region), 12))}:
            bad = bytearray(data)
            bad[at] ^= 1 << chance.randrange(8)
            with pytest.raises(BundleError):
                Bundle(bytes(bad))
    for size in (0, 1, 7, 8, 23, 24, 24 + length - 1, 24 + length, len(data) - 1):
        with pytest.raises(BundleError):
            Bundle(data[:size])


@pytest.mark.parametrize(
    "manifest",
    [b"", b"[]", b"{}", b'{"format":1,"variants":{}}', b'{"format":1,"variants":[{}]}', b"[" * 100_000,
     b'{"format":1,"variants":[{"offset":-1,"size":1,"crc32":0}]}', b'{"format":1,"variants":[{"offset":0,"size":"x"}]}',
     b'{"format":2,"variants":[]}', b"\xff"],
)  # fmt: skip
def test_manifests_that_make_no_sense(manifest: bytes) -> None:
    with pytest.raises(BundleError):
        Bundle(container.HEADER.pack(container.MAGIC, zlib.crc32(manifest), 0, len(manifest)) + manifest)


@pytest.mark.parametrize("key", ["kernel", "target", "xnack", "sramecc", "params"])
@pytest.mark.parametrize("value", [None, 5, []])
def test_variants_without_what_tells_them_apart(data: bytes, key: str, value: object) -> None:
    manifest, codes = container.unpack(data)
    manifest["variants"][2][key] = value
    with pytest.raises(BundleError, match=f"variant 2 has no '{key}'"):
        Bundle(container.pack(manifest, codes))


def test_other_formats_are_named(data: bytes) -> None:
    with pytest.raises(BundleError, match="format 2"):
        Bundle(b"TILEIRB2" + data[8:])


# Tools


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "scale.tile"
    path.write_text(SCALE)
    return str(path)


def test_opt_writes_what_python_writes(source: str, tmp_path: Path) -> None:
    out = tmp_path / "scale.tileb"
    sets = ["--set", "B=512", "--set", "B=64, T=f16"]
    assert opt.main([source, "--bundle", str(out), "--target", "gfx942", "--target", "gfx950", *sets]) == 0
    bundle = tileir.load_bundle(out)
    assert [(v["target"], v["params"]) for v in bundle.variants] == [
        (c, p) for p in ({"B": 512, "T": "f32"}, {"B": 64, "T": "f16"}) for c in CHIPS
    ]
    want = tileir.compile(Path(source), "gfx950", params={"B": 64, "T": "f16"})
    assert bundle.select("gfx950", B=64).hsaco == want.hsaco
    again = tmp_path / "again.tileb"
    assert opt.main([source, "--bundle", str(again), "--target", "gfx942", "--target", "gfx950", *sets]) == 0
    assert again.read_bytes() == out.read_bytes()


def test_opt_takes_all_kernels_and_common_parameters(tmp_path: Path) -> None:
    path, out = tmp_path / "two.tile", tmp_path / "two.tileb"
    path.write_text(SCALE + SCALE.removeprefix("tileir 1\n").replace("@scale", "@again"))
    assert opt.main([str(path), "--bundle", str(out), "--target", "gfx950", "-D", "B=128"]) == 0
    found = tileir.load_bundle(out).variants
    assert [(v["kernel"], v["params"]["B"]) for v in found] == [("scale", 128), ("again", 128)]
    assert opt.main([str(path), "-k", "again", "--bundle", str(out), "--target", "gfx950"]) == 0
    assert [v["kernel"] for v in tileir.load_bundle(out).variants] == ["again"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "gfx950", "--target", "gfx942"], "one --target, not 2"),
        (["--set", "B=1", "--target", "gfx950"], "--set is for --bundle"),
        (["--bundle", "{out}"], "needs at least one --target"),
        (["--bundle", "{out}", "--target", "gfx950", "--target", "gfx950"], "--target gfx950 is given twice"),
        (["--bundle", "{out}", "--target", "gfx950", "-o", "x", "--emit", "asm"], "leave -o, --emit away"),
        (["--bundle", "{out}", "--target", "gfx950", "--set", "B"], "--set wants NAME=VALUE,NAME=VALUE"),
        (["--bundle", "{out}", "--target", "gfx950", "--set", "B=1,B=2"], "--set wants NAME=VALUE,NAME=VALUE"),
        (["--bundle", "{out}", "--target", "gfx950", "-D", "B=64", "--set", "B=64"], "set by -D and by --set"),
        (["--bundle", "{out}", "--target", "gfx950", "--set", "B=64", "--set", "B=64"], "is in the bundle twice"),
        (["--bundle", "/nowhere/x.tileb", "--target", "gfx950"], "cannot write '/nowhere/x.tileb'"),
    ],
)
def test_usage_of_opt(
    source: str, arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.tileb"
    assert opt.main([source, *(a.replace("{out}", str(out)) for a in arguments)]) == 2
    assert message in capsys.readouterr().err and not out.exists()


def test_errors_of_any_variant_leave_no_bundle(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.tileb"
    assert opt.main([source, "--bundle", str(out), "--target", "gfx950", "--set", "B=64", "--set", "T=i1"]) == 1
    assert f"{source}:5:9: error: [E0323]" in capsys.readouterr().err and not out.exists()
    assert opt.main([source, "--bundle", str(out), "--target", "gfx950", "--target", "gfx1100"]) == 1
    assert "there is no target 'gfx1100'" in capsys.readouterr().err and not out.exists()


def test_tileir_bundle(data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.tileb"
    path.write_bytes(data)
    assert tool.main([str(path)]) == 0
    assert "0  scale for gfx942 (B=512, T=f32), " in capsys.readouterr().out
    assert tool.main([str(path), "--manifest"]) == 0
    assert json.loads(capsys.readouterr().out) == Bundle(data).manifest
    assert tool.main([str(path), "--extract", "3", "-o", str(tmp_path / "a.hsaco")]) == 0
    assert (tmp_path / "a.hsaco").read_bytes() == Bundle(data).select("gfx950", B=64).hsaco
    assert tool.main(["--include"]) == 0
    assert (Path(capsys.readouterr().out.strip()) / "tileir_bundle.h").is_file()
    for arguments, status, message in (
        ([], 2, "give a bundle"),
        ([str(path), "-o", "x"], 2, "-o belongs to --extract"),
        ([str(path), "--extract", "4"], 2, "variants 0 to 3"),
        (["/nowhere"], 2, "cannot read"),
    ):
        assert tool.main(arguments) == status
        assert message in capsys.readouterr().err
    path.write_bytes(data[:-1])
    assert tool.main([str(path)]) == 1 and "damaged" in capsys.readouterr().err
