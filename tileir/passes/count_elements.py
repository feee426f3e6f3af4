"""Loops that count tiles count elements instead, so that a loop over tiles has one form, however it is written.

    for %t = 0 to cdiv(%K, 64) step 1 { … %t * 64 … }      becomes      for %k = 0 to %K step 64 { … %k … }

The variable must be used in no other way: then it takes the same values, once multiplied.
"""

from __future__ import annotations

from tileir.ir.core import Kernel, Op, Value
from tileir.ir.rewriter import Rewriter, rewrite


def count_elements(kernel: Kernel) -> Kernel:
    """The kernel with such loops in elements; the same kernel if there is none."""
    found = {op: size for op in kernel.walk() if op.name == "for" and (size := _counted(op))}
    if not found:
        return kernel
    variables = {loop.regions[0].args[0] for loop in found}

    def rule(rw: Rewriter, op: Op) -> bool:
        if op in found:
            count = op.operands[1].owner
            assert count is not None
            operands = [rw.use(v) for v in op.operands]
            operands[1:3] = [rw.use(v) for v in count.operands]
            region = rw.region(op.regions[0])
            made = rw.op("for", operands, op.attrs, regions=[region], loc=op.loc, names=[v.name for v in op.results])
            rw.replace(op, made.results)
            return True
        if op.name != "mul" or not variables & set(op.operands):
            return False
        rw.replace(op, [rw.use(next(v for v in op.operands if v in variables))])
        return True

    return rewrite(kernel, rule)


def _counted(loop: Op) -> int:
    """The number of elements of a tile that the variable of a loop counts, 0 if it counts something else."""
    start, end, step = loop.operands[:3]
    if constant_of(start) != 0 or constant_of(step) != 1 or end.owner is None or end.owner.name != "cdiv":
        return 0
    size = constant_of(end.owner.operands[1])
    variable = loop.regions[0].args[0]
    users = [op for op in loop.walk() if variable in op.operands]
    for op in users:
        others = [v for v in op.operands if v is not variable]
        if op.name != "mul" or len(others) != 1 or constant_of(others[0]) != size:
            return 0
    return size if size is not None and size > 1 and users else 0


def constant_of(v: Value) -> int | None:
    """The value of an integer constant, None of anything else."""
    value = v.owner.attrs["value"] if v.owner is not None and v.owner.name == "constant" else None
    return value if isinstance(value, int) else None
