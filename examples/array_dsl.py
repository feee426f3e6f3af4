"""A small array language with TileIR as its back end: functions over rows, each fused into one kernel.

    @rowwise
    def layer(x: Rows, w: Weight, b: Weight) -> Rows:
        return softmax(relu(x @ w + b))

    y = layer(X, W, B)              # compiled for these shapes at the first call, then run on the simulator
    layer.reference(X, W, B)        # the same function on NumPy arrays in f64

`Rows` are arrays [rows, width] of which a workgroup holds a block of rows at a time; a `Weight` is seen whole by everybody.
Numbers are f32; products of matrices take bf16 factors. Everything between load and store stays in registers and LDS.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_type_hints

import numpy as np

import tileir
from tileir import KernelBuilder, Tile, bf16, cdiv, f32, span, symbol

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Rows:
    """A block of rows in the kernel that is being built. Operators work row by row; a width of 1 is repeated."""

    k: KernelBuilder
    tile: Tile

    def _with(self, other: Any, op: Callable[[Any, Any], Tile]) -> Rows:
        return Rows(self.k, op(self.tile, other.tile if isinstance(other, Rows | Weight) else other))

    def __add__(self, other: Any) -> Rows:
        return self._with(other, lambda a, b: a + b)

    def __sub__(self, other: Any) -> Rows:
        return self._with(other, lambda a, b: a - b)

    def __mul__(self, other: Any) -> Rows:
        return self._with(other, lambda a, b: a * b)

    def __truediv__(self, other: Any) -> Rows:
        return self._with(other, lambda a, b: a / b)

    __radd__, __rmul__ = __add__, __mul__

    def __matmul__(self, weight: Weight) -> Rows:
        return Rows(self.k, self.k.mma(self.tile.convert(bf16), weight.tile.convert(bf16)))


@dataclass(frozen=True)
class Weight:
    """An array that every workgroup reads whole: a matrix, or one row of numbers."""

    tile: Tile


def _each(x: Any, built: Callable[[KernelBuilder, Tile], Tile], plain: Callable[[Any], Any]) -> Any:
    """A function of every element or row: built into the kernel for `Rows`, done at once for NumPy arrays."""
    return Rows(x.k, built(x.k, x.tile)) if isinstance(x, Rows) else plain(x)


def relu(x: Any) -> Any:
    return _each(x, lambda k, t: k.max(t, 0.0), lambda a: np.maximum(a, 0))


def exp(x: Any) -> Any:
    return _each(x, lambda k, t: k.exp(t), np.exp)


def rsqrt(x: Any) -> Any:
    return _each(x, lambda k, t: k.rsqrt(t), lambda a: 1 / np.sqrt(a))


def row_sum(x: Any) -> Any:
    return _each(x, lambda k, t: k.reduce_add(t, axis=1), lambda a: a.sum(1, keepdims=True))


def row_max(x: Any) -> Any:
    return _each(x, lambda k, t: k.reduce_max(t, axis=1), lambda a: a.max(1, keepdims=True))


def row_mean(x: Any) -> Any:
    return row_sum(x) * (1.0 / (x.tile.shape[1] if isinstance(x, Rows) else x.shape[1]))


def softmax(x: Any) -> Any:
    e = exp(x - row_max(x))
    return e / row_sum(e)


def layer_norm(x: Any) -> Any:
    d = x - row_mean(x)
    return d * rsqrt(row_mean(d * d) + 1e-5)


class Rowwise:
    """A function over rows that has become callable on NumPy arrays."""

    def __init__(self, function: Callable[..., Any], target: str, block: int):
        self.function, self.target, self.block = function, target, block
        self.names = list(inspect.signature(function).parameters)
        hints = get_type_hints(function)
        self.over_rows = [hints.get(n) is Rows for n in self.names]
        if not any(self.over_rows):
            raise TypeError(f"{function.__name__}: no parameter is annotated as Rows")
        self.kernels: dict[tuple[tuple[int, int], ...], tuple[tileir.CompiledKernel, int]] = {}

    def build(self, shapes: tuple[tuple[int, int], ...]) -> tuple[KernelBuilder, int]:
        """The kernel for these shapes, and the width of its result. Rows may have any number."""
        k = KernelBuilder(self.function.__name__)
        views = [
            k.view(name, f32, ["R" if rows else shape[0], shape[1]])
            for name, rows, shape in zip(self.names, self.over_rows, shapes, strict=True)
        ]
        # The width of the result is known when the function has run, its view must come before: run it once to see.
        probe = KernelBuilder("probe")
        width = self._run(probe, [probe.view(v.value.name, f32, v.type.dims) for v in views])[0].tile.shape[1]
        result = k.view("result", f32, ["R", width])
        y, rows = self._run(k, views)
        k.store(y.tile, result[rows, 0:width])
        return k, width

    def _run(self, k: KernelBuilder, views: list[tileir.View]) -> tuple[Rows, tileir.Span]:
        k.grid(cdiv(symbol("R"), self.block))
        (i,) = k.program_id()
        rows = span(i * self.block, self.block)
        arguments: list[Rows | Weight] = []
        for view, over_rows in zip(views, self.over_rows, strict=True):
            height, width = view.type.dims
            if over_rows:
                arguments.append(Rows(k, k.load(view[rows, 0 : int(width)])))
            else:
                arguments.append(Weight(k.load(view[0 : int(height), 0 : int(width)])))
        return self.function(*arguments), rows

    def __call__(self, *arrays: Array) -> Array:
        given = [np.ascontiguousarray(np.atleast_2d(a), np.float32) for a in arrays]
        count = next(len(a) for a, rows in zip(given, self.over_rows, strict=True) if rows)
        shapes = tuple((0 if rows else a.shape[0], a.shape[1]) for a, rows in zip(given, self.over_rows, strict=True))
        if shapes not in self.kernels:
            k, width = self.build(shapes)
            self.kernels[shapes] = tileir.compile(k, self.target), width
        kernel, width = self.kernels[shapes]
        out = np.zeros((count, width), np.float32)
        kernel.launch({**dict(zip(self.names, given, strict=True)), "result": out})
        return out

    def reference(self, *arrays: Array) -> Array:
        """The same function in NumPy, in f64."""
        return self.function(*(np.atleast_2d(a).astype(np.float64) for a in arrays))


def rowwise(function: Callable[..., Any], *, target: str = "gfx950", block: int = 32) -> Rowwise:
    """Makes a function over rows callable on NumPy arrays."""
    return Rowwise(function, target, block)


@rowwise
def network(x: Rows, w1: Weight, b1: Weight, w2: Weight) -> Rows:
    return softmax(relu(layer_norm(x) @ w1 + b1) @ w2)


if __name__ == "__main__":
    random = np.random.default_rng(0)
    inputs = [random.standard_normal(s) / s[0] ** 0.5 for s in ((1000, 64), (64, 96), (1, 96), (96, 16))]
    y, want = network(*inputs), network.reference(*inputs)
    print(f"{y.shape[0]} rows of {y.shape[1]}, largest difference from f64: {np.abs(y - want).max():.1e}")
