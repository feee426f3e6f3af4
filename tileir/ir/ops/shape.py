"""Ops that rearrange the shape of a tile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tileir.ir.ops.common import LayoutError, check_shape, wanted_layout
from tileir.ir.registry import AttrSpec, Check, OpDef, declare
from tileir.ir.types import TileType, Type
from tileir.layout.linear import broadcast_source


def permutation(op_attrs: Mapping[str, object], rank: int) -> tuple[int, ...]:
    """The attribute `perm`, by default exchanging the last two dimensions."""
    perm = op_attrs.get("perm", ())
    assert isinstance(perm, tuple)
    return perm or (*range(rank - 2), rank - 1, rank - 2)


def _transpose(c: Check) -> Sequence[Type]:
    t = c.tile(0, "a tile")
    if t.rank < 2:
        c.fail("E0326", f"'transpose' of {t.with_layout(None)}", 0, legal="a tile of rank 2 or 3")
    perm = permutation(c.attrs, t.rank)
    if sorted(perm) != list(range(t.rank)):
        c.fail(
            "E0327",
            f"{list(perm)} is no permutation of {t.rank} dimensions",
            0,
            legal=f"each of 0 to {t.rank - 1} once",
        )
    layout = t.layout.transpose(perm) if t.layout is not None else None
    return [TileType(t.elem, tuple(t.shape[p] for p in perm), layout)]


declare(
    OpDef(
        "transpose",
        "Exchanges dimensions: result dimension d is dimension perm[d] of the operand; by default the last two change places.",
        ("x",),
        _transpose,
        attrs=(AttrSpec("perm", "shape", default=(), positional=True),),
        category="shape",
        semantics=lambda ctx, op, args: np.transpose(args[0], permutation(op.attrs, np.ndim(args[0]))),
        example="%t = transpose(%a) : tile<f32[64, 64]>",
    )
)


def _reshape(c: Check) -> Sequence[Type]:
    t = c.tile(0, "a tile")
    shape = c.attrs["shape"]
    assert isinstance(shape, tuple)
    check_shape(c, shape)
    new = TileType(t.elem, shape)
    if new.size != t.size:
        c.fail(
            "E0328",
            f"'reshape' of {t.size} elements to {list(shape)} ({new.size} elements)",
            0,
            legal=f"{t.size} elements in all",
        )
    layout = wanted_layout(c, shape)
    if t.layout is not None and shape and layout is None:
        try:
            layout = t.layout.reshape(shape)
        except LayoutError as e:
            c.fail(
                "E0329",
                f"this layout cannot be reshaped without moving data: {e}",
                0,
                legal="write the result type with the layout to move to",
            )
    return [TileType(t.elem, shape, layout)]


def reshapes_in_place(source: TileType, result: TileType) -> bool:
    """Whether a reshape leaves every element in its register."""
    if source.layout is None or result.layout is None:
        return True
    try:
        return source.layout.reshape(result.shape) == result.layout
    except LayoutError:
        return False


declare(
    OpDef(
        "reshape",
        "The same elements in row-major order under another shape.",
        ("x",),
        _reshape,
        attrs=(AttrSpec("shape", "shape", positional=True),),
        category="shape",
        semantics=lambda ctx, op, args: np.reshape(args[0], op.attrs["shape"]),
        example="%t = reshape<[4096]>(%a) : tile<f32[4096]>",
    )
)


def _broadcast(c: Check) -> Sequence[Type]:
    t = c.tile(0)
    shape = c.attrs["shape"]
    assert isinstance(shape, tuple)
    check_shape(c, shape)
    if t.rank not in (0, len(shape)) or any(a not in (1, b) for a, b in zip(t.shape, shape, strict=False)):
        c.fail(
            "E0330", f"'broadcast' of {list(t.shape)} to {list(shape)}", 0, legal="equal ranks, size 1 where it grows"
        )
    layout = wanted_layout(c, shape)
    if not t.is_scalar and t.layout != (broadcast_source(layout, t.shape) if layout is not None else None):
        c.fail(
            "E0312",
            f"the operand's layout {t.layout} does not fit the result's {layout}",
            0,
            legal="convert_layout first",
        )
    return [TileType(t.elem, shape, layout)]


declare(
    OpDef(
        "broadcast",
        "Repeats dimensions of size 1 up to the given shape.",
        ("x",),
        _broadcast,
        attrs=(AttrSpec("shape", "shape", positional=True),),
        category="shape",
        semantics=lambda ctx, op, args: np.broadcast_to(args[0], op.attrs["shape"]).copy(),
        example="%t = broadcast<[64, 64]>(%s) : tile<f32[64, 64]>",
    )
)
