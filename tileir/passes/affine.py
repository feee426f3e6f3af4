"""What integers are as sums: affine forms of values in the variable of a loop, and intervals of scalars.

A form is exact: a number of the integers, not of 32 bits. As addition, subtraction and multiplication wrap modulo a power of two,
a value of the text equals its form wherever the form lies within the type of the value; whoever uses a form proves or tests that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TypeVar

from tileir.ir.core import Kernel, Op, Value
from tileir.ir.types import Elem, TileType
from tileir.records import dataclass

MOST_SIZE = (1 << 31) - 1  # of a dimension, and of a grid
MOST_NESTED = 60  # ops of an expression that are followed; what lies deeper stands for itself

_Key = TypeVar("_Key")
Interval = tuple[int, int]
Term = tuple[object, ...]
"""Names an index that runs over a tile: the axis counted from the last one, the size, and the ops that reshaped it since."""


def limits(elem: Elem) -> Interval:
    """Smallest and largest number of a signed integer type."""
    half = 1 << (elem.bits - 1)
    return -half, half - 1


def constant_int(v: Value) -> int | None:
    """The integer that a scalar certainly is."""
    value = v.owner.attrs["value"] if v.owner is not None and v.owner.name == "constant" else None
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def multiple_of(op: Op) -> int | None:
    """The positive number of which a difference is a multiple because it is a number less the rest of its division."""
    rest = op.operands[1].owner
    if op.name != "sub" or rest is None or rest.name != "mod" or rest.operands[0] is not op.operands[0]:
        return None
    n = constant_int(rest.operands[1])
    return n if n is not None and n > 0 else None


@dataclass(frozen=True)
class Affine:
    """`index` times the loop variable, plus scalars and positions in a tile times their factors, plus a constant."""

    index: int = 0
    scalars: Mapping[Value, int] = field(default_factory=dict[Value, int])
    positions: Mapping[Term, int] = field(default_factory=dict[Term, int])
    constant: int = 0

    def __add__(self, other: Affine) -> Affine:
        return Affine(
            self.index + other.index,
            _sum(self.scalars, other.scalars),
            _sum(self.positions, other.positions),
            self.constant + other.constant,
        )

    def __mul__(self, n: int) -> Affine:
        return Affine(
            self.index * n,
            {v: c * n for v, c in self.scalars.items() if n},
            {t: c * n for t, c in self.positions.items() if n},
            self.constant * n,
        )

    def __sub__(self, other: Affine) -> Affine:
        return self + other * -1

    def plus(self, n: int) -> Affine:
        return self + Affine(constant=n)

    @property
    def is_constant(self) -> bool:
        return not self.index and not self.scalars and not self.positions

    def largest(self) -> Affine:
        """The form without positions that is the largest over the tile."""
        return self._extreme(1)

    def smallest(self) -> Affine:
        """The form without positions that is the smallest over the tile."""
        return self._extreme(-1)

    def _extreme(self, sign: int) -> Affine:
        over = sum(c * (_size(t) - 1) for t, c in self.positions.items() if c * sign > 0)
        return Affine(self.index, self.scalars, {}, self.constant + over)

    def at(self, index: Affine) -> Affine:
        """The form with another in place of the loop variable."""
        return Affine(0, self.scalars, self.positions, self.constant) + index * self.index


def _sum(a: Mapping[_Key, int], b: Mapping[_Key, int]) -> dict[_Key, int]:
    total = dict(a)
    for key, n in b.items():
        total[key] = total.get(key, 0) + n
    return {key: n for key, n in total.items() if n}


def _size(term: Term) -> int:
    size = term[1]
    assert isinstance(size, int)
    return size


class Ranges:
    """Intervals in which the integers of a kernel lie – scalars, and all elements of tiles –, from literals, positions, sizes, arithmetic, loop
    bounds, and comparisons with literals that `assume` states."""

    def __init__(self, kernel: Kernel):
        self._known: dict[Value, Interval] = {}
        self._stated: dict[Value | str, Interval] = {}
        self._variables: dict[Value, Op] = {}
        for op in kernel.walk():
            if op.name == "for":
                self._variables[op.regions[0].args[0]] = op
            elif op.name == "assume":
                self._assume(op.operands[0])

    def of(self, v: Value, depth: int = 0) -> Interval:
        """Smallest and largest number that a scalar, or an element of a tile, can be."""
        if v not in self._known:
            low, high = self._compute(v, depth + 1) if depth < MOST_NESTED else limits(v.tile.elem)
            lo, hi = limits(v.tile.elem)
            if low < lo or high > hi:  # it may wrap
                low, high = lo, hi
            for stated in (self._stated.get(v), self._stated.get(_symbol(v))):
                if stated is not None:
                    low, high = max(low, stated[0]), min(high, stated[1])
            self._known[v] = low, max(low, high)
        return self._known[v]

    def of_form(self, form: Affine, index: Interval = (0, 0)) -> Interval:
        """Bounds of a form, given those of the loop variable."""
        parts = [(form.index, index), *((c, self.of(v)) for v, c in form.scalars.items())]
        parts += [(c, (0, _size(t) - 1)) for t, c in form.positions.items()]
        ends = [sorted((c * low, c * high)) for c, (low, high) in parts]
        return form.constant + sum(e[0] for e in ends), form.constant + sum(e[1] for e in ends)

    def _assume(self, v: Value) -> None:
        op = v.owner
        if op is None:
            return
        if op.name == "and":
            for operand in op.operands:
                self._assume(operand)
        elif op.name in _FLIPPED and op.operands[0].tile.is_scalar and op.operands[0].tile.elem.is_int:
            a, b = op.operands
            self._state(a, op.name, constant_int(b))
            self._state(b, _FLIPPED[op.name], constant_int(a))

    def _state(self, v: Value, relation: str, n: int | None) -> None:
        if n is None:
            return
        low, high = limits(v.tile.elem)
        if relation in ("gt", "ge", "eq"):
            low = n + (relation == "gt")
        if relation in ("lt", "le", "eq"):
            high = n - (relation == "lt")
        for key in {v, _symbol(v)} - {""}:
            before = self._stated.get(key, (low, high))
            self._stated[key] = max(low, before[0]), min(high, before[1])

    def _compute(self, v: Value, depth: int) -> Interval:
        unknown = limits(v.tile.elem)
        if v in self._variables:
            start, end = (self.of(bound, depth) for bound in self._variables[v].operands[:2])
            return start[0], max(start[0], end[1] - 1)
        op = v.owner
        if op is None or not all(isinstance(o.type, TileType) for o in op.operands):
            return unknown
        if op.name == "constant":
            n = constant_int(v)
            return (n, n) if n is not None else unknown
        if op.name in ("dim", "program_id", "num_programs"):
            return (0, MOST_SIZE) if v.tile.elem.bits == 32 else unknown
        if op.name == "iota":
            axis = op.attrs.get("axis", 0)
            assert isinstance(axis, int)
            return 0, v.tile.shape[axis] - 1
        numbers = op.operands[1:] if op.name == "where" else op.operands
        if not numbers or not all(o.tile.elem.is_int for o in numbers):
            return unknown
        if op.name == "sub" and multiple_of(op) is not None and self.of(op.operands[0], depth)[0] >= 0:
            return 0, self.of(op.operands[0], depth)[1]
        return self._arithmetic(op, [self.of(o, depth) for o in numbers], unknown)

    def _arithmetic(self, op: Op, args: list[Interval], unknown: Interval) -> Interval:
        (a, b), (c, d) = args[0], args[-1]
        match op.name:
            case "add":
                return a + c, b + d
            case "sub":
                return a - d, b - c
            case "mul":
                products = [x * y for x in (a, b) for y in (c, d)]
                return min(products), max(products)
            case "neg":
                return -b, -a
            case "min":
                return min(a, c), min(b, d)
            case "max":
                return max(a, c), max(b, d)
            case "where":
                return min(a, c), max(b, d)
            case "convert" | "fill" | "broadcast" | "reshape" | "transpose" | "slice":
                return a, b
            case "div" | "cdiv" if a >= 0 and c >= 1:
                up = op.name == "cdiv"
                return (a + (d - 1) * up) // d, (b + (c - 1) * up) // c
            case "mod" if a >= 0 and c >= 1:
                return 0, min(b, d - 1)
            case _:
                return unknown


_FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}


def _symbol(v: Value) -> str:
    return str(v.owner.attrs["symbol"]) if v.owner is not None and v.owner.name == "dim" else ""


class Forms:
    """Forms of the values that are computed in a loop, or are tiles. Scalars from before the loop stand for themselves."""

    def __init__(self, loop: Op, ranges: Ranges):
        self.variable = loop.regions[0].args[0]
        self._ranges = ranges
        self._inside = {
            v for op in loop.regions[0].walk() for v in (*op.results, *(a for r in op.regions for a in r.args))
        }
        self._inside.update(loop.regions[0].args)
        self._known: dict[Value, Affine | None] = {}

    def is_fixed(self, v: Value) -> bool:
        """Whether a value is there before the loop."""
        return v not in self._inside

    def of(self, v: Value, depth: int = 0) -> Affine | None:
        """The form of an integer, None if it is not affine."""
        if v not in self._known:
            self._known[v] = self._compute(v, depth + 1)
        return self._known[v]

    def _compute(self, v: Value, depth: int) -> Affine | None:
        if v is self.variable:
            return Affine(index=1)
        t = v.type
        if not isinstance(t, TileType) or not t.elem.is_int:
            return None
        n = constant_int(v)
        if n is not None:
            return Affine(constant=n)
        if t.is_scalar and self.is_fixed(v):
            return Affine(scalars={v: 1})
        op = v.owner
        return self._of_op(op, depth) if op is not None and not op.regions and depth < MOST_NESTED else None

    def _of_op(self, op: Op, depth: int) -> Affine | None:
        t = op.result.tile if len(op.results) == 1 else None
        if t is None:
            return None
        if op.name == "iota":
            axis = op.attrs.get("axis", 0)
            assert isinstance(axis, int)
            size = t.shape[axis]
            return Affine(positions={(t.rank - axis, size): 1} if size > 1 else {})
        if op.name not in _AFFINE:
            return None
        forms = [self.of(o, depth) for o in op.operands]
        a, b = forms[0], forms[-1]
        if a is None or b is None:
            return None
        match op.name:
            case "add":
                return a + b
            case "sub":
                return a - b
            case "neg":
                return a * -1
            case "mul":
                return a * b.constant if b.is_constant else b * a.constant if a.is_constant else None
            case "shl":
                return a * (1 << b.constant) if b.is_constant and 0 <= b.constant < t.elem.bits else None
            case "convert":
                return a if self._keeps(op, a) else None
            case "broadcast" | "fill" if not a.positions or op.operands[0].tile.rank == t.rank:
                return a
            case _:  # the positions are those of other axes now
                moved = {(*term[:2], *term[2:], op): c for term, c in a.positions.items()}
                return Affine(a.index, a.scalars, moved, a.constant)

    def _keeps(self, op: Op, form: Affine) -> bool:
        """Whether a conversion to a wider type keeps the number; one to a narrower type wraps, as everything does."""
        before, after = op.operands[0].tile.elem, op.result.tile.elem
        if after.bits <= before.bits:
            return True
        low, high = self._ranges.of_form(form, self._ranges.of(self.variable))
        least, most = limits(before)
        return least <= low and high <= most


_AFFINE = frozenset("add sub neg mul shl convert broadcast fill reshape transpose convert_layout".split())
