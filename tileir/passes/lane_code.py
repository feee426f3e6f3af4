"""How the steps of a conversion inside a wave become instructions, once and for all: the pass counts them, lowering emits
them, tests execute them. They differ only in the `Machine` that they hand in.

Registers are handled as dwords: elements of 16 and 8 bits lie side by side in one (the lowest bits of the register number
are the place in the dword), elements of 64 bits in two.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np

from tileir.layout import Layout
from tileir.layout.gf2 import Span
from tileir.layout.linear import LANE_BITS, WAVE
from tileir.layout.motion import Motion, select_motion, shuffle_motion
from tileir.records import dataclass
from tileir.target import Target

DWORD_BITS = 32
ROW_BITS = 4  # a DPP row is 16 lanes
SWIZZLE_BITS = 5  # ds_swizzle works inside 32 lanes
_ALL_BANKS = 15

V = TypeVar("V")


@dataclass(frozen=True)
class Condition:
    """True in lanes and waves whose number has an odd count of bits in common with the masks."""

    lanes: int
    waves: int = 0


@dataclass(frozen=True)
class LaneIndex:
    """The lane `start ^ E·lane ^ G·wave`, with the columns of E and G."""

    lanes: tuple[int, ...]
    waves: tuple[int, ...] = ()
    start: int = 0


class Machine(Protocol[V]):
    """One instruction each, on a dword of every lane."""

    def swap(self, a: V, b: V, lane: int) -> tuple[V, V]:
        """Lanes that differ in bit `lane` exchange b of the lower with a of the upper one (v_permlane16_swap, 32_swap)."""
        ...

    def dpp(self, a: V, control: int, old: V | None = None, banks: int = _ALL_BANKS) -> V:
        """`a` permuted by a DPP control; lanes in banks (of 4 in every row of 16) that are not in the mask take `old`."""
        ...

    def swizzle(self, a: V, pattern: int) -> V:
        """ds_swizzle."""
        ...

    def permute(self, a: V, index: LaneIndex) -> V:
        """ds_bpermute: `a` of the lane `index`."""
        ...

    def select(self, condition: Condition, a: V, b: V) -> V:
        """`a` where the condition holds, else `b` (v_cndmask)."""
        ...

    def bytes(self, a: V, b: V, picks: tuple[int, ...]) -> V:
        """Four bytes out of those of a (0 to 3) and b (4 to 7) (v_perm)."""
        ...

    def bytes_by_lane(self, a: V, b: V, condition: Condition, picks: tuple[int, ...], others: tuple[int, ...]) -> V:
        """`bytes` with `picks` where the condition holds, with `others` elsewhere."""
        ...


# -- what instructions can do --------------------------------------------------------------------------------------------


def _control(target: Target, name: str) -> int:
    controls = target.fact("dpp_controls").value
    assert not isinstance(controls, int | float | str | bool | tuple)
    return controls[name]


def _single_dpp(lanes: tuple[int, ...], target: Target) -> int | None:
    """The DPP control that makes lane l read lane `lanes[l]`, from what all CDNA chips have."""
    quad = lanes[:4]
    if all(x == (l & ~3) + quad[l & 3] for l, x in enumerate(lanes)) and max(quad) < 4:
        return _control(target, "quad_perm") + sum(x << 2 * i for i, x in enumerate(quad))
    for name, table in _fixed_tables():
        if table == lanes:
            stem, _, count = name.partition(":")
            return _control(target, stem) + int(count or 0)
    return None


@functools.cache
def _fixed_tables() -> tuple[tuple[str, tuple[int, ...]], ...]:
    row = (1 << ROW_BITS) - 1
    tables = [
        ("row_half_mirror", tuple(l ^ 7 for l in range(WAVE))),
        ("row_mirror", tuple(l ^ row for l in range(WAVE))),
    ]
    tables += [
        (f"row_ror:{n}", tuple((l & ~row) + ((l & row) - n) % (row + 1) for l in range(WAVE)))
        for n in range(1, row + 1)
    ]
    return tuple(tables)


@functools.lru_cache(maxsize=1024)
def dpp_controls(lanes: tuple[int, ...], target: Target) -> tuple[int, ...] | None:
    """One or two DPP controls, applied one after the other, by which lane l gets the value of lane `lanes[l]`; None if two do
    not suffice."""
    one = _single_dpp(lanes, target)
    if one is not None:
        return (one,)
    for _, table in _fixed_tables():
        back = [0] * WAVE
        for l, x in enumerate(table):
            back[x] = l
        first = _single_dpp(tuple(back[x] for x in lanes), target)
        fixed = _single_dpp(table, target)
        assert fixed is not None
        if first is not None:  # lanes = table ∘ first: read through `table` first
            return (fixed, first)
        second = _single_dpp(tuple(lanes[back[l]] for l in range(WAVE)), target)
        if second is not None:
            return (second, fixed)
    return None


def swizzle_pattern(lanes: tuple[int, ...], target: Target) -> int | None:
    """The bit-mask pattern of ds_swizzle by which lane l reads lane `lanes[l]`, or None: inside 32 lanes it can keep, clear
    and flip bits of the lane number."""
    low = (1 << SWIZZLE_BITS) - 1
    flip = lanes[0]
    keep = sum((lanes[1 << j] ^ flip) & 1 << j for j in range(SWIZZLE_BITS))
    if all(x == (l & ~low | (l & keep)) ^ flip for l, x in enumerate(lanes)) and flip <= low:
        fields = target.fact("swizzle_fields").value
        assert not isinstance(fields, int | float | str | bool | tuple)
        return keep << fields["and"] | flip << fields["xor"]
    return None


def can_swap(via: str, lane: int, target: Target) -> bool:
    """Whether lanes that differ in bit `lane` can exchange registers by these means on the chip."""
    if via == "permlane_swap":
        return lane in (4, 5) and target.supports(f"permlane{1 << lane}_swap")
    if via == "dpp":
        return lane < ROW_BITS
    return lane < SWIZZLE_BITS if via == "ds_swizzle" else via == "ds_bpermute"


def can_shuffle(via: str, motion: Motion, target: Target) -> bool:
    """Whether every register of a shuffle can move by these means on the chip."""
    if via == "ds_bpermute":
        return True
    if motion.depends_on_wave:
        return False
    find = dpp_controls if via == "dpp" else swizzle_pattern
    return all(find(motion.source_lanes(r), target) is not None for r in _lane_classes(motion))


def _lane_classes(motion: Motion) -> list[int]:
    """One register number for each map of lanes that occurs."""
    seen: dict[int, int] = {}
    for r in range(1 << motion.registers):
        seen.setdefault(motion.of_register(r)[1], r)
    return list(seen.values())


# -- dwords --------------------------------------------------------------------------------------------------------------


def slots(layout: Layout, elem_bits: int) -> int:
    """Elements in one dword: as many as fit, but no more than registers in a block."""
    return min(max(1, DWORD_BITS // elem_bits), layout.registers_per_block)


@functools.lru_cache(maxsize=512)
def live_words(layout: Layout, per_word: int) -> tuple[bool, ...]:
    """Which dwords hold an element in some lane of some wave."""
    if layout.padded_shape == layout.shape:
        return (True,) * (layout.num_registers // per_word)
    live = np.any(~layout.holes(), axis=(0, 1)).reshape(-1, per_word)
    return tuple(bool(row.any()) for row in live)


def _picks(places: Sequence[tuple[int, int]], size: int) -> tuple[int, ...]:
    """Byte picks for slots taken from (operand 0 or 1, slot); missing slots of a short dword repeat the last."""
    full = [*places, *[places[-1]] * (4 // size - len(places))]
    return tuple(4 * operand + slot * size + b for operand, slot in full for b in range(size))


def gather(m: Machine[V], parts: Sequence[tuple[V, int]], size: int) -> V:
    """A dword of the given slots of the given dwords, `size` bytes each."""
    values: list[V] = []
    for v, _ in parts:
        if v not in values:
            values.append(v)
    if len(values) == 1:
        if all(slot == i for i, (_, slot) in enumerate(parts)):
            return values[0]
        return m.bytes(values[0], values[0], _picks([(0, slot) for _, slot in parts], size))
    out = values[0]
    # where each slot of the result is by now: in its own dword, or already in its place of `out`
    held = [slot if v == out else None for v, slot in parts]
    for other in values[1:]:
        places: list[tuple[int, int]] = []
        for i, (v, slot) in enumerate(parts):
            place = held[i]
            if v == other:
                places.append((1, slot))
                held[i] = i
            else:
                places.append((0, i if place is None else place))
                held[i] = None if place is None else i
        out = m.bytes(out, other, _picks(places, size))
    return out


# -- the steps -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """The dwords of one step: layouts before and after, bits per element."""

    before: Layout
    after: Layout
    elem_bits: int

    @property
    def size(self) -> int:
        """Bytes of a slot."""
        return min(4, self.elem_bits // 8)


def swap(
    m: Machine[V], words: Sequence[V], shape: Shape, register: int, lane: int, via: str, target: Target
) -> list[V]:
    """The dwords after register bit `register` and lane bit `lane` have changed places."""
    per_word = slots(shape.before, shape.elem_bits)
    inner = per_word.bit_length() - 1
    out = list(words)
    live = live_words(shape.after, per_word)
    odd = Condition(1 << lane)
    flipped = tuple(l ^ 1 << lane for l in range(WAVE))

    def across(x: V) -> V:
        if via == "dpp":
            controls = dpp_controls(flipped, target)
            assert controls is not None
            for control in controls:
                x = m.dpp(x, control)
            return x
        if via == "ds_swizzle":
            pattern = swizzle_pattern(flipped, target)
            assert pattern is not None
            return m.swizzle(x, pattern)
        return m.permute(x, LaneIndex(tuple(1 << j for j in range(LANE_BITS)), (), 1 << lane))

    if register < inner:
        bit = 1 << register
        for i, x in enumerate(words):
            if not live[i]:
                continue
            a, b = m.swap(x, x, lane) if via == "permlane_swap" else (x, across(x))
            # of two lanes and two slots, the lower lane ends with the lower slots of both, the upper lane with the upper
            if via == "permlane_swap":  # a is of the lower, b of the upper lane, in both
                low = [(1 if s & bit else 0, s & ~bit) for s in range(per_word)]
                high = [(1 if s & bit else 0, s | bit) for s in range(per_word)]
            else:  # a is the lane's own, b that of the other
                low = [(1 if s & bit else 0, s & ~bit) for s in range(per_word)]
                high = [(0 if s & bit else 1, s | bit) for s in range(per_word)]
            out[i] = m.bytes_by_lane(a, b, odd, _picks(high, shape.size), _picks(low, shape.size))
        return out
    apart = 1 << register - inner
    for i in range(len(words)):
        if i & apart or not (live[i] or live[i | apart]):
            continue
        a, b = words[i], words[i | apart]
        if via == "permlane_swap":
            out[i], out[i | apart] = m.swap(a, b, lane)
        elif via == "dpp" and lane >= 2:  # banks of 4 lanes can be masked: rows shift by as much as the lanes are apart
            upper = sum(1 << k for k in range(4) if k << 2 >> lane & 1)
            out[i] = m.dpp(b, _control(target, "row_shr") + (1 << lane), a, upper)
            out[i | apart] = m.dpp(a, _control(target, "row_shl") + (1 << lane), b, _ALL_BANKS ^ upper)
        elif via == "dpp":
            out[i], out[i | apart] = m.select(odd, across(b), a), m.select(odd, b, across(a))
        else:
            got = across(m.select(odd, a, b))
            out[i], out[i | apart] = m.select(odd, got, a), m.select(odd, b, got)
    return out


def shuffle(m: Machine[V], words: Sequence[V], shape: Shape, via: str, target: Target) -> list[V]:
    """The dwords after every register has come from the same register of another lane."""
    motion = shuffle_motion(shape.before, shape.after)
    assert motion is not None
    per_word = slots(shape.before, shape.elem_bits)
    per_block = 1 << motion.registers
    live = live_words(shape.after, per_word)
    identity = tuple(range(WAVE))
    n = motion.registers
    columns = motion.lane[n : n + LANE_BITS], motion.lane[n + LANE_BITS :]

    tables: dict[int, tuple[int, ...]] = {}

    def move(x: V, r: int) -> V:
        start = motion.of_register(r)[1]
        lanes = tables[start] if start in tables else tables.setdefault(start, motion.source_lanes(r))
        if lanes == identity and not motion.depends_on_wave:
            return x
        if via == "dpp":
            controls = dpp_controls(lanes, target)
            assert controls is not None
            for control in controls:
                x = m.dpp(x, control)
            return x
        if via == "ds_swizzle":
            pattern = swizzle_pattern(lanes, target)
            assert pattern is not None
            return m.swizzle(x, pattern)
        return m.permute(x, LaneIndex(*columns, start))

    out: list[V] = []
    for i, x in enumerate(words):
        if not live[i]:
            out.append(x)
            continue
        first = i * per_word % per_block
        starts = [motion.of_register(first + s)[1] for s in range(per_word)]
        moved = {start: move(x, first + starts.index(start)) for start in dict.fromkeys(starts)}
        out.append(gather(m, [(moved[start], s) for s, start in enumerate(starts)], shape.size))
    return out


def select(m: Machine[V], words: Sequence[V], shape: Shape) -> list[V]:
    """The dwords after every lane has taken each register from the one that its number points to."""
    motion = select_motion(shape.before, shape.after)
    assert motion is not None
    n = motion.registers
    per_word, wanted = slots(shape.before, shape.elem_bits), slots(shape.after, shape.elem_bits)
    inner = per_word.bit_length() - 1
    rounds = _rounds(motion.register[n:])
    per_block = shape.before.registers_per_block
    live = live_words(shape.after, wanted)
    known: dict[tuple[int, int], V] = {}

    def after(round: int, i: int) -> V:
        """Dword i when the first `round` conditions have been heeded: slot s of it then holds register (i, s) ^ B·lane."""
        if round == 0:
            return words[i]
        if (round, i) not in known:
            known[round, i] = heed(round, i)
        return known[round, i]

    def heed(round: int, i: int) -> V:
        condition, mask = rounds[round - 1]
        x, apart, turn = after(round - 1, i), mask >> inner, mask & per_word - 1
        if apart:
            x = m.select(condition, after(round - 1, i ^ apart), x)
        if turn:
            own = [(0, s) for s in range(per_word)]
            turned = [(0, s ^ turn) for s in range(per_word)]
            x = m.bytes_by_lane(x, x, condition, _picks(turned, shape.size), _picks(own, shape.size))
        return x

    out: list[V] = []
    for i, alive in enumerate(live):
        parts: list[tuple[V, int]] = []
        for s in range(wanted):
            register = i * wanted + s
            block, r = register >> n, register & (1 << n) - 1
            source = block * per_block + motion.of_register(r)[0]
            word = after(len(rounds), source // per_word) if alive else words[0]
            parts.append((word, source % per_word))
        out.append(gather(m, parts, shape.size) if alive else words[0])
    return out


def _rounds(masks: Sequence[int]) -> list[tuple[Condition, int]]:
    """Independent masks onto register numbers, each with the lanes and waves in which it applies."""
    span = Span()
    basis: list[int] = []
    lanes: list[int] = []
    waves: list[int] = []
    for i, mask in enumerate(masks):
        combination = span.combination(mask)
        if combination is None:
            span.add(mask)
            basis.append(mask)
            lanes.append(0)
            waves.append(0)
            combination = 1 << len(basis) - 1
        for k in range(len(basis)):
            if combination >> k & 1:
                if i < LANE_BITS:
                    lanes[k] |= 1 << i
                else:
                    waves[k] |= 1 << i - LANE_BITS
    return [(Condition(l, w), mask) for l, w, mask in zip(lanes, waves, basis, strict=True)]


# -- reductions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Combine:
    """One step in which every lane combines its value with that of another lane, or `last_lane`: with the last lanes of the
    rows before its own, after which lane 63 holds the result, which all read."""

    kind: str  # "dpp", "permlane_swap", "ds_swizzle", "ds_bpermute", "last_lane"
    controls: tuple[int, ...] = ()  # DPP controls one after the other, or the two of `last_lane`
    lane: int = 0  # the bit of the lane number, for the other kinds


def combines(bits: Sequence[int], target: Target) -> tuple[Combine, ...]:
    """How the lanes that differ in these bits of the lane number combine their values so that all get the same result.

    Inside rows of 16 a lane may meet any lane that differs in the new bit and in bits already done, since those hold
    equal values: the map that takes fewest instructions is used.
    """
    out: list[Combine] = []
    done = [0]
    for bit in (b for b in sorted(bits) if b < ROW_BITS):
        ways = [dpp_controls(tuple(l ^ 1 << bit ^ x for l in range(WAVE)), target) for x in done]
        best = min((w for w in ways if w is not None), key=len)
        out.append(Combine("dpp", best))
        done += [x ^ 1 << bit for x in done]
    if len(bits) == LANE_BITS:
        controls = _control(target, "row_bcast15"), _control(target, "row_bcast31")
        return (*out, Combine("last_lane", controls))
    for bit in (b for b in sorted(bits) if b >= ROW_BITS):
        kind = next(k for k in ("permlane_swap", "ds_swizzle", "ds_bpermute") if can_swap(k, bit, target))
        out.append(Combine(kind, lane=bit))
    return tuple(out)


def lane_step(bit: int, done: Sequence[int], target: Target) -> Combine:
    """How a lane meets the one that differs in a bit of the lane number, or that and any of `done`, which hold equal values."""
    if bit < ROW_BITS:
        ways = [dpp_controls(tuple(l ^ 1 << bit ^ x for l in range(WAVE)), target) for x in done if x < 1 << ROW_BITS]
        found = [w for w in ways if w is not None]
        if found:
            return Combine("dpp", min(found, key=len))
    kind = next(k for k in ("permlane_swap", "ds_swizzle", "ds_bpermute") if can_swap(k, bit, target))
    return Combine(kind, lane=bit)


def reduced_bits(layout: Layout, axis: int) -> tuple[int, ...]:
    """Bits of the lane number whose lanes hold different elements along the axis."""
    return tuple(j for j, v in enumerate(layout.lane) if v[axis] and not layout.free.lane >> j & 1)


def reduced_waves(layout: Layout, axis: int) -> tuple[int, ...]:
    """Bits of the wave number whose waves hold different elements along the axis."""
    return tuple(j for j, v in enumerate(layout.wave) if v[axis] and not layout.free.wave >> j & 1)
