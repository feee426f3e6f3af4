"""Software pipelining: the data of later iterations is on its way while this one computes.

    %s = shared_alloc<depth = 2>() : shared<bf16[64, 64], …>
    %r = for %k = %lo to %hi step %c64 carry(%c = %zero) {
      copy_async<bytes = 16>(%A[%i +: 64, %k +: 64], %s)
      %a = shared_load(%s) : tile<bf16[64, 64], …>
      …
      yield %d
    }

becomes

    %s = shared_alloc() : …                                 // one buffer per stage
    %s_1 = shared_alloc() : …
    copy_async(%A[%i +: 64, %lo +: 64], %s)                 // prologue: the first depth - 1 tiles
    %r = for %k = %lo to %even step %c128 carry(%c = %zero) {
      wait<vm = 0, lgkm = 0>()                              // tile k has landed, reads of the stage to be filled are done
      barrier()
      copy_async(%A[%i +: 64, %k + 64 +: 64], %s_1)         // the tile after next
      %a = shared_load(%s) …                                // this tile
      …
      wait<vm = 0, lgkm = 0>()
      barrier()
      copy_async(%A[%i +: 64, %k + 128 +: 64], %s)
      %a_0 = shared_load(%s_1) …
      yield …
    }
    if … { … }                                              // the tiles left over, which are in LDS already

The loop runs as many tiles a trip as there are stages, so that every stage has a fixed address. Copies past the end fetch nothing:
outside elements are zeros, and nobody reads them.

Where tiles go through registers, the registers are a stage of their own: at depth 2 the next tile is loaded into them while
this one is computed, with one LDS buffer and one tile a trip; depth d takes d - 1 buffers.

What would change meaning is an error at the loop: addresses that depend on what the loop computes, a view that the loop
writes, a buffer that is used in other ways.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tileir.ir.core import AttrValue, Block, Kernel, Op, Value
from tileir.ir.diagnostics import CompileError, Note, error
from tileir.ir.registry import get
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.ir.types import I1, I64, scalar
from tileir.passes.base import Context, Pass
from tileir.passes.hazards import Memory
from tileir.passes.outstanding import instructions


@dataclass
class _Plan:
    """A loop to pipeline. All lists are in program order."""

    loop: Op
    depth: int
    copies: list[Op] = field(default_factory=list[Op])  # direct copies into staged buffers
    loads: list[Op] = field(default_factory=list[Op])  # loads of what goes through registers
    turns: list[Op] = field(default_factory=list[Op])  # what happens to it between load and store
    stores: list[Op] = field(default_factory=list[Op])
    addresses: list[Op] = field(default_factory=list[Op])  # what the addresses of copies and loads are computed by

    @property
    def body(self) -> Block:
        return self.loop.regions[0]

    @property
    def tiles(self) -> int:
        """Tiles of one trip of the pipelined loop."""
        if self.copies:
            return self.depth
        return max(1, self.depth - 1)

    @property
    def held(self) -> int:
        """Tiles in LDS ahead of the one being computed, of those that go through registers; one more is in registers."""
        return self.depth - 2

    def stages(self, op: Op) -> int:
        """LDS buffers that take turns for the buffer of a copy or store."""
        if op in self.copies:
            return self.depth
        return 1 if self.held == 0 else self.tiles

    @property
    def consumers(self) -> list[Op]:
        """The rest of the body: what computes."""
        gone = {*self.copies, *self.loads, *self.turns, *self.stores}
        return [op for op in self.body.ops[:-1] if op not in gone]


def depth_of(alloc: Op) -> int:
    """Stages asked for a buffer."""
    depth = alloc.attrs.get("depth", 1)
    assert isinstance(depth, int)
    return depth


def _allocation(buffer: Value) -> Op | None:
    return buffer.owner if buffer.owner is not None and buffer.owner.name == "shared_alloc" else None


def _plan(loop: Op, kernel: Kernel, memory: Memory) -> _Plan | None:
    """How to pipeline a loop, None if none of its buffers has stages. Raises CompileError where it cannot be."""
    fills = [
        (op, alloc)
        for op in loop.regions[0].ops
        if op.name in ("copy_async", "shared_store")
        and (alloc := _allocation(op.operands[-1])) is not None
        and depth_of(alloc) > 1
    ]
    if not fills:
        return None
    plan = _Plan(loop, max(depth_of(alloc) for _, alloc in fills))
    position = {op: i for i, op in enumerate(plan.body.ops)}
    addresses: set[Op] = set()
    for op, alloc in fills:
        _check_buffer(plan, op, alloc, kernel, position)
        if op.name == "copy_async":
            plan.copies.append(op)
            _collect(plan, op, op.operands[:-1], addresses, position)
        else:
            plan.stores.append(op)
            _trace_back(plan, op, addresses, position)
    for op in plan.body.ops:
        if op.name in ("wait", "barrier"):
            raise _refused(plan, op, f"the loop has a '{op.name}' of its own")
    for op in (*plan.copies, *plan.loads):
        _check_view(plan, op, memory)
    plan.addresses = sorted(addresses, key=lambda op: position[op])
    plan.loads.sort(key=lambda op: position[op])
    plan.turns.sort(key=lambda op: position[op])
    return plan


def _check_buffer(plan: _Plan, fill: Op, alloc: Op, kernel: Kernel, position: dict[Op, int]) -> None:
    """The buffer is filled once per iteration, before it is read, and used nowhere else."""
    if alloc in position:
        raise _refused(plan, fill, f"%{alloc.result.name} is allocated inside the loop")
    inside = {op for op in plan.loop.walk() if alloc.result in op.operands}
    everywhere = {op for op in kernel.walk() if alloc.result in op.operands}
    if everywhere - inside:
        raise _refused(plan, fill, f"%{alloc.result.name} is used outside of the loop")
    for op in inside - {fill}:
        if op.name not in ("shared_load", "shared_load_transposed"):
            raise _refused(plan, fill, f"%{alloc.result.name} is filled more than once")
        top = next(o for o in plan.body.ops if any(i is op for i in o.walk()))
        if position[top] < position[fill]:
            raise _refused(plan, fill, f"%{alloc.result.name} is read before it is filled")


def _collect(plan: _Plan, op: Op, values: list[Value], found: set[Op], position: dict[Op, int]) -> None:
    """The ops of the body that compute these values, which must depend on the loop's variable alone."""
    pending = list(values)
    while pending:
        v = pending.pop()
        if v in plan.body.args[1:]:
            raise _refused(plan, op, f"its address depends on %{v.name}, which the loop carries")
        owner = v.owner
        if owner is None or owner not in position or owner in found:
            continue
        if not get(owner.name).is_pure or owner.regions:
            raise _refused(plan, op, f"its address depends on '{owner.name}' inside the loop")
        found.add(owner)
        pending += owner.operands


def _trace_back(plan: _Plan, store: Op, addresses: set[Op], position: dict[Op, int]) -> None:
    """The loads that a stored tile comes from, and what is done to it on the way."""
    pending = [store.operands[0]]
    while pending:
        v = pending.pop()
        owner = v.owner
        if owner is None or owner not in position:
            continue  # known before the loop
        if owner in plan.loads or owner in plan.turns:
            continue
        if owner.name == "load":
            plan.loads.append(owner)
            _collect(plan, owner, owner.operands, addresses, position)
        elif get(owner.name).is_pure and not owner.regions and v not in plan.body.args:
            plan.turns.append(owner)
            pending += owner.operands
        else:
            raise _refused(plan, store, f"what is stored depends on '{owner.name}' inside the loop")
        if v in plan.body.args:
            raise _refused(plan, store, f"what is stored depends on %{v.name}, which the loop carries")


def _check_view(plan: _Plan, op: Op, memory: Memory) -> None:
    """The loop must not write what is read ahead of its turn: in an earlier iteration, or earlier in the same one."""
    inside = list(plan.loop.walk())
    position = {o: i for i, o in enumerate(inside)}
    for read in memory.of(op):
        if read.in_lds:
            continue
        for other in inside:
            for access in memory.of(other):
                if not access.writes or access.in_lds:
                    continue
                meets = memory.ordered(access, read, frozenset({plan.loop}))
                if position[other] < position[op]:
                    meets = meets or memory.ordered(access, read)
                if meets:
                    raise _refused(plan, op, f"the loop writes %{read.place.name}", [Note("the write", other.loc)])


def _refused(plan: _Plan, op: Op, why: str, notes: list[Note] | None = None) -> CompileError:
    return error(
        "E0606",
        f"this loop cannot have {plan.depth} stages: {why}",
        op.loc,
        legal="depth 1, or a loop that only reads what it stages, at places that its variable gives",
        notes=[*(notes or []), Note("the loop", plan.loop.loc)],
    )


class _Copier:
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


class _Pipeliner:
    """Writes one loop in its pipelined form."""

    def __init__(self, rw: Rewriter, plan: _Plan, stages: dict[Op, list[Value]], kernel: Kernel):
        self.rw, self.plan, self.stages = rw, plan, stages
        self.copier = _Copier(rw)
        self.single_wave = kernel.attrs.get("waves") == 1
        self.copied = sum(instructions(op, kernel) for op in plan.copies)
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
        on their way –, and nobody reads the stage to be filled."""
        counters: dict[str, AttrValue] = {"vm": newer * self.copied} if self.plan.copies else {}
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


def _plans(kernel: Kernel) -> dict[Op, _Plan]:
    """The loops to pipeline: where loops are nested, the innermost that has staged buffers."""
    memory = Memory(kernel)
    found: dict[Op, _Plan] = {}
    for op in reversed(list(kernel.walk())):
        if op.name == "for" and not any(inner in found for inner in op.walk()):
            plan = _plan(op, kernel, memory)
            if plan is not None:
                found[op] = plan
    return found


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    plans = _plans(kernel)
    fills: dict[Op, tuple[_Plan, Op]] = {}  # by allocation
    for plan in plans.values():
        for fill in (*plan.copies, *plan.stores):
            alloc = _allocation(fill.operands[-1])
            assert alloc is not None
            fills[alloc] = plan, fill
    stages: dict[Op, dict[Op, list[Value]]] = {loop: {} for loop in plans}

    def rule(rw: Rewriter, op: Op) -> bool:
        if op.name == "shared_alloc" and depth_of(op) > 1:
            attrs = {k: v for k, v in op.attrs.items() if k != "depth"}
            name, count = op.result.name, 1
            plan, fill = fills.get(op, (None, None))
            if plan is not None and fill is not None:
                count = plan.stages(fill)
            made = [
                rw.value(
                    "shared_alloc",
                    (),
                    attrs,
                    types=[op.result.type],
                    loc=op.loc,
                    names=[name] if i == 0 else [],
                    hint=name,
                )
                for i in range(count)
            ]
            if plan is not None and fill is not None:
                stages[plan.loop][fill] = made
            rw.replace(op, made[:1])
            return True
        if op not in plans:
            return False
        rw.replace(op, _Pipeliner(rw, plans[op], stages[op], kernel).write())
        return True

    return rewrite(kernel, rule)


PASS = Pass(
    "pipeline-loops",
    _run,
    requires=frozenset({"lds_laid_out"}),
    establishes=frozenset({"pipelined"}),
    summary="lets the data of later iterations travel while one computes",
)
