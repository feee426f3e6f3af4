"""Decides which tiles pass through LDS: operands of `mma` that come from memory are staged there.

    %a = load<bytes = 16, via = buffer>(%A[%i +: 256, %k +: 64]) : tile<bf16[256, 64]>
    %d = mma(%a, %bt, %c) : tile<f32[256, 256]>

becomes, with a direct copy where the chip has one and the access is wide enough,

    %s = shared_alloc() : shared<bf16[256, 64]>             // before the outermost loop
    ...
    copy_async<bytes = 16>(%A[%i +: 256, %k +: 64], %s)     // else: load and shared_store, or copy
    %a = shared_load(%s) : tile<bf16[256, 64]>
    %d = mma(%a, %bt, %c) : tile<f32[256, 256]>

An operand that is loaded before the loop of its products stays as it is: whether it passes through LDS depends on how many waves
share its elements, which `assign-layouts` knows (see `held_operands`). So does one with `stage = none`.

Waits and barriers come later, from `synchronise`.
"""

from __future__ import annotations

from collections.abc import Collection

from tileir.ir.core import AttrValue, Block, Kernel, Op, Value
from tileir.ir.diagnostics import error
from tileir.ir.ops.memory import cache_of, picked_dim
from tileir.ir.rewriter import Rewriter, rewrite, uses
from tileir.ir.types import SharedType, TileType
from tileir.passes.base import Context, Pass
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

    def over_rows(v: Value, turned: bool) -> bool:
        for user, i in users.get(v, []):
            if user.name == "mma" and i < 2:
                return (i == 1) != turned
            if user.name == "transpose" and over_rows(user.result, not turned):
                return True
        return False

    return over_rows(op.result, False)


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
    return stage(kernel, staged, ctx.target)


def stage(kernel: Kernel, staged: Collection[Op], target: Target) -> Kernel:
    """The kernel in which these loads pass through LDS."""
    outer = _outermost(kernel)
    users = uses(kernel)
    buffers: dict[Op, Value] = {}
    turned = {op for op in staged if goes_turned(op, users, target)}

    def allocate(rw: Rewriter, op: Op) -> None:
        # Element-wise copies are the fallback: they take one buffer, whatever the schedule says of the fast way.
        attrs = {"depth": op.attrs["depth"]} if op.attrs.get("depth") and is_fast(op) else {}
        buffers[op] = rw.value(
            "shared_alloc", (), attrs, types=[buffer_type(op, op in turned)], hint=f"s{op.result.name}", loc=op.loc
        )

    def rule(rw: Rewriter, op: Op) -> bool:
        if op.regions and op not in outer:  # a loop or branch at the level where buffers live
            for inner in op.walk():
                if inner in staged and outer.get(inner) is op:
                    allocate(rw, inner)
            return False
        if op not in staged:
            return False
        if op not in buffers:
            allocate(rw, op)
        fill(rw, op, buffers[op], op in turned, target)
        rw.replace(op, [read_back(rw, op, buffers[op], op in turned)])
        return True

    return rewrite(kernel, rule)


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


def fill(rw: Rewriter, op: Op, buffer: Value, turned: bool, target: Target) -> None:
    """Brings what the old `op` loads to a buffer."""
    elem = op.result.tile.elem
    if turned:
        value = rw.value("transpose", [_loaded(rw, op)], hint=f"t{op.result.name}")
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
