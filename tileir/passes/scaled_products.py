"""Block-scaled products as products with scale operands, so that all that is chosen for a product is chosen for them alike.

    %d = mma_scaled(%a, %sa, %b, %sb, %c) : tile<f32[64, 64]>

becomes

    %d = mma(%a, %b, %c, %sa, %sb) : tile<f32[64, 64]>
"""

from __future__ import annotations

from tileir.ir.core import Kernel, Op
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.ir.types import F32


def as_products(kernel: Kernel) -> Kernel:
    """The kernel without `mma_scaled`; itself if it has none."""
    if not any(op.name == "mma_scaled" for op in kernel.walk()):
        return kernel

    def rule(rw: Rewriter, op: Op) -> bool:
        if op.name != "mma_scaled":
            return False
        a, sa, b, sb, *acc = (rw.use(v) for v in op.operands)
        if not acc:
            acc = [rw.value("fill", [rw.constant(0.0, F32)], types=[op.result.tile], hint="zero", loc=op.loc)]
        order = (0, 2, 4, 1, 3)
        locs = [op.operand_locs[i] if i < len(op.operand_locs) else op.loc for i in order]
        value = rw.value("mma", [a, b, *acc, sa, sb], op.attrs, names=[op.result.name], loc=op.loc, operand_locs=locs)
        rw.replace(op, [value])
        return True

    return rewrite(kernel, rule)
