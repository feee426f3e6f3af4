"""Ops that make tiles from nothing: constants, fill, iota."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tileir.ir.core import Op
from tileir.ir.ops import numeric
from tileir.ir.ops.common import check_shape, wanted_layout
from tileir.ir.registry import AttrSpec, Check, OpDef, declare, format_attr
from tileir.ir.types import F32, F64, I1, I32, Elem, TileType, Type, scalar


def _constant(c: Check) -> Sequence[Type]:
    value, want = c.attrs["value"], c.wanted()
    if want is None:
        return [scalar(I1 if isinstance(value, bool) else F32 if isinstance(value, float) else I32)]
    if not isinstance(want, TileType) or not want.is_scalar:
        c.fail("E0318", f"a constant is a scalar, not {want}", legal="fill(value) : tile<…> makes a tile")
    elem = want.elem
    if isinstance(value, bool) != elem.is_bool:
        c.fail(
            "E0319", f"{format_attr(value)} is not a value of {elem}", legal="true or false for i1, numbers otherwise"
        )
    if elem.is_int:
        if not isinstance(value, int):
            c.fail("E0319", f"{format_attr(value)} is not a value of {elem}", legal="an integer literal, or convert")
        low, high = -(1 << (elem.bits - 1)), (1 << elem.bits) - 1
        if not low <= value <= high:
            c.fail("E0320", f"{value} does not fit in {elem}", legal=f"{low} to {high}")
    return [want]


declare(
    OpDef(
        "constant",
        "A scalar literal. Integers from -2^(n-1) to 2^n - 1 fit an n-bit type; float values are rounded to nearest even.",
        (),
        _constant,
        attrs=(AttrSpec("value", "constant", positional=True),),
        category="create",
        semantics=lambda ctx, op, args: ctx.constant(op.attrs["value"], op.results[0].tile.elem),
        example="%one = constant<1.0>() : f32",
    )
)


def _fill(c: Check) -> Sequence[Type]:
    value, want = c.tile(0, "a scalar"), c.wanted()
    if not value.is_scalar:
        c.fail("E0321", f"'fill' repeats a scalar, not {value}", 0, legal="broadcast<[…]>(…) for tiles")
    if not isinstance(want, TileType):
        c.fail("E0322", "'fill' needs its result type", legal="fill(0.0) : tile<f32[64, 64]>")
    if want.elem != value.elem:
        c.fail("E0313", f"'fill' of {want.elem} with a value of {value.elem}", 0, legal=f"convert<{want.elem}>(…)")
    check_shape(c, want.shape)
    return [want]


declare(
    OpDef(
        "fill",
        "A tile with every element equal to the scalar operand.",
        ("value",),
        _fill,
        literals=("result",),
        category="create",
        semantics=lambda ctx, op, args: np.full(op.results[0].tile.shape, args[0], op.results[0].tile.elem.np),
        example="%z = fill(%zero) : tile<f32[64, 64]>",
    )
)


def _iota(c: Check) -> Sequence[Type]:
    shape = c.attrs["shape"]
    assert isinstance(shape, tuple)
    check_shape(c, shape)
    axis = c.attrs.get("axis", 0)
    assert isinstance(axis, int)
    if not 0 <= axis < len(shape):
        c.fail("E0314", f"'iota' of shape {list(shape)} has no axis {axis}", legal=f"axis 0 to {len(shape) - 1}")
    return [TileType(I32, shape, wanted_layout(c, shape))]


def _iota_value(shape: tuple[int, ...], axis: int) -> np.ndarray:
    index = np.arange(shape[axis], dtype=np.int32).reshape([-1 if d == axis else 1 for d in range(len(shape))])
    return np.broadcast_to(index, shape).copy()


declare(
    OpDef(
        "iota",
        "A tile of i32 whose element is its own index along `axis`.",
        (),
        _iota,
        attrs=(AttrSpec("shape", "shape", positional=True), AttrSpec("axis", "int", default=0, paren=True)),
        category="create",
        semantics=lambda ctx, op, args: _iota_value(op.attrs["shape"], op.attrs.get("axis", 0)),
        example="%r = iota<[64, 1]>(axis = 0) : tile<i32[64, 1]>",
    )
)


def table_values(op: Op) -> npt.NDArray[Any]:
    """The elements of a table in its element type."""
    elem, values = op.attrs["elem"], op.attrs["values"]
    assert isinstance(elem, Elem) and isinstance(values, tuple)
    if elem.is_int:
        return np.array([int(v) & ((1 << 64) - 1) for v in values], np.uint64).astype(elem.np)  # type: ignore[arg-type]
    return np.asarray(numeric.convert_array(np.array(values, np.float64), F64, elem))


def _table(c: Check) -> Sequence[Type]:
    elem, values = c.attrs["elem"], c.attrs["values"]
    assert isinstance(elem, Elem) and isinstance(values, tuple)
    if elem.is_bool or elem.bits % 8:
        c.fail("E0323", f"'table' does not hold {elem}", legal="elements of whole bytes; convert afterwards")
    check_shape(c, (len(values),))
    for v in values:
        if elem.is_int:
            if not isinstance(v, int):
                c.fail("E0319", f"{format_attr(v)} is not a value of {elem}", legal="integers")  # type: ignore[arg-type]
            low, high = -(1 << (elem.bits - 1)), (1 << elem.bits) - 1
            if not low <= v <= high:
                c.fail("E0320", f"{v} does not fit in {elem}", legal=f"{low} to {high}")
    return [TileType(elem, (len(values),), wanted_layout(c, (len(values),)))]


declare(
    OpDef(
        "table",
        "A tile of constants, written one by one. Floats are rounded to nearest even. (The table is part of the code object; each use "
        "reads it from memory.)",
        (),
        _table,
        attrs=(AttrSpec("elem", "elem", positional=True), AttrSpec("values", "numbers", positional=True)),
        category="create",
        semantics=lambda ctx, op, args: table_values(op),
        example="%y = table<f32, [0.0, 0.5, 1.5, -inf]>() : tile<f32[4]>",
    )
)
