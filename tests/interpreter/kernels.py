"""Small kernels for the tests of the interpreter, made with the builder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tileir.interpreter import run
from tileir.ir.builder import Builder, Names
from tileir.ir.core import Block, Kernel, Op, Value
from tileir.ir.expr import Expr, integer
from tileir.ir.types import ELEMS, I32, Elem, GlobalType, TileType, Type
from tileir.ir.verifier import verify

E = ELEMS
ONE = integer(1)


def elem_of(array: np.ndarray) -> Elem:
    """The element type of an array's dtype."""
    return next(e for e in ELEMS.values() if e.np == array.dtype)


def make_kernel(
    args: dict[str, Type], body: Callable[..., Any], grid: tuple[Expr, ...] = (ONE,), **fields: Any
) -> Kernel:
    """A verified kernel; `body(builder, *arguments)` appends the ops."""
    values = [Value(name, type) for name, type in args.items()]
    builder = Builder(Block(), Names(set(args)))
    body(builder, *values)
    kernel = Kernel("test", {}, values, grid, builder.block, **fields)
    verify(kernel)
    return kernel


def load_all(b: Builder, view: Value) -> Value:
    """The whole view of literal dimensions as a tile."""
    assert isinstance(view.type, GlobalType)
    zero = b.constant(0, I32)
    return b.value("load", [view, *[zero] * view.type.rank], spans=tuple(int(d) for d in view.type.dims))


def store_all(b: Builder, value: Value, view: Value) -> None:
    """Stores a tile, or a scalar to a view of one element."""
    assert isinstance(view.type, GlobalType)
    zero = b.constant(0, I32)
    spans: tuple[int | None, ...] = value.tile.shape or (None,)
    b.op("store", [value, view, *[zero] * view.type.rank], spans=spans)


def evaluate(
    name: str, inputs: Sequence[np.ndarray], attrs: dict[str, Any] | None = None, types: Sequence[Type] = ()
) -> Any:
    """The results of one op (an array, or a tuple of several); 0-d inputs become scalar arguments."""
    arrays: dict[str, Any] = {f"x{i}": np.asarray(x) for i, x in enumerate(inputs)}
    args: dict[str, Type] = {
        k: GlobalType(elem_of(x), x.shape) if x.ndim else TileType(elem_of(x)) for k, x in arrays.items()
    }
    results: list[TileType] = []

    def probe(b: Builder, *values: Value) -> Op:
        tiles = [load_all(b, v) if isinstance(v.type, GlobalType) else v for v in values[: len(inputs)]]
        return b.op(name, tiles, attrs, types=types, num_results=len(types) or None)

    make_kernel(args, lambda b, *v: results.extend(r.tile for r in probe(b, *v).results))
    outs = {f"y{i}": np.zeros(t.shape or (1,), t.elem.np) for i, t in enumerate(results)}

    def body(b: Builder, *values: Value) -> None:
        op = probe(b, *values)
        for r, y in zip(op.results, values[len(inputs) :], strict=True):
            store_all(b, r, y)

    views: dict[str, Type] = {k: GlobalType(elem_of(y), y.shape) for k, y in outs.items()}
    run(make_kernel({**args, **views}, body), {**arrays, **outs})
    found = [y if t.shape else y[0] for y, t in zip(outs.values(), results, strict=True)]
    return found[0] if len(found) == 1 else tuple(found)
