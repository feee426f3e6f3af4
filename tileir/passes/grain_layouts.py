"""Layouts in which tiles are taken apart and put together without moving an element: lanes and waves lie within grains, pieces of
which all tiles of the op consist, so that a place in the large tile is a number of registers."""

from __future__ import annotations

import math
from functools import lru_cache

from tileir.ir.core import Op
from tileir.ir.ops.assemble import grains, whole
from tileir.layout import Layout, blocked
from tileir.layout.linear import WAVE
from tileir.passes.legality import MOST_REGISTERS


def grain_layout(op: Op, shape: tuple[int, ...], waves: int, bytes: int) -> Layout:
    """Layout of one of the op's tiles, of `shape` and elements of so many bytes."""
    return _layout(shape, tuple(sorted(grains(op).items())), whole(op).shape, waves, bytes)


def is_too_fine(op: Op, waves: int) -> bool:
    """Whether lanes would hold more registers than any layout is made for."""
    t = whole(op)
    return grain_layout(op, t.shape, waves, t.elem.bytes).num_registers > MOST_REGISTERS // 16


@lru_cache(maxsize=256)
def _layout(
    shape: tuple[int, ...], grain: tuple[tuple[int, int], ...], large: tuple[int, ...], waves: int, bytes: int
) -> Layout:
    piece = tuple(dict(grain).get(d, n) for d, n in enumerate(large))
    rank = len(shape)
    order = [rank - 1, *reversed(range(rank - 1))]
    share = max(1, math.prod(piece) // (WAVE * waves))  # elements of a grain for each lane
    vector = min(16 // bytes, piece[-1] & -piece[-1], 1 << (share.bit_length() - 1))
    inside = blocked(piece, waves, axis_order=order, vector=max(1, vector))
    # The lane that holds an element of a grain holds those of all others; blocks of the last dimension may be shorter than a grain.
    reps = [-(-n // b) for n, b in zip(shape, inside.block, strict=True)]
    return Layout.from_bases(shape, inside.reg, inside.lane, inside.wave, reps)
