"""What ways of bringing a tile into another register layout cost, and which is the cheapest inside waves.

Costs are clocks of a SIMD per wave: VALU instructions by their issue time; what passes through the LDS by the bytes that it
moves per clock, shared by the SIMDs of a compute unit, and by its latency once. An exchange through an LDS buffer is a write, a
wait and a barrier, and a read; bank conflicts, and waves that arrive late, are not counted.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import field

from tileir.ir.core import AttrValue
from tileir.ir.ops.lanes import SHUFFLE_MEANS, SWAP_MEANS
from tileir.ir.types import TileType
from tileir.layout import Layout
from tileir.layout.conversion import conversion
from tileir.layout.exchange import Step, plans
from tileir.layout.motion import shuffle_motion
from tileir.passes import lane_code
from tileir.passes.lane_code import (
    DWORD_BITS,
    Condition,
    LaneIndex,
    Shape,
    can_shuffle,
    can_swap,
    gather,
    live_words,
    slots,
)
from tileir.records import dataclass
from tileir.target import Target


@dataclass
class Counter:
    """A machine that counts: `valu` vector instructions, `swaps` permlane swaps, `lds` exchanges through the LDS crossbar."""

    valu: int = 0
    swaps: int = 0
    lds: int = 0
    _next: int = 0
    _starts: set[LaneIndex] = field(default_factory=set[LaneIndex])
    _overwritten: set[int] = field(default_factory=set[int])

    def _new(self) -> int:
        self._next += 1
        return self._next

    def words(self, count: int) -> list[int]:
        """As many distinct dwords."""
        return [self._new() for _ in range(count)]

    def swap(self, a: int, b: int, lane: int) -> tuple[int, int]:
        self.swaps += 1
        self.valu += a == b  # both operands are overwritten: a value that stands on both sides is copied
        return self._new(), self._new()

    def dpp(self, a: int, control: int, old: int | None = None, banks: int = 15) -> int:
        self.valu += 1 + (a in self._overwritten)  # `old` is overwritten: what is needed afterwards is copied
        if old is not None:
            self._overwritten.add(old)
        return self._new()

    def swizzle(self, a: int, pattern: int) -> int:
        self.lds += 1
        return self._new()

    def permute(self, a: int, index: LaneIndex) -> int:
        self.lds += 1
        if index.start and index not in self._starts:  # the lane numbers are computed once per op
            self._starts.add(index)
            self.valu += 1
        return self._new()

    def select(self, condition: Condition, a: int, b: int) -> int:
        self.valu += 1
        return self._new()

    def bytes(self, a: int, b: int, picks: tuple[int, ...]) -> int:
        self.valu += 1
        return self._new()

    def bytes_by_lane(
        self, a: int, b: int, condition: Condition, picks: tuple[int, ...], others: tuple[int, ...]
    ) -> int:
        self.valu += 1
        return self._new()


def counted(layout: Layout, elem_bits: int, run: Callable[[Counter, list[int]], object]) -> Counter:
    """What `run` does to the dwords of a tile; elements of 64 bits are done in two halves."""
    counter = Counter()
    for _ in range(2 if elem_bits > DWORD_BITS else 1):
        run(counter, counter.words(layout.num_registers // slots(layout, elem_bits)))
    return counter


@dataclass(frozen=True)
class Move:
    """A step with its means: the op that says it, and what it costs."""

    op: str
    layout: Layout
    attrs: tuple[tuple[str, AttrValue], ...]
    counter: Counter


@dataclass(frozen=True)
class Route:
    """A plan with means; `valu`, `swaps` and `lds` are numbers of instructions per wave."""

    moves: tuple[Move, ...]
    valu: int
    swaps: int
    lds: int
    clocks: int

    def __str__(self) -> str:
        counts = [
            (self.swaps, "permlane swap"),
            (self.lds, "exchange of lanes in the LDS crossbar", "exchanges of lanes in the LDS crossbar"),
            (self.valu, "VALU instruction"),
        ]
        texts = [f"{c[0]} {c[1] if c[0] == 1 else c[-1] if len(c) == 3 else c[1] + 's'}" for c in counts if c[0]]
        return " and ".join(texts) if texts else "renaming registers"


def _number(target: Target, name: str) -> int:
    """A fact; of a range its upper end."""
    value = target.fact(name).value
    if isinstance(value, tuple):
        return value[-1]
    assert isinstance(value, int)
    return value


def lds_clocks(target: Target, bytes_per_lane: int, bytes_per_clock: int) -> int:
    """Clocks for which one LDS access keeps its SIMD's share of the LDS busy; less than a dword a lane takes as long as one."""
    moved = target.wave_size * max(bytes_per_lane, target.lds_address_granule)
    return -(-moved * target.simds_per_cu // bytes_per_clock)


def clocks(counter: Counter, target: Target) -> int:
    """Clocks of what was counted."""
    total = counter.valu * _number(target, "valu_clocks")
    if counter.swaps:
        total += counter.swaps * _number(target, "permlane_swap_issue_clocks")
    if counter.lds:
        each = lds_clocks(target, target.register_bytes, target.lds_write_bytes_per_clock)
        total += counter.lds * each + _number(target, "lds_latency")
    return total


def renames(m: Counter, words: list[int], shape: Shape) -> None:
    """Dwords of a tile whose registers are renamed: only elements that change their place in a dword cost something."""
    sources = conversion(shape.before, shape.after).sources
    assert sources is not None
    held, wanted = slots(shape.before, shape.elem_bits), slots(shape.after, shape.elem_bits)
    for i, live in enumerate(live_words(shape.after, wanted)):
        parts = [max(sources[i * wanted + s], 0) for s in range(wanted)]
        if live:
            gather(m, [(words[r // held], r % held) for r in parts], shape.size)


def _move(step: Step, before: Layout, elem_bits: int, target: Target) -> Move | None:
    """The step by its cheapest means."""
    shape = Shape(before, step.layout, elem_bits)
    if step.kind == "rename":
        return Move("convert_layout", step.layout, (), counted(before, elem_bits, lambda m, w: renames(m, w, shape)))
    if step.kind == "select":
        counter = counted(before, elem_bits, lambda m, w: lane_code.select(m, w, shape))
        return Move("select_registers", step.layout, (), counter)
    found: list[Move] = []
    if step.kind == "swap":
        for via in SWAP_MEANS:
            if can_swap(via, step.lane, target):
                counter = counted(
                    before,
                    elem_bits,
                    lambda m, w, via=via: lane_code.swap(m, w, shape, step.register, step.lane, via, target),
                )
                attrs = (("register", step.register), ("lane", step.lane), ("via", via))
                found.append(Move("swap_lanes", step.layout, attrs, counter))
    else:
        motion = shuffle_motion(before, step.layout)
        assert motion is not None
        for via in SHUFFLE_MEANS:
            if can_shuffle(via, motion, target):
                counter = counted(before, elem_bits, lambda m, w, via=via: lane_code.shuffle(m, w, shape, via, target))
                found.append(Move("shuffle_lanes", step.layout, (("via", via),), counter))
    return min(found, key=lambda m: clocks(m.counter, target))


@functools.lru_cache(maxsize=512)
def cheapest_route(src: Layout, dst: Layout, elem_bits: int, target: Target) -> Route | None:
    """The cheapest way from `src` to `dst` that stays inside waves, None if there is none; elements of 8 to 64 bits."""
    best: Route | None = None
    for plan in plans(src, dst):
        moves: list[Move] = []
        before = src
        for step in plan:
            move = _move(step, before, elem_bits, target)
            assert move is not None
            moves.append(move)
            before = step.layout
        counters = [m.counter for m in moves]
        valu, swaps, lds = (sum(getattr(c, name) for c in counters) for name in ("valu", "swaps", "lds"))
        route = Route(tuple(moves), valu, swaps, lds, sum(clocks(c, target) for c in counters))
        if best is None or route.clocks < best.clocks:
            best = route
    return best


def _access_bytes(layout: Layout, elem_bytes: int) -> int:
    """Bytes per lane of accesses to a row-major buffer."""
    run = layout.contiguous(layout.rank - 1) if layout.rank else 1
    while layout.rank and layout.shape[-1] % run:
        run //= 2
    return max(elem_bytes, min(16, run * elem_bytes))


def exchange_clocks(src: Layout, dst: Layout, elem_bits: int, target: Target) -> int:
    """Clocks of an exchange through an LDS buffer in rows, free of conflicts."""
    size = elem_bits // 8
    total = 2 * _number(target, "lds_latency") + _number(target, "barrier_clocks")
    for layout, writes in ((src, True), (dst, False)):
        width = _access_bytes(layout, size)
        copies = layout.free.reg.bit_count() if writes else 0
        accesses = -(-(layout.num_registers >> copies) * size // width)
        rate = target.lds_write_bytes_per_clock
        if not writes and width >= 8:  # what the chip reads at its full rate: b64 and b128
            rate = target.lds_read_bytes_per_clock
        total += accesses * lds_clocks(target, width, rate)
    return total


def buffer_bytes(t: TileType) -> int:
    """Bytes of the elements of a tile."""
    return t.size * t.elem.bits // 8
