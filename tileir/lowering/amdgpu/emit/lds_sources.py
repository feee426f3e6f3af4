"""Arithmetic of LDS layouts on values of the program: the place of an element in blocks of columns or turned rows, and, for direct copies,
the element that belongs to a place. The maps are those of `SharedLayout`."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tileir.layout.linear import WAVE
from tileir.layout.shared import SharedLayout
from tileir.lowering.amdgpu.emit.writer import Writer


def offset(w: Writer, shared: SharedLayout, row: str, place: str) -> str:
    """Byte offset of byte `place` of a row."""
    width, high, distance = shared.cut
    block = w.binary("lshr", place, w.const(width.bit_length() - 1))
    inside = w.binary("add", w.mul(row, width), w.binary("and", place, w.const(width - 1)))
    if distance == 1 << high:
        return _exchanged(w, shared, w.binary("add", w.mul(block, distance), inside), back=False)
    moved = inside
    for bit, mask in shared.pairs:
        source, at = (inside, bit) if bit < high else (block, bit - high)
        moved = w.binary("xor", moved, w.mul(_bit(w, source, at), mask))
    return w.binary("add", w.mul(block, distance), moved)


def _block_source(w: Writer, shared: SharedLayout, at: str) -> tuple[str, str]:
    """(row, byte in the row) of a byte offset: the inverse. Between and behind the blocks, a row or byte beyond the tile."""
    width, high, distance = shared.cut
    if distance == 1 << high:
        z = at
    else:
        block = w.binary("udiv", at, w.const(distance))
        z = w.binary("add", w.binary("sub", at, w.mul(block, distance)), w.mul(block, 1 << high))
    z = _exchanged(w, shared, z, back=True)
    row = w.binary("lshr", w.binary("and", z, w.const((1 << high) - 1)), w.const(width.bit_length() - 1))
    start = w.mul(w.binary("lshr", z, w.const(high)), width)
    return row, w.binary("add", start, w.binary("and", z, w.const(width - 1)))


def period(shared: SharedLayout) -> int:
    """Power of two: rows that differ by a multiple of it lie as far apart as in plain rows of a block."""
    width, high, _ = shared.cut
    top = max((bit for bit, _ in shared.pairs if bit < high), default=-1)
    return max(1, shared.window // width, (1 << top + 1) // width)


def _exchanged(w: Writer, shared: SharedLayout, z: str, *, back: bool) -> str:
    """The masks of the pairs XORed on, or (`back`) taken off again."""
    out = z
    for bit, mask in reversed(shared.pairs) if back else shared.pairs:
        out = w.binary("xor", out, w.mul(_bit(w, out if back else z, bit), mask))
    return out


def _bit(w: Writer, x: str, bit: int) -> str:
    return w.binary("and", w.binary("lshr", x, w.const(bit)) if bit else x, w.const(1))


def turned(w: Writer, shared: SharedLayout, row: str, place: str, *, back: bool) -> str:
    """Byte of a row after its rotation, or before it (`back`)."""
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


@lru_cache(maxsize=256)
def beyond(shared: SharedLayout) -> tuple[bool, bool]:
    """Whether direct copies fill places that belong to rows, or to columns, beyond the tile."""
    if shared.kind == "blocks":
        row, place = shared.place_of_offset(np.arange(0, shared.size_bytes, 4))
        return bool(row.max() >= shared.rows), bool(place.max() >= shared.row_bytes)
    return shared.kind != "slabs" and shared.size_bytes != shared.image_bytes, False  # a swizzle window past the tile


@lru_cache(maxsize=256)
def slabs(
    shared: SharedLayout, count: int, waves: int, piece: int, together: int = 1
) -> tuple[tuple[int, int, int], ...]:
    """For each of the `count` slabs that a wave copies: the first slab with the same source in every lane and wave but for a
    number of rows and of columns, and these numbers. Such slabs share the registers with their coordinates. Of a wave `together` slabs
    lie side by side."""
    order = np.arange(count * waves * WAVE).reshape(count // together, waves, together, WAVE)
    offsets = order.transpose(0, 2, 1, 3).reshape(count, -1) * piece
    inside = np.minimum(offsets, shared.size_bytes - piece)
    if shared.kind == "blocks":
        rows, places = shared.place_of_offset(inside)
    else:
        moved = shared.kind in ("swizzle", "xor", "rotate")
        rows, places = np.divmod(shared.image_of_offset(inside) if moved else offsets, shared.row_bytes)
    found: list[tuple[int, int, int]] = []
    for i in range(count):  # beyond the end nothing is copied: that the last slab is clipped there is no loss
        for j in sorted({j for j, _, _ in found}):
            down, right = rows[i] - rows[j], places[i] - places[j]
            if np.all(down == down[0]) and np.all(right == right[0]):
                found.append((j, int(down[0]), int(right[0]) * 8 // shared.elem_bits))
                break
        else:
            found.append((i, 0, 0))
    return tuple(found)


def byte_of(w: Writer, shared: SharedLayout, col: str) -> str:
    """Byte of a row at which an element begins that begins at one."""
    if shared.elem_bits >= 8:
        return w.mul(col, shared.elem_bits // 8)
    assert shared.elem_bits == 4, "elements of 6 bits do not pass through LDS"
    return w.binary("lshr", col, w.const(1))


def element_of(w: Writer, shared: SharedLayout, byte: str) -> str:
    """The inverse of `byte_of`."""
    if shared.elem_bits < 8:
        return w.mul(byte, 2)
    size = shared.elem_bits // 8
    return w.binary("lshr", byte, w.const(size.bit_length() - 1)) if size > 1 else byte


def source(w: Writer, shared: SharedLayout, offset: str) -> tuple[str, str]:
    """(row, column) of the element that belongs to a (slab-relative) offset, a hoisted value; hoisted."""

    def row() -> str:
        return _dense_place(w, shared, offset)[0]

    def col() -> str:
        return element_of(w, shared, _dense_place(w, shared, offset)[1])

    return w.hoist(("slab row", shared, offset), row), w.hoist(("slab col", shared, offset), col)


def place(w: Writer, shared: SharedLayout, offset: str) -> tuple[str, str]:
    """(row, byte in the row) that lie at a byte offset of the buffer; in padding, a row or a byte beyond the tile."""
    if shared.kind == "padded":
        row = w.binary("udiv", offset, w.const(shared.args[0]))
        return row, w.binary("sub", offset, w.mul(row, shared.args[0]))
    if shared.kind == "slabs":
        size, pitch = shared.args
        slab = w.binary("udiv", offset, w.const(pitch))
        inside = w.binary("sub", offset, w.mul(slab, pitch))
        row, byte = _dense_place(w, shared, w.binary("add", w.mul(slab, size), inside))
        return w.select(w.icmp("ult", inside, w.const(size)), row, w.const(shared.rows), "i32"), byte
    return _dense_place(w, shared, offset)


def _dense_place(w: Writer, shared: SharedLayout, offset: str) -> tuple[str, str]:
    """As `place`, slabs lying one behind the other."""
    if shared.kind == "blocks":
        return _block_source(w, shared, offset)
    image, whole = _source_image(w, shared, offset), shared.row_bytes
    if whole & whole - 1:
        return w.binary("udiv", image, w.const(whole)), w.binary("urem", image, w.const(whole))
    return w.binary("lshr", image, w.const(whole.bit_length() - 1)), w.binary("and", image, w.const(whole - 1))


def _source_image(w: Writer, shared: SharedLayout, offset: str) -> str:
    """Image byte stored at a (slab-relative) offset: the inverse of the layout. A swizzle that XORs high bits onto low ones
    is its own inverse when the two fields do not meet; else the XORs are undone from the highest bit down."""
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
        return _exchanged(w, shared, image, back=True)
    if shared.kind == "rotate":
        row = w.binary("udiv", offset, w.const(shared.row_bytes))
        place = w.binary("sub", offset, w.mul(row, shared.row_bytes))
        return w.binary("add", w.mul(row, shared.row_bytes), turned(w, shared, row, place, back=True))
    return offset
