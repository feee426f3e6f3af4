"""Data classes of the timing model: recorded traces, the order of dispatch, what the memory model gives to the model of
the compute unit, and what that gives back.

Units: clocks are shader clocks, sizes are bytes. Every array of results is an estimate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tileir.records import dataclass

Dim3 = tuple[int, int, int]

LEVELS = ("L1", "L2", "LLC", "HBM")
"""Where a cache line is found: vector L1 of the CU (scalar cache for scalar loads), L2 of the XCD, last-level cache, memory."""

READ, WRITE, ATOMIC, SCALAR = 1, 2, 4, 8
"""Bits of ``LINE.kind``."""
SC0, SC1, NT = 1, 2, 4
"""Bits of ``LINE.policy``: the cache policy bits of the instruction."""

INSTRUCTION = np.dtype(
    [
        ("record", "<i4"),
        ("lds_clocks", "<u2"),
        ("conflict_clocks", "<u2"),
        ("first_line", "<u4"),
        ("lines", "<u4"),
    ]
)
"""One executed instruction of a wave. record: number of the instruction in the program. lds_clocks: clocks for which its
data occupies the LDS, of which conflict_clocks are more than without conflicts. first_line, lines: its part of the lines."""

LINE = np.dtype(
    [
        ("address", "<u8"),
        ("bytes", "<u2"),
        ("kind", "u1"),
        ("policy", "u1"),
        ("instruction", "<u4"),
    ]
)
"""A cache line that an instruction touches. address: of the line. bytes: sum over the lanes, at most one line.
instruction: index among the wave's instructions."""

INTERVAL = np.dtype(
    [
        ("start", "<u8"),
        ("end", "<u8"),
        ("record", "<i4"),
        ("wave", "<u2"),
        ("simd", "u1"),
        ("unit", "u1"),
        ("cause", "u1"),
        ("reserved", "u1", 7),
    ]
)
"""What a wave does from start to end. cause NONE: ``record`` occupies ``unit``; otherwise the wave waits before
``record`` for that cause. wave: index into :attr:`CuResult.waves`."""


class Unit(IntEnum):
    """Which class an instruction issues to. Each accepts one instruction per clock of the CU's arbiter."""

    NONE = 0
    VALU = 1
    MFMA = 2
    SALU = 3
    SMEM = 4
    VMEM = 5
    LDS = 6
    BRANCH = 7
    INTERNAL = 8


class Cause(IntEnum):
    """Why a wave does not issue."""

    NONE = 0
    ISSUE = 1
    DEPENDENCY = 2
    MFMA_BUSY = 3
    VALU_BUSY = 4
    LDS_BUSY = 5
    VMEM_BUSY = 6
    WAIT_VM = 7
    WAIT_LGKM = 8
    BARRIER = 9
    SLEEP = 10
    BRANCH = 11


@dataclass(frozen=True, eq=False)
class WaveTrace:
    """instructions: :data:`INSTRUCTION` in order of execution; lines: :data:`LINE`, grouped by instruction."""

    instructions: NDArray[np.void]
    lines: NDArray[np.void]


@dataclass(frozen=True, eq=False)
class WorkgroupTrace:
    """number: place in the order of dispatch, x fastest."""

    number: int
    workgroup: Dim3
    waves: tuple[WaveTrace, ...]


@dataclass(frozen=True)
class Dispatch:
    """Which workgroup goes where. Workgroups go round robin over the XCDs and, there, over the CUs (assumed; the first is
    documented, and hardware gives later ones to whichever CU has room)."""

    grid: Dim3
    waves_per_workgroup: int
    workgroups_per_cu: int
    num_xcds: int
    cus_per_xcd: int

    @property
    def count(self) -> int:
        """Workgroups of the grid."""
        x, y, z = self.grid
        return x * y * z

    @property
    def num_cus(self) -> int:
        return self.num_xcds * self.cus_per_xcd

    @property
    def active_cus(self) -> int:
        """CUs that get a workgroup."""
        return min(self.count, self.num_cus)

    @property
    def resident(self) -> int:
        """Workgroups that are on the chip at once."""
        return min(self.count, self.num_cus * self.workgroups_per_cu)

    def xcd(self, number: int) -> int:
        return number % self.num_xcds

    def cu(self, number: int) -> int:
        """CU inside its XCD."""
        return number // self.num_xcds % self.cus_per_xcd

    def round(self, number: int) -> int:
        """How many workgroups the CU got before."""
        return number // self.num_cus

    def of_cu(self, xcd: int, cu: int) -> range:
        """Workgroups of a CU, in order."""
        return range(xcd + cu * self.num_xcds, self.count, self.num_cus)

    def workgroup(self, number: int) -> Dim3:
        """x, y, z of a workgroup."""
        x, y, _ = self.grid
        return number % x, number // x % y, number // (x * y)

    def number(self, workgroup: Dim3) -> int:
        """Place of a workgroup in the order of dispatch."""
        return workgroup[0] + self.grid[0] * (workgroup[1] + self.grid[1] * workgroup[2])


@dataclass(frozen=True, eq=False)
class MemoryService:
    """How the memory beyond a CU serves it; arrays are by level.

    latency: clocks from issue to data of a line that the level serves, without queues. bytes_per_clock: rate at which the
    level serves one CU while all active CUs use it. served: level of each line of each recorded workgroup, per wave.
    bytes_by_level: bytes that each level delivered or took in, for the whole grid. sampled: workgroups that it is made of.
    """

    latency: NDArray[np.float64]
    bytes_per_clock: NDArray[np.float64]
    served: Mapping[int, tuple[NDArray[np.uint8], ...]]
    hit_rates: Mapping[str, float]
    bytes_by_level: Mapping[str, int]
    sampled: int
    notes: tuple[str, ...] = ()
    levels: tuple[str, ...] = LEVELS


@dataclass(frozen=True)
class CuWave:
    """One wave that ran on the CU: dispatch number of its workgroup, its number in it, its SIMD and wave slot, its time."""

    workgroup: int
    wave: int
    simd: int
    slot: int
    start: int
    end: int


@dataclass(frozen=True, eq=False)
class CuResult:
    """What one CU did. Arrays by record are as long as the program.

    intervals: :data:`INTERVAL` that begin before ``window`` clocks. issues, issue_clocks, lds_clocks, conflict_clocks,
    mfma_clocks: by record. stalls: wave clocks by record and :class:`Cause`. bytes: by record and level.
    simd_mfma_clocks: clocks for which the matrix pipe of each SIMD is busy. simulated, total: workgroups of this CU that
    were simulated, and that it gets. workgroup_ends: clock at which each simulated workgroup ended, in order.
    """

    clocks: int
    waves: tuple[CuWave, ...]
    window: int
    intervals: NDArray[np.void]
    issues: NDArray[np.int64]
    issue_clocks: NDArray[np.int64]
    stalls: NDArray[np.int64]
    lds_clocks: NDArray[np.int64]
    conflict_clocks: NDArray[np.int64]
    mfma_clocks: NDArray[np.int64]
    bytes: NDArray[np.int64]
    simd_mfma_clocks: tuple[int, ...]
    lds_busy_clocks: int
    simulated: int
    total: int
    workgroup_ends: tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """Totals of a piece of code on the simulated CU. label: ``file:line``, a loop, or the kernel.

    clocks: wave clocks spent, issuing and waiting. mfma_utilisation: matrix-pipe clocks of a loop or kernel per clock that
    its SIMDs spent in it (waves that share a SIMD taken to be in it together); of a source line, which is executed between
    others, per clock of the whole time, so that lines add up. mix: executed instructions by class.
    """

    label: str
    file: str
    line: int
    issues: int
    clocks: int
    mfma_clocks: int
    mfma_utilisation: float
    lds_clocks: int
    conflict_clocks: int
    mix: Mapping[str, int] = field(default_factory=dict[str, int])
    bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    stalls: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class LoopRow:
    """A loop: its number in the static report, address of its header, nesting depth, iterations of all simulated waves."""

    number: int
    header: int
    depth: int
    iterations: int
    clocks_per_iteration: float
    row: Row
