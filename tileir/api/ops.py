"""The ops of the tile level as methods, one for each. Generated from the op registry by generate_ops.py; do not edit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from tileir.api.values import Access, Operand, Tile
from tileir.ir.core import Text
from tileir.ir.types import Elem


class Ops:
    """Methods named like the ops (with a trailing underscore where the name is a word of Python). `name` is the name of the
    result in the text; without it the Python variable on the left of `=` gives it. Raises CompileError."""

    def emit_one(
        self, op: str, operands: Sequence[Operand | Access], attrs: dict[str, Any] | None = None, name: str = ""
    ) -> Tile:
        raise NotImplementedError

    def emit_none(self, op: str, operands: Sequence[Operand | Access], attrs: dict[str, Any] | None = None) -> None:
        raise NotImplementedError

    def slice(self, x: Operand, offsets: Sequence[int], shape: Sequence[int], *, name: str = "") -> Tile:
        """The part of a tile that begins at `offsets` and has the shape `shape`."""
        return self.emit_one("slice", [x], {"offsets": tuple(offsets), "shape": tuple(shape)}, name)

    def insert(self, x: Operand, part: Operand, offsets: Sequence[int], *, name: str = "") -> Tile:
        """A tile in which another one replaces the elements from `offsets` on."""
        return self.emit_one("insert", [x, part], {"offsets": tuple(offsets)}, name)

    def concat(self, *x: Operand, axis: int, name: str = "") -> Tile:
        """Tiles one behind the other along an axis."""
        return self.emit_one("concat", [*x], {"axis": axis}, name)

    def load(
        self,
        access: Access,
        *,
        pad: float = 0,
        bytes: int = 0,
        via: Literal["", "buffer", "global"] = "",
        cache: Literal["", "streaming"] = "",
        stage: Literal["", "direct", "via_registers", "none"] = "",
        depth: int = 0,
        name: str = "",
    ) -> Tile:
        """Reads the elements that the access spans; elements outside the view (also for negative starts) read as
        `pad`. A pad of 0 means zero bits, which in f8E8M0FNU are 2^-127."""
        return self.emit_one(
            "load",
            [access],
            {"pad": pad, "bytes": bytes, "via": via, "cache": cache, "stage": stage, "depth": depth},
            name,
        )

    def store(
        self,
        value: Operand,
        access: Access,
        *,
        bytes: int = 0,
        via: Literal["", "buffer", "global"] = "",
        cache: Literal["", "streaming"] = "",
    ) -> None:
        """Writes a tile to the elements that the access spans; elements outside the view are dropped."""
        self.emit_none("store", [value, access], {"bytes": bytes, "via": via, "cache": cache})

    def prefetch(self, access: Access) -> None:
        """Says that the elements which the access spans will be read soon. A hint: it changes no value, and touches
        no memory outside the view. gfx942 and gfx950 have no instruction for it, so there it goes."""
        self.emit_none("prefetch", [access])

    def atomic_add(
        self,
        value: Operand,
        access: Access,
        *,
        scope: Literal["workgroup", "device", "system"] = "device",
        ordering: Literal["relaxed", "acquire", "release", "acq_rel"] = "relaxed",
        bytes: int = 0,
        via: Literal["", "buffer", "global"] = "",
        name: str = "",
    ) -> Tile:
        """Replaces each element that the access spans, in one indivisible step, by the sum; integers wrap, floats
        round once per update. On i32, i64, f32, f64, f16, bf16. A scalar operand counts for every element.
        Elements outside the view are left out. Elements are updated in any order, every one once for each time
        that the access names it (rows picked twice, strides of 0). The result is what was there before the
        element's own update, 0 outside the view; it may be left away: the call is then a statement of its own.
        `ordering` is that of the whole workgroup."""
        return self.emit_one(
            "atomic_add", [value, access], {"scope": scope, "ordering": ordering, "bytes": bytes, "via": via}, name
        )

    def atomic_max(
        self,
        value: Operand,
        access: Access,
        *,
        scope: Literal["workgroup", "device", "system"] = "device",
        ordering: Literal["relaxed", "acquire", "release", "acq_rel"] = "relaxed",
        bytes: int = 0,
        via: Literal["", "buffer", "global"] = "",
        name: str = "",
    ) -> Tile:
        """Replaces each element that the access spans, in one indivisible step, by the maximum, with the rules of
        `max`. On i32, i64, f32, f64. A scalar operand counts for every element. Elements outside the view are
        left out. Elements are updated in any order, every one once for each time that the access names it (rows
        picked twice, strides of 0). The result is what was there before the element's own update, 0 outside the
        view; it may be left away: the call is then a statement of its own. `ordering` is that of the whole
        workgroup."""
        return self.emit_one(
            "atomic_max", [value, access], {"scope": scope, "ordering": ordering, "bytes": bytes, "via": via}, name
        )

    def atomic_min(
        self,
        value: Operand,
        access: Access,
        *,
        scope: Literal["workgroup", "device", "system"] = "device",
        ordering: Literal["relaxed", "acquire", "release", "acq_rel"] = "relaxed",
        bytes: int = 0,
        via: Literal["", "buffer", "global"] = "",
        name: str = "",
    ) -> Tile:
        """Replaces each element that the access spans, in one indivisible step, by the minimum, with the rules of
        `min`. On i32, i64, f32, f64. A scalar operand counts for every element. Elements outside the view are
        left out. Elements are updated in any order, every one once for each time that the access names it (rows
        picked twice, strides of 0). The result is what was there before the element's own update, 0 outside the
        view; it may be left away: the call is then a statement of its own. `ordering` is that of the whole
        workgroup."""
        return self.emit_one(
            "atomic_min", [value, access], {"scope": scope, "ordering": ordering, "bytes": bytes, "via": via}, name
        )

    def atomic_and(
        self,
        value: Operand,
        access: Access,
        *,
        scope: Literal["workgroup", "device", "system"] = "device",
        ordering: Literal["relaxed", "acquire", "release", "acq_rel"] = "relaxed",
        bytes: int = 0,
        via: Literal["", "buffer", "global"] = "",
        name: str = "",
    ) -> Tile:
        """Replaces each element that the access spans, in one indivisible step, by the bits that are set in both.
        On i32, i64. A scalar operand counts for every element. Elements outside the view are left out. Elements
        are updated in any order, every one once for each time that the access names it (rows picked twice,
        strides of 0). The result is what was there before the element's own update, 0 outside the view; it may
        be left away: the call is then a statement of its own. `ordering` is that of the whole workgroup."""
        return self.emit_one(
            "atomic_and", [value, access], {"scope": scope, "ordering": ordering, "bytes": bytes, "via": via}, name
        )

    def atomic_or(
        self,
        value: Operand,
        access: Access,
        *,
        scope: Literal["workgroup", "device", "system"] = "device",
        ordering: Literal["relaxed", "acquire", "release", "acq_rel"] = "relaxed",
        bytes: int = 0,
        via: Literal["", "buffer", "global"] = "",
        name: str = "",
    ) -> Tile:
        """Replaces each element that the access spans, in one indivisible step, by the bits that are set in either.
        On i32, i64. A scalar operand counts for every element. Elements outside the view are left out. Elements
        are updated in any order, every one once for each time that the access names it (rows picked twice,
        strides of 0). The result is what was there before the element's own update, 0 outside the view; it may
        be left away: the call is then a statement of its own. `ordering` is that of the whole workgroup."""
        return self.emit_one(
            "atomic_or", [value, access], {"scope": scope, "ordering": ordering, "bytes": bytes, "via": via}, name
        )

    def atomic_xor(
        self,
        value: Operand,
        access: Access,
        *,
        scope: Literal["workgroup", "device", "system"] = "device",
        ordering: Literal["relaxed", "acquire", "release", "acq_rel"] = "relaxed",
        bytes: int = 0,
        via: Literal["", "buffer", "global"] = "",
        name: str = "",
    ) -> Tile:
        """Replaces each element that the access spans, in one indivisible step, by the bits that are set in one of
        them. On i32, i64. A scalar operand counts for every element. Elements outside the view are left out.
        Elements are updated in any order, every one once for each time that the access names it (rows picked
        twice, strides of 0). The result is what was there before the element's own update, 0 outside the view;
        it may be left away: the call is then a statement of its own. `ordering` is that of the whole workgroup."""
        return self.emit_one(
            "atomic_xor", [value, access], {"scope": scope, "ordering": ordering, "bytes": bytes, "via": via}, name
        )

    def atomic_xchg(
        self,
        value: Operand,
        access: Access,
        *,
        scope: Literal["workgroup", "device", "system"] = "device",
        ordering: Literal["relaxed", "acquire", "release", "acq_rel"] = "relaxed",
        bytes: int = 0,
        via: Literal["", "buffer", "global"] = "",
        name: str = "",
    ) -> Tile:
        """Replaces each element that the access spans, in one indivisible step, by `value`. On i32, i64, f32, f64.
        A scalar operand counts for every element. Elements outside the view are left out. Elements are updated
        in any order, every one once for each time that the access names it (rows picked twice, strides of 0).
        The result is what was there before the element's own update, 0 outside the view; it may be left away:
        the call is then a statement of its own. `ordering` is that of the whole workgroup."""
        return self.emit_one(
            "atomic_xchg", [value, access], {"scope": scope, "ordering": ordering, "bytes": bytes, "via": via}, name
        )

    def atomic_cas(
        self,
        expected: Operand,
        desired: Operand,
        access: Access,
        *,
        scope: Literal["workgroup", "device", "system"] = "device",
        ordering: Literal["relaxed", "acquire", "release", "acq_rel"] = "relaxed",
        bytes: int = 0,
        via: Literal["", "buffer", "global"] = "",
        name: str = "",
    ) -> Tile:
        """Replaces each element that the access spans, in one indivisible step, by `desired` where the old bits
        equal those of `expected`, and stay as they are elsewhere. On i32, i64, f32, f64. A scalar operand counts
        for every element. Elements outside the view are left out. Elements are updated in any order, every one
        once for each time that the access names it (rows picked twice, strides of 0). The result is what was
        there before the element's own update, 0 outside the view; it may be left away: the call is then a
        statement of its own. `ordering` is that of the whole workgroup."""
        return self.emit_one(
            "atomic_cas",
            [expected, desired, access],
            {"scope": scope, "ordering": ordering, "bytes": bytes, "via": via},
            name,
        )

    def mma(
        self,
        a: Operand,
        b: Operand,
        *c: Operand,
        instr: Sequence[int] = (),
        waves: Sequence[int] = (),
        swapped: bool = False,
        file: Literal["", "vector", "accumulation"] = "",
        pin: Sequence[int] = (),
        file_a: Literal["", "vector", "accumulation"] = "",
        file_b: Literal["", "vector", "accumulation"] = "",
        name: str = "",
    ) -> Tile:
        """Matrix product a · b, added to c if given. Products are exact and summed in f32 (f64 for f64, i32 for i8)
        in unspecified but fixed order; the interpreter sums in f64 and rounds once. With five operands the last
        two are scales of a and b as those of `mma_scaled`, which becomes this op when the kernel is bound to a
        chip."""
        return self.emit_one(
            "mma",
            [a, b, *c],
            {
                "instr": tuple(instr),
                "waves": tuple(waves),
                "swapped": swapped,
                "file": file,
                "pin": tuple(pin),
                "file_a": file_a,
                "file_b": file_b,
            },
            name,
        )

    def mma_scaled(self, a: Operand, sa: Operand, b: Operand, sb: Operand, *c: Operand, name: str = "") -> Tile:
        """Matrix product of block-scaled operands (OCP microscaling formats), added to c if given: every 32 values
        of k of a row of a share the scale in sa, f8E8M0FNU[m, k / 32], and of a column of b the one in sb,
        f8E8M0FNU[k / 32, n]. a and b are floats of 8, 6 or 4 bits, of the same or different types. Products are
        exact and summed in f32; a scale of NaN makes NaN of its row or column."""
        return self.emit_one("mma_scaled", [a, sa, b, sb, *c], None, name)

    def iota(self, shape: Sequence[int], *, axis: int = 0, name: str = "") -> Tile:
        """A tile of i32 whose element is its own index along `axis`."""
        return self.emit_one("iota", [], {"shape": tuple(shape), "axis": axis}, name)

    def table(self, elem: Elem, values: Sequence[float], *, name: str = "") -> Tile:
        """A tile of constants, written one by one. Floats are rounded to nearest even. (The table is part of the
        code object; each use reads it from memory.)"""
        return self.emit_one("table", [], {"elem": elem, "values": tuple(values)}, name)

    def add(self, a: Operand, b: Operand, *, name: str = "") -> Tile:
        """Sum; integers wrap."""
        return self.emit_one("add", [a, b], None, name)

    def sub(self, a: Operand, b: Operand, *, name: str = "") -> Tile:
        """Difference; integers wrap."""
        return self.emit_one("sub", [a, b], None, name)

    def mul(self, a: Operand, b: Operand, *, name: str = "") -> Tile:
        """Product; integers wrap."""
        return self.emit_one("mul", [a, b], None, name)

    def div(self, a: Operand, b: Operand, *, name: str = "") -> Tile:
        """Quotient. Integers truncate toward zero; x / 0 is -1, and the smallest integer divided by -1 is itself."""
        return self.emit_one("div", [a, b], None, name)

    def mod(self, a: Operand, b: Operand, *, name: str = "") -> Tile:
        """Remainder of the truncated quotient, with the sign of the dividend; integers modulo 0 give the dividend."""
        return self.emit_one("mod", [a, b], None, name)

    def cdiv(self, a: Operand, b: Operand, *, name: str = "") -> Tile:
        """Integer quotient rounded toward positive infinity; x / 0 is -1, and the smallest integer divided by -1 is
        itself."""
        return self.emit_one("cdiv", [a, b], None, name)

    def min(self, a: Operand, b: Operand, *, name: str = "") -> Tile:
        """Smaller value; a number wins over NaN, and -0 is below +0 (IEEE minimumNumber)."""
        return self.emit_one("min", [a, b], None, name)

    def max(self, a: Operand, b: Operand, *, name: str = "") -> Tile:
        """Larger value; a number wins over NaN, and +0 is above -0 (IEEE maximumNumber)."""
        return self.emit_one("max", [a, b], None, name)

    def pow(self, a: Operand, b: Operand, *, name: str = "") -> Tile:
        """The first operand to the power of the second; special values as in C."""
        return self.emit_one("pow", [a, b], None, name)

    def atan2(self, a: Operand, b: Operand, *, name: str = "") -> Tile:
        """Angle of the point with the ordinate a and the abscissa b, from -π to π; signs of zeros count."""
        return self.emit_one("atan2", [a, b], None, name)

    def mulhi(self, a: Operand, b: Operand, *, name: str = "") -> Tile:
        """Upper half of the product of twice the width, signed."""
        return self.emit_one("mulhi", [a, b], None, name)

    def mulhi_unsigned(self, a: Operand, b: Operand, *, name: str = "") -> Tile:
        """Upper half of the product of twice the width, the operands read as unsigned."""
        return self.emit_one("mulhi_unsigned", [a, b], None, name)

    def and_(self, a: Operand, b: Operand, *, name: str = "") -> Tile:
        """Bitwise conjunction."""
        return self.emit_one("and", [a, b], None, name)

    def or_(self, a: Operand, b: Operand, *, name: str = "") -> Tile:
        """Bitwise disjunction."""
        return self.emit_one("or", [a, b], None, name)

    def xor(self, a: Operand, b: Operand, *, name: str = "") -> Tile:
        """Bitwise exclusive or."""
        return self.emit_one("xor", [a, b], None, name)

    def shl(self, a: Operand, b: Operand, *, name: str = "") -> Tile:
        """Shift left by the count modulo the width."""
        return self.emit_one("shl", [a, b], None, name)

    def shr(self, a: Operand, b: Operand, *, name: str = "") -> Tile:
        """Arithmetic shift right by the count modulo the width."""
        return self.emit_one("shr", [a, b], None, name)

    def eq(self, a: Operand, b: Operand, *, name: str = "") -> Tile:
        """True where the first operand is equal to the second; false where one is NaN."""
        return self.emit_one("eq", [a, b], None, name)

    def ne(self, a: Operand, b: Operand, *, name: str = "") -> Tile:
        """True where the first operand is different from the second; false where one is NaN (true for ne)."""
        return self.emit_one("ne", [a, b], None, name)

    def lt(self, a: Operand, b: Operand, *, name: str = "") -> Tile:
        """True where the first operand is less than the second; false where one is NaN."""
        return self.emit_one("lt", [a, b], None, name)

    def le(self, a: Operand, b: Operand, *, name: str = "") -> Tile:
        """True where the first operand is at most the second; false where one is NaN."""
        return self.emit_one("le", [a, b], None, name)

    def gt(self, a: Operand, b: Operand, *, name: str = "") -> Tile:
        """True where the first operand is greater than the second; false where one is NaN."""
        return self.emit_one("gt", [a, b], None, name)

    def ge(self, a: Operand, b: Operand, *, name: str = "") -> Tile:
        """True where the first operand is at least the second; false where one is NaN."""
        return self.emit_one("ge", [a, b], None, name)

    def neg(self, a: Operand, *, name: str = "") -> Tile:
        """Negation; integers wrap; floats change sign, also zero and NaN."""
        return self.emit_one("neg", [a], None, name)

    def not_(self, a: Operand, *, name: str = "") -> Tile:
        """Bitwise complement."""
        return self.emit_one("not", [a], None, name)

    def abs(self, a: Operand, *, name: str = "") -> Tile:
        """Absolute value; the smallest integer stays itself."""
        return self.emit_one("abs", [a], None, name)

    def exp(self, a: Operand, *, name: str = "") -> Tile:
        """e to the power of the operand."""
        return self.emit_one("exp", [a], None, name)

    def exp2(self, a: Operand, *, flush: bool = False, name: str = "") -> Tile:
        """2 to the power of the operand. With `flush`, results below the smallest normal number, 2^-126, are 0, as
        the instruction gives them: one instruction instead of six."""
        return self.emit_one("exp2", [a], {"flush": flush}, name)

    def log(self, a: Operand, *, name: str = "") -> Tile:
        """Natural logarithm."""
        return self.emit_one("log", [a], None, name)

    def log2(self, a: Operand, *, name: str = "") -> Tile:
        """Logarithm to base 2."""
        return self.emit_one("log2", [a], None, name)

    def sqrt(self, a: Operand, *, name: str = "") -> Tile:
        """Square root, correctly rounded."""
        return self.emit_one("sqrt", [a], None, name)

    def rsqrt(self, a: Operand, *, name: str = "") -> Tile:
        """One over the square root."""
        return self.emit_one("rsqrt", [a], None, name)

    def rcp(self, a: Operand, *, name: str = "") -> Tile:
        """One over the operand."""
        return self.emit_one("rcp", [a], None, name)

    def sin(self, a: Operand, *, name: str = "") -> Tile:
        """Sine (radians)."""
        return self.emit_one("sin", [a], None, name)

    def cos(self, a: Operand, *, name: str = "") -> Tile:
        """Cosine (radians)."""
        return self.emit_one("cos", [a], None, name)

    def tan(self, a: Operand, *, name: str = "") -> Tile:
        """Tangent (radians)."""
        return self.emit_one("tan", [a], None, name)

    def sinh(self, a: Operand, *, name: str = "") -> Tile:
        """Hyperbolic sine."""
        return self.emit_one("sinh", [a], None, name)

    def cosh(self, a: Operand, *, name: str = "") -> Tile:
        """Hyperbolic cosine."""
        return self.emit_one("cosh", [a], None, name)

    def tanh(self, a: Operand, *, name: str = "") -> Tile:
        """Hyperbolic tangent."""
        return self.emit_one("tanh", [a], None, name)

    def erf(self, a: Operand, *, name: str = "") -> Tile:
        """Error function."""
        return self.emit_one("erf", [a], None, name)

    def sigmoid(self, a: Operand, *, name: str = "") -> Tile:
        """1 / (1 + exp(-x))."""
        return self.emit_one("sigmoid", [a], None, name)

    def floor(self, a: Operand, *, name: str = "") -> Tile:
        """Largest integer value that is not greater."""
        return self.emit_one("floor", [a], None, name)

    def ceil(self, a: Operand, *, name: str = "") -> Tile:
        """Smallest integer value that is not less."""
        return self.emit_one("ceil", [a], None, name)

    def round(self, a: Operand, *, name: str = "") -> Tile:
        """Nearest integer value, ties to even."""
        return self.emit_one("round", [a], None, name)

    def fma(self, a: Operand, b: Operand, c: Operand, *, name: str = "") -> Tile:
        """a · b + c with a single rounding; integers wrap."""
        return self.emit_one("fma", [a, b, c], None, name)

    def where(self, condition: Operand, a: Operand, b: Operand, *, name: str = "") -> Tile:
        """The second operand where the condition holds, else the third."""
        return self.emit_one("where", [condition, a, b], None, name)

    def clamp(self, x: Operand, low: Operand, high: Operand, *, name: str = "") -> Tile:
        """min(max(x, low), high), with the rules of `min` and `max`: NaN becomes `low`."""
        return self.emit_one("clamp", [x, low, high], None, name)

    def convert(
        self,
        x: Operand,
        *bits: Operand,
        elem: Elem,
        rounding: Literal["nearest_even", "nearest_away", "toward_zero", "stochastic"] = "nearest_even",
        overflow: Literal["", "saturate", "infinity"] = "",
        finite: bool = False,
        name: str = "",
    ) -> Tile:
        """Conversion to another element type. Floats round to nearest even; to 8 bits or less they saturate to the
        largest finite value (infinities too) and keep NaN (f6 and f4 have none: 0; f8E8M0FNU rounds halves up
        and gives NaN for what is not positive). Floats to integers truncate and saturate, NaN gives 0; integers
        wrap; i1 is 0 or 1, and anything non-zero is true. From floats to floats of at most 16 bits `rounding`
        may be another; with `stochastic`, the second operand holds 32 random bits for each element: the larger
        of the two neighbours is taken if the share of the step that lies below the number, in units of 2^-32,
        and the bits add up to 2^32 or more."""
        return self.emit_one(
            "convert", [x, *bits], {"elem": elem, "rounding": rounding, "overflow": overflow, "finite": finite}, name
        )

    def bitcast(self, x: Operand, elem: Elem, *, name: str = "") -> Tile:
        """The same bits read as another element type of equal width."""
        return self.emit_one("bitcast", [x], {"elem": elem}, name)

    def unpack(self, x: Operand, elem: Elem, *, name: str = "") -> Tile:
        """The elements that lie in the bits of integers, the first in the lowest: the last dimension grows. For
        weights of 4 bits that come as bytes, and the like."""
        return self.emit_one("unpack", [x], {"elem": elem}, name)

    def pack(self, x: Operand, elem: Elem, *, name: str = "") -> Tile:
        """Elements along the last dimension as the bits of integers, the first in the lowest; the inverse of
        `unpack`."""
        return self.emit_one("pack", [x], {"elem": elem}, name)

    def assume(self, condition: Operand) -> None:
        """States a fact about scalars that the compiler may use. The interpreter checks it; a launch that breaks it
        is undefined."""
        self.emit_none("assume", [condition])

    def philox_bits(self, seed: Operand, counter: Operand, *, name: str = "") -> Tile:
        """32 random bits for each (seed, counter): the first word of Philox-4x32-10 with key = seed and counter
        block (low, high, 0, 0)."""
        return self.emit_one("philox_bits", [seed, counter], None, name)

    def philox_uniform(self, seed: Operand, counter: Operand, *, name: str = "") -> Tile:
        """An f32 in [0, 1) for each (seed, counter): the upper 24 of the bits of philox_bits, times 2^-24."""
        return self.emit_one("philox_uniform", [seed, counter], None, name)

    def reduce_add(
        self, x: Operand, *, axis: int, parts: int = 1, inner: int = 0, flush: bool = False, name: str = ""
    ) -> Tile:
        """Sum along the axis, in unspecified but fixed order; the interpreter sums in f64 and rounds once. Integers
        wrap. With `parts` = p and `inner` = n, element j of the axis counts to part (j / n) mod p; a part
        without elements is the neutral value."""
        return self.emit_one("reduce_add", [x], {"parts": parts, "inner": inner, "flush": flush, "axis": axis}, name)

    def reduce_max(
        self, x: Operand, *, axis: int, parts: int = 1, inner: int = 0, flush: bool = False, name: str = ""
    ) -> Tile:
        """Maximum along the axis, with the rules of `max`: NaN only if all are NaN. With `parts` = p and `inner` =
        n, element j of the axis counts to part (j / n) mod p; a part without elements is the neutral value."""
        return self.emit_one("reduce_max", [x], {"parts": parts, "inner": inner, "flush": flush, "axis": axis}, name)

    def reduce_min(
        self, x: Operand, *, axis: int, parts: int = 1, inner: int = 0, flush: bool = False, name: str = ""
    ) -> Tile:
        """Minimum along the axis, with the rules of `min`: NaN only if all are NaN. With `parts` = p and `inner` =
        n, element j of the axis counts to part (j / n) mod p; a part without elements is the neutral value."""
        return self.emit_one("reduce_min", [x], {"parts": parts, "inner": inner, "flush": flush, "axis": axis}, name)

    def reduce_and(
        self, x: Operand, *, axis: int, parts: int = 1, inner: int = 0, flush: bool = False, name: str = ""
    ) -> Tile:
        """Bits that are set in every element along the axis. With `parts` = p and `inner` = n, element j of the
        axis counts to part (j / n) mod p; a part without elements is the neutral value."""
        return self.emit_one("reduce_and", [x], {"parts": parts, "inner": inner, "flush": flush, "axis": axis}, name)

    def reduce_or(
        self, x: Operand, *, axis: int, parts: int = 1, inner: int = 0, flush: bool = False, name: str = ""
    ) -> Tile:
        """Bits that are set in any element along the axis. With `parts` = p and `inner` = n, element j of the axis
        counts to part (j / n) mod p; a part without elements is the neutral value."""
        return self.emit_one("reduce_or", [x], {"parts": parts, "inner": inner, "flush": flush, "axis": axis}, name)

    def reduce_xor(
        self, x: Operand, *, axis: int, parts: int = 1, inner: int = 0, flush: bool = False, name: str = ""
    ) -> Tile:
        """Bits that are set in an odd number of elements along the axis. With `parts` = p and `inner` = n, element
        j of the axis counts to part (j / n) mod p; a part without elements is the neutral value."""
        return self.emit_one("reduce_xor", [x], {"parts": parts, "inner": inner, "flush": flush, "axis": axis}, name)

    def reduce_mul(
        self, x: Operand, *, axis: int, parts: int = 1, inner: int = 0, flush: bool = False, name: str = ""
    ) -> Tile:
        """Product along the axis, in unspecified but fixed order; the interpreter multiplies in f64 and rounds
        once. Integers wrap. With `parts` = p and `inner` = n, element j of the axis counts to part (j / n) mod
        p; a part without elements is the neutral value."""
        return self.emit_one("reduce_mul", [x], {"parts": parts, "inner": inner, "flush": flush, "axis": axis}, name)

    def reduce_argmax(self, x: Operand, *, axis: int, name: str = "") -> Tile:
        """Position along the axis of the largest element, of equal ones (0 and -0 are equal) the first. NaN is
        passed over; if all are NaN the position is 0."""
        return self.emit_one("reduce_argmax", [x], {"axis": axis}, name)

    def reduce_argmin(self, x: Operand, *, axis: int, name: str = "") -> Tile:
        """Position along the axis of the smallest element, of equal ones (0 and -0 are equal) the first. NaN is
        passed over; if all are NaN the position is 0."""
        return self.emit_one("reduce_argmin", [x], {"axis": axis}, name)

    def any(self, x: Operand, *, axis: int, name: str = "") -> Tile:
        """True where any element along the axis is."""
        return self.emit_one("any", [x], {"axis": axis}, name)

    def all(self, x: Operand, *, axis: int, name: str = "") -> Tile:
        """True where every element along the axis is."""
        return self.emit_one("all", [x], {"axis": axis}, name)

    def print(self, *value: Operand, message: str, limit: int = 16) -> None:
        """Prints a line once per workgroup: the message with the values in the places of `{}`. Of tiles the first
        `limit` elements are shown, with coordinates."""
        self.emit_none("print", [*value], {"message": Text(message), "limit": limit})

    def assert_(self, condition: Operand, *value: Operand, message: str = "") -> None:
        """Stops the launch with an error where the condition is false: a scalar, or a tile of which every element
        must be true. The message shows scalars, and the values of tiles at the element that fails."""
        self.emit_none("assert", [condition, *value], {"message": Text(message)})

    def scan_add(
        self,
        x: Operand,
        *before: Operand,
        axis: int,
        exclusive: bool = False,
        reverse: bool = False,
        parts: int = 1,
        inner: int = 0,
        name: str = "",
    ) -> Tile:
        """Running sums; integers wrap, floats are added in unspecified but fixed order (the interpreter adds in f64
        and rounds once). Element i of the axis of the result is made of elements 0 to i; with `exclusive` of
        those before i and of what changes nothing (0, 1, the lowest or highest value; infinities for floats),
        which is element 0; with `reverse` from the end. At the wave level `before` holds the total of each of
        `parts` runs of `inner` elements."""
        return self.emit_one(
            "scan_add",
            [x, *before],
            {"exclusive": exclusive, "reverse": reverse, "parts": parts, "inner": inner, "axis": axis},
            name,
        )

    def scan_mul(
        self,
        x: Operand,
        *before: Operand,
        axis: int,
        exclusive: bool = False,
        reverse: bool = False,
        parts: int = 1,
        inner: int = 0,
        name: str = "",
    ) -> Tile:
        """Running products; integers wrap, floats are multiplied in unspecified but fixed order (the interpreter in
        f64, rounded once). Element i of the axis of the result is made of elements 0 to i; with `exclusive` of
        those before i and of what changes nothing (0, 1, the lowest or highest value; infinities for floats),
        which is element 0; with `reverse` from the end. At the wave level `before` holds the total of each of
        `parts` runs of `inner` elements."""
        return self.emit_one(
            "scan_mul",
            [x, *before],
            {"exclusive": exclusive, "reverse": reverse, "parts": parts, "inner": inner, "axis": axis},
            name,
        )

    def scan_max(
        self,
        x: Operand,
        *before: Operand,
        axis: int,
        exclusive: bool = False,
        reverse: bool = False,
        parts: int = 1,
        inner: int = 0,
        name: str = "",
    ) -> Tile:
        """Running maxima, with the rules of `max`: NaN until there is a number. Element i of the axis of the result
        is made of elements 0 to i; with `exclusive` of those before i and of what changes nothing (0, 1, the
        lowest or highest value; infinities for floats), which is element 0; with `reverse` from the end. At the
        wave level `before` holds the total of each of `parts` runs of `inner` elements."""
        return self.emit_one(
            "scan_max",
            [x, *before],
            {"exclusive": exclusive, "reverse": reverse, "parts": parts, "inner": inner, "axis": axis},
            name,
        )

    def scan_min(
        self,
        x: Operand,
        *before: Operand,
        axis: int,
        exclusive: bool = False,
        reverse: bool = False,
        parts: int = 1,
        inner: int = 0,
        name: str = "",
    ) -> Tile:
        """Running minima, with the rules of `min`: NaN until there is a number. Element i of the axis of the result
        is made of elements 0 to i; with `exclusive` of those before i and of what changes nothing (0, 1, the
        lowest or highest value; infinities for floats), which is element 0; with `reverse` from the end. At the
        wave level `before` holds the total of each of `parts` runs of `inner` elements."""
        return self.emit_one(
            "scan_min",
            [x, *before],
            {"exclusive": exclusive, "reverse": reverse, "parts": parts, "inner": inner, "axis": axis},
            name,
        )

    def transpose(self, x: Operand, perm: Sequence[int] = (), *, name: str = "") -> Tile:
        """Exchanges dimensions: result dimension d is dimension perm[d] of the operand; by default the last two
        change places."""
        return self.emit_one("transpose", [x], {"perm": tuple(perm)}, name)

    def reshape(self, x: Operand, shape: Sequence[int], *, name: str = "") -> Tile:
        """The same elements in row-major order under another shape."""
        return self.emit_one("reshape", [x], {"shape": tuple(shape)}, name)

    def broadcast(self, x: Operand, shape: Sequence[int], *, name: str = "") -> Tile:
        """Repeats dimensions of size 1 up to the given shape."""
        return self.emit_one("broadcast", [x], {"shape": tuple(shape)}, name)
