"""DS instructions with rules of their own: addresses from M0, counters, conditional and double exchanges.

[CDNA3 ISA, "Data Share Instructions"; LLVM, which puts the address of ds_append and ds_consume into M0]
"""

from __future__ import annotations

from collections.abc import Callable

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
from .atomic import Atomic
from .builder import Builder, Value
from .lds import PAIR_SLOTS, lower_atomic, pair_slots, slots, vectors
from .op import OFFSET_SLOT, Context, Lower, Op, checks_of

_M0 = (state.CHECK_SGPR + state.M0 // 4, 1)


def _base(b: Builder) -> Value:
    return (b.load("i32", b.w, state.M0) + b.slot(OFFSET_SLOT, "i32")).zext("i64")


def _lower_counter(step: Callable[[Value, Value], Value]) -> Lower:
    """ds_append and ds_consume: the dword at ``M0 + offset`` grows or shrinks by the number of active lanes, which all
    receive its previous value."""

    def lower(inst: Instruction, context: Context) -> Op:
        vectors(inst, 1)

        def make(symbol: str) -> str:
            b = Builder(symbol)
            faults = Faults(b)
            clobber_check(b, "lgkm", 0, 1)
            space = Lds(b, faults, 4)
            mask = b.exec_mask()
            old = b.var("i32", 0)
            zero = b.const("i64", 0)
            with b.if_(mask.cmp("ne", 0)):
                address = _base(b)
                with naturally_aligned(b, faults, zero, address, 4), space.access(zero, address) as pointer:
                    old.set(b.load("i32", pointer))
                    b.store(step(old.get(), b.intrinsic("ctpop", mask).trunc("i32")), pointer)
            faults.check()
            live = mask.bitcast("<64 x i1>")
            row = b.row(0)
            b.store(live.select(b.splat(old.get(), 64), b.load("<64 x i32>", row, 0, 64)), row, 0, 64)
            enqueue(b, state.HELPER_ENQUEUE_LGKM, check_number(b, 0), 1)
            b.next()
            return b.text()

        return Op(inst.name, make, slots(inst), (_M0,))

    return lower


def _lower_addtid(reads: bool) -> Lower:
    """ds_read_addtid_b32 and ds_write_addtid_b32: dword at ``M0 + offset + 4 * lane``."""
    piece = Piece(1)

    def lower(inst: Instruction, context: Context) -> Op:
        vectors(inst, 1)

        def make(symbol: str) -> str:
            b = Builder(symbol)
            faults = Faults(b)
            if reads:
                clobber_check(b, "lgkm", 0, 1)
            space = Lds(b, faults, 4)
            row = b.row(0)
            with each_lane(b, b.exec_mask()) as lane:
                with space.access(lane, _base(b) + (lane << 2)) as pointer:
                    if reads:
                        piece.to_registers(b, pointer, row, lane)
                    else:
                        piece.to_memory(b, pointer, row, lane)
            faults.check()
            enqueue(b, state.HELPER_ENQUEUE_LGKM, check_number(b, 0) if reads else None, 1)
            b.next()
            return b.text()

        return Op(inst.name, make, slots(inst), (_M0,) if reads else (_M0, *checks_of(*inst.operands)))

    return lower


def _lower_exchange2(dwords: int) -> Lower:
    """Two exchanges, the second after the first; their previous values fill the result."""
    piece = Piece(dwords)

    def lower(inst: Instruction, context: Context) -> Op:
        vectors(inst, 2 * dwords, 1, dwords, dwords)

        def make(symbol: str) -> str:
            b = Builder(symbol)
            faults = Faults(b)
            clobber_check(b, "lgkm", 0, 2 * dwords)
            space = Lds(b, faults, piece.bytes)
            with each_lane(b, b.exec_mask()) as lane:
                base = lane_dword(b, b.row(1), lane)
                first, second = ((base + b.slot(slot, "i32")).zext("i64") for slot in PAIR_SLOTS)
                new = [[lane_dword(b, b.row(2 + i), lane, k) for k in range(dwords)] for i in (0, 1)]
                with naturally_aligned(b, faults, lane, first, piece.bytes), space.access(lane, first) as low:
                    with naturally_aligned(b, faults, lane, second, piece.bytes), space.access(lane, second) as high:
                        for i, pointer in enumerate((low, high)):
                            old = [b.load("i32", pointer, 4 * k, 1) for k in range(dwords)]
                            for k in range(dwords):
                                b.store(new[i][k], pointer, 4 * k, 1)
                                put_lane_dword(b, b.row(0), lane, i * dwords + k, old[k])
            faults.check()
            enqueue(b, state.HELPER_ENQUEUE_LGKM, check_number(b, 0), 2 * dwords)
            b.next()
            return b.text()

        return Op(f"ds_wrxchg2|{dwords}", make, pair_slots(inst, dwords), checks_of(*inst.operands[1:]))

    return lower


def _conditional(b: Builder, old: Value, data: Value) -> Value:
    """Each half whose top bit is set replaces that half of memory, without the bit. [AMD ISA, DS_CONDXCHG32_RTN_B64]"""
    out: Value | None = None
    for shift in (0, 32):
        was, new = ((v >> shift if shift else v).trunc("i32") for v in (old, data))
        half = new.cmp("slt", 0).select(new & 0x7FFFFFFF, was).zext("i64")
        out = half if out is None else out | (half << shift)
    assert out is not None
    return out


# With two data operands, the second comes first: see lower_atomic.
_ATOMICS: dict[str, Atomic] = {}
for _n in (1, 2):
    _bits = 32 * _n
    _ATOMICS[f"ds_rsub{{}}_u{_bits}"] = Atomic(f"i{_bits}", _n, lambda b, old, x: x - old)
    _ATOMICS[f"ds_mskor{{}}_b{_bits}"] = Atomic(f"i{_bits}", _n, lambda b, old, new, mask: (old & ~mask) | new, 2)
    _ATOMICS[f"ds_cmpst{{}}_f{_bits}"] = Atomic(
        "double" if _n == 2 else "float",
        _n,
        lambda b, old, new, expected: old.cmp("oeq", expected).select(new, old),
        2,
    )
_WRAP = Atomic("i32", 1, lambda b, old, limit, step: old.cmp("uge", step).select(old - step, old + limit), 2)
"""``old - data0`` where that does not go below zero, else ``old + data1``. [AMD ISA, DS_WRAP_RTN_B32]"""

OPS: dict[str, Lower] = {
    "ds_append": _lower_counter(lambda old, n: old + n),
    "ds_consume": _lower_counter(lambda old, n: old - n),
    "ds_read_addtid_b32": _lower_addtid(True),
    "ds_write_addtid_b32": _lower_addtid(False),
    "ds_wrxchg2_rtn_b32": _lower_exchange2(1),
    "ds_wrxchg2_rtn_b64": _lower_exchange2(2),
    "ds_wrxchg2st64_rtn_b32": _lower_exchange2(1),
    "ds_wrxchg2st64_rtn_b64": _lower_exchange2(2),
    "ds_condxchg32_rtn_b64": lower_atomic(Atomic("i64", 2, _conditional), True),
    "ds_wrap_rtn_b32": lower_atomic(_WRAP, True),
}
for _name, _atomic in _ATOMICS.items():
    OPS[_name.format("")] = lower_atomic(_atomic, False)
    OPS[_name.format("_rtn")] = lower_atomic(_atomic, True)
