"""MFMA lane maps against formulas worked out by hand, and whole-tile layouts against emulated products."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileir.layout import (
    Layout,
    LayoutError,
    accumulator_k_order,
    conversion,
    fragments,
    k_block,
    mfma_accumulator,
    mfma_operand,
    mma_layouts,
    mma_plan,
    wide_k_order,
)

L = np.arange(64)[:, None]


def operand_table(rows: int, k: int, bits: int) -> np.ndarray:
    return mfma_operand(rows, k, bits=bits).owner_table()[0]


# (rows, k, bits): k of element e in lane l, written out from the instruction descriptions
OPERANDS = {
    (16, 32, 16): lambda l, e: 8 * (l // 16) + e,
    (32, 16, 16): lambda l, e: 8 * (l // 32) + e,
    (16, 16, 16): lambda l, e: 4 * (l // 16) + e,
    (32, 8, 16): lambda l, e: 4 * (l // 32) + e,
    (16, 32, 8): lambda l, e: 8 * (l // 16) + e,
    (32, 16, 8): lambda l, e: 8 * (l // 32) + e,
    (16, 64, 8): lambda l, e: 16 * (l // 16) + e,
    (32, 32, 8): lambda l, e: 16 * (l // 32) + e,
    (16, 128, 8): lambda l, e: np.where(e < 16, 16 * (l // 16) + e, 64 + 16 * (l // 16) + e - 16),
    (32, 64, 8): lambda l, e: np.where(e < 16, 16 * (l // 32) + e, 32 + 16 * (l // 32) + e - 16),
    (16, 128, 4): lambda l, e: 32 * (l // 16) + e,
    (32, 64, 4): lambda l, e: 32 * (l // 32) + e,
    (16, 128, 6): lambda l, e: 32 * (l // 16) + e,
    (16, 8, 32): lambda l, e: 2 * (l // 16) + e,
    (32, 4, 32): lambda l, e: 2 * (l // 32) + e,
    (16, 4, 32): lambda l, e: l // 16 + e,
    (32, 2, 32): lambda l, e: l // 32 + e,
    (16, 4, 64): lambda l, e: l // 16 + e,
}


@pytest.mark.parametrize("key", OPERANDS, ids=lambda k: "{}x{} {} bit".format(*k))
def test_operands(key: tuple[int, int, int]) -> None:
    rows, k, bits = key
    table = operand_table(rows, k, bits)
    e = np.arange(rows * k // 64)[None, :]
    assert np.array_equal(table[..., 0], np.broadcast_to(L % rows, table.shape[:2]))
    assert np.array_equal(table[..., 1], np.broadcast_to(OPERANDS[key](L, e), table.shape[:2]))


def test_operand_of_several_blocks() -> None:
    # 32x32x4 in 2 blocks: lanes 0-31 block 0, lanes 32-63 block 1; each lane k = 0..3
    table = mfma_operand(32, 4, bits=16, blocks=2).owner_table()[0]
    assert table[40, 3].tolist() == [1, 8, 3]
    # 4x4x4 in 16 blocks
    table = mfma_operand(4, 4, bits=16, blocks=16).owner_table()[0]
    assert table[37, 2].tolist() == [9, 1, 2]
    # f64 4x4x4 in 4 blocks: lane l holds row l % 4, block l // 4 % 4, k = l // 16
    table = mfma_operand(4, 4, bits=64, blocks=4).owner_table()[0]
    assert table[55, 0].tolist() == [1, 3, 3]


def test_accumulators() -> None:
    table = mfma_accumulator(16, 16).owner_table()[0]
    e = np.arange(4)[None, :]
    assert np.array_equal(table[..., 0], 4 * (L // 16) + e)
    assert np.array_equal(table[..., 1], np.broadcast_to(L % 16, (64, 4)))
    table = mfma_accumulator(32, 32).owner_table()[0]
    e = np.arange(16)[None, :]
    assert np.array_equal(table[..., 0], 4 * (L // 32) + e % 4 + 8 * (e // 4))
    assert np.array_equal(table[..., 1], np.broadcast_to(L % 32, (64, 16)))


def test_the_f64_accumulator_has_its_rows_in_lanes_first() -> None:
    table = mfma_accumulator(16, 16, bits=64).owner_table()[0]
    e = np.arange(4)[None, :]
    assert np.array_equal(table[..., 0], L // 16 + 4 * e)
    assert np.array_equal(table[..., 1], np.broadcast_to(L % 16, (64, 4)))
    table = mfma_accumulator(4, 4, bits=64, blocks=4).owner_table()[0]  # block, row, col
    assert np.array_equal(table[:, 0], np.concatenate([L // 4 % 4, L // 16, L % 4], axis=1))


def test_accumulators_of_several_blocks() -> None:
    table = mfma_accumulator(4, 4, blocks=16).owner_table()[0]
    assert table[37, 3].tolist() == [9, 3, 1]
    table = mfma_accumulator(16, 16, blocks=4).owner_table()[0]  # 16 registers: block e // 4
    assert table[21, 9].tolist() == [2, 4 + 1, 5]
    table = mfma_accumulator(32, 32, blocks=2).owner_table()[0]  # 32 registers: block e // 16
    assert table[40, 22].tolist() == [1, 4 + 2 + 8, 8]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mfma_operand(16, 3, bits=16), "fill the 64 lanes"),
        (lambda: mfma_operand(12, 16, bits=16), "power of two"),
        (lambda: mfma_accumulator(16, 32), "m and n are equal"),
        (lambda: mma_layouts(64, 64, 64, wave_grid=(3, 1), instr=(16, 16, 32), operand_bits=16), "power of two"),
        (lambda: mma_layouts(64, 64, 0, wave_grid=(1, 1), instr=(16, 16, 32), operand_bits=16), "at least 1"),
        (
            lambda: mma_layouts(
                64, 64, 64, wave_grid=(1, 1), instr=(16, 16, 32), operand_bits=16, k_order=[1, 2, 4, 8, 16, 16]
            ),
            "6 independent values below 64",
        ),
    ],
)
def test_what_does_not_exist_is_refused(call: object, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        call()  # pyright: ignore[reportCallIssue]


# -- whole tiles ---------------------------------------------------------------------------------------------------


def multiply(
    tile: tuple[int, int, int],
    grid: tuple[int, int],
    instr: tuple[int, int, int],
    bits: int,
    swapped: bool,
    k_order: tuple[int, ...] | None,
) -> tuple[Layout, Layout, Layout]:
    """Run the plan's MFMAs register by register, from the hand-written maps above, and compare with A @ B."""
    m, n, k = instr
    a, b, c = mma_layouts(*tile, wave_grid=grid, instr=instr, operand_bits=bits, swapped=swapped, k_order=k_order)
    plan = mma_plan(a, b, c, instr=instr, operand_bits=bits, swapped=swapped)
    rng = np.random.default_rng(1)
    full_a = rng.integers(-9, 10, a.padded_shape)
    full_b = rng.integers(-9, 10, b.padded_shape)
    full_a[:, tile[2] :] = 0  # holes along k are zero, others arbitrary
    full_b[tile[2] :] = 0
    ta, tb, tc = a.owner_table(), b.owner_table(), c.owner_table()
    held_a, held_b = full_a[ta[..., 0], ta[..., 1]], full_b[tb[..., 0], tb[..., 1]]
    held_c = np.zeros(tc.shape[:3], dtype=np.int64)
    e = np.arange(m * k // 64)[None, :]
    ks = OPERANDS[(m, k, bits)](L, e)
    if bits == 64:
        rows = L // 16 + 4 * np.arange(4)[None, :]
    elif m == 16:
        rows = 4 * (L // 16) + np.arange(4)[None, :]
    else:
        r = np.arange(16)[None, :]
        rows = 4 * (L // 32) + r % 4 + 8 * (r // 4)
    for w in range(a.num_waves):
        for s in plan.steps:
            first = np.zeros((m, k), dtype=np.int64)
            second = np.zeros((k, n), dtype=np.int64)
            x = held_a[w, :, s.a : s.a + plan.a_registers]
            y = held_b[w, :, s.b : s.b + plan.b_registers]
            if swapped:
                x, y = y, x
            first[L % m, ks] = x
            second[ks, L % n] = y
            held_c[w, :, s.c : s.c + plan.c_registers] += (first @ second)[rows, L % n]
    want = full_a @ full_b
    inside = (tc[..., 0] < tile[0]) & (tc[..., 1] < tile[1])
    assert np.array_equal(held_c[inside], want[tc[..., 0], tc[..., 1]][inside])
    return a, b, c


INSTRUCTIONS = [((16, 16, 32), 16), ((32, 32, 16), 16), ((16, 16, 16), 16), ((16, 16, 128), 8), ((16, 16, 4), 64)]


@given(
    st.tuples(st.integers(1, 130), st.integers(1, 130), st.integers(1, 150)),
    st.sampled_from([(1, 1), (2, 2), (1, 4), (4, 1), (2, 4), (4, 2), (1, 8), (8, 1)]),
    st.sampled_from(INSTRUCTIONS),
    st.booleans(),
)
@settings(max_examples=40)
def test_any_tile_is_multiplied_correctly(
    tile: tuple[int, int, int], grid: tuple[int, int], instr: tuple[tuple[int, int, int], int], swapped: bool
) -> None:
    multiply(tile, grid, *instr, swapped, None)


@given(st.permutations([1, 2, 4, 8, 16, 32]), st.booleans(), st.sampled_from(INSTRUCTIONS[:3]))
@settings(max_examples=20)
def test_any_common_k_order_computes_the_same(
    order: list[int], swapped: bool, instr: tuple[tuple[int, int, int], int]
) -> None:
    multiply((48, 64, 64), (1, 2), *instr, swapped, tuple(order))


def test_waves_own_contiguous_bands() -> None:
    _, _, c = mma_layouts(256, 128, 64, wave_grid=(2, 4), instr=(16, 16, 32), operand_bits=16)
    table = c.owner_table()
    for w in range(8):
        rows, cols = table[w, ..., 0], table[w, ..., 1]
        assert sorted(set(rows.ravel().tolist())) == list(range(128 * (w // 4), 128 * (w // 4) + 128))
        assert sorted(set(cols.ravel().tolist())) == list(range(32 * (w % 4), 32 * (w % 4) + 32))


def test_padding_of_sizes_that_are_no_power_of_two() -> None:
    def padded(m: int, wm: int) -> int:
        _, _, c = mma_layouts(m, 64, 64, wave_grid=(wm, 1), instr=(16, 16, 32), operand_bits=16)
        return c.padded_shape[0]

    assert [padded(80, 1), padded(80, 2), padded(96, 2), padded(192, 2), padded(192, 4)] == [80, 96, 96, 192, 192]
    # 192 rows over two waves of 32-row fragments: 3 fragments a wave, alternating
    _, _, c = mma_layouts(192, 64, 64, wave_grid=(2, 1), instr=(32, 32, 16), operand_bits=16)
    rows = sorted(set(c.owner_table()[0, ..., 0].ravel().tolist()))
    assert rows == [*range(32), *range(64, 96), *range(128, 160)]


def test_small_tiles_replicate_the_surplus_waves() -> None:
    a, b, c = mma_layouts(16, 48, 32, wave_grid=(4, 2), instr=(16, 16, 32), operand_bits=16)
    assert c.free.wave == 0b110  # no row bands; two column bands
    assert a.free.wave == 0b111
    assert b.free.wave == 0b110
    # 32 rows over 4 waves: waves 0 and 2 have the first 16, 1 and 3 the others
    _, _, c = mma_layouts(32, 16, 32, wave_grid=(4, 1), instr=(16, 16, 32), operand_bits=16)
    assert c.owner_table()[:, 0, 0, 0].tolist() == [0, 16, 0, 16]


def test_operands_are_replicated_over_the_other_direction() -> None:
    a, b, c = mma_layouts(256, 256, 64, wave_grid=(2, 4), instr=(16, 16, 32), operand_bits=16)
    assert a.free.wave == 0b011 and b.free.wave == 0b100 and c.is_injective


def test_swapped_gives_lanes_runs_of_columns() -> None:
    _, _, plain = mma_layouts(64, 64, 32, wave_grid=(1, 1), instr=(16, 16, 32), operand_bits=16)
    _, _, swapped = mma_layouts(64, 64, 32, wave_grid=(1, 1), instr=(16, 16, 32), operand_bits=16, swapped=True)
    assert (plain.contiguous(0), plain.contiguous(1)) == (4, 1)
    assert (swapped.contiguous(0), swapped.contiguous(1)) == (1, 4)


def test_two_half_rate_fragments_in_wide_order_are_one_of_the_double_k_shape() -> None:
    order = wide_k_order(64, (16, 16, 16), 16)
    pairs = mma_layouts(64, 64, 64, wave_grid=(2, 2), instr=(16, 16, 16), operand_bits=16, k_order=order)
    whole = mma_layouts(64, 64, 64, wave_grid=(2, 2), instr=(16, 16, 32), operand_bits=16)
    assert pairs == whole


def test_wide_k_order_feeds_two_fragments_from_one_16_byte_read() -> None:
    instr = (16, 16, 16)
    order = wide_k_order(64, instr, 16)
    # logical k: own 1, 2; then the fragment bit 4; then the lanes 8, 16; then the other fragments
    assert order == (1, 2, 8, 16, 4, 32)
    a, b, _ = multiply((64, 64, 64), (2, 2), instr, 16, False, order)
    assert a.contiguous(1) == 8 and b.contiguous(0) == 8
    # lane l of a 16x16x16 pair: k = 8 * (l // 16) + 0..7
    assert a.coords(np.arange(8), 37, 0)[1].tolist() == list(range(16, 24))
    assert wide_k_order(64, (16, 16, 32), 16) == (1, 2, 4, 8, 16, 32)
    assert wide_k_order(48, instr, 16) == (1, 2, 4, 8)  # three fragments: no pair
    assert k_block(48, 16) == 16 and k_block(96, 16) == 32


@pytest.mark.parametrize("consumer", [(32, 32, 16), (32, 32, 8)])
def test_an_accumulator_feeds_the_next_mfma_where_it_lies(consumer: tuple[int, int, int]) -> None:
    # S^T [keys, queries] = K Q^T; then O^T = V^T P^T takes P^T as its B operand
    _, _, s = mma_layouts(64, 32, 128, wave_grid=(1, 1), instr=(32, 32, 16), operand_bits=16)
    order = accumulator_k_order(s, 0, consumer, 16)
    _, p, _ = multiply((128, 32, 64), (1, 1), consumer, 16, False, order)
    assert conversion(s, p).kind in ("none", "registers")


def test_an_accumulator_whose_lanes_run_the_other_way_does_not_fit() -> None:
    _, _, s = mma_layouts(64, 32, 128, wave_grid=(1, 1), instr=(32, 32, 16), operand_bits=16)
    with pytest.raises(LayoutError, match="convert the layout"):
        accumulator_k_order(s, 1, (32, 32, 16), 16)


# -- plans -----------------------------------------------------------------------------------------------------------


def test_plan_of_a_large_tile() -> None:
    instr = (16, 16, 32)
    a, b, c = mma_layouts(256, 256, 64, wave_grid=(2, 4), instr=instr, operand_bits=16)
    plan = mma_plan(a, b, c, instr=instr, operand_bits=16)
    # each wave: 128 x 64 of C = 8 x 4 fragments, 2 k steps
    assert len(plan.steps) == 64 and len(set(plan.steps)) == 64
    assert (plan.a_registers, plan.b_registers, plan.c_registers) == (8, 8, 4)
    assert {s.c for s in plan.steps} == {f.start for f in fragments(c, 4)}
    assert [s.c for s in plan.steps[:32]] == [s.c for s in plan.steps[32:]]  # k outermost


def test_plan_refuses_layouts_that_do_not_belong_together() -> None:
    instr = (16, 16, 32)
    grids = [mma_layouts(64, 64, 64, wave_grid=g, instr=instr, operand_bits=16) for g in ((2, 2), (4, 1))]
    (a, b, c), (a2, _, c2) = grids
    with pytest.raises(LayoutError, match="one wave grid"):
        mma_plan(a2, b, c, instr=instr, operand_bits=16)
    with pytest.raises(LayoutError, match="one wave grid"):
        mma_plan(a, b, c2, instr=instr, operand_bits=16)
    order = (2, 1, 4, 8, 16, 32)
    a3, b3, _ = mma_layouts(64, 64, 64, wave_grid=(2, 2), instr=instr, operand_bits=16, k_order=order)
    with pytest.raises(LayoutError, match="one k order"):
        mma_plan(a3, b, c, instr=instr, operand_bits=16)
    assert mma_plan(a3, b3, c, instr=instr, operand_bits=16) == mma_plan(a, b, c, instr=instr, operand_bits=16)
    with pytest.raises(LayoutError, match="not an accumulator fragment"):
        mma_plan(a, b, c, instr=instr, operand_bits=16, swapped=True)
    with pytest.raises(LayoutError, match="not an operand fragment"):
        mma_plan(c, b, c, instr=instr, operand_bits=16)
    with pytest.raises(LayoutError, match="do not divide"):
        fragments(c, 3)
    small = mma_layouts(32, 64, 64, wave_grid=(2, 2), instr=instr, operand_bits=16)
    with pytest.raises(LayoutError, match="shapes do not match"):
        mma_plan(small[0], b, c, instr=instr, operand_bits=16)
    eight = mma_layouts(64, 64, 64, wave_grid=(2, 4), instr=instr, operand_bits=16)
    with pytest.raises(LayoutError, match="waves"):
        mma_plan(eight[0], b, c, instr=instr, operand_bits=16)


def test_a_wider_producer_differs_by_one_exchange() -> None:
    """The accumulator of 32x32 instructions as operand of 16x16 ones: lane bit 4 changes places with a bit of the register, nothing else moves."""
    held = mma_layouts(64, 32, 128, wave_grid=(2, 1), instr=(32, 32, 16), operand_bits=16, swapped=True)[2]
    order = accumulator_k_order(held, 1, (16, 16, 32), 16, tile_k=32)
    wanted = mma_layouts(
        64, 128, 32, wave_grid=(2, 1), instr=(16, 16, 32), operand_bits=16, swapped=True, k_order=order
    )[0]
    assert [j for j, (a, b) in enumerate(zip(held.lane, wanted.lane, strict=True)) if a != b] == [4]
    assert wanted.lane[4] in held.reg and held.lane[4] in wanted.reg and wanted.wave == held.wave
