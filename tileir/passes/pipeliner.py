"""Writes a loop in its pipelined form, tile by tile: prologue, steady state and what is left over."""

from __future__ import annotations

from tileir.ir.core import AttrValue, Block, Kernel, Op, Value
from tileir.ir.rewriter import Rewriter
from tileir.ir.types import I1, I64, scalar
from tileir.passes.loop_stages import Plan
from tileir.passes.outstanding import instructions

# The largest count of vector-memory instructions that a wait can name (6 bits, CDNA3 ISA, S_WAITCNT).
MOST_UNDER_WAY = 63


class Copier:
    """Copies ops any number of times, each time with operands of its own and fresh names after the first."""

    def __init__(self, rw: Rewriter):
        self.rw = rw
        self._taken: set[str] = set()

    def value(self, v: Value) -> Value:
        name = v.name if v.name not in self._taken else self.rw.names.fresh(v.name)
        self._taken.add(v.name)
        return Value(name, v.type, v.loc)

    def op(self, op: Op, values: dict[Value, Value]) -> None:
        """Appends a copy; `values` says what operands have become and takes the results."""
        operands = [values.get(v) or self.rw.use(v) for v in op.operands]
        regions = [self._region(r, values) for r in op.regions]
        results = [self.value(v) for v in op.results]
        values.update(zip(op.results, results, strict=True))
        self.rw.insert(Op(op.name, operands, dict(op.attrs), results, regions, op.spans, op.loc, op.operand_locs))

    def _region(self, block: Block, values: dict[Value, Value]) -> Block:
        args = [self.value(v) for v in block.args]
        values.update(zip(block.args, args, strict=True))
        outer, self.rw.block = self.rw.block, Block(args)
        for op in block.ops:
            self.op(op, values)
        inner, self.rw.block = self.rw.block, outer
        return inner


class Pipeliner:
    """Writes one loop in its pipelined form."""

    def __init__(self, rw: Rewriter, plan: Plan, stages: dict[Op, list[Value]], kernel: Kernel):
        self.rw, self.plan, self.stages = rw, plan, stages
        self.copier = Copier(rw)
        self.single_wave = kernel.attrs.get("waves") == 1
        self.copied = sum(instructions(op, kernel) for op in plan.copies)
        # What an iteration surely issues behind its copies: sums in memory, on which no wait for copies should wait.
        self.issued = sum(instructions(op, kernel) for op in plan.consumers) if plan.copies else 0
        self.elem = plan.loop.operands[0].tile.elem
        self.step = plan.loop.operands[2]

    # -- pieces --------------------------------------------------------------------------------------------------

    def number(self, value: int) -> Value:
        return self.rw.constant(value, self.elem, self.plan.loop.loc)

    def index(self, base: Value, tiles: int) -> Value:
        """The loop variable so many tiles after `base`."""
        if tiles == 0:
            return base
        step = self.rw.use(self.step)
        offset = step if tiles == 1 else self.rw.value("mul", [step, self.number(tiles)], loc=self.plan.loop.loc)
        return self.rw.value("add", [base, offset], loc=self.plan.loop.loc)

    def buffers(self, tile: int) -> dict[Value, Value]:
        """For every staged buffer the one of this tile (counted from the first of a trip)."""
        return {fill.operands[-1]: s[tile % len(s)] for fill, s in self.stages.items()}

    def fetch(self, index: Value, tile: int) -> dict[Value, Value]:
        """Starts what brings the tile at `index`: direct copies to its buffers. Gives what its loads, if any, loaded."""
        values = {self.plan.body.args[0]: index, **self.buffers(tile)}
        for op in (*self.plan.addresses, *self.plan.copies):
            self.copier.op(op, values)
        return values

    def load(self, index: Value) -> dict[Value, Value]:
        """The tiles at `index` that go through registers."""
        values = {self.plan.body.args[0]: index}
        for op in (*self.plan.addresses, *self.plan.loads):
            self.copier.op(op, values)
        return {v: values[v] for op in self.plan.loads for v in op.results}

    def store(self, held: dict[Value, Value], tile: int) -> None:
        """From registers to the buffers of a tile."""
        values = {**held, **self.buffers(tile)}
        for op in (*self.plan.turns, *self.plan.stores):
            self.copier.op(op, values)

    def meet(self, newer: int) -> None:
        """Where a stage changes hands: the tile to be read has landed everywhere – of `newer` tiles after it the copies may be
        on their way, and what the iterations since have issued –, and nobody reads the stage to be filled."""
        under_way = min(newer * self.copied + (self.plan.depth - 1) * self.issued, MOST_UNDER_WAY)
        counters: dict[str, AttrValue] = {"vm": under_way} if self.plan.copies else {}
        self.rw.op("wait", (), {**counters, "lgkm": 0}, loc=self.plan.loop.loc)
        if not self.single_wave:
            self.rw.op("barrier", loc=self.plan.loop.loc)

    def compute(self, index: Value, tile: int, carried: list[Value]) -> list[Value]:
        """One iteration on a tile that is in LDS; the values carried on."""
        body = self.plan.body
        values = {body.args[0]: index, **self.buffers(tile)}
        values.update(zip(body.args[1:], carried, strict=True))
        for op in self.plan.consumers:
            self.copier.op(op, values)
        return [values.get(v) or self.rw.use(v) for v in body.terminator.operands]

    # -- the loop ------------------------------------------------------------------------------------------------

    def write(self) -> list[Value]:
        """The whole loop; its results."""
        plan, rw, loc = self.plan, self.rw, self.plan.loop.loc
        start, end = (rw.use(v) for v in plan.loop.operands[:2])
        inits = [rw.use(v) for v in plan.loop.operands[3:]]
        for t in range(plan.depth - 1):
            if plan.copies:
                self.fetch(self.index(start, t), t)
        if self.issued:  # no iteration has issued anything yet: the first waits could not count
            rw.op("wait", (), {"vm": 0}, loc=loc)
        held: dict[Value, Value] = {}
        if plan.loads:
            for t in range(plan.held):
                self.store(self.load(self.index(start, t)), t)
            held = self.load(self.index(start, plan.held))
        whole, first_left, left = self.bounds(start, end)
        names = [v.name for v in plan.loop.results]
        results, held = self.main(start, whole, inits, held, names if plan.tiles == 1 else [])
        if plan.tiles > 1:
            results = self.rest(first_left, left, 0, results, held, names)
        if plan.copies:  # what was fetched beyond the end must not land in what the LDS is used for next
            rw.op("wait", (), {"vm": 0}, loc=loc)
        rw.loc = loc
        return results

    def bounds(self, start: Value, end: Value) -> tuple[Value, Value, Value]:
        """Where the loop of whole trips ends, the first index after it, and how many tiles are left for then."""
        if self.plan.tiles == 1:
            return end, end, end
        rw, loc = self.rw, self.plan.loop.loc

        def wide(v: Value) -> Value:  # differences and multiples may pass 2^31
            return v if self.elem is I64 else rw.value("convert", [v], {"elem": I64}, loc=loc)

        def narrow(v: Value) -> Value:
            return v if self.elem is I64 else rw.value("convert", [v], {"elem": self.elem}, loc=loc)

        def op(name: str, a: Value, b: Value) -> Value:
            return rw.value(name, [a, b], loc=loc)

        low, high, step = wide(start), wide(end), wide(rw.use(self.step))
        zero, tiles = rw.constant(0, I64, loc), rw.constant(self.plan.tiles, I64, loc)
        count = op("cdiv", op("max", op("sub", high, low), zero), step)
        in_trips = op("mul", op("div", count, tiles), tiles)
        after = op("add", low, op("mul", in_trips, step))
        return narrow(op("min", after, high)), narrow(after), narrow(op("sub", count, in_trips))

    def main(
        self, start: Value, end: Value, inits: list[Value], held: dict[Value, Value], names: list[str]
    ) -> tuple[list[Value], dict[Value, Value]]:
        """The steady state."""
        plan, rw, loc = self.plan, self.rw, self.plan.loop.loc
        loop = plan.loop
        args = [self.copier.value(v) for v in plan.body.args]
        kept = [Value(rw.names.fresh(v.name), v.type, v.loc) for v in held.values()]
        step = rw.use(self.step)
        if plan.tiles > 1:
            step = rw.value("mul", [step, self.number(plan.tiles)], loc=loc)
        outer, rw.block = rw.block, Block([*args, *kept])
        carried = args[1:]
        now = dict(zip(held, kept, strict=True))
        for j in range(plan.tiles):
            index = self.index(args[0], j)
            if plan.copies or plan.held:
                self.meet(plan.depth - 2)
            if plan.loads:
                self.store(now, j + plan.held)
                now = self.load(self.index(args[0], j + plan.held + 1))
            if plan.copies:
                self.fetch(self.index(args[0], j + plan.depth - 1), j + plan.depth - 1)
            carried = self.compute(index, j, carried)
        rw.op("yield", [*carried, *now.values()], loc=plan.body.terminator.loc)
        inner, rw.block = rw.block, outer
        made = rw.op(
            "for", [start, end, step, *inits, *held.values()], loop.attrs, regions=[inner], loc=loc,
            names=names and [*names, *(rw.names.fresh(v.name) for v in held)], hint=loop.results[0].name if loop.results else "",
        )  # fmt: skip
        count = len(inits)
        return list(made.results[:count]), dict(zip(held, made.results[count:], strict=True))

    def rest(
        self, first: Value, left: Value, i: int, carried: list[Value], held: dict[Value, Value], names: list[str]
    ) -> list[Value]:
        """The tiles that do not fill a trip, one inside the other: tile i runs if more than i are left."""
        plan, rw, loc = self.plan, self.rw, self.plan.loop.loc
        more = rw.value("gt", [left, self.number(i)], loc=loc)
        assert more.type == scalar(I1)
        args = [Value(rw.names.fresh(v.name), v.type, v.loc) for v in plan.body.args[1:]]
        outer, rw.block = rw.block, Block(args)
        if plan.loads and i == plan.held:
            self.store(held, i)
        self.meet(plan.depth - 2 - i)
        values = self.compute(self.index(first, i), i, list(args))
        if i + 2 < plan.tiles:
            values = self.rest(first, left, i + 1, values, held, [])
        rw.op("yield", values, loc=plan.body.terminator.loc)
        inner, rw.block = rw.block, outer
        made = rw.op("if", [more, *carried], regions=[inner], loc=loc, names=names, hint="r")
        return list(made.results)
