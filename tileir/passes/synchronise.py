"""Puts waits and barriers where accesses of different waves, or of different hardware queues, meet.

    copy_async<bytes = 16>(%A[%i +: 64, %k +: 64], %sa)
    %a = shared_load(%sa) : tile<bf16[64, 64], …>

becomes

    barrier()                                   // other waves still read %sa from the iteration before
    copy_async<bytes = 16>(%A[%i +: 64, %k +: 64], %sa)
    wait<vm = 0>()                              // the copy of this wave has landed
    barrier()                                   // so have those of the others
    %a = shared_load(%sa) : tile<bf16[64, 64], …>

An access is *issued*, then *complete* in its wave (a wait for its counter covers it), then *visible* to the workgroup (a
barrier after that). Before an access that conflicts with an earlier one – the same byte, one of them a write – the
earlier one must be visible; with one wave, complete. The pass follows the pending accesses through the program, around
loops to a fixpoint, and puts what is missing directly before the access that needs it; what proves unnecessary in
the end is taken out again. Registers are not its concern: the code generator waits for those itself.

A kernel that says `with(synchronised = true)` gets nothing: it is as its author wants it, and what is missing is an error.

Reads of LDS first move down past writes of other buffers to the first op that needs them, so that one wait and one
barrier serve several buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field

from tileir.ir.builder import Builder, Names
from tileir.ir.core import AttrValue, Block, Kernel, Op
from tileir.ir.diagnostics import Note, error
from tileir.ir.rewriter import rewrite
from tileir.passes.base import Context, Pass
from tileir.passes.check_sync import check_synchronised
from tileir.passes.halves import Extra, enough, extra_barriers
from tileir.passes.hazards import LGKM, VM, Access, Loops, Memory
from tileir.passes.outstanding import instructions
from tileir.records import dataclass

_AGE_LIMIT = (
    64  # larger than every count that a wait can name (vmcnt has 6 bits, CDNA3 ISA), so ages beyond it are alike
)

Key = tuple[Access, Loops]


@dataclass
class _Sync:
    """What is put before an op: how many vector-memory instructions may stay under way (-1: any number), whether LDS and
    scalar instructions are drained, and whether a barrier follows."""

    vm: int = -1
    lgkm: bool = False
    barrier: bool = False

    def __bool__(self) -> bool:
        return self.vm >= 0 or self.lgkm or self.barrier

    def covers(self, counter: str, age: int) -> bool:
        """Whether an instruction of that age is complete after the wait."""
        return 0 <= self.vm <= age if counter == VM else self.lgkm


@dataclass(frozen=True)
class _Status:
    """How far a pending access is: `complete` in its wave, how many instructions of its counter were issued after it, at least,
    and once it is complete how many barriers were passed, at least, and what `halves` had counted at most."""

    complete: bool
    age: int
    passed: int = 0
    extra: Extra = (0, 0)

    def join(self, other: _Status) -> _Status:
        extra = max(self.extra[0], other.extra[0]), max(self.extra[1], other.extra[1])
        both = self.complete and other.complete
        return _Status(both, min(self.age, other.age), min(self.passed, other.passed) if both else 0, extra)


Bucket = tuple[int, bool]
"""A group of accesses that may meet, and whether they write: what reads meets only what writes."""
State = dict[Bucket, dict[Key, _Status]]
"""The pending accesses. The dictionaries in it are never changed: states share them."""
Checkpoint = tuple[State, Extra]
"""The pending accesses at a point, and what `halves` has counted there."""


Place = tuple[Block, int, "Op | None"]
"""A block, a number of its trace, and the `if` that the block is a branch of, if it is one."""


@dataclass
class _Checkpoints:
    """What holds at places that are reached without a loop: before ops at which or in which something is put, on entry to the
    branches of each `if` there, and at the ends of blocks. `places` are those of the ops at which something is put – of the
    loop or guard that they are in – and of the `if`s around them."""

    before: dict[Op, Checkpoint] = field(default_factory=dict["Op", "Checkpoint"])
    entries: dict[Op, State] = field(default_factory=dict["Op", "State"])
    ends: dict[Block, Checkpoint] = field(default_factory=dict["Block", "Checkpoint"])
    places: dict[Op, Place] = field(default_factory=dict["Op", "Place"])

    def update(self, new: _Checkpoints) -> None:
        """Takes over what is in `new`."""
        self.before.update(new.before)
        self.entries.update(new.entries)
        self.ends.update(new.ends)


def _join(a: State, b: State) -> State:
    out = dict(a)
    for bucket, pending in b.items():
        mine = out.get(bucket)
        if mine is None:
            out[bucket] = pending
        elif mine is not pending:
            both = out[bucket] = dict(mine)
            for key, status in pending.items():
                both[key] = both[key].join(status) if key in both else status
    return out


def _cross(state: State, loop: Op) -> State:
    """The same accesses behind the back edge of a loop."""
    return {
        bucket: {(x, crossed | {loop}): s for (x, crossed), s in pending.items()} for bucket, pending in state.items()
    }


_NOTHING: dict[Key, _Status] = {}


def _changed(state: State, change: Callable[[Key, _Status], _Status | None]) -> State:
    """Every pending access with another status, or none."""
    out: State = {}
    for bucket, pending in state.items():
        kept = {key: s for key, status in pending.items() if (s := change(key, status)) is not None}
        if kept:
            out[bucket] = kept
    return out


class _Analysis:
    """The pending accesses at every point. With `grow`, missing waits and barriers are added to `syncs`; without, `missing`
    says whether there are any."""

    def __init__(self, kernel: Kernel, memory: Memory, syncs: dict[Op, _Sync], *, grow: bool):
        self.kernel = kernel
        self.memory = memory
        self.syncs = syncs
        self.grow = grow
        self.missing = False
        self.changed = False
        self._guards = 0
        self._extra = extra_barriers(kernel)
        self._now: Extra = (0, 0)

    def run(self) -> _Checkpoints:
        """Follows the whole kernel: what holds where, for `still_enough` once nothing is missing."""
        self.changed, self._now = False, (0, 0)
        found = _Checkpoints()
        self._record_block(self.kernel.body, {}, None, found)
        return found

    def still_enough(self, changed: Op, known: _Checkpoints) -> bool:
        """Whether nothing is missing after a change of what is put before `changed`, where nothing was before it. The walk ends
        where all is as it was; if nothing is missing, `known` is brought up to date."""
        block, first, parent = known.places[changed]
        compared = first + 1
        state, self._now = known.before[self.memory.trace(block)[first]]
        self.missing = False
        new = _Checkpoints()
        while True:
            trace = self.memory.trace(block)
            for i in range(first, len(trace)):
                if i >= compared and known.before.get(trace[i]) == (state, self._now):
                    known.update(new)
                    return True
                state = self._record(trace[i], state, (block, i, parent), new)
                if self.missing:
                    return False
            new.ends[block] = state, self._now
            if parent is None:
                known.update(new)
                return True
            ends = [new.ends.get(r) or known.ends[r] for r in parent.regions]
            state, self._now = _join(ends[0][0], ends[1][0] if len(ends) == 2 else known.entries[parent]), ends[-1][1]
            block, first, parent = known.places[parent]
            first = compared = first + 1

    def _record_block(self, block: Block, state: State, parent: Op | None, to: _Checkpoints) -> State:
        for i, op in enumerate(self.memory.trace(block)):
            state = self._record(op, state, (block, i, parent), to)
        to.ends[block] = state, self._now
        return state

    def _record(self, op: Op, state: State, place: Place, to: _Checkpoints) -> State:
        """Like `_op`, and notes what holds before it and in the branches of an `if`."""
        inside = [inner for inner in op.walk() if inner in self.syncs or inner is op] if op.regions else [op]
        if len(inside) > 1 or op in self.syncs:
            to.before[op] = state, self._now
            to.places.update(dict.fromkeys(inside, place))
        if op.name != "if":
            return self._op(op, state)
        state = to.entries[op] = self._before(op, state)
        ends = [self._record_block(r, state, op, to) for r in op.regions]
        return _join(ends[0], ends[1] if len(ends) == 2 else state)

    def _block(self, block: Block, state: State) -> State:
        for op in self.memory.trace(block):
            state = self._op(op, state)
        return state

    def _op(self, op: Op, state: State) -> State:
        state = self._before(op, state)
        return self._structured(op, state) if op.regions else self._step(op, state)

    # -- what an op needs ----------------------------------------------------------------------------------------

    def _before(self, op: Op, state: State) -> State:
        reached = op.walk() if op.name == "guard" else [op]  # a barrier cannot stand inside a guard: waves may skip it
        if self._guards == 0:
            for inner in reached:
                self._need(op, inner, state)
        else:
            clash = next(
                (x for x, y, crossed, _ in self._pairs(op, state) if self.memory.conflict(x, y, crossed)), None
            )
            if clash is not None and self.grow:
                raise error(
                    "E1033",
                    f"'{op.name}' needs a barrier after {clash.describe()}, but waves may skip this 'guard'",
                    op.loc,
                    legal="move one of the two out of the guard",
                    notes=[Note("the other access", clash.op.loc)],
                )
            self.missing |= clash is not None
        sync = self.syncs.get(op)
        return self._apply(sync, state) if sync else state

    def _pairs(self, op: Op, state: State) -> Iterator[tuple[Access, Access, Loops, _Status]]:
        """Pending accesses that accesses of `op` may meet."""
        for y in self.memory.of(op):
            group = self.memory.group(y)
            for writes in (False, True) if y.writes else (True,):
                for (x, crossed), status in state.get((group, writes), _NOTHING).items():
                    yield x, y, crossed, status

    def _need(self, at: Op, op: Op, state: State) -> None:
        """Compares the accesses of `op` with the pending ones; what is missing goes before `at`."""
        planned = self.syncs.get(at, _Sync())
        for x, y, crossed, status in self._pairs(op, state):
            waits = status.complete or planned.covers(x.counter, status.age)
            meets = self.memory.single_wave or planned.barrier
            if (waits and meets) or not self.memory.conflict(x, y, crossed):
                continue
            self.missing = True
            if self.grow:
                self.changed = True
                planned = self.syncs.setdefault(at, planned)
                if not waits and x.counter == VM:
                    # A barrier costs more than draining: then one for all buffers, not one for each.
                    count = status.age if self.memory.single_wave else 0
                    planned.vm = count if planned.vm < 0 else min(planned.vm, count)
                planned.lgkm |= not status.complete and x.counter == LGKM
                planned.barrier |= not self.memory.single_wave

    # -- what an op does -----------------------------------------------------------------------------------------

    def _apply(self, sync: _Sync, state: State) -> State:
        if sync.vm >= 0:
            state = self._wait(VM, sync.vm, state)
        if sync.lgkm:
            state = self._wait(LGKM, 0, state)
        return self._barrier(state) if sync.barrier else state

    def _wait(self, counter: str, count: int, state: State) -> State:
        def waited(key: Key, status: _Status) -> _Status | None:
            if key[0].counter != counter or status.age < count:
                return status
            if self.memory.single_wave:
                return None
            return status if status.complete else _Status(True, status.age, 0, self._now)

        return _changed(state, waited)

    def _barrier(self, state: State, count: int = 1) -> State:
        def met(key: Key, s: _Status) -> _Status | None:
            if not s.complete:
                return s
            gone = enough(s.passed + count, s.extra, self._now)
            return None if gone else _Status(True, s.age, s.passed + count, s.extra)

        return _changed(state, met)

    def _step(self, op: Op, state: State) -> State:
        if op.name in ("barrier", "barrier_of"):
            self._now = self._extra[op]
            return self._barrier(state, int(op.name == "barrier"))
        if op.name == "wait":
            vm, lgkm = op.attrs.get("vm", -1), op.attrs.get("lgkm", -1)
            assert isinstance(vm, int) and isinstance(lgkm, int)
            if vm >= 0:
                state = self._wait(VM, vm, state)
            return self._wait(LGKM, 0, state) if lgkm == 0 else state  # scalar loads come out of order: only 0 is sure
        accesses, newer = self.memory.of(op), instructions(op, self.kernel)

        def older(key: Key, s: _Status) -> _Status:
            if key[0].counter != VM or s.age == _AGE_LIMIT:
                return s
            return _Status(s.complete, min(s.age + newer, _AGE_LIMIT), s.passed, s.extra)

        out = _changed(state, older) if newer else dict(state) if accesses else state
        for a in accesses:
            bucket = self.memory.group(a), a.writes
            # The newest of accesses that are alike is the last to complete: it stands for all.
            out[bucket] = {**out.get(bucket, _NOTHING), (self.memory.alike(a), frozenset()): _Status(False, 0)}
        return out

    def _structured(self, op: Op, state: State) -> State:
        if op.name == "if":
            ends = [self._block(r, state) for r in op.regions]
            return _join(ends[0], ends[1] if len(ends) == 2 else state)
        if op.name == "guard":
            self._guards += 1
            end = self._block(op.regions[0], state)
            self._guards -= 1
            return _join(state, end)
        entry, exit_ = state, state
        while True:  # `for` and `while`: around the back edge until nothing new arrives
            checked = self._block(op.regions[0], entry) if op.name == "while" else entry
            end = self._block(op.regions[-1], checked)
            exit_ = checked if op.name == "while" else _join(state, end)
            around = _join(entry, _cross(end, op))
            if around == entry:
                return exit_
            entry = around


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    if kernel.attrs.get("synchronised") is True:
        check_synchronised(kernel)
        return kernel
    kernel = rewrite(kernel, lambda rw, op: False)
    memory = Memory(kernel)
    sink_reads(kernel, memory)
    memory.retrace()
    syncs: dict[Op, _Sync] = {}
    analysis = _Analysis(kernel, memory, syncs, grow=True)
    known = analysis.run()
    while analysis.changed:
        known = analysis.run()
    _prune(analysis, known)
    _insert(kernel.body, {op: sync for op, sync in syncs.items() if sync})
    return kernel


def _prune(analysis: _Analysis, known: _Checkpoints) -> None:
    """Takes out every wait and barrier that the others make unnecessary, the earliest first."""
    order = {op: i for i, op in enumerate(analysis.kernel.walk())}
    syncs, analysis.grow = analysis.syncs, False
    for op in sorted(syncs, key=lambda o: order[o]):
        for part in ("barrier", "vm", "lgkm"):
            kept, without = getattr(syncs[op], part), -1 if part == "vm" else False
            if kept != without:
                setattr(syncs[op], part, without)
                if not analysis.still_enough(op, known):
                    setattr(syncs[op], part, kept)


def _insert(block: Block, syncs: dict[Op, _Sync]) -> None:
    """Writes waits and barriers before their ops, in place."""
    new = Block()
    builder = Builder(new, Names(set()))
    for op in block.ops:
        sync = syncs.get(op, _Sync())
        counters: dict[str, AttrValue] = {**({VM: sync.vm} if sync.vm >= 0 else {}), **({LGKM: 0} if sync.lgkm else {})}
        if counters:
            builder.op("wait", (), counters, loc=op.loc)
        if sync.barrier:
            builder.op("barrier", loc=op.loc)
        for region in op.regions:
            _insert(region, syncs)
        builder.insert(op)
    block.ops = new.ops


def sink_reads(kernel: Kernel, memory: Memory) -> None:
    """Moves each read of a whole tile from LDS down past writes of other buffers, up to the first op that uses it, writes its buffer or
    orders memory. In place; `memory`, which knows the kernel, does not notice."""

    def blocks(block: Block) -> None:
        for op in block.ops:
            for region in op.regions:
                blocks(region)
        for op in list(block.ops):
            whole = op.name in ("shared_load", "shared_load_transposed")  # fragments stand where they shall
            if whole and [a.in_lds and not a.writes for a in memory.of(op)] == [True]:
                _sink(block, op, memory)

    blocks(kernel.body)


def _sink(block: Block, load: Op, memory: Memory) -> None:
    (read,) = memory.of(load)
    at = block.ops.index(load)
    end = target = at + 1
    while end < len(block.ops):
        op = block.ops[end]
        if op.regions or op.name in ("yield", "wait", "barrier") or load.result in op.operands:
            break
        if any(memory.ordered(read, other) for other in memory.of(op)):
            break
        end += 1
        if any(a.in_lds and a.writes for a in memory.of(op)):
            target = end  # no further than past the last write: loads stay as early as they can
    if target > at + 1:
        block.ops.insert(target, load)
        del block.ops[at]


PASS = Pass(
    "synchronise",
    _run,
    requires=frozenset({"lds_allocated"}),
    establishes=frozenset({"synchronised", "lds_written", "references_kept", "priorities_restored"}),
    summary="puts waits and barriers between conflicting accesses",
)

__all__ = ["PASS", "check_synchronised", "sink_reads"]
