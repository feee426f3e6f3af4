"""Binding a launch: from the arrays that a caller gives to dimension symbols, scalars and the grid.

Every device binds through this module, so that all of them accept the same arguments and reject the others with the same
words. Nothing here touches elements: an array is known by its dtype, shape and strides alone (`ArrayInfo`), wherever it
lives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from tileir.ir import registry
from tileir.ir.core import Kernel, Value
from tileir.ir.diagnostics import CompileError, Diagnostic, Note
from tileir.ir.location import Loc
from tileir.ir.ops.numeric import convert_array
from tileir.ir.types import F64, GlobalType, TileType
from tileir.records import dataclass

MAX_DIM = 2**31 - 1
"""Dimension symbols are i32 kernel arguments."""


class LaunchError(CompileError):
    """Arguments that do not fit a kernel; carries located diagnostics like any CompileError, all faults at once."""


@dataclass(frozen=True)
class ArrayInfo:
    """What a launcher needs to know of an array: dtype, shape, and strides in elements (not bytes)."""

    dtype: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Binding:
    """A launch that fits its kernel: every symbol, the grid (1 to 3 sizes), and scalars as NumPy 0-d arrays of the exact
    dtype."""

    symbols: dict[str, int]
    grid: tuple[int, ...]
    scalars: dict[str, np.ndarray]


@dataclass
class _Faults:
    found: list[Diagnostic] = field(default_factory=list[Diagnostic])

    def add(self, code: str, message: str, loc: Loc, legal: str = "", notes: Sequence[Note] = ()) -> None:
        self.found.append(Diagnostic(code, message, loc, "error", tuple(notes), legal))

    def check(self) -> None:
        if self.found:
            raise LaunchError(self.found)


def bind(kernel: Kernel, arguments: Mapping[str, object], symbols: Mapping[str, int] | None = None) -> Binding:
    """Checks the arguments of a launch and derives everything else from them.

    `arguments` maps the name of each kernel argument (without %) to an `ArrayInfo` for a view, or to a number for a
    scalar. `symbols` may state symbols again, which are then checked too, or those that no view determines.
    Raises LaunchError with one diagnostic per fault.
    """
    faults = _Faults()
    _check_names(kernel, arguments, faults)
    faults.check()
    views = [a for a in kernel.args if isinstance(a.type, GlobalType)]
    for arg in views:
        _check_view(arg, arguments[arg.name], faults)
    faults.check()
    found = _Symbols(faults)
    for arg in views:
        info = arguments[arg.name]
        assert isinstance(info, ArrayInfo)
        _symbols_of(arg, info, found)
    _stated_symbols(kernel, symbols or {}, found)
    scalars = {a.name: _scalar(a, arguments[a.name], faults) for a in kernel.args if not isinstance(a.type, GlobalType)}
    faults.check()
    return Binding(found.values, _grid(kernel, found.values), scalars)


def _check_names(kernel: Kernel, arguments: Mapping[str, object], faults: _Faults) -> None:
    names = ", ".join(f"%{a.name}: {a.type}" for a in kernel.args) or "none"
    missing = [a for a in kernel.args if a.name not in arguments]
    for a in missing:
        faults.add("E1601", f"no value for %{a.name} of @{kernel.name}", a.loc, f"{a.name} = {_what(a)}")
    known = {a.name for a in kernel.args}
    for name in arguments:
        if name not in known:
            faults.add("E1602", f"@{kernel.name} has no argument %{name}", kernel.loc, f"its arguments: {names}")


def _what(arg: Value) -> str:
    if isinstance(arg.type, GlobalType):
        return f"an array of {arg.type.elem} of rank {arg.type.rank}"
    return f"a number for {arg.type}"


def _check_view(arg: Value, info: object, faults: _Faults) -> None:
    """Everything about one view that needs no symbols: dtype, rank, literal dimensions, strides."""
    view = arg.type
    assert isinstance(view, GlobalType)
    if not isinstance(info, ArrayInfo):
        faults.add("E1603", f"%{arg.name} is a view, but gets {type(info).__name__} {info}", arg.loc, _what(arg))
        return
    if np.dtype(info.dtype) != view.elem.np:
        faults.add(
            "E1604",
            f"%{arg.name} has elements of {view.elem}, but the array has dtype {np.dtype(info.dtype)}",
            arg.loc,
            f"dtype {view.elem.np}",
        )
    if len(info.shape) != view.rank:
        faults.add(
            "E1605",
            f"%{arg.name} has rank {view.rank}, but the array has shape {list(info.shape)}",
            arg.loc,
            f"an array of shape {_dims(view.dims)}",
        )
        return
    for d, (want, got) in enumerate(zip(view.dims, info.shape, strict=True)):
        if isinstance(want, int) and want != got:
            faults.add("E1606", f"dimension {d} of %{arg.name} is {want}, but the array has {got}", arg.loc, f"{want}")
        if got > MAX_DIM:
            faults.add("E1607", f"dimension {d} of %{arg.name} is {got}", arg.loc, f"at most {MAX_DIM}")
    relevant = _relevant_strides(info.shape)
    if any(info.strides[d] < 0 for d in relevant):
        faults.add(
            "E1608",
            f"%{arg.name} has negative strides {list(info.strides)}",
            arg.loc,
            "strides of at least 0; copy the array first",
        )
    if view.strides is None:
        row_major = _row_major(info.shape)
        if any(info.strides[d] != row_major[d] for d in relevant):
            faults.add(
                "E1609",
                f"%{arg.name} is row-major, but the array of shape {list(info.shape)} has strides {list(info.strides)} in elements",
                arg.loc,
                "a contiguous array, or declare 'strides = […]' in the type of the view",
            )
        return
    for d in relevant:
        want = view.strides[d]
        if isinstance(want, int) and want != info.strides[d]:
            faults.add(
                "E1610", f"stride {d} of %{arg.name} is {want}, but the array has {info.strides[d]}", arg.loc, f"{want}"
            )


def _dims(dims: Sequence[int | str]) -> str:
    return "[" + ", ".join(str(d) for d in dims) + "]"


def _relevant_strides(shape: Sequence[int]) -> list[int]:
    """Dimensions whose stride decides an address: those with more than one element, in arrays that have any."""
    return [] if 0 in shape else [d for d, n in enumerate(shape) if n > 1]


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))


@dataclass
class _Symbols:
    """Symbols with the place that determined each."""

    faults: _Faults
    values: dict[str, int] = field(default_factory=dict[str, int])
    origin: dict[str, tuple[str, Loc]] = field(default_factory=dict[str, tuple[str, Loc]])
    weak: set[str] = field(default_factory=set[str])  # bound by a stride that decides no address

    def set(self, name: str, value: int, where: str, loc: Loc, *, weak: bool = False) -> None:
        if name not in self.values or (name in self.weak and not weak):
            self.values[name] = value
            self.origin[name] = (where, loc)
            (self.weak.add if weak else self.weak.discard)(name)
        elif not weak and self.values[name] != value:
            first, first_loc = self.origin[name]
            self.faults.add(
                "E1611",
                f"{name} is {self.values[name]} in {first} but {value} in {where}",
                loc,
                "the same size in both",
                [Note("first determined here", first_loc)],
            )


def _symbols_of(arg: Value, info: ArrayInfo, found: _Symbols) -> None:
    view = arg.type
    assert isinstance(view, GlobalType)
    for name, value in zip(view.dims, info.shape, strict=True):
        if isinstance(name, str):
            found.set(name, value, f"%{arg.name}", arg.loc)
    relevant = _relevant_strides(info.shape)
    for d, name in enumerate(view.strides or ()):
        if isinstance(name, str):
            found.set(name, info.strides[d], f"the strides of %{arg.name}", arg.loc, weak=d not in relevant)


def used_symbols(kernel: Kernel) -> tuple[str, ...]:
    """Every dimension symbol that a launch must know, in order of first appearance."""
    names = dict.fromkeys(kernel.symbols())
    for e in kernel.grid:
        names.update(dict.fromkeys(e.symbols()))
    for op in kernel.walk():
        if op.name == "dim":
            names[str(op.attrs["symbol"])] = None
    return tuple(names)


def _stated_symbols(kernel: Kernel, stated: Mapping[str, int], found: _Symbols) -> None:
    used = used_symbols(kernel)
    for name, value in stated.items():
        if name in used:
            found.set(name, int(value), "the given symbols", kernel.loc)
        else:
            legal = f"its symbols: {', '.join(used) or 'none'}"
            found.faults.add("E1612", f"@{kernel.name} has no symbol {name}", kernel.loc, legal)
    for name in used:
        if name not in found.values:
            message = f"nothing determines the symbol {name} of @{kernel.name}"
            found.faults.add("E1613", message, kernel.loc, f"give {name} explicitly")


def _scalar(arg: Value, value: object, faults: _Faults) -> np.ndarray:
    """A 0-d array of the exact dtype; integers must fit, floats are rounded to nearest even."""
    assert isinstance(arg.type, TileType)
    elem = arg.type.elem
    if isinstance(value, np.generic | np.ndarray) and value.shape == ():
        if value.dtype == elem.np:
            return np.asarray(value)
        value = value.item() if value.dtype.kind in "biuf" else float(value)
    zero = np.zeros((), elem.np)
    is_bool = isinstance(value, bool)
    if elem.is_bool and is_bool:
        return np.asarray(value)
    if elem.is_int and isinstance(value, int) and not is_bool:
        low, high = -(1 << (elem.bits - 1)), (1 << elem.bits) - 1
        if low <= value <= high:
            return np.asarray(value & high, np.uint64).astype(elem.np)
        faults.add("E1614", f"{value} does not fit %{arg.name}: {elem}", arg.loc, f"{low} to {high}")
        return zero
    if elem.is_float and isinstance(value, int | float) and not is_bool:
        try:
            return np.asarray(convert_array(np.float64(value), F64, elem))
        except OverflowError:
            faults.add("E1614", f"{value!s:.40}… does not fit %{arg.name}: {elem}", arg.loc, "a number below 2^1024")
            return zero
    faults.add("E1615", f"%{arg.name} is {elem}, but gets {type(value).__name__} {value!s:.40}", arg.loc, _what(arg))
    return zero


def bind_scalar(arg: Value, value: object) -> np.ndarray:
    """The value of one scalar argument as `bind` makes it: a 0-d array of the exact dtype. Raises LaunchError."""
    faults = _Faults()
    found = _scalar(arg, value, faults)
    faults.check()
    return found


def _grid(kernel: Kernel, symbols: Mapping[str, int]) -> tuple[int, ...]:
    sizes: list[int] = []
    for e in kernel.grid:
        try:
            size = e.evaluate(symbols)
        except ZeroDivisionError:
            raise _single("E1616", f"the grid size '{e}' divides by zero", kernel, symbols) from None
        if not 0 <= size <= MAX_DIM:
            raise _single("E1617", f"the grid size '{e}' is {size}", kernel, symbols)
        sizes.append(size)
    return tuple(sizes)


def _single(code: str, message: str, kernel: Kernel, symbols: Mapping[str, int]) -> LaunchError:
    values = ", ".join(f"{k} = {v}" for k, v in symbols.items())
    note = Note(f"with {values}" if values else "the kernel has no symbols")
    return LaunchError([Diagnostic(code, message, kernel.loc, "error", (note,), f"0 to {MAX_DIM}")])


def written_views(kernel: Kernel) -> tuple[str, ...]:
    """Names of the view arguments that the kernel stores to, in argument order. (Ops with an LDS buffer write that.)"""
    written: set[Value] = set()
    for op in kernel.walk():
        definition = registry.get(op.name)
        at = definition.access_position
        if at is not None and definition.effects & {"write", "atomic"} and "buffer" not in definition.operands:
            written.add(op.operands[at])
    return tuple(a.name for a in kernel.args if a in written)


def check_overlap(kernel: Kernel, written: Container[str], overlap: Callable[[str, str], bool]) -> None:
    """Rejects a launch in which a view that is written shares memory with another one that is not declared an alias of
    it. `overlap` answers for two view arguments by name. Raises LaunchError."""
    views = [a for a in kernel.args if isinstance(a.type, GlobalType)]
    allowed = {frozenset(pair) for pair in kernel.aliases}
    faults = _Faults()
    for i, b in enumerate(views):
        for a in views[:i]:
            if frozenset((a.name, b.name)) in allowed or not (a.name in written or b.name in written):
                continue
            if overlap(a.name, b.name):
                faults.add(
                    "E1618",
                    f"%{a.name} and %{b.name} share memory, and the kernel writes one of them",
                    b.loc,
                    f"arrays that do not overlap, or 'alias(%{a.name}, %{b.name})' on the kernel",
                    [Note("the other view", a.loc)],
                )
    faults.check()
