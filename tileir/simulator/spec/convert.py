"""Conversions between number formats. [CDNA3 and CDNA4 ISA, "V_CVT_*"]"""

from __future__ import annotations

import numpy as np

from .core import Array, pattern, vector

U32 = np.uint32


def to_integer(x: Array, dtype: type[np.integer]) -> Array:
    """Truncates and saturates; NaN gives zero."""
    limits = np.iinfo(dtype)
    out = []
    for value in x:
        if np.isnan(value):
            out.append(0)
        elif np.isinf(value):
            out.append(limits.max if value > 0 else limits.min)
        else:
            out.append(max(limits.min, min(limits.max, int(value))))
    return np.array(out, dtype=dtype)


def bf16_bits(x: Array) -> Array:
    """f32 to bf16 bits by exact comparison of the two neighbours."""
    out = []
    for value, raw in zip(x, pattern(x).tolist(), strict=True):
        low = raw >> 16
        if np.isnan(value):
            out.append(low | 0x40)
            continue
        rest = raw & 0xFFFF
        if rest > 0x8000 or (rest == 0x8000 and low & 1):
            low += 1
        out.append(low)
    return np.array(out, dtype=U32)


def _half_rtz(x: Array) -> Array:
    """f32 to f16 bits, rounded toward zero; overflow gives the largest finite number."""
    near = x.astype(np.float16)
    away = np.abs(near.astype(np.float64)) > np.abs(x.astype(np.float64))
    toward = np.nextafter(near, np.float16(0))
    out = pattern(np.where(away, toward, near).astype(np.float16)).astype(U32)
    return np.where(np.isnan(x), out | U32(0x200), out)  # NaNs become quiet


def _normalised(x: Array, signed: bool) -> Array:
    low, scale = (-1.0, 32767.0) if signed else (0.0, 65535.0)
    clean = np.where(np.isnan(x), 0, np.clip(x, low, 1.0)).astype(np.float32)
    return (np.rint(clean * np.float32(scale)).astype(np.int32) & 0xFFFF).astype(U32)


def _pair16(x: Array, y: Array, signed: bool) -> Array:
    low, high = (_normalised(v.astype(np.float32), signed) for v in (x, y))
    return low | high << U32(16)


def _pack_u8(x: Array, position: Array, old: Array) -> Array:
    byte = np.where(np.isnan(x), 0, np.clip(np.rint(x), 0, 255)).astype(U32)
    shift = (position & U32(3)) * U32(8)
    return (old & ~(U32(255) << shift)) | byte << shift


vector("v_cvt_i32_f32", "i32 = f32", lambda x: to_integer(x, np.int32))
vector("v_cvt_u32_f32", "u32 = f32", lambda x: to_integer(x, np.uint32))
vector("v_cvt_i32_f64", "i32 = f64", lambda x: to_integer(x, np.int32))
vector("v_cvt_u32_f64", "u32 = f64", lambda x: to_integer(x, np.uint32))
vector("v_cvt_i16_f16", "i16 = f16", lambda x: to_integer(x, np.int16))
vector("v_cvt_u16_f16", "u16 = f16", lambda x: to_integer(x, np.uint16))
vector("v_cvt_flr_i32_f32", "i32 = f32", lambda x: to_integer(np.floor(x), np.int32))
vector("v_cvt_rpi_i32_f32", "i32 = f32", lambda x: to_integer(np.floor(x + np.float32(0.5)), np.int32))
vector("v_cvt_f32_i32", "f32 = i32", lambda x: x.astype(np.float32))
vector("v_cvt_f32_u32", "f32 = u32", lambda x: x.astype(np.float32))
vector("v_cvt_f64_i32", "f64 = i32", lambda x: x.astype(np.float64))
vector("v_cvt_f64_u32", "f64 = u32", lambda x: x.astype(np.float64))
vector("v_cvt_f16_i16", "f16 = i16", lambda x: x.astype(np.float16))
vector("v_cvt_f16_u16", "f16 = u16", lambda x: x.astype(np.float16))
vector("v_cvt_f32_f16", "f32 = f16", lambda x: x.astype(np.float32))
vector("v_cvt_f16_f32", "f16 = f32", lambda x: x.astype(np.float16))
vector("v_cvt_f64_f32", "f64 = f32", lambda x: x.astype(np.float64))
vector("v_cvt_f32_f64", "f32 = f64", lambda x: x.astype(np.float32))
for _i in range(4):
    vector(f"v_cvt_f32_ubyte{_i}", "f32 = u32", lambda x, n=_i: (x >> U32(8 * n) & U32(255)).astype(np.float32))
vector("v_cvt_pkrtz_f16_f32", "u32 = f32 f32", lambda x, y: _half_rtz(x) | _half_rtz(y) << U32(16))
vector("v_cvt_pk_bf16_f32", "u32 = f32 f32", lambda x, y: bf16_bits(x) | bf16_bits(y) << U32(16))
vector(
    "v_cvt_pk_i16_i32",
    "u32 = i32 i32",
    lambda x, y: (
        (np.clip(x, -32768, 32767).astype(U32) & U32(0xFFFF)) | np.clip(y, -32768, 32767).astype(U32) << U32(16)
    ),
)
vector(
    "v_cvt_pk_u16_u32", "u32 = u32 u32", lambda x, y: np.minimum(x, U32(65535)) | np.minimum(y, U32(65535)) << U32(16)
)
vector("v_cvt_pknorm_i16_f32", "u32 = f32 f32", lambda x, y: _normalised(x, True) | _normalised(y, True) << U32(16))
vector("v_cvt_pknorm_u16_f32", "u32 = f32 f32", lambda x, y: _normalised(x, False) | _normalised(y, False) << U32(16))
vector("v_cvt_pknorm_i16_f16", "u32 = f16 f16", lambda x, y: _pair16(x, y, True))
vector("v_cvt_pknorm_u16_f16", "u32 = f16 f16", lambda x, y: _pair16(x, y, False))
vector("v_cvt_norm_i16_f16", "u16 = f16", lambda x: _normalised(x.astype(np.float32), True).astype(np.uint16))
vector("v_cvt_norm_u16_f16", "u16 = f16", lambda x: _normalised(x.astype(np.float32), False).astype(np.uint16))
vector("v_cvt_pkaccum_u8_f32", "u32 = f32 u32", _pack_u8, accumulate=True)
vector("v_cvt_pk_u8_f32", "u32 = f32 u32 u32", _pack_u8)


def _half_pair(x: Array, y: Array) -> Array:
    low, high = (pattern(v.astype(np.float16)).astype(U32) for v in (x, y))
    low, high = (np.where(np.isnan(v), h | U32(0x200), h) for v, h in ((x, low), (y, high)))
    return low | high << U32(16)


vector("v_cvt_pk_f16_f32", "u32 = f32 f32", _half_pair)
vector("v_cvt_f32_bf16", "f32 = u16", lambda x: (x.astype(U32) << U32(16)).view(np.float32))
