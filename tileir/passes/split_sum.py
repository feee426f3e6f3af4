"""Makes two kernels of one that sums in a loop: the first computes parts of the sums, the second adds them up and goes on.

A product of few tiles and a long k leaves most of the chip idle. If its loop is cut into parts that different workgroups run, each has a part
of every sum, which somebody must add. Here they are stored to a workspace, and a second kernel reads them:

    %acc = for %k = 0 to %K step 64 carry(%c = %zero) { … mma(%a, %b, %c) … }
    store(%acc, %C[%i +: 128, %j +: 128])

becomes the kernel of the parts, with one more dimension of the grid, and the kernel of the sum:

    %acc = for %k = %start to %end step 64 carry(%c = %zero) { … }
    store(%acc, %W[%s, %i, %j, 0 +: 128, 0 +: 128])

    %acc = for %q = 0 to %S step 4 carry(%sum = %zero) { … add(%sum, …load(%W[%q +: 4, %i, %j, 0 +: 128, 0 +: 128])…) … }
    store(%acc, %C[%i +: 128, %j +: 128])

Nothing is added to what C holds, results have any type and any epilogue, and parts are added in one order, so results do not differ from run
to run (they may differ in the last bits from those of the whole loop). How many parts there are is the first dimension of the workspace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tileir.ir.builder import Names
from tileir.ir.core import Block, Kernel, Op, Value
from tileir.ir.expr import symbol
from tileir.ir.registry import get
from tileir.ir.rewriter import Rewriter, all_names, rewrite
from tileir.ir.types import Elem, GlobalType, TileType
from tileir.passes.dead_code import remove_dead
from tileir.records import dataclass

MOST_GRID = 3
ELEMENTS_AT_ONCE = 8192
"""Elements of parts that the second kernel has under way at a time: 32 registers of a lane of four waves."""
MOST_AT_ONCE = 16


@dataclass(frozen=True)
class SplitSum:
    """The two kernels. count: symbol of the number of parts; places: symbols of the other sizes of the grid; workspaces: each with its name,
    element type, and shape of the tile of one workgroup."""

    parts: Kernel
    sum: Kernel
    count: str
    places: tuple[str, ...]
    workspaces: tuple[tuple[str, Elem, tuple[int, ...]], ...]

    def shape(self, workspace: int, parts: int, grid: Sequence[int]) -> tuple[int, ...]:
        """The shape of a workspace for so many parts and the grid of the whole kernel."""
        return (parts, *grid, *self.workspaces[workspace][2])

    def symbols(self, parts: int, grid: Sequence[int]) -> dict[str, int]:
        """Values of the new symbols."""
        return {self.count: parts, **dict(zip(self.places, grid, strict=True))}


def split_sum(kernel: Kernel) -> SplitSum | None:
    """The two kernels, None for a kernel that does not sum in a loop or does other things that only the whole may do.

    The loop must be the only one with products that is not inside of another, and start from zeros; before the loop and in it nothing may be
    stored, printed or asserted, and in it each value that is carried may only be added to by products. The loop must not reach 2^31 in its
    variable plus one step for each part.
    """
    loop = _loop(kernel)
    if loop is None:
        return None
    names = Names(all_names(kernel))
    taken = set(kernel.symbols()) | {a.name for a in kernel.args}
    fresh = Names(taken)
    count = fresh.fresh("S")
    places = tuple(fresh.fresh("G") for _ in kernel.grid)
    workspaces = tuple((names.fresh("W"), v.tile.elem, v.tile.shape) for v in loop.results)
    views = [
        Value(name, GlobalType(elem, (count, *places, *shape)), v.loc)
        for (name, elem, shape), v in zip(workspaces, loop.results, strict=True)
    ]
    parts = _Parts(kernel, loop, views, count).kernel()
    whole = _Sum(kernel, loop, views, count).kernel()
    return SplitSum(parts, whole, count, places, workspaces)


# -- what can be split ---------------------------------------------------------------------------------------------------


def _loop(kernel: Kernel) -> Op | None:
    """The loop whose sums can be computed in parts."""
    if not 0 < len(kernel.grid) < MOST_GRID:
        return None
    top = kernel.body.ops
    with_products = [op for op in top if any(o.name == "mma" for o in op.walk())]
    if len(with_products) != 1 or with_products[0].name != "for":
        return None
    loop = with_products[0]
    before = [o for op in top[: top.index(loop) + 1] for o in op.walk()]
    if any(get(o.name).effects - {"read", "control"} for o in before) or not _sums(loop):
        return None
    return loop


def _sums(loop: Op) -> bool:
    """Whether all that a loop carries starts at zero and is added to by products alone."""
    body = loop.regions[0]
    chains: dict[Value, int] = {}
    for i, (init, arg) in enumerate(zip(loop.operands[3:], body.args[1:], strict=True)):
        if not _is_zero(init) or arg.tile.rank != 2:
            return False
        chains[arg] = i
    for op in body.ops[:-1]:
        if op.name == "mma" and len(op.operands) > 2 and op.operands[2] in chains:
            if any(v in chains for i, v in enumerate(op.operands) if i != 2):
                return False
            chains[op.result] = chains.pop(op.operands[2])
        elif any(v in chains for o in op.walk() for v in o.operands):
            return False
    return bool(chains) and all(chains.get(v) == i for i, v in enumerate(body.terminator.operands))


def _is_zero(v: Value) -> bool:
    op = v.owner
    if op is None or op.name != "fill":
        return False
    source = op.operands[0].owner
    return source is not None and source.name == "constant" and source.attrs["value"] == 0


# -- the two kernels -----------------------------------------------------------------------------------------------------


class _Half:
    """One of the two kernels: a copy of the old one in which the loop becomes something else."""

    suffix = ""
    more = 0  # dimensions of the grid

    def __init__(self, kernel: Kernel, loop: Op, views: Sequence[Value], count: str):
        self.old, self.loop, self.count = kernel, loop, count
        self.views = [Value(v.name, v.type, v.loc) for v in views]
        self.places: list[Value] = []
        self.number: Value | None = None

    def kernel(self) -> Kernel:
        made = rewrite(self.old, self.rule)
        grid = (*self.old.grid, *([symbol(self.count)] * self.more))
        name = f"{self.old.name}_{self.suffix}"
        return remove_dead(replace(made, name=name, args=[*made.args, *self.views], grid=grid))

    def rule(self, rw: Rewriter, op: Op) -> bool:
        """The rule of the rewriter; `program_id` comes once, before all else."""
        if not self.places:
            rank = len(self.old.grid)
            made = rw.op("program_id", num_results=rank + self.more, hint="place", loc=self.loop.loc)
            self.places, rest = made.results[:rank], made.results[rank:]
            self.number = rest[0] if rest else None
        if op.name == "program_id":
            rw.replace(op, self.places)
            return True
        if op is self.loop:
            self.write(rw, op)
            return True
        return False

    def write(self, rw: Rewriter, loop: Op) -> None:
        """What becomes of the loop."""
        raise NotImplementedError

    def places_in(self, rw: Rewriter, number: Value, first: int | None) -> tuple[list[Value], tuple[int | None, ...]]:
        """Indices and spans of the tile of this workgroup in a workspace: of one part, or of `first` together from that number on."""
        rank = 2
        zero = rw.constant(0, number.tile.elem)
        return [number, *self.places, *([zero] * rank)], (first, *([None] * len(self.places)))


class _Parts(_Half):
    suffix, more = "parts", 1

    def kernel(self) -> Kernel:
        """Without what stands behind the loop."""
        top = self.old.body.ops
        kept = top[: top.index(self.loop) + 1]
        self.old = replace(self.old, body=Block(list(self.old.body.args), list(kept)))
        return super().kernel()

    def write(self, rw: Rewriter, loop: Op) -> None:
        loc = loop.loc
        low, high, step = (rw.use(v) for v in loop.operands[:3])
        elem = low.tile.elem
        assert self.number is not None

        def of(name: str, a: Value, b: Value) -> Value:
            return rw.value(name, [a, b], hint="part", loc=loc)

        def same(v: Value) -> Value:
            return v if v.tile.elem == elem else rw.value("convert", [v], {"elem": elem}, hint="part", loc=loc)

        count = same(rw.value("dim", (), {"symbol": self.count}, hint=self.count, loc=loc))
        end = of("max", low, high)
        trips = of("cdiv", of("sub", end, low), step)
        share = of("mul", of("cdiv", trips, count), step)
        start = of("add", low, of("mul", same(self.number), share))
        stop = of("min", end, of("add", start, share))
        region = rw.region(loop.regions[0])
        inits = [rw.use(v) for v in loop.operands[3:]]
        made = rw.op(
            "for",
            [start, stop, step, *inits],
            loop.attrs,
            regions=[region],
            loc=loc,
            names=[v.name for v in loop.results],
        )
        for value, view in zip(made.results, self.views, strict=True):
            indices, spans = self.places_in(rw, self.number, None)
            rw.op("store", [value, view, *indices], spans=(*spans, *value.tile.shape), loc=loc)


class _Sum(_Half):
    suffix = "sum"

    def write(self, rw: Rewriter, loop: Op) -> None:
        loc = loop.loc
        together = min(MOST_AT_ONCE, max(1, ELEMENTS_AT_ONCE // max(v.tile.size for v in loop.results)))
        together = 1 << together.bit_length() - 1
        count = rw.value("dim", (), {"symbol": self.count}, hint=self.count, loc=loc)
        elem = count.tile.elem
        low, step = rw.constant(0, elem), rw.constant(together, elem)
        index = Value(rw.names.fresh("q"), TileType(elem), loc)
        carried = [Value(rw.names.fresh("sum"), v.type, loc) for v in loop.results]
        body = Block([index, *carried])
        outer, rw.block = rw.block, body
        sums: list[Value] = []
        for value, view in zip(carried, self.views, strict=True):
            shape = value.tile.shape
            one = together == 1
            indices, spans = self.places_in(rw, index, None if one else together)
            part = rw.value("load", [view, *indices], spans=(*spans, *shape), loc=loc, hint="part")
            if not one:
                part = rw.value("reduce_add", [part], {"axis": 0}, loc=loc, hint="part")
                part = rw.value("reshape", [part], {"shape": shape}, loc=loc, hint="part")
            sums.append(rw.value("add", [value, part], loc=loc, hint="sum"))
        rw.op("yield", sums, loc=loc)
        rw.block = outer
        inits = [rw.use(v) for v in loop.operands[3:]]
        made = rw.op("for", [low, count, step, *inits], regions=[body], loc=loc, names=[v.name for v in loop.results])
        rw.replace(loop, made.results)
