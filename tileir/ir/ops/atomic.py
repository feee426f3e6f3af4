"""Atomic updates of views, and the fences that passes make of their orderings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tileir.ir.core import Op
from tileir.ir.ops import numeric
from tileir.ir.ops.memory import ACCESS_ATTRS, access_shape
from tileir.ir.registry import AttrSpec, Check, OpDef, declare
from tileir.ir.types import GlobalType, TileType, Type

SCOPES = ("workgroup", "device", "system")
ORDERINGS = ("relaxed", "acquire", "release", "acq_rel")
OPTIONAL_RESULT = "optional_result"
"""Trait of ops that may stand as a statement without a name for their result."""

_NUMBERS = ("i32", "i64", "f32", "f64")
_INTEGERS = ("i32", "i64")
Update = Callable[..., Any]


def is_atomic(op: Op) -> bool:
    """Whether the op is an atomic update of a view."""
    return op.name in UPDATES


def has_updates_that_commute(op: Op) -> bool:
    """Whether the order of this op and another one of the same name means nothing: nobody sees what was there before."""
    return op.name in UPDATES and op.name not in ("atomic_xchg", "atomic_cas") and not op.results


def _bits(x: Any) -> Any:
    return np.asarray(x).view(f"u{np.asarray(x).dtype.itemsize}")


def _compare_and_swap(old: Any, expected: Any, desired: Any) -> Any:
    return np.where(_bits(old) == _bits(np.broadcast_to(expected, old.shape).copy()), desired, old)


# name → (element types, what an update makes of the old value and the operands, what it is)
UPDATES: dict[str, tuple[tuple[str, ...], Update, str]] = {
    "atomic_add": (
        (*_NUMBERS, "f16", "bf16"),
        lambda old, x: old + x,
        "the sum; integers wrap, floats round once per update",
    ),
    "atomic_max": (_NUMBERS, numeric.maximum, "the maximum, with the rules of `max`"),
    "atomic_min": (_NUMBERS, numeric.minimum, "the minimum, with the rules of `min`"),
    "atomic_and": (_INTEGERS, lambda old, x: old & x, "the bits that are set in both"),
    "atomic_or": (_INTEGERS, lambda old, x: old | x, "the bits that are set in either"),
    "atomic_xor": (_INTEGERS, lambda old, x: old ^ x, "the bits that are set in one of them"),
    "atomic_xchg": (_NUMBERS, lambda old, x: x, "`value`"),
    "atomic_cas": (
        _NUMBERS,
        _compare_and_swap,
        "`desired` where the old bits equal those of `expected`, and stay as they are elsewhere",
    ),
}


def _atomic(c: Check) -> Sequence[Type]:
    count = 2 if c.name == "atomic_cas" else 1
    shape = access_shape(c, count)
    view = c.operands[count]
    assert isinstance(view, GlobalType)
    legal = UPDATES[c.name][0]
    if view.elem.name not in legal:
        c.fail("E0411", f"'{c.name}' on a view of {view.elem}", count, legal=f"a view of {', '.join(legal)}")
    layout = None
    for i in range(count):
        value = c.tile(i)
        if value.elem != view.elem:
            c.fail(
                "E0313", f"a value of {value.elem} updates a view of {view.elem}", i, legal=f"convert<{view.elem}>(…)"
            )
        if value.shape not in ((), shape):
            c.fail(
                "E0408",
                f"a tile of shape {list(value.shape)} updates a span of {list(shape)}",
                i,
                legal="equal shapes, or a scalar",
            )
        layout = layout or value.layout
    return [] if c.num_results == 0 else [TileType(view.elem, shape, layout if shape else None)]


def _semantics(ctx: Any, op: Any, args: Sequence[Any]) -> Any:
    count = 2 if op.name == "atomic_cas" else 1
    old = ctx.update(op, UPDATES[op.name][1], args[:count], args[count], args[count + 1 :])
    return old if op.results else ()


for _name, (_elems, _, _what) in UPDATES.items():
    _values = ("expected", "desired") if _name == "atomic_cas" else ("value",)
    _call = "%i, %j" if _name == "atomic_cas" else "%j"
    declare(
        OpDef(
            _name,
            f"Replaces each element that the access spans, in one indivisible step, by {_what}. On {', '.join(_elems)}. A scalar operand counts for "
            "every element. Elements outside the view are left out. Elements are updated in any order, every one once for each time "
            "that the access names it (rows picked twice, strides of 0). The result is what was there before the element's own update, "
            "0 outside the view; it may be left away: the call is then a statement of its own. `ordering` is that of the whole workgroup.",
            (*_values, "access"),
            _atomic,
            attrs=(
                AttrSpec(
                    "scope",
                    "word",
                    default="device",
                    choices=SCOPES,
                    doc="who sees the step as indivisible and in order",
                ),
                AttrSpec(
                    "ordering",
                    "word",
                    default="relaxed",
                    choices=ORDERINGS,
                    doc="what is ordered with it, see Memory order",
                ),
                *ACCESS_ATTRS,
            ),
            level="both",
            effects=frozenset({"read", "write", "atomic"}),
            category="atomic",
            traits=frozenset({OPTIONAL_RESULT}),
            semantics=_semantics,
            example=f"%old = {_name}({_call}, %I[%i +: 64]) : tile<i32[64]>",
        )
    )


declare(
    OpDef(
        "fence",
        "Orders the accesses of this wave to views. `release`: those before it are visible in `scope` before any access behind it. "
        "`acquire`: those behind it see whatever was visible in `scope` when the accesses before it were done.",
        (),
        lambda c: [],
        attrs=(
            AttrSpec("ordering", "word", positional=True, choices=("acquire", "release")),
            AttrSpec("scope", "word", default="device", choices=SCOPES),
        ),
        level="wave",
        effects=frozenset({"sync"}),
        category="wave",
        semantics=lambda ctx, op, args: None,
        example="fence<release>()",
    )
)
