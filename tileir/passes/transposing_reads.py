"""Uses transposing LDS reads where a lane needs runs of rows of a buffer and the chip has them.

    %b = shared_load(%s) : tile<bf16[64, 128], linear(reg = [[1, 0], [2, 0], …], …)>

becomes on gfx950

    %b = shared_load_transposed(%s) : tile<bf16[64, 128], linear(reg = [[1, 0], [2, 0], …], …)>

A plain read would fetch such a tile element by element.
"""

from __future__ import annotations

from tileir.ir.core import Kernel, Op
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.ir.types import SharedType, TileType
from tileir.layout import Layout, LayoutError, transposed_source
from tileir.layout.transposed import elements_per_read
from tileir.passes.base import Context, Pass
from tileir.target import Target

READS = {16: "ds_read_b64_tr_b16", 8: "ds_read_b64_tr_b8"}
"""The transposing read of elements by their bits."""


def has_transposing_read(elem_bits: int, shape: tuple[int, ...], target: Target) -> bool:
    """Whether the chip can read runs of rows of such a buffer: elements of a size that it transposes, and rows and columns
    that whole reads cover."""
    if elem_bits not in READS or not target.supports(f"lds_transpose_read_b{elem_bits}"):
        return False
    n = elements_per_read(elem_bits)
    return len(shape) == 2 and shape[0] % n == 0 and shape[1] % n == 0


def addressed_layout(t: TileType) -> Layout | None:
    """What the lanes address in a transposing read of the tile; None if no such read delivers it. All lanes take part: those
    whose element would lie outside read another one, see `Layout.fold`."""
    if t.layout is None or t.rank != 2 or t.elem.bits not in READS:
        return None
    n = elements_per_read(t.elem.bits)
    if t.shape[0] % n or t.shape[1] % n:
        return None
    if t.layout.padded_shape != t.shape and t.layout.contiguous(0) < n:  # a read must lie inside or outside as a whole
        return None
    try:
        return transposed_source(t.layout, t.elem.bits)
    except LayoutError:
        return None


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    def rule(rw: Rewriter, op: Op) -> bool:
        if op.name != "shared_load":
            return False
        t = op.result.tile
        if t.layout is None or t.layout.contiguous(t.rank - 1) > 1 or not fits(op):
            return False
        value = rw.value("shared_load_transposed", [rw.use(op.operands[0])], types=[t], names=[op.result.name])
        rw.replace(op, [value])
        return True

    def fits(op: Op) -> bool:
        t, buffer = op.result.tile, op.operands[0].type
        same = isinstance(buffer, SharedType) and buffer.shape == t.shape
        return same and has_transposing_read(t.elem.bits, t.shape, ctx.target) and addressed_layout(t) is not None

    return rewrite(kernel, rule)


PASS = Pass(
    "transposing-reads",
    _run,
    requires=frozenset({"converted"}),
    establishes=frozenset({"converted"}),
    summary="uses transposing LDS reads where the chip has them",
)
