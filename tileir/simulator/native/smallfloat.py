"""8-, 6- and 4-bit floating-point formats: decoding and encoding, as vector expressions.

Formats: OCP 8-bit (gfx950), FNUZ 8-bit (gfx942: bias one larger, no infinity, no negative zero, 0x80 is NaN), OCP MX
6- and 4-bit. [OCP "8-bit Floating Point" 1.0; OCP "Microscaling Formats" 1.0; CDNA3 ISA for FNUZ]
"""

from __future__ import annotations

from tileir.records import dataclass

from .builder import Builder, Value


@dataclass(frozen=True)
class SmallFloat:
    """exponent, mantissa: field widths. nan: "fnuz" (only sign bit set), "fn" (all ones of magnitude), "ieee"
    (top exponent holds infinity and NaN), "none"."""

    name: str
    exponent: int
    mantissa: int
    bias: int
    nan: str

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def largest(self) -> int:
        """Magnitude code of the largest finite number."""
        top = (1 << (self.exponent + self.mantissa)) - 1
        return {"fn": top - 1, "ieee": top - (1 << self.mantissa)}.get(self.nan, top)


FP8_OCP = SmallFloat("fp8", 4, 3, 7, "fn")
BF8_OCP = SmallFloat("bf8", 5, 2, 15, "ieee")
FP8_FNUZ = SmallFloat("fp8z", 4, 3, 8, "fnuz")
BF8_FNUZ = SmallFloat("bf8z", 5, 2, 16, "fnuz")
FP6 = SmallFloat("fp6", 2, 3, 1, "none")
BF6 = SmallFloat("bf6", 3, 2, 3, "none")
FP4 = SmallFloat("fp4", 2, 1, 1, "none")


def fp8(chip: str) -> SmallFloat:
    return FP8_FNUZ if chip == "gfx942" else FP8_OCP


def bf8(chip: str) -> SmallFloat:
    return BF8_FNUZ if chip == "gfx942" else BF8_OCP


def decode(b: Builder, f: SmallFloat, code: Value) -> Value:
    """Codes in the low bits of i32 lanes (upper bits are ignored) to f32.

    The exponent and mantissa fields are put at the top of the f32 fraction; one exact multiplication corrects the
    bias and makes denormals right as well.
    """
    magnitude = code & ((1 << (f.bits - 1)) - 1)
    value = (magnitude << (23 - f.mantissa)).bitcast("float") * 2.0 ** (127 - f.bias)
    sign = (code << (32 - f.bits)) & -(1 << 31)
    pattern = value.bitcast("i32")
    quiet_nan = b.const(pattern.ty, 0x7FC00000)
    if f.nan == "ieee":
        top = ((1 << f.exponent) - 1) << f.mantissa
        special = magnitude.cmp("eq", top).select(b.const(pattern.ty, 0x7F800000), quiet_nan)
        pattern = magnitude.cmp("uge", top).select(special, pattern)
    elif f.nan == "fn":
        pattern = magnitude.cmp("eq", (1 << (f.bits - 1)) - 1).select(quiet_nan, pattern)
    elif f.nan == "fnuz":
        negative_zero = 1 << (f.bits - 1)
        pattern = (code & ((1 << f.bits) - 1)).cmp("eq", negative_zero).select(quiet_nan, pattern)
        sign = magnitude.cmp("eq", 0).select(b.const(sign.ty, 0), sign)
    return (pattern | sign).bitcast("float")


def encode(b: Builder, f: SmallFloat, x: Value, saturate: Value, *, random: Value | None = None) -> Value:
    """f32 to codes in i32 lanes: to nearest even, or with ``random`` (32 random bits) stochastically.

    ``saturate`` (an i1, MODE.FP16_OVFL) turns numbers that are too large into the largest finite one; otherwise they
    become infinity, or NaN in formats without infinity. [CDNA3 / CDNA4 ISA, V_CVT_PK_FP8_F32, MODE.FP16_OVFL]
    """
    pattern = x.bitcast("i32")
    magnitude = pattern & 0x7FFFFFFF
    drop = 23 - f.mantissa
    smallest_exponent = 1 - f.bias
    exponent = (magnitude >> 23) - 127
    # Below the smallest normal number more bits fall off.
    shift = b.intrinsic("smax", b.const(exponent.ty, smallest_exponent) - exponent, b.const(exponent.ty, 0))
    beyond = b.intrinsic("smax", shift - 24, b.const(exponent.ty, 0))
    shift = b.intrinsic("smin", shift, b.const(exponent.ty, 24)) + drop
    zero = magnitude.cmp("ult", 0x00800000)  # f32 denormals are far below the range of every format here
    wide = ((magnitude & 0x7FFFFF) | 0x800000).zext("i64")
    wide = wide >> b.intrinsic("smin", beyond, b.const(exponent.ty, 31)).zext("i64")
    shift64 = shift.zext("i64")
    one = b.const(wide.ty, 1)
    if random is None:
        half = (one << (shift64 - 1)) - 1
        rounded = (wide + half + ((wide >> shift64) & 1)) >> shift64
    else:
        # The random number is aligned with the bits that fall off.
        noise = (random.zext("i64") << 32) >> (b.const(wide.ty, 64) - shift64)
        rounded = (wide + noise) >> shift64
    normal = exponent.cmp("sge", smallest_exponent)
    base = (exponent + (f.bias - 1)) << f.mantissa
    code = rounded.trunc("i32") + normal.select(base, 0)
    code = zero.select(b.const(code.ty, 0), code)
    limit = b.const(code.ty, f.largest)
    top = (1 << (f.bits - 1)) - 1
    sign = (pattern >> 31) << (f.bits - 1)
    overflow = code.cmp("ugt", f.largest) | exponent.cmp("sgt", 1 << f.exponent)
    if f.nan == "fnuz":
        sign = code.cmp("eq", 0).select(b.const(sign.ty, 0), sign)
        nan_code = b.const(code.ty, 1 << (f.bits - 1))
        special = nan_code
    else:
        nan_code = sign | top
        special = sign | (top + 1 - (1 << f.mantissa)) if f.nan == "ieee" else nan_code
    out = overflow.select(b.splat(saturate).select(sign | limit, special), sign | code)
    return magnitude.cmp("ugt", 0x7F800000).select(nan_code, out)
