"""Native model of one wave: when its next instruction may issue, how its time is accounted for, and when memory answers."""

from __future__ import annotations

from tileir.simulator.native.builder import Builder, Value
from tileir.simulator.timing import layout as l
from tileir.simulator.timing.records import ATOMIC, READ, Cause, Unit

_FOREVER = (1 << 62) - 1


class WaveModel:
    """Functions of a module whose names begin with that of its symbol."""

    def __init__(self, symbol: str) -> None:
        self.symbol = symbol

    def call(self, b: Builder, name: str, ty: str, *arguments: Value) -> Value:
        text = f"call {ty} @{self.symbol}_{name}({', '.join(map(str, arguments))})"
        if ty == "void":
            b.line(text)
            return b.const("i32", 0)
        return b.emit(text, ty)

    def builder(self, name: str, parameters: str, result: str) -> tuple[Builder, list[Value]]:
        b = Builder(f"{self.symbol}_{name}", parameters, result)
        values = [Value(b, p.split()[1], p.split()[0]) for p in parameters.split(", ")]
        return b, values

    # ---- accounting
    def interval(self) -> str:
        """``interval(cu, wave, start, end, unit, cause)``: notes what the wave did, as far as the window reaches."""
        b, (c, w, start, end, unit, cause) = self.builder(
            "interval", "ptr %c, ptr %w, i64 %start, i64 %end, i32 %unit, i32 %cause", "void"
        )
        count = b.load("i64", c, l.C_INTERVAL_COUNT, 8)
        with b.if_(start.cmp("uge", b.load("i64", c, l.C_WINDOW, 8))):
            b.ret()
        record = record_of(b, w)
        last = b.load("i64", w, l.W_INTERVAL, 8)
        all_ = b.load("ptr", c, l.C_INTERVALS, 8)
        with b.if_(last.cmp("ne", 0) & cause.cmp("ne", int(Cause.NONE))):
            old = b.ptr(all_, (last - 1) * l.INTERVAL_BYTES)
            same = b.load("i8", old, l.I_CAUSE, 1).zext("i32").cmp("eq", cause)
            same = same & b.load("i32", old, l.I_RECORD).cmp("eq", record)
            with b.if_(same & b.load("i64", old, l.I_END, 8).cmp("eq", start)):
                b.store(end, old, l.I_END, 8)
                b.ret()
        with b.if_(count.cmp("uge", b.load("i64", c, l.C_INTERVAL_CAPACITY, 8))):
            b.ret()
        new = b.ptr(all_, count * l.INTERVAL_BYTES)
        b.store(start, new, l.I_START, 8)
        b.store(end, new, l.I_END, 8)
        b.store(record, new, l.I_RECORD)
        b.store(b.load("i32", w, l.W_INDEX).trunc("i16"), new, l.I_WAVE, 2)
        b.store(b.load("i32", w, l.W_SIMD).trunc("i8"), new, l.I_SIMD, 1)
        b.store(unit.trunc("i8"), new, l.I_UNIT, 1)
        b.store(cause.trunc("i8"), new, l.I_CAUSE, 1)
        b.store(count + 1, c, l.C_INTERVAL_COUNT, 8)
        b.store(count + 1, w, l.W_INTERVAL, 8)
        b.ret()
        return b.text()

    def account(self) -> str:
        """``account(cu, wave, cause, until)``: the wave waits for a cause from where it was accounted for until then."""
        b, (c, w, cause, until) = self.builder("account", "ptr %c, ptr %w, i32 %cause, i64 %until", "void")
        mark = b.load("i64", w, l.W_MARK, 8)
        with b.if_(until.cmp("ugt", mark)):
            at = (record_of(b, w).zext("i64") * l.CAUSES) + cause.zext("i64")
            cell = b.ptr(b.load("ptr", c, l.C_STALLS, 8), at << 3)
            b.store(b.load("i64", cell, 0, 8) + (until - mark), cell, 0, 8)
            self.call(b, "interval", "void", c, w, mark, until, b.const("i32", int(Unit.NONE)), cause)
            b.store(until, w, l.W_MARK, 8)
        b.ret()
        return b.text()

    def wait(self, b: Builder, c: Value, w: Value, cause: Cause, until: Value) -> None:
        self.call(b, "account", "void", c, w, b.const("i32", int(cause)), until)

    # ---- when the next instruction may issue
    def registers(self) -> str:
        """``registers(cu, wave, static) -> clock`` from which all results that the instruction needs may be used."""
        b, (c, w, known) = self.builder("registers", "ptr %c, ptr %w, ptr %known", "i64")
        latest = b.var("i64", 0)
        numbers = b.ptr(b.load("ptr", c, l.C_LIST, 8), b.load("i32", known, l.S_LIST).zext("i64") << 1)
        position = b.var("i64", 0)

        def register() -> Value:
            number = b.load("i16", numbers, position.get() << 1, 2).zext("i64")
            position.set(position.get() + 1)
            return b.ptr(b.ptr(w, number * l.R_BYTES), l.W_REGISTERS)

        def writer(cell: Value) -> Value:
            record = b.load("i32", cell, l.R_RECORD).zext("i64")
            return b.ptr(b.load("ptr", c, l.C_STATIC, 8), record * l.S_BYTES)

        def after(cell: Value, clocks: Value) -> None:
            latest.set(b.intrinsic("umax", latest.get(), b.load("i64", cell, l.R_ISSUED, 8) + clocks.zext("i64")))

        with b.loop(b.load("i32", known, l.S_USES).zext("i64")):
            latest.set(b.intrinsic("umax", latest.get(), b.load("i64", register(), l.R_USABLE, 8)))
        with b.loop(b.load("i32", known, l.S_FACTORS).zext("i64")):
            cell = register()
            after(cell, b.load("i32", writer(cell), l.S_TO_FACTOR))
        first, count = b.load("i32", known, l.S_ACCUMULATOR), b.load("i32", known, l.S_ACCUMULATOR_COUNT)
        with b.loop(count.zext("i64")):
            cell = register()
            made = writer(cell)
            whole = b.load("i32", made, l.S_RESULT).cmp("eq", first)
            whole = whole & b.load("i32", made, l.S_RESULT_COUNT).cmp("eq", count)
            same = b.load("i32", made, l.S_OPCODE).cmp("eq", b.load("i32", known, l.S_OPCODE))
            continued = same.select(b.load("i32", made, l.S_TO_SAME), b.load("i32", made, l.S_TO_OTHER))
            after(cell, whole.select(continued, b.load("i32", made, l.S_TO_PARTIAL)))
        b.ret(latest.get())
        return b.text()

    def waits(self) -> str:
        """``waits(wave, clock, counter, most) -> clock`` at which at most so many operations are on their way.

        counter: 0 for vmcnt, whose operations end in order; 1 for lgkmcnt, where scalar loads may overtake.
        """
        b, (w, t, counter, most) = self.builder("waits", "ptr %w, i64 %t, i32 %counter, i32 %most", "i64")
        with b.if_(counter.cmp("eq", 0)):
            ring = l.VM_RING - 1

            def oldest() -> Value:
                head = b.load("i32", w, l.W_VM_HEAD) & ring
                return b.load("i64", b.ptr(w, head.zext("i64") << 3), l.W_VM, 8)

            with b.while_(lambda: b.load("i32", w, l.W_VM_COUNT).cmp("ne", 0) & oldest().cmp("ule", t)):
                b.store((b.load("i32", w, l.W_VM_HEAD) + 1) & ring, w, l.W_VM_HEAD)
                b.store(b.load("i32", w, l.W_VM_COUNT) - 1, w, l.W_VM_COUNT)
            count = b.load("i32", w, l.W_VM_COUNT)
            with b.if_(count.cmp("ule", most)):
                b.ret(t)
            last = (b.load("i32", w, l.W_VM_HEAD) + count - most - 1) & ring
            b.ret(b.load("i64", b.ptr(w, last.zext("i64") << 3), l.W_VM, 8))
        kept = b.var("i32", 0)
        count = b.load("i32", w, l.W_LGKM_COUNT)
        with b.loop(count, "i32") as i:
            end = b.load("i64", b.ptr(w, i.zext("i64") << 3), l.W_LGKM, 8)
            with b.if_(end.cmp("ugt", t)):
                b.store(end, b.ptr(w, kept.get().zext("i64") << 3), l.W_LGKM, 8)
                kept.set(kept.get() + 1)
        b.store(kept.get(), w, l.W_LGKM_COUNT)
        left = kept.get()
        with b.if_(left.cmp("ule", most)):
            b.ret(t)
        best = b.var("i64", _FOREVER)
        with b.loop(left, "i32") as i:
            end = b.load("i64", b.ptr(w, i.zext("i64") << 3), l.W_LGKM, 8)
            done = b.var("i32", 0)
            with b.loop(left, "i32") as j:
                other = b.load("i64", b.ptr(w, j.zext("i64") << 3), l.W_LGKM, 8)
                done.set(done.get() + other.cmp("ule", end).zext("i32"))
            with b.if_(done.get().cmp("uge", left - most)):
                best.set(b.intrinsic("umin", best.get(), end))
        b.ret(best.get())
        return b.text()

    def prepare(self) -> str:
        """``prepare(cu, wave, clock)``: the wave comes to its next instruction at a clock."""
        b, (c, w, t) = self.builder("prepare", "ptr %c, ptr %w, i64 %t", "void")
        b.store(t, w, l.W_MARK, 8)
        record = record_of(b, w)
        known = b.ptr(b.load("ptr", c, l.C_STATIC, 8), record.zext("i64") * l.S_BYTES)
        b.store(known, w, l.W_STATIC, 8)
        ready = b.var("i64", t)

        def until(cause: Cause, clock: Value) -> None:
            self.wait(b, c, w, cause, clock)
            ready.set(b.intrinsic("umax", ready.get(), clock))

        until(Cause.DEPENDENCY, self.call(b, "registers", "i64", c, w, known))
        counts = [(Cause.WAIT_VM, l.S_WAIT_VM), (Cause.WAIT_LGKM, l.S_WAIT_LGKM)]
        wanted = [b.load("i32", known, offset) for _, offset in counts]
        with b.if_((wanted[0] & wanted[1]).cmp("ne", -1)):
            ends: list[Value] = []
            for counter, count in enumerate(wanted):
                most = count.cmp("eq", -1).select(b.const("i32", 255), count)
                ends.append(self.call(b, "waits", "i64", w, t, b.const("i32", counter), most))

            def in_order(first: int, second: int) -> None:
                until(counts[first][0], ends[first])
                until(counts[second][0], ends[second])

            b.if_else(ends[0].cmp("ult", ends[1]), lambda: in_order(0, 1), lambda: in_order(1, 0))
        b.store(ready.get(), w, l.W_READY, 8)
        b.ret()
        return b.text()

    # ---- memory beyond the CU
    def memory(self) -> str:
        """``memory(cu, wave, clock) -> clock`` at which the lines of the wave's instruction have come."""
        b, (c, w, t) = self.builder("memory", "ptr %c, ptr %w, i64 %t", "i64")
        entry = entry_of(b, w)
        scalar = (b.load("i32", b.load("ptr", w, l.W_STATIC, 8), l.S_FLAGS) & l.F_SCALAR).cmp("ne", 0)
        now = t.cast("uitofp", "double")
        near = scalar.select(b.load("double", c, l.C_SCALAR_LATENCY, 8), b.load("double", c, l.C_LATENCY, 8))
        done = b.var("double", now + near)
        first = b.load("i32", entry, l.INSTRUCTION_FIRST_LINE).zext("i64")
        lines = b.ptr(b.load("ptr", w, l.W_LINES, 8), first * l.LINE_BYTES)
        levels = b.ptr(b.load("ptr", w, l.W_LEVELS, 8), first)
        moved_at = b.ptr(b.load("ptr", c, l.C_BYTES_MOVED, 8), record_of(b, w).zext("i64") << 5)

        def serve(level: int, clocks: Value) -> Value:
            free = b.intrinsic("maxnum", b.load("double", c, l.C_SERVER + 8 * level, 8), now) + clocks
            b.store(free, c, l.C_SERVER + 8 * level, 8)
            return free

        def rate(level: int) -> Value:
            return b.load("double", c, l.C_CLOCKS_PER_BYTE + 8 * level, 8)

        with b.loop(b.load("i32", entry, l.INSTRUCTION_LINES).zext("i64")) as i:
            line = b.ptr(lines, i * l.LINE_BYTES)
            level = b.load("i8", b.ptr(levels, i), 0, 1).zext("i64")
            touched = b.load("i16", line, l.LINE_SIZE, 2).zext("i64")
            reads = (b.load("i8", line, l.LINE_KIND, 1) & (READ | ATOMIC)).cmp("ne", 0)
            whole = reads & level.cmp("ne", 0)
            moved = whole.select(b.const("i64", 1 << l.LINE_SHIFT), touched)
            cell = b.ptr(moved_at, level << 3)
            b.store(b.load("i64", cell, 0, 8) + moved, cell, 0, 8)
            queue = b.var("double", now)
            with b.if_(~scalar):
                least = b.load("double", c, l.C_LINE_CLOCKS, 8)
                clocks = touched.cast("uitofp", "double") * rate(0)
                queue.set(serve(0, b.intrinsic("maxnum", clocks, least)))
            for beyond in (1, 2, 3):
                with b.if_(level.cmp("uge", beyond)):
                    free = serve(beyond, moved.cast("uitofp", "double") * rate(beyond))
                    queue.set(b.intrinsic("maxnum", queue.get(), free))
            far = b.load("double", b.ptr(c, level << 3), l.C_LATENCY, 8)
            latency = level.cmp("eq", 0).select(near, far)
            arrival = b.var("double", queue.get() + latency)
            address = b.load("i64", line, l.LINE_ADDRESS, 8)
            number = address >> l.LINE_SHIFT
            place = (number ^ (number >> 13)) & (l.FILLS - 1)
            fill = b.ptr(b.load("ptr", c, l.C_FILLS, 8), place * l.FILL_BYTES)
            known = b.load("i64", fill, l.FILL_LINE, 8).cmp("eq", address)
            with b.if_(known):  # a line that is on its way is not there yet
                arrival.set(b.intrinsic("maxnum", arrival.get(), b.load("double", fill, l.FILL_ARRIVAL, 8)))
            with b.if_(~known & whole):
                b.store(address, fill, l.FILL_LINE, 8)
                b.store(arrival.get(), fill, l.FILL_ARRIVAL, 8)
            done.set(b.intrinsic("maxnum", done.get(), arrival.get()))
        b.ret(b.intrinsic("ceil", done.get()).cast("fptoui", "i64"))
        return b.text()


def entry_of(b: Builder, w: Value) -> Value:
    """The recorded instruction at which a wave stands."""
    return b.ptr(b.load("ptr", w, l.W_TRACE, 8), b.load("i64", w, l.W_POSITION, 8) * l.INSTRUCTION_BYTES)


def record_of(b: Builder, w: Value) -> Value:
    return b.load("i32", entry_of(b, w), l.INSTRUCTION_RECORD)


def simd_of(b: Builder, c: Value, number: Value) -> Value:
    return b.ptr(b.ptr(c, number * l.D_BYTES), l.C_SIMD)


def wave_at(b: Builder, c: Value, d: Value, place: Value) -> Value:
    """The wave at a place of a SIMD's list."""
    number = b.load("i32", b.ptr(d, place.zext("i64") << 2), l.D_WAVES)
    return b.ptr(b.load("ptr", c, l.C_WAVES, 8), number.zext("i64") * l.W_BYTES)


def wake(b: Builder, d: Value, clock: Value) -> None:
    """Wakes a SIMD at a clock, at the latest."""
    b.store(b.intrinsic("umin", b.load("i64", d, l.D_NEXT, 8), clock), d, l.D_NEXT, 8)
