"""Sparse matrix instructions, V_SMFMAC: two of every four elements of A along k are there, an index says which.

D += A·B on 64 lanes; EXEC is ignored. Lane l holds row ``l % M`` of A and column ``l % M`` of B for the same part of k,
``l / M``; elements 2p and 2p + 1 of A meet two of elements 4p … 4p + 3 of B, which the two-bit fields 2p and 2p + 1 of
the lane's index name. An index register holds one set of fields or several: ABID chooses when CBSZ is 0, otherwise the
first set counts. [CDNA3 and CDNA4 ISA, "Sparse matrices"; LLVM AMDGPU intrinsics llvm.amdgcn.smfmac.*] What is not there
is not multiplied: infinities and NaNs of B opposite to it have no effect.
"""

from __future__ import annotations

import re
from typing import Any

from ..decoder import Instruction
from .builder import Builder, Value, vec
from .mfma import ELEMENT, Result, Shape, Spread, accumulate, bits_of, d_row
from .op import Context, Lower, Op, Unsupported, checks_of, require, slot_of

_NAME = re.compile(r"v_smfmac_(f32|i32)_(\d+)x\d+x(\d+)_([a-z0-9]+)(?:_([a-z0-9]+))?$")


def shape_of(name: str) -> Shape:
    """The shape that a mnemonic says; K counts the elements of B."""
    match = _NAME.match(name)
    assert match, name
    result, m, k, a, b = match.groups()
    return Shape(result, int(m), int(k), 1, a, b or a)


class _Dense(Spread):
    """B as ``buffer[k][column]``, k = elements per lane · (l / M) + e."""

    def _put(self, element: int, values: Value) -> None:
        m = self.shape.m
        for group in range(64 // m):
            part = values.shuffle(list(range(group * m, (group + 1) * m)))
            self.b.store(part, self.buffer, self.at(self.shape.k * m // 64 * group + element), 4)


class _Compressed(Spread):
    """A as ``buffer[element][lane]``."""

    def __init__(self, b: Builder, shape: Shape, chip: str, slot: int) -> None:
        half = Shape(shape.result, shape.m, shape.k // 2, 1, shape.a, shape.b)
        super().__init__(b, half, shape.a, chip, slot)
        self.buffer = b.alloca(f"[{half.k * half.m} x {self.element}]")

    def _put(self, element: int, values: Value) -> None:
        self.b.store(values, self.buffer, 4 * 64 * element, 64)


def _lower(inst: Instruction, context: Context) -> Op:
    shape = shape_of(inst.name)
    d, a, x, index = inst.operands
    per_lane = shape.k * shape.m // 64
    kept = per_lane // 2
    sets = 16 // kept
    cbsz, abid = inst.modifiers.get("cbsz", 0), inst.modifiers.get("abid", 0)
    chosen = 0 if cbsz else abid % sets
    if inst.modifiers.get("blgp"):
        raise Unsupported(f"{inst.name} with blgp")
    registers = shape.m * shape.m // 64
    for operand, dwords in (
        (d, registers),
        (a, kept * bits_of(shape.a) // 32),
        (x, per_lane * bits_of(shape.b) // 32),
        (index, 1),
    ):
        require(operand, dwords, inst.name)

    def make(symbol: str) -> str:
        b = Builder(symbol)
        left, right = _Compressed(b, shape, context.chip, 1), _Dense(b, shape, shape.b, context.chip, 2)
        left.run()
        right.run()
        result = Result(b, ELEMENT[shape.result], "v", 0, 0)
        m, element = shape.m, ELEMENT[shape.result]
        fields = b.load("<64 x i32>", b.row(3), 0, 64) >> (2 * kept * chosen)
        where = b.alloca(f"[{64 * kept} x i32]")
        for e in range(kept):
            b.store(((fields >> 2 * e if e else fields) & 3) + 4 * (e // 2), where, 256 * e, 64)
        outs: list[tuple[Any, int, int]] = []
        for register in range(registers):
            for group in range(64 // m):
                total = b.var(vec(element, m), result.load(register, group * m, m))
                row = d_row(shape, register, group)
                with b.loop(64 // m) as part:
                    lane = part * m + row
                    for e in range(kept):
                        at = (lane << 2) + 256 * e
                        k = b.load("i32", b.ptr(where, at)).zext("i64") + part * per_lane
                        line = b.load(vec(element, m), b.ptr(right.buffer, k * right.at(1)), 0, 4)
                        factor = b.splat(b.load(element, b.ptr(left.buffer, at)), m)
                        total.set(accumulate(b, factor, line, total.get()))
                outs.append((total, register, group * m))
        for total, register, first in outs:
            result.store(total.get(), register, first)
        b.next()
        return b.text()

    key = f"{inst.name}|{context.chip}|{chosen}"
    return Op(key, make, tuple(slot_of(o)[1] for o in inst.operands), checks_of(*inst.operands))


def _names() -> list[str]:
    names = [f"f32_{s}_{k}" for s in ("16x16x32", "32x32x16", "16x16x64", "32x32x32") for k in ("f16", "bf16")]
    for s in ("16x16x64", "32x32x32", "16x16x128", "32x32x64"):
        names.append(f"i32_{s}_i8")
        names += [f"f32_{s}_{p}_{q}" for p in ("fp8", "bf8") for q in ("fp8", "bf8")]
    return [f"v_smfmac_{name}" for name in names]


OPS: dict[str, Lower] = dict.fromkeys(_names(), _lower)
