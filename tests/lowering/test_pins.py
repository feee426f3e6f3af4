"""Accumulators in the registers to which a schedule pins them: in every loop of the code, or an error."""

from __future__ import annotations

import pytest

from tests.kernels.harness import CHIPS
from tileir import kernels
from tileir.codeobject import CodeObject
from tileir.frontend import parse
from tileir.ir.core import Module
from tileir.ir.printer import print_module
from tileir.lowering.amdgpu.compile import Compiled, Options, compile_kernel
from tileir.lowering.amdgpu.contract import check
from tileir.lowering.amdgpu.contract_pins import written
from tileir.lowering.amdgpu.contract_waits import matrix_regions
from tileir.passes.manager import run_pipeline
from tileir.simulator.inspect import classify
from tileir.simulator.inspect.counts import class_of
from tileir.simulator.inspect.flow import control_flow


def pinned(chip: str, where: str) -> Module:
    """The library's GEMM of 64 x 64 on four waves, which sums in 16 registers."""
    schedule = f"\nschedule @pinned of @gemm for {chip} {{\n  waves %acc 2 x 2\n  pin %d in {where}\n}}\n"
    return parse(kernels.source("gemm") + schedule, "gemm.tile", {"BM": 64, "BN": 64})


def sums(compiled: Compiled) -> list[int]:
    """Of each innermost loop of matrix instructions the registers that these write, as a mask; the accumulation file from bit 256 on."""
    code = CodeObject.from_bytes(compiled.hsaco)
    flow = control_flow(code, next(iter(code.kernels.values())))
    found: list[int] = []
    for number in matrix_regions(flow):
        mask = 0
        for item in flow.items_of(flow.loops[number].nodes):
            if class_of(item) == classify.MFMA:
                mask |= written(item)
        found.append(mask)
    return found


@pytest.mark.parametrize(("chip", "where", "first"), [("gfx942", "v[0:15]", 0), ("gfx950", "a[0:15]", 256)])
def test_products_are_summed_where_the_text_says(chip: str, where: str, first: int) -> None:
    compiled = compile_kernel(pinned(chip, where), "", chip, Options(schedule="pinned"))
    assert compiled.stats["deviations"] == [] and compiled.stats["vgpr_spills"] == 0
    found = sums(compiled)
    assert len(found) >= 2 and set(found) == {0xFFFF << first}
    assert compiled.final is not None
    for op in compiled.final.walk():  # the same code is not what a text with another pin says
        pin = op.attrs.get("pin")
        if isinstance(pin, tuple):
            op.attrs["pin"] = tuple(int(n) + 4 for n in pin)
    assert {d.code for d in check(compiled.hsaco, compiled.final)} == {"E0866"}


@pytest.mark.parametrize("chip", CHIPS)
def test_pins_are_in_the_final_text(chip: str) -> None:
    final = run_pipeline(pinned(chip, "v[32:47]"), "", chip, schedule="pinned").kernel
    again = parse(print_module(Module([final])), "final.tile").kernels[0]
    for kernel in (final, again):
        parts = {op.attrs["pin"] for op in kernel.walk() if op.name == "mfma"}
        assert parts == {(n, n + 3) for n in (32, 36, 40, 44)}
        assert {op.attrs["pin"] for op in kernel.walk() if op.name == "mma"} <= {(32, 47)}
