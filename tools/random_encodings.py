"""Random legal encodings of the decoder's table entries (development only)."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

from tileir.simulator.decoder import DecodeError, decode  # noqa: E402
from tileir.simulator.decoder.formats import FORMATS, extract, insert, width  # noqa: E402
from tileir.simulator.decoder.operands import LITERAL, Undecodable  # noqa: E402
from tileir.simulator.decoder.table import BitsSuffix, Entry, FieldSuffix, OperandSlot, load  # noqa: E402

_LITERALS = (0, 1, 64, 65, 0x3F800000, 0x3C00, 0x5678, 0xFFFFFFFF, 0xFFF0, 0x80000000, 0x12345678, 0x3FF00000)


def entries(chip: str) -> Iterator[tuple[str, int, Entry]]:
    """(format, opcode, entry) of everything in the chip's table."""
    table = load(chip)
    for format_name, lines in table.entries.items():
        for opcode in table.opcodes(format_name):
            entry = lines.get(opcode)
            assert entry is not None
            yield format_name, opcode, entry


def meaningful_bits(entry: Entry) -> int:
    """The bits that operands and modifiers of the opcode read."""
    mask = 0
    for slot in entry.slots:
        mask |= insert(slot.chunks, -1) | slot.neg | slot.abs | slot.sext
    for suffix in entry.suffixes:
        if isinstance(suffix, BitsSuffix):
            for bit in suffix.bits:
                mask |= 1 << bit if bit < 128 else 0
        elif isinstance(suffix, FieldSuffix):
            mask |= insert(suffix.chunks, -1)
    return mask


def random_encoding(chip: str, format_name: str, opcode: int, entry: Entry, generator: random.Random) -> bytes | None:
    """An encoding that the decoder accepts and whose ignored bits are zero; None when none turned up."""
    layout = FORMATS[format_name]
    fixed = layout.mask | insert(layout.opcode, -1) | entry.mask
    base = layout.value | insert(layout.opcode, opcode) | entry.value
    free = meaningful_bits(entry) & ~fixed
    for _ in range(200):
        word = base | generator.getrandbits(128) & free
        if generator.random() < 0.5:
            word &= ~free | generator.getrandbits(128) | generator.getrandbits(128)
        for slot in entry.slots:
            word = _make_legal(word, slot, free, generator)
        size = entry.size
        literal = generator.choice((*_LITERALS, generator.getrandbits(32)))
        if any(slot.literal and extract(word, slot.chunks) == LITERAL for slot in entry.slots) or entry.wide:
            narrow = any(slot.register is not None and slot.register.type.bits == 16 for slot in entry.slots)
            word = word & 0xFFFFFFFF | (literal & 0xFFFF if narrow else literal) << 32
            size += 4
        code = word.to_bytes(17, "little")[:size]
        try:
            found = decode(chip, code)
        except DecodeError:
            continue
        if found.name == entry.name and found.size == size:
            return code
    return None


def _make_legal(word: int, slot: OperandSlot, free: int, generator: random.Random) -> int:
    bits = width(slot.chunks)
    mask = insert(slot.chunks, -1)
    if not mask or (mask & ~free and slot.field not in ("vaddr",)):
        return word
    for _ in range(12):
        try:
            slot.decode(extract(word, slot.chunks), 0)
            return word
        except Undecodable:
            word = word & ~mask | insert(slot.chunks, generator.getrandbits(bits))
            if generator.random() < 0.7:
                word &= ~(1 << slot.chunks[0][0] | 2 << slot.chunks[0][0])
    return word
