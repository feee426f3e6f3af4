"""LDS: buffers, reads and writes in any register layout, direct copies from global memory, waits and barriers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tileir.ir.core import Op, Value
from tileir.ir.types import Elem, SharedType, TileType
from tileir.layout import Layout
from tileir.layout.shared import SharedLayout
from tileir.layout.transposed import elements_per_read
from tileir.lowering.amdgpu.emit import views
from tileir.lowering.amdgpu.emit.coords import (
    Coordinate,
    coordinate,
    lane,
    linear,
    masks,
    register_table,
    thread,
    wave,
)
from tileir.lowering.amdgpu.emit.state import State
from tileir.lowering.amdgpu.emit.tiles import Tile
from tileir.lowering.amdgpu.emit.writer import scalar_type, vector_type
from tileir.passes.lds_accesses import access_bytes, over_buffer
from tileir.passes.transposing_reads import addressed_layout

POINTER = "!llvm.ptr<3>"
OFFSET_LIMIT = 1 << 16  # the offset field of LDS instructions has 16 bits (CDNA3 ISA, DS)
# Scopes that tell LLVM that direct copies and register accesses do not touch the same bytes at the same time: our own waits
# order them, and without the scopes it would drain the vector-memory counter before every LDS read.
COPY_SCOPES = "{alias_scopes = [#copies], noalias_scopes = [#accesses]}"
ACCESS_SCOPES = "alias_scopes = [#accesses], noalias_scopes = [#copies]"


def buffer_layout(t: SharedType) -> SharedLayout:
    assert t.layout is not None
    return t.layout


def base(s: State, buffer: Value) -> str:
    """LDS address of a buffer."""
    owner = buffer.owner
    assert owner is not None
    offset = owner.attrs["offset"]
    assert isinstance(offset, int)
    w = s.w

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
    `tileir.layout.linear.folded`)."""
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
    linear = layout.rank == 2 and shared.is_linear and _is_power_of_two(shared.row_bytes)
    if linear and (not fold or all(_is_power_of_two(n) for n in layout.shape)):
        return _xor_address(s, buffer, shared, layout, r, fold)
    return _added_address(s, buffer, shared, layout, r, fold)


def _is_power_of_two(n: int) -> bool:
    return n & (n - 1) == 0


def _image_weights(shared: SharedLayout) -> list[int]:
    return [shared.row_bytes, shared.elem_bits // 8]


def _xor_address(s: State, buffer: Value, shared: SharedLayout, layout: Layout, r: int, fold: bool) -> str:
    """Rows of 2ⁿ bytes: the offset is linear over GF(2) in lane, wave and register bits, so the register's part is XORed
    onto the lanes' part; where no bits meet it becomes the immediate offset of the instruction. Folding, of extents
    of 2ⁿ, drops high bits of the coordinates, which is linear too."""
    w = s.w
    weights = _image_weights(shared)
    kept = [n - 1 if fold else -1 for n in layout.shape]

    def image(vector: Iterable[int]) -> int:
        return sum((x & k) * weight for x, k, weight in zip(vector, kept, weights, strict=True))

    def lanes_part() -> str:
        bits = [
            (source, bit, int(shared.offset_of_image(image(vector))))
            for source, vectors in (("lane", layout.lane), ("wave", layout.wave))
            for bit, vector in enumerate(vectors)
        ]
        value, mask = linear(w, bits)
        w.masks["lds", shared, layout, fold] = mask
        return value

    part = w.hoist(("lds lanes", shared, layout, fold), lanes_part)
    mask = w.masks["lds", shared, layout, fold]
    inside, added = (image(vector) for vector in zip(*register_table(layout)[r], strict=True))
    constant = int(shared.offset_of_image(inside ^ added))
    clash = constant & mask
    pointer = base(s, buffer)

    def start() -> str:
        value = w.binary("xor", part, w.const(clash)) if clash else part
        return w.op(f"llvm.getelementptr inbounds {pointer}[{value}] : ({POINTER}, i32) -> {POINTER}, i8")

    return _offset(s, w.hoist(("lds address", pointer, shared, layout, fold, clash), start), constant ^ clash)


def _added_address(s: State, buffer: Value, shared: SharedLayout, layout: Layout, r: int, fold: bool) -> str:
    """Padded rows: offset = row · pitch + column bytes, the register's part added."""
    w = s.w
    row, col = _matrix_place(s, layout, r, fold)
    size = shared.elem_bits // 8
    if shared.kind == "rotate":
        return _rotated_address(s, buffer, shared, row, col)
    if shared.kind in ("rows", "padded"):
        pitch = shared.args[0] if shared.kind == "padded" else shared.row_bytes

        def start() -> str:
            value = w.binary("add", w.mul(row.base, pitch), w.mul(col.base, size))
            return w.op(f"llvm.getelementptr inbounds {base(s, buffer)}[{value}] : ({POINTER}, i32) -> {POINTER}, i8")

        pointer = w.hoist(("lds rows", base(s, buffer), shared, row.base, col.base), start)
        return _offset(s, pointer, row.offset * pitch + col.offset * size)
    row_base, col_base = s.opaque_base(row.base), s.opaque_base(col.base)
    image = w.binary(
        "add", w.mul(w.add(row_base, row.offset), shared.row_bytes), w.mul(w.add(col_base, col.offset), size)
    )
    return _image_address(s, buffer, shared, image)


def _rotated_address(s: State, buffer: Value, shared: SharedLayout, row: Coordinate, col: Coordinate) -> str:
    """Rows that are turned: rows that differ by a multiple of what the masks see share a register."""
    w = s.w
    period = 1 << max(mask.bit_length() for mask in shared.args[1::2])
    far = row.offset // period * period
    near = Coordinate(row.base, row.offset - far)

    def start() -> str:
        line = w.add(near.base, near.offset)
        place = w.mul(w.add(col.base, col.offset), shared.elem_bits // 8)
        turned = _turned(s, shared, line, place, back=False)
        value = w.binary("add", w.mul(line, shared.row_bytes), turned)
        return w.op(f"llvm.getelementptr inbounds {base(s, buffer)}[{value}] : ({POINTER}, i32) -> {POINTER}, i8")

    return _offset(s, w.hoist(("lds rotated", base(s, buffer), shared, near, col), start), far * shared.row_bytes)


def _turned(s: State, shared: SharedLayout, row: str, place: str, *, back: bool) -> str:
    """Byte of a row after its rotation, or before it (`back`)."""
    w = s.w
    piece, size = shared.args[0], shared.row_bytes
    for mask, turn in zip(shared.args[1::2], shared.args[2::2], strict=True):
        odd = w.binary("and", row, w.const(mask))
        for shift in (8, 4, 2, 1):
            if mask >> shift:
                odd = w.binary("xor", odd, w.binary("lshr", odd, w.const(shift)))
        odd = w.binary("and", odd, w.const(1))
        step = size - turn * piece if back else turn * piece
        moved = w.binary("add", place, w.mul(odd, step))
        beyond = w.icmp("uge", moved, w.const(size))
        place = w.select(beyond, w.binary("sub", moved, w.const(size)), moved, "i32")
    return place


def _matrix_place(s: State, layout: Layout, r: int, fold: bool) -> tuple[Coordinate, Coordinate]:
    """Row and column of the element in a register; all dimensions but the last count as rows."""
    w = s.w

    def place(d: int) -> Coordinate:
        c = coordinate(w, layout, r, d)
        if not fold:
            return c
        n = layout.shape[d]
        return Coordinate(w.hoist(("fold", c, n), lambda: w.binary("urem", w.add(c.base, c.offset), w.const(n))), 0)

    *outer, col = (place(d) for d in range(layout.rank))
    row = outer[0] if outer else Coordinate(w.const(0), 0)
    for size, c in zip(layout.shape[1:-1], outer[1:], strict=True):
        base = w.hoist(
            ("matrix row", row.base, size, c.base),
            lambda row=row, size=size, c=c: w.binary("add", w.mul(row.base, size), c.base),
        )
        row = Coordinate(base, row.offset * size + c.offset)
    return row, col


def _image_address(s: State, buffer: Value, shared: SharedLayout, image: str) -> str:
    """Address of an image byte for any layout, computed at run time."""
    w = s.w
    if shared.kind == "swizzle":
        bits, low, shift = shared.args
        field = w.binary("and", w.binary("lshr", image, w.const(low + shift)), w.const((1 << bits) - 1))
        image = w.binary("xor", image, w.mul(field, 1 << low))
    elif shared.kind == "xor":
        for bit, mask in zip(shared.args[::2], shared.args[1::2], strict=True):
            one = w.binary("and", w.binary("lshr", image, w.const(bit)), w.const(1))
            image = w.binary("xor", image, w.mul(one, mask))
    elif shared.kind == "rotate":
        row = w.binary("udiv", image, w.const(shared.row_bytes))
        place = w.binary("sub", image, w.mul(row, shared.row_bytes))
        image = w.binary("add", w.mul(row, shared.row_bytes), _turned(s, shared, row, place, back=False))
    elif shared.kind in ("slabs", "padded"):
        size, pitch = shared.args if shared.kind == "slabs" else (shared.row_bytes, shared.args[0])
        slab = w.binary("udiv", image, w.const(size))
        image = w.binary("add", image, w.mul(slab, pitch - size))
    return w.op(f"llvm.getelementptr inbounds {base(s, buffer)}[{image}] : ({POINTER}, i32) -> {POINTER}, i8")


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
    n = width // t.elem.bytes
    registers = list(range(0, layout.num_registers, n))
    element = scalar_type(t.elem)

    def read(i: int) -> str:
        r = registers[i]
        address = read_address(s, op.operands[0], layout, r, shared)
        piece = w.op(
            f"llvm.load {address} {{alignment = {width} : i64, {ACCESS_SCOPES}}} : {POINTER} -> {vector_type(element, n)}"
        )
        return _without_holes(s, layout, r, piece, t.elem, n)

    _read(s, op, n, read)


def _read(s: State, op: Op, n: int, read: Callable[[int], str]) -> None:
    """All pieces of a tile now, or each when the `mma` that uses the tile comes to it."""
    t = op.result.tile
    assert t.layout is not None
    if op in s.late.reads:
        s.values[op.result] = Tile.deferred(t, n, s.at(op.loc, read))
    else:
        s.values[op.result] = Tile(t, n, [read(i) for i in range(t.layout.num_registers // n)])


def _without_holes(s: State, layout: Layout, r: int, piece: str, elem: Elem, n: int) -> str:
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
        value = w.op(f"rocdl.ds.read.tr{t.elem.bits}.b64 {address} : {POINTER} -> {raw}")
        if raw != piece:
            value = w.op(f"llvm.bitcast {value} : {raw} to {piece}")
        return _without_holes(s, layout, registers[i], value, t.elem, n)

    _read(s, op, n, read)


def hole_test(s: State, layout: Layout, r: int) -> str:
    """True where the register holds an element, "" if it does in every lane."""
    w = s.w
    result = ""
    for d in range(layout.rank if holed_registers(layout)[r] else 0):
        if masks(layout, d):
            c = coordinate(w, layout, r, d)
            test = w.hoist(
                ("hole", c, layout.shape[d]),
                lambda c=c, d=d: w.icmp("ult", w.add(c.base, c.offset), w.const(layout.shape[d])),
            )
            result = w.binary("and", result, test, "i1") if result else test
    return result


def store(s: State, op: Op) -> None:
    w, t = s.w, op.operands[0].tile
    shared = op.operands[1].type
    assert isinstance(shared, SharedType)
    assert t.layout is not None
    layout = over_buffer(t.layout, shared)
    width = access_bytes(TileType(t.elem, layout.shape, layout), buffer_layout(shared))
    n = width // t.elem.bytes
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


def copy_direct(s: State, op: Op) -> None:
    """Direct copy: every instruction of a wave fills 64 consecutive pieces of LDS, so a swizzle acts on the source."""
    w = s.w
    a = views.access_of(s, op)
    buffer = op.operands[-1]
    t = buffer.type
    assert isinstance(t, SharedType)
    shared = buffer_layout(t)
    piece = op.attrs["bytes"]
    assert isinstance(piece, int)
    resource = views.descriptor(s, a, views.base_offset(s, a))
    ragged = [
        shared.kind != "slabs" and shared.size_bytes != shared.image_bytes,
        False,
    ]  # a swizzle window past the tile
    bounds = views.Bounds(s, a, t.shape, ragged)
    waves = s.kernel.attrs["waves"]
    assert isinstance(waves, int)
    slab = views.LANES * piece
    size = shared.image_bytes if shared.kind == "slabs" else shared.size_bytes
    slabs = -(-size // slab)

    def slab_number(i: int) -> str:
        return w.hoist(("slab", i, waves), lambda: w.add(wave(w), i * waves))

    def slab_image(i: int) -> str:
        def emit() -> str:
            return w.binary("add", w.mul(slab_number(i), slab), w.mul(lane(w), piece))

        return w.hoist(("slab image", i, waves, piece), emit)

    for i, (like, rows) in enumerate(_slab_sources(shared, -(-slabs // waves), waves, piece)):
        number, image, origin = slab_number(i), slab_image(i), slab_image(like)
        source = w.hoist(("slab source", shared, origin), lambda origin=origin: _source_image(s, shared, origin))
        row, col = _split_image(s, shared, source, origin)
        coords = [Coordinate(row, rows), Coordinate(col, 0)]
        whole = (i + 1) * waves * slab <= size
        after = ""
        if not whole:
            inside = w.hoist(
                ("slab inside", image, size),
                lambda image=image: w.icmp("ult", image, w.const(size)),
            )
            then, after = w.label(), w.label()
            w.cond_branch(inside, then, after)
            w.start(then)
        offset = views.BufferOffsets(s, a, bounds).get(coords)
        pitch = shared.args[1] if shared.kind == "slabs" else slab
        target = w.hoist(
            ("slab target", base(s, buffer), number, pitch),
            lambda number=number, pitch=pitch: w.op(
                f"llvm.getelementptr inbounds {base(s, buffer)}[{w.mul(number, pitch)}] : ({POINTER}, i32) -> {POINTER}, i8"
            ),
        )
        zero = w.const(0)
        w.line(
            f"rocdl.raw.ptr.buffer.load.lds {resource}, {target}, {w.const(piece)}, {offset}, {zero}, {zero}, {zero} {COPY_SCOPES}"
        )
        if after:
            w.branch(after)
            w.start(after)
            bounds = views.Bounds(s, a, t.shape, ragged)


@lru_cache(maxsize=256)
def _slab_sources(shared: SharedLayout, count: int, waves: int, piece: int) -> tuple[tuple[int, int], ...]:
    """For each of the `count` slabs that a wave copies: the first slab with the same source in every lane and wave but for a
    number of rows, and that number. Slabs that differ by rows share the registers with their coordinates."""
    offsets = np.arange(count * waves * views.LANES).reshape(count, -1) * piece
    moved = shared.kind in ("swizzle", "xor", "rotate")
    sources = shared.image_of_offset(np.minimum(offsets, shared.size_bytes - piece)) if moved else offsets
    found: list[tuple[int, int]] = []
    for i, source in enumerate(
        sources
    ):  # beyond the end nothing is copied: that the last slab is clipped there is no loss
        for j in sorted({j for j, _ in found}):
            away = source - sources[j]
            if np.all(away == away[0]) and away[0] % shared.row_bytes == 0:
                found.append((j, int(away[0]) // shared.row_bytes))
                break
        else:
            found.append((i, 0))
    return tuple(found)


COPY_UNROLL = 8  # elements of a lane in flight in a `copy` loop: hides latency, costs few registers


def copy_elements(s: State, op: Op) -> None:
    """`copy`: a loop in which the threads of the workgroup take consecutive elements of the tile in turn."""
    w = s.w
    a = views.access_of(s, op)
    buffer = op.operands[-1]
    t = buffer.type
    assert isinstance(t, SharedType)
    shared = buffer_layout(t)
    waves, pad = s.kernel.attrs["waves"], op.attrs.get("pad", 0)
    assert isinstance(waves, int) and isinstance(pad, int | float)
    threads = waves * views.LANES
    total = shared.rows * shared.cols
    per_lane = -(-total // threads)
    unroll = min(COPY_UNROLL, per_lane)
    trips = -(-per_lane // unroll)
    start = views.base_offset(s, a)
    element = views.memory_type(t.elem.bytes)
    body, after = w.label(), w.label()
    w.branch(body, [w.const(0)], ["i32"])
    trip = w.name()
    w.start(body, [(trip, "i32")])
    first = w.binary("add", w.mul(trip, unroll * threads), thread(w))
    loaded: list[tuple[str, str, str]] = []
    for i in range(unroll):
        index = w.add(first, i * threads)
        row, col = (w.binary(f, index, w.const(shared.cols)) for f in ("udiv", "urem"))
        coords = [Coordinate(x, 0) for x in _unflatten(s, row, t.shape[:-1])] + [Coordinate(col, 0)]
        inside = views.Bounds(s, a, t.shape, [False] * t.rank).test(coords)
        mine = w.icmp("ult", index, w.const(total))
        address = views.address(s, a, start, coords)
        valid = w.binary("and", inside, mine, "i1") if inside else mine
        address = w.select(valid, address, s.zeros(), "!llvm.ptr<1>")
        raw = w.op(f"llvm.load {address} {{alignment = {t.elem.bytes} : i64}} : !llvm.ptr<1> -> {element}")
        if pad != 0 and inside:
            raw = w.select(
                inside, raw, views.to_memory(w, s.splat_literal(pad, t.elem, 1), TileType(t.elem), 1), element
            )
        image = w.binary("add", w.mul(row, shared.row_bytes), w.mul(col, shared.elem_bits // 8))
        loaded.append((raw, image, mine))
    for raw, image, mine in loaded:
        target = _image_address(s, buffer, shared, image)
        text = (
            f"llvm.store {raw}, {target} {{alignment = {t.elem.bytes} : i64, {ACCESS_SCOPES}}} : {element}, {POINTER}"
        )
        w.when("" if trips * unroll * threads == total else mine, text)
    following = w.add(trip, 1)
    more = w.icmp("ult", following, w.const(trips))
    w.cond_branch(more, body, after, ([following], ["i32"]))
    w.start(after)


def _unflatten(s: State, row: str, shape: tuple[int, ...]) -> list[str]:
    """Coordinates of a row number along the leading dimensions."""
    w = s.w
    out: list[str] = []
    for n in reversed(shape[1:]):
        out.append(w.binary("urem", row, w.const(n)))
        row = w.binary("udiv", row, w.const(n))
    return [row, *reversed(out)] if shape else []


def _source_image(s: State, shared: SharedLayout, offset: str) -> str:
    """Image byte stored at a (slab-relative) offset: the inverse of the layout. A swizzle that XORs high bits onto low ones
    is its own inverse when the two fields do not meet; else the XORs are undone from the highest bit down."""
    w = s.w
    if shared.kind == "swizzle":
        bits, low, shift = shared.args
        image = offset
        for step in range(
            -(-bits // shift)
        ):  # fields overlap when bits > shift: undo shift bits at a time, highest first
            top = bits - step * shift
            count = min(shift, top)
            start = top - count
            field = w.binary("and", w.binary("lshr", image, w.const(low + shift + start)), w.const((1 << count) - 1))
            image = w.binary("xor", image, w.mul(field, 1 << (low + start)))
        return image
    if shared.kind == "xor":
        image = offset
        for bit, mask in reversed(list(zip(shared.args[::2], shared.args[1::2], strict=True))):
            one = w.binary("and", w.binary("lshr", image, w.const(bit)), w.const(1))
            image = w.binary("xor", image, w.mul(one, mask))
        return image
    if shared.kind == "rotate":
        row = w.binary("udiv", offset, w.const(shared.row_bytes))
        place = w.binary("sub", offset, w.mul(row, shared.row_bytes))
        return w.binary("add", w.mul(row, shared.row_bytes), _turned(s, shared, row, place, back=True))
    return offset


def _split_image(s: State, shared: SharedLayout, image: str, key: str) -> tuple[str, str]:
    """(row, column) of an image byte."""
    w = s.w
    size = shared.elem_bits // 8

    def row() -> str:
        if _is_power_of_two(shared.row_bytes):
            return w.binary("lshr", image, w.const(shared.row_bytes.bit_length() - 1))
        return w.binary("udiv", image, w.const(shared.row_bytes))

    def col() -> str:
        if _is_power_of_two(shared.row_bytes):
            rest = w.binary("and", image, w.const(shared.row_bytes - 1))
        else:
            rest = w.binary("urem", image, w.const(shared.row_bytes))
        return w.binary("lshr", rest, w.const(size.bit_length() - 1)) if size > 1 else rest

    return w.hoist(("slab row", shared, key), row), w.hoist(("slab col", shared, key), col)


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


def barrier(s: State, op: Op) -> None:
    """The bare instruction: what must have happened before is in the text as waits. The fences around it keep the machine
    scheduler from moving memory operations across."""
    s.w.line("rocdl.sched.barrier 0")
    s.w.line("rocdl.s.barrier")
    s.w.line("rocdl.sched.barrier 0")
