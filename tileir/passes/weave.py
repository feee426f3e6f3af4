"""Which instructions of one loop iteration stand where: the matrix instructions in order, and between them what feeds them.

An iteration computes one tile of k. It is cut into *slices*, runs of matrix instructions that use one set of operand fragments;
while a slice is computed, the fragments of the next are read from LDS, the last slice reading the first fragments of the
next tile. So all reads of a tile are issued before its last slice begins, and there, at the *turn*, its LDS buffers change hands:

    matrix instructions   | slice 0 …                    | last slice                                          |
    LDS reads             | fragments of slice 1 …       | of slice 0 of the next tile: group 1   | group 2    |
    turn                                                 ^ wait, barrier           second turn ^ wait, barrier
    copies                                               | of the tile `depth` later: group 1     | group 2    |

With two buffers in turn, the copies of a tile are split into two groups by operand, each with a turn of its own, so that no wait drains the
counter: at the first turn group 2 may be on its way, at the second the new copies of group 1. With more buffers one turn serves all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate

from tileir.ir.core import Op, Value
from tileir.ir.ops.memory import picked_dim
from tileir.ir.ops.shape import permutation
from tileir.ir.types import FragmentType, SharedType, TileType
from tileir.layout.conversion import transpose_sources
from tileir.layout.linear import LayoutError
from tileir.layout.mma import MmaPlan, mma_plan, scale_registers
from tileir.layout.transposed import elements_per_read
from tileir.passes.lds_accesses import access_bytes, over_buffer
from tileir.passes.mfma_choice import SCALES_TOGETHER
from tileir.passes.scaled_products import FIRST_SCALE
from tileir.records import dataclass

# Matrix instructions between two that add to the same accumulator: enough that none waits for the one before (16 passes of
# 4 clocks are the longest latency of a matrix instruction, CDNA3 ISA, 4.5; the shortest takes 4 passes to issue).
APART = 8
# Reads of less are put together element by element, which takes more instructions than any order hides.
REGISTER_BITS = 32


@dataclass(frozen=True)
class Read:
    """One read from LDS: `count` registers from `at` on of the tile that `load` reads."""

    load: Op
    at: int
    count: int


Piece = tuple[Op, int]
"""What one load of a lane brings of a tile: the load of the tile, and the register where the part begins (-1: the whole tile)."""


@dataclass(frozen=True)
class Operand:
    """An operand of a matrix instruction: registers `at` … of the tile that `load` reads, `count` of them."""

    load: Op
    at: int
    count: int


@dataclass(frozen=True)
class Scale:
    """Scales of an operand: number `place` of those that `load` brings into a register of each lane, `count` from register `at` of
    its tile on."""

    load: Op
    at: int
    count: int
    place: int

    @property
    def piece(self) -> Piece:
        """What brings it."""
        return self.load, self.at


@dataclass(frozen=True)
class Step:
    """One matrix instruction of the product `mma`: accumulator fragment number `c`, and operands in the order of the text, with
    their scales if they have some."""

    mma: Op
    c: int
    a: Operand
    b: Operand
    scales: tuple[Scale, ...] = ()


@dataclass
class Weave:
    """The order of one iteration. `slices` hold the steps, `reads` for each slice the reads of its fragments in order of use."""

    slices: list[list[Step]]
    reads: list[list[Read]]
    read_counts: dict[Op, int]  # registers of one read, by shared_load
    acc_counts: dict[Op, int]  # registers of an accumulator fragment, by mma
    early: int = 0  # reads of the first slice that come before the second turn: the first so many
    stored: int = 0  # writes to LDS between the turns
    shift: int = 0  # matrix instructions at the start of a slice before the first read
    margin: int = 0  # matrix instructions of a slice in which nothing is read: those of `shift`, and at its end

    @property
    def sequence(self) -> list[Step]:
        """All matrix instructions in order."""
        return [s for part in self.slices for s in part]

    @cached_property
    def uses(self) -> dict[Read, tuple[int, int]]:
        """Positions of the first and of the last matrix instruction that use a read."""
        found: dict[Read, tuple[int, int]] = {}
        reads = {x: _reads_of(x, self.read_counts) for x in {x for s in self.sequence for x in (s.a, s.b)}}
        for i, s in enumerate(self.sequence):
            for x in (s.a, s.b):
                for r in reads[x]:
                    known = found.get(r)
                    found[r] = (i if known is None else known[0], i)
        return found

    @property
    def scales(self) -> list[Scale]:
        """What brings scales, without repetition, that of the last first use first: one wait, for those needed first, serves all."""
        found = {s.piece: s for step in self.sequence for s in step.scales}
        return list(found.values())[::-1]

    @property
    def steps(self) -> int:
        """Matrix instructions of an iteration."""
        return sum(len(s) for s in self.slices)

    def start(self, i: int) -> int:
        """Position of the first matrix instruction of a slice."""
        return sum(len(s) for s in self.slices[:i])

    @property
    def second_turn(self) -> float:
        """Where in the last slice the second group of buffers changes hands: matrix instructions after the first turn."""
        early, late = self.early + self.stored, len(self.reads[0]) - self.early
        return exact(self.span(len(self.slices) - 1) * early / max(1, early + late))

    def span(self, i: int) -> int:
        """Matrix instructions of slice `i` over which the reads of the next are spread; `margin` counts those before and behind."""
        return max(1, len(self.slices[i]) - self.margin)

    def positions(self, i: int, lag: int) -> list[float]:
        """Where the reads of slice `i` stand: evenly over the slice before, `lag` later. Those of slice 0 come in two groups, before
        and behind the second turn, and are in the iteration before: they count from -steps on."""
        length, count = self.span(i - 1), len(self.reads[i])
        begin = self.start(i) - len(self.slices[i - 1]) + lag + self.shift
        if i:
            places = [length * k / count for k in range(count)]
        else:
            middle, late = self.second_turn, count - self.early
            places = [middle * k / self.early for k in range(self.early)]
            places += [middle + (length - middle) * k / late for k in range(late)]
        return [exact(begin + p) for p in places]


def exact(place: float) -> float:
    """A place without the noise of its last bits: places are compared."""
    return round(place, 6)


def _traced(v: Value) -> tuple[Op | None, tuple[int, ...]]:
    """What a value is made by, through transposes, and for each register of the value that of the source. They differ where a
    transpose exchanges two dimensions that both repeat."""
    op = v.owner
    assert v.tile.layout is not None
    registers = tuple(range(v.tile.layout.num_registers))
    while op is not None and op.name == "transpose":
        x = op.operands[0]
        assert x.tile.layout is not None
        sources = transpose_sources(x.tile.layout, permutation(op.attrs, x.tile.rank))
        registers = tuple(sources[r] for r in registers)
        op = x.owner
    return op, registers


def source_load(v: Value, inside: set[Op]) -> tuple[Op, tuple[int, ...]] | None:
    """The read of LDS in the loop that a value is, and for each register of the value that of the read."""
    op, registers = _traced(v)
    if op is None or op not in inside or op.name not in ("shared_load", "shared_load_transposed"):
        return None
    return op, registers


def _operand(load: Op, registers: tuple[int, ...], at: int, count: int) -> Operand | None:
    """The operand in `count` registers of a value from `at` on, None if the read has them in another order."""
    first = registers[at]
    return Operand(load, first, count) if registers[at : at + count] == tuple(range(first, first + count)) else None


def read_count(load: Op) -> int:
    """Registers that one read delivers, 0 where the buffer is read in another shape than its own."""
    t, buffer = load.result.tile, load.operands[0].type
    assert isinstance(buffer, SharedType) and t.layout is not None and buffer.layout is not None
    if t.shape != buffer.shape:
        return 0
    if load.name == "shared_load_transposed":
        return elements_per_read(t.elem.bits)
    layout = over_buffer(t.layout, buffer)
    return access_bytes(TileType(t.elem, layout.shape, layout), buffer.layout) * 8 // t.elem.bits


def plan_of(op: Op) -> MmaPlan | None:
    """The matrix instructions of an `mma`, None if its layouts have none."""
    a, b, c = op.operands[0].tile, op.operands[1].tile, op.result.tile
    instr = op.attrs.get("instr")
    if a.layout is None or b.layout is None or c.layout is None or not isinstance(instr, tuple):
        return None
    try:
        return mma_plan(
            a.layout, b.layout, c.layout, instr=instr, operand_bits=(a.elem.bits, b.elem.bits), swapped=bool(op.attrs.get("swapped", False))
        )  # fmt: skip
    except LayoutError:
        return None


def is_plain_load(op: Op) -> bool:
    """Whether single loads of a lane can bring a tile: `load` by buffer instructions with zeros outside."""
    return (
        op.name == "load" and op.attrs.get("via") == "buffer" and op.attrs.get("pad", 0) == 0 and picked_dim(op) is None
    )


def scales_of(mma: Op, plan: MmaPlan, inside: set[Op]) -> list[tuple[Scale, ...]] | None:
    """The scales of every step of a product, none if it has none; None where they cannot be loaded as single instructions."""
    if len(mma.operands) <= FIRST_SCALE:
        return []
    sources: list[tuple[Op, int, tuple[int, ...]]] = []
    for number, v in enumerate(mma.operands[FIRST_SCALE:]):
        load, registers = _traced(v)
        if load is None or load not in inside or not is_plain_load(load):
            return None
        layout, width = load.result.tile.layout, load.attrs["bytes"]
        blocks = 1 - number if v.owner is load else number  # the axis of the loaded tile that counts blocks of k
        if layout is None or layout.padded_shape[blocks] != layout.shape[blocks] or not isinstance(width, int):
            return None
        together = layout.contiguous(layout.rank - 1)
        sources.append((load, min(width, together, SCALES_TOGETHER), registers))
    a, b, _, sa, sb = (v.tile.layout for v in mma.operands)
    instr = mma.attrs["instr"]
    assert a is not None and b is not None and sa is not None and sb is not None and isinstance(instr, tuple)
    bits = mma.operands[0].tile.elem.bits, mma.operands[1].tile.elem.bits
    try:
        found = scale_registers(plan, (a, b), (sa, sb), (instr[0], instr[1], instr[2]), bits)
    except LayoutError:
        return None
    return [
        tuple(
            Scale(load, held[r] - held[r] % n, n, held[r] % n)
            for (load, n, held), r in zip(sources, registers, strict=True)
        )
        for registers in found
    ]


def weave(products: Sequence[Op], inside: set[Op], cut: tuple[int, int] | None = None) -> Weave | None:
    """The order of an iteration whose products are these, None where a product cannot be taken apart: an operand that is not
    read from LDS in the loop, or by reads of less than a register, or with holes. With `cut` slices are not runs of k but parts of the
    accumulator, so many over rows and columns; a fragment that several parts use is read for the first."""
    slices: list[list[Step]] = []
    read_counts: dict[Op, int] = {}
    acc_counts: dict[Op, int] = {}
    for mma in products:
        loads = [source_load(v, inside) for v in mma.operands[:2]]
        plan = plan_of(mma)
        places = scales_of(mma, plan, inside) if plan is not None else None
        if plan is None or places is None or len(mma.operands) < 3:
            return None
        sizes = (plan.a_registers, plan.b_registers)
        for found, size in zip(loads, sizes, strict=True):
            if found is None:
                return None
            load = found[0]
            n = read_count(load)
            layout = load.result.tile.layout
            narrow = n * load.result.tile.elem.bits < REGISTER_BITS
            if layout is None or narrow or (n % size and size % n) or size // n not in (0, 1, 2, 4, 8):
                return None
            read_counts[load] = n
        acc_counts[mma] = plan.c_registers
        steps: list[Step] = []
        for number, step in enumerate(plan.steps):
            at = (step.a, step.b)
            a, b = (_operand(*x, r, n) if x is not None else None for x, r, n in zip(loads, at, sizes, strict=True))
            if a is None or b is None:
                return None
            steps.append(Step(mma, step.c // plan.c_registers, a, b, places[number] if places else ()))
        parts = _slices(steps, read_counts) if cut is None else _cut(steps, *cut)
        if parts is None:
            return None
        slices += [_ordered(part) for part in parts]
    known: set[Read] = set()
    reads: list[list[Read]] = []
    for part in slices:
        needed = _reads(part, read_counts)
        if cut is None and known & set(needed):
            return None  # a fragment that two slices use would have to be kept or read twice
        reads.append([r for r in needed if r not in known])
        known |= set(needed)
    return Weave(slices, reads, read_counts, acc_counts) if slices else None


def with_longer_slices(order: Weave) -> Weave | None:
    """The same steps in slices of which two neighbours of one product are one, where they can be paired; None where none can. A wait
    serves a slice, and what is read for it has the time of the one before."""
    slices: list[list[Step]] = []
    reads: list[list[Read]] = []
    parts = list(zip(order.slices, order.reads, strict=True))
    while parts:
        part, needed = parts.pop(0)
        if parts and {s.mma for s in part} == {s.mma for s in parts[0][0]} and len({s.mma for s in part}) == 1:
            following = parts.pop(0)[0]
            part = _ordered([*part, *following])
            needed = _reads(part, order.read_counts)
        slices.append(part)
        reads.append(list(needed))
    return Weave(slices, reads, order.read_counts, order.acc_counts) if len(slices) < len(order.slices) else None


def _cut(steps: list[Step], rows: int, columns: int) -> list[list[Step]] | None:
    """Parts of the accumulator by rows and columns, back and forth so that one operand is kept from part to part; None where the
    fragments do not divide."""
    a = list(dict.fromkeys(s.a.at for s in steps))
    b = list(dict.fromkeys(s.b.at for s in steps))
    # fragments of an operand with the same rows, for every k, stand for one row of the accumulator
    row = _lines(steps, lambda s: s.a.at, lambda s: s.c)
    column = _lines(steps, lambda s: s.b.at, lambda s: s.c)
    count_r, count_c = len(set(row.values())), len(set(column.values()))
    if count_r % rows or count_c % columns or not a or not b:
        return None
    found: dict[tuple[int, int], list[Step]] = {}
    for s in steps:
        r, c = row[s.a.at] * rows // count_r, column[s.b.at] * columns // count_c
        found.setdefault((r, c if r % 2 == 0 else columns - 1 - c), []).append(s)
    return [found[key] for key in sorted(found)]


def _lines(steps: list[Step], fragment: Callable[[Step], int], accumulator: Callable[[Step], int]) -> dict[int, int]:
    """For every fragment of an operand the number of the line of accumulator fragments that it serves, in order of appearance."""
    lines: dict[frozenset[int], int] = {}
    serves: dict[int, set[int]] = {}
    for s in steps:
        serves.setdefault(fragment(s), set()).add(accumulator(s))
    return {f: lines.setdefault(frozenset(line), len(lines)) for f, line in serves.items()}


def _reads_of(x: Operand, counts: dict[Op, int]) -> list[Read]:
    """The reads that deliver an operand."""
    n = counts[x.load]
    first = x.at - x.at % n
    return [Read(x.load, r, n) for r in range(first, x.at + x.count, n)]


def _reads(steps: Sequence[Step], counts: dict[Op, int]) -> list[Read]:
    """All reads of some steps, in order of first use."""
    return list(dict.fromkeys(r for s in steps for x in (s.a, s.b) for r in _reads_of(x, counts)))


def _slices(steps: list[Step], counts: dict[Op, int]) -> list[list[Step]]:
    """Runs of k whose fragments no other run reads, in order of k: steps that share a read belong together if they differ in k."""
    by_k: dict[int, list[Step]] = {}
    ranks: dict[int, int] = {}
    seen: dict[int, int] = {}
    for s in steps:  # k outermost: the n-th step of an accumulator fragment belongs to the n-th k
        rank = seen.get(s.c, 0)
        seen[s.c] = rank + 1
        ranks[id(s)] = rank
    parent = list(range(max(seen.values())))

    def root(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    users: dict[Read, int] = {}
    for s in steps:
        for x in (s.a, s.b):
            for r in _reads_of(x, counts):
                first = users.setdefault(r, ranks[id(s)])
                a, b = root(first), root(ranks[id(s)])
                parent[max(a, b)] = min(a, b)
    for s in steps:
        by_k.setdefault(root(ranks[id(s)]), []).append(s)
    return [by_k[k] for k in sorted(by_k)]


def _ordered(steps: list[Step]) -> list[Step]:
    """The steps of a slice: the operand with more fragments outside, so that few of the other are in use throughout; as many rows
    together as keep accumulators apart, k inside of them."""
    a = list(dict.fromkeys(s.a.at for s in steps))
    b = list(dict.fromkeys(s.b.at for s in steps))
    outer_is_a = len(a) >= len(b)
    fragments = list(dict.fromkeys(s.c for s in steps))
    rank: dict[int, int] = {}
    k_of: list[int] = []
    for s in steps:
        k_of.append(rank.get(s.c, 0))
        rank[s.c] = k_of[-1] + 1
    rows: dict[int, int] = {}  # accumulator fragment -> which of the outer operand's first fragments
    outer: dict[int, int] = {}
    for s in steps:
        x = s.a if outer_is_a else s.b
        if s.c not in rows:
            rows[s.c] = outer.setdefault(x.at, len(outer))
    width = max(1, len(fragments) // max(1, len(outer)))
    together = max(1, -(-APART // width))
    order = sorted(range(len(steps)), key=lambda i: (rows[steps[i].c] // together, k_of[i], rows[steps[i].c], i))
    return [steps[i] for i in order]


def lags(order: Weave, ahead: int) -> list[int]:
    """By how many matrix instructions all reads may come later than while the slice before theirs is computed, so that each is still
    `ahead` of its use: 0 always, then what the order allows."""
    most = order.steps
    for i, part in enumerate(order.reads):
        for r, p in zip(part, order.positions(i, 0), strict=True):
            most = min(most, int(order.uses[r][0] - ahead - p))
    shortest = min(len(part) for part in order.slices)
    return list(range(0, max(0, min(most, shortest - 1)) + 1))


def peak_fragments(order: Weave, lag: int) -> int:
    """The most registers that fragments occupy at once when reads come `lag` later, in the steady state."""
    n = order.steps
    always = 0
    change = [0] * n  # in use from here on, but for those that were before
    for i, part in enumerate(order.reads):
        for r, p in zip(part, order.positions(i, lag), strict=True):
            size = FragmentType(r.load.result.tile.elem, r.count).registers
            begin, end = math.floor(p), order.uses[r][1] + 1
            if begin < end:  # around the loop as often as the fragment is older than an iteration
                always += size * (end // n - begin // n)
                change[begin % n] += size
                change[end % n] -= size
    return always + max(accumulate(change), default=0)
