"""Plans for conversions inside waves, carried out step by step on the registers of all lanes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from tileir.layout import Layout, LayoutError, conversion, mfma_accumulator, mfma_operand
from tileir.layout.exchange import Step, plans
from tileir.layout.motion import (
    Array,
    bits_swapped,
    collect,
    distribute,
    moved,
    select_motion,
    shuffle_motion,
    swapped,
)

from .pairs import pairs
from .strategies import layouts


def numbered(shape: tuple[int, ...]) -> Array:
    """A tile of distinct numbers, none of them 0 (which is what holes hold)."""
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.int32).reshape(shape)


def carried_out(registers: Array, before: Layout, step: Step) -> Array:
    """Registers [waves, 64, registers] after a step."""
    if step.kind == "swap":
        assert step.layout == swapped(before, step.register, step.lane)
        return bits_swapped(registers, step.register, step.lane)
    if step.kind == "rename":
        sources = conversion(before, step.layout).sources
        assert sources is not None
        return registers[:, :, np.maximum(np.array(sources), 0)]
    motion = (select_motion if step.kind == "select" else shuffle_motion)(before, step.layout)
    assert motion is not None
    return moved(registers, motion, step.layout)


@given(layouts())
def test_registers_hold_the_tile_and_give_it_back(layout: Layout) -> None:
    tile = numbered(layout.shape)
    registers = distribute(tile, layout)
    table = layout.owner_table()
    for w, l, r in np.ndindex(registers.shape):
        place = tuple(int(x) for x in table[w, l, r])
        inside = all(x < n for x, n in zip(place, layout.shape, strict=True))
        assert registers[w, l, r] == (tile[place] if inside else 0)
    assert np.array_equal(collect(registers, layout), tile)


@given(pairs())
def test_every_plan_ends_with_every_element_in_its_place(pair: tuple[Layout, Layout]) -> None:
    src, dst = pair
    tile = numbered(src.shape)
    found = plans(src, dst)
    assert bool(found) or conversion(src, dst).sources is None
    for plan in found:
        before, registers = src, distribute(tile, src)
        for step in plan:
            registers = carried_out(registers, before, step)
            before = step.layout
            assert np.array_equal(collect(registers, before), tile), step
        assert before == dst


@given(pairs(wave_bits=0))
def test_one_wave_never_needs_another(pair: tuple[Layout, Layout]) -> None:
    """What a single wave holds it can rearrange: there always is a plan, also with holes, copies and repetitions."""
    assert plans(*pair)


def accumulator_and_operand(k: int) -> tuple[Layout, Layout]:
    """Two 16 x 16 accumulators side by side, transposed as after a swapped product, and an operand of 16 rows."""
    acc = mfma_accumulator(16, 16, bits=32).transpose((1, 0)).repeat((1, k // 16))
    return acc, mfma_operand(16, k, bits=16)


def test_an_accumulator_becomes_an_operand_by_two_swaps() -> None:
    """Accumulator: columns 4·(l / 16) + e of each 16; operand: columns 8·(l / 16) + e. So column bit 3 goes from lane bit 5
    to lane bit 4, bit 2 from lane bit 4 to a register, bit 4 from a register to lane bit 5."""
    src, dst = accumulator_and_operand(32)
    best = min(plans(src, dst), key=len)
    assert [(s.kind, s.register, s.lane) for s in best] == [("swap", 2, 5), ("swap", 2, 4)]


def test_swaps_in_the_wrong_order_end_elsewhere() -> None:
    src, dst = accumulator_and_operand(32)
    tile = numbered(src.shape)
    wrong = swapped(swapped(src, 2, 4), 2, 5)
    assert wrong != dst
    registers = bits_swapped(bits_swapped(distribute(tile, src), 2, 4), 2, 5)
    assert not np.array_equal(collect(registers, dst), tile)


def test_a_swap_of_lane_and_register_by_hand() -> None:
    registers = np.arange(128).reshape(1, 64, 2)  # lane l holds 2·l and 2·l + 1
    out = bits_swapped(registers, 0, 5)
    assert out[0, 3].tolist() == [6, 70]  # the first registers of lanes 3 and 35
    assert out[0, 35].tolist() == [7, 71]  # the second registers of lanes 3 and 35


def test_what_needs_another_wave_has_no_plan() -> None:
    lane = [[1], [2], [4], [8], [16], [32]]
    src = Layout.from_bases((128,), [], lane, [[64]])
    assert plans(src, Layout.from_bases((128,), [], [*lane[:5], [64]], [[32]])) == ()


def test_copies_in_all_waves_serve_each() -> None:
    """Every wave holds the whole tile in two registers and keeps the half that belongs to it: one select by wave number."""
    lane = [[1], [2], [4], [8], [16], [32]]
    (plan,) = plans(Layout.from_bases((128,), [[64]], lane, [[0]]), Layout.from_bases((128,), [], lane, [[64]]))
    assert [s.kind for s in plan] == ["select"]


def test_bits_that_a_layout_does_not_have() -> None:
    layout = mfma_operand(16, 32, bits=16)
    for register, lane in ((3, 0), (0, 6), (-1, 0)):
        with pytest.raises(LayoutError, match=r"register bits 0 \.\. 2 and lane bits 0 \.\. 5"):
            swapped(layout, register, lane)
