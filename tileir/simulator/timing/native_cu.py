"""Native model of one compute unit: waves on four SIMDs that issue what they did in a recorded execution.

Each clock serves one SIMD. In its turn a SIMD issues at most one instruction of each class, from different waves, those of
higher priority first and then the older ones. All times at which results and counters are ready are known when the
instruction that makes them issues, so a wave that waits has one clock before which it need not be looked at.
"""

from __future__ import annotations

from tileir.simulator.native.builder import Builder, Value
from tileir.simulator.timing import layout as l
from tileir.simulator.timing.library import one_module
from tileir.simulator.timing.native_wave import WaveModel, entry_of, record_of, simd_of, wake, wave_at
from tileir.simulator.timing.records import Cause, Unit

_NEVER = (1 << 62) - 1
_PRIORITIES = 4
_LGKM_MOST, _VM_MOST = 15, 63


def cu_model(symbol: str) -> str:
    """Module of ``i32 symbol(ptr cu)``: runs all workgroups to their end; 1 when waves wait for each other forever."""
    return one_module(_Model(symbol).functions())


class _Model(WaveModel):
    def functions(self) -> list[str]:
        return [
            self.interval(),
            self.account(),
            self.registers(),
            self.waits(),
            self.prepare(),
            self.memory(),
            self._launch(),
            self._release(),
            self._retire(),
            self._effects(),
            self._try(),
            self._main(),
        ]

    # ---- waves and workgroups
    def _launch(self) -> str:
        """``launch(cu, group, clock)``: each wave goes to the SIMD with the fewest waves, the next one in turn if equal."""
        b, (c, group, t) = self.builder("launch", "ptr %c, i64 %group, i64 %t", "void")
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
                count = b.load("i32", simd_of(b, c, simd), l.D_COUNT)
                with b.if_(count.cmp("ult", fewest.get())):
                    fewest.set(count)
                    best.set(simd)
            chosen = best.get()
            b.store(chosen, c, l.C_LAST_SIMD, 8)
            d = simd_of(b, c, chosen)
            number = first + i
            w = b.ptr(b.load("ptr", c, l.C_WAVES, 8), number.zext("i64") * l.W_BYTES)
            b.store(chosen.trunc("i32"), w, l.W_SIMD)
            b.store(b.const("i32", l.RUNNING), w, l.W_STATUS)
            slot, taken = b.var("i32", 0), b.var("i1", 1)
            with b.while_(lambda: taken.get()):
                taken.set(0)
                with b.loop(fewest.get(), "i32") as k:
                    if_same = b.load("i32", wave_at(b, c, d, k), l.W_SLOT).cmp("eq", slot.get())
                    taken.set(taken.get() | if_same)
                slot.set(slot.get() + taken.get().zext("i32"))
            b.store(slot.get(), w, l.W_SLOT)
            b.store(number, b.ptr(d, fewest.get().zext("i64") << 2), l.D_WAVES)
            b.store(fewest.get() + 1, d, l.D_COUNT)
            b.store(start.get(), w, l.W_START, 8)
            self.call(b, "prepare", "void", c, w, start.get())
            wake(b, d, b.load("i64", w, l.W_READY, 8))
            start.set(start.get() + b.load("i64", c, l.C_WAVE_LAUNCH, 8))
        b.ret()
        return b.text()

    def _release(self) -> str:
        """``release(cu, group, clock)``: lets the waves at a barrier go on when all that are alive have come."""
        b, (c, g, t) = self.builder("release", "ptr %c, ptr %g, i64 %t", "void")
        waiting = b.load("i32", g, l.G_WAITING)
        with b.if_(waiting.cmp("ult", b.load("i32", g, l.G_ALIVE)) | waiting.cmp("eq", 0)):
            b.ret()
        b.store(b.const("i32", 0), g, l.G_WAITING)
        free = t + b.load("i64", c, l.C_BARRIER, 8)
        with b.loop(b.load("i32", g, l.G_WAVES), "i32") as i:
            number = (b.load("i32", g, l.G_FIRST) + i).zext("i64")
            w = b.ptr(b.load("ptr", c, l.C_WAVES, 8), number * l.W_BYTES)
            with b.if_(b.load("i32", w, l.W_STATUS).cmp("eq", l.AT_BARRIER)):
                self.wait(b, c, w, Cause.BARRIER, free)
                b.store(b.load("i64", w, l.W_POSITION, 8) + 1, w, l.W_POSITION, 8)
                b.store(b.const("i32", l.RUNNING), w, l.W_STATUS)
                self.call(b, "prepare", "void", c, w, free)
                wake(b, simd_of(b, c, b.load("i32", w, l.W_SIMD).zext("i64")), b.load("i64", w, l.W_READY, 8))
        b.ret()
        return b.text()

    def _retire(self) -> str:
        """``retire(cu, wave, clock)``: the wave ends; behind the last of its workgroup the next workgroup starts."""
        b, (c, w, t) = self.builder("retire", "ptr %c, ptr %w, i64 %t", "void")
        b.store(b.const("i32", l.ENDED), w, l.W_STATUS)
        b.store(t, w, l.W_END, 8)
        b.store(b.load("i64", c, l.C_ALIVE, 8) - 1, c, l.C_ALIVE, 8)
        d = simd_of(b, c, b.load("i32", w, l.W_SIMD).zext("i64"))
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
                self.call(b, "launch", "void", c, following, t + b.load("i64", c, l.C_GROUP_LAUNCH, 8))

        b.if_else(alive.cmp("eq", 0), next_group, lambda: void(self.call(b, "release", "void", c, g, t)))
        b.ret()
        return b.text()

    # ---- issue
    def _effects(self) -> str:
        """``effects(cu, wave, simd, clock)``: what the instruction does to units, counters and registers."""
        b, (c, w, simd, t) = self.builder("effects", "ptr %c, ptr %w, i64 %simd, i64 %t", "void")
        d = simd_of(b, c, simd)
        known = b.load("ptr", w, l.W_STATIC, 8)
        flags, busy = b.load("i32", known, l.S_FLAGS), b.load("i32", known, l.S_BUSY).zext("i64")
        unit = b.load("i32", known, l.S_UNIT)
        entry = entry_of(b, w)
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
            end.set(self.call(b, "memory", "i64", c, w, t))
        bank = b.load("i16", entry, l.INSTRUCTION_LDS, 2).zext("i64") * b.load("i64", c, l.C_LDS_SHARE, 8)
        pair = b.ptr(b.ptr(c, (simd >> 1) << 3), l.C_PAIR_FREE)
        with b.if_((flags & (l.F_LDS | l.F_TO_LDS)).cmp("ne", 0)):
            start = b.intrinsic("umax", t, b.load("i64", pair, 0, 8))
            served = start + bank
            b.store(served, pair, 0, 8)
            with b.if_((flags & l.F_LDS).cmp("ne", 0)):
                path = b.load("i32", known, l.S_RETURN).zext("i64")
                free = b.load("i64", d, l.D_RETURN_FREE, 8)
                through = b.intrinsic("umax", served, b.intrinsic("umax", free, start) + path)
                b.store(through, d, l.D_RETURN_FREE, 8)
                count = b.load("i64", d, l.D_QUEUE_COUNT, 8)
                tail = (b.load("i64", d, l.D_QUEUE_HEAD, 8) + count) & (l.QUEUE_ROOM - 1)
                b.store(through, b.ptr(d, tail << 3), l.D_QUEUE, 8)
                b.store(count + 1, d, l.D_QUEUE_COUNT, 8)
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
            record = record_of(b, w)
            with b.loop(b.load("i32", known, l.S_RESULT_COUNT).zext("i64")) as i:
                cell = b.ptr(b.ptr(w, (first + i) * l.R_BYTES), l.W_REGISTERS)
                b.store(t + use, cell, l.R_USABLE, 8)
                b.store(t, cell, l.R_ISSUED, 8)
                b.store(record, cell, l.R_RECORD)
        none = b.const("i32", int(Cause.NONE))
        self.call(b, "interval", "void", c, w, t, t + occupied.get(), unit, none)
        b.ret()
        return b.text()

    def _try(self) -> str:
        """``try(cu, wave, simd, clock, used) -> used``: issues the wave's instruction if its class and unit are free.

        used: bits of the classes from which an instruction has issued in this turn.
        """
        b, (c, w, simd, t, used) = self.builder("try", "ptr %c, ptr %w, i64 %simd, i64 %t, i32 %used", "i32")
        d = simd_of(b, c, simd)
        known = b.load("ptr", w, l.W_STATIC, 8)
        flags, unit = b.load("i32", known, l.S_FLAGS), b.load("i32", known, l.S_UNIT)
        class_ = b.load("i32", known, l.S_CLASS)

        def blocked(cause: Cause, clock: Value) -> None:
            """Leaves when a unit is busy until a later clock."""
            with b.if_(clock.cmp("ugt", t)):
                self.wait(b, c, w, cause, clock)
                b.store(clock, w, l.W_READY, 8)
                b.ret(used)

        self.wait(b, c, w, Cause.ISSUE, t)
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
            blocked(Cause.VMEM_BUSY, self.call(b, "waits", "i64", w, t, counter, most))
        with b.if_((flags & l.F_LGKM).cmp("ne", 0)):
            counter, most = b.const("i32", 1), b.const("i32", _LGKM_MOST - 1)
            blocked(Cause.LDS_BUSY, self.call(b, "waits", "i64", w, t, counter, most))
        with b.if_((flags & l.F_LDS).cmp("ne", 0)):

            def oldest() -> Value:
                head = b.load("i64", d, l.D_QUEUE_HEAD, 8)
                return b.load("i64", b.ptr(d, head << 3), l.D_QUEUE, 8)

            def count() -> Value:
                return b.load("i64", d, l.D_QUEUE_COUNT, 8)

            with b.while_(lambda: count().cmp("ne", 0) & oldest().cmp("ule", t)):
                head = b.load("i64", d, l.D_QUEUE_HEAD, 8)
                b.store((head + 1) & (l.QUEUE_ROOM - 1), d, l.D_QUEUE_HEAD, 8)
                b.store(count() - 1, d, l.D_QUEUE_COUNT, 8)
            with b.if_(count().cmp("uge", b.load("i64", c, l.C_LDS_QUEUE, 8))):
                blocked(Cause.LDS_BUSY, oldest())
        self.call(b, "effects", "void", c, w, simd, t)
        with b.if_((flags & l.F_PRIORITY).cmp("ne", 0)):
            b.store(b.load("i32", known, l.S_VALUE), w, l.W_PRIORITY)
        after = t + l.SIMDS
        b.store(after, w, l.W_MARK, 8)
        with b.if_((flags & l.F_END).cmp("ne", 0)):
            self.call(b, "retire", "void", c, w, after)
            b.ret(used | class_)
        with b.if_((flags & l.F_BARRIER).cmp("ne", 0)):
            g = b.ptr(b.load("ptr", c, l.C_GROUPS, 8), b.load("i32", w, l.W_GROUP).zext("i64") * l.G_BYTES)
            b.store(b.const("i32", l.AT_BARRIER), w, l.W_STATUS)
            b.store(b.load("i32", g, l.G_WAITING) + 1, g, l.G_WAITING)
            self.call(b, "release", "void", c, g, after)
            b.ret(used | class_)
        position = b.load("i64", w, l.W_POSITION, 8)
        here = record_of(b, w)
        b.store(position + 1, w, l.W_POSITION, 8)
        jumped = record_of(b, w).cmp("ne", here + 1)
        delay = jumped.select(b.load("i32", known, l.S_TAKEN_DELAY), b.load("i32", known, l.S_DELAY)).zext("i64")
        b.store(position, w, l.W_POSITION, 8)
        branch, sleep = b.const("i32", int(Cause.BRANCH)), b.const("i32", int(Cause.SLEEP))
        cause = unit.cmp("eq", int(Unit.BRANCH)).select(branch, sleep)
        self.call(b, "account", "void", c, w, cause, t + delay)
        b.store(position + 1, w, l.W_POSITION, 8)
        self.call(b, "prepare", "void", c, w, t + delay)
        b.ret(used | class_)
        return b.text()

    def _main(self) -> str:
        b = Builder(self.symbol, "ptr %c", "i32")
        c = Value(b, "%c", "ptr")
        initial = b.intrinsic("umin", b.load("i64", c, l.C_RESIDENT, 8), b.load("i64", c, l.C_GROUP_COUNT, 8))
        b.store(initial, c, l.C_NEXT_GROUP, 8)
        with b.loop(initial) as i:
            self.call(b, "launch", "void", c, i, b.const("i64", 0))
        t, idle = b.var("i64", 0), b.var("i32", 0)
        with b.while_(lambda: b.load("i64", c, l.C_ALIVE, 8).cmp("ne", 0)):
            now = t.get()
            simd = now & (l.SIMDS - 1)
            d = simd_of(b, c, simd)
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
                w = wave_at(b, c, d, i.get())
                willing = b.load("i32", w, l.W_PRIORITY).cmp("eq", priority)
                willing = willing & b.load("i32", w, l.W_STATUS).cmp("eq", l.RUNNING)
                with b.if_(willing & b.load("i64", w, l.W_READY, 8).cmp("ule", now)):
                    # a wave that raises its priority is not served twice: it is ready again after this turn
                    used.set(self.call(b, "try", "i32", c, w, simd, now, used.get()))
                # a wave that has ended is no longer in the list
                ended = b.load("i32", w, l.W_STATUS).cmp("eq", l.ENDED) & before.cmp("ne", 0)
                i.set(i.get() + ended.select(b.const("i32", 0), 1))
        with b.loop(b.load("i32", d, l.D_COUNT), "i32") as k:
            w = wave_at(b, c, d, k)
            with b.if_(b.load("i32", w, l.W_STATUS).cmp("eq", l.RUNNING)):
                wake(b, d, b.load("i64", w, l.W_READY, 8))


def void(_: Value) -> None:
    """For calls that stand where a function without result is wanted."""
