"""Runs the native model of one compute unit on recorded workgroups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tileir.simulator.engine import Engine
from tileir.simulator.faults import SimulatorError
from tileir.simulator.timing import layout
from tileir.simulator.timing.library import function
from tileir.simulator.timing.native_cu import cu_model
from tileir.simulator.timing.records import INTERVAL, LEVELS, Cause, CuResult, CuWave, MemoryService, WorkgroupTrace
from tileir.simulator.timing.static import StaticTable
from tileir.target import TimingModel

DEFAULT_WINDOW = 20_000
"""Clocks for which intervals are kept."""
_MOST_INTERVALS = 1 << 20


def simulate_cu(
    engine: Engine,
    table: StaticTable,
    traces: Sequence[WorkgroupTrace],
    service: MemoryService,
    model: TimingModel,
    workgroups_per_cu: int,
    total: int,
    window: int = DEFAULT_WINDOW,
) -> CuResult:
    """Lets one CU run workgroups, in this order, as many at once as fit.

    traces: the workgroups that it gets first, of ``total``. service: how memory serves it. window: clocks for which the
    result has intervals. Raises :class:`SimulatorError` when waves wait for each other forever.
    """
    return _Cu(table, traces, service, model, workgroups_per_cu, window).run(engine, total)


class _Cu:
    def __init__(
        self,
        table: StaticTable,
        traces: Sequence[WorkgroupTrace],
        service: MemoryService,
        model: TimingModel,
        workgroups_per_cu: int,
        window: int,
    ) -> None:
        self.table, self.traces, self.service, self.model = table, traces, service, model
        self.records = len(table.classes)
        per_group = len(traces[0].waves) if traces else 0
        self.count = sum(len(t.waves) for t in traces)
        self.waves: NDArray[np.uint8] = np.zeros((self.count, layout.W_BYTES), np.uint8)
        self.groups = np.zeros((len(traces), layout.G_BYTES // 4), np.int32)
        self.block = np.zeros(layout.C_BYTES, np.uint8)
        self.stalls = np.zeros((self.records + 1, layout.CAUSES), np.int64)
        self.moved = np.zeros((self.records + 1, len(LEVELS)), np.int64)
        self.window = window
        self.intervals = np.zeros(min(_MOST_INTERVALS, 16 * 2 * window + 1), INTERVAL)
        self.fills = np.zeros((layout.FILLS, layout.FILL_BYTES), np.uint8)
        self._keep: list[NDArray[np.generic]] = []
        self._fill_waves(per_group)
        self._fill_block(workgroups_per_cu)

    def _fill_waves(self, per_group: int) -> None:
        quads, words = self.waves.view(np.uint64), self.waves.view(np.uint32)
        number = 0
        for g, trace in enumerate(self.traces):
            self.groups[g, layout.G_FIRST // 4] = number
            self.groups[g, layout.G_WAVES // 4] = len(trace.waves)
            served = self.service.served[trace.number]
            for wave, levels in zip(trace.waves, served, strict=True):
                levels = np.ascontiguousarray(levels, np.uint8)
                self._keep += [wave.instructions, wave.lines, levels]
                quads[number, layout.W_TRACE // 8] = wave.instructions.ctypes.data
                quads[number, layout.W_COUNT // 8] = len(wave.instructions)
                quads[number, layout.W_LINES // 8] = wave.lines.ctypes.data
                quads[number, layout.W_LEVELS // 8] = levels.ctypes.data
                words[number, layout.W_GROUP // 4] = g
                words[number, layout.W_INDEX // 4] = number
                number += 1

    def _fill_block(self, workgroups_per_cu: int) -> None:
        quads, doubles = self.block.view(np.uint64), self.block.view(np.float64)
        m = self.model
        values = {
            layout.C_STATIC: self.table.rows.ctypes.data,
            layout.C_LIST: self.table.registers.ctypes.data,
            layout.C_WAVES: self.waves.ctypes.data,
            layout.C_GROUPS: self.groups.ctypes.data,
            layout.C_GROUP_COUNT: len(self.traces),
            layout.C_RESIDENT: workgroups_per_cu,
            layout.C_STALLS: self.stalls.ctypes.data,
            layout.C_BYTES_MOVED: self.moved.ctypes.data,
            layout.C_INTERVALS: self.intervals.ctypes.data,
            layout.C_INTERVAL_CAPACITY: len(self.intervals),
            layout.C_WINDOW: self.window,
            layout.C_VALU_CLOSED: m.clocks("valu_closed_after_mfma"),
            layout.C_PACKED_OPEN: m.clocks("packed_f32_under_mfma"),
            layout.C_LDS_LATENCY: m.clocks("lds_latency"),
            layout.C_LDS_QUEUE: min(layout.QUEUE_ROOM, m.clocks("lds_queue_per_simd_pair") // 2),
            layout.C_LDS_SHARE: m.clocks("lds_share_of_simd_pair"),
            layout.C_BARRIER: m.clocks("barrier_clocks"),
            layout.C_WAVE_LAUNCH: m.clocks("wave_launch_clocks"),
            layout.C_GROUP_LAUNCH: m.clocks("workgroup_launch_clocks"),
            layout.C_LAST_SIMD: layout.SIMDS - 1,
            layout.C_FILLS: self.fills.ctypes.data,
        }
        for offset, value in values.items():
            quads[offset // 8] = value
        for level in range(len(LEVELS)):
            doubles[layout.C_LATENCY // 8 + level] = self.service.latency[level]
            doubles[layout.C_CLOCKS_PER_BYTE // 8 + level] = 1 / self.service.bytes_per_clock[level]
        doubles[layout.C_LINE_CLOCKS // 8] = m.number("l1_line_clocks")
        doubles[layout.C_SCALAR_LATENCY // 8] = m.number("scalar_latency")
        for simd in range(layout.SIMDS):
            quads[(layout.C_SIMD + simd * layout.D_BYTES + layout.D_NEXT) // 8] = 1 << 61

    def run(self, engine: Engine, total: int) -> CuResult:
        run = function(engine, "cu", cu_model, 1)
        if run(self.block.ctypes.data):
            raise SimulatorError("the timing model came to a state in which waves wait for each other forever")
        return self._result(total)

    def _result(self, total: int) -> CuResult:
        quads, words = self.waves.view(np.int64), self.waves.view(np.int32)
        waves: list[CuWave] = []
        number, issues = 0, np.zeros(self.records + 1, np.int64)
        lds, conflicts = np.zeros(self.records + 1, np.int64), np.zeros(self.records + 1, np.int64)
        simd_mfma = [0] * layout.SIMDS
        busy = np.where(self.table.rows["flags"] & layout.F_MATRIX, self.table.rows["busy"], 0).astype(np.int64)
        for trace in self.traces:
            for k, wave in enumerate(trace.waves):
                simd = int(words[number, layout.W_SIMD // 4])
                start, end = (int(quads[number, at // 8]) for at in (layout.W_START, layout.W_END))
                waves.append(CuWave(trace.number, k, simd, int(words[number, layout.W_SLOT // 4]), start, end))
                record = wave.instructions["record"]
                counts = np.bincount(record, minlength=self.records + 1)
                issues += counts
                lds += np.bincount(record, wave.instructions["lds_clocks"], self.records + 1).astype(np.int64)
                conflicts += np.bincount(record, wave.instructions["conflict_clocks"], self.records + 1).astype(
                    np.int64
                )
                simd_mfma[simd] += int(counts @ busy)
                number += 1
        drained = int(quads[:, layout.W_VM_LAST // 8].max(initial=0))
        clocks = max([drained, *(w.end for w in waves)])
        used = int(self.block.view(np.int64)[layout.C_INTERVAL_COUNT // 8])
        intervals = self.intervals[:used]
        intervals = intervals[np.argsort(intervals["start"], kind="stable")]
        n = self.records
        return CuResult(
            clocks=clocks,
            waves=tuple(waves),
            window=self.window,
            intervals=intervals,
            issues=issues[:n],
            issue_clocks=issues[:n] * layout.SIMDS,
            stalls=self.stalls[:n, : len(Cause)],
            lds_clocks=lds[:n],
            conflict_clocks=conflicts[:n],
            mfma_clocks=(issues * busy)[:n],
            bytes=self.moved[:n],
            simd_mfma_clocks=tuple(simd_mfma),
            lds_busy_clocks=int(lds.sum()),
            simulated=len(self.traces),
            total=total,
            workgroup_ends=tuple(int(g) for g in self.groups.view(np.int64)[:, layout.G_END // 8]),
        )
