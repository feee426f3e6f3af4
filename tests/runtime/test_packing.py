"""Elements below 8 bits in memory."""

from __future__ import annotations

import numpy as np
import pytest

from tileir.ir.types import ELEMS
from tileir.runtime.packing import pack, packed_elem, unpack

NAMES = ("f4E2M1FN", "f6E2M3FN", "f6E3M2FN")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7, 64, 129])
def test_there_and_back(name: str, count: int) -> None:
    elem = ELEMS[name]
    codes = np.random.default_rng(count).integers(0, 1 << elem.bits, count).astype(np.uint8)
    data = pack(codes, elem)
    assert len(data) == elem.run_bytes(count)
    assert np.array_equal(unpack(data, elem, count), codes)


def test_the_first_element_is_in_the_lowest_bits() -> None:
    assert pack(np.array([1, 2, 3], np.uint8), ELEMS["f4E2M1FN"]).tolist() == [0x21, 0x03]
    six = pack(np.array([0b000001, 0b100000, 0b000011, 0b110000], np.uint8), ELEMS["f6E2M3FN"])
    assert six.tolist() == [0b00_000001, 0b0011_1000, 0b110000_00]


def test_which_types_share_bytes() -> None:
    shared = [name for name, elem in ELEMS.items() if packed_elem(elem.np) is not None]
    assert sorted(shared) == sorted(NAMES)
    assert [ELEMS[name].unit for name in NAMES] == [(2, 1), (4, 3), (4, 3)]
