"""The three instructions of a correctly rounded division: scale, fused multiply-add with scaling, fix-up."""

from __future__ import annotations

import math

from .builder import Builder, Value, bits
from .floats import BIAS, EXPONENT, exponent_field, is_nan, nan, quiet, raw

_SCALE = {32: (96, 64, 23), 64: (768, 128, 53)}
"""By width: exponent gap that asks for scaling, power of two of the scaling, exponent of a tiny numerator."""


def div_scale(b: Builder, s0: Value, s1: Value, s2: Value) -> tuple[Value, Value]:
    """Scales denominator (s0 = s1) or numerator (s0 = s2) of s2 / s1 away from the edges of the range; the mask tells
    DIV_FMAS to undo it. [CDNA3 ISA, V_DIV_SCALE]

    The ISA text says that a denominator with a denormal reciprocal is scaled by 2**-n, except that it is scaled up
    when the quotient is denormal too; only scaling it down makes the whole sequence round correctly, so it is scaled
    down in both cases.
    """
    width = bits(s0.ty)
    gap, n, tiny = _SCALE[width]
    e1, e2 = exponent_field(s1), exponent_field(s2)
    up = b.const(s0.ty, math.ldexp(1.0, n))
    down = b.const(s0.ty, math.ldexp(1.0, -n))
    one = b.const(s0.ty, 1.0)
    is_denominator = s0.cmp("oeq", s1)
    is_numerator = s0.cmp("oeq", s2)

    def denormal(v: Value) -> Value:
        return exponent_field(v).cmp("eq", 0) & v.cmp("one", 0.0)

    zero = s1.cmp("oeq", 0.0) | s2.cmp("oeq", 0.0)
    huge = (e2 - e1).cmp("sge", gap)
    small_denominator = denormal(s1)
    small_reciprocal = denormal(one / s1)
    small_quotient = denormal(s2 / s1)
    tiny_numerator = e2.cmp("ule", tiny)

    factor = tiny_numerator.select(up, one)
    factor = small_quotient.select(is_numerator.select(up, one), factor)
    factor = small_reciprocal.select(down, factor)
    factor = (small_reciprocal & small_quotient).select(is_denominator.select(down, one), factor)
    factor = small_denominator.select(up, factor)
    factor = huge.select(is_denominator.select(up, one), factor)
    out = zero.select(nan(b, s0.ty), s0 * factor)
    mask = ~zero & (huge | (~small_denominator & small_quotient))
    return out, mask


def div_fmas(b: Builder, x: Value, y: Value, z: Value, scaled: Value) -> Value:
    """fma, then 2**±n where DIV_SCALE said so, rounded once; the sign follows from the size of z.
    [RDNA3 ISA, V_DIV_FMAS]"""
    width = bits(x.ty)
    n = _SCALE[width][1]
    plain = b.fma(x, y, z)
    large = exponent_field(z).cmp("ugt", BIAS[width])
    up = plain * math.ldexp(1.0, n)
    down = _scale_single(b, x, y, z, n) if width == 32 else _scale_double(b, x, y, z, plain, n)
    overflow = b.intrinsic("fabs", plain).cmp("oeq", math.inf)
    return scaled.select(overflow.select(plain, large.select(up, down)), plain)


def _scale_single(b: Builder, x: Value, y: Value, z: Value, n: int) -> Value:
    """(x y + z) / 2**n in f32 with one rounding: the sum is kept in f64, rounded to odd."""
    p, q, r = (v.cast("fpext", "double") for v in (x, y, z))
    product = p * q
    total = product + r
    back = total - product
    rest = (product - (total - back)) + (r - back)
    pattern = raw(total)
    grow = rest.cmp("ogt", 0.0) ^ pattern.cmp("slt", 0)
    moved = grow.select(b.const(pattern.ty, 1), -1)
    inexact = rest.cmp("one", 0.0) & (pattern & 1).cmp("eq", 0)
    odd = inexact.select(pattern + moved, pattern).bitcast("double")
    return (odd * math.ldexp(1.0, -n)).cast("fptrunc", "float")


def _scale_double(b: Builder, x: Value, y: Value, z: Value, plain: Value, n: int) -> Value:
    """(x y + z) / 2**n in f64: a denormal result that is a tie by ``plain`` is decided by the rounding error of
    ``plain``. The error is exact because z is close to the sum where DIV_FMAS is used."""
    near = plain * math.ldexp(1.0, -n)
    distance = plain - near * math.ldexp(1.0, n)
    error = b.fma(x, y, z - plain)
    tie = b.intrinsic("fabs", distance).cmp("oeq", math.ldexp(1.0, n - 1075))
    away = (distance.cmp("ogt", 0.0) & error.cmp("ogt", 0.0)) | (distance.cmp("olt", 0.0) & error.cmp("olt", 0.0))
    smallest = b.intrinsic("copysign", b.const(x.ty, math.ldexp(1.0, -1074)), distance)
    return (tie & away).select(near + smallest, near)


def div_fixup(b: Builder, q: Value, d: Value, n: Value) -> Value:
    """Special cases of n / d around the quotient q. [CDNA3 ISA, V_DIV_FIXUP]

    A NaN quotient of two finite numbers can only come from an overflow inside the sequence (inf - inf), so it becomes
    infinity; the ISA text leaves this case to the reader.
    """
    width = bits(q.ty)
    sign = (raw(d) ^ raw(n)) & -(1 << (width - 1))
    infinite = b.const(raw(q).ty, EXPONENT[width])
    magnitude = is_nan(q).select(infinite, raw(q) & ((1 << (width - 1)) - 1))
    fabs_d, fabs_n = b.intrinsic("fabs", d), b.intrinsic("fabs", n)
    infinity = b.const(magnitude.ty, EXPONENT[width])
    zero = b.const(magnitude.ty, 0)
    out = magnitude
    gap = exponent_field(n) - exponent_field(d)
    if width != 16:
        out = gap.cmp("slt", {32: -150, 64: -1075}[width]).select(zero, out)
    out = (fabs_d.cmp("oeq", math.inf) | n.cmp("oeq", 0.0)).select(zero, out)
    out = (d.cmp("oeq", 0.0) | fabs_n.cmp("oeq", math.inf)).select(infinity, out)
    value = (sign | out).bitcast(q.ty)
    invalid = (d.cmp("oeq", 0.0) & n.cmp("oeq", 0.0)) | (fabs_d.cmp("oeq", math.inf) & fabs_n.cmp("oeq", math.inf))
    negative_nan = raw(nan(b, q.ty)) | -(1 << (width - 1))
    value = invalid.select(negative_nan.bitcast(q.ty), value)
    value = is_nan(d).select(quiet(d), value)
    return is_nan(n).select(quiet(n), value)
