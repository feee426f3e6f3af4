"""Global memory: strides, bounds, descriptors, and loads; stores are in `stores`.

Accesses by `buffer` use a descriptor that starts at the tile; a lane whose element is outside of the view gets an offset beyond
any descriptor, so the hardware returns zero or drops the store. Accesses by `global` are
right for any distance between rows: loads compute 64-bit addresses, and a lane that is outside reads from a block of zeros;
stores see `far_stores`. Rows that a tile of indices picks (`Picked`) may lie anywhere, so their loads and stores are `global`.

Scalars that several accesses share (strides, sizes of views) are computed at each: LLVM shares what is in one block and
hoists what a loop repeats, while values kept from the entry of the kernel on would fill the scalar registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tileir.ir.core import Op, Value
from tileir.ir.diagnostics import error
from tileir.ir.ops.memory import indices_of, picked_dim, tile_dims
from tileir.ir.registry import get
from tileir.ir.types import GlobalType, TileType
from tileir.layout import Layout
from tileir.lowering.amdgpu.emit.bounds import (
    OUTSIDE,
    Access,
    Bounds,
    BufferOffsets,
    Picked,
    base_offset,
    descriptor,
    dim_value,
    lane_offset,
    scaled,
    stride,
)
from tileir.lowering.amdgpu.emit.clipped import clipped_row, is_row, not_negative, row_offsets
from tileir.lowering.amdgpu.emit.coords import Coordinate, coordinate, lane, masks, register_table, wave
from tileir.lowering.amdgpu.emit.state import State
from tileir.lowering.amdgpu.emit.tiles import Tile, tied
from tileir.lowering.amdgpu.emit.writer import Scope, Writer, scalar_type, vector_type
from tileir.passes.split_access import contiguous_dim

# Bit NT of the cache policy that buffer instructions take (LLVM, SIDefines.h, CPol: NT is the place of SLC).
NON_TEMPORAL = 2
ZERO_BYTES = 16
MOST_ACCESSES = 1024  # per lane and op
LANES = 64


def policy(w: Writer, op: Op) -> str:
    """The cache policy of an access as buffer instructions take it."""
    return w.const(NON_TEMPORAL if op.attrs.get("cache") == "streaming" else 0)


def hint(op: Op) -> str:
    """The same as an attribute of plain accesses."""
    return ", nontemporal" if op.attrs.get("cache") == "streaming" else ""


def access_of(s: State, op: Op, layout: Layout | None = None) -> Access:
    """The access of an op; `layout` is that of the accessed tile, if the op can pick rows."""
    at = get(op.name).access_position
    assert at is not None and op.spans is not None
    indices = indices_of(op)
    dims = list(tile_dims(op))
    dim = picked_dim(op)
    picked = None
    if dim is not None:
        if layout is None:
            place = op.loc_of(at + 1 + dim)
            raise s.unsupported(f"'{op.name}' of picked rows", place, "a scalar index, or 'start +: extent'")
        picked = _picked(s, indices[dim], dim, dims.index(dim), layout)
    return Access(
        op.operands[at],
        op.spans,
        ["" if d == dim else s.scalar(v) for d, v in enumerate(indices)],
        [scalar_type(v.tile.elem) for v in indices],
        dims,
        picked,
        tuple(constant_of(v) for v in indices),
    )


def constant_of(v: Value) -> int | None:
    """The number that a value always is, None if it is no integer constant."""
    if v.owner is None or v.owner.name != "constant":
        return None
    value = v.owner.attrs["value"]
    return value if isinstance(value, int) else None


def _picked(s: State, index: Value, dim: int, tile_dim: int, layout: Layout) -> Picked:
    """The lane's indices, of which the tile of indices has those that it needs (see `Layout.project`)."""
    own = index.tile.layout
    assert own is not None
    values = s.tile(index).scalars(s.w)
    # Repetitions of the one may be register bits of the other, which leave no bits of lanes: sums tell registers apart.
    at = {sum(place[0]): value for place, value in zip(register_table(own), values, strict=True)}
    rows: dict[Coordinate, str] = {}
    for r, place in enumerate(register_table(layout)):
        rows[coordinate(s.w, layout, r, tile_dim)] = at[sum(place[tile_dim])]
    return Picked(dim, tile_dim, scalar_type(index.tile.elem), rows)


def as_words(s: State, resource: str) -> str:
    """A descriptor as one value of four scalar registers (vector<4xi32>), for use in another block. LLVM hands pointers to buffers
    from block to block in parts, and puts them together again for each use."""
    w = s.w
    number = w.op(f"llvm.ptrtoint {resource} : !llvm.ptr<8> to i128")
    return tied(w, w.bitcast(number, "i128", "vector<4xi32>"), "vector<4xi32>", "s", ordered=True)


def from_words(s: State, words: str) -> str:
    """The descriptor again, in the block that uses it."""
    return s.w.op(f"llvm.inttoptr {s.w.bitcast(words, 'vector<4xi32>', 'i128')} : i128 to !llvm.ptr<8>")


def vector_length(s: State, op: Op, t: TileType) -> int:
    """Elements per lane and access: what the text allows and the registers hold contiguously. Raises CompileError where a
    lane would need more accesses than a sensible program has (LLVM takes minutes for thousands)."""
    wide, at = op.attrs["bytes"], get(op.name).access_position
    assert isinstance(wide, int) and t.layout is not None and at is not None and op.spans is not None
    view = op.operands[at].type
    assert isinstance(view, GlobalType)
    d = contiguous_dim(view)
    dims = tile_dims(op)
    n, (together, size) = 1, t.elem.unit
    if d in dims:
        n = max(1, min(wide // size * together, t.layout.contiguous(dims.index(d))))
    if together > 1:
        n = n if t.elem.run_bytes(n) in MEMORY_TYPES and n % together == 0 else together if n > together else n
        if n < together:
            raise s.unsupported(
                f"'{op.name}' of {t.with_layout(None)}, of which a lane holds parts of bytes,",
                op.loc,
                f"a tile with {together} or more elements for a lane along the dimension that is contiguous in memory",
            )
    count = t.layout.num_registers // n
    if count > MOST_ACCESSES:
        raise error(
            "E0864",
            f"every lane makes {count} accesses for this {op.name} of {t.with_layout(None)}",
            op.loc,
            legal=f"at most {MOST_ACCESSES} of {s.target.wave_size} lanes a wave: a smaller tile, more waves, or a loop",
        )
    return n


THREE_BYTES = "i24"
MEMORY_TYPES = {
    1: "i8", 2: "i16", 3: THREE_BYTES, 4: "i32", 8: "vector<2xi32>", 12: "vector<3xi32>", 16: "vector<4xi32>",
}  # fmt: skip


def alignment(bytes: int) -> int:
    """Alignment of an access in memory that is a multiple of its size."""
    return bytes & -bytes


def memory_type(bytes: int) -> str:
    """Integer type that carries so many bytes through a memory access."""
    return MEMORY_TYPES[bytes]


def from_memory(w: Writer, raw: str, t: TileType, n: int) -> str:
    """Loaded bytes as `n` elements in register form."""
    source = memory_type(t.elem.run_bytes(n))
    if source == THREE_BYTES:
        return w.op(f"llvm.zext {raw} : i24 to i32")
    if t.elem.is_bool:
        return w.icmp(
            "ne", w.bitcast(raw, source, vector_type("i8", n)), w.splat_const("0", "i8", n), vector_type("i8", n)
        )
    return w.bitcast(raw, source, vector_type(scalar_type(t.elem), n))


def to_memory(w: Writer, piece: str, t: TileType, n: int) -> str:
    """`n` elements as the bytes that a memory access carries."""
    if t.elem.is_bool:
        piece = w.op(f"llvm.zext {piece} : {vector_type('i1', n)} to {vector_type('i8', n)}")
        return w.bitcast(piece, vector_type("i8", n), memory_type(n))
    target = memory_type(t.elem.run_bytes(n))
    if target == THREE_BYTES:
        return w.op(f"llvm.trunc {piece} : i32 to i24")
    return w.bitcast(piece, vector_type(scalar_type(t.elem), n), target)


def load(s: State, op: Op) -> None:
    t = op.result.tile
    if t.is_scalar:
        s.values[op.result] = _load_scalar(s, op)
        return
    layout = t.layout
    assert layout is not None
    n = vector_length(s, op, t)
    piece = _moving_pieces(s, op, n) if op in s.streams else _pieces(s, op, layout, n)
    if op in s.late.loads:
        ahead = -(-4 * s.in_flight // max(4, t.elem.run_bytes(n)))  # a piece takes a register at least
        s.values[op.result] = Tile.deferred(t, n, s.at(op.loc, piece), ahead)
    else:
        s.values[op.result] = Tile(t, n, [piece(i) for i in range(layout.num_registers // n)])


def piece_places(s: State, layout: Layout, n: int) -> list[list[Coordinate]]:
    """Place in the tile of each piece of `n` registers that a lane holds."""
    return [[coordinate(s.w, layout, r, d) for d in range(layout.rank)] for r in range(0, layout.num_registers, n)]


def _moving_pieces(s: State, op: Op, n: int) -> Callable[[int], str]:
    """Makes the pieces of a load that moves with a loop."""
    w, t, stream = s.w, op.result.tile, s.streams[op]
    raw_type = memory_type(t.elem.run_bytes(n))

    def piece(i: int) -> str:
        offset = stream.piece(s, i)
        text = f"{stream.resource}, {offset}, {stream.offset}, {policy(w, op)} : {raw_type}"
        if raw_type == THREE_BYTES:
            return from_memory(w, _three_bytes(w, stream.resource, offset, stream.offset), t, n)
        return from_memory(w, w.op(f"rocdl.raw.ptr.buffer.load {text}"), t, n)

    return piece


def _three_bytes(w: Writer, resource: str, offset: str, scalar: str) -> str:
    """An i24 by buffer loads, of which none has three bytes."""
    total = ""
    for i in range(3):
        byte = w.op(f"rocdl.raw.ptr.buffer.load {resource}, {w.add(offset, i)}, {scalar}, {w.const(0)} : i8")
        part = w.mul(w.op(f"llvm.zext {byte} : i8 to i32"), 1 << 8 * i)
        total = w.binary("or", total, part) if total else part
    return w.op(f"llvm.trunc {total} : i32 to {THREE_BYTES}")


def _pieces(s: State, op: Op, layout: Layout, n: int) -> Callable[[int], str]:
    """Makes the pieces of any other load."""
    w, t = s.w, op.result.tile
    a = access_of(s, op, layout)
    bounds = Bounds(s, a, t.shape, [masks(layout, d) for d in range(t.rank)])
    by_buffer = op.attrs["via"] == "buffer"
    if by_buffer and op.attrs.get("pad", 0) == 0 and is_row(s, op, a.type):
        return _row_pieces(s, op, a, layout, n)
    start = base_offset(s, a)
    resource = descriptor(s, a, start) if by_buffer else ""
    offsets = BufferOffsets(s, a, bounds)
    pad = op.attrs.get("pad", 0)
    assert isinstance(pad, int | float)
    raw_type = memory_type(t.elem.run_bytes(n))

    def make(i: int) -> str:
        coords = [coordinate(w, layout, i * n, d) for d in range(t.rank)]
        if by_buffer:
            zero, at = w.const(0), offsets.get(coords)
            if raw_type == THREE_BYTES:
                raw = _three_bytes(w, resource, at, zero)
            else:
                raw = w.op(f"rocdl.raw.ptr.buffer.load {resource}, {at}, {zero}, {policy(w, op)} : {raw_type}")
        else:
            test, pointer = bounds.test(coords), address(s, a, start, coords)
            pointer = w.select(test, pointer, s.zeros(), "!llvm.ptr<1>") if test else pointer
            align = alignment(t.elem.run_bytes(n))
            raw = w.op(f"llvm.load {pointer} {{alignment = {align} : i64{hint(op)}}} : !llvm.ptr<1> -> {raw_type}")
        loaded = from_memory(w, raw, t, n)
        test = bounds.test(coords) if pad != 0 else ""
        if not test:
            return loaded
        value = s.splat_literal(pad, t.elem, n)
        return w.select(test, loaded, value, vector_type(scalar_type(t.elem), n))

    def piece(i: int) -> str:
        if not by_buffer and not _counts_registers(s, op):
            return make(i)
        with w.local(_rows_here(s, op)):
            return make(i)

    return piece


def _row_pieces(s: State, op: Op, a: Access, layout: Layout, n: int) -> Callable[[int], str]:
    """Makes the pieces of a stretch of a row, of which LLVM would keep the offset of each where a loop is around."""
    w, t, (extent,) = s.w, op.result.tile, layout.shape
    raw_type = memory_type(t.elem.run_bytes(n))
    clipped = clipped_row(s, a, extent, positive=not_negative(s, op, a.type.rank - 1))
    places = [coordinate(w, layout, r, 0) for r in range(0, layout.num_registers, n)]
    offsets = row_offsets(s, places, t.elem.bytes, clipped.before)

    def piece(i: int) -> str:
        value, constant = offsets[i]
        offset = w.add(s.in_block(value), constant) if constant else value
        if clipped.before:  # the instruction would add the constant without wrapping
            offset = tied(w, offset, "i32", "v", ordered=False)
        text = f"{clipped.resource}, {offset}, {w.const(0)}, {policy(w, op)} : {raw_type}"
        return from_memory(w, w.op(f"rocdl.raw.ptr.buffer.load {text}"), t, n)

    return piece


def _counts_registers(s: State, op: Op) -> bool:
    """Whether addresses are computed at each load, though a loop repeats them: where an operand is loaded piece by piece for a product, because
    registers do not suffice to hold it, and by 64-bit addresses in a loop with products, where each would take two registers throughout."""
    if op in s.late.loads and op.attrs.get("stage") == "none":
        return True
    return s.has_products and s.w.in_loop and op.attrs["via"] != "buffer" and picked_dim(op) is None


def _rows_here(s: State, op: Op) -> Scope:
    """A stretch of the current block for one access, in which the number of the wave is opaque: where rows belong to waves, LLVM
    would keep a scalar register for each row of a tile, for the next access or in a loop, instead of adding it up again. So is
    that of the lane where every register counts: LLVM would keep what is computed from it."""
    key = s.w.block, op
    if key not in s.rows:
        known: dict[object, str] = {"wave": tied(s.w, wave(s.w), "i32", "s", ordered=True)}
        if _counts_registers(s, op):
            known["lane"] = tied(s.w, lane(s.w), "i32", "v", ordered=True)
        s.rows[key] = s.w.stretch(known)
    return s.rows[key]


def address(s: State, a: Access, base: str, coords: Sequence[Coordinate]) -> str:
    w = s.w
    offset = w.binary("add", base, lane_offset(s, a, coords), "i64")
    return w.op(f"llvm.getelementptr {s.pointer(a.view)}[{offset}] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8")


def _load_scalar(s: State, op: Op) -> str:
    w, t = s.w, op.result.tile
    a = access_of(s, op)
    inside = Bounds(s, a, (), ()).test([])
    pointer = address(s, a, base_offset(s, a), [])
    pointer = w.select(inside, pointer, s.zeros(), "!llvm.ptr<1>") if inside else pointer
    raw = w.op(
        f"llvm.load {pointer} {{alignment = {t.elem.bytes} : i64{hint(op)}}} : !llvm.ptr<1> -> {memory_type(t.elem.bytes)}"
    )
    value = from_memory(w, raw, t, 1)
    pad = op.attrs.get("pad", 0)
    assert isinstance(pad, int | float)
    if not inside or pad == 0:
        return value
    return w.select(inside, value, s.splat_literal(pad, t.elem, 1), scalar_type(t.elem))


def owner_test(s: State, layout: Layout) -> str:
    """True in the lanes and waves that are to store: one of all copies of an element; "" if there are no copies."""
    w = s.w
    free = layout.free
    result = ""
    for source, mask in ((lane, free.lane), (wave, free.wave)):
        if mask:
            test = w.icmp("eq", w.binary("and", source(w), w.const(mask)), w.const(0))
            result = w.binary("and", result, test, "i1") if result else test
    return result


def buffer_store(s: State, op: Op, raw: str, size: int, resource: str, offset: str) -> None:
    w = s.w
    zero = w.const(0)
    if size == 3:  # no instruction stores three bytes
        whole = w.op(f"llvm.zext {raw} : i24 to i32")
        for i in range(size):
            part = w.op(f"llvm.trunc {w.binary('lshr', whole, w.const(8 * i))} : i32 to i8")
            w.line(f"rocdl.raw.ptr.buffer.store {part}, {resource}, {w.add(offset, i)}, {zero}, {policy(w, op)} : i8")
        return
    w.line(f"rocdl.raw.ptr.buffer.store {raw}, {resource}, {offset}, {zero}, {policy(w, op)} : {memory_type(size)}")


def tile_span(s: State, a: Access, bytes: int) -> str:
    """Bytes from the first element of an access to the end of the last `bytes` that it touches, i64."""
    w = s.w
    span = w.const(bytes, "i64")
    for d, extent in enumerate(a.spans):
        if extent is not None:
            span = w.binary("add", span, scaled(s, w.const(extent - 1, "i64"), a.type, d, "i64"), "i64")
    return span


def accessible(s: State, op: Op, reaches: Sequence[tuple[int | None, ...]] = ()) -> None:
    """The launch-time test behind wide accesses: alignment of base, strides and row end, and the span of one tile. Spans in
    `reaches` may take half of what a descriptor reaches."""
    w = s.w
    s.forget_outside()  # what is computed here for one test would be kept for the version that it chooses
    a = access_of(s, op)
    view = a.type
    bytes = op.attrs["bytes"]
    assert isinstance(bytes, int)
    together, size = view.elem.unit
    count = bytes // size * together  # elements of an access, a power of two
    contiguous = contiguous_dim(view)
    low = w.op(f"llvm.ptrtoint {s.pointer(a.view)} : !llvm.ptr<1> to i64")
    for d in range(view.rank):
        x = stride(s, view, d)
        if bytes > size:
            end = dim_value(s, view.dims[d]) if d == contiguous else x
            if isinstance(end, int):
                low = w.binary("or", low, w.const(1, "i64"), "i64") if end % count else low
            elif together == 1:
                low = w.binary("or", low, w.mul(end, size, "i64"), "i64")
            else:
                rest = w.binary("and", end, w.const(count - 1, "i64"), "i64")
                some = w.icmp("ne", rest, w.const(0, "i64"), "i64")
                low = w.binary("or", low, w.op(f"llvm.zext {some} : i1 to i64"), "i64")
    low = w.binary("and", low, w.const(alignment(bytes) - 1, "i64"), "i64")
    result = w.icmp("eq", low, w.const(0, "i64"), "i64")
    for spans, most in [(a.spans, OUTSIDE), *((x, OUTSIDE // 2) for x in reaches)]:
        span = tile_span(s, replace(a, spans=spans), bytes)
        result = w.binary("and", result, w.icmp("ule", span, w.const(most, "i64"), "i64"), "i1")
    s.values[op.result] = result
