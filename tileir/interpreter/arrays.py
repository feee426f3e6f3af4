"""NumPy arrays as arguments of a launch."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import numpy as np

from tileir.ir.binding import ArrayInfo, LaunchError
from tileir.ir.core import Kernel
from tileir.ir.diagnostics import Diagnostic

Array = np.ndarray[Any, Any]


def array_info(array: Any) -> Any:
    """Dtype, shape and strides in elements of a NumPy array; anything else is returned as it is, for `bind` to reject."""
    if not isinstance(array, np.ndarray):
        return array
    size = array.dtype.itemsize
    if any(s % size for s, n in zip(array.strides, array.shape, strict=True) if n > 1):
        return f"an array with strides {array.strides} in bytes, no multiples of {size}"
    return ArrayInfo(array.dtype, array.shape, tuple(s // size for s in array.strides))


def share_memory(a: Array, b: Array) -> bool:
    """Whether two arrays have an element in common; arrays that are too hard to tell apart count as sharing."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=100_000)  # type: ignore[arg-type]  (any limit is allowed)
    except np.exceptions.TooHardError:
        return True


def check_writable(kernel: Kernel, written: Container[str], views: Mapping[str, Array]) -> None:
    """Raises LaunchError if one of these arrays is read-only and its view is written."""
    found = [
        Diagnostic("E1619", f"%{a.name} is written, but its array is read-only", a.loc, legal="a writable array")
        for a in kernel.args
        if a.name in written and a.name in views and not views[a.name].flags.writeable
    ]
    if found:
        raise LaunchError(found)
