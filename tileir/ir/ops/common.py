"""Rules that several families of ops share: broadcasting, layouts of elementwise results, axes."""

from __future__ import annotations

from collections.abc import Sequence

from tileir.ir.registry import Check
from tileir.ir.types import Elem, TileType
from tileir.layout.linear import Layout, LayoutError, broadcast_source


def broadcast_shape(c: Check, tiles: Sequence[TileType]) -> tuple[int, ...]:
    """Common shape: scalars broadcast to any tile; tiles of equal rank broadcast in dimensions of size 1."""
    shape: tuple[int, ...] = ()
    for i, t in enumerate(tiles):
        if t.is_scalar:
            continue
        if not shape:
            shape = t.shape
            continue
        if len(shape) != t.rank:
            c.fail(
                "E0310",
                f"'{c.name}' mixes tiles of rank {len(shape)} and {t.rank}",
                i,
                legal="reshape one of them so that the ranks match",
            )
        for d, (a, b) in enumerate(zip(shape, t.shape, strict=True)):
            if a != b and a != 1 and b != 1:
                c.fail(
                    "E0311",
                    f"'{c.name}' cannot broadcast {list(shape)} with {list(t.shape)}: dimension {d} is {a} and {b}",
                    i,
                    legal="equal sizes, or 1 in one of them",
                )
        shape = tuple(max(a, b) for a, b in zip(shape, t.shape, strict=True))
    return shape


def elementwise_layout(c: Check, shape: tuple[int, ...], tiles: Sequence[TileType]) -> Layout | None:
    """Layout of an elementwise result: that of the full-size operands, which must agree; operands with broadcast
    dimensions must be laid out so that every lane already holds what it needs."""
    if not shape:
        return None
    layout: Layout | None = None
    full = [(i, t) for i, t in enumerate(tiles) if t.shape == shape]
    if full:
        layout = full[0][1].layout
    else:
        want = c.wanted()
        layout = want.layout if isinstance(want, TileType) and want.shape == shape else None
    for i, t in enumerate(tiles):
        if t.is_scalar:
            continue
        need = None
        if layout is not None:
            need = layout if t.shape == shape else broadcast_source(layout, t.shape)
        if t.layout != need:
            c.fail(
                "E0312",
                f"operand {i} of '{c.name}' has layout {t.layout}, but the result's layout needs {need}",
                i,
                legal="convert_layout the operand first",
            )
    return layout


def same_elem(c: Check, tiles: Sequence[TileType], first: int = 0) -> Elem:
    """The element type that all operands share."""
    elem = tiles[first].elem
    for i, t in enumerate(tiles):
        if i >= first and t.elem != elem:
            c.fail(
                "E0313",
                f"'{c.name}' mixes {elem} and {t.elem}; run-time values never convert implicitly",
                i,
                legal=f"convert<{elem}>(…)",
            )
    return elem


def check_axis(c: Check, t: TileType) -> int:
    """The attribute `axis`, which must name a dimension of the tile."""
    axis = c.attrs["axis"]
    assert isinstance(axis, int)
    if not 0 <= axis < t.rank:
        dims = f"0 to {t.rank - 1}" if t.rank else "no axis: the operand is a scalar"
        c.fail(
            "E0314", f"'{c.name}' has axis {axis}, but its operand is {t.with_layout(None)}", 0, legal=f"axis {dims}"
        )
    return axis


def wanted_layout(c: Check, shape: tuple[int, ...]) -> Layout | None:
    """The layout written on the result type, for ops that leave it open (load, fill, …)."""
    want = c.wanted()
    if isinstance(want, TileType) and want.layout is not None and want.shape == shape:
        return want.layout
    return None


def check_shape(c: Check, shape: tuple[int, ...], what: str = "tile") -> None:
    """A tile shape must have rank 0 to 3 and sizes of at least 1."""
    if len(shape) > 3:
        c.fail("E0315", f"a {what} of rank {len(shape)} is not possible", legal="ranks 0 to 3")
    if any(d < 1 for d in shape):
        c.fail("E0316", f"a {what} of shape {list(shape)} is not possible", legal="sizes of at least 1")


__all__ = [
    "LayoutError",
    "broadcast_shape",
    "check_axis",
    "check_shape",
    "elementwise_layout",
    "same_elem",
    "wanted_layout",
]
