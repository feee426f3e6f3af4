"""Elementwise ops: the same scalar function at every position, with broadcasting.

Basic operations round once, as IEEE 754 says, at every width; the other functions are evaluated in f64 and rounded once.
Results in floats of 8 bits or less saturate as `convert` does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tileir.ir.ops import numeric
from tileir.ir.ops.common import broadcast_shape, elementwise_layout, same_elem
from tileir.ir.ops.numeric import convert_array
from tileir.ir.registry import AttrSpec, Check, OpDef, Rule, Semantics, declare
from tileir.ir.small_floats import SCALE
from tileir.ir.types import I1, I32, Elem, TileType, Type

Array = Any


def _operands(c: Check) -> list[TileType]:
    return [c.tile(i) for i in range(len(c.operands))]


def _want_kind(c: Check, tiles: Sequence[TileType], kinds: str) -> None:
    for i, t in enumerate(tiles):
        if t.elem.kind not in kinds.split():
            c.fail(
                "E0323",
                f"'{c.name}' does not work on {t.elem}",
                i,
                legal=f"elements of kind {' or '.join(kinds.split())}",
            )


def _rule(kinds: str, result: Callable[[Elem], Elem] = lambda e: e) -> Rule:
    def rule(c: Check) -> Sequence[Type]:
        tiles = _operands(c)
        _want_kind(c, tiles, kinds)
        elem = same_elem(c, tiles)
        shape = broadcast_shape(c, tiles)
        return [TileType(result(elem), shape, elementwise_layout(c, shape, tiles))]

    return rule


def _rounded(f: Callable[..., Array]) -> Semantics:
    """Evaluates in f64 and rounds once."""
    return lambda ctx, op, args: numeric.rounded_once(f, op.operands[0].elem, *args)


def _ieee(f: Callable[..., Array]) -> Semantics:
    """A basic operation with one rounding."""
    return lambda ctx, op, args: numeric.ieee(f, op.operands[0].elem, *args)


def _direct(f: Callable[..., Array]) -> Semantics:
    return lambda ctx, op, args: f(*args)


def _binary(name: str, summary: str, kinds: str, semantics: Semantics, infix: str = "") -> None:
    declare(
        OpDef(
            name,
            summary,
            ("a", "b"),
            _rule(kinds),
            elementwise=True,
            infix=infix,
            category="elementwise",
            semantics=semantics,
            example=f"%r = {name}(%a, %b) : tile<f32[64, 64]>"
            if "float" in kinds
            else f"%r = {name}(%u, %v) : tile<i32[64]>",
        )
    )


_binary("add", "Sum; integers wrap.", "int float", _ieee(np.add), "+")
_binary("sub", "Difference; integers wrap.", "int float", _ieee(np.subtract), "-")
_binary("mul", "Product; integers wrap.", "int float", _ieee(np.multiply), "*")
_binary(
    "div",
    "Quotient. Integers truncate toward zero; x / 0 is -1, and the smallest integer divided by -1 is itself.",
    "int float",
    _ieee(numeric.divide),
    "/",
)
_binary(
    "mod",
    "Remainder of the truncated quotient, with the sign of the dividend; integers modulo 0 give the dividend.",
    "int float",
    _ieee(numeric.remainder),
)
_binary(
    "cdiv",
    "Integer quotient rounded toward positive infinity; x / 0 is -1, and the smallest integer divided by -1 is itself.",
    "int",
    _direct(numeric.ceil_divide),
)
_binary(
    "min",
    "Smaller value; a number wins over NaN, and -0 is below +0 (IEEE minimumNumber).",
    "int float",
    _direct(numeric.minimum),
)
_binary(
    "max",
    "Larger value; a number wins over NaN, and +0 is above -0 (IEEE maximumNumber).",
    "int float",
    _direct(numeric.maximum),
)
_binary("pow", "The first operand to the power of the second; special values as in C.", "float", _rounded(np.power))
_binary(
    "atan2",
    "Angle of the point with the ordinate a and the abscissa b, from -π to π; signs of zeros count.",
    "float",
    _rounded(np.arctan2),
)
_binary("mulhi", "Upper half of the product of twice the width, signed.", "int", _direct(numeric.multiply_high))
_binary(
    "mulhi_unsigned",
    "Upper half of the product of twice the width, the operands read as unsigned.",
    "int",
    _direct(lambda a, b: numeric.multiply_high(a, b, signed=False)),
)
_binary("and", "Bitwise conjunction.", "int bool", _direct(np.bitwise_and), "&")
_binary("or", "Bitwise disjunction.", "int bool", _direct(np.bitwise_or), "|")
_binary("xor", "Bitwise exclusive or.", "int bool", _direct(np.bitwise_xor), "^")


def _shl(a: Array, b: Array) -> Array:
    bits = np.asarray(a).dtype.itemsize * 8
    return np.left_shift(a, np.bitwise_and(b, np.asarray(bits - 1, np.asarray(b).dtype)))


def _shr(a: Array, b: Array) -> Array:
    bits = np.asarray(a).dtype.itemsize * 8
    return np.right_shift(a, np.bitwise_and(b, np.asarray(bits - 1, np.asarray(b).dtype)))


_binary("shl", "Shift left by the count modulo the width.", "int", _direct(_shl), "<<")
_binary("shr", "Arithmetic shift right by the count modulo the width.", "int", _direct(_shr), ">>")


def _comparison(name: str, infix: str, f: Callable[[Array, Array], Array], relation: str) -> None:
    declare(
        OpDef(
            name,
            f"True where the first operand is {relation} the second; false where one is NaN{' (true for ne)' if name == 'ne' else ''}.",
            ("a", "b"),
            _rule("int float bool", lambda e: I1),
            elementwise=True,
            infix=infix,
            category="elementwise",
            semantics=_direct(f),
            example=f"%r = {name}(%a, %b) : tile<i1[64, 64]>",
        )
    )


_comparison("eq", "==", np.equal, "equal to")
_comparison("ne", "!=", np.not_equal, "different from")
_comparison("lt", "<", np.less, "less than")
_comparison("le", "<=", np.less_equal, "at most")
_comparison("gt", ">", np.greater, "greater than")
_comparison("ge", ">=", np.greater_equal, "at least")


def _unary(name: str, summary: str, kinds: str, semantics: Semantics, infix: str = "") -> None:
    example = f"%r = {name}(%u) : tile<i32[64]>" if "float" not in kinds else f"%r = {name}(%a) : tile<f32[64, 64]>"
    declare(
        OpDef(
            name,
            summary,
            ("a",),
            _rule(kinds),
            elementwise=True,
            infix=infix,
            category="elementwise",
            semantics=semantics,
            example=example,
        )
    )


_erf = np.vectorize(math.erf, otypes=[np.float64])


@cache
def _accuracy() -> dict[str, Any]:
    return json.loads(Path(__file__).with_name("accuracy.json").read_text(encoding="utf-8"))


def accuracy(name: str, elem: str) -> tuple[float, float]:
    """The error of a compiled function that is never exceeded, in ulp of its exact result, and the part of it that is left to the
    hardware's approximations. Raises KeyError for ops and types without a stated bound."""
    data = _accuracy()
    return data["bounds"][name][elem], data["hardware"]["allowance"].get(name, {}).get(elem, 0.0)


_unary("neg", "Negation; integers wrap; floats change sign, also zero and NaN.", "int float", _direct(np.negative), "-")
_unary("not", "Bitwise complement.", "int bool", _direct(np.invert), "!")
_unary("abs", "Absolute value; the smallest integer stays itself.", "int float", _direct(np.abs))
_unary("exp", "e to the power of the operand.", "float", _rounded(np.exp))


def _exp2(c: Check) -> Sequence[Type]:
    if c.attrs.get("flush", False) and c.tile(0).elem.name != "f32":
        c.fail("E0323", f"'exp2' flushes denormal results of f32, not of {c.tile(0).elem}", 0, legal="f32")
    return _rule("float")(c)


def _exp2_value(ctx: Any, op: Any, args: Sequence[Any]) -> Any:
    out = numeric.rounded_once(np.exp2, op.operands[0].elem, *args)
    if not op.attrs.get("flush", False):
        return out
    return np.where(np.abs(out) < np.finfo(np.float32).tiny, np.float32(0.0), out)


declare(
    OpDef(
        "exp2",
        "2 to the power of the operand. With `flush`, results below the smallest normal number, 2^-126, are 0, as the instruction gives "
        "them: one instruction instead of six.",
        ("a",),
        _exp2,
        attrs=(AttrSpec("flush", "bool", default=False, doc="denormal results of f32 become 0"),),
        elementwise=True,
        category="elementwise",
        semantics=_exp2_value,
        example="%r = exp2(%a) : tile<f32[64, 64]>",
    )
)
_unary("log", "Natural logarithm.", "float", _rounded(np.log))
_unary("log2", "Logarithm to base 2.", "float", _rounded(np.log2))
_unary("sqrt", "Square root, correctly rounded.", "float", _rounded(np.sqrt))
_unary("rsqrt", "One over the square root.", "float", _rounded(lambda a: 1.0 / np.sqrt(a)))
_unary("rcp", "One over the operand.", "float", _rounded(lambda a: 1.0 / a))
_unary("sin", "Sine (radians).", "float", _rounded(np.sin))
_unary("cos", "Cosine (radians).", "float", _rounded(np.cos))
_unary("tan", "Tangent (radians).", "float", _rounded(np.tan))
_unary("sinh", "Hyperbolic sine.", "float", _rounded(np.sinh))
_unary("cosh", "Hyperbolic cosine.", "float", _rounded(np.cosh))
_unary("tanh", "Hyperbolic tangent.", "float", _rounded(np.tanh))
_unary("erf", "Error function.", "float", _rounded(_erf))
_unary("sigmoid", "1 / (1 + exp(-x)).", "float", _rounded(lambda a: 1.0 / (1.0 + np.exp(-a))))
_unary("floor", "Largest integer value that is not greater.", "float", _rounded(np.floor))
_unary("ceil", "Smallest integer value that is not less.", "float", _rounded(np.ceil))
_unary("round", "Nearest integer value, ties to even.", "float", _rounded(np.rint))


declare(
    OpDef(
        "fma",
        "a · b + c with a single rounding; integers wrap.",
        ("a", "b", "c"),
        _rule("int float"),
        elementwise=True,
        category="elementwise",
        semantics=lambda ctx, op, args: numeric.fused_multiply_add(args[0], args[1], args[2], op.operands[0].elem),
        example="%r = fma(%a, %b, %a) : tile<f32[64, 64]>",
    )
)


def _where(c: Check) -> Sequence[Type]:
    tiles = _operands(c)
    if not tiles[0].elem.is_bool:
        c.fail("E0324", f"the condition of 'where' must be i1, not {tiles[0].elem}", 0, legal="a comparison")
    elem = same_elem(c, tiles, first=1)
    shape = broadcast_shape(c, tiles)
    return [TileType(elem, shape, elementwise_layout(c, shape, tiles))]


declare(
    OpDef(
        "where",
        "The second operand where the condition holds, else the third.",
        ("condition", "a", "b"),
        _where,
        elementwise=True,
        literals=("i1", ""),
        category="elementwise",
        semantics=_direct(np.where),
        example="%r = where(%m, %a, %b) : tile<f32[64, 64]>",
    )
)
declare(
    OpDef(
        "clamp",
        "min(max(x, low), high), with the rules of `min` and `max`: NaN becomes `low`.",
        ("x", "low", "high"),
        _rule("int float"),
        elementwise=True,
        category="elementwise",
        semantics=_direct(lambda x, low, high: numeric.minimum(numeric.maximum(x, low), high)),
        example="%r = clamp(%a, %zero, %one) : tile<f32[64, 64]>",
    )
)


ROUNDINGS = ("nearest_even", "nearest_away", "toward_zero", "stochastic")


def _convert(c: Check) -> Sequence[Type]:
    t = c.tile(0)
    elem, rounding, overflow = c.attrs["elem"], c.attrs.get("rounding", "nearest_even"), c.attrs.get("overflow", "")
    assert isinstance(elem, Elem)
    narrow = (elem.is_float and elem.bits <= 16) or elem == t.elem
    finite = c.attrs.get("finite", False)
    if (rounding != "nearest_even" or overflow or finite) and not (narrow and t.elem.is_float):
        what = "overflow" if overflow else "rounding" if rounding != "nearest_even" else "'finite'"
        c.fail(
            "E0359", f"'convert' from {t.elem} to {elem} takes no {what}", legal="floats to floats of at most 16 bits"
        )
    if elem.name == SCALE and (rounding not in ("nearest_even", "toward_zero") or overflow):
        legal = "the default, to the nearest power of two, or rounding = toward_zero, to the one below"
        c.fail("E0359", f"'convert' to {elem} has no other rounding", legal=legal)
    if overflow == "infinity" and elem.bits < 8:
        c.fail("E0359", f"{elem} has neither infinities nor NaN", legal="overflow = saturate, the default")
    if (rounding == "stochastic") != (len(c.operands) == 2):
        legal = "convert<f8E5M2, rounding = stochastic>(x, bits), and a single operand for the other modes"
        c.fail("E0360", "random bits go with stochastic rounding, one number for each element", legal=legal)
    tiles = _operands(c)
    if len(tiles) == 2 and (tiles[1].elem != I32 or tiles[1].shape != t.shape):
        c.fail("E0360", f"the random bits are {tiles[1].with_layout(None)}", 1, legal=str(TileType(I32, t.shape)))
    return [TileType(elem, t.shape, elementwise_layout(c, t.shape, tiles))]


def _convert_value(ctx: Any, op: Any, args: Sequence[Any]) -> Any:
    attrs = op.attrs
    rounding, overflow = attrs.get("rounding", "nearest_even"), attrs.get("overflow", "")
    bits = args[1] if len(args) == 2 else None
    return convert_array(args[0], op.operands[0].elem, attrs["elem"], rounding=rounding, overflow=overflow, bits=bits)


declare(
    OpDef(
        "convert",
        "Conversion to another element type. Floats round to nearest even; to 8 bits or less they saturate to the largest finite value "
        "(infinities too) and keep NaN (f6 and f4 have none: 0; f8E8M0FNU rounds halves up and gives NaN for what is not positive). "
        "Floats to integers truncate and saturate, NaN gives 0; integers wrap; i1 is 0 or 1, and anything non-zero is true. "
        "From floats to floats of at most 16 bits `rounding` may be another; with `stochastic`, the second operand holds 32 random bits "
        "for each element: the larger of the two neighbours is taken if the share of the step that lies below the number, in units of "
        "2^-32, and the bits add up to 2^32 or more.",
        ("x", "bits*"),
        _convert,
        attrs=(
            AttrSpec("elem", "elem", positional=True),
            AttrSpec(
                "rounding", "word", default="nearest_even", choices=ROUNDINGS, doc="how floats become narrower ones"
            ),
            AttrSpec(
                "overflow",
                "word",
                default="",
                choices=("", "saturate", "infinity"),
                doc="what passes the largest finite value: it, or infinity (NaN where there is none; toward zero only infinities)",
            ),
            AttrSpec("finite", "bool", default=False, doc="the operand is no NaN: of NaN the result is any number"),
        ),
        elementwise=True,
        category="elementwise",
        semantics=_convert_value,
        example="%r = convert<bf16>(%a) : tile<bf16[64, 64]>",
    )
)


def _bitcast(c: Check) -> Sequence[Type]:
    t = c.tile(0)
    elem = c.attrs["elem"]
    assert isinstance(elem, Elem)
    if elem.bits != t.elem.bits or t.elem.is_bool or elem.is_bool:
        c.fail("E0325", f"'bitcast' from {t.elem} to {elem}: the widths differ", 0, legal="types of equal width")
    return [t.with_elem(elem)]


declare(
    OpDef(
        "bitcast",
        "The same bits read as another element type of equal width.",
        ("x",),
        _bitcast,
        attrs=(AttrSpec("elem", "elem", positional=True),),
        elementwise=True,
        category="elementwise",
        semantics=lambda ctx, op, args: (
            np.ascontiguousarray(args[0]).view(op.attrs["elem"].np).reshape(np.shape(args[0]))
        ),
        example="%r = bitcast<i32>(%a) : tile<i32[64, 64]>",
    )
)
