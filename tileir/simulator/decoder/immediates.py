"""Fields that hold encoded numbers: wait counts, hardware registers, messages, address offsets, lane controls.

Two kinds, both named by the tables: *slots* stand between the operands (``s_waitcnt vmcnt(0)``), *suffixes* follow
them (``offset:16``). Source of the field layouts: AMD CDNA3 ISA, the chapters of the instructions (documented); names
of registers, messages and buffer formats come with the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tileir.records import dataclass
from tileir.simulator.decoder.instruction import Operand
from tileir.simulator.decoder.operands import (
    Undecodable,
    register_text,
    scalar_register,
    vector_register,
)

Symbols = Mapping[str, Mapping[str, str]]
"""Names by kind ("hwreg", "sendmsg", ...) and by number in decimal."""

NULL_SADDR = 127
_OFF = Operand("off", 0, 0)


def small_text(value: int) -> str:
    """LLVM prints what could be an inline constant in decimal, all else in hexadecimal."""
    return str(value) if value <= 64 else hex(value)


@dataclass(frozen=True, slots=True)
class Slot:
    """An encoded number in operand position."""

    decode: Callable[[int], Operand]
    text: Callable[[Operand, Symbols], str]


def _immediate(value: int) -> Operand:
    return Operand("imm", value, 1)


def _label(value: int) -> Operand:
    return Operand("label", ((value ^ 0x8000) - 0x8000) * 4, 1)


def waitcnt_fields(simm16: int) -> tuple[int, int, int]:
    """(vmcnt 0..63, expcnt 0..7, lgkmcnt 0..15) of the operand of s_waitcnt (ISA, "S_WAITCNT")."""
    return (simm16 & 15) | (simm16 >> 14 & 3) << 4, simm16 >> 4 & 7, simm16 >> 8 & 15


_WAITCNT_UNUSED = 0x3080
"""Bits of the operand of s_waitcnt that belong to no counter; LLVM's syntax can only set them by number."""


def _waitcnt_text(operand: Operand, symbols: Symbols) -> str:
    if operand.index & _WAITCNT_UNUSED:
        return hex(operand.index)
    counts = waitcnt_fields(operand.index)
    full = counts == (63, 7, 15)
    names = ("vmcnt", "expcnt", "lgkmcnt")
    return " ".join(
        f"{name}({count})"
        for name, count, limit in zip(names, counts, (63, 7, 15), strict=True)
        if full or count != limit
    )


def _hwreg_text(operand: Operand, symbols: Symbols) -> str:
    number, offset, size = operand.index & 63, operand.index >> 6 & 31, (operand.index >> 11) + 1
    name = symbols["hwreg"].get(str(number), str(number))
    return f"hwreg({name})" if (offset, size) == (0, 32) else f"hwreg({name}, {offset}, {size})"


def _sendmsg_text(operand: Operand, symbols: Symbols) -> str:
    value = operand.index
    number, operation, stream = value & 15, value >> 4 & 7, value >> 8 & 3
    known = symbols["sendmsg"].get(str(value & 0x7F))
    if known is not None and value < 0x80:
        return f"sendmsg({known})"
    if known is not None and known.startswith("MSG_GS") and known.endswith(", 0") and not value & ~0x37F:
        return f"sendmsg({known[:-1]}{stream})"
    if value & ~0x3FF or operation > 7 or value & 0x80:
        return str(value)
    return f"sendmsg({number}, {operation}, {stream})"


_GPR_IDX = ("SRC0", "SRC1", "SRC2", "DST")


def _gpr_idx_text(operand: Operand, symbols: Symbols) -> str:
    if operand.index >> 4:
        return hex(operand.index)
    return f"gpr_idx({','.join(name for bit, name in enumerate(_GPR_IDX) if operand.index >> bit & 1)})"


def _decimal_text(operand: Operand, symbols: Symbols) -> str:
    return str(operand.index)


def _buffer_address(value: int) -> Operand:
    mode = value >> 8
    return vector_register("v", value & 255, 2 if mode == 3 else 1) if mode else _OFF


def _global_address(value: int) -> Operand:
    return vector_register("v", value & 255, 2 if value >> 8 == NULL_SADDR else 1)


def _base(count: int, allowed: str) -> Callable[[int], Operand]:
    def decode(value: int) -> Operand:
        return _OFF if value == NULL_SADDR else scalar_register(value, count, allowed)

    return decode


_F8F6F4_DWORDS = {0: 8, 1: 8, 2: 6, 3: 6, 4: 4}
"""Dwords of an A or B operand by its format: fp8, bf8, fp6, bf6, fp4 (ISA, "V_MFMA_F32_*_F8F6F4")."""


def _f8f6f4_source(value: int) -> Operand:
    """Bits 0..8 source, 9 "accumulation register", 10..12 format (cbsz or blgp)."""
    count = _F8F6F4_DWORDS.get(value >> 10)
    if count is None:
        raise Undecodable(f"matrix format {value >> 10} is reserved")
    if not value & 256:
        raise Undecodable("a matrix operand must be a vector register")
    return vector_register("a" if value & 512 else "v", value & 255, count)


def sign_extend(value: int, bits: int) -> int:
    """Two's complement of ``bits`` bits to a Python int."""
    return (value ^ 1 << bits - 1) - (1 << bits - 1)


def _smem_offset(value: int) -> Operand:
    """Bits 0..20 offset, 21..27 SGPR, 28 "immediate" flag, 29 "SGPR too" flag (ISA, "SMEM")."""
    has_immediate, has_register = value >> 28 & 1, value >> 29 & 1
    if has_register:
        return scalar_register(value >> 21 & 127, 1)
    if has_immediate:
        return Operand("imm", sign_extend(value & 0x1FFFFF, 21) & 0xFFFFFFFF, 1)
    return scalar_register(value & 127, 1)


def signed_hex(value: int) -> str:
    """``0x10`` or ``-0x10``."""
    return f"-{-value:#x}" if value < 0 else hex(value)


def plain_text(operand: Operand) -> str:
    """Registers and named scalars; what has no type."""
    if operand.kind == "off":
        return "off"
    if operand.kind == "special":
        return operand.name
    return register_text(operand.kind, operand.index, operand.count)


def _address_text(operand: Operand, symbols: Symbols) -> str:
    return plain_text(operand)


def _smem_offset_text(operand: Operand, symbols: Symbols) -> str:
    return signed_hex(sign_extend(operand.index, 32)) if operand.kind == "imm" else plain_text(operand)


SLOTS: Mapping[str, Slot] = {
    "number": Slot(_immediate, lambda operand, symbols: small_text(operand.index)),
    "decimal": Slot(_immediate, _decimal_text),
    "optional": Slot(_immediate, lambda operand, symbols: str(operand.index) if operand.index else ""),
    "hex": Slot(_immediate, lambda operand, symbols: hex(operand.index)),
    "constant": Slot(_immediate, lambda operand, symbols: _constant_text(operand.index)),
    "label": Slot(_label, lambda operand, symbols: str(operand.index // 4 & 0xFFFF)),
    "waitcnt": Slot(_immediate, _waitcnt_text),
    "hwreg": Slot(_immediate, _hwreg_text),
    "sendmsg": Slot(_immediate, _sendmsg_text),
    "gpridx": Slot(_immediate, _gpr_idx_text),
    "bufaddr": Slot(_buffer_address, _address_text),
    "globaladdr": Slot(_global_address, _address_text),
    "saddr1": Slot(_base(1, "me"), _address_text),
    "saddr2": Slot(_base(2, ""), _address_text),
    "saddr2e": Slot(_base(2, "e"), _address_text),
    "f8f6f4": Slot(_f8f6f4_source, _address_text),
    "smemoffset": Slot(_smem_offset, _smem_offset_text),
}


def _constant_text(value: int) -> str:
    """LLVM's assembler drops float constants here, so that only integers are printed as such."""
    signed = sign_extend(value, 32)
    return str(signed) if -16 <= signed <= 64 else hex(value)


@dataclass(frozen=True, slots=True)
class Suffix:
    """An encoded number after the operands."""

    decode: Callable[[int], Mapping[str, int]]
    """Field value to the entries of Instruction.modifiers; raises Undecodable."""
    text: Callable[[Mapping[str, int], Symbols], str]
    """Empty when nothing is printed."""


def _offset(bits: int, signed: bool) -> Suffix:
    def decode(value: int) -> Mapping[str, int]:
        number = sign_extend(value, bits) if signed else value
        return {"offset": number} if number else {}

    def text(modifiers: Mapping[str, int], symbols: Symbols) -> str:
        return f"offset:{modifiers['offset']}" if "offset" in modifiers else ""

    return Suffix(decode, text)


def _offset_pair(value: int) -> Mapping[str, int]:
    pair = {"offset0": value & 255, "offset1": value >> 8}
    return {name: number for name, number in pair.items() if number}


def _offset_pair_text(modifiers: Mapping[str, int], symbols: Symbols) -> str:
    return " ".join(f"{name}:{modifiers[name]}" for name in ("offset0", "offset1") if name in modifiers)


def _smem_suffix(value: int) -> Mapping[str, int]:
    return {"offset": sign_extend(value & 0x1FFFFF, 21)} if value >> 28 == 3 else {}


def _smem_suffix_text(modifiers: Mapping[str, int], symbols: Symbols) -> str:
    return f"offset:{signed_hex(modifiers['offset'])}" if "offset" in modifiers else ""


def _swizzle_text(modifiers: Mapping[str, int], symbols: Symbols) -> str:
    """The macros of ds_swizzle_b32 (ISA, "DS_SWIZZLE_B32"): fft, rotate, quad and bit-mask modes."""
    value = modifiers.get("offset", 0)
    if not value:
        return ""
    if value & 0xFFE0 == 0xE000:
        return f"offset:swizzle(FFT,{value & 31})"
    if value & 0xF81F == 0xC000:
        return f"offset:swizzle(ROTATE,{value >> 10 & 1},{value >> 5 & 31})"
    if value & 0xFF00 == 0x8000:
        lanes = ",".join(str(value >> shift & 3) for shift in (0, 2, 4, 6))
        return f"offset:swizzle(QUAD_PERM,{lanes})"
    if value & 0x8000:
        return f"offset:{value}"
    keep, ones, flip = value & 31, value >> 5 & 31, value >> 10 & 31
    if keep == 31 and not ones and flip and not flip & flip - 1:
        return f"offset:swizzle(SWAP,{flip})"
    if keep == 31 and not ones and flip and not flip & flip + 1:
        return f"offset:swizzle(REVERSE,{flip + 1})"
    group = 32 - keep
    if not flip and group > 1 and not group & group - 1 and not ones & ~(group - 1):
        return f"offset:swizzle(BROADCAST,{group},{ones})"
    if ones & (keep | flip) or flip & ~keep:
        return f"offset:{value}"
    letters = ""
    for bit in (16, 8, 4, 2, 1):
        if ones & bit:
            letters += "1"
        elif keep & bit:
            letters += "i" if flip & bit else "p"
        else:
            letters += "0"
    return f'offset:swizzle(BITMASK_PERM,"{letters}")'


def _format_decode(value: int) -> Mapping[str, int]:
    return {"dfmt": value & 15, "nfmt": value >> 4}


def _format_text(modifiers: Mapping[str, int], symbols: Symbols) -> str:
    dfmt, nfmt = modifiers["dfmt"], modifiers["nfmt"]
    names: list[str] = []
    if dfmt != 1:
        names.append(symbols["dfmt"][str(dfmt)])
    if nfmt != 0:
        names.append(symbols["nfmt"][str(nfmt)])
    return f"format:[{','.join(names)}]" if names else ""


_DPP_NAMES = {
    0x130: "wave_shl:1",
    0x134: "wave_rol:1",
    0x138: "wave_shr:1",
    0x13C: "wave_ror:1",
    0x140: "row_mirror",
    0x141: "row_half_mirror",
    0x142: "row_bcast:15",
    0x143: "row_bcast:31",
}
_DPP_RANGES = {0x10: "row_shl", 0x11: "row_shr", 0x12: "row_ror", 0x15: "row_newbcast"}


def _dpp_text(modifiers: Mapping[str, int], symbols: Symbols) -> str:
    value = modifiers["dpp_ctrl"]
    if value < 0x100:
        return f"quad_perm:[{','.join(str(value >> shift & 3) for shift in (0, 2, 4, 6))}]"
    return _DPP_NAMES.get(value) or f"{_DPP_RANGES[value >> 4]}:{value & 15}"


def _dpp_decode(value: int) -> Mapping[str, int]:
    row = value >> 4 in _DPP_RANGES and (value & 15 or value >> 4 == 0x15)
    if value < 0x100 or value in _DPP_NAMES or row:
        return {"dpp_ctrl": value}
    raise Undecodable(f"dpp_ctrl {value:#x} is reserved")


def _dpp64_decode(value: int) -> Mapping[str, int]:
    if value >> 4 != 0x15:
        raise Undecodable("64-bit DPP allows row_newbcast only")
    return {"dpp_ctrl": value}


def _mask(name: str) -> Suffix:
    return Suffix(lambda value: {name: value}, lambda modifiers, symbols: f"{name}:{modifiers[name]:#x}")


_SELECTIONS = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
_UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")


def _selection(name: str, names: tuple[str, ...]) -> Suffix:
    def decode(value: int) -> Mapping[str, int]:
        if value >= len(names):
            raise Undecodable(f"{name} {value} is reserved")
        return {name: value}

    return Suffix(decode, lambda modifiers, symbols: f"{name}:{names[modifiers[name]]}")


SUFFIXES: Mapping[str, Suffix] = {
    "offset": _offset(0, False),
    "offsets13": _offset(13, True),
    "offsetpair": Suffix(_offset_pair, _offset_pair_text),
    "offsetsmem": Suffix(_smem_suffix, _smem_suffix_text),
    "swizzle": Suffix(_offset(0, False).decode, _swizzle_text),
    "format": Suffix(_format_decode, _format_text),
    "dpp": Suffix(_dpp_decode, _dpp_text),
    "dpp64": Suffix(_dpp64_decode, _dpp_text),
    "row_mask": _mask("row_mask"),
    "bank_mask": _mask("bank_mask"),
    "dst_sel": _selection("dst_sel", _SELECTIONS),
    "dst_unused": _selection("dst_unused", _UNUSED),
    "src0_sel": _selection("src0_sel", _SELECTIONS),
    "src1_sel": _selection("src1_sel", _SELECTIONS),
}

_ARRAYS = frozenset({"op_sel", "op_sel_hi", "neg_lo", "neg_hi", "neg"})
_FLAGS = frozenset({"clamp", "sc0", "sc1", "nt", "gds", "lds", "glc", "offen", "idxen"})
_OMOD = ("", "mul:2", "mul:4", "div:2")


def bits_text(name: str, bits: int, value: int) -> str:
    """A modifier made of single bits, not at its default."""
    if name in _FLAGS:
        return name
    if name in _ARRAYS:
        return f"{name}:[{','.join(str(value >> bit & 1) for bit in range(bits))}]"
    if name == "omod":
        return _OMOD[value]
    return f"{name}:{value if name != 'bitop3' or value <= 10 else hex(value)}"
