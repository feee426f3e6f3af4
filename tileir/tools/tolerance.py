"""How far the result of a device may be from the interpreter's: bounds derived from the kernel and its inputs.

Integers must be equal. For kernels that are sums of products of their inputs (no subtraction, division or function of
floats on the way), the kernel itself, run on the absolute values of its inputs, gives Σ|a||b| of every element; with n the
largest number of terms the error of each side is at most gamma_n Σ|a||b| and one rounding to the element type (Higham,
"Accuracy and Stability of Numerical Algorithms", 2nd ed., section 3.1). For other kernels the tolerance is relative to the
largest magnitude of the result: n + 64 roundings of f32, and four of the narrowest float type that the kernel computes with
further; each element may then be rounded differently on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from tileir.interpreter import run
from tileir.ir.arrays import strided
from tileir.ir.core import Kernel, Op, Value
from tileir.ir.rewriter import uses
from tileir.ir.types import GlobalType, TileType
from tileir.records import dataclass
from tileir.runtime.compare import F32_UNIT, gamma, rounding_bound

Array = np.ndarray[Any, Any]

# Ops through which magnitudes pass: f(|x|) >= |f(x)|, and f rounds at most once per term.
_LINEAR = frozenset(
    "load store mma add mul fma fill constant convert transpose reshape broadcast where for if yield reduce_add".split()
)
_MOVES = ("transpose", "reshape", "broadcast")
_FUNCTION_ROUNDINGS = 64  # of functions such as exp2 on the way: a few units in the last place each


@dataclass(frozen=True)
class Bound:
    """Allowed distance from the reference per element, and how it was derived."""

    values: Any
    text: str


def terms(kernel: Kernel, symbols: Mapping[str, int]) -> int:
    """An upper bound on the number of terms of any sum: the largest extent of the views and tiles."""
    extents = [1]
    for arg in kernel.args:
        if isinstance(arg.type, GlobalType):
            extents += [d if isinstance(d, int) else symbols[d] for d in arg.type.dims]
    for op in kernel.walk():
        extents += [n for v in op.results if isinstance(v.type, TileType) for n in v.type.shape]
    return max(extents) * max(1, sum(op.name in ("mma", "mma_scaled", "reduce_add") for op in kernel.walk()))


def is_linear(kernel: Kernel) -> bool:
    """Whether float data only passes through sums, products and moves; narrow floats only at the ends."""
    return all(_passes_magnitudes(op) for op in kernel.walk())


def _passes_magnitudes(op: Op) -> bool:
    floats = [v for v in (*op.operands, *op.results) if isinstance(v.type, TileType) and v.type.elem.is_float]
    if not floats:
        return True  # indices and conditions may compute what they like
    if op.name == "convert" and op.result.tile.elem.bits < 32:
        return op.operands[0].tile.elem.is_float
    return op.name in _LINEAR


def bounds(
    kernel: Kernel, inputs: Mapping[str, Any], symbols: Mapping[str, int], reference: Mapping[str, Array]
) -> dict[str, Bound]:
    """A bound for every array of `reference` (results of the interpreter by argument)."""
    n = terms(kernel, symbols)
    magnitudes = _magnitudes(kernel, inputs, symbols) if is_linear(kernel) else None
    out: dict[str, Bound] = {}
    for arg in kernel.args:
        if arg.name not in reference:
            continue
        assert isinstance(arg.type, GlobalType)
        elem, want = arg.type.elem, reference[arg.name].astype(np.float64)
        if not elem.is_float:
            out[arg.name] = Bound(0.0, "exact")
        elif magnitudes is not None:
            size = np.abs(magnitudes[arg.name].astype(np.float64))
            error = 2 * (gamma(n) * size * (1 + 4 * _unit(elem)) + n * 2.0**-149)
            final = 2 * rounding_bound(np.abs(want) + error, elem)
            out[arg.name] = Bound(error + final, f"gamma_{n} · Σ|a||b| on both sides, and their rounding to {elem}")
        else:
            narrow = max((_unit(e) for e in _elems(kernel)), default=0.0)
            largest = float(np.max(np.abs(want[np.isfinite(want)]), initial=0.0))
            error = ((n + _FUNCTION_ROUNDINGS) * F32_UNIT + 4 * narrow) * largest
            inner = f" + 4 · {narrow:.2g}" if narrow else ""
            text = f"({n} + {_FUNCTION_ROUNDINGS}) · 2^-24{inner} of the largest magnitude {largest:.3g}, and rounding to {elem}"
            out[arg.name] = Bound(error + 2 * rounding_bound(np.abs(want) + error, elem), text)
    return out


def _unit(elem: Any) -> float:
    """Unit roundoff of a float type."""
    info: Any = ml_dtypes.finfo(elem.np)
    return float(info.eps) / 2


def _elems(kernel: Kernel) -> list[Any]:
    """Float types narrower than f32 that values are rounded to and then computed with, not only stored."""
    users = uses(kernel)

    def only_stored(v: Value) -> bool:
        return all(
            op.name == "store" or (op.name in _MOVES and all(only_stored(r) for r in op.results))
            for op, _ in users.get(v, [])
        )

    return [
        v.type.elem
        for op in kernel.walk()
        if op.name not in ("load", "constant", *_MOVES)
        for v in op.results
        if isinstance(v.type, TileType) and v.type.elem.is_float and v.type.elem.bits < 32 and not only_stored(v)
    ]


def _magnitudes(kernel: Kernel, inputs: Mapping[str, Any], symbols: Mapping[str, int]) -> dict[str, Array]:
    """Results of the kernel on absolute values; elements that it does not write keep their own."""
    arrays = {k: _absolute(v) for k, v in inputs.items()}
    run(kernel, arrays, symbols=symbols)
    return {k: v for k, v in arrays.items() if isinstance(v, np.ndarray)}


def _absolute(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return abs(value) if isinstance(value, float) else value
    copy = clone(value)
    if copy.dtype.kind not in "iub":
        copy[...] = np.abs(copy)
    return copy


def clone(array: Array) -> Array:
    """A copy with the same strides, also of what lies between the rows."""
    if 0 in array.shape or any(s < 0 for s in array.strides):
        return array.copy()
    extent = 1 + sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) // array.itemsize
    flat = strided(array, (extent,), (array.itemsize,)).copy()
    return strided(flat, array.shape, array.strides)
