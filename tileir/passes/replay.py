"""Checks that a pass keeps the meaning of a kernel: the interpreter runs it before and after, on the same small inputs.

Before waits are placed, a direct copy lands at once; that is the meaning the passes in between keep.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tileir.ir.arrays import strided
from tileir.ir.binding import LaunchError
from tileir.ir.core import Kernel, Op, Value
from tileir.ir.diagnostics import CompileError, Diagnostic, Note
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.ir.types import Elem, GlobalType, TileType
from tileir.passes.check_sync import check_synchronised
from tileir.records import dataclass

Array = np.ndarray[Any, Any]

# Sizes of dimensions to try, until the assumptions of the kernel hold: ragged ones first, then multiples of everything usual.
_SIZES = (19, 7, 64, 128, 1, 256)
_MAX_ELEMENTS = 1 << 22
_MAX_PROGRAMS = 16
_SEED = 20


@dataclass
class Sample:
    """Inputs of a kernel and what the kernel made of them before any pass ran."""

    kernel: Kernel
    symbols: dict[str, int]
    inputs: dict[str, Any]
    outputs: dict[str, Array]


def sample(kernel: Kernel) -> Sample | None:
    """Small random inputs on which the kernel runs, with its outputs; None if none of the sizes tried satisfies it."""
    for symbols in _assignments(kernel):
        inputs = make_inputs(kernel, symbols)
        if inputs is None:
            continue
        try:
            return Sample(kernel, symbols, inputs, execute(kernel, symbols, inputs))
        except (LaunchError, CompileError):
            continue
    return None


def compare(before: Sample, after: Kernel, label: str) -> None:
    """Raises CompileError if the kernel now computes something else: integers must be equal, floats within the error
    that another order of summation explains."""
    try:
        outputs = execute(after, before.symbols, before.inputs)
    except CompileError as e:
        notes = tuple(Note(f"[{d.code}] {d.message}", d.loc) for d in e.diagnostics)
        raise CompileError([_fault(after, label, "no longer runs", notes)]) from e
    for name, want in before.outputs.items():
        where = first_difference(outputs[name], want)
        if where is not None:
            got, expected = outputs[name][where], want[where]
            at = ", ".join(map(str, where))
            sizes = ", ".join(f"{k} = {v}" for k, v in before.symbols.items())
            note = Note(f"%{name}[{at}] is {got}, it was {expected} before ({sizes})")
            raise CompileError([_fault(after, label, f"computes another %{name}", (note,))])


def _fault(kernel: Kernel, label: str, what: str, notes: tuple[Note, ...]) -> Diagnostic:
    report = Note(f"this is a fault of pass '{label}', not of the file; please report it")
    return Diagnostic(
        "E1003", f"after pass '{label}' kernel '{kernel.name}' {what}", kernel.loc, notes=(*notes, report)
    )


def first_difference(got: Array, want: Array) -> tuple[int, ...] | None:
    """Index of the first element that differs by more than the tolerance of its type, or None."""
    if want.dtype.kind in "iub":
        bad = got != want
    else:
        g, w = got.astype(np.float64), want.astype(np.float64)
        scale = np.max(np.abs(w[np.isfinite(w)]), initial=1.0)
        # One rounding of the type, and as much again for every way in which f32 sums may be reordered (inputs are small
        # integers, so sums of them are exact and only transcendental functions and quotients leave an error).
        bound = 4 * _epsilon(want.dtype) * np.maximum(np.abs(w), 1e-3 * scale)
        with np.errstate(invalid="ignore"):
            bad = ~((g == w) | (np.isnan(g) & np.isnan(w)) | (np.abs(g - w) <= bound))
    found = np.argwhere(bad)
    return tuple(int(i) for i in found[0]) if len(found) else None


def _epsilon(dtype: np.dtype[Any]) -> float:
    import ml_dtypes

    return max(float(ml_dtypes.finfo(dtype).eps), float(np.finfo(np.float32).eps))


def execute(kernel: Kernel, symbols: dict[str, int], inputs: dict[str, Any]) -> dict[str, Array]:
    """Runs a copy of the inputs through the kernel; the views afterwards by name."""
    from tileir.interpreter.machine import run

    arrays = {k: _clone(v) if isinstance(v, np.ndarray) else v for k, v in inputs.items()}
    run(landed(kernel), arrays, symbols=symbols, max_iterations=10_000)
    return {k: v for k, v in arrays.items() if isinstance(v, np.ndarray)}


def _clone(array: Array) -> Array:
    """A copy with the same strides, whatever they are."""
    extent = 1 + sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) // array.itemsize
    flat = strided(array, (extent,), (array.itemsize,)).copy()
    return strided(flat, array.shape, array.strides)


_COPIES = ("copy_async", "copy_async_part")


def _is_synchronised(kernel: Kernel) -> bool:
    ops = list(kernel.walk())
    placed = all("offset" in op.attrs for op in ops if op.name == "shared_alloc")
    if not placed or not any(op.name == "wait" for op in ops):
        return False
    try:
        check_synchronised(kernel)
    except CompileError:
        return False
    return True


def landed(kernel: Kernel) -> Kernel:
    """The kernel itself once it is synchronised; before, one in which every direct copy is followed by its wait (loops that are
    scheduled instruction by instruction have waits of their own before the others get theirs)."""
    if not any(op.name in _COPIES for op in kernel.walk()) or _is_synchronised(kernel):
        return kernel

    def rule(rw: Rewriter, op: Op) -> bool:
        if op.name not in _COPIES:
            return False
        rw.copy(op)
        rw.op("wait", (), {"vm": 0})
        return True

    return rewrite(kernel, rule)


# -- inputs ------------------------------------------------------------------------------------------------------


def _assignments(kernel: Kernel) -> Iterator[dict[str, int]]:
    """Values of the dimension symbols to try. Dimensions that are grid sizes as they are (batch, heads) stay at 2; strides
    are those of dense rows; combinations with too many workgroups are left out."""
    names = list(kernel.symbols())
    whole = {e.symbol for e in kernel.grid if e.op == "symbol"}
    strides = {
        s for a in kernel.args if isinstance(a.type, GlobalType) for s in a.type.strides or () if isinstance(s, str)
    }
    dims = [n for n in names if n not in strides and n not in whole]
    for start, rotate in itertools.product(range(len(_SIZES)), (True, False)):
        if rotate and start >= 3:
            continue  # only ragged sizes are mixed
        sizes = {n: 2 for n in whole}
        sizes.update({n: _SIZES[(start + i) % 3 if rotate else start] for i, n in enumerate(dims)})
        for arg in kernel.args:
            _dense_strides(arg, sizes)
        symbols = {n: sizes.get(n, 1) for n in names}
        try:
            programs = np.prod([max(0, e.evaluate(symbols)) for e in kernel.grid], dtype=object)
        except ZeroDivisionError:
            continue
        if programs <= _MAX_PROGRAMS:
            yield symbols


def _dense_strides(arg: Value, sizes: dict[str, int]) -> None:
    """Gives unset stride symbols of a view the values of a dense row-major array."""
    if not isinstance(arg.type, GlobalType) or arg.type.strides is None:
        return
    dense = 1
    for dim, stride in reversed(list(zip(arg.type.dims, arg.type.strides, strict=True))):
        if isinstance(stride, str):
            sizes.setdefault(stride, dense)
        dense *= dim if isinstance(dim, int) else sizes[dim]


def make_inputs(kernel: Kernel, symbols: dict[str, int]) -> dict[str, Any] | None:
    """An array of small random integers for every view (of the strides that the symbols give), a small number for every
    scalar; None if that would be too large."""
    rng = np.random.default_rng(_SEED)
    inputs: dict[str, Any] = {}
    for arg in kernel.args:
        if isinstance(arg.type, GlobalType):
            shape = tuple(d if isinstance(d, int) else symbols[d] for d in arg.type.dims)
            strides = _strides(arg.type, shape, symbols)
            extent = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
            if extent > _MAX_ELEMENTS or extent < 1:
                return None
            flat = _numbers(rng, arg.type.elem, extent)
            size = flat.dtype.itemsize
            inputs[arg.name] = strided(flat, shape, [s * size for s in strides])
        else:
            assert isinstance(arg.type, TileType)
            inputs[arg.name] = _numbers(rng, arg.type.elem, 1)[0].item()
    return inputs


def _strides(view: GlobalType, shape: tuple[int, ...], symbols: dict[str, int]) -> tuple[int, ...]:
    if view.strides is not None:
        return tuple(s if isinstance(s, int) else symbols[s] for s in view.strides)
    dense = [1] * len(shape)
    for d in reversed(range(len(shape) - 1)):
        dense[d] = dense[d + 1] * shape[d + 1]
    return tuple(dense)


def _numbers(rng: np.random.Generator, elem: Elem, count: int) -> Array:
    low = 0 if elem.is_bool or elem.name == "f8E8M0FNU" else (1 if count == 1 else -2)
    return rng.integers(low, 2 if elem.is_bool else 4, count).astype(elem.np)
