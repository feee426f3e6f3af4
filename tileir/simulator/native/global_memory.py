"""GLOBAL, FLAT and SCRATCH instructions. [CDNA3 ISA, "Flat Memory Instructions"]"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from .. import state
from ..decoder import Instruction, Operand
from .access import (
    PARTS,
    STORE_PARTS,
    Faults,
    Global,
    Lds,
    Piece,
    Scratch,
    check_number,
    clobber_check,
    each_lane,
    enqueue,
    lane_dword,
    log_access,
    naturally_aligned,
)
from .atomic import FLOAT, INTEGER, Atomic
from .builder import Builder, Value
from .op import OFFSET_SLOT, Context, Lower, Op, Unsupported, checks_of, require, slot_of, with_offset

SHARED_APERTURE = 0x00010000
PRIVATE_APERTURE = 0x00020000
"""Upper halves of the flat addresses of LDS and scratch memory. Chosen above the 48 bits of device memory."""


def _slots(inst: Instruction) -> tuple[int, ...]:
    operands = tuple(0 if o.kind == "off" else slot_of(o)[1] for o in inst.operands)
    return with_offset(operands, inst.modifiers.get("offset", 0))


def _pair(b: Builder, row: Value, lane: Value) -> Value:
    low, high = lane_dword(b, row, lane), lane_dword(b, row, lane, 1)
    return low.zext("i64") | (high.zext("i64") << 32)


class _Address:
    """Address operands: vector part in ``slot``, scalar base in ``base_slot`` when it is not ``off``."""

    def __init__(self, inst: Instruction, vector: Operand, base: Operand | None, slot: int, base_slot: int) -> None:
        self.space = inst.encoding
        self.vector, self.base, self.slot, self.base_slot = vector, base, slot, base_slot
        if base is not None and base.kind not in ("s", "special", "off"):
            raise Unsupported(f"{inst.name} with base {base.kind}")
        if vector.kind != "off":
            require(vector, 1 if self.space == "scratch" or (base is not None and base.kind != "off") else 2, inst.name)
        elif self.space != "scratch":
            raise Unsupported(f"{inst.name} without an address")

    @property
    def operands(self) -> tuple[Operand, ...]:
        return tuple(o for o in (self.vector, self.base) if o is not None and o.kind != "off")

    def key(self) -> str:
        base = "s" if self.base is not None and self.base.kind != "off" else "-"
        vector = f"v{self.vector.count}" if self.vector.kind != "off" else "-"
        return f"{self.space}{vector}{base}"

    def compute(self, b: Builder, lane: Value) -> Value:
        has_base = self.base is not None and self.base.kind != "off"
        if self.space == "scratch":
            total = b.slot(OFFSET_SLOT)
            if self.vector.kind != "off":
                total = lane_dword(b, b.row(self.slot), lane).zext("i64") + total
            if has_base:
                total = total + b.load("i32", b.row(self.base_slot)).zext("i64")
            return total
        if has_base:
            base = b.load("i64", b.row(self.base_slot))
            return base + lane_dword(b, b.row(self.slot), lane).zext("i64") + b.slot(OFFSET_SLOT)
        return _pair(b, b.row(self.slot), lane) + b.slot(OFFSET_SLOT)


def _address_of(inst: Instruction, first: int, base: int | None) -> _Address:
    operands = inst.operands
    if len(operands) <= first:
        raise Unsupported(f"{inst.name} with {len(operands)} operands")
    base_operand = operands[base] if base is not None and base < len(operands) else None
    return _Address(inst, operands[first], base_operand, first, base if base is not None else 0)


class _Space:
    """Dispatches an access to device memory, LDS or scratch."""

    def __init__(self, b: Builder, faults: Faults, space: str, size: int, *, writes: bool) -> None:
        self.b, self.space = b, space
        self.device = None if space == "scratch" else Global(b, faults, size, writes=writes)
        self.lds = Lds(b, faults, size) if space == "flat" else None
        self.scratch = Scratch(b, faults, size) if space in ("flat", "scratch") else None

    def access(self, lane: Value, address: Value, body: Callable[[Value], None]) -> None:
        """Runs ``body`` with the host pointer; for FLAT the body is emitted once per address space."""
        b = self.b
        if self.space == "global":
            assert self.device
            with self.device.access(lane, address) as pointer:
                body(pointer)
        elif self.space == "scratch":
            assert self.scratch
            with self.scratch.access(lane, address) as pointer:
                body(pointer)
        else:
            assert self.device and self.lds and self.scratch
            high, low = address >> 32, address & 0xFFFFFFFF
            shared, private = high.cmp("eq", SHARED_APERTURE), high.cmp("eq", PRIVATE_APERTURE)
            where = b.var("ptr", b.const("ptr", 0))

            with b.if_(shared):
                with self.lds.access(lane, low) as pointer:
                    where.set(pointer)
            with b.if_(private):
                with self.scratch.access(lane, low) as pointer:
                    where.set(pointer)
            with b.if_(~(shared | private)):
                with self.device.access(lane, address) as pointer:
                    where.set(pointer)
            with b.if_(where.get().cmp("ne", 0)):
                body(where.get())


def _enqueue(b: Builder, space: str, register: Value | None = None, dwords: int = 0) -> None:
    enqueue(b, state.HELPER_ENQUEUE_FLAT if space == "flat" else state.HELPER_ENQUEUE_VM, register, dwords)


@contextmanager
def _frame(symbol: str) -> Generator[tuple[Builder, Faults, list[str]], None, None]:
    b = Builder(symbol)
    out: list[str] = []
    yield b, Faults(b), out
    b.next()
    out.append(b.text())


def _lower_load(piece: Piece) -> Lower:
    def lower(inst: Instruction, context: Context) -> Op:
        if inst.modifiers.get("lds", 0):
            raise Unsupported(f"{inst.name} with lds")
        address = _address_of(inst, 1, 2)
        require(inst.operands[0], piece.dwords, inst.name)

        def make(symbol: str) -> str:
            with _frame(symbol) as (b, faults, out):
                clobber_check(b, "vm", 0, piece.dwords)
                space = _Space(b, faults, address.space, piece.bytes, writes=False)
                row = b.row(0)
                with each_lane(b, b.exec_mask()) as lane:
                    where = address.compute(b, lane)
                    space.access(lane, where, lambda p: piece.to_registers(b, p, row, lane))
                faults.check()
                _enqueue(b, address.space, check_number(b, 0), piece.dwords)
            return out[0]

        key = f"load|{piece.key()}|{address.key()}"
        return Op(key, make, _slots(inst), checks_of(*address.operands))

    return lower


def _lower_store(piece: Piece) -> Lower:
    def lower(inst: Instruction, context: Context) -> Op:
        address = _address_of(inst, 0, 2)
        require(inst.operands[1], piece.dwords, inst.name)

        def make(symbol: str) -> str:
            with _frame(symbol) as (b, faults, out):
                space = _Space(b, faults, address.space, piece.bytes, writes=True)
                row = b.row(1)
                with each_lane(b, b.exec_mask()) as lane:
                    where = address.compute(b, lane)
                    space.access(lane, where, lambda p: piece.to_memory(b, p, row, lane))
                faults.check()
                _enqueue(b, address.space)
            return out[0]

        key = f"store|{piece.key()}|{address.key()}"
        return Op(key, make, _slots(inst), checks_of(inst.operands[1], *address.operands))

    return lower


def _lower_atomic(atomic: Atomic) -> Lower:
    """sc0 asks for the previous value, which then is the first operand."""

    def lower(inst: Instruction, context: Context) -> Op:
        returns = bool(inst.modifiers.get("sc0", 0))
        first = 1 if returns else 0
        address = _address_of(inst, first, first + 2)
        data = inst.operands[first + 1]
        require(data, atomic.dwords * atomic.sources, inst.name)
        require(inst.operands[0], atomic.dwords if returns else 1, inst.name)

        def make(symbol: str) -> str:
            with _frame(symbol) as (b, faults, out):
                if returns:
                    clobber_check(b, "vm", 0, atomic.dwords)
                space = _Space(b, faults, address.space, 4 * atomic.dwords, writes=True)

                def act(pointer: Value, lane: Value) -> None:
                    row = b.row(first + 1)
                    values = [atomic.fetch(b, row, lane, k * atomic.dwords) for k in range(atomic.sources)]
                    old = atomic.apply(b, pointer, values)
                    if returns:
                        atomic.give(b, b.row(0), lane, old)

                with each_lane(b, b.exec_mask()) as lane:
                    where = address.compute(b, lane)
                    with naturally_aligned(b, faults, lane, where, 4 * atomic.dwords):
                        space.access(lane, where, lambda p: act(p, lane))
                faults.check()
                _enqueue(b, address.space, check_number(b, 0) if returns else None, atomic.dwords)
            return out[0]

        key = f"{inst.name}|{int(returns)}|{address.key()}"
        return Op(key, make, _slots(inst), checks_of(data, *address.operands))

    return lower


def _lower_to_lds(piece: Piece) -> Lower:
    """Global or scratch memory to LDS at ``M0 + offset + lane * size``; switched-off lanes leave LDS unchanged.

    The offset counts on both sides [LLVM, llvm.amdgcn.global.load.lds]. Parts of a dword land in a dword of their own.
    """

    def lower(inst: Instruction, context: Context) -> Op:
        address = _address_of(inst, 0, 1)
        size = max(4, piece.bytes)

        def make(symbol: str) -> str:
            with _frame(symbol) as (b, faults, out):
                source = _Space(b, faults, address.space, piece.bytes, writes=False)
                base = b.load("i32", b.w, state.M0) + b.slot(OFFSET_SLOT, "i32")
                wg = b.load("ptr", b.w, state.WORKGROUP, 8)
                lds = b.load("ptr", wg, state.WG_LDS, 8)
                limit = b.load("i64", wg, state.WG_LDS_SIZE, 8)

                def move(pointer: Value, target: Value) -> None:
                    if piece.bits == 32:
                        for k in range(piece.dwords):
                            b.store(b.load("i32", pointer, 4 * k, 1), target, 4 * k, 1)
                    else:
                        b.store(piece.load(b, pointer), target, 0, 1)

                with each_lane(b, b.exec_mask()) as lane:
                    where = base.zext("i64") + lane * size
                    outside = (where + size).cmp("ugt", limit)
                    with b.if_(outside):
                        faults.add(lane, where, state.FAULT_LDS_BOUNDS)
                    with b.if_(((where & 3).cmp("ne", 0)) & ~outside):
                        faults.add(lane, where, state.FAULT_MISALIGNED)
                    with b.if_(~outside):
                        log_access(b, lane, where, size, lds=True)
                        target = b.ptr(lds, where)
                        source.access(lane, address.compute(b, lane), lambda p: move(p, target))
                faults.check()
                enqueue(b, state.HELPER_ENQUEUE_VM, lds_base=base, lds_bytes=size)
            return out[0]

        key = f"loadlds|{piece.key()}|{address.key()}"
        checks = (*checks_of(*address.operands), (state.CHECK_SGPR + state.M0 // 4, 1))
        return Op(key, make, _slots(inst), checks)

    return lower


OPS: dict[str, Lower] = {}
for _space in ("global", "flat", "scratch"):
    for _name, _piece in PARTS.items():
        OPS[f"{_space}_load_{_name}"] = _lower_load(_piece)
    for _name, _piece in STORE_PARTS.items():
        OPS[f"{_space}_store_{_name}"] = _lower_store(_piece)
for _space in ("global", "flat"):
    for (_name, _dwords), _atomic in INTEGER.items():
        OPS[f"{_space}_atomic_{_name}{'_x2' if _dwords == 2 else ''}"] = _lower_atomic(_atomic)
    for _name, _atomic in FLOAT.items():
        OPS[f"{_space}_atomic_{_name}"] = _lower_atomic(_atomic)
for _name in ("ubyte", "sbyte", "ushort", "sshort", "dword", "dwordx3", "dwordx4"):
    for _space in ("global", "scratch"):
        OPS[f"{_space}_load_lds_{_name}"] = _lower_to_lds(PARTS[_name])
