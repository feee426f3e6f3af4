"""Classification of layout conversions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileir.layout import Layout, LayoutError, blocked, conversion, mfma_operand, mma_layouts

from .strategies import layouts

LANES = [[1, 0], [2, 0], [4, 0], [8, 0], [16, 0], [32, 0]]


def tile(reg: list[list[int]], lane: list[list[int]], wave: list[list[int]]) -> Layout:
    return Layout.from_bases((128, 4), reg, lane, wave)


BASE = tile([[0, 1], [0, 2]], LANES, [[64, 0]])


def test_same() -> None:
    assert conversion(BASE, BASE).kind == "none"


def test_registers_renamed() -> None:
    found = conversion(BASE, tile([[0, 2], [0, 1]], LANES, [[64, 0]]))
    assert found.kind == "registers"
    assert found.sources == (0, 2, 1, 3)


def test_lanes() -> None:
    assert conversion(BASE, tile([[0, 1], [0, 2]], LANES[::-1], [[64, 0]])).kind == "lanes"
    # registers that are exchanged differently in each lane are not a renaming
    assert conversion(BASE, tile([[0, 1], [0, 2]], [[1, 1], *LANES[1:]], [[64, 0]])).kind == "lanes"


def test_waves() -> None:
    assert conversion(BASE, tile([[0, 1], [0, 2]], [*LANES[:5], [64, 0]], [[32, 0]])).kind == "waves"


def test_copies_are_as_good_as_originals() -> None:
    replicated = Layout.from_bases((16, 4), [[0, 1], [0, 2]], [*LANES[:4], [0, 0], [0, 0]], [])
    fewer = Layout.from_bases((16, 4), [[0, 1]], [*LANES[:4], [0, 2], [0, 0]], [])
    assert conversion(replicated, fewer).kind == "lanes"  # the source register differs per lane
    assert conversion(fewer, replicated).kind == "lanes"
    doubled = Layout.from_bases((16, 4), [[0, 1], [0, 0], [0, 2]], [*LANES[:4], [0, 0], [0, 0]], [])
    assert conversion(replicated, doubled) == conversion(replicated, doubled)
    assert conversion(replicated, doubled).sources == (0, 1, 0, 1, 2, 3, 2, 3)


def test_holes_need_no_source() -> None:
    a = Layout.from_bases((3,), [[1], [2]], [[0]] * 6, [])
    b = Layout.from_bases((3,), [[2], [1]], [[0]] * 6, [])
    assert conversion(a, b).sources == (0, 2, 1, -1)


def test_operand_and_accumulator_of_one_tile() -> None:
    _, _, c = mma_layouts(64, 64, 64, wave_grid=(2, 2), instr=(16, 16, 32), operand_bits=16)
    a, _, _ = mma_layouts(64, 64, 64, wave_grid=(2, 2), instr=(16, 16, 32), operand_bits=16)
    assert conversion(c, a).kind == "waves"
    assert conversion(c, blocked((64, 64), 4, axis_order=(1, 0), vector=4)).kind == "waves"


@given(layouts(), st.data())
def test_sources_hold_the_elements(src: Layout, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(src.reg))))
    dst = Layout(src.shape, tuple(src.reg[i] for i in order), src.lane, src.wave, src.reps)
    found = conversion(src, dst)
    assert found.kind in ("none", "registers") and found.sources is not None
    a, b = src.owner_table(), dst.owner_table()
    for r, s in enumerate(found.sources):
        cares = np.all(b[:, :, r] < np.array(src.shape), axis=-1)
        if s < 0:
            assert not cares.any()
        else:
            assert np.array_equal(a[:, :, s][cares], b[:, :, r][cares])


def test_different_tiles_are_refused() -> None:
    with pytest.raises(LayoutError, match="keeps the shape"):
        conversion(BASE, BASE.transpose([1, 0]))
    with pytest.raises(LayoutError, match="number of waves"):
        conversion(mfma_operand(16, 32, bits=16), blocked((16, 32), 2, axis_order=(1, 0), vector=8))
