"""VOPC: comparisons into a lane mask; the ``v_cmpx`` forms also write EXEC."""

from __future__ import annotations

from .. import state
from ..decoder import Instruction
from . import valu_float, valu_int
from .op import Context, Lower, Op
from .valu import Frame, Signature

COMPARES: dict[str, Signature] = {**valu_int.COMPARES, **valu_float.COMPARES}


def _lower(signature: Signature, exec_too: bool) -> Lower:
    def lower(inst: Instruction, context: Context) -> Op:
        op = Frame(inst, context, signature).op()
        if not exec_too:
            return op
        copy = "  store i64 %result, ptr %exec, align 8\n"

        def make(symbol: str) -> str:
            # The mask has just been written to the destination; EXEC takes the same value.
            text = op.make(symbol)
            head, tail = text.rsplit("  ret ptr", 1)
            load = (
                f"  %slotp = getelementptr i8, ptr %r, i64 {state.REC_SLOTS}\n  %off = load i64, ptr %slotp, align 8\n"
                "  %dst = getelementptr i8, ptr %w, i64 %off\n  %result = load i64, ptr %dst, align 4\n"
                f"  %exec = getelementptr i8, ptr %w, i64 {state.EXEC}\n"
            )
            return f"{head}{load}{copy}  ret ptr{tail}"

        return Op(op.key, make, op.slots, op.checks)

    return lower


OPS: dict[str, Lower] = {}
for _name, _signature in COMPARES.items():
    OPS[f"v_cmp_{_name}"] = _lower(_signature, False)
    OPS[f"v_cmpx_{_name}"] = _lower(_signature, True)
