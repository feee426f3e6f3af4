"""Replaces ops that others can say.

    %old = atomic_add(%one, %H[%rows]) : tile<i32[64]>      // %old is never used

becomes

    %t = fill(%one) : tile<i32[64]>
    atomic_add(%t, %H[%rows])

The position of a maximum is the smallest number of the elements that equal it; `any` and `all` are reductions of bits.
"""

from __future__ import annotations

from tileir.ir.core import Kernel, Op, Value
from tileir.ir.ops.atomic import is_atomic
from tileir.ir.ops.memory import indices_of, tile_dims
from tileir.ir.registry import get
from tileir.ir.rewriter import Rewriter, rewrite, uses
from tileir.ir.types import I32, TileType
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


def _position(rw: Rewriter, op: Op) -> None:
    """`reduce_argmax`, `reduce_argmin`: the extremum, then the smallest number of those that equal it."""
    x = rw.use(op.operands[0])
    t, axis = x.tile, op.attrs["axis"]
    assert isinstance(axis, int)
    name = op.result.name
    best = rw.value(op.name.replace("arg", ""), [x], {"axis": axis}, hint=name)
    equal = rw.value("eq", [x, best], hint=name)
    number = rw.value("iota", attrs={"shape": t.shape, "axis": axis}, hint=name)
    none = rw.constant(t.shape[axis], I32)
    numbers = rw.value("where", [equal, number, none], hint=name)
    first = rw.value("reduce_min", [numbers], {"axis": axis}, names=[] if t.elem.is_float else [name], hint=name)
    if t.elem.is_float:  # all may be NaN
        missing = rw.value("eq", [first, none], hint=name)
        first = rw.value("where", [missing, rw.constant(0, I32), first], names=[name])
    rw.replace(op, [first])


def _truth(rw: Rewriter, op: Op) -> None:
    """`any`, `all`: a reduction of bits."""
    x, name = rw.use(op.operands[0]), op.result.name
    bits = rw.value("convert", [x], {"elem": I32}, hint=name)
    total = rw.value("reduce_or" if op.name == "any" else "reduce_and", [bits], op.attrs, hint=name)
    rw.replace(op, [rw.value("ne", [total, rw.constant(0, I32)], names=[name])])


_EXPANDED = {"reduce_argmax": _position, "reduce_argmin": _position, "any": _truth, "all": _truth}


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    users = uses(kernel)

    def rule(rw: Rewriter, op: Op) -> bool:
        rw.loc = op.loc
        if op.name in _EXPANDED:
            _EXPANDED[op.name](rw, op)
            return True
        return is_atomic(op) and _atomic(rw, op, any(v in users for v in op.results))

    return rewrite(kernel, rule)


PASS = Pass("expand-ops", _run, summary="replaces ops that others can say")
