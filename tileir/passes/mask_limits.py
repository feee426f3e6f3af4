"""In which iterations of a loop a mask has one value for every element.

A mask is made of comparisons of affine forms, joined by `and`, `or` and `not`. For the first iterations of a loop (or the last ones)
in which it is certainly all true, or all false, this says up to where they reach: a *limit*, an expression in scalars that are
there before the loop. Joining masks joins limits:

    %j + iota < %NK                        true as long as %j <= %NK - 64
    %j + iota <= %row + iota               true as long as %j <= %row - 63
    both                                   … the smaller of the two
    either                                 … the larger of the two

Comparisons are made by the numbers of the text, which wrap; limits are exact. So a limit holds only where both sides lie within
their type, which is proved or becomes part of the limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tileir.ir.core import Op, Value
from tileir.passes.affine import MOST_NESTED, Affine, Forms, Interval, Ranges, constant_int, limits
from tileir.passes.facts import Divisibility
from tileir.passes.identities import splat_of
from tileir.records import dataclass

MOST_EXACT = 1 << 62  # forms stay below, so that i64 holds them and what is added to them


@dataclass(frozen=True)
class Fixed:
    """All iterations, or none that is known."""

    everywhere: bool


@dataclass(frozen=True)
class Bound:
    """Iterations up to and including `form` / `divisor` rounded down, of the first ones; from it rounded up on, of the last ones."""

    form: Affine
    divisor: int


@dataclass(frozen=True)
class Test:
    """All iterations if a scalar i1 is what is wanted, else none."""

    condition: Value
    wanted: bool


@dataclass(frozen=True)
class Check:
    """All iterations if the form is not positive, else none."""

    form: Affine


@dataclass(frozen=True)
class Joined:
    """The iterations in all of the parts (`every`), or in any of them."""

    every: bool
    parts: tuple[Limit, ...]


Limit = Fixed | Bound | Test | Check | Joined
ALWAYS, NEVER = Fixed(True), Fixed(False)


def join(every: bool, parts: Sequence[Limit]) -> Limit:
    """The joined limit, without parts that do not matter."""
    absorbing, neutral = (NEVER, ALWAYS) if every else (ALWAYS, NEVER)
    kept = tuple(p for p in parts if p != neutral)
    if absorbing in kept:
        return absorbing
    return kept[0] if len(kept) == 1 else Joined(every, kept) if kept else neutral


def forms_of(limit: Limit) -> list[Affine]:
    """The forms of a limit."""
    if isinstance(limit, Joined):
        return [f for p in limit.parts for f in forms_of(p)]
    return [limit.form] if isinstance(limit, Bound | Check) else []


class Masks:
    """Limits of the masks of one loop, over its first iterations or its last ones."""

    def __init__(self, loop: Op, forms: Forms, ranges: Ranges, divisors: Divisibility, first: bool):
        self.first = first
        self._forms = forms
        self._ranges = ranges
        self._divisors = divisors
        start, self._end = loop.operands[:2]
        self._start_value, self._variable = start, loop.regions[0].args[0]
        self.start, self.end = self._atom(start), self._atom(self._end)
        low, high = ranges.of(self._variable)
        spacing = max(1, math.gcd(self._divisor(start), divisors.of(self._variable)))
        self.index: Interval = low, max(low, high - high % spacing)
        self._uppers = [(self._atom(u), self._spacing(u)) for u in _uppers(self._end)]

    def limit(self, v: Value, wanted: bool, depth: int = 0) -> Limit:
        """Where every element of the mask is certainly `wanted`."""
        known = splat_of(v)
        if known is not None:
            return Fixed(bool(known) == wanted)
        if v.tile.is_scalar and self._forms.is_fixed(v):
            return Test(v, wanted)
        op = v.owner
        if op is None or depth > MOST_NESTED:
            return NEVER
        match op.name:
            case "not":
                return self.limit(op.operands[0], not wanted, depth + 1)
            case "and" | "or":
                parts = [self.limit(o, wanted, depth + 1) for o in op.operands]
                return join((op.name == "and") == wanted, parts)
            case "fill" | "broadcast" | "reshape" | "transpose" | "convert_layout":
                return self.limit(op.operands[0], wanted, depth + 1)
            case name if name in _RELATIONS and op.operands[0].tile.elem.is_int:
                return self._comparison(op, wanted)
            case _:
                return NEVER

    def _comparison(self, op: Op, wanted: bool) -> Limit:
        a, b = op.operands
        relation = op.name if wanted else _OPPOSITE[op.name]
        match relation:
            case "eq":
                return join(True, [self._at_most(a, b, 0), self._at_most(b, a, 0)])
            case "ne":
                return join(False, [self._at_most(a, b, 1), self._at_most(b, a, 1)])
            case "le" | "lt":
                return self._at_most(a, b, int(relation == "lt"))
            case _:
                return self._at_most(b, a, int(relation == "gt"))

    def _at_most(self, low: Value, high: Value, apart: int, depth: int = 0) -> Limit:
        """Where low + apart <= high for all elements. If high is not above its type and low not below, then neither side wraps."""
        for v, name in ((low, "max"), (high, "min")):
            op = v.owner
            if (
                op is not None
                and op.name == name
                and not (v.tile.is_scalar and self._forms.is_fixed(v))
                and depth <= MOST_NESTED
            ):
                sides = [(o, high) if v is low else (low, o) for o in op.operands]
                return join(True, [self._at_most(*side, apart, depth + 1) for side in sides])
        a, b = self._forms.of(low), self._forms.of(high)
        if a is None or b is None:
            return NEVER
        least, most = limits(low.tile.elem)
        main = self._not_positive((a - b).plus(apart), worst_case=False)
        if main == NEVER:
            return NEVER
        return join(
            True,
            [
                main,
                self._not_positive(b.plus(-most), worst_case=True),
                self._not_positive((a * -1).plus(least), worst_case=True),
            ],
        )

    def _not_positive(self, form: Affine, *, worst_case: bool) -> Limit:
        """Where no element of a form is positive. Iterations at the other end of the loop are not looked for; with `worst_case` the
        form may still hold in all of them."""
        form = form.largest()
        if self.certain(form):
            return ALWAYS
        if self._is_impossible(form) or not self._is_exact(form):
            return NEVER
        rest = Affine(0, form.scalars, {}, form.constant)
        if form.index == 0:
            return Check(form)
        if (form.index > 0) == self.first:
            return Bound(rest * -1, form.index) if self.first else Bound(rest, -form.index)
        if not worst_case:
            return NEVER
        return self._not_positive(form.at(self.end.plus(-1) if form.index > 0 else self.start), worst_case=True)

    def certain(self, form: Affine) -> bool:
        """Whether a form without positions is not positive in any iteration."""
        if self._ranges.of_form(form, self.index)[1] <= 0:
            return True
        if form.index < 0:
            return self._ranges.of_form(form.at(self.start))[1] <= 0
        if form.index > 0:
            return any(self._ranges.of_form(form.at(u.plus(-g)))[1] <= 0 for u, g in self._uppers)
        return False

    def _is_impossible(self, form: Affine) -> bool:
        """Whether a form without positions is positive in all iterations."""
        if self._ranges.of_form(form, self.index)[0] > 0:
            return True
        if form.index > 0:
            return self._ranges.of_form(form.at(self.start))[0] > 0
        return any(self._ranges.of_form(form.at(u.plus(-g)))[0] > 0 for u, g in self._uppers if form.index < 0)

    def reaches_end(self, form: Affine) -> bool:
        """Whether a form in scalars is certainly at least the end of the loop."""
        return any(self._ranges.of_form(form - u)[0] >= 0 for u, _ in self._uppers)

    def _is_exact(self, form: Affine) -> bool:
        return self.size(form) < MOST_EXACT

    def size(self, form: Affine) -> int:
        """A number that no partial sum of a form in scalars passes."""
        parts = (abs(c) * max(map(abs, self._ranges.of(v))) for v, c in form.scalars.items())
        return abs(form.constant) + sum(parts)

    def _atom(self, v: Value) -> Affine:
        n = constant_int(v)
        return Affine(scalars={v: 1}) if n is None else Affine(constant=n)

    def _spacing(self, upper: Value) -> int:
        """By how much the loop variable is below an upper bound at least: what divides both."""
        common = math.gcd(
            self._divisor(upper), math.gcd(self._divisor(self._start_value), self._divisors.of(self._variable))
        )
        return max(1, common)

    def _divisor(self, v: Value) -> int:
        """A divisor of a scalar, also if it wrapped: of computed numbers only the power of two in it survives that."""
        n = self._divisors.of(v)
        if n == 0 or v.owner is None or v.owner.name in ("constant", "dim"):
            return n
        return n & -n


_RELATIONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))
_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


def _uppers(end: Value, depth: int = 0) -> list[Value]:
    """Scalars that the end of a loop is certainly not above."""
    found = [end]
    op = end.owner
    if op is None or depth > MOST_NESTED:
        return found
    if op.name == "min":
        found += [u for o in op.operands for u in _uppers(o, depth + 1)]
    elif op.name == "where":
        one, other = (_uppers(o, depth + 1) for o in op.operands[1:])
        found += [u for u in one if u in other]
    return list(dict.fromkeys(found))
