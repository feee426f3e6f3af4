"""LDS layouts as maps of bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileir.layout import LayoutError, SharedLayout


def test_rows() -> None:
    layout = SharedLayout(5, 6, 16)
    assert int(layout.offset(3, 4)) == 3 * 12 + 8
    assert layout.size_bytes == 60 and str(layout) == "rows"


def test_swizzle_by_hand() -> None:
    # 128-byte rows of bf16: (3, 4, 3) XORs the 16-byte column with row % 8
    layout = SharedLayout(16, 64, 16, "swizzle", (3, 4, 3))
    assert int(layout.offset(5, 0)) == 5 * 128 + 5 * 16
    assert int(layout.offset(5, 40)) == 5 * 128 + (5 ^ 5) * 16
    assert int(layout.offset(13, 11)) == 13 * 128 + (5 ^ 1) * 16 + 6
    # (3, 4, 4) uses row // 2 % 8
    assert int(SharedLayout(16, 64, 16, "swizzle", (3, 4, 4)).offset(13, 11)) == 13 * 128 + (6 ^ 1) * 16 + 6
    assert str(layout) == "swizzle(3, 4, 3)"


def test_padding_by_hand() -> None:
    layout = SharedLayout(4, 80, 16, "padded", (176,))
    assert int(layout.offset(3, 79)) == 3 * 176 + 158
    assert layout.size_bytes == 3 * 176 + 160
    slabs = SharedLayout(32, 32, 16, "slabs", (1024, 1040))
    assert int(slabs.offset(16, 0)) == 1040 and int(slabs.offset(15, 31)) == 1022
    assert slabs.size_bytes == 1040 + 1024


def test_xor_is_the_general_form_of_the_swizzle() -> None:
    # swizzle (2, 4, 3): bits 7, 8 onto bits 4, 5
    swizzle = SharedLayout(16, 64, 16, "swizzle", (2, 4, 3))
    xor = SharedLayout(16, 64, 16, "xor", (7, 16, 8, 32))
    x = np.arange(swizzle.image_bytes)
    assert np.array_equal(swizzle.offset_of_image(x), xor.offset_of_image(x))
    assert (xor.granule, xor.window) == (16, 64) == (swizzle.granule, swizzle.window)


@st.composite
def shared(draw: st.DrawFn) -> SharedLayout:
    rows, cols = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    bits = draw(st.sampled_from([4, 8, 16, 32, 64]))
    if cols * bits % 8:
        cols += 1
    row = cols * bits // 8
    kind = draw(st.sampled_from(["rows", "swizzle", "xor", "blocks", "rotate", "padded", "slabs"]))
    piece = row & -row
    if kind == "rotate" and row == piece:
        kind = "rows"  # a row of one piece cannot be turned
    args: tuple[int, ...] = ()
    if kind == "swizzle":
        args = (draw(st.integers(1, 5)), draw(st.integers(0, 7)), draw(st.integers(1, 6)))
    elif kind == "xor":
        sources = sorted(draw(st.sets(st.integers(1, 12), min_size=1, max_size=4)))
        args = tuple(x for bit in sources for x in (bit, draw(st.integers(1, (1 << bit) - 1))))
    elif kind == "blocks":
        sources = sorted(draw(st.sets(st.integers(1, 14), max_size=4)))
        width = 1 << draw(st.integers(0, piece.bit_length() - 1))
        args = (width, *(x for bit in sources for x in (bit, draw(st.integers(1, min(255, (1 << bit) - 1))))))
    elif kind == "rotate":
        turns = st.tuples(st.integers(1, 63), st.integers(1, row // piece - 1))
        args = (piece, *(x for pair in draw(st.lists(turns, min_size=1, max_size=3)) for x in pair))
    elif kind == "padded":
        args = (row + draw(st.integers(0, 40)),)
    elif kind == "slabs":
        slab = draw(st.integers(1, 300))
        args = (slab, slab + draw(st.integers(0, 40)))
    return SharedLayout(rows, cols, bits, kind, args)


@given(shared())
def test_bijection_inverse_and_plain_integers(layout: SharedLayout) -> None:
    assert layout.is_bijective()
    x = np.arange(layout.image_bytes)
    y = layout.offset_of_image(x)
    assert np.array_equal(layout.image_of_offset(y), x)
    everything = layout.image_of_offset(np.arange(layout.size_bytes))
    assert int((everything >= 0).sum()) == layout.image_bytes
    assert [layout.image_to_offset(i) for i in x[:50].tolist()] == y[:50].tolist()


@given(shared())
def test_element_inverts_offset(layout: SharedLayout) -> None:
    row, col = np.meshgrid(np.arange(layout.rows), np.arange(layout.cols), indexing="ij")
    r, c = layout.element(layout.offset(row, col))
    assert np.array_equal(r, row)
    per_byte = max(1, 8 // layout.elem_bits)
    assert np.array_equal(c, col // per_byte * per_byte)


@given(shared())
def test_granules_stay_whole(layout: SharedLayout) -> None:
    granule = min(layout.granule, 1 << 12)
    x = np.arange(layout.image_bytes // granule * granule).reshape(-1, granule)
    y = layout.offset_of_image(x)
    assert np.array_equal(y - y[:, :1], np.broadcast_to(np.arange(granule), y.shape))


def test_a_window_that_the_tile_does_not_fill_is_rounded_up() -> None:
    layout = SharedLayout(7, 64, 16, "swizzle", (3, 7, 3))  # 896 bytes, windows of 1024
    assert layout.size_bytes == 1024 and layout.is_bijective()


def test_blocks_by_hand() -> None:
    # 24 rows of 96 bytes in three blocks of 32: 768 bytes each, a multiple of 256; rows of a block begin every 32 bytes
    plain = SharedLayout(24, 48, 16, "blocks", (32,))
    assert int(plain.offset(0, 16)) == 768 and int(plain.offset(23, 47)) == 2 * 768 + 23 * 32 + 30
    assert plain.size_bytes == plain.image_bytes == 2304 and plain.granule == 32
    # bits of z: 0-4 the byte in a row of a block, 5-9 the row (of 32), 10 and 11 the block
    layout = SharedLayout(24, 48, 16, "blocks", (32, 7, 16, 10, 64, 11, 96))
    assert int(layout.offset(4, 0)) == (4 * 32 ^ 16)  # bit 2 of the row is bit 7 of z
    assert int(layout.offset(5, 17)) == 768 + (5 * 32 ^ 16 ^ 64) + 2
    assert int(layout.offset(3, 32)) == 2 * 768 + (3 * 32 ^ 96)
    assert (layout.granule, layout.window, layout.cut) == (16, 128, (32, 10, 768)) and layout.is_bijective()
    assert layout.linear_place(5, 34) == (1, 5 * 32 ^ 16 ^ 64 ^ 2)
    assert (
        str(layout) == "blocks(32, 7, 16, 10, 64, 11, 96)" and layout.allows_direct(16) and not layout.allows_direct(32)
    )
    # 20 rows: 640 bytes and 128 that nobody uses, but behind the last block; they belong to rows that do not exist
    padded = SharedLayout(20, 48, 16, "blocks", (32,))
    assert padded.cut == (32, 10, 768) and padded.size_bytes == 2 * 768 + 640
    row, place = padded.place_of_offset([639, 640, 767, 768])
    assert row.tolist() == [19, 20, 23, 0] and place.tolist() == [31, 0, 31, 32]
    # 3 rows: blocks of 128 bytes, less than 256, follow one another
    small = SharedLayout(3, 48, 16, "blocks", (32, 7, 64))
    assert small.cut == (32, 7, 128) and int(small.offset(2, 16)) == 128 + (2 * 32 ^ 64)


@given(shared())
def test_places_of_offsets(layout: SharedLayout) -> None:
    image = np.arange(layout.image_bytes)
    row, place = layout.place_of_offset(layout.offset_of_image(image))
    assert np.array_equal(row * layout.row_bytes + place, image)
    if layout.kind == "blocks":
        row, place = layout.place_of_offset(np.arange(layout.size_bytes))
        inside = (row < layout.rows) & (place < layout.row_bytes)
        assert np.array_equal(inside, layout.image_of_offset(np.arange(layout.size_bytes)) >= 0)
        some = image[:: max(1, len(image) // 50)].tolist()
        for x in some:
            block, inner = layout.linear_place(x // layout.row_bytes, x % layout.row_bytes)
            assert block * layout.cut[2] + inner == int(layout.offset_of_image(x))
    elif layout.kind in ("padded", "slabs") and layout.size_bytes > layout.image_bytes:
        with pytest.raises(LayoutError, match="padding"):
            layout.place_of_offset(np.arange(layout.size_bytes))


def test_rotation_by_hand() -> None:
    # rows of 80 bytes are 5 pieces of 16; rows with an odd number of bits in 12 = 0b1100, rows 4 to 11, are turned by 4
    layout = SharedLayout(16, 40, 16, "rotate", (16, 12, 4))
    assert int(layout.offset(3, 9)) == 3 * 80 + 18
    assert int(layout.offset(4, 0)) == 4 * 80 + 64 and int(layout.offset(4, 8)) == 4 * 80
    assert int(layout.offset(11, 17)) == 11 * 80 + (2 + 4 - 5) * 16 + 2
    assert int(layout.offset(12, 0)) == 12 * 80  # both bits: even
    assert layout.size_bytes == layout.image_bytes == 1280 and layout.granule == 16 and layout.allows_direct(16)
    assert layout.is_bijective() and str(layout) == "rotate(16, 12, 4)"
    both = SharedLayout(16, 40, 16, "rotate", (16, 1, 2, 2, 3))
    assert int(both.offset(3, 0)) == 3 * 80 and int(both.offset(2, 0)) == 2 * 80 + 48  # 2 + 3 pieces are a whole turn


def test_direct_loads() -> None:
    def allowed(kind: str, *args: int, cols: int = 64, size: int = 16) -> bool:
        return SharedLayout(64, cols, 16, kind, args).allows_direct(size)

    assert allowed("rows") and allowed("swizzle", 3, 4, 3) and allowed("slabs", 1024, 1040)
    assert not allowed("swizzle", 4, 3, 4)  # tears 16-byte pieces
    assert allowed("swizzle", 4, 3, 4, size=4)
    assert not allowed("padded", 144) and not allowed("slabs", 512, 528)
    assert not allowed("rows", cols=60)  # 120-byte rows


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((16, 64), 16, "spiral", ()), r"no shared layout spiral\(\); legal are rows; swizzle"),
        (((16, 64), 16, "swizzle", (3, 4)), "no shared layout"),
        (((16, 64), 16, "swizzle", (0, 4, 3)), "1 <= bits"),
        (((16, 64), 16, "padded", (100,)), "at least the 128 bytes"),
        (((16, 64), 16, "slabs", (1024, 1000)), "at least the 1024 bytes"),
        (((16, 64), 16, "xor", (4, 16)), "below 2"),
        (((16, 64), 16, "xor", (7, 16, 6, 16)), "ascending"),
        (((16, 64), 16, "xor", (7,)), "pairs"),
        (((16, 40), 16, "blocks", ()), "needs the bytes of a block"),
        (((16, 40), 16, "blocks", (16, 7)), "pairs of a bit number"),
        (((16, 40), 16, "blocks", (32,)), "divides the 80"),
        (((16, 40), 16, "blocks", (16, 9, 256)), "below 256"),
        (((16, 40), 16, "blocks", (16, 4, 16)), "below 2"),
        (((16, 40), 16, "blocks", (16, 9, 16, 8, 16)), "ascending"),
        (((16, 40), 16, "rotate", (16, 12)), "pairs of a row mask"),
        (((16, 40), 16, "rotate", (32, 12, 1)), "divides the 80"),
        (((16, 40), 16, "rotate", (16, 12, 5)), "from 1 to 4 pieces"),
        (((16, 3), 4, "rows", ()), "whole number of bytes"),
        (((16, 64, 2), 16, "rows", ()), "rank 3"),
        (((0, 64), 16, "rows", ()), "at least one row"),
    ],
)
def test_bad_layouts_say_what_would_be_legal(
    arguments: tuple[tuple[int, ...], int, str, tuple[int, ...]], message: str
) -> None:
    with pytest.raises(LayoutError, match=message):
        SharedLayout.from_spec(*arguments)


def test_offsets_outside_are_refused() -> None:
    with pytest.raises(LayoutError, match=r"0 \.\. 59"):
        SharedLayout(5, 6, 16).image_of_offset(60)
