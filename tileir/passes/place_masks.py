"""Comparisons of positions that move with a loop become comparisons of fixed positions with a number that moves.

    %col = add(%j, %iota) : tile<i32[1, 64]>         // %j is the variable of the loop
    %m = le(%col, %least) : tile<i1[128, 64]>        // %least was there before it

becomes

    %least_0 = max(%least, %c-1) : tile<i32[128, 1]> // before the loop
    ...
    %left = sub(%least_0, %j) : tile<i32[128, 1]>
    %m = le(%iota, %left) : tile<i1[128, 64]>

which is one subtraction for a row, in place of an addition for each of its elements. It is done where a lane holds the bound of a row
once, and where nothing wraps: the positions by what is known of the loop, the differences as the bound is not far below the positions.
"""

from __future__ import annotations

from tileir.ir.core import Kernel, Op, Value
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.passes.affine import Forms, Ranges, limits
from tileir.passes.facts import Divisibility
from tileir.passes.mask_limits import Masks
from tileir.records import dataclass

_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


@dataclass(frozen=True)
class Placed:
    """A comparison `relation` of fixed positions plus a scalar of the loop with a bound from before it. `least` is a number that the
    bound may be raised to without changing any result; `widened` the shape that the positions are broadcast to, if they are."""

    relation: str
    positions: Value
    moving: Value
    bound: Value
    least: int
    widened: tuple[int, ...] | None


def place_masks(kernel: Kernel, ranges: Ranges, divisors: Divisibility) -> Kernel:
    """The kernel with such comparisons in its innermost loops; itself if there are none."""
    found: dict[Op, Placed] = {}
    loops: dict[Op, list[Op]] = {}
    for loop in kernel.walk():
        if loop.name != "for" or any(op.name in ("for", "while") for op in loop.regions[0].walk()):
            continue
        forms = Forms(loop, ranges)
        index = Masks(loop, forms, ranges, divisors, first=True).index
        for op in loop.regions[0].walk():
            placed = _placed(op, forms, ranges, index)
            if placed is not None:
                found[op] = placed
                loops.setdefault(loop, []).append(op)
    if not found:
        return kernel
    raised: dict[Op, Value] = {}

    def rule(rw: Rewriter, op: Op) -> bool:
        for inner in loops.get(op, ()):
            p = found[inner]
            least = rw.constant(p.least, p.bound.tile.elem)
            raised[inner] = rw.value("max", [rw.use(p.bound), least], hint=p.bound.name)
        if op not in found:
            return False
        p = found[op]
        left = rw.value("sub", [raised[op], rw.use(p.moving)], hint="left", loc=op.loc)
        positions = rw.use(p.positions)
        if p.widened is not None:
            positions = rw.value("broadcast", [positions], {"shape": p.widened}, hint=positions.name, loc=op.loc)
        rw.replace(op, [rw.value(p.relation, [positions, left], names=[op.result.name], loc=op.loc)])
        return True

    return rewrite(kernel, rule)


def _placed(op: Op, forms: Forms, ranges: Ranges, index: tuple[int, int]) -> Placed | None:
    """What a comparison of a loop can become."""
    if op.name not in _MIRRORED or not op.operands[0].tile.elem.is_int or op.result.tile.is_scalar:
        return None
    relation, (a, bound) = op.name, op.operands
    if forms.is_fixed(a):
        relation, a, bound = _MIRRORED[relation], bound, a
    if forms.is_fixed(a) or not forms.is_fixed(bound):
        return None
    widened, sum_ = None, a.owner
    if sum_ is not None and sum_.name == "broadcast":
        widened, sum_ = a.tile.shape, sum_.operands[0].owner
    if sum_ is None or sum_.name != "add":
        return None
    moving, positions = sum_.operands if sum_.operands[0].tile.is_scalar else reversed(sum_.operands)
    if positions.tile.is_scalar or not moving.tile.is_scalar or not _is_fixed(positions, forms):
        return None
    if positions.tile.shape != sum_.result.tile.shape or not _is_smaller(bound, positions):
        return None
    forms_of = [forms.of(v) for v in (moving, positions)]
    if forms_of[0] is None or forms_of[1] is None:
        return None
    (low, high), (first, last) = (ranges.of_form(f, index) for f in forms_of if f is not None)
    least, most = limits(bound.tile.elem)
    smallest = low + first - (relation in ("le", "gt"))
    # The positions do not wrap, and bound less scalar lies within the type for every bound from `smallest` on.
    if low < 0 or smallest - 1 < least or high + last > most or smallest - high < least:
        return None
    return Placed(relation, positions, moving, bound, smallest, widened)


def _is_fixed(v: Value, forms: Forms) -> bool:
    return forms.is_fixed(v) or (v.owner is not None and v.owner.name == "iota")


def _is_smaller(bound: Value, positions: Value) -> bool:
    """Whether the bound is one number wherever the positions differ."""
    if bound.tile.is_scalar:
        return True
    return bound.tile.rank == positions.tile.rank and all(
        n == 1 for n, m in zip(bound.tile.shape, positions.tile.shape, strict=True) if m > 1
    )


__all__ = ["place_masks"]
