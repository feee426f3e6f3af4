"""The instructions of exchanges between lanes, executed by NumPy as the ISA documents describe each of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.layout.pairs import pairs
from tileir.ir.ops.lanes import SHUFFLE_MEANS, SWAP_MEANS
from tileir.layout import Layout, mfma_accumulator, mfma_operand
from tileir.layout.exchange import plans
from tileir.layout.motion import Array, distribute, shuffle_motion
from tileir.passes import lane_code
from tileir.passes.conversion_cost import cheapest_route, clocks, counted, exchange_clocks
from tileir.passes.lane_code import Condition, LaneIndex, Shape, can_shuffle, can_swap, slots
from tileir.target import get

CHIPS = ("gfx942", "gfx950")
LANES = np.arange(64)
BITS = st.sampled_from([8, 16, 32])


class Word:
    """A dword of every lane and wave: uint32 [waves, 64]."""

    def __init__(self, value: Array):
        self.value = value


class Waves:
    """Executes each instruction on all lanes of all waves."""

    def __init__(self, waves: int):
        self.waves = waves

    def swap(self, a: Word, b: Word, lane: int) -> tuple[Word, Word]:
        """V_PERMLANE{16,32}_SWAP: rows of 16 or 32 lanes; odd rows of the first operand change places with even rows of the
        second."""
        width = 1 << lane
        assert width in (16, 32)
        x, y = a.value.copy(), b.value.copy()
        for row in range(0, 64, 2 * width):
            even, odd = slice(row, row + width), slice(row + width, row + 2 * width)
            x[:, odd], y[:, even] = b.value[:, even], a.value[:, odd]
        return Word(x), Word(y)

    def dpp(self, a: Word, control: int, old: Word | None = None, banks: int = 15) -> Word:
        """DPP_CTRL as the CDNA3 ISA enumerates it."""
        out = np.zeros_like(a.value) if old is None else old.value.copy()
        for lane in range(64):
            row, column = lane & ~15, lane & 15
            if control < 0x100:
                source = (lane & ~3) + (control >> 2 * (lane & 3) & 3)
            elif 0x101 <= control <= 0x10F:
                source = row + column + (control & 15)
            elif 0x111 <= control <= 0x11F:
                source = row + column - (control & 15)
            elif 0x121 <= control <= 0x12F:
                source = row + (column - (control & 15)) % 16
            else:
                source = {0x140: row + 15 - column, 0x141: (lane & ~7) + 7 - (lane & 7)}[control]
            if banks >> (column >> 2) & 1:
                assert source >> 4 == lane >> 4, "a lane without a source"
                out[:, lane] = a.value[:, source]
        return Word(out)

    def swizzle(self, a: Word, pattern: int) -> Word:
        """DS_SWIZZLE_B32 in bit-mask mode: and, or, xor masks of five bits each."""
        assert pattern < 1 << 15
        low = LANES & 31
        source = (low & pattern & 31 | pattern >> 5 & 31) ^ pattern >> 10 & 31
        return Word(a.value[:, (LANES & 32) + source])

    def permute(self, a: Word, index: LaneIndex) -> Word:
        out = np.zeros_like(a.value)
        for wave in range(self.waves):
            source = np.full(64, index.start)
            for j, mask in enumerate(index.lanes):
                source ^= (LANES >> j & 1) * mask
            for j, mask in enumerate(index.waves):
                source ^= (wave >> j & 1) * mask
            out[wave] = a.value[wave, source]
        return Word(out)

    def _true(self, condition: Condition) -> Array:
        lanes = np.array([(int(l) & condition.lanes).bit_count() & 1 for l in LANES])
        waves = np.array([(w & condition.waves).bit_count() & 1 for w in range(self.waves)])
        return (lanes[None, :] ^ waves[:, None]).astype(bool)

    def select(self, condition: Condition, a: Word, b: Word) -> Word:
        return Word(np.where(self._true(condition), a.value, b.value))

    def bytes(self, a: Word, b: Word, picks: tuple[int, ...]) -> Word:
        assert len(picks) == 4
        both = a.value.astype(np.uint64) | b.value.astype(np.uint64) << np.uint64(32)
        out = np.zeros_like(a.value)
        for i, pick in enumerate(picks):
            out |= ((both >> np.uint64(8 * pick) & np.uint64(255)) << np.uint64(8 * i)).astype(np.uint32)
        return Word(out)

    def bytes_by_lane(
        self, a: Word, b: Word, condition: Condition, picks: tuple[int, ...], others: tuple[int, ...]
    ) -> Word:
        return self.select(condition, self.bytes(a, b, picks), self.bytes(a, b, others))


def words_of(layout: Layout, bits: int) -> list[Word]:
    """The dwords of a tile of distinct numbers (modulo the element's size)."""
    size = int(np.prod(layout.shape))
    tile = (np.arange(1, 1 + size) * 40503 % (1 << bits)).reshape(layout.shape).astype(np.uint32)
    registers = distribute(tile, layout)
    per_word = slots(layout, bits)
    count = registers.shape[2] // per_word
    out: list[Word] = []
    for i in range(count):
        value = np.zeros(registers.shape[:2], np.uint32)
        for s in range(per_word):
            value |= registers[:, :, i * per_word + s] << np.uint32(bits * s)
        out.append(Word(value))
    return out


def same(found: Sequence[Word], layout: Layout, bits: int) -> bool:
    """Whether the dwords hold the tile; holes may hold anything."""
    real = ~layout.holes()
    per_word = slots(layout, bits)
    for i, (x, want) in enumerate(zip(found, words_of(layout, bits), strict=True)):
        for s in range(per_word):
            held, wanted = (v.value >> np.uint32(bits * s) & np.uint32((1 << bits) - 1) for v in (x, want))
            if not np.array_equal(held[real[:, :, i * per_word + s]], wanted[real[:, :, i * per_word + s]]):
                return False
    return True


@given(pairs(), BITS, st.sampled_from(CHIPS))
def test_every_step_by_every_means(pair: tuple[Layout, Layout], bits: int, chip: str) -> None:
    src, dst = pair
    target = get(chip)
    steps = 0
    for plan in plans(src, dst):
        before = src
        for step in plan:
            shape, words = Shape(before, step.layout, bits), words_of(before, bits)
            machine = Waves(before.num_waves)
            if step.kind == "swap":
                for via in SWAP_MEANS:
                    if can_swap(via, step.lane, target):
                        out = lane_code.swap(machine, words, shape, step.register, step.lane, via, target)
                        assert same(out, step.layout, bits), (step, via)
            elif step.kind == "shuffle":
                motion = shuffle_motion(before, step.layout)
                assert motion is not None
                for via in SHUFFLE_MEANS:
                    if can_shuffle(via, motion, target):
                        out = lane_code.shuffle(machine, words, shape, via, target)
                        assert same(out, step.layout, bits), (step, via)
            elif step.kind == "select":
                assert same(lane_code.select(machine, words, shape), step.layout, bits), step
            steps += step.kind != "rename"
            before = step.layout
    assume(steps)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("via", SWAP_MEANS)
@pytest.mark.parametrize("lane", range(6))
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_swaps_of_each_bit(bits: int, lane: int, via: str, chip: str) -> None:
    """Both kinds of register bits: those that number dwords, and those inside one."""
    target = get(chip)
    can = can_swap(via, lane, target)
    assert (
        can
        == {
            "permlane_swap": lane >= 4 and chip == "gfx950",
            "dpp": lane < 4,
            "ds_swizzle": lane < 5,
            "ds_bpermute": True,
        }[via]
    )
    if not can:
        return
    src = Layout.from_bases((16, 64), [[1, 0], [2, 0], [4, 0], [8, 0]], [[0, 1 << j] for j in range(6)], [])
    for register in range(4):
        vectors = [*src.reg, *src.lane]
        vectors[register], vectors[4 + lane] = vectors[4 + lane], vectors[register]
        after = Layout(src.shape, tuple(vectors[:4]), tuple(vectors[4:]), (), src.reps)
        shape = Shape(src, after, bits)
        out = lane_code.swap(Waves(1), words_of(src, bits), shape, register, lane, via, target)
        assert same(out, after, bits), register


def test_a_swap_with_its_lanes_mixed_up_is_seen() -> None:
    """The checks of this file can fail: a swap of the other lane bit, and one with exchanged operands."""
    target = get("gfx950")
    src = Layout.from_bases((2, 64), [[1, 0]], [[0, 1 << j] for j in range(6)], [])
    after = Layout(src.shape, ((0, 32),), (*src.lane[:5], (1, 0)), (), src.reps)
    words, shape = words_of(src, 32), Shape(src, after, 32)
    assert same(lane_code.swap(Waves(1), words, shape, 0, 5, "permlane_swap", target), after, 32)
    assert not same(lane_code.swap(Waves(1), words, shape, 0, 4, "permlane_swap", target), after, 32)
    assert not same(lane_code.swap(Waves(1), words[::-1], shape, 0, 5, "permlane_swap", target), after, 32)


# -- what is chosen, and its cost ----------------------------------------------------------------------------------------


def route(src: Layout, dst: Layout, bits: int, chip: str) -> tuple[list[tuple[str, object]], tuple[int, int, int]]:
    found = cheapest_route(src, dst, bits, get(chip))
    assert found is not None
    return [(m.op, dict(m.attrs).get("via")) for m in found.moves], (found.valu, found.swaps, found.lds)


OPERAND = mfma_operand(16, 32, bits=16)
ACCUMULATOR = mfma_accumulator(16, 16, bits=32).transpose((1, 0)).repeat((1, 2))
LINE = [[1 << j] for j in range(6)]


def test_accumulator_to_operand() -> None:
    """8 elements of 16 bits a lane are 4 dwords, 2 pairs for each of two swaps. gfx942 has no swaps of lane bits 4 and 5; there
    each lane selects the 4 dwords that it sends, all travel at once, and it selects their places; one instruction more
    makes the lane numbers of the second half."""
    swaps = [("swap_lanes", "permlane_swap")] * 2
    assert route(ACCUMULATOR, OPERAND, 16, "gfx950") == (swaps, (0, 4, 0))
    moves = [("select_registers", None), ("shuffle_lanes", "ds_bpermute"), ("select_registers", None)]
    assert route(ACCUMULATOR, OPERAND, 16, "gfx942") == (moves, (4 + 4 + 1, 0, 4))
    for chip in CHIPS:
        found = cheapest_route(ACCUMULATOR, OPERAND, 16, get(chip))
        assert found is not None and found.clocks < exchange_clocks(ACCUMULATOR, OPERAND, 16, get(chip))


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("lane", "valu"), [(0, 4), (1, 4), (2, 3), (3, 3)])
def test_swaps_inside_rows_are_dpp(lane: int, valu: int, chip: str) -> None:
    """Two moves with a bank mask and the copy of what the first overwrites, for bits 2 and 3; two moves and two selects for
    bits 0 and 1."""
    src = Layout.from_bases((128,), [[64]], LINE, [])
    dst = Layout.from_bases((128,), [LINE[lane]], [*LINE[:lane], [64], *LINE[lane + 1 :]], [])
    assert route(src, dst, 32, chip) == ([("swap_lanes", "dpp")], (valu, 0, 0))
    assert route(src, dst, 64, chip) == ([("swap_lanes", "dpp")], (2 * valu, 0, 0))


@pytest.mark.parametrize("chip", CHIPS)
def test_lanes_reversed_inside_rows(chip: str) -> None:
    """Lane bits 0 and 1 exchanged: one quad_perm a register. All four bits of a row reversed in order: no DPP does it."""
    src = Layout.from_bases((64,), [], LINE, [])
    turned = Layout.from_bases((64,), [], [LINE[1], LINE[0], *LINE[2:]], [])
    assert route(src, turned, 32, chip) == ([("shuffle_lanes", "dpp")], (1, 0, 0))
    reversed_ = Layout.from_bases((64,), [], [*LINE[3::-1], *LINE[4:]], [])
    assert route(src, reversed_, 32, chip)[0] == [("shuffle_lanes", "ds_bpermute")]


def test_renaming_costs_nothing_but_byte_permutations() -> None:
    src = Layout.from_bases((4, 64), [[1, 0], [2, 0]], [[0, x] for (x,) in LINE], [])
    dst = Layout.from_bases((4, 64), [[2, 0], [1, 0]], [[0, x] for (x,) in LINE], [])
    assert route(src, dst, 32, "gfx942") == ([("convert_layout", None)], (0, 0, 0))
    assert route(src, dst, 16, "gfx942") == ([("convert_layout", None)], (2, 0, 0))  # two dwords, one v_perm each


@pytest.mark.parametrize("chip", CHIPS)
def test_a_transposition_of_64_x_64_is_cheaper_through_lds(chip: str) -> None:
    """All six lane bits change places with register bits: 192 exchanges of pairs, against 64 writes and as many reads."""
    src = Layout.from_bases((64, 64), [[x, 0] for (x,) in LINE], [[0, x] for (x,) in LINE], [])
    found = cheapest_route(src, src.transpose((1, 0)), 32, get(chip))
    assert found is not None and len(found.moves) >= 3
    assert exchange_clocks(src, src.transpose((1, 0)), 32, get(chip)) < found.clocks


@pytest.mark.parametrize("chip", CHIPS)
def test_costs_by_hand(chip: str) -> None:
    """Clocks of 3 VALU instructions, and of an exchange through LDS of one dword a lane: 256 bytes at 128 a clock for each of
    four SIMDs both ways, twice 50 clocks of latency, 32 of the barrier."""
    src = Layout.from_bases((128,), [[64]], LINE, [])
    dst = Layout.from_bases((128,), [LINE[2]], [*LINE[:2], [64], *LINE[3:]], [])
    found = cheapest_route(src, dst, 32, get(chip))
    assert found is not None and found.clocks == 3 * 4
    assert exchange_clocks(src, src, 32, get(chip)) == 2 * 2 * 8 + 2 * 50 + 32
    counter = counted(src, 32, lambda m, words: m.swizzle(words[0], 0))
    assert clocks(counter, get(chip)) == 8 + 50


def test_reductions_meet_lanes_by_few_instructions() -> None:
    """Inside rows one DPP control a bit where lower bits are done; across rows by what the chip has; a whole wave through its
    last lane."""
    for chip, high in (("gfx942", ["ds_swizzle", "ds_bpermute"]), ("gfx950", ["permlane_swap", "permlane_swap"])):
        target = get(chip)
        row = lane_code.combines(range(4), target)
        assert [(c.kind, len(c.controls)) for c in row] == [("dpp", 1)] * 4
        assert [c.kind for c in lane_code.combines((4, 5), target)] == high
        assert [len(c.controls) for c in lane_code.combines((2,), target)] == [2]
        whole = lane_code.combines(range(6), target)
        assert whole[:4] == row and [c.kind for c in whole[4:]] == ["last_lane"]


@given(st.sets(st.integers(0, 3)), st.sampled_from(CHIPS))
def test_reductions_inside_rows_reach_all_lanes_once(bits: set[int], chip: str) -> None:
    """Lanes hold sets of lanes; after the steps each holds exactly those that differ from it in the given bits."""
    held = [{l} for l in range(64)]
    for step in lane_code.combines(tuple(bits), get(chip)):
        word = Word(np.arange(64, dtype=np.uint32)[None, :])
        for control in step.controls:
            word = Waves(1).dpp(word, control)
        partner = word.value[0]
        assert all(held[l].isdisjoint(held[partner[l]]) for l in range(64))
        held = [held[l] | held[partner[l]] for l in range(64)]
    mask = sum(1 << b for b in bits)
    assert held == [{x for x in range(64) if (x ^ l) & ~mask == 0} for l in range(64)]
