"""What the decoder hands to the rest of the simulator: one :class:`Instruction` with its :class:`Operand` tuple."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from tileir.records import dataclass


class DecodeError(Exception):
    """The bytes at ``offset`` are no instruction of the chip.

    ``encoding`` holds the bytes that were looked at (4 or 8, fewer at the end of the code).
    """

    def __init__(self, offset: int, encoding: bytes, reason: str = "not an instruction of this chip") -> None:
        self.offset = offset
        self.encoding = encoding
        self.reason = reason
        super().__init__(f"offset {offset:#x}: cannot decode {encoding.hex(' ')}: {reason}")


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand, in the order of LLVM's assembly syntax.

    kind:
        ``"v"`` VGPR, ``"a"`` AGPR, ``"s"`` SGPR (0..101), ``"special"`` any other scalar register or hardware value
        (see ``name``), ``"imm"`` inline constant or encoded field, ``"lit"`` 32-bit literal that follows the
        instruction, ``"off"`` no register, ``"label"`` branch target.
    index:
        First register number (v, a, s, ttmp). For imm and lit the unsigned bit pattern of the operand's type, as wide
        as ``count`` dwords (a 16-bit operand has its pattern in the low half). For label the byte distance from the
        *end* of the instruction, signed. 0 otherwise.
    count:
        Number of consecutive dwords.
    name:
        Of a special: ``"vcc"``, ``"exec_lo"``, ``"m0"``, ``"ttmp4"`` and so on; a 64-bit special has count 2.
    neg, abs, sext:
        Source modifiers of VOP3, DPP and SDWA.
    """

    kind: str
    index: int
    count: int
    name: str = ""
    neg: bool = False
    abs: bool = False
    sext: bool = False


@dataclass(frozen=True, slots=True)
class Instruction:
    """One decoded machine instruction.

    ``name`` is LLVM's mnemonic without the suffixes ``_e32``, ``_e64``, ``_dpp``, ``_sdwa``; ``encoding`` tells which
    form it was. ``operands`` stand in assembly order, destinations first. ``modifiers`` holds only what differs from
    the default; bit vectors (``op_sel``, ``neg_lo``, ...) have bit i for source i.
    """

    name: str
    encoding: str
    size: int
    operands: tuple[Operand, ...]
    modifiers: Mapping[str, int] = field(hash=False)
    raw: bytes
    chip: str = ""

    @property
    def text(self) -> str:
        """The instruction in LLVM syntax; llvm-mc for the same chip assembles it to ``raw``."""
        from tileir.simulator.decoder.printer import render

        return render(self)
