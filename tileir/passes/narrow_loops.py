"""Cuts the tiles of k of a loop that copies to LDS, so that LDS holds more stages.

    %d = for %k = %c0 to %K step %c64 carry(%c = %zero) {
      %a = load(%A[%i +: 256, %k +: 64]) : tile<bf16[256, 64]>
      %b = load(%B[%j +: 256, %k +: 64]) : tile<bf16[256, 64]>
      %e = mma(%a, transpose(%b), %c)
      yield %e
    }

becomes the same loop over tiles of 32. The room of LDS then holds twice the stages, each half as large: a buffer is free for the next copy after
half the time, and copies spread over it. Tiles are cut until LDS holds as many stages as a loop may have – of tiles that go through registers, until it holds
one –, while rows are at least 64 bytes, half a cache line. By the simulator's model (`docs/scheduling.md`) 256x256x64 loops of four and eight waves
keep the matrix pipes busy for more of their time so.

What the loop computes is the same, so it must end where the tiles end, with the view: the last tile of the text may reach further.
"""

from __future__ import annotations

from tileir.ir.core import AttrValue, Block, Kernel, Op, Value
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.ir.types import GlobalType, TileType
from tileir.passes.base import Context, Pass
from tileir.passes.loop_stages import MOST_DEPTH
from tileir.passes.mfma_choice import instructions
from tileir.target import Target

ROW_BYTES = 64  # of a tile of k: what one read of each lane group takes, and half a cache line
WIDE = 16  # bytes of a direct copy of a lane


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    factors = {op: factor for op in kernel.walk() if op.name == "for" and (factor := _factor(op, ctx.target)) > 1}
    inside = {inner: factor for loop, factor in factors.items() for inner in loop.regions[0].ops}

    variables = {loop.regions[0].args[0] for loop in factors}

    def rule(rw: Rewriter, op: Op) -> bool:
        if op in factors:
            step = op.operands[2]
            size = _constant(step)
            assert size is not None
            narrow = rw.constant(size // factors[op], step.tile.elem, op.loc)
            operands = [rw.use(v) for v in op.operands]
            operands[2] = narrow
            region = rw.region(op.regions[0])
            made = rw.op("for", operands, op.attrs, regions=[region], loc=op.loc, names=[v.name for v in op.results])
            rw.replace(op, made.results)
            return True
        if op not in inside or op.name not in ("load", "transpose"):
            return False
        factor = inside[op]
        axis = _narrow_axis(op, variables)
        t = op.result.tile
        shape = tuple(n // factor if i == axis else n for i, n in enumerate(t.shape))
        attrs: dict[str, AttrValue] = dict(op.attrs)
        spans = op.spans
        if op.name == "load":
            assert spans is not None
            depth = attrs.get("depth", 0)
            assert isinstance(depth, int)
            if depth:
                attrs["depth"] = depth * factor
            places = [i for i, s in enumerate(spans) if s is not None]
            spans = tuple(s // factor if s is not None and i == places[axis] else s for i, s in enumerate(spans))
        value = Value(op.result.name, TileType(t.elem, shape), op.result.loc)
        rw.insert(Op(op.name, [rw.use(v) for v in op.operands], attrs, [value], [], spans, op.loc, op.operand_locs))
        rw.replace(op, [value])
        return True

    return rewrite(kernel, rule) if factors else kernel


def _constant(v: Value) -> int | None:
    value = v.owner.attrs["value"] if v.owner is not None and v.owner.name == "constant" else None
    return value if isinstance(value, int) else None


def _narrow_axis(op: Op, variables: set[Value]) -> int:
    """The dimension of a loaded or transposed tile that the loop runs over."""
    if op.name == "transpose":
        source = op.operands[0].owner
        assert source is not None
        return 1 - _narrow_axis(source, variables)
    assert op.spans is not None
    loop_dim = next(i for i, v in enumerate(op.operands[1:]) if v in variables)
    return [i for i, s in enumerate(op.spans) if s is not None].index(loop_dim)


def _factor(loop: Op, target: Target) -> int:
    """Into how many parts the tiles of a loop are cut, 1 if they are not."""
    body, size = loop.regions[0], _constant(loop.operands[2])
    names = {op.name for op in body.ops}
    attrs_open = loop.attrs.get("pattern", "") != "plain" and not loop.attrs.get("slices")
    if (
        size is None
        or not attrs_open
        or not {"mma", "load"} <= names
        or not names <= {"mma", "load", "transpose", "yield"}
    ):
        return 1
    loads = [op for op in body.ops if op.name == "load"]
    most = min(_most(op, loop, size) for op in loads)
    deepest = max(_deepest(op, target) for op in body.ops if op.name == "mma")
    depths = [d for op in loads if isinstance(d := op.attrs.get("depth", 0), int) and d]
    if most < 2 or 1 in depths or not all(_is_contracted(op, body) for op in loads):
        return 1
    stages = MOST_DEPTH if max(target.direct_to_lds_bytes) >= WIDE else 1
    tile = sum(op.result.tile.size * op.result.tile.elem.bytes for op in loads)
    factor = 1
    while 2 * factor <= most and target.lds_bytes * factor < stages * tile:
        if (
            any(_row_bytes(op, size) % (2 * factor * ROW_BYTES) for op in loads)
            or deepest > size // (2 * factor)
            or any(d * 2 * factor > MOST_DEPTH for d in depths)
        ):
            break
        factor *= 2
    return factor


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


def _most(op: Op, loop: Op, size: int) -> int:
    """By how much the tile of a load may be narrower; 1 where the load does not run along the loop, or is not staged in LDS."""
    view, spans, t = op.operands[0].type, op.spans, op.result.tile
    variable = loop.regions[0].args[0]
    assert isinstance(view, GlobalType) and spans is not None
    direct = op.attrs.get("via", "buffer") == "buffer" and op.attrs.get("pad", 0) == 0
    moving = [i for i, v in enumerate(op.operands[1:]) if v is variable]
    inside = {r for inner in loop.regions[0].ops for r in inner.results} | set(loop.regions[0].args)
    if (
        not direct
        or op.attrs.get("stage") == "via_registers"
        or t.rank != 2
        or t.elem.bits not in (8, 16)
        or len(moving) != 1
    ):
        return 1
    (dim,) = moving
    if spans[dim] != size or any(v in inside for i, v in enumerate(op.operands[1:]) if i != dim):
        return 1
    if not _ends_with(loop.operands[1], view.dims[dim]):
        return 1
    return max(1, _row_bytes(op, size) // ROW_BYTES)


def _row_bytes(load: Op, size: int) -> int:
    """Bytes of so many values of k."""
    return size * load.result.tile.elem.bytes


def _ends_with(end: Value, dim: int | str) -> bool:
    """Whether a loop ends where the view ends."""
    op = end.owner
    if op is not None and op.name == "dim":
        return op.attrs["symbol"] == dim
    return _constant(end) == dim


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
    summary="cuts tiles of k so that LDS holds more stages",
)
