"""Ops that take tiles apart and put them together at places that the text states."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tileir.ir.core import Op
from tileir.ir.ops.common import check_axis, check_shape, same_elem, wanted_layout
from tileir.ir.registry import AttrSpec, Check, OpDef, declare
from tileir.ir.types import TileType, Type


def _numbers(attrs: Mapping[str, Any], name: str) -> tuple[int, ...]:
    value = attrs[name]
    assert isinstance(value, tuple)
    return value


def places(op: Op) -> list[tuple[TileType, tuple[int, ...]]]:
    """The smaller tiles of the op with their places in the large one."""
    match op.name:
        case "slice":
            return [(op.result.tile, _numbers(op.attrs, "offsets"))]
        case "insert":
            return [(op.operands[1].tile, _numbers(op.attrs, "offsets"))]
        case _:
            axis, at = op.attrs["axis"], 0
            found: list[tuple[TileType, tuple[int, ...]]] = []
            for v in op.operands:
                found.append((v.tile, tuple(at if d == axis else 0 for d in range(v.tile.rank))))
                at += v.tile.shape[axis]  # type: ignore[index]
            return found


def whole(op: Op) -> TileType:
    """The large tile."""
    return op.operands[0].tile if op.name == "slice" else op.result.tile


def grains(op: Op) -> dict[int, int]:
    """For each dimension in which tiles of the op differ the largest power of two that divides all sizes and places."""
    large = whole(op)
    found: dict[int, int] = {}
    for d in range(large.rank):
        numbers = [n for t, at in places(op) for n in (t.shape[d], at[d])]
        if any(t.shape[d] != large.shape[d] for t, _ in places(op)):
            step = math.gcd(large.shape[d], *numbers)
            found[d] = step & -step
    return found


def _fits(c: Check, large: TileType, small: tuple[int, ...], at: tuple[int, ...], operand: int) -> None:
    inside = len(small) == len(at) == large.rank and large.rank > 0
    if not inside or any(a < 0 or a + n > m for a, n, m in zip(at, small, large.shape, strict=True)):
        c.fail(
            "E0376",
            f"a tile of {list(small)} at {list(at)} does not lie in {list(large.shape)}",
            operand,
            legal="a place and a size for each dimension that stay inside",
        )


def _slice(c: Check) -> Sequence[Type]:
    t = c.tile(0, "a tile")
    offsets, shape = _numbers(c.attrs, "offsets"), _numbers(c.attrs, "shape")
    check_shape(c, shape)
    _fits(c, t, shape, offsets, 0)
    return [TileType(t.elem, shape, wanted_layout(c, shape))]


declare(
    OpDef(
        "slice",
        "The part of a tile that begins at `offsets` and has the shape `shape`.",
        ("x",),
        _slice,
        attrs=(
            AttrSpec("offsets", "shape", positional=True, doc="first element in each dimension"),
            AttrSpec("shape", "shape", positional=True),
        ),
        category="assemble",
        semantics=lambda ctx, op, args: np.ascontiguousarray(
            args[0][tuple(slice(a, a + n) for a, n in zip(op.attrs["offsets"], op.attrs["shape"], strict=True))]
        ),
        example="%y = slice<[0, 32], [64, 32]>(%a) : tile<f32[64, 32]>",
    )
)


def _insert(c: Check) -> Sequence[Type]:
    t, part = c.tile(0, "a tile"), c.tile(1, "a tile")
    same_elem(c, [t, part])
    _fits(c, t, part.shape, _numbers(c.attrs, "offsets"), 1)
    return [TileType(t.elem, t.shape, wanted_layout(c, t.shape) or t.layout)]


def _inserted(ctx: Any, op: Op, args: Sequence[Any]) -> Any:
    out = np.array(args[0])
    out[tuple(slice(a, a + n) for a, n in zip(_numbers(op.attrs, "offsets"), args[1].shape, strict=True))] = args[1]
    return out


declare(
    OpDef(
        "insert",
        "A tile in which another one replaces the elements from `offsets` on.",
        ("x", "part"),
        _insert,
        attrs=(AttrSpec("offsets", "shape", positional=True, doc="first replaced element in each dimension"),),
        category="assemble",
        semantics=_inserted,
        example="%y = insert<[0, 32]>(%a, %s) : tile<f32[64, 64]>",
    )
)


def _concat(c: Check) -> Sequence[Type]:
    tiles = [c.tile(i, "a tile") for i in range(len(c.operands))]
    if not tiles:
        c.fail("E0376", "'concat' of no tiles", legal="one tile or more")
    elem, axis, first = same_elem(c, tiles), check_axis(c, tiles[0]), tiles[0]
    for i, t in enumerate(tiles):
        if t.rank != first.rank or any(d != axis and n != first.shape[d] for d, n in enumerate(t.shape)):
            c.fail(
                "E0376",
                f"'concat' of {list(first.shape)} and {list(t.shape)} along axis {axis}",
                i,
                legal="tiles of one rank that differ in that dimension only",
            )
    shape = tuple(sum(t.shape[d] for t in tiles) if d == axis else n for d, n in enumerate(first.shape))
    return [TileType(elem, shape, wanted_layout(c, shape))]


declare(
    OpDef(
        "concat",
        "Tiles one behind the other along an axis.",
        ("x*",),
        _concat,
        attrs=(AttrSpec("axis", "int", paren=True),),
        category="assemble",
        semantics=lambda ctx, op, args: np.concatenate(args, axis=op.attrs["axis"]),
        example="%y = concat(%a, %b, axis = 0) : tile<f32[128, 64]>",
    )
)
