"""Building a kernel op by op.

    k = KernelBuilder("axpy")
    X, Y = k.view("X", f32, ["N"]), k.view("Y", f32, ["N"])
    a = k.scalar("a", f32)
    k.grid(cdiv(symbol("N"), 256))
    (i,) = k.program_id()
    here = span(i * 256, 256)
    k.store(a * k.load(X[here]) + k.load(Y[here]), Y[here])
    print(k)                            # the text
    compile(k, "gfx950").launch(...)

Every call type-checks at once; a fault raises CompileError at the line of the Python program that made the call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tileir.api.locations import assigned_names, caller, with_sources
from tileir.api.ops import Ops
from tileir.api.schedule import ScheduleBuilder
from tileir.api.values import Access, Dims, Number, Operand, Size, Span, Tile, View, size_expr
from tileir.frontend.expressions import literal_elems
from tileir.ir import registry
from tileir.ir.builder import Builder, Names
from tileir.ir.core import AttrValue, Block, Kernel, Module, Op, Value
from tileir.ir.diagnostics import CompileError, Diagnostic, error
from tileir.ir.location import Loc
from tileir.ir.printer import print_module
from tileir.ir.types import Elem, GlobalType, TileType, Type
from tileir.ir.verifier import verify

MAX_RANK = 5
_SYMBOL = re.compile(r"[A-Z][A-Za-z_0-9]*")


class KernelBuilder(Ops):
    """A kernel under construction. Arguments and grid come first, then ops in program order.

    `params` are recorded in the text as compile-time parameters; `fp` is "default", "strict" or "fast".
    """

    def __init__(
        self, name: str, *, params: Mapping[str, int | float | bool | Elem] | None = None, fp: str = "default"
    ):
        self._loc = caller()
        if not name.isidentifier() or not name.isascii():
            raise with_sources(
                [Diagnostic("E0216", f"'{name}' is no name of a kernel", self._loc, legal="letters, digits and _")]
            )
        if fp not in ("default", "strict", "fast"):
            raise with_sources([Diagnostic("E0214", f"fp '{fp}'", self._loc, legal="default, strict, fast")])
        self.name = name
        self.fp = fp
        self.params: dict[str, int | float | bool | Elem] = dict(params or {})
        self.args: list[Value] = []
        self.aliases: list[tuple[str, str]] = []
        self._schedules: list[ScheduleBuilder] = []
        self._grid: tuple[Size | int | str, ...] = ()
        self._body = Block()
        self._names = Names()
        self._ir = Builder(self._body, self._names, self._loc)
        self._unnamed: list[tuple[Op, Loc]] = []

    # -- head ----------------------------------------------------------------------------------------------------

    def view(self, name: str, elem: Elem, dims: Dims, *, strides: Dims | None = None) -> View:
        """A view argument; dimensions and strides (in elements) are integers or names of symbols. Row-major by default."""
        if not isinstance(elem, Elem):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise self.fault("E0301", f"{elem!r} is no element type", "tileir.f32, tileir.bf16, …")
        given = (*dims, *(strides or ()))
        if not 1 <= len(dims) <= MAX_RANK or (strides is not None and len(dims) != len(strides)):
            message = f"a view of {len(dims)} dimensions" + (
                f" and {len(strides)} strides" if strides is not None else ""
            )
            raise self.fault("E0352", message, f"1 to {MAX_RANK} dimensions, and a stride for each or none")
        for d in given:
            if not isinstance(d, str) and not (isinstance(d, int) and 0 <= d < 1 << 63):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise self.fault("E0316", f"a dimension or stride of {d}", "0 to 2^63 - 1, or a symbol")
            if isinstance(d, str) and not _SYMBOL.fullmatch(d):
                raise self.fault(
                    "E0216", f"'{d}' is no name of a dimension symbol", "a capital, then letters, digits and _"
                )
        t = GlobalType(elem, tuple(dims), None if strides is None else tuple(strides))
        return View(self, self._argument(name, t))

    def scalar(self, name: str, elem: Elem) -> Tile:
        """A scalar argument."""
        return Tile(self, self._argument(name, TileType(elem)))

    def _argument(self, name: str, t: Type) -> Value:
        if not name.isidentifier() or not name.isascii():
            raise self.fault("E0216", f"'{name}' is no name of an argument", "letters, digits and _")
        if any(a.name == name for a in self.args):
            raise self.fault("E0202", f"%{name} is defined twice", "a name that is unique in the kernel")
        value = Value(self._names.fresh(name), t, caller())
        self.args.append(value)
        return value

    def grid(self, *sizes: Size | int | str) -> None:
        """Number of workgroups along one to three dimensions, as integers or sizes over the symbols of the views."""
        if not 1 <= len(sizes) <= 3:
            raise self.fault("E0514", f"a grid of {len(sizes)} dimensions", "one to three sizes")
        for size in sizes:
            if not isinstance(size, Size | int | str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise self.fault(
                    "E0510", f"a grid size of {size!r}", "integers, symbols, and what cdiv and the like make of them"
                )
        self._grid = sizes

    def alias(self, a: View, b: View) -> None:
        """Declares that two views may overlap in memory."""
        self.aliases.append((self._own(a).name, self._own(b).name))

    # -- ops with a form of their own ----------------------------------------------------------------------------

    def program_id(self) -> tuple[Tile, ...]:
        """The number of this workgroup along each grid dimension."""
        return self._per_dimension("program_id")

    def num_programs(self) -> tuple[Tile, ...]:
        """The number of workgroups along each grid dimension."""
        return self._per_dimension("num_programs")

    def _per_dimension(self, op: str) -> tuple[Tile, ...]:
        if not self._grid:
            raise self.fault("E0510", f"'{op}' before the grid is known", "call grid(…) first")
        return tuple(Tile(self, v) for v in self._emit(op, [], num_results=len(self._grid)).results)

    def dim(self, symbol: str, *, name: str = "") -> Tile:
        """The value of a dimension symbol at run time."""
        return self.emit_one("dim", [], {"symbol": symbol}, name)

    def constant(self, value: Number, elem: Elem, *, name: str = "") -> Tile:
        """A scalar that is known now."""
        return Tile(self, self._emit("constant", [], {"value": value}, types=[TileType(elem)], name=name).result)

    def fill(self, value: Operand, elem: Elem, shape: Sequence[int], *, name: str = "") -> Tile:
        """A tile whose elements all have one value."""
        t = TileType(elem, tuple(shape))
        return Tile(self, self._emit("fill", [value], types=[t], name=name).result)

    # -- control flow --------------------------------------------------------------------------------------------

    def for_(self, start: Operand, end: Operand, step: Operand = 1, **carry: Operand) -> ForLoop:
        """`with k.for_(0, n, 64, acc=zero) as loop:` – a loop from `start` to before `end`; it carries the named values.
        In the body `loop.index` and `loop.acc`; it ends with `loop.yield_(acc=…)`; after it `loop.result`."""
        return ForLoop(self, self.scalars("for", [start, end, step]), carry)

    def while_(self, **carry: Operand) -> WhileLoop:
        """`with k.while_(x=x0) as loop:` with the parts `with loop.condition(): loop.check(…)` and `with loop.body():`."""
        return WhileLoop(self, carry)

    def if_(self, condition: Operand, **carry: Operand) -> Branch:
        """`with k.if_(c, x=x0) as branch:` with the parts `with branch.then():` and, if wanted, `with branch.otherwise():`."""
        return Branch(self, self.scalars("if", [condition]), carry)

    def guard(self, need: Tile, **carry: Operand) -> Guard:
        """`with k.guard(need, x=x0) as cold:` – the body replaces the carried values in the rows where `need` holds."""
        return Guard(self, [need.value], carry)

    # -- emitting ------------------------------------------------------------------------------------------------

    def emit_one(
        self, op: str, operands: Sequence[Operand | Access], attrs: Mapping[str, Any] | None = None, name: str = ""
    ) -> Tile:
        """Appends an op by its name; its result."""
        return Tile(self, self._emit(op, operands, attrs, name=name).result)

    def emit_none(self, op: str, operands: Sequence[Operand | Access], attrs: Mapping[str, Any] | None = None) -> None:
        """Appends an op that has no result."""
        self._emit(op, operands, attrs)

    def scalars(self, op: str, operands: Sequence[Operand]) -> list[Value]:
        """The operands of an op as values; numbers become constants of the element type of the others."""
        loc = caller()
        known = [self._own(o) if isinstance(o, Tile) else o for o in operands]
        elems = literal_elems(registry.get(op), known, ())
        return [self._value(o, e, loc) for o, e in zip(operands, elems, strict=True)]

    def values(self, operands: Iterable[Operand], like: Sequence[Value] | None = None) -> list[Value]:
        """Values that are carried or yielded; a number becomes an f32, i32 or i1, or what it meets in `like`."""
        loc = caller()
        out: list[Value] = []
        for i, o in enumerate(operands):
            elem = like[i].tile.elem if like is not None and i < len(like) else None
            value = self._value(o, elem, loc)
            if elem is not None and not isinstance(o, Tile) and like is not None and like[i].tile.shape:
                value = self._ir.value("fill", [value], types=[like[i].tile], loc=loc)
            out.append(value)
        return out

    def _own(self, operand: Tile | View) -> Value:
        if operand.builder is not self:
            raise self.fault("E0217", f"{operand!r} belongs to another kernel", "values of this kernel")
        return operand.value

    def _value(self, operand: Operand, elem: Elem | None, loc: Loc) -> Value:
        if isinstance(operand, Tile):
            return self._own(operand)
        if elem is None:
            from tileir.frontend.expressions import default_elem

            elem = default_elem([operand])
        if elem.is_float and not isinstance(operand, bool):
            operand = float(operand)
        return self._checked(lambda: self._ir.constant(operand, elem, loc))

    def _emit(
        self,
        op: str,
        operands: Sequence[Operand | Access],
        attrs: Mapping[str, Any] | None = None,
        *,
        types: Sequence[Type] = (),
        num_results: int | None = None,
        name: str = "",
    ) -> Op:
        loc = caller()
        known: list[Value | Number] = []
        spans: list[int | None] | None = None
        view: GlobalType | None = None
        at = 0
        for operand in operands:
            if isinstance(operand, Access):
                view, spans, at = operand.view.type, [], len(known)
                known.append(self._own(operand.view))
                for i in operand.indices:
                    spans.append(i.extent if isinstance(i, Span) else None)
                    start = i.start if isinstance(i, Span) else i
                    known.append(self._own(start) if isinstance(start, Tile) else start)
            elif isinstance(operand, Tile):
                known.append(self._own(operand))
            elif isinstance(operand, int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
                known.append(operand)
            else:  # an author without a type checker
                raise self.fault(
                    "E0301", f"'{op}' gets {operand!r}", "tiles, numbers, and accesses such as A[i, span(j, 64)]"
                )
        elems = literal_elems(registry.get(op), known, types)
        if view is not None and spans is not None:
            index = range(at + 1, at + 1 + len(spans))
            elems = [None if i in index else e if i == at else view.elem for i, e in enumerate(elems)]
        values = [v if isinstance(v, Value) else self._value(v, e, loc) for v, e in zip(known, elems, strict=True)]
        given: dict[str, AttrValue] = dict(attrs or {})
        made = self._checked(
            lambda: self._ir.op(
                op, values, given, spans=None if spans is None else tuple(spans), types=types, loc=loc,
                names=[self._names.fresh(name)] if name else (), num_results=num_results,
            )
        )  # fmt: skip
        if not name:
            self._unnamed.append((made, loc))
        return made

    def region(
        self, op: str, operands: Sequence[Value], regions: Sequence[Block], loc: Loc, names: Sequence[str]
    ) -> Op:
        """Appends a control-flow op."""
        made = self._checked(
            lambda: self._ir.op(op, operands, regions=regions, loc=loc, names=[self._names.fresh(n) for n in names])
        )
        return made

    def enter(self, args: Sequence[Value]) -> tuple[Block, Block]:
        """Starts a region with these arguments: the new block and the one around it."""
        outer, inner = self._ir.block, Block(list(args))
        self._ir.block = inner
        return inner, outer

    def leave(self, outer: Block) -> None:
        self._ir.block = outer

    def argument(self, name: str, t: Type, loc: Loc) -> Value:
        return Value(self._names.fresh(name), t, loc)

    def yield_values(self, values: Sequence[Value], loc: Loc) -> None:
        self._checked(lambda: self._ir.op("yield", values, loc=loc))

    def fault(self, code: str, message: str, legal: str) -> CompileError:
        """An error at the line of the Python program that called the builder, to be raised."""
        return with_sources([Diagnostic(code, message, caller(), legal=legal)])

    def _checked(self, make: Any) -> Any:
        try:
            return make()
        except CompileError as e:
            raise with_sources(e.diagnostics) from None

    # -- result --------------------------------------------------------------------------------------------------

    def build(self) -> Kernel:
        """The finished kernel. Raises CompileError if it is not well formed."""
        if not self._grid:
            raise with_sources([Diagnostic("E0510", f"@{self.name} has no grid", self._loc, legal="call grid(…)")])
        self._take_names()
        grid = tuple(size_expr(s) for s in self._grid)
        kernel = Kernel(
            self.name, dict(self.params), self.args, grid, self._body, self.fp, tuple(self.aliases), {}, self._loc
        )
        unknown = [s for g in grid for s in g.symbols() if s not in kernel.symbols()]
        if unknown:
            legal = ", ".join(kernel.symbols()) or "integers: no argument has a symbol"
            raise with_sources(
                [Diagnostic("E0205", f"the grid uses {unknown[0]}, which no view has", self._loc, legal=legal)]
            )
        self._checked(lambda: verify(kernel))
        return kernel

    def schedule(self, target: str, name: str = "") -> ScheduleBuilder:
        """How the kernel maps onto one chip; what is not said is chosen by the compiler."""
        self._schedules.append(ScheduleBuilder(name or f"{self.name}_{target}", self.name, target))
        return self._schedules[-1]

    def module(self) -> Module:
        """The kernel with its schedules."""
        return Module([self.build()], [s.build() for s in self._schedules])

    def __str__(self) -> str:
        return print_module(self.module())

    def _take_names(self) -> None:
        """Gives results the names of the Python variables: the last op of a line takes them."""
        last = {(loc.file, loc.line): (op, loc) for op, loc in self._unnamed}
        for op, loc in last.values():
            names = assigned_names(loc)
            if len(names) == len(op.results):
                for v, name in zip(op.results, names, strict=True):
                    v.name = self._names.fresh(name)
        self._unnamed.clear()


class _Carrying:
    """Control flow that carries values: what its regions share."""

    def __init__(self, builder: KernelBuilder, op: str, operands: Sequence[Value], carry: Mapping[str, Operand]):
        self._builder = builder
        self._op = op
        self._operands = list(operands)
        self._names = list(carry)
        self._inits = builder.values(carry.values())
        self._regions: list[Block] = []
        self._loc = caller()
        self._current: dict[str, Tile] = {}
        self._outer: Block | None = None
        self._yielded = False
        self._results: dict[str, Tile] | None = None

    def __getattr__(self, name: str) -> Tile:
        if name.startswith("_") or name not in self.__dict__.get("_current", {}):
            raise AttributeError(
                f"{name}: carried here are {', '.join(self.__dict__.get('_names', [])) or 'no values'}"
            )
        return self._current[name]

    @property
    def results(self) -> dict[str, Tile]:
        """What the carried values have become, by name; known after the statement."""
        if self._results is None:
            raise RuntimeError(f"the results of this '{self._op}' are known after it")
        return self._results

    @property
    def result(self) -> Tile:
        """The only result."""
        (only,) = self.results.values()
        return only

    def yield_(self, *values: Operand, **named: Operand) -> None:
        """Ends a region with the next values of what is carried, in order or by name."""
        unknown = [n for n in named if n not in self._names]
        given = [*values, *(named[n] for n in self._names[len(values) :] if n in named)]
        if unknown or len(given) != len(self._names) or len(values) + len(named) != len(self._names):
            legal = ", ".join(self._names) or "none"
            raise self._error(
                "E0503",
                f"'{self._op}' carries {len(self._names)} values, yielded are {len(values) + len(named)}",
                legal,
            )
        self._yield(self._builder.values(given, self._inits))

    def _yield(self, values: Sequence[Value]) -> None:
        self._builder.yield_values(values, caller())
        self._yielded = True

    def _enter(self, extra: Sequence[Value] = (), *, arguments: bool = True) -> None:
        args = [self._builder.argument(n, v.type, v.loc) for n, v in zip(self._names, self._inits, strict=True)]
        self._current = {n: Tile(self._builder, v) for n, v in zip(self._names, args, strict=True)}
        block, self._outer = self._builder.enter([*extra, *args])
        self._regions.append(block)
        self._yielded = False

    def _leave(self) -> None:
        assert self._outer is not None
        if not self._yielded:
            if self._names:
                raise self._error(
                    "E0502",
                    f"this region of '{self._op}' yields nothing",
                    f"yield_({', '.join(n + '=…' for n in self._names)})",
                )
            self._yield([])
        self._builder.leave(self._outer)

    def _finish(self) -> None:
        made = self._builder.region(self._op, [*self._operands, *self._inits], self._regions, self._loc, self._names)
        self._results = {n: Tile(self._builder, v) for n, v in zip(self._names, made.results, strict=True)}

    def _error(self, code: str, message: str, legal: str) -> CompileError:
        return with_sources(error(code, message, self._loc, legal=legal).diagnostics)


class ForLoop(_Carrying):
    """See `KernelBuilder.for_`."""

    def __init__(self, builder: KernelBuilder, bounds: Sequence[Value], carry: Mapping[str, Operand]):
        super().__init__(builder, "for", bounds, carry)

    @property
    def index(self) -> Tile:
        """The loop variable."""
        return Tile(self._builder, self._regions[0].args[0])

    def __enter__(self) -> ForLoop:
        self._enter([self._builder.argument("k", self._operands[0].type, self._loc)])
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self._leave()
            self._finish()


class Guard(_Carrying):
    """See `KernelBuilder.guard`."""

    def __init__(self, builder: KernelBuilder, need: Sequence[Value], carry: Mapping[str, Operand]):
        super().__init__(builder, "guard", need, carry)

    def __enter__(self) -> Guard:
        self._enter()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self._leave()
            self._finish()


class _Part:
    """One region of a control-flow op with several."""

    def __init__(self, whole: _Carrying):
        self._whole = whole

    def __enter__(self) -> None:
        self._whole._enter()  # pyright: ignore[reportPrivateUsage]

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self._whole._leave()  # pyright: ignore[reportPrivateUsage]


class _Parted(_Carrying):
    least, parts = 1, "then()"  # how many parts there must be, and which

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            if len(self._regions) < self.least:
                raise self._error("E0516", f"'{self._op}' lacks a part", f"ops in `with` blocks of {self.parts}")
            self._finish()

    def _part(self, number: int, legal: str) -> _Part:
        if len(self._regions) != number:
            raise self._error("E0516", f"the parts of '{self._op}' are not in order", legal)
        return _Part(self)


class Branch(_Parted):
    """See `KernelBuilder.if_`."""

    def __init__(self, builder: KernelBuilder, condition: Sequence[Value], carry: Mapping[str, Operand]):
        super().__init__(builder, "if", condition, carry)

    def __enter__(self) -> Branch:
        return self

    def then(self) -> _Part:
        """The part that runs where the condition holds."""
        return self._part(0, "then() once, then otherwise()")

    def otherwise(self) -> _Part:
        """The other part; without it the carried values stay as they are."""
        return self._part(1, "otherwise() after then()")


class WhileLoop(_Parted):
    """See `KernelBuilder.while_`."""

    least, parts = 2, "condition() and body()"

    def __init__(self, builder: KernelBuilder, carry: Mapping[str, Operand]):
        super().__init__(builder, "while", [], carry)

    def __enter__(self) -> WhileLoop:
        return self

    def condition(self) -> _Part:
        """The part that decides, before every round, by `check`."""
        return self._part(0, "condition() first, then body()")

    def check(self, condition: Operand) -> None:
        """Ends the condition: another round follows where it holds."""
        (value,) = self._builder.scalars("if", [condition])
        self._yield([value])

    def body(self) -> _Part:
        """The part that is repeated."""
        return self._part(1, "body() after condition()")
