"""Coalesced layouts for loads, stores and elementwise work."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence

from .linear import LANE_BITS, Layout, LayoutError, ceil_log2


def blocked(shape: Sequence[int], num_waves: int, *, axis_order: Sequence[int], vector: int) -> Layout:
    """Layout with ``vector`` contiguous elements per lane along the fastest axis.

    Lanes and waves are spread so that, in this order of importance: each lane has the fewest registers; lanes run
    along the fastest axis (coalescing); waves run along the slowest axis (a reduction along the fastest axis then stays
    inside a wave). Surplus lanes and waves replicate. Sizes that are not powers of two are covered by repetition.

    Args:
        shape: tile shape, sizes >= 1, any rank.
        num_waves: power of two.
        axis_order: all axes, fastest in memory first.
        vector: elements per lane and access, a power of two; more than the axis has is cut down.

    Raises:
        LayoutError: an argument outside the stated range.
    """
    rank = len(shape)
    if num_waves < 1 or num_waves & num_waves - 1:
        raise LayoutError(f"the number of waves must be a power of two, not {num_waves}")
    if vector < 1 or vector & vector - 1:
        raise LayoutError(f"the vector width must be a power of two, not {vector}")
    if sorted(axis_order) != list(range(rank)):
        raise LayoutError(f"axis_order {list(axis_order)} must be a permutation of the axes 0 .. {rank - 1}")
    if any(n < 1 for n in shape):
        raise LayoutError(f"tile shape {list(shape)}: every dimension must be at least 1")
    return _blocked(tuple(shape), num_waves, tuple(axis_order), vector)


def _splits(bits: int, limits: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All ways to deal out ``bits`` bits (or as many as fit) over axes that take at most their limit."""
    bits = min(bits, sum(limits))
    if not limits:
        yield ()
        return
    for first in range(max(0, bits - sum(limits[1:])), min(bits, limits[0]) + 1):
        for rest in _splits(bits - first, limits[1:]):
            yield (first, *rest)


@functools.lru_cache(maxsize=1024)
def _blocked(shape: tuple[int, ...], num_waves: int, order: tuple[int, ...], vector: int) -> Layout:
    rank = len(shape)
    sizes = [shape[a] for a in order]  # fastest first from here on
    own = [0] * rank
    if rank:
        own[0] = min(ceil_log2(vector), ceil_log2(sizes[0]))
    limits = [ceil_log2(-(-n >> o)) for n, o in zip(sizes, own, strict=True)]
    wave_bits = ceil_log2(num_waves)
    best: tuple[tuple[object, ...], tuple[int, ...], tuple[int, ...]] | None = None
    for lanes in _splits(LANE_BITS, limits):
        rest = [limit - l for limit, l in zip(limits, lanes, strict=True)]
        for waves in _splits(wave_bits, rest):
            repeats = math.prod(-(-n >> o + l + w) for n, o, l, w in zip(sizes, own, lanes, waves, strict=True))
            padding = math.prod(
                (-(-n >> o + l + w)) << o + l + w for n, o, l, w in zip(sizes, own, lanes, waves, strict=True)
            )
            key = (repeats, tuple(-l for l in lanes), padding, tuple(-w for w in reversed(waves)))
            if best is None or key < best[0]:
                best = key, lanes, waves
    assert best is not None, "there is always at least one split"
    _, lanes, waves = best
    place = list(own)

    def take(counts: Sequence[int], total: int) -> list[tuple[int, ...]]:
        vectors: list[tuple[int, ...]] = []
        for i, count in enumerate(counts):
            for _ in range(count):
                vectors.append(tuple(1 << place[i] if a == order[i] else 0 for a in range(rank)))
                place[i] += 1
        return vectors + [(0,) * rank] * (total - len(vectors))

    reg = [tuple(1 << b if a == order[0] else 0 for a in range(rank)) for b in range(own[0])] if rank else []
    lane = take(lanes, LANE_BITS)
    wave = take(waves, wave_bits)
    reps = [1] * rank
    for i, a in enumerate(order):
        reps[a] = -(-shape[a] >> place[i])
    return Layout.from_bases(shape, reg, lane, wave, reps)
