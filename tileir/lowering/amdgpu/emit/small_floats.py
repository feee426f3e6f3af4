"""Conversions that no LLVM operation does: from and to floats of 8 bits and less, and with other roundings than to nearest even.

The chip's own instructions where they give what the language states, else integer arithmetic on codes. Everything passes
through f32, which holds all values of the narrow types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tileir.ir.ops.contract import is_small_float
from tileir.ir.small_floats import SCALE, Format, format_of
from tileir.ir.types import F32, F64, I1, I8, I16, I32, I64, Elem
from tileir.lowering.amdgpu.emit import packed
from tileir.lowering.amdgpu.emit.writer import scalar_type, vector_type

if TYPE_CHECKING:
    from tileir.lowering.amdgpu.emit.elementwise import Pieces

# f32 as IEEE 754 has it.
MANTISSA = 23
BIAS = 127
MAGNITUDE = 0x7FFFFFFF
INFINITY = 0x7F800000
FOUR_BITS, EIGHT_BITS = 4, 8


def needs_codes(source: Elem, target: Elem, rounding: str, overflow: str) -> bool:
    """Whether a conversion is one of this module."""
    return is_small_float(source) or is_small_float(target) or rounding != "nearest_even" or overflow != ""


class SmallFloats:
    """Emits conversions for `Pieces`, whose elements they are."""

    def __init__(self, p: Pieces) -> None:
        self.p, self.w = p, p.w

    def convert(self, x: str, source: Elem, target: Elem, rounding: str, overflow: str, bits: str) -> str:
        """The pieces `x` of type `source` as `target`; `bits` are those of stochastic rounding."""
        if is_small_float(source):
            x, source = self.widened(x, source), F32
            if not is_small_float(target) and rounding == "nearest_even" and not overflow:
                return self.p.convert(x, F32, target)
        x = self._as_f32(x, source)
        return self.narrowed(x, target, rounding, overflow or ("saturate" if target.bits <= EIGHT_BITS else ""), bits)

    def _as_f32(self, x: str, source: Elem) -> str:
        """In f32, such that rounding it to 16 bits or less comes out as if from the source: wider ones are rounded to odd."""
        p = self.p
        if source == F32:
            return x
        if source.bits <= 16 or source.is_bool:
            return p.convert(x, source, F32)
        if source != F64:
            x = self._sticky(x, source) if source == I64 else p.cast("sitofp", x, source, F64)
        near = p.cast("fptrunc", x, F64, F32)
        back = p.cast("fpext", near, F32, F64)
        code = self.w.bitcast(near, p.type(F32), p.type(I32))
        even = self._test("eq", self._int("and", code, 1), 0)
        size, of_back = (p.intrinsic("fabs", v, elem=F64) for v in (x, back))
        above = self.w.op(f'llvm.fcmp "ogt" {of_back}, {size} : {p.type(F64)}')
        below = self.w.op(f'llvm.fcmp "olt" {of_back}, {size} : {p.type(F64)}')
        inexact = p.plain("and", p.plain("or", above, below, elem=I1), even, elem=I1)
        step = p.select(above, p.const(-1, I32), p.const(1, I32), I32)
        odd = p.select(inexact, p.plain("add", code, step, elem=I32), code, I32)
        return self.w.bitcast(odd, p.type(I32), p.type(F32))

    def _sticky(self, x: str, source: Elem) -> str:
        """An i64 as f64; where that is not exact, bit 10 says whether any of bits 0 to 10 is set."""
        p = self.p
        low = p.plain("and", x, p.const(0x7FF, source), elem=source)
        sticky = p.plain(
            "or", p.plain("and", x, p.const(-0x800, source), elem=source), p.const(0x400, source), elem=source
        )
        size = p.plain("add", x, p.const(1 << 53, source), elem=source)
        large = self.w.op(f'llvm.icmp "ugt" {size}, {p.const(1 << 54, source)} : {p.type(source)}')
        some = self.w.op(f'llvm.icmp "ne" {low}, {p.const(0, source)} : {p.type(source)}')
        return p.cast("sitofp", p.select(p.plain("and", large, some, elem=I1), sticky, x, source), source, F64)

    # -- small steps on i32 --------------------------------------------------------------------------------------------

    def _int(self, name: str, a: str, b: str | int) -> str:
        return self.p.plain(name, a, self.p.const(b, I32) if isinstance(b, int) else b, elem=I32)

    def _test(self, predicate: str, a: str, b: str | int) -> str:
        other = self.p.const(b, I32) if isinstance(b, int) else b
        return self.w.op(f'llvm.icmp "{predicate}" {a}, {other} : {self.p.type(I32)}')

    def _pick(self, condition: str, a: str | int, b: str | int) -> str:
        x, y = (self.p.const(v, I32) if isinstance(v, int) else v for v in (a, b))
        return self.p.select(condition, x, y, I32)

    def _most(self, a: str, b: int) -> str:
        return self.p.intrinsic("smax", a, self.p.const(b, I32), elem=I32)

    def _least(self, a: str, b: int) -> str:
        return self.p.intrinsic("smin", a, self.p.const(b, I32), elem=I32)

    # -- from small floats ---------------------------------------------------------------------------------------------

    def widened(self, x: str, source: Elem) -> str:
        """As f32."""
        if self._is_own(source):
            return self._by_own_instructions(x, source)
        codes = self.codes(x, source)
        if source.name == SCALE:  # exponents of f32, but for the two at the ends
            value = self._pick(self._test("eq", codes, 0), 1 << MANTISSA - 1, self._int("shl", codes, MANTISSA))
            value = self._pick(self._test("eq", codes, 255), INFINITY | 1 << MANTISSA - 1, value)
            return self.w.bitcast(value, self.p.type(I32), self.p.type(F32))
        f = format_of(source)
        size = self._int("and", codes, f.sign - 1)
        sign = self._int("shl", self._int("and", codes, f.sign), 31 - f.exponent_bits - f.mantissa_bits)
        # The code as one of f32, of which the exponent is then too small by the difference of the biases: exact also for
        # subnormals, which are subnormal before.
        raw = self.w.bitcast(self._int("shl", size, MANTISSA - f.mantissa_bits), self.p.type(I32), self.p.type(F32))
        factor = 2.0 ** (BIAS - 1 + f.least_exponent)
        value = self.p.plain("fmul", raw, self.p.const(factor, F32), elem=F32, flags=False)
        value = self.w.bitcast(value, self.p.type(F32), self.p.type(I32))
        value = self._int("or", value, sign)
        if f.infinity is not None:
            value = self._pick(self._test("eq", size, f.infinity), self._int("or", sign, INFINITY), value)
        quiet = INFINITY | 1 << MANTISSA - 1
        if f.unsigned_zero:
            value = self._pick(self._test("eq", codes, f.sign), quiet, value)
        elif f.nan is not None:
            first = f.largest if f.infinity is None else f.infinity
            value = self._pick(self._test("sgt", size, first), quiet, value)
        return self.w.bitcast(value, self.p.type(I32), self.p.type(F32))

    def codes(self, x: str, elem: Elem) -> str:
        """The elements as i32."""
        if elem.bits < EIGHT_BITS and self.p.n > 1:
            return self.w.pack(packed.codes(self.w, x, scalar_type(elem), self.p.n), "i32")
        return self.p.cast("zext", x, I8, I32)

    # -- to small floats -----------------------------------------------------------------------------------------------

    def narrowed(self, x: str, target: Elem, rounding: str, overflow: str, bits: str) -> str:
        """From f32."""
        if target.name == SCALE:
            return self._from_codes(self._to_scale(x, rounding), target)
        if self._is_own(target) and rounding == "nearest_even" and overflow == "saturate":
            return self._to_own(x, target)
        f = format_of(target)
        code = self.w.bitcast(x, self.p.type(F32), self.p.type(I32))
        size = self._int("and", code, MAGNITUDE)
        exponent = self._most(self._int("lshr", size, MANTISSA), 1)
        hidden = self._pick(self._test("uge", size, 1 << MANTISSA), 1 << MANTISSA, 0)
        significand = self._int("or", self._int("and", size, (1 << MANTISSA) - 1), hidden)
        # The exponent field of a normal result, less one; below zero results are subnormal and lose more bits.
        field = self._int("sub", exponent, BIAS + f.least_exponent)
        lost = self._int("sub", self.p.const(MANTISSA - f.mantissa_bits, I32), self._least(field, 0))
        rounded = self._rounded(significand, lost, rounding, bits)
        result = self._int("add", self._int("shl", self._most(field, 0), f.mantissa_bits), rounded)
        result = self._bounded(result, size, f, rounding, overflow)
        sign = self._int("and", self._int("lshr", code, 31 - f.exponent_bits - f.mantissa_bits), f.sign)
        signed = self._int("or", result, sign)
        if f.unsigned_zero:
            plain = self._pick(self._test("eq", result, 0), 0, signed)
            signed = self._pick(self._test("eq", result, f.sign), f.sign, plain)
        none = f.sign if f.unsigned_zero else f.nan or 0
        return self._from_codes(self._pick(self._test("ugt", size, INFINITY), none, signed), target)

    def _rounded(self, significand: str, lost: str, rounding: str, bits: str) -> str:
        """The significand (24 bits) without its `lost` lowest bits, of which there is at least one."""
        by = self._least(lost, 31)
        low = self._int("lshr", significand, by)
        if rounding == "toward_zero":
            return low
        if rounding == "stochastic":
            # The lost bits as a fraction of 32 bits; what is below that cannot make a carry.
            left = self._int("shl", significand, self._int("and", self._int("sub", self.p.const(32, I32), by), 31))
            right = self._int("lshr", significand, self._least(self._most(self._int("sub", lost, 32), 0), 31))
            fraction = self._pick(self._test("slt", lost, 32), left, right)
            total = self._int("add", fraction, bits)
            carry = self._test("ult", total, fraction)
            return self._int("add", low, self.p.cast("zext", carry, I1, I32))
        half = self._int("shl", self.p.const(1, I32), self._int("sub", by, 1))
        if rounding == "nearest_away":
            return self._int("lshr", self._int("add", significand, half), by)
        up = self._int("add", self._int("sub", half, 1), self._int("and", low, 1))
        return self._int("lshr", self._int("add", significand, up), by)

    def _bounded(self, result: str, size: str, f: Format, rounding: str, overflow: str) -> str:
        """Codes beyond the largest finite one as `overflow` says."""
        if overflow == "saturate":
            return self._least(result, f.largest)
        none = f.sign if f.unsigned_zero else f.nan or 0
        infinite = none if f.infinity is None else f.infinity
        if rounding == "toward_zero":
            return self._pick(self._test("uge", size, INFINITY), infinite, self._least(result, f.largest))
        return self._pick(self._test("sgt", result, f.largest), infinite, result)

    def _to_scale(self, x: str, rounding: str) -> str:
        """Codes of f8E8M0FNU: the exponent of f32, plus one where rounding to the nearest takes the power above."""
        code = self.w.bitcast(x, self.p.type(F32), self.p.type(I32))
        up = code if rounding == "toward_zero" else self._int("add", code, 1 << MANTISSA - 1)
        result = self._least(self._int("lshr", up, MANTISSA), 254)
        if (
            rounding != "toward_zero"
        ):  # 2^-127, the lowest power, is subnormal in f32: the next one is taken from 1.5 times it on
            subnormal = self._int("lshr", self._int("add", code, 1 << MANTISSA - 2), MANTISSA)
            result = self._pick(self._test("ult", code, 1 << MANTISSA), subnormal, result)
        invalid = self._test("ugt", self._int("sub", code, 1), INFINITY - 1)  # NaN, negative, zero
        return self._pick(invalid, 255, result)

    def _from_codes(self, codes: str, target: Elem) -> str:
        if target.bits == 16:
            return self.w.bitcast(self.p.cast("trunc", codes, I32, I16), self.p.type(I16), self.p.type(target))
        n = self.p.n
        if target.bits < EIGHT_BITS and n > 1:
            values = [self.w.extract(codes, i, vector_type("i32", n)) for i in range(n)]
            return packed.from_codes(self.w, values, scalar_type(target))
        return self.p.cast("trunc", codes, I32, I8)

    # -- the chip's own instructions -----------------------------------------------------------------------------------

    def _is_own(self, elem: Elem) -> bool:
        """Whether the chip converts between f32 and this type, two elements at a time."""
        return elem.bits == EIGHT_BITS and elem.name != SCALE and self.p.s.target.legal_elem(elem.name, "convert")

    def _by_own_instructions(self, x: str, source: Elem) -> str:
        out: list[str] = []
        pair = vector_type("f32", 2)
        name = "bf8" if format_of(source).mantissa_bits == 2 else "fp8"
        for word, count in self._words(x, source):
            for half in range(-(-count // 2)):
                choice = "true" if half else "false"
                both = self.w.op(f"rocdl.cvt.pk.f32.{name} {word}[{choice}] : {pair}")
                out += [self.w.extract(both, i, pair) for i in range(min(2, count - 2 * half))]
        return self.w.pack(out, "f32")

    def _to_own(self, x: str, target: Elem) -> str:
        """To nearest even and saturating: numbers are clamped first, since the instruction makes infinities or NaN of them."""
        f32 = self.p.type(F32)
        most = _value(target)
        clamped = self.p.intrinsic("maxnum", x, self.p.const(-most, F32), elem=F32)
        clamped = self.p.intrinsic("minnum", clamped, self.p.const(most, F32), elem=F32)
        is_nan = self.w.op(f'llvm.fcmp "uno" {x}, {x} : {f32}')
        x = self.p.select(is_nan, x, clamped, F32)
        name = "bf8" if format_of(target).mantissa_bits == 2 else "fp8"
        n = self.p.n
        values = [x] if n == 1 else [self.w.extract(x, i, f32) for i in range(n)]
        zero = self.w.const(0)
        out: list[str] = []
        for first in range(0, n, 4):
            word = zero
            for at in range(first, min(first + 4, n), 2):
                a, b = values[at], values[min(at + 1, n - 1)]
                choice = "true" if at > first else "false"
                word = self.w.op(f"rocdl.cvt.pk.{name}.f32 {a}, {b} -> {word}[{choice}] : i32")
            out.append(word)
        return self._elements(out, n)

    def _words(self, x: str, elem: Elem) -> list[tuple[str, int]]:
        """8-bit elements in i32 words, and how many each holds."""
        n, w = self.p.n, self.w
        if n % 4 == 0:
            t = vector_type("i32", n // 4)
            whole = w.bitcast(x, self.p.type(elem), t)
            return [(whole if n == 4 else w.extract(whole, i, t), 4) for i in range(n // 4)]
        if n == 1:
            return [(w.op(f"llvm.zext {x} : i8 to i32"), 1)]
        half = w.bitcast(x, self.p.type(elem), "i16") if n == 2 else ""
        if half:
            return [(w.op(f"llvm.zext {half} : i16 to i32"), 2)]
        parts = [w.extract(x, i, self.p.type(elem)) for i in range(n)]
        return [(w.op(f"llvm.zext {v} : i8 to i32"), 1) for v in parts]

    def _elements(self, words: Sequence[str], n: int) -> str:
        """The first `n` bytes of words as 8-bit elements."""
        w = self.w
        if n % 4 == 0:
            return w.bitcast(w.pack(words, "i32"), vector_type("i32", n // 4), vector_type("i8", n))
        if n in (1, 2):
            narrow = w.op(f"llvm.trunc {words[0]} : i32 to {'i8' if n == 1 else 'i16'}")
            return narrow if n == 1 else w.bitcast(narrow, "i16", vector_type("i8", 2))
        all_bytes = w.bitcast(w.pack(words, "i32"), vector_type("i32", len(words)), vector_type("i8", 4 * len(words)))
        picks = ", ".join(map(str, range(n)))
        return w.op(f"llvm.shufflevector {all_bytes}, {all_bytes} [{picks}] : {vector_type('i8', 4 * len(words))}")


def _value(elem: Elem) -> float:
    """The largest finite value."""
    f = format_of(elem)
    significand = f.largest & (1 << f.mantissa_bits) - 1 | 1 << f.mantissa_bits
    return significand * 2.0 ** ((f.largest >> f.mantissa_bits) - 1 + f.least_exponent - f.mantissa_bits)
