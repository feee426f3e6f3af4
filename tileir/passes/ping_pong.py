"""Writes a pipelined loop for two groups of waves that take turns: while one reads, copies and waits, the other multiplies.

An iteration is a row of *clusters*, one for each slice of its `Weave`; every cluster is a part that moves data and a part that
multiplies, each closed by a barrier:

    shared_load_fragment … copy_async_part …      // what the slice needs, and a share of what later tiles need
    barrier()
    priority<1>()
    mfma …
    priority<0>()
    barrier()

Before the loop the second half of the waves counts one barrier more (`barrier_of`), behind it the first: so the two halves are half
a cluster apart, and on every SIMD one wave multiplies while the other moves data.

What a wave reads is complete before the barrier that ends its part; with halves apart by one barrier, a second one stands between that
and what the other half may do to the same place (`check_sync` counts them).
"""

from __future__ import annotations

from functools import cached_property

from tileir.ir.core import AttrValue, Block, Op, Value
from tileir.ir.types import I1, scalar
from tileir.passes.schedule_loops import Scheduler, Tile
from tileir.passes.weave import Operand, Read


class PingPong(Scheduler):
    """Writes one loop in clusters."""

    @cached_property
    def last_read(self) -> int:
        """The last cluster that reads from LDS."""
        return max(i for i, part in enumerate(self.weave.reads) if part)

    @cached_property
    def clusters(self) -> int:
        """Clusters of an iteration. What goes through registers is written to LDS in a cluster behind the last read, if need be in
        one of its own."""
        return max(len(self.weave.slices), self.last_read + 2 if self.plan.loads else 0)

    @cached_property
    def copies(self) -> list[tuple[int, Op, int]]:
        """Clusters of the instructions of all copies, counted from the iteration `depth` before theirs: evenly over half an iteration
        from the first cluster on in which nobody reads the buffers any more."""
        found = [(f, i) for _, f, i in self.shape.copies]
        span = max(1, self.clusters // 2)
        first = self.last_read + 1
        return [(first + n * span // len(found), f, i) for n, (f, i) in enumerate(found)]

    @property
    def late(self) -> int:
        """Certain instructions of copies that stand in the iteration after."""
        return sum(self.shape.certain(f, i) for c, f, i in self.copies if c >= self.clusters)

    def under_way(self) -> int:
        """Copies that may be under way at the end of the last moving part: those issued after the last of the next tile."""
        n, depth = self.clusters, self.plan.depth
        needed = max((c for c, _, _ in self.copies), default=0) + (1 - depth) * n
        turns = range(-depth, 1)
        return sum(self.shape.certain(f, i) for c, f, i in self.copies for j in turns if needed < c + j * n < n)

    def prologue(self, start: Value, acc: list[list[Value]]) -> Tile:
        """The first tiles on their way, the first of them in LDS, and the halves apart."""
        plan, tile = self.plan, Tile(0, start, {}, acc)
        for t in range(plan.depth if plan.copies else 0):
            values = self.addressed(self.index(start, t), t)
            for c, fill, i in self.copies:
                if t < plan.depth - 1 or c < self.clusters:
                    self.copy_part(fill, i, values)
        self.fill_registers(start, tile)
        self.turn((plan.depth - 1) * self.shape.copies_of_tile - self.late, lgkm=bool(self.shape.pieces))
        self.rw.op("barrier_of", (), {"half": 1}, loc=plan.loop.loc)
        return tile

    def epilogue(self) -> None:
        self.rw.op("barrier_of", (), {"half": 0}, loc=self.plan.loop.loc)
        super().epilogue()

    def remainder(self, first: Value, left: Value, tile: Tile, i: int = 0) -> Tile:
        """The tiles that do not fill a trip, one inside the other: tile i runs if more than i are left."""
        plan, rw, loc = self.plan, self.rw, self.plan.loop.loc
        more = rw.value("gt", [left, self.number(i)], loc=loc)
        assert more.type == scalar(I1)
        inits = [v for part in tile.acc for v in part]
        args = [self.fresh(v) for v in inits]
        outer, rw.block = rw.block, Block(args)
        now = self.regrouped(tile, args)
        now.number, now.index = i, first
        further = i + 2 < plan.tiles
        self.iteration(now, fetch=False, following=further, left=plan.depth - 2 - i)
        if further:
            now = self.remainder(first, left, now, i + 1)
        rw.insert(Op("yield", [v for part in now.acc for v in part], {}, [], [], None, plan.body.terminator.loc))
        inner, rw.block = rw.block, outer
        results = [self.fresh(v) for v in inits]
        rw.insert(Op("if", [more, *inits], {}, results, [inner], None, loc))
        return self.regrouped(tile, results)

    def iteration(self, tile: Tile, *, fetch: bool, following: bool, left: int | None = None) -> None:
        """One iteration; arguments as of `Scheduler.iteration`."""
        plan, loc = self.plan, self.plan.loop.loc
        fragments: dict[Read, Value] = {}
        tile.fragments = fragments
        made: dict[Operand, Value] = {}
        ahead = plan.depth if plan.copies else 0
        values: dict[Value, Value] = {}
        before: dict[Value, Value] = {}
        if fetch and any(c >= self.clusters for c, _, _ in self.copies):
            before = self.addressed(self.index(tile.index, plan.depth - 1), tile.number + ahead - 1)
        for c in range(self.clusters):
            self.rw.op("schedule_fence", loc=loc)
            for r in self.weave.reads[c] if c < len(self.weave.reads) else ():
                self.read(r, tile.number, fragments)
            if fetch and c == min(self.last_read + 1, self.clusters - 1):
                values = self.addressed(self.index(tile.index, plan.depth), tile.number + ahead)
            stores = fetch and bool(self.shape.pieces) and c == self.last_read + 1
            if stores:
                held = dict(tile.held)
                for key in self.shape.pieces:
                    self.store_piece(key, held, tile.number + plan.depth - 1)
                for key in self.shape.pieces:
                    self.load_piece(key, values, tile.held)
            for at, f, i in self.copies if fetch else ():
                if at == c or at == c + self.clusters:
                    self.copy_part(f, i, values if at == c else before)
            waits: dict[str, AttrValue] = {}
            if c == self.clusters - 1 and following and plan.copies:
                waits["vm"] = self.under_way() if left is None else max(0, left * self.shape.copies_of_tile - self.late)
            # From three stages on, what is stored is read behind the wait for the reads of the next iteration.
            if c == self.last_read or (stores and plan.depth < 3):
                waits["lgkm"] = 0
            if waits:
                self.rw.op("wait", (), waits, loc=loc)
            self.rw.op("barrier", loc=loc)
            self.multiply(c, tile, made)
            self.rw.op("barrier", loc=loc)
        tile.fragments = {}

    def multiply(self, c: int, tile: Tile, made: dict[Operand, Value]) -> None:
        """The multiplying part of a cluster."""
        loc = self.plan.loop.loc
        if c >= len(self.weave.slices):
            return
        if self.weave.reads[c] and c != self.last_read:
            self.rw.op("wait", (), {"lgkm": 0}, loc=loc)
        self.rw.op("priority", (), {"level": 1}, loc=loc)
        self.rw.op("schedule_fence", loc=loc)
        for step in self.weave.slices[c]:
            self.product(step, tile, made)
        self.rw.op("schedule_fence", loc=loc)
        self.rw.op("priority", (), {"level": 0}, loc=loc)
