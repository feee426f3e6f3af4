"""The steps of the reducer: kernels with one op less."""

from __future__ import annotations

from tileir.ir.core import Kernel, Op, Value
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.ir.types import TileType


def without_op(kernel: Kernel, index: int) -> Kernel | None:
    """The kernel without op number `index` (in program order): its results become operands of the same type, or zeros.
    None if that op cannot go, or is as small as what would replace it."""
    op = _at(kernel, index)
    if op is None or op.name in ("yield", "constant", "program_id"):
        return None
    if op.name == "fill" and op.operands[0].owner is not None and op.operands[0].owner.name == "constant":
        return None

    def rule(rw: Rewriter, at: Op) -> bool:
        if at is not op:
            return False
        rw.replace(at, [_stand_in(rw, at, v) for v in at.results])
        return True

    return _dead_removed(rewrite(kernel, rule))


def unroll(kernel: Kernel, index: int) -> Kernel | None:
    """The kernel with the control-flow op number `index` replaced by its (last) region, run once. None for other ops."""
    op = _at(kernel, index)
    if op is None or op.name not in ("for", "if", "guard"):
        return None

    def rule(rw: Rewriter, at: Op) -> bool:
        if at is not op:
            return False
        skip = {"for": 3, "if": 1, "guard": 1}[at.name]
        region = at.regions[0]
        args = region.args
        if at.name == "for":
            rw.mapping[args[0]] = rw.use(at.operands[0])
            args = args[1:]
        for arg, init in zip(args, at.operands[skip:], strict=False):
            rw.mapping[arg] = rw.use(init)
        end = region.terminator
        for inner in region.ops[:-1]:
            rw.loc = inner.loc
            if not rw.rule(rw, inner):
                rw.copy(inner)
        rw.replace(at, [rw.use(v) for v in end.operands])
        return True

    return _dead_removed(rewrite(kernel, rule))


def _at(kernel: Kernel, index: int) -> Op | None:
    return next((op for i, op in enumerate(kernel.walk()) if i == index), None)


def _stand_in(rw: Rewriter, op: Op, result: Value) -> Value:
    same = [v for v in op.operands if v.type == result.type]
    if same:
        return rw.use(same[0])
    t = result.type
    assert isinstance(t, TileType)
    zero: float | int | bool = False if t.elem.is_bool else 0 if t.elem.is_int else 0.0
    constant = rw.constant(zero, t.elem)
    return constant if t.is_scalar else rw.value("fill", [constant], types=[t])


def _dead_removed(kernel: Kernel) -> Kernel:
    """Without pure ops whose results nobody uses."""
    while True:
        used = {v for op in kernel.walk() for v in op.operands}

        def rule(rw: Rewriter, op: Op, used: set[Value] = used) -> bool:
            from tileir.ir.registry import get

            dead = bool(op.results) and not any(v in used for v in op.results)
            removable = get(op.name).is_pure or get(op.name).effects == frozenset({"read"})
            return dead and removable and not op.regions

        smaller = rewrite(kernel, rule)
        if sum(1 for _ in smaller.walk()) == sum(1 for _ in kernel.walk()):
            return kernel
        kernel = smaller
