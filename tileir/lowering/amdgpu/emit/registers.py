"""Ops that make tiles or rename their registers: fill, iota, transpose, reshape, broadcast, convert_layout."""

from __future__ import annotations

from collections.abc import Sequence

from tileir.ir.core import Op
from tileir.ir.ops.shape import permutation
from tileir.ir.types import Elem
from tileir.layout.conversion import conversion, transpose_sources
from tileir.lowering.amdgpu.emit.coords import Coordinate, coordinate
from tileir.lowering.amdgpu.emit.elementwise import column, operand_pieces
from tileir.lowering.amdgpu.emit.state import Anew, State
from tileir.lowering.amdgpu.emit.tiles import Tile
from tileir.lowering.amdgpu.emit.writer import scalar_type, vector_type


def constant(s: State, op: Op) -> None:
    value = op.attrs["value"]
    assert isinstance(value, int | float)
    s.values[op.result] = s.splat_literal(value, op.result.tile.elem, 1)


def fill(s: State, op: Op) -> None:
    t, scalar = op.result.tile, op.operands[0]
    if t.is_scalar:
        s.values[op.result] = s.scalar(scalar)
        return
    text = ""
    if scalar.owner is not None and scalar.owner.name == "constant":
        value = scalar.owner.attrs["value"]
        assert isinstance(value, int | float)
        text = s.literal(value, t.elem)
    s.values[op.result] = Tile.of_scalar(t, s.scalar(scalar), text)


def iota(s: State, op: Op) -> None:
    t = op.result.tile
    layout, axis = t.layout, op.attrs.get("axis", 0)
    assert layout is not None and isinstance(axis, int)

    def make() -> Tile:
        places = [coordinate(s.w, layout, r, axis) for r in range(layout.num_registers)]
        if s.has_products and s.w.in_loop:  # one register for all of them, not one each from before the loop
            return Tile.at_places(t, s.w, [Coordinate(s.in_block(c.base), c.offset) for c in places])
        return Tile(t, 1, [s.w.add(c.base, c.offset) for c in places])

    s.values[op.result] = Anew(make)


def renamed(s: State, op: Op, sources: Sequence[int]) -> None:
    """The result's register r is the operand's register sources[r] (-1: any)."""
    tile = s.tile(op.operands[0])
    if tile.splat or list(sources) == list(range(tile.count)):
        s.values[op.result] = tile.retyped(op.result.tile)
        return
    if s.is_deferrable(op):
        s.values[op.result] = Tile.deferred(op.result.tile, 1, lambda i: tile.register(s.w, max(sources[i], 0)))
        return
    scalars = tile.scalars(s.w)
    s.values[op.result] = Tile(op.result.tile, 1, [scalars[max(i, 0)] for i in sources])


def transpose(s: State, op: Op) -> None:
    layout = op.operands[0].tile.layout
    assert layout is not None
    renamed(s, op, transpose_sources(layout, permutation(op.attrs, layout.rank)))


def reshape(s: State, op: Op) -> None:
    """A layout is reshaped in the same registers; a tile of one element becomes or was a scalar."""
    x, r = op.operands[0], op.result
    if r.tile.is_scalar:
        s.values[r] = s.scalar(x) if x.tile.is_scalar else uniform(s, s.tile(x).scalars(s.w)[0], r.tile.elem)
    elif x.tile.is_scalar:
        s.values[r] = Tile.of_scalar(r.tile, s.scalar(x))
    else:
        s.values[r] = s.tile(x).retyped(r.tile)


def regroup(s: State, op: Op) -> None:
    """`pack` and `unpack`: the same bits in the same registers, in pieces of whole integers."""
    w, x, t = s.w, op.operands[0].tile, op.result.tile
    assert x.layout is not None and t.layout is not None
    tile = s.tile(op.operands[0])
    n = max(1, x.layout.num_registers // t.layout.num_registers)
    size = max(tile.chunk, n)
    count = size * t.layout.num_registers // x.layout.num_registers
    source, target = vector_type(scalar_type(x.elem), size), vector_type(scalar_type(t.elem), count)
    s.values[op.result] = Tile(t, count, [w.bitcast(piece, source, target) for piece in tile.get(w, size)])


def uniform(s: State, value: str, elem: Elem) -> str:
    """A value that all lanes hold, as one that LLVM knows to be the same in all: it may steer branches and address memory."""
    w = s.w
    if elem.bits > 32:
        halves = [w.extract(w.bitcast(value, scalar_type(elem), "vector<2xi32>"), i, "vector<2xi32>") for i in range(2)]
        first = [w.op(f"rocdl.readfirstlane {x} : i32") for x in halves]
        return w.bitcast(w.pack(first, "i32"), "vector<2xi32>", scalar_type(elem))
    word = f"i{elem.bits}" if not elem.is_bool else "i1"
    bits = w.bitcast(value, scalar_type(elem), word)
    wide = bits if word == "i32" else w.op(f"llvm.zext {bits} : {word} to i32")
    first = w.op(f"rocdl.readfirstlane {wide} : i32")
    bits = first if word == "i32" else w.op(f"llvm.trunc {first} : i32 to {word}")
    return w.bitcast(bits, word, scalar_type(elem))


def broadcast(s: State, op: Op) -> None:
    t, x = op.result.tile, op.operands[0]
    if t.is_scalar:
        s.values[op.result] = s.scalar(x)
    elif s.is_deferrable(op):
        s.values[op.result] = Tile.deferred(t, 1, column(s, x, t, 1))
    else:
        s.values[op.result] = Tile(t, 1, operand_pieces(s, x, t, 1))


def convert_layout(s: State, op: Op) -> None:
    src, dst = op.operands[0].tile.layout, op.result.tile.layout
    assert src is not None and dst is not None
    sources = conversion(src, dst).sources
    if sources is None:
        raise s.unsupported("a convert_layout that moves data between lanes", op.loc, "run the pass lower-conversions")
    renamed(s, op, sources)
