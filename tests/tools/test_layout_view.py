"""The HTML view of layouts: well-formed, and right about sampled elements by formulas of the test's own."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tileir import kernels
from tileir.tools.layout_view import SCRIPT, main

CHIPS = ("gfx942", "gfx950")
SAMPLES = 200


def view(tmp_path: Path, name: str, *options: str) -> str:
    source = tmp_path / f"{name}.tile"
    source.write_text(kernels.source(name), encoding="utf-8")
    out = tmp_path / "out.html"
    assert main([str(source), "-o", str(out), *options]) == 0
    return out.read_text(encoding="utf-8")


def root_of(page: str) -> ElementTree.Element:
    head, rest = page.split("\n", 1)
    assert head == "<!DOCTYPE html>"
    return ElementTree.fromstring(rest)


def data_of(page: str) -> list[dict[str, Any]]:
    (data,) = (e for e in root_of(page).iter("script") if e.get("id") == "data")
    return json.loads(data.text or "")


def coordinates(text: str, rank: int, wave: int, lane: int, register: int) -> list[int]:
    """Element held by a register according to the printed layout: XOR of the basis vectors that the bits select, plus the
    block times the repetition."""
    bases = {k: json.loads(v) for k, v in re.findall(r"(reg|lane|wave) = (\[\[.*?\]\]|\[\])", text)}
    reps = json.loads(m.group(1)) if (m := re.search(r"reps = (\[.*?\])", text)) else [1] * rank
    block = [1 << max((v[d] for b in bases.values() for v in b), default=0).bit_length() for d in range(rank)]
    out = [0] * rank
    count = 1 << len(bases["reg"])
    for vectors, bits in ((bases["reg"], register % count), (bases["lane"], lane), (bases["wave"], wave)):
        for i, v in enumerate(vectors):
            if bits >> i & 1:
                out = [a ^ b for a, b in zip(out, v, strict=True)]
    rep = register // count
    for d in reversed(range(rank)):
        out[d] += rep % reps[d] * block[d]
        rep //= reps[d]
    return out


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gemm", ["-D", "BM=64", "-D", "BN=64"]),
        ("gemm", ["-D", "BM=96", "-D", "BN=32", "-D", "BK=32"]),
        ("gemm_forms", ["-k", "gemm_tn", "-D", "BM=64", "-D", "BN=64", "-D", "T=f16", "-D", "O=f16"]),
        ("gemm_batched", []),
        ("softmax", []),
        ("vector_add", []),
    ],
    ids=str,
)
def test_owners_of_sampled_elements(tmp_path: Path, chip: str, name: str, options: list[str]) -> None:
    rng = random.Random(1)
    tiles = [p for p in data_of(view(tmp_path, name, "--target", chip, *options)) if p["kind"] == "tile"]
    assert tiles
    for p in tiles:
        size = 1
        for n in p["shape"]:
            size *= n
        assert len(p["owner"]) == size
        for i in rng.sample(range(size), min(SAMPLES, size)):
            index, rest = [], i
            for n in reversed(p["shape"]):
                index.insert(0, rest % n)
                rest //= n
            held, register = divmod(p["owner"][i], p["registers"])
            wave, lane = divmod(held, 64)
            assert wave < p["waves"]
            assert coordinates(p["layout"], len(index), wave, lane, register) == index


def test_mfma_operand_by_hand(tmp_path: Path) -> None:
    """A of 16x16x32 on gfx950: lane l holds row l % 16 of a fragment, and 8 consecutive k from 8 · (l / 16) on."""
    page = view(tmp_path, "gemm", "--target", "gfx950", "-D", "BM=64", "-D", "BN=64", "-D", "BK=32")
    (a,) = (p for p in data_of(page) if p["title"].startswith("tile<bf16[64, 32]>: %ma"))
    for row in range(64):
        for k in range(32):
            held, _ = divmod(a["owner"][row * 32 + k], a["registers"])
            assert held % 64 % 16 == row % 16 and held % 64 // 16 == k // 8, (row, k)


@pytest.mark.parametrize("chip", CHIPS)
def test_buffers(tmp_path: Path, chip: str) -> None:
    """Bytes by the definition of the swizzle; the places of the buffers as in the text of `--explain-lds` on the page."""
    page = view(tmp_path, "gemm", "--target", chip, "-D", "BM=64", "-D", "BN=64")
    buffers = [p for p in data_of(page) if p["kind"] == "buffer"]
    assert [p["start"] for p in buffers[-2:]] == [0, 8192], "the version for views that are not aligned"
    assert [p["start"] for p in buffers[:-2]] == [8192 * i for i in range(len(buffers) - 2)] and len(buffers) >= 4
    for p in buffers:
        m = re.fullmatch(r"swizzle\((\d+), (\d+), (\d+)\)", p["layout"])
        assert m is not None and p["banks"] == (64 if chip == "gfx950" else 32)
        bits, base, shift = map(int, m.groups())
        for row in range(64):
            for col in range(64):
                x = row * 128 + col * 2
                assert p["offset"][row * 64 + col] == x ^ ((x >> (base + shift) & ((1 << bits) - 1)) << base)
    (shown,) = (e.text for e in root_of(page).iter("pre"))
    assert shown is not None and shown.startswith(f"kernel gemm on {chip}: {len(buffers)} LDS buffers")


def test_page_needs_nothing_else_and_is_deterministic(tmp_path: Path) -> None:
    page = view(tmp_path, "gemm", "--target", "gfx942")
    assert "http" not in page and "src=" not in page
    assert page == view(tmp_path, "gemm", "--target", "gfx942")
    root = root_of(page)
    maps = [e.get("id") for e in root.iter("canvas")]
    assert maps == [f"map{i}" for i in range(len(data_of(page)))]
    assert sum(1 for e in root.iter("h2")) == len(maps)


def test_hover_text(tmp_path: Path) -> None:
    """The script itself, run by node, says what the data says."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    pictures = data_of(view(tmp_path, "gemm", "--target", "gfx950", "-D", "BM=64", "-D", "BN=64"))
    call = f"console.log(JSON.stringify({json.dumps(pictures)}.map(prepare).map(p => describe(p, 70))))"
    out = subprocess.run([node, "-"], input=SCRIPT + call, capture_output=True, text=True, check=True)
    for p, said in zip(pictures, json.loads(out.stdout), strict=True):
        row, col = divmod(70, p["shape"][1])
        assert said.startswith(f"element [{row}, {col}]: ")
        if p["kind"] == "buffer":
            byte = p["offset"][70]
            assert said.endswith(f"byte {byte} of the buffer, bank {(p['start'] + byte) // 4 % 64} of 64")
        else:
            held, register = divmod(p["owner"][70], p["registers"])
            assert f"wave {held // 64}, lane {held % 64}, register {register}" in said
            assert ("more cop" in said) == (p["copies"] > 1)


def test_every_element_is_painted(tmp_path: Path) -> None:
    """The whole script in node, with a page that only remembers what is painted on its canvases."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    page = view(tmp_path, "gemm", "--target", "gfx942", "-D", "BM=64", "-D", "BN=32", "-D", "BK=32")
    pictures = data_of(page)
    fake = f"""
const painted = {{}}, elements = {{ data: {{ textContent: {json.dumps(json.dumps(pictures))} }}, by: {{ value: "register" }} }};
const canvas = id => {{
  const context = {{ fillRect(x, y) {{ (painted[id] = painted[id] || []).push([x, y, context.fillStyle].join(" ")); }} }};
  return {{ getContext: () => context }};
}};
const document = {{ getElementById: id => elements[id] || (elements[id] = canvas(id)) }};
"""
    call = "console.log(JSON.stringify(painted));"
    out = subprocess.run([node, "-"], input=fake + SCRIPT + call, capture_output=True, text=True, check=True)
    painted = json.loads(out.stdout)
    assert list(painted) == [f"map{i}" for i in range(len(pictures))]
    for p, rectangles in zip(pictures, painted.values(), strict=True):
        rows, cols = p["shape"]
        assert len(set(rectangles)) == rows * cols and not any("NaN" in r or "undefined" in r for r in rectangles)
        colours = {r.split(" ", 2)[2] for r in rectangles}
        assert len(colours) == (p["registers"] if p["kind"] == "tile" else p["banks"])


def test_stage_and_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = view(tmp_path, "gemm", "--target", "gfx950", "--stage", "assign-layouts")
    assert {p["kind"] for p in data_of(page)} == {"tile"}
    file = str(tmp_path / "gemm.tile")
    assert main([file, "--target", "gfx950", "--stage", "place-memory"]) == 2
    assert "no layouts after 'place-memory'" in capsys.readouterr().err
    assert main([file, "--target", "gfx950", "--stage", "nothing"]) == 2
    assert "there is no pass 'nothing'" in capsys.readouterr().err
    assert main([file, "--target", "gfx77"]) == 1
    assert "E1004" in capsys.readouterr().err
