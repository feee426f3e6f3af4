"""A bounds-checked reader over bytes: every read either succeeds inside the range or raises `CodeObjectError`."""

from __future__ import annotations

import struct

from tileir.codeobject.errors import CodeObjectError

LEB128_MAX_BYTES = 10  # enough for 64 bits; a longer encoding is refused so that padding cannot be endless


class StringBudget:
    """Bounds the total length of strings decoded from one file.

    String tables are shared: many entries may point into one long string, so that the decoded size is not bounded
    by the file size. Honest files stay below a few times their size.
    """

    FACTOR = 4
    FLOOR = 4096

    def __init__(self, file_size: int) -> None:
        self.left = self.FACTOR * file_size + self.FLOOR

    def spend(self, count: int, offset: int) -> None:
        """Account for `count` bytes of string; `CodeObjectError` when the budget is used up."""
        self.left -= count
        if self.left < 0:
            raise CodeObjectError("the strings of this file add up to more than several times its size", offset)


class Reader:
    """Little-endian cursor over `data[start:end]`; offsets in errors are offsets in `data`."""

    def __init__(self, data: bytes, start: int, end: int, what: str) -> None:
        if not 0 <= start <= end <= len(data):
            raise CodeObjectError(f"{what} lies outside the file", max(start, 0))
        self.data = data
        self.pos = start
        self.end = end
        self.what = what

    @property
    def remaining(self) -> int:
        """Bytes left in the range."""
        return self.end - self.pos

    def need(self, count: int) -> int:
        """Advance over `count` bytes and return where they start; `CodeObjectError` if the range is shorter."""
        if not 0 <= count <= self.remaining:
            raise CodeObjectError(f"{self.what} is truncated: {count} bytes wanted, {self.remaining} left", self.pos)
        at = self.pos
        self.pos += count
        return at

    def skip_to(self, position: int) -> None:
        """Move forward (never backward) to `position`."""
        if not self.pos <= position <= self.end:
            raise CodeObjectError(f"{self.what}: a length leads outside the range", self.pos)
        self.pos = position

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        at = self.need(count)
        return self.data[at : at + count]

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        """The fields of `layout`."""
        return layout.unpack_from(self.data, self.need(layout.size))

    def uint(self, size: int) -> int:
        """An unsigned integer of `size` bytes."""
        return int.from_bytes(self.take(size), "little")

    def sint8(self) -> int:
        """A signed byte."""
        return int.from_bytes(self.take(1), "little", signed=True)

    def uleb128(self) -> int:
        """An unsigned LEB128 number below 2**64."""
        at, value, shift = self.pos, 0, 0
        for _ in range(LEB128_MAX_BYTES):
            byte = self.data[self.need(1)]
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value & 0xFFFFFFFFFFFFFFFF
        raise CodeObjectError(f"{self.what}: LEB128 number of more than {LEB128_MAX_BYTES} bytes", at)

    def sleb128(self) -> int:
        """A signed LEB128 number of at most 64 bits."""
        at, value, shift = self.pos, 0, 0
        for _ in range(LEB128_MAX_BYTES):
            byte = self.data[self.need(1)]
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                if byte & 0x40:
                    value -= 1 << shift
                return value
        raise CodeObjectError(f"{self.what}: LEB128 number of more than {LEB128_MAX_BYTES} bytes", at)

    def text(self, budget: StringBudget) -> str:
        """A NUL-terminated UTF-8 string, the terminator consumed."""
        at = self.pos
        stop = self.data.find(b"\0", at, self.end)
        if stop < 0:
            raise CodeObjectError(f"{self.what}: string without end", at)
        budget.spend(stop - at, at)
        self.pos = stop + 1
        return decode_utf8(self.data[at:stop], at)


def decode_utf8(raw: bytes, offset: int) -> str:
    """`raw` as text; `CodeObjectError` when it is not UTF-8."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise CodeObjectError("name is not valid UTF-8", offset) from None
