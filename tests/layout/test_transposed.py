"""Transposing LDS reads, by carrying out the instruction's definition."""

from __future__ import annotations

import numpy as np
import pytest

from tileir.layout import Layout, LayoutError, mfma_operand, mma_layouts, transposed_source


def carry_out(source: Layout) -> np.ndarray:
    """Coordinates delivered to [wave, lane, register] when each lane addresses 4 elements as ``source`` says."""
    addressed = source.owner_table()  # [wave, lane, register, 2]; registers in runs of 4 consecutive elements
    out = np.empty_like(addressed)
    for lane in range(64):
        block, i = lane // 16 * 16, lane % 16
        for r in range(addressed.shape[2]):
            j = r % 4
            out[:, lane, r] = addressed[:, block + 4 * j + i // 4, r - j + i % 4]
    return out


@pytest.mark.parametrize("instr", [(16, 16, 32), (32, 32, 16), (16, 16, 16)])
@pytest.mark.parametrize(("n", "k", "grid"), [(128, 64, (2, 2)), (96, 32, (1, 2)), (48, 96, (1, 1))])
def test_b_operands_arrive_where_the_mfma_wants_them(
    instr: tuple[int, int, int], n: int, k: int, grid: tuple[int, int]
) -> None:
    _, b, _ = mma_layouts(64, n, k, wave_grid=grid, instr=instr, operand_bits=16)
    source = transposed_source(b)
    assert source.contiguous(1) >= 4
    assert np.array_equal(carry_out(source), b.owner_table())


def test_by_hand() -> None:
    # B of 16x16x32: lane 21 = column 5, k = 8 .. 15. Its first element, k = 8, is half 1 of what lane 16 + 1 addresses;
    # its second, k = 9, half 1 of what lane 16 + 4 + 1 addresses
    source = transposed_source(mfma_operand(16, 32, bits=16).transpose((1, 0)))
    assert [int(x) for x in source.coords(0, 17, 0)] == [8, 4]
    assert [int(x) for x in source.coords(1, 17, 0)] == [8, 5]
    assert [int(x) for x in source.coords(1, 21, 0)] == [9, 5]


def test_layouts_that_the_instruction_cannot_deliver() -> None:
    operand = mfma_operand(16, 32, bits=16)
    with pytest.raises(LayoutError, match="consecutive columns"):
        transposed_source(operand)  # k runs along columns: a plain read
    with pytest.raises(LayoutError, match="4 elements"):
        transposed_source(mfma_operand(16, 4, bits=32).transpose((1, 0)))
    with pytest.raises(LayoutError, match="rank 2"):
        transposed_source(operand.reshape((512,)))
