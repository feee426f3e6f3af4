"""The opcode tables, as read from ``<chip>.json`` (written by ``tools/gen_decoder_tables.py``).

A table line is ``"opcode": [mnemonic, slots, suffixes, mask, value]``:

* slots, in assembly order: ``field=coding`` or ``field=coding|neg61|abs8|sext51`` with the bits of source modifiers,
  or ``=text`` for a register that has no field (``=vcc``, ``=off``);
* suffixes, in the order in which they are printed: ``field=coding``, ``name:bits`` or ``name:bits:default`` with the
  bit positions from element 0 up (``-`` for an element that is always 0), or ``=name`` for a constant flag;
* mask, value: bits that the opcode fixes beyond those of format and opcode (hexadecimal).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from tileir.records import dataclass
from tileir.simulator.decoder.formats import FORMATS, Chunks
from tileir.simulator.decoder.immediates import SLOTS, SUFFIXES, Suffix
from tileir.simulator.decoder.instruction import Operand
from tileir.simulator.decoder.operands import Coding, coding, scalar_register

CHIPS = ("gfx942", "gfx950")


@dataclass(frozen=True, slots=True)
class OperandSlot:
    """One operand: where it stands in the instruction and how it is read."""

    field: str
    chunks: Chunks
    coding: str
    register: Coding | None
    """None for encoded numbers (``SLOTS[coding]``) and constants."""
    decode: Callable[[int, int], Operand]
    neg: int
    abs: int
    sext: int
    """Masks of the modifier bits, 0 when the source has none."""
    literal: bool


@dataclass(frozen=True, slots=True)
class BitsSuffix:
    """A modifier whose bits stand anywhere in the instruction."""

    name: str
    bits: tuple[int, ...]
    default: int

    def value(self, word: int) -> int:
        """Bit i of the result is element i."""
        value = 0
        for element, bit in enumerate(self.bits):
            value |= (word >> bit & 1) << element
        return value


@dataclass(frozen=True, slots=True)
class FieldSuffix:
    """A modifier that is a field of the format."""

    chunks: Chunks
    suffix: Suffix


@dataclass(frozen=True, slots=True)
class Entry:
    """Everything about one opcode in one format."""

    mnemonic: str
    """As LLVM prints it, with ``_e32`` and the like."""
    name: str
    encoding: str
    size: int
    slots: tuple[OperandSlot, ...]
    suffixes: tuple[BitsSuffix | FieldSuffix | str, ...]
    mask: int
    value: int
    has_literal: bool
    """Whether a source field of this opcode may ask for a literal dword."""
    wide: bool
    """Whether a literal dword always follows (v_fmamk, s_setreg_imm32)."""


_ENCODINGS = {
    "maif8f6f4": "mai",
    "vop1dpp": "dpp",
    "vop2dpp": "dpp",
    "vop1sdwa": "sdwa",
    "vop2sdwa": "sdwa",
    "vopcsdwa": "sdwa",
}
_SUFFIXES = ("_e32", "_e64", "_dpp", "_sdwa")


def base_name(mnemonic: str) -> str:
    """The mnemonic without the suffix that tells the encoding."""
    for suffix in _SUFFIXES:
        if mnemonic.endswith(suffix):
            return mnemonic[: -len(suffix)]
    return mnemonic


@cache
def _constant_operand(text: str) -> Operand:
    if text == "off":
        return Operand("off", 0, 0)
    if text == "vcc":
        return scalar_register(106, 2)
    raise ValueError(f"unknown constant operand {text!r}")


@cache
def _slot(format_name: str, text: str) -> OperandSlot:
    where, *modifiers = text.split("|")
    field, _, name = where.partition("=")
    masks = {"neg": 0, "abs": 0, "sext": 0}
    for modifier in modifiers:
        masks[modifier.rstrip("0123456789")] = 1 << int(modifier.lstrip("abcdefghijklmnopqrstuvwxyz"))
    if not field:
        constant = _constant_operand(name)
        return OperandSlot("", (), name, None, lambda value, literal: constant, 0, 0, 0, False)
    chunks = FORMATS[format_name].fields[field]
    if name in SLOTS:
        decode = SLOTS[name].decode
        return OperandSlot(field, chunks, name, None, lambda value, literal: decode(value), 0, 0, 0, False)
    parsed = coding(name)
    literal = "l" in parsed.flags
    return OperandSlot(field, chunks, name, parsed, parsed.decode, masks["neg"], masks["abs"], masks["sext"], literal)


_NO_BIT = 128
"""Stands for an element of a modifier that has no bit and is always 0."""


@cache
def _suffix(format_name: str, text: str) -> BitsSuffix | FieldSuffix | str:
    field, equals, name = text.partition("=")
    if equals and not field:
        return name
    if equals:
        return FieldSuffix(FORMATS[format_name].fields[field], SUFFIXES[name])
    name, bits, *default = text.split(":")
    return BitsSuffix(
        name, tuple(_NO_BIT if bit == "-" else int(bit) for bit in bits.split(".")), int(default[0]) if default else 0
    )


def _entry(format_name: str, line: list[str]) -> Entry:
    mnemonic, slots_text, suffixes_text, mask, value = line
    slots = tuple(_slot(format_name, text) for text in slots_text.split())
    return Entry(
        mnemonic,
        base_name(mnemonic),
        _ENCODINGS.get(format_name, format_name),
        FORMATS[format_name].size,
        slots,
        tuple(_suffix(format_name, text) for text in suffixes_text.split()),
        int(mask, 16),
        int(value, 16),
        any(slot.literal for slot in slots),
        any(slot.field == "imm32" for slot in slots),
    )


_RETURNING = frozenset({"flat", "global"})
_RETURNS = 128
"""The top opcode bit of flat and global is sc0: atomics that return the old value have lines of their own."""


class Entries:
    """The entries of one format, built when first asked for, so that loading a table is cheap."""

    def __init__(self, format_name: str, lines: Mapping[str, list[str]]) -> None:
        self._format_name = format_name
        self._lines = {int(opcode): line for opcode, line in lines.items()}
        self._built: dict[int, Entry | None] = {}

    def get(self, opcode: int) -> Entry | None:
        """The entry of an opcode (with ``_RETURNS`` where the format has it); None where there is none."""
        try:
            return self._built[opcode]
        except KeyError:
            entry = self._built[opcode] = self._build(opcode)
            return entry

    def _build(self, opcode: int) -> Entry | None:
        line = self._lines.get(opcode)
        if line is None and self._format_name in _RETURNING:
            line = self._lines.get(opcode & ~_RETURNS)
        return None if line is None else _entry(self._format_name, line)


@dataclass(frozen=True, slots=True)
class Table:
    """One chip: entries by format and opcode, and the names of encoded numbers."""

    chip: str
    entries: Mapping[str, Entries]
    symbols: Mapping[str, Mapping[str, str]]
    lines: Mapping[str, Mapping[str, list[str]]]
    """The table as it is in the file."""

    def opcodes(self, format_name: str) -> list[int]:
        """All opcodes of a format."""
        return [int(opcode) for opcode in self.lines[format_name]]


@cache
def load(chip: str) -> Table:
    """The table of "gfx942" or "gfx950"; ValueError for another chip."""
    if chip not in CHIPS:
        raise ValueError(f"no decoder table for {chip!r}; there are {', '.join(CHIPS)}")
    data = json.loads(Path(__file__).with_name(f"{chip}.json").read_text("utf-8"))
    entries = {name: Entries(name, lines) for name, lines in data["formats"].items()}
    return Table(chip, entries, data["symbols"], data["formats"])
