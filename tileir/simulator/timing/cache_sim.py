"""The caches of a whole chip on streams of accesses: arrays in, traffic out.

What is modelled: per CU a vector L1 and a scalar cache that hold read lines (write-through, no line for a store); per XCD an
L2 that keeps stores dirty until they are evicted (byte masks: a store never fetches its line); behind all L2s one last-level
cache on the memory side. All are set-associative with LRU; L2 and last-level cache choose the set by a hash of the line.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tileir.records import dataclass
from tileir.simulator.timing import cache_native as native

Lines = NDArray[np.int64]
Bytes = NDArray[np.uint8]

DIRTY, FETCH = native.DIRTY, native.FETCH
BYPASS = native.BYPASS
UNSAMPLED, L2, LLC, HBM = native.UNSAMPLED, native.L2, native.LLC, native.HBM
MAX_SAMPLE_BITS = 6
ORDERS = 1024
"""Different orders in which the workgroups on the chip take their turns; then they repeat."""


@dataclass(frozen=True)
class Geometry:
    """Sizes in bytes; ways are lines of a set. lockstep: accesses by which a workgroup advances in its turn."""

    line: int
    l2_bytes: int
    l2_ways: int
    llc_bytes: int
    llc_ways: int
    lockstep: int

    def sets(self, size: int, ways: int, sample_bits: int) -> int:
        """Sets of a cache that are simulated; ValueError unless it is a positive power of two."""
        sets = size // (self.line * ways) >> sample_bits
        if sets < 1 or sets & (sets - 1) or (sets << sample_bits) * ways * self.line != size:
            raise ValueError(f"a cache of {size} bytes and {ways} ways has no power of two of sets")
        return sets


@dataclass(frozen=True, eq=False)
class Stream:
    """What reaches the L2 from one workgroup, in order. lines: line numbers (address / line size). codes: DIRTY, FETCH.
    regions: number below 255 of the buffer of each line; a workgroup's copy of a stream may shift each buffer."""

    lines: Lines
    codes: Bytes
    regions: Bytes

    def __len__(self) -> int:
        return len(self.lines)


@dataclass(frozen=True, eq=False)
class Traffic:
    """Counts of lines, scaled up when only a part of the sets was simulated. final_writebacks: dirty lines of the L2s at the
    end, which a kernel writes back. levels: L2, LLC or HBM (UNSAMPLED: not simulated) of each access of the wanted
    workgroups; a store is served by the L2. sampled: part of the sets that was simulated."""

    reads: int
    l2_hits: int
    llc_hits: int
    hbm_reads: int
    writes: int
    l2_writebacks: int
    llc_writebacks: int
    final_writebacks: int
    levels: dict[int, Bytes]
    sampled: float

    @property
    def l2_hit_rate(self) -> float:
        """Of the reads that reach the L2s; 0 without any."""
        return self.l2_hits / self.reads if self.reads else 0.0

    @property
    def llc_hit_rate(self) -> float:
        """Of the reads that miss in the L2s; 0 without any."""
        misses = self.reads - self.l2_hits
        return self.llc_hits / misses if misses else 0.0


def filter_reads(lines: Lines, codes: Bytes, size: int, ways: int, line: int) -> NDArray[np.bool_]:
    """Which accesses hit a small cache of one CU. codes: BYPASS for those that never do. The set is the line number modulo the
    number of sets (assumed)."""
    sets = size // (line * ways)
    if sets < 1:
        raise ValueError(f"a cache of {size} bytes has no set of {ways} lines")
    lines = np.ascontiguousarray(lines, np.int64)
    codes = np.ascontiguousarray(codes, np.uint8)
    hits = np.zeros(len(lines), np.uint8)
    tags = np.zeros(sets * ways, np.uint64)
    native.run_filter(
        [lines.ctypes.data, len(lines), codes.ctypes.data, hits.ctypes.data, tags.ctypes.data, sets, ways]
    )
    return hits.astype(np.bool_)


def turn_orders(slots: int) -> Lines:
    """(ORDERS, slots) random orders, the same each time."""
    rng = np.random.default_rng(0)
    return np.stack([rng.permutation(slots) for _ in range(ORDERS)]).astype(np.int64)


def simulate(
    streams: Sequence[Stream],
    stream_of: Lines,
    shifts: Lines,
    geometry: Geometry,
    *,
    xcds: int,
    slots_per_xcd: int,
    wanted: Sequence[int] = (),
    accesses: int = 1 << 26,
) -> Traffic:
    """Runs the streams of all workgroups through the caches.

    stream_of: number of the stream of each workgroup, in the order of dispatch; workgroup i runs on XCD i mod xcds. shifts:
    (workgroups, regions) lines to add. slots_per_xcd: workgroups that are on an XCD at once. They advance in lockstep, in
    an order that changes; a free slot takes the next workgroup of its XCD. wanted: workgroups whose accesses are told level by level. accesses: beyond
    that number only a part of the sets, at least one in 64, is simulated.
    """
    count = len(stream_of)
    lengths = np.array([len(s) for s in streams], np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    lines = np.concatenate([s.lines for s in streams]).astype(np.int64)
    codes = np.concatenate([s.codes for s in streams]).astype(np.uint8)
    regions = np.concatenate([s.regions for s in streams]).astype(np.uint8)
    shifts = np.ascontiguousarray(shifts, np.int64)
    if shifts.shape[0] != count or (len(regions) and int(regions.max()) >= shifts.shape[1]):
        raise ValueError(f"shifts of shape {shifts.shape} for {count} workgroups and their regions")
    starts, sizes = offsets[stream_of], lengths[stream_of]
    total = int(sizes.sum())
    bits = 0
    while total >> bits > accesses and bits < MAX_SAMPLE_BITS:
        bits += 1
    out_starts = np.full(count, -1, np.int64)
    filled = 0
    for number in wanted:
        out_starts[number] = filled
        filled += int(sizes[number])
    out = np.zeros(filled, np.uint8)
    order = np.concatenate([np.arange(x, count, xcds) for x in range(xcds)]).astype(np.int64)
    per_xcd = np.array([len(range(x, count, xcds)) for x in range(xcds)], np.int64)
    ends = np.cumsum(per_xcd)
    following = ends - per_xcd
    slots = xcds * slots_per_xcd
    slot_workgroup, slot_position = np.full(slots, -1, np.int64), np.zeros(slots, np.int64)
    orders = turn_orders(slots)
    l2_sets = geometry.sets(geometry.l2_bytes, geometry.l2_ways, bits)
    llc_sets = geometry.sets(geometry.llc_bytes, geometry.llc_ways, bits)
    l2 = np.zeros(xcds * l2_sets * geometry.l2_ways, np.uint64)
    llc = np.zeros(llc_sets * geometry.llc_ways, np.uint64)
    stats = np.zeros(len(native.STATS), np.int64)
    arrays = {
        "lines": lines,
        "codes": codes,
        "regions": regions,
        "starts": starts,
        "lengths": sizes,
        "shifts": shifts,
        "out_starts": out_starts,
        "out": out,
        "order": order,
        "next": following,
        "ends": ends,
        "orders": orders,
        "slot_workgroup": slot_workgroup,
        "slot_position": slot_position,
        "l2": l2,
        "llc": llc,
        "stats": stats,
    }
    numbers = {
        "region_count": shifts.shape[1],
        "slots": slots,
        "order_count": len(orders),
        "slice": geometry.lockstep,
        "l2_sets": l2_sets,
        "l2_ways": geometry.l2_ways,
        "llc_sets": llc_sets,
        "llc_ways": geometry.llc_ways,
        "sample_bits": bits,
        "xcds": xcds,
    }
    native.run_hierarchy([arrays[n].ctypes.data if n in arrays else numbers[n] for n in native.HIERARCHY_ARGUMENTS])
    counted = {name: int(value) << bits for name, value in zip(native.STATS, stats, strict=True)}
    return Traffic(
        **counted,
        final_writebacks=int(np.count_nonzero(l2 & np.uint64(1))) << bits,
        levels={n: out[out_starts[n] : out_starts[n] + sizes[n]] for n in wanted},
        sampled=1 / (1 << bits),
    )
