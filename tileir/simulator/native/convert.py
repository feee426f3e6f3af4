"""Conversions between number formats. Semantics: CDNA3 and CDNA4 ISA, "V_CVT_*"."""

from __future__ import annotations

from .. import state
from ..decoder import Instruction
from .builder import Builder, Value, count, vec
from .floats import is_nan
from .op import Context, Lower, Op
from .smallfloat import SmallFloat, bf8, decode, encode, fp8
from .valu import Frame, Signature, limit_half, lower_with, sig


def _to_int(b: Builder, x: Value, element: str, *, signed: bool) -> Value:
    """Truncates; saturates; NaN gives zero."""
    ty = vec(element, count(x.ty))
    kind = {"half": "f16", "float": "f32", "double": "f64"}[x.ty.split("x ")[-1].rstrip(">")]
    n = count(x.ty)
    name = f"llvm.fpto{'s' if signed else 'u'}i.sat.v{n}{element}.v{n}{kind}"
    return b.call(name, ty, x)


def _from_int(x: Value, element: str, *, signed: bool) -> Value:
    """Rounds once, by MODE. Dwords without a sign go as two halves: what LLVM makes of `uitofp` for hosts that have no instruction for
    it (x86 before AVX-512) subtracts, which gives -0 for 0 when rounding down."""
    if signed:
        return x.cast("sitofp", element)
    if x.ty.split("x ")[-1].rstrip(">") == "i16":
        return x.zext("i32").cast("sitofp", element)
    return (x >> 16).cast("sitofp", element) * 65536.0 + (x & 0xFFFF).cast("sitofp", element)


def _byte_to_float(index: int) -> Signature:
    return sig("f32 = i32", lambda b, x: ((x >> (8 * index)) & 0xFF).cast("sitofp", "float"))


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


def _pack_half(b: Builder, x: Value, y: Value) -> Value:
    low, high = (limit_half(b, v.cast("fptrunc", "half"), [v]).bitcast("i16").zext("i32") for v in (x, y))
    return low | (high << 16)


def _normalised(b: Builder, x: Value, scale: float, low: float, high: float, element: str, signed: bool) -> Value:
    """Clamps to [low, high], scales, rounds to nearest even; NaN gives zero."""
    clamped = x.cmp("olt", low).select(b.const(x.ty, low), x)
    clamped = clamped.cmp("ogt", high).select(b.const(x.ty, high), clamped)
    return _to_int(b, b.intrinsic("roundeven", clamped * scale), element, signed=signed)


_NORM = {True: (32767.0, -1.0), False: (65535.0, 0.0)}
"""Scale and lower limit of signed and unsigned normalised 16-bit integers."""


def _norm16(signed: bool) -> Signature:
    """f16 to a normalised 16-bit integer. [CDNA3 ISA, V_CVT_NORM_I16_F16]"""
    scale, low = _NORM[signed]
    return sig(
        "i16 = f16",
        lambda b, x: _normalised(b, x.cast("fpext", "float"), scale, low, 1.0, "i32", True).trunc("i16"),
    )


def _pack_norm(signed: bool, source: str = "f32") -> Signature:
    scale, low = _NORM[signed]

    def expression(b: Builder, x: Value, y: Value) -> Value:
        wide = (v.cast("fpext", "float") for v in (x, y))
        p, q = (_normalised(b, v, scale, low, 1.0, "i32", True) for v in wide)
        return (p & 0xFFFF) | (q << 16)

    return sig(f"i32 = {source} {source}", expression)


def _pack_int(signed: bool) -> Signature:
    def saturate(b: Builder, v: Value) -> Value:
        if signed:
            return b.intrinsic("smin", b.intrinsic("smax", v, b.const(v.ty, -32768)), b.const(v.ty, 32767)) & 0xFFFF
        return b.intrinsic("umin", v, b.const(v.ty, 65535))

    return sig("i32 = i32 i32", lambda b, x, y: saturate(b, x) | (saturate(b, y) << 16))


def _pack_u8(b: Builder, x: Value, position: Value, old: Value) -> Value:
    value = _to_int(b, b.intrinsic("roundeven", x), "i32", signed=False)
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
    "v_cvt_pknorm_i16_f16": _pack_norm(True, "f16"),
    "v_cvt_pknorm_u16_f16": _pack_norm(False, "f16"),
    "v_cvt_norm_i16_f16": _norm16(True),
    "v_cvt_norm_u16_f16": _norm16(False),
    "v_cvt_pkaccum_u8_f32": sig("i32 = f32 i32", _pack_u8, accumulate=True),
    "v_cvt_pk_u8_f32": sig("i32 = f32 i32 i32", _pack_u8),
    **{f"v_cvt_f32_ubyte{i}": _byte_to_float(i) for i in range(4)},
}

SIGNATURES.update(
    {
        "v_cvt_f32_bf16": sig("f32 = i16", lambda b, x: (x.zext("i32") << 16).bitcast("float")),
        "v_cvt_pk_f16_f32": sig("i32 = f32 f32", _pack_half, rounds=2),
    }
)


OPS: dict[str, Lower] = {name: lower_with(signature) for name, signature in SIGNATURES.items()}


# ---- 8-bit floats: the format depends on the chip
def _saturates(b: Builder) -> Value:
    """MODE.FP16_OVFL, bit 23."""
    return ((b.load("i32", b.w, state.MODE) >> 23) & 1).cmp("ne", 0)


def _byte_format(name: str, chip: str) -> SmallFloat:
    return bf8(chip) if "bf8" in name else fp8(chip)


def _chip_op(inst: Instruction, context: Context, signature: Signature, extra: str = "") -> Op:
    op = Frame(inst, context, signature).op()
    return Op(f"{op.key}|{context.chip}{extra}", op.make, op.slots, op.checks)


def _from_byte(inst: Instruction, context: Context) -> Op:
    f = _byte_format(inst.name, context.chip)
    return _chip_op(inst, context, sig("f32 = i32", lambda b, x: decode(b, f, x)))


def _from_two_bytes(inst: Instruction, context: Context) -> Op:
    f = _byte_format(inst.name, context.chip)

    def expression(b: Builder, x: Value) -> Value:
        low, high = (decode(b, f, x >> shift if shift else x).bitcast("i32").zext("i64") for shift in (0, 8))
        return low | (high << 32)

    return _chip_op(inst, context, sig("i64 = i32", expression))


def _to_two_bytes(inst: Instruction, context: Context) -> Op:
    """The word that op_sel does not select keeps its value."""
    f = _byte_format(inst.name, context.chip)

    def expression(b: Builder, x: Value, y: Value) -> Value:
        saturate = _saturates(b)
        return (encode(b, f, x, saturate) | (encode(b, f, y, saturate) << 8)).trunc("i16")

    return _chip_op(inst, context, sig("i16 = f32 f32", expression, preserve=True))


def _to_byte_stochastic(inst: Instruction, context: Context) -> Op:
    """op_sel bits 2 and 3 name the byte; the others keep their value."""
    f = _byte_format(inst.name, context.chip)
    byte = inst.modifiers.get("op_sel", 0) >> 2 & 3

    def expression(b: Builder, x: Value, random: Value, old: Value) -> Value:
        code = encode(b, f, x, _saturates(b), random=random)
        return (old & ~(0xFF << 8 * byte)) | (code << 8 * byte)

    return _chip_op(inst, context, sig("i32 = f32 i32", expression, accumulate=True), f"|{byte}")


for _kind in ("fp8", "bf8"):
    OPS[f"v_cvt_f32_{_kind}"] = _from_byte
    OPS[f"v_cvt_pk_f32_{_kind}"] = _from_two_bytes
    OPS[f"v_cvt_pk_{_kind}_f32"] = _to_two_bytes
    OPS[f"v_cvt_sr_{_kind}_f32"] = _to_byte_stochastic
