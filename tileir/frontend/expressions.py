"""Expressions of a kernel body: from nested text to one type-checked op per operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tileir.frontend.constants import Evaluator, Unfoldable, fold, kind_of
from tileir.frontend.parser import Node
from tileir.frontend.scope import Const, Poisoned, Scope, did_you_mean
from tileir.frontend.types import Types
from tileir.ir import registry
from tileir.ir.builder import Builder, Names
from tileir.ir.core import AttrValue, Block, Op, Value
from tileir.ir.diagnostics import CompileError, Note
from tileir.ir.location import Loc
from tileir.ir.ops.atomic import OPTIONAL_RESULT
from tileir.ir.registry import OpDef, format_attr
from tileir.ir.types import ELEMS, F32, I1, I32, MAX_ELEMENTS, Elem, GlobalType, SharedType, TileType, Type

Operand = Value | Const
"""What an expression means: an SSA value, or something known at compile time."""


class Expressions(Evaluator):
    """Emits ops into the current block of `builder`. `env` maps the names in scope to values (None: its definition was
    reported as wrong)."""

    def __init__(self, scope: Scope, types: Types, names: Names):
        super().__init__(scope)
        self.types = types
        self.builder = Builder(Block(), names)
        self.env: dict[str, Value | None] = {}
        self.ended: dict[str, Loc] = {}  # names of regions that have ended
        self.later: Callable[[], dict[str, Loc]] = dict  # names that the kernel defines anywhere
        self.used: set[str] = set()
        self.dims: dict[str, Op] = {}
        self._reported: set[str] = set()

    # -- leaves ------------------------------------------------------------------------------------------------------

    def value(self, node: Node) -> Value:
        name = node.text[1:]
        self.used.add(name)
        if name in self.env:
            value = self.env[name]
            if value is None:
                raise Poisoned
            return value
        if name in self._reported:
            raise Poisoned
        self._reported.add(name)
        if name in self.ended:
            self.scope.fail(
                "E0204",
                f"%{name} is defined in a region that has ended",
                node,
                legal="yield it from the region and use the result",
                notes=[Note("defined here", self.ended[name])],
            )
        later = self.later()
        if name in later:
            self.scope.fail(
                "E0203",
                f"%{name} is used before its definition",
                node,
                legal="a value defined before its use",
                notes=[Note("defined here", later[name])],
            )
        hint = did_you_mean(name, self.env, "%") or "a value defined before its use"
        self.scope.fail("E0203", f"%{name} is not defined", node, legal=hint)

    def symbol(self, node: Node) -> Value:
        """The `dim` op of a symbol: one per kernel, at its entry."""
        name = node.text
        if name not in self.dims:
            elem = self.scope.symbols[name]
            result = Value(self.builder.names.fresh(name), TileType(elem), self.scope.loc(node))
            self.dims[name] = Op("dim", [], {"symbol": name}, [result], loc=self.scope.loc(node))
        return self.dims[name].result

    def access(self, node: Node) -> Any:
        self.scope.fail(
            "E0410",
            f"an access to {node.children[0].text} is not a value",
            node,
            legal=f"load({self.scope.source.text[node.start : node.end]})",
        )

    def materialise(self, value: Operand, node: Node, elem: Elem | None = None, name: str = "") -> Value:
        """A run-time value; a compile-time one becomes a constant of `elem` (by default i32, f32 or i1), called `name`."""
        if isinstance(value, Value):
            return value
        loc = self.scope.loc(node)
        if isinstance(value, Elem):
            self.scope.fail("E0350", f"the type {value} is not a value", node, legal="a value such as %x or a number")
        if elem is None:
            elem = default_elem([value])
        if isinstance(value, int) and not isinstance(value, bool) and elem.is_float:
            value = float(value)
        names = (name,) if name else ()
        return self.builder.value("constant", (), {"value": value}, types=[TileType(elem)], loc=loc, names=names)

    # -- operations --------------------------------------------------------------------------------------------------

    def statement(self, node: Node, names: list[str], types: Sequence[Type]) -> list[Operand]:
        """The right side of `names = node : types`; results of an op made for it have exactly these names."""
        if node.kind == "call":
            result = self._call(node, names, types)
            return list(result.results) if isinstance(result, Op) else [result]
        if len(names) != 1:
            self.scope.fail(
                "E0303",
                f"an expression has one value, but {len(names)} names are given",
                node,
                legal="one name on the left of '='",
            )
        if node.kind in _LEAVES:
            return [self.expr(node)]
        result = self._apply(node.kind, node, node.children, {}, names, types)
        return list(result.results) if isinstance(result, Op) else [result]

    def call_op(self, node: Node) -> Op | Operand:
        """A call that stands as a statement of its own."""
        definition = registry.lookup(node.children[0].text)
        bare = definition is not None and OPTIONAL_RESULT in definition.traits
        return self._call(node, [] if bare else None, ())

    def call(self, node: Node) -> Operand:
        return self._single(self._call(node, None, ()), node)

    def apply(self, name: str, node: Node, operands: Sequence[Node]) -> Operand:
        return self._single(self._apply(name, node, operands, {}, None, ()), node)

    def _single(self, result: Op | Operand, node: Node) -> Operand:
        if not isinstance(result, Op):
            return result
        if len(result.results) != 1:
            self.scope.fail(
                "E0303",
                f"'{result.name}' has {len(result.results)} results and cannot stand in an expression",
                node,
                legal="a statement of its own",
            )
        return result.result

    def _call(self, node: Node, names: list[str] | None, types: Sequence[Type]) -> Op | Operand:
        callee, attributes, operands = node.children
        name: str = callee.text
        definition = registry.lookup(name)
        if definition is None or definition.regions or name == "yield":
            known = [n for n, d in registry.all_ops().items() if not d.regions and n != "yield"]
            hint = did_you_mean(name, known) or "an op of the list in docs/language.md"
            self.scope.fail("E0201", f"there is no op '{name}'", callee, legal=hint)
        parts: list[Node] = operands.children if operands is not None else []
        named = [p for p in parts if p.kind == "named_attribute"]
        attrs = self.attributes(definition, attributes, named)
        return self._apply(name, node, [p for p in parts if p.kind != "named_attribute"], attrs, names, types)

    def attributes(self, definition: OpDef, angle: Node | None, named: Sequence[Node] = ()) -> dict[str, AttrValue]:
        """The attributes of an op, from `<…>` and from `name = value` among the operands."""
        attrs: dict[str, AttrValue] = {}
        positional = [a for a in definition.attrs if a.positional]
        for node in [*(angle.children if angle is not None else []), *named]:
            if node.kind == "named_attribute":
                name, value = node.children[0].text, node.children[1]
                spec = definition.attr(name)
                if spec is None:
                    known = [a.name for a in definition.attrs]
                    hint = did_you_mean(name, known) or f"its attributes: {', '.join(known) or 'none'}"
                    self.scope.fail("E0307", f"'{definition.name}' has no attribute '{name}'", node, legal=hint)
            elif positional:
                spec, value = positional.pop(0), node
                name = spec.name
            else:
                want = ", ".join(a.name for a in definition.attrs if not a.positional)
                self.scope.fail(
                    "E0307",
                    f"'{definition.name}' takes no {'more ' if attrs else ''}attribute without a name",
                    node,
                    legal=f"name = value with one of: {want}" if want else "no attributes",
                )
            if name in attrs:
                self.scope.fail("E0308", f"the attribute '{name}' is given twice", node, legal="each attribute once")
            attrs[name] = self.types.attribute(value, symbol=spec.kind == "symbol")
            registry.check_attr(f"'{definition.name}'", spec, attrs[name], self.scope.loc(value))
        return attrs

    def _apply(
        self,
        name: str,
        node: Node,
        operands: Sequence[Node],
        attrs: dict[str, AttrValue],
        names: list[str] | None,
        types: Sequence[Type],
    ) -> Op | Operand:
        """An op on operands that are still nodes: folded if everything is known, else emitted."""
        definition = registry.get(name)
        self._count(definition, operands, node)
        if definition.access_position is not None:
            return self._access_op(definition, node, operands, attrs, names, types)
        if name == "where":
            condition = self.expr(operands[0])
            if isinstance(condition, bool):
                return self._static_where(condition, node, operands)
            args = [condition, *self._operands(operands[1:])]
        else:
            args = self._operands(operands)
        known = [a for a in args if not isinstance(a, Value)]
        if args and len(known) == len(args) and not attrs:
            try:
                return fold(self.scope, name, known, node)
            except Unfoldable:
                pass
        if name == "convert" and len(known) == 1:
            literal = self._literal_convert(known[0], attrs.get("elem"), operands[0], names)
            if literal is not None:
                return literal
        return self._emit(definition, node, operands, args, attrs, names, types)

    def _operands(self, nodes: Sequence[Node]) -> list[Operand]:
        """The meanings of several operands; the faults of all of them are recorded."""
        out: list[Operand] = []
        for node in nodes:
            try:
                out.append(self.expr(node))
            except CompileError as e:
                self.scope.faults.add(e)
            except Poisoned:
                pass
        if len(out) < len(nodes):
            raise Poisoned
        return out

    def _emit(
        self,
        definition: OpDef,
        node: Node,
        nodes: Sequence[Node],
        args: Sequence[Operand],
        attrs: dict[str, AttrValue],
        names: list[str] | None,
        types: Sequence[Type],
        spans: tuple[int | None, ...] | None = None,
        elems: Sequence[Elem | None] | None = None,
    ) -> Op:
        """Gives literals their element types and appends the op."""
        if elems is None:
            elems = literal_elems(definition, args, types)
        values = [self.materialise(a, n, e) for a, n, e in zip(args, nodes, elems, strict=True)]
        return self.builder.op(
            definition.name,
            values,
            attrs,
            spans=spans,
            types=types,
            names=names or (),
            loc=self.scope.loc(node),
            operand_locs=[self.scope.loc(n) for n in nodes],
            num_results=len(names) if names is not None else 1 if definition.name in _PER_DIMENSION else None,
        )

    def _count(self, definition: OpDef, operands: Sequence[Node], node: Node) -> None:
        """Checks the number of operands; a last "name*" stands for any number."""
        want = definition.operands
        least = len(want) - (1 if want and want[-1].endswith("*") else 0)
        if len(operands) < least or (len(operands) > least and least == len(want)):
            self.scope.fail(
                "E0302",
                f"'{definition.name}' has {least} operand{'s' if least != 1 else ''}, but {len(operands)} "
                f"{'are' if len(operands) != 1 else 'is'} given",
                operands[least] if len(operands) > least else node,
                legal=signature(definition),
            )

    # -- special forms -----------------------------------------------------------------------------------------------

    def _access_op(
        self,
        definition: OpDef,
        node: Node,
        operands: Sequence[Node],
        attrs: dict[str, AttrValue],
        names: list[str] | None,
        types: Sequence[Type],
    ) -> Op:
        at = definition.access_position
        assert at is not None
        args: list[Operand] = []
        nodes: list[Node] = []
        spans: list[int | None] = []
        for i, operand in enumerate(operands):
            if i != at:
                args.append(self.expr(operand))
                nodes.append(operand)
                continue
            if operand.kind != "access":
                self.scope.fail(
                    "E0409",
                    f"'{definition.name}' wants an access to a view here",
                    operand,
                    legal="%A[%i +: 64, %j]: a view with one index per dimension",
                )
            view, *indices = operand.children
            args.append(self.value(view))
            nodes.append(view)
            for index in indices:
                start = index.children[0] if index.kind == "span" else index
                args.append(self.expr(start))
                nodes.append(start)
                spans.append(self._extent(index.children[1]) if index.kind == "span" else None)
        view_type = args[at].type if isinstance(args[at], Value) else None  # type: ignore[union-attr]
        elems: list[Elem | None] = [None] * len(args)
        if isinstance(view_type, GlobalType | SharedType):
            for i in (i for i in range(len(args)) if i < at or i > at + len(spans)):
                elems[i] = view_type.elem
        return self._emit(definition, node, nodes, args, attrs, names, types, tuple(spans), elems)

    def _extent(self, node: Node) -> int:
        n = self.types.integer(node, "the extent of a span")
        if not 1 <= n <= MAX_ELEMENTS:
            self.scope.fail("E0405", f"a span of extent {n}", node, legal=f"1 to {MAX_ELEMENTS}")
        return n

    def _static_where(self, condition: bool, node: Node, operands: Sequence[Node]) -> Operand:
        """`where` with a compile-time condition: the chosen operand, after checking that both would do."""
        chosen, other = operands[1 if condition else 2], operands[2 if condition else 1]
        value = self.expr(chosen)
        kept = len(self.builder.block.ops)
        rejected = self.expr(other)
        if not isinstance(value, Value) and not isinstance(rejected, Value):
            del self.builder.block.ops[kept:]
            return fold(self.scope, "where", [condition, value, rejected], node)
        pair = [value, rejected] if condition else [rejected, value]
        probe = self._emit(registry.get("where"), node, operands, [condition, *pair], {}, None, ())
        shape, elem = probe.result.tile.shape, probe.result.tile.elem
        del self.builder.block.ops[kept:]  # what was only built to be checked
        result = self.materialise(value, chosen, elem)
        if result.tile.shape == shape:
            return result
        return self.builder.value("broadcast", [result], {"shape": shape}, loc=self.scope.loc(node))

    def _literal_convert(self, value: Const, elem: AttrValue, node: Node, names: list[str] | None) -> Op | None:
        """`convert<f16>(1.5)` is simply the constant; None where conversion would change the kind of the literal."""
        if not isinstance(elem, Elem) or kind_of(value) not in ("int", "float") or elem.is_bool:
            return None
        if isinstance(value, float) and elem.is_int:
            return None
        if isinstance(value, int) and elem.is_float:
            value = float(value)
        return self.builder.op(
            "constant", (), {"value": value}, types=[TileType(elem)], loc=self.scope.loc(node), names=names or ()
        )


_LEAVES = frozenset("INT NUMBER UPPER VALUE ELEM inf nan true false access".split())
_PER_DIMENSION = ("program_id", "num_programs")


def default_elem(values: Sequence[Const]) -> Elem:
    """The element type of literals that meet no run-time value."""
    kinds = [kind_of(v) for v in values]
    return F32 if "float" in kinds else I1 if "bool" in kinds else I32


def literal_elems(definition: OpDef, args: Sequence[Operand], types: Sequence[Type]) -> list[Elem | None]:
    """Element type that each literal among the operands takes: what the declaration fixes, else that of the run-time
    operands it meets."""
    fixed = definition.literals
    shared: list[Operand] = []
    out: list[Elem | None] = []
    for i, a in enumerate(args):
        rule = fixed[min(i, len(fixed) - 1)] if fixed else ""
        if rule == "result":
            want = types[0] if types else None
            out.append(want.elem if isinstance(want, TileType) else None)
        elif rule:
            out.append(ELEMS[rule])
        else:
            shared.append(a)
            out.append(None)
    met = next((a.type.elem for a in shared if isinstance(a, Value) and isinstance(a.type, TileType)), None)
    if met is None:
        consts = [a for a in shared if not isinstance(a, Value | Elem)]
        met = default_elem(consts) if consts else None
    for i, a in enumerate(args):
        rule = fixed[min(i, len(fixed) - 1)] if fixed else ""
        if not rule and not isinstance(a, Value):
            out[i] = met
    return out


def signature(definition: OpDef) -> str:
    """How a call of the op looks: `where(condition, a, b)`."""
    shown = {"access": "%view[…]"}
    operands = [shown.get(o, f"{o[:-1]}, …" if o.endswith("*") else o) for o in definition.operands]
    operands += [
        f"{a.name} = {format_attr(a.default)}"
        for a in definition.attrs
        if a.paren and a.default is not registry.REQUIRED
    ]
    operands += [f"{a.name} = …" for a in definition.attrs if a.paren and a.default is registry.REQUIRED]
    return f"{definition.name}({', '.join(operands)})"
