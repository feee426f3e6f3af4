"""Masks of XOR layouts, solved for: against enumeration of conflicts and against trying everything."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tileir.layout import Access, SharedLayout
from tileir.layout.masks import Constraints, bank_mask, differences

from .rules import EIGHTS, SIXTEENS, Rule, consecutive

RULES = (
    Rule("b128", 16, 32, EIGHTS),
    Rule("b128", 16, 64, SIXTEENS),
    Rule("b64", 8, 64, consecutive(32)),
    Rule("b32", 4, 32, consecutive(32)),
    Rule("u16", 2, 32, consecutive(32)),
)
ROWS, COLUMNS = 32, 128  # bytes: 12 address bits


@st.composite
def accesses(draw: st.DrawFn) -> Access:
    """Lanes in no order, some of them idle, but rarely in the same bank as others."""
    rule = draw(st.sampled_from(RULES))
    units = ROWS * COLUMNS // rule.bytes_per_lane
    step = draw(st.sampled_from([1, 3, 5, 9, 17, 33]))
    image = np.arange(64) * step % units * rule.bytes_per_lane
    swaps = draw(st.lists(st.tuples(st.integers(0, 63), st.integers(0, 63)), max_size=4))
    for a, b in swaps:
        image[[a, b]] = image[[b, a]]
    idle = draw(st.sets(st.integers(0, 63), max_size=5))
    rows, cols = image // COLUMNS, image % COLUMNS
    rows[sorted(idle)] = -1
    return Access("x", rule, rows[None], cols[None])


def image_of(access: Access) -> np.ndarray:
    return np.where(access.rows < 0, -1, access.rows * COLUMNS + access.cols)


def layout(bits: tuple[int, ...], masks: tuple[int, ...]) -> SharedLayout:
    args = tuple(x for bit, mask in zip(bits, masks, strict=True) if mask for x in (bit, mask))
    return SharedLayout(ROWS, COLUMNS, 8, "xor", args) if args else SharedLayout(ROWS, COLUMNS, 8)


def test_differences_by_hand() -> None:
    lanes = np.arange(64)
    rule = Rule("b32", 4, 32, consecutive(32))
    row = Access("row", rule, 0 * lanes[None], 4 * lanes[None] % 128)
    found = differences(row, image_of(row))
    assert found is not None and found.tolist() == list(range(4, 128, 4)) and bank_mask(row) == 124
    column = Access("column", rule, lanes[None] % 32, 0 * lanes[None])
    found = differences(column, image_of(column))
    assert found is not None and found.tolist() == list(range(128, 4096, 128))
    odd = Access("odd", Rule("b64", 8, 64, consecutive(32)), 0 * lanes[None], 4 + 0 * lanes[None])
    assert differences(odd, image_of(odd)) is None  # not aligned


@given(accesses(), st.sets(st.integers(5, 11), max_size=4), st.data())
def test_free_means_that_no_difference_has_bank_bits_of_zero(
    access: Access, bits: set[int], data: st.DataObject
) -> None:
    ordered = tuple(sorted(bits))
    masks = tuple(16 * data.draw(st.integers(0, (1 << min(8, bit)) // 16 - 1)) for bit in ordered)
    shared = layout(ordered, masks)
    found = differences(access, image_of(access))
    assert found is not None
    meets = [int(v) for v in found if not shared.image_to_offset(int(v)) & bank_mask(access)]
    assert (access.degrees(shared).max() <= 1) == (not meets)


@settings(max_examples=60)
@given(accesses())
def test_solutions_are_found_exactly_if_there_are_any(access: Access) -> None:
    found = differences(access, image_of(access))
    assert found is not None
    kept = found[found < 1 << 9]  # bits up to 8, so that all masks can be tried
    constraints = Constraints([(kept, bank_mask(access))], 4)
    options = [range(0, 1 << min(7, bit), 16) for bit in constraints.bits]
    solutions = set(itertools.islice(constraints.free_masks(options, 1000), 1000))

    def free(masks: tuple[int, ...]) -> bool:
        shared = layout(constraints.bits, masks)
        return all(shared.image_to_offset(int(v)) & bank_mask(access) for v in kept)

    everything = {masks for masks in itertools.product(*options) if free(masks)}
    assert solutions <= everything and bool(solutions) == bool(everything)
    few = list(constraints.free_masks(options, 3))
    assert len(few) == len(set(few)) and set(few) <= everything and bool(few) == bool(everything)


def test_two_chips_worth_of_banks() -> None:
    """A mask must do for reads over 64 banks and writes over 32 at once."""
    lanes = np.arange(64)
    read = Access("read", Rule("b128", 16, 64, SIXTEENS), lanes[None] % 16, 0 * lanes[None])
    write = Access("write", Rule("b32", 4, 32, consecutive(32)), lanes[None] // 32, 4 * lanes[None] % 128)
    apart = [(d, bank_mask(a)) for a in (read, write) if (d := differences(a, image_of(a))) is not None]
    constraints = Constraints(apart, 4)
    options = [range(0, 1 << min(8, bit), 16) for bit in constraints.bits]
    solutions = list(constraints.free_masks(options, 10))
    assert solutions
    for masks in solutions:
        shared = layout(constraints.bits, masks)
        assert read.degrees(shared).max() == write.degrees(shared).max() == 1
