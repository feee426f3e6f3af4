"""Bytes to instructions."""

from __future__ import annotations

from functools import cache

from tileir.simulator.decoder.formats import FORMATS, extract
from tileir.simulator.decoder.instruction import DecodeError, Instruction, Operand
from tileir.simulator.decoder.operands import LITERAL, Undecodable
from tileir.simulator.decoder.table import BitsSuffix, Entry, FieldSuffix, Table, load

_LITERAL_SHIFT = 32


_SECOND_DWORD = frozenset({"vop1dpp", "vop2dpp", "vop1sdwa", "vop2sdwa", "vopcsdwa"})
"""Formats that the first source field alone selects: an opcode without such a form is an error."""


@cache
def _candidates() -> tuple[tuple[str, ...], ...]:
    """Formats to try by the top nine bits of the first dword, the most specific first."""
    known = 0xFF800000
    order = sorted(FORMATS, key=lambda name: (-FORMATS[name].size, -FORMATS[name].mask.bit_count()))
    result: list[tuple[str, ...]] = []
    for top in range(512):
        matching = [name for name in order if (top << 23 ^ FORMATS[name].value) & FORMATS[name].mask & known == 0]
        specific = max(((FORMATS[name].mask & known).bit_count() for name in matching), default=0)
        result.append(tuple(name for name in matching if (FORMATS[name].mask & known).bit_count() == specific))
    return tuple(result)


def find_entry(table: Table, word: int) -> Entry:
    """The table entry for up to 16 bytes as a little-endian integer; raises Undecodable."""
    for name in _candidates()[word >> 23 & 0x1FF]:
        layout = FORMATS[name]
        if (word ^ layout.value) & layout.mask:
            continue
        entry = table.entries[name].get(extract(word, layout.opcode))
        if entry is not None and (word ^ entry.value) & entry.mask == 0:
            return entry
        if name in _SECOND_DWORD:
            break
    raise Undecodable("not an instruction of this chip")


def decode(chip: str, code: bytes | memoryview, offset: int = 0) -> Instruction:
    """Decode the instruction at ``offset`` of ``code`` for "gfx942" or "gfx950".

    Raises DecodeError for bytes that are no instruction, have reserved field values, or end too early. Nothing is
    guessed and nothing is skipped.
    """
    return _decode(load(chip), bytes(code[offset : offset + 16]), offset)


def _decode(table: Table, window: bytes, offset: int) -> Instruction:
    word = int.from_bytes(window, "little")
    try:
        if len(window) < 4:
            raise Undecodable("the code ends inside an instruction")
        entry = find_entry(table, word)
        literal = 0
        size = entry.size
        if entry.wide or (entry.has_literal and _wants_literal(entry, word)):
            literal = word >> _LITERAL_SHIFT & 0xFFFFFFFF
            size += 4
        if len(window) < size:
            raise Undecodable("the code ends inside an instruction")
        modifiers: dict[str, int] = {}
        operands: list[Operand] = []
        for slot in entry.slots:
            value = extract(word, slot.chunks)
            operand = slot.decode(value, literal)
            if slot.neg | slot.abs | slot.sext and word & (slot.neg | slot.abs | slot.sext):
                operand = Operand(
                    operand.kind,
                    operand.index,
                    operand.count,
                    operand.name,
                    bool(word & slot.neg),
                    bool(word & slot.abs),
                    bool(word & slot.sext),
                )
            operands.append(operand)
            if slot.field == "simm16":
                modifiers["simm16"] = value
        for suffix in entry.suffixes:
            if isinstance(suffix, BitsSuffix):
                value = suffix.value(word)
                if value != suffix.default or suffix.default:
                    modifiers[suffix.name] = value
            elif isinstance(suffix, FieldSuffix):
                modifiers.update(suffix.suffix.decode(extract(word, suffix.chunks)))
            else:
                modifiers[suffix] = 1
    except Undecodable as error:
        raise DecodeError(offset, window[:8], str(error)) from None
    return Instruction(entry.name, entry.encoding, size, tuple(operands), modifiers, window[:size], table.chip)


def _wants_literal(entry: Entry, word: int) -> bool:
    return any(slot.literal and extract(word, slot.chunks) == LITERAL for slot in entry.slots)


def disassemble(chip: str, code: bytes | memoryview, address: int = 0) -> list[tuple[int, Instruction]]:
    """All instructions of ``code`` with their addresses, ``address`` being that of the first byte.

    Raises DecodeError at the first bytes that are no instruction (its offset counts from the start of ``code``).
    """
    table = load(chip)
    data = bytes(code)
    result: list[tuple[int, Instruction]] = []
    offset = 0
    while offset < len(data):
        instruction = _decode(table, data[offset : offset + 16], offset)
        result.append((address + offset, instruction))
        offset += instruction.size
    return result
