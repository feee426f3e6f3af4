"""Puts off what lanes have to tell each other: reductions stop at the lane where nothing needs more.

A guard whose mask comes from a maximum or minimum over lanes is skipped if no lane sees a reason to enter: what holds for the
extremum of a row holds for one of its elements. So

    %top = reduce_max(%x, axis = 1) : tile<f32[64, 1], …>
    %need = gt(%top, %limit) : tile<i1[64, 1], …>
    %r = guard %need carry(%y = %y0) {
      …
      yield %z
    }

becomes, with the lanes put together in the region,

    %part = reduce_max<parts = 2, inner = 4>(%x, axis = 1) : tile<f32[64, 2], …>
    %some = gt(%part, %limit) : tile<i1[64, 2], …>
    %r = guard<selects = false> %some carry(%y = %y0) {
      %top = reduce_max(%part, axis = 1) : tile<f32[64, 1], …>
      %need = gt(%top, %limit) : tile<i1[64, 1], …>
      …
      %z_0 = where(%need, %z, %y) : …
      yield %z_0
    }

A sum over rows that a loop carries from zero, and does nothing with but scale and choose by rows, stays in parts until the loop is done:

    %l = for … carry(%a = %zero) {
      %s = reduce_add(%p, axis = 1) : tile<f32[64, 1], …>
      %b = add(%a, %s) : tile<f32[64, 1], …>
      …

becomes a loop that carries `tile<f32[64, 2], …>`, with one `reduce_add` behind it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tileir.ir.core import AttrValue, Block, Kernel, Op, Value
from tileir.ir.registry import get
from tileir.ir.rewriter import Rewriter, rewrite, uses
from tileir.ir.types import TileType
from tileir.layout.linear import Layout
from tileir.passes.base import Context, Pass
from tileir.passes.lane_code import reduced_bits, reduced_waves
from tileir.records import dataclass

Users = dict[Value, list[tuple[Op, int]]]


@dataclass(frozen=True)
class Parts:
    """A reduction that stops at the lane: its attributes and the layout of its result."""

    attrs: tuple[tuple[str, AttrValue], ...]
    layout: Layout

    def type(self, like: TileType) -> TileType:
        return TileType(like.elem, self.layout.shape, self.layout)


def parts_of(op: Op) -> Parts | None:
    """The reduction without its steps over lanes; None if it has none, or if its lanes are no consecutive runs."""
    x, axis = op.operands[0].tile, op.attrs.get("axis")
    if get(op.name).category != "reduce" or op.attrs.get("parts", 1) != 1 or x.layout is None:
        return None
    assert isinstance(axis, int)
    bits = reduced_bits(x.layout, axis)
    if not bits or reduced_waves(x.layout, axis) or x.elem.bits < 32:
        return None
    lanes = [x.layout.lane[j] for j in bits]
    along = sorted(v[axis] for v in lanes)
    inner = along[0]
    pure = all(not c for v in lanes for d, c in enumerate(v) if d != axis)
    if not pure or along != [inner << i for i in range(len(along))] or x.layout.padded_shape != x.layout.shape:
        return None
    reduced = x.layout.reduce(axis)
    shape = tuple(1 << len(along) if d == axis else n for d, n in enumerate(reduced.shape))
    lane = [
        tuple(c // inner if d == axis else 0 for d, c in enumerate(x.layout.lane[j])) if j in bits else v
        for j, v in enumerate(reduced.lane)
    ]
    layout = Layout.from_bases(shape, reduced.reg, lane, reduced.wave, reduced.reps)
    kept = tuple((k, v) for k, v in op.attrs.items() if k not in ("axis", "parts", "inner"))
    return Parts((("axis", axis), ("parts", shape[axis]), ("inner", inner), *kept), layout)


# Guards


@dataclass
class _Test:
    """A guard that a lane can decide to skip: the reduction and the elementwise ops that make the mask from it, in order."""

    reduction: Op
    parts: Parts
    chain: list[Op]


def _test_of(guard: Op, block: Block, users: Users) -> _Test | None:
    place = {op: i for i, op in enumerate(block.ops)}
    chain: set[Op] = set()
    reductions: set[Op] = set()
    pending = [guard.operands[0]]
    while pending:
        op = pending.pop().owner
        if op is None or op not in place or op in chain:
            continue
        if get(op.name).category == "reduce":
            reductions.add(op)
        elif _depends_on_reduction(op, place):
            if not get(op.name).elementwise:
                return None
            chain.add(op)
            pending += op.operands
    if len(reductions) != 1:
        return None
    (reduction,) = reductions
    parts = parts_of(reduction) if reduction.name in ("reduce_max", "reduce_min") else None
    inside = {*guard.walk(), *chain}
    if parts is None or not all(u in inside for op in (reduction, *chain) for u, _ in users.get(op.result, [])):
        return None
    carried = {v for v in guard.operands[1:]}
    if any(op.result in carried for op in (reduction, *chain)):
        return None
    return _Test(reduction, parts, sorted(chain, key=lambda op: place[op]))


def _depends_on_reduction(op: Op, place: dict[Op, int]) -> bool:
    """Whether any reduction of the block is among what an op is computed from by elementwise ops."""
    seen: set[Op] = set()
    pending = [op]
    while pending:
        at = pending.pop()
        if at in seen:
            continue
        seen.add(at)
        if get(at.name).category == "reduce":
            return True
        if get(at.name).elementwise:
            pending += [v.owner for v in at.operands if v.owner is not None and v.owner in place]
    return False


def _write_test(rw: Rewriter, guard: Op, test: _Test) -> None:
    reduction, parts = test.reduction, test.parts
    rw.loc = reduction.loc
    part = rw.value(
        reduction.name,
        [rw.use(reduction.operands[0])],
        dict(parts.attrs),
        types=[parts.type(reduction.result.tile)],
        hint="part",
    )
    lane: dict[Value, Value] = {reduction.result: part}
    for op in test.chain:
        operands = [lane.get(v) or rw.use(v) for v in op.operands]
        lane[op.result] = rw.value(
            op.name, operands, op.attrs, types=[parts.type(op.result.tile)], hint=op.result.name, loc=op.loc
        )
    inits = [rw.use(v) for v in guard.operands[1:]]
    region = guard.regions[0]
    args = [Value(v.name, v.type, v.loc) for v in region.args]
    rw.mapping.update(zip(region.args, args, strict=True))
    outer, rw.block = rw.block, Block(args)
    whole = rw.value(reduction.name, [part], reduction.attrs, names=[reduction.result.name], loc=reduction.loc)
    rw.replace(reduction, [whole])
    for op in test.chain:
        rw.copy(op)
    for op in region.ops[:-1]:
        rw.loc = op.loc
        if not rw.rule(rw, op):
            rw.copy(op)
    need = rw.use(guard.operands[0])
    end = region.terminator
    chosen = [
        rw.value("where", [need, rw.use(y), a], hint=y.name, loc=end.loc)
        for y, a in zip(end.operands, args, strict=True)
    ]
    rw.op("yield", chosen, loc=end.loc)
    inner, rw.block = rw.block, outer
    names = [v.name for v in guard.results]
    new = rw.op(
        "guard",
        [lane[guard.operands[0]], *inits],
        {"selects": False},
        regions=[inner],
        names=names,
        loc=guard.loc,
        operand_locs=guard.operand_locs,
    )
    rw.replace(guard, new.results)


# Sums


@dataclass
class _Sum:
    """Something that a loop carries in parts: the values to be retyped and the additions that put parts on it."""

    parts: Parts
    values: set[Value]
    additions: dict[Op, Op]  # by addition: the reduction that it adds


def _sum_of(loop: Op, i: int, users: Users) -> _Sum | None:
    body = loop.regions[0]
    init = loop.operands[3 + i]
    if not _is_zero(init):
        return None
    found: set[Value] = {body.args[1 + i]}
    additions: dict[Op, Op] = {}
    needed: set[Value] = {body.terminator.operands[i]}
    pending = list(found)

    def reach(v: Value) -> None:
        if v not in found:
            found.add(v)
            pending.append(v)

    while pending:
        v = pending.pop()
        for op, at in users.get(v, []):
            match op.name:
                case "yield" if op is body.terminator and at == i:
                    pass
                case "yield" if any(op is r.terminator and r.args[at] in found for r in _guards_around(op, found)):
                    pass
                case "guard" if at > 0:
                    reach(op.regions[0].args[at - 1])
                    reach(op.results[at - 1])
                    needed.add(op.regions[0].terminator.operands[at - 1])
                case "add":
                    other = op.operands[1 - at].owner
                    if op.operands[0] is op.operands[1] or other is None or other.name != "reduce_add":
                        return None
                    additions[op] = other
                    reach(op.result)
                case "mul":
                    if op.operands[1 - at] is v:
                        return None
                    reach(op.result)
                case "where" if at > 0:
                    needed |= {op.operands[1], op.operands[2]}
                    reach(op.result)
                case _:
                    return None
    multiplied = any(
        op.name == "mul" and all(x in found for x in op.operands) for v in found for op, _ in users.get(v, [])
    )
    kinds = {parts_of(r) for r in additions.values()}
    if multiplied or not needed <= found or len(kinds) != 1:
        return None
    (parts,) = kinds
    if parts is None or any(len(users[r.result]) != 1 for r in additions.values()):
        return None
    return _Sum(parts, found, additions)


def _guards_around(terminator: Op, found: set[Value]) -> Sequence[Block]:
    """The regions of guards that carry one of the values and end with this `yield`."""
    return [
        r
        for v in found
        if (g := v.owner) is not None and g.name == "guard"
        for r in g.regions
        if r.terminator is terminator
    ]


def _is_zero(v: Value) -> bool:
    op = v.owner
    if op is not None and op.name == "fill":
        return _is_zero(op.operands[0])
    return (
        op is not None and op.name == "constant" and op.attrs["value"] == 0 and not isinstance(op.attrs["value"], bool)
    )


class _Sums:
    """Writes the loops whose sums stay in parts."""

    def __init__(self, kernel: Kernel):
        users = uses(kernel)
        self.of_loop: dict[Op, dict[int, _Sum]] = {}
        self.parts: dict[Value, Parts] = {}
        self.additions: dict[Op, Op] = {}
        self.gone: set[Op] = set()
        for loop in kernel.walk():
            if loop.name != "for":
                continue
            for i in range(len(loop.results)):
                made = _sum_of(loop, i, users)
                if made is None:
                    continue
                self.of_loop.setdefault(loop, {})[i] = made
                self.parts.update(dict.fromkeys(made.values, made.parts))
                self.additions.update(made.additions)
                self.gone |= set(made.additions.values())

    def type(self, v: Value) -> TileType:
        return self.parts[v].type(v.tile)

    def rule(self, rw: Rewriter, op: Op) -> bool:
        if op in self.gone:
            return True
        if op in self.of_loop:
            self._loop(rw, op)
            return True
        if op in self.additions:
            reduction = self.additions[op]
            part = rw.value(
                reduction.name,
                [rw.use(reduction.operands[0])],
                dict(self.parts[op.result].attrs),
                types=[self.type(op.result)],
                names=[reduction.result.name],
                loc=reduction.loc,
            )
            rw.mapping[reduction.result] = part
        if op.name == "guard":
            return self._guard(rw, op)
        if len(op.results) == 1 and op.result in self.parts:
            operands = [rw.use(v) for v in op.operands]
            rw.replace(
                op,
                [
                    rw.value(
                        op.name, operands, op.attrs, types=[self.type(op.result)], names=[op.result.name], loc=op.loc
                    )
                ],
            )
            return True
        return False

    def _arg(self, v: Value) -> Value:
        return Value(v.name, self.type(v) if v in self.parts else v.type, v.loc)

    def _guard(self, rw: Rewriter, op: Op) -> bool:
        region = op.regions[0]
        if not any(v in self.parts for v in region.args):
            return False
        operands = [rw.use(v) for v in op.operands]
        inner = rw.region(region, [self._arg(v) for v in region.args])
        new = rw.op(
            "guard",
            operands,
            op.attrs,
            regions=[inner],
            names=[v.name for v in op.results],
            loc=op.loc,
            operand_locs=op.operand_locs,
        )
        rw.replace(op, new.results)
        return True

    def _loop(self, rw: Rewriter, op: Op) -> None:
        sums, body = self.of_loop[op], op.regions[0]
        operands = [rw.use(v) for v in op.operands]
        for i, made in sums.items():
            t = made.parts.type(op.results[i].tile)
            zero = rw.constant(0.0 if t.elem.is_float else 0, t.elem, op.loc)
            operands[3 + i] = rw.value("fill", [zero], types=[t], hint=op.operands[3 + i].name, loc=op.loc)
        inner = rw.region(body, [self._arg(v) for v in body.args])
        names = [v.name if i not in sums else rw.names.fresh(v.name) for i, v in enumerate(op.results)]
        new = rw.op("for", operands, op.attrs, regions=[inner], names=names, loc=op.loc, operand_locs=op.operand_locs)
        results = list(new.results)
        for i, made in sums.items():
            axis = {"axis": dict(made.parts.attrs)["axis"]}
            results[i] = rw.value("reduce_add", [results[i]], axis, names=[op.results[i].name], loc=op.loc)
        rw.replace(op, results)


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    if not any(get(op.name).category == "reduce" for op in kernel.walk()):
        return kernel
    users = uses(kernel)
    tests: dict[Op, _Test] = {}
    blocks = [kernel.body, *(r for op in kernel.walk() for r in op.regions)]
    for block in blocks:
        for op in block.ops:
            if op.name == "guard" and op.attrs.get("selects", True):
                test = _test_of(op, block, users)
                if test is not None:
                    tests[op] = test
    moved = {op for test in tests.values() for op in (test.reduction, *test.chain)}

    def rule(rw: Rewriter, op: Op) -> bool:
        if op in tests:
            _write_test(rw, op, tests[op])
            return True
        return op in moved

    kernel = rewrite(kernel, rule) if tests else kernel
    sums = _Sums(kernel)
    return rewrite(kernel, sums.rule) if sums.of_loop else kernel


PASS = Pass(
    "defer-lanes",
    _run,
    requires=frozenset({"guards_settled"}),
    summary="combines lanes only where what they know together is needed",
)
