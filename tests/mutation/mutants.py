"""The mutants: faults of the kinds that schedules have gone wrong with – a wait, a barrier, a swizzle dropped; clusters swapped; off by
one in a stage, a tile, a count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.mutation.framework import Mutant, Subject, changed, places, right, steady
from tileir.ir.core import Block, Kernel, Op
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.layout.shared import SharedLayout

PASSES = "tileir.passes"


def more(n: int) -> Callable[[Any], Any]:
    """A method, property or cached property whose number is larger by n."""

    def make(old: Any) -> Any:
        get = getattr(old, "fget", None) or getattr(old, "func", None)
        if get is not None:
            return property(lambda self: get(self) + n)
        return lambda self, *args, **kw: old(self, *args, **kw) + n

    return make


def _nothing(old: Any) -> Any:
    return lambda *args, **kw: None


def _tile_later(position: int) -> Callable[[Any], Any]:
    """A method whose argument at `position`, the number of a tile, is one too large."""

    def make(old: Any) -> Any:
        def method(self: Any, *args: Any) -> Any:
            return old(self, *(x + 1 if i == position else x for i, x in enumerate(args)))

        return method

    return make


def _without_ops(*names: str) -> Callable[[Any], Any]:
    """A method that writes ops, without those of these names."""

    def make(old: Any) -> Any:
        def method(self: Any, *args: Any, **kw: Any) -> Any:
            result = old(self, *args, **kw)
            self.rw.block.ops[:] = [op for op in self.rw.block.ops if op.name not in names]
            return result

        return method

    return make


def _last_without(*names: str) -> Callable[[Any], Any]:
    """A method that writes a few ops, without those of these names among what it wrote."""

    def make(old: Any) -> Any:
        def method(self: Any, *args: Any, **kw: Any) -> Any:
            before = list(self.rw.block.ops)
            result = old(self, *args, **kw)
            new = self.rw.block.ops[len(before) :]
            self.rw.block.ops[:] = [*before, *(op for op in new if op.name not in names)]
            return result

        return method

    return make


def _last_without_restore(old: Any) -> Any:
    """A method that raises the priority and lowers it again, without the latter."""

    def method(self: Any, *args: Any) -> Any:
        before = len(self.rw.block.ops)
        result = old(self, *args)
        new = self.rw.block.ops[before:]
        self.rw.block.ops[before:] = [op for op in new if op.name != "priority" or op.attrs["level"]]
        return result

    return method


def _without_lgkm(old: Any) -> Any:
    return lambda self, vm, lgkm: old(self, vm, False)


def _identity(old: Any) -> Any:
    """Layouts of LDS without a swizzle."""

    def choose(shared: Any, found: Any, direct: Any, threads: Any, target: Any) -> Any:
        _, proof = old(shared, found, direct, threads, target)
        return SharedLayout(*shared.matrix, shared.elem.bits), proof

    return choose


def _same_place(old: Any) -> Any:
    return lambda found: {b.op: 0 for b in found}


def _other_accumulator(old: Any) -> Any:
    def method(self: Any, step: Any, tile: Any, made: Any) -> Any:
        count = len(tile.acc[self.shape.accumulators[step.mma]])
        return old(self, replace(step, c=(step.c + 1) % count), tile, made)

    return method


def _bounds(old: Any) -> Any:
    """One tile of k less is left over."""

    def method(self: Any, start: Any, end: Any) -> Any:
        whole, first, left = old(self, start, end)
        return (
            whole,
            first,
            left if self.plan.tiles == 1 else self.rw.value("sub", [left, self.left_one()], loc=left.loc),
        )

    return method


def _copies_earlier(old: Any) -> Any:
    """Copies that begin one matrix instruction before the turn that frees their buffers."""
    return property(lambda self: [(p - self.weave.shift - 1, f, i) for p, f, i in old.func(self)])


def passes_of(subject: Subject) -> Iterator[Mutant]:
    """Faults in the passes that write the loop of a subject."""
    plain = subject.plain
    direct = subject.chip == "gfx950"
    writer = f"{PASSES}.pipeliner.Pipeliner" if plain else f"{PASSES}.schedule_loops.Scheduler"
    yield Mutant("a tile too far in the index", ((f"{PASSES}.pipeliner.Pipeliner.index", _tile_later(1)),))
    yield Mutant("buffers on top of each other", ((f"{PASSES}.allocate_lds.allocate", _same_place),))
    yield Mutant("no swizzle", ((f"{PASSES}.layout_lds._choose", _identity),))
    yield Mutant("no waits in the code", (("tileir.lowering.amdgpu.emit.kernel.shared.wait", _nothing),))
    yield Mutant("no barriers in the code", (("tileir.lowering.amdgpu.emit.kernel.shared.barrier", _nothing),))
    if plain:
        if direct or subject.depth > 2:
            yield Mutant("meet without a wait", ((f"{writer}.meet", _last_without("wait")),))
            yield Mutant("meet without a barrier", ((f"{writer}.meet", _last_without("barrier")),))
        if direct:
            yield Mutant("meet one tile too early", ((f"{writer}.meet", _tile_later(0)),))
            yield Mutant("fetch into the next stage", ((f"{writer}.fetch", _tile_later(1)),))
        elif subject.depth > 2:
            yield Mutant("store into the next stage", ((f"{writer}.store", _tile_later(1)),))
        return
    yield Mutant("another accumulator", ((f"{writer}.product", _other_accumulator),))
    if subject.depth > 2 or direct:
        yield Mutant("read from the next stage", ((f"{writer}.read", _tile_later(1)),))
    if subject.halves:
        halves = f"{PASSES}.ping_pong.PingPong"
        if direct:
            yield Mutant("one copy too many under way", ((f"{halves}.under_way", more(1)),))
        yield Mutant("the last reading cluster is the one before", ((f"{halves}.last_read", more(-1)),))
        yield Mutant("priorities that stay raised", ((f"{halves}.multiply", _last_without_restore),))
        yield Mutant("halves that do not part", ((f"{halves}.prologue", _last_without("barrier_of")),))
        yield Mutant("halves that do not meet", ((f"{halves}.epilogue", _last_without("barrier_of")),))
        return
    iteration = f"{PASSES}.iteration.Iteration"
    if direct:
        yield Mutant("one copy too many under way", ((f"{iteration}.under_way", more(1)),))
        yield Mutant("a copy less late than it is", ((f"{iteration}.late_copies", more(-1)),))
    yield Mutant("turns without barriers", ((f"{writer}.barrier", _nothing),))
    yield Mutant("turns without waits", ((f"{writer}.wait", _nothing),))
    yield Mutant("turns that do not wait for LDS", ((f"{writer}.wait", _without_lgkm),))
    yield Mutant("the turn behind the first reads", ((f"{iteration}.first_turn", more(8)),))
    if direct:
        yield Mutant("copies before the turn", ((f"{iteration}.copies", _copies_earlier),))
    if not (direct and subject.depth > 2):
        # In loops of one long slice this is no fault: a tile is read as a whole before its iteration, at whose start the turn stands.
        # A turn and copies placed still earlier are written there, too, the turn first; no reads of the tile are left to
        # overwrite. The code runs right with all checks on (also 20, 24 and 28 earlier).
        yield Mutant("the turn before the last reads", ((f"{iteration}.first_turn", more(-14)),))


# -- the text --------------------------------------------------------------------------------------------------------


def texts_of(subject: Subject) -> Iterator[Mutant]:
    """Every wait weakened, every wait and barrier dropped, every priority not lowered, every access of LDS in the loop moved to another stage, and
    neighbouring clusters of the loop swapped."""
    kernel = right(subject)
    for i, op in enumerate(places(kernel, "wait", "barrier", "barrier_of")):
        yield Mutant(f"{op.name} {i} dropped", change=lambda k, op=op: changed(k, op, None))
        vm = op.attrs.get("vm") if op.name == "wait" else None
        if isinstance(vm, int):
            yield Mutant(f"wait {i} weaker", change=lambda k, op=op, vm=vm: changed(k, op, {**op.attrs, "vm": vm + 1}))
        if op.name == "wait" and len(op.attrs) > 1:
            rest = {k: v for k, v in op.attrs.items() if k != "lgkm"}
            yield Mutant(f"wait {i} without lgkm", change=lambda k, op=op, rest=rest: changed(k, op, rest))
    for i, op in enumerate(places(kernel, "priority")):
        if not op.attrs["level"]:
            yield Mutant(f"priority {i} stays raised", change=lambda k, op=op: changed(k, op, None))
    yield from _stages(kernel)
    for i in range(len(_clusters(steady(kernel).regions[0])) - 1):
        yield Mutant(f"clusters {i} and {i + 1} swapped", change=lambda k, i=i: _swapped(k, i))


_BUFFER = {
    "copy_async": -1,
    "copy_async_part": -1,
    "shared_load": 0,
    "shared_load_fragment": 0,
    "shared_store": 1,
    "shared_store_fragment": 1,
}


def _stages(kernel: Kernel) -> Iterator[Mutant]:
    """For every kind of access in the loop, the first one in another stage."""
    loop = steady(kernel)
    seen: set[tuple[str, str]] = set()
    for op in loop.walk():
        if op.name not in _BUFFER:
            continue
        at = _BUFFER[op.name] % len(op.operands)
        buffer = op.operands[at]
        family = buffer.name.rstrip("0123456789").rstrip("_")
        others = [v for o in kernel.walk() if o.name == "shared_alloc" for v in o.results]
        others = [v for v in others if v is not buffer and v.type == buffer.type and _used(loop, v)]
        if others and (op.name, family) not in seen:
            seen.add((op.name, family))
            other = others[0]
            yield Mutant(
                f"{op.name} of %{family} in another stage",
                change=lambda k, op=op, at=at, other=other: changed(k, op, op.attrs, {at: other}),
            )


def _used(loop: Op, v: Any) -> bool:
    return any(v in op.operands for op in loop.walk())


def _clusters(block: Block) -> list[list[Op]]:
    """The ops of a loop between two fences or barriers."""
    found: list[list[Op]] = [[]]
    for op in block.ops:
        found[-1].append(op)
        if op.name in ("schedule_fence", "barrier"):
            found.append([])
    return [c for c in found if c]


def _swapped(kernel: Kernel, i: int) -> Kernel:
    loop = steady(kernel)
    clusters = _clusters(loop.regions[0])
    order = [*clusters[:i], clusters[i + 1], clusters[i], *clusters[i + 2 :]]
    moved = [op for cluster in order for op in cluster]

    def rule(rw: Rewriter, op: Op) -> bool:
        if op is not loop:
            return False
        body = Block(loop.regions[0].args, moved)
        rw.copy(Op(op.name, op.operands, op.attrs, op.results, [body], op.spans, op.loc, op.operand_locs))
        return True

    return rewrite(kernel, rule)
