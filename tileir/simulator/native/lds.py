"""LDS reads, writes and atomics (DS format). Addresses are ``vaddr + offset``; M0 plays no part. [CDNA3 ISA, "LDS"]"""

from __future__ import annotations

from .. import state
from ..decoder import Instruction
from .access import (
    Faults,
    Lds,
    Piece,
    check_number,
    clobber_check,
    each_lane,
    enqueue,
    lane_dword,
    naturally_aligned,
    put_lane_dword,
)
from .atomic import FLOAT, INTEGER, Atomic
from .builder import Builder, Value
from .op import OFFSET_SLOT, Context, Lower, Op, Unsupported, checks_of, require, slot_of, with_offset


def slots(inst: Instruction) -> tuple[int, ...]:
    """Operands and the offset."""
    return with_offset(tuple(slot_of(o)[1] for o in inst.operands), inst.modifiers.get("offset", 0))


def _address(b: Builder, slot: int, lane: Value) -> Value:
    return (lane_dword(b, b.row(slot), lane) + b.slot(OFFSET_SLOT, "i32")).zext("i64")


def vectors(inst: Instruction, *dwords: int) -> None:
    """Checks the number of operands and of registers of each."""
    if len(inst.operands) != len(dwords):
        raise Unsupported(f"{inst.name} with {len(inst.operands)} operands")
    for operand, n in zip(inst.operands, dwords, strict=True):
        require(operand, n, inst.name)
    if inst.modifiers.get("gds", 0):
        raise Unsupported("global data share")


def _lower_read(piece: Piece) -> Lower:
    def lower(inst: Instruction, context: Context) -> Op:
        vectors(inst, piece.dwords, 1)

        def make(symbol: str) -> str:
            b = Builder(symbol)
            faults = Faults(b)
            clobber_check(b, "lgkm", 0, piece.dwords)
            space = Lds(b, faults, piece.bytes)
            row = b.row(0)
            with each_lane(b, b.exec_mask()) as lane:
                with space.access(lane, _address(b, 1, lane)) as pointer:
                    piece.to_registers(b, pointer, row, lane)
            faults.check()
            enqueue(b, state.HELPER_ENQUEUE_LGKM, check_number(b, 0), piece.dwords)
            b.next()
            return b.text()

        return Op(f"ds_read|{piece.key()}", make, slots(inst), checks_of(*inst.operands[1:]))

    return lower


def _lower_write(piece: Piece) -> Lower:
    def lower(inst: Instruction, context: Context) -> Op:
        vectors(inst, 1, piece.dwords)

        def make(symbol: str) -> str:
            b = Builder(symbol)
            faults = Faults(b)
            space = Lds(b, faults, piece.bytes)
            row = b.row(1)
            with each_lane(b, b.exec_mask()) as lane:
                with space.access(lane, _address(b, 0, lane)) as pointer:
                    piece.to_memory(b, pointer, row, lane)
            faults.check()
            enqueue(b, state.HELPER_ENQUEUE_LGKM)
            b.next()
            return b.text()

        return Op(f"ds_write|{piece.key()}", make, slots(inst), checks_of(*inst.operands))

    return lower


PAIR_SLOTS = (OFFSET_SLOT, OFFSET_SLOT - 1)


def pair_slots(inst: Instruction, dwords: int) -> tuple[int, ...]:
    """Operands and both offsets in bytes; the encoding counts elements, or 64 elements."""
    unit = 4 * dwords * (64 if "st64" in inst.name else 1)
    offsets = (inst.modifiers.get("offset0", 0) * unit, inst.modifiers.get("offset1", 0) * unit)
    return with_offset(tuple(slot_of(o)[1] for o in inst.operands), *offsets)


def _lower_read2(dwords: int) -> Lower:
    """Two reads; the second fills the upper half of the result."""
    piece = Piece(dwords)

    def lower(inst: Instruction, context: Context) -> Op:
        vectors(inst, 2 * dwords, 1)

        def make(symbol: str) -> str:
            b = Builder(symbol)
            faults = Faults(b)
            clobber_check(b, "lgkm", 0, 2 * dwords)
            space = Lds(b, faults, piece.bytes)
            row = b.row(0)
            with each_lane(b, b.exec_mask()) as lane:
                base = lane_dword(b, b.row(1), lane)
                first, second = (base + b.slot(slot, "i32") for slot in PAIR_SLOTS)
                with space.access(lane, first.zext("i64")) as low:
                    with space.access(lane, second.zext("i64")) as high:
                        values = [b.load("i32", p, 4 * k, 1) for p in (low, high) for k in range(dwords)]
                        for k, value in enumerate(values):
                            put_lane_dword(b, row, lane, k, value)
            faults.check()
            enqueue(b, state.HELPER_ENQUEUE_LGKM, check_number(b, 0), 2 * dwords)
            b.next()
            return b.text()

        return Op(f"ds_read2|{dwords}", make, pair_slots(inst, dwords), checks_of(*inst.operands[1:]))

    return lower


def _lower_write2(dwords: int) -> Lower:
    piece = Piece(dwords)

    def lower(inst: Instruction, context: Context) -> Op:
        vectors(inst, 1, dwords, dwords)

        def make(symbol: str) -> str:
            b = Builder(symbol)
            faults = Faults(b)
            space = Lds(b, faults, piece.bytes)
            with each_lane(b, b.exec_mask()) as lane:
                base = lane_dword(b, b.row(0), lane)
                for slot, constant in zip((1, 2), PAIR_SLOTS, strict=True):
                    with space.access(lane, (base + b.slot(constant, "i32")).zext("i64")) as pointer:
                        piece.to_memory(b, pointer, b.row(slot), lane)
            faults.check()
            enqueue(b, state.HELPER_ENQUEUE_LGKM)
            b.next()
            return b.text()

        return Op(f"ds_write2|{dwords}", make, pair_slots(inst, dwords), checks_of(*inst.operands))

    return lower


def transpose_source(element_bits: int, lane: int, element: int) -> tuple[int, int]:
    """(source lane, element there) of element ``element`` of ``lane`` in a transposing 64-bit read.

    Blocks of 16 lanes, each lane addressing 64 bits. 16 bit: half ``lane % 4`` of what lane ``4 e + lane / 4``
    addresses; 8 bit: byte ``lane % 8`` of lane ``2 e + lane / 8``; 4 bit: nibble ``lane % 16`` of lane ``e``.
    Evidence: fitted to compiled kernels, not measured on hardware.
    """
    per_lane = 64 // element_bits
    block, i = lane & ~15, lane & 15
    return block + element * (16 // per_lane) + i // per_lane, i % per_lane


def _lower_transpose(element_bits: int) -> Lower:
    """Transposing reads of 64 bits per lane, 96 for 6-bit elements. [16 and 8 bits: fitted to compiled kernels; 6 and 4
    bits: the same rule, in which lane i of a block of 16 receives element i of each of its lanes]"""
    dwords = 3 if element_bits == 6 else 2
    per_lane = 32 * dwords // element_bits
    piece = Piece(dwords)
    wide, step = ("i128", 4) if dwords == 3 else ("i64", 3)

    def lower(inst: Instruction, context: Context) -> Op:
        vectors(inst, dwords, 1)

        def make(symbol: str) -> str:
            b = Builder(symbol)
            with b.if_(b.exec_mask().cmp("ne", -1)):
                b.fault(state.FAULT_EXEC, ~b.exec_mask())
            faults = Faults(b)
            clobber_check(b, "lgkm", 0, dwords)
            space = Lds(b, faults, piece.bytes)
            raw = b.alloca(f"<64 x {wide}>")
            with each_lane(b, b.exec_mask()) as lane:
                with space.access(lane, _address(b, 1, lane)) as pointer:
                    value = b.load("i64", pointer, 0, 1).zext(wide)
                    if dwords == 3:
                        value = value | (b.load("i32", pointer, 8, 1).zext(wide) << 64)
                    b.store(value, b.ptr(raw, lane << step), 0, 8)
            faults.check()
            row = b.row(0)
            with b.loop(64) as lane:
                within = lane & 15
                shift = ((within & (per_lane - 1)) * element_bits).zext(wide)
                out = b.const(wide, 0)
                for e in range(per_lane):
                    source = (lane & 48) + (within >> (per_lane.bit_length() - 1)) + e * (16 // per_lane)
                    bits_ = (b.load(wide, b.ptr(raw, source << step), 0, 8) >> shift) & ((1 << element_bits) - 1)
                    out = out | (bits_ << (e * element_bits))
                for k in range(dwords):
                    put_lane_dword(b, row, lane, k, (out >> 32 * k if k else out).trunc("i32"))
            enqueue(b, state.HELPER_ENQUEUE_LGKM, check_number(b, 0), dwords)
            b.next()
            return b.text()

        return Op(inst.name, make, slots(inst), checks_of(*inst.operands[1:]))

    return lower


def lower_atomic(atomic: Atomic, returns: bool) -> Lower:
    """A read-modify-write of LDS. With two data operands, the second one comes first in ``atomic.update``."""

    def lower(inst: Instruction, context: Context) -> Op:
        n = atomic.dwords
        vectors(inst, *([n] if returns else []), 1, *[n] * atomic.sources)
        first = 1 if returns else 0

        def make(symbol: str) -> str:
            b = Builder(symbol)
            faults = Faults(b)
            if returns:
                clobber_check(b, "lgkm", 0, atomic.dwords)
            space = Lds(b, faults, 4 * atomic.dwords)
            with each_lane(b, b.exec_mask()) as lane:
                address = _address(b, first, lane)
                with naturally_aligned(b, faults, lane, address, 4 * n), space.access(lane, address) as pointer:
                    data = [atomic.fetch(b, b.row(first + 1 + k), lane) for k in range(atomic.sources)]
                    data.reverse()  # the compared value stands before the new one
                    old = atomic.apply(b, pointer, data)
                    if returns:
                        atomic.give(b, b.row(0), lane, old)
            faults.check()
            register = check_number(b, 0) if returns else None
            enqueue(b, state.HELPER_ENQUEUE_LGKM, register, atomic.dwords)
            b.next()
            return b.text()

        return Op(inst.name, make, slots(inst), checks_of(*inst.operands[first:]))

    return lower


def _lower_permute(forward: bool) -> Lower:
    """ds_bpermute_b32: each lane reads the data of lane ``addr / 4 % 64``, zero from lanes that are switched off.
    ds_permute_b32: each lane sends its data there; lanes that receive nothing get zero, the highest sender wins.
    [CDNA3 ISA, DS_PERMUTE_B32, DS_BPERMUTE_B32]"""

    def lower(inst: Instruction, context: Context) -> Op:
        vectors(inst, 1, 1, 1)

        def make(symbol: str) -> str:
            b = Builder(symbol)
            clobber_check(b, "lgkm", 0, 1)
            mask = b.exec_mask()
            moved = b.alloca("<64 x i32>")
            b.store(b.const("<64 x i32>", 0), moved, 0, 64)
            source = b.alloca("<64 x i32>")
            live = mask.bitcast("<64 x i1>")
            b.store(live.select(b.load("<64 x i32>", b.row(2), 0, 64), 0), source, 0, 64)
            with each_lane(b, mask) as lane:
                there = (((lane_dword(b, b.row(1), lane) + b.slot(OFFSET_SLOT, "i32")) >> 2) & 63).zext("i64")
                if forward:
                    b.store(lane_dword(b, source, lane), b.ptr(moved, there << 2))
                else:
                    b.store(lane_dword(b, source, there), b.ptr(moved, lane << 2))
            row = b.row(0)
            old = b.load("<64 x i32>", row, 0, 64)
            b.store(live.select(b.load("<64 x i32>", moved, 0, 64), old), row, 0, 64)
            enqueue(b, state.HELPER_ENQUEUE_LGKM, check_number(b, 0), 1)
            b.next()
            return b.text()

        return Op(inst.name, make, slots(inst), checks_of(*inst.operands[1:]))

    return lower


def swizzle_source(offset: int, lane: int) -> int:
    """Lane that ``lane`` reads in ds_swizzle_b32. [CDNA3 ISA, DS_SWIZZLE_B32: quad, FFT, rotate and bit-mask modes]"""
    group, i = lane & 32, lane & 31
    if offset >= 0xE000:
        kept = offset & 31
        return group | int(f"{i:05b}"[::-1], 2) >> kept.bit_count() | i & kept
    if offset >= 0xC000:
        amount, down, keep = offset >> 5 & 31, offset >> 10 & 1, offset & 31
        rotated = i + (-amount if down else amount)
        return group | i & keep | rotated & (~keep & 31)
    if offset & 0x8000:
        return (lane & ~3) | (offset >> 2 * (lane & 3) & 3)
    and_mask, or_mask, xor_mask = offset & 31, offset >> 5 & 31, offset >> 10 & 31
    return group | (((i & and_mask) | or_mask) ^ xor_mask)


def _lower_swizzle(inst: Instruction, context: Context) -> Op:
    vectors(inst, 1, 1)
    offset = inst.modifiers.get("offset", 0)
    lanes = [swizzle_source(offset, lane) for lane in range(64)]

    def make(symbol: str) -> str:
        b = Builder(symbol)
        clobber_check(b, "lgkm", 0, 1)
        live = b.exec_mask().bitcast("<64 x i1>")
        data = live.select(b.load("<64 x i32>", b.row(1), 0, 64), 0).shuffle(lanes)
        row = b.row(0)
        b.store(live.select(data, b.load("<64 x i32>", row, 0, 64)), row, 0, 64)
        enqueue(b, state.HELPER_ENQUEUE_LGKM, check_number(b, 0), 1)
        b.next()
        return b.text()

    return Op(f"ds_swizzle|{offset}", make, slots(inst), checks_of(*inst.operands[1:]))


OPS: dict[str, Lower] = {
    "ds_read_b32": _lower_read(Piece(1)),
    "ds_read_b64": _lower_read(Piece(2)),
    "ds_read_b96": _lower_read(Piece(3)),
    "ds_read_b128": _lower_read(Piece(4)),
    "ds_read_u8": _lower_read(Piece(1, 8)),
    "ds_read_i8": _lower_read(Piece(1, 8, True)),
    "ds_read_u16": _lower_read(Piece(1, 16)),
    "ds_read_i16": _lower_read(Piece(1, 16, True)),
    "ds_read_u8_d16": _lower_read(Piece(1, 8, False, "lo")),
    "ds_read_u8_d16_hi": _lower_read(Piece(1, 8, False, "hi")),
    "ds_read_i8_d16": _lower_read(Piece(1, 8, True, "lo")),
    "ds_read_i8_d16_hi": _lower_read(Piece(1, 8, True, "hi")),
    "ds_read_u16_d16": _lower_read(Piece(1, 16, False, "lo")),
    "ds_read_u16_d16_hi": _lower_read(Piece(1, 16, False, "hi")),
    "ds_write_b8": _lower_write(Piece(1, 8)),
    "ds_write_b16": _lower_write(Piece(1, 16)),
    "ds_write_b8_d16_hi": _lower_write(Piece(1, 8, False, "hi")),
    "ds_write_b16_d16_hi": _lower_write(Piece(1, 16, False, "hi")),
    "ds_write_b32": _lower_write(Piece(1)),
    "ds_write_b64": _lower_write(Piece(2)),
    "ds_write_b96": _lower_write(Piece(3)),
    "ds_write_b128": _lower_write(Piece(4)),
    "ds_read2_b32": _lower_read2(1),
    "ds_read2_b64": _lower_read2(2),
    "ds_read2st64_b32": _lower_read2(1),
    "ds_read2st64_b64": _lower_read2(2),
    "ds_write2_b32": _lower_write2(1),
    "ds_write2_b64": _lower_write2(2),
    "ds_write2st64_b32": _lower_write2(1),
    "ds_write2st64_b64": _lower_write2(2),
    "ds_read_b64_tr_b16": _lower_transpose(16),
    "ds_read_b64_tr_b8": _lower_transpose(8),
    "ds_read_b64_tr_b4": _lower_transpose(4),
    "ds_read_b96_tr_b6": _lower_transpose(6),
    "ds_bpermute_b32": _lower_permute(False),
    "ds_permute_b32": _lower_permute(True),
    "ds_swizzle_b32": _lower_swizzle,
}
_INTEGER_NAMES = {
    "cmpswap": ("cmpst", "b"),
    "swap": ("wrxchg", "b"),
    "add": ("add", "u"),
    "sub": ("sub", "u"),
    "smin": ("min", "i"),
    "smax": ("max", "i"),
    "umin": ("min", "u"),
    "umax": ("max", "u"),
    "and": ("and", "b"),
    "or": ("or", "b"),
    "xor": ("xor", "b"),
    "inc": ("inc", "u"),
    "dec": ("dec", "u"),
}
for (_name, _dwords), _atomic in INTEGER.items():
    _base, _letter = _INTEGER_NAMES[_name]
    OPS[f"ds_{_base}_{_letter}{32 * _dwords}"] = lower_atomic(_atomic, False)
    OPS[f"ds_{_base}_rtn_{_letter}{32 * _dwords}"] = lower_atomic(_atomic, True)
for _name, _atomic in FLOAT.items():
    _base, _, _tail = _name.rpartition("_")
    OPS[f"ds_{_name}"] = lower_atomic(_atomic, False)
    OPS[f"ds_{_base}_rtn_{_tail}"] = lower_atomic(_atomic, True)
