"""Bit layout of the instruction formats of CDNA3 and CDNA4.

Source: AMD "CDNA3 / CDNA4 Instruction Set Architecture", chapter "Microcode Formats" (documented). What an opcode
makes of its fields is not here but in the generated tables. Bits are numbered over the whole instruction as one
little-endian integer: bit 32 is the lowest of the second dword.
"""

from __future__ import annotations

from collections.abc import Mapping

from tileir.records import dataclass

Chunks = tuple[tuple[int, int], ...]
"""(lowest bit, number of bits) of each part of a field, least significant part first."""


@dataclass(frozen=True, slots=True)
class Format:
    """One instruction format.

    size: bytes without a literal. mask, value: the bits that select the format. opcode: where the opcode stands.
    fields: what can hold an operand or an encoded immediate.
    """

    size: int
    mask: int
    value: int
    opcode: Chunks
    fields: Mapping[str, Chunks]


def extract(word: int, chunks: Chunks) -> int:
    """The field's value; parts are joined with the first one lowest."""
    if len(chunks) == 1:  # nearly all fields
        ((low, bits),) = chunks
        return word >> low & (1 << bits) - 1
    value = 0
    shift = 0
    for low, bits in chunks:
        value |= (word >> low & (1 << bits) - 1) << shift
        shift += bits
    return value


def insert(chunks: Chunks, value: int) -> int:
    """The bits of an instruction in which the field holds ``value`` (inverse of :func:`extract`)."""
    word = 0
    for low, bits in chunks:
        word |= (value & ((1 << bits) - 1)) << low
        value >>= bits
    return word


def width(chunks: Chunks) -> int:
    """Number of bits of a field."""
    return sum(bits for _, bits in chunks)


_DPP = {
    "src0": ((32, 8),),
    "dpp_ctrl": ((40, 9),),
    "bank_mask": ((56, 4),),
    "row_mask": ((60, 4),),
}
_SDWA_SRC0 = {"src0": ((32, 8), (55, 1)), "src0_sel": ((48, 3),)}
_SDWA_SRC1 = {"src1_sel": ((56, 3),)}
_SDWA_DST = {"dst_sel": ((40, 3),), "dst_unused": ((43, 2),)}
_VOP3_SRC = {"src0": ((32, 9),), "src1": ((41, 9),), "src2": ((50, 9),)}
_FLAT = {
    "vdst": ((56, 8), (55, 1)),
    "vdata": ((40, 8), (55, 1)),
    "offset": ((0, 13),),
}
_MAI = {
    "vdst": ((0, 8), (15, 1)),
    "src0": ((32, 9), (59, 1)),
    "src1": ((41, 9), (60, 1)),
    "src2": ((50, 9), (15, 1)),
}
_MAI_F8F6F4 = {
    "vdst": _MAI["vdst"],
    "srca": ((32, 9), (59, 1), (8, 3)),
    "srcb": ((41, 9), (60, 1), (61, 3)),
    "src2": _MAI["src2"],
}

FORMATS: Mapping[str, Format] = {
    "sop2": Format(4, 0xC0000000, 0x80000000, ((23, 7),), {"sdst": ((16, 7),), "ssrc0": ((0, 8),), "ssrc1": ((8, 8),)}),
    "sopk": Format(
        4, 0xF0000000, 0xB0000000, ((23, 5),), {"sdst": ((16, 7),), "simm16": ((0, 16),), "imm32": ((32, 32),)}
    ),
    "sop1": Format(4, 0xFF800000, 0xBE800000, ((8, 8),), {"sdst": ((16, 7),), "ssrc0": ((0, 8),)}),
    "sopc": Format(4, 0xFF800000, 0xBF000000, ((16, 7),), {"ssrc0": ((0, 8),), "ssrc1": ((8, 8),)}),
    "sopp": Format(4, 0xFF800000, 0xBF800000, ((16, 7),), {"simm16": ((0, 16),)}),
    "smem": Format(
        8,
        0xFC000000,
        0xC0000000,
        ((18, 8),),
        {"sdata": ((6, 7),), "sbase": ((0, 6),), "offset": ((32, 21), (57, 7), (17, 1), (14, 1))},
    ),
    "vop2": Format(
        4,
        0x80000000,
        0x00000000,
        ((25, 6),),
        {"vdst": ((17, 8),), "src0": ((0, 9),), "vsrc1": ((9, 8),), "imm32": ((32, 32),)},
    ),
    "vop2dpp": Format(8, 0x800001FF, 0x000000FA, ((25, 6),), {"vdst": ((17, 8),), "vsrc1": ((9, 8),), **_DPP}),
    "vop2sdwa": Format(
        8,
        0x800001FF,
        0x000000F9,
        ((25, 6),),
        {"vdst": ((17, 8),), "vsrc1": ((9, 8), (63, 1)), **_SDWA_SRC0, **_SDWA_SRC1, **_SDWA_DST},
    ),
    "vop1": Format(4, 0xFE000000, 0x7E000000, ((9, 8),), {"vdst": ((17, 8),), "src0": ((0, 9),)}),
    "vop1dpp": Format(8, 0xFE0001FF, 0x7E0000FA, ((9, 8),), {"vdst": ((17, 8),), **_DPP}),
    "vop1sdwa": Format(8, 0xFE0001FF, 0x7E0000F9, ((9, 8),), {"vdst": ((17, 8),), **_SDWA_SRC0, **_SDWA_DST}),
    "vopc": Format(4, 0xFE000000, 0x7C000000, ((17, 8),), {"src0": ((0, 9),), "vsrc1": ((9, 8),)}),
    "vopcsdwa": Format(
        8,
        0xFE0001FF,
        0x7C0000F9,
        ((17, 8),),
        {"sdst": ((40, 7), (47, 1)), "vsrc1": ((9, 8), (63, 1)), **_SDWA_SRC0, **_SDWA_SRC1},
    ),
    "vop3": Format(8, 0xFC000000, 0xD0000000, ((16, 10),), {"vdst": ((0, 8),), **_VOP3_SRC}),
    "vop3sd": Format(8, 0xFC000000, 0xD0000000, ((16, 10),), {"vdst": ((0, 8),), "sdst": ((8, 7),), **_VOP3_SRC}),
    "vop3p": Format(8, 0xFF800000, 0xD3800000, ((16, 7),), {"vdst": ((0, 8),), **_VOP3_SRC}),
    "mai": Format(8, 0xFF800000, 0xD3800000, ((16, 7),), _MAI),
    "maif8f6f4": Format(8, 0xFF800000, 0xD3800000, ((16, 7),), _MAI_F8F6F4),
    "vop3px2": Format(
        16,
        0xFF800000_00000000_FFFF0000,
        0xD3800000_00000000_D3AC0000,
        ((80, 7),),
        {
            **{name: tuple((low + 64, bits) for low, bits in chunks) for name, chunks in _MAI_F8F6F4.items()},
            "scale0": ((32, 9),),
            "scale1": ((41, 9),),
        },
    ),
    "ds": Format(
        8,
        0xFC000000,
        0xD8000000,
        ((17, 8),),
        {
            "vdst": ((56, 8), (25, 1)),
            "addr": ((32, 8),),
            "data0": ((40, 8), (25, 1)),
            "data1": ((48, 8), (25, 1)),
            "offset": ((0, 16),),
        },
    ),
    "flat": Format(8, 0xFC00C000, 0xDC000000, ((18, 7), (16, 1)), {"vaddr": ((32, 8),), **_FLAT}),
    "scratch": Format(
        8, 0xFC00C000, 0xDC004000, ((18, 7),), {"vaddr": ((32, 8), (13, 1)), "saddr": ((48, 7),), **_FLAT}
    ),
    "global": Format(
        8, 0xFC00C000, 0xDC008000, ((18, 7), (16, 1)), {"vaddr": ((32, 8), (48, 7)), "saddr": ((48, 7),), **_FLAT}
    ),
    "mubuf": Format(
        8,
        0xFC000000,
        0xE0000000,
        ((18, 7), (16, 1)),
        {
            "vdata": ((40, 8), (55, 1)),
            "vaddr": ((32, 8), (12, 1), (13, 1)),
            "srsrc": ((48, 5),),
            "soffset": ((56, 8),),
            "offset": ((0, 12),),
        },
    ),
    "mtbuf": Format(
        8,
        0xFC000000,
        0xE8000000,
        ((15, 4),),
        {
            "vdata": ((40, 8), (55, 1)),
            "vaddr": ((32, 8), (12, 1), (13, 1)),
            "srsrc": ((48, 5),),
            "soffset": ((56, 8),),
            "offset": ((0, 12),),
            "format": ((19, 7),),
        },
    ),
}
"""Every format; the ones with dpp and sdwa in their names replace the first source by a second dword."""
