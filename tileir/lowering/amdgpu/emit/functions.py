"""Elementwise functions by arithmetic of our own: polynomials after a reduction of the argument.

Coefficients and constants are in functions.json, which tools/fit_functions.py computes. Every step here rounds as it is written: no
contraction, no reassociation, whatever the kernel's `fp` mode is, because the low parts of split numbers would vanish. The bounds that
follow are in tileir/ir/ops/accuracy.json and are tested there.

Sources: W. J. Cody and W. Waite, "Software manual for the elementary functions", 1980 (reduction by constants in parts);
M. Payne and R. Hanek, "Radian reduction for trigonometric functions", 1983 (large arguments); D. Knuth, "The art of computer
programming", volume 2, 4.2.2 (the error of a sum); T. Dekker, "A floating-point technique for extending the available precision",
1971. The identities of each function stand at its method.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from tileir.ir.core import Op
from tileir.ir.types import F32, F64, I64, Elem
from tileir.lowering.amdgpu.emit.elementwise import Pieces, operand_pieces
from tileir.lowering.amdgpu.emit.state import State
from tileir.lowering.amdgpu.emit.tiles import Tile
from tileir.lowering.amdgpu.emit.writer import scalar_type

Pair = tuple[str, str]
# Below, multiples of π/2 are counted exactly by the constants in parts: 2^20 of them leave 33-bit parts exact in f64; for results
# in f32 two parts of 53 bits do up to 2^30, where the count still fits in an i32.
LIMITS = {64: 2.0**20, 32: 2.0**30}
SCALED_FROM = 2.0**945  # where v_trig_preop_f64 multiplies by 2^128 (CDNA3 ISA, V_TRIG_PREOP_F64)


@cache
def _data() -> dict[str, dict[str, object]]:
    return json.loads(Path(__file__).with_name("functions.json").read_text(encoding="utf-8"))


def constant(name: str) -> list[float]:
    """A number as a sum of floats."""
    return _data()["constants"][name]  # type: ignore[return-value]


def polynomial(name: str) -> dict[str, object]:
    """A fit: formula, interval, centre, scale, error, coefficients from the lowest on."""
    return _data()["polynomials"][name]  # type: ignore[return-value]


class Exact:
    """Arithmetic on scalars of f32 or f64 that rounds as it is written."""

    def __init__(self, s: State, elem: Elem):
        self.s, self.w, self.elem, self.t = s, s.w, elem, scalar_type(elem)

    def const(self, value: float) -> str:
        return self.s.splat_literal(value, self.elem, 1)

    def add(self, a: str, b: str) -> str:
        return self.w.binary("fadd", a, b, self.t)

    def sub(self, a: str, b: str) -> str:
        return self.w.binary("fsub", a, b, self.t)

    def mul(self, a: str, b: str) -> str:
        return self.w.binary("fmul", a, b, self.t)

    def div(self, a: str, b: str) -> str:
        return self.w.binary("fdiv", a, b, self.t)

    def neg(self, a: str) -> str:
        return self.w.op(f"llvm.fneg {a} : {self.t}")

    def call(self, name: str, *args: str) -> str:
        return self.w.op(f"llvm.intr.{name}({', '.join(args)}) : ({', '.join([self.t] * len(args))}) -> {self.t}")

    def fma(self, a: str, b: str, c: str) -> str:
        return self.call("fma", a, b, c)

    def compare(self, predicate: str, a: str, b: str) -> str:
        return self.w.op(f'llvm.fcmp "{predicate}" {a}, {b} : {self.t}')

    def select(self, c: str, a: str, b: str) -> str:
        return self.w.select(c, a, b, self.t)

    def to_int(self, a: str) -> str:
        """i32, saturated, 0 for NaN."""
        return self.w.op(f'llvm.call_intrinsic "llvm.fptosi.sat.i32.{self.t}"({a}) : ({self.t}) -> i32')

    def from_int(self, a: str) -> str:
        return self.w.op(f"llvm.sitofp {a} : i32 to {self.t}")

    def scaled(self, a: str, exponent: str) -> str:
        """a · 2ⁿ with one rounding."""
        return self.w.op(
            f'llvm.call_intrinsic "llvm.ldexp.{self.t}.i32"({a}, {exponent}) : ({self.t}, i32) -> {self.t}'
        )

    def two_sum(self, a: str, b: str) -> Pair:
        """The sum and its error (Knuth)."""
        total = self.add(a, b)
        other = self.sub(total, a)
        return total, self.add(self.sub(a, self.sub(total, other)), self.sub(b, other))

    def quick_sum(self, a: str, b: str) -> Pair:
        """The same where b is not larger than a (Dekker)."""
        total = self.add(a, b)
        return total, self.sub(b, self.sub(total, a))

    def product(self, a: str, b: str) -> Pair:
        """The product and its error."""
        p = self.mul(a, b)
        return p, self.fma(a, b, self.neg(p))

    def horner(self, name: str, x: str) -> str:
        """A polynomial of functions.json."""
        fit = polynomial(name)
        centre, scale, coefficients = fit["centre"], fit["scale"], fit["coefficients"]
        assert isinstance(centre, float) and isinstance(scale, float) and isinstance(coefficients, list)
        if scale != 1.0:
            x = self.fma(x, self.const(1 / scale), self.const(-centre / scale))
        total = self.const(coefficients[-1])
        for c in coefficients[-2::-1]:
            total = self.fma(total, x, self.const(c))
        return total


class Functions(Exact):
    """The functions on scalars of one type, f32 or f64. Special values follow from the arithmetic unless a line says otherwise."""

    @property
    def suffix(self) -> str:
        return self.elem.name

    # -- exponentials --------------------------------------------------------------------------------------------------

    def exp(self, x: str, halvings: int = 0) -> str:
        """f64: eˣ = 2ᵏ · eʳ with r = x - k · ln 2, |r| <= ln 2 / 2, then times 2⁻ʰ; f32: LLVM's expansion around v_exp_f32."""
        if self.elem == F32:
            return self.call("exp", x)
        k = self.call("rint", self.mul(x, self.const(constant("log2(e)")[0])))
        high, low = constant("ln 2")
        r = self.fma(k, self.const(-low), self.fma(k, self.const(-high), x))
        q = self.horner("exp_f64", r)
        y = self.add(self.const(1.0), self.fma(self.mul(r, r), q, r))
        exponent = self.to_int(k)
        if halvings:
            exponent = self.w.add(exponent, -halvings)
        return self._bounded(self.scaled(y, exponent), x, 710.0 + halvings, -746.0 + halvings)

    def exp2(self, x: str) -> str:
        """f64: 2ˣ = 2ᵏ · 2ʳ, |r| <= 1/2; f32: LLVM's expansion around v_exp_f32."""
        if self.elem == F32:
            return self.call("exp2", x)
        k = self.call("rint", x)
        r = self.sub(x, k)
        y = self.fma(r, self.horner("exp2_f64", r), self.const(1.0))
        return self._bounded(self.scaled(y, self.to_int(k)), x, 1024.0, -1076.0)

    def exp2_flushed(self, x: str) -> str:
        """v_exp_f32 alone, which gives 0 for results below 2⁻¹²⁶ (CDNA3 ISA, V_EXP_F32)."""
        return self.w.op(f'llvm.call_intrinsic "llvm.amdgcn.exp2.f32"({x}) : (f32) -> f32')

    def _bounded(self, y: str, x: str, most: float, least: float) -> str:
        """y; infinity and 0 beyond the bounds of x, where the reduction has no meaning."""
        y = self.select(self.compare("ogt", x, self.const(most)), self.const(float("inf")), y)
        return self.select(self.compare("olt", x, self.const(least)), self.const(0.0), y)

    def sigmoid(self, x: str) -> str:
        """1 / (1 + t) with t = exp(-|x|), t / (1 + t) for negative x: t cannot overflow."""
        one, decay = self.const(1.0), self.exp(self.neg(self.call("fabs", x)))
        top = self.select(self.compare("olt", x, self.const(0.0)), decay, one)
        return self.div(top, self.add(one, decay))

    def tanh(self, x: str) -> str:
        """1 - 2 / (1 + exp(2|x|)), sign restored; below 5/8, where that cancels, x + x³ · P(x²)."""
        size = self.call("fabs", x)
        one, two = self.const(1.0), self.const(2.0)
        far = self.sub(one, self.div(two, self.add(one, self.exp(self.mul(size, two)))))
        square = self.mul(size, size)
        near = self.fma(self.mul(size, square), self.horner(f"tanh_{self.suffix}", square), size)
        return self.call("copysign", self.select(self.compare("olt", size, self.const(0.625)), near, far), x)

    def cosh(self, x: str) -> str:
        """h + 1 / (4h) with h = exp(|x|) / 2, which overflows only where the result does."""
        h = self.exp(self.call("fabs", x), 1)
        return self.add(h, self.div(self.const(0.25), h))

    def sinh(self, x: str) -> str:
        """h - 1 / (4h), sign restored; below 1 x + x³ · P(x²)."""
        size = self.call("fabs", x)
        h = self.exp(size, 1)
        far = self.sub(h, self.div(self.const(0.25), h))
        square = self.mul(size, size)
        near = self.fma(self.mul(size, square), self.horner("sinh_f64", square), size)
        return self.call("copysign", self.select(self.compare("olt", size, self.const(1.0)), near, far), x)

    def pow(self, x: str, y: str) -> str:
        """2 to the power of y · log2 |x|, both in two parts; signs and special values as in C (annex F of the standard)."""
        one, zero, inf = self.const(1.0), self.const(0.0), self.const(float("inf"))
        size = self.call("fabs", x)
        high, low = self._precise_log2(size)
        nothing, endless = self.compare("oeq", size, zero), self.compare("oeq", size, inf)
        high = self.select(nothing, self.const(float("-inf")), self.select(endless, inf, high))
        p, error = self.product(y, high)
        error = self.fma(y, low, error)
        regular = self.compare("olt", self.call("fabs", p), self.const(2000.0))
        error = self.select(regular, error, zero)
        k = self.call("rint", p)
        r = self.select(regular, self.add(self.sub(p, k), error), zero)
        power = self.fma(r, self.horner("exp2_f64", r), one)
        power = self._bounded(self.scaled(power, self.to_int(k)), p, 1026.0, -1080.0)
        whole = self.compare("oeq", self.call("rint", y), y)
        half = self.mul(y, self.const(0.5))
        odd = self.w.binary("and", whole, self.compare("une", self.call("rint", half), half), "i1")
        power = self.select(odd, self.call("copysign", power, x), power)
        finite = self.compare("olt", self.call("fabs", y), inf)
        broken = self.w.binary(
            "and", self.compare("olt", x, zero), self.compare("one", x, self.const(float("-inf"))), "i1"
        )
        broken = self.w.binary(
            "and", broken, self.w.binary("and", self.compare("une", self.call("rint", y), y), finite, "i1"), "i1"
        )
        power = self.select(broken, self.const(float("nan")), power)
        power = self.select(self.compare("uno", x, y), self.add(x, y), power)
        still = self.w.binary(
            "and", self.compare("oeq", size, one), self.compare("oeq", self.call("fabs", y), inf), "i1"
        )
        always = self.w.binary("or", self.compare("oeq", y, zero), self.compare("oeq", x, one), "i1")
        return self.select(self.w.binary("or", always, still, "i1"), one, power)

    def atan2(self, y: str, x: str) -> str:
        """t + t³ · P(t²) for the smaller over the larger of |y| and |x|, and its complements to π/2 and π in two parts."""
        one, zero, inf = self.const(1.0), self.const(0.0), self.const(float("inf"))
        rise, run = self.call("fabs", y), self.call("fabs", x)
        steep = self.compare("ogt", rise, run)
        less, more = self.select(steep, run, rise), self.select(steep, rise, run)
        t = self.div(less, more)
        t = self.select(self.compare("oeq", less, inf), one, self.select(self.compare("oeq", more, zero), zero, t))
        square = self.mul(t, t)
        angle = self.fma(self.mul(t, square), self.horner("atan_f64", square), t)
        angle = self._complement("pi/2", angle, steep)
        negative = self.w.icmp("slt", self.w.bitcast(x, self.t, "i64"), self.w.const(0, "i64"), "i64")
        angle = self._complement("pi", angle, negative)
        return self.select(self.compare("uno", x, y), self.add(x, y), self.call("copysign", angle, y))

    def _complement(self, name: str, angle: str, condition: str) -> str:
        high, low = (self.const(c) for c in constant(name))
        return self.select(condition, self.sub(high, self.sub(angle, low)), angle)

    # -- logarithms ----------------------------------------------------------------------------------------------------

    def _reduced(self, x: str) -> tuple[str, str, str, str]:
        """Exponent k, f, f²/2 and s·(f²/2 + R) with x = 2ᵏ · (1 + f), f in [√½ - 1, √2 - 1], s = f / (2 + f): the logarithm of
        1 + f is f - (f²/2 - s·(f²/2 + R)), where R = s²·(2/3 + 2/5·s² + …) comes from log((1 + s) / (1 - s)) = 2s + s·R."""
        mantissa = self.w.op(f'llvm.call_intrinsic "llvm.amdgcn.frexp.mant.f64"({x}) : (f64) -> f64')
        exponent = self.w.op(f'llvm.call_intrinsic "llvm.amdgcn.frexp.exp.i32.f64"({x}) : (f64) -> i32')
        low = self.compare("olt", mantissa, self.const(0.5**0.5))
        one = self.w.op(f"llvm.zext {low} : i1 to i32")
        f = self.sub(self.scaled(mantissa, one), self.const(1.0))
        k = self.from_int(self.w.binary("sub", exponent, one))
        s = self.div(f, self.add(self.const(2.0), f))
        z = self.mul(s, s)
        half = self.mul(self.const(0.5), self.mul(f, f))
        return k, f, half, self.mul(s, self.fma(z, self.horner("log_f64", z), half))

    def _precise_log2(self, x: str) -> Pair:
        """log2 of a positive number in two parts, to about 2^-64 of itself: the first two terms of `_reduced`'s series in two parts."""
        k, f, _, _ = self._reduced(x)
        base, base_low = self.quick_sum(self.const(2.0), f)
        s = self.div(f, base)
        rest = self.sub(self.fma(self.neg(s), base, f), self.mul(s, base_low))
        s_low = self.div(rest, base)
        z, z_low = self.product(s, s)
        z_low = self.fma(self.add(s, s), s_low, z_low)
        cube, cube_low = self.product(z, s)
        cube_low = self.add(cube_low, self.fma(z, s_low, self.mul(z_low, s)))
        third, third_low = (self.const(c) for c in constant("2/3"))
        term, term_low = self.product(cube, third)
        term_low = self.add(term_low, self.fma(cube, third_low, self.mul(cube_low, third)))
        tail = self.mul(self.mul(cube, z), self.horner("log_rest_f64", z))
        two = self.const(2.0)
        high, low = self.quick_sum(self.mul(two, s), term)
        low = self.add(low, self.add(self.fma(two, s_low, term_low), tail))
        high, low = self.quick_sum(high, low)
        factor, little = (self.const(c) for c in constant("log2(e)"))
        p, error = self.product(high, factor)
        error = self.add(error, self.fma(high, little, self.mul(low, factor)))
        total, carry = self.two_sum(k, p)
        return self.quick_sum(total, self.add(carry, error))

    def _of_positive(self, y: str, x: str) -> str:
        """y; the results of logarithms for 0, negative numbers and infinity."""
        zero, inf = self.const(0.0), self.const(float("inf"))
        y = self.select(self.compare("oeq", x, zero), self.const(float("-inf")), y)
        y = self.select(self.compare("olt", x, zero), self.const(float("nan")), y)
        return self.select(self.compare("oeq", x, inf), inf, y)

    def log(self, x: str) -> str:
        """f64: k · ln 2 + log(1 + f), small parts first; f32: LLVM's expansion around v_log_f32."""
        if self.elem == F32:
            return self.call("log", x)
        k, f, half, rest = self._reduced(x)
        high, low = constant("ln 2 short")
        small = self.sub(half, self.fma(k, self.const(low), rest))
        return self._of_positive(self.sub(self.mul(k, self.const(high)), self.sub(small, f)), x)

    def log2(self, x: str) -> str:
        """f64: k + log(1 + f) / ln 2 in two parts; f32: LLVM's expansion around v_log_f32."""
        if self.elem == F32:
            return self.call("log2", x)
        k, f, half, rest = self._reduced(x)
        high = self.sub(f, half)
        low = self.add(self.sub(self.sub(f, high), half), rest)
        high, low = self.quick_sum(high, low)
        factor, little = (self.const(c) for c in constant("log2(e)"))
        p, error = self.product(high, factor)
        error = self.add(error, self.fma(high, little, self.mul(low, factor)))
        total, carry = self.two_sum(k, p)
        return self._of_positive(self.add(total, self.add(carry, error)), x)

    # -- the error function -----------------------------------------------------------------------------------------------

    def erf(self, x: str) -> str:
        """x + x · P(x²) below 3/2 (f32: 1); above, 1 - exp(-L(|x|)), L a polynomial for the logarithm of the rest, until the rest is
        below half an ulp of 1."""
        size = self.call("fabs", x)
        square = self.mul(size, size)
        near = self.fma(size, self.horner(f"erf_{self.suffix}", square), size)
        first, last = (1.5, 6.0) if self.elem == F64 else (1.0, 4.0)
        inside = self.call("minnum", size, self.const(last))
        rest = self.exp(self.neg(self.horner(f"erfc_{self.suffix}", inside)))
        far = self.select(self.compare("uno", x, x), x, self.sub(self.const(1.0), rest))
        return self.call("copysign", self.select(self.compare("olt", size, self.const(first)), near, far), x)

    # -- sine and cosine (of f64 arithmetic, for results of `bits`) ---------------------------------------------------------

    def counted(self, x: str, bits: int) -> tuple[str, str, str]:
        """n and x - n · π/2 in two parts, for 0 <= x below the limit, by constants in parts (Cody and Waite)."""
        n = self.call("rint", self.mul(x, self.const(constant("2/pi")[0])))
        less = self.neg(n)
        if bits < 64:
            high, low = constant("pi/2")
            r = self.fma(less, self.const(low), self.fma(less, self.const(high), x))
            return self.to_int(n), r, self.const(0.0)
        first, second, third, fourth = (self.const(c) for c in constant("pi/2 short"))
        r = self.fma(less, first, x)
        r, error = self.two_sum(r, self.mul(less, second))
        r, more = self.two_sum(r, self.mul(less, third))
        return self.to_int(n), *self.quick_sum(r, self.fma(less, fourth, self.add(error, more)))

    def preop(self, x: str, segment: int) -> str:
        """53 bits of 2/π; the hardware leaves out leading ones that only give multiples of 4 when multiplied with x."""
        n = self.w.const(segment)
        return self.w.op(f'llvm.call_intrinsic "llvm.amdgcn.trig.preop.f64"({x}, {n}) : (f64, i32) -> f64')

    def looked_up(self, x: str, bits: int) -> tuple[str, str, str]:
        """The same for any x, from the digits of 2/π that matter for it (Payne and Hanek). Four segments keep an error below 2^-150 of
        x · 2/π modulo 4, three below 2^-100."""
        segments = 4 if bits == 64 else 3
        chunks = [self.preop(x, i) for i in range(segments)]
        huge = self.compare("oge", x, self.const(SCALED_FROM))
        x = self.select(huge, self.mul(x, self.const(2.0**-128)), x)
        products = [self.product(x, c) for c in chunks]
        whole = self.mul(products[0][0], self.const(0.25))  # modulo 4, exactly
        total = self.mul(self.sub(whole, self.call("rint", whole)), self.const(4.0))
        total, rest = self.two_sum(total, products[0][1])
        total, more = self.two_sum(total, products[1][0])
        n = self.call("rint", total)
        total = self.sub(total, n)
        small, tail = self.two_sum(rest, more)
        for part in (products[1][1], products[2][0]):
            small, error = self.two_sum(small, part)
            tail = self.add(tail, error)
        tail = self.add(tail, products[2][1])
        if segments == 4:
            tail = self.add(tail, products[3][0])
        high, low = self.two_sum(total, small)
        high, low = self.quick_sum(high, self.add(low, tail))
        factor, little = (self.const(c) for c in constant("pi/2"))
        r, error = self.product(high, factor)
        return self.to_int(n), *self.quick_sum(r, self.add(error, self.fma(high, little, self.mul(low, factor))))

    def turned(self, n: str, r: str, low: str, bits: int, op: str) -> str:
        """Sine, cosine or tangent of n · π/2 + r + low, |r| <= π/4, from sine and cosine of r."""
        name = "f64" if bits == 64 else "f32"
        z = self.mul(r, r)
        half, one = self.mul(z, self.const(0.5)), self.const(1.0)
        shift = self.mul(low, self.sub(one, half))
        sine = self.add(r, self.fma(self.mul(r, z), self.horner(f"sin_{name}", z), shift))
        w = self.sub(one, half)
        rest = self.sub(self.mul(self.mul(z, z), self.horner(f"cos_{name}", z)), self.mul(r, low))
        cosine = self.add(w, self.add(self.sub(self.sub(one, w), half), rest))
        if op == "cos":
            n = self.w.binary("add", n, self.w.const(1))
        odd = self.w.icmp("ne", self.w.binary("and", n, self.w.const(1)), self.w.const(0))
        if op == "tan":
            return self.div(self.select(odd, cosine, sine), self.select(odd, self.neg(sine), cosine))
        flips = self.w.icmp("ne", self.w.binary("and", n, self.w.const(2)), self.w.const(0))
        y = self.select(odd, cosine, sine)
        return self.select(flips, self.neg(y), y)


TURNS = frozenset({"sin", "cos", "tan"})
FUNCTIONS = frozenset({"exp", "exp2", "log", "log2", "sigmoid", "tanh", "erf"})
WIDE_FUNCTIONS = frozenset({"sinh", "cosh", "pow", "atan2"})
"""Computed in f64 for all types: there they are as exact as the type, and cost no more than in f32 with care."""


def function(s: State, op: Op, n: int, args: list[str]) -> str:
    """One piece of a function, element by element; 16-bit types go through f32 or f64 and are rounded once."""
    elem = op.operands[0].elem
    wide = F64 if elem == F64 or op.name in WIDE_FUNCTIONS else F32
    f, one = Functions(s, wide), Pieces(s, op, 1)
    whole = Pieces(s, op, n)
    name = "exp2_flushed" if op.attrs.get("flush", False) else op.name
    results: list[str] = []
    for i in range(n):
        parts = [x if n == 1 else s.w.extract(x, i, whole.type(elem)) for x in args]
        y = getattr(f, name)(*(one.convert(x, elem, wide) for x in parts))
        results.append(one.convert(y, wide, elem))
    return s.w.pack(results, scalar_type(elem))


def turn(s: State, op: Op) -> None:
    """`sin`, `cos` and `tan`, in f64. Arguments below the limit, practically all, are reduced by constants; a wave in which any lane holds a
    larger one branches to the reduction by the digits of 2/π."""
    t, v = op.result.tile, op.operands[0]
    bits = 64 if t.elem == F64 else 32
    f, p, w = Functions(s, F64), Pieces(s, op, 1), s.w
    given = [s.scalar(v)] if t.is_scalar else operand_pieces(s, v, t, 1)
    distinct = list(dict.fromkeys(given))
    wide = [p.convert(x, t.elem, F64) for x in distinct]
    sizes = [f.call("fabs", x) for x in wide]
    near = [f.turned(*f.counted(x, bits), bits, op.name) for x in sizes]
    large = [f.compare("oge", x, f.const(LIMITS[bits])) for x in sizes]
    some = large[0]
    for other in large[1:]:
        some = w.binary("or", some, other, "i1")
    cold, after = w.label(), w.label()
    lanes = w.op(f"rocdl.ballot {some} : i64")
    types = ["f64"] * len(near)
    w.cond_branch(w.icmp("ne", lanes, w.const(0, "i64"), "i64"), cold, after, ((), ()), (near, types))
    w.start(cold)
    far = [f.turned(*f.looked_up(x, bits), bits, op.name) for x in sizes]
    w.branch(after, [f.select(c, a, b) for c, a, b in zip(large, far, near, strict=True)], types)
    names = [w.name() for _ in near]
    w.start(after, list(zip(names, types, strict=True)))
    w.mark()
    results: dict[str, str] = {}
    for x, given_wide, y in zip(distinct, wide, names, strict=True):
        if op.name != "cos":  # odd: the sign of the argument changes that of the result, also of zero
            sign = p.plain("and", w.bitcast(given_wide, "f64", "i64"), w.const(-(1 << 63), "i64"), elem=I64)
            y = w.bitcast(p.plain("xor", w.bitcast(y, "f64", "i64"), sign, elem=I64), "i64", "f64")
        results[x] = p.convert(y, F64, t.elem)
    if t.is_scalar:
        s.values[op.result] = results[given[0]]
    else:
        s.values[op.result] = Tile(t, 1, [results[x] for x in given])


__all__ = ["FUNCTIONS", "TURNS", "WIDE_FUNCTIONS", "Functions", "constant", "function", "polynomial", "turn"]
