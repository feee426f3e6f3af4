"""Scalar stores and atomics (SMEM). [CDNA3 ISA, "Scalar Memory Operations"]

The two lowest bits of an address are ignored. Buffer forms: dwords outside the range are not written, an atomic outside
does nothing and returns zero; the range is ``num_records`` bytes, or records of ``stride`` bytes.
"""

from __future__ import annotations

from .. import state
from ..decoder import Instruction, Operand
from .access import log_access
from .atomic import INTEGER, Atomic
from .builder import Builder, Value
from .op import OFFSET_SLOT, Context, Lower, Op, Unsupported, checks_of, slot_of, with_offset


class _Place:
    """Base (64-bit address or descriptor) and offset of an access."""

    def __init__(self, inst: Instruction, buffer: bool) -> None:
        self.buffer = buffer
        self.data, self.base, self.offset = inst.operands[:3]
        self.kind = slot_of(self.offset)[0]
        scalars = (self.data, self.base, *([] if self.kind == "k" else [self.offset]))
        if any(slot_of(o)[0] != "s" for o in scalars):
            raise Unsupported(f"{inst.name} with an operand that is no scalar register")
        self.immediate = inst.modifiers.get("offset", 0)

    def slots(self) -> tuple[int, ...]:
        return with_offset(tuple(slot_of(o)[1] for o in (self.data, self.base, self.offset)), self.immediate)

    def operands(self) -> tuple[Operand, ...]:
        return self.data, self.base, self.offset

    def key(self) -> str:
        return f"{int(self.buffer)}|{self.kind}"

    def locate(self, b: Builder) -> tuple[Value, Value, Value]:
        """Start address, offset, and the limit of the offset (of use in buffer forms)."""
        if self.kind == "k":
            offset = b.slot(2, "i32").sext("i64")
        else:
            offset = b.load("i32", b.row(2)).zext("i64") + b.slot(OFFSET_SLOT)
        if not self.buffer:
            start = b.load("i64", b.row(1)) + offset
            return start & -4, b.const("i64", 0), b.const("i64", 0)
        words = [b.load("i32", b.row(1), 4 * k) for k in range(3)]
        start = words[0].zext("i64") | ((words[1] & 0xFFFF).zext("i64") << 32)
        stride = ((words[1] >> 16) & 0x3FFF).zext("i64")
        limit = words[2].zext("i64") * b.intrinsic("umax", stride, b.const("i64", 1))
        return start, offset & -4, limit


def _host(b: Builder, address: Value, size: int) -> Value:
    """Host pointer of an access that writes, or a fault."""
    none = b.const("i64", 0)
    entry = b.helper(state.HELPER_FIND, "ptr", b.w, address, b.const("i64", size))
    with b.if_(entry.cmp("eq", 0)):
        b.fault(state.FAULT_MEMORY_BOUNDS, none, address)
    with b.if_((b.load("i32", entry, state.ALLOC_FLAGS) & state.ALLOC_READ_ONLY).cmp("ne", 0)):
        b.fault(state.FAULT_READ_ONLY, none, address)
    pointer = b.ptr(b.load("ptr", entry, state.ALLOC_HOST, 8), address - b.load("i64", entry, state.ALLOC_START, 8))
    log_access(b, none, address, size, lds=False, pointer=pointer)
    return pointer


def _enqueue(b: Builder, dwords: int) -> None:
    """``dwords``: registers from slot 0 on that the operation writes."""
    register = ((b.slot(0) - state.SGPR) >> 2).trunc("i32") + state.CHECK_SGPR
    zero = b.const("i32", 0)
    n = b.const("i32", dwords)
    b.helper(state.HELPER_ENQUEUE_SMEM, "void", b.w, b.r, register, n, zero, zero, b.const("i64", 0))


def _lower_store(dwords: int, *, buffer: bool) -> Lower:
    def lower(inst: Instruction, context: Context) -> Op:
        place = _Place(inst, buffer)

        def make(symbol: str) -> str:
            b = Builder(symbol)
            start, offset, limit = place.locate(b)
            if buffer:
                for k in range(dwords):
                    at = offset + 4 * k
                    with b.if_((at + 4).cmp("ule", limit)):
                        b.store(b.load("i32", b.row(0), 4 * k), _host(b, start + at, 4), 0, 1)
            else:
                host = _host(b, start, 4 * dwords)
                for k in range(dwords):
                    b.store(b.load("i32", b.row(0), 4 * k), host, 4 * k, 1)
            _enqueue(b, 0)
            b.next()
            return b.text()

        return Op(f"sstore|{dwords}|{place.key()}", make, place.slots(), checks_of(*place.operands()))

    return lower


def _lower_atomic(atomic: Atomic, *, buffer: bool) -> Lower:
    """glc asks for the previous value, in the data registers."""

    def lower(inst: Instruction, context: Context) -> Op:
        place = _Place(inst, buffer)
        returns = bool(inst.modifiers.get("glc", 0))
        size = 4 * atomic.dwords

        def make(symbol: str) -> str:
            b = Builder(symbol)
            start, offset, limit = place.locate(b)
            row = b.row(0)
            data = [b.load(atomic.ty, row, size * k) for k in range(atomic.sources)]

            def act() -> None:
                address = start + offset
                with b.if_((address & (size - 1)).cmp("ne", 0)):
                    b.fault(state.FAULT_MISALIGNED, b.const("i64", 0), address)
                old = atomic.apply(b, _host(b, address, size), data)
                if returns:
                    b.store(old, row)

            def outside() -> None:
                if returns:
                    b.store(b.const(atomic.ty, 0), row)

            if buffer:
                b.if_else((offset + size).cmp("ule", limit), act, outside)
            else:
                act()
            _enqueue(b, atomic.dwords if returns else 0)
            b.next()
            return b.text()

        return Op(f"{inst.name}|{int(returns)}|{place.key()}", make, place.slots(), checks_of(*place.operands()))

    return lower


OPS: dict[str, Lower] = {}
for _dwords, _tail in ((1, ""), (2, "x2"), (4, "x4")):
    OPS[f"s_store_dword{_tail}"] = _lower_store(_dwords, buffer=False)
    OPS[f"s_buffer_store_dword{_tail}"] = _lower_store(_dwords, buffer=True)
for (_name, _dwords), _atomic in INTEGER.items():
    _tail = "_x2" if _dwords == 2 else ""
    OPS[f"s_atomic_{_name}{_tail}"] = _lower_atomic(_atomic, buffer=False)
    OPS[f"s_buffer_atomic_{_name}{_tail}"] = _lower_atomic(_atomic, buffer=True)
