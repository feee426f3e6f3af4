"""LDS of one workgroup: buffers that are poisoned until written, and copies that land only when a wait covers them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tileir.interpreter.errors import Fault
from tileir.ir.diagnostics import Note
from tileir.ir.location import Loc
from tileir.ir.types import SharedType
from tileir.records import dataclass

Array = np.ndarray[Any, Any]


class SharedBuffer:
    """One buffer. `extent` is its byte range in LDS, or None while no offset is allocated."""

    def __init__(self, type: SharedType, offset: int, loc: Loc):
        self.type = type
        self.loc = loc
        self.data = np.zeros(type.shape, type.elem.np)
        self.written = np.zeros(type.shape, bool)
        self.clobbered_by: Loc | None = None
        size = type.layout.size_bytes if type.layout is not None else self.data.size * type.elem.bytes
        self.extent = (offset, offset + size) if offset >= 0 else None


@dataclass
class _Pending:
    """A vector-memory operation in flight; `buffer` is None for those that do not write LDS. `instructions` is a lower
    bound on the instructions that every wave issues for it, `mask` the elements it writes (None for all)."""

    instructions: int
    buffer: SharedBuffer | None
    value: Array | None
    loc: Loc
    mask: Array | None = None


class SharedMemory:
    """The LDS buffers and outstanding copies of one program.

    A counter wait says how many of the youngest instructions may still be outstanding, so a copy has landed for certain
    iff at least that many were issued after it. The count of instructions per op is a lower bound here, which errs on
    the side of reporting a wait as too weak.
    """

    def __init__(self) -> None:
        self._buffers: list[SharedBuffer] = []
        self._queue: list[_Pending] = []

    def alloc(self, type: SharedType, offset: int, loc: Loc) -> SharedBuffer:
        buffer = SharedBuffer(type, offset, loc)
        if buffer.extent is not None:
            self._buffers.append(buffer)
        return buffer

    def issue(self, loc: Loc) -> None:
        """Counts a load or store to global memory."""
        self._queue.append(_Pending(1, None, None, loc))

    def copy(self, buffer: SharedBuffer, value: Array, instructions: int, loc: Loc, mask: Array | None = None) -> None:
        self._reject_pending(buffer, "is copied to again", mask)
        self._queue.append(_Pending(instructions, buffer, value, loc, mask))

    def load(self, buffer: SharedBuffer, mask: Array | None = None) -> Array:
        """The contents; only the elements of `mask` (None for all) must be there."""
        self._reject_pending(buffer, "is read", mask)
        if not np.all(buffer.written if mask is None else buffer.written[mask]):
            notes = [Note("the buffer", buffer.loc)]
            if buffer.clobbered_by is not None:
                notes.append(Note("overwritten through a buffer in the same place", buffer.clobbered_by))
            raise Fault("E1702", f"{buffer.type} is read before it is written", "write the buffer first", tuple(notes))
        return buffer.data.copy()

    def store(self, buffer: SharedBuffer, value: Array, loc: Loc, mask: Array | None = None) -> None:
        self._reject_pending(buffer, "is written", mask)
        self._write(buffer, value, loc, mask)

    def wait(self, outstanding: int) -> None:
        """Lands everything but the `outstanding` youngest instructions."""
        newer = 0
        keep = len(self._queue)
        while keep and newer < outstanding:
            keep -= 1
            newer += self._queue[keep].instructions
        for p in self._queue[:keep]:
            if p.buffer is not None and p.value is not None:
                self._write(p.buffer, p.value, p.loc, p.mask)
        del self._queue[:keep]

    def _write(self, buffer: SharedBuffer, value: Array, loc: Loc, mask: Array | None) -> None:
        where = ... if mask is None else mask
        buffer.data[where] = value if mask is None else value[mask]
        buffer.written[where] = True
        for other in self._buffers:
            if other is not buffer and _overlap(other, buffer):
                self._reject_pending(other, "shares its place with a buffer that is written")
                other.written[...] = False
                other.clobbered_by = loc

    def _reject_pending(self, buffer: SharedBuffer, what: str, mask: Array | None = None) -> None:
        for p in self._queue:
            if p.buffer is buffer and (mask is None or p.mask is None or np.any(mask & p.mask)):
                raise Fault(
                    "E1703",
                    f"{buffer.type} {what} while a copy to it is in flight",
                    "a wait<vm = …> that covers the copy, before this",
                    (Note("the copy", p.loc),),
                )


def _overlap(a: SharedBuffer, b: SharedBuffer) -> bool:
    if a.extent is None or b.extent is None:
        return False
    return a.extent[0] < b.extent[1] and b.extent[0] < a.extent[1]
