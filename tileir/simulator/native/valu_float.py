"""Vector floating-point ops. Semantics: CDNA3 ISA, "Vector ALU instructions"; IEEE mode is on."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..decoder import Instruction
from .builder import Builder, Value, bits, count, vec
from .division import div_fixup, div_fmas, div_scale
from .floats import BIAS, EXPONENT, MANTISSA, is_nan, is_signalling, nan, quiet, raw
from .op import Context, Lower, Op, Unsupported
from .valu import Frame, Signature, flush_denormals, lower_with, sig


def _extreme(b: Builder, x: Value, y: Value, largest: bool) -> Value:
    """IEEE-754-2008 minNum/maxNum: a quiet NaN loses, a signalling NaN wins and is quieted, -0 < +0. With IEEE mode off
    every NaN loses. [CDNA3 ISA, V_MIN_F32]"""
    predicate = "ogt" if largest else "olt"
    same = (raw(x) & raw(y)) if largest else (raw(x) | raw(y))
    ordered = x.cmp(predicate, y).select(x, y.cmp(predicate, x).select(y, same.bitcast(x.ty)))
    out = is_nan(x).select(is_nan(y).select(quiet(x), y), is_nan(y).select(x, ordered))
    if not b.ieee:
        return out
    return is_signalling(x).select(quiet(x), is_signalling(y).select(quiet(y), out))


def fmin(b: Builder, x: Value, y: Value) -> Value:
    return _extreme(b, x, y, False)


def fmax(b: Builder, x: Value, y: Value) -> Value:
    return _extreme(b, x, y, True)


def propagating(b: Builder, x: Value, y: Value, largest: bool) -> Value:
    """IEEE-754-2019 minimum/maximum: any NaN wins."""
    out = _extreme(b, x, y, largest)
    return is_nan(x).select(quiet(x), is_nan(y).select(quiet(y), out))


def _med(b: Builder, x: Value, y: Value, z: Value) -> Value:
    any_nan = is_nan(x) | is_nan(y) | is_nan(z)
    top = fmax(b, fmax(b, x, y), z)
    middle = top.cmp("oeq", x).select(fmax(b, y, z), top.cmp("oeq", y).select(fmax(b, x, z), fmax(b, x, y)))
    return any_nan.select(fmin(b, fmin(b, x, y), z), middle)


def round_odd(b: Builder, x: Value) -> Value:
    """f64 → f32 rounded to odd, so that a second rounding to 16 bits is exact."""
    near = x.cast("fptrunc", "float")
    difference = x - near.cast("fpext", "double")
    pattern = raw(near)
    grow = difference.cmp("ogt", 0.0) ^ pattern.cmp("slt", 0)
    moved = grow.select(b.const(pattern.ty, 1), -1)
    inexact = difference.cmp("one", 0.0) & (pattern & 1).cmp("eq", 0)
    return inexact.select(pattern + moved, pattern).bitcast("float")


def narrow_half(b: Builder, x: Value) -> Value:
    """f64 → f16, correctly rounded."""
    return round_odd(b, x).cast("fptrunc", "half")


def _fma16(b: Builder, x: Value, y: Value, z: Value) -> Value:
    p, q, r = (v.cast("fpext", "double") for v in (x, y, z))
    return narrow_half(b, b.fma(p, q, r))


def fma(b: Builder, x: Value, y: Value, z: Value) -> Value:
    return _fma16(b, x, y, z) if bits(x.ty) == 16 else b.fma(x, y, z)


def power_of_two(b: Builder, exponent: Value) -> Value:
    """2**exponent as f64 for an i64 exponent inside the normal range."""
    return ((exponent + 1023) << 52).bitcast("double")


def exp2_double(b: Builder, x: Value) -> Value:
    """2**x in f64 for |x| < 1000 (relative error below 1e-14): Taylor series of e**(f ln 2), |f| <= 1/2."""
    n = b.intrinsic("rint", x)
    r = (x - n) * math.log(2.0)
    out = b.const(x.ty, 1.0 / math.factorial(12))
    for k in range(11, -1, -1):
        out = b.fma(out, r, b.const(x.ty, 1.0 / math.factorial(k)))
    return out * power_of_two(b, n.cast("fptosi", "i64"))


def _exp2(b: Builder, x: Value) -> Value:
    wide = x.cast("fpext", "double")
    low, high = b.const(wide.ty, -400.0), b.const(wide.ty, 400.0)
    inside = wide.cmp("ogt", -400.0).select(wide, low)
    inside = inside.cmp("olt", 400.0).select(inside, high)
    out = exp2_double(b, inside)
    return is_nan(x).select(quiet(x), _narrow(b, out, x.ty))


def _narrow(b: Builder, value: Value, ty: str) -> Value:
    return narrow_half(b, value) if bits(ty) == 16 else value.cast("fptrunc", "float")


def log2_double(b: Builder, x: Value) -> Value:
    """log2 of a positive normal f64 (absolute error below 1e-15): atanh series, mantissa in [sqrt(1/2), sqrt(2))."""
    pattern = raw(x)
    shifted = pattern - 0x3FE6A09E667F3BCD
    exponent = shifted.ashr(52)
    m = (pattern - (exponent << 52)).bitcast("double")
    s = (m - 1.0) / (m + 1.0)
    square = s * s
    out = b.const(x.ty, 1.0 / 21)
    for k in range(19, 0, -2):
        out = b.fma(out, square, b.const(x.ty, 1.0 / k))
    return b.fma(out * s, b.const(x.ty, 2.0 / math.log(2.0)), exponent.cast("sitofp", "double"))


def _log2(b: Builder, x: Value) -> Value:
    wide = x.cast("fpext", "double")
    out = _narrow(b, log2_double(b, wide), x.ty)
    infinity = b.const(x.ty, math.inf)
    out = x.cmp("oeq", math.inf).select(infinity, out)
    out = x.cmp("oeq", 0.0).select(b.const(x.ty, -math.inf), out)
    out = x.cmp("olt", 0.0).select(nan(b, x.ty), out)
    return is_nan(x).select(quiet(x), out)


def _sine(b: Builder, x: Value, cosine: bool) -> Value:
    """sin or cos of 2 pi x; beyond 256 revolutions 0 and 1. [CDNA3 ISA, V_SIN_F32]"""
    wide = x.cast("fpext", "double")
    turns = wide + 0.25 if cosine else wide
    r = turns - b.intrinsic("rint", turns)
    half = b.intrinsic("copysign", b.const(r.ty, 0.5), r)
    r = b.intrinsic("fabs", r).cmp("ogt", 0.25).select(half - r, r)
    y = r * (2.0 * math.pi)
    square = y * y
    out = b.const(r.ty, 1.0 / math.factorial(19))
    for k in range(17, 0, -2):  # Horner scheme of a series with alternating signs
        out = -out
        out = b.fma(out, square, b.const(r.ty, 1.0 / math.factorial(k)))
    out = out * y
    result = _narrow(b, out, x.ty)
    outside = b.intrinsic("fabs", x).cmp("ogt", 256.0)
    result = outside.select(b.const(x.ty, 1.0 if cosine else 0.0), result)
    invalid = b.intrinsic("fabs", x).cmp("ueq", math.inf)
    return invalid.select(nan(b, x.ty), result)


def _reciprocal(b: Builder, x: Value) -> Value:
    return b.const(x.ty, 1.0) / x


def _rsq(b: Builder, x: Value) -> Value:
    if bits(x.ty) == 64:
        return b.const(x.ty, 1.0) / b.intrinsic("sqrt", x)
    wide = x.cast("fpext", "double")
    return _narrow(b, b.const(wide.ty, 1.0) / b.intrinsic("sqrt", wide), x.ty)


def _fract(b: Builder, x: Value) -> Value:
    """x - floor(x), below one. [CDNA3 ISA, V_FRACT]"""
    width = bits(x.ty)
    part = x - b.intrinsic("floor", x)
    limit = b.const(vec(f"i{width}", count(x.ty)), (BIAS[width] << MANTISSA[width]) - 1).bitcast(x.ty)
    return part.cmp("ogt", limit).select(limit, part)


def _ldexp(b: Builder, x: Value, n: Value) -> Value:
    """x * 2**n with one rounding."""
    width = bits(x.ty)
    if width == 64:
        # Two exact steps bring any result into range; the last may round once.
        low, high = b.const(n.ty, -2200), b.const(n.ty, 2200)
        clamped = b.intrinsic("smax", b.intrinsic("smin", n, high), low)
        out = x
        left = clamped
        for limit in (900, 900):
            step = b.intrinsic("smax", b.intrinsic("smin", left, b.const(n.ty, limit)), b.const(n.ty, 0))
            out = out * power_of_two(b, step.sext("i64"))
            left = left - step
        # Downward: never round twice; multiply a value that stays normal until the final step.
        out = _scale_down(b, out, left)
        special = b.intrinsic("fabs", x).cmp("ueq", math.inf) | x.cmp("oeq", 0.0)
        return special.select(is_nan(x).select(quiet(x), x), out)
    wide = x.cast("fpext", "double")
    limit = b.const(n.ty, 400)
    clamped = b.intrinsic("smax", b.intrinsic("smin", n, limit), b.const(n.ty, -400))
    return _narrow(b, wide * power_of_two(b, clamped.sext("i64")), x.ty)


def _scale_down(b: Builder, x: Value, n: Value) -> Value:
    """x * 2**n for n <= 0 (or small), rounding once: normalise the exponent first."""
    exponent = ((raw(x) >> 52) & 0x7FF).trunc("i32")
    # Keep the exponent at 1 + room for the rest so that only the final product can be denormal.
    room = b.intrinsic("smin", b.const(n.ty, 0), b.const(n.ty, 1) - exponent)
    first = b.intrinsic("smax", n, room)
    first = b.intrinsic("smin", first, b.const(n.ty, 1000))
    rest = n - first
    third = first.ashr(2)  # down to -2045, which takes three normal factors
    out = x
    for part in (third, third, first - third - third):
        out = out * power_of_two(b, part.sext("i64"))
    rest = b.intrinsic("smax", rest, b.const(n.ty, -1000))
    return out * power_of_two(b, rest.sext("i64"))


def _frexp_exp(b: Builder, x: Value, result: str) -> Value:
    """Exponent e of x = m 2**e, 1/2 <= |m| < 1; 0 for zero, infinity and NaN. [CDNA3 ISA, V_FREXP_EXP]"""
    width = bits(x.ty)
    m = MANTISSA[width]
    pattern = raw(x)
    field = (pattern & EXPONENT[width]) >> m
    mantissa = pattern & ((1 << m) - 1)
    lead = b.intrinsic("ctlz", mantissa, b.const("i1", 0), ty=mantissa.ty)
    normal = field - (BIAS[width] - 1)
    denormal = b.const(lead.ty, (width - m - 1) - (BIAS[width] - 2)) - lead
    out = field.cmp("eq", 0).select(denormal, normal)
    special = field.cmp("eq", EXPONENT[width] >> m) | (pattern << 1).cmp("eq", 0)
    out = special.select(b.const(out.ty, 0), out)
    target = int(result[1:])
    return out if target == width else out.trunc(result) if target < width else out.sext(result)


def _frexp_mant(b: Builder, x: Value) -> Value:
    width = bits(x.ty)
    m = MANTISSA[width]
    pattern = raw(x)
    sign = pattern & -(1 << (width - 1))
    field = pattern & EXPONENT[width]
    mantissa = pattern & ((1 << m) - 1)
    lead = b.intrinsic("ctlz", mantissa, b.const("i1", 0), ty=mantissa.ty) - (width - m - 1)
    shifted = (mantissa << (lead & (width - 1))) & ((1 << m) - 1)
    body = field.cmp("eq", 0).select(shifted, mantissa)
    out = (sign | body | ((BIAS[width] - 1) << m)).bitcast(x.ty)
    special = field.cmp("eq", EXPONENT[width])
    out = special.select(is_nan(x).select(quiet(x), x), out)
    return x.cmp("oeq", 0.0).select(x, out)


def _legacy_mul(b: Builder, x: Value, y: Value) -> Value:
    """0 * anything is 0. [CDNA3 ISA, V_MUL_LEGACY_F32]"""
    return (x.cmp("oeq", 0.0) | y.cmp("oeq", 0.0)).select(b.const(x.ty, 0.0), x * y)


def _mad16(b: Builder, x: Value, y: Value, z: Value) -> Value:
    """Product and sum of halves, each rounded and flushed; v_fma_f16 is the fused form. [CDNA3 ISA, V_MAD_F16]"""
    return flush_denormals(b, x * y, "f16", None) + z


def _pk_fma(b: Builder, x: Value, y: Value, old: Value) -> Value:
    """Both halves of a dword, each a fused multiply-add. [CDNA3 ISA, V_PK_FMAC_F16]"""
    out: list[Value] = []
    for shift in (0, 16):
        p, q, r = ((v >> shift if shift else v).trunc("i16").bitcast("half") for v in (x, y, old))
        out.append(_fma16(b, p, q, r).bitcast("i16").zext("i32"))
    return out[0] | (out[1] << 16)


_ARITHMETIC: dict[str, tuple[str, Callable[..., Value]]] = {
    "v_add": ("T = T T", lambda b, x, y: x + y),
    "v_sub": ("T = T T", lambda b, x, y: x - y),
    "v_subrev": ("T = T T", lambda b, x, y: y - x),
    "v_mul": ("T = T T", lambda b, x, y: x * y),
    "v_min": ("T = T T", fmin),
    "v_max": ("T = T T", fmax),
    "v_fma": ("T = T T T", fma),
    "v_rcp": ("T = T", _reciprocal),
    "v_rsq": ("T = T", _rsq),
    "v_sqrt": ("T = T", lambda b, x: b.intrinsic("sqrt", x)),
    "v_fract": ("T = T", _fract),
    "v_trunc": ("T = T", lambda b, x: b.intrinsic("trunc", x)),
    "v_ceil": ("T = T", lambda b, x: b.intrinsic("ceil", x)),
    "v_rndne": ("T = T", lambda b, x: b.intrinsic("roundeven", x)),
    "v_floor": ("T = T", lambda b, x: b.intrinsic("floor", x)),
    "v_frexp_mant": ("T = T", _frexp_mant),
    "v_div_fixup": ("T = T T T", div_fixup),
}
_TRANSCENDENTAL = {"v_rcp", "v_rsq", "v_sqrt"}
"""f32 forms that flush denormals in every mode, as LLVM's expansions of division, square root, exp2 and log2 assume."""

SIGNATURES: dict[str, Signature] = {}
for _name, (_shape, _expression) in _ARITHMETIC.items():
    for _ty in ("f16", "f32", "f64"):
        SIGNATURES[f"{_name}_{_ty}"] = sig(
            _shape.replace("T", _ty),
            _expression,
            flush=_ty == "f32" and _name in _TRANSCENDENTAL,
            nearest=_name in _TRANSCENDENTAL or _name == "v_rndne",
            endless=_name in _TRANSCENDENTAL or _name == "v_div_fixup",
            preserve=_ty == "f16" and _name in ("v_fma", "v_div_fixup"),
        )
for _ty in ("f16", "f32"):
    for _name, _function in (
        ("v_exp", _exp2),
        ("v_log", _log2),
        ("v_sin", lambda b, x: _sine(b, x, False)),
        ("v_cos", lambda b, x: _sine(b, x, True)),
    ):
        SIGNATURES[f"{_name}_{_ty}"] = sig(
            f"{_ty} = {_ty}", _function, flush=_ty == "f32", nearest=True, endless=_name == "v_log"
        )
    for _name, _pair in (("v_min3", fmin), ("v_max3", fmax)):
        SIGNATURES[f"{_name}_{_ty}"] = sig(
            f"{_ty} = {_ty} {_ty} {_ty}",
            lambda b, x, y, z, pair=_pair: pair(b, pair(b, x, y), z),
            preserve=_ty == "f16",
        )
    SIGNATURES[f"v_med3_{_ty}"] = sig(f"{_ty} = {_ty} {_ty} {_ty}", _med, preserve=_ty == "f16")
    SIGNATURES[f"v_fmac_{_ty}"] = sig(f"{_ty} = {_ty} {_ty}", fma, accumulate=True)
SIGNATURES.update(
    {
        "v_fmac_f64": sig("f64 = f64 f64", fma, accumulate=True),
        "v_rcp_iflag_f32": sig("f32 = f32", _reciprocal, flush=True, nearest=True),
        # "legacy" forms of 16-bit ops clear the upper half of the destination
        "v_mad_f16": sig("f16 = f16 f16 f16", _mad16, flush=True, preserve=True),
        "v_mad_legacy_f16": sig("f16 = f16 f16 f16", _mad16, flush=True),
        "v_mac_f16": sig("f16 = f16 f16", _mad16, flush=True, accumulate=True),
        "v_madak_f16": sig("f16 = f16 f16 f16", _mad16, flush=True),
        "v_madmk_f16": sig("f16 = f16 f16 f16", _mad16, flush=True),
        "v_fma_legacy_f16": sig("f16 = f16 f16 f16", fma),
        "v_div_fixup_legacy_f16": sig("f16 = f16 f16 f16", div_fixup, endless=True),
        "v_exp_legacy_f32": sig("f32 = f32", _exp2, flush=True, nearest=True),
        "v_log_legacy_f32": sig("f32 = f32", _log2, flush=True, nearest=True),
        "v_mul_legacy_f32": sig("f32 = f32 f32", _legacy_mul),
        "v_fmaak_f32": sig("f32 = f32 f32 f32", fma),
        "v_fmamk_f32": sig("f32 = f32 f32 f32", fma),
        "v_ldexp_f32": sig("f32 = f32 i32", _ldexp),
        "v_ldexp_f64": sig("f64 = f64 i32", _ldexp),
        "v_ldexp_f16": sig("f16 = f16 i16", lambda b, x, n: _ldexp(b, x, n.sext("i32"))),
        "v_frexp_exp_i32_f32": sig("i32 = f32", lambda b, x: _frexp_exp(b, x, "i32")),
        "v_frexp_exp_i32_f64": sig("i32 = f64", lambda b, x: _frexp_exp(b, x, "i32")),
        "v_frexp_exp_i16_f16": sig("i16 = f16", lambda b, x: _frexp_exp(b, x, "i16")),
        "v_div_scale_f32": sig("f32 m = f32 f32 f32", div_scale, raw=True),
        "v_div_scale_f64": sig("f64 m = f64 f64 f64", div_scale, raw=True),
        "v_div_fmas_f32": sig("f32 = f32 f32 f32", div_fmas, vcc=True),
        "v_div_fmas_f64": sig("f64 = f64 f64 f64", div_fmas, vcc=True),
        "v_minimum3_f32": sig(
            "f32 = f32 f32 f32", lambda b, x, y, z: propagating(b, propagating(b, x, y, False), z, False)
        ),
        "v_maximum3_f32": sig(
            "f32 = f32 f32 f32", lambda b, x, y, z: propagating(b, propagating(b, x, y, True), z, True)
        ),
    }
)


def _dot2(kind: str) -> Callable[[Builder, Value, Value, Value], Value]:
    """z + x.low y.low + x.high y.high, fused step by step from the low half."""

    def half(v: Value, high: bool) -> Value:
        if kind == "bf16":
            return (v & -0x10000 if high else v << 16).bitcast("float")
        return (v >> 16 if high else v).trunc("i16").bitcast("half").cast("fpext", "float")

    def expression(b: Builder, x: Value, y: Value, z: Value) -> Value:
        for high in (False, True):
            z = b.fma(half(x, high), half(y, high), z)
        return z

    return expression


for _ty in ("f16", "bf16"):
    SIGNATURES[f"v_dot2_f32_{_ty}"] = sig("f32 = i32 i32 f32", _dot2(_ty), plain=True)
    SIGNATURES[f"v_dot2c_f32_{_ty}"] = sig("f32 = i32 i32", _dot2(_ty), accumulate=True)

PK_FMAC = sig("i32 = i32 i32", _pk_fma, accumulate=True)
"""v_pk_fmac_f16."""


def _lower_pk_fmac(inst: Instruction, context: Context) -> Op:
    if any(o.neg or o.abs or o.sext or o.kind in ("imm", "lit") for o in inst.operands) or inst.encoding == "sdwa":
        raise Unsupported(f"{inst.name} with modifiers, constants or SDWA")
    if context.dynamic_mode or inst.modifiers.get("clamp", 0):
        raise Unsupported(f"{inst.name} with clamp or in a program that changes the float mode")
    return Frame(inst, context, PK_FMAC).op()


OPS: dict[str, Lower] = {name: lower_with(signature) for name, signature in SIGNATURES.items()}
OPS["v_pk_fmac_f16"] = _lower_pk_fmac

_PREDICATES = {
    "lt": "olt",
    "eq": "oeq",
    "le": "ole",
    "gt": "ogt",
    "lg": "one",
    "ge": "oge",
    "o": "ord",
    "u": "uno",
    "nge": "ult",
    "nlg": "ueq",
    "ngt": "ule",
    "nle": "ugt",
    "neq": "une",
    "nlt": "uge",
}


def _compare(predicate: str) -> Callable[[Builder, Value, Value], Value]:
    return lambda b, x, y: x.cmp(predicate, y)


def _class(b: Builder, x: Value, classes: Value) -> Value:
    """Bits: 0 signalling NaN, 1 quiet NaN, 2 -inf, 3 -normal, 4 -denormal, 5 -0, 6 +0, 7 +denormal, 8 +normal,
    9 +inf. [CDNA3 ISA, V_CMP_CLASS]"""
    width = bits(x.ty)
    pattern = raw(x)
    negative = pattern.cmp("slt", 0)
    field = pattern & EXPONENT[width]
    mantissa = pattern & ((1 << MANTISSA[width]) - 1)
    wide = classes if bits(classes.ty) == 32 else classes.zext("i32")

    def bit(n: int) -> Value:
        return b.const(wide.ty, n)

    finite = field.cmp("eq", 0).select(
        mantissa.cmp("eq", 0).select(negative.select(bit(5), bit(6)), negative.select(bit(4), bit(7))),
        negative.select(bit(3), bit(8)),
    )
    infinite = negative.select(bit(2), bit(9))
    nan_bit = is_signalling(x).select(bit(0), bit(1))
    special = field.cmp("eq", EXPONENT[width])
    index = special.select(is_nan(x).select(nan_bit, infinite), finite)
    return ((wide >> index) & 1).cmp("ne", 0)


COMPARES: dict[str, Signature] = {}
for _ty in ("f16", "f32", "f64"):
    for _name, _predicate in _PREDICATES.items():
        COMPARES[f"{_name}_{_ty}"] = sig(f"m = {_ty} {_ty}", _compare(_predicate))
    for _name, _value in (("f", 0), ("tru", 1)):
        COMPARES[f"{_name}_{_ty}"] = sig(
            f"m = {_ty} {_ty}", lambda b, x, y, value=_value: b.const(vec("i1", count(x.ty)), value), raw=True
        )
    COMPARES[f"class_{_ty}"] = sig(f"m = {_ty} {'i16' if _ty == 'f16' else 'i32'}", _class, raw=True)
