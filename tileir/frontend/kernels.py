"""Kernels: parameters, arguments, the grid, attributes, and the body."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tileir.frontend.constants import MAX_INT, MIN_INT, Evaluator, GridEvaluator, kind_of
from tileir.frontend.expressions import Expressions
from tileir.frontend.parser import Node
from tileir.frontend.scope import Const, Scope, did_you_mean
from tileir.frontend.statements import Statements
from tileir.frontend.types import Types
from tileir.ir import registry
from tileir.ir.builder import Names
from tileir.ir.core import AttrValue, Block, Kernel, Value
from tileir.ir.diagnostics import Log, Note
from tileir.ir.expr import Expr
from tileir.ir.location import Loc
from tileir.ir.registry import format_attr
from tileir.ir.types import ELEMS, Elem, GlobalType, TileType

Given = Mapping[str, "int | float | bool | str | Elem"]
"""Values for parameters from outside (`-D NAME=VALUE`); a string is read as the parameter's type requires."""

_KINDS = ("int", "bool", "float", "type")
_FP = ("default", "strict", "fast")
_COMMENT_OR_VALUE = re.compile(r"//[^\n]*|%([A-Za-z_0-9]+)")
MAX_GRID = 3


class KernelText:
    """One `kernel` of a file: reads its parameters, then elaborates it."""

    def __init__(self, node: Node, file_scope: Scope, given: Given):
        self.node = node
        self.scope = file_scope.child()
        self.given = given
        symbol, self.params, self.args, self.grid, self.attrs, self.region = node.children
        self.symbol: Node = symbol
        self.name: str = symbol.text[1:]
        self.loc: Loc = self.scope.loc(symbol)
        self.bound: dict[str, Const] = {}
        self.statements: Statements | None = None

    def param_nodes(self) -> list[Node]:
        return self.params.children if self.params is not None else []

    def param_names(self) -> list[str]:
        return [p.children[0].text for p in self.param_nodes()]

    def actual_name(self, name: str) -> str:
        """The name of the value that a name of the author means: `%x = %y` makes %x another name of %y."""
        return self.statements.aliases.get(name, name) if self.statements is not None else name

    # -- parameters --------------------------------------------------------------------------------------------------

    def _bind_params(self) -> None:
        seen: dict[str, Loc] = {}
        for p in self.param_nodes():
            name_node = p.children[0]
            name: str = name_node.text
            loc = self.scope.loc(name_node)

            def bind(p: Node = p, name_node: Node = name_node, name: str = name) -> Const:
                if name in seen:
                    self.scope.fail(
                        "E0207",
                        f"the parameter {name} is declared twice",
                        name_node,
                        legal="a name of its own",
                        notes=[Note("first declared here", seen[name])],
                    )
                return self._given_value(p, name) if p.kind == "free_param" else self._bound_value(p, name)

            value = self.scope.faults.attempt(bind)
            self.scope.values[name] = value
            self.scope.types.pop(name, None)
            seen.setdefault(name, loc)
            if value is not None:
                self.bound[name] = value

    def _bound_value(self, p: Node, name: str) -> Const:
        value: Const = Evaluator(self.scope).expr(p.children[1])
        if name in self.given:
            wanted = read_value(self.given[name], kind_of(value))
            if wanted != value:
                self.scope.fail(
                    "E0211",
                    f"{name} is already bound to {format_attr(value)} in this text",
                    p,
                    legal=f"leave out -D {name}, or declare {name}: {kind_of(value)}",
                )
        return value

    def _given_value(self, p: Node, name: str) -> Const:
        _, kind_node, default = p.children
        kind: str = kind_node.children[0].text
        if kind not in _KINDS:
            self.scope.fail(
                "E0213",
                f"a parameter cannot be of kind '{kind}'",
                kind_node,
                legal=did_you_mean(kind, _KINDS) or "int, bool, float or type",
            )
        if name in self.given:
            value = read_value(self.given[name], kind)
            if value is None:
                self.scope.fail(
                    "E0212",
                    f"{name} is of kind {kind}, but was given {self.given[name]}",
                    p.children[0],
                    legal=f"-D {name}={_SAMPLES[kind]}",
                )
            return value
        if default is None:
            self.scope.fail(
                "E0208", f"the parameter {name} has no value", p, legal=f"-D {name}={_SAMPLES[kind]}, or a default"
            )
        value = read_value(Evaluator(self.scope).expr(default), kind)
        if value is None:
            self.scope.fail(
                "E0212", f"{name} is of kind {kind}, but its default is not", default, legal=f"a value of kind {kind}"
            )
        return value

    # -- head --------------------------------------------------------------------------------------------------------

    def _arguments(self, types: Types) -> list[tuple[Node, Value | None]]:
        out: list[tuple[Node, Value | None]] = []
        for arg in self.args.children if self.args is not None else []:
            name, type_node = arg.children
            out.append((name, self.scope.faults.attempt(lambda n=name, t=type_node: self._argument(n, t, types))))
        symbols: dict[str, Any] = {}
        dummy = Kernel(self.name, {}, [v for _, v in out if v is not None], (), Block())
        symbols.update(dummy.symbols())
        self.scope.symbols = symbols
        return out

    def _argument(self, name: Node, node: Node, types: Types) -> Value:
        t = types.type(node)
        if not isinstance(t, GlobalType) and not (isinstance(t, TileType) and t.is_scalar):
            self.scope.fail(
                "E0346", f"a kernel argument cannot be {t}", node, legal="a view global<…>, or a scalar such as f32"
            )
        return Value(name.text[1:], t, self.scope.loc(name))

    def _grid(self) -> tuple[Expr, ...]:
        nodes = self.grid.children
        if len(nodes) > MAX_GRID:
            self.scope.fail(
                "E0514", f"a grid of {len(nodes)} dimensions", nodes[MAX_GRID], legal=f"at most {MAX_GRID} dimensions"
            )
        evaluator = GridEvaluator(self.scope)
        out: list[Expr] = []
        for node in nodes:
            size = evaluator.lift(evaluator.expr(node), node)
            if size.op == "int" and not 1 <= size.value < 1 << 31:
                self.scope.fail("E0510", f"a grid dimension of {size.value}", node, legal="1 to 2^31 - 1")
            out.append(size)
        return tuple(out)

    def _kernel_attrs(self, types: Types, args: list[str]) -> tuple[str, list[tuple[str, str]], dict[str, AttrValue]]:
        fp: str | None = None
        aliases: list[tuple[str, str]] = []
        attrs: dict[str, AttrValue] = {}
        for node in self.attrs.children:
            match node.kind:
                case "fp":
                    mode = node.children[0]
                    if mode.text not in _FP:
                        hint = did_you_mean(mode.text, _FP) or "fp strict, fp fast, or nothing"
                        self.scope.fail("E0214", f"there is no floating-point mode '{mode.text}'", mode, legal=hint)
                    if fp is not None:
                        self.scope.fail("E0111", "the floating-point mode is given twice", node, legal="one 'fp'")
                    fp = mode.text
                case "alias":
                    aliases.append(self._alias(node, args))
                case _:
                    for a in node.children:
                        name = a.children[0].text
                        if name in attrs:
                            self.scope.fail("E0308", f"the attribute '{name}' is given twice", a, legal="once")
                        attrs[name] = types.attribute(a.children[1])
        return fp or "default", aliases, attrs

    def _alias(self, node: Node, args: list[str]) -> tuple[str, str]:
        a, b = node.children
        for n in (a, b):
            if n.text[1:] not in args:
                hint = did_you_mean(n.text[1:], args, "%") or "two arguments of the kernel that are views"
                self.scope.fail("E0215", f"{n.text} is not a view among the arguments", n, legal=hint)
        if a.text == b.text:
            self.scope.fail("E0215", f"{a.text} is an alias of itself", node, legal="two different views")
        return a.text[1:], b.text[1:]

    # -- all together ------------------------------------------------------------------------------------------------

    def elaborate(self) -> Kernel | None:
        """The kernel, or None after its faults were recorded."""
        scope, faults = self.scope, self.scope.faults
        before = len(faults.diagnostics)
        self._bind_params()
        types = Types(scope)
        arguments = self._arguments(types)
        names = Names({m for m in _COMMENT_OR_VALUE.findall(scope.source.text, self.node.start, self.node.end) if m})
        x = Expressions(scope, types, names)
        grid = faults.attempt(self._grid)
        views = [v.name for _, v in arguments if v is not None and isinstance(v.type, GlobalType)]
        head = faults.attempt(lambda: self._kernel_attrs(types, views))
        self.statements = Statements(scope, types, x, len(self.grid.children))
        for name, value in arguments:
            faults.attempt(lambda n=name, v=value: self.statements.define(n, v))  # type: ignore[union-attr]
        x.later = lambda: _definitions(scope, self.region)
        body = x.builder.block
        *parts, last = self.region.children
        sound = self.statements.statements(parts)
        if last is not None:
            faults.attempt(lambda: self._no_yield(last))
        if not sound or len(faults.diagnostics) > before or grid is None or head is None:
            return None
        body.ops[:0] = x.dims.values()
        fp, aliases, attrs = head
        if scope.log is not None:
            self._warn_unused(x, arguments, scope.log)
        args = [v for _, v in arguments if v is not None]
        return Kernel(self.name, self.bound, args, grid, body, fp, tuple(aliases), attrs, self.loc)

    def _no_yield(self, node: Node) -> None:
        self.scope.fail(
            "E0512", "a kernel yields nothing", node, legal="store(…) what it computes; 'yield' ends a region"
        )

    def _warn_unused(self, x: Expressions, arguments: list[tuple[Node, Value | None]], log: Log) -> None:
        """Warns of results that nothing uses (names with a leading underscore are meant to be unused)."""
        used = x.used
        for name, _ in arguments:
            if name.text[1:] not in used and not name.text.startswith("%_"):
                log.warning(
                    "W0202",
                    f"the argument {name.text} is never used",
                    self.scope.loc(name),
                    legal=f"leave it out, or call it %_{name.text[1:]}",
                )
        for node in self.region.walk():
            if node.kind != "assign":
                continue
            result = node.children[0].children[0]
            expression = node.children[1]
            called = registry.lookup(expression.children[0].text) if expression.kind == "call" else None
            if called is not None and (called.effects - {"read"} or called.category == "program"):
                continue
            if result.text[1:] not in used and not result.text.startswith("%_"):
                log.warning(
                    "W0201",
                    f"{result.text} is never used",
                    self.scope.loc(result),
                    legal=f"leave it out, or call it %_{result.text[1:]}",
                )


def _definitions(scope: Scope, region: Node) -> dict[str, Loc]:
    """Where each name of a body is defined."""
    out: dict[str, Loc] = {}
    for node in region.walk():
        if node.kind in ("results", "binding", "for"):
            for n in node.children:
                if n is not None and n.kind == "VALUE":
                    out.setdefault(n.text[1:], scope.loc(n))
                    if node.kind != "results":
                        break
    return out


_SAMPLES = {"int": "64", "bool": "true", "float": "0.5", "type": "bf16"}


def read_value(value: int | float | bool | str | Elem, kind: str) -> Const | None:
    """A value as a parameter of that kind, None if it is none. Strings come from command lines."""
    if isinstance(value, str):
        return _read_text(value.strip(), kind)
    got = kind_of(value)
    if got == "int" and not MIN_INT <= value <= MAX_INT:  # type: ignore[operator]
        return None
    if got == kind:
        return value
    return float(value) if kind == "float" and got == "int" else None  # type: ignore[arg-type]


def _read_text(text: str, kind: str) -> Const | None:
    match kind:
        case "int":
            return int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else None
        case "float":
            try:
                return float(text)
            except ValueError:
                return None
        case "bool":
            return {"true": True, "1": True, "false": False, "0": False}.get(text)
        case _:
            return ELEMS.get(text)
