"""LDS: buffers, reads and writes in any register layout, direct copies from global memory, waits and barriers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tileir.ir.core import Op, Value
from tileir.ir.diagnostics import error
from tileir.ir.types import Elem, SharedType, TileType
from tileir.layout import Layout
from tileir.layout.shared import SharedLayout
from tileir.layout.transposed import elements_per_read
from tileir.lowering.amdgpu.emit import lds_sources, views
from tileir.lowering.amdgpu.emit.coords import (
    Coordinate,
    coordinate,
    lane,
    linear,
    masks,
    register_table,
    wave,
)
from tileir.lowering.amdgpu.emit.state import State
from tileir.lowering.amdgpu.emit.tiles import Tile, tied
from tileir.lowering.amdgpu.emit.writer import Writer, scalar_type, vector_type
from tileir.passes.lds_accesses import access_bytes, over_buffer
from tileir.passes.transposing_reads import addressed_layout
from tileir.records import dataclass

POINTER = "!llvm.ptr<3>"
OFFSET_LIMIT = 1 << 16  # the offset field of LDS instructions has 16 bits (CDNA3 ISA, DS)
# Scalar registers for the places in LDS that direct copies fill: of 102, besides descriptors, sizes and strides.
MOST_TARGETS = 8
# Scopes that tell LLVM that direct copies and register accesses do not touch the same bytes at the same time: our own waits
# order them, and without the scopes it would drain the vector-memory counter before every LDS read.
COPY_SCOPES = "{alias_scopes = [#copies], noalias_scopes = [#accesses]}"
ACCESS_SCOPES = "alias_scopes = [#accesses], noalias_scopes = [#copies]"


def buffer_layout(t: SharedType) -> SharedLayout:
    assert t.layout is not None
    return t.layout


def _place_of(buffer: Value) -> int:
    """Byte of LDS at which a buffer begins."""
    assert buffer.owner is not None
    offset = buffer.owner.attrs["offset"]
    assert isinstance(offset, int)
    return offset


def base(s: State, buffer: Value) -> str:
    """LDS address of a buffer."""
    offset, w = _place_of(buffer), s.w

    def emit() -> str:
        start = w.hoist("lds", lambda: w.op(f"llvm.mlir.addressof @lds : {POINTER}"))
        return _offset(s, start, offset)

    return w.hoist(("lds", offset), emit)


def _offset(s: State, pointer: str, constant: int) -> str:
    """A pointer (hoisted) and a constant. What an instruction cannot hold as its offset goes into a pointer that all share:
    LLVM would make one for each access."""
    far, near = constant - constant % OFFSET_LIMIT, constant % OFFSET_LIMIT

    def plus(start: str, offset: int) -> str:
        return s.w.op(f"llvm.getelementptr inbounds {start}[{offset}] : ({POINTER}) -> {POINTER}, i8")

    if far:
        start = pointer
        pointer = s.w.hoist(("lds far", start, far), lambda: plus(start, far))
    return plus(pointer, near) if near else pointer


def addresses(
    s: State, buffer: Value, layout: Layout, registers: list[int], view: SharedType | None = None
) -> list[str]:
    """LDS address of the element in each of the registers (a layout of `over_buffer`), the buffer seen as `view`."""
    return [_address(s, buffer, view, layout, r, fold=False) for r in registers]


def read_address(s: State, buffer: Value, layout: Layout, r: int, view: SharedType | None = None) -> str:
    """LDS address that a lane reads for a register: of its element, or of the one that takes the place of a hole (see
    `Layout.fold`)."""
    fold = holed_registers(layout)[r]
    return _address(s, buffer, view, layout, r, fold=fold)


@lru_cache(maxsize=256)
def holed_registers(layout: Layout) -> tuple[bool, ...]:
    """For every register, whether some lane has no element in it."""
    return tuple(np.any(layout.holes(), axis=(0, 1)).tolist())


def _address(s: State, buffer: Value, view: SharedType | None, layout: Layout, r: int, *, fold: bool) -> str:
    t = view or buffer.type
    assert isinstance(t, SharedType)
    shared = buffer_layout(t)
    digits = shared.kind == "blocks" or (shared.is_linear and _is_power_of_two(shared.row_bytes))
    linear = layout.rank == 2 and digits
    if linear and (not fold or all(_is_power_of_two(n) for n in layout.shape)):
        return _xor_address(s, buffer, shared, layout, r, fold)
    return _added_address(s, buffer, shared, layout, r, fold)


def _is_power_of_two(n: int) -> bool:
    return n & (n - 1) == 0


def _xor_address(s: State, buffer: Value, shared: SharedLayout, layout: Layout, r: int, fold: bool) -> str:
    """Rows of 2ⁿ bytes, or blocks of columns of such rows: block and offset in it are linear over GF(2) in lane, wave and
    register bits, so the register's part is XORed onto the lanes' part; where no bits meet it becomes the immediate offset of
    the instruction. Folding, of extents of 2ⁿ, drops high bits of the coordinates, which is linear too."""
    w = s.w
    kept = [n - 1 if fold else -1 for n in layout.shape]
    distance = shared.cut[2]

    def place(vector: Iterable[int]) -> tuple[int, int]:
        row, col = (x & k for x, k in zip(vector, kept, strict=True))
        return shared.linear_place(row, col * shared.elem_bits // 8)

    def lanes_part(i: int) -> Callable[[], str]:
        def emit() -> str:
            bits = [
                (source, bit, place(vector)[i])
                for source, vectors in (("lane", layout.lane), ("wave", layout.wave))
                for bit, vector in enumerate(vectors)
            ]
            value, mask = linear(w, bits)
            w.masks["lds", shared, layout, fold, i] = mask
            return value

        return emit

    block, part = (w.hoist(("lds lanes", shared, layout, fold, i), lanes_part(i)) for i in range(2))
    block_mask, mask = (w.masks["lds", shared, layout, fold, i] for i in range(2))
    block_constant, constant = place(x ^ y for x, y in register_table(layout)[r])
    block_clash, clash = block_constant & block_mask, constant & mask
    pointer = base(s, buffer)

    def start() -> str:
        value = w.binary("xor", part, w.const(clash)) if clash else part
        if block_mask:
            number = w.binary("xor", block, w.const(block_clash)) if block_clash else block
            value = w.binary("add", value, w.mul(number, distance))
        address = w.op(f"llvm.getelementptr inbounds {pointer}[{value}] : ({POINTER}, i32) -> {POINTER}, i8")
        return address if _place_of(buffer) < OFFSET_LIMIT else _kept(s, address)

    key = ("lds address", pointer, shared, layout, fold, block_clash, clash)
    return _offset(s, w.hoist(key, start), (block_constant ^ block_clash) * distance + (constant ^ clash))


def _kept(s: State, address: str) -> str:
    """An address that LLVM does not know the parts of: it would put them together again at every use, in the loop."""
    number = tied(s.w, s.w.op(f"llvm.ptrtoint {address} : {POINTER} to i32"), "i32", "v", ordered=False)
    return s.w.op(f"llvm.inttoptr {number} : i32 to {POINTER}")


def _added_address(s: State, buffer: Value, shared: SharedLayout, layout: Layout, r: int, fold: bool) -> str:
    """Padded rows: offset = row · pitch + column bytes, the register's part added."""
    w = s.w
    row, col = _matrix_place(s, layout, r, fold)
    if shared.kind == "rotate":
        return _rotated_address(s, buffer, shared, row, col)
    if shared.kind == "blocks":
        return _block_address(s, buffer, shared, row, col)
    if shared.kind in ("rows", "padded"):
        pitch = shared.args[0] if shared.kind == "padded" else shared.row_bytes

        def start() -> str:
            value = w.binary("add", w.mul(row.base, pitch), lds_sources.byte_of(w, shared, col.base))
            return w.op(f"llvm.getelementptr inbounds {base(s, buffer)}[{value}] : ({POINTER}, i32) -> {POINTER}, i8")

        pointer = w.hoist(("lds rows", base(s, buffer), shared, row.base, col.base), start)
        return _offset(s, pointer, row.offset * pitch + col.offset * shared.elem_bits // 8)
    row_base, col_base = s.opaque_base(row.base), s.opaque_base(col.base)
    place = lds_sources.byte_of(w, shared, w.add(col_base, col.offset))
    return _place_address(s, buffer, shared, w.add(row_base, row.offset), place)


def _rotated_address(s: State, buffer: Value, shared: SharedLayout, row: Coordinate, col: Coordinate) -> str:
    """Rows that are turned: rows that differ by a multiple of what the masks see share a register."""
    w = s.w
    period = 1 << max(mask.bit_length() for mask in shared.args[1::2])
    far = row.offset // period * period
    near = Coordinate(row.base, row.offset - far)

    def start() -> str:
        line = w.add(near.base, near.offset)
        place = lds_sources.byte_of(w, shared, w.add(col.base, col.offset))
        turned = lds_sources.turned(w, shared, line, place, back=False)
        value = w.binary("add", w.mul(line, shared.row_bytes), turned)
        return w.op(f"llvm.getelementptr inbounds {base(s, buffer)}[{value}] : ({POINTER}, i32) -> {POINTER}, i8")

    return _offset(s, w.hoist(("lds rotated", base(s, buffer), shared, near, col), start), far * shared.row_bytes)


def _block_address(s: State, buffer: Value, shared: SharedLayout, row: Coordinate, col: Coordinate) -> str:
    """Blocks of columns: rows that differ by a multiple of what the masks see share a register."""
    w = s.w
    period = lds_sources.period(shared)
    far = row.offset // period * period
    near = Coordinate(row.base, row.offset - far)

    def start() -> str:
        place = lds_sources.byte_of(w, shared, w.add(col.base, col.offset))
        value = lds_sources.offset(w, shared, w.add(near.base, near.offset), place)
        return w.op(f"llvm.getelementptr inbounds {base(s, buffer)}[{value}] : ({POINTER}, i32) -> {POINTER}, i8")

    return _offset(s, w.hoist(("lds blocks", base(s, buffer), shared, near, col), start), far * shared.cut[0])


def _matrix_place(s: State, layout: Layout, r: int, fold: bool) -> tuple[Coordinate, Coordinate]:
    """Row and column of the element in a register, folded along dimensions with holes; all but the last count as rows."""
    w = s.w

    def place(d: int) -> Coordinate:
        c = coordinate(w, layout, r, d)
        if not fold or not masks(layout, d):
            return c
        n, first, kept = layout.fold(d)

        def folded() -> str:
            x = w.add(c.base, c.offset)
            instead = w.add(w.binary("and", x, w.const(kept - 1)), first)
            return w.select(w.icmp("ult", x, w.const(n)), x, instead, "i32")

        return Coordinate(w.hoist(("fold", c, layout.fold(d)), folded), 0)

    *outer, col = (place(d) for d in range(layout.rank))
    row = outer[0] if outer else Coordinate(w.const(0), 0)
    for size, c in zip(layout.shape[1:-1], outer[1:], strict=True):
        base = w.hoist(
            ("matrix row", row.base, size, c.base),
            lambda row=row, size=size, c=c: w.binary("add", w.mul(row.base, size), c.base),
        )
        row = Coordinate(base, row.offset * size + c.offset)
    return row, col


def _place_address(s: State, buffer: Value, shared: SharedLayout, row: str, place: str) -> str:
    """Address of byte `place` of a row for any layout, computed at run time."""
    w = s.w
    if shared.kind == "blocks":
        at = lds_sources.offset(w, shared, row, place)
    elif shared.kind == "rotate":
        at = w.binary("add", w.mul(row, shared.row_bytes), lds_sources.turned(w, shared, row, place, back=False))
    else:
        at = w.binary("add", w.mul(row, shared.row_bytes), place)
    if shared.kind == "swizzle":
        bits, low, shift = shared.args
        field = w.binary("and", w.binary("lshr", at, w.const(low + shift)), w.const((1 << bits) - 1))
        at = w.binary("xor", at, w.mul(field, 1 << low))
    elif shared.kind == "xor":
        for bit, mask in shared.pairs:
            one = w.binary("and", w.binary("lshr", at, w.const(bit)), w.const(1))
            at = w.binary("xor", at, w.mul(one, mask))
    elif shared.kind == "slabs":
        slab = w.binary("udiv", at, w.const(shared.args[0]))
        at = w.binary("add", at, w.mul(slab, shared.args[1] - shared.args[0]))
    elif shared.kind == "padded":
        at = w.binary("add", w.mul(row, shared.args[0]), place)
    return w.op(f"llvm.getelementptr inbounds {base(s, buffer)}[{at}] : ({POINTER}, i32) -> {POINTER}, i8")


def load(s: State, op: Op) -> None:
    w, t = s.w, op.result.tile
    shared = op.operands[0].type
    assert isinstance(shared, SharedType)
    assert t.layout is not None
    if t.shape != shared.shape:  # the same bytes as rows of another shape
        shared = replace(shared, shape=t.shape, layout=None)
        shared = replace(shared, layout=SharedLayout.from_spec(shared.matrix, t.elem.bits))
    layout = over_buffer(t.layout, shared)
    width = access_bytes(TileType(t.elem, layout.shape, layout), buffer_layout(shared))
    n = width // t.elem.unit[1] * t.elem.unit[0]
    registers = list(range(0, layout.num_registers, n))
    element = scalar_type(t.elem)

    def read(i: int) -> str:
        r = registers[i]
        address = read_address(s, op.operands[0], layout, r, shared)
        text = f"llvm.load {address} {{alignment = {width} : i64, {ACCESS_SCOPES}}} : {POINTER} -> "
        piece = w.load(text, vector_type(element, n))
        return without_holes(s, layout, r, piece, t.elem, n)

    _read(s, op, n, read)


def _read(s: State, op: Op, n: int, read: Callable[[int], str]) -> None:
    """All pieces of a tile now, or each when the `mma` that uses the tile comes to it."""
    t = op.result.tile
    assert t.layout is not None
    if op in s.late.reads:
        s.values[op.result] = Tile.deferred(t, n, s.at(op.loc, read))
    else:
        s.values[op.result] = Tile(t, n, [read(i) for i in range(t.layout.num_registers // n)])


def without_holes(s: State, layout: Layout, r: int, piece: str, elem: Elem, n: int) -> str:
    """A piece that was read, zero where it lies outside: holes along k take part in products."""
    inside = hole_test(s, layout, r)
    if not inside:
        return piece
    return s.w.select(inside, piece, s.splat_literal(0, elem, n), vector_type(scalar_type(elem), n))


def load_transposed(s: State, op: Op) -> None:
    """Every read delivers a run of elements along rows; lanes address what the layout of `addressed_layout` says."""
    w, t = s.w, op.result.tile
    source = addressed_layout(t)
    assert source is not None and t.layout is not None, "the op is only made where such a read exists"
    layout = t.layout
    n = elements_per_read(t.elem.bits)
    registers = list(range(0, source.num_registers, n))
    piece = vector_type(scalar_type(t.elem), n)
    raw = "vector<2xi32>" if t.elem.bits == 8 else piece

    def read(i: int) -> str:
        address = read_address(s, op.operands[0], source, registers[i])
        value = w.op(f"rocdl.ds.read.tr{t.elem.bits}.b64 {address} {{{ACCESS_SCOPES}}} : {POINTER} -> {raw}")
        if raw != piece:
            value = w.bitcast(value, raw, piece)
        return without_holes(s, layout, registers[i], value, t.elem, n)

    _read(s, op, n, read)


def hole_test(s: State, layout: Layout, r: int) -> str:
    """True where the register holds an element, "" if it does in every lane."""
    w = s.w
    result = ""
    for d in range(layout.rank if holed_registers(layout)[r] else 0):
        if masks(layout, d):
            c = coordinate(w, layout, r, d)
            test = w.icmp("ult", w.add(s.in_block(c.base), c.offset), w.const(layout.shape[d]))
            result = w.binary("and", result, test, "i1") if result else test
    return result


def store(s: State, op: Op) -> None:
    w, t = s.w, op.operands[0].tile
    shared = op.operands[1].type
    assert isinstance(shared, SharedType)
    assert t.layout is not None
    layout = over_buffer(t.layout, shared)
    width = access_bytes(TileType(t.elem, layout.shape, layout), buffer_layout(shared))
    n = width // t.elem.unit[1] * t.elem.unit[0]
    element = scalar_type(t.elem)
    piece = s.tile(op.operands[0]).pieces(w, n)
    registers = [r for r in range(0, layout.num_registers, n) if not r & layout.free.reg]
    owner = views.owner_test(s, layout)
    for r, address in zip(registers, addresses(s, op.operands[1], layout, registers), strict=True):
        inside = hole_test(s, layout, r)
        if owner:
            inside = w.binary("and", inside, owner, "i1") if inside else owner
        text = (
            f"llvm.store {piece(r // n)}, {address} {{alignment = {width} : i64, {ACCESS_SCOPES}}} : "
            f"{vector_type(element, n)}, {POINTER}"
        )
        w.when(inside, text)


@dataclass(frozen=True)
class Slab:
    """One instruction of a direct copy: which slab of the buffer the wave fills, the image byte of the lane's piece, its place
    in the tile, and whether all lanes of all waves have one."""

    number: str
    image: str
    coords: list[Coordinate]
    whole: bool


def _copy_shape(s: State, op: Op) -> tuple[SharedLayout, int, int]:
    """Layout of the buffer that a direct copy fills, bytes of a lane's piece, number of waves."""
    t, piece, waves = op.operands[-1].type, op.attrs["bytes"], s.kernel.attrs["waves"]
    assert isinstance(t, SharedType) and isinstance(piece, int) and isinstance(waves, int)
    return buffer_layout(t), piece, waves


def _copied_bytes(shared: SharedLayout) -> int:
    return shared.image_bytes if shared.kind == "slabs" else shared.size_bytes


def slab_sources(s: State, op: Op) -> tuple[tuple[int, int, int], ...]:
    """For each instruction of a direct copy what `lds_sources.slabs` says."""
    shared, piece, waves = _copy_shape(s, op)
    slabs = -(-_copied_bytes(shared) // (views.LANES * piece))
    return lds_sources.slabs(shared, -(-slabs // waves), waves, piece, _together(op))


def _together(op: Op) -> int:
    """Parts of a direct copy that lie side by side in a wave."""
    together = op.attrs.get("together", 1)
    assert isinstance(together, int)
    return together


def copy_pitch(s: State, op: Op) -> int:
    """Bytes of LDS from one slab of a direct copy to the next."""
    shared, piece, _ = _copy_shape(s, op)
    return shared.args[1] if shared.kind == "slabs" else views.LANES * piece


def beside(s: State, op: Op) -> int:
    """Bytes by which the slab of a part lies behind the first of those with which it shares M0: the offset of its instruction, which
    counts for LDS and for memory."""
    part = op.attrs.get("part", 0)
    assert isinstance(part, int)
    return part % _together(op) * copy_pitch(s, op)


def ragged(t: SharedType) -> list[bool]:
    """Per dimension of a buffer, whether a direct copy also fills places past the tile."""
    return list(lds_sources.beyond(buffer_layout(t)))[-len(t.shape) :]


def slab(s: State, op: Op, i: int) -> Slab:
    """Instruction `i` of a direct copy: it fills 64 consecutive pieces of LDS, so a swizzle acts on the source."""
    w = s.w
    shared, piece, waves = _copy_shape(s, op)
    size = views.LANES * piece

    together = _together(op)

    def number(i: int) -> str:
        first = i // together * together * waves + i % together
        return w.hoist(("slab", i, waves, together), lambda: w.add(w.mul(wave(w), together), first))

    def image(i: int) -> str:
        def emit() -> str:
            return w.binary("add", w.mul(number(i), size), w.mul(lane(w), piece))

        return w.hoist(("slab image", i, waves, piece, together), emit)

    like, rows, cols = slab_sources(s, op)[i]
    row, col = lds_sources.source(w, shared, image(like))
    whole = (i + 1) * waves * size <= _copied_bytes(shared)
    t = op.operands[-1].type
    assert isinstance(t, SharedType)
    coords = [Coordinate(row, rows), Coordinate(col, cols)][-len(t.shape) :]  # one dimension is a row
    return Slab(number(i), image(i), coords, whole)


def copy_direct(s: State, op: Op, part: int | None = None) -> None:
    """Direct copy, one instruction after the other. With `part` the instruction of that number alone."""
    w = s.w
    buffer = op.operands[-1]
    t = buffer.type
    assert isinstance(t, SharedType)
    shared, piece, _ = _copy_shape(s, op)
    _check_together(s, op)
    sources = slab_sources(s, op)
    if part is not None and part >= len(sources):
        raise error(
            "E0721", f"part {part} of a copy of {len(sources)} instructions", op.loc, legal=f"0 to {len(sources) - 1}"
        )
    stream = s.streams.get(op)
    if stream is not None:
        resource, moved, a = stream.resource, stream.offset, None
    else:
        a = views.access_of(s, op)
        resource, moved = views.descriptor(s, a, views.base_offset(s, a)), w.const(0)
    bounds = views.Bounds(s, a, t.shape, ragged(t)) if a is not None else None
    for order, i in enumerate(range(len(sources)) if part is None else (part,)):
        place = slab(s, op, i)
        after = ""
        if not place.whole:
            size = _copied_bytes(shared)
            inside = w.hoist(
                ("slab inside", place.image, size),
                lambda image=place.image, size=size: w.icmp("ult", image, w.const(size)),
            )
            then, after = w.label(), w.label()
            w.cond_branch(inside, then, after)
            w.start(then)
        if stream is not None:
            offset = stream.piece(s, order)
        else:
            assert a is not None and bounds is not None
            offset = views.BufferOffsets(s, a, bounds).get(place.coords)
        near = beside(s, op) if stream is not None else 0
        target = _slab_target(s, buffer, i, copy_pitch(s, op), _together(op), near)
        w.line(
            f"rocdl.raw.ptr.buffer.load.lds {resource}, {target}, {w.const(piece)}, {offset}, {moved}, {w.const(near)}, {views.policy(w, op)} {COPY_SCOPES}"
        )
        if after:
            w.branch(after)
            w.start(after)
            bounds = views.Bounds(s, a, t.shape, ragged(t)) if a is not None else None


def _check_together(s: State, op: Op) -> None:
    """Raises CompileError where parts cannot lie side by side: the offset of an instruction must reach them, and every wave issue all."""
    shared, piece, waves = _copy_shape(s, op)
    together, slabs = _together(op), -(-_copied_bytes(shared) // (views.LANES * piece))
    reach = 1 + s.target.direct_to_lds_offset // copy_pitch(s, op)
    if together == 1 or (1 < together <= reach and slabs % (together * waves) == 0):
        return
    fitting = [str(n) for n in range(1, reach + 1) if slabs % (n * waves) == 0 or n == 1]
    raise error(
        "E0722",
        f"{together} parts of a copy of {slabs} x {views.LANES * piece} bytes by {waves} waves do not lie side by side",
        op.loc,
        legal=f"together = {', '.join(fitting)}",
    )


def _slab_target(s: State, buffer: Value, i: int, pitch: int, together: int, near: int) -> str:
    """Where this wave's slab of instruction `i` of a direct copy begins, less `near`. If a kernel has few such places, each stays in a scalar
    register. Else they are added up where they are used, by the instruction that takes the place of the move to M0; the base is opaque in each block,
    or LLVM would do that before the loop, too."""
    w, waves = s.w, s.kernel.attrs["waves"]
    assert isinstance(waves, int)

    def start() -> str:
        lds = w.hoist("lds", lambda: w.op(f"llvm.mlir.addressof @lds : {POINTER}"))
        return w.op(
            f"llvm.getelementptr inbounds {lds}[{w.mul(wave(w), pitch * together)}] : ({POINTER}, i32) -> {POINTER}, i8"
        )

    def at(pointer: str) -> str:
        return w.op(f"llvm.getelementptr inbounds {pointer}[{constant}] : ({POINTER}) -> {POINTER}, i8")

    first = w.hoist(("slab start", pitch, together), start)
    constant = _place_of(buffer) + (i // together * together * waves + i % together) * pitch - near
    if _slabs(s) <= MOST_TARGETS:
        return w.hoist(("slab target", pitch, together, constant), lambda: at(first))
    block = w.block, pitch, together
    if block not in s.starts:
        number = tied(w, w.op(f"llvm.ptrtoint {first} : {POINTER} to i32"), "i32", "s", ordered=True)
        s.starts[block] = w.op(f"llvm.inttoptr {number} : i32 to {POINTER}")
    return at(s.starts[block])


def _slabs(s: State) -> int:
    """The number of places that direct copies of the kernel fill in LDS, those of one wave."""
    if s.slabs is None:
        places = set[tuple[int, int]]()
        for op in s.kernel.walk():
            if op.name in ("copy_async", "copy_async_part"):
                part, first = op.attrs.get("part"), _place_of(op.operands[-1])
                parts = [part] if isinstance(part, int) else range(len(slab_sources(s, op)))
                places |= {(first, i // _together(op)) for i in parts}
        s.slabs = len(places)
    return s.slabs


def wait(s: State, op: Op) -> None:
    """s_waitcnt; a counter of -1 is left at its maximum, which waits for nothing (field widths: CDNA3 ISA, S_WAITCNT)."""
    limits = {"vm": s.target.vmcnt_max, "lgkm": s.target.lgkmcnt_max}
    counts: dict[str, int] = {}
    for name, most in limits.items():
        value = op.attrs.get(name, -1)
        assert isinstance(value, int)
        counts[name] = most if value < 0 else min(value, most)
    vm, lgkm = counts["vm"], counts["lgkm"]
    field = (vm & 15) | s.target.expcnt_max << 4 | lgkm << 8 | (vm >> 4) << 14
    s.w.line(f"rocdl.s.waitcnt {field}")


def compiler_fence(w: Writer) -> None:
    """No instruction, but an access to memory that no pass of LLVM moves others across: to them, a barrier has nothing to do with memory. A
    read of LDS whose value is used in another block was sunk there past the barrier (MachineSink), behind which other waves may overwrite
    what it reads.

    Assembly of which LLVM does not know what it reads does this as well as a clobber of memory would: an operand of its immediate kind may
    stand for an address. For each clobber LLVM compares the names of all registers, a millisecond."""
    w.line(f'llvm.inline_asm has_side_effects asm_dialect = att "", "i" {w.const(0)} : (i32) -> ()')


def barrier(s: State, op: Op) -> None:
    """The bare instruction: what must have happened before is in the text as waits. The fences around it keep LLVM from moving memory
    operations across: the machine scheduler, and passes before it (`compiler_fence`)."""
    s.w.line("rocdl.sched.barrier 0")
    compiler_fence(s.w)
    s.w.line("rocdl.s.barrier")
    s.w.line("rocdl.sched.barrier 0")
