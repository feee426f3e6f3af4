"""Types and attribute values as written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tileir.frontend.constants import Evaluator, kind_of
from tileir.frontend.parser import Node
from tileir.frontend.scope import Poisoned, Scope, did_you_mean
from tileir.ir.core import AttrValue, Text
from tileir.ir.ops.common import LayoutError
from tileir.ir.types import ELEMS, MAX_ELEMENTS, Elem, FragmentType, GlobalType, SharedType, TileType, Type
from tileir.layout.linear import Layout
from tileir.layout.shared import SharedLayout

MAX_LIST_DEPTH = 16


class Types:
    """Elaborates types; equal layouts are built once, as they are costly and repeat on every op of a wave-level text."""

    def __init__(self, scope: Scope):
        self.scope = scope
        self.constants = Evaluator(scope)
        self._layouts: dict[tuple[Any, ...], Layout | SharedLayout] = {}

    def type(self, node: Node) -> Type:
        """The type that a node means. Raises CompileError."""
        if node.kind == "ELEM":
            return TileType(ELEMS[node.text])
        if node.kind == "UPPER":
            return self._named(node)
        space, elem_node, dims, options = node.children
        elem = self.elem(elem_node)
        dim_nodes: list[Node] = dims.children if dims is not None else []
        match space.children[0].text:
            case "global":
                return self._global(node, elem, dim_nodes, options.children)
            case "tile":
                shape = self._shape(node, dim_nodes, 0, 3)
                return TileType(elem, shape, self._layout(shape, options.children))
            case "fragment":
                for o in options.children:
                    self.scope.fail("E0356", "this option does not belong to a fragment", o, legal="fragment<bf16[8]>")
                (count,) = self._shape(node, dim_nodes, 1, 1)
                return FragmentType(elem, count)
            case _:
                shape = self._shape(node, dim_nodes, 1, 3)
                return SharedType(elem, shape, self._shared_layout(elem, shape, options.children))

    def elem(self, node: Node) -> Elem:
        """An element type: built in, or a parameter of type `type`."""
        if node.kind == "ELEM":
            return ELEMS[node.text]
        if node.text in self.scope.types and node.text not in self.scope.values:
            t = self._named(node)
            if isinstance(t, TileType) and t.is_scalar:
                return t.elem
            self.scope.fail("E0350", f"{node.text} is {t}, not an element type", node, legal="bf16, f32, i32, …")
        if node.text not in self.scope.values and node.text not in self.scope.types:
            types = [n for n, v in self.scope.values.items() if isinstance(v, Elem)]
            hint = (
                did_you_mean(node.text, [*types, *self.scope.types]) or "an element type, or a parameter of type 'type'"
            )
            self.scope.fail("E0205", f"there is no type {node.text}", node, legal=hint)
        value = self.constants.expr(node)
        if not isinstance(value, Elem):
            self.scope.fail(
                "E0350",
                f"{node.text} is of kind {kind_of(value)}, not a type",
                node,
                legal="a parameter of type 'type'",
            )
        return value

    def _named(self, node: Node) -> Type:
        if node.text in self.scope.values:
            return TileType(self.elem(node))
        if node.text not in self.scope.types:
            hint = did_you_mean(node.text, self.scope.names()) or f"type {node.text} = … before the kernel"
            self.scope.fail("E0205", f"there is no type {node.text}", node, legal=hint)
        t = self.scope.types[node.text]
        if t is None:
            raise Poisoned
        return t

    def integer(self, node: Node, what: str) -> int:
        """A compile-time integer."""
        value = self.constants.expr(node)
        if not isinstance(value, int) or isinstance(value, bool):
            self.scope.fail("E0345", f"{what} is of kind {kind_of(value)}", node, legal="a compile-time integer")
        return value

    def _shape(self, node: Node, dims: Sequence[Node], low: int, high: int) -> tuple[int, ...]:
        if not low <= len(dims) <= high:
            self.scope.fail("E0315", f"{len(dims)} dimensions", node, legal=f"{low} to {high} dimensions")
        shape: list[int] = []
        size = 1
        for d in dims:
            n = self.integer(d, "a dimension")
            if n < 1:
                self.scope.fail("E0316", f"a dimension of size {n}", d, legal="sizes of at least 1")
            shape.append(n)
            size *= n
        if size > MAX_ELEMENTS:
            self.scope.fail("E0344", f"a tile of {size} elements", node, legal=f"at most {MAX_ELEMENTS} elements")
        return tuple(shape)

    # -- views -------------------------------------------------------------------------------------------------------

    def _global(self, node: Node, elem: Elem, dims: list[Node], options: list[Node]) -> GlobalType:
        if not 1 <= len(dims) <= 5:
            self.scope.fail("E0352", f"a view of rank {len(dims)}", node, legal="ranks 1 to 5")
        shape = tuple(self._dim(d, 1) for d in dims)
        strides: tuple[int | str, ...] | None = None
        for o in options:
            if o.kind != "strides" or o.children[0].text != "strides":
                self.scope.fail("E0356", "this option does not belong to a view", o, legal="strides = [S0, S1]")
            if strides is not None:
                self.scope.fail("E0356", "the strides are given twice", o, legal="strides once")
            listed = o.children[1].children if o.children[1] is not None else []
            if len(listed) != len(shape):
                self.scope.fail(
                    "E0352",
                    f"{len(listed)} strides for {len(shape)} dimensions",
                    o,
                    legal=f"{len(shape)} strides, in elements",
                )
            strides = tuple(self._dim(d, 0) for d in listed)
        return GlobalType(elem, shape, strides)

    def _dim(self, node: Node, low: int) -> int | str:
        if node.kind == "UPPER" and node.text not in self.scope.values:
            if node.text in self.scope.types:
                self.scope.fail("E0350", f"{node.text} is a type", node, legal="an integer or a dimension symbol")
            return node.text
        for part in node.walk():
            if part.kind == "UPPER" and part.text not in self.scope.values:
                self.scope.fail(
                    "E0353",
                    f"a dimension cannot be computed from the symbol {part.text}",
                    node,
                    legal="an integer, or one symbol of its own",
                )
        value = self.integer(node, "a dimension")
        if not low <= value < 1 << 63:
            self.scope.fail("E0316", f"a dimension or stride of {value}", node, legal=f"{low} to 2^63 - 1, or a symbol")
        return value

    # -- layouts -----------------------------------------------------------------------------------------------------

    def _one_layout(self, options: list[Node], what: str) -> Node | None:
        for o in options:
            if o.kind != "layout":
                self.scope.fail("E0356", f"this option does not belong to a {what}", o, legal="a layout")
        if len(options) > 1:
            self.scope.fail("E0356", f"a {what} has one layout", options[1], legal="one layout")
        return options[0] if options else None

    def _layout(self, shape: tuple[int, ...], options: list[Node]) -> Layout | None:
        node = self._one_layout(options, "tile")
        if node is None:
            return None
        text = self.scope.source.text[node.start : node.end]
        found = self._layouts.get((shape, text))
        if isinstance(found, Layout):
            return found
        name, args = node.children
        if name.text != "linear":
            self.scope.fail(
                "E0351", f"tiles have no layout '{name.text}'", name, legal="linear(reg = …, lane = …, wave = …)"
            )
        bases: dict[str, Any] = {}
        for a in args.children if args is not None else []:
            if a.kind != "named_attribute" or a.children[0].text not in ("reg", "lane", "wave", "reps"):
                self.scope.fail("E0351", "this does not belong to a layout", a, legal="reg, lane, wave and reps")
            bases[a.children[0].text] = self._vectors(a.children[1])
        for part in ("reg", "lane", "wave"):
            if part not in bases:
                self.scope.fail(
                    "E0351", f"the layout lacks '{part}'", node, legal="linear(reg = …, lane = …, wave = …)"
                )
        try:
            layout = Layout.from_bases(shape, bases["reg"], bases["lane"], bases["wave"], bases.get("reps"))
        except (LayoutError, TypeError) as e:
            text = str(e) if isinstance(e, LayoutError) else "reg, lane and wave are lists of vectors, reps is a list"
            self.scope.fail("E0351", f"no layout of {list(shape)}: {text}", node, legal="vectors that span the tile")
        self._layouts[shape, self.scope.source.text[node.start : node.end]] = layout
        return layout

    def _vectors(self, node: Node, depth: int = 0) -> Any:
        """Nested lists of integers, as tuples."""
        if node.kind != "list":
            return self.integer(node, "a coordinate")
        self._check_depth(node, depth)
        return tuple(self._vectors(c, depth + 1) for c in node.children if c is not None)

    def _check_depth(self, node: Node, depth: int) -> None:
        if depth > MAX_LIST_DEPTH:
            self.scope.fail("E0108", "lists nested too deeply", node, legal=f"at most {MAX_LIST_DEPTH} levels")

    def _shared_layout(self, elem: Elem, shape: tuple[int, ...], options: list[Node]) -> SharedLayout | None:
        node = self._one_layout(options, "buffer")
        if node is None:
            return None
        name, args = node.children
        legal = "rows, padded(pitch), slabs(bytes, pitch), swizzle(bits, base, shift), xor(bit, mask, …), blocks(bytes, bit, mask, …)"
        legal += " or rotate(bytes, mask, pieces, …)"
        parts = args.children if args is not None else []
        for a in parts:
            if a.kind == "named_attribute":
                self.scope.fail("E0351", f"layouts of buffers have no '{a.children[0].text}'", a, legal=legal)
        numbers = [self.integer(a, "a parameter of a layout") for a in parts]
        try:
            return SharedLayout.from_spec(SharedType(elem, shape).matrix, elem.bits, name.text, numbers)
        except LayoutError as e:
            self.scope.fail("E0351", f"no LDS layout: {e}", node, legal=legal)

    # -- attribute values --------------------------------------------------------------------------------------------

    def attribute(self, node: Node, *, symbol: bool = False, depth: int = 0) -> AttrValue:
        """The value of an attribute; with `symbol` a bare upper-case name is the name of a dimension symbol."""
        match node.kind:
            case "list":
                self._check_depth(node, depth)
                return tuple(self.attribute(c, symbol=symbol, depth=depth + 1) for c in node.children if c is not None)
            case "word":
                return str(node.children[0].text)
            case "SYMBOL":
                return node.text
            case "STRING":
                return Text(self.scope.text(node))
            case "UPPER" if symbol:
                return self._symbol(node)
            case _:
                return self.constants.expr(node)

    def _symbol(self, node: Node) -> str:
        if node.text not in self.scope.symbols:
            known = ", ".join(self.scope.symbols) or "none: no argument has one"
            self.scope.fail(
                "E0205",
                f"{node.text} is not a dimension of an argument",
                node,
                legal=did_you_mean(node.text, self.scope.symbols) or f"one of: {known}",
            )
        return node.text
