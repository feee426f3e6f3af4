"""Ops with a part for the checks before them: tests of registers that may not have been written, and cache control."""

from __future__ import annotations

from dataclasses import replace

from .. import state as s
from . import check_state as c
from .builder import Builder, Value
from .op import Op
from .shadow import record_number


def _make(symbol: str, op: Op) -> str:
    """Tests the registers that the record reads, runs the op, and notes the registers that it writes.

    The lanes are those of EXEC before the instruction. Each record reports once.
    """
    b = Builder(symbol)
    wg = b.load("ptr", b.w, s.WORKGROUP, 8)
    check = b.load("ptr", wg, s.WG_CHECK, 8)
    number = record_number(b, wg, b.r)
    entry = b.ptr(b.load("ptr", check, c.CK_CHECKED, 8), number * c.CHECKED_BYTES)
    items = b.ptr(b.load("ptr", check, c.CK_CHECKED_ITEMS, 8), b.load("i32", entry, c.CHECKED_FIRST).zext("i64") << 2)
    n = b.load("i32", entry, c.CHECKED_COUNT).zext("i64")
    wave = b.load("i32", b.w, s.HW_ID).zext("i64")
    shadow = b.ptr(b.load("ptr", check, c.CK_REGISTERS, 8), wave * (8 * c.SHADOW_REGISTERS))
    live = b.exec_mask()

    def report(register: Value, missing: Value) -> None:
        with b.if_(missing.cmp("ne", 0) & b.load("i32", entry, c.CHECKED_SEEN).cmp("eq", 0)):
            b.store(b.const("i32", 1), entry, c.CHECKED_SEEN)
            count = b.load("i64", check, c.CK_UNINIT_COUNT, 8)
            out = b.ptr(b.load("ptr", check, c.CK_UNINIT, 8), count * c.UNINIT_BYTES)
            b.store(number.trunc("i32"), out, c.UNINIT_RECORD)
            b.store(register.trunc("i32"), out, c.UNINIT_REGISTER)
            b.store(missing, out, c.UNINIT_LANES, 8)
            b.store(wave, out, c.UNINIT_WAVE, 8)
            b.store(count + 1, check, c.CK_UNINIT_COUNT, 8)

    mask = b.var("i64", 0)
    with b.loop(n) as i:
        item = b.load("i32", b.ptr(items, i << 2)).zext("i64")
        mode, register = item >> 16, item & 0xFFFF
        with b.if_(mode.cmp("eq", c.ITEM_MASK)):
            mask.set(b.load("i64", b.ptr(b.w, (register - s.CHECK_SGPR) << 2), s.SGPR))
        written = b.load("i64", b.ptr(shadow, register << 3), 0, 8)
        with b.if_(mode.cmp("eq", c.ITEM_READ_ACTIVE)):
            report(register, live & ~written)
        with b.if_(mode.cmp("eq", c.ITEM_READ_ANY) & written.cmp("eq", 0)):
            report(register, b.const("i64", -1))
    after = b.emit(f"call ptr @{symbol}_op({b.w}, {b.r})", "ptr")
    source = b.var("i64", -1)
    index = (b.load("i32", b.w, s.M0) & 0xFF).zext("i64")
    with b.loop(n) as i:
        item = b.load("i32", b.ptr(items, i << 2)).zext("i64")
        mode, place = item >> 16, b.ptr(shadow, (item & 0xFFFF) << 3)
        # an index beyond the registers has faulted in the op; the bound only keeps the access inside of the table
        relative = b.ptr(shadow, b.intrinsic("umin", (item & 0xFFFF) + index, b.const("i64", s.CHECK_AGPR - 1)) << 3)
        with b.if_(mode.cmp("eq", c.ITEM_COPY_FROM)):
            source.set(b.load("i64", place, 0, 8))
        with b.if_(mode.cmp("eq", c.ITEM_COPY_AND)):
            source.set(source.get() & b.load("i64", place, 0, 8))
        with b.if_(mode.cmp("eq", c.ITEM_COPY_WHERE)):
            source.set((source.get() & ~mask.get()) | (b.load("i64", place, 0, 8) & mask.get()))
        with b.if_(mode.cmp("eq", c.ITEM_WRITTEN_WHERE)):
            source.set(source.get() | mask.get())
        with b.if_(mode.cmp("eq", c.ITEM_COPY_FROM_INDEXED)):
            source.set(b.load("i64", relative, 0, 8))
        with b.if_(mode.cmp("eq", c.ITEM_COPY_TO_INDEXED)):
            b.store((b.load("i64", relative, 0, 8) & ~live) | (source.get() & live), relative, 0, 8)
        with b.if_(mode.cmp("eq", c.ITEM_WRITE_INDEXED)):
            b.store(b.load("i64", relative, 0, 8) | live, relative, 0, 8)
        with b.if_(mode.cmp("eq", c.ITEM_COPY_TO)):
            scalar = (item & 0xFFFF).cmp("uge", s.CHECK_SGPR)
            lanes = scalar.select(b.const("i64", -1), live)
            b.store((b.load("i64", place, 0, 8) & ~lanes) | (source.get() & lanes), place, 0, 8)
        with b.if_(mode.cmp("eq", c.ITEM_WRITE_ACTIVE)):
            b.store(b.load("i64", place, 0, 8) | live, place, 0, 8)
        with b.if_(mode.cmp("eq", c.ITEM_WRITE_ALL)):
            b.store(b.const("i64", -1), place, 0, 8)
    b.ret(after)
    return b.text() + op.make(symbol + "_op").replace("define ", "define internal ", 1)


def checked(op: Op) -> Op:
    """The op behind a test of its registers, whose numbers stand in the table of checked records."""
    return replace(op, key=f"checked|{op.key}", make=lambda symbol: _make(symbol, op))


def fenced(op: Op) -> Op:
    """An op of cache control that tells the checks when it is executed."""

    def make(symbol: str) -> str:
        b = Builder(symbol)
        wg = b.load("ptr", b.w, s.WORKGROUP, 8)
        check = b.load("ptr", wg, s.WG_CHECK, 8)
        number = record_number(b, wg, b.r).trunc("i32")
        called = b.load("ptr", check, c.CK_SYNC, 8)
        b.call_pointer(called, "i32", b.load("i32", b.w, s.HW_ID), number, b.const("i32", 0))
        b.ret(b.emit(f"call ptr @{symbol}_op({b.w}, {b.r})", "ptr"))
        return b.text() + op.make(symbol + "_op").replace("define ", "define internal ", 1)

    return replace(op, key=f"fenced|{op.key}", make=make)
