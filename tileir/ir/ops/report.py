"""Ops that say something to the host: `print` and `assert`."""

from __future__ import annotations

from collections.abc import Sequence

from tileir.ir import reports
from tileir.ir.registry import AttrSpec, Check, OpDef, declare
from tileir.ir.types import I32, TileType, Type, scalar

_IDS = AttrSpec("ids", "int", default=0, doc="operands at the end that are the position in the grid; set by a pass")


def _values(c: Check, first: int) -> list[TileType]:
    """The values of the message: scalars and tiles of elements with a form in memory. Checks the message and the positions."""
    ids, message = c.attrs.get("ids", 0), c.attrs.get("message", "")
    assert isinstance(ids, int) and isinstance(message, str)
    end = len(c.operands) - ids
    if not 0 <= ids <= 3 or end < first or any(t != scalar(I32) for t in c.operands[end:]):
        c.fail(
            "E0391", f"'{c.name}' with ids = {ids}", legal="as many i32 scalars at the end as the grid has dimensions"
        )
    tiles = [c.tile(i) for i in range(first, end)]
    try:
        places = len(reports.pieces(message)) - 1
    except ValueError:
        c.fail("E0390", f"the message of '{c.name}' has a single brace", legal="{} for a value, {{ or }} for a brace")
    if places != len(tiles):
        c.fail(
            "E0390", f"the message of '{c.name}' has {places} places for {len(tiles)} values", legal="one {} per value"
        )
    return tiles


def _print(c: Check) -> Sequence[Type]:
    _values(c, 0)
    limit = c.attrs.get("limit", reports.SHOWN_ELEMENTS)
    assert isinstance(limit, int)
    if not 1 <= limit <= reports.CAPACITY:
        c.fail("E0391", f"'print' of {limit} elements", legal=f"a limit from 1 to {reports.CAPACITY}")
    return []


declare(
    OpDef(
        "print",
        "Prints a line once per workgroup: the message with the values in the places of `{}`. Of tiles the first `limit` elements are "
        "shown, with coordinates.",
        ("value*",),
        _print,
        attrs=(
            AttrSpec("message", "text", positional=True),
            AttrSpec("limit", "int", default=reports.SHOWN_ELEMENTS),
            _IDS,
        ),
        effects=frozenset({"host"}),
        category="program",
        semantics=lambda ctx, op, args: ctx.print(op, args),
        example='print<"a = {}, from {}", limit = 4>(%a, %i)',
    )
)


def _assert(c: Check) -> Sequence[Type]:
    condition = c.tile(0)
    if not condition.elem.is_bool:
        c.fail("E0392", f"'assert' wants i1, not {condition}", 0, legal="a comparison, for a scalar or a tile")
    for i, t in enumerate(_values(c, 1), 1):
        if not t.is_scalar and (t.shape != condition.shape or (t.layout != condition.layout)):
            c.fail(
                "E0392",
                f"'assert' of {condition} with a value {t}",
                i,
                legal="scalars, and tiles of the condition's shape and layout",
            )
    return []


declare(
    OpDef(
        "assert",
        "Stops the launch with an error where the condition is false: a scalar, or a tile of which every element must be true. The "
        "message shows scalars, and the values of tiles at the element that fails.",
        ("condition", "value*"),
        _assert,
        attrs=(AttrSpec("message", "text", default="", positional=True), _IDS),
        effects=frozenset({"host"}),
        literals=("i1", ""),
        category="program",
        semantics=lambda ctx, op, args: ctx.check(op, args),
        example='assert<"a is {} in row {}">(%a < 100.0, %a, %i)',
    )
)
