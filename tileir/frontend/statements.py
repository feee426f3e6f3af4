"""Statements: assignments, control flow and the values it carries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from tileir.frontend.expressions import Expressions, Operand
from tileir.frontend.parser import Node
from tileir.frontend.scope import Faults, Poisoned, Scope
from tileir.frontend.types import Types
from tileir.ir import registry
from tileir.ir.core import AttrValue, Block, Op, Value
from tileir.ir.diagnostics import CompileError, Note
from tileir.ir.location import Loc
from tileir.ir.types import I32, Elem, TileType, Type, scalar

MAX_REGIONS = 24
"""Levels of nested control flow."""


class Statements:
    """Elaborates the body of one kernel. A fault in a statement is recorded, its results become poisoned, and the
    following statements are still checked."""

    def __init__(self, scope: Scope, types: Types, expressions: Expressions, grid_rank: int):
        self.scope = scope
        self.types = types
        self.x = expressions
        self.faults: Faults = scope.faults
        self.grid_rank = grid_rank
        self.defined: dict[str, Loc] = {}
        self.aliases: dict[str, str] = {}
        self._depth = 0

    # -- names -------------------------------------------------------------------------------------------------------

    def define(self, node: Node, value: Value | None) -> None:
        """Makes a name mean a value (None if that is unknown). Raises CompileError if it means one already."""
        name = node.text[1:]
        if name in self.defined:
            self._fail_twice(node, self.defined[name])
        self.defined[name] = self.scope.loc(node)
        self.x.env[name] = value

    def _check_new(self, names: Sequence[Node]) -> None:
        """Raises CompileError if one of the names on the left of "=" exists, or stands there twice."""
        first: dict[str, Loc] = {}
        for n in names:
            name = n.text[1:]
            if name in self.defined or name in first:
                self._fail_twice(n, self.defined.get(name) or first[name])
            first[name] = self.scope.loc(n)

    def _fail_twice(self, node: Node, first: Loc) -> NoReturn:
        self.scope.fail(
            "E0202",
            f"{node.text} is defined twice",
            node,
            legal="a name that is unique in the kernel",
            notes=[Note("first defined here", first)],
        )

    def _poison(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            self.faults.attempt(lambda node=node: self.define(node, None))

    # -- statements --------------------------------------------------------------------------------------------------

    def statements(self, nodes: Sequence[Node]) -> bool:
        """Elaborates statements into the current block; False if any of them was at fault."""
        sound = True
        for node in nodes:
            start = len(self.x.builder.block.ops)
            try:
                self._statement(node)
            except CompileError as e:
                self.faults.add(e)
                sound = False
            except Poisoned:
                sound = False
            trailer = node.children[-1]
            if trailer is not None:
                emitted = self.x.builder.block.ops[start:]
                placed = self.faults.attempt(lambda ops=emitted, t=trailer: self._relocate(ops, t) or True)
                sound &= placed is not None
        return sound

    def _statement(self, node: Node) -> None:
        match node.kind:
            case "assign":
                results, expression, types, _ = node.children
                names: list[Node] = results.children
                try:
                    self._assign(node, names, expression, types)
                except (CompileError, Poisoned):
                    self._poison([n for n in names if n.text[1:] not in self.defined])
                    raise
            case "control_assign":
                self._control(node.children[1], node.children[0].children)
            case "control_statement":
                self._control(node.children[0], [])
            case _:
                self._call_statement(node.children[0])

    def _assign(self, node: Node, names: list[Node], expression: Node, types: Node | None) -> None:
        texts = [n.text[1:] for n in names]
        self._check_new(names)
        written = [self.types.type(t) for t in types.children] if types is not None else []
        if len(written) > len(names):
            self.scope.fail(
                "E0303",
                f"{len(written)} types for {len(names)} names",
                types.children[len(names)],  # type: ignore[union-attr]
                legal="one type for each name",
            )
        start = len(self.x.builder.block.ops)
        values = self.x.statement(expression, texts, written)
        self._check_grid_rank(expression, len(names))
        if len(values) != len(names):
            self.scope.fail(
                "E0303", f"one value, but {len(names)} names", expression, legal="one name on the left of '='"
            )
        wanted: list[Type | None] = [*written, *[None] * (len(names) - len(written))]
        for n, text, value, want in zip(names, texts, values, wanted, strict=True):
            self._bind(n, text, value, want, expression, self.x.builder.block.ops[start:])

    def _bind(
        self, node: Node, name: str, value: Operand, want: Type | None, expression: Node, emitted: Sequence[Op]
    ) -> None:
        """Gives a result its name."""
        if not isinstance(value, Value):
            elem = want.elem if isinstance(want, TileType) else None
            if want is not None and not (isinstance(want, TileType) and want.is_scalar):
                self.scope.fail(
                    "E0304", f"a single number is not {want}", expression, legal=f"fill(…) : {want}, or a scalar type"
                )
            value = self.x.materialise(value, expression, elem, name)
        if value.name != name:
            if want is not None and want != value.type:
                self.scope.fail("E0304", f"this is {value.type}, not {want}", expression, legal=f": {value.type}")
            if any(value in op.results for op in emitted):
                value.name = name  # made for this statement: it takes the name that the author gave
            else:
                self.aliases[name] = value.name
        self.define(node, value)

    def _call_statement(self, node: Node) -> None:
        result = self.x.call_op(node)
        if isinstance(result, Op):
            self._check_grid_rank(node, len(result.results))
            return
        self.scope.fail("E0349", "this statement has no effect", node, legal="bind it to a name, or leave it out")

    def _check_grid_rank(self, node: Node, names: int) -> None:
        if node.kind != "call" or node.children[0].text not in ("program_id", "num_programs"):
            return
        if names != self.grid_rank:
            self.scope.fail(
                "E0511",
                f"'{node.children[0].text}' gives one value per grid dimension: {self.grid_rank}, not {names}",
                node,
                legal=", ".join(f"%{c}" for c in "ijk"[: self.grid_rank]) + f" = {node.children[0].text}()",
            )

    def _relocate(self, ops: Sequence[Op], trailer: Node) -> None:
        """A `loc(…)` trailer says where the op was written originally."""
        file, line, column = trailer.children
        loc = self.scope.place(file, line, column)
        for op in ops:
            op.loc = loc
            op.operand_locs = []
            for r in op.results:
                r.loc = loc

    # -- control flow ------------------------------------------------------------------------------------------------

    def _control(self, node: Node, names: Sequence[Node]) -> None:
        """A control-flow statement. If its body is at fault, its results still have the types of the carried values."""
        self._depth += 1
        try:
            if self._depth > MAX_REGIONS:
                self.scope.fail(
                    "E0108",
                    f"control flow nested deeper than {MAX_REGIONS} levels",
                    node.children[-1] or node,
                    legal="flatter control flow",
                )
            match node.kind:
                case "for":
                    op = self._for(node)
                case "while":
                    op = self._while(node)
                case "if":
                    op = self._if(node)
                case _:
                    op = self._guard(node)
            self._finish(op, names, node)
        except (CompileError, Poisoned):
            self._poison([n for n in names if n.text[1:] not in self.defined])
            raise
        finally:
            self._depth -= 1

    def _finish(self, draft: _Draft, names: Sequence[Node], node: Node) -> None:
        """Checks and appends the op, and names its results."""
        if not draft.sound:
            for n, t in zip(names, draft.carried, strict=False):
                self.faults.attempt(lambda n=n, t=t: self.define(n, Value(n.text[1:], t) if t is not None else None))
            raise Poisoned
        self._check_new(names)
        op = self.x.builder.op(
            node.kind,
            draft.operands,
            draft.attrs,
            regions=draft.regions,
            names=[n.text[1:] for n in names],
            loc=self._head(node),
            operand_locs=draft.operand_locs,
            num_results=len(names),
        )
        for n, r in zip(names, op.results, strict=True):
            self.define(n, r)

    def _head(self, node: Node) -> Loc:
        """The line of the keyword: what a message about the whole statement underlines."""
        region = next(c for c in node.children if c is not None and c.kind == "region")
        return self.scope.source.loc(node.start, self.scope.source.rstrip(region.start))

    def _attributes(self, node: Node) -> dict[str, AttrValue]:
        return self.x.attributes(registry.get(node.kind), node.children[0])

    def _carry(self, node: Node | None) -> tuple[list[Node], list[Value | None], list[Loc]]:
        """Names, initial values (None where at fault) and where those were written."""
        names: list[Node] = []
        inits: list[Value | None] = []
        locs: list[Loc] = []
        for binding in node.children if node is not None else []:
            name, expression = binding.children
            names.append(name)
            inits.append(self.faults.attempt(lambda e=expression: self.x.materialise(self.x.expr(e), e)))
            locs.append(self.scope.loc(expression))
        return names, inits, locs

    def _region(
        self,
        node: Node,
        args: Sequence[tuple[Node, Type | None]],
        want: Sequence[Type | None] | None,
        hidden: Sequence[tuple[str, Type | None]] = (),
    ) -> tuple[Block, bool]:
        """A nested block. `args` are named arguments; `hidden` ones share the name of an outer argument, which they
        replace inside. `want` are the types that it should yield, None if that is open."""
        block = Block()
        outer, self.x.builder.block = self.x.builder.block, block
        env = self.x.env
        size = len(env)  # names are added at the end, so that leaving the region takes off what it added
        saved = {name: env[name] for name, _ in hidden if name in env}
        sound = True
        try:
            for name, t in args:
                value = Value(name.text[1:], t, self.scope.loc(name)) if t is not None else None
                sound &= self.faults.attempt(lambda n=name, v=value: self.define(n, v) or True) is not None
                sound &= value is not None
                if value is not None:
                    block.args.append(value)
            for name, t in hidden:
                value = Value(self.x.builder.names.fresh(name), t, self.scope.loc(node)) if t is not None else None
                sound &= value is not None
                env[name] = value
                if value is not None:
                    block.args.append(value)
            *statements, last = node.children
            sound &= self.statements(statements)
            sound &= self.faults.attempt(lambda: self._yield(node, last, want, block) or True) is not None
        finally:
            self.x.builder.block = outer
            while len(env) > size:
                name, _ = env.popitem()
                if name in self.defined:
                    self.x.ended[name] = self.defined[name]
            env.update(saved)
        return block, sound

    def _yield(self, region: Node, node: Node | None, want: Sequence[Type | None] | None, block: Block) -> None:
        """The end of a region; where nothing is carried, it need not be written."""
        brace = self.scope.source.loc(region.end - 1, region.end)
        if node is None:
            if want:
                self.scope.fail_at(
                    "E0502",
                    f"this region must yield {len(want)} value{'s' if len(want) != 1 else ''}",
                    brace,
                    legal="yield …, one value for each that is carried",
                )
            self.x.builder.insert(Op("yield", [], loc=brace))
            return
        parts: list[Node] = node.children[0].children if node.children[0] is not None else []
        values: list[Value] = []
        for i, part in enumerate(parts):
            expected = want[i] if want is not None and i < len(want) else None
            elem: Elem | None = expected.elem if isinstance(expected, TileType) and expected.is_scalar else None
            values.append(self.x.materialise(self.x.expr(part), part, elem))
        op = Op("yield", values, loc=self.scope.loc(node), operand_locs=[self.scope.loc(p) for p in parts])
        start = len(self.x.builder.block.ops)
        self.x.builder.insert(op)
        if node.children[1] is not None:
            self._relocate(self.x.builder.block.ops[start:], node.children[1])

    def _for(self, node: Node) -> _Draft:
        _, variable, *bounds, carry, region = node.children
        attrs = self.faults.attempt(lambda: self._attributes(node))
        limits = [self.faults.attempt(lambda b=b: self.x.expr(b)) for b in bounds]
        limits[2] = self.faults.attempt(lambda: self._step(limits[2], bounds[2]))
        met = next((v.type.elem for v in limits if isinstance(v, Value) and isinstance(v.type, TileType)), None)
        elem = met or I32
        values = [
            self.faults.attempt(lambda v=v, b=b: self.x.materialise(v, b, elem)) if v is not None else None
            for v, b in zip(limits, bounds, strict=True)
        ]
        names, inits, locs = self._carry(carry)
        carried = [v.type if v is not None else None for v in inits]
        args = [(variable, scalar(elem)), *zip(names, carried, strict=True)]
        block, sound = self._region(region, args, carried)
        draft = _Draft(attrs, [*values, *inits], [block], carried, sound)
        draft.operand_locs = [*(self.scope.loc(b) for b in bounds), *locs]
        return draft

    def _step(self, value: Any, node: Node) -> Any:
        """The step of a loop, which counts upwards if it is known."""
        if isinstance(value, int) and value <= 0:
            self.scope.fail("E0515", f"a loop with a step of {value}", node, legal="a step of at least 1")
        return value

    def _while(self, node: Node) -> _Draft:
        _, carry, condition, do_carry, body = node.children
        attrs = self.faults.attempt(lambda: self._attributes(node))
        names, inits, locs = self._carry(carry)
        carried = [v.type if v is not None else None for v in inits]
        # the names of the carried values stay visible after the condition region: the body may carry them explicitly
        first, sound = self._region(condition, list(zip(names, carried, strict=True)), None)
        if do_carry is None:
            hidden = [(n.text[1:], t) for n, t in zip(names, carried, strict=True)]
            second, well = self._region(body, [], carried, hidden)
        else:
            self._same_carry(do_carry, [n.text for n in names])
            renamed = [b.children[0] for b in do_carry.children]
            second, well = self._region(body, list(zip(renamed, carried, strict=True)), carried)
        draft = _Draft(attrs, inits, [first, second], carried, sound and well)
        draft.operand_locs = locs
        return draft

    def _same_carry(self, node: Node, want: list[str]) -> None:
        """A second `carry` of one statement renames the values of the first, in order."""
        got = [self.scope.source.text[b.children[1].start : b.children[1].end] for b in node.children]
        if got != want:
            legal = ", ".join(f"%name = {w}" for w in want)
            self.scope.fail(
                "E0513",
                "this carry does not hand on the values of the first one in order",
                node,
                legal=f"carry({legal})" if want else "no carry",
            )

    def _if(self, node: Node) -> _Draft:
        _, condition, carry, then, otherwise = node.children
        attrs = self.faults.attempt(lambda: self._attributes(node))
        test = self.faults.attempt(lambda: self.x.materialise(self.x.expr(condition), condition))
        names, inits, locs = self._carry(carry)
        carried = [v.type if v is not None else None for v in inits]
        block, sound = self._region(
            then, list(zip(names, carried, strict=True)), carried if otherwise is None else None
        )
        regions = [block]
        results: list[Type | None] = list(carried)
        if otherwise is not None:
            if block.ops and block.ops[-1].name == "yield":
                results = [v.type for v in block.ops[-1].operands]
            again, region = otherwise.children
            hidden: list[tuple[str, Type | None]] = []
            args: list[tuple[Node, Type | None]] = []
            if again is None:
                hidden = [(n.text[1:], t) for n, t in zip(names, carried, strict=True)]
            else:
                self._same_carry(again, self._init_texts(carry))
                args = list(zip([b.children[0] for b in again.children], carried, strict=True))
            second, well = self._region(region, args, results if sound else None, hidden)
            regions.append(second)
            sound &= well
        draft = _Draft(attrs, [test, *inits], regions, results, sound)
        draft.operand_locs = [self.scope.loc(condition), *locs]
        return draft

    def _init_texts(self, carry: Node | None) -> list[str]:
        parts: list[Node] = carry.children if carry is not None else []
        return [self.scope.source.text[b.children[1].start : b.children[1].end] for b in parts]

    def _guard(self, node: Node) -> _Draft:
        _, condition, carry, region = node.children
        attrs = self.faults.attempt(lambda: self._attributes(node))
        test = self.faults.attempt(lambda: self.x.materialise(self.x.expr(condition), condition))
        names, inits, locs = self._carry(carry)
        carried = [v.type if v is not None else None for v in inits]
        block, sound = self._region(region, list(zip(names, carried, strict=True)), carried)
        draft = _Draft(attrs, [test, *inits], [block], carried, sound)
        draft.operand_locs = [self.scope.loc(condition), *locs]
        return draft


class _Draft:
    """A control-flow op before it is checked as a whole."""

    def __init__(
        self,
        attrs: dict[str, AttrValue] | None,
        operands: Sequence[Value | None],
        regions: list[Block],
        carried: Sequence[Type | None],
        sound: bool,
    ):
        self.sound = sound and attrs is not None and all(v is not None for v in operands)
        self.attrs: dict[str, AttrValue] = attrs or {}
        self.operands: list[Value] = [v for v in operands if v is not None]
        self.regions = regions
        self.carried = carried
        self.operand_locs: list[Loc] = []
