"""Replaces ops that others can say.

    %old = atomic_add(%one, %H[%rows]) : tile<i32[64]>      // %old is never used

becomes

    %t = fill(%one) : tile<i32[64]>
    atomic_add(%t, %H[%rows])
"""

from __future__ import annotations

from tileir.ir.core import Kernel, Op, Value
from tileir.ir.ops.atomic import is_atomic
from tileir.ir.ops.memory import indices_of, tile_dims
from tileir.ir.registry import get
from tileir.ir.rewriter import Rewriter, rewrite, uses
from tileir.ir.types import TileType
from tileir.passes.base import Context, Pass


def span_shape(op: Op) -> tuple[int, ...]:
    """Shape of the tile that an access spans."""
    assert op.spans is not None
    indices = indices_of(op)
    return tuple(op.spans[d] or indices[d].tile.shape[0] for d in tile_dims(op))


def _atomic(rw: Rewriter, op: Op, used: bool) -> bool:
    """Scalar operands of updates of tiles become tiles; results that nobody uses go."""
    shape = span_shape(op)
    at = get(op.name).access_position
    assert at is not None
    scalars = [v for v in op.operands[:at] if v.tile.is_scalar] if shape else []
    if not scalars and (used or not op.results):
        return False
    operands: list[Value] = [rw.use(v) for v in op.operands]
    for i, v in enumerate(op.operands[:at]):
        if v in scalars:
            operands[i] = rw.value("fill", [operands[i]], types=[TileType(v.tile.elem, shape)], hint=v.name)
    names = [v.name for v in op.results] if used else []
    new = rw.op(
        op.name, operands, op.attrs, spans=op.spans, names=names, loc=op.loc, operand_locs=op.operand_locs,
        num_results=len(names),
    )  # fmt: skip
    if used:
        rw.replace(op, new.results)
    return True


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    users = uses(kernel)

    def rule(rw: Rewriter, op: Op) -> bool:
        rw.loc = op.loc
        return is_atomic(op) and _atomic(rw, op, any(v in users for v in op.results))

    return rewrite(kernel, rule)


PASS = Pass("expand-ops", _run, summary="replaces ops that others can say")
