"""Cuts the tiles of k of a loop so that LDS holds more stages, or joins them so that LDS is used.

    %d = for %k = %c0 to %K step %c64 carry(%c = %zero) {
      %a = load(%A[%i +: 256, %k +: 64]) : tile<bf16[256, 64]>
      %b = load(%B[%j +: 256, %k +: 64]) : tile<bf16[256, 64]>
      %e = mma(%a, transpose(%b), %c)
      yield %e
    }

becomes the same loop over tiles of 32. The room of LDS then holds twice the stages, each half as large: a buffer is free for the next copy after
half the time, and copies spread over it. Tiles are cut until LDS holds three stages, which need one turn an iteration instead of two, – of tiles that go
through registers, until it holds one –, while rows are at least 64 bytes, half a cache line. By the simulator's model (`docs/scheduling.md`) 256x256x64
loops of four and eight waves keep the matrix pipes busy for more of their time so.

The other way round tiles of short rows are joined: to rows of 64 bytes where they are copied directly, which matrix instructions of 8-bit
floats need for their full rate; to rows of a cache line where LDS holds three stages of them and has no room for a second workgroup either way, or where tiles
go through registers and then fill more than half of LDS, so that a turn of the buffers serves more products.

Loops that count tiles count elements first (`count_elements`). What the loop computes is the same, so it must end where the tiles end,
with the view: the last tile of the text may reach further. Loops that find scales by their variable count blocks in the end
(`scaled_products`).
"""

from __future__ import annotations

from tileir.ir.core import AttrValue, Block, Kernel, Op, Value
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.ir.types import GlobalType, TileType
from tileir.passes.base import Context, Pass
from tileir.passes.count_elements import constant_of, count_elements
from tileir.passes.loop_stages import MOST_DEPTH
from tileir.passes.mfma_choice import instructions
from tileir.passes.scaled_products import count_blocks
from tileir.target import Target

LEAST_STAGES = 3  # of what is copied directly: one turn an iteration is enough for them
ROW_BYTES = 64  # of a tile of k: what one read of each lane group takes, and half a cache line
LONG_ROW_BYTES = 128  # of a tile of k that is joined from several: a cache line
VIA_REGISTERS = "via_registers"
WIDE = 16  # bytes of a direct copy of a lane


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    kernel = count_elements(kernel)
    widths = {op: size for op in kernel.walk() if op.name == "for" and (size := _width(op, ctx.target))}
    inside = {inner: loop for loop in widths for inner in loop.regions[0].ops}
    variables = {loop.regions[0].args[0] for loop in widths}

    def rule(rw: Rewriter, op: Op) -> bool:
        if op in widths:
            operands = [rw.use(v) for v in op.operands]
            operands[2] = rw.constant(widths[op], op.operands[2].tile.elem, op.loc)
            region = rw.region(op.regions[0])
            made = rw.op("for", operands, op.attrs, regions=[region], loc=op.loc, names=[v.name for v in op.results])
            rw.replace(op, made.results)
            return True
        if op not in inside or op.name not in ("load", "transpose"):
            return False
        old, new = constant_of(inside[op].operands[2]), widths[inside[op]]
        assert old is not None
        axis = _narrow_axis(op, variables)
        t = op.result.tile
        shape = tuple(new if i == axis else n for i, n in enumerate(t.shape))
        attrs: dict[str, AttrValue] = dict(op.attrs)
        spans = op.spans
        if op.name == "load":
            assert spans is not None
            depth = attrs.get("depth", 0)
            assert isinstance(depth, int)
            if depth and attrs.get("stage") != VIA_REGISTERS:
                attrs["depth"] = depth * old // new
            places = [i for i, s in enumerate(spans) if s is not None]
            spans = tuple(new if s is not None and i == places[axis] else s for i, s in enumerate(spans))
        value = Value(op.result.name, TileType(t.elem, shape), op.result.loc)
        rw.insert(Op(op.name, [rw.use(v) for v in op.operands], attrs, [value], [], spans, op.loc, op.operand_locs))
        rw.replace(op, [value])
        return True

    return count_blocks(rewrite(kernel, rule) if widths else kernel)


def _narrow_axis(op: Op, variables: set[Value]) -> int:
    """The dimension of a loaded or transposed tile that the loop runs over."""
    if op.name == "transpose":
        source = op.operands[0].owner
        assert source is not None
        return 1 - _narrow_axis(source, variables)
    assert op.spans is not None
    loop_dim = next(i for i, v in enumerate(op.operands[1:]) if v in variables)
    return [i for i, s in enumerate(op.spans) if s is not None].index(loop_dim)


def _width(loop: Op, target: Target) -> int:
    """The k of the tiles of a loop where it should be another, else 0."""
    body, size = loop.regions[0], constant_of(loop.operands[2])
    names = {op.name for op in body.ops}
    attrs_open = loop.attrs.get("pattern", "") != "plain" and not loop.attrs.get("slices")
    if (
        size is None
        or not attrs_open
        or not {"mma", "load"} <= names
        or not names <= {"mma", "load", "transpose", "yield"}
    ):
        return 0
    loads = [op for op in body.ops if op.name == "load"]
    direct = max(target.direct_to_lds_bytes) >= WIDE
    if not all(_is_free(op, loop, size, direct=direct) and _is_contracted(op, body) for op in loads):
        return 0
    deepest = max(_deepest(op, target) for op in body.ops if op.name == "mma")
    depths = {d for op in loads if isinstance(d := op.attrs.get("depth", 0), int) and d}
    if 1 in depths:
        return 0
    tile = sum(op.result.tile.size * op.result.tile.elem.bytes for op in loads)
    row = min(size * op.result.tile.elem.bytes for op in loads)
    stages = LEAST_STAGES if direct else 1
    parts = 1
    while target.lds_bytes * parts < stages * tile and not row % (2 * parts * ROW_BYTES):
        if deepest > size // (2 * parts) or (direct and any(d * 2 * parts > MOST_DEPTH for d in depths)):
            break
        parts *= 2
    if parts > 1:  # tiles of which not even one fits are left for the error that says so
        return size // parts if target.lds_bytes * parts >= tile else 0
    return size * _joined(tile, row, depths, target, direct=direct)


def _joined(tile: int, row: int, depths: set[int], target: Target, *, direct: bool) -> int:
    """How many tiles of so many bytes, with rows of k of so many, are joined to one; 0 if none."""
    if row & (row - 1):
        return 0
    if direct:
        times, most = ROW_BYTES // row, LONG_ROW_BYTES // row
        room = MOST_DEPTH * tile * times <= target.lds_bytes
        alone = 2 * MOST_DEPTH * tile * max(1, times) > target.lds_bytes  # no second workgroup has room beside
        if alone and LEAST_STAGES * tile * most <= target.lds_bytes and _divides(most, depths):
            return most
        return times if room and _divides(times, depths) else 0
    if not 0 < tile <= target.lds_bytes:
        return 0
    times = min(LONG_ROW_BYTES // row, 1 << (target.lds_bytes // tile).bit_length() - 1)
    return times if times > 1 and 2 * tile * times > target.lds_bytes else 0


def _divides(times: int, depths: set[int]) -> bool:
    """Whether so many tiles may be joined where the text states these numbers of stages."""
    return times > 1 and not any(d % times or d == times for d in depths)


def _deepest(op: Op, target: Target) -> int:
    """The least k that a product needs for its full rate: that of the instruction that the text states, or of one that fits the
    part of each wave, where the text states the waves."""
    instr, waves = op.attrs.get("instr"), op.attrs.get("waves")
    if isinstance(instr, tuple) and len(instr) == 3:
        return instr[2]
    shape = op.result.tile.shape
    parts = [n // w for n, w in zip(shape, waves, strict=True)] if isinstance(waves, tuple) and waves else shape
    fitting = [i.k for i in instructions(op, target) if not any(n % i.m for n in parts)]
    return min(fitting, default=0)


def _is_free(op: Op, loop: Op, size: int, *, direct: bool) -> bool:
    """Whether the tile of a load may be of another k: it runs along the loop, to the end of its view, and is staged in LDS."""
    view, spans, t = op.operands[0].type, op.spans, op.result.tile
    variable = loop.regions[0].args[0]
    assert isinstance(view, GlobalType) and spans is not None
    staged = op.attrs.get("via", "buffer") == "buffer" and op.attrs.get("pad", 0) == 0
    staged = staged and not (direct and op.attrs.get("stage") == VIA_REGISTERS)
    moving = [i for i, v in enumerate(op.operands[1:]) if v is variable]
    inside = {r for inner in loop.regions[0].ops for r in inner.results} | set(loop.regions[0].args)
    if not staged or t.rank != 2 or t.elem.bits not in (8, 16) or len(moving) != 1:
        return False
    (dim,) = moving
    if spans[dim] != size or any(v in inside for i, v in enumerate(op.operands[1:]) if i != dim):
        return False
    return _ends_with(loop.operands[1], view.dims[dim])


def _ends_with(end: Value, dim: int | str) -> bool:
    """Whether a loop ends where the view ends."""
    op = end.owner
    if op is not None and op.name == "dim":
        return op.attrs["symbol"] == dim
    return constant_of(end) == dim


def _is_contracted(load: Op, body: Block) -> bool:
    """Whether every product sums over the dimension of the loaded tile that the loop runs over."""

    def check(v: Value, axis: int) -> bool:
        users = [(op, i) for op in body.ops for i, w in enumerate(op.operands) if w is v]
        for op, i in users:
            if op.name == "transpose":
                if not check(op.result, 1 - axis):
                    return False
            elif op.name != "mma" or i > 1 or axis != 1 - i:
                return False
        return bool(users)

    assert load.spans is not None
    dim = next(i for i, v in enumerate(load.operands[1:]) if v is body.args[0])
    return check(load.result, [i for i, s in enumerate(load.spans) if s is not None].index(dim))


PASS = Pass(
    "narrow-loops",
    _run,
    requires=frozenset({"bound"}),
    summary="cuts or joins tiles of k, so that LDS holds enough stages and no more",
)
