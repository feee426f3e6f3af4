"""Runs workgroups under checks: the scheduling loop of the native runtime, with the checks between its steps."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tileir.simulator import report, state
from tileir.simulator.checks import BARRIER, HAZARD, RACE, UNINIT
from tileir.simulator.checks.collect import Collector
from tileir.simulator.checks.hazard import mfma_hazards
from tileir.simulator.checks.log import ENTRY, Log
from tileir.simulator.checks.race import CARRIED, MemoryCheck
from tileir.simulator.checks.registers import items
from tileir.simulator.faults import Finding, Party, lanes_of
from tileir.simulator.native.access import logged
from tileir.simulator.native.checked import checked
from tileir.simulator.records import Records

if TYPE_CHECKING:
    from tileir.simulator.launch import Dim3, _Launch  # pyright: ignore[reportPrivateUsage]

_CAPACITY = 1 << 19
_MOST_ACCESSES = 320
"""Log entries of one instruction at most: 64 lanes of a buffer load to LDS, four dwords one by one and the LDS write."""
_LOGGED = ("ds", "mubuf", "global", "flat", "smem")
"""Encodings of the instructions that access LDS or device memory."""
_SLICE = 1 << 16
_EPOCH_LIMIT = 1 << 23
"""Accesses that are kept between two barriers; beyond it they are checked in portions of this size."""
_UNINIT = np.dtype(
    {
        "names": ["record", "register", "lanes", "wave"],
        "formats": ["<i4", "<i4", "<u8", "<u8"],
        "offsets": [state.UNINIT_RECORD, state.UNINIT_REGISTER, state.UNINIT_LANES, state.UNINIT_WAVE],
        "itemsize": state.UNINIT_BYTES,
    }
)
_QUEUES = (
    (state.QUEUE_VM, state.VM_HEAD, state.VM_LENGTH),
    (state.QUEUE_LGKM, state.LGKM_HEAD, state.LGKM_LENGTH),
    (state.QUEUE_SMEM, None, state.SMEM_LENGTH),
    (state.QUEUE_FLAT, None, state.FLAT_LENGTH),
)


class Monitor:
    """The checks of one launch. Made before the launch is prepared: its records replace those of the program."""

    def __init__(self, launch: _Launch, checks: frozenset[str], strict: bool, limit: int) -> None:
        self.launch, self.checks, self.strict = launch, checks, strict
        self.collect = Collector(strict, limit)
        program = launch.program
        self.memory_checked = bool(checks & {RACE, UNINIT})
        ops = list(program.ops)
        if self.memory_checked:
            for i, inst in enumerate(program.instructions):
                if inst is not None and inst.encoding in _LOGGED:
                    ops[i] = logged(ops[i])
        shown = [checked(op) for op in ops] if UNINIT in checks else ops
        simulated = [program.base + address for address in program.addresses]
        engine = launch.simulator.engine
        self.records = Records(shown, simulated, engine, program.base + program.end_address)
        self._functions = engine.addresses({op.key: op.make for op in ops}) if UNINIT in checks else {}
        self._keys = [op.key for op in ops]
        self._log = np.zeros(_CAPACITY, ENTRY)

    # ---- state of the launch
    def attach(self, several: bool) -> None:
        """Connects the log and the tables to the prepared launch. several: more than one workgroup will run."""
        launch = self.launch
        self._words = launch.workgroup.view(np.uint64)
        self._put(state.WG_LOG, self._log.ctypes.data)
        self._put(state.WG_LOG_CAPACITY, _CAPACITY)
        self.memory = MemoryCheck(
            launch.program,
            launch.simulator.memory,
            launch.lds_bytes,
            self.collect,
            race=RACE in self.checks,
            uninit=UNINIT in self.checks,
            across=several and not _synchronises(launch),
        )
        if UNINIT in self.checks:
            self._attach_registers()

    def _put(self, offset: int, value: int) -> None:
        self._words[offset // 8] = value

    def _attach_registers(self) -> None:
        program, n = self.launch.program, len(self._keys)
        table = bytearray((n + 2) * state.CHECKED_BYTES)
        listed: list[int] = []
        for i, inst in enumerate(program.instructions):
            own = items(inst) if inst else []
            struct.pack_into(
                "<QII", table, i * state.CHECKED_BYTES, self._functions[self._keys[i]], len(listed), len(own)
            )
            listed += own
        self._table: NDArray[np.uint8] = np.frombuffer(table, np.uint8)
        self._items = np.array([*listed, 0], np.uint32)
        self._shadow = np.zeros((self.launch.wave_count, state.SHADOW_REGISTERS), np.uint64)
        self._uninit = np.zeros(n + 2, _UNINIT)
        self._put(state.WG_CHECKED, self._table.ctypes.data)
        self._put(state.WG_CHECKED_ITEMS, self._items.ctypes.data)
        self._put(state.WG_SHADOW, self._shadow.ctypes.data)
        self._put(state.WG_UNINIT, self._uninit.ctypes.data)

    def _reset_registers(self) -> None:
        """What the AMDHSA ABI initialises: user and system SGPRs, the work-item ids, trap and scratch registers."""
        d = self.launch.kernel.descriptor
        everywhere = np.uint64((1 << 64) - 1)
        self._shadow[:] = 0
        self._shadow[:, 0] = everywhere
        scalars = self._shadow[:, state.CHECK_SGPR :]
        system = (
            d.enable_sgpr_workgroup_id_x,
            d.enable_sgpr_workgroup_id_y,
            d.enable_sgpr_workgroup_id_z,
        )
        scalars[:, : d.user_sgpr_count + sum(map(bool, system))] = everywhere
        scalars[:, 102:106] = everywhere
        scalars[:, 108:124] = everywhere

    # ---- running
    def run(self, workgroup: Dim3) -> int:
        """Runs one workgroup to its end; 0, or ``fault | wave << 8`` as the native loop gives it."""
        launch = self.launch
        if UNINIT in self.checks:
            self._reset_registers()
        self.memory.begin(workgroup)
        words = launch.waves.view(np.uint32)
        quads = launch.waves.view(np.uint64)
        status = words[:, state.STATUS // 4]
        run_wave = launch.simulator.engine.run_wave
        barriers = [0] * launch.wave_count
        self._epoch: list[Log] = []
        self._entries = 0
        most = _CAPACITY // _MOST_ACCESSES if self.memory_checked else _SLICE
        while True:
            for wave in range(launch.wave_count):
                if status[wave] not in (state.STATUS_RUNNING, state.STATUS_SLICE):
                    continue
                left = int(self._words[state.WG_BUDGET // 8])
                if not left:
                    return wave << 8 | state.FAULT_BUDGET
                part = min(left, most)
                quads[wave, state.BUDGET // 8] = part
                result = run_wave(launch.waves[wave].ctypes.data)
                used = part - int(quads[wave, state.BUDGET // 8])
                self._words[state.WG_BUDGET // 8] = left - used
                self._words[state.WG_CLOCK // 8] += np.uint64(used)
                self._drain(workgroup)
                if result >= state.FAULT_BASE:
                    self._end_epoch()
                    return wave << 8 | result
                barriers[wave] += result == state.STATUS_BARRIER
            ended = status == state.STATUS_ENDED
            waiting = status == state.STATUS_BARRIER
            if not bool((ended | waiting).all()):
                continue
            self._end_epoch()
            if bool(ended.all()):
                return 0
            if bool(ended.any()):
                if BARRIER in self.checks:
                    self._unequal(workgroup, barriers, waiting)
                elif launch.strict_barriers:
                    return int(np.flatnonzero(waiting)[-1]) << 8 | state.FAULT_BARRIER
            status[waiting] = state.STATUS_RUNNING

    def _drain(self, workgroup: Dim3) -> None:
        n = int(self._words[state.WG_LOG_COUNT // 8])
        if n > _CAPACITY:
            raise AssertionError("an instruction made more accesses than the log has room for")
        if n:
            self._epoch.append(self._log[:n].copy())
            self._entries += n
            self._put(state.WG_LOG_COUNT, 0)
            if self._entries > _EPOCH_LIMIT:
                self._end_epoch()
        if UNINIT in self.checks:
            self._drain_registers(workgroup)

    def _drain_registers(self, workgroup: Dim3) -> None:
        for hit in self._uninit[: int(self._words[state.WG_UNINIT_COUNT // 8])]:
            record, lanes = int(hit["record"]), int(hit["lanes"])
            name = report.register_name(int(hit["register"]))
            shown = () if lanes == (1 << 64) - 1 else lanes_of(lanes)
            party = Party(self.launch.program.location(record), workgroup, int(hit["wave"]), shown)
            message = f"{name} is read and was never written"
            self.collect.add(
                ("uninit-register", record, record), lambda m=message, p=party: Finding("uninit-register", m, p)
            )
        self._put(state.WG_UNINIT_COUNT, 0)

    def _end_epoch(self) -> None:
        """Checks what lies between two barriers and keeps what no wait has covered yet."""
        if not self._epoch:
            return
        log = np.concatenate(self._epoch)
        self.memory.epoch(log)
        self._epoch, self._entries = [], 0
        for wave in range(self.launch.wave_count):
            pending = self._pending(wave)
            if not pending:
                continue
            late = log[(log["wave"] == wave) & np.isin(log["sequence"], pending)]
            if late.size:
                late["what"] |= np.uint32(CARRIED)
                self._epoch.append(late)
                self._entries += late.size

    def _pending(self, wave: int) -> list[int]:
        """Sequence numbers of the operations on their way."""
        raw = self.launch.waves[wave]
        out: list[int] = []
        for queue, head, length in _QUEUES:
            n = int(struct.unpack_from("<I", raw, length)[0])
            first = int(struct.unpack_from("<I", raw, head)[0]) if head is not None else 0
            for i in range(n):
                entry = queue + (first + i) % state.QUEUE_CAPACITY * state.ENTRY_BYTES
                out.append(int(struct.unpack_from("<I", raw, entry + state.ENTRY_SEQUENCE)[0]))
        return out

    def _unequal(self, workgroup: Dim3, barriers: list[int], waiting: NDArray[np.bool_]) -> None:
        """Waves that wait while others have ended."""
        launch = self.launch
        places = {int(w): self._barrier_of(int(w)) for w in np.flatnonzero(waiting)}
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
        current = int(struct.unpack_from("<Q", self.launch.waves[wave], state.CURRENT)[0])
        return self.records.number(current) - 1

    def finish(self) -> list[Finding]:
        """The findings, after the last workgroup."""
        if HAZARD in self.checks:
            mfma_hazards(self.launch.program, self.records.counts(), self.launch.simulator.target, self.collect)
        return self.collect.findings


def _synchronises(launch: _Launch) -> bool:
    """Whether the kernel may order workgroups through atomics or cache control; then they are not compared."""
    return any(
        inst.name == "buffer_wbl2"
        or (inst.encoding != "ds" and "_atomic_" in inst.name and inst.modifiers.get("sc0", 0))
        for inst in launch.program.instructions
        if inst is not None
    )
