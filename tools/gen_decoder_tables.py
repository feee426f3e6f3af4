"""Generates the decoder's opcode tables by asking LLVM 22 about every opcode of every format.

For each opcode a base encoding is searched that LLVM accepts. Then every field takes all its values (a sample where it
is wider than ten bits) and every other bit is flipped alone; from what changes in LLVM's text follow the operand
codings, the modifiers, the fixed and the ignored bits. A field whose texts no coding of the decoder reproduces exactly
is an error. Source: LLVM 22.1's AMDGPU disassembler, see ``tools/llvm_oracle.py``.

    python tools/gen_decoder_tables.py [gfx942 gfx950]
"""

from __future__ import annotations

import itertools
import json
import random
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

import llvm_oracle  # noqa: E402

from tileir.simulator.decoder.formats import FORMATS, Chunks, Format, extract, insert, width  # noqa: E402
from tileir.simulator.decoder.immediates import SLOTS, SUFFIXES  # noqa: E402
from tileir.simulator.decoder.operands import Undecodable, coding  # noqa: E402
from tileir.simulator.decoder.printer import operand_text  # noqa: E402

TABLES = ROOT / "tileir" / "simulator" / "decoder"
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
HALF_PATTERNS: Mapping[str, str] = {"b32": "0x3f000000", "f16": "0x3800", "bf16": "0x3f00"}
"""Bit patterns of 0.5 by immediate type."""
ALTERNATIVES = 24
"""How many base encodings of an opcode to offer to the assembler."""
EXTRA_BITS: Mapping[str, tuple[int, ...]] = {"ds": (0, 1 << 16), "vop3px2": (1 << 75,), "vop3p": (0, 3 << 59 | 1 << 14)}
"""Bits without which some opcodes are invalid (gds of the global wave sync instructions, op_sel_hi of dot products)."""

CARRIED: Mapping[str, tuple[str, ...]] = {
    "mubuf": ("idxen:13", "offen:12"),
    "mtbuf": ("idxen:13", "offen:12"),
    "maif8f6f4": ("cbsz:8.9.10", "blgp:61.62.63"),
    "vop3px2": ("cbsz:72.73.74", "blgp:125.126.127"),
}
"""Modifiers whose bits belong to an operand field too."""

SUFFIX_FIELDS = frozenset("offset dpp_ctrl row_mask bank_mask format dst_sel dst_unused src0_sel src1_sel".split())
"""Fields that print behind the operands."""

ORDER = (
    "dpp row_mask bank_mask bound_ctrl fi bitop3 op_sel op_sel_hi neg_lo neg_hi cbsz abid blgp neg clamp omod "
    "dst_sel dst_unused src0_sel src1_sel format idxen offen offset gds glc sc0 nt sc1 lds"
).split()
"""Order in which LLVM prints modifiers; checked by the comparison of whole texts."""


class GeneratorError(Exception):
    """LLVM does something that the decoder cannot express."""


def split_text(text: str, whole: bool) -> tuple[str, list[str], list[str]]:
    """Mnemonic, operands and modifiers of an LLVM line; ``whole``: everything is one operand."""
    mnemonic, _, rest = text.partition(" ")
    rest = rest.strip()
    if whole:
        return mnemonic, [rest], []
    parts: list[str] = []
    depth = 0
    current = ""
    for letter in rest:
        depth += letter in "([" and 1 or 0
        depth -= letter in ")]" and 1 or 0
        if letter == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += letter
    tail: list[str] = []
    depth = 0
    word = ""
    for letter in current.strip() + " ":
        depth += letter in "([" and 1 or 0
        depth -= letter in ")]" and 1 or 0
        if letter == " " and depth == 0:
            if word:
                tail.append(word)
            word = ""
        else:
            word += letter
    if tail and not re.match(r"[a-z_0-9]+:|(gds|sc[01]|nt)$", tail[0]):
        parts.append(tail.pop(0))
    return mnemonic, parts, tail


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

    @property
    def whole(self) -> bool:
        """Whether everything after the mnemonic is one operand."""
        return self.format_name == "sopp"


def find_bases(chip: str, format_name: str) -> list[Probe]:
    """A base encoding for every opcode that LLVM knows, with as many fields in use as possible."""
    layout = FORMATS[format_name]
    nice = {**NICE, **NICE_BY_FORMAT.get(format_name, {})}
    names = [name for name in layout.fields if name not in ("offset",) or "offset" in NICE_BY_FORMAT.get(format_name, {})]
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
    codes = llvm_oracle.assemble(chip, [text for *_, text in choices_left])
    probes: dict[int, Probe] = {}
    for (opcode, _, word, size, text), code in zip(choices_left, codes, strict=True):
        # The assembler's encoding has zeros in the bits that the opcode ignores.
        if opcode not in probes and isinstance(code, bytes) and len(code) == size:
            canonical = int.from_bytes(code[: layout.size], "little")
            if canonical & layout.mask == layout.value and extract(canonical, layout.opcode) == opcode:
                probes[opcode] = Probe(format_name, opcode, canonical, text, size)
    for opcode, _, word, size, text in choices_left:
        if opcode not in probes:
            print(f"no base of {text} assembles", file=sys.stderr)
            probes[opcode] = Probe(format_name, opcode, word, text, size)
    return [probes[opcode] for opcode in sorted(probes)]


def candidate_texts(name: str, values: Sequence[int], literal: int) -> list[str | None]:
    """What the decoder would print for a field with the coding ``name``; None where it refuses."""
    texts: list[str | None] = []
    slot = SLOTS.get(name)
    parsed = None if slot else coding(name)
    for value in values:
        try:
            if slot is not None:
                texts.append(slot.text(slot.decode(value), SYMBOLS))
            else:
                assert parsed is not None
                texts.append(operand_text(parsed.decode(value, literal), parsed.type))
        except Undecodable:
            texts.append(None)
    return texts


SYMBOLS: dict[str, dict[str, str]] = {}

_REGISTER = re.compile(r"(?:[vas]|ttmp)(?:(\d+)|\[(\d+):(\d+)\])$")


def register_count(texts: Iterable[str | None]) -> int | None:
    """Dwords of the first register tuple among the texts."""
    for text in texts:
        match = _REGISTER.match(text or "")
        if match:
            return 1 if match.group(1) else int(match.group(3)) - int(match.group(2)) + 1
    return None


def source_flags(values: Sequence[int], texts: Sequence[str | None], sdwa: bool) -> str:
    """Which kinds of operands a source field takes."""
    by_value = dict(zip(values, texts, strict=True))
    if sdwa:
        by_value = {value & 255: text for value, text in by_value.items() if value & 256}
    wanted = {"v": 256, "a": 768, "s": 0, "m": 124, "e": 126, "h": 253, "k": 129, "l": 255}
    flags = "".join(flag for flag, value in wanted.items() if by_value.get(value) is not None)
    if (by_value.get(768) or "").startswith("v"):
        flags = flags.replace("a", "x")
    if "v" in flags and (by_value[256] or "").startswith("a"):
        flags = flags.replace("v", "a")
    return flags


def value_type(values: Sequence[int], texts: Sequence[str | None], flags: str, probe: Probe, literals: list[str]) -> str:
    """The immediate type of a source as far as the disassembler shows it; see refine_types for the rest.

    ``literals``: the operand's texts with the literals 1 and 0x12345678.
    """
    by_value = dict(zip(values, texts, strict=True))
    if "k" not in flags:
        return "b32"
    if by_value.get(248) == "0.15915494309189532":
        if "l" not in flags:
            return "b64"
        if literals[0] == "0x1":
            return "f64"
        return "i64" if probe.mnemonic.endswith("_i64") else "b64"
    if (by_value.get(240) or "").startswith("0x"):
        return "i16"
    return "f16" if "l" in flags and literals[1] == "0x5678" else "b32"


class Prober:
    """Examines all opcodes of one format on one chip."""

    def __init__(self, chip: str, format_name: str) -> None:
        self.chip = chip
        self.name = format_name
        self.layout = FORMATS[format_name]
        self.known = self.layout.mask | field_mask(self.layout.opcode)

    def ask(self, words: Sequence[int], literal: int = LITERAL_PROBE) -> list[tuple[int, str]]:
        """LLVM's answers."""
        answers = llvm_oracle.disassemble(self.chip, [to_bytes(self.layout, word, literal) for word in words])
        return [answer if answer[0] >= self.layout.size else (0, "") for answer in answers]

    def examine(self, probe: Probe) -> list[str]:
        """The table line of an opcode."""
        probe.mnemonic, probe.slots, probe.suffixes = split_text(probe.text, probe.whole)
        self.examine_fields(probe)
        self.examine_bits(probe)
        self.finish(probe)
        return self.line(probe)

    def examine_fields(self, probe: Probe) -> None:
        plan: list[tuple[str, list[int]]] = []
        words: list[int] = []
        for name, chunks in self.layout.fields.items():
            if name == "imm32" and (probe.size == self.layout.size or "src0" in self.layout.fields and probe.size == 4):
                continue
            values = sample_values(width(chunks), name, self.name)
            plan.append((name, values))
            words += [probe.base & ~field_mask(chunks) | insert(chunks, value) for value in values]
        answers = iter(self.ask(words)) if "imm32" not in [name for name, _ in plan] else iter(self._with_literals(probe, plan))
        for name, values in plan:
            self.classify_field(probe, name, values, [next(answers) for _ in values])

    def _with_literals(self, probe: Probe, plan: list[tuple[str, list[int]]]) -> list[tuple[int, str]]:
        items: list[bytes] = []
        for name, values in plan:
            chunks = self.layout.fields[name]
            for value in values:
                if name == "imm32":
                    items.append(to_bytes(self.layout, probe.base, value))
                else:
                    items.append(to_bytes(self.layout, probe.base & ~field_mask(chunks) | insert(chunks, value)))
        return llvm_oracle.disassemble(self.chip, items)

    def classify_field(self, probe: Probe, name: str, values: list[int], answers: list[tuple[int, str]]) -> None:
        chunks = self.layout.fields[name]
        if self.layout.size == 4 and name == "src0":
            answers = [(0, "") if value in (249, 250) else got for value, got in zip(values, answers, strict=True)]
        valid = [text for size, text in answers if size]
        if all(text == probe.text for text in valid):
            if len(valid) < len(values):
                probe.fixed |= self.fixed_bits(probe, chunks)
            return
        split = [split_text(text, probe.whole) if size else None for size, text in answers]
        changed = {
            number
            for parts in split
            if parts is not None and len(parts[1]) == len(probe.slots)
            for number in range(len(probe.slots))
            if parts[1][number] != probe.slots[number]
        }
        changed -= set(probe.codings)
        if changed and (len(chunks) > 1 and name != "offset"):
            changed = self.own_slot(probe, name, changed)
        if probe.mnemonic != "" and any(parts and parts[0] != probe.mnemonic for parts in split):
            raise GeneratorError(f"{probe.text}: field {name} changes the mnemonic")
        if not changed and name not in SUFFIX_FIELDS:
            # The field is not used; its accumulation bit may belong to another operand.
            probe.fixed |= self.fixed_bits(probe, chunks[:1])
            return
        if len(changed) > 1:
            raise GeneratorError(f"{probe.text}: field {name} changes operands {sorted(changed)}")
        if changed:
            number = changed.pop()
            texts = [parts[1][number] if parts is not None else None for parts in split]
            coded = self.slot_coding(probe, name, number, values, texts)
            if coded not in SLOTS:
                coded = self.typed(probe, name, number, coded)
            probe.codings[number] = f"{name}={self.assemblable(probe, number, coded) if coded not in SLOTS else coded}"
        if name in SUFFIX_FIELDS:
            self.suffix_coding(probe, name, values, split)

    def assemblable(self, probe: Probe, number: int, coded: str) -> str:
        """The coding without the kinds of operands that LLVM's assembler refuses in this place."""
        head, _, flags = coded.partition(":")
        values = {"v": 256, "s": 0, "m": 124, "e": 126, "h": 253, "k": 129}
        parsed = coding(coded)
        asked = [flag for flag in flags if flag in values]
        if parsed.kind not in ("src", "sdwa") or not asked:
            return coded
        lines: list[str] = []
        for flag in asked:
            operand = parsed.decode(values[flag] | (256 if parsed.kind == "sdwa" else 0), 0)
            slots = [*probe.slots]
            slots[number] = operand_text(operand, parsed.type)
            lines.append(" ".join([probe.mnemonic, ", ".join(slots), *probe.suffixes]))
        # A second scalar operand is a matter of the whole instruction, not of this operand.
        refused = {
            flag
            for flag, code in zip(asked, llvm_oracle.assemble(self.chip, lines), strict=True)
            if isinstance(code, str) and "constant bus" not in code
        }
        kept = "".join(flag for flag in flags if flag not in refused)
        return f"{head}:{kept}"

    def typed(self, probe: Probe, name: str, number: int, coded: str) -> str:
        """The coding with the width and format of its float constants.

        The disassembler prints 0.5 for all of them; the assembler takes the bit pattern of 0.5 in the operand's own
        format for the inline constant, and any other number for a literal or an error.
        """
        match = re.match(r"(src|sdwa)(\d+)(?:\.(\w+))?:(\w*k\w*)$", coded)
        if match is None or match.group(3) in ("i16", "b64", "f64", "i64"):
            return coded
        lines: list[str] = []
        for pattern in HALF_PATTERNS.values():
            slots = [*probe.slots]
            slots[number] = pattern
            lines.append(" ".join([probe.mnemonic, ", ".join(slots), *probe.suffixes]))
        kinds = [
            kind
            for kind, code in zip(HALF_PATTERNS, llvm_oracle.assemble(self.chip, lines), strict=True)
            if isinstance(code, bytes)
            and extract(int.from_bytes(code[: self.layout.size], "little"), self.layout.fields[name]) & 255 == 240
        ]
        if len(kinds) > 1 or not kinds and match.group(3):
            raise GeneratorError(f"{probe.text}: operand {number} has the constant types {kinds}")
        if not kinds:
            print(f"no constant type for operand {number} of {probe.text}", file=sys.stderr)
        kind = kinds[0] if kinds else "b32"
        if self.name in ("vop3p", "mai") and kind != "b32":
            kind = {"f16": "pk16", "bf16": "pkbf16"}[kind]
        return f"{match.group(1)}{match.group(2)}{'' if kind == 'b32' else '.' + kind}:{match.group(4)}"

    def own_slot(self, probe: Probe, name: str, changed: set[int]) -> set[int]:
        """The slot that changes without the accumulation bit, which several operands share."""
        (low, _), *_ = self.layout.fields[name]
        found: set[int] = set()
        answers = self.ask([probe.base ^ 1 << low + bit for bit in range(7)])
        for size, text in answers:
            if size:
                slots = split_text(text, probe.whole)[1]
                found |= {number for number in changed if slots[number] != probe.slots[number]}
        return found

    def fixed_bits(self, probe: Probe, chunks: Chunks) -> int:
        bits = [bit for low, count in chunks for bit in range(low, low + count)]
        answers = self.ask([probe.base ^ 1 << bit for bit in bits])
        return sum(1 << bit for bit, (size, _) in zip(bits, answers, strict=True) if not size)

    def slot_coding(self, probe: Probe, name: str, number: int, values: list[int], texts: list[str | None]) -> str:
        count = register_count(texts)
        candidates: list[str] = []
        if count is not None:
            sdwa = self.name.endswith("sdwa") and name in ("src0", "vsrc1")
            flags = source_flags(values, texts, sdwa)
            literals: list[str] = []
            if "l" in flags:
                word = probe.base & ~field_mask(self.layout.fields[name]) | insert(self.layout.fields[name], 255)
                for literal in (1, LITERAL_PROBE | 0x12340000):
                    literals.append(split_text(self.ask([word], literal)[0][1], probe.whole)[1][number])
            shift = 256 if sdwa else 0
            kind = value_type([value - shift for value in values], texts, flags, probe, literals)
            candidates += [f"vgpr{count}", f"agpr{count}", f"avgpr{count}"]
            if flags:
                candidates.append(f"src{count}:{flags}" if kind == "b32" else f"src{count}.{kind}:{flags}")
            candidates += [f"{kind}{count}{some}" for kind in ("sbase", "srsrc") for some in ("", ":me", ":m", ":e")]
            candidates += [f"sdwa{count}.{kind}:{flags}" if kind != "b32" else f"sdwa{count}:{flags}", f"sdwadst{count}"]
        if name == "simm16" and self.takes_label(probe, number):
            candidates.append("label")
        candidates += [slot for slot in SLOTS if slot != "label"]
        problems: list[str] = []
        for candidate in candidates:
            try:
                predicted = candidate_texts(candidate, values, LITERAL_PROBE)
            except (KeyError, IndexError, ValueError):
                continue
            if predicted == texts or self.better(probe, name, number, values, predicted, texts):
                return candidate
            wrong = [(v, p, t) for v, p, t in zip(values, predicted, texts, strict=True) if p != t]
            problems.append(f"  {candidate}: {len(wrong)} wrong, first {wrong[:4]}")
        problems.sort(key=lambda text: int(text.split()[1]))
        raise GeneratorError(f"{probe.text}: no coding for field {name}, operand {number}\n" + "\n".join(problems[:2]))

    def better(
        self, probe: Probe, name: str, number: int, values: list[int], ours: list[str | None], theirs: list[str | None]
    ) -> bool:
        """Whether our texts, where they differ, assemble to the same bytes and LLVM's own do not."""
        chunks = self.layout.fields[name]
        different = [row for row in zip(values, ours, theirs, strict=True) if row[1] != row[2]]
        if len(different) * 10 > len(values) * 9 or any(mine is None for _, mine, _ in different):
            return False
        if name != "imm32" and any(other is None for _, _, other in different):
            return False
        rows: list[tuple[int, str, str]] = []
        for value, mine, other in different:
            texts: list[str] = []
            for text in (mine, other):
                slots = [*probe.slots]
                slots[number] = str(text)
                texts.append(" ".join([probe.mnemonic, ", ".join(slots), *probe.suffixes]))
            rows.append((value, texts[0], texts[1]))
        return self.ours_is_right(name, probe.base & ~field_mask(chunks), rows)

    def ours_is_right(self, name: str, base: int, rows: Sequence[tuple[int, str, str]]) -> bool:
        """For (field value, our line, LLVM's line): ours assembles to the value, or neither assembles at all."""
        mine = llvm_oracle.assemble(self.chip, [row[1] for row in rows])
        other = llvm_oracle.assemble(self.chip, [row[2] for row in rows])
        for (value, _, _), our_code, their_code in zip(rows, mine, other, strict=True):
            word = base | insert(self.layout.fields[name], value)
            literal = value if name == "imm32" else LITERAL_PROBE
            if isinstance(our_code, str):
                if not isinstance(their_code, str):
                    return False
            elif our_code != self.expected(word, literal, our_code):
                return False
            elif their_code == our_code:
                return False
        return True

    def expected(self, word: int, literal: int, code: bytes | str) -> bytes:
        """The bytes of the instruction, as many as the assembler gave."""
        return to_bytes(self.layout, word, literal)[: max(len(code), self.layout.size)]

    def takes_label(self, probe: Probe, number: int) -> bool:
        """Whether the assembler accepts a symbol here, that is, whether the operand is a branch target."""
        slots = [*probe.slots]
        slots[number] = "target"
        return not isinstance(llvm_oracle.assemble(self.chip, [f"{probe.mnemonic} {', '.join(slots)}"])[0], str)

    def suffix_coding(self, probe: Probe, name: str, values: list[int], split: list[tuple[str, list[str], list[str]] | None]) -> None:
        stable = [token for token in probe.suffixes if all(parts is None or token in parts[2] for parts in split)]
        texts = [" ".join(token for token in parts[2] if token not in stable) if parts else None for parts in split]
        has_slot = any(coded.startswith(f"{name}=") for coded in probe.codings.values())
        problems: list[str] = []
        for candidate, suffix in SUFFIXES.items():
            predicted: list[str | None] = []
            try:
                for value in values:
                    try:
                        predicted.append(suffix.text(suffix.decode(value), SYMBOLS))
                    except Undecodable:
                        predicted.append(None)
            except KeyError:
                continue
            if has_slot:
                predicted = [p if t is not None else None for p, t in zip(predicted, texts, strict=True)]
            always = [token for token in stable if all(p is None or token in p.split() for p in predicted)]
            ours = [p if p is None else " ".join(t for t in p.split() if t not in always) for p in predicted]
            different = [row for row in zip(values, ours, texts, strict=True) if row[1] != row[2]]
            if not different or self.better_suffix(probe, name, different, stable):
                probe.fields[name] = candidate
                return
            problems.append(f"  {candidate}: {len(different)} wrong, first {different[:4]}")
        problems.sort(key=lambda text: int(text.split()[1]))
        raise GeneratorError(f"{probe.text}: no suffix coding for field {name}\n" + "\n".join(problems[:3]))

    def better_suffix(
        self, probe: Probe, name: str, different: list[tuple[int, str | None, str | None]], stable: list[str]
    ) -> bool:
        """As better, for modifiers; refusing a value is right where LLVM's text means other bytes."""
        chunks = self.layout.fields[name]
        if any(theirs is None for _, _, theirs in different) or len(different) * 2 > 1 << width(chunks):
            return False
        head = f"{probe.mnemonic} {', '.join(probe.slots)}"
        base = probe.base & ~field_mask(chunks)
        lines = [
            (value, " ".join([head, str(mine), *stable]), " ".join([head, str(other), *stable]))
            for value, mine, other in different
        ]
        refused = [(value, other) for (value, mine, _), (_, _, other) in zip(different, lines, strict=True) if mine is None]
        for (value, _), code in zip(refused, llvm_oracle.assemble(self.chip, [line for _, line in refused]), strict=True):
            if code == self.expected(base | insert(chunks, value), LITERAL_PROBE, code):
                return False
        return self.ours_is_right(name, base, [row for row in lines if row[0] not in {value for value, _ in refused}])

    def examine_bits(self, probe: Probe) -> None:
        covered = self.known
        for name, chunks in self.layout.fields.items():
            used = any(text.startswith(name + "=") for text in probe.codings.values()) or name in probe.fields
            if used or name not in ("sdst",):
                covered |= field_mask(chunks)
        bits = [bit for bit in range(self.layout.size * 8) if not covered >> bit & 1]
        for bit, (size, text) in zip(bits, self.ask([probe.base ^ 1 << bit for bit in bits]), strict=True):
            if not size:
                probe.fixed |= 1 << bit
            elif text != probe.text:
                self.classify_bit(probe, bit, text)

    def classify_bit(self, probe: Probe, bit: int, text: str) -> None:
        mnemonic, slots, suffixes = split_text(text, probe.whole)
        if mnemonic != probe.mnemonic or len(slots) != len(probe.slots):
            raise GeneratorError(f"{probe.text}: bit {bit} gives {text}")
        for number, (old, new) in enumerate(zip(probe.slots, slots, strict=True)):
            if old == new:
                continue
            for kind, form in (("neg", f"-{old}"), ("abs", f"|{old}|"), ("sext", f"sext({old})")):
                if new == form:
                    probe.modifiers.setdefault(number, []).append(f"{kind}{bit}")
                    break
            else:
                raise GeneratorError(f"{probe.text}: bit {bit} gives {text}")
        before, after = token_values(probe.suffixes), token_values(suffixes)
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) == after.get(name):
                continue
            self.classify_modifier(probe, bit, name, before.get(name), after.get(name))

    def classify_modifier(self, probe: Probe, bit: int, name: str, old: list[int] | None, new: list[int] | None) -> None:
        set_in_base = probe.base >> bit & 1
        elements = probe.bits.setdefault(name, {})
        if new is None:
            raise GeneratorError(f"{probe.text}: bit {bit} removes {name}")
        if name in ARRAYS:
            # A base with all elements at their default prints nothing.
            before = old or [set_in_base] * len(new)
            changed = [i for i, (a, b) in enumerate(zip(before, new, strict=True)) if a != b]
            if len(changed) != 1:
                raise GeneratorError(f"{probe.text}: bit {bit} changes {changed} of {name}")
            elements[changed[0]] = bit
            probe.lengths[name] = len(new)
            if (old is None) == bool(set_in_base):
                probe.defaults[name] = (1 << len(new)) - 1
        elif set_in_base:
            raise GeneratorError(f"{probe.text}: bit {bit} of {name} is set in the base")
        else:
            value = new[0] - (old[0] if old else 0)
            if value.bit_count() != 1:
                raise GeneratorError(f"{probe.text}: bit {bit} adds {value} to {name}")
            elements[value.bit_length() - 1] = bit

    def finish(self, probe: Probe) -> None:
        named = set(probe.bits) | {entry.split(":")[0] for entry in CARRIED.get(self.name, ())}
        tokens = token_values(probe.suffixes)
        by_fields = {name for coded in probe.fields.values() for name in FIELD_TOKENS.get(coded, (coded,))}
        probe.constants = [name for name in tokens if name not in named and name not in by_fields]
        if probe.slots == [""]:
            probe.slots = []
        for number, text in enumerate(probe.slots):
            if number not in probe.codings:
                if text not in ("vcc", "off"):
                    raise GeneratorError(f"{probe.text}: operand {number} has no field")
                probe.codings[number] = f"={text}"

    def line(self, probe: Probe) -> list[str]:
        """The table line."""
        slots = [
            "|".join([probe.codings[number], *sorted(probe.modifiers.get(number, ()))]) for number in range(len(probe.slots))
        ]
        entries: dict[str, str] = {}
        for name, coded in probe.fields.items():
            entries[FIELD_TOKENS.get(coded, (coded,))[0]] = f"{name}={coded}"
        for name, elements in probe.bits.items():
            length = probe.lengths.get(name, max(elements) + 1)
            bits = ".".join(str(elements.get(i, "-")) for i in range(length))
            default = probe.defaults.get(name)
            entries[name] = f"{name}:{bits}" + (f":{default}" if default else "")
        for entry in CARRIED.get(self.name, ()):
            entries[entry.split(":")[0]] = entry
        for name in probe.constants:
            entries[name] = f"={name}"
        unknown = set(entries) - set(ORDER)
        if unknown:
            raise GeneratorError(f"{probe.text}: unknown modifiers {sorted(unknown)}")
        suffixes = [entries[name] for name in ORDER if name in entries]
        return [probe.mnemonic, " ".join(slots), " ".join(suffixes), f"{probe.fixed:x}", f"{probe.base & probe.fixed:x}"]


ARRAYS = ("op_sel", "op_sel_hi", "neg_lo", "neg_hi", "neg")
FIELD_TOKENS: Mapping[str, tuple[str, ...]] = {
    "offset": ("offset",),
    "offsets13": ("offset",),
    "offsetpair": ("offset", "offset0", "offset1"),
    "offsetsmem": ("offset",),
    "swizzle": ("offset",),
    "dpp": ("dpp", "quad_perm", "row_newbcast"),
    "dpp64": ("dpp", "row_newbcast"),
}
"""Names under which the suffix codings print."""


def token_values(tokens: Sequence[str]) -> dict[str, list[int]]:
    """Modifiers by name; a flag has the value 1."""
    result: dict[str, list[int]] = {}
    for token in tokens:
        name, _, value = token.partition(":")
        if name in ("mul", "div"):
            result["omod"] = [{"mul:2": 1, "mul:4": 2, "div:2": 3}[token]]
        elif value.startswith("[") and name in ARRAYS:
            result[name] = [int(part) for part in value[1:-1].split(",")]
        elif re.fullmatch(r"0x[0-9a-f]+|\d+", value):
            result[name] = [int(value, 0)]
        else:
            result[name] = [1]
    return result


def read_symbols(chip: str) -> dict[str, dict[str, str]]:
    """Names of hardware registers, messages and buffer formats."""
    def ask(words: list[int]) -> list[str]:
        return [text for _, text in llvm_oracle.disassemble(chip, [word.to_bytes(8, "little") for word in words])]

    symbols: dict[str, dict[str, str]] = {"hwreg": {}, "sendmsg": {}, "dfmt": {}, "nfmt": {}}
    for number, text in enumerate(ask([0xB884F800 | number for number in range(64)])):
        name = text.partition("hwreg(")[2].rstrip(")")
        if name != str(number):
            symbols["hwreg"][str(number)] = name
    for number, text in enumerate(ask([0xBF900000 | number for number in range(128)])):
        name = text.partition("sendmsg(")[2].rstrip(")")
        if name.startswith("MSG"):
            symbols["sendmsg"][str(number)] = name
    base = 0xE8000000 | 0x80020804 << 32
    for number, text in enumerate(ask([base | number << 19 for number in range(16)])):
        symbols["dfmt"][str(number)] = text.partition("format:[")[2].partition("]")[0]
    for number, text in enumerate(ask([base | 1 << 19 | number << 23 for number in range(8)])):
        symbols["nfmt"][str(number)] = text.partition("format:[")[2].partition("]")[0]
    return symbols


def variant(chip: str, probe: Probe) -> str:
    """The format that shares the opcode space with the probe's and fits its opcode."""
    if probe.format_name == "vop3":
        size, text = llvm_oracle.disassemble(chip, [to_bytes(FORMATS["vop3"], probe.base ^ 2 << 8)])[0]
        slots = split_text(text, False)[1] if size else []
        return "vop3sd" if len(slots) > 1 and slots[1] == "s[2:3]" else "vop3"
    if probe.format_name == "vop3p" and "f8f6f4" in probe.text:
        return "maif8f6f4"
    if probe.format_name == "vop3p" and re.match(r"v_s?mf(?!ma_ld)", probe.text):
        return "mai"
    return probe.format_name


def generate(chip: str, only: Sequence[str] = ()) -> tuple[dict[str, dict[int, list[str]]], list[str]]:
    """Table lines by format and opcode, and the errors."""
    SYMBOLS.clear()
    SYMBOLS.update(read_symbols(chip))
    formats: dict[str, dict[int, list[str]]] = {name: {} for name in FORMATS}
    errors: list[str] = []
    for name in OPCODES:
        if only and name not in only:
            continue
        for probe in find_bases(chip, name):
            probe.format_name = variant(chip, probe)
            try:
                formats[probe.format_name][probe.opcode] = Prober(chip, probe.format_name).examine(probe)
            except GeneratorError as error:
                if not (name in ("vop1dpp", "vop1sdwa") and not probe.slots):
                    errors.append(f"{name} {probe.opcode}: {error}")
        for opcode in [opcode for opcode in formats[name] if name in ("flat", "global") and opcode >= 128]:
            plain, returning = formats[name].get(opcode - 128), formats[name][opcode]
            if plain is not None and plain[1] == returning[1]:
                plain[2] = returning[2].replace("=sc0", "sc0:16")
                del formats[name][opcode]
        print(chip, name, sum(map(len, formats.values())), len(errors), file=sys.stderr)
    return formats, errors


def write(chip: str, formats: Mapping[str, Mapping[int, list[str]]]) -> None:
    """One opcode a line, so that differences are readable."""
    parts = ["{", f' "chip": "{chip}",', ' "formats": {']
    for number, (name, lines) in enumerate(formats.items()):
        parts.append(f'  "{name}": {{')
        body = [f'   "{opcode}": {json.dumps(line)}' for opcode, line in sorted(lines.items())]
        parts.append(",\n".join(body))
        parts.append("  }" + ("," if number + 1 < len(formats) else ""))
    parts.append(" },")
    parts.append(' "symbols": ' + json.dumps(SYMBOLS, indent=1).replace("\n", "\n "))
    parts.append("}")
    (TABLES / f"{chip}.json").write_text("\n".join(parts) + "\n", "utf-8")


def main(arguments: Sequence[str]) -> int:
    """Writes the tables of the chips named, or of both; names of formats restrict the work to these."""
    failed = False
    only = [name for name in arguments if name in OPCODES]
    for chip in [name for name in arguments if name not in OPCODES] or ("gfx942", "gfx950"):
        formats, errors = generate(chip, only)
        if only:
            old = json.loads((TABLES / f"{chip}.json").read_text("utf-8"))["formats"]
            kept = {name: {int(opcode): line for opcode, line in lines.items()} for name, lines in old.items()}
            formats = {name: formats[name] or kept.get(name, {}) for name in FORMATS}
        write(chip, formats)
        for error in errors:
            print(error, file=sys.stderr)
        failed = failed or bool(errors)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
