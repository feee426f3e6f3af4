"""Tiles that hold one value for a whole row or column, although their type does not say so: what a `broadcast` makes and control flow carries."""

from __future__ import annotations

from tileir.ir.core import Kernel, Value
from tileir.ir.registry import get
from tileir.ir.types import TileType
from tileir.passes.chains import Links
from tileir.passes.layout_classes import carried


def uniform_axes(kernel: Kernel) -> dict[Value, frozenset[int]]:
    """For tiles that control flow carries the axes along which all their elements are equal, where there are any."""
    sources: Links = {}
    for op in kernel.walk():
        if op.name not in ("for", "if", "guard"):
            continue
        for init, arg, out in carried(op):
            for v in (arg, out):
                sources.setdefault(v, []).append(init)
        # Elements whose masks differ have different values behind a guard.
        masks = [op.operands[0]] if op.name == "guard" and op.attrs.get("selects", True) else []
        for region in op.regions:
            for v, r in zip(region.terminator.operands, op.results, strict=True):
                sources.setdefault(r, []).extend([v, *masks])
            if op.name == "for":
                for v, a in zip(region.terminator.operands, region.args[1:], strict=True):
                    sources.setdefault(a, []).append(v)
    found = {v: frozenset(range(v.type.rank)) for v in sources if isinstance(v.type, TileType) and v.type.rank}
    changed = True
    while changed:
        changed = False
        for v, old in found.items():
            axes = old
            for source in sources[v]:
                axes &= _along(source, v.tile.rank, found, {})
            if axes != old:
                found[v] = axes
                changed = True
    return {v: axes for v, axes in found.items() if axes}


def axes_of(v: Value, carried: dict[Value, frozenset[int]]) -> frozenset[int]:
    """The axes along which all elements of any tile are equal; `carried` is what `uniform_axes` found for the kernel."""
    return _along(v, v.tile.rank, carried, {})


def _axes(v: Value, carried: dict[Value, frozenset[int]], known: dict[Value, frozenset[int]]) -> frozenset[int]:
    """The axes of a value, if those of carried values are as stated."""
    if not isinstance(v.type, TileType):
        return frozenset()
    every = frozenset(range(v.type.rank))
    if v.type.is_scalar:
        return every
    if v in carried:
        return carried[v]
    if v in known:
        return known[v]
    op = v.owner
    axes: frozenset[int] = frozenset()
    if op is not None and op.name == "fill":
        axes = every
    elif op is not None and (op.name == "broadcast" or get(op.name).elementwise):
        axes = every
        for x in op.operands:
            axes &= _along(x, v.type.rank, carried, known)
    known[v] = axes
    return axes


def _along(
    x: Value, rank: int, carried: dict[Value, frozenset[int]], known: dict[Value, frozenset[int]]
) -> frozenset[int]:
    """The axes of a tile of `rank` axes along which what comes from its operand `x` is equal."""
    if x.tile.is_scalar:
        return frozenset(range(rank))
    if x.tile.rank != rank:
        return frozenset()
    return _axes(x, carried, known) | {d for d, n in enumerate(x.tile.shape) if n == 1}


__all__ = ["axes_of", "uniform_axes"]
