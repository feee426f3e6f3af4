"""Native recording of a wave: the dispatcher of the engine, with a note of every instruction, its LDS service and its
cache lines.

LDS service: an instruction takes, for each of its lane groups (and each of its addresses per lane), one clock per
distinct dword in the bank that has the most of them, and at least one. Atomics do not share dwords (assumed).
"""

from __future__ import annotations

from tileir.simulator import state as s
from tileir.simulator.native import check_state as c
from tileir.simulator.native.builder import Builder, Value
from tileir.simulator.native.runtime import poisoned_check
from tileir.simulator.timing import layout as l
from tileir.simulator.timing.library import one_module


def trace_wave(symbol: str) -> str:
    """Module of ``i32 symbol(ptr wave, ptr trace)``: like the engine's ``run_wave``; also stops, as at the end of a
    time slice, when the buffers of the trace may be too small for another instruction."""
    return one_module([_digest(symbol + "_digest"), _run(symbol, symbol + "_digest")])


def _run(symbol: str, digest: str) -> str:
    b = Builder(symbol, "ptr %w, ptr %t", "i32")
    t = Value(b, "%t", "ptr")
    wg = b.load("ptr", b.w, s.WORKGROUP, 8)
    check, table = b.load("ptr", wg, s.WG_CHECK, 8), b.load("ptr", t, l.T_TABLE, 8)
    instructions = b.load("ptr", t, l.T_INSTRUCTIONS, 8)
    capacity, line_capacity = b.load("i64", t, l.T_CAPACITY, 8), b.load("i64", t, l.T_LINE_CAPACITY, 8)
    b.store(b.const("i32", s.STATUS_RUNNING), b.w, s.STATUS)
    record = b.var("ptr", b.load("ptr", b.w, s.CURRENT, 8))
    budget = b.var("i64", b.load("i64", b.w, s.BUDGET, 8))
    records = b.load("i64", wg, s.WG_RECORDS, 8)
    with b.while_(lambda: b.const("i1", 1)):
        now = record.get()
        count = b.load("i64", t, l.T_COUNT, 8)
        lines = b.load("i64", t, l.T_LINE_COUNT, 8)
        full = count.cmp("uge", capacity) | (lines + l.MAX_LINES).cmp("ugt", line_capacity)
        with b.if_(full | budget.get().cmp("eq", 0)):
            b.store(b.const("i32", s.STATUS_SLICE), b.w, s.STATUS)
            b.store(now, b.w, s.CURRENT, 8)
            b.store(budget.get(), b.w, s.BUDGET, 8)
            b.ret(b.const("i32", s.STATUS_SLICE))
        budget.set(budget.get() - 1)
        with b.if_(b.load("i32", b.w, s.PENDING).cmp("ne", 0)):
            poisoned_check(b, now)
        b.store(b.load("i64", now, s.REC_COUNT, 8) + 1, now, s.REC_COUNT, 8)
        number = (b.emit(f"ptrtoint {now} to i64", "i64") - records) / s.RECORD_SIZE
        known = b.ptr(table, number * l.STATIC_BYTES)
        entry = b.ptr(instructions, count * l.INSTRUCTION_BYTES)
        b.store(number.trunc("i32"), entry, l.INSTRUCTION_RECORD)
        b.store(b.load("i32", known, l.STATIC_CLOCKS), entry, l.INSTRUCTION_LDS)
        b.store(lines.trunc("i32"), entry, l.INSTRUCTION_FIRST_LINE)
        b.store(b.const("i32", 0), entry, l.INSTRUCTION_LINES)
        after = b.call_pointer(b.load("ptr", now, s.REC_FUNCTION, 8), "ptr", b.w, now)
        logged = b.load("i64", check, c.CK_LOG_COUNT, 8)
        with b.if_(logged.cmp("ne", 0)):
            b.store(b.const("i64", 0), check, c.CK_LOG_COUNT, 8)
            b.line(f"call void @{digest}({t}, {b.ptr(check, c.CK_LOG)}, {logged}, {known}, {entry})")
        b.store(count + 1, t, l.T_COUNT, 8)
        with b.if_(after.cmp("eq", 0)):
            b.store(budget.get(), b.w, s.BUDGET, 8)
            status = b.load("i32", b.w, s.STATUS)
            resume = status.cmp("eq", s.STATUS_BARRIER).select(b.ptr(now, s.RECORD_SIZE), now)
            b.store(resume, b.w, s.CURRENT, 8)
            b.ret(status)
        record.set(after)
    b.terminate("unreachable")
    return b.text()


def _digest(symbol: str) -> str:
    """``void symbol(trace, log, n, static, entry)``: LDS clocks and cache lines of one instruction from its accesses."""
    b = Builder(symbol, "ptr %t, ptr %log, i64 %n, ptr %known, ptr %item", "void")
    t, log, n = Value(b, "%t", "ptr"), Value(b, "%log", "ptr"), Value(b, "%n", "i64")
    known, entry = Value(b, "%known", "ptr"), Value(b, "%item", "ptr")
    rule = b.load("i32", known, l.STATIC_RULE)
    banked = rule.cmp("sge", 0)
    at = b.ptr(b.load("ptr", t, l.T_RULES, 8), banked.select(rule, 0).zext("i64") * l.RULE_BYTES)
    banks, groups = b.load("i32", at, l.RULE_BANKS).zext("i64"), b.load("i32", at, l.RULE_GROUPS).zext("i64")
    shared = b.load("i32", at, l.RULE_ATOMIC).cmp("eq", 0)
    counts, words = b.load("ptr", t, l.T_BANK_COUNTS, 8), b.load("ptr", t, l.T_BANK_WORDS, 8)
    deepest = b.alloca(f"[{l.MAX_SLOTS} x i32]")
    slots = b.var("i64", 0)
    before, turn = b.var("i64", -1), b.var("i64", 0)
    first_line = b.load("i32", entry, l.INSTRUCTION_FIRST_LINE).zext("i64")
    line_count = b.var("i64", first_line)
    lines = b.load("ptr", t, l.T_LINES, 8)
    index = b.load("i64", t, l.T_COUNT, 8).trunc("i32")

    def clear(upto: Value) -> None:
        """Makes empty bank lists for lane groups up to a number."""
        with b.while_(lambda: slots.get().cmp("ult", upto)):
            new = slots.get()
            b.store(b.const("i32", 0), deepest, new << 2)
            where = b.ptr(counts, new * (4 * l.MAX_BANKS))
            zero, no = b.const("i8", 0), b.const("i1", 0)
            b.call("llvm.memset.p0.i64", "void", where, zero, b.const("i64", 4 * l.MAX_BANKS), no)
            slots.set(new + 1)

    def lds(address: Value, lane: Value, size: Value) -> None:
        again = lane.cmp("eq", before.get())
        turn.set(again.select(turn.get() + 1, b.const("i64", 0)))
        before.set(lane)
        slot = b.load("i8", b.ptr(at, lane), l.RULE_GROUP_OF_LANE, 1).zext("i64") + turn.get() * groups
        with b.if_(slot.cmp("ult", l.MAX_SLOTS)):
            clear((turn.get() + 1) * groups)
            first = address >> 2
            with b.loop((((address + size) - 1) >> 2) - first + 1) as k:
                word = first + k
                place = slot * l.MAX_BANKS + (word & (banks - 1))
                have = b.load("i32", counts, place << 2)
                bank = b.ptr(words, place * (4 * l.BANK_DEPTH))
                fresh = b.var("i1", have.cmp("ult", l.BANK_DEPTH))
                with b.if_(shared):
                    with b.loop(have.zext("i64")) as j:
                        with b.if_(b.load("i32", bank, j << 2).cmp("eq", word.trunc("i32"))):
                            fresh.set(0)
                with b.if_(fresh.get()):
                    b.store(word.trunc("i32"), bank, have.zext("i64") << 2)
                    b.store(have + 1, counts, place << 2)
                    most = b.load("i32", deepest, slot << 2)
                    b.store(b.intrinsic("umax", most, have + 1), deepest, slot << 2)

    def memory(address: Value, size: Value) -> None:
        end = address + size
        left = b.var("i64", address)
        with b.while_(lambda: left.get().cmp("ult", end)):
            line = (left.get() >> l.LINE_SHIFT) << l.LINE_SHIFT
            stop = b.intrinsic("umin", line + (1 << l.LINE_SHIFT), end)
            part = (stop - left.get()).trunc("i16")
            found = b.var("ptr", b.const("ptr", 0))
            search = b.var("i64", line_count.get())
            with b.while_(lambda: search.get().cmp("ugt", first_line) & found.get().cmp("eq", 0)):
                search.set(search.get() - 1)
                candidate = b.ptr(lines, search.get() * l.LINE_BYTES)
                with b.if_(b.load("i64", candidate, l.LINE_ADDRESS, 8).cmp("eq", line)):
                    found.set(candidate)

            def grow() -> None:
                old = b.load("i16", found.get(), l.LINE_SIZE, 2)
                most = b.const("i16", 1 << l.LINE_SHIFT)
                b.store(b.intrinsic("umin", old + part, most), found.get(), l.LINE_SIZE, 2)

            def append() -> None:
                with b.if_((line_count.get() - first_line).cmp("ult", l.MAX_LINES)):
                    new = b.ptr(lines, line_count.get() * l.LINE_BYTES)
                    b.store(line, new, l.LINE_ADDRESS, 8)
                    b.store(part, new, l.LINE_SIZE, 2)
                    b.store(b.load("i16", known, l.STATIC_KIND, 1), new, l.LINE_KIND, 1)  # and its policy
                    b.store(index, new, l.LINE_INSTRUCTION)
                    line_count.set(line_count.get() + 1)

            b.if_else(found.get().cmp("ne", 0), grow, append)
            left.set(stop)

    with b.loop(n) as i:
        access = b.ptr(log, i * c.LOG_BYTES)
        what = b.load("i32", access, c.LOG_WHAT).zext("i64")
        address, size = b.load("i64", access, c.LOG_ADDRESS, 8), what & 0xFF
        in_lds = (what & c.LOG_LDS).cmp("ne", 0)
        with b.if_(in_lds & banked):
            lds(address, (what >> 8) & 63, size)
        with b.if_(~in_lds):
            memory(address, size)
    b.store(line_count.get(), t, l.T_LINE_COUNT, 8)
    b.store((line_count.get() - first_line).trunc("i32"), entry, l.INSTRUCTION_LINES)
    with b.if_(slots.get().cmp("ne", 0)):
        clocks = b.var("i32", 0)
        with b.loop(slots.get()) as i:
            clocks.set(clocks.get() + b.intrinsic("umax", b.load("i32", deepest, i << 2), b.const("i32", 1)))
        total = b.intrinsic("umin", clocks.get(), b.const("i32", 0xFFFF))
        b.store(total.trunc("i16"), entry, l.INSTRUCTION_LDS, 2)
        b.store((total - slots.get().trunc("i32")).trunc("i16"), entry, l.INSTRUCTION_CONFLICT, 2)
    b.ret()
    return b.text()
