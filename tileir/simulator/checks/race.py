"""Races on LDS and device memory, and reads of LDS and memory bytes that nothing has written.

All waves of a workgroup meet at each ``s_barrier``, so the vector clocks of its waves agree behind every barrier and
reduce to one number, the *epoch*: accesses of two waves are ordered when their epochs differ. An operation that no wait
has covered when its wave reaches the barrier is not ordered by it; it counts in the following epochs too, until a wait
has covered it. Two accesses of one epoch by different waves that share a byte are a race unless both read or both are
atomic. Workgroups are not ordered at all, so plain stores of one conflict with accesses of another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tileir.simulator import state
from tileir.simulator.checks import log as access_log
from tileir.simulator.checks.collect import Collector
from tileir.simulator.checks.log import ATOMIC, READ, VERBS, WRITE, Log
from tileir.simulator.faults import Finding, Party
from tileir.simulator.memory import Allocation, Memory
from tileir.simulator.program import Program

CARRIED = 1 << 17
"""Flag of log entries that were on their way when their wave passed a barrier."""
_SAMPLES = 64
Dim3 = tuple[int, int, int]
Indices = NDArray[np.int64]


class Area:
    """One address space piece: masks of the waves that read, wrote and updated each unit in this epoch."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size, self.unit = name, size, 4
        n = -(-size // 4) + 1
        self.masks = {use: np.zeros(n, np.uint16) for use in (READ, WRITE, ATOMIC)}
        self.writer = np.zeros(n, np.int32)
        self.reader = np.zeros(n, np.int32)
        self.writer_record = np.zeros(n, np.int32)
        self.reader_record = np.zeros(n, np.int32)

    def refine(self, unit: int) -> None:
        """Makes units smaller, when an access needs it."""
        if unit < self.unit:
            times = self.unit // unit
            self.masks = {use: np.repeat(mask, times) for use, mask in self.masks.items()}
            self.writer, self.reader = np.repeat(self.writer, times), np.repeat(self.reader, times)
            self.writer_record = np.repeat(self.writer_record, times)
            self.reader_record = np.repeat(self.reader_record, times)
            self.unit = unit


@dataclass
class _Part:
    """The accesses of an epoch to one area. start: byte offsets in it."""

    area: Area
    log: Log
    start: Indices
    size: Indices
    use: NDArray[np.uint8]

    def units(self, chosen: Indices) -> tuple[Indices, Indices]:
        return access_log.units(self.start[chosen], self.size[chosen], self.area.unit)


class MemoryCheck:
    """race: look for races. uninit: look for reads of bytes that were never written. across: compare workgroups."""

    def __init__(
        self,
        program: Program,
        memory: Memory,
        lds_bytes: int,
        collect: Collector,
        *,
        race: bool,
        uninit: bool,
        across: bool,
    ) -> None:
        self.program, self.collect = program, collect
        self.race, self.uninit, self.across = race, uninit, across
        self.lds_use, self.device_use = access_log.uses(program.instructions)
        self.lds = Area("LDS", lds_bytes)
        self.lds_written = np.zeros(-(-max(lds_bytes, 1) // 4) * 4, np.uint8)
        self.allocations = memory.allocations
        self.starts = np.array([a.address for a in self.allocations], np.uint64)
        self.areas: dict[int, Area] = {}
        self.workgroups: list[Dim3] = []

    def begin(self, workgroup: Dim3) -> None:
        self.workgroups.append(workgroup)
        self.lds_written[:] = 0

    def epoch(self, log: Log) -> None:
        """Checks the accesses between two barriers, in the order in which they were executed."""
        if not log.size:
            return
        in_lds = (log["what"] & state.LOG_LDS) != 0
        part = log[in_lds]
        if part.size:
            start, size = part["address"].astype(np.int64), access_log.sizes(part)
            self._area(_Part(self.lds, part, start, size, self.lds_use[part["record"]]), self.lds_written)
        rest = log[~in_lds]
        if rest.size:
            owner = np.searchsorted(self.starts, rest["address"], side="right") - 1
            for i in np.unique(owner).tolist():
                allocation = self.allocations[i]
                part = rest[owner == i]
                start = (part["address"] - np.uint64(allocation.address)).astype(np.int64)
                use = self.device_use[part["record"]]
                area = self._of(i, allocation)
                self._area(_Part(area, part, start, access_log.sizes(part), use), allocation.written)

    def _of(self, i: int, allocation: Allocation) -> Area:
        if i not in self.areas:
            self.areas[i] = Area(repr(allocation), allocation.size)
        return self.areas[i]

    def _area(self, part: _Part, written: NDArray[np.uint8] | None) -> None:
        area = part.area
        area.refine(access_log.unit_of(part.start, part.size))
        if self.race:
            if np.any(part.use != READ) and np.any(part.log["wave"] != part.log["wave"][0]):
                self._waves(part)
            if self.across and area is not self.lds:
                self._workgroups(part)
        if self.uninit and written is not None:
            self._written(part, written)

    # ---- between the waves of a workgroup
    def _waves(self, part: _Part) -> None:
        area = part.area
        group = part.log["wave"].astype(np.int64) * 8 + part.use
        touched: list[tuple[NDArray[np.uint16], Indices]] = []
        changed: list[Indices] = []
        for code in np.unique(group).tolist():
            index, _ = part.units(np.flatnonzero(group == code))
            mask = area.masks[code & 7]
            mask[index] |= np.uint16(1 << (code >> 3))
            touched.append((mask, index))
            if code & 7 != READ:
                changed.append(index)
        index = np.concatenate(changed)
        r, w, a = (area.masks[use][index] for use in (READ, WRITE, ATOMIC))
        everyone = r | w | a
        several = (everyone & (everyone - np.uint16(1))) != 0
        bad = several & ((w != 0) | ((a != 0) & (r != 0)))
        if bad.any():
            self._explain(part, np.unique(index[bad]))
        for mask, index in touched:
            mask[index] = 0

    def _explain(self, part: _Part, bad: Indices) -> None:
        unit = part.area.unit
        for u in bad[:: max(1, bad.size // _SAMPLES)].tolist():
            low, high = u * unit, (u + 1) * unit
            hits = np.flatnonzero((part.start < high) & (part.start + part.size > low)).tolist()
            for n, i in enumerate(hits):
                for j in hits[:n]:
                    self._pair(part, j, i)

    def _pair(self, part: _Part, i: int, j: int) -> None:
        """A finding for accesses i and j, if they conflict."""
        uses = (int(part.use[i]), int(part.use[j]))
        waves = (int(part.log["wave"][i]), int(part.log["wave"][j]))
        if waves[0] == waves[1] or uses in ((READ, READ), (ATOMIC, ATOMIC)):
            return
        kind = "race-lds" if part.area is self.lds else "race-memory"
        first, second = sorted((int(part.log["record"][i]), int(part.log["record"][j])))
        carried = [bool(part.log["what"][k] & CARRIED) for k in (i, j)]

        def make() -> Finding:
            where = int(max(part.start[i], part.start[j]))
            why = "no barrier stands between them"
            for n, late in enumerate(carried):
                if late:
                    why = f"wave {waves[n]} passed a barrier before a wait had covered its access"
            message = (
                f"wave {waves[1]} {VERBS[uses[1]]} byte {where:#x} of {part.area.name} "
                f"that wave {waves[0]} {VERBS[uses[0]]}: {why}"
            )
            return Finding(kind, message, self._party(part, j), self._party(part, i))

        self.collect.add((kind, first, second), make)

    def _party(self, part: _Part, i: int) -> Party:
        record, wave = int(part.log["record"][i]), int(part.log["wave"][i])
        lane = int(access_log.lanes(part.log[i : i + 1])[0])
        return Party(self.program.location(record), self.workgroups[-1], wave, (lane,))

    # ---- between workgroups
    def _workgroups(self, part: _Part) -> None:
        area, me = part.area, len(self.workgroups)
        for use in (WRITE, READ):
            chosen = np.flatnonzero(part.use == use)
            if not chosen.size:
                continue
            index, owner = part.units(chosen)
            writer = area.writer[index]
            bad = (writer != 0) & (writer != me)
            if bad.any():
                self._strangers(part, chosen, index, owner, bad, area.writer, area.writer_record, WRITE)
            if use == WRITE:
                reader = area.reader[index]
                bad = (reader != 0) & (reader != me)
                if bad.any():
                    self._strangers(part, chosen, index, owner, bad, area.reader, area.reader_record, READ)
                area.writer[index] = me
                area.writer_record[index] = part.log["record"][chosen][owner]
            else:
                reader = area.reader[index]
                # the first of several readers stays: a store of its own workgroup is then missed, never invented
                fresh = reader == 0
                area.reader[index[fresh]] = me
                area.reader_record[index[fresh]] = part.log["record"][chosen][owner][fresh]

    def _strangers(
        self,
        part: _Part,
        chosen: Indices,
        index: Indices,
        owner: Indices,
        bad: NDArray[np.bool_],
        others: NDArray[np.int32],
        records: NDArray[np.int32],
        other_use: int,
    ) -> None:
        places = np.flatnonzero(bad)
        for place in places[:: max(1, places.size // _SAMPLES)].tolist():
            i, unit = int(chosen[owner[place]]), int(index[place])
            record, other = int(part.log["record"][i]), int(records[unit])
            first, second = sorted((record, other))

            def make(i: int = i, unit: int = unit, other: int = other) -> Finding:
                workgroup = self.workgroups[int(others[unit]) - 1]
                message = (
                    f"the workgroup {VERBS[int(part.use[i])]} byte {unit * part.area.unit:#x} of {part.area.name} "
                    f"that workgroup {workgroup} {VERBS[other_use]}; nothing orders workgroups"
                )
                return Finding(
                    "race-memory", message, self._party(part, i), Party(self.program.location(other), workgroup, 0)
                )

            self.collect.add(("race-memory", first, second), make)

    # ---- bytes that nothing has written
    def _written(self, part: _Part, written: NDArray[np.uint8]) -> None:
        """A read counts as early when no write stands before it in the execution."""
        unit = part.area.unit
        whole = written[: written.size // unit * unit].view(f"u{unit}")
        full = whole.dtype.type((1 << 8 * unit) - 1)
        if bool((whole == full).all()):
            return
        fresh = (part.log["what"] & CARRIED) == 0
        reads = np.flatnonzero(fresh & (part.use != WRITE))
        read, reader = part.units(reads)
        late = whole[read] != full
        writes = np.flatnonzero(part.use != READ)
        write, writer = part.units(writes)
        if late.any():
            first = np.full(whole.size, part.start.size, np.int64)
            first[write[::-1]] = writes[writer[::-1]]
            late &= first[read] >= reads[reader]
            self._unwritten(part, reads[reader[late]])
        whole[write] = full

    def _unwritten(self, part: _Part, accesses: Indices) -> None:
        kind = "uninit-lds" if part.area is self.lds else "uninit-memory"
        records = part.log["record"][accesses]
        for record in np.unique(records).tolist():
            i = int(accesses[np.flatnonzero(records == record)[0]])
            wave = part.log["wave"][i]
            same = accesses[(records == record) & (part.log["wave"][accesses] == wave)]
            lanes = tuple(np.unique(access_log.lanes(part.log[same])).tolist())

            def make(i: int = i, record: int = record, lanes: tuple[int, ...] = lanes) -> Finding:
                message = (
                    f"byte {int(part.start[i]):#x} of {part.area.name}, or one behind it, is read and was never written"
                )
                place = Party(self.program.location(record), self.workgroups[-1], int(part.log["wave"][i]), lanes)
                return Finding(kind, message, place)

            self.collect.add((kind, record, record), make)
