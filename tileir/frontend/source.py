"""Source texts: decoding, line ends, and the way from offsets to locations."""

from __future__ import annotations

import re
from bisect import bisect_right

from tileir.ir.diagnostics import error
from tileir.ir.location import Loc


class Source:
    """One text. Line ends are normalised to "\\n" and a byte order mark is dropped, so that lines and columns (in
    characters) are those an editor shows."""

    def __init__(self, text: str, filename: str):
        self.filename = filename
        self.text = re.sub("\r\n?", "\n", text.removeprefix("\ufeff"))
        self._starts: list[int] = [0]
        at = self.text.find("\n")
        while at >= 0:
            self._starts.append(at + 1)
            at = self.text.find("\n", at + 1)

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column, from 1, of a character."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def rstrip(self, offset: int) -> int:
        """The offset after the last character before `offset` that is not a space."""
        while offset and self.text[offset - 1].isspace():
            offset -= 1
        return offset

    def loc(self, start: int, end: int) -> Loc:
        """The location of the characters from `start` to before `end`."""
        return Loc(self.filename, *self.position(start), *self.position(end))


def decode(data: bytes, filename: str) -> str:
    """The text of a file. Raises CompileError at the first byte that is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as e:
        before = data[: e.start].decode("utf-8")
        source = Source(before, filename)
        line, column = source.position(len(source.text))
        raise error(
            "E0101",
            f"byte 0x{data[e.start]:02x} is not valid UTF-8",
            Loc(filename, line, column, line, column + 1),
            legal="a text encoded in UTF-8",
        ) from None
