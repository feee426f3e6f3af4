"""MUBUF: buffer loads, stores and atomics, and buffer loads to LDS. [CDNA3 ISA, "Memory Buffer Instructions"]

Addresses: ``base + soffset + inst_offset + voffset (+ index * stride)``. Range check without an index, or with a stride of
zero: a dword is outside when ``offset + 4 > num_records - soffset``, the offset without ``soffset`` and without wrapping at
32 bits. With an index and a stride, ``num_records`` counts records [Mesa, on GFX9]: outside are indices from there on, and
dwords that reach past the stride. Wide accesses are checked dword by dword. Outside, loads give zero and stores and
atomics do nothing.

With the add-thread-id bit the lane number is added to the index, and four more bits of the stride stand in place of the
data format. Swizzled descriptors put dword d of record i at ``((i / n) stride + 4 d) n + 4 (i % n)``, n records at a time
(elements are always dwords on these chips).
"""

from __future__ import annotations

from .. import state
from ..decoder import Instruction, Operand
from .access import (
    PARTS,
    STORE_PARTS,
    Faults,
    Global,
    Piece,
    check_number,
    clobber_check,
    each_lane,
    enqueue,
    lane_dword,
    log_access,
    naturally_aligned,
    put_lane_dword,
)
from .atomic import FLOAT, INTEGER, Atomic
from .builder import Builder, Value
from .op import OFFSET_SLOT, Context, Lower, Op, Unsupported, checks_of, require, slot_of, with_offset


class Operands:
    """data (absent for loads to LDS), vaddr, descriptor, soffset."""

    def __init__(self, inst: Instruction, data: int) -> None:
        rest = inst.operands[data:]
        if len(rest) != 3:
            raise Unsupported(f"{inst.name} with {len(inst.operands)} operands")
        self.vaddr, self.descriptor, self.soffset = rest
        m = inst.modifiers
        self.offset, self.offen, self.idxen = m.get("offset", 0), bool(m.get("offen", 0)), bool(m.get("idxen", 0))
        self.first = data
        self.kind = slot_of(self.soffset)[0]
        if self.descriptor.kind not in ("s", "special") or self.descriptor.count != 4 or self.kind == "v":
            raise Unsupported(f"{inst.name} with descriptor {self.descriptor.kind}")
        if self.offen or self.idxen:
            require(self.vaddr, int(self.offen) + int(self.idxen), inst.name)

    def key(self) -> str:
        return f"{'e' if self.offen else ''}{'i' if self.idxen else ''}{self.kind}"

    def slots(self, data: tuple[Operand, ...]) -> tuple[int, ...]:
        operands = (*data, self.vaddr, self.descriptor, self.soffset)
        return with_offset(tuple(0 if o.kind == "off" else slot_of(o)[1] for o in operands), self.offset)

    def sources(self) -> tuple[Operand, ...]:
        return tuple(o for o in (self.vaddr, self.descriptor, self.soffset) if o.kind != "off")


class Buffer:
    """The descriptor, read once per instruction."""

    def __init__(self, b: Builder, operands: Operands, data: int) -> None:
        self.b, self.o, self.data = b, operands, data
        descriptor = b.row(data + 1)
        self.words = words = [b.load("i32", descriptor, 4 * k) for k in range(4)]
        soffset = b.slot(data + 2, "i32") if operands.kind == "k" else b.load("i32", b.row(data + 2))
        base = words[0].zext("i64") | ((words[1] & 0xFFFF).zext("i64") << 32)
        self.start = base + soffset.zext("i64")
        self.add_tid = ((words[3] >> 23) & 1).zext("i64")
        more = ((words[3] >> 15) & 15).zext("i64") * self.add_tid
        self.stride = ((words[1] >> 16) & 0x3FFF).zext("i64") | (more << 14)
        self.records, s = words[2].zext("i64"), soffset.zext("i64")
        self.limit = self.records.cmp("ugt", s).select(self.records - s, 0)
        self.swizzled = (words[1] >> 31).cmp("ne", 0)
        indexed = self.add_tid.cmp("ne", 0) | b.const("i1", operands.idxen)
        self.counted = indexed & self.stride.cmp("ne", 0)
        self.together = b.const("i64", 3) + ((words[3] >> 21) & 3).zext("i64")
        """Binary logarithm of the number of records that a swizzled descriptor interleaves."""

    def index(self, lane: Value) -> Value:
        """Number of the record that a lane asks for."""
        index = lane * self.add_tid
        return lane_dword(self.b, self.b.row(self.data), lane).zext("i64") + index if self.o.idxen else index

    def inner(self, lane: Value) -> Value:
        """Byte offset of a lane inside its record, without soffset."""
        b, o = self.b, self.o
        total = b.slot(OFFSET_SLOT)
        if o.offen:
            total = lane_dword(b, b.row(self.data), lane, 1 if o.idxen else 0).zext("i64") + total
        return total

    def offset(self, lane: Value) -> Value:
        """Byte offset of a lane without soffset in a linear buffer; never negative, does not wrap."""
        return self.index(lane) * self.stride + self.inner(lane)

    def inside(self, offset: Value, size: int) -> Value:
        """Whether a linear access without a count of records is in range; false for all others."""
        return (offset + size).cmp("ule", self.limit) & ~self.swizzled & ~self.counted

    def place(self, lane: Value, position: int, size: int | Value) -> tuple[Value, Value]:
        """(address, in range) of ``size`` bytes that stand ``position`` bytes behind a lane's offset, in any buffer."""
        b = self.b
        index, inner, n = self.index(lane), self.inner(lane) + position, self.together
        offset = index * self.stride + inner
        group, within = index >> n, index & ((b.const("i64", 1) << n) - 1)
        moved = ((group * self.stride + (inner & -4)) << n) + (within << 2) + (inner & 3)
        address = self.start + self.swizzled.select(moved, offset)
        in_record = index.cmp("ult", self.records) & (inner + size).cmp("ule", self.stride)
        return address, self.counted.select(in_record, (offset + size).cmp("ule", self.limit))


def _load_dwords(b: Builder, buffer: Buffer, whole: Global, single: Global, piece: Piece, lane: Value) -> list[Value]:
    """The dwords of a lane: one access when all are inside, dword by dword when the range ends among them."""
    cells = [b.var("i32", 0) for _ in range(piece.dwords)]
    offset = buffer.offset(lane)
    address = buffer.start + offset

    def all_inside() -> None:
        with whole.access(lane, address) as pointer:
            if piece.bits == 32:
                for k, cell in enumerate(cells):
                    cell.set(b.load("i32", pointer, 4 * k, 1))
            else:
                cells[0].set(piece.load(b, pointer))

    def partly() -> None:
        for k, cell in enumerate(cells):
            where, inside = buffer.place(lane, 4 * k, single.size)
            with b.if_(inside):
                with single.access(lane, where) as pointer:
                    cell.set(b.load("i32", pointer, 0, 1) if piece.bits == 32 else piece.load(b, pointer))

    b.if_else(buffer.inside(offset, piece.bytes), all_inside, partly)
    return [cell.get() for cell in cells]


def _lower_load(piece: Piece) -> Lower:
    def lower(inst: Instruction, context: Context) -> Op:
        if inst.modifiers.get("lds", 0):
            return _lower_to_lds(inst, piece)
        o = Operands(inst, 1)
        require(inst.operands[0], piece.dwords, inst.name)

        def make(symbol: str) -> str:
            b = Builder(symbol)
            faults = Faults(b)
            clobber_check(b, "vm", 0, piece.dwords)
            buffer = Buffer(b, o, 1)
            whole = Global(b, faults, piece.bytes, writes=False)
            single = Global(b, faults, min(4, piece.bytes), writes=False)
            row = b.row(0)
            with each_lane(b, b.exec_mask()) as lane:
                values = _load_dwords(b, buffer, whole, single, piece, lane)
                for k, value in enumerate(values):
                    if piece.bits != 32:
                        value = piece.merge(value, lane_dword(b, row, lane))
                    put_lane_dword(b, row, lane, k, value)
            faults.check()
            enqueue(b, state.HELPER_ENQUEUE_VM, check_number(b, 0), piece.dwords)
            b.next()
            return b.text()

        key = f"bufload|{piece.key()}|{o.key()}"
        return Op(key, make, o.slots(inst.operands[:1]), checks_of(*o.sources()))

    return lower


def _lower_to_lds(inst: Instruction, piece: Piece) -> Op:
    """Buffer to LDS at ``M0 + offset + lane * size``; lanes outside the range write zeros, switched-off lanes nothing.

    The offset of the instruction counts on both sides [CDNA4 ISA, 9.1.9 "Memory Buffer Load to LDS"].
    """
    o = Operands(inst, 0)
    size = max(4, piece.bytes)

    def make(symbol: str) -> str:
        b = Builder(symbol)
        faults = Faults(b)
        buffer = Buffer(b, o, 0)
        whole = Global(b, faults, piece.bytes, writes=False)
        single = Global(b, faults, min(4, piece.bytes), writes=False)
        base = b.load("i32", b.w, state.M0) + b.slot(OFFSET_SLOT, "i32")
        wg = b.load("ptr", b.w, state.WORKGROUP, 8)
        lds = b.load("ptr", wg, state.WG_LDS, 8)
        limit = b.load("i64", wg, state.WG_LDS_SIZE, 8)
        with each_lane(b, b.exec_mask()) as lane:
            where = base.zext("i64") + lane * size
            outside = (where + size).cmp("ugt", limit)
            with b.if_(outside):
                faults.add(lane, where, state.FAULT_LDS_BOUNDS)
            with b.if_(((where & 3).cmp("ne", 0)) & ~outside):
                faults.add(lane, where, state.FAULT_MISALIGNED)
            with b.if_(~outside):
                log_access(b, lane, where, size, lds=True)
                for k, value in enumerate(_load_dwords(b, buffer, whole, single, piece, lane)):
                    b.store(value, b.ptr(lds, where), 4 * k, 1)
        faults.check()
        enqueue(b, state.HELPER_ENQUEUE_VM, lds_base=base, lds_bytes=size)
        b.next()
        return b.text()

    checks = (*checks_of(*o.sources()), (state.CHECK_SGPR + state.M0 // 4, 1))
    return Op(f"buflds|{piece.key()}|{o.key()}", make, o.slots(()), checks)


def _lower_store(piece: Piece) -> Lower:
    def lower(inst: Instruction, context: Context) -> Op:
        o = Operands(inst, 1)
        require(inst.operands[0], piece.dwords, inst.name)

        def make(symbol: str) -> str:
            b = Builder(symbol)
            faults = Faults(b)
            buffer = Buffer(b, o, 1)
            whole = Global(b, faults, piece.bytes, writes=True)
            single = Global(b, faults, min(4, piece.bytes), writes=True)
            row = b.row(0)
            with each_lane(b, b.exec_mask()) as lane:
                offset = buffer.offset(lane)
                address = buffer.start + offset

                def all_inside(lane: Value = lane, address: Value = address) -> None:
                    with whole.access(lane, address) as pointer:
                        piece.to_memory(b, pointer, row, lane)

                def partly(lane: Value = lane) -> None:
                    for k in range(piece.dwords):
                        where, inside = buffer.place(lane, 4 * k, single.size)
                        with b.if_(inside):
                            with single.access(lane, where) as pointer:
                                if piece.bits == 32:
                                    b.store(lane_dword(b, row, lane, k), pointer, 0, 1)
                                else:
                                    piece.to_memory(b, pointer, row, lane)

                b.if_else(buffer.inside(offset, piece.bytes), all_inside, partly)
            faults.check()
            enqueue(b, state.HELPER_ENQUEUE_VM)
            b.next()
            return b.text()

        key = f"bufstore|{piece.key()}|{o.key()}"
        return Op(key, make, o.slots(inst.operands[:1]), checks_of(inst.operands[0], *o.sources()))

    return lower


def _lower_atomic(atomic: Atomic) -> Lower:
    """sc0 asks for the previous value, in the data register."""

    def lower(inst: Instruction, context: Context) -> Op:
        o = Operands(inst, 1)
        require(inst.operands[0], atomic.dwords * atomic.sources, inst.name)
        returns = bool(inst.modifiers.get("sc0", 0))

        def make(symbol: str) -> str:
            b = Builder(symbol)
            faults = Faults(b)
            buffer = Buffer(b, o, 1)
            memory = Global(b, faults, 4 * atomic.dwords, writes=True)
            row = b.row(0)
            if atomic.dwords == 2:  # the halves of the cell would lie apart
                with b.if_(buffer.swizzled):
                    b.fault(state.FAULT_DESCRIPTOR)
            with each_lane(b, b.exec_mask()) as lane:
                address, inside = buffer.place(lane, 0, 4 * atomic.dwords)
                data = [atomic.fetch(b, row, lane, k * atomic.dwords) for k in range(atomic.sources)]
                with b.if_(inside), naturally_aligned(b, faults, lane, address, 4 * atomic.dwords):
                    with memory.access(lane, address) as pointer:
                        old = atomic.apply(b, pointer, data)
                        if returns:
                            atomic.give(b, row, lane, old)
                if returns:
                    with b.if_(~inside):
                        for k in range(atomic.dwords):
                            put_lane_dword(b, row, lane, k, b.const("i32", 0))
            faults.check()
            enqueue(b, state.HELPER_ENQUEUE_VM, check_number(b, 0) if returns else None, atomic.dwords)
            b.next()
            return b.text()

        key = f"{inst.name}|{int(returns)}|{o.key()}"
        return Op(key, make, o.slots(inst.operands[:1]), checks_of(*inst.operands[:1], *o.sources()))

    return lower


OPS: dict[str, Lower] = {}
for _name, _piece in PARTS.items():
    OPS[f"buffer_load_{_name}"] = _lower_load(_piece)
for _name, _piece in STORE_PARTS.items():
    OPS[f"buffer_store_{_name}"] = _lower_store(_piece)
for (_name, _dwords), _atomic in INTEGER.items():
    OPS[f"buffer_atomic_{_name}{'_x2' if _dwords == 2 else ''}"] = _lower_atomic(_atomic)
for _name, _atomic in FLOAT.items():
    OPS[f"buffer_atomic_{_name}"] = _lower_atomic(_atomic)
