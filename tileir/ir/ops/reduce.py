"""Reductions along an axis; the reduced dimension stays with size 1 (or `parts`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tileir.ir.ops import numeric
from tileir.ir.ops.common import check_axis
from tileir.ir.registry import AttrSpec, Check, OpDef, declare
from tileir.ir.types import F64, Elem, TileType, Type


def neutral(name: str, elem: Elem) -> int | float:
    """The value that does not change the reduction: also what a part without elements is. Maxima ignore NaN, so it is their
    neutral element for floats; sums of zeros keep their sign, so theirs is -0."""
    if name == "reduce_add":
        return -0.0 if elem.is_float else 0
    if name == "reduce_mul":
        return 1
    if elem.is_float:
        return float("nan")
    low = -(1 << (elem.bits - 1))
    return low if name == "reduce_max" else -low - 1


def _reduce(c: Check) -> Sequence[Type]:
    t = c.tile(0, "a tile")
    if t.elem.is_bool:
        c.fail("E0323", f"'{c.name}' does not work on {t.elem}", 0, legal="convert<i32>(…) first")
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
                AttrSpec("axis", "int", paren=True),
            ),
            category="reduce",
            semantics=_semantics,
            example=f"%s = {_name}(%a, axis = 1) : tile<f32[64, 1]>",
        )
    )
