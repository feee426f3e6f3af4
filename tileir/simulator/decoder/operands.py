"""Operand fields: from the number in a field to an :class:`Operand`, and from there to LLVM's syntax.

A *coding* says how to read a field. The tables name codings by short strings, ``kind count . type : flags``::

    vgpr2            VGPR number, two dwords           avgpr4   the same, the top bit selects the accumulation file
    src1.f16:vshkl   general source encoding: v VGPR, a AGPR, s SGPR and named registers, m m0, e exec, h apertures
                     and pops_exiting_wave_id, c vccz, execz and scc, k inline constants, l literal, x the
                     accumulation bit belongs to another operand
    sdwa1:smek       VGPR number, or a scalar source where the top bit is set; sdwadst2: SGPR pair, else vcc
    sbase2, srsrc4   SGPR number in units of two or four

Source of the encodings: AMD CDNA3 ISA, "Scalar operand encoding" and "VALU operands" tables (documented); which coding
a field has is found by probing (see ``tools/gen_decoder_tables.py``).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import cache

from tileir.records import dataclass
from tileir.simulator.decoder.instruction import Operand

LAST_SGPR = 101
"""s0..s101 exist on gfx9 (ISA, "SGPRs"); 102 and up are named registers."""

_PAIRS = {102: "flat_scratch", 104: "xnack_mask", 106: "vcc", 126: "exec"}
_HARDWARE = {
    235: "src_shared_base",
    236: "src_shared_limit",
    237: "src_private_base",
    238: "src_private_limit",
    239: "src_pops_exiting_wave_id",
}
_CONDITIONS = {251: "src_vccz", 252: "src_execz", 253: "src_scc"}
LITERAL = 255
_FLOATS = ("0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0")
_INVERSE_2PI = {"16": 0x3118, "bf16": 0x3E22, "32": 0x3E22F983, "64": 0x3FC45F306DC9C882}
"""1/(2*pi) as the hardware's inline constant 248 (ISA, "Inline constants")."""


class Undecodable(Exception):
    """The field's value stands for nothing."""


@dataclass(frozen=True, slots=True)
class ImmediateType:
    """How an inline constant or literal becomes a bit pattern.

    bits: width of integer constants. floats: format of the float constants ("16", "bf16", "32", "64").
    literal: what a 32-bit literal supplies: "low" (zero-extended), "signed" or "high" (upper half, lower half zero).
    inlines_patterns: whether LLVM's assembler takes a literal with the bit pattern of an inline constant, such as 0x3c00,
    for that constant; otherwise only a number from -16 to 64.
    """

    bits: int
    floats: str
    literal: str = "low"
    inlines_patterns: bool = True


IMMEDIATE_TYPES = {
    "b32": ImmediateType(32, "32"),
    "f64": ImmediateType(64, "64", "high"),
    "i64": ImmediateType(64, "64", "signed"),
    "b64": ImmediateType(64, "64", "low"),
    "f16": ImmediateType(16, "16"),
    "bf16": ImmediateType(16, "bf16"),
    "i16": ImmediateType(16, "16", inlines_patterns=False),
    "pk16": ImmediateType(32, "16"),
    "pkbf16": ImmediateType(32, "bf16"),
}
"""pk16 and pkbf16 stand for packed operands: integers are sign-extended to the dword, floats fill the low half."""


def _float_pattern(text: str, kind: str) -> int:
    value = float(text)
    if kind == "16":
        return int.from_bytes(struct.pack("<e", value), "little")
    if kind == "64":
        return int.from_bytes(struct.pack("<d", value), "little")
    bits = int.from_bytes(struct.pack("<f", value), "little")
    return bits >> 16 if kind == "bf16" else bits


_FLOAT_PATTERNS = {
    kind: [*(_float_pattern(text, kind) for text in _FLOATS), inverse] for kind, inverse in _INVERSE_2PI.items()
}
_FLOAT_TEXTS = {
    kind: dict(zip(patterns, [*_FLOATS, "0.15915494309189532" if kind == "64" else "0.15915494"], strict=True))
    for kind, patterns in _FLOAT_PATTERNS.items()
}


def inline_constant(value: int, kind: ImmediateType) -> int:
    """Bit pattern of the inline constant that the source encoding ``value`` (128..208, 240..248) stands for."""
    if 128 <= value <= 192:
        return value - 128
    if 193 <= value <= 208:
        return (192 - value) & ((1 << kind.bits) - 1)
    if 240 <= value <= 248:
        return _FLOAT_PATTERNS[kind.floats][value - 240]
    raise Undecodable(f"source encoding {value} is reserved")


def register_text(letter: str, index: int, count: int) -> str:
    """``v4`` or ``v[4:7]``."""
    return f"{letter}{index}" if count == 1 else f"{letter}[{index}:{index + count - 1}]"


def immediate_text(pattern: int, kind: ImmediateType) -> str:
    """An inline constant in LLVM's syntax."""
    signed = pattern - (1 << kind.bits) if pattern >> (kind.bits - 1) else pattern
    if -16 <= signed <= 64:
        return str(signed)
    return _FLOAT_TEXTS[kind.floats][pattern]


def scalar_register(value: int, count: int, allowed: str = "me") -> Operand:
    """SGPR, trap register or named scalar register with the encoding ``value`` (0..127).

    Tuples must be aligned to their size, at most to four (ISA, "SGPR alignment"). ``allowed`` holds "m" where m0 and
    "e" where exec may stand.
    """
    if value <= LAST_SGPR or 108 <= value <= 123:
        first, last, name = (0, LAST_SGPR, "") if value <= LAST_SGPR else (108, 123, "ttmp")
        if count > 1 and (value - first) % (2 if count == 2 else 4):
            raise Undecodable("scalar register tuple is not aligned")
        if value + count - 1 > last:
            raise Undecodable("scalar register tuple passes the last register")
        if not name:
            return Operand("s", value, count)
        index = value - first
        return Operand("special", index, count, register_text(name, index, count))
    if value == 124 and count == 1 and "m" in allowed:
        return Operand("special", 0, 1, "m0")
    pair = _PAIRS.get(value & ~1) if value < 126 or "e" in allowed else None
    if pair is not None and count == 1:
        return Operand("special", 0, 1, pair + ("_hi" if value & 1 else "_lo"))
    if pair is not None and count == 2 and not value & 1:
        return Operand("special", 0, 2, pair)
    raise Undecodable(f"scalar register encoding {value} is reserved for this width")


def vector_register(kind: str, value: int, count: int) -> Operand:
    """VGPR or AGPR; tuples start at an even register (ISA, "VGPR alignment" of the unified register file)."""
    if count > 1 and value & 1:
        raise Undecodable("vector register tuple starts at an odd register")
    if value + count > 256:
        raise Undecodable("vector register tuple passes the last register")
    return Operand(kind, value, count)


_CODING = re.compile(r"([a-z]+)(\d*)(?:\.(\w+))?(?::(\w+))?$")


@dataclass(frozen=True, slots=True)
class Coding:
    """A parsed coding string."""

    kind: str
    count: int
    type: ImmediateType
    flags: str
    decode: Callable[[int, int], Operand]
    """Field value and literal dword to operand; raises Undecodable."""


@cache
def coding(text: str) -> Coding:
    """Parse a coding string of the tables."""
    match = _CODING.match(text)
    if match is None:
        raise ValueError(f"malformed operand coding {text!r}")
    kind, count_text, type_name, flags = match.groups()
    count = int(count_text or 1)
    immediate = IMMEDIATE_TYPES[type_name or "b32"]
    flags = flags or ""
    return Coding(kind, count, immediate, flags, _DECODERS[kind](count, immediate, flags))


Decoder = Callable[[int, int], Operand]


def _vgpr(count: int, immediate: ImmediateType, flags: str) -> Decoder:
    return lambda value, literal: vector_register("v", value, count)


def _agpr(count: int, immediate: ImmediateType, flags: str) -> Decoder:
    return lambda value, literal: vector_register("a", value & 255, count)


def _avgpr(count: int, immediate: ImmediateType, flags: str) -> Decoder:
    return lambda value, literal: vector_register("a" if value & 256 else "v", value & 255, count)


def _src(count: int, immediate: ImmediateType, flags: str) -> Decoder:
    vgpr, agpr, scalar = "v" in flags, "a" in flags, "s" in flags
    named = {**(_HARDWARE if "h" in flags else {}), **(_CONDITIONS if "c" in flags else {})}
    constant, has_literal = "k" in flags, "l" in flags
    shift = 32 if immediate.literal == "high" else 0
    dwords = max(1, immediate.bits // 32)
    constant_dwords = 2 if count == 2 else dwords  # every element of a longer tuple reads the same constant

    def decode(value: int, literal: int) -> Operand:
        if value & 256:
            if vgpr and (not value & 512 or "x" in flags):
                return vector_register("v", value & 255, count)
            if agpr:
                return vector_register("a", value & 255, count)
            raise Undecodable("a vector register cannot stand here")
        value &= 255
        if value < 128 and scalar:
            return scalar_register(value, count, flags)
        if value in named:
            return Operand("special", 0, count, named[value])
        if value == LITERAL and has_literal:
            pattern = literal << shift
            if immediate.literal == "signed" and literal >> 31:
                pattern |= 0xFFFFFFFF << 32
            return Operand("lit", pattern, dwords)
        if value == LITERAL:
            raise Undecodable("a literal cannot stand here")
        if constant and value >= 128:
            return Operand("imm", inline_constant(value, immediate), constant_dwords)
        raise Undecodable(f"source encoding {value} cannot stand here")

    return decode


def _sdwa(count: int, immediate: ImmediateType, flags: str) -> Decoder:
    scalar = _src(count, immediate, flags)
    return lambda value, literal: scalar(value & 255, literal) if value & 256 else vector_register("v", value, count)


def _sdwa_destination(count: int, immediate: ImmediateType, flags: str) -> Decoder:
    return lambda value, literal: scalar_register(value & 127 if value & 128 else 106, count)


def _scalar_number(unit: int) -> Callable[[int, ImmediateType, str], Decoder]:
    def make(count: int, immediate: ImmediateType, flags: str) -> Decoder:
        return lambda value, literal: scalar_register(value * unit, count, flags)

    return make


_DECODERS: dict[str, Callable[[int, ImmediateType, str], Decoder]] = {
    "vgpr": _vgpr,
    "agpr": _agpr,
    "avgpr": _avgpr,
    "src": _src,
    "sdwa": _sdwa,
    "sdwadst": _sdwa_destination,
    "sbase": _scalar_number(2),
    "srsrc": _scalar_number(4),
}
