"""The simulated time of a CU as a trace that ui.perfetto.dev and chrome://tracing open (Chrome's JSON trace-event format).

One process is the CU, one thread of it each wave: slices of the instructions that the wave issues and of what it waits for. A
second process has one thread per unit of each SIMD with the slices for which the unit is occupied. Counters: SIMDs whose matrix
pipe is busy, waves that wait by cause, LDS operations, and for each wave the memory operations that it has issued and not
yet waited for (what `s_waitcnt` counts, as far as the wave knows: they may have come earlier). The time axis has no unit smaller
than a nanosecond, so that **one nanosecond stands for one shader clock**. All times are estimated.

Source of the format: "Trace Event Format" (Google), events X (complete), C (counter) and M (metadata).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tileir.simulator.timing.records import Cause, CuResult, Unit
from tileir.simulator.timing.result import CAUSE_TEXTS

Event = dict[str, Any]

CU_PROCESS, UNIT_PROCESS = 1, 2
COUNTERS = {"vmcnt": (Unit.VMEM,), "lgkmcnt": (Unit.LDS, Unit.SMEM)}
"""Units whose operations each counter of a wave counts."""
CLOCKS_PER_MICROSECOND = 1000
"""The format counts microseconds; a clock is shown as a nanosecond."""


def _time(clock: int) -> float:
    return clock / CLOCKS_PER_MICROSECOND


def cause_name(cause: Cause) -> str:
    """What a wave waits for, in words."""
    return CAUSE_TEXTS[cause.name.lower()]


class _Writer:
    def __init__(self, cu: CuResult, instructions: Sequence[str], places: Sequence[str | None]) -> None:
        self.cu, self.instructions, self.places = cu, instructions, places
        self.names = [text.split(" ", 1)[0] for text in instructions]

    # ---- names
    def metadata(self, title: str) -> Iterator[Event]:
        yield _name("process_name", CU_PROCESS, 0, title)
        yield _name("process_name", UNIT_PROCESS, 0, f"{title}: units")
        for i, wave in enumerate(self.cu.waves):
            text = f"workgroup {wave.workgroup} wave {wave.wave} (SIMD {wave.simd} slot {wave.slot})"
            yield _name("thread_name", CU_PROCESS, i + 1, text)
            yield {
                "name": "thread_sort_index",
                "ph": "M",
                "pid": CU_PROCESS,
                "tid": i + 1,
                "args": {"sort_index": wave.simd * 4096 + i},
            }
        for simd, unit in self.units():
            yield _name("thread_name", UNIT_PROCESS, _unit_thread(simd, unit), f"SIMD {simd} {Unit(unit).name}")

    def units(self) -> list[tuple[int, int]]:
        """SIMDs and units that anything occupies."""
        busy = self.cu.intervals[self.cu.intervals["cause"] == Cause.NONE]
        pairs = np.unique(busy["simd"].astype(np.int64) * 256 + busy["unit"])
        return [(int(p) // 256, int(p) % 256) for p in pairs if int(p) % 256 != Unit.NONE]

    # ---- slices
    def slices(self) -> Iterator[Event]:
        intervals = self.cu.intervals
        for wave in range(len(self.cu.waves)):
            own = intervals[intervals["wave"] == wave]
            yield from self._thread(own, CU_PROCESS, wave + 1)
        busy = intervals[intervals["cause"] == Cause.NONE]
        for simd, unit in self.units():
            own = busy[(busy["simd"] == simd) & (busy["unit"] == unit)]
            yield from self._thread(own, UNIT_PROCESS, _unit_thread(simd, unit))

    def _thread(self, own: NDArray[np.void], process: int, thread: int) -> Iterator[Event]:
        """Slices of a thread never overlap: one ends where the next begins, although its unit may be occupied for longer (the
        unit's own thread shows that)."""
        order = np.argsort(own["start"], kind="stable")
        starts, ends = own["start"][order].astype(np.int64), own["end"][order].astype(np.int64)
        ends[:-1] = np.minimum(ends[:-1], starts[1:])
        rows = own[order]
        for row, start, end in zip(rows, starts.tolist(), ends.tolist(), strict=True):
            if end <= start:
                continue
            record, cause = int(row["record"]), Cause(int(row["cause"]))
            waits = cause != Cause.NONE
            arguments: Event = {"instruction": self.instructions[record]}
            place = self.places[record]
            if place:
                arguments["source"] = place
            if process == UNIT_PROCESS:
                arguments["wave"] = int(row["wave"])
            yield {
                "name": cause_name(cause) if waits else self.names[record],
                "cat": "stall" if waits else Unit(int(row["unit"])).name.lower(),
                "ph": "X",
                "ts": _time(start),
                "dur": _time(end - start),
                "pid": process,
                "tid": thread,
                "args": arguments,
            }

    # ---- counters
    def counters(self) -> Iterator[Event]:
        intervals = self.cu.intervals
        mfma = intervals[(intervals["cause"] == Cause.NONE) & (intervals["unit"] == Unit.MFMA)]
        yield from _depth("busy matrix pipes", mfma["start"], mfma["end"], "SIMDs")
        for cause in Cause:
            own = intervals[intervals["cause"] == cause]
            if cause != Cause.NONE:
                yield from _depth(f"waves: {cause_name(cause)}", own["start"], own["end"], "waves")
        lds = intervals[(intervals["cause"] == Cause.NONE) & (intervals["unit"] == Unit.LDS)]
        yield from _depth("LDS operations", lds["start"], lds["end"], "operations")
        for wave in range(len(self.cu.waves)):
            for name, units in COUNTERS.items():
                yield from self._outstanding(wave, name, units)

    def _outstanding(self, wave: int, counter: str, units: tuple[Unit, ...]) -> Iterator[Event]:
        """Operations of a wave that were issued and not waited for, whenever that changes."""
        intervals = self.cu.intervals
        own = intervals[(intervals["wave"] == wave) & (intervals["cause"] == Cause.NONE)]
        own = own[np.argsort(own["start"], kind="stable")]
        count = 0
        for row in own:
            start, record, unit = int(row["start"]), int(row["record"]), int(row["unit"])
            now = count
            if unit in units:
                now += 1
            elif self.names[record] == "s_waitcnt":
                stated = re.search(rf"{counter}\((\d+)\)", self.instructions[record])
                now = min(count, int(stated.group(1))) if stated else count
            if now != count:
                count = now
                yield _counter(f"{counter} of {self._wave(wave)}", start, "not waited for", count)

    def _wave(self, index: int) -> str:
        wave = self.cu.waves[index]
        return f"workgroup {wave.workgroup} wave {wave.wave}"


def _unit_thread(simd: int, unit: int) -> int:
    return 1 + simd * len(Unit) + unit


def _name(kind: str, process: int, thread: int, name: str) -> Event:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _counter(name: str, clock: int, series: str, value: int) -> Event:
    return {"name": name, "ph": "C", "ts": _time(clock), "pid": CU_PROCESS, "tid": 0, "args": {series: value}}


def _depth(name: str, starts: NDArray[Any], ends: NDArray[Any], series: str) -> Iterator[Event]:
    """How many intervals cover each moment, at each moment where that changes."""
    if not len(starts):
        return
    times = np.concatenate([starts, ends]).astype(np.int64)
    steps = np.concatenate([np.ones(len(starts), np.int64), -np.ones(len(ends), np.int64)])
    moments, where = np.unique(times, return_inverse=True)
    change = np.zeros(len(moments), np.int64)
    np.add.at(change, where, steps)
    depth = np.cumsum(change)
    before = np.concatenate([[0], depth[:-1]])
    for moment, now, last in zip(moments.tolist(), depth.tolist(), before.tolist(), strict=True):
        if now != last or moment == times.min():
            yield _counter(name, moment, series, now)


def trace_events(
    cu: CuResult, instructions: Sequence[str], places: Sequence[str | None], *, title: str, notes: Sequence[str] = ()
) -> Event:
    """The trace as the object that the format describes. instructions, places: disassembly and source line (or None) of each
    record of the program. title: name of the CU's process. notes: told in the trace's own data."""
    writer = _Writer(cu, instructions, places)
    return {
        "traceEvents": [*writer.metadata(title), *writer.slices(), *writer.counters()],
        "displayTimeUnit": "ns",
        "otherData": {
            "time": "estimated; one nanosecond of the time axis is one shader clock",
            "clocks": cu.clocks,
            "window": cu.window,
            "notes": list(notes),
        },
    }


def trace_json(
    cu: CuResult, instructions: Sequence[str], places: Sequence[str | None], *, title: str, notes: Sequence[str] = ()
) -> str:
    """The text of the trace file, one event a line; the same for the same simulation."""
    trace = trace_events(cu, instructions, places, title=title, notes=notes)
    events = ",\n".join(json.dumps(event, separators=(",", ":")) for event in trace.pop("traceEvents"))
    rest = json.dumps(trace, separators=(",", ":"))
    return f'{{"traceEvents":[\n{events}\n],{rest[1:]}\n'
