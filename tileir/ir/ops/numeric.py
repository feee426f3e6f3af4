"""The arithmetic behind the semantics of ops: exact NumPy meaning of conversions, division, minimum, fused multiply-add.

All functions take NumPy arrays (also 0-d) and return arrays of the dtype that the op's result has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tileir.ir.small_floats import SCALE, format_of
from tileir.ir.types import F32, F64, Elem

Array = Any


def convert_array(
    x: Array, source: Elem, target: Elem, *, rounding: str = "nearest_even", overflow: str = "", bits: Array = None
) -> Array:
    """Value conversion, as the op `convert` states it.

    rounding, overflow: the attributes of `convert`; other than the default ones for floats of at most 16 bits only.
    bits: i32, of the shape of x, for `rounding = stochastic`.

    Floats round to nearest even with a single rounding. Targets of 8 bits or less saturate to the largest finite
    magnitude (infinities too) and keep NaN; f6 and f4 have none and give zero; f8E8M0FNU rounds to the nearest power of
    two, halves up, and gives NaN for what is not positive. Floats become integers by truncation, saturating, NaN to 0;
    integers wrap; i1 is 0 or 1 and anything non-zero becomes true.
    """
    x = np.asarray(x)
    if rounding != "nearest_even" or overflow:
        return round_to(x, target, rounding, overflow, bits)
    if target.is_bool:
        return x != 0
    if source.is_float and target.is_int:
        return _float_to_int(x, target)
    if not target.is_float or source == target:
        return x.astype(target.np)
    if source.is_int and target.bits < 32:
        x = _sticky_f64(x)
        source = F64
    if target.bits >= 32:
        return x.astype(target.np)
    if target.name == SCALE:
        return _to_scale(x.astype(np.float64), 1.5)
    narrow = _round_to_odd_f32(x) if source == F64 else x.astype(np.float32)
    if target.bits <= 8:
        return _saturating(narrow, target)
    return narrow.astype(target.np)


def round_to(x: Array, target: Elem, rounding: str, overflow: str = "", bits: Array = None) -> Array:
    """Floats rounded to a type of at most 16 bits in any rounding mode, by exact arithmetic on multiples of its steps.

    Between two neighbours "stochastic" takes the one further from zero if the share of the step that lies below it, in
    units of 2^-32 and rounded down, plus `bits` as an unsigned number reach 2^32. What passes the largest number after rounding becomes
    that number ("saturate", the default for 8 bits and less) or an infinity, NaN where there is none ("infinity"); rounded
    toward zero only infinities do.
    """
    overflow = overflow or ("saturate" if target.bits <= 8 else "infinity")
    size = np.abs(x.astype(np.float64))
    if target.name == SCALE:
        return _to_scale(x.astype(np.float64), 2.0)
    f = format_of(target)
    inside = np.where(np.isfinite(size), size, 0.0)
    exponent = np.where(inside > 0, np.maximum(np.frexp(inside)[1] - 1, f.least_exponent), f.least_exponent)
    steps = np.ldexp(inside, f.mantissa_bits - exponent)
    low = np.floor(steps)
    rest = steps - low
    match rounding:
        case "nearest_even":
            up = (rest > 0.5) | ((rest == 0.5) & (low % 2 == 1))
        case "nearest_away":
            up = rest >= 0.5
        case "toward_zero":
            up = np.zeros_like(rest, bool)
        case _:
            up = np.floor(rest * 2.0**32).astype(np.int64) + (np.asarray(bits).astype(np.int64) & 0xFFFFFFFF) >= 2**32
    code = ((exponent - f.least_exponent).astype(np.int64) << f.mantissa_bits) + (low + up).astype(np.int64)
    beyond = (code > f.largest) & np.isfinite(size)
    keeps = overflow == "saturate" or (f.largest == f.sign - 1 and not f.unsigned_zero)  # f6 and f4 have numbers only
    none = f.sign if f.unsigned_zero else f.nan or 0
    infinite = f.largest if keeps else none if f.infinity is None else f.infinity
    code = np.where(beyond, f.largest if rounding == "toward_zero" else infinite, code)
    code = np.where(np.isinf(size), infinite, code)
    negative = np.signbit(x) & ~np.isnan(size)
    if f.unsigned_zero:
        negative = negative & (code != 0) & (code != f.sign)
    code = np.where(np.isnan(size), none, code | np.where(negative, f.sign, 0))
    return code.astype(np.uint16 if target.bits == 16 else np.uint8).view(target.np)


def _to_scale(x: Array, up: float) -> Array:
    """The power of two below a positive number, or the one above from `up` times that on; NaN for all others. 2^-127 is also for
    what is smaller."""
    finite = np.isfinite(x) & (x > 0)
    _, exponent = np.frexp(np.where(finite, x, 1.0))
    below = np.maximum(exponent - 1, -127)
    power = below + (np.ldexp(np.where(finite, x, 1.0), -below) >= up) + 127
    code = np.where(np.isposinf(x), 254, np.minimum(power, 254))
    return np.where(finite | np.isposinf(x), code, 255).astype(np.uint8).view(ml_dtypes.float8_e8m0fnu)


def _float_to_int(x: Array, target: Elem) -> Array:
    wide = x.astype(np.float64)
    low, high = -(2.0 ** (target.bits - 1)), 2.0 ** (target.bits - 1)
    inside = (wide >= low) & (wide < high)
    ints = np.where(inside, np.trunc(np.where(inside, wide, 0.0)), 0.0).astype(np.int64)
    info = np.iinfo(target.np)
    clipped = np.where(wide >= high, np.int64(info.max), np.where(wide < low, np.int64(info.min), ints))
    return clipped.astype(target.np)


def _sticky_f64(x: Array) -> Array:
    """Integers as f64 such that rounding to 24 bits or less comes out as if from the integer: above 2^53 the low bits are
    replaced by one sticky bit."""
    wide = x.astype(np.int64)
    low = wide & np.int64(0xFFFFF)
    big = np.abs(wide.astype(np.float64)) >= 2.0**52
    sticky = (wide - low) | ((low != 0).astype(np.int64) << np.int64(19))
    return np.where(big, sticky, wide).astype(np.float64)


def _round_to_odd_f32(x: Array) -> Array:
    """f64 → f32 rounded to odd, so that a second rounding to 16 bits or less is not a double rounding
    (Boldo and Melquiond, "When double rounding is odd", 2005)."""
    near = x.astype(np.float32)
    toward = np.where(np.abs(near.astype(np.float64)) > np.abs(x), np.nextafter(near, np.float32(0)), near)
    bits = np.asarray(toward, np.float32).view(np.uint32)
    inexact = np.isfinite(x) & (toward.astype(np.float64) != x)
    return np.asarray(np.where(inexact, bits | np.uint32(1), bits), np.uint32).view(np.float32)


def _saturating(x: Array, target: Elem) -> Array:
    """f32 → a float of 8 bits or less, clamped to its finite range."""
    info = ml_dtypes.finfo(target.np)
    limit = np.float32(info.max)
    clamped = np.where(np.isnan(x), x, np.clip(x, -limit, limit)).astype(np.float32)
    if target.bits < 8:
        clamped = np.where(np.isnan(clamped), np.float32(0), clamped)
    return clamped.astype(target.np)


def rounded_once(f: Callable[..., Array], elem: Elem, *args: Array) -> Array:
    """`f` evaluated in f64 on floats of type `elem`, its result rounded to that type."""
    return convert_array(f(*(np.asarray(a).astype(np.float64) for a in args)), F64, elem)


def ieee(f: Callable[..., Array], elem: Elem, *args: Array) -> Array:
    """A basic operation (+ - * / remainder) with one rounding to `elem`.

    On 16-bit floats NumPy and ml_dtypes compute in f32 and round again, which is correctly rounded because
    24 >= 2·11 + 2 (Figueroa, "When is double rounding innocuous?", 1995); narrower ones saturate as `convert` does.
    """
    if elem.is_float and elem.bits <= 8:
        return convert_array(f(*(np.asarray(a).astype(np.float32) for a in args)), F32, elem)
    return f(*args)


def divide(a: Array, b: Array) -> Array:
    """a / b; integers truncate toward zero, x / 0 = -1, and the smallest integer divided by -1 is itself."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind != "i":
        return a / b
    safe = np.where(b == 0, np.ones_like(b), b)
    q = np.floor_divide(a, safe)
    q = q + ((q * safe != a) & ((a < 0) != (safe < 0))).astype(q.dtype)
    return np.where(b == 0, np.full_like(q, -1), q)


def multiply_high(a: Array, b: Array, *, signed: bool = True) -> Array:
    """Upper half of the product of integers of equal type, read as signed or unsigned."""
    a, b = np.broadcast_arrays(a, b)
    bits = a.dtype.itemsize * 8
    mask = 0 if signed else (1 << bits) - 1

    def whole(x: Array) -> Array:
        exact = x.astype(object)
        return exact if signed else exact & mask

    high = (whole(a) * whole(b)) >> bits
    wrapped = np.asarray(high & ((1 << bits) - 1), object).astype(np.uint64)
    return wrapped.astype(np.dtype(f"u{a.dtype.itemsize}")).view(a.dtype)


def remainder(a: Array, b: Array) -> Array:
    """a - b · trunc(a / b), with the sign of a; integers modulo 0 give a."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind != "i":
        return np.fmod(a, b)
    return np.where(b == 0, a, a - b * divide(a, b))


def ceil_divide(a: Array, b: Array) -> Array:
    """Quotient of integers rounded toward positive infinity; x / 0 = -1."""
    a, b = np.asarray(a), np.asarray(b)
    q = divide(a, b)
    up = (b != 0) & (q * b != a) & ((a < 0) == (b < 0))
    return q + up.astype(q.dtype)


def minimum(a: Array, b: Array) -> Array:
    """Smaller value, a number rather than NaN, -0 below +0 (IEEE 754-2019 minimumNumber)."""
    a, b = np.broadcast_arrays(a, b)
    return _signed_zero(np.fmin(a, b), a, b, np.logical_or)


def maximum(a: Array, b: Array) -> Array:
    """Larger value, a number rather than NaN, +0 above -0 (IEEE 754-2019 maximumNumber)."""
    a, b = np.broadcast_arrays(a, b)
    return _signed_zero(np.fmax(a, b), a, b, np.logical_and)


def _signed_zero(r: Array, a: Array, b: Array, negative: Callable[[Array, Array], Array]) -> Array:
    """Where both operands are zero, the zero with the right sign."""
    if a.dtype.kind in "biu":
        return r
    both = (a == 0) & (b == 0)
    if not np.any(both):
        return r
    zero = np.zeros((), r.dtype)
    return np.where(both, np.where(negative(np.signbit(a), np.signbit(b)), -zero, zero), r)


def reduce_extremum(f: Callable[[Array, Array], Array], x: Array, axis: int) -> Array:
    """`minimum` or `maximum` over an axis that stays with size 1, in pairs of halves."""
    while x.shape[axis] > 1:
        half = x.shape[axis] // 2
        first, second = _slice(x, axis, 0, half), _slice(x, axis, half, 2 * half)
        rest = _slice(x, axis, 2 * half, x.shape[axis])
        x = f(first, second)
        if rest.shape[axis]:
            x = np.concatenate([x, rest], axis=axis)
    return x


def _slice(x: Array, axis: int, lo: int, hi: int) -> Array:
    return x[tuple(slice(lo, hi) if d == axis else slice(None) for d in range(x.ndim))]


def fused_multiply_add(a: Array, b: Array, c: Array, elem: Elem) -> Array:
    """a · b + c with a single rounding; integers wrap."""
    if not elem.is_float:
        return a * b + c
    if elem == F64:
        return np.vectorize(_fma_f64, otypes=[np.float64])(a, b, c)
    a, b, c = (np.asarray(v).astype(np.float64) for v in (a, b, c))
    p = np.asarray(a * b)  # exact: 24 + 24 bits
    s = np.asarray(p + c)
    other = s - p
    err = (p - (s - other)) + (c - other)  # Knuth's TwoSum: p + c = s + err
    even = (s.view(np.int64) & 1) == 0
    odd = np.nextafter(s, np.where(err > 0, np.inf, -np.inf))
    return convert_array(np.where(np.isfinite(s) & (err != 0) & even, odd, s), F64, elem)


def _fma_f64(a: float, b: float, c: float) -> float:
    from fractions import Fraction  # not at the top: it takes 2 ms to import, and only the interpreter comes here

    try:
        exact = Fraction(a) * Fraction(b) + Fraction(c)
    except (OverflowError, ValueError):  # an infinity or NaN takes part
        return (
            c if math.isfinite(a) and math.isfinite(b) else a * b + c
        )  # finite products do not overflow before the sum
    if exact == 0:
        return a * b + c
    try:
        return float(exact)
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")
