"""Writes a pipelined loop instruction by instruction, in the order of its `Weave`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial

from tileir.ir.core import AttrValue, Block, Op, Value
from tileir.ir.ops.memory import cache_of
from tileir.ir.rewriter import Rewriter
from tileir.ir.types import I1, FragmentType, scalar
from tileir.passes.iteration import Iteration
from tileir.passes.pipeliner import Pipeliner
from tileir.passes.pressure import part_of_pin
from tileir.passes.weave import Operand, Piece, Read, Scale, Step, exact
from tileir.records import dataclass


@dataclass
class Tile:
    """What is known while one iteration is written: its number (counted from the first of a trip) and loop variable, fragments that
    have been read, accumulator fragments by carried value, registers that hold loads on their way to LDS, and its scales."""

    number: int
    index: Value
    fragments: dict[Read, Value]
    acc: list[list[Value]]
    held: dict[Piece, Value] = field(default_factory=dict[Piece, Value])
    scales: dict[Piece, Value] = field(default_factory=dict[Piece, Value])


Event = tuple[float, int, Callable[[], None]]


class Scheduler(Pipeliner):
    """Writes one loop as single instructions."""

    def __init__(self, rw: Rewriter, stages: dict[Op, list[Value]], iteration: Iteration):
        super().__init__(rw, iteration.plan, stages, iteration.kernel)
        self.shape = iteration
        self.weave = iteration.weave
        self.maps: dict[Op, Value] = {}

    def buffer_of(self, load: Op, tile: int) -> Value:
        buffers = self.buffers(tile)
        return buffers[load.operands[0]]

    # -- single ops ----------------------------------------------------------------------------------------------

    def put(
        self,
        name: str,
        operands: Sequence[Value],
        attrs: dict[str, AttrValue],
        type: FragmentType | None,
        like: Op,
        hint: str,
        spans: tuple[int | None, ...] | None = None,
    ) -> Value | None:
        """Appends an op; gives its result."""
        results = [Value(self.rw.names.fresh(hint), type, like.loc)] if type is not None else []
        self.rw.insert(Op(name, list(operands), attrs, results, [], spans, like.loc))
        return results[0] if results else None

    def value(
        self, name: str, operands: Sequence[Value], attrs: dict[str, AttrValue], type: FragmentType, like: Op, hint: str
    ) -> Value:
        v = self.put(name, operands, attrs, type, like, hint)
        assert v is not None
        return v

    def map_of(self, op: Op) -> Value:
        """The register map of the tile that an op reads from LDS, or loads."""
        return self.maps[op]

    def make_maps(self) -> None:
        pieces = (load for load in self.plan.loads if self.shape.piece(load))
        for op in (*self.weave.read_counts, *pieces, *self.plan.scales):
            self.maps[op] = self.rw.value(
                "register_map", (), types=[op.result.tile], hint=f"m{op.result.name}", loc=op.loc
            )

    def read(self, r: Read, tile: int, into: dict[Read, Value]) -> None:
        name = r.load.name + "_fragment"
        operands = [self.buffer_of(r.load, tile), self.map_of(r.load)]
        attrs: dict[str, AttrValue] = {"at": r.at} if r.at else {}
        type = FragmentType(r.load.result.tile.elem, r.count)
        into[r] = self.value(name, operands, attrs, type, r.load, r.load.result.name)

    def operand(self, x: Operand, fragments: dict[Read, Value], made: dict[Operand, Value]) -> Value:
        """The fragment of an operand, cut out of a read or put together from several."""
        if x in made:
            return made[x]
        n = self.weave.read_counts[x.load]
        first = x.at - x.at % n
        parts = [fragments[Read(x.load, at, n)] for at in range(first, x.at + x.count, n)]
        type = FragmentType(x.load.result.tile.elem, x.count)
        if n == x.count:
            made[x] = parts[0]
        elif n > x.count:
            made[x] = self.value("slice_fragment", parts, {"at": x.at - first}, type, x.load, x.load.result.name)
        else:
            made[x] = self.value("join_fragments", parts, {}, type, x.load, x.load.result.name)
        return made[x]

    def product(self, step: Step, tile: Tile, made: dict[Operand, Value]) -> None:
        op = step.mma
        a, b = self.operand(step.a, tile.fragments, made), self.operand(step.b, tile.fragments, made)
        files = {k: op.attrs.get(k, "") for k in ("file", "file_a", "file_b")}
        if op.attrs.get("swapped", False):
            a, b = b, a
            files["file_a"], files["file_b"] = files["file_b"], files["file_a"]
        acc = tile.acc[self.shape.accumulators[op]]
        attrs: dict[str, AttrValue] = {"instr": op.attrs["instr"], **{k: v for k, v in files.items() if v}}
        c = acc[step.c]
        assert isinstance(c.type, FragmentType)
        attrs |= part_of_pin(op, step.c, c.type.registers)
        scales = step.scales[::-1] if op.attrs.get("swapped", False) else step.scales
        if scales:
            attrs["scale_at"] = tuple(s.place for s in scales)
        operands = [a, b, c, *(tile.scales[s.piece] for s in scales)]
        acc[step.c] = self.value("mfma", operands, attrs, c.type, op, op.result.name)

    # -- copies, loads and stores, as single instructions --------------------------------------------------------

    def copy_part(self, copy: Op, part: int, values: dict[Value, Value]) -> None:
        operands = [values.get(v) or self.rw.use(v) for v in copy.operands]
        self.put(
            "copy_async_part",
            operands,
            {"bytes": copy.attrs["bytes"], "part": part, **self.shape.together(copy), **cache_of(copy)},
            None,
            copy,
            "",
            copy.spans,
        )

    def addressed(self, index: Value, tile: int) -> dict[Value, Value]:
        """The addresses of the tile at `index`, and the buffers of that tile."""
        values = {self.plan.body.args[0]: index, **self.buffers(tile)}
        for op in self.plan.addresses:
            self.copier.op(op, values)
        return values

    def load_piece(self, key: Piece, values: dict[Value, Value], into: dict[Piece, Value]) -> None:
        load, at = key
        if at < 0:
            local = dict(values)
            self.copier.op(load, local)
            into[key] = local[load.result]
            return
        into[key] = self.load_part(load, at, self.shape.piece(load), values, f"g{load.result.name}")

    def load_part(self, load: Op, at: int, count: int, values: dict[Value, Value], hint: str) -> Value:
        """`count` registers of what a load brings, from `at` on."""
        operands = [*(values.get(v) or self.rw.use(v) for v in load.operands), self.map_of(load)]
        type = FragmentType(load.result.tile.elem, count)
        attrs: dict[str, AttrValue] = {**({"at": at} if at else {}), **cache_of(load)}
        made = self.put("load_fragment", operands, attrs, type, load, hint, load.spans)
        assert made is not None
        return made

    def load_scales(self, index: Value, number: int) -> dict[Piece, Value]:
        """All scales of the tile at `index`."""
        values = self.addressed(index, number) if self.plan.scales else {}
        return {s.piece: self.load_scale(s, values) for _, s in self.shape.scales}

    def load_scale(self, scale: Scale, values: dict[Value, Value]) -> Value:
        load = scale.load
        return self.load_part(load, scale.at, scale.count, values, load.result.name)

    def store_piece(self, key: Piece, held: dict[Piece, Value], tile: int) -> None:
        load, at = key
        buffers = self.buffers(tile)
        if at >= 0:
            (store,) = [s for s in self.plan.stores if s.operands[0] is load.result]
            operands = [held[key], buffers[store.operands[1]], self.map_of(load)]
            self.put("shared_store_fragment", operands, {"at": at} if at else {}, None, store, "")
            return
        values = {**buffers, load.result: held[key]}
        wanted = {load.result}
        for op in (*self.plan.turns, *self.plan.stores):
            if wanted & set(op.operands):
                self.copier.op(op, values)
                wanted |= set(op.results)

    # -- the iterations ------------------------------------------------------------------------------------------

    def turn(self, vm: int, lgkm: bool) -> None:
        self.wait(vm, lgkm)
        self.barrier()

    def wait(self, vm: int, lgkm: bool) -> None:
        attrs: dict[str, AttrValue] = {
            **({"vm": vm} if self.plan.copies and vm >= 0 else {}),
            **({"lgkm": 0} if lgkm else {}),
        }
        if attrs:
            self.rw.op("wait", (), attrs, loc=self.plan.loop.loc)

    def barrier(self) -> None:
        if not self.single_wave:
            self.rw.op("barrier", loc=self.plan.loop.loc)

    def iteration(self, tile: Tile, *, fetch: bool, following: bool, left: int | None = None) -> None:
        """One iteration: its products, reads of its own slices and, if `following`, of the first of the next tile; with `fetch`
        also what brings the tile `depth` later. `left` counts the tiles under way after the next, where no more are fetched."""
        order, n = self.weave, self.weave.steps
        events: list[Event] = []
        upcoming: dict[Read, Value] = {}
        for i, part in enumerate(order.reads):
            for r, p in zip(part, order.positions(i, self.shape.lag), strict=True):
                if i or p >= 0:
                    events.append((p, len(events), lambda r=r: self.read(r, tile.number, tile.fragments)))
                if not i and p < 0 and following:
                    events.append((exact(p + n), len(events), lambda r=r: self.read(r, tile.number + 1, upcoming)))
        scales: dict[Piece, Value] = {}
        if following:
            self._turns(events, tile, fetch=fetch, left=left)
            self._next_scales(events, tile, scales)
        made: dict[Operand, Value] = {}
        events.sort(key=lambda e: (e[0], e[1]))
        at = 0
        for i, step in enumerate(order.sequence):
            if at < len(events) and events[at][0] <= i:
                self.rw.op("schedule_fence", loc=self.plan.loop.loc)
            while at < len(events) and events[at][0] <= i:
                events[at][2]()
                at += 1
            self.product(step, tile, made)
        for _, _, emit in events[at:]:
            emit()
        tile.fragments, tile.scales = upcoming, scales

    def _next_scales(self, events: list[Event], tile: Tile, into: dict[Piece, Value]) -> None:
        """The loads of the scales of the next tile."""
        values: dict[Value, Value] = {}

        def load(scale: Scale) -> None:
            if not values:
                values.update(self.addressed(self.index(tile.index, 1), tile.number + 1))
            into[scale.piece] = self.load_scale(scale, values)

        for p, s in self.shape.scales:
            events.append((p, 500 + len(events), partial(load, s)))

    def _turns(self, events: list[Event], tile: Tile, *, fetch: bool, left: int | None) -> None:
        """The turns of an iteration, and with `fetch` the copies, loads and LDS writes that follow them."""
        plan, shape, n = self.plan, self.shape, self.weave.steps
        one, two = shape.groups
        ahead = plan.depth if plan.copies else 0
        values: dict[Value, Value] = {}
        before: dict[Value, Value] = {}

        def count(place: float, group: Sequence[Op]) -> int:
            if left is None:
                return shape.under_way(place, group)
            return max(0, left * shape.copies_of_tile - shape.late_copies)

        def first() -> None:
            self.barrier()
            if fetch:
                values.update(self.addressed(self.index(tile.index, plan.depth), tile.number + ahead))

        def previous() -> None:
            before.update(self.addressed(self.index(tile.index, plan.depth - 1), tile.number + ahead - 1))

        def settle() -> None:
            self.wait(count(shape.first_turn, one), lgkm=True)
            if shape.apart:  # the wait serves the fragments of the next product as well
                self.rw.op("schedule_fence", loc=plan.loop.loc)

        events.append((shape.first_turn, -3, settle))
        events.append((shape.first_turn + shape.apart, -2, first))
        if fetch and any(p >= n for p, _, _ in shape.copies):
            events.append((0, -4, previous))
        for p, f, i in shape.copies if fetch else ():
            late = p >= n
            copy = partial(self.copy_part, f, i, before if late else values)
            events.append((exact(p - n) if late else p, 1000 + len(events), copy))
        freed = shape.first_turn + self.weave.shift  # behind the barrier
        keys = shape.pieces if fetch else []
        held = dict(tile.held)
        stores = [partial(self.store_piece, key, held, tile.number + plan.depth - 1) for key in keys]
        loads = [partial(self.load_piece, key, values, tile.held) for key in keys]
        if not shape.two_turns:
            _spread(events, freed, n, [*stores, *loads])
            return
        # What is written first was loaded last: LLVM's wait for it serves the others of its half.
        half = -(-len(stores) // 2)
        middle = exact((freed + shape.second_turn) / 2)
        _spread(events, freed, middle, stores[:half][::-1])
        _spread(events, middle, exact(shape.second_turn - shape.settling), stores[half:][::-1])
        events.append((shape.second_turn, -1, lambda: self.turn(count(shape.second_turn, two), lgkm=bool(keys))))
        # The first new load is on its way before the second half is waited for, so that nothing drains the counter.
        _spread(events, exact(middle - (middle - freed) / max(1, half)), n, loads)

    # -- the loop ------------------------------------------------------------------------------------------------

    def write(self) -> list[Value]:
        plan, rw, loc = self.plan, self.rw, self.plan.loop.loc
        start, end = (rw.use(v) for v in plan.loop.operands[:2])
        inits = [rw.use(v) for v in plan.loop.operands[3:]]
        self.make_maps()
        tile = self.prologue(start, [self.split(v, i) for i, v in enumerate(inits)])
        whole, first_left, left = self.bounds(start, end)
        tile = self.steady(start, whole, tile)
        if plan.tiles > 1:
            tile = self.remainder(first_left, left, tile)
        self.epilogue()
        rw.loc = loc
        return [
            rw.value("join_registers", parts, types=[v.tile], loc=loc, names=[v.name])
            for parts, v in zip(tile.acc, plan.loop.results, strict=True)
        ]

    def split(self, v: Value, number: int) -> list[Value]:
        """The fragments of an accumulator."""
        layout = v.tile.layout
        n = next(self.weave.acc_counts[op] for op, i in self.shape.accumulators.items() if i == number)
        assert layout is not None
        type = FragmentType(v.tile.elem, n)
        made = self.rw.op(
            "split_registers", [v], types=[type] * (layout.num_registers // n), hint=v.name, loc=self.plan.loop.loc
        )
        return list(made.results)

    def prologue(self, start: Value, acc: list[list[Value]]) -> Tile:
        """The first tiles on their way, the first fragments in registers."""
        plan = self.plan
        scales: dict[Piece, Value] = {}
        for t in range(plan.depth):
            if t == plan.depth - 1:  # in the order of the steady state, so that waits count as much
                scales = self.load_scales(start, 0)
            values = self.addressed(self.index(start, t), t) if plan.copies else {}
            for place, fill, i in self.shape.copies:
                if t < plan.depth - 1 or place < self.weave.steps:
                    self.copy_part(fill, i, values)
        tile = Tile(0, start, {}, acc, scales=scales)
        self.fill_registers(start, tile)
        # Each iteration of the steady state loads scales, the prologue those of one tile. The waits of the first iterations count more than it has
        # issued: so tiles are here before the loop but for the last two.
        under_way = min(plan.depth - 1, 2) if scales else plan.depth - 1
        count = under_way * self.shape.copies_of_tile - self.shape.late_copies
        self.turn(count + len(scales), lgkm=bool(self.shape.pieces))
        tile.fragments = self.first_fragments(0)
        return tile

    def fill_registers(self, start: Value, tile: Tile) -> None:
        """The first tiles of what goes through registers: all but the last in LDS, that one still in registers."""
        keys, depth = self.shape.pieces, self.plan.depth
        for t in range(depth if keys else 0):
            values = self.addressed(self.index(start, t), t)
            for key in keys:
                self.load_piece(key, values, tile.held)
            if t < depth - 1:
                for key in keys:
                    self.store_piece(key, tile.held, t)

    def epilogue(self) -> None:
        """Behind the loop: what was fetched beyond the end must not land in what the LDS is used for next."""
        if self.plan.copies:
            self.rw.op("wait", (), {"vm": 0}, loc=self.plan.loop.loc)

    def carried(self, tile: Tile) -> list[Value]:
        acc = (v for part in tile.acc for v in part)
        return [*acc, *tile.fragments.values(), *tile.held.values(), *tile.scales.values()]

    def renamed(self, tile: Tile, values: Sequence[Value], number: int, index: Value) -> Tile:
        """The same things under other values, in the order of `carried`."""
        found = iter(values)
        acc = [[next(found) for _ in part] for part in tile.acc]
        fragments = {r: next(found) for r in tile.fragments}
        held = {key: next(found) for key in tile.held}
        return Tile(number, index, fragments, acc, held, {key: next(found) for key in tile.scales})

    def fresh(self, v: Value) -> Value:
        return Value(self.rw.names.fresh(v.name), v.type, v.loc)

    def steady(self, start: Value, end: Value, tile: Tile) -> Tile:
        plan, rw, loc = self.plan, self.rw, self.plan.loop.loc
        inits = self.carried(tile)
        variable = self.copier.value(plan.body.args[0])
        args = [self.fresh(v) for v in inits]
        step = rw.use(self.step)
        if plan.tiles > 1:
            step = rw.value("mul", [step, self.number(plan.tiles)], loc=loc)
        outer, rw.block = rw.block, Block([variable, *args])
        now = self.renamed(tile, args, 0, variable)
        for j in range(plan.tiles):
            now.number, now.index = j, self.index(variable, j)
            self.iteration(now, fetch=True, following=True)
        rw.insert(Op("yield", self.carried(now), {}, [], [], None, plan.body.terminator.loc))
        inner, rw.block = rw.block, outer
        results = [self.fresh(v) for v in inits]
        rw.insert(Op("for", [start, end, step, *inits], dict(plan.loop.attrs), results, [inner], None, loc))
        return self.renamed(tile, results, 0, start)

    def remainder(self, first: Value, left: Value, tile: Tile) -> Tile:
        """The tiles that do not fill a trip, one after the other: tile i runs if more than i are left. Each reads its first fragments
        itself, but for the first, so that nothing but accumulators passes from one to the next."""
        plan, rw, loc = self.plan, self.rw, self.plan.loop.loc
        for i in range(plan.tiles - 1):
            more = rw.value("gt", [left, self.number(i)], loc=loc)
            assert more.type == scalar(I1)
            inits = [v for part in tile.acc for v in part]
            args = [self.fresh(v) for v in inits]
            outer, rw.block = rw.block, Block(args)
            now = self.regrouped(tile, args)
            now.number, now.index = i, first
            if i:
                under_way = (plan.depth - 1 - i) * self.shape.copies_of_tile - self.shape.late_copies
                now.scales = self.load_scales(self.index(first, i), i)
                # Newer are also the scales that were loaded before the loop, or in its last iteration, and these.
                self.turn(max(0, under_way) + 2 * len(now.scales), lgkm=bool(self.shape.pieces))
                now.fragments = self.first_fragments(i)
            self.iteration(now, fetch=False, following=False)
            rw.insert(Op("yield", [v for part in now.acc for v in part], {}, [], [], None, plan.body.terminator.loc))
            inner, rw.block = rw.block, outer
            results = [self.fresh(v) for v in inits]
            rw.insert(Op("if", [more, *inits], {}, results, [inner], None, loc))
            tile = self.regrouped(tile, results)
        return tile

    def first_fragments(self, tile: int) -> dict[Read, Value]:
        """The fragments of a tile that are read before its iteration."""
        found: dict[Read, Value] = {}
        for r, p in zip(self.weave.reads[0], self.weave.positions(0, self.shape.lag), strict=True):
            if p < 0:
                self.read(r, tile, found)
        return found

    @staticmethod
    def regrouped(tile: Tile, acc: Sequence[Value]) -> Tile:
        """The tile with other accumulator fragments."""
        found = iter(acc)
        return Tile(
            tile.number,
            tile.index,
            dict(tile.fragments),
            [[next(found) for _ in part] for part in tile.acc],
            dict(tile.held),
            dict(tile.scales),
        )


def _spread(events: list[Event], start: float, end: float, emits: Sequence[Callable[[], None]]) -> None:
    """Places things evenly between two matrix instructions, behind what stands there already."""
    length = max(end - start, 0)
    for i, emit in enumerate(emits):
        events.append((exact(start + length * i / len(emits)), 1000 + len(events), emit))
