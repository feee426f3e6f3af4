"""Running totals along an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tileir.ir.ops import numeric
from tileir.ir.ops.common import check_axis
from tileir.ir.ops.reduce import lowest
from tileir.ir.registry import AttrSpec, Check, OpDef, declare
from tileir.ir.types import F64, Elem, TileType, Type


def identity(name: str, elem: Elem) -> int | float:
    """What an exclusive scan begins with."""
    kind = name.removeprefix("scan_")
    if kind in ("add", "mul"):
        return 0 if kind == "add" else 1
    low = lowest(elem)
    return low if kind == "max" else -low if elem.is_float else -low - 1


def _rule(c: Check) -> Sequence[Type]:
    t = c.tile(0, "a tile")
    if t.elem.is_bool:
        c.fail("E0323", f"'{c.name}' does not work on {t.elem}", 0, legal="convert<i32>(…) first")
    axis = check_axis(c, t)
    parts, inner = c.attrs.get("parts", 1), c.attrs.get("inner", 0)
    assert isinstance(parts, int) and isinstance(inner, int)
    if len(c.operands) > 2 or (len(c.operands) == 2) != (parts > 1):
        c.fail(
            "E0302", f"'{c.name}' with {len(c.operands)} operands and {parts} parts", legal="one total for every part"
        )
    if parts > 1:
        before = c.tile(1, "a tile")
        shape = tuple(parts if d == axis else n for d, n in enumerate(t.shape))
        if inner < 1 or inner * parts < t.shape[axis]:
            c.fail("E0331", f"{parts} parts of {inner} elements", 0, legal=f"parts that hold {t.shape[axis]} elements")
        if before.shape != shape or before.elem != t.elem:
            c.fail("E0331", f"totals of parts as {before.with_layout(None)}", 1, legal=str(TileType(t.elem, shape)))
    return [t]


_UPDATES: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "max": numeric.maximum,
    "min": numeric.minimum,
}


def _scan(kind: str, x: Any, first: Any, exclusive: bool) -> Any:
    """Running totals along axis 0, from `first` on if it is not None."""
    out = np.empty_like(x)
    total = first
    for i in range(len(x)):
        if exclusive:
            out[i] = total
        total = x[i] if total is None else _UPDATES[kind](total, x[i])
        if not exclusive:
            out[i] = total
    return out


def _semantics(ctx: Any, op: Any, args: Sequence[Any]) -> Any:
    kind, axis = op.name.removeprefix("scan_"), op.attrs["axis"]
    elem = op.operands[0].tile.elem
    reverse, exclusive = op.attrs.get("reverse", False), op.attrs.get("exclusive", False)
    wide = elem.is_float and kind in ("add", "mul")
    x, *before = (np.moveaxis(np.asarray(a), axis, 0) for a in args)
    if wide:
        x, before = x.astype(np.float64), [b.astype(np.float64) for b in before]
    first = ctx.constant(identity(op.name, elem), elem).astype(x.dtype) if exclusive else None
    first = None if first is None else np.broadcast_to(first, x.shape[1:])
    inner = op.attrs.get("inner", 0) or len(x)
    runs = [x[i : i + inner] for i in range(0, len(x), inner)]
    numbers = range(len(runs))
    out: list[Any] = [None] * len(runs)
    for i in reversed(numbers) if reverse else numbers:
        run = runs[i][::-1] if reverse else runs[i]
        done = _scan(kind, run, first, exclusive)
        out[i] = done[::-1] if reverse else done
        if before:  # parts: the totals are handed in
            first = before[0][i] if first is None else _UPDATES[kind](first, before[0][i])
    y = np.moveaxis(np.concatenate(out), 0, axis)
    return numeric.convert_array(y, F64, elem) if wide else np.ascontiguousarray(y)


for _name, _what in (
    (
        "scan_add",
        "sums; integers wrap, floats are added in unspecified but fixed order (the interpreter adds in f64 and rounds once)",
    ),
    (
        "scan_mul",
        "products; integers wrap, floats are multiplied in unspecified but fixed order (the interpreter in f64, rounded once)",
    ),
    ("scan_max", "maxima, with the rules of `max`: NaN until there is a number"),
    ("scan_min", "minima, with the rules of `min`: NaN until there is a number"),
):
    declare(
        OpDef(
            _name,
            f"Running {_what}. Element i of the axis of the result is made of elements 0 to i; with `exclusive` of "
            "those before i and of what changes nothing (0, 1, the lowest or highest value; infinities for floats), which is element 0; "
            "with `reverse` from the end. At the wave level `before` holds the total of each of `parts` runs of `inner` elements.",
            ("x", "before*"),
            _rule,
            attrs=(
                AttrSpec("exclusive", "bool", default=False, doc="an element does not count for its own result"),
                AttrSpec("reverse", "bool", default=False, doc="from the last element to the first"),
                AttrSpec("parts", "int", default=1, doc="runs whose totals are given"),
                AttrSpec("inner", "int", default=0, doc="elements of one such run"),
                AttrSpec("axis", "int", paren=True),
            ),
            category="scan",
            semantics=_semantics,
            example=f"%y = {_name}(%a, axis = 1) : tile<f32[64, 64]>",
        )
    )
