"""Registers of the scales of block-scaled products."""

from __future__ import annotations

import pytest

from tileir.layout import LayoutError, mma_layouts, mma_plan
from tileir.layout.mma import scale_registers

INSTRS = ((16, 16, 128), (32, 32, 64))


@pytest.mark.parametrize("instr", INSTRS)
@pytest.mark.parametrize("bits", [(8, 8), (8, 4), (4, 8), (6, 4), (4, 4)])
def test_scales_lie_with_their_fragments(instr: tuple[int, int, int], bits: tuple[int, int]) -> None:
    """For every step the register of scales has the rows and the blocks of k of the fragment, whatever the widths of operands."""
    m, n, k = 96, 64, 256
    a, b, c = mma_layouts(m, n, k, wave_grid=(2, 2), instr=instr, operand_bits=bits)
    short = (instr[0], instr[1], instr[2] // 32)
    sa, sb, _ = mma_layouts(m, n, k // 32, wave_grid=(2, 2), instr=short, operand_bits=8)
    plan = mma_plan(a, b, c, instr=instr, operand_bits=bits)
    found = scale_registers(plan, (a, b), (sa, sb), instr, bits)
    assert len(found) == len(plan.steps)
    tables = [x.owner_table() for x in (a, b, sa, sb)]
    for step, places in zip(plan.steps, found, strict=True):
        for axis, (first, place) in enumerate(zip((step.a, step.b), places, strict=True)):
            data, scale = tables[axis][:, :, first], tables[2 + axis][:, :, place]
            rows = instr[axis]
            for wave in range(4):
                held = {(int(x[axis]), int(x[1 - axis])) for x in scale[wave]}
                origin = data[wave, 0, axis]
                assert {r for r, _ in held} == set(range(origin, origin + rows))
                start = min(int(x[1 - axis]) for x in data[wave]) // 32
                assert {x for _, x in held} == set(range(start, start + instr[2] // 32))


def test_orders_that_mix_blocks_are_rejected() -> None:
    order = [1, 2, 4, 8, 32, 16, 64]
    a, b, c = mma_layouts(16, 16, 128, wave_grid=(1, 1), instr=(16, 16, 128), operand_bits=8, k_order=order)
    sa, sb, _ = mma_layouts(16, 16, 4, wave_grid=(1, 1), instr=(16, 16, 4), operand_bits=8)
    plan = mma_plan(a, b, c, instr=(16, 16, 128), operand_bits=8)
    with pytest.raises(LayoutError, match="mixes blocks of 32"):
        scale_registers(plan, (a, b), (sa, sb), (16, 16, 128), (8, 8))


def test_other_instructions_take_no_scales() -> None:
    a, b, c = mma_layouts(16, 16, 32, wave_grid=(1, 1), instr=(16, 16, 32), operand_bits=8)
    plan = mma_plan(a, b, c, instr=(16, 16, 32), operand_bits=8)
    with pytest.raises(LayoutError, match="takes no scales"):
        scale_registers(plan, (a, b), (a, b), (16, 16, 32), (8, 8))
