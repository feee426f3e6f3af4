"""Writes a pipelined loop instruction by instruction, in the order of its `Weave`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tileir.ir.core import AttrValue, Block, Kernel, Op, Value
from tileir.ir.rewriter import Rewriter
from tileir.ir.types import I1, FragmentType, SharedType, TileType, scalar
from tileir.passes.lds_accesses import access_bytes, over_buffer
from tileir.passes.loop_stages import Plan
from tileir.passes.outstanding import instructions
from tileir.passes.pipeliner import Pipeliner
from tileir.passes.pressure import registers_of
from tileir.passes.weave import Operand, Read, Step, Weave, exact, lags, peak_fragments, weave
from tileir.target import Target

LANES = 64
# Matrix instructions between a read and its use: LDS answers after about 130 clocks, and a matrix instruction takes at least 16.
AHEAD = 8
# Bytes of a direct copy of 16 bytes a lane; copies of all waves are spread so that they take a part of the bandwidth of the CU, and
# end before the next turn.
COPY_BYTES = 1024
SLACK = 1.0
MOST_OF_ITERATION = 0.75
# Registers for addresses and temporaries beside accumulators, fragments and loads on their way.
RESERVE = 32


@dataclass
class Products:
    """The products of a loop and their order. `accumulators` gives for every product the number of the carried value that it adds to."""

    weave: Weave
    accumulators: dict[Op, int]


def products_of(plan: Plan) -> Products | None:
    """What a loop computes, if it is nothing but products of what it stages, summed in what it carries."""
    consumers = plan.consumers
    inside = set(plan.body.ops)
    products = [op for op in consumers if op.name == "mma"]
    allowed = ("mma", "shared_load", "shared_load_transposed", "transpose")
    if not products or any(
        op.name not in allowed and op not in plan.addresses and not _is_scalar(op) for op in consumers
    ):
        return None
    carried = plan.body.args[1:]
    chains: dict[Value, int] = {v: i for i, v in enumerate(carried)}
    accumulators: dict[Op, int] = {}
    for op in products:
        if len(op.operands) != 3 or op.operands[2] not in chains:
            return None
        accumulators[op] = number = chains.pop(op.operands[2])
        chains[op.result] = number
    ends = {v: i for v, i in chains.items()}
    if any(ends.get(v) != i for i, v in enumerate(plan.body.terminator.operands)):
        return None
    if set(accumulators.values()) != set(range(len(carried))):
        return None
    order = weave(products, inside)
    if order is None:
        return None
    filled = {fill.operands[-1] for fill in (*plan.copies, *plan.stores)}
    for load in order.read_counts:
        if load.operands[0] not in filled:
            return None
    used = {load.operands[0] for load in order.read_counts}
    if used != filled:
        return None
    return Products(order, accumulators)


def _is_scalar(op: Op) -> bool:
    return not op.regions and all(
        isinstance(v.type, TileType) and v.type.is_scalar for v in (*op.results, *op.operands)
    )


def scheduled(
    rw: Rewriter, plan: Plan, stages: dict[Op, list[Value]], kernel: Kernel, target: Target
) -> Scheduler | None:
    """The writer of a loop that can be scheduled, None for others and where the text asks for the plain order."""
    if plan.loop.attrs.get("pattern", "") == "plain":
        return None
    products = products_of(plan)
    return None if products is None else Scheduler(rw, plan, stages, kernel, products, target)


def product_clocks(order: Weave, target: Target) -> float:
    """Clocks of a SIMD that a matrix instruction of an iteration takes on average."""
    total = 0
    for step in order.sequence:
        instr = step.mma.attrs["instr"]
        a, b = (v.tile.elem.name for v in step.mma.operands[:2])
        fitting = [i for i in target.mfmas_for(a, b, step.mma.result.tile.elem.name) if (i.m, i.n, i.k) == instr]
        total += target.mfma_clocks(fitting[0], a, b) if fitting else 0
    return max(1.0, total / order.steps)


@dataclass
class _Tile:
    """What is known while one iteration is written: its number (counted from the first of a trip) and loop variable, fragments that
    have been read, accumulator fragments by carried value, registers that hold loads on their way to LDS."""

    number: int
    index: Value
    fragments: dict[Read, Value]
    acc: list[list[Value]]
    held: dict[tuple[Op, int], Value] = field(default_factory=dict[tuple[Op, int], Value])


Event = tuple[float, int, Callable[[], None]]


class Scheduler(Pipeliner):
    """Writes one loop as single instructions."""

    def __init__(
        self,
        rw: Rewriter,
        plan: Plan,
        stages: dict[Op, list[Value]],
        kernel: Kernel,
        products: Products,
        target: Target,
    ):
        super().__init__(rw, plan, stages, kernel)
        self.kernel = kernel
        self.weave, self.accumulators = products.weave, products.accumulators
        self.maps: dict[Op, Value] = {}
        self.first = self._first_operands()
        self.counts = self._fragment_counts()
        self.two_turns = plan.depth == 2
        waves = kernel.attrs["waves"]
        assert isinstance(waves, int)
        self.waves = waves
        per_simd = max(1, -(-waves // target.simds_per_cu))
        self.budget = target.registers_per_wave(per_simd)
        clocks = product_clocks(self.weave, target) * per_simd
        self.spacing = SLACK * COPY_BYTES * waves / target.fact("global_bytes_per_clock").value / clocks
        self.lag, self.fits = 0, False
        self.settle()

    # -- shape of the loop ---------------------------------------------------------------------------------------

    def _first_operands(self) -> list[Op]:
        """The reads of LDS in the order in which the first slice uses them, the operand with fewer fragments first."""
        first = self.weave.reads[0]
        loads = list(dict.fromkeys(r.load for r in (*first, *(r for part in self.weave.reads for r in part))))
        sizes = {load: sum(r.load is load for r in first) for load in loads}
        return sorted(loads, key=lambda load: (sizes[load] == 0, sizes[load]))

    def _fragment_counts(self) -> dict[int, int]:
        """Registers of an accumulator fragment, by carried value."""
        return {number: self.weave.acc_counts[op] for op, number in self.accumulators.items()}

    def buffer_of(self, load: Op, tile: int) -> Value:
        buffers = self.buffers(tile)
        return buffers[load.operands[0]]

    def fill_of(self, load: Op) -> Op:
        return next(f for f in self.stages if f.operands[-1] is load.operands[0])

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
        for op in (*self.weave.read_counts, *(load for load in self.plan.loads if self.piece(load))):
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

    def product(self, step: Step, tile: _Tile, made: dict[Operand, Value]) -> None:
        op = step.mma
        a, b = self.operand(step.a, tile.fragments, made), self.operand(step.b, tile.fragments, made)
        files = {k: op.attrs.get(k, "") for k in ("file", "file_a", "file_b")}
        if op.attrs.get("swapped", False):
            a, b = b, a
            files["file_a"], files["file_b"] = files["file_b"], files["file_a"]
        acc = tile.acc[self.accumulators[op]]
        attrs: dict[str, AttrValue] = {"instr": op.attrs["instr"], **{k: v for k, v in files.items() if v}}
        c = acc[step.c]
        assert isinstance(c.type, FragmentType)
        acc[step.c] = self.value("mfma", [a, b, c], attrs, c.type, op, op.result.name)

    # -- copies, loads and stores, as single instructions --------------------------------------------------------

    def parts(self, copy: Op) -> int:
        """Instructions of a direct copy in a wave."""
        buffer, piece = copy.operands[-1].type, copy.attrs["bytes"]
        assert (
            isinstance(buffer, SharedType)
            and isinstance(piece, int)
            and buffer.layout is not None
            and isinstance(self.waves, int)
        )
        layout = buffer.layout
        size = layout.image_bytes if layout.kind == "slabs" else layout.size_bytes
        return -(-size // (LANES * piece * self.waves))

    def copy_part(self, copy: Op, part: int, values: dict[Value, Value]) -> None:
        operands = [values.get(v) or self.rw.use(v) for v in copy.operands]
        self.put("copy_async_part", operands, {"bytes": copy.attrs["bytes"], "part": part}, None, copy, "", copy.spans)

    def addressed(self, index: Value, tile: int) -> dict[Value, Value]:
        """The addresses of the tile at `index`, and the buffers of that tile."""
        values = {self.plan.body.args[0]: index, **self.buffers(tile)}
        for op in self.plan.addresses:
            self.copier.op(op, values)
        return values

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

    def held_keys(self) -> list[tuple[Op, int]]:
        """What holds a tile between its load and its write to LDS: a load and the register where a piece begins (-1: the whole)."""
        keys: list[tuple[Op, int]] = []
        for load in self.plan.loads:
            n = self.piece(load)
            layout = load.result.tile.layout
            assert layout is not None
            keys += [(load, r) for r in range(0, layout.num_registers, n)] if n else [(load, -1)]
        return keys

    def load_piece(self, key: tuple[Op, int], values: dict[Value, Value], into: dict[tuple[Op, int], Value]) -> None:
        load, at = key
        if at < 0:
            local = dict(values)
            self.copier.op(load, local)
            into[key] = local[load.result]
            return
        operands = [*(values.get(v) or self.rw.use(v) for v in load.operands), self.map_of(load)]
        type = FragmentType(load.result.tile.elem, self.piece(load))
        attrs: dict[str, AttrValue] = {"at": at} if at else {}
        made = self.put("load_fragment", operands, attrs, type, load, f"g{load.result.name}", load.spans)
        assert made is not None
        into[key] = made

    def store_piece(self, key: tuple[Op, int], held: dict[tuple[Op, int], Value], tile: int) -> None:
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
        attrs: dict[str, AttrValue] = {
            **({"vm": vm} if self.plan.copies and vm >= 0 else {}),
            **({"lgkm": 0} if lgkm else {}),
        }
        if attrs:
            self.rw.op("wait", (), attrs, loc=self.plan.loop.loc)
        if not self.single_wave:
            self.rw.op("barrier", loc=self.plan.loop.loc)

    def copies_of(self, group: Sequence[Op]) -> int:
        """Vector-memory instructions that every wave certainly issues for the copies that fill what these reads read."""
        return sum(instructions(f, self.kernel) for f in map(self.fill_of, group) if f in self.plan.copies)

    def groups(self) -> tuple[list[Op], list[Op]]:
        """Reads of LDS by the turn at which their buffers change hands."""
        if not self.two_turns:
            return list(self.first), []
        if self.plan.loads:  # what was written to LDS is there at the second turn
            stored = [load for load in self.first if self.fill_of(load) in self.plan.stores]
            return [load for load in self.first if load not in stored], stored
        half = max(1, len(self.first) // 2)
        return self.first[:half], self.first[half:]

    def settle(self) -> None:
        """Orders the reads of the first slice by turn, and chooses how late reads come: as early as registers allow."""
        order = self.weave
        one, two = self.groups()
        ranks = {load: i for i, load in enumerate((*one, *two))}
        order.reads[0].sort(key=lambda r: ranks[r.load] if self.two_turns else 0)
        order.early = sum(r.load in one for r in order.reads[0])
        order.stored = len(self.held_keys()) if two and self.plan.loads else 0
        fixed = sum(registers_of(v) for v in (*self.plan.loop.results, *(load.result for load in self.plan.loads)))
        possible = lags(order, AHEAD)
        room = self.budget - fixed - RESERVE
        self.lag = next((lag for lag in possible if peak_fragments(order, lag) <= room), possible[-1])
        self.fits = peak_fragments(order, self.lag) <= room

    def iteration(self, tile: _Tile, *, fetch: bool, following: bool, left: int | None = None) -> None:
        """One iteration: its products, reads of its own slices and, if `following`, of the first of the next tile; with `fetch`
        also what brings the tile `depth` later. `left` counts the tiles under way after the next, where no more are fetched."""
        order, n = self.weave, self.weave.steps
        events: list[Event] = []
        upcoming: dict[Read, Value] = {}
        for i, part in enumerate(order.reads):
            for r, p in zip(part, order.positions(i, self.lag), strict=True):
                if i or p >= 0:
                    events.append((p, len(events), lambda r=r: self.read(r, tile.number, tile.fragments)))
                if not i and p < 0 and following:
                    events.append((exact(p + n), len(events), lambda r=r: self.read(r, tile.number + 1, upcoming)))
        if following:
            self._turns(events, tile, fetch=fetch, left=left)
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
        tile.fragments = upcoming

    def copy_places(self) -> list[tuple[float, Op, int]]:
        """Where the instructions of all copies stand, counted from the iteration `depth` before theirs: from its first turn on, as far
        apart as all waves together can be served, in the order in which the tile is read; before the first turn of the next."""
        start = self.weave.start(len(self.weave.slices) - 1) + self.lag
        one, two = self.groups()
        found = [(f, i) for f in map(self.fill_of, (*one, *two)) if f in self.plan.copies for i in range(self.parts(f))]
        spacing = min(self.spacing, self.weave.steps * MOST_OF_ITERATION / max(1, len(found)))
        return [(exact(start + spacing * n), f, i) for n, (f, i) in enumerate(found)]

    def under_way(self, place: float, group: Sequence[Op]) -> int:
        """Copies that may be under way at a turn at `place` that waits for those of the next tile in a group: instructions that every
        wave certainly issues after the last of them, in the steady state."""
        n, depth = self.weave.steps, self.plan.depth
        fills = {self.fill_of(load) for load in group}
        places = self.copy_places()
        needed = max((p + (1 - depth) * n for p, f, _ in places if f in fills), default=None)
        if needed is None:
            return -1
        newer = (
            self.certain(f, i) for p, f, i in places for j in range(-depth, 1) if needed < p + j * n < place
        )  # fmt: skip
        return sum(newer)

    def certain(self, copy: Op, part: int) -> int:
        """1 for an instruction of a copy that every wave issues, 0 for one that some may skip."""
        return int(part < instructions(copy, self.kernel))

    def _turns(self, events: list[Event], tile: _Tile, *, fetch: bool, left: int | None) -> None:
        """The turns of an iteration, and with `fetch` the copies, loads and LDS writes that follow them."""
        plan, n = self.plan, self.weave.steps
        start = self.weave.start(len(self.weave.slices) - 1) + self.lag
        middle = exact(start + self.weave.second_turn)
        one, two = self.groups()
        ahead, behind = plan.depth if plan.copies else 0, plan.depth - 1 if plan.copies else 0
        values: dict[Value, Value] = {}
        before: dict[Value, Value] = {}

        def count(place: float, group: Sequence[Op]) -> int:
            if left is None:
                return self.under_way(place, group)
            late = sum(self.certain(f, i) for p, f, i in self.copy_places() if p >= n)
            return max(0, left * self.copies_of([*one, *two]) - late)

        def first() -> None:
            self.turn(count(start, one), lgkm=True)
            if fetch:
                values.update(self.addressed(self.index(tile.index, plan.depth), tile.number + ahead))

        def previous() -> None:
            before.update(self.addressed(self.index(tile.index, plan.depth - 1), tile.number + behind))

        events.append((start, -2, first))
        if fetch:
            places = self.copy_places()
            if any(p >= n for p, _, _ in places):
                events.append((0, -3, previous))
            for p, f, i in places:
                late = p >= n
                copy = (
                    (lambda f=f, i=i: self.copy_part(f, i, before))
                    if late
                    else (lambda f=f, i=i: self.copy_part(f, i, values))
                )
                events.append((exact(p - n) if late else p, 1000 + len(events), copy))
        keys = self.held_keys() if plan.loads and fetch else []
        held = dict(tile.held)
        stores = [lambda key=key: self.store_piece(key, held, tile.number + plan.depth - 1) for key in keys]
        loads = [lambda key=key: self.load_piece(key, values, tile.held) for key in keys]
        if not self.two_turns:
            _spread(events, start, n, [*stores, *loads])
            return
        _spread(events, start, middle, stores)
        events.append((middle, -1, lambda: self.turn(count(middle, two), lgkm=bool(keys))))
        _spread(events, middle, n, loads)

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
            tile = self.remainder(first_left, left, 0, tile)
        if plan.copies:  # what was fetched beyond the end must not land in what the LDS is used for next
            rw.op("wait", (), {"vm": 0}, loc=loc)
        rw.loc = loc
        return [
            rw.value("join_registers", parts, types=[v.tile], loc=loc, names=[v.name])
            for parts, v in zip(tile.acc, plan.loop.results, strict=True)
        ]

    def split(self, v: Value, number: int) -> list[Value]:
        """The fragments of an accumulator."""
        n, layout = self.counts[number], v.tile.layout
        assert layout is not None
        type = FragmentType(v.tile.elem, n)
        made = self.rw.op(
            "split_registers", [v], types=[type] * (layout.num_registers // n), hint=v.name, loc=self.plan.loop.loc
        )
        return list(made.results)

    def prologue(self, start: Value, acc: list[list[Value]]) -> _Tile:
        """The first tiles on their way, the first fragments in registers."""
        plan = self.plan
        one, two = self.groups()
        for t in range(plan.depth if plan.copies else 0):
            values = self.addressed(self.index(start, t), t)
            for place, fill, i in self.copy_places():
                if t < plan.depth - 1 or place < self.weave.steps:
                    self.copy_part(fill, i, values)
        tile = _Tile(0, start, {}, acc)
        keys = self.held_keys() if plan.loads else []
        for t in range(plan.depth if keys else 0):
            values = self.addressed(self.index(start, t), t)
            for key in keys:
                self.load_piece(key, values, tile.held)
            if t < plan.depth - 1:
                for key in keys:
                    self.store_piece(key, tile.held, t)
        late = sum(self.certain(f, i) for p, f, i in self.copy_places() if p >= self.weave.steps)
        self.turn((plan.depth - 1) * self.copies_of([*one, *two]) - late, lgkm=bool(keys))
        for r, p in zip(self.weave.reads[0], self.weave.positions(0, self.lag), strict=True):
            if p < 0:
                self.read(r, 0, tile.fragments)
        return tile

    def carried(self, tile: _Tile) -> list[Value]:
        return [*(v for part in tile.acc for v in part), *tile.fragments.values(), *tile.held.values()]

    def renamed(self, tile: _Tile, values: Sequence[Value], number: int, index: Value) -> _Tile:
        """The same things under other values, in the order of `carried`."""
        found = iter(values)
        acc = [[next(found) for _ in part] for part in tile.acc]
        fragments = {r: next(found) for r in tile.fragments}
        return _Tile(number, index, fragments, acc, {key: next(found) for key in tile.held})

    def fresh(self, v: Value) -> Value:
        return Value(self.rw.names.fresh(v.name), v.type, v.loc)

    def steady(self, start: Value, end: Value, tile: _Tile) -> _Tile:
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

    def remainder(self, first: Value, left: Value, i: int, tile: _Tile) -> _Tile:
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
            now = self.remainder(first, left, i + 1, now)
        rw.insert(Op("yield", [v for part in now.acc for v in part], {}, [], [], None, plan.body.terminator.loc))
        inner, rw.block = rw.block, outer
        results = [self.fresh(v) for v in inits]
        rw.insert(Op("if", [more, *inits], {}, results, [inner], None, loc))
        return self.regrouped(tile, results)

    @staticmethod
    def regrouped(tile: _Tile, acc: Sequence[Value]) -> _Tile:
        """The tile with other accumulator fragments."""
        found = iter(acc)
        return _Tile(
            tile.number,
            tile.index,
            dict(tile.fragments),
            [[next(found) for _ in part] for part in tile.acc],
            dict(tile.held),
        )


def _spread(events: list[Event], start: float, end: float, emits: Sequence[Callable[[], None]]) -> None:
    """Places things evenly between two matrix instructions, behind what stands there already."""
    length = max(end - start, 0)
    for i, emit in enumerate(emits):
        events.append((exact(start + length * i / len(emits)), 1000 + len(events), emit))
