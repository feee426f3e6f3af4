"""Masks of a loop that bound one tile by several numbers from before the loop become masks that bound it by the smallest.

    %a = lt(%col, %NK) : tile<i1[1, 64]>
    %b = le(%col, %row) : tile<i1[128, 64]>
    %m = and(%a, %b) : tile<i1[128, 64]>

becomes

    %last = sub(%NK, %c1) : i32                      // before the loop, as what follows
    %least = min(%last, %row) : tile<i32[128, 1]>
    ...
    %m = le(%col, %least) : tile<i1[128, 64]>

A mask takes two scalar registers for each register of the tile it is for, so this halves what is alive of them, besides the work. For the
same reason a mask of one row or column that selects in a whole tile is compared there, where each piece of it is used:

    %m = lt(%col, %NK) : tile<i1[1, 64]>
    %x = where(%m, %s, %low) : tile<f32[128, 64]>

becomes

    %cols = broadcast<[128, 64]>(%col) : tile<i32[128, 64]>
    %m = lt(%cols, %NK) : tile<i1[128, 64]>
    %x = where(%m, %s, %low) : tile<f32[128, 64]>
"""

from __future__ import annotations

from tileir.ir.core import Kernel, Op, Value
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.passes.affine import Ranges, limits
from tileir.records import dataclass


@dataclass(frozen=True)
class Meeting:
    """A conjunction of comparisons `relation` (`le` or `ge`) of a tile with numbers from before the loop, to which is added what
    stands beside them."""

    relation: str
    tile: Value
    bounds: tuple[tuple[Value, int], ...]


_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def meet_masks(kernel: Kernel, ranges: Ranges) -> Kernel:
    """The kernel in which masks of innermost loops are joined and compared so; itself if there are none."""
    found: dict[Op, Meeting] = {}
    loops: dict[Op, list[Op]] = {}
    wide: dict[Op, Op] = {}
    for loop in kernel.walk():
        if loop.name != "for" or any(op.name in ("for", "while") for op in loop.regions[0].walk()):
            continue
        ops = list(loop.regions[0].walk())
        inside = {v for op in ops for v in op.results} | {a for op in ops for r in op.regions for a in r.args}
        inside.update(loop.regions[0].args)
        for op in ops:
            if op.name == "and" and (both := _both(op, inside, ranges)) is not None:
                found[op] = both
                loops.setdefault(loop, []).append(op)
            elif op.name == "where" and (comparison := _narrow(op, inside)) is not None:
                wide[op] = comparison
    if not found and not wide:
        return kernel
    bounds: dict[Op, Value] = {}

    def rule(rw: Rewriter, op: Op) -> bool:
        for meeting in loops.get(op, ()):
            bounds[meeting] = _bound(rw, found[meeting])
        if op in bounds:
            m = found[op]
            rw.replace(op, [rw.value(m.relation, [rw.use(m.tile), bounds[op]], names=[op.result.name], loc=op.loc)])
            return True
        if op in wide:
            mask = _widened(rw, wide[op], op.result.tile.shape)
            operands = [mask, *(rw.use(v) for v in op.operands[1:])]
            rw.replace(op, [rw.value("where", operands, names=[op.result.name], loc=op.loc)])
            return True
        return False

    return rewrite(kernel, rule)


def _narrow(op: Op, inside: set[Value]) -> Op | None:
    """The comparison of integers, of fewer elements than a choice, that decides it."""
    v = op.operands[0]
    while v in inside and v.owner is not None and v.owner.name == "broadcast":
        v = v.owner.operands[0]
    comparison, t = v.owner, op.result.tile
    if v not in inside or comparison is None or comparison.name not in (*_MIRRORED, "eq", "ne"):
        return None
    ranks = {o.tile.rank for o in comparison.operands if not o.tile.is_scalar}
    if not comparison.operands[0].tile.elem.is_int or ranks != {t.rank} or v.tile.shape == t.shape:
        return None
    return comparison


def _widened(rw: Rewriter, comparison: Op, shape: tuple[int, ...]) -> Value:
    """The comparison for every element of a shape."""
    operands = [rw.use(v) for v in comparison.operands]
    i = next(i for i, v in enumerate(operands) if not v.tile.is_scalar)
    operands[i] = rw.value("broadcast", [operands[i]], {"shape": shape}, hint=operands[i].name)
    return rw.value(comparison.name, operands, hint=comparison.result.name, loc=comparison.loc)


def _both(op: Op, inside: set[Value], ranges: Ranges) -> Meeting | None:
    """What a conjunction of two comparisons of one tile can become."""
    a, b = (_side(v, inside, ranges) for v in op.operands)
    if a is None or b is None or a[:2] != b[:2] or op.result.tile.is_scalar or a[1].tile.is_scalar:
        return None
    return Meeting(a[0], a[1], (a[2], b[2]))


def _side(v: Value, inside: set[Value], ranges: Ranges) -> tuple[str, Value, tuple[Value, int]] | None:
    op = v.owner
    if op is None or op.name not in _MIRRORED or not op.operands[0].tile.elem.is_int:
        return None
    relation, (a, b) = op.name, op.operands
    if a not in inside:
        relation, a, b = _MIRRORED[relation], b, a
    if a not in inside or b in inside:
        return None
    if relation in ("le", "ge"):
        return relation, a, (b, 0)
    least, most = limits(b.tile.elem)
    if not b.tile.is_scalar:
        return None
    low, high = ranges.of(b)
    if relation == "lt":
        return ("le", a, (b, -1)) if low > least else None
    return ("ge", a, (b, 1)) if high < most else None


def _bound(rw: Rewriter, meeting: Meeting) -> Value:
    """The smallest (`le`) or largest (`ge`) of the numbers."""
    values: list[Value] = []
    for v, more in meeting.bounds:
        new = rw.use(v)
        if more:
            one = rw.constant(1, v.tile.elem)
            new = rw.value("add" if more > 0 else "sub", [new, one], hint=v.name)
        values.append(new)
    return rw.value("min" if meeting.relation == "le" else "max", values, hint=meeting.tile.name)
