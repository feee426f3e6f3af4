"""The memory beyond a CU, from recorded cache lines: where each line is found, and what the levels can deliver.

    recorded workgroups ── merge waves, L1 and scalar cache of the CU ──▶ streams of what reaches the L2
    streams ── shifted copies for all other workgroups, order of dispatch ──▶ L2s, last-level cache ──▶ hit rates, bytes

Few workgroups of a large grid are recorded. The others are taken to do what the first recorded one does, buffer by buffer
shifted by a whole number of lines. The shift comes from the first accesses of that workgroup where they were recorded (a
*prologue*: it works for every mapping of workgroups to tiles), else from a fit that is linear in the workgroup's
coordinates; a buffer that is only written is taken to be written at a place of its own. Where a second workgroup was recorded
in full, the notes say how well the first one, shifted, predicts it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tileir.records import dataclass
from tileir.simulator.timing import cache_sim
from tileir.simulator.timing.cache_sim import BYPASS, DIRTY, FETCH, Geometry, Stream, Traffic
from tileir.simulator.timing.records import (
    ATOMIC,
    LEVELS,
    READ,
    SC1,
    SCALAR,
    WRITE,
    Dispatch,
    MemoryService,
    WorkgroupTrace,
)
from tileir.target import Product, Target
from tileir.target.timing import TimingModel

Shifts = NDArray[np.int64]
_MOST_REGIONS = 255
_GAP = 1 << 29
"""Allocations of the simulator are further apart than that."""
_L1, _L2 = LEVELS.index("L1"), LEVELS.index("L2")


def sample(dispatch: Dispatch, target: Target, limit: int) -> list[int]:
    """Workgroups (numbers in the order of dispatch) whose lines are wanted, at most `limit`: all of a small grid, otherwise
    the first, the last, and some between."""
    count = dispatch.count
    if count <= limit:
        return list(range(count))
    chosen = np.linspace(0, count - 1, max(1, min(limit, 3))).astype(int)
    return sorted({int(number) for number in chosen})


def geometry(target: Target, parameters: TimingModel) -> Geometry:
    """Sizes of the caches of a chip."""
    return Geometry(
        target.cache_line_bytes,
        target.l2_bytes_per_xcd,
        parameters.clocks("l2_ways"),
        target.llc_bytes,
        parameters.clocks("llc_ways"),
        parameters.clocks("lockstep_lines"),
    )


@dataclass(frozen=True, eq=False)
class _Merged:
    """The lines of a workgroup in the order in which its waves touch them when they advance together.

    line: line numbers; wave, index: where each stands in the trace. hit: found in the L1 or scalar cache."""

    line: NDArray[np.int64]
    kind: NDArray[np.uint8]
    size: NDArray[np.int64]
    record: NDArray[np.int64]
    wave: NDArray[np.int64]
    index: NDArray[np.int64]
    hit: NDArray[np.bool_]

    @property
    def reads(self) -> NDArray[np.bool_]:
        return (self.kind & (READ | ATOMIC)) != 0


def _merge(trace: WorkgroupTrace, target: Target, parameters: TimingModel, workgroups_per_cu: int) -> _Merged:
    lines = np.concatenate([w.lines for w in trace.waves])
    lengths = [len(w.lines) for w in trace.waves]
    wave = np.repeat(np.arange(len(lengths)), lengths)
    index = np.concatenate([np.arange(n) for n in lengths])
    record = np.concatenate(
        [
            w.instructions["record"][w.lines["instruction"]] if len(w.lines) else np.zeros(0, np.int32)
            for w in trace.waves
        ]
    )
    order = np.argsort(lines["instruction"], kind="stable")
    lines, wave, index, record = lines[order], wave[order], index[order], record[order]
    line = (lines["address"] // target.cache_line_bytes).astype(np.int64)
    kind, policy = lines["kind"], lines["policy"]
    hit = np.zeros(len(line), np.bool_)
    scalar = (kind & SCALAR) != 0
    bypass = ((kind & READ) == 0) | ((kind & (WRITE | ATOMIC)) != 0) | ((policy & SC1) != 0)
    codes = np.where(bypass, BYPASS, 0).astype(np.uint8)
    ways = max(1, parameters.clocks("l1_ways") // workgroups_per_cu)
    share = parameters.clocks("l1_bytes") * ways // parameters.clocks("l1_ways")
    small = (
        (~scalar, share, ways),
        (scalar, parameters.clocks("scalar_cache_bytes"), parameters.clocks("scalar_cache_ways")),
    )
    for chosen, size, associativity in small:
        if chosen.any():
            hit[chosen] = cache_sim.filter_reads(
                line[chosen], codes[chosen], size, associativity, target.cache_line_bytes
            )
    return _Merged(
        line, kind, lines["bytes"].astype(np.int64), record.astype(np.int64), wave, index.astype(np.int64), hit
    )


class _Regions:
    """Numbers of the buffers that lines belong to, by address."""

    def __init__(self, lines: Sequence[NDArray[np.int64]], regions: Sequence[tuple[int, int]], line_bytes: int) -> None:
        if regions:
            self.starts = np.array(sorted(start // line_bytes for start, _ in regions), np.int64)
        else:
            seen = np.unique(np.concatenate(lines))
            first = np.ones(len(seen), np.bool_)
            first[1:] = np.diff(seen) > _GAP // line_bytes
            self.starts = seen[first]
        if len(self.starts) > _MOST_REGIONS:  # told apart no further: all of them are shifted alike
            self.starts = self.starts[:1]

    @property
    def count(self) -> int:
        return max(1, len(self.starts))

    def of(self, line: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.maximum(np.searchsorted(self.starts, line, side="right") - 1, 0)


def prologue_length(trace: WorkgroupTrace, target: Target, regions: Sequence[tuple[int, int]] = ()) -> int:
    """Instructions of wave 0 after which it has touched every buffer that it reads. regions: address ranges of the buffers
    (default: told apart by the gaps between them)."""
    wave = trace.waves[0]
    line = (wave.lines["address"] // target.cache_line_bytes).astype(np.int64)
    read = (wave.lines["kind"] & (READ | ATOMIC)) != 0
    if not read.any():
        return 0
    region = _Regions([line], regions, target.cache_line_bytes).of(line)
    firsts = [int(wave.lines["instruction"][read & (region == r)][0]) for r in np.unique(region[read])]
    return max(firsts) + 1


class _Relocation:
    """How the lines of other workgroups lie against those of a recorded one."""

    def __init__(self, template: _Merged, regions: _Regions) -> None:
        self.template, self.regions = template, regions
        self.region = regions.of(template.line)
        reads = template.reads
        self.read_regions = frozenset(int(r) for r in np.unique(self.region[reads]))
        self.span = np.zeros(regions.count, np.int64)
        for r in np.unique(self.region):
            own = template.line[self.region == r]
            self.span[r] = int(own.max()) - int(own.min()) + 1

    def from_start(self, other: _Merged) -> dict[int, int]:
        """Shift of each buffer that a wave of both touches before they part."""
        found: dict[int, int] = {}
        for wave in np.intersect1d(self.template.wave, other.wave):
            mine, theirs = self.template.wave == wave, other.wave == wave
            a, b = self.template.record[mine], other.record[theirs]
            n = min(len(a), len(b))
            parted = np.flatnonzero(a[:n] != b[:n])
            n = int(parted[0]) if len(parted) else n
            region, delta = self.region[mine][:n], other.line[theirs][:n] - self.template.line[mine][:n]
            first = np.unique(region, return_index=True)
            for r, at in zip(*(part.tolist() for part in first), strict=True):
                found.setdefault(r, int(delta[at]))
        return found

    def shifts(self, numbers: NDArray[np.int64], fits: Mapping[int, NDArray[np.float64]], dispatch: Dispatch) -> Shifts:
        """(workgroups, buffers) shifts as the fits say; a buffer that is only written goes to a place of each one's own."""
        out = np.zeros((len(numbers), self.regions.count), np.int64)
        for r in range(self.regions.count):
            if r in fits:
                out[:, r] = np.rint(_places(numbers, dispatch) @ fits[r]).astype(np.int64)
            elif r not in self.read_regions:
                out[:, r] = numbers * int(self.span[r])
        return out

    def predicts(self, other: _Merged) -> float:
        """Part of the lines that another recorded workgroup touches which this one, shifted, touches too; buffers that are
        only written are left out."""
        read = np.isin(self.region, list(self.read_regions))
        found = self.from_start(other)
        shift = np.array([found.get(r, 0) for r in range(self.regions.count)], np.int64)
        moved = self.template.line + shift[self.region]
        want = np.unique(other.line[np.isin(self.regions.of(other.line), list(self.read_regions))])
        return float(np.isin(want, moved[read]).mean()) if len(want) else 1.0


def _places(numbers: NDArray[np.int64], dispatch: Dispatch) -> NDArray[np.float64]:
    """(workgroups, 4): 1, x, y, z."""
    x, y, _ = dispatch.grid
    columns = (np.ones(len(numbers), np.int64), numbers % x, numbers // x % y, numbers // (x * y))
    return np.stack(columns, axis=1).astype(np.float64)


def _linear(known: Mapping[int, Mapping[int, int]], dispatch: Dispatch) -> dict[int, NDArray[np.float64]]:
    """Per buffer the coefficients (1, x, y, z) of its shift, fitted to the workgroups of which it is known."""
    fits: dict[int, NDArray[np.float64]] = {}
    for region in sorted({r for shifts in known.values() for r in shifts}):
        numbers = np.array([n for n in known if region in known[n]], np.int64)
        values = np.array([known[int(n)][region] for n in numbers], np.float64)
        fits[region] = np.asarray(np.linalg.lstsq(_places(numbers, dispatch), values, rcond=None)[0], np.float64)
    return fits


@dataclass(frozen=True, eq=False)
class _Plan:
    """The streams, which one each workgroup runs, and its shifts."""

    streams: tuple[Stream, ...]
    stream_of: NDArray[np.int64]
    shifts: Shifts
    notes: tuple[str, ...]


def _plan(merged: Mapping[int, _Merged], starts: Mapping[int, _Merged], dispatch: Dispatch, regions: _Regions) -> _Plan:
    numbers = sorted(merged)
    streams: list[Stream] = []
    for number in numbers:
        m = merged[number]
        keep = ~m.hit
        codes = np.where(m.kind & (WRITE | ATOMIC), DIRTY, 0) | np.where(m.kind & (READ | ATOMIC), FETCH, 0)
        streams.append(Stream(m.line[keep], codes[keep].astype(np.uint8), regions.of(m.line[keep]).astype(np.uint8)))
    stream_of = np.zeros(dispatch.count, np.int64)
    shifts = np.zeros((dispatch.count, regions.count), np.int64)
    for i, number in enumerate(numbers):
        stream_of[number] = i
    notes: list[str] = []
    others = dispatch.count - len(numbers)
    if others:
        relocation = _Relocation(merged[numbers[0]], regions)
        known = {n: relocation.from_start(m) for n, m in sorted({**starts, **merged}.items())}
        fits = _linear(known, dispatch)
        copied = np.ones(dispatch.count, np.bool_)
        copied[numbers] = False
        missing = np.flatnonzero(copied)
        shifts[missing] = relocation.shifts(missing, fits, dispatch)
        for n in starts:
            for r, shift in known[n].items():
                shifts[n, r] = shift
        fitted = others - sum(relocation.read_regions <= known[n].keys() for n in starts)
        what = f"{others} of {dispatch.count} workgroups are copies of workgroup {numbers[0]}, shifted by buffer"
        notes.append(what + (f"; {fitted} of them by a linear fit" if fitted else " as their first accesses say"))
        if fitted:
            wrong = sum(
                bool(np.rint(_places(np.array([n]), dispatch) @ fits[r])[0] != shift)
                for n, own in known.items()
                for r, shift in own.items()
            )
            total = sum(len(own) for own in known.values())
            notes.append(f"the fit gives {total - wrong} of the {total} shifts that are known")
        parts = {number: relocation.predicts(merged[number]) for number in numbers[1:]}
        if parts:
            worst = min(parts, key=lambda number: parts[number])
            notes.append(
                f"workgroup {numbers[0]} so shifted predicts at least {100 * parts[worst]:.1f} % of the lines of the other "
                f"recorded ones (workgroup {worst})"
            )
    return _Plan(tuple(streams), stream_of, shifts, tuple(notes))


def _fill(levels: NDArray[np.uint8], stream: Stream) -> NDArray[np.uint8]:
    """Accesses that were not simulated get the level of the last one of the same buffer that was."""
    out = levels.copy()
    for region in np.unique(stream.regions):
        at = np.flatnonzero(stream.regions == region)
        known = np.flatnonzero(levels[at] != cache_sim.UNSAMPLED)
        if not len(known):
            out[at] = cache_sim.L2
            continue
        last = np.maximum(np.searchsorted(known, np.arange(len(at)), side="right") - 1, 0)
        out[at] = levels[at][known[last]]
    return out


def _served(trace: WorkgroupTrace, m: _Merged, levels: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], ...]:
    out = [np.full(len(w.lines), _L1, np.uint8) for w in trace.waves]
    miss = ~m.hit
    for wave in range(len(trace.waves)):
        own = m.wave[miss] == wave
        out[wave][m.index[miss][own]] = levels[own]
    return tuple(out)


@dataclass(frozen=True)
class Rates:
    """What the levels of the chip deliver when all of it is busy, in bytes per clock, in the order of LEVELS."""

    per_chip: tuple[float, float, float, float]

    @classmethod
    def of(cls, dispatch: Dispatch, target: Target, parameters: TimingModel, product: str) -> Rates:
        """For the CUs and XCDs that the dispatch uses. KeyError for a product that the chip has not."""
        hbm = _product(target, product).hbm_bytes_per_second * parameters.number("hbm_efficiency")
        return cls(
            (
                parameters.number("l1_bytes_per_clock") * dispatch.active_cus,
                parameters.number("l2_bytes_per_clock") * min(dispatch.num_xcds, dispatch.count),
                parameters.number("llc_bytes_per_second") / target.clock_hz,
                hbm / target.clock_hz,
            )
        )


def _product(target: Target, name: str) -> Product:
    for product in target.products:
        if product.name == name:
            return product
    raise KeyError(f"{target.name} is in {', '.join(p.name for p in target.products)}, not in '{name}'")


def memory_service(
    traces: Sequence[WorkgroupTrace],
    dispatch: Dispatch,
    target: Target,
    parameters: TimingModel,
    product: str,
    *,
    prologues: Sequence[WorkgroupTrace] = (),
    regions: Sequence[tuple[int, int]] = (),
) -> MemoryService:
    """Simulates the caches for a whole grid.

    traces: recorded workgroups, at least one. prologues: the first accesses of others, wave 0 at least. regions: address
    ranges of the buffers (default: told apart by the gaps between them). product: what carries the chip, such as MI300X.
    Raises ValueError without traces and KeyError for an unknown product.
    """
    if not traces:
        raise ValueError("no recorded workgroup")
    merged = {t.number: _merge(t, target, parameters, dispatch.workgroups_per_cu) for t in traces}
    starts = {
        t.number: _merge(t, target, parameters, dispatch.workgroups_per_cu) for t in prologues if t.number not in merged
    }
    buffers = _Regions([m.line for m in (*merged.values(), *starts.values())], regions, target.cache_line_bytes)
    plan = _plan(merged, starts, dispatch, buffers)
    traffic = cache_sim.simulate(
        plan.streams,
        plan.stream_of,
        plan.shifts,
        geometry(target, parameters),
        xcds=dispatch.num_xcds,
        slots_per_xcd=max(1, dispatch.cus_per_xcd * dispatch.workgroups_per_cu),
        wanted=sorted(merged),
    )
    served: dict[int, tuple[NDArray[np.uint8], ...]] = {}
    for i, trace in enumerate(sorted(traces, key=lambda t: t.number)):
        levels = _fill(traffic.levels[trace.number], plan.streams[i])
        served[trace.number] = _served(trace, merged[trace.number], levels)
    notes = list(plan.notes)
    if traffic.sampled < 1:
        notes.append(f"one in {round(1 / traffic.sampled)} sets of L2 and last-level cache was simulated")
    notes.append("caches are cold at the start, replacement is LRU, resident workgroups advance in lockstep (assumed)")
    moved = _bytes(list(merged.values()), traffic, dispatch, target.cache_line_bytes)
    rates = np.array(Rates.of(dispatch, target, parameters, product).per_chip) / max(1, dispatch.active_cus)
    rates[2] *= _read_share(traffic.reads - traffic.l2_hits, traffic.l2_writebacks + traffic.final_writebacks)
    rates[3] *= _read_share(traffic.hbm_reads, traffic.llc_writebacks)
    to_clocks = target.clock_hz / 1e9
    latency = np.array(
        [
            parameters.number("l1_latency"),
            parameters.number("l2_latency"),
            parameters.number("llc_latency_ns") * to_clocks,
            parameters.number("hbm_latency_ns") * to_clocks,
        ]
    )
    return MemoryService(
        latency=latency,
        bytes_per_clock=rates,
        served=served,
        hit_rates={
            "L1": _l1_rate(list(merged.values())),
            "L2": traffic.l2_hit_rate,
            "LLC": traffic.llc_hit_rate,
        },
        bytes_by_level=moved,
        sampled=len(traces),
        notes=tuple(notes),
    )


def _read_share(reads: int, writes: int) -> float:
    """Part of a level's time that reads get. A level without reads keeps its rate: only stores use it."""
    return reads / (reads + writes) if reads else 1.0


def _l1_rate(merged: Sequence[_Merged]) -> float:
    reads = sum(int(m.reads.sum()) for m in merged)
    return sum(int(m.hit.sum()) for m in merged) / reads if reads else 0.0


def _bytes(merged: Sequence[_Merged], traffic: Traffic, dispatch: Dispatch, line: int) -> dict[str, int]:
    """L1: bytes that the CUs ask for. L2: lines that it gives and bytes that it takes. LLC, HBM: lines both ways."""
    scale = dispatch.count / len(merged)
    asked = sum(int(m.size.sum()) for m in merged) * scale
    written = sum(int(m.size[(m.kind & (WRITE | ATOMIC)) != 0].sum()) for m in merged) * scale
    misses = traffic.reads - traffic.l2_hits
    return {
        "L1": round(asked),
        "L2": traffic.reads * line + round(written),
        "LLC": (misses + traffic.l2_writebacks + traffic.final_writebacks) * line,
        "HBM": (traffic.hbm_reads + traffic.llc_writebacks) * line,
    }


def bandwidth_clocks(
    service: MemoryService, dispatch: Dispatch, target: Target, parameters: TimingModel, product: str
) -> dict[str, float]:
    """Clocks that the bytes of the whole grid take at each level alone, when it does nothing but move them."""
    rates = Rates.of(dispatch, target, parameters, product).per_chip
    return {level: service.bytes_by_level[level] / rate for level, rate in zip(service.levels, rates, strict=True)}


def average_latency(service: MemoryService) -> float:
    """Clocks from issue to data of a recorded line on average, without queues; 0 without lines."""
    counts = np.zeros(len(service.levels), np.int64)
    for waves in service.served.values():
        for levels in waves:
            counts += np.bincount(levels, minlength=len(service.levels))
    return float(counts @ service.latency / counts.sum()) if counts.sum() else 0.0
