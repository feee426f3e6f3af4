"""The fast judgement of XOR layouts, against enumeration."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tileir.layout import Access, SharedLayout, address_bases, choose, prove
from tileir.layout.spans import Load

from .rules import EIGHTS, SIXTEENS, Rule, consecutive

RULES = (
    Rule("b128", 16, 32, EIGHTS),
    Rule("b128", 16, 64, SIXTEENS),
    Rule("b64", 8, 64, consecutive(32)),
    Rule("b64", 8, 32, consecutive(16)),
    Rule("b32", 4, 32, consecutive(32)),
    Rule("u16", 2, 32, consecutive(32)),
)
ROWS, COLUMNS = 32, 128  # bytes: 12 address bits


@st.composite
def linear_accesses(draw: st.DrawFn) -> Access:
    """Instructions that are linear in the lane, some with another start, some with another linear part."""
    rule = draw(st.sampled_from(RULES))
    unit = st.integers(0, ROWS * COLUMNS // rule.bytes_per_lane - 1)
    lanes = np.arange(64)
    images: list[np.ndarray] = []
    for _ in range(draw(st.integers(1, 2))):
        part = [draw(unit) * rule.bytes_per_lane for _ in range(6)]
        for _ in range(draw(st.integers(1, 3))):
            image = np.full(64, draw(unit) * rule.bytes_per_lane)
            for i, v in enumerate(part):
                image ^= (lanes >> i & 1) * v
            images.append(image)
    x = np.stack(images)
    return Access("x", rule, x // COLUMNS, x % COLUMNS)


@st.composite
def xor_layouts(draw: st.DrawFn) -> SharedLayout:
    bits = sorted(draw(st.sets(st.integers(5, 11), max_size=4)))
    args = tuple(x for bit in bits for x in (bit, 16 * draw(st.integers(1, (1 << min(8, bit)) // 16 - 1))))
    return SharedLayout(ROWS, COLUMNS, 8, "xor", args) if args else SharedLayout(ROWS, COLUMNS, 8)


@given(linear_accesses(), xor_layouts())
def test_ranks_and_registers_agree_with_enumeration(access: Access, shared: SharedLayout) -> None:
    load = Load(access, SharedLayout(ROWS, COLUMNS, 8))
    assert load.spans is not None and load.patterns is not None
    assert load.clocks(shared, None) == int(access.degrees(shared).sum())
    assert load.free == 64 // len(access.rule.lane_groups[0]) * len(access.rows)
    assert load.address_registers(shared) == address_bases(access.addresses(shared))
    (proof,) = prove(shared, [access]).accesses
    assert (proof.clocks, proof.free_clocks) == (int(access.degrees(shared).sum()), load.free)


@settings(max_examples=30)
@given(linear_accesses())
def test_the_choice_is_no_worse_than_any_swizzle(access: Access) -> None:
    shared, proof = choose((ROWS, COLUMNS), 8, [access])
    assert shared.is_bijective()
    base = 4 if access.rule.bytes_per_lane == 16 else 3
    for bits, shift in itertools.product(range(1, 4), range(1, 6)):
        other = SharedLayout(ROWS, COLUMNS, 8, "swizzle", (bits, base, shift))
        if other.size_bytes == ROWS * COLUMNS:
            assert proof.clocks <= int(access.degrees(other).sum())
    assert proof.clocks <= int(access.degrees(SharedLayout(ROWS, COLUMNS, 8)).sum())
