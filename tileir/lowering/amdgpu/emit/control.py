"""Structured control flow as basic blocks. All conditions are uniform over the workgroup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tileir.ir.core import Block, Op, Value
from tileir.ir.types import FragmentType
from tileir.layout.broadcasts import broadcast_registers
from tileir.lowering.amdgpu.emit import packed, streams
from tileir.lowering.amdgpu.emit.elementwise import operand_pieces
from tileir.lowering.amdgpu.emit.matrix import place_lasting_operands, plan_of
from tileir.lowering.amdgpu.emit.state import State
from tileir.lowering.amdgpu.emit.tiles import Tile, can_tie, pin_constraint, tied
from tileir.lowering.amdgpu.emit.writer import fragment_type, scalar_type, vector_type
from tileir.passes.chains import accumulators, carried_links, reached

EmitBlock = Callable[[State, Block], None]


class Travel(NamedTuple):
    """How a tile travels through block arguments: its piece size, the register file it is tied to ("" for none), and the registers that
    its pieces are pinned to (none if they are not)."""

    size: int = 1
    tie: str = ""
    pins: tuple[str, ...] = ()


def travels(s: State) -> dict[Value, Travel]:
    """For tiles that travel through blocks: as the accumulator fragments of the `mma` that they come from or go to, or as
    the pieces that they are loaded in, found over everything that carried values are connected to."""
    links = carried_links(s.kernel)
    found: dict[Value, Travel] = {}
    loaded: dict[Value, Travel] = {}
    for op in s.kernel.walk():
        if op.name == "load" and not op.result.tile.is_scalar:
            loaded[op.result] = Travel(_loaded_piece(op))
        if op.name == "mma":
            plan = plan_of(op)
            tie = "a" if op.attrs.get("file") == "accumulation" else ""
            travel = Travel(plan.c_registers, tie, _pins(op, plan.c_registers))
            for v in accumulators(op):
                found[v] = travel
    for group in (dict(found), loaded):  # what a product sums travels in its fragments, also where a load begins it
        for v, travel in group.items():
            found.setdefault(v, travel)
            for other in reached(links, [v]):
                found.setdefault(other, travel)
    return found


def _pins(op: Op, size: int) -> tuple[str, ...]:
    """The registers that the fragments of a pinned product have."""
    layout = op.result.tile.layout
    if not op.attrs.get("pin") or layout is None:
        return ()
    registers = size * max(1, op.result.elem.bits // 32)
    return tuple(pin_constraint(op, i, registers) for i in range(layout.num_registers // size))


def _loaded_piece(op: Op) -> int:
    """Elements of one load of a lane, as far as the registers of the tile can be cut so."""
    t, wide = op.result.tile, op.attrs["bytes"]
    assert t.layout is not None and isinstance(wide, int)
    n = max(1, wide // t.elem.unit[1] * t.elem.unit[0])
    while t.layout.num_registers % n:
        n //= 2
    return n


class Control:
    """Emits control flow; `emit` writes the ops of a region except its yield."""

    def __init__(self, s: State, emit: EmitBlock):
        self.s, self.w, self.emit = s, s.w, emit
        self.travels = travels(s)

    def flat(self, values: Sequence[Value], targets: Sequence[Value]) -> tuple[list[str], list[str]]:
        """MLIR values and types of what is handed to a block, in the pieces of the targets."""
        names: list[str] = []
        types: list[str] = []
        for v, target in zip(values, targets, strict=True):
            if isinstance(v.type, FragmentType):
                names.append(self.s.scalar(v))
                types.append(fragment_type(v.type.elem, v.type.count))
                continue
            t = v.tile
            if t.is_scalar:
                names.append(self.s.scalar(v))
                types.append(scalar_type(t.elem))
                continue
            n = self.travels.get(target, Travel()).size
            pieces = self.s.tile(v).pieces(self.w, n)
            distinct = dict.fromkeys(self.shares(target, n))
            names += [pieces(i) for i in distinct]
            types += [vector_type(scalar_type(t.elem), n)] * len(distinct)
        return names, types

    def shares(self, v: Value, n: int) -> list[int]:
        """For each piece of `n` registers of a carried tile the first that holds the same values: one travels for all."""
        layout, axes = v.tile.layout, self.s.uniform.get(v, frozenset())
        assert layout is not None
        if not axes:
            return list(range(layout.num_registers // n))
        shape = tuple(1 if d in axes else size for d, size in enumerate(v.tile.shape))
        sources = broadcast_registers(layout, shape)
        first: dict[tuple[int, ...], int] = {}
        return [first.setdefault(sources[i : i + n], i // n) for i in range(0, len(sources), n)]

    def arguments(self, targets: Sequence[Value]) -> list[tuple[str, str]]:
        """Fresh block arguments for values, which they become."""
        out: list[tuple[str, str]] = []
        for v in targets:
            if isinstance(v.type, FragmentType):
                name = self.w.name()
                self.s.values[v] = name
                out.append((name, fragment_type(v.type.elem, v.type.count)))
                continue
            t = v.tile
            if t.is_scalar:
                name = self.w.name()
                self.s.values[v] = name
                out.append((name, scalar_type(t.elem)))
                continue
            n = self.travels.get(v, Travel()).size
            assert t.layout is not None
            shares = self.shares(v, n)
            names = {i: self.w.name() for i in dict.fromkeys(shares)}
            self.s.values[v] = Tile(t, n, [names[i] for i in shares])
            out += [(name, vector_type(scalar_type(t.elem), n)) for name in names.values()]
        return out

    def loop(self, op: Op) -> None:
        """A `for`: tested once before the first trip, then at the end of each."""
        moving = streams.moving(self.s, op)
        if moving:
            self._moving_loop(op, moving)
            return
        w = self.w
        w.mark()
        start, end, step = (self.s.scalar(v) for v in op.operands[:3])
        t = scalar_type(op.operands[0].tile.elem)
        iv, *carried = op.regions[0].args
        body, after = w.label(), w.label()
        inits, init_types = self.flat(op.operands[3:], carried)
        inits = self.tie(inits, init_types, carried)
        place_lasting_operands(self.s, op)
        enter = w.icmp("slt", start, end, t)
        w.cond_branch(enter, body, after, ([start, *inits], [t, *init_types]), (inits, init_types))
        name = w.name()
        self.s.values[iv] = name
        w.start(body, [(name, t), *self.arguments(carried)])
        # Loops that copy element by element are slow anyway, and those around loops run seldom; both compute many addresses.
        around = self.s.has_products and any(inner.name == "for" for inner in op.regions[0].walk())
        spared = self.s.sparing or around or any(inner.name == "copy" for inner in op.walk())
        with w.loop(), self.s.opaque_symbols(spared):
            self.emit(self.s, op.regions[0])
        w.loc = op.loc
        values, types = self.flat(op.regions[0].terminator.operands, carried)
        # end - iv is positive and fits as an unsigned number, so the next value cannot wrap past the end.
        left = w.binary("sub", end, name, t)
        more = w.icmp("ugt", left, step, t)
        following = w.binary("add", name, step, t)
        w.cond_branch(more, body, after, ([following, *values], [t, *types]), (values, types))
        self._leave(op, after)

    def _moving_loop(self, op: Op, moving: list[streams.Moving]) -> None:
        """A `for` with accesses that advance with it (`streams`): an inner loop serves iterations that differ in scalar offsets
        only, the outer one prepares for them."""
        s, w = self.s, self.w
        w.mark()
        start, end, step = (s.scalar(v) for v in op.operands[:3])
        t = scalar_type(op.operands[0].tile.elem)
        iv, *carried = op.regions[0].args
        outer, body, between, after = (w.label() for _ in range(4))
        inits, init_types = self.flat(op.operands[3:], carried)
        inits = self.tie(inits, init_types, carried)
        place_lasting_operands(s, op)
        enter = w.icmp("slt", start, end, t)
        w.cond_branch(enter, outer, after, ([start, *inits], [t, *init_types]), (inits, init_types))
        first, kept = w.name(), [w.name() for _ in inits]
        w.start(outer, [(first, t), *zip(kept, init_types, strict=True)])
        with w.loop():
            plan = streams.prepare(s, moving, op, first, end)
        counters = [w.name() for _ in plan.steps]
        counter_types = ["i32"] * len(counters)
        kept = self.tie(kept, init_types, carried)
        w.branch(body, [*(w.const(0) for _ in counters), *kept], [*counter_types, *init_types])
        w.start(body, [*zip(counters, counter_types, strict=True), *self.arguments(carried)])
        streams.enter(s, plan, counters)

        def variable(counter: str) -> str:
            """The loop's variable when the first counter is `counter`."""
            passed = w.binary("lshr", counter, w.const(plan.shift)) if plan.shift else counter
            return w.binary("add", first, passed if t == "i32" else w.op(f"llvm.zext {passed} : i32 to i64"), t)

        s.values[iv] = variable(counters[0])
        with w.loop(), s.opaque_symbols(any(inner.name == "copy" for inner in op.walk())):
            self.emit(s, op.regions[0])
        w.loc = op.loc
        values, types = self.flat(op.regions[0].terminator.operands, carried)
        following = [
            w.binary("add", c, w.const(n) if isinstance(n, int) else n)
            for c, n in zip(counters, plan.steps, strict=True)
        ]
        served = w.icmp("ule", following[0], plan.last)
        w.cond_branch(served, body, between, ([*following, *values], [*counter_types, *types]))
        w.start(between)
        # From the next value, not from that of the counter in the loop, which would have to outlive its successor.
        next_one = variable(following[0])
        left = w.binary("sub", end, w.binary("sub", next_one, step, t), t)
        more = w.icmp("ugt", left, step, t)
        w.cond_branch(more, outer, after, ([next_one, *values], [t, *types]), (values, types))
        self._leave(op, after)

    def _leave(self, op: Op, after: str) -> None:
        """The block behind a loop."""
        w = self.w
        w.start(after, self.arguments(op.results))
        self.s.forget()
        for v in op.results:
            tile = self.s.values[v]
            if isinstance(tile, Tile):
                tile.tie = self.travels.get(v, Travel()).tie

    def tie(self, values: list[str], types: list[str], targets: Sequence[Value]) -> list[str]:
        """Initial values of accumulators, pinned to their register file and made opaque: LLVM breaks constants that meet in
        a loop into scalars, which costs moves for each of them."""
        ties: list[str] = []
        for v in targets:
            if isinstance(v.type, FragmentType):
                ties.append(self.s.fragment_pins.get(v) or self.s.fragment_ties.get(v, ""))
            elif v.tile.is_scalar:
                ties.append("")
            else:
                travel = self.travels.get(v, Travel())
                own = dict.fromkeys(self.shares(v, travel.size))
                ties += [travel.pins[i] if travel.pins else travel.tie for i in own]
        # A vector that several begin with is in registers of each once, where paths part; else every path would move it there. Not in a loop:
        # LLVM would keep the vector itself in registers throughout, to copy it there in every trip.
        many = set[str]() if self.w.in_loop else {value for value, n in Counter(values).items() if n > 1}
        ties = [
            "v" if not tie and value in many and type.startswith("vector<") and can_tie(type) else tie
            for value, type, tie in zip(values, types, ties, strict=True)
        ]
        return [
            tied(self.w, value, type, tie, ordered=False) if tie else value
            for value, type, tie in zip(values, types, ties, strict=True)
        ]

    def branch(self, op: Op) -> None:
        """An `if`."""
        w = self.w
        condition = self.s.scalar(op.operands[0])
        inits = op.operands[1:]
        after = w.label()
        labels = [w.label() for _ in op.regions]
        other = labels[1] if len(labels) == 2 else after
        passed = self.flat(inits, op.results) if len(labels) == 1 else ([], [])
        w.cond_branch(condition, labels[0], other, ((), ()), passed)
        for label, region in zip(labels, op.regions, strict=True):
            w.start(label)
            for arg, init in zip(region.args, inits, strict=True):
                self.s.values[arg] = self.s.values[init]
            if len(labels) == 1:
                self._take_over(region.args, op.results, passed[0])
            # What one branch makes, the other has not. The version that copies element by element is slow anyway.
            spared = any(inner.name == "copy" for inner in region.walk())
            with w.scope(), self.s.opaque_symbols(self.s.opaque_bases is not None), self.s.spare(spared):
                self.s.forget_outside()
                self.emit(self.s, region)
            w.loc = op.loc
            w.branch(after, *self.flat(region.terminator.operands, op.results))
        w.start(after, self.arguments(op.results))
        w.mark()

    def _take_over(self, args: Sequence[Value], targets: Sequence[Value], names: Sequence[str]) -> None:
        """Lets a branch begin with the tied pieces that are handed past it, `names`: were these made for the way past it only, those before and
        behind the tie were both alive, in registers of their own."""
        at = 0
        for arg, target in zip(args, targets, strict=True):
            if isinstance(arg.type, FragmentType) or arg.tile.is_scalar:
                at += 1
                continue
            n = self.travels.get(target, Travel()).size
            shares, old = self.shares(target, n), self.s.tile(arg)
            handed = dict(zip(dict.fromkeys(shares), names[at:], strict=False))
            at += len(handed)
            if old.tie:
                new = Tile(arg.tile, n, [handed[i] for i in shares])
                new.tie = old.tie
                self.s.values[arg] = new

    def guard(self, op: Op) -> None:
        """A `guard`: a branch that is uniform over the wave, taken if any lane holds a row that is needed, with all lanes
        active in the region. What comes out of it is tied to its register file as a whole before the paths meet: LLVM
        breaks a phi into its elements where one of the sides is put together from elements, and moves each."""
        w, s = self.w, self.s
        need, *inits = op.operands
        body, after = w.label(), w.label()
        rows = list(dict.fromkeys(s.tile(need).scalars(w)))
        some = rows[0]
        for row in rows[1:]:
            some = w.binary("or", some, row, "i1")
        lanes = w.op(f"rocdl.ballot {some} : i64")
        w.cond_branch(
            w.icmp("ne", lanes, w.const(0, "i64"), "i64"), body, after, ((), ()), self.flat(inits, op.results)
        )
        w.start(body)
        region = op.regions[0]
        for arg, init in zip(region.args, inits, strict=True):
            s.values[arg] = s.values[init]
        with w.scope(), s.opaque_symbols(s.opaque_bases is not None):
            self.emit(s, region)
        w.loc = op.loc
        names: list[str] = []
        types: list[str] = []
        for y, init, target in zip(region.terminator.operands, inits, op.results, strict=True):
            travel = self.travels.get(target, Travel())
            t = vector_type(scalar_type(target.tile.elem), travel.size)
            new = s.tile(y).pieces(w, travel.size)
            choose = self._chooser(need, init, target, travel.size) if op.attrs.get("selects", True) else None
            for i in dict.fromkeys(self.shares(target, travel.size)):
                chosen = choose(i, new(i)) if choose is not None else new(i)
                names.append(tied(w, chosen, t, travel.tie or "v", ordered=False) if can_tie(t) else chosen)
                types.append(t)
        w.branch(after, names, types)
        w.start(after, self.arguments(op.results))
        w.mark()

    def _chooser(self, need: Value, init: Value, target: Value, n: int) -> Callable[[int, str], str]:
        """Gives for the number of a piece and its new value that or the old one, row by row."""
        w, s, element = self.w, self.s, scalar_type(target.tile.elem)
        masks, old = operand_pieces(s, need, target.tile, n), s.tile(init).pieces(w, n)
        if element in packed.WIDTHS:
            return lambda i, new: packed.select(w, masks[i], new, old(i), element, n)
        t, m = vector_type(element, n), vector_type("i1", n)
        return lambda i, new: w.select(masks[i], new, old(i), t, m)

    def repeat(self, op: Op) -> None:
        """A `while`."""
        w = self.w
        head, body, after = w.label(), w.label(), w.label()
        before, during = op.regions
        w.mark()
        w.branch(head, *self.flat(op.operands, before.args))
        w.start(head, self.arguments(before.args))
        with w.loop():
            self.emit(self.s, before)
        condition = self.s.scalar(before.terminator.operands[0])
        w.loc = op.loc
        w.cond_branch(condition, body, after, self.flat(before.args, during.args), self.flat(before.args, op.results))
        w.start(body, self.arguments(during.args))
        with w.loop():
            self.emit(self.s, during)
        w.loc = op.loc
        w.branch(head, *self.flat(during.terminator.operands, before.args))
        w.start(after, self.arguments(op.results))
        w.mark()
