"""Memory of NumPy arrays as seen by a launcher: the allocation behind a view, and whether arrays meet."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tileir.records import dataclass
from tileir.runtime.device import Bytes

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Region:
    """Host addresses from `start` to `end`, exclusive; `owner` keeps the memory alive."""

    start: int
    end: int
    owner: Array

    @property
    def nbytes(self) -> int:
        return self.end - self.start

    def bytes(self) -> Bytes:
        """The memory itself as an array of bytes, not a copy."""
        if not self.nbytes:
            return np.zeros(0, np.uint8)
        return np.ctypeslib.as_array((ctypes.c_uint8 * self.nbytes).from_address(self.start))


def span(array: Array) -> tuple[int, int]:
    """Addresses of the first byte and the end of what the elements of an array cover; strides may have any sign."""
    start = array.__array_interface__["data"][0]
    if array.size == 0:
        return start, start
    steps = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
    return start + sum(min(0, s) for s in steps), start + sum(max(0, s) for s in steps) + array.itemsize


def allocation(array: Array) -> Region:
    """The memory of the array that `array` is a view of, so that a kernel sees the same surroundings as on the host."""
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    start, end = span(owner)
    low, high = span(array)
    if low < start or high > end:  # a view that was made by hand reaches beyond its base
        return Region(low, high, array)
    return Region(start, end, owner)


def merged(regions: list[Region]) -> list[Region]:
    """Disjoint regions that cover all of the given ones, in ascending order."""
    out: list[Region] = []
    for r in sorted(regions, key=lambda r: (r.start, r.end)):
        if out and r.start < out[-1].end:
            out[-1] = Region(out[-1].start, max(out[-1].end, r.end), out[-1].owner)
        else:
            out.append(r)
    return out


class _Placed:
    """Something NumPy takes for an array at an address, which is never dereferenced."""

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int):
        self.__array_interface__ = {
            "version": 3,
            "typestr": f"|V{itemsize}",
            "data": (address, True),
            "shape": shape,
            "strides": strides,
        }


def placed(address: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> Array:
    """An array at any address (also of another memory), to ask whether it shares elements with another one. Strides in
    bytes. Its elements must not be read."""
    return np.asarray(_Placed(address, shape, strides, itemsize))
