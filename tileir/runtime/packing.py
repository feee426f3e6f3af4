"""Elements below 8 bits in memory: one after the other without gaps, the first in the lowest bits, rows at whole bytes.

NumPy holds such elements in a byte each (`ml_dtypes`), so arrays are packed on their way to a device and unpacked on the way back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tileir.ir.types import ELEMS, Elem

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def packed_elem(dtype: Any) -> Elem | None:
    """The element type of a NumPy dtype if its elements share bytes in memory."""
    return next((e for e in ELEMS.values() if e.unit[0] > 1 and e.np == dtype), None)


def pack(codes: Bytes, elem: Elem) -> Bytes:
    """Elements given in a byte each, in memory form; begun bytes are filled with zeros."""
    bits = (codes.reshape(-1, 1) >> np.arange(elem.bits, dtype=np.uint8)) & 1
    return np.packbits(bits.reshape(-1), bitorder="little")


def unpack(data: Bytes, elem: Elem, count: int) -> Bytes:
    """The first `count` elements of memory, in a byte each."""
    bits = np.unpackbits(data, count=count * elem.bits, bitorder="little").reshape(count, elem.bits)
    return (bits << np.arange(elem.bits, dtype=np.uint8)).sum(axis=1, dtype=np.uint8)
