"""What `simplify` knows of single ops: values of constants, folding, and identities that hold for every input."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tileir.ir.core import Op, Value
from tileir.ir.ops.numeric import convert_array
from tileir.ir.ops.shape import permutation
from tileir.ir.registry import get
from tileir.ir.types import F64, Elem, TileType

Array = np.ndarray[Any, Any]


def literal(value: Any, elem: Elem) -> Array:
    """The 0-d array that `constant<value>() : elem` stands for."""
    if elem.is_bool:
        return np.asarray(bool(value))
    if elem.is_int:
        return np.asarray(int(value) & ((1 << 64) - 1), np.uint64).astype(elem.np)
    return np.asarray(convert_array(np.float64(value), F64, elem))


def constant_of(v: Value) -> Array | None:
    """The value of a scalar constant as a 0-d array, or None."""
    op = v.owner
    if op is None or op.name != "constant":
        return None
    return literal(op.attrs["value"], v.tile.elem)


def splat_of(v: Value) -> Array | None:
    """The value that every element of a tile or scalar has, if it is known."""
    op = v.owner
    if op is not None and op.name in ("fill", "broadcast", "convert_layout", "reshape", "transpose"):
        return splat_of(op.operands[0])
    return constant_of(v)


def fold(op: Op, operands: list[Value]) -> int | float | bool | None:
    """The value of every element of an elementwise op on constants (by the semantics of its declaration), or None.

    NaN results are not folded: a literal does not keep their sign and payload.
    """
    definition = get(op.name)
    if not definition.elementwise or not operands or len(op.results) != 1 or definition.semantics is None:
        return None
    if not isinstance(op.result.type, TileType):
        return None
    args = [splat_of(v) for v in operands]
    if any(a is None for a in args):
        return _of_itself(op, operands)
    elem = op.result.tile.elem
    scalar = Op(op.name, [_scalar(v) for v in operands], op.attrs, [Value("", TileType(elem))])
    with np.errstate(all="ignore"):
        value = np.asarray(definition.semantics(None, scalar, args))
    if elem.is_float:
        number = float(value)
        return None if math.isnan(number) else number
    return bool(value) if elem.is_bool else int(value)


_REFLEXIVE = {"eq": True, "le": True, "ge": True, "ne": False, "lt": False, "gt": False}


def _of_itself(op: Op, operands: list[Value]) -> int | bool | None:
    """Integer ops whose result does not depend on the value: x - x, x ^ x, x mod 1, comparisons of x with x."""
    elem = operands[0].tile.elem
    if elem.is_float:
        return None
    if op.name == "mod" and (_is(splat_of(operands[1]), 1) or _is(splat_of(operands[1]), -1)):
        return 0
    if len(operands) != 2 or operands[0] is not operands[1]:
        return None
    if op.name in ("sub", "xor"):
        return False if elem.is_bool else 0
    return _REFLEXIVE.get(op.name)


def _scalar(v: Value) -> Value:
    return Value(v.name, TileType(v.tile.elem), v.loc)


def identity(op: Op, operands: list[Value]) -> Value | None:
    """An operand (or the operand of an operand) that equals the op's result for every input, or None."""
    if len(op.results) != 1 or not isinstance(op.result.type, TileType):
        return None
    found = candidate(op, operands)
    return found if found is not None and found.type == op.result.type else None


def candidate(op: Op, v: list[Value]) -> Value | None:
    """An operand (or the operand of an operand) that equals the op's result up to its shape and layout, or None."""
    if op.name in _BINARY and len(v) == 2:
        return _binary(op, v)
    match op.name:
        case "not" | "neg":
            return _inner(v[0], op.name)
        case "abs":
            return v[0] if v[0].owner is not None and v[0].owner.name == "abs" else None
        case "where":
            return _where(v)
        case "clamp":
            return v[0] if v[1] is v[0] and v[2] is v[0] else None
        case "convert" | "convert_layout" | "reshape" | "broadcast":
            return _same_type(op, v[0])
        case "bitcast":
            inner = v[0].owner
            return _same_type(op, inner.operands[0] if inner is not None and inner.name == "bitcast" else v[0])
        case "transpose":
            return _transpose(op, v[0])
        case _:
            return None


def _inner(v: Value, name: str) -> Value | None:
    """x of name(name(x)): complement and negation undo themselves (negation only flips the sign bit, or wraps)."""
    return v.owner.operands[0] if v.owner is not None and v.owner.name == name else None


def _same_type(op: Op, source: Value) -> Value | None:
    """For ops that do nothing when source and result have one type; a chain of layout changes back to it is one, too."""
    if op.name == "convert_layout":
        origin = source
        while origin.owner is not None and origin.owner.name == "convert_layout" and origin.type != op.result.type:
            origin = origin.owner.operands[0]
        return origin
    return source


def _transpose(op: Op, v: Value) -> Value | None:
    rank = v.tile.rank
    outer = permutation(dict(op.attrs), rank)
    if outer == tuple(range(rank)):
        return v
    inner = v.owner
    if inner is None or inner.name != "transpose":
        return None
    first = permutation(dict(inner.attrs), rank)
    return inner.operands[0] if tuple(first[p] for p in outer) == tuple(range(rank)) else None


def _where(v: list[Value]) -> Value | None:
    if v[1] is v[2]:
        return v[1]
    condition = splat_of(v[0])
    if condition is None:
        return None
    return v[1] if condition else v[2]


_BINARY = frozenset("add sub mul div mod cdiv min max and or xor shl shr".split())


def _binary(op: Op, v: list[Value]) -> Value | None:
    a, b = v
    x, y = splat_of(a), splat_of(b)
    elem = a.tile.elem
    if op.name in ("min", "max", "and", "or") and a is b:
        return a
    if op.name == "mul":  # exact for floats too: NaN, infinities and signed zeros stay what they are
        return a if _is(y, 1) else b if _is(x, 1) else _zero(elem, a, b, x, y)
    if op.name == "div":
        return a if _is(y, 1) else None
    if elem.is_float:
        return None  # x + 0 is not x for -0
    match op.name:
        case "add" | "or" | "xor":
            if _is(y, 0):
                return a
            if _is(x, 0):
                return b
            return _ones(a, b, x, y) if op.name == "or" else None
        case "sub" | "shl" | "shr":
            return a if _is(y, 0) else None
        case "cdiv":
            return a if _is(y, 1) else None
        case "and":
            if _is_ones(y):
                return a
            if _is_ones(x):
                return b
            return b if _is(y, 0) else a if _is(x, 0) else None
        case _:
            return None


def _zero(elem: Elem, a: Value, b: Value, x: Array | None, y: Array | None) -> Value | None:
    """0 · x = 0 for integers only."""
    if elem.is_float:
        return None
    return b if _is(y, 0) else a if _is(x, 0) else None


def _ones(a: Value, b: Value, x: Array | None, y: Array | None) -> Value | None:
    return b if _is_ones(y) else a if _is_ones(x) else None


def _is(x: Array | None, number: int) -> bool:
    return x is not None and bool(x == number)


def _is_ones(x: Array | None) -> bool:
    """All bits set: true, or -1."""
    return x is not None and bool(x) and (x.dtype == np.bool_ or bool(x == -1))
