"""Sums products into what is added to them.

    %p = mma(%a, %b)
    %d = add(%c, %p)

becomes

    %d = mma(%a, %b, %c)

where nothing else uses the product, so that one tile is kept in registers and not two, and the loop is one of products. A product that has
a sum of zeros already (`mma(%a, %b, %zero)`) is one without. The result is rounded once less, as where a multiplication and an
addition are contracted: `fp strict` forbids it for floats.
"""

from __future__ import annotations

from collections.abc import Mapping

from tileir.ir.core import Kernel, Op, Value
from tileir.ir.rewriter import Rewriter, rewrite, uses
from tileir.passes.base import Context, Pass
from tileir.passes.identities import splat_of

Uses = Mapping[Value, list[tuple[Op, int]]]


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    sums = _sums(kernel)
    if not sums:
        return kernel
    products = {product for product, _ in sums.values()}

    def rule(rw: Rewriter, op: Op) -> bool:
        if op in products:
            return True
        if op not in sums:
            return False
        product, c = sums[op]
        a, b, *more = product.operands
        operands = [rw.use(v) for v in (a, b, c, *more[1:])]
        new = rw.value(
            "mma", operands, dict(product.attrs), types=[op.result.type], names=[op.result.name], loc=product.loc
        )
        rw.replace(op, [new])
        return True

    return rewrite(kernel, rule)


def _sums(kernel: Kernel) -> dict[Op, tuple[Op, Value]]:
    """Additions with the product that each takes up and the other operand. Of two products the second takes the first."""
    if not any(op.name == "mma" for op in kernel.walk()):
        return {}
    users = uses(kernel)
    blocks = [kernel.body, *(region for op in kernel.walk() for region in op.regions)]
    block_of = {op: block for block in blocks for op in block.ops}
    found: dict[Op, tuple[Op, Value]] = {}
    for op in block_of:
        if op.name != "add" or (kernel.fp == "strict" and op.result.tile.elem.is_float):
            continue
        for product, other in ((op.operands[1].owner, op.operands[0]), (op.operands[0].owner, op.operands[1])):
            if product is None or product.name != "mma" or other.type != op.result.type:
                continue
            alone = len(users[product.result]) == 1 and block_of[product] is block_of[op]
            if alone and product.result.type == op.result.type and _sums_nothing(product):
                found[op] = product, other
                break
    return found


def _sums_nothing(product: Op) -> bool:
    """Whether a product has no sum to which it is added, or zeros."""
    return len(product.operands) == 2 or splat_of(product.operands[2]) == 0


PASS = Pass("accumulate-products", _run, summary="sums products into what is added to them")
