"""Decides in which order the workgroups of a grid run: neighbours share a chiplet's cache.

What a schedule says (`order`) is done. Without that, a kernel gets chunks and windows by the rule of `grid_rules` if its workgroups
read something alike along block rows and something else along block columns, and all do the same work. The kernel itself chooses between
windows of rows and of columns, and their height, from the sizes it is launched with. Other kernels keep the order of the hardware.

The hardware hands workgroup number L = x + y · gx of each plane to chiplet (XCD) L mod n. The pass replaces the first two
results of `program_id` by a bijection of L, in two steps.

1. Chunks. Numbers are dealt so that each chiplet gets runs of `chunk` consecutive positions: L = (b · chunk + p) · n + x
   goes to position (b · n + x) · chunk + p. What is left after the last full round of n · chunk is dealt the same way
   with the largest runs that come out even: chiplet x gets rest / n positions, the first rest mod n chiplets one more. Without
   `chunk` everything is such a rest: each chiplet gets one run.
2. Windows. Positions run down `window` block rows before they go to the next column; the last window may be lower. Without
   `window` they run down whole columns, as the hardware does.

By rule, a last window of less than half the height joins the one before it, so that none is thin. All is exact for every grid. For
a grid of 4 x 3 on 2 chiplets with chunk = 2, window = 2 (entry: L, chiplet L mod 2):

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

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from tileir.ir.core import Block, Kernel, Op, Value
from tileir.ir.expr import Expr, integer, symbol
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.ir.types import I1, I32, I64, scalar
from tileir.passes.base import Context, Pass
from tileir.passes.grid_rules import LARGE, Chip, OrderRule, order_rule, traffic
from tileir.passes.grid_sharing import Footprint, Sharing, sharing
from tileir.target import Target

T = TypeVar("T")

MOST_PER_CU = 2
"""Workgroups on a CU that the order counts on where LDS would hold more: registers are not known yet. (Assumed.)"""


class Arithmetic(Protocol, Generic[T]):
    """What the mapping is made of; all values are non-negative."""

    def constant(self, n: int) -> T: ...
    def op(self, name: str, a: T, b: T) -> T:
        """add, sub, mul, div, mod, min, max, shl, shr, and, or."""
        ...

    def less(self, a: T, b: T) -> T: ...

    def select(self, condition: T, then: T, otherwise: T) -> T: ...


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
    return a.select(a.less(linear, full), in_round, a.op("add", full, rest))


def remap_by_rule(
    a: Arithmetic[T], linear: T, rows: T, columns: T, rule: OrderRule, *, rows_kept: T, columns_kept: T
) -> tuple[T, T]:
    """Row and column that workgroup `linear` of a grid of rows x columns works on by a rule, if it `applies`.

    rows_kept, columns_kept: whether what follows from the block row (the block column) stays in the last-level cache.
    """
    c = a.constant
    log, turned = _windows(a, rule, rows, columns, rows_kept, columns_kept)
    down, along = a.select(turned, columns, rows), a.select(turned, rows, columns)
    position = _chunks(a, linear, a.op("mul", rows, columns), rule.xcds, rule.chunk)
    height = a.op("shl", c(1), log)
    windows = a.op("max", a.op("shr", a.op("add", down, a.op("shr", height, c(1))), log), c(1))
    area = a.op("shl", along, log)
    last = a.op("sub", windows, c(1))
    number = a.op("min", a.op("div", position, area), last)
    within = a.op("sub", position, a.op("mul", number, area))
    first = a.op("shl", number, log)
    height = a.select(a.less(number, last), height, a.op("sub", down, first))
    across = a.op("div", within, height)
    at = a.op("add", first, a.op("sub", within, a.op("mul", across, height)))
    return a.select(turned, across, at), a.select(turned, at, across)


def applies(a: Arithmetic[T], rows: T, columns: T, rule: OrderRule) -> T:
    """Whether a grid is neither so small nor so large that it keeps the order of the hardware."""
    size = a.op("mul", rows, columns)
    return a.op("and", a.less(a.constant(rule.small), size), a.less(size, a.constant(LARGE)))


def _windows(a: Arithmetic[T], rule: OrderRule, rows: T, columns: T, rows_kept: T, columns_kept: T) -> tuple[T, T]:
    """log2 of the height of windows, and whether they are turned. Between equal heights nothing is chosen."""
    near, across, far = (a.constant(n) for n in (rule.near, rule.turned, rule.far))
    several = a.less(
        a.constant((3 << rule.far) // 2 - 1), rows
    )  # one window streams the columns once, as turned ones do
    streamed = a.select(columns_kept, a.constant(False), a.op("and", rows_kept, several))
    turned = a.op("or", streamed, a.less(columns, a.constant(rule.chunk >> rule.near)))
    log = far if rule.near == rule.far else a.select(columns_kept, near, far)
    return log if rule.near == rule.turned == rule.far else a.select(turned, across, log), turned


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
        return _NUMBERS[name](a, b)

    def less(self, a: Any, b: Any) -> Any:
        return np.less(a, b)

    def select(self, condition: Any, then: Any, otherwise: Any) -> Any:
        return np.where(condition, then, otherwise)


_NUMBERS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.floordiv,
    "mod": operator.mod,
    "min": np.minimum,
    "max": np.maximum,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}


class Emitter:
    """The mapping as ops. Division and remainder by powers of two become shifts and masks: all values are
    non-negative. short: they are also below `LARGE`, which code generation is told where that makes a division shorter."""

    def __init__(self, rw: Rewriter, short: bool = False):
        self.rw = rw
        self.short = short

    def constant(self, n: int) -> Value:
        return self.rw.constant(n, I1 if isinstance(n, bool) else I32)

    def op(self, name: str, a: Value, b: Value) -> Value:
        n = b.owner.attrs["value"] if b.owner is not None and b.owner.name == "constant" else None
        if isinstance(n, int) and n > 0 and n & (n - 1) == 0 and name in ("div", "mod"):
            if name == "div":
                return self.rw.value("shr", [a, self.constant(n.bit_length() - 1)])
            return self.rw.value("and", [a, self.constant(n - 1)])
        if name == "div" and self.short:
            a, b = (self.rw.value("and", [v, self.constant(LARGE - 1)]) for v in (a, b))
        return self.rw.value(name, [a, b])

    def less(self, a: Value, b: Value) -> Value:
        return self.rw.value("lt", [a, b])

    def select(self, condition: Value, then: Value, otherwise: Value) -> Value:
        return self.rw.value("where", [condition, then, otherwise])


def emit_expr(rw: Rewriter, expr: Expr, kernel: Kernel) -> Value:
    """The ops that compute a grid expression, as i32."""
    if expr.op == "int":
        return rw.constant(expr.value, I32)
    if expr.op == "symbol":
        elem = kernel.symbols()[expr.symbol]
        value = rw.value("dim", (), {"symbol": expr.symbol}, types=[scalar(elem)])
        return value if elem == I32 else rw.value("convert", [value], {"elem": I32})
    return rw.value(expr.op, [emit_expr(rw, x, kernel) for x in expr.args])


def _emit_kept(rw: Rewriter, views: Sequence[Footprint], kernel: Kernel, most: int) -> Value:
    """Whether views take at most so many bits. The product wraps only for what no memory holds."""
    total: Value | None = None
    for dims, bits in views:
        size = rw.constant(bits, I64)
        for d in dims:
            expr = integer(d) if isinstance(d, int) else symbol(d)
            size = rw.value("mul", [size, rw.value("convert", [emit_expr(rw, expr, kernel)], {"elem": I64})])
        total = size if total is None else rw.value("add", [total, size])
    assert total is not None
    return rw.value("le", [total, rw.constant(most, I64)])


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    if kernel.attrs.get("ordered"):
        return kernel
    order = kernel.attrs.get("order")
    if order == "xcd":
        new = _replaced(kernel, lambda rw: _reorder(rw, kernel, ctx))
    elif order is None and (shared := _shared(kernel)) is not None:
        rule = _rule(kernel, ctx, shared)
        new = _replaced(kernel, lambda rw: _reorder_by_rule(rw, kernel, rule, shared))
    else:
        new = replace(kernel, attrs=dict(kernel.attrs))
    new.attrs["ordered"] = True
    return new


def _replaced(kernel: Kernel, place: Callable[[Rewriter], Sequence[Value]]) -> Kernel:
    """The kernel with all results of `program_id` replaced by those of `place`, which is written once: before the first op of the body that is
    or holds one. The versions for aligned and for unaligned views share it, about 75 instructions for machine code to be generated of."""
    first = next((op for op in kernel.body.ops if any(o.name == "program_id" for o in op.walk())), None)
    places: list[Value] = []

    def rule(rw: Rewriter, op: Op) -> bool:
        if op is first:
            places.extend(place(rw))
        if op.name != "program_id":
            return False
        rw.replace(op, places[: len(op.results)])
        return True

    return rewrite(kernel, rule)


def _reorder(rw: Rewriter, kernel: Kernel, ctx: Context) -> list[Value]:
    chunk, window = kernel.attrs.get("order_chunk"), kernel.attrs.get("order_window")
    assert (chunk is None or isinstance(chunk, int)) and (window is None or isinstance(window, int))
    xcds = ctx.target.num_xcds
    ids = rw.op("program_id", num_results=len(kernel.grid), hint="id").results
    sizes = [emit_expr(rw, e, kernel) for e in kernel.grid[:2]]
    emit = Emitter(rw)
    if len(kernel.grid) == 1:
        return [remap_line(emit, ids[0], sizes[0], xcds=xcds, chunk=chunk)]
    linear = rw.value("add", [ids[0], rw.value("mul", [ids[1], sizes[0]])])
    row, column = remap(emit, linear, sizes[0], sizes[1], xcds=xcds, chunk=chunk, window=window)
    return [row, column, *ids[2:]]


def _shared(kernel: Kernel) -> Sharing | None:
    """What workgroups share, if an order can serve it: something along both dimensions, and even work."""
    if len(kernel.grid) < 2 or not any(op.name == "program_id" for op in kernel.walk()):
        return None
    found = sharing(kernel)
    return found if found.even and found.rows > 0 and found.columns > 0 else None


def workgroups_per_cu(kernel: Kernel, target: Target) -> int:
    """Workgroups that are on a CU at once, as far as it is known before code generation: by LDS, and at most `MOST_PER_CU`."""
    lds = kernel.attrs.get("lds")
    return max(1, min(MOST_PER_CU, target.lds_bytes // lds)) if isinstance(lds, int) and lds else MOST_PER_CU


def _rule(kernel: Kernel, ctx: Context, shared: Sharing) -> OrderRule:
    chip = Chip.of(ctx.target)
    per_cu = workgroups_per_cu(kernel, ctx.target)
    rule = order_rule(chip, shared.rows, shared.columns, per_cu)
    read = shared.rows + shared.columns
    slots = chip.cus_per_xcd * per_cu
    l2, _ = traffic(chip, slots, shared.rows, shared.columns, 1 << rule.near, streamed=False)
    l2_far, llc_far = traffic(chip, slots, shared.rows, shared.columns, 1 << rule.far, streamed=True)
    ctx.log.remark(
        "R0808",
        f"workgroups run in chunks of {rule.chunk} for each of {rule.xcds} chiplets. While what block columns read alike fits in the "
        f"last-level cache, in windows of {1 << rule.near} block rows: {l2 / read:.0%} of the bytes come from beyond the L2. Where only what "
        f"block rows read alike fits, or columns are few, in windows of {1 << rule.turned} block columns. Where neither fits, in windows of {1 << rule.far} "
        f"block rows: {l2_far / read:.0%} from beyond the L2, {llc_far / read:.0%} from memory",
        kernel.loc,
    )
    return rule


def _reorder_by_rule(rw: Rewriter, kernel: Kernel, rule: OrderRule, shared: Sharing) -> list[Value]:
    x, y, *others = rw.op("program_id", num_results=len(kernel.grid), hint="id").results
    rows, columns = (emit_expr(rw, e, kernel) for e in kernel.grid[:2])
    emit = Emitter(rw, short=True)
    condition = applies(emit, rows, columns, rule)
    outer, rw.block = rw.block, Block([Value(rw.names.fresh("at"), v.type, rw.loc) for v in (x, y)])
    kept = [_emit_kept(rw, views, kernel, rule.kept_bits) for views in (shared.row_views, shared.column_views)]
    linear = rw.value("add", [x, rw.value("mul", [y, rows])])
    place = remap_by_rule(emit, linear, rows, columns, rule, rows_kept=kept[0], columns_kept=kept[1])
    rw.op("yield", place)
    inner, rw.block = rw.block, outer
    row, column = rw.op("if", [condition, x, y], regions=[inner], hint="at").results
    return [row, column, *others]


PASS = Pass(
    "order-grid",
    _run,
    requires=frozenset({"bound"}),
    establishes=frozenset({"grid_ordered"}),
    summary="orders workgroups for the caches of the chiplets",
)
