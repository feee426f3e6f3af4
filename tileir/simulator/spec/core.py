"""Declaration of specifications and exact rounding."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tileir.records import dataclass

Array = NDArray[Any]

DTYPES: dict[str, type[np.generic]] = {
    "u16": np.uint16,
    "i16": np.int16,
    "u32": np.uint32,
    "i32": np.int32,
    "u64": np.uint64,
    "i64": np.int64,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "mask": np.bool_,
}


@dataclass(frozen=True)
class Spec:
    """A vector op. results, sources: keys of DTYPES in operand order. accumulate: the old destination is the last
    argument. ulp: allowed distance of a float result from the specification (0: equal bits, NaNs alike)."""

    name: str
    results: tuple[str, ...]
    sources: tuple[str, ...]
    function: Callable[..., object]
    accumulate: bool = False
    vcc: bool = False
    lane: bool = False
    ulp: int = 0
    halves: bool = False
    """An integer result that holds two f16 numbers: NaNs are alike in each half."""


VECTOR: dict[str, Spec] = {}


def vector(names: str, types: str, function: Callable[..., object], **options: object) -> None:
    """Declares one or several op names (separated by blanks): ``vector("v_add_u32", "u32 = u32 u32", …)``."""
    left, right = types.split("=")
    for name in names.split():
        VECTOR[name] = Spec(name, tuple(left.split()), tuple(right.split()), function, **options)  # type: ignore[arg-type]


_FORMAT = {
    np.dtype(np.float16): (11, -24, 16),
    np.dtype(np.float32): (24, -149, 128),
    np.dtype(np.float64): (53, -1074, 1024),
}
"""Bits of precision, exponent of the smallest denormal, exponent of overflow."""


def round_exact(value: Fraction, dtype: type[np.floating], mode: int = 0) -> np.floating:
    """An exact number rounded to nearest even (mode 0), up (1), down (2) or toward zero (3)."""
    precision, smallest, overflow = _FORMAT[np.dtype(dtype)]
    if value == 0:
        return dtype(0.0)
    sign, magnitude = (-1, -value) if value < 0 else (1, value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    unit = max(exponent - precision + 1, smallest)
    scaled = magnitude / Fraction(2) ** unit
    whole, rest = divmod(scaled.numerator, scaled.denominator)
    away = (mode == 1 and sign > 0) or (mode == 2 and sign < 0)
    if mode == 0:
        twice = 2 * rest - scaled.denominator
        whole += twice > 0 or (twice == 0 and whole & 1)
    elif away and rest:
        whole += 1
    if whole * Fraction(2) ** unit >= Fraction(2) ** overflow:
        return dtype(sign * np.inf) if away or mode == 0 else dtype(sign * np.finfo(dtype).max)
    return dtype(np.copysign(np.ldexp(np.float64(whole), unit), sign))


def fma_exact(x: np.floating, y: np.floating, z: np.floating) -> np.floating:
    """Fused multiply-add with one rounding."""
    dtype = type(x)
    if not (np.isfinite(x) and np.isfinite(y) and np.isfinite(z)):
        with np.errstate(all="ignore"):
            product = np.float64(x) * np.float64(y) if dtype is not np.float64 else x * y
            if np.isfinite(x) and np.isfinite(y):
                return dtype(z)  # a finite product, however large, does not change an infinite or NaN addend
            return dtype(product + np.float64(z))
    exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
    if exact == 0:
        negative = (np.signbit(x) != np.signbit(y)) and np.signbit(z)
        product_zero = x == 0 or y == 0
        if product_zero and z == 0:
            return dtype(-0.0) if negative else dtype(0.0)
        return dtype(0.0)
    return round_exact(exact, dtype)


def fma_lanes(x: Array, y: Array, z: Array) -> Array:
    """:func:`fma_exact` on every lane."""
    return np.array([fma_exact(p, q, r) for p, q, r in zip(x, y, z, strict=True)], dtype=x.dtype)


def pattern(x: Array) -> Array:
    """The bits of a float array as unsigned integers."""
    return x.view({2: np.uint16, 4: np.uint32, 8: np.uint64}[x.dtype.itemsize])
