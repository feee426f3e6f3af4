"""What one iteration of a scheduled loop holds and where everything stands in it, decided before anything is written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

from tileir.ir.core import AttrValue, Kernel, Op, Value
from tileir.ir.types import SharedType, TileType
from tileir.passes.lds_accesses import access_bytes, over_buffer
from tileir.passes.loop_stages import Plan
from tileir.passes.outstanding import instructions, rounds, together_of
from tileir.passes.pressure import budget, registers_of
from tileir.passes.weave import Piece, Scale, Weave, exact, lags, peak_fragments, weave, with_longer_slices
from tileir.records import dataclass
from tileir.target import Target

# Matrix instructions between a read and its use: LDS answers after about 130 clocks, and a matrix instruction takes at least 16.
AHEAD = 8
AHEAD_CLOCKS = 128
# What the end of a trip costs a wave: counting, comparing and the branch, by the simulator's model. A turn of one slice would stand right
# behind it, where no wave has products left to wait with. So the barrier comes so much later than the wait, and reads and
# copies one matrix instruction behind it: more than three instructions between two matrix instructions of 16 clocks cost time.
BRANCH_CLOCKS = 32
# For that, a slice must be so many times as long as LDS takes to answer: else its reads would crowd.
LONG_SLICE = 3
# Bytes of a direct copy of 16 bytes a lane. Copies of all waves are spread over what the CU can take, and end before the next turn.
COPY_BYTES = 1024
MOST_OF_ITERATION = 0.75
# Where tiles have several iterations on their way, copies are at least spread over so much of one: at the full rate of the CU's path to
# memory waves wait for each other's (by the simulator's model; more would shorten the way without gain).
LEAST_OF_ITERATION = 0.6
# Registers for addresses and temporaries beside accumulators, fragments and loads on their way.
RESERVE = 32
# Part of an iteration over which the loads of the next one's scales are spread, from its beginning on: so early that memory answers
# before the end, and so late that the registers of the scales before are free.
SCALES_UNTIL = 0.5
SETS_OF_TURNS = 2  # stages of loops whose buffers change hands in two groups
SETS_OF_SCALES = 2  # in registers: of this tile and of the next
_PARTS = ("mma", "shared_load", "shared_load_transposed", "transpose")


@dataclass
class Iteration:
    """One iteration of the loop of a plan. `accumulators` gives for every product the number of the carried value that it adds to;
    `spare` are registers to leave free beyond the estimate; `lag` says by how many matrix instructions reads come later than while
    the slice before theirs is computed; `apart` by how many the barrier of the first turn follows its wait; `fits` whether registers
    suffice by estimate, `is_early` whether they do for reads a whole slice ahead."""

    plan: Plan
    kernel: Kernel
    target: Target
    weave: Weave
    accumulators: dict[Op, int]
    spare: int = 0
    lag: int = 0
    apart: int = 0
    fits: bool = False
    is_early: bool = False

    def __post_init__(self) -> None:
        """Orders the reads of the first slice by turn, and chooses how late reads come: as early as registers allow."""
        order, (one, two) = self.weave, self.groups
        ranks = {load: i for i, load in enumerate((*one, *two))}
        order.reads[0].sort(key=lambda r: ranks[r.load] if self.two_turns else 0)
        order.early = sum(r.load in one for r in order.reads[0])
        order.stored = len(self.pieces) if two and self.plan.loads else 0
        fixed = sum(registers_of(v) for v in (*self.plan.loop.results, *(load.result for load in self.plan.loads)))
        fixed += (SETS_OF_SCALES + self.plan.tiles) * len(order.scales)  # and an address for each load of a trip
        room = budget(self.kernel, self.target) - fixed - RESERVE
        if peak_fragments(order, 0) <= room - self.spare:
            if min(len(part) for part in order.slices) >= LONG_SLICE * self.ahead:
                self.apart = math.ceil(BRANCH_CLOCKS / self.clocks)
                order.shift = self.apart + 1
            order.margin = self.ahead + order.shift
            for part in order.reads:
                part.reverse()
            order.reads[0].sort(key=lambda r: ranks[r.load] if self.two_turns else 0)
            self.fits = self.is_early = True
            return
        possible = lags(order, AHEAD)
        self.lag = next((lag for lag in possible if peak_fragments(order, lag) <= room - self.spare), possible[-1])
        self.fits = peak_fragments(order, self.lag) <= room

    @property
    def waves(self) -> int:
        waves = self.kernel.attrs["waves"]
        assert isinstance(waves, int)
        return waves

    @property
    def waves_per_simd(self) -> int:
        return self.target.waves_per_simd(self.waves)

    @property
    def ahead(self) -> int:
        """Matrix instructions from a read to its use."""
        return math.ceil(AHEAD_CLOCKS / self.clocks)

    @property
    def two_turns(self) -> bool:
        """Whether the buffers change hands in two groups, see `weave`."""
        return self.plan.depth == SETS_OF_TURNS

    @cached_property
    def clocks(self) -> float:
        """Clocks of a SIMD that a matrix instruction takes on average."""
        total = 0
        for step in self.weave.sequence:
            a, b = (v.tile.elem.name for v in step.mma.operands[:2])
            acc, instr = step.mma.result.tile.elem.name, step.mma.attrs["instr"]
            fitting = [i for i in self.target.mfmas_for(a, b, acc) if (i.m, i.n, i.k) == instr]
            total += self.target.mfma_clocks(fitting[0], a, b) if fitting else 0
        return max(1.0, total / self.weave.steps)

    @cached_property
    def loads(self) -> list[Op]:
        """The reads of whole tiles from LDS in the order in which the first slice needs them, the operand with fewer fragments
        first."""
        first = self.weave.reads[0]
        loads = list(dict.fromkeys(r.load for part in self.weave.reads for r in part))
        sizes = {load: sum(r.load is load for r in first) for load in loads}
        return sorted(loads, key=lambda load: (sizes[load] == 0, sizes[load]))

    @cached_property
    def groups(self) -> tuple[list[Op], list[Op]]:
        """Reads of LDS by the turn at which their buffers change hands."""
        if not self.two_turns:
            return list(self.loads), []
        if self.plan.loads:  # what was written to LDS is there at the second turn
            stored = [load for load in self.loads if self.fill_of(load) in self.plan.stores]
            return [load for load in self.loads if load not in stored], stored
        half = max(1, len(self.loads) // 2)
        return self.loads[:half], self.loads[half:]

    def fill_of(self, load: Op) -> Op:
        """What fills the buffer that a read reads."""
        return next(f for f in (*self.plan.copies, *self.plan.stores) if f.operands[-1] is load.operands[0])

    # Turns

    @cached_property
    def first_turn(self) -> int:
        """Before which matrix instruction the first turn stands."""
        return self.weave.start(len(self.weave.slices) - 1) + self.lag

    @cached_property
    def second_turn(self) -> float:
        return exact(self.first_turn + self.weave.second_turn)

    @property
    def settling(self) -> float:
        """Matrix instructions from the last write to LDS to the turn that waits for it: the wave that comes last has none under way
        there, so that all wait for what is left of the time that LDS takes. At most half of the time in which the last half is written."""
        return min(self.ahead, (self.second_turn - self.first_turn) / 4)

    # Direct copies

    def parts(self, copy: Op) -> int:
        """Instructions of a direct copy in a wave."""
        return rounds(copy, self.waves)[1]

    def together(self, copy: Op) -> dict[str, AttrValue]:
        """See `together_of`."""
        return together_of(copy, self.waves, self.target)

    def certain(self, copy: Op, part: int) -> int:
        """1 for an instruction of a copy that every wave issues, 0 for one that some may skip."""
        return int(part < instructions(copy, self.kernel))

    @cached_property
    def copies(self) -> list[tuple[float, Op, int]]:
        """Where the instructions of all copies stand, counted from the iteration `depth` before theirs: behind its first turn, as far
        apart as all waves together can be served – farther where tiles have several iterations on their way –, in the order in
        which the tile is read; before the first turn of the next."""
        one, two = self.groups
        found = [(f, i) for f in map(self.fill_of, (*one, *two)) if f in self.plan.copies for i in range(self.parts(f))]
        rate = float(self.target.fact("global_bytes_per_clock").value)  # type: ignore[arg-type]
        spacing = COPY_BYTES * self.waves / rate / (self.clocks * self.waves_per_simd)
        spacing = min(spacing, self.weave.steps * MOST_OF_ITERATION / max(1, len(found)))
        if not self.two_turns:
            spacing = max(spacing, self.weave.steps * LEAST_OF_ITERATION / max(1, len(found)))
        return [(exact(self.first_turn + self.weave.shift + spacing * n), f, i) for n, (f, i) in enumerate(found)]

    @property
    def late_copies(self) -> int:
        """Certain instructions of copies that stand in the iteration after."""
        return sum(self.certain(f, i) for p, f, i in self.copies if p >= self.weave.steps)

    @property
    def copies_of_tile(self) -> int:
        """Certain instructions of the copies of one tile."""
        return sum(self.certain(f, i) for _, f, i in self.copies)

    def under_way(self, place: float, group: Sequence[Op]) -> int:
        """Copies that may be under way at a turn at `place` that waits for those of the next tile in a group: instructions that every
        wave certainly issues after the last of them, in the steady state. -1 if nothing of the group is copied."""
        n, depth = self.weave.steps, self.plan.depth
        fills = {self.fill_of(load) for load in group}
        needed = max((p + (1 - depth) * n for p, f, _ in self.copies if f in fills), default=None)
        if needed is None:
            return -1
        issued = [(p, self.certain(f, i)) for p, f, i in self.copies] + [(p, 1) for p, _ in self.scales]
        return sum(certain for p, certain in issued for j in range(-depth, 1) if needed < p + j * n < place)

    # Scales

    @cached_property
    def scales(self) -> list[tuple[float, Scale]]:
        """Where the loads of the scales of the next tile stand."""
        found = self.weave.scales
        length = self.weave.steps * SCALES_UNTIL
        return [(exact(length * (i + 0.5) / len(found)), s) for i, s in enumerate(found)]

    # Through registers

    def piece(self, load: Op) -> int:
        """Registers of one load and one LDS write where they agree, 0 where the tile is loaded and stored as a whole."""
        stores = [s for s in self.plan.stores if s.operands[0] is load.result]
        t = load.result.tile
        if len(stores) != 1 or t.layout is None or load.attrs.get("via") != "buffer" or load.attrs.get("pad", 0) != 0:
            return 0
        buffer, wide = stores[0].operands[1].type, load.attrs["bytes"]
        assert isinstance(buffer, SharedType) and buffer.layout is not None and isinstance(wide, int)
        layout = over_buffer(t.layout, buffer)
        width = access_bytes(TileType(t.elem, layout.shape, layout), buffer.layout)
        if layout != t.layout or width != wide or t.layout.free.reg or t.elem.bits < 8:
            return 0
        return width // t.elem.bytes

    @cached_property
    def pieces(self) -> list[Piece]:
        """The parts of all tiles that go through registers, in order."""
        found: list[Piece] = []
        for load in self.plan.loads:
            n, layout = self.piece(load), load.result.tile.layout
            assert layout is not None
            found += [(load, r) for r in range(0, layout.num_registers, n)] if n else [(load, -1)]
        return found


def iteration_of(plan: Plan, kernel: Kernel, target: Target, spare: int = 0) -> Iteration | str:
    """How to write a loop instruction by instruction, if it computes nothing but products of what it stages, summed in what it
    carries; else why that is not possible."""
    consumers = plan.consumers
    products = [op for op in consumers if op.name == "mma"]
    if not products:
        return "it has no 'mma'"
    for op in consumers:
        if op.name not in _PARTS and op not in plan.addresses and op not in plan.scales and not _is_scalar(op):
            return f"it computes more than products: '{op.name}'"
    if plan.scales and plan.loop.attrs.get("pattern") == "ping_pong":
        return "its products have scales, for which ping_pong has no place"
    accumulators = _accumulators(plan, products)
    if accumulators is None:
        return "what it carries is not summed by an 'mma' alone"
    cut = plan.loop.attrs.get("slices") or None
    assert cut is None or isinstance(cut, tuple)
    order = weave(products, set(plan.body.ops), cut)
    if order is None:
        return "an operand of its 'mma' is not read from LDS in the loop, or its fragments do not divide into slices"
    filled = {fill.operands[-1] for fill in (*plan.copies, *plan.stores)}
    if {load.operands[0] for load in order.read_counts} != filled:
        return "operands of its 'mma' have no stages"
    made = Iteration(plan, kernel, target, order, accumulators, spare)
    if cut is None and plan.copies and plan.depth > SETS_OF_TURNS and plan.loop.attrs.get("pattern") != "ping_pong":
        least = LONG_SLICE * made.ahead
        while any(len(part) < least for part in order.slices):
            order = with_longer_slices(order)
            if order is None:
                break
            longer = Iteration(plan, kernel, target, order, accumulators, spare)
            if not longer.is_early:
                break
            made = longer
    return made


def _accumulators(plan: Plan, products: Sequence[Op]) -> dict[Op, int] | None:
    """For every product the number of the carried value that it adds to; None if anything else happens to a carried value."""
    chains: dict[Value, int] = {v: i for i, v in enumerate(plan.body.args[1:])}
    found: dict[Op, int] = {}
    for op in products:
        if len(op.operands) < 3 or op.operands[2] not in chains:
            return None
        found[op] = number = chains.pop(op.operands[2])
        chains[op.result] = number
    if any(chains.get(v) != i for i, v in enumerate(plan.body.terminator.operands)):
        return None
    return found if set(found.values()) == set(range(len(plan.body.args) - 1)) else None


def _is_scalar(op: Op) -> bool:
    values = (*op.results, *op.operands)
    return not op.regions and all(isinstance(v.type, TileType) and v.type.is_scalar for v in values)
