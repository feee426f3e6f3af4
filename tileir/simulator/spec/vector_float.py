"""Vector floating-point ops, IEEE mode on, denormals kept. [CDNA3 ISA, "Vector ALU instructions"]"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from .core import Array, fma_lanes, pattern, round_exact, vector

_LAYOUT = {2: (5, 10), 4: (8, 23), 8: (11, 52)}


def fields(x: Array) -> tuple[Array, Array, Array]:
    """Sign, exponent and mantissa fields as integers."""
    exponent, mantissa = _LAYOUT[x.dtype.itemsize]
    raw = pattern(x).astype(np.uint64)
    one = np.uint64(1)
    return (
        raw >> np.uint64(exponent + mantissa),
        raw >> np.uint64(mantissa) & ((one << np.uint64(exponent)) - one),
        raw & ((one << np.uint64(mantissa)) - one),
    )


def signalling(x: Array) -> Array:
    """Signalling NaNs: the top mantissa bit is clear."""
    mantissa = _LAYOUT[x.dtype.itemsize][1]
    return np.isnan(x) & (fields(x)[2] >> np.uint64(mantissa - 1) == 0)


def _extreme(x: Array, y: Array, largest: bool) -> Array:
    """minNum / maxNum: one NaN loses, unless it is signalling; -0 is below +0."""
    out = []
    for a, b, s, t in zip(x, y, signalling(x), signalling(y), strict=True):
        if s or t or (np.isnan(a) and np.isnan(b)):
            out.append(np.nan)
        elif np.isnan(a) or np.isnan(b):
            out.append(b if np.isnan(a) else a)
        elif a == b:
            negative = np.signbit(a) and np.signbit(b) if largest else np.signbit(a) or np.signbit(b)
            out.append(-abs(a) if negative else abs(a))
        else:
            out.append(max(a, b) if largest else min(a, b))
    return np.array(out, dtype=x.dtype)


def fmin(x: Array, y: Array) -> Array:
    return _extreme(x, y, False)


def fmax(x: Array, y: Array) -> Array:
    return _extreme(x, y, True)


def _propagate(x: Array, y: Array, largest: bool) -> Array:
    return np.where(np.isnan(x) | np.isnan(y), np.nan, _extreme(x, y, largest)).astype(x.dtype)


def _med3(x: Array, y: Array, z: Array) -> Array:
    any_nan = np.isnan(x) | np.isnan(y) | np.isnan(z)
    top = fmax(fmax(x, y), z)
    middle = np.where(top == x, fmax(y, z), np.where(top == y, fmax(x, z), fmax(x, y)))
    return np.where(any_nan, fmin(fmin(x, y), z), middle).astype(x.dtype)


def flush(x: Array) -> Array:
    """Denormals to zeros of the same sign."""
    _, exponent, mantissa = fields(x)
    return np.where((exponent == 0) & (mantissa != 0), np.copysign(x.dtype.type(0), x), x).astype(x.dtype)


def _wide(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """An f32 or f16 function computed in f64; the f32 forms flush denormals on both sides."""

    def lanes(x: Array) -> Array:
        with np.errstate(all="ignore"):
            single = x.dtype == np.float32
            source = flush(x) if single else x
            out = function(source.astype(np.float64)).astype(x.dtype)
            return flush(out) if single else out

    return lanes


def _trig(function: Callable[[Array], Array], outside: float) -> Callable[[Array], Array]:
    def lanes(x: Array) -> Array:
        with np.errstate(all="ignore"):
            source = flush(x) if x.dtype == np.float32 else x
            wide = source.astype(np.float64)
            turns = wide - np.rint(wide)
            out = np.where(np.abs(wide) > 256, outside, function(2 * np.pi * turns))
            out = np.where(np.isfinite(wide), out, np.nan).astype(x.dtype)
            return flush(out) if x.dtype == np.float32 else out

    return lanes


def _cosine(y: Array) -> Array:
    out = np.cos(y)
    return np.where(np.abs(y) == np.pi / 2, 0.0, out)


def _sine(y: Array) -> Array:
    return np.where(np.abs(y) == np.pi, np.copysign(0.0, y), np.sin(y))


def _fract(x: Array) -> Array:
    limit = np.nextafter(x.dtype.type(1), x.dtype.type(0))
    part = x - np.floor(x)
    return np.where(np.isnan(part), part, np.minimum(part, limit)).astype(x.dtype)


def _ldexp(x: Array, n: Array) -> Array:
    out = []
    for value, power in zip(x, n.tolist(), strict=True):
        if not np.isfinite(value) or value == 0:
            out.append(value)
            continue
        power = max(-5000, min(5000, power))
        rounded = round_exact(Fraction(float(value)) * Fraction(2) ** power, x.dtype.type)
        out.append(np.copysign(rounded, value))
    return np.array(out, dtype=x.dtype)


def _frexp_exponent(x: Array, dtype: type[np.signedinteger]) -> Array:
    out = [math.frexp(float(v))[1] if np.isfinite(v) and v != 0 else 0 for v in x]
    return np.array(out, dtype=dtype)


def _frexp_mantissa(x: Array) -> Array:
    return np.array([math.frexp(float(v))[0] if np.isfinite(v) else v for v in x], dtype=x.dtype)


_DIVISION = {4: (96, 64, 23, 127, -150), 8: (768, 128, 53, 1023, -1075)}


def _denormal(x: Array) -> Array:
    _, exponent, mantissa = fields(x)
    return (exponent == 0) & (mantissa != 0)


def div_scale(s0: Array, s1: Array, s2: Array) -> tuple[Array, Array]:
    """s1 denominator, s2 numerator; see the note on denormal reciprocals in the native op."""
    gap, n, tiny, _, _ = _DIVISION[s0.dtype.itemsize]
    out, mask = [], []
    up, down = s0.dtype.type(2.0**n), s0.dtype.type(2.0**-n)
    e1, e2 = fields(s1)[1].astype(int), fields(s2)[1].astype(int)
    with np.errstate(all="ignore"):
        reciprocal, quotient = _denormal(s0.dtype.type(1) / s1), _denormal(s2 / s1)
        for i, (x, d, q) in enumerate(zip(s0, s1, s2, strict=True)):
            vcc, value = False, x
            if d == 0 or q == 0:
                value = s0.dtype.type(np.nan)
            elif e2[i] - e1[i] >= gap:
                vcc, value = True, x * up if x == d else x
            elif _denormal(s1)[i]:
                value = x * up
            elif reciprocal[i] and quotient[i]:
                vcc, value = True, x * down if x == d else x
            elif reciprocal[i]:
                value = x * down
            elif quotient[i]:
                vcc, value = True, x * up if x == q else x
            elif e2[i] <= tiny:
                value = x * up
            out.append(value)
            mask.append(vcc)
    return np.array(out, dtype=s0.dtype), np.array(mask)


def div_fmas(x: Array, y: Array, z: Array, scaled: Array) -> Array:
    """fma times 2**±n with one rounding."""
    _, n, _, bias, _ = _DIVISION[x.dtype.itemsize]
    plain = fma_lanes(x, y, z)
    large = fields(z)[1] > bias
    out = []
    for i, (p, q, r) in enumerate(zip(x, y, z, strict=True)):
        if not scaled[i]:
            out.append(plain[i])
        elif large[i]:
            out.append(plain[i] * x.dtype.type(2.0**n))
        elif not (np.isfinite(p) and np.isfinite(q) and np.isfinite(r)) or plain[i] == 0 or np.isinf(plain[i]):
            out.append(plain[i] * x.dtype.type(2.0**-n))
        else:
            exact = Fraction(float(p)) * Fraction(float(q)) + Fraction(float(r))
            out.append(np.copysign(round_exact(exact / 2**n, x.dtype.type), plain[i]))
    return np.array(out, dtype=x.dtype)


def div_fixup(q: Array, d: Array, n: Array) -> Array:
    out = []
    limit = _DIVISION.get(q.dtype.itemsize, (0, 0, 0, 0, None))[4]
    e1, e2 = fields(d)[1].astype(int), fields(n)[1].astype(int)
    for i, (value, denominator, numerator) in enumerate(zip(q, d, n, strict=True)):
        sign = -1.0 if np.signbit(denominator) != np.signbit(numerator) else 1.0
        if np.isnan(numerator) or np.isnan(denominator):
            out.append(np.nan)
        elif (denominator == 0 and numerator == 0) or (np.isinf(denominator) and np.isinf(numerator)):
            out.append(np.nan)
        elif denominator == 0 or np.isinf(numerator):
            out.append(sign * np.inf)
        elif np.isinf(denominator) or numerator == 0 or (limit is not None and e2[i] - e1[i] < limit):
            out.append(sign * 0.0)
        else:
            out.append(sign * np.inf if np.isnan(value) else np.copysign(value, sign))
    return np.array(out, dtype=q.dtype)


def _legacy(x: Array, y: Array) -> Array:
    return np.where((x == 0) | (y == 0), x.dtype.type(0), x * y).astype(x.dtype)


def classify(x: Array, wanted: Array) -> Array:
    out = []
    _, exponent, mantissa = fields(x)
    top = (1 << _LAYOUT[x.dtype.itemsize][0]) - 1
    for i, (value, bits) in enumerate(zip(x, wanted.tolist(), strict=True)):
        negative = bool(np.signbit(value))
        if np.isnan(value):
            index = 0 if signalling(x)[i] else 1
        elif exponent[i] == top:
            index = 2 if negative else 9
        elif exponent[i]:
            index = 3 if negative else 8
        elif mantissa[i]:
            index = 4 if negative else 7
        else:
            index = 5 if negative else 6
        out.append(bool(bits >> index & 1))
    return np.array(out)


def _mad16(x: Array, y: Array, z: Array) -> Array:
    """Two roundings; denormals are zeros everywhere."""
    return flush(flush(flush(x) * flush(y)) + flush(z))


def _pk_fma16(x: Array, y: Array, z: Array) -> Array:
    out = np.zeros(x.shape, np.uint32)
    for shift in (np.uint32(0), np.uint32(16)):
        halves = [(v >> shift).astype(np.uint16).view(np.float16) for v in (x, y, z)]
        out |= pattern(fma_lanes(*halves)).astype(np.uint32) << shift
    return out


def _add(x: Array, y: Array) -> Array:
    return x + y


for _t in ("f16", "f32", "f64"):
    _two, _three = f"{_t} = {_t} {_t}", f"{_t} = {_t} {_t} {_t}"
    vector(f"v_add_{_t}", _two, _add)
    vector(f"v_sub_{_t}", _two, lambda x, y: x - y)
    vector(f"v_subrev_{_t}", _two, lambda x, y: y - x)
    vector(f"v_mul_{_t}", _two, lambda x, y: x * y)
    vector(f"v_min_{_t}", _two, fmin)
    vector(f"v_max_{_t}", _two, fmax)
    vector(f"v_fma_{_t}", _three, fma_lanes)
    vector(f"v_fmac_{_t}", _two, fma_lanes, accumulate=True)
    vector(f"v_trunc_{_t}", f"{_t} = {_t}", np.trunc)
    vector(f"v_ceil_{_t}", f"{_t} = {_t}", np.ceil)
    vector(f"v_floor_{_t}", f"{_t} = {_t}", np.floor)
    vector(f"v_rndne_{_t}", f"{_t} = {_t}", np.rint)
    vector(f"v_fract_{_t}", f"{_t} = {_t}", _fract)
    vector(f"v_frexp_mant_{_t}", f"{_t} = {_t}", _frexp_mantissa)
    vector(f"v_div_fixup_{_t}", _three, div_fixup)
    _integer = "u16" if _t == "f16" else "u32"
    vector(f"v_cmp_class_{_t}", f"mask = {_t} {_integer}", classify)
    for _name, _operation in {
        "lt": np.less,
        "eq": np.equal,
        "le": np.less_equal,
        "gt": np.greater,
        "lg": lambda x, y: (x < y) | (x > y),
        "ge": np.greater_equal,
        "o": lambda x, y: ~(np.isnan(x) | np.isnan(y)),
        "u": lambda x, y: np.isnan(x) | np.isnan(y),
        "nge": lambda x, y: ~(x >= y),
        "nlg": lambda x, y: ~((x < y) | (x > y)),
        "ngt": lambda x, y: ~(x > y),
        "nle": lambda x, y: ~(x <= y),
        "neq": lambda x, y: ~(x == y),
        "nlt": lambda x, y: ~(x < y),
        "f": lambda x, y: np.zeros(x.shape, bool),
        "tru": lambda x, y: np.ones(x.shape, bool),
    }.items():
        vector(f"v_cmp_{_name}_{_t}", f"mask = {_t} {_t}", _operation)
for _t in ("f16", "f32"):
    vector(f"v_exp_{_t}", f"{_t} = {_t}", _wide(np.exp2), ulp=1)
    vector(f"v_log_{_t}", f"{_t} = {_t}", _wide(np.log2), ulp=1)
    vector(f"v_rcp_{_t}", f"{_t} = {_t}", _wide(lambda x: 1.0 / x), ulp=1)
    vector(f"v_rsq_{_t}", f"{_t} = {_t}", _wide(lambda x: 1.0 / np.sqrt(x)), ulp=1)
    vector(f"v_sqrt_{_t}", f"{_t} = {_t}", _wide(np.sqrt), ulp=1)
    vector(f"v_sin_{_t}", f"{_t} = {_t}", _trig(_sine, 0.0), ulp=1)
    vector(f"v_cos_{_t}", f"{_t} = {_t}", _trig(_cosine, 1.0), ulp=1)
    vector(f"v_min3_{_t}", f"{_t} = {_t} {_t} {_t}", lambda x, y, z: fmin(fmin(x, y), z))
    vector(f"v_max3_{_t}", f"{_t} = {_t} {_t} {_t}", lambda x, y, z: fmax(fmax(x, y), z))
    vector(f"v_med3_{_t}", f"{_t} = {_t} {_t} {_t}", _med3)
vector("v_mad_f16 v_mad_legacy_f16 v_madak_f16 v_madmk_f16", "f16 = f16 f16 f16", _mad16)
vector("v_mac_f16", "f16 = f16 f16", _mad16, accumulate=True)
vector("v_fma_legacy_f16", "f16 = f16 f16 f16", fma_lanes)
vector("v_div_fixup_legacy_f16", "f16 = f16 f16 f16", div_fixup)
vector("v_exp_legacy_f32", "f32 = f32", _wide(np.exp2), ulp=1)
vector("v_log_legacy_f32", "f32 = f32", _wide(np.log2), ulp=1)
vector("v_pk_fmac_f16", "u32 = u32 u32", _pk_fma16, accumulate=True, halves=True)
vector("v_rcp_iflag_f32", "f32 = f32", _wide(lambda x: 1.0 / x), ulp=1)
vector("v_rcp_f64", "f64 = f64", lambda x: 1.0 / x)
vector("v_rsq_f64", "f64 = f64", lambda x: 1.0 / np.sqrt(x), ulp=1)
vector("v_sqrt_f64", "f64 = f64", np.sqrt)
vector("v_mul_legacy_f32", "f32 = f32 f32", _legacy)
vector("v_fmaak_f32 v_fmamk_f32", "f32 = f32 f32 f32", fma_lanes)
vector("v_ldexp_f16", "f16 = f16 i16", _ldexp)
vector("v_ldexp_f32", "f32 = f32 i32", _ldexp)
vector("v_ldexp_f64", "f64 = f64 i32", _ldexp)
vector("v_frexp_exp_i16_f16", "i16 = f16", lambda x: _frexp_exponent(x, np.int16))
vector("v_frexp_exp_i32_f32", "i32 = f32", lambda x: _frexp_exponent(x, np.int32))
vector("v_frexp_exp_i32_f64", "i32 = f64", lambda x: _frexp_exponent(x, np.int32))
for _t in ("f32", "f64"):
    vector(f"v_div_scale_{_t}", f"{_t} mask = {_t} {_t} {_t}", div_scale)
    vector(f"v_div_fmas_{_t}", f"{_t} = {_t} {_t} {_t}", div_fmas, vcc=True)
vector("v_minimum3_f32", "f32 = f32 f32 f32", lambda x, y, z: _propagate(_propagate(x, y, False), z, False))
vector("v_maximum3_f32", "f32 = f32 f32 f32", lambda x, y, z: _propagate(_propagate(x, y, True), z, True))


def _dot2(kind: str) -> Callable[[Array, Array, Array], Array]:
    def half(v: Array, high: bool) -> Array:
        if kind == "bf16":
            return (v & np.uint32(0xFFFF0000) if high else v << np.uint32(16)).view(np.float32)
        return (v >> np.uint32(16) if high else v).astype(np.uint16).view(np.float16).astype(np.float32)

    def lanes(x: Array, y: Array, z: Array) -> Array:
        return fma_lanes(half(x, True), half(y, True), fma_lanes(half(x, False), half(y, False), z))

    return lanes


for _t in ("f16", "bf16"):
    vector(f"v_dot2_f32_{_t}", "f32 = u32 u32 f32", _dot2(_t))
    vector(f"v_dot2c_f32_{_t}", "f32 = u32 u32", _dot2(_t), accumulate=True)
