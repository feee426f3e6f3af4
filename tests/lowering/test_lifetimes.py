"""Lifetimes of kernels: rows beside the text, peaks and what they hold, as text and as a chart."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.kernels.harness import CHIPS
from tileir import kernels
from tileir.frontend import parse
from tileir.ir.core import Kernel
from tileir.lowering.amdgpu.registers.lifetimes import ADDRESS, ROLES, VALUE, Lifetimes, lifetimes
from tileir.lowering.amdgpu.registers.values import SCALAR, VECTOR
from tileir.passes.manager import run_pipeline
from tileir.target import get
from tileir.tools import lifetimes_view
from tileir.tools.opt import main

FOUR = """tileir 1
kernel @k(%X: global<f32[64, 512], strides = [512, 1]>, %Y: global<f32[64, 128], strides = [128, 1]>) grid(1) with(waves = 4) {
  %a = load(%X[0 +: 64, 0 +: 128])
  %b = load(%X[0 +: 64, 128 +: 128])
  %c = load(%X[0 +: 64, 256 +: 128])
  %d = load(%X[0 +: 64, 384 +: 128])
  %s = reduce_max(%a, axis = 1)
  %t = (%a - %s) * %b
  store(%t * %c * %d, %Y[0 +: 64, 0 +: 128])
}
"""


def found(text: str, chip: str, **params: int) -> Lifetimes:
    return lifetimes(final(text, chip, **params), get(chip))


def final(text: str, chip: str, **params: int) -> Kernel:
    return run_pipeline(parse(text, "k.tile", params), "", chip).kernel


def test_four_tiles_by_hand() -> None:
    """Tiles of 32 registers a lane: loads come early, so that three are there while the fourth is on its way."""
    lives = found(FOUR, "gfx950")
    held = {h.name.split("_")[0]: h for h in lives.peaks[0].held if h.role == VALUE and h.file == VECTOR}
    assert all(31 <= held[f"%{x}"].registers <= 32 for x in "abc")
    assert [held[f"%{x}"].line for x in "abc"] == [3, 4, 5]
    assert lives.peaks[0].vector == sum(h.registers for h in lives.peaks[0].held if h.file == VECTOR)
    assert lives.peaks[0].scalar == sum(h.registers for h in lives.peaks[0].held if h.file == SCALAR)
    assert lives.prediction.vector >= lives.peaks[0].vector >= 96


@pytest.mark.parametrize("chip", CHIPS)
def test_rows_and_peaks_agree(chip: str) -> None:
    lives = found(kernels.source("gemm"), chip, BM=64, BN=64)
    assert [r.op for r in lives.rows] == list(lives.kernel.walk())
    assert max(r.vector for r in lives.rows) >= lives.peaks[0].vector
    assert all(sum(r.roles) <= max(x.vector for x in lives.rows) and len(r.roles) == len(ROLES) for r in lives.rows)
    loops = [op for op in lives.kernel.walk() if op.name in ("for", "while")]
    assert [p.loop for p in lives.peaks] == [None, *loops]
    assert all(p.registers <= lives.peaks[0].registers for p in lives.peaks)
    assert any(h.role == ADDRESS for h in lives.peaks[1].held), "loops keep the addresses of their accesses"


def test_places_of_the_kernel_stay() -> None:
    kernel = final(FOUR, "gfx942")
    before = [op.loc for op in kernel.walk()]
    lifetimes(kernel, get("gfx942"))
    assert [op.loc for op in kernel.walk()] == before


def test_text_stands_beside_the_ir() -> None:
    lives = found(kernels.source("softmax"), "gfx950")
    lines = lifetimes_view.text(lives).splitlines()
    beside = [line for line in lines if " | " in line and line[:7].strip()]
    assert len(beside) == len(lives.rows)
    for line, row in zip(beside, lives.rows, strict=True):
        left, op = line.split(" | ", 1)
        assert [int(x) for x in left.split()] == [row.vector, row.accumulation, row.scalar]
        assert row.op.name in op
    assert sum(line.startswith("most alive in") for line in lines) == len(lives.peaks)


def test_the_page_is_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "k.tile", tmp_path / "k.html"
    source.write_text(FOUR)
    assert main([str(source), "--target", "gfx942", "--lifetimes-html", str(out)]) == 0
    assert capsys.readouterr().out == ""
    page = out.read_text()
    root = ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>").replace('<meta charset="utf-8"/>', ""))
    charts = root.findall(".//{http://www.w3.org/2000/svg}svg")
    assert len(charts) == 2 and len(charts[0].findall(".//{http://www.w3.org/2000/svg}polygon")) >= 2
    assert "http" not in page.replace("http://www.w3.org/2000/svg", ""), "nothing is fetched"
    assert main([str(source), "--target", "gfx942", "--print-lifetimes"]) == 0
    assert "most alive in the kernel" in capsys.readouterr().out
    assert main([str(source), "--target", "gfx942", "--print-lifetimes", "--emit", "asm"]) == 2


def test_the_same_text_gives_the_same_page() -> None:
    pages = {lifetimes_view.page([found(FOUR, "gfx950")]) for _ in range(2)}
    assert len(pages) == 1
