"""Scalar memory, branches, waits and everything else that steers a wave (SMEM, SOPP, jumps, mode)."""

from __future__ import annotations

from .. import state
from ..decoder import Instruction, Operand
from .access import log_access
from .builder import Builder, Value
from .op import OFFSET_SLOT, Context, Lower, Op, Unsupported, checks_of, slot_of, with_offset


def _scalar_load(dwords: int, *, buffer: bool) -> Lower:
    """Dword-aligned load; the two lowest address bits are ignored. Buffer form: dwords outside give zero.
    [CDNA3 ISA, "Scalar Memory Operations"]"""

    def lower(inst: Instruction, context: Context) -> Op:
        destination, base, offset = inst.operands[:3]
        immediate = inst.modifiers.get("offset", 0)
        kind = slot_of(offset)[0]
        _registers(inst, destination, base, *([] if kind == "k" else [offset]))

        def make(symbol: str) -> str:
            b = Builder(symbol)
            if kind == "k":
                where = b.slot(2, "i32").sext("i64")
            else:
                where = b.load("i32", b.row(2)).zext("i64") + b.slot(OFFSET_SLOT)
            if buffer:
                words = [b.load("i32", b.row(1), 4 * k) for k in range(3)]
                start = words[0].zext("i64") | ((words[1] & 0xFFFF).zext("i64") << 32)
                stride = ((words[1] >> 16) & 0x3FFF).zext("i64")
                limit = words[2].zext("i64") * b.intrinsic("umax", stride, b.const("i64", 1))
            else:
                start = b.load("i64", b.row(1))
                limit = b.const("i64", 0)
            offset_ = where & -4
            values = [b.var("i32", 0) for _ in range(dwords)]
            if buffer:
                for k, cell in enumerate(values):
                    at = offset_ + 4 * k
                    with b.if_((at + 4).cmp("ule", limit)):
                        cell.set(b.load("i32", _host(b, start + at, 4), 0, 1))
            else:
                host = _host(b, (start + where) & -4, 4 * dwords)
                for k, cell in enumerate(values):
                    cell.set(b.load("i32", host, 4 * k, 1))
            row = b.row(0)
            for k, cell in enumerate(values):
                b.store(cell.get(), row, 4 * k)
            register = ((b.slot(0) - state.SGPR) >> 2).trunc("i32") + state.CHECK_SGPR
            zero = b.const("i32", 0)
            b.helper(
                state.HELPER_ENQUEUE_SMEM,
                "void",
                b.w,
                b.r,
                register,
                b.const("i32", dwords),
                zero,
                zero,
                b.const("i64", 0),
            )
            b.next()
            return b.text()

        slots = with_offset(tuple(slot_of(o)[1] for o in (destination, base, offset)), immediate)
        key = f"sload|{dwords}|{int(buffer)}|{kind}"
        return Op(key, make, slots, checks_of(destination, base, offset))

    return lower


def _registers(inst: Instruction, *operands: Operand) -> None:
    """Refuses operands that are not scalar registers: their slots are used as places."""
    if any(slot_of(o)[0] != "s" for o in operands):
        raise Unsupported(f"{inst.name} with an operand that is no scalar register")


def _host(b: Builder, address: Value, size: int) -> Value:
    """Host pointer of a scalar access, or a fault."""
    entry = b.helper(state.HELPER_FIND, "ptr", b.w, address, b.const("i64", size))
    with b.if_(entry.cmp("eq", 0)):
        b.fault(state.FAULT_MEMORY_BOUNDS, b.const("i64", 0), address)
    log_access(b, b.const("i64", 0), address, size, lds=False)
    offset = address - b.load("i64", entry, state.ALLOC_START, 8)
    return b.ptr(b.load("ptr", entry, state.ALLOC_HOST, 8), offset)


def _memtime(inst: Instruction, context: Context) -> Op:
    """A counter that grows by one per executed instruction of the workgroup; it is no measure of time."""
    _registers(inst, inst.operands[0])

    def make(symbol: str) -> str:
        b = Builder(symbol)
        wg = b.load("ptr", b.w, state.WORKGROUP, 8)
        ticks = b.load("i64", wg, state.WG_CLOCK, 8) + 1
        b.store(ticks, wg, state.WG_CLOCK, 8)
        b.store(ticks, b.row(0))
        register = ((b.slot(0) - state.SGPR) >> 2).trunc("i32") + state.CHECK_SGPR
        zero = b.const("i32", 0)
        lanes = b.const("i64", 0)
        b.helper(state.HELPER_ENQUEUE_SMEM, "void", b.w, b.r, register, b.const("i32", 2), zero, zero, lanes)
        b.next()
        return b.text()

    return Op("memtime", make, (slot_of(inst.operands[0])[1],), checks_of(inst.operands[0]))


def _nothing(inst: Instruction, context: Context) -> Op:
    """Instructions without an effect on values: hints, cache control, priorities."""

    def make(symbol: str) -> str:
        b = Builder(symbol)
        b.next()
        return b.text()

    return Op("nothing", make)


def _stop(key: str, status: int, *, drain: bool = False) -> Lower:
    def lower(inst: Instruction, context: Context) -> Op:
        def make(symbol: str) -> str:
            b = Builder(symbol)
            if drain:
                zero = b.const("i32", 0)
                b.helper(state.HELPER_WAIT, "void", b.w, zero, zero)
            b.fault(status)
            return b.text()

        return Op(key, make)

    return lower


def _wait(inst: Instruction, context: Context) -> Op:
    simm16 = inst.operands[0].index
    vm, lgkm = (simm16 & 15) | (simm16 >> 14 & 3) << 4, simm16 >> 8 & 15

    def make(symbol: str) -> str:
        b = Builder(symbol)
        b.helper(state.HELPER_WAIT, "void", b.w, b.slot(0, "i32"), b.slot(1, "i32"))
        b.next()
        return b.text()

    return Op("wait", make, (vm, lgkm))


_CONDITIONS = ("scc0", "scc1", "vccz", "vccnz", "execz", "execnz")


def _branch(inst: Instruction, context: Context) -> Op:
    label = inst.operands[-1]
    if label.kind != "label":
        raise Unsupported(f"{inst.name} without a label")
    condition = inst.name.rpartition("_")[2] if "cbranch" in inst.name else ""
    target = context.address + inst.size + label.index

    def make(symbol: str) -> str:
        b = Builder(symbol)
        taken = b.load("ptr", b.r, state.REC_TARGET, 8)
        if not condition:
            b.ret(taken)
            return b.text()
        if condition.startswith("scc"):
            value = b.load("i32", b.w, state.SCC).zext("i64")
        else:
            value = b.load("i64", b.w, state.VCC if condition.startswith("vcc") else state.EXEC)
        predicate = "eq" if condition.endswith(("z", "0")) and not condition.endswith("nz") else "ne"
        b.ret(value.cmp(predicate, 0).select(taken, b.ptr(b.r, state.RECORD_SIZE)))
        return b.text()

    vcc = ((state.CHECK_SGPR + state.VCC // 4, 2),) if condition.startswith("vcc") else ()
    return Op(f"branch|{condition}", make, (), vcc, target)


def _jump(b: Builder, address: Value) -> None:
    """Continues at a simulated address, which must be the start of an instruction of the code object."""
    wg = b.load("ptr", b.w, state.WORKGROUP, 8)
    offset = address - b.load("i64", wg, state.WG_CODE_BASE, 8)
    inside = offset.cmp("ult", b.load("i64", wg, state.WG_CODE_BYTES, 8)) & (offset & 3).cmp("eq", 0)
    with b.if_(inside):
        number = b.load("i32", b.ptr(b.load("ptr", wg, state.WG_CODE_MAP, 8), offset))
        with b.if_(number.cmp("sge", 0)):
            records = b.load("ptr", wg, state.WG_RECORDS, 8)
            b.ret(b.ptr(records, number.zext("i64") * state.RECORD_SIZE))
    b.fault(state.FAULT_JUMP, b.const("i64", 0), address)


def _pc(kind: str) -> Lower:
    """s_getpc_b64, s_setpc_b64, s_swappc_b64; the stored address is that of the following instruction."""

    def lower(inst: Instruction, context: Context) -> Op:
        _registers(inst, *inst.operands)

        def make(symbol: str) -> str:
            b = Builder(symbol)
            after = b.load("i64", b.r, state.REC_PC, 8) + inst.size
            if kind == "get":
                b.store(after, b.row(0))
                b.next()
            elif kind == "set":
                _jump(b, b.load("i64", b.row(0)))
            else:
                target = b.load("i64", b.row(1))
                b.store(after, b.row(0))
                _jump(b, target)
            return b.text()

        slots = tuple(slot_of(o)[1] for o in inst.operands)
        return Op(f"pc|{kind}|{inst.size}", make, slots, checks_of(*inst.operands))

    return lower


def _call(inst: Instruction, context: Context) -> Op:
    label = inst.operands[-1]
    _registers(inst, inst.operands[0])

    def make(symbol: str) -> str:
        b = Builder(symbol)
        b.store(b.load("i64", b.r, state.REC_PC, 8) + inst.size, b.row(0))
        b.ret(b.load("ptr", b.r, state.REC_TARGET, 8))
        return b.text()

    target = context.address + inst.size + label.index
    return Op("call", make, (slot_of(inst.operands[0])[1],), checks_of(inst.operands[0]), target)


_HWREG_MODE, _HWREG_STATUS, _HWREG_HW_ID, _HWREG_XCC_ID = 1, 2, 4, 20
_HWREG_OFFSETS = {_HWREG_MODE: state.MODE, _HWREG_HW_ID: state.HW_ID, _HWREG_XCC_ID: state.XCC_ID}
FIXED_BITS = 1 << 8 | 1 << 9 | 1 << 27 | 1 << 28
"""MODE bits that a program may not change by writing MODE: DX10_CLAMP and IEEE, which select the code of an op when it
is translated; GPR_IDX_EN and VSKIP, which have instructions of their own."""


def hwreg_field(simm16: int) -> tuple[int, int, int]:
    """(register, lowest bit, width) of the operand of s_getreg and s_setreg. [CDNA3 ISA, S_GETREG_B32]"""
    return simm16 & 63, simm16 >> 6 & 31, (simm16 >> 11 & 31) + 1


def _getreg(inst: Instruction, context: Context) -> Op:
    number, low, width = hwreg_field(inst.operands[1].index)
    if number not in _HWREG_OFFSETS:
        raise Unsupported(f"hardware register {number}")
    _registers(inst, inst.operands[0])

    def make(symbol: str) -> str:
        b = Builder(symbol)
        value = b.load("i32", b.w, _HWREG_OFFSETS[number]) >> low
        b.store(value & ((1 << width) - 1) if width < 32 else value, b.row(0))
        b.next()
        return b.text()

    key = f"getreg|{number}|{low}|{width}"
    return Op(key, make, (slot_of(inst.operands[0])[1],), checks_of(inst.operands[0]))


def _setreg(inst: Instruction, context: Context) -> Op:
    """Writes a field of MODE; see FIXED_BITS."""
    first, second = inst.operands
    field, source = (first, second) if inst.name.startswith("s_setreg") else (second, first)
    number, low, width = hwreg_field(field.index)
    if number != _HWREG_MODE:
        raise Unsupported(f"writing hardware register {number}")
    kind = slot_of(source)[0]
    mask = (1 << width) - 1

    def make(symbol: str) -> str:
        b = Builder(symbol)
        value = b.slot(0, "i32") if kind == "k" else b.load("i32", b.row(0))
        old = b.load("i32", b.w, state.MODE)
        new = (old & ~(mask << low)) | ((value & mask) << low)
        with b.if_(((new ^ old) & FIXED_BITS).cmp("ne", 0)):
            b.fault(state.FAULT_MODE)
        b.store(new, b.w, state.MODE)
        b.next()
        return b.text()

    return Op(f"setreg|{low}|{width}|{kind}", make, (slot_of(source)[1],), checks_of(source))


OPS: dict[str, Lower] = {
    "s_load_dword": _scalar_load(1, buffer=False),
    "s_buffer_load_dword": _scalar_load(1, buffer=True),
    **{f"s_load_dwordx{n}": _scalar_load(n, buffer=False) for n in (2, 4, 8, 16)},
    **{f"s_buffer_load_dwordx{n}": _scalar_load(n, buffer=True) for n in (2, 4, 8, 16)},
    "s_memtime": _memtime,
    "s_memrealtime": _memtime,
    "s_endpgm": _stop("end", state.STATUS_ENDED, drain=True),
    "s_endpgm_saved": _stop("end", state.STATUS_ENDED, drain=True),
    "s_barrier": _stop("barrier", state.STATUS_BARRIER),
    "s_trap": _stop("trap", state.FAULT_TRAP),
    "s_waitcnt": _wait,
    "s_branch": _branch,
    "s_getpc_b64": _pc("get"),
    "s_setpc_b64": _pc("set"),
    "s_swappc_b64": _pc("swap"),
    "s_call_b64": _call,
    "s_getreg_b32": _getreg,
    "s_setreg_b32": _setreg,
    "s_setreg_imm32_b32": _setreg,
    **{f"s_cbranch_{condition}": _branch for condition in _CONDITIONS},
    **dict.fromkeys(
        (
            "s_nop",
            "s_sleep",
            "s_setprio",
            "s_inst_prefetch",
            "s_icache_inv",
            "s_incperflevel",
            "s_decperflevel",
            "s_ttracedata",
            "s_wakeup",
            "s_dcache_inv",
            "s_dcache_wb",
            "s_dcache_inv_vol",
            "s_dcache_wb_vol",
            "v_nop",
            "buffer_inv",
            "buffer_wbl2",
        ),
        _nothing,
    ),
}
