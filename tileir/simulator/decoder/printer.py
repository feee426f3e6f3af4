"""Instructions to LLVM's assembly syntax."""

from __future__ import annotations

from tileir.simulator.decoder.decode import find_entry
from tileir.simulator.decoder.immediates import SLOTS, Symbols, bits_text, plain_text, sign_extend
from tileir.simulator.decoder.instruction import Instruction, Operand
from tileir.simulator.decoder.operands import ImmediateType, immediate_text
from tileir.simulator.decoder.table import BitsSuffix, FieldSuffix, OperandSlot, load


def literal_text(pattern: int, kind: ImmediateType) -> str:
    """A literal, as ``lit(...)`` where the assembler would otherwise choose an inline constant."""
    value = pattern >> 32 if kind.literal == "high" else pattern & 0xFFFFFFFF
    # The assembler also takes small numbers for integer constants where a literal would be the upper half of a double.
    return f"lit({value:#x})" if value <= 64 or _inlinable(pattern, kind) else hex(value)


def _inlinable(pattern: int, kind: ImmediateType) -> bool:
    if not kind.inlines_patterns:
        return -16 <= sign_extend(pattern, 32) <= 64
    try:
        immediate_text(pattern & (1 << kind.bits) - 1, kind)
    except KeyError:
        return False
    return True


def operand_text(operand: Operand, kind: ImmediateType) -> str:
    """One register or constant with its source modifiers; ``kind`` says what constants mean."""
    if operand.kind == "imm":
        text = immediate_text(operand.index, kind)
    elif operand.kind == "lit":
        text = literal_text(operand.index, kind)
    else:
        text = plain_text(operand)
    if operand.sext:
        return f"sext({text})"
    if operand.abs:
        text = f"|{text}|"
    if operand.neg:
        return f"neg({text})" if operand.kind in ("imm", "lit") and not operand.abs else f"-{text}"
    return text


def _slot_text(slot: OperandSlot, operand: Operand, symbols: Symbols) -> str:
    if slot.register is not None:
        return operand_text(operand, slot.register.type)
    if not slot.field:
        return slot.coding
    return SLOTS[slot.coding].text(operand, symbols)


def render(instruction: Instruction) -> str:
    """LLVM syntax of a decoded instruction."""
    table = load(instruction.chip)
    entry = find_entry(table, int.from_bytes(instruction.raw, "little"))
    symbols = table.symbols
    operands = [
        _slot_text(slot, operand, symbols) for slot, operand in zip(entry.slots, instruction.operands, strict=True)
    ]
    parts = [entry.mnemonic]
    if any(operands):
        parts.append(", ".join(text for text in operands if text))
    for suffix in entry.suffixes:
        if isinstance(suffix, FieldSuffix):
            text = suffix.suffix.text(instruction.modifiers, symbols)
        elif isinstance(suffix, BitsSuffix):
            value = instruction.modifiers.get(suffix.name, suffix.default)
            text = bits_text(suffix.name, len(suffix.bits), value) if value != suffix.default else ""
        else:
            text = suffix
        if text:
            parts.append(text)
    return " ".join(parts)
