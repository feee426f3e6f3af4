"""All ops by mnemonic, and the ops that stand for instructions which cannot run."""

from __future__ import annotations

from .. import state
from ..decoder import Instruction
from . import (
    buffer,
    compare,
    control,
    convert,
    cross_lane,
    flow,
    global_memory,
    lds,
    lds_special,
    media,
    mfma,
    packed,
    salu,
    scalar_memory,
    scaled,
    sparse,
    typed,
    valu_float,
    valu_int,
)
from .builder import Builder
from .op import Context, Lower, Op, Unsupported

OPS: dict[str, Lower] = {}
for _family in (
    salu,
    flow,
    control,
    scalar_memory,
    valu_int,
    valu_float,
    compare,
    convert,
    scaled,
    media,
    packed,
    cross_lane,
    lds,
    lds_special,
    global_memory,
    buffer,
    typed,
    mfma,
    sparse,
):
    OPS.update(_family.OPS)


def fault_op(code: int) -> Op:
    """An op that stops the wave with a fault code."""

    def make(symbol: str) -> str:
        b = Builder(symbol)
        b.fault(code)
        return b.text()

    return Op(f"fault|{code}", make)


def lower(inst: Instruction, context: Context) -> Op:
    """The native op of an instruction; raises :class:`Unsupported` when there is none."""
    if context.indexing and inst.name.startswith("v_"):
        return cross_lane.lower_indexed_move(inst, context)
    found = OPS.get(inst.name)
    if found is None:
        raise Unsupported(f"{inst.name} is not implemented")
    return found(inst, context)


UNSUPPORTED = fault_op(state.FAULT_UNSUPPORTED)
UNDECODABLE = fault_op(state.FAULT_UNDECODABLE)
END_OF_CODE = fault_op(state.FAULT_END_OF_CODE)
ILLEGAL_JUMP = fault_op(state.FAULT_JUMP)
REGISTER_RANGE = fault_op(state.FAULT_INDEX)
