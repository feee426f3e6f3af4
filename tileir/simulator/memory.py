"""Simulated device memory: separate allocations in a 64-bit address space, far apart from each other.

Host memory is reserved lazily: an allocation of many gigabytes costs only the pages that are touched.
"""

from __future__ import annotations

import bisect
import mmap

import numpy as np
from numpy.typing import DTypeLike, NDArray

from . import state
from .faults import SimulatorError

FIRST_ADDRESS = 1 << 44
RED_ZONE = 1 << 30
"""Distance between allocations: an address that misses its buffer by less hits nothing else."""
_END = 1 << 47
_PAGE = 4096
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


def reserve(size: int) -> NDArray[np.uint8]:
    """Zeroed host memory that is committed when it is touched."""
    length = max(size, 1)
    try:
        if hasattr(mmap, "MAP_ANONYMOUS"):
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            if mmap.__name__ and hasattr(mmap, "MAP_POPULATE"):  # Linux
                flags |= _MAP_NORESERVE
            area = mmap.mmap(-1, length, flags=flags)
        else:
            area = mmap.mmap(-1, length)
    except (OSError, OverflowError, ValueError) as error:
        raise SimulatorError(f"cannot reserve {size} bytes of host memory: {error}") from None
    return np.frombuffer(area, dtype=np.uint8)[:size]


class Allocation:
    """A buffer. ``address`` is simulated; ``bytes`` is the memory itself as a NumPy array (shared, not a copy)."""

    def __init__(self, address: int, size: int, name: str, read_only: bool) -> None:
        self.address = address
        self.size = size
        self.name = name
        self.read_only = read_only
        self.bytes = reserve(size)
        self.written: NDArray[np.uint8] | None = None
        """One byte per byte, 0xFF where something has been written; kept only for uninitialised buffers."""

    @property
    def end(self) -> int:
        return self.address + self.size

    def view(self, dtype: DTypeLike) -> NDArray[np.generic]:
        """The whole buffer as a one-dimensional array; its size must be a multiple of the item size."""
        return self.bytes.view(dtype)

    def write(self, data: NDArray[np.generic] | bytes, offset: int = 0) -> None:
        """Copies bytes into the buffer."""
        raw = (
            np.frombuffer(data, np.uint8)
            if isinstance(data, bytes)
            else np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        )
        if offset < 0 or offset + raw.size > self.size:
            raise SimulatorError(f"{raw.size} bytes at offset {offset} do not fit into {self!r}")
        self.bytes[offset : offset + raw.size] = raw
        if self.written is not None:
            self.written[offset : offset + raw.size] = 0xFF

    def read(self, dtype: DTypeLike, count: int | None = None, offset: int = 0) -> NDArray[np.generic]:
        """A copy of ``count`` items from byte ``offset`` on (all that follow by default)."""
        item = np.dtype(dtype).itemsize
        n = (self.size - offset) // item if count is None else count
        if offset < 0 or n < 0 or offset + n * item > self.size:
            raise SimulatorError(f"{n} items of {item} bytes at offset {offset} are outside {self!r}")
        return self.bytes[offset : offset + n * item].copy().view(dtype)

    def __repr__(self) -> str:
        name = f"'{self.name}' " if self.name else ""
        return f"allocation {name}of {self.size} bytes at {self.address:#x}"


class Memory:
    """All allocations of a simulator, at ``first`` and behind it."""

    def __init__(self, first: int = FIRST_ADDRESS) -> None:
        self._next = first
        self._starts: list[int] = []
        self._allocations: list[Allocation] = []
        self._table: NDArray[np.uint64] | None = None

    def allocate(
        self, size: int, name: str = "", *, align: int = 256, read_only: bool = False, uninitialised: bool = False
    ) -> Allocation:
        """A new zeroed buffer of ``size`` bytes; ``read_only`` refuses stores of kernels, not of the host.

        uninitialised: reads of bytes that neither :meth:`Allocation.write` nor a kernel under the check ``uninit``
        has written are findings of that check.
        """
        if size < 0:
            raise SimulatorError(f"allocation of {size} bytes")
        if align <= 0 or align & (align - 1):
            raise SimulatorError(f"alignment {align} is not a power of two")
        address = (self._next + align - 1) & -align
        if address + size + RED_ZONE > _END:
            raise SimulatorError("the simulated address space is used up")
        allocation = Allocation(address, size, name, read_only)
        if uninitialised:
            allocation.written = reserve(size)
        self._next = (address + size + RED_ZONE + _PAGE - 1) & -_PAGE
        self._starts.append(address)
        self._allocations.append(allocation)
        self._table = None
        return allocation

    def free(self, allocation: Allocation) -> None:
        """Ends an allocation; later accesses of kernels to it fault. Its addresses are not used again."""
        at = bisect.bisect_left(self._starts, allocation.address)
        if at == len(self._starts) or self._allocations[at] is not allocation:
            raise SimulatorError(f"{allocation!r} is not allocated here")
        del self._starts[at], self._allocations[at]
        self._table = None

    def find(self, address: int) -> Allocation | None:
        """The allocation that contains an address."""
        at = bisect.bisect_right(self._starts, address) - 1
        if at >= 0 and address < self._allocations[at].end:
            return self._allocations[at]
        return None

    def describe(self, address: int) -> str:
        """Where an address lies: inside, before or behind which allocation."""
        at = bisect.bisect_right(self._starts, address) - 1
        candidates = self._allocations[max(at, 0) : at + 2]
        if not candidates:
            return "nothing is allocated"

        def distance(a: Allocation) -> int:
            return a.address - address if address < a.address else max(0, address - a.end + 1)

        nearest = min(candidates, key=distance)
        if address < nearest.address:
            return f"{nearest.address - address} bytes before the nearest {nearest!r}"
        if address < nearest.end:
            return f"at byte {address - nearest.address} of {nearest!r}"
        return f"{address - nearest.end} bytes behind the end of the nearest {nearest!r}"

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        """All buffers by address."""
        return tuple(self._allocations)

    @property
    def addressed(self) -> tuple[Allocation, ...]:
        """The buffers that have a byte, in the order of :meth:`table`."""
        return tuple(a for a in self._allocations if a.size)

    def table(self) -> NDArray[np.uint64]:
        """The allocations as native code searches them: rows of start, size, host pointer, flags."""
        if self._table is None:
            rows = [
                (a.address, a.size, a.bytes.ctypes.data, state.ALLOC_READ_ONLY if a.read_only else 0)
                for a in self.addressed
            ]
            self._table = np.array(rows, dtype=np.uint64).reshape(len(rows), 4)
        return self._table
