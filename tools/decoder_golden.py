"""Golden vectors of the decoder: encodings with LLVM's text, for machines without LLVM (development only).

Called by ``gen_decoder_tables.py`` after the tables are written.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

import llvm_oracle  # noqa: E402
from random_encodings import entries, random_encoding  # noqa: E402

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "simulator" / "decoder"
PER_ENTRY = 4
KEPT = 2
INVALID = 300


def valid_vectors(chip: str) -> list[tuple[str, str]]:
    """(bytes in hexadecimal, LLVM's text); only where LLVM's assembler gives these bytes for that text."""
    generator = random.Random(chip)
    items: list[tuple[str, bytes]] = []
    for format_name, opcode, entry in entries(chip):
        for _ in range(PER_ENTRY):
            code = random_encoding(chip, format_name, opcode, entry, generator)
            if code is not None:
                items.append((f"{format_name} {opcode}", code))
    # The assembler's own bytes have zeros where the random ones have ignored bits.
    first = llvm_oracle.disassemble(chip, [code for _, code in items])
    canonical = llvm_oracle.assemble(chip, [text or "invalid" for _, text in first])
    items = [(name, code) for (name, _), code in zip(items, canonical, strict=True) if isinstance(code, bytes)]
    answers = llvm_oracle.disassemble(chip, [code for _, code in items])
    checked = llvm_oracle.assemble(chip, [text or "invalid" for _, text in answers])
    counts: dict[str, int] = {}
    vectors: list[tuple[str, str]] = []
    for (name, code), (_, text), again in zip(items, answers, checked, strict=True):
        if again == code and counts.get(name, 0) < KEPT:
            counts[name] = counts.get(name, 0) + 1
            vectors.append((code.hex(), text))
    return vectors


def invalid_vectors(chip: str) -> list[str]:
    """Random dwords pairs that LLVM does not decode, spread over the formats."""
    generator = random.Random(f"{chip} invalid")
    tops = [0x30, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3A, 0x3C, 0x3F, 0x2F, 0x1F, 0x31, 0x3D]
    items = [
        (generator.getrandbits(64) & ~(63 << 26) | generator.choice(tops) << 26).to_bytes(8, "little")
        for _ in range(20 * INVALID)
    ]
    answers = llvm_oracle.disassemble(chip, items)
    return [item.hex() for item, (size, _) in zip(items, answers, strict=True) if not size][:INVALID]


def write(chip: str) -> None:
    """``golden_<chip>.json``, one vector a line."""
    valid, invalid = valid_vectors(chip), invalid_vectors(chip)
    lines = [json.dumps(vector) for vector in valid]
    text = '{\n "valid": [\n' + ",\n".join(lines) + '\n ],\n "invalid": [\n'
    text += ",\n".join(json.dumps(item) for item in invalid) + "\n ]\n}\n"
    (GOLDEN / f"golden_{chip}.json").write_text(text, "utf-8")
    print(chip, "golden vectors:", len(valid), "valid,", len(invalid), "invalid", file=sys.stderr)
