"""What it takes to bring a tile from one distributed layout to another."""

from __future__ import annotations

import functools
from typing import Literal

import numpy as np

from tileir.records import dataclass

from .linear import IntArray, Layout, LayoutError

ConversionKind = Literal["none", "registers", "lanes", "waves"]


@dataclass(frozen=True)
class Conversion:
    """Cheapest kind of data movement from ``src`` to ``dst``.

    Attributes:
        kind: "none": every lane already holds every element in the right register; "registers": a renaming of registers
            that is the same in all lanes and waves (costs nothing when lowered to SSA values); "lanes": data moves
            between lanes, or between registers differently per lane, inside each wave; "waves": through LDS.
        sources: for "none" and "registers", the source register of each destination register; -1 where the
            destination holds only holes. None otherwise.
    """

    kind: ConversionKind
    sources: tuple[int, ...] | None


def _element_ids(layout: Layout) -> IntArray:
    """Row-major element number held by [wave, lane, register], -1 for holes."""
    table = layout.owner_table()
    ids = np.zeros(table.shape[:3], dtype=np.int64)
    hole = np.zeros(table.shape[:3], dtype=np.bool_)
    for d, n in enumerate(layout.shape):
        ids = ids * n + table[..., d]
        hole |= table[..., d] >= n
    ids[hole] = -1
    return ids


def register_sources(src: IntArray, dst: IntArray) -> tuple[int, ...] | None:
    """The renaming of registers that turns ``src`` into ``dst``, or None if it is not the same everywhere.

    Both are element numbers [wave, lane, register] with -1 for registers whose content does not matter; the answer
    has the source register of each destination register, -1 for don't-care. The lowest fitting source is
    taken, the register itself if it fits.
    """
    s = src.reshape(-1, src.shape[-1])
    d = dst.reshape(-1, dst.shape[-1])
    out: list[int] = []
    for r in range(d.shape[1]):
        want = d[:, r]
        cares = np.flatnonzero(want >= 0)
        if not len(cares):
            out.append(-1)
            continue
        candidates = np.flatnonzero(s[cares[0]] == want[cares[0]])
        fits = [int(c) for c in candidates if np.array_equal(s[cares, c], want[cares])]
        if not fits:
            return None
        out.append(r if r in fits else fits[0])
    return tuple(out)


@functools.lru_cache(maxsize=512)
def conversion(src: Layout, dst: Layout) -> Conversion:
    """Classify the conversion of a tile from ``src`` to ``dst``. Holes of the destination need no source.

    Raises:
        LayoutError: different tile shapes or numbers of waves.
    """
    if src.shape != dst.shape:
        raise LayoutError(f"a conversion keeps the shape: {list(src.shape)} is not {list(dst.shape)}")
    if src.num_waves != dst.num_waves:
        raise LayoutError(
            f"a conversion keeps the number of waves: the source has {src.num_waves}, the result {dst.num_waves}"
        )
    if src == dst:
        return Conversion("none", tuple(range(dst.num_registers)))
    s, d = _element_ids(src), _element_ids(dst)
    sources = register_sources(s, d)
    if sources is not None:
        same = all(x in (-1, r) for r, x in enumerate(sources))
        return Conversion("none" if same else "registers", sources)
    inside = all(np.isin(d[w][d[w] >= 0], s[w]).all() for w in range(src.num_waves))
    return Conversion("lanes" if inside else "waves", None)


def transpose_sources(src: Layout, perm: tuple[int, ...]) -> tuple[int, ...]:
    """Source register of each register of ``src.transpose(perm)``: the identity unless repetitions change order."""
    if sum(n > 1 for n in src.reps) < 2:
        return tuple(range(src.num_registers))
    table = src.owner_table()
    turned = src.transpose(perm).owner_table()
    scale = np.array([1 << 20, 1 << 10, 1][-src.rank :] if src.rank <= 3 else [], dtype=np.int64)
    if src.rank > 3 or max(src.padded_shape, default=1) > 1 << 20:
        raise LayoutError("transpose_sources handles tiles of rank up to 3")
    sources = register_sources(table[..., list(perm)] @ scale, turned @ scale)
    assert sources is not None, "a transposition keeps every element in its lane"
    return sources
