"""The IR itself: values, operations, blocks, kernels, schedules, modules.

A kernel is a structured SSA program. An `Op` has operands, attributes, results and, for control flow, regions of one
`Block` each. Identity matters for values; `key()` gives the structure that `==` on kernels compares (names, types,
attributes – everything but locations).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import chain
from typing import Any

from tileir.ir.expr import Expr
from tileir.ir.location import UNKNOWN, Loc
from tileir.ir.types import I32, I64, Elem, GlobalType, SharedType, TileType, Type
from tileir.records import dataclass


class Text(str):
    """An attribute that is a text in quotes; a plain string is a word."""

    __slots__ = ()


AttrValue = int | float | bool | str | Elem | tuple[Any, ...] | None


class Value:
    """An SSA value: a name unique in its kernel, a type, and where it was defined."""

    __slots__ = ("loc", "name", "owner", "type")

    def __init__(self, name: str, type: Type, loc: Loc = UNKNOWN):
        self.name = name
        self.type = type
        self.loc = loc
        self.owner: Op | None = None  # the defining op; None for kernel and block arguments

    @property
    def tile(self) -> TileType:
        """The type, known to be a tile or scalar."""
        assert isinstance(self.type, TileType), self
        return self.type

    @property
    def elem(self) -> Elem:
        """The element type, whatever holds the elements."""
        return self.type.elem

    @property
    def view(self) -> GlobalType | SharedType:
        """The type, known to be a view of global memory or an LDS buffer."""
        assert isinstance(self.type, GlobalType | SharedType), self
        return self.type

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


class Op:
    """One operation. `spans` belongs to ops that access memory through `%view[index, start +: extent]`: one entry per
    index, the extent of a span or None for a plain index; the view and its indices are ordinary operands."""

    __slots__ = ("attrs", "loc", "name", "operand_locs", "operands", "regions", "results", "spans")

    def __init__(
        self,
        name: str,
        operands: list[Value],
        attrs: dict[str, AttrValue] | None = None,
        results: list[Value] | None = None,
        regions: list[Block] | None = None,
        spans: tuple[int | None, ...] | None = None,
        loc: Loc = UNKNOWN,
        operand_locs: list[Loc] | None = None,
    ):
        self.name = name
        self.operands = operands
        self.attrs: dict[str, AttrValue] = attrs or {}
        self.results: list[Value] = results or []
        self.regions: list[Block] = regions or []
        self.spans = spans
        self.loc = loc
        self.operand_locs: list[Loc] = operand_locs or []
        for r in self.results:
            r.owner = self

    @property
    def result(self) -> Value:
        """The only result."""
        assert len(self.results) == 1, self.name
        return self.results[0]

    def loc_of(self, operand: int) -> Loc:
        """Where that operand was written, or the whole op when unknown."""
        if operand < len(self.operand_locs) and self.operand_locs[operand].line:
            return self.operand_locs[operand]
        return self.loc

    def walk(self) -> Iterator[Op]:
        """This op and, in program order, every op nested in it."""
        yield self
        for region in self.regions:
            yield from region.walk()

    def key(self) -> tuple[Any, ...]:
        return (
            self.name,
            tuple(v.name for v in self.operands),
            tuple(sorted((k, _attr_key(v)) for k, v in self.attrs.items())),
            self.spans,
            tuple((v.name, v.type) for v in self.results),
            tuple(r.key() for r in self.regions),
        )

    def __repr__(self) -> str:
        return f"<{self.name} at {self.loc}>"


class Block:
    """A sequence of ops with block arguments; in a region the last op is a `yield`."""

    __slots__ = ("args", "ops")

    def __init__(self, args: list[Value] | None = None, ops: list[Op] | None = None):
        self.args: list[Value] = args or []
        self.ops: list[Op] = ops or []

    def walk(self) -> Iterator[Op]:
        """Every op in program order, nested ones after the op that holds them."""
        # A stack and no generators in generators: each of those would be woken for every op below it.
        pending = [iter(self.ops)]
        while pending:
            for op in pending[-1]:
                yield op
                if op.regions:
                    pending.append(chain.from_iterable(region.ops for region in op.regions))
                    break
            else:
                pending.pop()

    @property
    def terminator(self) -> Op:
        return self.ops[-1]

    def key(self) -> tuple[Any, ...]:
        return (tuple((v.name, v.type) for v in self.args), tuple(op.key() for op in self.ops))


def _attr_key(value: AttrValue) -> Any:
    if isinstance(value, Elem):
        return ("elem", value.name)
    return (type(value).__name__, repr(value))  # repr tells 1 from 1.0 and True, and makes nan equal itself


@dataclass(frozen=True)
class AbiArgument:
    """One argument of the compiled kernel. `kind` is "view" (a pointer), "symbol", "scalar" or "reports" (a pointer,
    see `tileir.ir.reports`)."""

    name: str
    kind: str
    type: Type


def names_in_metadata(abi: Sequence[AbiArgument]) -> list[str]:
    """The names of arguments in the code object, which LLVM keeps unique: a symbol that has the name of an argument of the
    kernel (`%M: global<f32[M]>`) is called `M.symbol` there."""
    arguments = {a.name for a in abi if a.kind != "symbol"}
    return [f"{a.name}.symbol" if a.kind == "symbol" and a.name in arguments else a.name for a in abi]


@dataclass(eq=False)
class Kernel:
    """A kernel with all compile-time parameters bound (`params` records them).

    `attrs` holds what passes decided for the whole kernel (target, waves, lds, …); they are part of the text.
    """

    name: str
    params: dict[str, int | float | bool | Elem]
    args: list[Value]
    grid: tuple[Expr, ...]
    body: Block
    fp: str = "default"
    aliases: tuple[tuple[str, str], ...] = ()
    attrs: dict[str, AttrValue] = field(default_factory=dict[str, AttrValue])
    loc: Loc = UNKNOWN

    def walk(self) -> Iterator[Op]:
        """Every op in program order, nested ones after the op that holds them."""
        return self.body.walk()

    def symbols(self) -> dict[str, Elem]:
        """Dimension symbols in order of first appearance: i32, or i64 for those that are only strides."""
        dims: set[str] = set()
        order: dict[str, None] = {}
        for arg in self.args:
            if isinstance(arg.type, GlobalType):
                for d in arg.type.dims:
                    if isinstance(d, str):
                        dims.add(d)
                        order.setdefault(d)
                for d in arg.type.strides or ():
                    if isinstance(d, str):
                        order.setdefault(d)
        return {s: I32 if s in dims else I64 for s in order}

    def abi(self) -> list[AbiArgument]:
        """Arguments of the compiled kernel: each view's pointer is followed by the symbols that it introduces."""
        elems = self.symbols()
        seen: set[str] = set()
        out: list[AbiArgument] = []
        for arg in self.args:
            if isinstance(arg.type, GlobalType):
                out.append(AbiArgument(arg.name, "view", arg.type))
                for d in (*arg.type.dims, *(arg.type.strides or ())):
                    if isinstance(d, str) and d not in seen:
                        seen.add(d)
                        out.append(AbiArgument(d, "symbol", TileType(elems[d])))
            else:
                out.append(AbiArgument(arg.name, "scalar", arg.type))
        from tileir.ir import reports

        if reports.reports(self):
            out.append(AbiArgument(reports.ARGUMENT, "reports", reports.TYPE))
        return out

    def key(self) -> tuple[Any, ...]:
        return (
            self.name,
            tuple((k, _attr_key(v)) for k, v in self.params.items()),
            tuple((a.name, a.type) for a in self.args),
            self.grid,
            self.fp,
            self.aliases,
            tuple(sorted((k, _attr_key(v)) for k, v in self.attrs.items())),
            self.body.key(),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kernel) and self.key() == other.key()

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Directive:
    """One line of a schedule. `kind` is waves, mma, stage, loop, order, registers or pin; `values` are the SSA names that it
    speaks of (without %); `settings` its parameters by name."""

    kind: str
    values: tuple[str, ...] = ()
    settings: tuple[tuple[str, AttrValue], ...] = ()
    loc: Loc = field(default=UNKNOWN, compare=False)
    value_locs: tuple[Loc, ...] = field(default=(), compare=False)

    def get(self, name: str, default: Any = None) -> Any:
        return dict(self.settings).get(name, default)


@dataclass(frozen=True)
class Schedule:
    """How a kernel maps onto one chip. `applies` is the value of the `when` condition under the kernel's parameters and
    `when` its text ("" if there is none)."""

    name: str
    kernel: str
    target: str
    when: str
    applies: bool
    directives: tuple[Directive, ...]
    loc: Loc = field(default=UNKNOWN, compare=False)


@dataclass
class Module:
    """The contents of one `.tile` file. `sources` maps file names to texts, for diagnostics."""

    kernels: list[Kernel]
    schedules: list[Schedule] = field(default_factory=list[Schedule])
    sources: dict[str, str] = field(default_factory=dict[str, str], compare=False)

    def kernel(self, name: str) -> Kernel:
        return next(k for k in self.kernels if k.name == name)
