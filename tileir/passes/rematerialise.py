"""Computes cheap tiles again in the loops that use them, and behind the loops that do not, instead of keeping them in registers.

    %seen = ge(%row, %col) : tile<i1[128, 128]>      // 64 registers of a lane: 128 scalar registers as masks
    %acc = for %k = … {
      …
      %t = where(%seen, %s, %zero)

becomes

    %acc = for %k = … {
      …
      %seen_0 = ge(%row_0, %col_0) : tile<i1[128, 128]>
      %t = where(%seen_0, %s, %zero)

where a mask of a piece is there from its comparison to its use. Cheap are positions (`iota`, sums and products of integers), comparisons of
such, what logic makes of these, and broadcasts, as far as they come from scalars, positions, and tiles of few registers. It happens

* in a loop with products: to the masks that it takes from outside, the largest first, until the others need at most `MOST_SCALARS`
  scalar registers,
* behind a loop with products: to cheap tiles from before it that only what follows uses. They are not alive in the loop then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from tileir.ir.core import Block, Kernel, Op, Value
from tileir.ir.registry import get
from tileir.ir.rewriter import Rewriter, rewrite, uses
from tileir.ir.types import TileType
from tileir.passes.base import Context, Pass
from tileir.passes.dead_code import remove_dead
from tileir.records import dataclass

# Scalar registers for the masks that a loop keeps; there are 106, which addresses and descriptors need as well.
MOST_SCALARS = 32
# Registers of a lane that a tile may have which is kept in place of what is computed from it, and at least those that make it worth while.
FEW = 4
SOURCES = ("iota", "fill", "broadcast")
PRODUCTS = ("mma", "mfma")


@dataclass
class Plan:
    """Values that are computed again: at the start of a loop's body, and behind a loop."""

    inside: dict[Op, list[Value]] = field(default_factory=dict[Op, "list[Value]"])
    behind: dict[Op, list[Value]] = field(default_factory=dict[Op, "list[Value]"])


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    plan = _plan(kernel)
    if not plan.inside and not plan.behind:
        return kernel
    for loop, values in plan.inside.items():
        for v in values:
            text = f"%{v.name} is computed again in each iteration: it would hold {scalars(v)} scalar registers as masks through the loop"
            ctx.log.remark("R0815", text, loop.loc)
    for loop, values in plan.behind.items():
        for v in values:
            text = f"%{v.name} is computed again behind the loop: it would hold registers of {_registers(v)} elements through it"
            ctx.log.remark("R0815", text, loop.loc)

    def rule(rw: Rewriter, op: Op) -> bool:
        if op not in plan.inside and op not in plan.behind:
            return False
        known = dict(rw.mapping)
        new = _with_body(rw, op, plan.inside[op]) if op in plan.inside else rw.copy(op)
        results = {old: rw.mapping[old] for old in op.results}
        rw.mapping.clear()
        rw.mapping.update({**known, **results})
        if op in plan.behind:
            assert new is not None
            _again(rw, plan.behind[op])
        return True

    return remove_dead(rewrite(kernel, rule))


def _with_body(rw: Rewriter, loop: Op, values: list[Value]) -> Op:
    """The loop, whose body begins with these values."""
    operands = [rw.use(v) for v in loop.operands]
    old, body = loop.regions[0], Block([Value(a.name, a.type, a.loc) for a in loop.regions[0].args])
    rw.mapping.update(zip(old.args, body.args, strict=True))
    outer, rw.block = rw.block, body
    _again(rw, values)
    rw.ops(old)
    rw.block = outer
    new = rw.insert(
        Op(
            "for",
            operands,
            dict(loop.attrs),
            [Value(v.name, v.type, v.loc) for v in loop.results],
            [body],
            loop.spans,
            loop.loc,
            loop.operand_locs,
        )
    )
    rw.replace(loop, new.results)
    return new


def _again(rw: Rewriter, values: list[Value]) -> None:
    """Computes values again, with all that is cheap in front of them; what follows uses the new ones."""
    done: set[Value] = set()

    def compute(v: Value) -> None:
        if v in done or v.owner is None or not is_cheap(v, {}):
            return
        done.add(v)
        for x in v.owner.operands:
            if not _is_kept(x):
                compute(x)
        op = v.owner
        again = rw.value(
            op.name, [rw.use(x) for x in op.operands], dict(op.attrs), types=[v.type], loc=op.loc, hint=v.name
        )
        rw.replace(op, [again])

    for v in values:
        compute(v)


def _plan(kernel: Kernel) -> Plan:
    plan, known = Plan(), dict[Value, bool]()
    users = {v: {op for op, _ in found} for v, found in uses(kernel).items()}
    for loop, before, here in _loops(kernel.body, []):
        within = set(loop.walk())
        if not any(op.name in PRODUCTS for op in within):
            continue
        masks = [v for v in before if v.tile.elem.is_bool and users.get(v, set()) & within and is_cheap(v, known)]
        total = sum(map(scalars, masks))
        for v in sorted(masks, key=scalars, reverse=True):
            if total > MOST_SCALARS:
                plan.inside.setdefault(loop, []).append(v)
                total -= scalars(v)
        passed = [v for v in here if _registers(v) >= FEW and is_cheap(v, known)]
        if passed:
            order = {op: i for i, op in enumerate(kernel.walk())}
            last = max(order[op] for op in within)
            behind = [v for v in passed if v in users and all(order[op] > last for op in users[v])]
            if behind:
                plan.behind[loop] = behind
    return plan


def _loops(block: Block, around: list[Value]) -> Iterable[tuple[Op, list[Value], list[Value]]]:
    """The loops that hold no other, each with the tiles that are there before it, and those of its own block among them."""
    here: list[Value] = []
    for op in block.ops:
        if op.name == "for" and not any(inner.name in ("for", "while") for r in op.regions for inner in r.walk()):
            yield op, [*around, *here], list(here)
        else:
            for r in op.regions:
                yield from _loops(r, [*around, *here])
        here += [v for v in op.results if isinstance(v.type, TileType) and not v.tile.is_scalar]


def _registers(v: Value) -> int:
    return v.tile.layout.num_registers if v.tile.layout is not None else 0


def scalars(v: Value) -> int:
    """Scalar registers that a mask takes: two for each element of a lane."""
    return 2 * _registers(v)


def _is_kept(v: Value) -> bool:
    """Whether a value stays where it is, for what is computed from it again: it takes few registers, or is not cheap."""
    return v.tile.is_scalar or (v.owner is not None and v.owner.name not in SOURCES and _registers(v) <= FEW)


def is_cheap(v: Value, known: dict[Value, bool]) -> bool:
    """Whether a tile may be computed again: of positions, integers and masks, from what stays where it is."""
    if v not in known:
        op = v.owner
        known[v] = False
        if op is not None and not v.tile.is_scalar and (v.tile.elem.is_int or v.tile.elem.is_bool) and _is_simple(op):
            known[v] = all(_is_kept(x) or is_cheap(x, known) for x in op.operands)
    return known[v]


def _is_simple(op: Op) -> bool:
    """One instruction for each element, of integers or masks."""
    if op.name in SOURCES:
        return True
    integers = all(x.tile.elem.is_int or x.tile.elem.is_bool for x in op.operands)
    return (
        get(op.name).elementwise
        and integers
        and op.name not in ("div", "mod", "cdiv", "convert", "bitcast", "mulhi", "mulhi_unsigned")
    )


PASS = Pass(
    "rematerialise",
    _run,
    requires=frozenset({"laid_out"}),
    summary="computes cheap tiles again where they are used, instead of keeping them through loops",
)
