"""Rotates loops in which one product feeds another: the first product of the next iteration is computed in this one.

    %m, %o = for %j = %lo to %hi step %c64 carry(%mi = %m0, %oi = %o0) {
      %s = mma(%q, %k)                                    // of the keys from j on
      %x = where(%seen, %s, %inf)
      %t = reduce_max<parts = 2, inner = 4>(%x, axis = 1)
      … %p from %x and %t …
      %on = mma(%p, %v, %or)
      yield %mn, %on
    }

becomes

    … %x0 and %t0 of the keys from lo on …
    %m, %o, … = for %j = %lo to %hi step %c64 carry(%mi = %m0, %oi = %o0, %x = %x0, %t = %t0) {
      … %p from %x and %t …
      %on = mma(%p, %v, %or)
      %j1 = add(%j, %c64)
      … %x1 and %t1 of the keys from j + 64 on …
      yield %mn, %on, %x1, %t1
    }

so that a wave has matrix instructions to issue while it computes what lies between the two products: neither waits for the other. What
is computed beyond the end is not used; loads beyond a view give zeros.

Only loops whose registers suffice for both are rotated, by estimate.
"""

from __future__ import annotations

from tileir.ir.core import Block, Kernel, Op, Value
from tileir.ir.registry import get
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.ir.types import SharedType, TileType
from tileir.passes.base import Context, Pass
from tileir.passes.pipeliner import Copier
from tileir.passes.pressure import budget, peak
from tileir.records import dataclass

RESERVE = 24  # registers for addresses and operands on their way, beside what tiles need


@dataclass
class Front:
    """The ops of an iteration that are computed one iteration ahead, in order, and what of them the rest uses."""

    ops: list[Op]
    results: list[Value]


def front_of(loop: Op) -> Front | None:
    """What to compute ahead; None for a loop without two products in a chain, or one that loads element by element."""
    body = loop.regions[0]
    place = {op: i for i, op in enumerate(body.ops)}
    products = [op for op in body.ops if op.name == "mma"]
    if len(products) < 2 or any(
        op.name in ("copy", "for", "while", "wait", "barrier") for r in loop.regions for op in r.walk()
    ):
        return None
    sources = {op: _sources(op, body, place) for op in body.ops}
    reached = {op: _closure([op], sources) for op in products}
    first = [op for op in products if any(op in reached[other] for other in products if other is not op)]
    second = [op for op in products if op not in first]
    if not first or not second or any(op in reached[other] for op in second for other in second if op is not other):
        return None
    ahead = set().union(*(reached[op] for op in first))
    if any(op.regions or not _movable(op) for op in ahead):
        return None
    # What is carried must be known before the second product of this iteration, or nothing would overlap.
    late = {op for op in body.ops if set(second) & _closure([op], sources)}
    used = {v for op in ahead for v in op.operands if v in body.args[1:]}
    for v in used:
        following = body.terminator.operands[body.args.index(v) - 1].owner
        if following in late or following in ahead:
            return None
    for op in body.ops[:-1]:
        if op in ahead or op.regions or not (get(op.name).elementwise or get(op.name).category == "reduce"):
            continue
        needs = _closure([op], sources) - ahead
        if not any(o in ahead for o in sources[op]) or op.result.tile.elem.is_bool:
            continue
        if all(get(o.name).is_pure and not o.regions and not set(body.args[1:]) & set(o.operands) for o in needs):
            ahead |= needs
    # What only leads out of the front costs as many registers behind as before, and may fuse with what uses it.
    needed = set().union(*(reached[op] for op in first))
    for op in reversed(body.ops):
        if op in ahead and op not in needed and get(op.name).elementwise:
            if not any(set(op.results) & set(other.operands) for other in ahead):
                ahead.discard(op)
    ops = [op for op in body.ops if op in ahead]
    rest = [op for op in body.ops if op not in ahead]
    wanted = {v for op in rest for inner in op.walk() for v in inner.operands}
    brought = {v for op in ops if op.name in ("copy_async", "shared_store") for v in op.operands[-1:]}
    brought |= {v for op in ops if op.name == "load" for v in op.results}
    if wanted & brought:
        return None  # of what is loaded one iteration ahead, the rest needs the iteration before
    results = [v for op in ops for v in op.results if v in wanted]
    # Scalars and their like are computed where they are needed.
    cheap = [v for v in results if not isinstance(v.type, TileType) or v.type.is_scalar or _is_index(v, body)]
    return Front(ops, [v for v in results if v not in cheap]) if len(cheap) < len(results) else None


def _is_index(v: Value, body: Block) -> bool:
    return v.owner is not None and v.owner.name in ("iota", "fill")


def _movable(op: Op) -> bool:
    """Whether an op may run once more and earlier: it is pure, or brings an operand of a product from a view to LDS."""
    return get(op.name).is_pure or op.name in (
        "load",
        "copy_async",
        "shared_store",
        "shared_load",
        "shared_load_transposed",
    )


def _sources(op: Op, body: Block, place: dict[Op, int]) -> list[Op]:
    """The ops of the body that an op needs: those of its operands, and those that fill buffers it reads."""
    found: list[Op] = []
    for inner in op.walk():
        for v in inner.operands:
            if v.owner in place:
                found.append(v.owner)  # type: ignore[arg-type]
            elif isinstance(v.type, SharedType) and inner.name.startswith("shared_load"):
                found += [
                    o for o in body.ops if o is not op and v in o.operands and o.name in ("copy_async", "shared_store")
                ]
    return found


def _closure(ops: list[Op], sources: dict[Op, list[Op]]) -> set[Op]:
    """The ops and everything in the body that they need."""
    found = set(ops)
    pending = list(ops)
    while pending:
        for op in sources[pending.pop()]:
            if op not in found:
                found.add(op)
                pending.append(op)
    return found


class _Rotation:
    """Writes one loop in its rotated form."""

    def __init__(self, rw: Rewriter, loop: Op, front: Front):
        self.rw, self.loop, self.front = rw, loop, front
        self.body = loop.regions[0]
        self.copier = Copier(rw)

    def ahead(self, index: Value, carried: dict[Value, Value], buffers: dict[Value, Value]) -> list[Value]:
        """The front for the iteration at `index`."""
        values = {self.body.args[0]: index, **carried, **buffers}
        for op in self.front.ops:
            self.rw.loc = op.loc
            self.copier.op(op, values)
        return [values[v] for v in self.front.results]

    def buffers(self) -> dict[Value, Value]:
        """Buffers of its own for what comes before the loop."""
        found: dict[Value, Value] = {}
        for op in self.front.ops:
            for v in op.operands:
                if isinstance(v.type, SharedType) and v not in found:
                    found[v] = self.rw.value("shared_alloc", types=[self.rw.use(v).type], hint=v.name)
        return found

    def write(self) -> list[Value]:
        rw, loop, body = self.rw, self.loop, self.body
        operands = [rw.use(v) for v in loop.operands]
        inits = dict(zip(body.args[1:], operands[3:], strict=True))
        made = self.ahead(operands[0], inits, self.buffers())
        args = [Value(v.name, v.type, v.loc) for v in body.args]
        kept = [Value(rw.names.fresh(v.name), v.type, v.loc) for v in self.front.results]
        outer, rw.block = rw.block, Block([*args, *kept])
        rw.mapping.update(zip(body.args, args, strict=True))
        rw.mapping.update(zip(self.front.results, kept, strict=True))
        gone = set(self.front.ops)
        later = {v for op in body.ops if op not in gone for inner in op.walk() for v in inner.operands}
        for op in body.ops[:-1]:
            rw.loc = op.loc
            if op not in gone or (
                any(v in later and v not in self.front.results for v in op.results) and get(op.name).is_pure
            ):
                rw.copy(op)
        rw.loc = loop.loc
        following = [rw.use(v) for v in body.terminator.operands]
        index = rw.value("add", [args[0], operands[2]], loc=loop.loc)
        new = self.ahead(index, dict(zip(body.args[1:], following, strict=True)), {})
        rw.op("yield", [*following, *new], loc=body.terminator.loc)
        inner, rw.block = rw.block, outer
        names = [*(v.name for v in loop.results), *(rw.names.fresh(v.name) for v in kept)]
        result = rw.op("for", [*operands, *made], loop.attrs, regions=[inner], names=names, loc=loop.loc)
        return list(result.results[: len(loop.results)])


def _rotated(kernel: Kernel, fronts: dict[Op, Front]) -> Kernel:
    def rule(rw: Rewriter, op: Op) -> bool:
        if op not in fronts:
            return False
        rw.replace(op, _Rotation(rw, op, fronts[op]).write())
        return True

    return rewrite(kernel, rule)


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    if ctx.whole_tiles:
        return kernel
    fronts = {
        op: front
        for op in kernel.walk()
        if op.name == "for"
        and not op.attrs.get("few")
        and op.attrs.get("pattern") != "plain"
        and (front := front_of(op)) is not None
    }
    if not fronts:
        return kernel
    new = _rotated(kernel, fronts)
    if peak(new).registers + RESERVE > budget(kernel, ctx.target):
        return kernel
    for loop in fronts:
        ctx.log.remark(
            "R0809",
            f"the loop over %{loop.regions[0].args[0].name} computes its first product one iteration ahead",
            loop.loc,
        )
    return new


PASS = Pass(
    "rotate-loops",
    _run,
    requires=frozenset({"guards_settled"}),
    summary="computes the first of two chained products one iteration ahead",
)

__all__ = ["PASS", "Front", "front_of"]
