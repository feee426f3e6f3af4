"""Bit-level helpers on vectors of floats."""

from __future__ import annotations

from .builder import Builder, Value, bits, count, vec

EXPONENT = {16: 0x7C00, 32: 0x7F800000, 64: 0x7FF0000000000000}
QUIET = {16: 0x0200, 32: 0x00400000, 64: 0x0008000000000000}
MANTISSA = {16: 10, 32: 23, 64: 52}
BIAS = {16: 15, 32: 127, 64: 1023}
"""By width in bits: exponent mask, quiet bit of a NaN, width of the mantissa, exponent bias."""


def raw(x: Value) -> Value:
    return x.bitcast(f"i{bits(x.ty)}")


def is_nan(x: Value) -> Value:
    return x.cmp("uno", x)


def quiet(x: Value) -> Value:
    return (raw(x) | QUIET[bits(x.ty)]).bitcast(x.ty)


def is_signalling(x: Value) -> Value:
    return is_nan(x) & (raw(x) & QUIET[bits(x.ty)]).cmp("eq", 0)


def nan(b: Builder, ty: str) -> Value:
    """The default quiet NaN."""
    width = bits(ty)
    return b.const(vec(f"i{width}", count(ty)), EXPONENT[width] | QUIET[width]).bitcast(ty)


def exponent_field(x: Value) -> Value:
    width = bits(x.ty)
    return (raw(x) & EXPONENT[width]) >> MANTISSA[width]
