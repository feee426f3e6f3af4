"""What `print` and `assert` say, and how a kernel says it: sites, formatting, the records that it leaves in memory.

A kernel with such ops takes one more argument behind all others, a pointer to a buffer in global memory (docs/reports.md):

    dword 0      records claimed so far: each record is claimed by an atomic addition of 1, also those that find no room
    dword 1 … 7  0
    from byte 32 on records of 8 dwords: site, three positions in the grid, number of the value, row-major number of the element in
                 its tile, the bits of the element as 64 bits

One lane writes the record of one element. Of an assertion that fails a lane writes the first element that does, with value 0,
its bits the number of elements of the lane that fail, and behind it the values of the message at that element. `CAPACITY` records
have room; what is claimed beyond that is lost, and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tileir.ir.core import Kernel, Op
from tileir.ir.location import Loc
from tileir.ir.types import ELEMS, Elem, GlobalType
from tileir.records import dataclass

ARGUMENT = "tileir_reports"
TYPE = GlobalType(ELEMS["i32"], (1,))
CAPACITY = 8192
RECORD_DWORDS = 8
HEADER_BYTES = RECORD_BYTES = 4 * RECORD_DWORDS
BUFFER_BYTES = HEADER_BYTES + CAPACITY * RECORD_BYTES
OPS = ("print", "assert")
SHOWN_ELEMENTS = 16
"""Elements of a tile that `print` shows unless it says another limit."""
SHOWN_FAILURES = 4
"""Elements or workgroups that an error about a failed assertion names; the others are counted."""


@dataclass(frozen=True)
class Site:
    """A `print` or `assert` of a kernel. values: element type and shape of each value; for an assertion the first is the
    condition. limit: elements of a tile that are shown."""

    kind: str
    loc: Loc
    message: str
    values: tuple[tuple[Elem, tuple[int, ...]], ...]
    limit: int

    def data(self) -> dict[str, Any]:
        """As JSON data, for the code object."""
        return {
            "kind": self.kind,
            "at": [self.loc.file.rsplit("/", 1)[-1], self.loc.line, self.loc.column],
            "message": self.message,
            "values": [[e.name, list(shape)] for e, shape in self.values],
            "limit": self.limit,
        }

    @staticmethod
    def of_data(data: Any) -> Site:
        file, line, column = data["at"]
        values = tuple((ELEMS[e], tuple(shape)) for e, shape in data["values"])
        return Site(data["kind"], Loc(file, line, column, line, column + 1), data["message"], values, data["limit"])

    def shown(self, value: int) -> int:
        """Elements of a value that a `print` shows."""
        return min(self.limit, int(np.prod(self.values[value][1], dtype=np.int64)))


def site_of(op: Op) -> Site:
    """The site of a `print` or `assert`."""
    message, limit = op.attrs.get("message", ""), op.attrs.get("limit", SHOWN_ELEMENTS)
    assert isinstance(message, str) and isinstance(limit, int)
    values = tuple((v.tile.elem, v.tile.shape) for v in shown_operands(op))
    return Site(op.name, op.loc, str(message), values, limit)


def shown_operands(op: Op) -> list[Any]:
    """The operands without the positions in the grid that a pass appended."""
    count = op.attrs.get("ids", 0)
    assert isinstance(count, int)
    return list(op.operands[: len(op.operands) - count])


def sites(kernel: Kernel) -> list[Site]:
    """All sites of a kernel in program order; their numbers are what records name."""
    return [site_of(op) for op in kernel.walk() if op.name in OPS]


def pieces(message: str) -> list[str]:
    """The texts between the places for values. `{{` and `}}` stand for braces. Raises ValueError for a lone brace."""
    out, text, i = [], "", 0
    while i < len(message):
        pair = message[i : i + 2]
        if pair in ("{{", "}}"):
            text += pair[0]
        elif pair == "{}":
            out.append(text)
            text = ""
        elif message[i] in "{}":
            raise ValueError("a single brace")
        else:
            text += message[i]
            i -= 1
        i += 2
    return [*out, text]


def filled(message: str, values: Sequence[str]) -> str:
    """The message with texts in its places."""
    parts = pieces(message)
    return parts[0] + "".join(v + p for v, p in zip(values, parts[1:], strict=True))


def number(x: Any) -> str:
    """A number as a message shows it."""
    if x.dtype.kind == "b":
        return "true" if x else "false"
    if x.dtype.kind in "iu":
        return str(int(x))
    return f"{float(x):.9g}" if x.dtype.itemsize < 8 else repr(float(x))


def tile_text(elements: dict[int, Any], shape: tuple[int, ...]) -> str:
    """A scalar, or elements of a tile with their coordinates, in the order of their numbers."""
    if not shape:
        return number(elements[0])
    shown = [f"{coordinates(i, shape)} = {number(elements[i])}" for i in sorted(elements)]
    size = int(np.prod(shape))
    return ", ".join(shown) + (f", … ({size} elements)" if size > len(shown) else "")


def coordinates(index: int, shape: tuple[int, ...]) -> str:
    return f"[{', '.join(str(int(i)) for i in np.unravel_index(index, shape))}]"


def position(program: Sequence[int]) -> str:
    return f"({', '.join(map(str, program))})"


def printed(site: Site, program: Sequence[int], values: Sequence[dict[int, Any]]) -> str:
    """The line of a `print` for one workgroup; for each value its elements by number."""
    texts = [tile_text(e, shape) for e, (_, shape) in zip(values, site.values, strict=True)]
    file = site.loc.file.replace("\\", "/").rsplit("/", 1)[-1]
    return f"{file}:{site.loc.line}: {position(program)}: {filled(site.message, texts)}"


def failed(
    site: Site, failures: Sequence[tuple[Sequence[int], int, Sequence[Any]]], count: int
) -> tuple[str, list[str]]:
    """Message and notes for a failed assertion: workgroup, number of the element, and values of each failure that is known;
    `count` are all."""
    shape = site.values[0][1]
    notes: list[str] = []
    for program, index, values in list(failures)[:SHOWN_FAILURES]:
        where = f"in program {position(program)}" + (f" at {coordinates(index, shape)}" if shape else "")
        text = filled(site.message, [number(v) for v in values])
        notes.append(f"{where}: {text}" if text else where)
    if count > len(notes):
        notes.append(f"and {count - len(notes)} more")
    return "this assertion does not hold", notes


def reports(kernel: Kernel) -> bool:
    """Whether the compiled kernel takes a buffer for reports."""
    return bool(kernel.attrs.get("reports")) or any(op.name in OPS for op in kernel.walk())
