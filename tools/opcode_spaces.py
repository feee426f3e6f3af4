"""The opcode spaces of the formats, and a base encoding for every opcode that LLVM knows (development only)."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

import llvm_oracle  # noqa: E402

from tileir.simulator.decoder.formats import FORMATS, Chunks, Format, extract, insert  # noqa: E402

LITERAL_PROBE = 0x5678

OPCODES: Mapping[str, range] = {
    "sop2": range(96),
    "sopk": range(29),
    "sop1": range(256),
    "sopc": range(128),
    "sopp": range(128),
    "smem": range(256),
    "vop2": range(62),
    "vop2dpp": range(62),
    "vop2sdwa": range(62),
    "vop1": range(256),
    "vop1dpp": range(256),
    "vop1sdwa": range(256),
    "vopc": range(256),
    "vopcsdwa": range(256),
    "vop3": range(896),
    "vop3p": range(128),
    "vop3px2": range(128),
    "ds": range(256),
    "flat": range(256),
    "scratch": range(128),
    "global": range(256),
    "mubuf": range(256),
    "mtbuf": range(16),
}
"""Opcode spaces; ranges end where the bits select another format."""

NICE: Mapping[str, tuple[int, ...]] = {
    "sdst": (4,),
    "ssrc0": (8,),
    "ssrc1": (12,),
    "simm16": (1,),
    "imm32": (LITERAL_PROBE,),
    "sdata": (16,),
    "sbase": (4,),
    "vdst": (4,),
    "src0": (264, 8),
    "src1": (272, 16),
    "src2": (280, 24),
    "vsrc1": (12,),
    "dpp_ctrl": (0x150,),
    "row_mask": (15,),
    "bank_mask": (15,),
    "bound_ctrl": (0,),
    "dst_sel": (6,),
    "dst_unused": (0,),
    "src0_sel": (6,),
    "src1_sel": (6,),
    "addr": (20,),
    "vaddr": (20,),
    "vdata": (32,),
    "data0": (32,),
    "data1": (40,),
    "saddr": (127,),
    "srsrc": (3,),
    "soffset": (128,),
    "format": (1,),
    "srca": (264,),
    "srcb": (272,),
    "scale0": (300,),
    "scale1": (310,),
}
"""Field values that make the operands of a base encoding easy to tell apart."""

NICE_BY_FORMAT: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "smem": {"offset": (0x10 | 1 << 28,)},
    "global": {"vaddr": (20 | 127 << 8,)},
    "scratch": {"vaddr": (20 | 1 << 8,)},
    "mubuf": {"vaddr": (20 | 1 << 8,)},
    "mtbuf": {"vaddr": (20 | 1 << 8,)},
    "vop2sdwa": {"src0": (8,)},
    "vop1sdwa": {"src0": (8,)},
    "vopcsdwa": {"src0": (8,), "sdst": (4 | 128,)},
    "vop2dpp": {"src0": (8,)},
    "vop1dpp": {"src0": (8,)},
    "vop3p": {"vdst": (128,), "src2": (320, 24)},
}
OPERANDLESS: Mapping[str, str] = {"vop3": "_e64", "vop1sdwa": "_sdwa"}
"""LLVM prints instructions without operands alike in all encodings; its assembler tells them by these suffixes."""
ALTERNATIVES = 24
"""How many base encodings of an opcode to offer to the assembler."""
EXTRA_BITS: Mapping[str, tuple[int, ...]] = {"ds": (0, 1 << 16), "vop3px2": (1 << 75,), "vop3p": (0, 3 << 59 | 1 << 14)}
"""Bits without which some opcodes are invalid (gds of the global wave sync instructions, op_sel_hi of dot products)."""


def to_bytes(layout: Format, word: int, literal: int = LITERAL_PROBE) -> bytes:
    """The instruction with a literal dword behind short ones."""
    if layout.size == 4:
        return (word & 0xFFFFFFFF | literal << 32).to_bytes(8, "little")
    return word.to_bytes(layout.size, "little")


def field_mask(chunks: Chunks) -> int:
    """The bits of a field."""
    return insert(chunks, -1)


def sample_values(bits: int, name: str, format_name: str) -> list[int]:
    """Values to try in a field."""
    if format_name == "global" and name == "vaddr":
        return [value | base << 8 for value in range(256) for base in (127, 0, 4, 106)]
    if name in ("srca", "srcb"):
        # Reserved formats are refused; LLVM fails on narrow operands at the end of the register file.
        return [value | kind << 10 for kind in range(5) for value in range(1 << 10) if value & 255 < 248]
    if bits <= 10:
        return list(range(1 << bits))
    generator = random.Random(bits)
    values = {0, (1 << bits) - 1}
    values |= {1 << bit for bit in range(bits)} | {(1 << bit) - 1 for bit in range(bits)}
    values |= {generator.getrandbits(bits) for _ in range(400)}
    values |= {value & ((1 << bits) - 1) for value in range(300)}
    if name == "imm32":
        values |= {0x3F800000, 0xBF000000, 0xFFFFFFF0, 0xFFFFFFEF}
    return sorted(values)


@dataclass
class Probe:
    """One opcode under examination."""

    format_name: str
    opcode: int
    base: int
    text: str
    size: int
    slots: list[str] = field(default_factory=list)
    suffixes: list[str] = field(default_factory=list)
    mnemonic: str = ""
    codings: dict[int, str] = field(default_factory=dict)
    """Slot number to ``field=coding``."""
    modifiers: dict[int, list[str]] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)
    """Suffix fields: name to coding."""
    bits: dict[str, dict[int, int]] = field(default_factory=dict)
    """Bit modifiers: name to element to bit."""
    defaults: dict[str, int] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    constants: list[str] = field(default_factory=list)
    fixed: int = 0
    spelling: str = ""
    """A mnemonic that tells the encoding, where LLVM prints one that does not."""

    @property
    def whole(self) -> bool:
        """Whether everything after the mnemonic is one operand."""
        return self.format_name == "sopp"


def find_bases(chip: str, format_name: str) -> list[Probe]:
    """A base encoding for every opcode that LLVM knows, with as many fields in use as possible."""
    layout = FORMATS[format_name]
    nice = {**NICE, **NICE_BY_FORMAT.get(format_name, {})}
    names = [
        name for name in layout.fields if name not in ("offset",) or "offset" in NICE_BY_FORMAT.get(format_name, {})
    ]
    choices = [[*nice[name], 0] for name in names]
    items: list[tuple[int, int, int]] = []
    for opcode in OPCODES[format_name]:
        for extra in EXTRA_BITS.get(format_name, (0,)):
            for values in itertools.product(*choices):
                word = layout.value | insert(layout.opcode, opcode) | extra
                for name, value in zip(names, values, strict=True):
                    word |= insert(layout.fields[name], value)
                score = 2 * sum(1 for value in values if value) - (extra != 0)
                items.append((opcode, word, score))
    results = llvm_oracle.disassemble(chip, [to_bytes(layout, word) for _, word, _ in items])
    found: dict[int, list[tuple[int, int, int, str]]] = {}
    for (opcode, word, score), (size, text) in zip(items, results, strict=True):
        if size >= layout.size:
            found.setdefault(opcode, []).append((-score, word, size, text))
    choices_left = [(opcode, *one) for opcode, many in found.items() for one in sorted(many)[:ALTERNATIVES]]
    suffix = OPERANDLESS.get(format_name, "")
    codes = llvm_oracle.assemble(chip, [text + suffix if " " not in text else text for *_, text in choices_left])
    probes: dict[int, Probe] = {}
    for (opcode, _, _, size, text), code in zip(choices_left, codes, strict=True):
        # The assembler's encoding has zeros in the bits that the opcode ignores.
        if opcode not in probes and isinstance(code, bytes) and len(code) == size:
            canonical = int.from_bytes(code[: layout.size], "little")
            if canonical & layout.mask == layout.value and extract(canonical, layout.opcode) == opcode:
                probes[opcode] = Probe(format_name, opcode, canonical, text, size)
                probes[opcode].spelling = text + suffix if " " not in text else ""
    for opcode, _, word, size, text in choices_left:
        if opcode not in probes:
            print(f"no base of {text} assembles", file=sys.stderr)
            probes[opcode] = Probe(format_name, opcode, word, text, size)
    return [probes[opcode] for opcode in sorted(probes)]
