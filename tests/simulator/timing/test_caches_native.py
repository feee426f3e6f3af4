"""The native caches against plain ones, and against what was published about the order of workgroups."""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from tileir.simulator.timing.cache_native import HASH, HASH_BITS
from tileir.simulator.timing.cache_sim import (
    BYPASS,
    DIRTY,
    FETCH,
    HBM,
    L2,
    LLC,
    Geometry,
    Stream,
    filter_reads,
    simulate,
    turn_orders,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))

from timing_orders import CHIP, product_traffic


@dataclass
class PlainCache:
    """LRU with dirty bits, one ordered dictionary per set."""

    sets: int
    ways: int
    content: dict[int, OrderedDict[int, bool]] = field(default_factory=dict)

    def touch(self, index: int, line: int, dirty: bool) -> tuple[bool, tuple[int, bool] | None]:
        """Whether the line was there; the line that had to go, and whether it was dirty."""
        own = self.content.setdefault(index % self.sets, OrderedDict())
        found = line in own
        own[line] = own.get(line, False) or dirty
        own.move_to_end(line)
        return found, own.popitem(last=False) if len(own) > self.ways else None


def plain(streams, stream_of, shifts, geometry, xcds, slots_per_xcd):
    """What `simulate` does, one access at a time."""
    hashed = lambda line: (line * (HASH & (1 << 64) - 1) & (1 << 64) - 1) >> (64 - HASH_BITS)  # noqa: E731
    l2 = [PlainCache(geometry.sets(geometry.l2_bytes, geometry.l2_ways, 0), geometry.l2_ways) for _ in range(xcds)]
    llc = PlainCache(geometry.sets(geometry.llc_bytes, geometry.llc_ways, 0), geometry.llc_ways)
    counts: Counter[str] = Counter()
    levels = {n: [] for n in range(len(stream_of))}
    queues = [list(range(x, len(stream_of), xcds)) for x in range(xcds)]
    slots: list[list[int] | None] = [None] * (xcds * slots_per_xcd)

    def write_back(line: int) -> None:
        counts["l2_writebacks"] += 1
        _, out = llc.touch(hashed(line), line, True)
        counts["llc_writebacks"] += bool(out and out[1])

    orders, rounds = turn_orders(len(slots)), 0
    while any(slots) or any(queues):
        for s in orders[rounds % len(orders)]:
            x = s % xcds
            if slots[s] is None and queues[x]:
                slots[s] = [queues[x].pop(0), 0]
            place = slots[s]
            if place is None:
                continue
            number, begin = place
            stream = streams[stream_of[number]]
            end = min(begin + geometry.lockstep, len(stream))
            for i in range(begin, end):
                line = int(stream.lines[i] + shifts[number][stream.regions[i]])
                dirty, fetch = bool(stream.codes[i] & DIRTY), bool(stream.codes[i] & FETCH)
                found, out = l2[x].touch(hashed(line), line, dirty)
                counts["reads"] += fetch
                counts["writes"] += dirty
                counts["l2_hits"] += fetch and found
                level = L2
                if out and out[1]:
                    write_back(out[0])
                if fetch and not found:
                    there, gone = llc.touch(hashed(line), line, False)
                    counts["llc_writebacks"] += bool(gone and gone[1])
                    counts["llc_hits"] += there
                    counts["hbm_reads"] += not there
                    level = LLC if there else HBM
                levels[number].append(level)
            slots[s] = None if end == len(stream) else [number, end]
        rounds += 1
    dirty = sum(d for cache in l2 for own in cache.content.values() for d in own.values())
    return counts, levels, dirty


@pytest.mark.parametrize("seed", range(4))
def test_the_hierarchy_does_what_plain_caches_do(seed):
    rng = np.random.default_rng(seed)
    geometry = Geometry(line=128, l2_bytes=8 << 10, l2_ways=4, llc_bytes=64 << 10, llc_ways=8, lockstep=5)
    streams = []
    for n in (40, 400, 333):
        codes = rng.choice([FETCH, DIRTY, FETCH | DIRTY], n, p=(0.7, 0.2, 0.1)).astype(np.uint8)
        streams.append(Stream(rng.integers(0, 300, n).astype(np.int64), codes, rng.integers(0, 3, n).astype(np.uint8)))
    stream_of = rng.integers(0, 3, 23)
    shifts = rng.integers(0, 400, (23, 3))
    got = simulate(streams, stream_of, shifts, geometry, xcds=3, slots_per_xcd=2, wanted=range(23))
    counts, levels, dirty = plain(streams, stream_of, shifts, geometry, 3, 2)
    for name in ("reads", "writes", "l2_hits", "llc_hits", "hbm_reads", "l2_writebacks", "llc_writebacks"):
        assert getattr(got, name) == counts[name], name
    assert counts["llc_writebacks"] > 0
    assert got.final_writebacks == dirty
    assert {n: list(v) for n, v in got.levels.items()} == levels


def test_the_filter_keeps_the_last_lines_of_each_set():
    lines = np.array([0, 2, 4, 0, 1, 6, 2, 4, 0])  # two sets of two lines: even lines share a set
    hits = filter_reads(lines, np.zeros(9, np.uint8), 4 * 128, 2, 128)
    assert hits.tolist() == [False, False, False, False, False, False, False, False, False]
    lines = np.array([0, 2, 0, 4, 0, 2, 1, 1])
    assert filter_reads(lines, np.zeros(8, np.uint8), 4 * 128, 2, 128).nonzero()[0].tolist() == [2, 4, 7]
    codes = np.array([0, 0, BYPASS, 0, 0, 0, 0, 0], np.uint8)  # no hit, and line 0 stays the least recent
    assert filter_reads(lines, codes, 4 * 128, 2, 128).nonzero()[0].tolist() == [7]


def test_sizes_that_give_no_sets_are_refused():
    with pytest.raises(ValueError, match="no set"):
        filter_reads(np.zeros(1, np.int64), np.zeros(1, np.uint8), 128, 2, 128)
    odd = Geometry(128, 3 << 10, 4, 64 << 10, 8, 1)
    stream = Stream(np.zeros(1, np.int64), np.full(1, FETCH, np.uint8), np.zeros(1, np.uint8))
    with pytest.raises(ValueError, match="power of two"):
        simulate([stream], np.zeros(1, np.int64), np.zeros((1, 1), np.int64), odd, xcds=1, slots_per_xcd=1)
    with pytest.raises(ValueError, match="shifts"):
        simulate([stream], np.zeros(1, np.int64), np.zeros((2, 1), np.int64), CHIP, xcds=1, slots_per_xcd=1)


def test_a_part_of_the_sets_stands_for_all():
    whole, part = product_traffic(4096, None, 1 << 40), product_traffic(4096, None, 1 << 20)
    assert whole.sampled == 1
    assert part.sampled == 1 / 16
    assert part.l2_hit_rate == pytest.approx(whole.l2_hit_rate, abs=0.01)
    assert part.llc_hit_rate == pytest.approx(whole.llc_hit_rate, abs=0.01)


PUBLISHED = {
    (9216, None): (55, 95),
    (9216, (7, 216)): (79, 24),
    (9216, (5, 25)): (75, 93),
    (14592, None): (36, 76),
    (14592, (8, 542)): (79, 7),
    (14592, (8, 64)): (78, 55),
}
"""HipKittens, MI355X, bf16: hit rates of L2 and last-level cache by size and order. Windows trade last-level hits for L2 hits;
small chunks give most of both."""


@pytest.mark.parametrize(
    ("size", "large", "small"),
    [(9216, (7, 216), (5, 25)), pytest.param(14592, (8, 542), (8, 64), marks=pytest.mark.nightly)],
)
def test_orders_of_workgroups_go_the_published_way(size, large, small):
    rows, big, little = (product_traffic(size, order, accesses=1 << 20) for order in (None, large, small))
    assert big.l2_hit_rate > rows.l2_hit_rate
    assert big.llc_hit_rate < little.llc_hit_rate
    assert big.llc_hit_rate < rows.llc_hit_rate - 0.3
    assert little.l2_hit_rate > big.l2_hit_rate - 0.1
    for order, traffic in ((None, rows), (large, big), (small, little)):
        for want, got in zip(PUBLISHED[size, order], (traffic.l2_hit_rate, traffic.llc_hit_rate), strict=True):
            assert abs(100 * got - want) < 25, (order, want, got)


def test_no_workgroup_pays_for_the_others():
    """All read the same lines: each is the first to touch its part of them."""
    lines = np.arange(1 << 14)
    stream = Stream(lines, np.full(len(lines), FETCH, np.uint8), np.zeros(len(lines), np.uint8))
    got = simulate(
        [stream],
        np.zeros(64, np.int64),
        np.zeros((64, 1), np.int64),
        Geometry(128, 4 << 20, 16, 256 << 20, 16, lockstep=8),
        xcds=8,
        slots_per_xcd=8,
        wanted=range(64),
    )
    first = np.array([int((got.levels[n] != L2).sum()) for n in range(64)])
    assert first.sum() == pytest.approx(8 * len(lines), rel=0.05)  # some sets overflow
    assert first.min() > 0.6 * len(lines) / 8
    assert first.max() < 1.4 * len(lines) / 8
