"""Layouts of tiles in LDS: maps from (row, column) to byte offsets."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tileir.records import dataclass, hash_once

from .linear import Index, IntArray, LayoutError, ceil_log2

KINDS = {
    "rows": "rows",
    "swizzle": "swizzle(bits, base, shift)",
    "xor": "xor(bit, mask, …)",
    "blocks": "blocks(bytes, bit, mask, …)",
    "rotate": "rotate(bytes, row mask, pieces, …)",
    "padded": "padded(row pitch in bytes)",
    "slabs": "slabs(slab bytes, slab pitch in bytes)",
}


BLOCK_UNIT = 256
"""Bytes: blocks of columns begin at multiples of it, so that each has the same banks (64 of 4 bytes, gfx950; 32 on gfx942)."""


@hash_once
@dataclass(frozen=True)
class SharedLayout:
    """Where the elements of a rows x cols tile lie in LDS.

    The tile's *image* is its row-major byte string (byte ``x = row * row_bytes + col * elem_bits // 8``). The kinds map
    image bytes to byte offsets from the start of the buffer:

    * ``rows``: offset = x.
    * ``swizzle(bits, base, shift)``: the ``bits`` bits of x from ``base + shift`` up are XORed onto those from ``base``
      up; granules of ``2**base`` bytes stay whole. The buffer is rounded up to ``2**(base + bits)`` bytes.
    * ``xor(bit, mask, …)``: for every pair, if bit ``bit`` of x is set, ``mask`` (< ``2**bit``) is XORed onto x: the
      general form of the swizzle.
    * ``blocks(bytes, bit, mask, …)``: the columns are cut into blocks of ``bytes`` (a power of two that divides a row), and the
      blocks lie one behind the other. Let z be the image byte of a tile of rows of ``bytes`` bytes in which the blocks stand below
      one another, each with as many rows as the next power of two: bits of z are those of the byte in the row of the block, of the row
      and of the block. For every pair, if bit ``bit`` of z is set, ``mask`` (< ``2**bit``, < 256) is XORed onto z. Then the rows
      that were added are left out again, but for what brings the next block to a multiple of 256 bytes. So rows that are no power of two
      of bytes are swizzled like others.
    * ``rotate(bytes, mask, pieces, …)``: rows are cut into pieces of ``bytes`` (a power of two) bytes and turned cyclically: for
      every pair, if ``row & mask`` has an odd number of bits, by ``pieces``. The swizzle for rows that are no power of two; it
      takes no room, so direct copies can produce it.
    * ``padded(pitch)``: rows start every ``pitch`` bytes.
    * ``slabs(bytes, pitch)``: pieces of ``bytes`` bytes of the image start every ``pitch`` bytes. This is the padding that
      direct-to-LDS loads can produce.

    Attributes:
        rows, cols: tile shape.
        elem_bits: bits per element; a row must be whole bytes.
        kind: one of the names above.
        args: its parameters.

    Raises:
        LayoutError: parameters that give no bijection; the message says what would be legal.
    """

    rows: int
    cols: int
    elem_bits: int
    kind: str = "rows"
    args: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.rows < 1 or self.cols < 1:
            raise LayoutError(f"a shared tile needs at least one row and column, not {self.rows} x {self.cols}")
        if self.elem_bits < 1 or self.cols * self.elem_bits % 8:
            raise LayoutError(
                f"a row of {self.cols} elements of {self.elem_bits} bits is not a whole number of bytes; pad the tile"
            )
        arity = {"rows": 0, "swizzle": 3, "padded": 1, "slabs": 2}
        if self.kind not in KINDS or (self.kind in arity and len(self.args) != arity[self.kind]):
            shown = f"{self.kind}({', '.join(map(str, self.args))})"
            raise LayoutError(f"no shared layout {shown}; legal are {'; '.join(KINDS.values())}")
        if self.kind == "swizzle":
            bits, base, shift = self.args
            if not (1 <= bits <= 8 and 0 <= base <= 16 and 1 <= shift <= 16):
                raise LayoutError(f"{self}: needs 1 <= bits <= 8, 0 <= base <= 16 and 1 <= shift <= 16")
        elif self.kind == "xor":
            if not self.args or len(self.args) % 2:
                raise LayoutError(f"{self}: needs pairs of a bit number and a mask")
            if any(not (0 <= bit <= 24 and 0 < mask < 1 << bit) for bit, mask in self.pairs):
                raise LayoutError(f"{self}: every mask must be positive and below 2 ** bit, with bit at most 24")
            if list(self.args[::2]) != sorted(set(self.args[::2])):
                raise LayoutError(f"{self}: the bits must be ascending and distinct")
        elif self.kind == "blocks":
            self._check_blocks()
        elif self.kind == "rotate":
            self._check_rotation()
        elif self.kind == "padded" and self.args[0] < self.row_bytes:
            raise LayoutError(f"{self}: the pitch must be at least the {self.row_bytes} bytes of a row")
        elif self.kind == "slabs" and not 1 <= self.args[0] <= self.args[1]:
            raise LayoutError(f"{self}: the pitch must be at least the {self.args[0]} bytes of a slab")

    def _check_blocks(self) -> None:
        width = self.args[0] if self.args else 0
        if len(self.args) % 2 == 0:
            raise LayoutError(f"{self}: needs the bytes of a block, then pairs of a bit number and a mask")
        if width < 1 or width & width - 1 or self.row_bytes % width:
            raise LayoutError(
                f"{self}: blocks must be a power of two of bytes that divides the {self.row_bytes} of a row"
            )
        if any(not (0 <= bit <= 24 and 0 < mask < min(BLOCK_UNIT, 1 << bit)) for bit, mask in self.pairs):
            raise LayoutError(
                f"{self}: every mask must be positive, below {BLOCK_UNIT} and below 2 ** bit, with bit at most 24"
            )
        if list(self.args[1::2]) != sorted(set(self.args[1::2])):
            raise LayoutError(f"{self}: the bits must be ascending and distinct")

    def _check_rotation(self) -> None:
        piece = self.args[0] if self.args else 0
        if len(self.args) < 3 or len(self.args) % 2 == 0:
            raise LayoutError(f"{self}: needs the bytes of a piece, then pairs of a row mask and a number of pieces")
        if piece < 1 or piece & piece - 1 or self.row_bytes % piece:
            raise LayoutError(
                f"{self}: pieces must be a power of two of bytes that divides the {self.row_bytes} of a row"
            )
        count = self.row_bytes // piece
        if any(not (0 < mask < 1 << 16 and 0 < turn < count) for mask, turn in self._turns):
            raise LayoutError(f"{self}: masks must be positive and below 65536, turns from 1 to {count - 1} pieces")

    @classmethod
    def from_spec(
        cls, shape: Sequence[int], elem_bits: int, name: str = "rows", args: Sequence[int] = ()
    ) -> SharedLayout:
        """The layout that the text ``name(args…)`` means for a tile of ``shape`` = (rows, cols).

        Raises:
            LayoutError: unknown name, wrong parameters, wrong rank.
        """
        if len(shape) != 2:
            raise LayoutError(f"a shared layout describes rows and columns, not a tile of rank {len(shape)}")
        return cls(int(shape[0]), int(shape[1]), elem_bits, name, tuple(int(a) for a in args))

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(str(a) for a in self.args)})" if self.args else self.kind

    # -- extents -------------------------------------------------------------------------------------------------

    @property
    def row_bytes(self) -> int:
        """Bytes of a row without padding."""
        return self.cols * self.elem_bits // 8

    @functools.cached_property
    def image_bytes(self) -> int:
        """Bytes of the tile without padding."""
        return self.rows * self.row_bytes

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """(bit, mask) of ``xor`` and ``blocks``, ascending."""
        args = self.args[1:] if self.kind == "blocks" else self.args
        return tuple(zip(args[::2], args[1::2], strict=True))

    @property
    def _turns(self) -> tuple[tuple[int, int], ...]:
        """(row mask, pieces) of a rotation."""
        return tuple(zip(self.args[1::2], self.args[2::2], strict=True))

    @functools.cached_property
    def cut(self) -> tuple[int, int, int]:
        """(bytes of a block's row, bits of the bytes of a block with added rows, distance of the blocks) of the blocks of columns;
        of other layouts, which are one block, the row and everything."""
        if self.kind != "blocks":
            bits = ceil_log2(self.size_bytes)
            return self.row_bytes, bits, 1 << bits
        high = ceil_log2(self.rows * self.args[0])
        distance = -(-self.rows * self.args[0] // BLOCK_UNIT) * BLOCK_UNIT
        return self.args[0], high, min(1 << high, distance)

    @property
    def is_linear(self) -> bool:
        """Whether the map of image bytes is linear over GF(2)."""
        return self.kind in ("rows", "swizzle", "xor")

    @property
    def _interval(self) -> tuple[int, int]:
        """(bytes stored contiguously, distance of their starts); the image in one piece if there is no padding."""
        if self.kind == "padded":
            return self.row_bytes, self.args[0]
        if self.kind == "slabs":
            return self.args[0], self.args[1]
        return self.image_bytes, self.image_bytes

    @functools.cached_property
    def window(self) -> int:
        """Power of two: an aligned window of so many bytes is mapped to itself (1 without XOR)."""
        if self.kind == "swizzle":
            return 1 << self.args[0] + self.args[1]
        if self.kind in ("xor", "blocks"):
            return 1 << max((mask.bit_length() for _, mask in self.pairs), default=0)
        return 1

    @functools.cached_property
    def size_bytes(self) -> int:
        """Bytes of the buffer: one more than the largest offset, rounded up to the window."""
        if self.kind == "blocks":
            width, _, distance = self.cut
            plain = (self.row_bytes // width - 1) * distance + self.rows * width
            return -(-plain // self.window) * self.window
        interval, pitch = self._interval
        whole, rest = divmod(self.image_bytes, interval)
        plain = whole * pitch + rest if rest else (whole - 1) * pitch + interval
        return -(-plain // self.window) * self.window

    @functools.cached_property
    def granule(self) -> int:
        """Power of two: aligned runs of so many image bytes stay contiguous and in order."""
        if self.kind == "swizzle":
            return 1 << self.args[1]
        if self.kind == "xor":
            return min(mask & -mask for _, mask in self.pairs)
        if self.kind == "blocks":
            return min([self.args[0], *(mask & -mask for _, mask in self.pairs)])
        if self.kind == "rotate":
            return self.args[0]
        interval, pitch = self._interval
        if interval >= self.image_bytes:
            return 1 << 24
        return min(interval & -interval, pitch & -pitch)

    # -- the map -------------------------------------------------------------------------------------------------

    def image_to_offset(self, x: int) -> int:
        """Byte offset of one image byte, in plain integers."""
        if self.kind == "swizzle":
            bits, base, shift = self.args
            return x ^ ((x >> base + shift & (1 << bits) - 1) << base)
        if self.kind == "xor":
            for bit, mask in self.pairs:  # ascending, so a mask never changes a bit that is read later
                x ^= (x >> bit & 1) * mask
            return x
        if self.kind in ("rotate", "blocks"):
            return int(self.offset_of_image(x))
        interval, pitch = self._interval
        return x // interval * pitch + x % interval

    def offset_of_image(self, x: Index) -> IntArray:
        """Byte offset of image byte ``x``, elementwise."""
        x = np.asarray(x, dtype=np.int64)
        if self.kind == "swizzle":
            bits, base, shift = self.args
            return x ^ ((x >> base + shift & (1 << bits) - 1) << base)
        if self.kind == "xor":
            return self._exchanged(x)
        if self.kind == "blocks":
            width, high, distance = self.cut
            row, place = np.divmod(x, self.row_bytes)
            z = self._exchanged((place // width << high) + row * width + place % width)
            return (z >> high) * distance + (z & (1 << high) - 1)
        if self.kind == "rotate":
            row, place = np.divmod(x, self.row_bytes)
            for mask, turn in self._turns:
                place = place + _parity(row & mask) * turn * self.args[0]
            return row * self.row_bytes + place % self.row_bytes
        interval, pitch = self._interval
        return x // interval * pitch + x % interval

    def _exchanged(self, x: IntArray) -> IntArray:
        """Numbers with the masks of the pairs XORed on."""
        y = x
        for bit, mask in self.pairs:
            y = y ^ (x >> bit & 1) * mask
        return y

    def linear_place(self, row: int, place: int) -> tuple[int, int]:
        """(block, byte in the block) in which byte ``place`` of a row lies: numbers whose bits are linear over GF(2) in those of the row
        and the place, where layout and row allow that. Blocks are ``cut[2]`` bytes apart."""
        width, high, _ = self.cut
        z = (place // width << high) + row * width + place % width
        if self.kind != "blocks":
            z = self.image_to_offset(z)
        else:
            z ^= functools.reduce(operator.xor, (mask for bit, mask in self.pairs if z >> bit & 1), 0)
        return z >> high, z & (1 << high) - 1

    def place_of_offset(self, offset: Index) -> tuple[IntArray, IntArray]:
        """(row, byte in the row) whose place is ``offset``, elementwise. In what lies between and behind the blocks of columns, a row
        or a byte beyond the tile.

        Raises:
            LayoutError: an offset outside the buffer; padding of another kind.
        """
        if self.kind != "blocks":
            image = self.image_of_offset(offset)
            if np.any(image < 0):
                raise LayoutError(f"{self}: some of these offsets are padding")
            return np.divmod(image, self.row_bytes)
        width, high, distance = self.cut
        block, inside = np.divmod(np.asarray(offset, dtype=np.int64), distance)
        z = (block << high) + inside
        for bit, mask in reversed(self.pairs):
            z = z ^ (z >> bit & 1) * mask
        inside = z & (1 << high) - 1
        return inside // width, (z >> high) * width + inside % width

    @functools.cached_property
    def _image_table(self) -> IntArray:
        """Image byte at every offset, -1 for padding."""
        table = np.full(self.size_bytes, -1, dtype=np.int64)
        image = np.arange(self.image_bytes, dtype=np.int64)
        table[self.offset_of_image(image)] = image
        return table

    def image_of_offset(self, offset: Index) -> IntArray:
        """Image byte stored at a byte offset, -1 for padding: the inverse of :meth:`offset_of_image`.

        Raises:
            LayoutError: an offset outside the buffer.
        """
        offset = np.asarray(offset, dtype=np.int64)
        if np.any((offset < 0) | (offset >= self.size_bytes)):
            raise LayoutError(f"offsets must lie in 0 .. {self.size_bytes - 1}")
        return self._image_table[offset]

    def offset(self, row: Index, col: Index) -> IntArray:
        """Byte offset of element (row, col), elementwise; of its first byte where elements are smaller than a byte."""
        row, col = np.asarray(row, dtype=np.int64), np.asarray(col, dtype=np.int64)
        return self.offset_of_image(row * self.row_bytes + col * self.elem_bits // 8)

    def element(self, offset: Index) -> tuple[IntArray, IntArray]:
        """(row, col) of the first element that begins in the byte at ``offset``, (-1, -1) for padding.

        A direct-to-LDS load uses it to find what a lane has to fetch for its fixed place in LDS.

        Raises:
            LayoutError: an offset outside the buffer.
        """
        image = self.image_of_offset(offset)
        row, rest = np.divmod(image, self.row_bytes)
        col = -(-rest * 8 // self.elem_bits)
        return np.where(image < 0, -1, row), np.where(image < 0, -1, col)

    def is_bijective(self) -> bool:
        """Check by enumeration that no two image bytes share an offset and all lie inside the buffer."""
        offsets = self.offset_of_image(np.arange(self.image_bytes, dtype=np.int64))
        seen: npt.NDArray[np.bool_] = np.zeros(self.size_bytes, dtype=np.bool_)
        if offsets.min() < 0 or offsets.max() >= self.size_bytes:
            return False
        seen[offsets] = True
        return int(seen.sum()) == self.image_bytes

    def allows_direct(self, bytes_per_lane: int, lanes: int = 64) -> bool:
        """Whether direct-to-LDS loads (consecutive lanes, consecutive places) can fill the buffer.

        Lane pieces must lie inside one row and stay whole; padding may lie only between slabs of lanes * bytes_per_lane.
        """
        if self.row_bytes % bytes_per_lane:
            return False
        if self.kind in ("padded", "slabs"):
            interval, pitch = self._interval
            return interval % (lanes * bytes_per_lane) == 0 and pitch % 4 == 0
        return self.kind == "rows" or self.granule % bytes_per_lane == 0


def _parity(x: IntArray) -> IntArray:
    """1 where a number below 65536 has an odd number of bits."""
    for shift in (8, 4, 2, 1):
        x = x ^ x >> shift
    return x & 1
