"""Layouts in which a scan along an axis is possible: what a lane, a wave and the workgroup hold along it are runs of runs."""

from __future__ import annotations

from functools import lru_cache

from tileir.layout import Layout
from tileir.layout.linear import LANE_BITS, ceil_log2


def is_scannable(layout: Layout, axis: int) -> bool:
    """Whether every bit of registers, lanes and waves that moves along the axis does nothing else, each by a power of two of its own;
    bits of waves are the highest, and nothing repeats beyond them."""
    along = [v for v in (*layout.reg, *layout.lane, *layout.wave) if v[axis]]
    steps = [v[axis] for v in along]
    pure = all(sum(v) == v[axis] and v[axis] & (v[axis] - 1) == 0 for v in along)
    waves = sorted(v[axis] for v in layout.wave if v[axis])
    top = [layout.block[axis] >> (len(waves) - i) for i in range(len(waves))]
    return pure and len(set(steps)) == len(steps) and (not waves or (waves == top and layout.reps[axis] == 1))


@lru_cache(maxsize=256)
def scan_layout(layout: Layout, axis: int) -> Layout:
    """The layout itself if it is scannable, else one of its shape: waves and lanes lie along the other dimensions as far as
    those go, the rest along the axis, where neighbours are in one lane and runs of lanes in a wave."""
    if is_scannable(layout, axis):
        return layout
    rank, shape = layout.rank, layout.shape
    others = [d for d in range(rank) if d != axis]
    free = {d: ceil_log2(shape[d]) for d in range(rank)}
    place = dict.fromkeys(others, 0)

    def unit(d: int, bit: int) -> tuple[int, ...]:
        return tuple(1 << bit if e == d else 0 for e in range(rank))

    def take(count: int) -> list[tuple[int, ...]]:
        """Up to `count` bits along other dimensions, the last dimension first."""
        found: list[tuple[int, ...]] = []
        for d in reversed(others):
            while len(found) < count and free[d]:
                found.append(unit(d, place[d]))
                place[d] += 1
                free[d] -= 1
        return found

    count = len(layout.wave)
    outside = take(count)
    inside = min(count - len(outside), free[axis])  # waves along the axis
    beside = take(LANE_BITS)
    lanes = min(LANE_BITS - len(beside), free[axis] - inside)
    registers = free[axis] - inside - lanes
    lane = [unit(axis, registers + i) for i in range(lanes)] + beside
    wave = outside + [unit(axis, registers + lanes + i) for i in range(inside)]
    zero = (0,) * rank
    lane += [zero] * (LANE_BITS - len(lane))
    wave += [zero] * (count - len(wave))
    reps = [1 if d == axis else -(-shape[d] >> place[d]) for d in range(rank)]
    return Layout.from_bases(shape, [unit(axis, i) for i in range(registers)], lane, wave, reps)
