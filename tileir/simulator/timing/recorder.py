"""Records what workgroups execute: instructions of each wave, LDS clocks, cache lines."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tileir.simulator import state
from tileir.simulator.decoder import Instruction
from tileir.simulator.faults import Finding, SimulatorError
from tileir.simulator.native import check_state
from tileir.simulator.native.access import recorded
from tileir.simulator.records import Records
from tileir.simulator.timing import layout
from tileir.simulator.timing.lds_rules import LdsRules
from tileir.simulator.timing.library import function
from tileir.simulator.timing.native_trace import trace_wave
from tileir.simulator.timing.records import (
    ATOMIC,
    INSTRUCTION,
    LINE,
    NT,
    READ,
    SC0,
    SC1,
    SCALAR,
    WRITE,
    Dim3,
    WaveTrace,
    WorkgroupTrace,
)

if TYPE_CHECKING:
    from tileir.simulator.launch import _Launch  # pyright: ignore[reportPrivateUsage]

_LOGGED = ("ds", "mubuf", "mtbuf", "global", "flat", "smem")
_SLICE = 1 << 16
_MOST_KEPT = 1 << 25
"""Instructions of all waves of all workgroups that are kept, at most: 512 MiB, and as much again for their lines."""
_FIRST_INSTRUCTIONS, _FIRST_LINES = 1 << 12, 1 << 13
_STATIC = np.dtype([("rule", "<i4"), ("clocks", "<i4"), ("kind", "u1"), ("policy", "u1"), ("spare", "u1", 6)])
_POLICY = {"sc0": SC0, "sc1": SC1, "nt": NT}


def _kind(inst: Instruction) -> int:
    """READ, WRITE, ATOMIC and SCALAR of an access to device memory."""
    if inst.encoding == "smem":
        return READ | SCALAR
    if "_atomic_" in inst.name:
        return ATOMIC
    return WRITE if "_store_" in inst.name else READ


class _Buffers:
    """The growing trace of one wave."""

    def __init__(self, shared: dict[int, int]) -> None:
        self.instructions: NDArray[np.void] = np.zeros(_FIRST_INSTRUCTIONS, INSTRUCTION)
        self.lines: NDArray[np.void] = np.zeros(_FIRST_LINES, LINE)
        self.words: NDArray[np.uint64] = np.zeros(layout.T_BYTES // 8, np.uint64)
        for offset, value in shared.items():
            self.words[offset // 8] = value
        self._attach()

    def _attach(self) -> None:
        words = self.words
        words[layout.T_INSTRUCTIONS // 8], words[layout.T_CAPACITY // 8] = (
            self.instructions.ctypes.data,
            len(self.instructions),
        )
        words[layout.T_LINES // 8], words[layout.T_LINE_CAPACITY // 8] = self.lines.ctypes.data, len(self.lines)

    def reset(self) -> None:
        self.words[layout.T_COUNT // 8] = self.words[layout.T_LINE_COUNT // 8] = 0

    @property
    def used(self) -> tuple[int, int]:
        return int(self.words[layout.T_COUNT // 8]), int(self.words[layout.T_LINE_COUNT // 8])

    @property
    def nearly_full(self) -> bool:
        count, lines = self.used
        return count >= len(self.instructions) or lines + layout.MAX_LINES > len(self.lines)

    def make_room(self) -> None:
        """Doubles what is nearly full."""
        count, lines = self.used
        if count >= len(self.instructions):
            self.instructions = np.concatenate([self.instructions, np.zeros(len(self.instructions), INSTRUCTION)])
        if lines + layout.MAX_LINES > len(self.lines):
            self.lines = np.concatenate([self.lines, np.zeros(len(self.lines), LINE)])
        self._attach()

    def trace(self, most: int | None = None) -> WaveTrace:
        """What was recorded, of the first ``most`` instructions."""
        count, lines = self.used
        if most is not None and count > most:
            count, lines = most, int(self.instructions["first_line"][most])
        return WaveTrace(self.instructions[:count].copy(), self.lines[:lines].copy())


class Recorder:
    """Runs the workgroups of a launch in place of its own loop and keeps traces. Made before the launch is prepared.

    full: numbers, in the order of dispatch, of the workgroups that are kept; of the others, ``start`` instructions of their
    first wave are. leave: stops the others behind these instructions.
    """

    def __init__(self, launch: _Launch, full: Collection[int], start: int = 0, *, leave: bool = False) -> None:
        self.launch, self.full, self.start, self.leave = launch, frozenset(full), start, leave
        self.traces: list[WorkgroupTrace] = []
        self.starts: list[WorkgroupTrace] = []
        self._start: WaveTrace | None = None
        self._kept = 0
        program = launch.program
        target = launch.simulator.target
        if target.cache_line_bytes != 1 << layout.LINE_SHIFT:
            raise SimulatorError(f"cache lines of {target.cache_line_bytes} bytes cannot be recorded")
        ops = [
            recorded(op) if inst is not None and inst.encoding in _LOGGED else op
            for op, inst in zip(program.ops, program.instructions, strict=True)
        ]
        simulated = [program.base + address for address in program.addresses]
        engine = launch.simulator.engine
        self.records = Records(ops, simulated, engine, program.base + program.end_address)
        self._run_wave = function(engine, "trace", trace_wave, 2)
        rules = LdsRules(target)
        table = np.zeros(len(ops) + 2, _STATIC)
        table["rule"] = -1
        for i, inst in enumerate(program.instructions):
            if inst is None:
                continue
            rule = rules.of(inst)
            if rule is not None:
                table[i]["rule"], table[i]["clocks"] = rule.number, rule.least_clocks
            if inst.encoding in _LOGGED and inst.encoding != "ds":
                table[i]["kind"] = _kind(inst)
                table[i]["policy"] = sum(bit for name, bit in _POLICY.items() if inst.modifiers.get(name, 0))
        self._table, self._rules = table, rules.packed()
        self._counts = np.zeros(layout.MAX_SLOTS * layout.MAX_BANKS, np.uint32)
        self._words = np.zeros(layout.MAX_SLOTS * layout.MAX_BANKS * layout.BANK_DEPTH, np.uint32)
        self._check = np.zeros(check_state.CK_BYTES, np.uint8)
        shared = {
            layout.T_TABLE: self._table.ctypes.data,
            layout.T_RULES: self._rules.ctypes.data,
            layout.T_BANK_COUNTS: self._counts.ctypes.data,
            layout.T_BANK_WORDS: self._words.ctypes.data,
        }
        self._buffers = [_Buffers(shared) for _ in range(launch.wave_count)]

    def attach(self, workgroups: int) -> None:
        """Connects the log to the prepared launch."""
        self.launch.workgroup.view(np.uint64)[state.WG_CHECK // 8] = self._check.ctypes.data

    def finish(self) -> list[Finding]:
        """A recorder finds nothing."""
        return []

    def run(self, workgroup: Dim3) -> int:
        """Runs one workgroup, which the launch has reset; 0, or ``fault | wave << 8`` as the native loop gives it. Raises
        SimulatorError when there is more to keep than there may be."""
        for buffers in self._buffers:
            buffers.reset()
        x, y, _ = self.launch.grid
        number = workgroup[0] + x * (workgroup[1] + y * workgroup[2])
        self._start = None
        full = number in self.full
        result = self._run(self.launch.workgroup.view(np.uint64), full, self.start if self.leave and not full else None)
        if not result and full:
            self.traces.append(WorkgroupTrace(number, workgroup, tuple(b.trace() for b in self._buffers)))
            self._kept += sum(len(wave.instructions) for wave in self.traces[-1].waves)
            self._check_room(0)
        elif not result and self.start:
            start = self._buffers[0].trace(self.start) if self._start is None else self._start
            self.starts.append(WorkgroupTrace(number, workgroup, (start,)))
        return result

    def _make_room(self, buffers: _Buffers, full: bool) -> None:
        """What is not kept makes room for what follows; what is kept has a limit."""
        if full:
            buffers.make_room()
            self._check_room(sum(len(b.instructions) for b in self._buffers))
            return
        if buffers is self._buffers[0] and self._start is None:
            self._start = buffers.trace(self.start)
        buffers.reset()

    def _check_room(self, more: int) -> None:
        if self._kept + more > _MOST_KEPT:
            raise SimulatorError(
                f"the workgroups that an estimate of time needs execute more than {_MOST_KEPT} instructions; "
                "give it a smaller problem or fewer workgroups"
            )

    def _run(self, words: NDArray[np.uint64], full: bool, enough: int | None) -> int:
        """The scheduling loop of the native runtime; it ends when the first wave has executed ``enough`` instructions."""
        launch = self.launch
        quads, status = launch.waves.view(np.uint64), launch.waves.view(np.uint32)[:, state.STATUS // 4]
        first, stride, left = launch.waves.ctypes.data, launch.waves.strides[0], launch.max_instructions
        statuses = [state.STATUS_RUNNING] * launch.wave_count
        while True:
            for wave, buffers in enumerate(self._buffers):
                while statuses[wave] in (state.STATUS_RUNNING, state.STATUS_SLICE):
                    if not left:
                        return wave << 8 | state.FAULT_BUDGET
                    part = min(left, _SLICE if enough is None else max(1, enough))
                    quads[wave, state.BUDGET // 8] = part
                    result = self._run_wave(first + wave * stride, buffers.words.ctypes.data)
                    used = part - int(quads[wave, state.BUDGET // 8])
                    left -= used
                    words[state.WG_BUDGET // 8] = left
                    words[state.WG_CLOCK // 8] += np.uint64(used)
                    statuses[wave] = result
                    if result >= state.FAULT_BASE:
                        return wave << 8 | result
                    if result != state.STATUS_SLICE:
                        break
                    if buffers.nearly_full:
                        self._make_room(buffers, full)
                    if used == part:  # others get their turn, in case this wave waits for them in a loop
                        break
            if enough is not None and (self._start is not None or self._buffers[0].used[0] >= enough):
                return 0
            waiting = [wave for wave, now in enumerate(statuses) if now == state.STATUS_BARRIER]
            ended = statuses.count(state.STATUS_ENDED)
            if ended == len(statuses):
                return 0
            if len(waiting) + ended < len(statuses):
                continue
            if ended and launch.strict_barriers:
                return waiting[-1] << 8 | state.FAULT_BARRIER
            for wave in waiting:
                statuses[wave] = state.STATUS_RUNNING
                status[wave] = state.STATUS_RUNNING
