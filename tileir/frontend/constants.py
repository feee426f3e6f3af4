"""Compile-time evaluation: literals, parameters and the expressions over them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from tileir.frontend.parser import Node
from tileir.frontend.scope import MAX_DEPTH, Const, Poisoned, Scope, did_you_mean
from tileir.ir import expr as grid
from tileir.ir.registry import format_attr
from tileir.ir.types import ELEMS, Elem

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
_INTEGER = frozenset("add sub mul div mod cdiv min max".split())
_BITS: dict[str, Callable[[Any, Any], Any]] = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}
_FLOAT: dict[str, Callable[[float, float], float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "min": lambda a, b: b if a != a or b < a else a,
    "max": lambda a, b: b if a != a or b > a else a,
}
INFIX = frozenset("or xor and eq ne lt le gt ge shl shr add sub mul div neg not".split())
"""Node kinds of infix and prefix operators; they are the names of the ops they stand for."""
MIN_INT, MAX_INT = -(1 << 63), (1 << 64) - 1


class Unfoldable(Exception):
    """An operation that is not computed at compile time."""


def kind_of(value: Const) -> str:
    """ "type", "bool", "int" or "float"."""
    if isinstance(value, Elem):
        return "type"
    return "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "float"


def fold(scope: Scope, name: str, args: Sequence[Const], node: Node) -> Const:
    """The value of an operation on compile-time values: integers exactly (they must fit 64 bits), floats in f64.

    Raises Unfoldable for other operations, CompileError for a fault in the operands.
    """
    kinds = [kind_of(a) for a in args]
    if name == "where" and len(args) == 3 and kinds[0] == "bool":
        return args[1] if args[0] else args[2]
    numeric = set(kinds) <= {"int", "float"}
    if "type" in kinds or "bool" in kinds:
        if len(set(kinds)) > 1:
            scope.fail(
                "E0354", f"'{name}' of {' and '.join(kinds)}", node, legal="two operands of the same compile-time kind"
            )
        if len(args) == 2 and name in ("eq", "ne"):
            return COMPARISONS[name](args[0], args[1])
        if kinds[0] == "bool" and len(args) == 2 and name in _BITS:
            return bool(_BITS[name](args[0], args[1]))
        if kinds == ["bool"] and name == "not":
            return not args[0]
        if kinds[0] == "type":
            scope.fail("E0354", f"'{name}' does not work on types", node, legal="T == bf16 or T != bf16")
        raise Unfoldable
    if numeric and len(args) == 2 and name in COMPARISONS:
        return COMPARISONS[name](args[0], args[1])
    if numeric and name == "neg" and len(args) == 1:
        return _checked(scope, -args[0], node)  # type: ignore[operator]
    if numeric and name == "abs" and len(args) == 1:
        return _checked(scope, abs(args[0]), node)  # type: ignore[arg-type]
    if set(kinds) == {"int"}:
        return _checked(scope, _fold_int(scope, name, [a for a in args if isinstance(a, int)], node), node)
    if len(args) == 2:
        return _fold_float(name, float(args[0]), float(args[1]))  # type: ignore[arg-type]
    raise Unfoldable


def _fold_int(scope: Scope, name: str, args: list[int], node: Node) -> int:
    if name == "not" and len(args) == 1:
        return ~args[0]
    if len(args) != 2:
        raise Unfoldable
    a, b = args
    if name in ("div", "cdiv", "mod") and b == 0:
        scope.fail("E0348", f"'{name}' of {a} by zero", node, legal="a divisor other than 0")
    if name in _INTEGER:
        return grid.apply(name, a, b)
    if name in _BITS:
        return _BITS[name](a, b)
    if name in ("shl", "shr"):
        if not 0 <= b < 64:
            scope.fail("E0348", f"a shift by {b}", node, legal="a count from 0 to 63")
        return a << b if name == "shl" else a >> b
    raise Unfoldable


def _fold_float(name: str, a: float, b: float) -> float:
    if name == "div":
        if b == 0:
            sign = math.copysign(1.0, a) * math.copysign(1.0, b)
            return math.nan if a == 0 or a != a else sign * math.inf
        return a / b
    if name == "mod" and b != 0 and not math.isinf(a):
        return math.fmod(a, b)
    if name in _FLOAT:
        return _FLOAT[name](a, b)
    raise Unfoldable


def _checked(scope: Scope, value: Const, node: Node) -> Const:
    if isinstance(value, int) and not MIN_INT <= value <= MAX_INT:
        scope.fail("E0347", "this compile-time integer does not fit in 64 bits", node, legal=f"{MIN_INT} to {MAX_INT}")
    return value


class Evaluator:
    """Evaluates expressions. This one accepts compile-time values only; subclasses add symbols and run-time values."""

    what = "a compile-time value (literals and parameters)"

    def __init__(self, scope: Scope):
        self.scope = scope
        self._depth = 0

    def expr(self, node: Node) -> Any:
        """What an expression means: a Const, or what a subclass makes of run-time parts."""
        self._depth += 1
        try:
            if self._depth > MAX_DEPTH:
                self.scope.fail(
                    "E0108",
                    f"an expression nested deeper than {MAX_DEPTH} levels",
                    node,
                    legal="names for intermediate values",
                )
            match node.kind:
                case "INT":
                    return self._integer(node)
                case "NUMBER":
                    return self._number(node)
                case "UPPER":
                    return self._name(node)
                case "VALUE":
                    return self.value(node)
                case "ELEM":
                    return ELEMS[node.text]
                case "inf" | "nan":
                    return float(node.kind)
                case "true" | "false":
                    return node.kind == "true"
                case "access":
                    return self.access(node)
                case "call":
                    return self.call(node)
                case _:
                    return self.apply(node.kind, node, node.children)
        finally:
            self._depth -= 1

    def _integer(self, node: Node) -> int:
        if len(node.text.lstrip("0")) > 20 or int(node.text) > MAX_INT:
            self.scope.fail(
                "E0107", "this integer is too large for any type", node, legal=f"integers up to {MAX_INT} (64 bits)"
            )
        return int(node.text)

    def _number(self, node: Node) -> float:
        value = float(node.text)
        if math.isinf(value):
            self.scope.fail(
                "E0107", "this number is too large for any type", node, legal="numbers up to 1.797e308, or inf"
            )
        return value

    def _name(self, node: Node) -> Any:
        name, scope = node.text, self.scope
        if name in scope.values:
            value = scope.values[name]
            if value is None:
                raise Poisoned
            return value
        if name in scope.symbols:
            return self.symbol(node)
        if name in scope.types:
            scope.fail("E0350", f"{name} is a type, not a value", node, legal="a parameter, constant or symbol")
        hint = did_you_mean(name, [*scope.values, *scope.symbols])
        known = ", ".join([*scope.values, *scope.symbols]) or "none"
        scope.fail(
            "E0205",
            f"{name} is neither a parameter nor a dimension of an argument",
            node,
            legal=hint or f"one of the names in scope: {known}",
        )

    def refuse(self, node: Node, what: str) -> Any:
        self.scope.fail("E0349", f"{what} cannot stand here", node, legal=self.what)

    def value(self, node: Node) -> Any:
        return self.refuse(node, f"the run-time value {node.text}")

    def symbol(self, node: Node) -> Any:
        return self.refuse(node, f"the dimension symbol {node.text}, known at run time,")

    def access(self, node: Node) -> Any:
        return self.refuse(node, "an access to memory")

    def call(self, node: Node) -> Any:
        callee, attributes, operands = node.children
        parts: list[Node] = operands.children if operands is not None else []
        if attributes is not None or any(p.kind == "named_attribute" for p in parts):
            return self.refuse(node, f"the op '{callee.text}' with attributes")
        return self.apply(callee.text, node, parts)

    def apply(self, name: str, node: Node, operands: Sequence[Node]) -> Any:
        """The meaning of an operation; `operands` are still nodes."""
        args = [self.expr(o) for o in operands]
        try:
            return fold(self.scope, name, args, node)
        except Unfoldable:
            return self.refuse(node, f"'{name}', which is not computed at compile time,")


class GridEvaluator(Evaluator):
    """Integer expressions over symbols, for the grid: results are `tileir.ir.expr.Expr` or integers."""

    what = "integers, parameters and dimension symbols with + - * / cdiv mod min max"

    def symbol(self, node: Node) -> Any:
        return grid.symbol(node.text)

    def apply(self, name: str, node: Node, operands: Sequence[Node]) -> Any:
        args = [self.expr(o) for o in operands]
        if not any(isinstance(a, grid.Expr) for a in args):
            try:
                return fold(self.scope, name, args, node)
            except Unfoldable:
                return self.refuse(node, f"'{name}'")
        exprs = [self.lift(a, o) for a, o in zip(args, operands, strict=True)]
        if name == "neg":
            return grid.binary("sub", grid.integer(0), exprs[0])
        if name not in _INTEGER or len(exprs) != 2:
            return self.refuse(node, f"'{name}'")
        if name in ("div", "cdiv", "mod") and exprs[1] == grid.integer(0):
            self.scope.fail("E0348", f"'{name}' by zero", node, legal="a divisor other than 0")
        return grid.binary(name, exprs[0], exprs[1])

    def lift(self, value: Any, node: Node) -> grid.Expr:
        """An operand as an expression."""
        if isinstance(value, grid.Expr):
            return value
        if not isinstance(value, int) or isinstance(value, bool):
            self.scope.fail("E0510", f"{format_attr(value)} in a grid expression", node, legal=self.what)
        return grid.integer(value)
