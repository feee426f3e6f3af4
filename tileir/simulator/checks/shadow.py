"""The memory that native checks work on, for one launch: areas with shadow cells, clocks, slots, raw findings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tileir.simulator import state
from tileir.simulator.memory import Allocation, reserve
from tileir.simulator.native import check_state as c

RAW = np.dtype(
    {
        "names": ["kind", "what", "address", "stamp", "other", "lanes"],
        "formats": ["<i4", "<u4", "<u8", "<u8", "<u8", "<u8"],
        "offsets": [c.RAW_KIND, c.RAW_WHAT, c.RAW_ADDRESS, c.RAW_STAMP, c.RAW_OTHER, c.RAW_LANES],
        "itemsize": c.RAW_BYTES,
    }
)
_BLOCK = 1 << c.BLOCK_SHIFT
_U64 = np.uint64


def who(stamp: int) -> tuple[int, int, int, int]:
    """(number of the memory instruction, wave, workgroup number, lane) of a stamp."""
    group = stamp >> c.GROUP_SHIFT & (1 << c.GROUP_BITS) - 1
    return stamp & c.RECORD_MASK, stamp >> c.WAVE_SHIFT & 15, group, stamp >> c.LANE_SHIFT & 63


class Shadow:
    """race, uninit: what is looked for. groups: workgroups of the launch. foreign: workgroups may order each other."""

    def __init__(
        self,
        allocations: Sequence[Allocation],
        lds: NDArray[np.uint8],
        lds_bytes: int,
        waves: int,
        ops: bytearray,
        *,
        race: bool,
        uninit: bool,
        groups: int,
        foreign: bool,
    ) -> None:
        self.block = np.zeros(c.CK_BYTES // 8, _U64)
        self.words = self.block.view(np.uint32)
        self.waves, self.groups = waves, min(groups, (1 << c.GROUP_BITS) - 1)
        self.keys = np.zeros(c.KEYS, _U64)
        self.findings = np.zeros(c.MOST_FINDINGS, RAW)
        self.slots = reserve(waves * c.QUEUES * c.SLOTS * c.SLOT_BYTES)
        self.ops: NDArray[np.uint8] = np.frombuffer(ops, np.uint8)
        self.shadows: dict[int, NDArray[_U64]] = {}
        self.touched: dict[int, NDArray[np.uint8]] = {}
        self.areas = np.zeros((max(1, len(allocations)), c.AREA_BYTES // 8), _U64)
        for i, allocation in enumerate(allocations):
            self._area(self.areas[i], allocation, race, uninit)
        self.lds = self.block[c.CK_LDS // 8 :][: c.AREA_BYTES // 8]
        self.lds[c.AREA_SIZE // 8], self.lds[c.AREA_LDS // 8] = lds_bytes, 1
        self.lds[c.AREA_HOST // 8] = lds.ctypes.data
        self._shadow(self.lds, lds_bytes, c.COARSEST)
        self.foreign: NDArray[np.uint16] | None = None
        if foreign:
            self.foreign = reserve(waves * (self.groups + 1) * 32).view(np.uint16).reshape(waves, -1, 16)
            self.put(c.CK_FOREIGN, self.foreign.ctypes.data)
        self.put(c.CK_FLAGS, race * c.FLAG_RACE | uninit * c.FLAG_UNINIT)
        self.put(c.CK_GROUPS, self.groups + 1)
        self.put(c.CK_OPS, self.ops.ctypes.data)
        self.put(c.CK_SLOTS, self.slots.ctypes.data)
        self.put(c.CK_AREAS, self.areas.ctypes.data)
        self.put(c.CK_FINDINGS, self.findings.ctypes.data)
        self.put(c.CK_KEYS, self.keys.ctypes.data)

    @property
    def address(self) -> int:
        return self.block.ctypes.data

    def put(self, offset: int, value: int) -> None:
        self.block[offset // 8] = value

    def get(self, offset: int) -> int:
        return int(self.block[offset // 8])

    def _area(self, row: NDArray[_U64], allocation: Allocation, race: bool, uninit: bool) -> None:
        row[c.AREA_START // 8], row[c.AREA_SIZE // 8] = allocation.address, allocation.size
        row[c.AREA_HOST // 8] = allocation.bytes.ctypes.data
        if race and not allocation.read_only:
            self._shadow(row, allocation.size, c.COARSEST)
        if uninit and allocation.written is not None:
            row[c.AREA_WRITTEN // 8] = allocation.written.ctypes.data

    def _shadow(self, row: NDArray[_U64], size: int, shift: int) -> NDArray[_U64]:
        cells = reserve(((size >> shift) + 1) * c.CELL_BYTES).view(_U64).reshape(-1, c.CELL_BYTES // 8)
        row[c.AREA_SHADOW // 8], row[c.AREA_SHIFT // 8] = cells.ctypes.data, shift
        self.shadows[row.ctypes.data] = cells
        if row.ctypes.data not in self.touched:
            touched = self.touched[row.ctypes.data] = reserve((size >> c.BLOCK_SHIFT) + 1)
            row[c.AREA_TOUCHED // 8] = touched.ctypes.data
        return cells

    def refine(self) -> None:
        """Makes the units of the area that native code names as small as the access needs."""
        at = self.get(c.CK_REFINE_AREA)
        rows = [self.lds, *self.areas]
        row = next(r for r in rows if r.ctypes.data == at)
        bits = self.get(c.CK_REFINE_BITS)
        shift = min(c.COARSEST, (bits & -bits).bit_length() - 1)
        old, coarse = self.shadows[at], int(row[c.AREA_SHIFT // 8])
        new = self._shadow(row, int(row[c.AREA_SIZE // 8]), shift)
        times = 1 << coarse - shift
        for block in np.flatnonzero(self.touched[at]).tolist():
            start, end = block * _BLOCK >> coarse, (block + 1) * _BLOCK >> coarse
            part = old[start:end]
            target = new[start * times : (start + len(part)) * times]
            target[:] = np.repeat(part, times, axis=0)[: len(target)]

    def begin(self, group: int) -> None:
        """A new workgroup: nobody knows of anything, LDS is fresh."""
        self.put(c.CK_GROUP, min(group, self.groups))
        self.put(c.CK_LOG_COUNT, 0)
        self.words[c.CK_CLOCKS // 4 :][:16] = 1
        self.words[c.CK_RING // 4 :][: 16 * c.QUEUES] = 0
        self.words[c.CK_KNOWN // 4 :][:256] = 0
        self.shadows[self.lds.ctypes.data][:] = 0

    @property
    def clocks(self) -> NDArray[np.uint32]:
        return self.words[c.CK_CLOCKS // 4 :][:16]

    @property
    def known(self) -> NDArray[np.uint32]:
        return self.words[c.CK_KNOWN // 4 :][:256].reshape(16, 16)

    def renew_clocks(self) -> None:
        """Sets all clocks back, at a point that all waves have reached: what happened in the workgroup is ordered."""
        group = self.get(c.CK_GROUP)
        clock = _U64(c.CLOCK_MASK << c.CLOCK_SHIFT)
        mask = _U64((1 << c.GROUP_BITS) - 1)
        for row in (self.lds, *self.areas):
            at, shift = row.ctypes.data, int(row[c.AREA_SHIFT // 8])
            for block in np.flatnonzero(self.touched[at]).tolist() if at in self.touched else ():
                part = self.shadows[at][block * _BLOCK >> shift : (block + 1) * _BLOCK >> shift]
                mine = (part >> _U64(c.GROUP_SHIFT) & mask) == group
                part[mine] &= ~clock
        self.clocks[:] = 1
        self.known[:] = 0

    def take(self) -> NDArray[np.void]:
        """The raw findings since the last call."""
        n = self.get(c.CK_FINDING_COUNT)
        taken = self.findings[self._taken : n].copy()
        self._taken = n
        return taken

    _taken = 0


def oldest(raw: NDArray[np.uint8], queue: int) -> int | None:
    """Sequence number of the oldest pending vector-memory (0) or FLAT (3) operation of a wave."""
    words = raw.view(np.uint32)
    base, head, length = {
        c.QUEUE_VM: (state.QUEUE_VM, int(words[state.VM_HEAD // 4]), state.VM_LENGTH),
        c.QUEUE_FLAT: (state.QUEUE_FLAT, 0, state.FLAT_LENGTH),
    }[queue]
    if not words[length // 4]:
        return None
    return int(words[(base + head * state.ENTRY_BYTES + state.ENTRY_SEQUENCE) // 4])
