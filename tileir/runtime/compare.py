"""Comparing results with a float64 reference within a bound that is derived, not guessed.

Sources: N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., section 3.1 (inner products: the error of
a sum of k products, in any order, is at most gamma_k times the sum of their magnitudes) and section 2.1 (underflow).
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tileir.ir.types import F32, Elem
from tileir.records import dataclass

Array = np.ndarray[Any, Any]

F32_UNIT = 2.0**-24
"""Unit roundoff of f32 under rounding to nearest."""

_F32_TINY = 2.0**-149  # smallest positive f32: a product or sum that underflows loses less than this


def gamma(k: int, unit: float = F32_UNIT) -> float:
    """k·u / (1 - k·u): bound on the relative error of k roundings. Raises ValueError if k·u >= 1."""
    if k * unit >= 1:
        raise ValueError(f"{k} roundings with unit {unit} have no error bound")
    return k * unit / (1 - k * unit)


def rounding_bound(magnitude: Any, elem: Elem) -> Array:
    """Largest error of rounding values of at most this magnitude (f64 array) to a float type, to nearest: half an ulp,
    half the smallest subnormal near zero; infinite where the magnitude may overflow."""
    info: Any = ml_dtypes.finfo(elem.np)
    x = np.abs(np.asarray(magnitude, np.float64))
    smallest = float(info.smallest_normal)
    _, exponent = np.frexp(np.maximum(x, smallest))  # x = m·2^e with 1/2 <= m < 1
    half_ulp = np.ldexp(1.0, exponent - 2 - int(info.nmant))
    largest = float(info.max)
    # up to half an ulp beyond the largest value rounds back to it
    top = np.ldexp(1.0, int(np.frexp(largest)[1]) - 2 - int(info.nmant))
    return np.where(x - largest < top, half_ulp, np.inf)


def gemm_bound(a: Any, b: Any, out_elem: Elem = F32, *, initial: Any = None, unit: float = F32_UNIT) -> Array:
    """Bound on |computed - exact| for every element of a · b (+ initial) accumulated with roundings of `unit` in any order
    and rounded once to `out_elem`.

    a: [m, k], b: [k, n], initial: [m, n] or None – the values that the kernel multiplies, exactly representable in f64.
    Returns f64 [m, n]: gamma_k Σ|a||b| + k·2^-149 + half an ulp of `out_elem` (k + 1 instead of k with `initial`).
    """
    a, b = np.asarray(a).astype(np.float64), np.asarray(b).astype(np.float64)
    terms = a.shape[1]
    size = np.abs(a) @ np.abs(b)
    value = a @ b
    if initial is not None:
        c = np.asarray(initial).astype(np.float64)
        terms, size, value = terms + 1, size + np.abs(c), value + c
    accumulated = gamma(terms, unit) * size + terms * _F32_TINY
    return accumulated + rounding_bound(np.abs(value) + accumulated, out_elem)


@dataclass(frozen=True)
class Comparison:
    """How far a result is from its reference.

    max_error: largest |got - ref| over elements with finite values (0 if there are none).
    max_ratio: largest error divided by its bound; at most 1 where everything is within.
    worst_index: the element with the largest ratio, among failing ones if any fail.
    failures: number of elements outside the bound, or NaN or infinite where the reference is not.
    """

    ok: bool
    max_error: float
    max_ratio: float
    worst_index: tuple[int, ...]
    failures: int
    elements: int
    got: float
    want: float
    bound: float

    def __str__(self) -> str:
        if self.elements == 0:
            return "nothing to compare"
        verdict = "all within their bounds" if self.ok else f"{self.failures} of {self.elements} outside their bounds"
        return (
            f"{verdict}: max error {self.max_error:.3g}, {self.max_ratio:.3g} of its bound; worst at "
            f"{list(self.worst_index)}: got {self.got:.9g}, expected {self.want:.9g} ± {self.bound:.3g}"
        )


def compare(got: Any, ref: Any, bound: Any) -> Comparison:
    """Compares elementwise: |got - ref| <= bound, computed in f64; bound broadcasts.

    NaN must stand exactly where the reference has NaN. Equal infinities agree; where the bound is infinite (the result may
    overflow), an infinity of the reference's sign agrees with a finite reference. Raises ValueError for unequal shapes.
    """
    x, r = np.asarray(got).astype(np.float64), np.asarray(ref).astype(np.float64)
    if x.shape != r.shape:
        raise ValueError(f"shapes {list(x.shape)} and {list(r.shape)} differ")
    limit = np.broadcast_to(np.asarray(bound, np.float64), r.shape)
    if x.size == 0:
        return Comparison(True, 0.0, 0.0, (), 0, 0, 0.0, 0.0, 0.0)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        error = np.abs(x - r)
        finite = np.isfinite(x) & np.isfinite(r)
        overflow = np.isinf(x) & np.isinf(limit) & (np.sign(x) == np.sign(r))
        agree = (np.isnan(x) & np.isnan(r)) | (np.isinf(r) & (x == r)) | overflow
        good = agree | (finite & (error <= limit))
        ratio = np.where(good & ~finite, 0.0, np.where(error == 0, 0.0, error / limit))
        ratio = np.where(good, np.minimum(np.nan_to_num(ratio), 1.0), np.where(finite, ratio, np.inf))
    candidates = ratio if np.all(good) else np.where(good, -1.0, ratio)
    worst = np.unravel_index(int(np.argmax(candidates)), x.shape)
    return Comparison(
        ok=bool(np.all(good)),
        max_error=float(np.max(error, where=finite, initial=0.0)),
        max_ratio=float(np.max(ratio)),
        worst_index=tuple(int(i) for i in worst),
        failures=int(x.size - np.count_nonzero(good)),
        elements=int(x.size),
        got=float(x[worst]),
        want=float(r[worst]),
        bound=float(limit[worst]),
    )
