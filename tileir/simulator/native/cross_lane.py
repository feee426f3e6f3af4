"""Ops that move values between lanes or between lanes and scalar registers."""

from __future__ import annotations

from .. import state
from ..decoder import Instruction
from .builder import Builder, Value
from .op import Context, Lower, Op, Unsupported, checks_of, require, slot_of


def _first_lane(b: Builder) -> Value:
    """Lowest active lane; lane 0 when none is."""
    mask = b.exec_mask()
    first = b.call("llvm.cttz.i64", "i64", mask, b.const("i1", 0))
    return mask.cmp("eq", 0).select(0, first)


def _scalar(b: Builder, slot: int, kind: str) -> Value:
    return b.slot(slot, "i32") if kind == "k" else b.load("i32", b.row(slot))


def _op(inst: Instruction, key: str, make: object) -> Op:
    for operand in inst.operands:
        if operand.kind in ("v", "a"):
            require(operand, 1, inst.name)
    slots = tuple(slot_of(o)[1] for o in inst.operands)
    return Op(key, make, slots, checks_of(*inst.operands))  # type: ignore[arg-type]


def _readfirstlane(inst: Instruction, context: Context) -> Op:
    kind = slot_of(inst.operands[1])[0]
    if slot_of(inst.operands[0])[0] != "s":
        raise Unsupported("v_readfirstlane_b32 to a vector register")

    def make(symbol: str) -> str:
        b = Builder(symbol)
        value = b.load("i32", b.ptr(b.row(1), _first_lane(b) << 2)) if kind == "v" else _scalar(b, 1, kind)
        b.store(value, b.row(0))
        b.next()
        return b.text()

    return _op(inst, f"readfirstlane|{kind}", make)


def _readlane(inst: Instruction, context: Context) -> Op:
    """The lane number is taken modulo 64; EXEC is ignored."""
    kind = slot_of(inst.operands[2])[0]
    if slot_of(inst.operands[1])[0] != "v" or slot_of(inst.operands[0])[0] != "s" or kind == "v":
        raise Unsupported("v_readlane_b32 with these operands")

    def make(symbol: str) -> str:
        b = Builder(symbol)
        lane = (_scalar(b, 2, kind) & 63).zext("i64")
        b.store(b.load("i32", b.ptr(b.row(1), lane << 2)), b.row(0))
        b.next()
        return b.text()

    return _op(inst, f"readlane|{kind}", make)


def _writelane(inst: Instruction, context: Context) -> Op:
    if inst.operands[0].kind != "v":
        raise Unsupported("v_writelane_b32 to a scalar")
    value_kind, lane_kind = slot_of(inst.operands[1])[0], slot_of(inst.operands[2])[0]
    if "v" in (value_kind, lane_kind):
        raise Unsupported("v_writelane_b32 with a vector register as source")

    def make(symbol: str) -> str:
        b = Builder(symbol)
        lane = (_scalar(b, 2, lane_kind) & 63).zext("i64")
        b.store(_scalar(b, 1, value_kind), b.ptr(b.row(0), lane << 2))
        b.next()
        return b.text()

    return _op(inst, f"writelane|{value_kind}{lane_kind}", make)


def _swap(width: int) -> Lower:
    """v_permlane16_swap / v_permlane32_swap: odd rows of the first register change places with even rows of the
    second, a row being ``width`` lanes. [CDNA4 ISA, V_PERMLANE16_SWAP_B32] Lanes switched off in EXEC keep their value
    unless bound_ctrl is set; ``fi`` counts them as active."""

    def lower(inst: Instruction, context: Context) -> Op:
        if any(o.kind != "v" for o in inst.operands):
            raise Unsupported(f"{inst.name} with a scalar operand")

        def make(symbol: str) -> str:
            b = Builder(symbol)
            with b.if_(b.exec_mask().cmp("ne", -1)):
                b.fault(state.FAULT_EXEC, ~b.exec_mask())
            x, y = b.load("<64 x i32>", b.row(0), 0, 64), b.load("<64 x i32>", b.row(1), 0, 64)
            first = [lane if lane // width % 2 == 0 else 64 + lane - width for lane in range(64)]
            second = [lane + width if lane // width % 2 == 0 else 64 + lane for lane in range(64)]
            b.store(x.shuffle(first, y), b.row(0), 0, 64)
            b.store(x.shuffle(second, y), b.row(1), 0, 64)
            b.next()
            return b.text()

        return _op(inst, inst.name, make)

    return lower


def _swap_registers(inst: Instruction, context: Context) -> Op:
    for operand in inst.operands:
        require(operand, 1, inst.name)

    def make(symbol: str) -> str:
        b = Builder(symbol)
        live = b.exec_mask().bitcast("<64 x i1>")
        x, y = b.load("<64 x i32>", b.row(0), 0, 64), b.load("<64 x i32>", b.row(1), 0, 64)
        b.store(live.select(y, x), b.row(0), 0, 64)
        b.store(live.select(x, y), b.row(1), 0, 64)
        b.next()
        return b.text()

    return _op(inst, "swap", make)


GPR_INDEX_ENABLED = 1 << 27
"""MODE bit of relative register addressing. [CDNA3 ISA, MODE]"""
INDEX_SOURCE, INDEX_DESTINATION = 1, 8


def _index_on(inst: Instruction, context: Context) -> Op:
    """M0[7:0] = index, M0[15:12] = operands it applies to. [CDNA3 ISA, S_SET_GPR_IDX_ON]"""
    kind = slot_of(inst.operands[0])[0]

    def make(symbol: str) -> str:
        b = Builder(symbol)
        index = _scalar(b, 0, kind) & 0xFF
        m0 = (b.load("i32", b.w, state.M0) & ~0xF0FF) | index | (b.slot(1, "i32") << 12)
        b.store(m0, b.w, state.M0)
        b.store(b.load("i32", b.w, state.MODE) | GPR_INDEX_ENABLED, b.w, state.MODE)
        b.next()
        return b.text()

    slots = (slot_of(inst.operands[0])[1], inst.operands[1].index & 15)
    return Op(f"gpridxon|{kind}", make, slots, checks_of(inst.operands[0]))


def _index_off(inst: Instruction, context: Context) -> Op:
    def make(symbol: str) -> str:
        b = Builder(symbol)
        b.store(b.load("i32", b.w, state.MODE) & ~GPR_INDEX_ENABLED, b.w, state.MODE)
        b.next()
        return b.text()

    return Op("gpridxoff", make)


def _index_only(inst: Instruction, context: Context) -> Op:
    """s_set_gpr_idx_idx: M0[7:0] = S0[7:0]. [CDNA3 ISA]"""
    kind = slot_of(inst.operands[0])[0]

    def make(symbol: str) -> str:
        b = Builder(symbol)
        m0 = (b.load("i32", b.w, state.M0) & ~0xFF) | (_scalar(b, 0, kind) & 0xFF)
        b.store(m0, b.w, state.M0)
        b.next()
        return b.text()

    return Op(f"gpridxidx|{kind}", make, (slot_of(inst.operands[0])[1],), checks_of(inst.operands[0]))


def _index_mode(inst: Instruction, context: Context) -> Op:
    """s_set_gpr_idx_mode: M0[15:12] = operands that the index applies to. [CDNA3 ISA]"""

    def make(symbol: str) -> str:
        b = Builder(symbol)
        b.store((b.load("i32", b.w, state.M0) & ~0xF000) | (b.slot(0, "i32") << 12), b.w, state.M0)
        b.next()
        return b.text()

    return Op("gpridxmode", make, (inst.operands[0].index & 15,))


def lower_indexed_move(inst: Instruction, context: Context) -> Op:
    """v_mov_b32 with a source or destination relative to M0."""
    if inst.name != "v_mov_b32" or inst.encoding in ("dpp", "sdwa") or context.indexing & ~9:
        raise Unsupported(f"{inst.name} with registers relative to M0")
    require(inst.operands[0], 1, inst.name)
    kinds = "".join(slot_of(o)[0] for o in inst.operands)
    which, limit = context.indexing, context.vgprs

    def make(symbol: str) -> str:
        b = Builder(symbol)
        m0 = b.load("i32", b.w, state.M0)
        other = ((m0 >> 12) & 15).cmp("ne", which)
        with b.if_((b.load("i32", b.w, state.MODE) & GPR_INDEX_ENABLED).cmp("eq", 0) | other):
            b.fault(state.FAULT_INDEX)
        index = (m0 & 0xFF).zext("i64")

        def row(slot: int, bit: int) -> Value:
            offset = b.slot(slot)
            if which & bit:
                number = ((offset - state.VGPR) >> 8) + index
                with b.if_(number.cmp("uge", b.slot(2))):
                    b.fault(state.FAULT_INDEX)
                word = b.load("i64", b.ptr(b.w, (number >> 6) << 3), state.POISON, 8)
                with b.if_(((word >> (number & 63)) & 1).cmp("ne", 0)):
                    b.store(number.trunc("i32"), b.w, state.FAULT_REGISTER)
                    b.fault(state.FAULT_POISONED_REGISTER)
                offset = offset + (index << 8)
            return b.ptr(b.w, offset)

        target = row(0, INDEX_DESTINATION)
        if kinds[1] == "v":
            source = b.load("<64 x i32>", row(1, INDEX_SOURCE), 0, 64)
        else:
            source = b.splat(_scalar(b, 1, kinds[1]), 64)
        live = b.exec_mask().bitcast("<64 x i1>")
        b.store(live.select(source, b.load("<64 x i32>", target, 0, 64)), target, 0, 64)
        b.next()
        return b.text()

    slots = (*(slot_of(o)[1] for o in inst.operands), limit)
    return Op(f"movindexed|{kinds}|{which}", make, slots, checks_of(*inst.operands))


OPS: dict[str, Lower] = {
    "s_set_gpr_idx_on": _index_on,
    "s_set_gpr_idx_off": _index_off,
    "s_set_gpr_idx_idx": _index_only,
    "s_set_gpr_idx_mode": _index_mode,
    "v_readfirstlane_b32": _readfirstlane,
    "v_readlane_b32": _readlane,
    "v_writelane_b32": _writelane,
    "v_permlane16_swap_b32": _swap(16),
    "v_permlane32_swap_b32": _swap(32),
    "v_swap_b32": _swap_registers,
}
