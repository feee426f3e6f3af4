"""Instructions that talk to the host, the debugger or the trap handler, and relative scalar moves. [CDNA3 ISA, "SOPP",
"SOP1"]

No debugger and no host process watches a simulated wave: what would only notify them does nothing, what would stop the
wave until they answer cannot be executed.
"""

from __future__ import annotations

from .. import state
from ..decoder import Instruction
from .builder import Builder, Value
from .op import Context, Lower, Op, Unsupported, checks_of, slot_of

MESSAGE_INTERRUPT = 1
"""Raises an interrupt on the host; the wave goes on. [CDNA3 ISA, S_SENDMSG]"""


def _nothing(inst: Instruction, context: Context) -> Op:
    def make(symbol: str) -> str:
        b = Builder(symbol)
        b.next()
        return b.text()

    return Op("nothing", make)


def _end(inst: Instruction, context: Context) -> Op:
    def make(symbol: str) -> str:
        b = Builder(symbol)
        zero = b.const("i32", 0)
        b.helper(state.HELPER_WAIT, "void", b.w, zero, zero)
        b.fault(state.STATUS_ENDED)
        return b.text()

    return Op("end", make)


def _send(inst: Instruction, context: Context) -> Op:
    message = inst.operands[0].index & 15
    if message != MESSAGE_INTERRUPT:
        raise Unsupported(
            f"message {message} has no receiver; only interrupts (message 1) are sent from compute kernels"
        )
    return _nothing(inst, context)


def _halt(inst: Instruction, context: Context) -> Op:
    if inst.name != "s_sethalt" or inst.operands[0].index & 1:
        raise Unsupported("the wave would stop for good: nobody is there who ends the halt")
    return _nothing(inst, context)


def _kill(inst: Instruction, context: Context) -> Op:
    """Bit 0 ends the wave. [CDNA3 ISA, S_SETKILL]"""
    return _end(inst, context) if inst.operands[0].index & 1 else _nothing(inst, context)


def _skip(inst: Instruction, context: Context) -> Op:
    """VSKIP = bit S1[4:0] of S0. Only clearing it, its state at the start of a kernel, is executed."""
    kinds = "".join(slot_of(o)[0] for o in inst.operands)

    def make(symbol: str) -> str:
        b = Builder(symbol)
        x, y = (b.slot(i, "i32") if kind == "k" else b.load("i32", b.row(i)) for i, kind in enumerate(kinds))
        with b.if_(((x >> (y & 31)) & 1).cmp("ne", 0)):
            b.fault(state.FAULT_MODE)
        b.next()
        return b.text()

    return Op(f"setvskip|{kinds}", make, tuple(slot_of(o)[1] for o in inst.operands), checks_of(*inst.operands))


_SCALARS = 102
"""Scalar registers that a relative move can name: s0 to s101."""


def _relative(inst: Instruction, context: Context) -> Op:
    """s_movrels: D = SGPR[S + M0]; s_movreld: SGPR[D + M0] = S. [CDNA3 ISA, S_MOVRELS_B32]"""
    from_there = "movrels" in inst.name
    place = 1 if from_there else 0
    relative, dwords = inst.operands[place], 2 if inst.name.endswith("b64") else 1
    kind = slot_of(inst.operands[1])[0]
    if relative.kind != "s" or slot_of(inst.operands[0])[0] != "s" or kind == "v":
        raise Unsupported(f"{inst.name} relative to no scalar register")
    ty = f"i{32 * dwords}"

    def make(symbol: str) -> str:
        b = Builder(symbol)
        number = ((b.slot(place) - state.SGPR) >> 2) + b.load("i32", b.w, state.M0).zext("i64")
        with b.if_((number + dwords).cmp("ugt", _SCALARS)):
            b.fault(state.FAULT_INDEX)
        if from_there:
            _arrived(b, number, dwords)
        there = b.ptr(b.ptr(b.w, number << 2), state.SGPR)
        if from_there:
            value = b.load(ty, there)
        else:
            value = b.slot(1, ty) if kind == "k" else b.load(ty, b.row(1))
        b.store(value, b.row(0) if from_there else there)
        b.next()
        return b.text()

    slots = tuple(slot_of(o)[1] for o in inst.operands)
    checks = (*checks_of(inst.operands[1 - place]), (state.CHECK_SGPR + state.M0 // 4, 1))
    return Op(f"{inst.name}|{kind}", make, slots, checks)


def _arrived(b: Builder, number: Value, dwords: int) -> None:
    """Faults when a scalar register still waits for a load."""
    for k in range(dwords):
        check = number + (state.CHECK_SGPR + k)
        word = b.load("i64", b.ptr(b.w, (check >> 6) << 3), state.POISON, 8)
        with b.if_(((word >> (check & 63)) & 1).cmp("ne", 0)):
            b.store(check.trunc("i32"), b.w, state.FAULT_REGISTER)
            b.fault(state.FAULT_POISONED_REGISTER)


OPS: dict[str, Lower] = {
    "s_sendmsg": _send,
    "s_sendmsghalt": _halt,
    "s_sethalt": _halt,
    "s_setkill": _kill,
    "s_setvskip": _skip,
    **{f"s_movrel{way}_b{bits}": _relative for way in "sd" for bits in (32, 64)},
    # the conditions are bits that only a debugger sets
    **dict.fromkeys(("s_cbranch_cdbgsys", "s_cbranch_cdbguser"), _nothing),
    **dict.fromkeys(("s_cbranch_cdbgsys_or_user", "s_cbranch_cdbgsys_and_user"), _nothing),
    # address translation ahead of an access; floating-point exceptions are not recorded
    **dict.fromkeys(("s_atc_probe", "s_atc_probe_buffer", "v_clrexcp", "ds_nop"), _nothing),
}
