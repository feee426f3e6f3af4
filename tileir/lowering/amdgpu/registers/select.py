"""What instruction selection adds to the text: constants and scalars that vector instructions can only take from vector registers, and
registers inside operations that become several instructions.

Rules of the encoding (CDNA3 ISA, 6.2 "Operands"): a 64-bit encoded vector instruction takes no literal, only the inline constants
-16 to 64 and ±0.5, ±1, ±2, ±4; a vector instruction reads one scalar operand. A selection by lanes is such an
instruction, whose scalar operand is the condition. So is what `exp2` and `log2` become, which scale by a selected constant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tileir.lowering.amdgpu.registers.text import DWORD, Function, Instruction, Type
from tileir.lowering.amdgpu.registers.values import CONSTANT, FLAG, MASK, SCALAR, VECTOR, kinds_of

MATERIALISED = "vector.constant"
# Constants that the expansions of LLVM 22 (AMDGPULegalizerInfo, SITargetLowering: lowerFEXP2, lowerFLOG2, lowerFSQRTF32) select by lanes.
EXPANDED = {"llvm.intr.exp2": 2, "llvm.intr.log2": 2, "llvm.intr.exp": 2, "llvm.intr.log": 2, "llvm.intr.sqrt": 2}
_INLINE = {f"0x{bits:08X}" for bits in (0x3F000000, 0xBF000000, 0x3F800000, 0xBF800000, 0x40000000, 0xC0000000, 0x40800000, 0xC0800000, 0)}  # fmt: skip
_VALUE = re.compile(r"llvm\.mlir\.constant\((?:dense<)?([-\w.]+)>? :")
WIDE = 64
_DWORD = Type(1, DWORD, 1, False)


def select(function: Function) -> None:
    """Puts an instruction before each one that needs a constant or scalar in a vector register."""
    kinds = kinds_of(function)
    for b in function.blocks:
        early = [x for i in b.instructions for x in _addends(function, kinds, i)]
        b.instructions = early + [x for i in b.instructions for x in (*_before(function, kinds, i), i)]
    function.definitions.update((i.result, i) for i in function.instructions() if i.op == MATERIALISED)


def _before(function: Function, kinds: dict[str, str], i: Instruction) -> Iterator[Instruction]:
    if i.op == "llvm.select" and i.type is not None and not i.type.is_bool and kinds.get(i.operands[0]) == MASK:
        for at in (1, 2):
            v = i.operands[at]
            kind = kinds.get(v, CONSTANT)
            if (kind == CONSTANT and not _is_inline(function, v)) or kind in (SCALAR, FLAG):
                source = [] if kind == CONSTANT else [v]
                yield _materialised(i, at, v, source, _width(function, v, i.type))
    count = EXPANDED.get(i.op, 0) if i.type is not None and i.type.bits == DWORD else 0
    for k in range(count):
        yield _materialised(i, len(i.operands), f"%{i.op}.{k}", [], _DWORD)


def _addends(function: Function, kinds: dict[str, str], i: Instruction) -> Iterator[Instruction]:
    """Constants that 64-bit multiply-adds add: the instruction overwrites its addend, which must be a pair of vector registers.
    Nothing holds the moves back, so they come at the beginning of the block."""
    if i.op == "llvm.intr.fma" and i.type is not None and i.type.bits == WIDE and kinds.get(i.result) == VECTOR:
        v = i.operands[2]
        if kinds.get(v, CONSTANT) == CONSTANT and not _is_inline(function, v):
            yield _materialised(i, 2, f"{v}.{i.block}", [], i.type)


def _materialised(i: Instruction, at: int, name: str, source: list[str], type: Type) -> Instruction:
    """A value in a vector register, which becomes operand `at` of an instruction."""
    made = Instruction(MATERIALISED, f"{MATERIALISED} {name}", f"{name}.v", source, type, i.line)
    made.block = made.home = i.block
    i.operands = [*i.operands[:at], made.result, *i.operands[at + 1 :]]
    return made


def _width(function: Function, name: str, wanted: Type) -> Type:
    i = function.definitions.get(name)
    return i.type if i is not None and i.type is not None else wanted


def _is_inline(function: Function, name: str) -> bool:
    i = function.definitions.get(name)
    found = _VALUE.search(i.text) if i is not None else None
    if found is None:
        return True  # no value at all
    text = found[1]
    if text.startswith("0x"):
        return text.upper().replace("X", "x") in _INLINE or int(text, 16) == 0
    return not re.fullmatch(r"-?\d+", text) or -16 <= int(text) <= 64
