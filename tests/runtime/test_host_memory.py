"""The memory behind arrays."""

from __future__ import annotations

import numpy as np

from tileir.runtime.host_memory import Region, allocation, merged, placed, span


def test_span() -> None:
    x = np.zeros((4, 10), np.float32)
    at = x.ctypes.data
    assert span(x) == (at, at + 160)
    assert span(x[1:3, 2:9:3]) == (at + 48, at + 48 + 40 + 24 + 4)
    assert span(x[::-1, ::-1]) == (at, at + 160)
    assert span(np.broadcast_to(x[:1], (50, 10))) == (at, at + 40)
    assert span(x[:0])[0] == span(x[:0])[1]


def test_allocation_is_that_of_the_base() -> None:
    x = np.zeros((4, 10), np.float32)
    assert allocation(x[1:3, 2:9:3].T[1:]) == Region(x.ctypes.data, x.ctypes.data + 160, x)
    raw = np.frombuffer(bytearray(64), np.uint8)
    assert allocation(raw[8:].view(np.int32)).nbytes == 64


def test_bytes_are_the_memory_itself() -> None:
    x = np.zeros(4, np.uint16)
    allocation(x[1:]).bytes()[2] = 7
    assert x.tolist() == [0, 7, 0, 0]
    assert allocation(np.zeros(0)).bytes().size == 0


def test_merged() -> None:
    owner = np.zeros(1)
    regions = [Region(*r, owner) for r in ((10, 20), (0, 5), (15, 30), (12, 14), (30, 40), (50, 50))]
    assert [(r.start, r.end) for r in merged(regions)] == [(0, 5), (10, 30), (30, 40), (50, 50)]


def test_placed_arrays_know_whether_they_meet() -> None:
    base = 1 << 44
    even, odd = placed(base, (8,), (8,), 4), placed(base + 4, (8,), (8,), 4)
    assert not np.shares_memory(even, odd)
    assert np.shares_memory(even, placed(base + 56, (1,), (4,), 4))
    assert not np.shares_memory(even, placed(base + 60, (1,), (4,), 4))
