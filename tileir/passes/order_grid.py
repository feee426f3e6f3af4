"""Decides in which order the workgroups of a grid run: neighbours share a chiplet's cache.

The hardware hands workgroup number L = x + y · gx of each plane to chiplet (XCD) L mod n. The pass replaces the first two
results of `program_id` by a bijection of L, in two steps.

1. Chunks. Numbers are dealt so that each chiplet gets runs of `chunk` consecutive positions: L = (b · chunk + p) · n + x
   goes to position (b · n + x) · chunk + p. What is left after the last full round of n · chunk is dealt the same way
   with the largest runs that come out even: chiplet x gets rest / n positions, the first rest mod n chiplets one more. Without
   `chunk` everything is such a rest: each chiplet gets one run.
2. Windows. Positions run down `window` block rows before they go to the next column; the last window may be lower. Without
   `window` they run down whole columns, as the hardware does.

Both steps are exact for every grid. For a grid of 4 x 3 on 2 chiplets with chunk = 2, window = 2 (entry: L, chiplet L mod 2):

    column     0       1       2
    row 0    0 (0)   1 (1)   4 (0)       positions 0 1 | 2 3 | 4 5 | 6 7 | 8 9 | 10 11 are of chiplets
    row 1    2 (0)   3 (1)   6 (0)                  0     1     0     1     0      1
    row 2    5 (1)   8 (0)   9 (1)
    row 3    7 (1)  10 (0)  11 (1)

    %i, %j = program_id() : i32, i32

becomes (with `order = xcd`)

    %x, %y = program_id() : i32, i32
    %linear = add(%x, mul(%y, %rows))
    ...
    %i = add(%first, mod(%r, %height)) : i32
    %j = div(%r, %height) : i32

All arithmetic is 32 bits wide and exact as long as a plane has less than 2^31 workgroups.
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from tileir.ir.core import Kernel, Op, Value
from tileir.ir.expr import Expr
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.ir.types import I32, scalar
from tileir.passes.base import Context, Pass

T = TypeVar("T")


class Arithmetic(Protocol, Generic[T]):
    """What the mapping is made of; all values are non-negative."""

    def constant(self, n: int) -> T: ...
    def op(self, name: str, a: T, b: T) -> T:
        """add, sub, mul, div, mod or min."""
        ...

    def select_less(self, a: T, b: T, then: T, otherwise: T) -> T:
        """`then` where a < b."""
        ...


def remap(
    a: Arithmetic[T], linear: T, rows: T, columns: T, *, xcds: int, chunk: int | None, window: int | None
) -> tuple[T, T]:
    """Row and column that workgroup `linear` of a grid of rows x columns works on."""
    position = _chunks(a, linear, a.op("mul", rows, columns), xcds, chunk)
    height = a.op("min", a.constant(window), rows) if window is not None else rows
    area = a.op("mul", height, columns)
    first = a.op("mul", a.op("div", position, area), height)
    within = a.op("mod", position, area)
    height = a.op("min", height, a.op("sub", rows, first))  # the last window may be lower
    return a.op("add", first, a.op("mod", within, height)), a.op("div", within, height)


def remap_line(a: Arithmetic[T], linear: T, size: T, *, xcds: int, chunk: int | None) -> T:
    """The same for a grid of one dimension: only chunks."""
    return _chunks(a, linear, size, xcds, chunk)


def _chunks(a: Arithmetic[T], linear: T, size: T, xcds: int, chunk: int | None) -> T:
    n = a.constant(xcds)
    if chunk is None:
        return _rest(a, linear, size, n)
    c, round_size = a.constant(chunk), a.constant(chunk * xcds)
    full = a.op("mul", a.op("div", size, round_size), round_size)  # workgroups in full rounds
    xcd, turn = a.op("mod", linear, n), a.op("div", linear, n)
    block = a.op("add", a.op("mul", a.op("div", turn, c), n), xcd)
    in_round = a.op("add", a.op("mul", block, c), a.op("mod", turn, c))
    rest = _rest(a, a.op("sub", linear, full), a.op("sub", size, full), n)
    return a.select_less(linear, full, in_round, a.op("add", full, rest))


def _rest(a: Arithmetic[T], linear: T, size: T, n: T) -> T:
    """One run per chiplet, as even as can be. (`full` is a multiple of n, so linear mod n is the chiplet here, too.)"""
    xcd, turn = a.op("mod", linear, n), a.op("div", linear, n)
    share, more = a.op("div", size, n), a.op("mod", size, n)
    start = a.op("add", a.op("mul", xcd, share), a.op("min", xcd, more))
    return a.op("add", start, turn)


class Numbers:
    """The mapping on Python integers or NumPy arrays of them."""

    def constant(self, n: int) -> Any:
        return n

    def op(self, name: str, a: Any, b: Any) -> Any:
        match name:
            case "add":
                return a + b
            case "sub":
                return a - b
            case "mul":
                return a * b
            case "div":
                return a // b
            case "mod":
                return a % b
            case _:
                return np.minimum(a, b)

    def select_less(self, a: Any, b: Any, then: Any, otherwise: Any) -> Any:
        return np.where(np.less(a, b), then, otherwise)


class Emitter:
    """The mapping as ops. Division and remainder by powers of two become shifts and masks: all values are
    non-negative."""

    def __init__(self, rw: Rewriter):
        self.rw = rw

    def constant(self, n: int) -> Value:
        return self.rw.constant(n, I32)

    def op(self, name: str, a: Value, b: Value) -> Value:
        n = b.owner.attrs["value"] if b.owner is not None and b.owner.name == "constant" else None
        if isinstance(n, int) and n > 0 and n & (n - 1) == 0 and name in ("div", "mod"):
            if name == "div":
                return self.rw.value("shr", [a, self.constant(n.bit_length() - 1)])
            return self.rw.value("and", [a, self.constant(n - 1)])
        return self.rw.value(name, [a, b])

    def select_less(self, a: Value, b: Value, then: Value, otherwise: Value) -> Value:
        return self.rw.value("where", [self.rw.value("lt", [a, b]), then, otherwise])


def emit_expr(rw: Rewriter, expr: Expr, kernel: Kernel) -> Value:
    """The ops that compute a grid expression, as i32."""
    if expr.op == "int":
        return rw.constant(expr.value, I32)
    if expr.op == "symbol":
        elem = kernel.symbols()[expr.symbol]
        value = rw.value("dim", (), {"symbol": expr.symbol}, types=[scalar(elem)])
        return value if elem == I32 else rw.value("convert", [value], {"elem": I32})
    return rw.value(expr.op, [emit_expr(rw, x, kernel) for x in expr.args])


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    if kernel.attrs.get("ordered"):
        return kernel
    if kernel.attrs.get("order") != "xcd":
        new = rewrite(kernel, lambda rw, op: False)
    else:
        new = rewrite(kernel, lambda rw, op: _reorder(rw, op, kernel, ctx))
    new.attrs["ordered"] = True
    return new


def _reorder(rw: Rewriter, op: Op, kernel: Kernel, ctx: Context) -> bool:
    if op.name != "program_id":
        return False
    chunk, window = kernel.attrs.get("order_chunk"), kernel.attrs.get("order_window")
    assert (chunk is None or isinstance(chunk, int)) and (window is None or isinstance(window, int))
    xcds = ctx.target.num_xcds
    ids = rw.op("program_id", num_results=len(kernel.grid), hint="id").results
    sizes = [emit_expr(rw, e, kernel) for e in kernel.grid[:2]]
    emit = Emitter(rw)
    if len(kernel.grid) == 1:
        new = [remap_line(emit, ids[0], sizes[0], xcds=xcds, chunk=chunk)]
    else:
        linear = rw.value("add", [ids[0], rw.value("mul", [ids[1], sizes[0]])])
        row, column = remap(emit, linear, sizes[0], sizes[1], xcds=xcds, chunk=chunk, window=window)
        new = [row, column, *ids[2:]]
    rw.replace(op, new[: len(op.results)])
    return True


PASS = Pass(
    "order-grid",
    _run,
    requires=frozenset({"bound"}),
    establishes=frozenset({"grid_ordered"}),
    summary="orders workgroups for the caches of the chiplets",
)
