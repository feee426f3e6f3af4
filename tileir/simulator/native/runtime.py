"""Dispatch of waves and workgroups, pending memory operations, and the look-up of addresses, in LLVM IR.

Pending operations. Each wave keeps four lists: vector-memory operations in order (vmcnt), LDS operations in order
(lgkmcnt), scalar loads (lgkmcnt, any order), and FLAT operations (both counters, any order). ``s_waitcnt`` with a count
of N proves only what holds for every order of completion: at most N of the ordered operations are still on their way,
and the unordered ones have arrived when N is zero. [CDNA3 ISA, "Manually inserted wait states", s_waitcnt]
"""

from __future__ import annotations

from collections.abc import Callable

from .. import state as s
from . import shadow
from .builder import Builder, Value

_ENTRY_ARGUMENTS = "ptr %w, ptr %r, i32 %reg, i32 %n, i32 %base, i32 %bytes, i64 %lanes"


def _argument(b: Builder, name: str, ty: str) -> Value:
    return Value(b, "%" + name, ty)


def _bump(b: Builder, base: Value, offset: int, by: int) -> Value:
    value = b.load("i32", base, offset) + by
    b.store(value, base, offset)
    return value


def _fill(b: Builder, entry: Value) -> None:
    """Writes a queue entry from the arguments and marks its registers."""
    sequence = _bump(b, b.w, s.SEQUENCE, 1)
    register, n, bytes_ = _argument(b, "reg", "i32"), _argument(b, "n", "i32"), _argument(b, "bytes", "i32")
    lanes = _argument(b, "lanes", "i64")
    b.store(b.r, entry, s.ENTRY_RECORD, 8)
    b.store(sequence, entry, s.ENTRY_SEQUENCE)
    b.store(register, entry, s.ENTRY_REGISTER)
    b.store(n, entry, s.ENTRY_COUNT)
    b.store(bytes_, entry, s.ENTRY_LDS_BYTES)
    b.store(_argument(b, "base", "i32"), entry, s.ENTRY_LDS_BASE)
    b.store(b.const("i32", 3), entry, s.ENTRY_NEED)
    b.store(lanes, entry, s.ENTRY_LANES, 8)
    b.store(b.const("i32", -1), entry, s.ENTRY_SLOT)
    with b.if_(n.cmp("ne", 0)):
        _bump(b, b.w, s.PENDING, 1)
    with b.loop(n, "i32") as i:
        k = (register + i).zext("i64")
        b.store(sequence, b.ptr(b.w, k << 2), s.OWNER)
        word = b.ptr(b.ptr(b.w, (k >> 6) << 3), s.POISON)
        b.store(b.load("i64", word, 0, 8) | (b.const("i64", 1) << (k & 63)), word, 0, 8)
    with b.if_(bytes_.cmp("ne", 0)):
        wg = b.load("ptr", b.w, s.WORKGROUP, 8)
        _bump(b, wg, s.WG_LDS_PENDING, 1)
        _lds_flags(b, wg, entry, 1)


def _lds_flags(b: Builder, wg: Value, entry: Value, step: int) -> None:
    """Adds ``step`` to the flag of each LDS dword that a direct-to-LDS load writes."""
    flags = b.load("ptr", wg, s.WG_LDS_POISON, 8)
    size = b.load("i64", wg, s.WG_LDS_SIZE, 8)
    bytes_ = b.load("i32", entry, s.ENTRY_LDS_BYTES).zext("i64")
    base = b.load("i32", entry, s.ENTRY_LDS_BASE).zext("i64")
    lanes = b.load("i64", entry, s.ENTRY_LANES, 8)
    with b.loop(64) as lane:
        with b.if_(((lanes >> lane) & 1).cmp("ne", 0)):
            first = base + lane * bytes_
            with b.loop((bytes_ + 3) >> 2) as k:
                where = first + (k << 2)
                with b.if_(where.cmp("ult", size)):
                    flag = b.ptr(flags, where >> 2)
                    b.store(b.load("i8", flag, 0, 1) + step, flag, 0, 1)


def _release() -> str:
    """``release(w, entry)``: the operation has arrived."""
    b = Builder("tir_release", "ptr %w, ptr %e", "void")
    entry = _argument(b, "e", "ptr")
    n = b.load("i32", entry, s.ENTRY_COUNT)
    register = b.load("i32", entry, s.ENTRY_REGISTER)
    sequence = b.load("i32", entry, s.ENTRY_SEQUENCE)
    with b.if_(n.cmp("ne", 0)):
        _bump(b, b.w, s.PENDING, -1)
    with b.loop(n, "i32") as i:
        k = (register + i).zext("i64")
        with b.if_(b.load("i32", b.ptr(b.w, k << 2), s.OWNER).cmp("eq", sequence)):
            word = b.ptr(b.ptr(b.w, (k >> 6) << 3), s.POISON)
            b.store(b.load("i64", word, 0, 8) & ~(b.const("i64", 1) << (k & 63)), word, 0, 8)
    with b.if_(b.load("i32", entry, s.ENTRY_LDS_BYTES).cmp("ne", 0)):
        wg = b.load("ptr", b.w, s.WORKGROUP, 8)
        _bump(b, wg, s.WG_LDS_PENDING, -1)
        _lds_flags(b, wg, entry, -1)
    b.ret()
    return b.text()


def _call_release(b: Builder, entry: Value) -> None:
    b.line(f"call void @tir_release(ptr %w, {entry})")


def _entry(b: Builder, queue: int, index: Value) -> Value:
    return b.ptr(b.ptr(b.w, index.zext("i64") * s.ENTRY_BYTES), queue)


def _pop_ordered(b: Builder, queue: int, head: int, length: int, limit: Value) -> None:
    """Releases the oldest entries until at most ``limit`` are left."""
    with b.while_(lambda: b.load("i32", b.w, length).cmp("ugt", limit)):
        at = b.load("i32", b.w, head)
        _call_release(b, _entry(b, queue, at))
        b.store((at + 1) & (s.QUEUE_CAPACITY - 1), b.w, head)
        _bump(b, b.w, length, -1)


def _enqueue_ordered(name: str, queue: int, head: int, length: int, limit: int) -> str:
    b = Builder(name, _ENTRY_ARGUMENTS, "void")
    _pop_ordered(b, queue, head, length, b.const("i32", limit - 1))
    at = (b.load("i32", b.w, head) + b.load("i32", b.w, length)) & (s.QUEUE_CAPACITY - 1)
    _bump(b, b.w, length, 1)
    _fill(b, _entry(b, queue, at))
    b.ret()
    return b.text()


def _enqueue_smem() -> str:
    """Scalar loads arrive in any order. The list is emptied when it is full: the hardware has room for far fewer, so
    this can only miss a fault and never invent one."""
    b = Builder("tir_enqueue_smem", _ENTRY_ARGUMENTS, "void")
    with b.if_(b.load("i32", b.w, s.SMEM_LENGTH).cmp("uge", s.QUEUE_CAPACITY)):
        with b.loop(s.QUEUE_CAPACITY, "i32") as i:
            _call_release(b, _entry(b, s.QUEUE_SMEM, i))
        b.store(b.const("i32", 0), b.w, s.SMEM_LENGTH)
    at = b.load("i32", b.w, s.SMEM_LENGTH)
    _bump(b, b.w, s.SMEM_LENGTH, 1)
    _fill(b, _entry(b, s.QUEUE_SMEM, at))
    b.ret()
    return b.text()


def _wait() -> str:
    b = Builder("tir_wait", "ptr %w, i32 %vm, i32 %lgkm", "void")
    vm, lgkm = _argument(b, "vm", "i32"), _argument(b, "lgkm", "i32")
    _pop_ordered(b, s.QUEUE_VM, s.VM_HEAD, s.VM_LENGTH, vm)
    _pop_ordered(b, s.QUEUE_LGKM, s.LGKM_HEAD, s.LGKM_LENGTH, lgkm)
    with b.if_(lgkm.cmp("eq", 0)):
        with b.loop(b.load("i32", b.w, s.SMEM_LENGTH), "i32") as i:
            _call_release(b, _entry(b, s.QUEUE_SMEM, i))
        b.store(b.const("i32", 0), b.w, s.SMEM_LENGTH)
    done = vm.cmp("eq", 0).zext("i32") | (lgkm.cmp("eq", 0).zext("i32") << 1)
    with b.if_(done.cmp("ne", 0)):
        _sweep_flat(b, lambda i, need: need & ~done)
    b.ret()
    return b.text()


def _sweep_flat(b: Builder, update: Callable[[Value, Value], Value]) -> None:
    """Changes what each FLAT operation still waits for, by its position; releases those that wait for nothing."""
    kept = b.var("i32", 0)
    with b.loop(b.load("i32", b.w, s.FLAT_LENGTH), "i32") as i:
        entry = _entry(b, s.QUEUE_FLAT, i)
        need = update(i, b.load("i32", entry, s.ENTRY_NEED))
        b.store(need, entry, s.ENTRY_NEED)

        def keep() -> None:
            b.store(b.load(f"<{s.ENTRY_BYTES} x i8>", entry), _entry(b, s.QUEUE_FLAT, kept.get()))
            kept.set(kept.get() + 1)

        b.if_else(need.cmp("ne", 0), keep, lambda: _call_release(b, entry))
    b.store(kept.get(), b.w, s.FLAT_LENGTH)


def _enqueue_flat() -> str:
    """The hardware holds back a FLAT operation while either counter is full, so older ones must have arrived."""
    b = Builder("tir_enqueue_flat", _ENTRY_ARGUMENTS, "void")
    length = b.load("i32", b.w, s.FLAT_LENGTH)

    def settle(i: Value, need: Value) -> Value:
        younger = length - i
        need = younger.cmp("uge", s.LGKM_MAX).select(need & 1, need)
        return younger.cmp("uge", s.VM_MAX).select(b.const("i32", 0), need)

    with b.if_(length.cmp("uge", s.LGKM_MAX)):
        _sweep_flat(b, settle)
    at = b.load("i32", b.w, s.FLAT_LENGTH)
    _bump(b, b.w, s.FLAT_LENGTH, 1)
    _fill(b, _entry(b, s.QUEUE_FLAT, at))
    b.ret()
    return b.text()


def _find() -> str:
    """``find(w, address, size)``: the allocation that holds all the bytes, or null. Binary search."""
    b = Builder("tir_find", "ptr %w, i64 %address, i64 %size", "ptr")
    address, size = _argument(b, "address", "i64"), _argument(b, "size", "i64")
    wg = b.load("ptr", b.w, s.WORKGROUP, 8)
    table = b.load("ptr", wg, s.WG_ALLOCATIONS, 8)
    low, high = b.var("i64", 0), b.var("i64", b.load("i64", wg, s.WG_ALLOCATION_COUNT, 8))
    with b.while_(lambda: low.get().cmp("ult", high.get())):
        middle = (low.get() + high.get()) >> 1
        start = b.load("i64", b.ptr(table, middle * s.ALLOC_BYTES), s.ALLOC_START, 8)
        b.if_else(start.cmp("ule", address), lambda m=middle: low.set(m + 1), lambda m=middle: high.set(m))
    with b.if_(low.get().cmp("ne", 0)):
        entry = b.ptr(table, (low.get() - 1) * s.ALLOC_BYTES)
        offset = address - b.load("i64", entry, s.ALLOC_START, 8)
        total = b.load("i64", entry, s.ALLOC_SIZE, 8)
        fits = offset.cmp("ult", total) & size.cmp("ule", total - offset)
        with b.if_(fits):
            b.ret(entry)
    b.ret(b.const("ptr", 0))
    return b.text()


def poisoned_check(b: Builder, record: Value) -> None:
    """Stops the wave when the record names a register whose value is on its way."""
    checks = b.load("i32", record, s.REC_CHECKS)
    with b.loop(checks.zext("i64")) as i:
        word = b.load("i8", b.ptr(record, i), s.REC_CHECK_WORDS, 1).zext("i64")
        mask = b.load("i64", b.ptr(record, i << 3), s.REC_CHECK_MASKS, 8)
        hit = mask & b.load("i64", b.ptr(b.w, word << 3), s.POISON, 8)
        with b.if_(hit.cmp("ne", 0)):
            bit = b.call("llvm.cttz.i64", "i64", hit, b.const("i1", 0))
            b.store(((word << 6) + bit).trunc("i32"), b.w, s.FAULT_REGISTER)
            b.store(b.const("i32", s.FAULT_POISONED_REGISTER), b.w, s.STATUS)
            b.store(record, b.w, s.CURRENT, 8)
            b.ret(b.const("i32", s.FAULT_POISONED_REGISTER))


def _run_wave() -> str:
    """``run_wave(w)``: executes from CURRENT until the wave stops; returns its status."""
    b = Builder("tir_run_wave", "ptr %w", "i32")
    b.store(b.const("i32", s.STATUS_RUNNING), b.w, s.STATUS)
    record = b.var("ptr", b.load("ptr", b.w, s.CURRENT, 8))
    budget = b.var("i64", b.load("i64", b.w, s.BUDGET, 8))
    with b.while_(lambda: b.const("i1", 1)):
        now = record.get()
        with b.if_(budget.get().cmp("eq", 0)):
            b.store(b.const("i32", s.STATUS_SLICE), b.w, s.STATUS)
            b.store(now, b.w, s.CURRENT, 8)
            b.store(b.const("i64", 0), b.w, s.BUDGET, 8)
            b.ret(b.const("i32", s.STATUS_SLICE))
        budget.set(budget.get() - 1)
        with b.if_(b.load("i32", b.w, s.PENDING).cmp("ne", 0)):
            poisoned_check(b, now)
        b.store(b.load("i64", now, s.REC_COUNT, 8) + 1, now, s.REC_COUNT, 8)
        after = b.call_pointer(b.load("ptr", now, s.REC_FUNCTION, 8), "ptr", b.w, now)
        with b.if_(after.cmp("eq", 0)):
            b.store(budget.get(), b.w, s.BUDGET, 8)
            status = b.load("i32", b.w, s.STATUS)
            done = status.cmp("eq", s.STATUS_BARRIER) | status.cmp("eq", s.STATUS_REFINE)
            resume = done.select(b.ptr(now, s.RECORD_SIZE), now)
            b.store(resume, b.w, s.CURRENT, 8)
            b.ret(status)
        record.set(after)
    b.terminate("unreachable")
    return b.text()


def _run_workgroup() -> str:
    """``run_workgroup(wg)``: runs all waves; 0 when all have ended, otherwise ``fault or STATUS_REFINE | wave << 8``."""
    b = Builder("tir_run_workgroup", "ptr %w", "i32")
    wg = b.w
    n = b.load("i32", wg, s.WG_WAVE_COUNT)
    waves = b.load("ptr", wg, s.WG_WAVES, 8)

    def wave(i: Value) -> Value:
        return b.ptr(waves, i.zext("i64") * s.WAVE_BYTES)

    with b.while_(lambda: b.const("i1", 1)):
        ended, waiting, first_waiting = b.var("i32", 0), b.var("i32", 0), b.var("i32", 0)
        with b.loop(n, "i32") as i:
            w = wave(i)
            status = b.load("i32", w, s.STATUS)
            runnable = status.cmp("eq", s.STATUS_RUNNING) | status.cmp("eq", s.STATUS_SLICE)
            with b.if_(runnable):
                left = b.load("i64", wg, s.WG_BUDGET, 8)
                with b.if_(left.cmp("eq", 0)):
                    b.ret((i << 8) | s.FAULT_BUDGET)
                whole = b.load("i64", wg, s.WG_SLICE, 8)
                part = left.cmp("ult", whole).select(left, whole)
                b.store(part, w, s.BUDGET, 8)
                b.line(f"%{(name := b.fresh('st'))} = call i32 @tir_run_wave({w})")
                used = part - b.load("i64", w, s.BUDGET, 8)
                b.store(left - used, wg, s.WG_BUDGET, 8)
                b.store(b.load("i64", w, s.EXECUTED, 8) + used, w, s.EXECUTED, 8)
                b.store(b.load("i64", wg, s.WG_CLOCK, 8) + used, wg, s.WG_CLOCK, 8)
                result = Value(b, "%" + name, "i32")
                with b.if_(result.cmp("uge", s.STATUS_REFINE)):
                    b.ret((i << 8) | result)
                with b.if_(result.cmp("eq", s.STATUS_BARRIER)):
                    b.store(b.load("i32", w, s.BARRIERS) + 1, w, s.BARRIERS)
            now = b.load("i32", w, s.STATUS)
            with b.if_(now.cmp("eq", s.STATUS_ENDED)):
                ended.set(ended.get() + 1)
            with b.if_(now.cmp("eq", s.STATUS_BARRIER)):
                waiting.set(waiting.get() + 1)
                first_waiting.set(i)
        with b.if_(ended.get().cmp("eq", n)):
            b.ret(b.const("i32", 0))
        with b.if_((ended.get() + waiting.get()).cmp("eq", n)):
            strict = b.load("i32", wg, s.WG_STRICT_BARRIERS).cmp("ne", 0)
            with b.if_(strict & ended.get().cmp("ne", 0)):
                b.ret((first_waiting.get() << 8) | s.FAULT_BARRIER)
            with b.if_(b.load("ptr", wg, s.WG_CHECK, 8).cmp("ne", 0)):
                b.line(f"call void @tir_join({wg})")
            with b.loop(n, "i32") as i:
                w = wave(i)
                with b.if_(b.load("i32", w, s.STATUS).cmp("eq", s.STATUS_BARRIER)):
                    b.store(b.const("i32", s.STATUS_RUNNING), w, s.STATUS)
    b.terminate("unreachable")
    return b.text()


HELPERS = (
    "tir_enqueue_vm",
    "tir_enqueue_lgkm",
    "tir_enqueue_smem",
    "tir_enqueue_flat",
    "tir_wait",
    "tir_find",
    *shadow.OBSERVERS,
)
"""Symbols behind the helper table, in the order of the HELPER_* indices."""


def runtime_text() -> str:
    """LLVM IR of the runtime module."""
    parts = [
        _release(),
        _enqueue_ordered("tir_enqueue_vm", s.QUEUE_VM, s.VM_HEAD, s.VM_LENGTH, s.VM_MAX),
        _enqueue_ordered("tir_enqueue_lgkm", s.QUEUE_LGKM, s.LGKM_HEAD, s.LGKM_LENGTH, s.LGKM_MAX),
        _enqueue_smem(),
        _enqueue_flat(),
        _wait(),
        _find(),
        *shadow.functions(),
        _run_wave(),
        _run_workgroup(),
    ]
    lines = "\n".join(parts).split("\n")
    declared = dict.fromkeys(line for line in lines if line.startswith("declare "))
    return "\n".join([*declared, *(line for line in lines if not line.startswith("declare "))])
