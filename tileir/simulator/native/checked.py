"""The op that stands before every instruction when registers are checked for reads before any write."""

from __future__ import annotations

from dataclasses import replace

from .. import state as s
from .builder import Builder, Value
from .op import Op
from .runtime import record_number


def _make(symbol: str) -> str:
    """Tests the registers that the record reads, runs its own function, and notes the registers that it writes.

    The lanes are those of EXEC before the instruction. Each record reports once.
    """
    b = Builder(symbol)
    wg = b.load("ptr", b.w, s.WORKGROUP, 8)
    number = record_number(b, wg)
    entry = b.ptr(b.load("ptr", wg, s.WG_CHECKED, 8), number * s.CHECKED_BYTES)
    items = b.ptr(b.load("ptr", wg, s.WG_CHECKED_ITEMS, 8), b.load("i32", entry, s.CHECKED_FIRST).zext("i64") << 2)
    n = b.load("i32", entry, s.CHECKED_COUNT).zext("i64")
    wave = b.load("i32", b.w, s.HW_ID).zext("i64")
    shadow = b.ptr(b.load("ptr", wg, s.WG_SHADOW, 8), wave * (8 * s.SHADOW_REGISTERS))
    live = b.exec_mask()

    def report(register: Value, missing: Value) -> None:
        with b.if_(missing.cmp("ne", 0) & b.load("i32", entry, s.CHECKED_SEEN).cmp("eq", 0)):
            b.store(b.const("i32", 1), entry, s.CHECKED_SEEN)
            count = b.load("i64", wg, s.WG_UNINIT_COUNT, 8)
            out = b.ptr(b.load("ptr", wg, s.WG_UNINIT, 8), count * s.UNINIT_BYTES)
            b.store(number.trunc("i32"), out, s.UNINIT_RECORD)
            b.store(register.trunc("i32"), out, s.UNINIT_REGISTER)
            b.store(missing, out, s.UNINIT_LANES, 8)
            b.store(wave, out, s.UNINIT_WAVE, 8)
            b.store(count + 1, wg, s.WG_UNINIT_COUNT, 8)

    with b.loop(n) as i:
        item = b.load("i32", b.ptr(items, i << 2)).zext("i64")
        mode, register = item >> 16, item & 0xFFFF
        written = b.load("i64", b.ptr(shadow, register << 3), 0, 8)
        with b.if_(mode.cmp("eq", s.ITEM_READ_ACTIVE)):
            report(register, live & ~written)
        with b.if_(mode.cmp("eq", s.ITEM_READ_ANY) & written.cmp("eq", 0)):
            report(register, b.const("i64", -1))
    after = b.call_pointer(b.load("ptr", entry, s.CHECKED_FUNCTION, 8), "ptr", b.w, b.r)
    with b.loop(n) as i:
        item = b.load("i32", b.ptr(items, i << 2)).zext("i64")
        mode, place = item >> 16, b.ptr(shadow, (item & 0xFFFF) << 3)
        with b.if_(mode.cmp("eq", s.ITEM_WRITE_ACTIVE)):
            b.store(b.load("i64", place, 0, 8) | live, place, 0, 8)
        with b.if_(mode.cmp("eq", s.ITEM_WRITE_ALL)):
            b.store(b.const("i64", -1), place, 0, 8)
    b.ret(after)
    return b.text()


def checked(op: Op) -> Op:
    """The op behind a test of its registers; the function of ``op`` itself stands in the table of checked records."""
    return replace(op, key="checked", make=_make)
