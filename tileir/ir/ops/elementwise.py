"""Elementwise ops: the same scalar function at every position, with broadcasting.

Floats narrower than 32 bits are computed exactly as IEEE says: the f32 result of one operation on two f16 or bf16 values,
rounded once more to the narrow type, equals the correctly rounded result (24 >= 2·11 + 2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tileir.ir.ops.common import broadcast_shape, elementwise_layout, same_elem
from tileir.ir.registry import AttrSpec, Check, OpDef, Rule, Semantics, declare
from tileir.ir.types import I1, Elem, TileType, Type

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


def in_f32(f: Callable[..., Array]) -> Semantics:
    """Evaluates narrow floats through f32 (or f64 for wider ones) and rounds once."""

    def semantics(ctx: Any, op: Any, args: Sequence[Array]) -> Array:
        elem = op.operands[0].tile.elem
        if not elem.is_float:
            return f(*args)
        wide = np.float64 if elem.bits >= 32 else np.float32
        return np.asarray(f(*(np.asarray(a).astype(wide) for a in args))).astype(elem.np)

    return semantics


def _direct(f: Callable[..., Array]) -> Semantics:
    return lambda ctx, op, args: f(*args)


def _binary(name: str, summary: str, kinds: str, f: Callable[..., Array], infix: str = "") -> None:
    declare(
        OpDef(
            name,
            summary,
            ("a", "b"),
            _rule(kinds),
            elementwise=True,
            infix=infix,
            category="elementwise",
            semantics=_direct(f),
            example=f"%r = {name}(%a, %b) : tile<f32[64, 64]>"
            if "float" in kinds
            else f"%r = {name}(%i, %j) : tile<i32[64]>",
        )
    )


def _trunc_div(a: Array, b: Array) -> Array:
    """Integer division truncating toward zero (division by zero gives all ones, as a machine without traps does)."""
    if not np.issubdtype(np.asarray(a).dtype, np.integer):
        return a / b
    wide_a, wide_b = np.asarray(a), np.asarray(b)
    safe = np.where(wide_b == 0, np.ones_like(wide_b), wide_b)
    q = np.floor_divide(wide_a, safe)
    q = q + ((q * safe != wide_a) & ((wide_a < 0) != (safe < 0))).astype(q.dtype)
    return np.where(wide_b == 0, np.full_like(q, -1), q)


def _trunc_mod(a: Array, b: Array) -> Array:
    """Remainder with the sign of the dividend."""
    if not np.issubdtype(np.asarray(a).dtype, np.integer):
        return np.fmod(a, b)
    return np.where(np.asarray(b) == 0, a, a - b * _trunc_div(a, b)).astype(np.asarray(a).dtype)


def _cdiv(a: Array, b: Array) -> Array:
    q = _trunc_div(a, b)
    return q + ((q * b != a) & ((np.asarray(a) < 0) == (np.asarray(b) < 0))).astype(np.asarray(q).dtype)


_binary("add", "Sum.", "int float", np.add, "+")
_binary("sub", "Difference.", "int float", np.subtract, "-")
_binary("mul", "Product.", "int float", np.multiply, "*")
_binary("div", "Quotient; integers truncate toward zero.", "int float", _trunc_div, "/")
_binary("mod", "Remainder with the sign of the dividend.", "int float", _trunc_mod)
_binary("cdiv", "Integer quotient rounded toward positive infinity.", "int", _cdiv)
_binary("min", "Smaller value; if one operand is NaN, the other one (IEEE minNum).", "int float", np.fmin)
_binary("max", "Larger value; if one operand is NaN, the other one (IEEE maxNum).", "int float", np.fmax)
_binary("and", "Bitwise conjunction.", "int bool", np.bitwise_and, "&")
_binary("or", "Bitwise disjunction.", "int bool", np.bitwise_or, "|")
_binary("xor", "Bitwise exclusive or.", "int bool", np.bitwise_xor, "^")


def _shl(a: Array, b: Array) -> Array:
    bits = np.asarray(a).dtype.itemsize * 8
    return np.left_shift(a, np.bitwise_and(b, np.asarray(bits - 1, np.asarray(b).dtype)))


def _shr(a: Array, b: Array) -> Array:
    bits = np.asarray(a).dtype.itemsize * 8
    return np.right_shift(a, np.bitwise_and(b, np.asarray(bits - 1, np.asarray(b).dtype)))


_binary("shl", "Shift left by the count modulo the width.", "int", _shl, "<<")
_binary("shr", "Arithmetic shift right by the count modulo the width.", "int", _shr, ">>")


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
    example = f"%r = {name}(%i) : tile<i32[64]>" if "float" not in kinds else f"%r = {name}(%a) : tile<f32[64, 64]>"
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

_unary("neg", "Negation; flips the sign of floats, also of zero and NaN.", "int float", _direct(np.negative), "-")
_unary("not", "Bitwise complement.", "int bool", _direct(np.invert), "!")
_unary("abs", "Absolute value.", "int float", _direct(np.abs))
_unary("exp", "e to the power of the operand.", "float", in_f32(np.exp))
_unary("exp2", "2 to the power of the operand.", "float", in_f32(np.exp2))
_unary("log", "Natural logarithm.", "float", in_f32(np.log))
_unary("log2", "Logarithm to base 2.", "float", in_f32(np.log2))
_unary("sqrt", "Square root, correctly rounded.", "float", in_f32(np.sqrt))
_unary("rsqrt", "One over the square root.", "float", in_f32(lambda a: 1.0 / np.sqrt(a)))
_unary("rcp", "One over the operand.", "float", in_f32(lambda a: 1.0 / a))
_unary("sin", "Sine (radians).", "float", in_f32(np.sin))
_unary("cos", "Cosine (radians).", "float", in_f32(np.cos))
_unary("tanh", "Hyperbolic tangent.", "float", in_f32(np.tanh))
_unary("erf", "Error function.", "float", in_f32(_erf))
_unary("sigmoid", "1 / (1 + exp(-x)).", "float", in_f32(lambda a: 1.0 / (1.0 + np.exp(-a))))
_unary("floor", "Largest integer value that is not greater.", "float", in_f32(np.floor))
_unary("ceil", "Smallest integer value that is not less.", "float", in_f32(np.ceil))
_unary("round", "Nearest integer value, ties to even.", "float", in_f32(np.rint))


def _fma_value(ctx: Any, op: Any, args: Sequence[Array]) -> Array:
    elem = op.operands[0].tile.elem
    a, b, x = (np.asarray(v).astype(np.float64 if elem.is_float else elem.np) for v in args)
    return (a * b + x).astype(elem.np)


declare(
    OpDef(
        "fma",
        "a · b + c with a single rounding (the interpreter rounds the f64 result, which is exact for the product of f32 values).",
        ("a", "b", "c"),
        _rule("int float"),
        elementwise=True,
        category="elementwise",
        semantics=_fma_value,
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
        category="elementwise",
        semantics=_direct(np.where),
        example="%r = where(%m, %a, %b) : tile<f32[64, 64]>",
    )
)
declare(
    OpDef(
        "clamp",
        "min(max(x, low), high).",
        ("x", "low", "high"),
        _rule("int float"),
        elementwise=True,
        category="elementwise",
        semantics=_direct(lambda x, low, high: np.fmin(np.fmax(x, low), high)),
        example="%r = clamp(%a, %lo, %hi) : tile<f32[64, 64]>",
    )
)


def _convert(c: Check) -> Sequence[Type]:
    t = c.tile(0)
    elem = c.attrs["elem"]
    assert isinstance(elem, Elem)
    return [t.with_elem(elem)]


def _convert_value(ctx: Any, op: Any, args: Sequence[Array]) -> Array:
    return convert_array(args[0], op.operands[0].tile.elem, op.attrs["elem"])


def convert_array(x: Array, source: Elem, target: Elem) -> Array:
    """Value conversion: floats round to nearest even; floats become integers by truncation, saturating, NaN to 0;
    integers wrap; i1 is 0 or 1 and anything non-zero becomes true."""
    x = np.asarray(x)
    if target.is_bool:
        return x != 0
    if source.is_float and target.is_int:
        wide = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0.0, posinf=np.inf, neginf=-np.inf)
        low, high = -(2.0 ** (target.bits - 1)), 2.0 ** (target.bits - 1)
        inside = (wide >= low) & (wide < high)
        ints = np.where(inside, wide, 0.0).astype(np.int64)
        ints = np.where(
            wide < low, -(1 << (target.bits - 1)), np.where(wide >= high, (1 << (target.bits - 1)) - 1, ints)
        )
        return ints.astype(target.np)
    if source.is_int and target.is_float and target.bits <= 16:
        return _int_to_narrow(x, target)
    if source.name == "f64" and target.bits <= 16:
        return _round_to_odd_f32(x).astype(target.np)
    return x.astype(target.np)


def _int_to_narrow(x: Array, target: Elem) -> Array:
    return _round_to_odd_f32(x.astype(np.float64)).astype(target.np)


def _round_to_odd_f32(x: Array) -> Array:
    """f64 → f32 rounded to odd, so that a second rounding to 16 bits or less is not a double rounding."""
    near = x.astype(np.float32)
    toward = np.where(np.abs(near.astype(np.float64)) > np.abs(x), np.nextafter(near, np.float32(0)), near)
    bits = toward.astype(np.float32).view(np.uint32)
    inexact = np.isfinite(x) & (toward.astype(np.float64) != x)
    return np.where(inexact, bits | np.uint32(1), bits).astype(np.uint32).view(np.float32)


declare(
    OpDef(
        "convert",
        "Conversion to another element type: floats round to nearest even; floats to integers truncate and saturate (NaN gives 0); "
        "integers wrap; anything non-zero is true.",
        ("x",),
        _convert,
        attrs=(AttrSpec("elem", "elem", positional=True),),
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
