"""What a kernel under construction is made of: tiles and scalars with Python operators, views and accesses to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from tileir.ir import expr
from tileir.ir.core import Value
from tileir.ir.diagnostics import CompileError
from tileir.ir.types import Elem, GlobalType, TileType
from tileir.records import dataclass

if TYPE_CHECKING:
    from tileir.api.builder import KernelBuilder

Number = int | float | bool


class Tile:
    """A tile, or with shape () a scalar, of a kernel that is being built.

    Operators stand for the ops of the language: `+ - * /` (integer division truncates), `%` for `mod`, comparisons,
    `& | ^ << >>`, `~` for `not`. Python numbers take the element type of the tile that they meet. A tile has no truth value
    while the kernel is built: `if_` and `where` decide at run time.
    """

    __slots__ = ("builder", "value")

    def __init__(self, builder: KernelBuilder, value: Value):
        self.builder = builder
        self.value = value

    @property
    def type(self) -> TileType:
        return self.value.tile

    @property
    def elem(self) -> Elem:
        return self.value.tile.elem

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.tile.shape

    @property
    def T(self) -> Tile:
        """The transposed tile (rank 2)."""
        return self.builder.emit_one("transpose", [self])

    def convert(self, elem: Elem) -> Tile:
        """The same numbers as elements of another type."""
        return self.builder.emit_one("convert", [self], {"elem": elem})

    def _binary(self, op: str, other: Operand, *, turned: bool = False) -> Tile:
        return self.builder.emit_one(op, [other, self] if turned else [self, other])

    def __add__(self, other: Operand) -> Tile:
        return self._binary("add", other)

    def __radd__(self, other: Number) -> Tile:
        return self._binary("add", other, turned=True)

    def __sub__(self, other: Operand) -> Tile:
        return self._binary("sub", other)

    def __rsub__(self, other: Number) -> Tile:
        return self._binary("sub", other, turned=True)

    def __mul__(self, other: Operand) -> Tile:
        return self._binary("mul", other)

    def __rmul__(self, other: Number) -> Tile:
        return self._binary("mul", other, turned=True)

    def __truediv__(self, other: Operand) -> Tile:
        return self._binary("div", other)

    def __rtruediv__(self, other: Number) -> Tile:
        return self._binary("div", other, turned=True)

    def __mod__(self, other: Operand) -> Tile:
        return self._binary("mod", other)

    def __rmod__(self, other: Number) -> Tile:
        return self._binary("mod", other, turned=True)

    def __and__(self, other: Operand) -> Tile:
        return self._binary("and", other)

    def __rand__(self, other: Number) -> Tile:
        return self._binary("and", other, turned=True)

    def __or__(self, other: Operand) -> Tile:
        return self._binary("or", other)

    def __ror__(self, other: Number) -> Tile:
        return self._binary("or", other, turned=True)

    def __xor__(self, other: Operand) -> Tile:
        return self._binary("xor", other)

    def __rxor__(self, other: Number) -> Tile:
        return self._binary("xor", other, turned=True)

    def __lshift__(self, other: Operand) -> Tile:
        return self._binary("shl", other)

    def __rshift__(self, other: Operand) -> Tile:
        return self._binary("shr", other)

    def __lt__(self, other: Operand) -> Tile:
        return self._binary("lt", other)

    def __le__(self, other: Operand) -> Tile:
        return self._binary("le", other)

    def __gt__(self, other: Operand) -> Tile:
        return self._binary("gt", other)

    def __ge__(self, other: Operand) -> Tile:
        return self._binary("ge", other)

    def __eq__(self, other: Operand) -> Tile:  # type: ignore[override]
        return self._binary("eq", other)

    def __ne__(self, other: Operand) -> Tile:  # type: ignore[override]
        return self._binary("ne", other)

    __hash__ = object.__hash__

    def __neg__(self) -> Tile:
        return self.builder.emit_one("neg", [self])

    def __invert__(self) -> Tile:
        return self.builder.emit_one("not", [self])

    def __abs__(self) -> Tile:
        return self.builder.emit_one("abs", [self])

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"%{self.value.name} is known at run time only: choose with where(condition, a, b), or branch with if_(condition)"
        )

    def __repr__(self) -> str:
        return f"<%{self.value.name}: {self.value.type}>"


Operand = Tile | int | float | bool


@dataclass(frozen=True)
class Span:
    """`start +: extent`: a run of positions along one dimension of a view. `extent` is known when the kernel is built."""

    start: Tile | int
    extent: int


def span(start: Tile | int, extent: int) -> Span:
    """`extent` positions from `start` on, for `view[span(start, extent), …]`."""
    return Span(start, extent)


Index = Tile | int | Span | slice


@dataclass(frozen=True)
class Access:
    """A view with one index per dimension: what `load` reads and `store` writes."""

    view: View
    indices: tuple[Tile | int | Span, ...]


class View:
    """An argument that is a view of device memory. `view[i, span(j, 64)]` is an access: a plain index picks one position,
    a span, or a slice of two integers, a dimension of the tile."""

    __slots__ = ("builder", "value")

    def __init__(self, builder: KernelBuilder, value: Value):
        self.builder = builder
        self.value = value

    @property
    def type(self) -> GlobalType:
        assert isinstance(self.value.type, GlobalType)
        return self.value.type

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Access:
        indices = index if isinstance(index, tuple) else (index,)
        return Access(self, tuple(self._index(i) for i in indices))

    def _index(self, i: Index) -> Tile | int | Span:
        """An index as an access holds it. Raises CompileError if it is none."""
        if isinstance(i, slice):
            if isinstance(i.start, int | None) and isinstance(i.stop, int) and i.step is None:
                return Span(i.start or 0, i.stop - (i.start or 0))
            raise self._fault("a slice with another bound than an integer, or with a step")
        if isinstance(i, Span):
            if not isinstance(i.extent, int) or not isinstance(i.start, Tile | int):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise self._fault(f"a span from {i.start!r} on of {i.extent!r} positions")
        elif not isinstance(i, Tile | int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise self._fault(f"the index {i!r}")
        return i

    def _fault(self, what: str) -> CompileError:
        legal = "an integer, a value of the kernel, span(start, extent) with an extent known now, or a slice of two integers"
        return self.builder.fault("E0403", f"%{self.value.name} is accessed with {what}", legal)

    def __repr__(self) -> str:
        return f"<%{self.value.name}: {self.value.type}>"


class Size:
    """An integer that a launcher computes from the dimension symbols, for the grid: `cdiv(symbol("M"), 64)`."""

    __slots__ = ("expr",)

    def __init__(self, value: expr.Expr):
        self.expr = value

    def __add__(self, other: Size | int) -> Size:
        return _size("add", self, other)

    def __radd__(self, other: int) -> Size:
        return _size("add", other, self)

    def __sub__(self, other: Size | int) -> Size:
        return _size("sub", self, other)

    def __rsub__(self, other: int) -> Size:
        return _size("sub", other, self)

    def __mul__(self, other: Size | int) -> Size:
        return _size("mul", self, other)

    def __rmul__(self, other: int) -> Size:
        return _size("mul", other, self)

    def __repr__(self) -> str:
        return f"<size {self.expr}>"


def _size(op: str, a: Size | int, b: Size | int) -> Size:
    return Size(expr.binary(op, size_expr(a), size_expr(b)))


def size_expr(value: Size | int | str) -> expr.Expr:
    """The expression of a size, an integer, or the name of a symbol."""
    if isinstance(value, Size):
        return value.expr
    return expr.symbol(value) if isinstance(value, str) else expr.integer(value)


def symbol(name: str) -> Size:
    """A dimension symbol of the kernel's views, for the grid."""
    return Size(expr.symbol(name))


def cdiv(a: Size | int, b: Size | int) -> Size:
    """a / b rounded up."""
    return _size("cdiv", a, b)


Dims = Sequence[int | str]
