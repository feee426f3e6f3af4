"""Native model of one compute unit: waves on four SIMDs that issue what they did in a recorded execution.

Each clock serves one SIMD. In its turn a SIMD issues at most one instruction of each class, from different waves, those of
higher priority first and then the older ones. All times at which results and counters are ready are known when the
instruction that makes them issues, so a wave that waits has one clock before which it need not be looked at.
"""

from __future__ import annotations

from tileir.simulator.native.builder import Builder, Value
from tileir.simulator.timing import layout as l
from tileir.simulator.timing.library import one_module
from tileir.simulator.timing.records import ATOMIC, READ, Cause, Unit

_NEVER = (1 << 62) - 1
_PRIORITIES = 4
_LGKM_MOST, _VM_MOST = 15, 63


def cu_model(symbol: str) -> str:
    """Module of ``i32 symbol(ptr cu)``: runs all workgroups to their end; 1 when waves wait for each other forever."""
    return one_module(_Model(symbol).functions())


class _Model:
    def __init__(self, symbol: str) -> None:
        self.symbol = symbol

    def _call(self, b: Builder, name: str, ty: str, *arguments: Value) -> Value:
        text = f"call {ty} @{self.symbol}_{name}({', '.join(map(str, arguments))})"
        if ty == "void":
            b.line(text)
            return b.const("i32", 0)
        return b.emit(text, ty)

    def _builder(self, name: str, parameters: str, result: str) -> tuple[Builder, list[Value]]:
        b = Builder(f"{self.symbol}_{name}", parameters, result)
        values = [Value(b, p.split()[1], p.split()[0]) for p in parameters.split(", ")]
        return b, values

    def functions(self) -> list[str]:
        return [
            self._interval(),
            self._account(),
            self._registers(),
            self._waits(),
            self._prepare(),
            self._memory(),
            self._launch(),
            self._release(),
            self._retire(),
            self._effects(),
            self._try(),
            self._main(),
        ]

    # ---- accounting
    def _interval(self) -> str:
        """``interval(cu, wave, start, end, unit, cause)``: notes what the wave did, as far as the window reaches."""
        b, (c, w, start, end, unit, cause) = self._builder(
            "interval", "ptr %c, ptr %w, i64 %start, i64 %end, i32 %unit, i32 %cause", "void"
        )
        count = b.load("i64", c, l.C_INTERVAL_COUNT, 8)
        with b.if_(start.cmp("uge", b.load("i64", c, l.C_WINDOW, 8))):
            b.ret()
        record = _record(b, w)
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

    def _account(self) -> str:
        """``account(cu, wave, cause, until)``: the wave waits for a cause from where it was accounted for until then."""
        b, (c, w, cause, until) = self._builder("account", "ptr %c, ptr %w, i32 %cause, i64 %until", "void")
        mark = b.load("i64", w, l.W_MARK, 8)
        with b.if_(until.cmp("ugt", mark)):
            at = (_record(b, w).zext("i64") * l.CAUSES) + cause.zext("i64")
            cell = b.ptr(b.load("ptr", c, l.C_STALLS, 8), at << 3)
            b.store(b.load("i64", cell, 0, 8) + (until - mark), cell, 0, 8)
            self._call(b, "interval", "void", c, w, mark, until, b.const("i32", int(Unit.NONE)), cause)
            b.store(until, w, l.W_MARK, 8)
        b.ret()
        return b.text()

    def _wait(self, b: Builder, c: Value, w: Value, cause: Cause, until: Value) -> None:
        self._call(b, "account", "void", c, w, b.const("i32", int(cause)), until)

    # ---- when the next instruction may issue
    def _registers(self) -> str:
        """``registers(cu, wave, static) -> clock`` from which all results that the instruction needs may be used."""
        b, (c, w, known) = self._builder("registers", "ptr %c, ptr %w, ptr %known", "i64")
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

    def _waits(self) -> str:
        """``waits(wave, clock, counter, most) -> clock`` at which at most so many operations are on their way.

        counter: 0 for vmcnt, whose operations end in order; 1 for lgkmcnt, where scalar loads may overtake.
        """
        b, (w, t, counter, most) = self._builder("waits", "ptr %w, i64 %t, i32 %counter, i32 %most", "i64")
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
        best = b.var("i64", _NEVER)
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

    def _prepare(self) -> str:
        """``prepare(cu, wave, clock)``: the wave comes to its next instruction at a clock."""
        b, (c, w, t) = self._builder("prepare", "ptr %c, ptr %w, i64 %t", "void")
        b.store(t, w, l.W_MARK, 8)
        record = _record(b, w)
        known = b.ptr(b.load("ptr", c, l.C_STATIC, 8), record.zext("i64") * l.S_BYTES)
        b.store(known, w, l.W_STATIC, 8)
        ready = b.var("i64", t)

        def until(cause: Cause, clock: Value) -> None:
            self._wait(b, c, w, cause, clock)
            ready.set(b.intrinsic("umax", ready.get(), clock))

        until(Cause.DEPENDENCY, self._call(b, "registers", "i64", c, w, known))
        counts = [(Cause.WAIT_VM, l.S_WAIT_VM), (Cause.WAIT_LGKM, l.S_WAIT_LGKM)]
        wanted = [b.load("i32", known, offset) for _, offset in counts]
        with b.if_((wanted[0] & wanted[1]).cmp("ne", -1)):
            ends: list[Value] = []
            for counter, count in enumerate(wanted):
                most = count.cmp("eq", -1).select(b.const("i32", 255), count)
                ends.append(self._call(b, "waits", "i64", w, t, b.const("i32", counter), most))

            def in_order(first: int, second: int) -> None:
                until(counts[first][0], ends[first])
                until(counts[second][0], ends[second])

            b.if_else(ends[0].cmp("ult", ends[1]), lambda: in_order(0, 1), lambda: in_order(1, 0))
        b.store(ready.get(), w, l.W_READY, 8)
        b.ret()
        return b.text()

    # ---- memory beyond the CU
    def _memory(self) -> str:
        """``memory(cu, wave, clock) -> clock`` at which the lines of the wave's instruction have come."""
        b, (c, w, t) = self._builder("memory", "ptr %c, ptr %w, i64 %t", "i64")
        entry = _entry(b, w)
        scalar = (b.load("i32", b.load("ptr", w, l.W_STATIC, 8), l.S_FLAGS) & l.F_SCALAR).cmp("ne", 0)
        now = t.cast("uitofp", "double")
        near = scalar.select(b.load("double", c, l.C_SCALAR_LATENCY, 8), b.load("double", c, l.C_LATENCY, 8))
        done = b.var("double", now + near)
        first = b.load("i32", entry, l.INSTRUCTION_FIRST_LINE).zext("i64")
        lines = b.ptr(b.load("ptr", w, l.W_LINES, 8), first * l.LINE_BYTES)
        levels = b.ptr(b.load("ptr", w, l.W_LEVELS, 8), first)
        moved_at = b.ptr(b.load("ptr", c, l.C_BYTES_MOVED, 8), _record(b, w).zext("i64") << 5)

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
            done.set(b.intrinsic("maxnum", done.get(), queue.get() + latency))
        b.ret(b.intrinsic("ceil", done.get()).cast("fptoui", "i64"))
        return b.text()

    # ---- waves and workgroups
    def _launch(self) -> str:
        """``launch(cu, group, clock)``: each wave goes to the SIMD with the fewest waves, the next one in turn if equal."""
        b, (c, group, t) = self._builder("launch", "ptr %c, i64 %group, i64 %t", "void")
        g = b.ptr(b.load("ptr", c, l.C_GROUPS, 8), group * l.G_BYTES)
        first, n = b.load("i32", g, l.G_FIRST), b.load("i32", g, l.G_WAVES)
        b.store(n, g, l.G_ALIVE)
        b.store(b.load("i64", c, l.C_ALIVE, 8) + n.zext("i64"), c, l.C_ALIVE, 8)
        start = b.var("i64", t)
        with b.loop(n, "i32") as i:
            best, fewest = b.var("i64", 0), b.var("i32", 1 << 30)
            last = b.load("i64", c, l.C_LAST_SIMD, 8)
            with b.loop(l.SIMDS) as k:
                simd = (last + k + 1) & (l.SIMDS - 1)
                count = b.load("i32", _simd(b, c, simd), l.D_COUNT)
                with b.if_(count.cmp("ult", fewest.get())):
                    fewest.set(count)
                    best.set(simd)
            chosen = best.get()
            b.store(chosen, c, l.C_LAST_SIMD, 8)
            d = _simd(b, c, chosen)
            number = first + i
            w = b.ptr(b.load("ptr", c, l.C_WAVES, 8), number.zext("i64") * l.W_BYTES)
            b.store(chosen.trunc("i32"), w, l.W_SIMD)
            b.store(b.const("i32", l.RUNNING), w, l.W_STATUS)
            slot, taken = b.var("i32", 0), b.var("i1", 1)
            with b.while_(lambda: taken.get()):
                taken.set(0)
                with b.loop(fewest.get(), "i32") as k:
                    if_same = b.load("i32", _wave_of(b, c, d, k), l.W_SLOT).cmp("eq", slot.get())
                    taken.set(taken.get() | if_same)
                slot.set(slot.get() + taken.get().zext("i32"))
            b.store(slot.get(), w, l.W_SLOT)
            b.store(number, b.ptr(d, fewest.get().zext("i64") << 2), l.D_WAVES)
            b.store(fewest.get() + 1, d, l.D_COUNT)
            b.store(start.get(), w, l.W_START, 8)
            self._call(b, "prepare", "void", c, w, start.get())
            _sooner(b, d, b.load("i64", w, l.W_READY, 8))
            start.set(start.get() + b.load("i64", c, l.C_WAVE_LAUNCH, 8))
        b.ret()
        return b.text()

    def _release(self) -> str:
        """``release(cu, group, clock)``: lets the waves at a barrier go on when all that are alive have come."""
        b, (c, g, t) = self._builder("release", "ptr %c, ptr %g, i64 %t", "void")
        waiting = b.load("i32", g, l.G_WAITING)
        with b.if_(waiting.cmp("ult", b.load("i32", g, l.G_ALIVE)) | waiting.cmp("eq", 0)):
            b.ret()
        b.store(b.const("i32", 0), g, l.G_WAITING)
        free = t + b.load("i64", c, l.C_BARRIER, 8)
        with b.loop(b.load("i32", g, l.G_WAVES), "i32") as i:
            number = (b.load("i32", g, l.G_FIRST) + i).zext("i64")
            w = b.ptr(b.load("ptr", c, l.C_WAVES, 8), number * l.W_BYTES)
            with b.if_(b.load("i32", w, l.W_STATUS).cmp("eq", l.AT_BARRIER)):
                self._wait(b, c, w, Cause.BARRIER, free)
                b.store(b.load("i64", w, l.W_POSITION, 8) + 1, w, l.W_POSITION, 8)
                b.store(b.const("i32", l.RUNNING), w, l.W_STATUS)
                self._call(b, "prepare", "void", c, w, free)
                _sooner(b, _simd(b, c, b.load("i32", w, l.W_SIMD).zext("i64")), b.load("i64", w, l.W_READY, 8))
        b.ret()
        return b.text()

    def _retire(self) -> str:
        """``retire(cu, wave, clock)``: the wave ends; behind the last of its workgroup the next workgroup starts."""
        b, (c, w, t) = self._builder("retire", "ptr %c, ptr %w, i64 %t", "void")
        b.store(b.const("i32", l.ENDED), w, l.W_STATUS)
        b.store(t, w, l.W_END, 8)
        b.store(b.load("i64", c, l.C_ALIVE, 8) - 1, c, l.C_ALIVE, 8)
        d = _simd(b, c, b.load("i32", w, l.W_SIMD).zext("i64"))
        kept = b.var("i32", 0)
        me = b.load("i32", w, l.W_INDEX)
        with b.loop(b.load("i32", d, l.D_COUNT), "i32") as i:
            number = b.load("i32", b.ptr(d, i.zext("i64") << 2), l.D_WAVES)
            with b.if_(number.cmp("ne", me)):
                b.store(number, b.ptr(d, kept.get().zext("i64") << 2), l.D_WAVES)
                kept.set(kept.get() + 1)
        b.store(kept.get(), d, l.D_COUNT)
        group = b.load("i32", w, l.W_GROUP).zext("i64")
        g = b.ptr(b.load("ptr", c, l.C_GROUPS, 8), group * l.G_BYTES)
        alive = b.load("i32", g, l.G_ALIVE) - 1
        b.store(alive, g, l.G_ALIVE)

        def next_group() -> None:
            b.store(t, g, l.G_END, 8)
            following = b.load("i64", c, l.C_NEXT_GROUP, 8)
            with b.if_(following.cmp("ult", b.load("i64", c, l.C_GROUP_COUNT, 8))):
                b.store(following + 1, c, l.C_NEXT_GROUP, 8)
                self._call(b, "launch", "void", c, following, t + b.load("i64", c, l.C_GROUP_LAUNCH, 8))

        b.if_else(alive.cmp("eq", 0), next_group, lambda: void(self._call(b, "release", "void", c, g, t)))
        b.ret()
        return b.text()

    # ---- issue
    def _effects(self) -> str:
        """``effects(cu, wave, simd, clock)``: what the instruction does to units, counters and registers."""
        b, (c, w, simd, t) = self._builder("effects", "ptr %c, ptr %w, i64 %simd, i64 %t", "void")
        d = _simd(b, c, simd)
        known = b.load("ptr", w, l.W_STATIC, 8)
        flags, busy = b.load("i32", known, l.S_FLAGS), b.load("i32", known, l.S_BUSY).zext("i64")
        unit = b.load("i32", known, l.S_UNIT)
        entry = _entry(b, w)
        occupied = b.var("i64", busy)

        with b.if_(unit.cmp("eq", int(Unit.VALU))):
            b.store(t + busy, d, l.D_VALU_FREE, 8)
        with b.if_(unit.cmp("eq", int(Unit.MFMA))):
            b.store(t + busy, d, l.D_MFMA_FREE, 8)
            b.store(t + b.load("i64", c, l.C_VALU_CLOSED, 8), d, l.D_VALU_OPEN, 8)
        with b.if_(unit.cmp("eq", int(Unit.VMEM))):
            b.store(t + busy, d, l.D_VMEM_FREE, 8)
        end = b.var("i64", t)
        memory = (flags & (l.F_VM | l.F_SCALAR)).cmp("ne", 0)
        with b.if_(memory):
            end.set(self._call(b, "memory", "i64", c, w, t))
        bank = b.load("i16", entry, l.INSTRUCTION_LDS, 2).zext("i64") * b.load("i64", c, l.C_LDS_SHARE, 8)
        pair = b.ptr(c, (simd >> 1) * l.P_BYTES)
        with b.if_((flags & (l.F_LDS | l.F_TO_LDS)).cmp("ne", 0)):
            start = b.intrinsic("umax", t, b.load("i64", pair, l.C_PAIR + l.P_FREE, 8))
            served = start + bank
            b.store(served, pair, l.C_PAIR + l.P_FREE, 8)
            with b.if_((flags & l.F_LDS).cmp("ne", 0)):
                path = b.load("i32", known, l.S_RETURN).zext("i64")
                free = b.load("i64", d, l.D_RETURN_FREE, 8)
                through = b.intrinsic("umax", served, b.intrinsic("umax", free, start) + path)
                b.store(through, d, l.D_RETURN_FREE, 8)
                room = l.PAIR_ROOM - 1
                count = b.load("i64", pair, l.C_PAIR + l.P_COUNT, 8)
                tail = (b.load("i64", pair, l.C_PAIR + l.P_HEAD, 8) + count) & room
                b.store(through, b.ptr(pair, tail << 3), l.C_PAIR + l.P_QUEUE, 8)
                b.store(count + 1, pair, l.C_PAIR + l.P_COUNT, 8)
                arrived = through + b.load("i64", c, l.C_LDS_LATENCY, 8)
                in_order = b.intrinsic("umax", arrived, b.load("i64", w, l.W_LDS_LAST, 8))
                b.store(in_order, w, l.W_LDS_LAST, 8)
                end.set(b.intrinsic("umax", end.get(), in_order))
                occupied.set(bank)
        with b.if_((flags & l.F_VM).cmp("ne", 0)):
            in_order = b.intrinsic("umax", end.get(), b.load("i64", w, l.W_VM_LAST, 8))
            b.store(in_order, w, l.W_VM_LAST, 8)
            count = b.load("i32", w, l.W_VM_COUNT)
            tail = (b.load("i32", w, l.W_VM_HEAD) + count) & (l.VM_RING - 1)
            b.store(in_order, b.ptr(w, tail.zext("i64") << 3), l.W_VM, 8)
            b.store(count + 1, w, l.W_VM_COUNT)
        with b.if_((flags & l.F_LGKM).cmp("ne", 0)):
            count = b.load("i32", w, l.W_LGKM_COUNT)
            b.store(end.get(), b.ptr(w, count.zext("i64") << 3), l.W_LGKM, 8)
            b.store(count + 1, w, l.W_LGKM_COUNT)
        use = b.load("i32", known, l.S_TO_USE).zext("i64")
        with b.if_(use.cmp("ne", 0)):
            first = b.load("i32", known, l.S_RESULT).zext("i64")
            record = _record(b, w)
            with b.loop(b.load("i32", known, l.S_RESULT_COUNT).zext("i64")) as i:
                cell = b.ptr(b.ptr(w, (first + i) * l.R_BYTES), l.W_REGISTERS)
                b.store(t + use, cell, l.R_USABLE, 8)
                b.store(t, cell, l.R_ISSUED, 8)
                b.store(record, cell, l.R_RECORD)
        none = b.const("i32", int(Cause.NONE))
        self._call(b, "interval", "void", c, w, t, t + occupied.get(), unit, none)
        b.ret()
        return b.text()

    def _try(self) -> str:
        """``try(cu, wave, simd, clock, used) -> used``: issues the wave's instruction if its class and unit are free.

        used: bits of the classes from which an instruction has issued in this turn.
        """
        b, (c, w, simd, t, used) = self._builder("try", "ptr %c, ptr %w, i64 %simd, i64 %t, i32 %used", "i32")
        d = _simd(b, c, simd)
        known = b.load("ptr", w, l.W_STATIC, 8)
        flags, unit = b.load("i32", known, l.S_FLAGS), b.load("i32", known, l.S_UNIT)
        class_ = b.load("i32", known, l.S_CLASS)

        def blocked(cause: Cause, clock: Value) -> None:
            """Leaves when a unit is busy until a later clock."""
            with b.if_(clock.cmp("ugt", t)):
                self._wait(b, c, w, cause, clock)
                b.store(clock, w, l.W_READY, 8)
                b.ret(used)

        self._wait(b, c, w, Cause.ISSUE, t)
        with b.if_((used & class_).cmp("ne", 0)):
            blocked(Cause.ISSUE, t + l.SIMDS)
        with b.if_(unit.cmp("eq", int(Unit.VALU))):
            blocked(Cause.VALU_BUSY, b.load("i64", d, l.D_VALU_FREE, 8))
            blocked(Cause.MFMA_BUSY, b.load("i64", d, l.D_VALU_OPEN, 8))
            alone = (flags & l.F_PACKED).cmp("ne", 0) & b.load("i64", c, l.C_PACKED_OPEN, 8).cmp("eq", 0)
            with b.if_(alone):
                blocked(Cause.MFMA_BUSY, b.load("i64", d, l.D_MFMA_FREE, 8))
        with b.if_(unit.cmp("eq", int(Unit.MFMA))):
            blocked(Cause.MFMA_BUSY, b.load("i64", d, l.D_MFMA_FREE, 8))
        with b.if_(unit.cmp("eq", int(Unit.VMEM))):
            blocked(Cause.VMEM_BUSY, b.load("i64", d, l.D_VMEM_FREE, 8))
        with b.if_((flags & l.F_VM).cmp("ne", 0)):
            counter, most = b.const("i32", 0), b.const("i32", _VM_MOST - 1)
            blocked(Cause.VMEM_BUSY, self._call(b, "waits", "i64", w, t, counter, most))
        with b.if_((flags & l.F_LGKM).cmp("ne", 0)):
            counter, most = b.const("i32", 1), b.const("i32", _LGKM_MOST - 1)
            blocked(Cause.LDS_BUSY, self._call(b, "waits", "i64", w, t, counter, most))
        with b.if_((flags & l.F_LDS).cmp("ne", 0)):
            pair = b.ptr(c, (simd >> 1) * l.P_BYTES)
            room = l.PAIR_ROOM - 1

            def oldest() -> Value:
                head = b.load("i64", pair, l.C_PAIR + l.P_HEAD, 8)
                return b.load("i64", b.ptr(pair, head << 3), l.C_PAIR + l.P_QUEUE, 8)

            def count() -> Value:
                return b.load("i64", pair, l.C_PAIR + l.P_COUNT, 8)

            with b.while_(lambda: count().cmp("ne", 0) & oldest().cmp("ule", t)):
                b.store((b.load("i64", pair, l.C_PAIR + l.P_HEAD, 8) + 1) & room, pair, l.C_PAIR + l.P_HEAD, 8)
                b.store(count() - 1, pair, l.C_PAIR + l.P_COUNT, 8)
            with b.if_(count().cmp("uge", b.load("i64", c, l.C_LDS_QUEUE, 8))):
                blocked(Cause.LDS_BUSY, oldest())
        self._call(b, "effects", "void", c, w, simd, t)
        with b.if_((flags & l.F_PRIORITY).cmp("ne", 0)):
            b.store(b.load("i32", known, l.S_VALUE), w, l.W_PRIORITY)
        after = t + l.SIMDS
        b.store(after, w, l.W_MARK, 8)
        with b.if_((flags & l.F_END).cmp("ne", 0)):
            self._call(b, "retire", "void", c, w, after)
            b.ret(used | class_)
        with b.if_((flags & l.F_BARRIER).cmp("ne", 0)):
            g = b.ptr(b.load("ptr", c, l.C_GROUPS, 8), b.load("i32", w, l.W_GROUP).zext("i64") * l.G_BYTES)
            b.store(b.const("i32", l.AT_BARRIER), w, l.W_STATUS)
            b.store(b.load("i32", g, l.G_WAITING) + 1, g, l.G_WAITING)
            self._call(b, "release", "void", c, g, after)
            b.ret(used | class_)
        position = b.load("i64", w, l.W_POSITION, 8)
        here = _record(b, w)
        b.store(position + 1, w, l.W_POSITION, 8)
        jumped = _record(b, w).cmp("ne", here + 1)
        delay = jumped.select(b.load("i32", known, l.S_TAKEN_DELAY), b.load("i32", known, l.S_DELAY)).zext("i64")
        b.store(position, w, l.W_POSITION, 8)
        branch, sleep = b.const("i32", int(Cause.BRANCH)), b.const("i32", int(Cause.SLEEP))
        cause = unit.cmp("eq", int(Unit.BRANCH)).select(branch, sleep)
        self._call(b, "account", "void", c, w, cause, t + delay)
        b.store(position + 1, w, l.W_POSITION, 8)
        self._call(b, "prepare", "void", c, w, t + delay)
        b.ret(used | class_)
        return b.text()

    def _main(self) -> str:
        b = Builder(self.symbol, "ptr %c", "i32")
        c = Value(b, "%c", "ptr")
        initial = b.intrinsic("umin", b.load("i64", c, l.C_RESIDENT, 8), b.load("i64", c, l.C_GROUP_COUNT, 8))
        b.store(initial, c, l.C_NEXT_GROUP, 8)
        with b.loop(initial) as i:
            self._call(b, "launch", "void", c, i, b.const("i64", 0))
        t, idle = b.var("i64", 0), b.var("i32", 0)
        with b.while_(lambda: b.load("i64", c, l.C_ALIVE, 8).cmp("ne", 0)):
            now = t.get()
            simd = now & (l.SIMDS - 1)
            d = _simd(b, c, simd)
            idle.set(idle.get() + 1)
            with b.if_(b.load("i64", d, l.D_NEXT, 8).cmp("ule", now)):
                self._turn(b, c, d, simd, now)
                idle.set(0)

            def jump(now: Value = now) -> None:
                soonest = b.var("i64", _NEVER)
                for k in range(l.SIMDS):
                    next_ = b.load("i64", c, l.C_SIMD + k * l.D_BYTES + l.D_NEXT, 8)
                    soonest.set(b.intrinsic("umin", soonest.get(), next_))
                with b.if_(soonest.get().cmp("eq", _NEVER)):
                    b.ret(b.const("i32", 1))
                idle.set(0)
                t.set(b.intrinsic("umax", soonest.get(), now + 1))

            b.if_else(idle.get().cmp("uge", l.SIMDS), jump, lambda now=now: t.set(now + 1))
        b.ret(b.const("i32", 0))
        return b.text()

    def _turn(self, b: Builder, c: Value, d: Value, simd: Value, now: Value) -> None:
        """One turn of a SIMD: its waves by priority, then by age."""
        b.store(b.const("i64", _NEVER), d, l.D_NEXT, 8)
        used = b.var("i32", 0)
        with b.loop(_PRIORITIES, "i32") as level:
            priority = b.const("i32", _PRIORITIES - 1) - level
            i = b.var("i32", 0)
            with b.while_(lambda: i.get().cmp("ult", b.load("i32", d, l.D_COUNT))):
                before = b.load("i32", d, l.D_COUNT)
                w = _wave_of(b, c, d, i.get())
                willing = b.load("i32", w, l.W_PRIORITY).cmp("eq", priority)
                willing = willing & b.load("i32", w, l.W_STATUS).cmp("eq", l.RUNNING)
                with b.if_(willing & b.load("i64", w, l.W_READY, 8).cmp("ule", now)):
                    # a wave that raises its priority is not served twice: it is ready again after this turn
                    used.set(self._call(b, "try", "i32", c, w, simd, now, used.get()))
                # a wave that has ended is no longer in the list
                ended = b.load("i32", w, l.W_STATUS).cmp("eq", l.ENDED) & before.cmp("ne", 0)
                i.set(i.get() + ended.select(b.const("i32", 0), 1))
        with b.loop(b.load("i32", d, l.D_COUNT), "i32") as k:
            w = _wave_of(b, c, d, k)
            with b.if_(b.load("i32", w, l.W_STATUS).cmp("eq", l.RUNNING)):
                _sooner(b, d, b.load("i64", w, l.W_READY, 8))


def void(_: Value) -> None:
    """For calls that stand where a function without result is wanted."""


def _entry(b: Builder, w: Value) -> Value:
    """The recorded instruction at which a wave stands."""
    return b.ptr(b.load("ptr", w, l.W_TRACE, 8), b.load("i64", w, l.W_POSITION, 8) * l.INSTRUCTION_BYTES)


def _record(b: Builder, w: Value) -> Value:
    return b.load("i32", _entry(b, w), l.INSTRUCTION_RECORD)


def _simd(b: Builder, c: Value, number: Value) -> Value:
    return b.ptr(b.ptr(c, number * l.D_BYTES), l.C_SIMD)


def _wave_of(b: Builder, c: Value, d: Value, place: Value) -> Value:
    """The wave at a place of a SIMD's list."""
    number = b.load("i32", b.ptr(d, place.zext("i64") << 2), l.D_WAVES)
    return b.ptr(b.load("ptr", c, l.C_WAVES, 8), number.zext("i64") * l.W_BYTES)


def _sooner(b: Builder, d: Value, clock: Value) -> None:
    """Wakes a SIMD at a clock, at the latest."""
    b.store(b.intrinsic("umin", b.load("i64", d, l.D_NEXT, 8), clock), d, l.D_NEXT, 8)
