"""Machine code of gfx942 and gfx950 to :class:`Instruction` objects and back to LLVM's assembly syntax.

:func:`decode` reads one instruction, :func:`disassemble` a whole stretch of code; ``Instruction.text`` prints it so that
llvm-mc assembles it to the same bytes. The opcode tables are generated data, see :mod:`tileir.simulator.decoder.table`.
"""

from tileir.simulator.decoder.decode import decode, disassemble
from tileir.simulator.decoder.instruction import DecodeError, Instruction, Operand

__all__ = ["DecodeError", "Instruction", "Operand", "decode", "disassemble"]
