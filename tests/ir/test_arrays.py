"""Arrays with strides of types that NumPy does not know by name."""

from __future__ import annotations

import numpy as np
import pytest

from tileir.ir.arrays import strided
from tileir.ir.types import ELEMS


@pytest.mark.parametrize("name", list(ELEMS))
def test_every_type_can_be_strided(name: str) -> None:
    dtype = ELEMS[name].np
    flat = np.arange(24).astype(np.uint8).repeat(dtype.itemsize).view(dtype) if name != "i1" else np.arange(24) % 3 == 0
    seen = strided(flat, (3, 4), (8 * dtype.itemsize, dtype.itemsize))
    assert seen.dtype == dtype and seen.shape == (3, 4)
    raw = f"u{dtype.itemsize}"
    assert np.array_equal(seen.view(raw), flat.view(raw).reshape(3, 8)[:, :4])
    assert np.shares_memory(seen.view(raw), flat.view(raw))
