"""`tileir-opt --print-schedule`: the table says what the text says, and its counters are what the waits of the text leave."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.framework import Subject
from tileir.frontend import parse
from tileir.ir.core import Kernel, Op
from tileir.ir.diagnostics import Log
from tileir.passes.manager import Result, run_pipeline
from tileir.target import get
from tileir.tools import schedule_view
from tileir.tools.opt import main

KERNELS = Path(__file__).parents[2] / "tileir" / "kernels"
READS = ("shared_load_fragment", "shared_load_transposed_fragment")


def result(text: str, chip: str) -> Result:
    return run_pipeline(parse(text, "k.tile"), "", chip, log=Log())


def first_loop(kernel: Kernel) -> Op:
    return next(op for op in kernel.walk() if op.name == "for")


@pytest.mark.parametrize(
    "subject", [Subject("gfx950", "ping_pong"), Subject("gfx942", "interleave"), Subject("gfx950", "plain", 3)], ids=str
)
def test_the_rows_are_the_ops_of_the_text(subject: Subject) -> None:
    made = result(subject.text, subject.chip)
    loop = first_loop(made.kernel)
    (schedule,) = schedule_view.of([made])
    shown = schedule.loops[0]
    ops = loop.regions[0].ops
    order = [op.name for op in ops if op.name in ("mfma", "wait", "barrier", "priority", *READS, "copy_async_part")]
    rows = [row.text.split()[0] for row in shown.rows]
    assert [name for name in rows if name in order] == order
    if not subject.plain:
        products = [op for op in ops if op.name == "mfma"]
        m, n, k = products[0].attrs["instr"]  # type: ignore[misc]
        (clocks,) = {
            get(subject.chip).mfma_clocks(i, "bf16", "bf16")
            for i in get(subject.chip).mfmas_for("bf16", "bf16", "f32")
            if (i.m, i.n, i.k) == (m, n, k)
        }
        assert shown.counts["matrix"] == len(products) and shown.clocks["matrix"] == clocks * len(products)
        assert sum(r.lds_bytes for r in shown.rows if r.kind == "read of LDS") == 16 * 64 * shown.counts["read of LDS"]
    else:
        (m, n, k), *others = (op.attrs["instr"] for op in ops if op.name == "mma")  # type: ignore[misc]
        assert len(others) == 2 and shown.counts["matrix"] * 4 * m * n * k == 3 * 64 * 64 * 32  # four waves
    fences = sum(op.name in ("schedule_fence", "barrier") for op in ops)
    assert shown.rows[-1].slot <= fences


@pytest.mark.parametrize("subject", [Subject("gfx950", "ping_pong"), Subject("gfx950", "interleave", 3)], ids=str)
def test_what_is_under_way_is_what_waits_leave(subject: Subject) -> None:
    made = result(subject.text, subject.chip)
    shown = schedule_view.of([made])[0].loops[0]
    ops = [op for op in first_loop(made.kernel).regions[0].ops if op.name == "wait"]
    waits = [row for row in shown.rows if row.text.startswith("wait")]
    assert len(waits) == len(ops) > 1
    for row, op in zip(waits, ops, strict=True):
        if "vm" in op.attrs:
            assert row.vm == op.attrs["vm"]  # waits are exact: as many are under way as they let
        if "lgkm" in op.attrs:
            assert row.lgkm == 0
    raised = {row.priority for row in shown.rows if row.kind == "matrix"}
    assert raised == ({1} if subject.halves else {0})
    assert all(row.priority == 0 for row in shown.rows if row.kind == "direct copy")
    vm = [row.vm for row in shown.rows]
    assert all(b == a + 1 for a, b, row in zip(vm, vm[1:], shown.rows[1:], strict=False) if row.kind == "direct copy")


def test_a_woven_loop_shows_its_guard_and_vector_work() -> None:
    made = result((KERNELS / "attention_prescaled.tile").read_text(), "gfx950")
    shown = schedule_view.of([made])[0].loops[0]
    guards = [row for row in shown.rows if row.kind == "region"]
    assert len(guards) == 3 and all("guard" in row.text and "need no row" in row.text for row in guards)
    text = Counter(op.name for op in first_loop(made.kernel).regions[0].ops)
    exponentials = sum(
        int(part.split(" x ")[0]) if " x exp2" in part else part == "exp2"
        for row in shown.rows
        for part in row.text.split(", ")
        if "exp2" in part
    )
    assert exponentials == text["exp2"] > 60 and shown.counts["matrix"] == text["mfma"]
    assert shown.clocks["matrix"] == 3 * 32 * 32 and shown.clocks["vector"] > 4 * 3 * 64


def test_the_tool_prints_and_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "g.tile"
    source.write_text(Subject("gfx950", "interleave").text)
    data = tmp_path / "s.json"
    assert main([str(source), "--target", "gfx950", "--print-schedule", "--schedule-json", str(data)]) == 0
    printed = capsys.readouterr().out
    (kernel,) = json.loads(data.read_text())
    assert kernel["kernel"] == "gemm" and kernel["target"] == "gfx950" and kernel["waves"] == 4
    loops: list[Any] = kernel["loops"]
    assert printed.count("\nloop %") == len(loops) == 2
    assert sum(len(loop["rows"]) for loop in loops) + 3 * len(loops) + 1 == len(printed.splitlines())
    for options in (["--print-lifetimes"], ["--emit", "asm"], ["--stop-after", "simplify"]):
        assert main([str(source), "--target", "gfx950", "--print-schedule", *options]) == 2
