"""Uses transposing LDS reads where a lane needs runs of rows of a buffer and the chip has them.

    %b = shared_load(%s) : tile<bf16[64, 128], linear(reg = [[1, 0], [2, 0], …], …)>

becomes on gfx950

    %b = shared_load_transposed(%s) : tile<bf16[64, 128], linear(reg = [[1, 0], [2, 0], …], …)>

A plain read would fetch such a tile element by element.
"""

from __future__ import annotations

from tileir.ir.core import Kernel, Op
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.ir.types import TileType
from tileir.layout import Layout, LayoutError, transposed_source
from tileir.passes.base import Context, Pass

ELEMENT_BITS = 16


def addressed_layout(t: TileType) -> Layout | None:
    """What the lanes address in a transposing read of the tile; None if no such read delivers it. Tiles with holes are
    read plainly: every lane must be active and address the buffer."""
    if t.layout is None or t.rank != 2 or t.elem.bits != ELEMENT_BITS or t.layout.padded_shape != t.shape:
        return None
    try:
        return transposed_source(t.layout)
    except LayoutError:
        return None


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    if not ctx.target.supports("lds_transpose_read_b16"):
        return kernel

    def rule(rw: Rewriter, op: Op) -> bool:
        if op.name != "shared_load":
            return False
        t = op.result.tile
        if t.layout is None or t.layout.contiguous(t.rank - 1) > 1 or addressed_layout(t) is None:
            return False
        value = rw.value("shared_load_transposed", [rw.use(op.operands[0])], types=[t], names=[op.result.name])
        rw.replace(op, [value])
        return True

    return rewrite(kernel, rule)


PASS = Pass(
    "transposing-reads",
    _run,
    requires=frozenset({"converted"}),
    establishes=frozenset({"converted"}),
    summary="uses transposing LDS reads where the chip has them",
)
