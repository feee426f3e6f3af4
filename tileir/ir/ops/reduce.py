"""Reductions along an axis; the reduced dimension stays with size 1 (or `parts`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tileir.ir.ops import numeric
from tileir.ir.ops.common import check_axis
from tileir.ir.registry import AttrSpec, Check, OpDef, declare
from tileir.ir.types import F32, F64, I1, I32, Elem, TileType, Type

_BITWISE = ("reduce_and", "reduce_or", "reduce_xor")


def lowest(elem: Elem) -> int | float:
    """The lowest value of an element type; minus infinity for floats."""
    return float("-inf") if elem.is_float else -(1 << (elem.bits - 1))


def neutral(name: str, elem: Elem) -> int | float:
    """The value that does not change the reduction: also what a part without elements is. Maxima ignore NaN, so it is their
    neutral element for floats; sums of zeros keep their sign, so theirs is -0."""
    if name == "reduce_add":
        return -0.0 if elem.is_float else 0
    if name == "reduce_mul":
        return 1
    if name in ("reduce_and", "reduce_or", "reduce_xor"):
        return -1 if name == "reduce_and" else 0
    if elem.is_float:
        return float("nan")
    low = lowest(elem)
    return low if name == "reduce_max" else -int(low) - 1


def _reduce(c: Check) -> Sequence[Type]:
    t = c.tile(0, "a tile")
    if t.elem.is_bool:
        c.fail("E0323", f"'{c.name}' does not work on {t.elem}", 0, legal="convert<i32>(…) first")
    if t.elem.is_float and c.name in _BITWISE:
        c.fail("E0323", f"'{c.name}' does not work on {t.elem}", 0, legal="integers: i8, i16, i32, i64")
    if c.attrs.get("flush", False) and (c.name != "reduce_add" or t.elem != F32):
        c.fail("E0323", f"'{c.name}' of {t.elem} flushes nothing", 0, legal="reduce_add of f32")
    axis = check_axis(c, t)
    parts = c.attrs.get("parts", 1)
    inner = c.attrs.get("inner", 0)
    assert isinstance(parts, int) and isinstance(inner, int)
    if parts == 1:
        shape = tuple(1 if d == axis else n for d, n in enumerate(t.shape))
        return [TileType(t.elem, shape, t.layout.reduce(axis) if t.layout is not None else None)]
    if parts < 1 or inner < 1:
        c.fail("E0331", f"{parts} parts of runs of {inner} elements", 0, legal="parts and inner of at least 1")
    shape = tuple(parts if d == axis else n for d, n in enumerate(t.shape))
    want = c.wanted()
    layout = want.layout if isinstance(want, TileType) else None
    if (layout is None) != (t.layout is None):
        c.fail(
            "E0312",
            f"a partial '{c.name}' states the layout of its result",
            0,
            legal="write the result type with a layout",
        )
    return [TileType(t.elem, shape, layout)]


def _picked(c: Check, wanted: Elem, bools: bool) -> Sequence[Type]:
    """Reductions whose result has another element type: passes say them by others before there are layouts."""
    t = c.tile(0, "a tile")
    if t.elem.is_bool != bools:
        legal = "a comparison first" if bools else "convert<i32>(…) first"
        c.fail("E0323", f"'{c.name}' does not work on {t.elem}", 0, legal=legal)
    axis = check_axis(c, t)
    return [TileType(wanted, tuple(1 if d == axis else n for d, n in enumerate(t.shape)))]


def _value(f: Callable[[Any, int], Any], *, wide: bool) -> Any:
    """Reduces with `f(array, axis)`, which keeps the axis with size 1; `wide` ones see floats in f64 and are rounded."""

    def semantics(ctx: Any, op: Any, args: Sequence[Any]) -> Any:
        x = np.asarray(args[0])
        axis, parts, inner = op.attrs["axis"], op.attrs.get("parts", 1), op.attrs.get("inner", 0)
        elem = op.operands[0].tile.elem
        if wide and elem.is_float:
            x = x.astype(np.float64)
        if parts == 1:
            out = f(x, axis)
        else:
            missing = -x.shape[axis] % (parts * inner)
            rest = np.full((*x.shape[:axis], missing, *x.shape[axis + 1 :]), neutral(op.name, elem), x.dtype)
            x = np.concatenate([x, rest], axis=axis)
            split = (*x.shape[:axis], x.shape[axis] // (parts * inner), parts, inner, *x.shape[axis + 1 :])
            out = f(f(x.reshape(split), axis).take(0, axis), axis + 1).take(0, axis + 1)
        return numeric.convert_array(out, F64, elem) if wide and elem.is_float else out

    return semantics


def _add(x: Any, axis: int) -> Any:
    return np.sum(x, axis=axis, keepdims=True, dtype=x.dtype)


def _mul(x: Any, axis: int) -> Any:
    return np.prod(x, axis=axis, keepdims=True, dtype=x.dtype)


def _max(x: Any, axis: int) -> Any:
    return numeric.reduce_extremum(numeric.maximum, x, axis)


def _min(x: Any, axis: int) -> Any:
    return numeric.reduce_extremum(numeric.minimum, x, axis)


def _bitwise(f: Any) -> Callable[[Any, int], Any]:
    return lambda x, axis: f.reduce(x, axis=axis, keepdims=True)


def _position(extremum: Callable[[Any, int], Any]) -> Callable[[Any, Any, Sequence[Any]], Any]:
    """Semantics of `reduce_argmax` and `reduce_argmin`."""

    def semantics(ctx: Any, op: Any, args: Sequence[Any]) -> Any:
        x, axis = np.asarray(args[0]), op.attrs["axis"]
        return np.argmax(x == extremum(x, axis), axis=axis, keepdims=True).astype(np.int32)

    return semantics


for _name, _summary, _semantics in (
    (
        "reduce_add",
        "Sum along the axis, in unspecified but fixed order; the interpreter sums in f64 and rounds once. Integers wrap.",
        _value(_add, wide=True),
    ),
    (
        "reduce_max",
        "Maximum along the axis, with the rules of `max`: NaN only if all are NaN.",
        _value(_max, wide=False),
    ),
    (
        "reduce_min",
        "Minimum along the axis, with the rules of `min`: NaN only if all are NaN.",
        _value(_min, wide=False),
    ),
    ("reduce_and", "Bits that are set in every element along the axis.", _value(_bitwise(np.bitwise_and), wide=False)),
    ("reduce_or", "Bits that are set in any element along the axis.", _value(_bitwise(np.bitwise_or), wide=False)),
    (
        "reduce_xor",
        "Bits that are set in an odd number of elements along the axis.",
        _value(_bitwise(np.bitwise_xor), wide=False),
    ),
    (
        "reduce_mul",
        "Product along the axis, in unspecified but fixed order; the interpreter multiplies in f64 and rounds once. Integers wrap.",
        _value(_mul, wide=True),
    ),
):
    declare(
        OpDef(
            _name,
            f"{_summary} With `parts` = p and `inner` = n, element j of the axis counts to part (j / n) mod p; a part without elements is the neutral value.",
            ("x",),
            _reduce,
            attrs=(
                AttrSpec("parts", "int", default=1, doc="number of partial results that stay along the axis"),
                AttrSpec("inner", "int", default=0, doc="length of the runs that belong to one part"),
                AttrSpec(
                    "flush",
                    "bool",
                    default=False,
                    doc="`reduce_add` of f32: values below 2^-126 may count as 0, as in the dot products that then add 16-bit floats in pairs",
                ),
                AttrSpec("axis", "int", paren=True),
            ),
            category="reduce",
            semantics=_semantics,
            example=f"%s = {_name}(%v, axis = 0) : tile<i32[1]>"
            if _name in _BITWISE
            else f"%s = {_name}(%a, axis = 1) : tile<f32[64, 1]>",
        )
    )


for _name, _which, _extremum in (("reduce_argmax", "largest", _max), ("reduce_argmin", "smallest", _min)):
    declare(
        OpDef(
            _name,
            f"Position along the axis of the {_which} element, of equal ones (0 and -0 are equal) the first. NaN is passed over; if all are NaN "
            "the position is 0.",
            ("x",),
            lambda c: _picked(c, I32, bools=False),
            attrs=(AttrSpec("axis", "int", paren=True),),
            category="reduce",
            semantics=_position(_extremum),
            example=f"%s = {_name}(%a, axis = 1) : tile<i32[64, 1]>",
        )
    )
for _name, _summary, _test in (
    ("any", "True where any element along the axis is.", np.any),
    ("all", "True where every element along the axis is.", np.all),
):
    declare(
        OpDef(
            _name,
            _summary,
            ("x",),
            lambda c: _picked(c, I1, bools=True),
            attrs=(AttrSpec("axis", "int", paren=True),),
            category="reduce",
            semantics=lambda ctx, op, args, test=_test: test(args[0], axis=op.attrs["axis"], keepdims=True),
            example=f"%s = {_name}(%m, axis = 0) : tile<i1[1, 1]>",
        )
    )
