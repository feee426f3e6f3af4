"""The estimate as it is handed out: one object with a text and a JSON form. Everything in it is estimated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tileir.records import dataclass
from tileir.simulator.faults import Statistics
from tileir.simulator.inspect.occupancy import Occupancy
from tileir.simulator.timing.records import CuResult, Dim3, Dispatch, LoopRow, MemoryService, Row
from tileir.simulator.timing.rows import waves_per_simd

SCHEMA = "tileir-timing/1"
_LINES_SHOWN = 20
_CAUSES_SHOWN = 3
CAUSE_TEXTS = {
    "issue": "another wave's turn",
    "dependency": "result not ready",
    "mfma_busy": "matrix pipe busy",
    "valu_busy": "VALU busy",
    "lds_busy": "LDS queue full",
    "vmem_busy": "vector memory busy",
    "wait_vm": "waits for vmcnt",
    "wait_lgkm": "waits for lgkmcnt",
    "barrier": "waits at a barrier",
    "sleep": "s_nop, s_sleep",
    "branch": "behind a branch",
}
"""Causes of stalls in words, by their names in rows."""


@dataclass(frozen=True, eq=False)
class Timing:
    """An estimate of the time of one launch.

    clocks, seconds: of the whole grid, without the launch itself. cu_clocks: what the CU alone would take; bandwidth_clocks:
    what the bytes take at the full rate of each level. matrix_flops: operations of all matrix instructions of the grid.
    parameters: which frozen set of parameters; evidence: how many of them are of which class. statistics: of the
    execution that was recorded. cu, memory: results of the two models. total, loops, lines: of the simulated CU.
    """

    chip: str
    product: str
    kernel: str
    grid: Dim3
    block: Dim3
    clock_hz: float
    clocks: float
    cu_clocks: float
    bandwidth_clocks: Mapping[str, float]
    matrix_flops: float
    occupancy: Occupancy
    dispatch: Dispatch
    cu: CuResult
    memory: MemoryService
    total: Row
    loops: tuple[LoopRow, ...]
    lines: tuple[Row, ...]
    statistics: Statistics
    parameters: str
    evidence: Mapping[str, int]
    notes: tuple[str, ...]

    @property
    def seconds(self) -> float:
        return self.clocks / self.clock_hz

    @property
    def mfma_utilisation(self) -> float:
        """Part of the simulated CU's time for which the matrix pipes of its SIMDs are busy."""
        busy = self.cu.simd_mfma_clocks
        return sum(busy) / (len(busy) * self.cu.clocks) if self.cu.clocks else 0.0

    @property
    def matrix_tflops(self) -> float:
        """Estimated rate of the matrix instructions of the whole grid, in 10¹² operations per second."""
        return self.matrix_flops / self.seconds / 1e12 if self.clocks else 0.0

    def json(self) -> dict[str, Any]:
        """The estimate as JSON data, schema ``tileir-timing/1`` (docs/timing.md)."""
        cu = self.cu
        return {
            "schema": SCHEMA,
            "estimated": True,
            "parameters": self.parameters,
            "evidence": dict(self.evidence),
            "chip": self.chip,
            "product": self.product,
            "kernel": self.kernel,
            "grid": list(self.grid),
            "block": list(self.block),
            "clock_hz": self.clock_hz,
            "clocks": round(self.clocks, 1),
            "seconds": self.seconds,
            "cu_clocks": round(self.cu_clocks, 1),
            "bandwidth_clocks": {level: round(clocks, 1) for level, clocks in self.bandwidth_clocks.items()},
            "mfma_utilisation": round(self.mfma_utilisation, 6),
            "matrix_tflops": round(self.matrix_tflops, 3),
            "occupancy": {
                "workgroups_per_cu": self.occupancy.workgroups_per_cu,
                "waves_per_workgroup": self.dispatch.waves_per_workgroup,
                "waves_per_simd": round(waves_per_simd(cu), 3),
                "limited_by": list(self.occupancy.limited_by),
            },
            "cu": {
                "clocks": cu.clocks,
                "workgroups_simulated": cu.simulated,
                "workgroups": cu.total,
                "lds_clocks": cu.lds_busy_clocks,
                "conflict_clocks": int(cu.conflict_clocks.sum()),
                "simd_mfma_clocks": list(cu.simd_mfma_clocks),
            },
            "memory": {
                "levels": list(self.memory.levels),
                "bytes": dict(self.memory.bytes_by_level),
                "hit_rates": {level: round(rate, 6) for level, rate in self.memory.hit_rates.items()},
                "latency_clocks": [round(float(x), 1) for x in self.memory.latency],
                "bytes_per_clock_and_cu": [round(float(x), 3) for x in self.memory.bytes_per_clock],
                "workgroups_recorded": self.memory.sampled,
            },
            "total": _row(self.total),
            "loops": [
                {
                    "number": loop.number,
                    "header": loop.header,
                    "depth": loop.depth,
                    "iterations": loop.iterations,
                    "clocks_per_iteration": round(loop.clocks_per_iteration, 2),
                    **_row(loop.row),
                }
                for loop in self.loops
            ],
            "lines": [_row(row) for row in self.lines],
            "notes": list(self.notes),
        }

    def text(self) -> str:
        """A table for the terminal."""
        return "\n".join([*self._head(), "", *self._stalls(), *self._loops(), *self._lines()]) + "\n"

    # ---- pieces of the text
    def _head(self) -> list[str]:
        cu, o = self.cu, self.occupancy
        evidence = ", ".join(f"{n} {name}" for name, n in self.evidence.items())
        workgroups = f"{o.workgroups_per_cu} workgroup{'s' * (o.workgroups_per_cu > 1)}"
        each = f"{self.dispatch.waves_per_workgroup} wave{'s' * (self.dispatch.waves_per_workgroup > 1)}"
        lines = [
            f"estimated time of {self.kernel} on {self.chip} ({self.product}): {_time(self.seconds)}, "
            f"{self.clocks:.0f} clocks at {self.clock_hz / 1e9:.2f} GHz",
            f"  parameters       {self.parameters}: {evidence}",
            f"  occupancy        at most {workgroups} of {each} on a CU (limited by {', '.join(o.limited_by)}); "
            f"{waves_per_simd(cu):.2f} waves per SIMD on average",
        ]
        if self.matrix_flops:
            lines.append(
                f"  matrix pipes     estimated {100 * self.mfma_utilisation:.1f} % busy on the simulated CU, "
                f"estimated {self.matrix_tflops:.1f} TFLOPS on the chip"
            )
        conflicts = int(cu.conflict_clocks.sum())
        lines.append(
            f"  LDS              {cu.lds_busy_clocks} clocks of {cu.clocks}, {conflicts} of them by bank conflicts"
        )
        rates = self.memory.hit_rates
        moved = ", ".join(
            f"{level} {_bytes(self.memory.bytes_by_level[level])}"
            + (f" ({100 * rates[level]:.0f} % hits)" if level in rates else "")
            for level in self.memory.levels
        )
        lines.append(f"  bytes            {moved}")
        floor = ", ".join(f"{level} {clocks:.0f}" for level, clocks in self.bandwidth_clocks.items())
        lines.append(f"  least clocks     {floor} (bytes at full rate); the CU {self.cu_clocks:.0f}")
        return lines + [f"  note             {note}" for note in self.notes]

    def _stalls(self) -> list[str]:
        total = self.total
        if not total.clocks:
            return []
        rows = {"issuing": total.clocks - sum(total.stalls.values())}
        rows |= {CAUSE_TEXTS[cause]: n for cause, n in sorted(total.stalls.items(), key=lambda item: -item[1])}
        head = "where the time of the waves goes (estimated wave clocks of the simulated CU)"
        return [
            head,
            *[f"  {name:<20} {clocks:>12}  {100 * clocks / total.clocks:5.1f} %" for name, clocks in rows.items()],
        ]

    def _loops(self) -> list[str]:
        if not self.loops:
            return []
        lines = ["", "loops (estimated)"]
        for loop in self.loops:
            row = loop.row
            lines.append(
                f"  {row.label}, depth {loop.depth}: {loop.iterations} iterations of {loop.clocks_per_iteration:.0f} wave clocks, "
                f"{_share(row, self.total)} of the time"
            )
            lines += [f"    {text}" for text in _details(row)]
        return lines

    def _lines(self) -> list[str]:
        if not self.lines:
            return ["", "no source lines: the code object has no line table"]
        lines = ["", "source lines by time (estimated)"]
        for row in self.lines[:_LINES_SHOWN]:
            lines.append(f"  {row.label}  {_share(row, self.total)} of the time, {row.issues} instructions")
            lines += [f"    {text}" for text in _details(row)]
        left = len(self.lines) - _LINES_SHOWN
        return lines + ([f"  … and {left} lines more"] if left > 0 else [])


def _row(row: Row) -> dict[str, Any]:
    data = asdict(row)
    data["mfma_utilisation"] = round(row.mfma_utilisation, 6)
    return data


def _share(row: Row, total: Row) -> str:
    return f"{100 * row.clocks / total.clocks:.1f} %" if total.clocks else "0 %"


def _details(row: Row) -> list[str]:
    """Mix, use of units, bytes and the largest causes of stalls."""
    mix = ", ".join(f"{n} {name}" for name, n in row.mix.items())
    use: list[str] = []
    if row.mfma_clocks:
        use.append(f"MFMA {100 * row.mfma_utilisation:.1f} %")
    if row.lds_clocks:
        use.append(f"LDS {row.lds_clocks} clocks, {row.conflict_clocks} by conflicts")
    moved = ", ".join(f"{level} {_bytes(n)}" for level, n in row.bytes.items() if n)
    if moved:
        use.append(f"from {moved}")
    stalls = sorted(row.stalls.items(), key=lambda item: -item[1])[:_CAUSES_SHOWN]
    waits = ", ".join(f"{CAUSE_TEXTS[cause]} {100 * n / row.clocks:.0f} %" for cause, n in stalls)
    return [text for text in (mix, "; ".join(use), waits) if text]


def _bytes(n: float) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return f"{n:.0f} B"


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3f} {unit}"
    return f"{seconds * 1e6:.2f} µs"
