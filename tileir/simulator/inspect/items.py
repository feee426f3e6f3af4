"""Machine code as a sequence of items: opcode and size of each instruction now, its operands when someone asks."""

from __future__ import annotations

from functools import cached_property

from tileir.records import dataclass
from tileir.simulator.decoder import DecodeError, Instruction
from tileir.simulator.decoder.decode import decode, find_entry
from tileir.simulator.decoder.formats import extract
from tileir.simulator.decoder.operands import LITERAL, Undecodable
from tileir.simulator.decoder.table import Entry, Table, load

_LONGEST = 16  # bytes of the longest instruction, a scaled MFMA
_SHORTEST = 4


@dataclass(eq=False)  # frozen ones take twice as long to make, and every compilation makes thousands
class Item:
    """One instruction at `address`; `name` is its mnemonic without encoding suffix ("" for bytes that are none)."""

    chip: str
    address: int
    raw: bytes
    name: str
    encoding: str
    to_lds: bool
    """Whether a load writes LDS instead of registers."""
    problem: str
    """Why the bytes are no instruction, "" when they are one."""

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.raw)

    @property
    def end(self) -> int:
        """Address of what follows."""
        return self.address + len(self.raw)

    @cached_property
    def instruction(self) -> Instruction:
        """Fully decoded. Raises DecodeError for reserved field values and for bytes that are no instruction."""
        try:
            return decode(self.chip, self.raw)
        except DecodeError as error:
            raise DecodeError(self.address, self.raw, error.reason) from None

    @property
    def immediate(self) -> int:
        """The 16-bit operand of an SOPP or SOPK instruction."""
        return int.from_bytes(self.raw[:2], "little")

    @property
    def distance(self) -> int:
        """Signed bytes from the end of a branch to its target."""
        return ((self.immediate ^ 0x8000) - 0x8000) * 4

    @property
    def text(self) -> str:
        """Assembly; the bytes as data where they are no instruction."""
        try:
            return self.instruction.text
        except DecodeError:
            return ".byte " + ", ".join(f"{byte:#04x}" for byte in self.raw)


def skim(chip: str, code: bytes, address: int) -> list[Item]:
    """All instructions of `code`, which starts at `address`. Bytes that are none become an item with a `problem`, one
    dword each, and the sweep goes on behind them; whether they matter depends on whether they can be reached."""
    table = load(chip)
    items: list[Item] = []
    offset = 0
    while offset < len(code):
        window = code[offset : offset + _LONGEST]
        word = int.from_bytes(window, "little")
        try:
            if len(window) < _SHORTEST:
                raise Undecodable("the code ends inside an instruction")
            entry = find_entry(table, word)
            size = _size(entry, word)
            if size > len(window):
                raise Undecodable("the code ends inside an instruction")
            items.append(_item(table, entry, address + offset, window[:size]))
        except Undecodable as error:
            size = min(_SHORTEST, len(window))
            items.append(Item(chip, address + offset, window[:size], "", "", False, str(error)))
        offset += size
    return items


def _size(entry: Entry, word: int) -> int:
    literal = entry.wide or (
        entry.has_literal
        and (word & 0xFF == LITERAL or word >> 8 & 0xFF == LITERAL)  # all fields that can ask for one stand there
        and any(s.literal and extract(word, s.chunks) == LITERAL for s in entry.slots)
    )
    return entry.size + 4 * literal


def _item(table: Table, entry: Entry, address: int, raw: bytes) -> Item:
    to_lds = "_load_lds_" in entry.name or "lds" in entry.suffixes
    return Item(table.chip, address, raw, entry.name, entry.encoding, to_lds, "")
