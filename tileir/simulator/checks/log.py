"""The access log that native code writes, as NumPy sees it, and what each record does to LDS and device memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tileir.simulator import state
from tileir.simulator.decoder import Instruction

READ, WRITE, ATOMIC = 1, 2, 4
VERBS = {READ: "reads", WRITE: "writes", ATOMIC: "updates"}

ENTRY = np.dtype(
    {
        "names": ["address", "record", "sequence", "what", "wave"],
        "formats": ["<u8", "<i4", "<i4", "<u4", "<u4"],
        "offsets": [
            state.LOG_ADDRESS,
            state.LOG_RECORD,
            state.LOG_SEQUENCE,
            state.LOG_WHAT,
            state.LOG_WAVE,
        ],
        "itemsize": state.LOG_BYTES,
    }
)
Log = NDArray[np.void]


def uses(instructions: Sequence[Instruction | None]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """READ, WRITE or ATOMIC of each record, for LDS and for device memory."""
    lds = np.zeros(len(instructions), np.uint8)
    device = np.zeros(len(instructions), np.uint8)
    for i, inst in enumerate(instructions):
        if inst is None:
            continue
        name = inst.name
        if inst.modifiers.get("lds", 0) or "_load_lds_" in name:
            lds[i], device[i] = WRITE, READ
        elif inst.encoding == "ds":
            lds[i] = READ if name.startswith("ds_read") else WRITE if name.startswith("ds_write") else ATOMIC
        elif "_atomic_" in name:
            lds[i] = device[i] = ATOMIC
        else:
            lds[i] = device[i] = WRITE if "_store_" in name else READ
    return lds, device


def sizes(log: Log) -> NDArray[np.int64]:
    return (log["what"] & 0xFF).astype(np.int64)


def lanes(log: Log) -> NDArray[np.int64]:
    return (log["what"] >> 8 & 0xFF).astype(np.int64)


def unit_of(start: NDArray[np.int64], size: NDArray[np.int64]) -> int:
    """Largest of 4, 2, 1 bytes of which all accesses are whole multiples."""
    bits = int(np.bitwise_or.reduce(start) | np.bitwise_or.reduce(size)) if start.size else 0
    return 1 if bits & 1 else 2 if bits & 2 else 4


def units(start: NDArray[np.int64], size: NDArray[np.int64], unit: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All units that accesses touch, in log order, and the number of the access of each."""
    count = size // unit
    owner = np.repeat(np.arange(start.size), count)
    first = np.cumsum(count) - count
    return start[owner] // unit + (np.arange(owner.size) - first[owner]), owner
