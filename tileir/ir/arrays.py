"""NumPy arrays of element types that NumPy itself does not know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def strided(array: Array, shape: Sequence[int], strides: Sequence[int]) -> Array:
    """The memory of an array seen with another shape and strides in bytes. (NumPy's `as_strided` looks types up by their name,
    which fails for floats of 8 bits and less.)"""
    raw = array.view(f"u{array.dtype.itemsize}")
    return np.lib.stride_tricks.as_strided(raw, tuple(shape), tuple(strides)).view(array.dtype)
