"""Native part of the checks of memory: happened-before by vector clocks, on shadow cells, and what was never written.

Each wave has a clock. A barrier that all waves reach makes everything they did before known to all and advances their
clocks; ``known[v][w]`` is the clock up to which wave v knows what w did. Two accesses of one cell by different waves, of
which at least one is no read and not both are atomic, must be ordered: the later wave knows the clock of the earlier.
Operations that no wait has covered when their wave passes the barrier are stamped again with the clock behind it.
This is the scheme of FastTrack (Flanagan, Freund: "FastTrack: efficient and precise dynamic race detection", PLDI 2009)
with two readers kept for each cell: a write that is not ordered after one of several readers of one barrier interval
is not ordered after one of two of them.
"""

from __future__ import annotations

from collections.abc import Callable

from .. import state as s
from . import check_state as c
from .access import digest
from .builder import Builder, Value


def argument(b: Builder, name: str, ty: str) -> Value:
    return Value(b, "%" + name, ty)


def record_number(b: Builder, wg: Value, record: Value) -> Value:
    """Number of a record, as i64."""
    here = b.emit(f"ptrtoint {record} to i64", "i64")
    return (here - b.load("i64", wg, s.WG_RECORDS, 8)) / s.RECORD_SIZE


def _internal(b: Builder, attribute: str) -> str:
    """The function as one of this module, ``alwaysinline`` or ``noinline``."""
    return b.text().replace("define ", "define internal ", 1).replace(" nounwind {", f" nounwind {attribute} {{", 1)


def _call(b: Builder, name: str, ty: str, *arguments: Value) -> Value:
    return b.emit(f"call {ty} @{name}({', '.join(map(str, arguments))})", ty)


def _who(stamp: Value) -> Value:
    return (stamp >> c.WAVE_SHIFT) & ((1 << c.WHO_BITS) - 1)


def _ordered() -> str:
    """``ordered(check, stamp, cell)``: whether the access that ``cell`` names happened before that of ``stamp``."""
    b = Builder("tir_ordered", "ptr %ck, i64 %stamp, i64 %cell", "i1")
    check, stamp, cell = argument(b, "ck", "ptr"), argument(b, "stamp", "i64"), argument(b, "cell", "i64")
    me, other = _who(stamp), _who(cell)
    with b.if_(me.cmp("eq", other)):
        b.ret(b.const("i1", 1))
    wave, mine, clock = other & 15, me & 15, (cell >> c.CLOCK_SHIFT) & c.CLOCK_MASK
    with b.if_((me >> 4).cmp("eq", other >> 4)):
        known = b.load("i32", b.ptr(check, (mine << 6) + (wave << 2)), c.CK_KNOWN).zext("i64")
        b.ret(clock.cmp("ule", known))
    foreign = b.load("ptr", check, c.CK_FOREIGN, 8)
    with b.if_(foreign.cmp("eq", 0)):
        b.ret(b.const("i1", 0))
    row = mine * b.load("i64", check, c.CK_GROUPS, 8) + (other >> 4)
    acquired = b.load("i16", b.ptr(foreign, (row << 5) + (wave << 1)), 0, 2).zext("i64")
    b.ret(clock.cmp("ule", acquired))
    return _internal(b, "alwaysinline")


def _report() -> str:
    """``report(check, kind, what, address, stamp, other, lanes)``: notes a finding unless its pair is known."""
    parameters = "ptr %ck, i32 %kind, i32 %what, i64 %address, i64 %stamp, i64 %other, i64 %lanes"
    b = Builder("tir_report", parameters, "void")
    check, kind, what = argument(b, "ck", "ptr"), argument(b, "kind", "i32"), argument(b, "what", "i32")
    stamp, other = argument(b, "stamp", "i64"), argument(b, "other", "i64")
    same = ((stamp ^ other) >> c.GROUP_SHIFT) & ((1 << c.GROUP_BITS) - 1)
    key = ((stamp & c.RECORD_MASK) << 16) | (other & c.RECORD_MASK) | (kind.zext("i64") << 32)
    key = key | (same.cmp("ne", 0).zext("i64") << 40) | ((what & c.LOG_LDS).zext("i64") << 30)
    keys = b.load("ptr", check, c.CK_KEYS, 8)
    place = b.var("i64", ((key * 0x9E3779B1) >> 16) & (c.KEYS - 1))
    count = b.load("i64", check, c.CK_FINDING_COUNT, 8)
    with b.if_(count.cmp("uge", c.MOST_FINDINGS)):
        b.ret()
    # keys are not zero: kinds start at 1; the table is never more than a quarter full
    with b.while_(lambda: b.load("i64", b.ptr(keys, place.get() << 3), 0, 8).cmp("ne", 0)):
        with b.if_(b.load("i64", b.ptr(keys, place.get() << 3), 0, 8).cmp("eq", key)):
            b.ret()
        place.set((place.get() + 1) & (c.KEYS - 1))
    b.store(key, b.ptr(keys, place.get() << 3), 0, 8)
    out = b.ptr(b.load("ptr", check, c.CK_FINDINGS, 8), count * c.RAW_BYTES)
    b.store(kind, out, c.RAW_KIND, 8)
    b.store(what, out, c.RAW_WHAT)
    b.store(argument(b, "address", "i64"), out, c.RAW_ADDRESS, 8)
    b.store(stamp, out, c.RAW_STAMP, 8)
    b.store(other, out, c.RAW_OTHER, 8)
    b.store(argument(b, "lanes", "i64"), out, c.RAW_LANES, 8)
    b.store(count + 1, check, c.CK_FINDING_COUNT, 8)
    b.ret()
    return _internal(b, "noinline")


def _changed() -> str:
    """``changed(pointer, size, old)``: whether memory holds something else than what had the digest ``old``."""
    b = Builder("tir_changed", "ptr %w, i64 %size, i32 %old", "i1")
    size, old = argument(b, "size", "i64"), argument(b, "old", "i32")
    for n in (1, 2, 4, 8, 12, 16):
        with b.if_(size.cmp("eq", n)):
            b.ret(digest(b, b.w, n).cmp("ne", old))
    b.ret(b.const("i1", 1))
    return _internal(b, "noinline")


class _Access:
    """Code for one access of one cell. changed: whether a write changed its bytes."""

    def __init__(
        self, b: Builder, check: Value, stamp: Value, race: Callable[[Value], None], changed: Callable[[], Value]
    ) -> None:
        self.b, self.check, self.stamp, self.race, self.changed = b, check, stamp, race, changed

    def _ordered(self, cell: Value, stamp: Value | None = None) -> Value:
        return _call(self.b, "tir_ordered", "i1", self.check, stamp or self.stamp, cell)

    def _unless_ordered(self, cell: Value, counts: Value | None = None) -> None:
        """Reports a race with what a cell names, if it names something."""
        b = self.b
        with b.if_(cell.cmp("ne", 0) if counts is None else cell.cmp("ne", 0) & counts):
            with b.if_(~self._ordered(cell)):
                self.race(cell)

    def _remember(self, cell: Value, stamp: Value) -> None:
        """Keeps a reader: in place of its wave's last access, of nothing, or of an access that it is ordered after."""
        b = self.b
        done = b.fresh("kept")
        places = [(b.load("i64", cell, at, 8), at) for at in (c.CELL_FIRST, c.CELL_SECOND)]
        me = _who(self.stamp)
        tests: list[Callable[[Value], Value]] = [
            lambda old: old.cmp("eq", 0) | _who(old).cmp("eq", me),
            lambda old: self._ordered(old),
        ]
        for test in tests:
            for old, at in places:
                with b.if_(test(old)):
                    b.store(stamp, cell, at, 8)
                    b.branch(done)
        b.branch(done)
        b.label(done)

    def read(self, cell: Value, writer: Value) -> None:
        b = self.b
        self._unless_ordered(writer)
        first, second = b.load("i64", cell, c.CELL_FIRST, 8), b.load("i64", cell, c.CELL_SECOND, 8)
        with b.if_(((first | second) & c.ATOMIC_STAMP).cmp("ne", 0)):
            for old in (first, second):
                self._unless_ordered(old, (old & c.ATOMIC_STAMP).cmp("ne", 0))
        with b.if_(first.cmp("ne", self.stamp)):
            self._remember(cell, self.stamp)

    def write(self, cell: Value, writer: Value) -> None:
        """Writes of the same bytes by several waves are no fault: whichever comes last, the result is the same."""
        b = self.b
        with b.if_(writer.cmp("ne", 0)):
            with b.if_(~self._ordered(writer)):
                with b.if_(self.changed() | (writer & c.ATOMIC_STAMP).cmp("ne", 0)):
                    self.race(writer)
        for at in (c.CELL_FIRST, c.CELL_SECOND):
            self._unless_ordered(b.load("i64", cell, at, 8))
        b.store(self.stamp, cell, c.CELL_WRITER, 8)

    def atomic(self, cell: Value, writer: Value) -> None:
        b = self.b
        plain = c.ATOMIC_STAMP
        self._unless_ordered(writer, (writer & plain).cmp("eq", 0))
        for at in (c.CELL_FIRST, c.CELL_SECOND):
            old = b.load("i64", cell, at, 8)
            self._unless_ordered(old, (old & plain).cmp("eq", 0))
        flagged = self.stamp | c.ATOMIC_STAMP
        with b.if_(writer.cmp("eq", 0)):
            b.store(flagged, cell, c.CELL_WRITER, 8)
        self._remember(cell, flagged)


def _entries() -> str:
    """``entries(w, log, n, stamp)``: checks n accesses; 1 when a unit is too coarse for one of them, otherwise 0."""
    b = Builder("tir_entries", "ptr %w, ptr %log, i64 %n, i64 %stamp", "i32")
    log, n, stamp = argument(b, "log", "ptr"), argument(b, "n", "i64"), argument(b, "stamp", "i64")
    wg = b.load("ptr", b.w, s.WORKGROUP, 8)
    check = b.load("ptr", wg, s.WG_CHECK, 8)
    fresh = (stamp & c.CARRIED).cmp("eq", 0)
    uninit = fresh & (b.load("i32", check, c.CK_FLAGS) & c.FLAG_UNINIT).cmp("ne", 0)
    race_on = (b.load("i32", check, c.CK_FLAGS) & c.FLAG_RACE).cmp("ne", 0)
    lds_area = b.ptr(check, c.CK_LDS)
    area_at, start_at, size_at = b.var("ptr", lds_area), b.var("i64", 0), b.var("i64", 0)
    missing, where_missing, what_missing = b.var("i64", 0), b.var("i64", 0), b.var("i32", 0)

    def miss(lane: Value, address: Value, what: Value) -> None:
        with b.if_(missing.get().cmp("eq", 0)):
            where_missing.set(address)
            what_missing.set(what)
        missing.set(missing.get() | (b.const("i64", 1) << lane))

    with b.loop(n) as i:
        entry = b.ptr(log, i << 4)
        address, what = b.load("i64", entry, c.LOG_ADDRESS, 8), b.load("i32", entry, c.LOG_WHAT)
        size, lane = (what & 0xFF).zext("i64"), ((what >> 8) & 0xFF).zext("i64")
        mine = stamp | (lane << c.LANE_SHIFT)
        in_lds = (what & c.LOG_LDS).cmp("ne", 0)

        def device(address: Value = address) -> None:
            with b.if_((address - start_at.get()).cmp("uge", size_at.get())):
                table = b.load("ptr", wg, s.WG_ALLOCATIONS, 8)
                found = _call(b, "tir_find", "ptr", b.w, address, b.const("i64", 1))
                base = b.emit(f"ptrtoint {table} to i64", "i64")
                number = (b.emit(f"ptrtoint {found} to i64", "i64") - base) / s.ALLOC_BYTES
                area = b.ptr(b.load("ptr", check, c.CK_AREAS, 8), number * c.AREA_BYTES)
                area_at.set(area)
                start_at.set(b.load("i64", area, c.AREA_START, 8))
                size_at.set(b.load("i64", area, c.AREA_SIZE, 8))

        def local() -> None:
            area_at.set(lds_area)
            start_at.set(0)
            size_at.set(0)

        b.if_else(in_lds, local, device)
        area, offset = area_at.get(), address - start_at.get()
        shadow = b.load("ptr", area, c.AREA_SHADOW, 8)
        with b.if_(shadow.cmp("ne", 0)):
            shift = b.load("i32", area, c.AREA_SHIFT).zext("i64")
            low = (b.const("i64", 1) << shift) - 1
            with b.if_(((offset | size) & low).cmp("ne", 0)):
                b.store(area, check, c.CK_REFINE_AREA, 8)
                b.store(offset | size, check, c.CK_REFINE_BITS, 8)
                b.ret(b.const("i32", 1))

            def race(cell: Value, what: Value = what, address: Value = address, lane: Value = lane) -> None:
                with b.if_(race_on):
                    mask = b.const("i64", 1) << lane
                    kind = b.const("i32", c.KIND_RACE)
                    b.line(f"call void @tir_report({check}, {kind}, {what}, {address}, {stamp}, {cell}, {mask})")

            touched = b.load("ptr", area, c.AREA_TOUCHED, 8)
            for end in (offset, offset + size - 1):
                b.store(b.const("i8", 1), b.ptr(touched, end >> c.BLOCK_SHIFT), 0, 1)
            first = b.ptr(shadow, (offset >> shift) * c.CELL_BYTES)
            count = size >> shift

            def changed(entry: Value = entry, area: Value = area, offset: Value = offset, size: Value = size) -> Value:
                host = b.ptr(b.load("ptr", area, c.AREA_HOST, 8), offset)
                return _call(b, "tir_changed", "i1", host, size, b.load("i32", entry, c.LOG_OLD))

            access = _Access(b, check, mine, race, changed)
            use = (what >> c.USE_SHIFT) & 7

            def cells(body: Callable[[Value, Value], None], reads: bool) -> Callable[[], None]:
                def emit() -> None:
                    with b.loop(count) as k:
                        cell = b.ptr(first, k * c.CELL_BYTES)
                        writer = b.load("i64", cell, c.CELL_WRITER, 8)
                        if reads:
                            with b.if_(writer.cmp("eq", 0) & uninit & in_lds):
                                miss(lane, address, what)
                        body(cell, writer)

                return emit

            read, write, atomic = (
                cells(access.read, True),
                cells(access.write, False),
                cells(access.atomic, True),
            )
            b.if_else(use.cmp("eq", c.READ), read, lambda: b.if_else(use.cmp("eq", c.WRITE), write, atomic))
        written = b.load("ptr", area, c.AREA_WRITTEN, 8)
        with b.if_(written.cmp("ne", 0) & uninit & ~in_lds):
            reads = (what & (c.WRITE << c.USE_SHIFT)).cmp("eq", 0)
            writes = (what & (c.READ << c.USE_SHIFT)).cmp("eq", 0)
            with b.loop(size) as k:
                flag = b.ptr(written, offset + k)
                with b.if_(reads & b.load("i8", flag, 0, 1).cmp("eq", 0)):
                    miss(lane, address, what)
                with b.if_(writes):
                    b.store(b.const("i8", -1), flag, 0, 1)
    with b.if_(missing.get().cmp("ne", 0)):
        kind, none = b.const("i32", c.KIND_UNINIT), b.const("i64", 0)
        values = (check, kind, what_missing.get(), where_missing.get(), stamp, none, missing.get())
        b.line(f"call void @tir_report({', '.join(map(str, values))})")
    b.ret(b.const("i32", 0))
    return b.text()


_QUEUES = (
    (s.QUEUE_VM, s.VM_HEAD, s.VM_LENGTH),
    (s.QUEUE_LGKM, s.LGKM_HEAD, s.LGKM_LENGTH),
    (s.QUEUE_SMEM, None, s.SMEM_LENGTH),
    (s.QUEUE_FLAT, None, s.FLAT_LENGTH),
)


def _queue_entry(b: Builder, w: Value, queue: int, index: Value) -> Value:
    """Entry ``index`` of a queue, the oldest is 0."""
    base, head, _ = _QUEUES[queue]
    at = index if head is None else (b.load("i32", w, head) + index) & (s.QUEUE_CAPACITY - 1)
    return b.ptr(b.ptr(w, at.zext("i64") * s.ENTRY_BYTES), base)


def _slot(b: Builder, check: Value, wave: Value, queue: int, number: Value) -> Value:
    """A slot of a wave (i64) and queue by its number (i32)."""
    index = (wave * c.QUEUES + queue) * c.SLOTS + number.zext("i64")
    return b.ptr(b.load("ptr", check, c.CK_SLOTS, 8), index * c.SLOT_BYTES)


def _stamp(b: Builder, check: Value, wave: Value, ordinal: Value) -> Value:
    clock = b.load("i32", b.ptr(check, wave << 2), c.CK_CLOCKS).zext("i64")
    group = b.load("i64", check, c.CK_GROUP, 8) << c.GROUP_SHIFT
    return ordinal.zext("i64") | (clock << c.CLOCK_SHIFT) | (wave << c.WAVE_SHIFT) | group


def _observe(queue: int) -> str:
    """``observe(w, r)``: checks what the instruction has logged and keeps it in a slot as long as it is on its way.

    1 when a unit is too coarse and the instruction has to be observed again.
    """
    b = Builder(f"tir_observe_{queue}", "ptr %w, ptr %r", "i32")
    wg = b.load("ptr", b.w, s.WORKGROUP, 8)
    check = b.load("ptr", wg, s.WG_CHECK, 8)
    n = b.load("i64", check, c.CK_LOG_COUNT, 8)
    with b.if_(n.cmp("eq", 0)):
        b.ret(b.const("i32", 0))
    log = b.ptr(check, c.CK_LOG)
    wave = b.load("i32", b.w, s.HW_ID).zext("i64")
    number = record_number(b, wg, b.r)
    op = b.load("i32", b.ptr(b.load("ptr", check, c.CK_OPS, 8), number << 2))
    ordinal = op & c.RECORD_MASK
    stamp = _stamp(b, check, wave, ordinal)
    coarse = _call(b, "tir_entries", "i32", b.w, log, n, stamp)
    with b.if_(coarse.cmp("ne", 0)):
        b.ret(b.const("i32", 1))
    length = b.load("i32", b.w, _QUEUES[queue][2])
    with b.if_(length.cmp("ne", 0)):
        newest = _queue_entry(b, b.w, queue, length - 1)
        ring = b.ptr(check, (wave * c.QUEUES + queue) << 2)
        turn = b.load("i32", ring, c.CK_RING)
        b.store((turn + 1) & (c.SLOTS - 1), ring, c.CK_RING)
        b.store(turn, newest, s.ENTRY_SLOT)
        slot = _slot(b, check, wave, queue, turn)
        low, high = b.var("i32", -1), b.var("i32", 0)
        writes = b.var("i32", 0)
        with b.loop(n) as i:
            entry, out = b.ptr(log, i << 4), b.ptr(slot, i << 4)
            address, what = b.load("i64", entry, c.LOG_ADDRESS, 8), b.load("i64", entry, c.LOG_WHAT, 8)
            b.store(address, out, c.SLOT_LOG + c.LOG_ADDRESS, 8)
            b.store(what, out, c.SLOT_LOG + c.LOG_WHAT, 8)
            if queue != c.QUEUE_SMEM:
                narrow, what32 = address.trunc("i32"), what.trunc("i32")
                with b.if_((what32 & c.LOG_LDS).cmp("ne", 0)):
                    low.set(b.intrinsic("umin", low.get(), narrow))
                    high.set(b.intrinsic("umax", high.get(), narrow + (what32 & 0xFF) - 1))
                    writes.set(writes.get() | (what32 & (c.WRITE << c.USE_SHIFT)))
        b.store(n.trunc("i32"), slot, c.SLOT_COUNT)
        b.store(low.get(), slot, c.SLOT_LOW)
        b.store(high.get(), slot, c.SLOT_HIGH)
        b.store(ordinal, slot, c.SLOT_RECORD)
        if queue == c.QUEUE_VM:
            with b.if_(writes.get().cmp("ne", 0)):
                b.line(f"call void @tir_overtakes({b.w}, {slot}, {stamp})")
    with b.if_((op & c.OP_SYNC).cmp("ne", 0)):
        b.call_pointer(
            b.load("ptr", check, c.CK_SYNC, 8), "i32", wave.trunc("i32"), number.trunc("i32"), b.const("i32", 0)
        )
    b.ret(b.const("i32", 0))
    return b.text()


def _overtakes() -> str:
    """``overtakes(w, slot, stamp)``: a load to LDS against LDS operations of its own wave that no wait has covered.

    LDS operations and vector-memory operations of a wave are not ordered with each other: the load may change what an
    earlier ``ds_read`` has not read yet.
    """
    b = Builder("tir_overtakes", "ptr %w, ptr %slot, i64 %stamp", "void")
    mine, stamp = argument(b, "slot", "ptr"), argument(b, "stamp", "i64")
    wg = b.load("ptr", b.w, s.WORKGROUP, 8)
    check = b.load("ptr", wg, s.WG_CHECK, 8)
    with b.if_((b.load("i32", check, c.CK_FLAGS) & c.FLAG_RACE).cmp("eq", 0)):
        b.ret()
    wave = b.load("i32", b.w, s.HW_ID).zext("i64")
    low, high = b.load("i32", mine, c.SLOT_LOW), b.load("i32", mine, c.SLOT_HIGH)
    count = b.load("i32", mine, c.SLOT_COUNT).zext("i64")
    for queue in (c.QUEUE_LGKM, c.QUEUE_FLAT):
        with b.loop(b.load("i32", b.w, _QUEUES[queue][2]), "i32") as k:
            number = b.load("i32", _queue_entry(b, b.w, queue, k), s.ENTRY_SLOT)
            with b.if_(number.cmp("ne", c.NO_SLOT)):
                other = _slot(b, check, wave, queue, number)
                near = b.load("i32", other, c.SLOT_LOW).cmp("ule", high)
                with b.if_(near & b.load("i32", other, c.SLOT_HIGH).cmp("uge", low)):
                    theirs = b.load("i32", other, c.SLOT_COUNT).zext("i64")
                    with b.loop(theirs) as i:
                        entry = b.ptr(other, i << 4)
                        at, what = b.load("i64", entry, c.SLOT_LOG, 8), b.load("i32", entry, c.SLOT_LOG + c.LOG_WHAT)
                        end = at + (what & 0xFF).zext("i64")
                        with b.if_((what & c.LOG_LDS).cmp("ne", 0)):
                            with b.loop(count) as j:
                                own = b.ptr(mine, j << 4)
                                here = b.load("i64", own, c.SLOT_LOG, 8)
                                what2 = b.load("i32", own, c.SLOT_LOG + c.LOG_WHAT)
                                meets = here.cmp("ult", end) & at.cmp("ult", here + (what2 & 0xFF).zext("i64"))
                                with b.if_(meets & (what2 & c.LOG_LDS).cmp("ne", 0)):
                                    ordinal = b.load("i32", other, c.SLOT_RECORD)
                                    old = _stamp(b, check, wave, ordinal)
                                    old = old | (((what >> 8) & 0xFF).zext("i64") << c.LANE_SHIFT)
                                    lane = b.const("i64", 1) << ((what2 >> 8) & 0xFF).zext("i64")
                                    kind = b.const("i32", c.KIND_OVERTAKEN)
                                    values = (check, kind, what2, here, stamp, old, lane)
                                    b.line(f"call void @tir_report({', '.join(map(str, values))})")
                                    b.ret()
    b.ret()
    return _internal(b, "noinline")


def _carry() -> str:
    """``carry(w)``: stamps the operations of a wave that are on their way with its present clock."""
    b = Builder("tir_carry", "ptr %w", "void")
    wg = b.load("ptr", b.w, s.WORKGROUP, 8)
    check = b.load("ptr", wg, s.WG_CHECK, 8)
    wave = b.load("i32", b.w, s.HW_ID).zext("i64")
    for queue, (_, _, length) in enumerate(_QUEUES):
        with b.loop(b.load("i32", b.w, length), "i32") as k:
            number = b.load("i32", _queue_entry(b, b.w, queue, k), s.ENTRY_SLOT)
            with b.if_(number.cmp("ne", c.NO_SLOT)):
                slot = _slot(b, check, wave, queue, number)
                stamp = _stamp(b, check, wave, b.load("i32", slot, c.SLOT_RECORD)) | c.CARRIED
                count = b.load("i32", slot, c.SLOT_COUNT).zext("i64")
                _call(b, "tir_entries", "i32", b.w, b.ptr(slot, c.SLOT_LOG), count, stamp)
    b.ret()
    return b.text()


def _join() -> str:
    """``join(wg)``: all waves have met at a barrier."""
    b = Builder("tir_join", "ptr %w", "void")
    wg = b.w
    check = b.load("ptr", wg, s.WG_CHECK, 8)
    n = b.load("i32", wg, s.WG_WAVE_COUNT).zext("i64")
    with b.loop(n) as v:
        with b.loop(n) as k:
            clock = b.load("i32", b.ptr(check, k << 2), c.CK_CLOCKS)
            b.store(clock, b.ptr(check, (v << 6) + (k << 2)), c.CK_KNOWN)
    late = b.var("i32", b.load("i32", check, c.CK_JOIN))
    with b.loop(n) as k:
        at = b.ptr(check, k << 2)
        clock = b.load("i32", at, c.CK_CLOCKS) + 1
        b.store(clock, at, c.CK_CLOCKS)
        late.set(late.get() | clock.cmp("uge", c.LAST_CLOCK).zext("i32"))
    with b.if_(late.get().cmp("ne", 0)):
        none = b.const("i32", -1)
        b.call_pointer(b.load("ptr", check, c.CK_SYNC, 8), "i32", none, none, b.const("i32", 0))
    with b.if_(b.load("ptr", check, c.CK_SLOTS, 8).cmp("ne", 0)):
        waves = b.load("ptr", wg, s.WG_WAVES, 8)
        with b.loop(n) as k:
            b.line(f"call void @tir_carry({b.ptr(waves, k * s.WAVE_BYTES)})")
    b.ret()
    return b.text()


def functions() -> list[str]:
    """Text of all functions, in an order in which each is defined before it is needed."""
    observers = [_observe(queue) for queue in range(c.QUEUES)]
    return [_ordered(), _report(), _changed(), _entries(), _overtakes(), *observers, _carry(), _join()]


OBSERVERS = tuple(f"tir_observe_{queue}" for queue in range(c.QUEUES))
