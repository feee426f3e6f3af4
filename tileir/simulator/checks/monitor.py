"""Runs workgroups under checks, and makes findings of what native code has noted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tileir.simulator import report, state
from tileir.simulator.checks import BARRIER, HAZARD, RACE, UNINIT
from tileir.simulator.checks.collect import Collector
from tileir.simulator.checks.dataflow import initial
from tileir.simulator.checks.hazard import hazards
from tileir.simulator.checks.ordering import Ordering
from tileir.simulator.checks.plan import VERBS, plan, uses
from tileir.simulator.checks.shadow import Shadow, who
from tileir.simulator.faults import Finding, Party, lanes_of
from tileir.simulator.memory import reserve
from tileir.simulator.native import check_state as c

if TYPE_CHECKING:
    from tileir.simulator.launch import Dim3, _Launch  # pyright: ignore[reportPrivateUsage]

_UNINIT = np.dtype(
    {
        "names": ["record", "register", "lanes", "wave"],
        "formats": ["<i4", "<i4", "<u8", "<u8"],
        "offsets": [c.UNINIT_RECORD, c.UNINIT_REGISTER, c.UNINIT_LANES, c.UNINIT_WAVE],
        "itemsize": c.UNINIT_BYTES,
    }
)
_EVERYWHERE = (1 << 64) - 1


class Monitor:
    """The checks of one launch. Made before the launch is prepared: its records replace those of the program."""

    def __init__(self, launch: _Launch, checks: frozenset[str], strict: bool, limit: int) -> None:
        self.launch, self.checks = launch, checks
        self.collect = Collector(strict, limit)
        engine = launch.simulator.engine
        self.memory_checked = bool(checks & {RACE, UNINIT})
        self.plan = plan(launch.program, engine, memory=self.memory_checked, registers=UNINIT in checks)
        self.records = self.plan.records
        self._before = self.records.counts().copy()
        self._places: list[Dim3] = []

    # ---- state of the launch
    def attach(self, groups: int) -> None:
        """Connects the state of the checks to the prepared launch. groups: workgroups that will run."""
        launch = self.launch
        if not self.memory_checked:
            return
        self.shadow = Shadow(
            launch.simulator.memory.addressed,
            launch.lds,
            launch.lds_bytes,
            launch.wave_count,
            self.plan.ops,
            race=RACE in self.checks,
            uninit=UNINIT in self.checks,
            groups=groups,
            foreign=self.plan.syncs,
        )
        launch.workgroup.view(np.uint64)[state.WG_CHECK // 8] = self.shadow.address
        self.ordering = Ordering(launch.program, self.plan, self.shadow, launch.waves, launch.simulator.engine.carry)
        self._table = bytearray(self.plan.table)
        table = np.frombuffer(self._table, np.uint8)
        self._items = np.array(self.plan.items, np.uint32)
        self._registers = (
            reserve(launch.wave_count * 8 * c.SHADOW_REGISTERS).view(np.uint64).reshape(launch.wave_count, -1)
        )
        self._uninit = np.zeros(len(launch.program.instructions) + 2, _UNINIT)
        self.shadow.put(c.CK_CHECKED, table.ctypes.data)
        self.shadow.put(c.CK_CHECKED_ITEMS, self._items.ctypes.data)
        self.shadow.put(c.CK_REGISTERS, self._registers.ctypes.data)
        self.shadow.put(c.CK_UNINIT, self._uninit.ctypes.data)

    # ---- running
    def run(self, workgroup: Dim3) -> int:
        """Runs one workgroup to its end; 0, or ``fault | wave << 8`` as the native loop gives it."""
        launch = self.launch
        self._places.append(workgroup)
        if self.memory_checked:
            self.shadow.begin(len(self._places))
            self.ordering.begin()
            if len(self.plan.items) > 1:
                self._registers[:] = 0
                self._registers[:, sorted(initial(launch.program))] = _EVERYWHERE
        while True:
            result = launch.simulator.engine.run_workgroup(launch.workgroup.ctypes.data)
            wave, code = result >> 8, result & 0xFF
            if self.memory_checked and self.ordering.error is not None:
                raise self.ordering.error
            if code == state.STATUS_REFINE:
                self._refine(wave)
            elif code == state.FAULT_BARRIER and BARRIER in self.checks:
                self._unequal(workgroup)
                launch.workgroup.view(np.uint64)[state.WG_STRICT_BARRIERS // 8] = 0
            else:
                self._drain(workgroup)
                launch.workgroup.view(np.uint64)[state.WG_STRICT_BARRIERS // 8] = int(launch.strict_barriers)
                return result

    def _refine(self, wave: int) -> None:
        """Makes units smaller and observes the instruction again that asked for it."""
        raw = self.launch.waves[wave]
        current = int(raw.view(np.uint64)[state.CURRENT // 8]) - state.RECORD_SIZE
        inst = self.launch.program.instructions[self.records.number(current)]
        assert inst is not None
        observe = self.launch.simulator.engine.observers[self.plan.queue(inst)]
        while True:
            self.shadow.refine()
            if not observe(raw.ctypes.data, current):
                break
        raw.view(np.uint32)[state.STATUS // 4] = state.STATUS_RUNNING

    # ---- findings
    def _drain(self, workgroup: Dim3) -> None:
        if not self.memory_checked:
            return
        if UNINIT in self.checks:
            self._drain_registers(workgroup)
        for raw in self.shadow.take():
            kind = int(raw["kind"])
            make = {c.KIND_RACE: self._race, c.KIND_UNINIT: self._unwritten, c.KIND_OVERTAKEN: self._overtaken}[kind]
            make(raw)

    def _drain_registers(self, workgroup: Dim3) -> None:
        for hit in self._uninit[: self.shadow.get(c.CK_UNINIT_COUNT)]:
            record, lanes = int(hit["record"]), int(hit["lanes"])
            name = report.register_name(int(hit["register"]))
            shown = () if lanes == _EVERYWHERE else lanes_of(lanes)
            party = Party(self.launch.program.location(record), workgroup, int(hit["wave"]), shown)
            message = f"{name} is read and was never written"
            self.collect.add(
                ("uninit-register", record, record), lambda m=message, p=party: Finding("uninit-register", m, p)
            )
        self.shadow.put(c.CK_UNINIT_COUNT, 0)

    def _party(self, stamp: int, lanes: int | None = None) -> tuple[Party, int]:
        """Who a stamp names, and the record of the instruction. lanes: a mask in place of the lane of the stamp."""
        ordinal, wave, group, lane = who(stamp)
        record = self.plan.numbered[ordinal - 1]
        return Party(
            self.launch.program.location(record),
            self._places[group - 1],
            wave,
            (lane,) if lanes is None else lanes_of(lanes),
        ), record

    def _verb(self, record: int, in_lds: bool) -> str:
        inst = self.launch.program.instructions[record]
        assert inst is not None
        return VERBS[uses(inst)[not in_lds]]

    def _place(self, raw: np.void) -> tuple[bool, str]:
        """Whether an access went to LDS, and the byte in words."""
        address = int(raw["address"])
        if raw["what"] & c.LOG_LDS:
            return True, f"byte {address:#x} of LDS"
        allocation = self.launch.simulator.memory.find(address)
        assert allocation is not None
        return False, f"byte {address - allocation.address:#x} of {allocation!r}"

    def _race(self, raw: np.void) -> None:
        stamp, other = int(raw["stamp"]), int(raw["other"])
        here, record = self._party(stamp, int(raw["lanes"]))
        there, record2 = self._party(other)
        in_lds, place = self._place(raw)
        kind = "race-lds" if in_lds else "race-memory"
        verbs = self._verb(record, in_lds), self._verb(record2, in_lds)
        if here.workgroup != there.workgroup:
            message = (
                f"the workgroup {verbs[0]} {place} that workgroup {there.workgroup} {verbs[1]}; "
                "no release and acquire order the two"
            )
        else:
            why = "no barrier stands between them"
            for party, one in ((here, stamp), (there, other)):
                if one & c.CARRIED:
                    why = f"wave {party.wave} passed a barrier before a wait had covered its access"
            message = f"wave {here.wave} {verbs[0]} {place} that wave {there.wave} {verbs[1]}: {why}"
        first, second = sorted((record, record2))
        self.collect.add((kind, first, second), lambda: Finding(kind, message, here, there))

    def _overtaken(self, raw: np.void) -> None:
        here, record = self._party(int(raw["stamp"]), int(raw["lanes"]))
        there, record2 = self._party(int(raw["other"]))
        _, place = self._place(raw)
        message = (
            f"a load to LDS overwrites {place} that an earlier access of the wave {self._verb(record2, True)}: "
            "no wait has covered that access, and the load may overtake it"
        )
        self.collect.add(("race-lds", record2, record), lambda: Finding("race-lds", message, here, there))

    def _unwritten(self, raw: np.void) -> None:
        here, record = self._party(int(raw["stamp"]), int(raw["lanes"]))
        in_lds, place = self._place(raw)
        kind = "uninit-lds" if in_lds else "uninit-memory"
        message = f"{place}, or one behind it, is read and was never written"
        self.collect.add((kind, record, record), lambda: Finding(kind, message, here))

    def _unequal(self, workgroup: Dim3) -> None:
        """Waves that wait while others have ended."""
        launch = self.launch
        words = launch.waves.view(np.uint32)
        status, barriers = words[:, state.STATUS // 4], words[:, state.BARRIERS // 4].tolist()
        places = {int(w): self._barrier_of(int(w)) for w in np.flatnonzero(status == state.STATUS_BARRIER)}
        ended = [w for w in range(launch.wave_count) if w not in places]
        first = min(places)
        record = places[first]
        notes = tuple(
            f"wave {w} waits at its barrier {barriers[w]}: {launch.program.location(places[w])}" for w in places
        )
        message = (
            f"waves {sorted(places)} wait at a barrier that waves {ended} never reach: they have ended "
            f"after {sorted({barriers[w] for w in ended})} barriers"
        )
        party = Party(launch.program.location(record), workgroup, first)
        self.collect.add(
            ("barrier-count", record, record), lambda: Finding("barrier-count", message, party, None, notes)
        )

    def _barrier_of(self, wave: int) -> int:
        """Record of the barrier at which a wave waits; it resumes behind it."""
        quads: NDArray[np.uint64] = self.launch.waves[wave].view(np.uint64)
        return self.records.number(int(quads[state.CURRENT // 8])) - 1

    def finish(self) -> list[Finding]:
        """The findings, after the last workgroup."""
        if HAZARD in self.checks:
            executed = self.records.counts() - self._before
            hazards(self.launch.program, executed, self.launch.simulator.target, self.collect)
        return self.collect.findings
