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
        for region in op.regions:
            for v, r in zip(region.terminator.operands, op.results, strict=True):
                sources.setdefault(r, []).append(v)
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
                axes &= _axes(source, found, {})
            if axes != old:
                found[v] = axes
                changed = True
    return {v: axes for v, axes in found.items() if axes}


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
            if x.tile.is_scalar:
                continue
            single = frozenset(d for d, n in enumerate(x.tile.shape) if n == 1) if x.tile.rank == v.type.rank else every
            axes &= _axes(x, carried, known) | single
    known[v] = axes
    return axes


__all__ = ["uniform_axes"]
