"""Bundles in C: the header alone against Python, and the loader of `examples/aot` against a HIP library on the simulator."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

import tileir
from tileir import bundle as bundle_package
from tileir import kernels
from tileir.bundle import container
from tileir.bundle.bundle import bundle_bytes
from tileir.bundle.manifest import describe
from tileir.frontend import parse
from tileir.ir.expr import Expr
from tileir.runtime.standin import build
from tileir.tools import opt

pytestmark = pytest.mark.xdist_group("bundle-c")
INCLUDE = Path(bundle_package.__file__).parent
AOT = Path(__file__).resolve().parents[2] / "examples" / "aot"
SYMBOLS = {"M": 1000, "N": 77, "K": 4096, "LONG_1": 3000000000, "Z": 0}
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wno-sign-conversion", "-Werror")
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def cc(*arguments: object) -> None:
    done = subprocess.run([sys.executable, "-m", "ziglang", "cc", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs the reader; undefined behaviour ends it with a signal."""
    out = tmp_path_factory.mktemp("reader") / "reader"
    source = Path(__file__).parent / "reader.c"
    cc(*STRICT, "-O1", "-g", "-fsanitize=undefined", "-fno-sanitize-recover=all", f"-I{INCLUDE}", source, "-o", out)

    def run(*arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
        done = subprocess.run([out, *map(str, arguments)], input=stdin, capture_output=True, text=True)
        assert done.returncode in (0, 1), (done.returncode, done.stderr)
        return done

    return run


@pytest.fixture(scope="module")
def gemm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "gemm.tileb"
    text = kernels.source("gemm")
    sets = ({"BM": 64, "T": "f16"}, {"BM": 128, "T": "bf16"})
    found = [tileir.compile(text, chip, kernel="gemm", params=p) for p in sets for chip in ("gfx942", "gfx950")]
    tileir.write_bundle(path, found)
    return path


def test_the_header_is_good_for_cpp(tmp_path: Path) -> None:
    source = Path(__file__).parent / "reader.c"
    options = ("-x", "c++", "-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-nostdinc++", f"-I{INCLUDE}")
    cc(*options, "-c", source, "-o", tmp_path / "reader.o")


def test_c_sees_what_python_sees(read: Run, gemm: Path) -> None:
    bundle = tileir.load_bundle(gemm)
    want: list[str] = []
    for v in bundle.variants:
        names = ("M", "N", "K")
        expressions = parse(
            f"tileir 1\nkernel @g(%X: global<f32[{', '.join(names)}]>) grid({', '.join(v['grid'])}) {{\n}}\n"
        ).kernels[0].grid  # fmt: skip
        grid = [*(e.evaluate(SYMBOLS) for e in expressions), 1, 1][:3]
        block, sizes = " ".join(map(str, v["block"])), " ".join(map(str, grid))
        want.append(
            f"{v['kernel']} {v['target']} code {v['size']} block {block} lds {v['lds_bytes']} "
            f"kernargs {v['kernarg_bytes']} grid {sizes}"
        )
        for a in v["arguments"]:
            written = int(a.get("written", False))
            want.append(f"  {a['name']} {a['kind']} {a['type']} at {a['offset']} size {a['size']} written {written}")
        want += ["  symbols: LDA of gemm is not given", ""]
    got = [line if not line.startswith("  00") else "" for line in read(gemm).stdout.split("\n")]
    assert [g.replace(g, "") if set(g) <= set(" 0123456789abcdef") else g for g in got][:-1] == want


def test_symbols_go_to_their_places(read: Run, tmp_path: Path) -> None:
    text = "tileir 1\nkernel @k(%X: global<f32[M, N], strides = [LONG_1, 1]>) grid(1) {\n  store(1.0, %X[0, 0])\n}\n"
    path = tmp_path / "k.tileb"
    tileir.write_bundle(path, [tileir.compile(text, "gfx950")])
    (v,) = tileir.load_bundle(path).variants
    raw = bytes.fromhex(read(path).stdout.strip().split("\n")[-1])
    found = {a["name"]: int.from_bytes(raw[a["offset"] : a["offset"] + a["size"]], "little") for a in v["arguments"]}
    assert found == {"X": 0, "M": 1000, "N": 77, "LONG_1": 3000000000}


@pytest.mark.parametrize("isa", ["gfx942", "gfx950:sramecc+:xnack-", "gfx90a:sramecc+:xnack-", "gfx9", ""])
@pytest.mark.parametrize(
    "settings", ["", "BM=64", "BM=128,T=bf16", "T=bf16,BM=64", "BM=6", "BM=640", "Q=1", "BM", "=", "BM=128,"]
)
def test_c_finds_what_python_finds(read: Run, gemm: Path, isa: str, settings: str) -> None:
    bundle = tileir.load_bundle(gemm)
    done = read(gemm, isa, "gemm", settings)
    wanted = [part.partition("=") for part in settings.rstrip(",").split(",")] if settings else []
    try:
        if any(not name or not value for name, _, value in wanted):
            raise tileir.BundleError("malformed")
        found = bundle.select(isa, "gemm", **{name: value for name, _, value in wanted})
    except tileir.BundleError:
        assert done.returncode == 1 and "the bundle has no gemm for" in done.stdout
        assert all(f"{v['kernel']} for {v['target']} " in done.stdout for v in bundle.variants)
    else:
        assert done.stdout == f"gemm {found.target} {len(found.hsaco)}\n", describe(found.variant)
    assert read(gemm, isa, "other", settings).returncode == 1


def random_expression(r: random.Random, depth: int) -> Expr:
    if depth == 0 or r.random() < 0.2:
        return (
            Expr("symbol", symbol=r.choice(list(SYMBOLS)))
            if r.random() < 0.6
            else Expr("int", value=r.choice([0, 1, 2, 3, 7, 64, 255, -1, -5]))
        )
    op = r.choice(["add", "sub", "mul", "div", "cdiv", "mod", "min", "max"])
    return Expr(op, args=(random_expression(r, depth - 1), random_expression(r, depth - 1)))


def test_expressions_have_the_same_value_in_c(read: Run) -> None:
    r = random.Random(11)
    expressions = [random_expression(r, r.randrange(6)) for _ in range(3000)]
    lines = read("-e", stdin="".join(f"{e}\n" for e in expressions)).stdout.rstrip("\n").split("\n")
    values = 0
    for e, got in zip(expressions, lines, strict=True):
        try:
            want = e.evaluate(SYMBOLS)
        except ZeroDivisionError:
            assert got.startswith("error: ") and ("divides by zero" in got or "64 bits" in got), e
            continue
        if "64 bits" not in got:  # an intermediate result of 64 bits is enough for every grid that can be launched
            assert got == str(want), e
            values += 1
    assert values > 2000


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "malformed"), ("1 +", "malformed"), ("(1", "malformed"), ("1)", "malformed"), ("cdiv(1)", "malformed"),
        ("cdiv(1, 2, 3)", "malformed"), ("sqrt(1, 2)", "unknown function"), ("Q", "symbol that is not given"), ("M N", "malformed"),
        ("1 / 0", "divides by zero"), ("mod(M, Z)", "divides by zero"), ("cdiv(M, Z)", "divides by zero"), ("$", "malformed"),
        ("9223372036854775808", "64 bits"), ("LONG_1 * LONG_1 * LONG_1", "64 bits"), ("0 - 9223372036854775807 - 2", "64 bits"),
        ("(" * 1000 + "1", "deeply"), ("-" * 1000 + "1", "deeply"), ("(0 - 9223372036854775807 - 1) / (0 - 1)", "64 bits"),
        ("-(0 - 9223372036854775807 - 1)", "64 bits"),
    ],
)  # fmt: skip
def test_expressions_that_have_no_value(read: Run, text: str, error: str) -> None:
    (line,) = read("-e", stdin=f"{text}\n").stdout.rstrip("\n").split("\n")
    assert line.startswith("error: ") and error in line


def test_damage_never_breaks_the_reader(read: Run, gemm: Path, tmp_path: Path) -> None:
    """Flipped bits, and manifests that were changed and have a right checksum again, as nobody but an attacker makes them."""
    data = gemm.read_bytes()
    length = int.from_bytes(data[16:24], "little")
    r, path = random.Random(4), tmp_path / "bad.tileb"
    for at in [*range(24), *r.sample(range(24, len(data)), 40)]:
        bad = bytearray(data)
        bad[at] ^= 1 << r.randrange(8)
        path.write_bytes(bad)
        python = None
        try:
            python = tileir.Bundle(bytes(bad))
        except tileir.BundleError:
            pass
        assert (read(path).returncode == 0) == (python is not None), at
    for _ in range(150):
        text = bytearray(data[24 : 24 + length])
        for _ in range(r.randrange(1, 4)):
            at = r.randrange(length)
            text[at : at + r.randrange(3)] = r.choice(
                [b"", b'"', b"{", b"]", b",", b":", b"9" * 25, b"-", b"\\", b"null"]
            )
        text = text[:length].ljust(length)
        path.write_bytes(
            container.HEADER.pack(container.MAGIC, zlib.crc32(text), 0, length) + text + data[24 + length :]
        )
        read(path)
        read(path, "gfx950", "gemm", "BM=64")
    for size in (0, 7, 8, 23, 24, 25, 24 + length, len(data) - 1):
        path.write_bytes(data[:size])
        assert read(path).returncode == 1


# The loader


@pytest.fixture(scope="module")
def hip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a `libamdhip64` that runs launches on the simulator."""
    return build(tmp_path_factory.mktemp("hip")).parent


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory, hip: Path) -> Run:
    directory = tmp_path_factory.mktemp("aot")
    out, bundle = directory / "loader", directory / "scale.tileb"
    arguments = [str(AOT / "scale.tile"), "--bundle", str(bundle), "--set", "B=256", "--set", "B=1024"]
    assert opt.main([*arguments, "--target", "gfx942", "--target", "gfx950"]) == 0
    link = (f"-L{hip}", "-lamdhip64", f"-Wl,-rpath,{hip}")
    cc(*STRICT, "-DTILEIR_MINIMAL_HIP", f"-I{INCLUDE}", AOT / "loader.c", *link, "-o", out)

    def run(devices: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "TILEIR_STANDIN_DEVICES": devices}
        command = [str(out), *(str(a).replace("{bundle}", str(bundle)) for a in arguments)]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    return run


@pytest.mark.parametrize("isa", ["gfx942:sramecc+:xnack-", "gfx950:sramecc+:xnack+"])
@pytest.mark.parametrize(("n", "settings", "grid"), [(1000, "B=1024", 1), (1000, None, 4), (0, None, 0)])
def test_the_loader_runs_the_variant_of_the_gpu(load: Run, isa: str, n: int, settings: str | None, grid: int) -> None:
    done = load(isa, "{bundle}", n, *([settings] if settings else []))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"scale on {isa}: grid {grid}, block 256, 0 of {n} results are wrong\n"


def test_the_loader_says_what_is_wrong(load: Run, tmp_path: Path) -> None:
    done = load("gfx950:sramecc+:xnack-", "{bundle}", 10, "B=7")
    assert (
        done.returncode == 1
        and "the bundle has no scale for gfx950:sramecc+:xnack- with B=7; it has scale" in done.stderr
    )
    bad = tmp_path / "bad.tileb"
    bad.write_bytes(bundle_bytes([tileir.compile(kernels.source("vector_add"), "gfx942")]))
    done = load("gfx950:sramecc+:xnack-", bad, 10)
    assert done.returncode == 1 and "it has vector_add for gfx942" in done.stderr
    done = load("", "{bundle}", 10)
    assert done.returncode == 1 and "hipGetDeviceProperties" in done.stderr


def test_the_loader_reads_a_hip_header_of_rocm(tmp_path: Path) -> None:
    """It compiles with the names that ROCm's header declares, too, where that header is."""
    if not Path("/opt/rocm/include/hip/hip_runtime_api.h").exists():
        pytest.skip("ROCm's headers are not installed")
    cc("-std=c11", f"-I{INCLUDE}", "-I/opt/rocm/include", "-c", AOT / "loader.c", "-o", tmp_path / "loader.o")
