"""Decides which tiles pass through LDS: operands of `mma` that come from memory are staged there.

    %a = load<bytes = 16, via = buffer>(%A[%i +: 256, %k +: 64]) : tile<bf16[256, 64]>
    %d = mma(%a, %bt, %c) : tile<f32[256, 256]>

becomes, with a direct copy where the chip has one and the access is wide enough,

    %s = shared_alloc() : shared<bf16[256, 64]>             // before the outermost loop
    ...
    copy_async<bytes = 16>(%A[%i +: 256, %k +: 64], %s)     // else: load and shared_store, or copy
    %a = shared_load(%s) : tile<bf16[256, 64]>
    %d = mma(%a, %bt, %c) : tile<f32[256, 256]>

An operand that one product sums over its rows, and another does not, is read from LDS for each of them: from one buffer where the chip has
transposing reads, else from a second one that is filled turned. No layout in registers would suit both.

An operand that is loaded before the loop of its products stays as it is: whether it passes through LDS depends on how many waves
share its elements, which `assign-layouts` knows (see `held_operands`). So does one with `stage = none`.

Waits and barriers come later, from `synchronise`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from tileir.ir.core import AttrValue, Block, Kernel, Op, Value
from tileir.ir.diagnostics import error
from tileir.ir.ops.memory import cache_of, picked_dim
from tileir.ir.rewriter import Rewriter, rewrite, uses
from tileir.ir.types import SharedType, TileType
from tileir.passes.base import Context, Pass
from tileir.passes.split_access import WIDEST
from tileir.passes.transposing_reads import has_transposing_read
from tileir.target import Target


def operand_loads(kernel: Kernel) -> list[Op]:
    """Loads whose tile reaches an `mma` as operand a or b, directly or transposed, in program order."""
    users = uses(kernel)

    def feeds_mma(v: Value) -> bool:
        for op, i in users.get(v, []):
            if (op.name == "mma" and i < 2) or (op.name == "transpose" and feeds_mma(op.result)):
                return True
        return False

    return [op for op in kernel.walk() if op.name == "load" and op.result.tile.rank == 2 and feeds_mma(op.result)]


def is_staged(op: Op) -> bool:
    """Whether an operand passes through LDS as far as its type and the text say: those of 6 bits come straight from memory, 12
    bytes a lane, of which nothing in LDS is a multiple."""
    return op.result.tile.elem.bits != 6 and op.attrs.get("stage") != "none"


def held_loads(kernel: Kernel) -> set[Op]:
    """Loads of operands that live through the loops of their products: all that use them are products in loops that the load
    stands before. Those for which the text asks for a way through LDS are not among them."""
    users = uses(kernel)
    loop = innermost(kernel)

    def all_products(v: Value, at: Op | None) -> bool:
        for op, i in users.get(v, []):
            if op.name == "mma" and i < 2 and loop.get(op) is not at:
                continue
            if op.name == "transpose" and all_products(op.result, at):
                continue
            return False
        return True

    return {
        op
        for op in operand_loads(kernel)
        if is_staged(op)
        and not (op.attrs.get("stage") or op.attrs.get("depth"))
        and picked_dim(op) is None
        and all_products(op.result, loop.get(op))
    }


def reduces_over_rows(op: Op, users: dict[Value, list[tuple[Op, int]]]) -> bool:
    """Whether the `mma` that the load feeds sums over the rows of the loaded tile, so that what a lane needs together
    does not lie together in memory."""

    return any(_sums_rows(user, i, users) for user, i in users.get(op.result, []))


def _sums_rows(user: Op, number: int, users: dict[Value, list[tuple[Op, int]]], turned: bool = False) -> bool:
    """Whether this use of a tile leads to an `mma` that sums over the rows of the tile; `turned` if it was transposed on the way."""
    if user.name == "mma" and number < 2:
        return (number == 1) != turned
    return user.name == "transpose" and any(
        _sums_rows(other, i, users, not turned) for other, i in users.get(user.result, [])
    )


def can_copy_directly(op: Op, target: Target) -> bool:
    """Whether the load can become a direct copy: 16 bytes per lane by buffer instructions, outside elements zero."""
    wide = max(target.direct_to_lds_bytes)
    return (
        op.attrs.get("bytes") == 16
        and op.attrs.get("via") == "buffer"
        and wide >= 16
        and op.attrs.get("pad", 0) == 0
        and op.attrs.get("stage") != "via_registers"
    )


def is_fast(op: Op) -> bool:
    """Whether the load belongs to the version of the kernel whose accesses are wide."""
    width = op.attrs.get("bytes")
    return op.attrs.get("via") == "buffer" or (isinstance(width, int) and width > op.result.tile.elem.unit[1])


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    fed = operand_loads(kernel)
    held = held_loads(kernel)
    staged = {op for op in fed if is_staged(op) and op not in held}
    beside = _beside(kernel, {op for op in staged if can_copy_directly(op, ctx.target)}, ctx.target)
    for op in fed:
        if op.result.tile.elem.bits == 6 and is_fast(op):
            text = f"%{op.result.name} of 6-bit elements does not pass through LDS: every wave reads what it needs from memory"
            ctx.log.remark("R0806", text, op.loc)
    for op in kernel.walk():
        if op.name == "load" and op.attrs.get("stage") not in (None, "", "none") and op not in staged:
            raise error(
                "E0602",
                f"%{op.result.name} is not an operand of an 'mma': it is not staged in LDS",
                op.loc,
                legal="stage loads that feed an 'mma' directly or through 'transpose'",
            )
    return stage(kernel, staged | beside.keys(), ctx.target, beside)


def _beside(kernel: Kernel, copied: Collection[Op], target: Target) -> dict[Op, int]:
    """Loads of what all lanes need in the loops of operands that are copied directly, if one instruction of one wave brings it: a row of numbers for
    the columns of a product, say. It is copied directly as well, since memory answers in order: who waits for a load waits for all copies
    before it. With the stages that are asked for an operand of the loop, 0 where that is open."""
    loop = innermost(kernel)
    loops: dict[Op, int] = {}
    for op in copied:
        depth = op.attrs.get("depth", 0)
        assert isinstance(depth, int)
        if op in loop:
            loops[loop[op]] = max(depth, loops.get(loop[op], 0))
    most = WIDEST * target.wave_size
    return {
        op: loops[loop[op]]
        for op in kernel.walk()
        if op.name == "load"
        and op in loop
        and loop[op] in loops
        and not op.attrs.get("stage")
        and op.result.tile.rank == 1
        and op.result.tile.size * op.result.tile.elem.bytes <= most
        and picked_dim(op) is None
        and can_copy_directly(op, target)
    }


def stage(kernel: Kernel, staged: Collection[Op], target: Target, depths: Mapping[Op, int]) -> Kernel:
    """The kernel in which these loads pass through LDS; `depths` are stages of some for which the text asks for none."""
    home = _homes(kernel, staged)
    users = uses(kernel)
    buffers: dict[Op, Value] = {}
    second: dict[Op, Value] = {}  # buffers of what lies in LDS both ways
    turned = {op for op in staged if goes_turned(op, users, target)}
    blocks = {op: block for block in _blocks(kernel.body) for op in block.ops}
    groups = {op: found for op in staged if (found := _both_ways(op, users, blocks))}
    reads: dict[Op, list[tuple[Op, bool]]] = {}  # of what is read twice, by the op before which it is read
    read: dict[tuple[Op, Value], Value] = {}  # what such a user reads, by user and operand

    def allocate(rw: Rewriter, op: Op) -> None:
        # Element-wise copies are the fallback: they take one buffer, whatever the schedule says of the fast way.
        depth = op.attrs.get("depth") or depths.get(op)
        attrs: dict[str, AttrValue] = {"depth": depth} if depth and is_fast(op) else {}

        def buffer(turned: bool) -> Value:
            type = buffer_type(op, turned)
            return rw.value("shared_alloc", (), attrs, types=[type], hint=f"s{op.result.name}", loc=op.loc)

        buffers[op] = buffer(op in turned)
        if op in turned and op in groups:
            second[op] = buffer(False)

    def rule(rw: Rewriter, op: Op) -> bool:
        if op.name in ("for", "while"):
            for inner in op.walk():
                if inner in staged and home.get(inner) is op:
                    allocate(rw, inner)
            return False
        for load, along in reads.pop(op, ()):
            group = groups[load][along]
            buffer, name = second.get(load, buffers[load]) if along else buffers[load], load.result.name
            value = read_back(rw, load, buffer, not along and load in turned, rw.names.fresh(name) if along else name)
            read.update({(user, load.result): value for user in group})
        own = {v: read[op, v] for v in op.operands if (op, v) in read}
        if own:
            rw.mapping.update(own)
            rw.copy(op)
            return True
        if op not in staged:
            return False
        if op not in buffers:
            allocate(rw, op)
        fill(rw, op, buffers[op], op in turned, target, second.get(op))
        if op in groups:
            for along, group in enumerate(groups[op]):
                reads.setdefault(group[0], []).append((op, bool(along)))
        else:
            rw.replace(op, [read_back(rw, op, buffers[op], op in turned)])
        return True

    return rewrite(kernel, rule)


def _both_ways(
    op: Op, users: dict[Value, list[tuple[Op, int]]], blocks: dict[Op, Block]
) -> tuple[list[Op], list[Op]] | None:
    """The users of a loaded tile that lead to products which sum over its rows, and those that do not; None where all are of one kind, or
    some stand in another block than the load."""
    found = users.get(op.result, [])
    over = [user for user, i in found if _sums_rows(user, i, users)]
    along = [user for user, _ in found if user not in over]
    together = all(blocks[user] is blocks[op] for user, _ in found)
    return (over, along) if over and along and together else None


def _blocks(block: Block) -> Iterator[Block]:
    """A block and all inside of it."""
    yield block
    for op in block.ops:
        for region in op.regions:
            yield from _blocks(region)


def goes_turned(op: Op, users: dict[Value, list[tuple[Op, int]]], target: Target) -> bool:
    """Whether a tile is turned in registers on its way to LDS, because the chip has no transposing reads for it."""
    t = op.result.tile
    return (
        # bytes of several elements cannot be read element by element
        (is_fast(op) or t.elem.unit[0] > 1)
        and t.elem.bits <= 16
        and reduces_over_rows(op, users)
        and not has_transposing_read(t.elem.bits, t.shape, target)
    )


def buffer_type(op: Op, turned: bool) -> SharedType:
    """The type of the LDS buffer for a load."""
    t = op.result.tile
    return SharedType(t.elem, t.shape[::-1] if turned else t.shape)


def fill(rw: Rewriter, op: Op, buffer: Value, turned: bool, target: Target, plain: Value | None = None) -> None:
    """Brings what the old `op` loads to a buffer; where it goes there turned, as it is to the buffer `plain`, too."""
    elem = op.result.tile.elem
    if turned:
        loaded = _loaded(rw, op)
        if plain is not None:
            rw.op("shared_store", [loaded, plain])
        value = rw.value("transpose", [loaded], hint=f"t{op.result.name}")
        rw.op("shared_store", [value, buffer])
        return
    operands = [*(rw.use(v) for v in op.operands), buffer]
    attrs: dict[str, AttrValue]
    if can_copy_directly(op, target):
        attrs = {"bytes": 16, **cache_of(op)}
        rw.op("copy_async", operands, attrs, spans=op.spans, operand_locs=op.operand_locs)
    elif op.attrs.get("via") == "global" and picked_dim(op) is None:  # element by element: keep few registers live
        attrs = {"bytes": elem.unit[1], "pad": op.attrs.get("pad", 0), **cache_of(op)}
        rw.op("copy", operands, attrs, spans=op.spans, operand_locs=op.operand_locs)
    else:
        rw.op("shared_store", [_loaded(rw, op), buffer])


def read_back(rw: Rewriter, op: Op, buffer: Value, turned: bool, name: str = "") -> Value:
    """The tile that the old `op` loads, from its buffer, under its name or a new one."""
    t, names = op.result.tile, [name or op.result.name]
    if not turned:
        return rw.value("shared_load", [buffer], types=[t], names=names)
    read = rw.value("shared_load", [buffer], types=[TileType(t.elem, t.shape[::-1])], hint=f"r{op.result.name}")
    return rw.value("transpose", [read], names=names)


def _loaded(rw: Rewriter, op: Op) -> Value:
    attrs = {k: v for k, v in op.attrs.items() if k not in ("stage", "depth")}
    operands = [rw.use(v) for v in op.operands]
    return rw.value("load", operands, attrs, spans=op.spans, hint=f"g{op.result.name}")


def innermost(kernel: Kernel) -> dict[Op, Op]:
    """For each op inside a loop the innermost loop around it."""
    found: dict[Op, Op] = {}

    def visit(block: Block, loop: Op | None) -> None:
        for op in block.ops:
            if loop is not None:
                found[op] = loop
            for region in op.regions:
                visit(region, op if op.name in ("for", "while") else loop)

    visit(kernel.body, None)
    return found


def _homes(kernel: Kernel, staged: Collection[Op]) -> dict[Op, Op]:
    """For each staged load in a loop the loop before which its buffer is allocated: the outermost one, or, where several loops in that one
    stage something, the one around the load, so that they can have the same bytes one after the other."""
    outermost, nearest = _outermost(kernel), innermost(kernel)
    staging: dict[Op, set[Op]] = {}
    for op in staged:
        if op in outermost:
            staging.setdefault(outermost[op], set()).add(nearest[op])
    return {op: nearest[op] if len(staging[loop]) > 1 else loop for op, loop in outermost.items() if op in staged}


def _outermost(kernel: Kernel) -> dict[Op, Op]:
    """For each op inside a loop the outermost enclosing loop; `if` regions are looked through."""
    found: dict[Op, Op] = {}

    def visit(block: Block, loop: Op | None) -> None:
        for op in block.ops:
            if loop is not None:
                found[op] = loop
            for region in op.regions:
                visit(region, loop or (op if op.name in ("for", "while") else None))

    visit(kernel.body, None)
    return found


PASS = Pass(
    "place-memory",
    _run,
    requires=frozenset({"accesses_chosen"}),
    establishes=frozenset({"placed"}),
    summary="stages the operands of mma in LDS",
)
