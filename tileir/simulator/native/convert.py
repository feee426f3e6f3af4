"""Conversions between number formats. Semantics: CDNA3 and CDNA4 ISA, "V_CVT_*"."""

from __future__ import annotations

from .builder import Builder, Value, count, vec
from .op import Lower
from .valu import Signature, lower_with, sig
from .valu_float import is_nan, narrow_half, quiet


def _to_int(b: Builder, x: Value, element: str, *, signed: bool) -> Value:
    """Truncates; saturates; NaN gives zero."""
    ty = vec(element, count(x.ty))
    kind = {"half": "f16", "float": "f32", "double": "f64"}[x.ty.split("x ")[-1].rstrip(">")]
    n = count(x.ty)
    name = f"llvm.fpto{'s' if signed else 'u'}i.sat.v{n}{element}.v{n}{kind}"
    return b.call(name, ty, x)


def _from_int(x: Value, element: str, *, signed: bool) -> Value:
    return x.cast("sitofp" if signed else "uitofp", element)


def _byte_to_float(index: int) -> Signature:
    return sig("f32 = i32", lambda b, x: ((x >> (8 * index)) & 0xFF).cast("uitofp", "float"))


def bf16_rne(b: Builder, x: Value) -> Value:
    """f32 → bf16 bits in the low half of an i32, to nearest even; NaN stays NaN and becomes quiet."""
    pattern = x.bitcast("i32")
    rounded = (pattern + (((pattern >> 16) & 1) + 0x7FFF)) >> 16
    return is_nan(x).select((pattern >> 16) | 0x40, rounded)


def _pack_bf16(b: Builder, x: Value, y: Value) -> Value:
    return bf16_rne(b, x) | (bf16_rne(b, y) << 16)


def _half_toward_zero(b: Builder, x: Value) -> Value:
    """f32 → f16 bits, round toward zero; overflow gives the largest finite number."""
    near = x.cast("fptrunc", "half")
    back = near.cast("fpext", "float")
    pattern = near.bitcast("i16")
    away = b.intrinsic("fabs", back).cmp("ogt", b.intrinsic("fabs", x))
    return away.select(pattern - 1, pattern).zext("i32")


def _pack_half_rtz(b: Builder, x: Value, y: Value) -> Value:
    return _half_toward_zero(b, x) | (_half_toward_zero(b, y) << 16)


def _normalised(b: Builder, x: Value, scale: float, low: float, high: float, element: str, signed: bool) -> Value:
    """Clamps to [low, high], scales, rounds to nearest even; NaN gives zero."""
    clamped = x.cmp("olt", low).select(b.const(x.ty, low), x)
    clamped = clamped.cmp("ogt", high).select(b.const(x.ty, high), clamped)
    return _to_int(b, b.intrinsic("rint", clamped * scale), element, signed=signed)


def _pack_norm(signed: bool) -> Signature:
    scale, low = (32767.0, -1.0) if signed else (65535.0, 0.0)

    def expression(b: Builder, x: Value, y: Value) -> Value:
        p, q = (_normalised(b, v, scale, low, 1.0, "i32", True) for v in (x, y))
        return (p & 0xFFFF) | (q << 16)

    return sig("i32 = f32 f32", expression)


def _pack_int(signed: bool) -> Signature:
    def saturate(b: Builder, v: Value) -> Value:
        if signed:
            return b.intrinsic("smin", b.intrinsic("smax", v, b.const(v.ty, -32768)), b.const(v.ty, 32767)) & 0xFFFF
        return b.intrinsic("umin", v, b.const(v.ty, 65535))

    return sig("i32 = i32 i32", lambda b, x, y: saturate(b, x) | (saturate(b, y) << 16))


def _pack_u8(b: Builder, x: Value, position: Value, old: Value) -> Value:
    value = _to_int(b, b.intrinsic("rint", x), "i32", signed=False)
    byte = b.intrinsic("umin", value, b.const(value.ty, 255))
    shift = (position & 3) << 3
    return (old & ~(b.const(old.ty, 255) << shift)) | (byte << shift)


def _round_up_half(b: Builder, x: Value) -> Value:
    return _to_int(b, b.intrinsic("floor", x + 0.5), "i32", signed=True)


SIGNATURES: dict[str, Signature] = {
    "v_cvt_i32_f32": sig("i32 = f32", lambda b, x: _to_int(b, x, "i32", signed=True)),
    "v_cvt_u32_f32": sig("i32 = f32", lambda b, x: _to_int(b, x, "i32", signed=False)),
    "v_cvt_i32_f64": sig("i32 = f64", lambda b, x: _to_int(b, x, "i32", signed=True)),
    "v_cvt_u32_f64": sig("i32 = f64", lambda b, x: _to_int(b, x, "i32", signed=False)),
    "v_cvt_i16_f16": sig("i16 = f16", lambda b, x: _to_int(b, x, "i16", signed=True)),
    "v_cvt_u16_f16": sig("i16 = f16", lambda b, x: _to_int(b, x, "i16", signed=False)),
    "v_cvt_flr_i32_f32": sig("i32 = f32", lambda b, x: _to_int(b, b.intrinsic("floor", x), "i32", signed=True)),
    "v_cvt_rpi_i32_f32": sig("i32 = f32", _round_up_half),
    "v_cvt_f32_i32": sig("f32 = i32", lambda b, x: _from_int(x, "float", signed=True)),
    "v_cvt_f32_u32": sig("f32 = i32", lambda b, x: _from_int(x, "float", signed=False)),
    "v_cvt_f64_i32": sig("f64 = i32", lambda b, x: _from_int(x, "double", signed=True)),
    "v_cvt_f64_u32": sig("f64 = i32", lambda b, x: _from_int(x, "double", signed=False)),
    "v_cvt_f16_i16": sig("f16 = i16", lambda b, x: _from_int(x, "float", signed=True).cast("fptrunc", "half")),
    "v_cvt_f16_u16": sig("f16 = i16", lambda b, x: _from_int(x, "float", signed=False).cast("fptrunc", "half")),
    "v_cvt_f32_f16": sig("f32 = f16", lambda b, x: x.cast("fpext", "float")),
    "v_cvt_f16_f32": sig("f16 = f32", lambda b, x: x.cast("fptrunc", "half")),
    "v_cvt_f64_f32": sig("f64 = f32", lambda b, x: x.cast("fpext", "double")),
    "v_cvt_f32_f64": sig("f32 = f64", lambda b, x: x.cast("fptrunc", "float")),
    "v_cvt_pkrtz_f16_f32": sig("i32 = f32 f32", _pack_half_rtz),
    "v_cvt_pk_bf16_f32": sig("i32 = f32 f32", _pack_bf16),
    "v_cvt_pk_i16_i32": _pack_int(True),
    "v_cvt_pk_u16_u32": _pack_int(False),
    "v_cvt_pknorm_i16_f32": _pack_norm(True),
    "v_cvt_pknorm_u16_f32": _pack_norm(False),
    "v_cvt_pk_u8_f32": sig("i32 = f32 i32 i32", _pack_u8),
    **{f"v_cvt_f32_ubyte{i}": _byte_to_float(i) for i in range(4)},
}

OPS: dict[str, Lower] = {name: lower_with(signature) for name, signature in SIGNATURES.items()}

__all__ = ["OPS", "SIGNATURES", "bf16_rne", "narrow_half", "quiet"]
