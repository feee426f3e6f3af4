"""Machine code of gfx942 and gfx950 to :class:`Instruction` objects and back to LLVM's assembly syntax."""

from tileir.simulator.decoder.instruction import DecodeError, Instruction, Operand

__all__ = ["DecodeError", "Instruction", "Operand"]
