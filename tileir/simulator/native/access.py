"""What all memory ops share: lane loops, the address spaces, and the movement of data between memory and registers."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from tileir.records import dataclass

from .. import state
from . import check_state
from .builder import LANES, Builder, Value, vec
from .op import Op

_USES: ContextVar[tuple[int, int] | None] = ContextVar("uses", default=None)


def logged(op: Op, uses: tuple[int, int], queue: int) -> Op:
    """The op with code that logs its accesses to LDS and device memory and has them checked behind it.

    uses: what it does to LDS and to device memory, READ, WRITE or ATOMIC. queue: where it waits while on its way.
    """

    def make(symbol: str) -> str:
        token = _USES.set(uses)
        try:
            body = op.make(symbol + "_body").replace("define ", "define internal ", 1)
        finally:
            _USES.reset(token)
        b = Builder(symbol)
        check = b.load("ptr", b.load("ptr", b.w, state.WORKGROUP, 8), state.WG_CHECK, 8)
        b.store(b.const("i64", 0), check, check_state.CK_LOG_COUNT, 8)
        after = b.emit(f"call ptr @{symbol}_body({b.w}, {b.r})", "ptr")
        with b.if_(after.cmp("eq", 0)):
            b.ret(after)
        again = b.helper(state.HELPER_OBSERVE + queue, "i32", b.w, b.r)
        with b.if_(again.cmp("ne", 0)):
            b.fault(state.STATUS_REFINE)
        b.ret(after)
        return b.text() + body

    return replace(op, key=f"log{uses[0]}{uses[1]}{queue}|{op.key}", make=make)


def recorded(op: Op) -> Op:
    """The op with code that logs its accesses in the block that the workgroup points to, and nothing behind it."""

    def make(symbol: str) -> str:
        token = _USES.set((0, 0))
        try:
            return op.make(symbol)
        finally:
            _USES.reset(token)

    return replace(op, key=f"record|{op.key}", make=make)


def digest(b: Builder, pointer: Value, size: int) -> Value:
    """A number of 32 bits that tells contents of memory from each other."""
    if size < 4:
        return b.load(f"i{8 * size}", pointer, 0, 1).zext("i32")
    out = b.const("i32", 0)
    for at in range(0, size, 4):
        out = (out ^ b.load("i32", pointer, at, 1)) * -0x61C88647
        out = out ^ (out >> 15)
    return out


def log_access(b: Builder, lane: Value, address: Value, size: int, *, lds: bool, pointer: Value | None = None) -> None:
    """Emits the entry of one lane's access, in code that is generated for checking, before the access itself.

    pointer: host pointer of the bytes; needed for device memory.
    """
    uses = _USES.get()
    if uses is None:
        return
    check, count = b.access_log()
    constant = size | (check_state.LOG_LDS if lds else 0)
    constant |= uses[0 if lds else 1] << check_state.USE_SHIFT
    what = (lane.trunc("i32") << 8) | constant
    n = count.get()
    entry = b.ptr(check, n << 4)
    b.store(address, entry, check_state.CK_LOG + check_state.LOG_ADDRESS, 8)
    b.store(what, entry, check_state.CK_LOG + check_state.LOG_WHAT, 8)
    if uses[0 if lds else 1] == check_state.WRITE:
        if pointer is None:
            assert lds
            workgroup = b.load("ptr", b.w, state.WORKGROUP, 8)
            pointer = b.ptr(b.load("ptr", workgroup, state.WG_LDS, 8), address)
        b.store(digest(b, pointer, size), entry, check_state.CK_LOG + check_state.LOG_OLD)
    count.set(n + 1)
    b.store(n + 1, check, check_state.CK_LOG_COUNT, 8)


@contextmanager
def each_lane(b: Builder, mask: Value) -> Generator[Value, None, None]:
    """Visits the lanes of a mask in ascending order; yields the lane number as i64."""
    left = b.var("i64", mask)
    with b.while_(lambda: left.get().cmp("ne", 0)):
        now = left.get()
        yield b.call("llvm.cttz.i64", "i64", now, b.const("i1", 1))
        left.set(now & (now - 1))


def lane_dword(b: Builder, row: Value, lane: Value, register: int = 0) -> Value:
    """The dword of a lane in row ``register`` of an operand."""
    return b.load("i32", b.ptr(row, lane << 2), 256 * register)


def put_lane_dword(b: Builder, row: Value, lane: Value, register: int, value: Value) -> None:
    b.store(value, b.ptr(row, lane << 2), 256 * register)


class Faults:
    """Collects the lanes whose access is not allowed; :meth:`check` stops the wave if there are any."""

    def __init__(self, b: Builder) -> None:
        self.b = b
        self.lanes = b.var("i64", 0)
        self.address = b.var("i64", 0)
        self.code = b.var("i32", 0)

    def add(self, lane: Value, address: Value, code: int) -> None:
        b = self.b
        with b.if_(self.lanes.get().cmp("eq", 0)):
            self.address.set(address)
            self.code.set(code)
        self.lanes.set(self.lanes.get() | (b.const("i64", 1) << lane))

    def check(self) -> None:
        b = self.b
        lanes = self.lanes.get()
        with b.if_(lanes.cmp("ne", 0)):
            b.store(self.code.get(), b.w, state.STATUS)
            b.store(lanes, b.w, state.FAULT_LANES, align=8)
            b.store(self.address.get(), b.w, state.FAULT_ADDRESS, align=8)
            b.ret(b.const("ptr", 0))


@contextmanager
def naturally_aligned(
    b: Builder, faults: Faults, lane: Value, address: Value, size: int
) -> Generator[None, None, None]:
    """Body runs for addresses that are multiples of ``size``, which atomics need."""
    misaligned = (address & (size - 1)).cmp("ne", 0)
    with b.if_(misaligned):
        faults.add(lane, address, state.FAULT_MISALIGNED)
    with b.if_(~misaligned):
        yield


class Global:
    """Device memory: every access lies inside one allocation. Remembers the last allocation between lanes."""

    def __init__(self, b: Builder, faults: Faults, size: int, *, writes: bool) -> None:
        self.b, self.faults, self.size, self.writes = b, faults, size, writes
        self.start, self.limit, self.host = b.var("i64", 0), b.var("i64", 0), b.var("ptr", b.const("ptr", 0))

    @contextmanager
    def access(self, lane: Value, address: Value) -> Generator[Value, None, None]:
        """Body runs with the host pointer when all ``size`` bytes at ``address`` are inside an allocation."""
        b = self.b
        miss = (address - self.start.get()).cmp("uge", self.limit.get())
        with b.if_(miss):
            entry = b.helper(state.HELPER_FIND, "ptr", b.w, address, b.const("i64", self.size))
            self.limit.set(0)

            def refuse(code: int) -> Callable[[], None]:
                return lambda: self.faults.add(lane, address, code)

            def accept() -> None:
                self.start.set(b.load("i64", entry, state.ALLOC_START, 8))
                self.limit.set(b.load("i64", entry, state.ALLOC_SIZE, 8) - (self.size - 1))
                self.host.set(b.load("ptr", entry, state.ALLOC_HOST, 8))

            def found() -> None:
                if self.writes:
                    flags = b.load("i32", entry, state.ALLOC_FLAGS)
                    read_only = (flags & state.ALLOC_READ_ONLY).cmp("ne", 0)
                    b.if_else(read_only, refuse(state.FAULT_READ_ONLY), accept)
                else:
                    accept()

            b.if_else(entry.cmp("eq", 0), refuse(state.FAULT_MEMORY_BOUNDS), found)
        offset = address - self.start.get()
        with b.if_(offset.cmp("ult", self.limit.get())):
            pointer = b.ptr(self.host.get(), offset)
            log_access(b, lane, address, self.size, lds=False, pointer=pointer)
            yield pointer


class Lds:
    """The LDS of the workgroup: bounds and bytes that direct-to-LDS loads have not delivered yet."""

    def __init__(self, b: Builder, faults: Faults, size: int) -> None:
        self.b, self.faults, self.size = b, faults, size
        wg = b.load("ptr", b.w, state.WORKGROUP, 8)
        self.base = b.load("ptr", wg, state.WG_LDS, 8)
        self.bytes = b.load("i64", wg, state.WG_LDS_SIZE, 8)
        self.flags = b.load("ptr", wg, state.WG_LDS_POISON, 8)
        self.pending = b.load("i32", wg, state.WG_LDS_PENDING).cmp("ne", 0)

    @contextmanager
    def access(self, lane: Value, address: Value) -> Generator[Value, None, None]:
        b = self.b
        outside = (address + self.size).cmp("ugt", self.bytes)
        ok = b.var("i1", 1)

        def refuse(code: int) -> None:
            self.faults.add(lane, address, code)
            ok.set(0)

        with b.if_(outside):
            refuse(state.FAULT_LDS_BOUNDS)
        with b.if_(self.pending & ~outside):
            dwords = max(1, self.size // 4)
            first = b.ptr(self.flags, address >> 2)
            # An unaligned access touches one dword more; the flag array has a spare entry at its end.
            late = b.load(f"i{8 * dwords}", first, 0, 1).cmp("ne", 0)
            crossing = ((address & 3) + self.size).cmp("ugt", 4 * dwords)
            late = late | (crossing & b.load("i8", first, dwords, 1).cmp("ne", 0))
            with b.if_(late):
                refuse(state.FAULT_POISONED_LDS)
        with b.if_(ok.get()):
            pointer = b.ptr(self.base, address)
            log_access(b, lane, address, self.size, lds=True, pointer=pointer)
            yield pointer


class Scratch:
    """Private memory of a lane, ``SCRATCH_BYTES`` long."""

    def __init__(self, b: Builder, faults: Faults, size: int) -> None:
        self.b, self.faults, self.size = b, faults, size
        self.base = b.load("ptr", b.w, state.SCRATCH, 8)
        self.bytes = b.load("i64", b.w, state.SCRATCH_BYTES, 8)

    @contextmanager
    def access(self, lane: Value, address: Value) -> Generator[Value, None, None]:
        b = self.b
        inside = address.cmp("ult", self.bytes) & (address + self.size).cmp("ule", self.bytes)
        with b.if_(~inside):
            self.faults.add(lane, address, state.FAULT_SCRATCH_BOUNDS)
        with b.if_(inside):
            yield b.ptr(b.ptr(self.base, lane * self.bytes), address)


@dataclass(frozen=True)
class Piece:
    """How memory bytes meet a register: whole dwords, or a part of one.

    dwords: number of dwords (1 for parts). bits: 32, or 8 / 16 for a part. signed: sign extension of a loaded part.
    half: "" for a part that fills the dword, "lo" / "hi" for D16 forms that keep the other half.
    """

    dwords: int
    bits: int = 32
    signed: bool = False
    half: str = ""

    @property
    def bytes(self) -> int:
        return 4 * self.dwords if self.bits == 32 else self.bits // 8

    def key(self) -> str:
        return f"{self.dwords}.{self.bits}{'s' if self.signed else ''}{self.half}"

    def load(self, b: Builder, pointer: Value) -> Value:
        """A part read from memory, extended to a dword."""
        narrow = b.load(f"i{self.bits}", pointer, 0, 1)
        return narrow if self.bits == 32 else narrow.sext("i32") if self.signed else narrow.zext("i32")

    def merge(self, value: Value, old: Value) -> Value:
        """The dword after a loaded part has been put into its half."""
        if self.half == "lo":
            return (old & -0x10000) | (value & 0xFFFF)
        if self.half == "hi":
            return (old & 0xFFFF) | (value << 16)
        return value

    def to_registers(self, b: Builder, pointer: Value, row: Value, lane: Value) -> None:
        """Memory to the registers of one lane."""
        if self.bits == 32:
            values = [b.load("i32", pointer, 4 * k, 1) for k in range(self.dwords)]
            for k, value in enumerate(values):
                put_lane_dword(b, row, lane, k, value)
        else:
            old = lane_dword(b, row, lane)
            put_lane_dword(b, row, lane, 0, self.merge(self.load(b, pointer), old))

    def to_memory(self, b: Builder, pointer: Value, row: Value, lane: Value) -> None:
        """Registers of one lane to memory."""
        if self.bits == 32:
            for k in range(self.dwords):
                b.store(lane_dword(b, row, lane, k), pointer, 4 * k, 1)
        else:
            value = lane_dword(b, row, lane)
            if self.half == "hi":
                value = value >> 16
            b.store(value.trunc(f"i{self.bits}"), pointer, 0, 1)


PARTS: dict[str, Piece] = {
    "ubyte": Piece(1, 8),
    "sbyte": Piece(1, 8, True),
    "ushort": Piece(1, 16),
    "sshort": Piece(1, 16, True),
    "ubyte_d16": Piece(1, 8, False, "lo"),
    "ubyte_d16_hi": Piece(1, 8, False, "hi"),
    "sbyte_d16": Piece(1, 8, True, "lo"),
    "sbyte_d16_hi": Piece(1, 8, True, "hi"),
    "short_d16": Piece(1, 16, False, "lo"),
    "short_d16_hi": Piece(1, 16, False, "hi"),
    "dword": Piece(1),
    "dwordx2": Piece(2),
    "dwordx3": Piece(3),
    "dwordx4": Piece(4),
}
"""Loads by the tail of their name."""

STORE_PARTS: dict[str, Piece] = {
    "byte": Piece(1, 8),
    "byte_d16_hi": Piece(1, 8, False, "hi"),
    "short": Piece(1, 16),
    "short_d16_hi": Piece(1, 16, False, "hi"),
    "dword": Piece(1),
    "dwordx2": Piece(2),
    "dwordx3": Piece(3),
    "dwordx4": Piece(4),
}
"""Stores by the tail of their name."""


def enqueue(
    b: Builder,
    helper: int,
    register: Value | None = None,
    dwords: int = 0,
    lds_base: Value | None = None,
    lds_bytes: int = 0,
) -> None:
    """Appends the operation to the wave's list of pending ones. ``register``: check number of the first result."""
    zero = b.const("i32", 0)
    b.helper(
        helper,
        "void",
        b.w,
        b.r,
        register if register is not None else zero,
        b.const("i32", dwords if register is not None else 0),
        lds_base if lds_base is not None else zero,
        b.const("i32", lds_bytes),
        b.exec_mask(),
    )


def check_number(b: Builder, slot: int) -> Value:
    """Check number of the vector register in a slot: rows are consecutive from v0 to a255."""
    return ((b.slot(slot) - state.VGPR) >> 8).trunc("i32")


def clobber_check(b: Builder, queue: str, slot: int, dwords: int) -> None:
    """Faults when a result register awaits an operation of another kind; those of the same kind arrive in order.

    The other kind is told by its counter: LDS results may not overtake vector-memory results and vice versa.
    """
    other_head, other_length, other_queue = (
        (state.LGKM_HEAD, state.LGKM_LENGTH, state.QUEUE_LGKM)
        if queue == "vm"
        else (state.VM_HEAD, state.VM_LENGTH, state.QUEUE_VM)
    )
    with b.if_(b.load("i32", b.w, state.PENDING).cmp("ne", 0)):
        first = check_number(b, slot)
        length = b.load("i32", b.w, other_length)
        head = b.load("i32", b.w, other_head)
        with b.loop(length, "i32") as i:
            at = (head + i) & (state.QUEUE_CAPACITY - 1)
            entry = b.ptr(b.ptr(b.w, at.zext("i64") * state.ENTRY_BYTES), other_queue)
            start = b.load("i32", entry, state.ENTRY_REGISTER)
            n = b.load("i32", entry, state.ENTRY_COUNT)
            overlap = start.cmp("ult", first + dwords) & first.cmp("ult", start + n)
            with b.if_(overlap):
                b.store(b.intrinsic("umax", start, first), b.w, state.FAULT_REGISTER)
                b.fault(state.FAULT_POISONED_REGISTER)


def vector_addresses(b: Builder, row: Value, offset: int) -> Value:
    """Row of 32-bit addresses plus a constant, as 64-bit values in a local array of 64."""
    out = b.alloca("<64 x i64>")
    with b.chunks() as chunk:
        narrow = b.load(vec("i32", LANES), b.ptr(row, chunk * (4 * LANES)), 0, 4 * LANES)
        b.store(narrow.zext("i64") + offset, b.ptr(out, chunk * (8 * LANES)), 0, 8 * LANES)
    return out
