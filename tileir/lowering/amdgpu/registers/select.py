"""What instruction selection adds to the text: constants and scalars that vector instructions can only take from vector registers, and
registers inside operations that become several instructions.

Rules of the encoding (CDNA3 ISA, 6.2 "Operands"): a 64-bit encoded vector instruction takes no literal, only the inline constants
-16 to 64 and ±0.5, ±1, ±2, ±4; a vector instruction reads one scalar operand. A selection by lanes is such an
instruction, whose scalar operand is the condition. So is what `exp2` and `log2` become, which scale by a selected constant.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from tileir.lowering.amdgpu.registers.text import DWORD, Function, Instruction, Type
from tileir.lowering.amdgpu.registers.values import CONSTANT, FLAG, MASK, SCALAR, VECTOR, kinds_of

MATERIALISED = "vector.constant"
SCALAR_CONSTANT = "scalar.constant"
CROSS = "vector.cross"
# Arithmetic on 64-bit floats (CDNA3 ISA, VOP3: `v_fma_f64`, `v_add_f64`, `v_mul_f64`, `v_cmp_*_f64`).
WIDE_OPS = ("llvm.fadd", "llvm.fsub", "llvm.fmul", "llvm.intr.fma", "llvm.fcmp", "llvm.intr.max", "llvm.intr.min")
# Constants that the expansions of LLVM 22 (AMDGPULegalizerInfo, SITargetLowering: lowerFEXP2, lowerFLOG2, lowerFSQRTF32) select by lanes.
EXPANDED = {"llvm.intr.exp2": 2, "llvm.intr.log2": 2, "llvm.intr.exp": 2, "llvm.intr.log": 2, "llvm.intr.sqrt": 2}
# Arithmetic on 32 bits; those of the second list only have the long encoding, without room for a literal.
NARROW_OPS = (
    "llvm.add", "llvm.sub", "llvm.mul", "llvm.and", "llvm.or", "llvm.xor", "llvm.icmp", "llvm.fcmp", "llvm.fadd", "llvm.fsub", "llvm.fmul",
    "llvm.intr.", "rocdl.perm",
)  # fmt: skip
LONG_OPS = ("llvm.mul", "rocdl.perm")
_INLINE = {f"0x{bits:08X}" for bits in (0x3F000000, 0xBF000000, 0x3F800000, 0xBF800000, 0x40000000, 0xC0000000, 0x40800000, 0xC0800000, 0)}  # fmt: skip
_INLINE_WIDE = {
    f"0x{bits:016X}"
    for bits in (0x3FE << 52, 0xBFE << 52, 0x3FF << 52, 0xBFF << 52, 1 << 62, 3 << 62, 0x401 << 52, 0xC01 << 52, 0)
}
_VALUE = re.compile(r"llvm\.mlir\.constant\((?:dense<)?([-\w.]+)>? :")
WIDE, HALF = 64, 16
PICKS = "%picks"
"""The bytes that `v_perm_b32` picks to join two halves."""
_DWORD = Type(1, DWORD, 1, False)


def select(function: Function) -> None:
    """Puts an instruction before each one that needs a constant or scalar in a vector register."""
    kinds = kinds_of(function)
    uses = Counter(v for i in function.instructions() for v in set(i.operands))
    for b in function.blocks:
        early = [x for i in b.instructions for x in _addends(function, kinds, i)]
        b.instructions = early + [x for i in b.instructions for x in (*_before(function, kinds, i, uses), i)]
    _cross_products(function, kinds)
    function.definitions.update(
        (i.result, i) for i in function.instructions() if i.op in (MATERIALISED, SCALAR_CONSTANT)
    )


def _before(
    function: Function, kinds: dict[str, str], i: Instruction, uses: Mapping[str, int]
) -> Iterator[Instruction]:
    if i.op == "llvm.select" and i.type is not None and not i.type.is_bool and kinds.get(i.operands[0]) == MASK:
        for at in (1, 2):
            v = i.operands[at]
            kind = kinds.get(v, CONSTANT)
            if (kind == CONSTANT and not _is_inline(function, v)) or kind in (SCALAR, FLAG) or _is_address(function, v):
                source = [] if kind == CONSTANT else [v]
                yield _materialised(i, at, v, source, _width(function, v, i.type))
    yield from _literals(function, kinds, i, uses)
    if i.op == "llvm.insertelement" and kinds.get(i.result) == VECTOR and i.type is not None and i.type.bits == HALF:
        if (function.constant(i.operands[2]) or 0) % 2:
            yield _materialised(i, len(i.operands), PICKS, [], _DWORD, SCALAR_CONSTANT)
    count = EXPANDED.get(i.op, 0) if i.type is not None and i.type.bits == DWORD else 0
    for k in range(count):
        yield _materialised(i, len(i.operands), f"%{i.op}.{k}", [], _DWORD)


def _literals(
    function: Function, kinds: dict[str, str], i: Instruction, uses: Mapping[str, int]
) -> Iterator[Instruction]:
    """Constants that come from scalar registers: those of 64-bit arithmetic, for which no instruction has room, and those that several
    instructions use, which are folded into none (SIFoldOperands, SIShrinkInstructions: `foldImmediates`)."""
    if kinds.get(i.result) not in (VECTOR, MASK) or i.type is None:
        return
    for at, v in enumerate(i.operands):
        if kinds.get(v, CONSTANT) != CONSTANT or _is_inline(function, v):
            continue
        t = _width(function, v, _DWORD)
        wide = t.bits == WIDE and i.op.startswith(WIDE_OPS)
        if wide or (
            t.bits == DWORD
            and t.count == 1
            and i.op.startswith(NARROW_OPS)
            and (uses[v] > 1 or i.op.startswith(LONG_OPS))
        ):
            yield _materialised(i, at, v, [], t, SCALAR_CONSTANT)


def _addends(function: Function, kinds: dict[str, str], i: Instruction) -> Iterator[Instruction]:
    """Constants that 64-bit multiply-adds add: the instruction overwrites its addend, which must be a pair of vector registers.
    Nothing holds the moves back, so they come at the beginning of the block."""
    if i.op == "llvm.intr.fma" and i.type is not None and i.type.bits == WIDE and kinds.get(i.result) == VECTOR:
        v = i.operands[2]
        if kinds.get(v, CONSTANT) == CONSTANT and not _is_inline(function, v):
            yield _materialised(i, 2, f"{v}.{i.block}", [], i.type)


def _cross_products(function: Function, kinds: dict[str, str]) -> None:
    """A 64-bit product of lanes that several sums use is multiplied anew in each, by one multiply-add (`v_mad_u64_u32`) of its low words;
    what its high words add is kept, and added last, where the address is used."""
    sums = Counter(v for i in function.instructions() if i.op == "llvm.add" for v in set(i.operands))
    carried: dict[str, list[str]] = {}
    for b in function.blocks:
        order: list[Instruction] = []
        for i in b.instructions:
            if i.op in ("llvm.load", "llvm.store"):
                i.operands = [*i.operands, *(x for v in i.operands for x in carried.get(v, ()))]
            elif i.op in ("llvm.add", "llvm.getelementptr", "llvm.select"):
                found = [x for v in i.operands for x in carried.get(v, ())]
                if found:
                    carried[i.result] = found
            wide = i.type is not None and i.type.bits == WIDE
            if i.op == "llvm.mul" and wide and sums[i.result] > 1 and kinds.get(i.result) == VECTOR:
                made = Instruction(CROSS, f"{CROSS} {i.result}", f"{i.result}.x", list(i.operands), _DWORD, i.line)
                made.block = made.home = i.block
                carried[i.result] = [made.result]
                order.append(made)
            order.append(i)
        b.instructions = order


def _materialised(
    i: Instruction, at: int, name: str, source: list[str], type: Type, op: str = MATERIALISED
) -> Instruction:
    """A value in a vector register, or a scalar one, which becomes operand `at` of an instruction."""
    made = Instruction(op, f"{op} {name}", f"{name}.{op[0]}", source, type, i.line)
    made.block = made.home = i.block
    i.operands = [*i.operands[:at], made.result, *i.operands[at + 1 :]]
    return made


def _width(function: Function, name: str, wanted: Type) -> Type:
    i = function.definitions.get(name)
    return i.type if i is not None and i.type is not None else wanted


def _is_address(function: Function, name: str) -> bool:
    i = function.definitions.get(name)
    return i is not None and i.op == "llvm.mlir.addressof"


def _is_inline(function: Function, name: str) -> bool:
    i = function.definitions.get(name)
    found = _VALUE.search(i.text) if i is not None else None
    if found is None:
        return True  # no value at all
    text = found[1]
    if text.startswith("0x"):
        return text.upper().replace("X", "x") in (_INLINE | _INLINE_WIDE) or int(text, 16) == 0
    return not re.fullmatch(r"-?\d+", text) or -16 <= int(text) <= 64
