"""Block-scaled products as products with scale operands, so that all that is chosen for a product is chosen for them alike.

    %d = mma_scaled(%a, %sa, %b, %sb, %c) : tile<f32[64, 64]>

becomes

    %d = mma(%a, %b, %c, %sa, %sb) : tile<f32[64, 64]>

Loops over k count blocks of scales before accesses are chosen, so that the places of operands and of scales are both linear in
what the loop counts (`count_blocks`):

    for %k = 0 to %K step 128 { … %SA[%i, %k / 32 +: 4] … %A[%i, %k +: 128] … }

becomes

    for %q = 0 to cdiv(%K, 32) step 4 { … %SA[%i, %q +: 4] … %A[%i, %q * 32 +: 128] … }
"""

from __future__ import annotations

from tileir.ir.core import Block, Kernel, Op, Value
from tileir.ir.ops.contract import SCALE_BLOCK
from tileir.ir.rewriter import Rewriter, rewrite, uses
from tileir.ir.types import F32
from tileir.passes.count_elements import constant_of

FIRST_SCALE = 3  # operands of an `mma` with scales from here on are these


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


def scale_loads(kernel: Kernel) -> dict[Op, int]:
    """Loads whose tile becomes scales of a product, directly or transposed, and the axis of the tile that counts blocks of k."""
    users = uses(kernel)

    def axis(v: Value, turned: bool) -> int | None:
        for op, i in users.get(v, []):
            if op.name == "mma" and i >= FIRST_SCALE:
                return (1 if i == FIRST_SCALE else 0) ^ turned
            if op.name == "transpose" and (found := axis(op.result, not turned)) is not None:
                return found
        return None

    loads = [op for op in kernel.walk() if op.name == "load" and op.result.tile.rank == 2]
    return {op: found for op in loads if (found := axis(op.result, False)) is not None}


def scale_source(v: Value) -> Op | None:
    """The load that a value comes from, through transposes; None if it comes from elsewhere."""
    op = v.owner
    while op is not None and op.name == "transpose":
        op = op.operands[0].owner
    return op if op is not None and op.name == "load" else None


def count_blocks(kernel: Kernel) -> Kernel:
    """The kernel in which loops that divide their variable by `SCALE_BLOCK` to find scales count blocks; itself if there is none."""
    scales = scale_loads(kernel)
    if not scales:
        return kernel
    found = {loop for loop in kernel.walk() if loop.name == "for" and _finds_scales(loop, scales)}
    if not found:
        return kernel
    blocks: dict[Value, Value] = {}  # what the loop counts, by its old variable

    def rule(rw: Rewriter, op: Op) -> bool:
        if op in found:
            made = rw.op(
                "for", _bounds(rw, op), op.attrs, regions=[_body(rw, op, blocks)], loc=op.loc, names=[v.name for v in op.results]
            )  # fmt: skip
            rw.replace(op, made.results)
            return True
        if op.name != "div" or op.operands[0] not in blocks or constant_of(op.operands[1]) != SCALE_BLOCK:
            return False
        rw.replace(op, [blocks[op.operands[0]]])
        return True

    return rewrite(kernel, rule)


def _finds_scales(loop: Op, scales: dict[Op, int]) -> bool:
    """Whether a loop is over whole blocks and scales in it are found by its variable over `SCALE_BLOCK`."""
    start, _, step = loop.operands[:3]
    size, first = constant_of(step), constant_of(start)
    if size is None or size <= 0 or size % SCALE_BLOCK or first is None or first % SCALE_BLOCK:
        return False
    variable = loop.regions[0].args[0]
    quotients = {
        op.result
        for op in loop.regions[0].ops
        if op.name == "div" and op.operands[0] is variable and constant_of(op.operands[1]) == SCALE_BLOCK
    }
    return any(quotients & set(op.operands) for op in loop.walk() if op in scales)


def _bounds(rw: Rewriter, loop: Op) -> list[Value]:
    """Operands of a loop that counts blocks."""
    start, end, step = loop.operands[:3]
    elem, size = start.tile.elem, rw.constant(SCALE_BLOCK, start.tile.elem, loop.loc)
    first, distance = constant_of(start), constant_of(step)
    assert first is not None and distance is not None
    return [
        rw.constant(first // SCALE_BLOCK, elem, loop.loc),
        rw.value("cdiv", [rw.use(end), size], loc=loop.loc),
        rw.constant(distance // SCALE_BLOCK, elem, loop.loc),
        *(rw.use(v) for v in loop.operands[3:]),
    ]


def _body(rw: Rewriter, loop: Op, blocks: dict[Value, Value]) -> Block:
    """The body of a loop that counts blocks: its old variable is computed first."""
    old = loop.regions[0]
    args = [Value(v.name, v.type, v.loc) for v in old.args]
    args[0].name = rw.names.fresh("q")
    rw.mapping.update(zip(old.args, args, strict=True))
    inner = Block(args)
    outer, rw.block = rw.block, inner
    blocks[old.args[0]] = args[0]
    size = rw.constant(SCALE_BLOCK, args[0].tile.elem, loop.loc)
    rw.mapping[old.args[0]] = rw.value("mul", [args[0], size], names=[old.args[0].name], loc=loop.loc)
    rw.ops(old)
    rw.block = outer
    return inner
