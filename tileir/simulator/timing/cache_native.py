"""Native set-associative caches: one filter (the L1 of a CU) and the hierarchy of L2s and last-level cache.

A set is an array of 64-bit words in order of recency: ``(line + 1) << 1 | dirty``, 0 for an empty way. Replacement is LRU
(assumed; the documents name none).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache

from ..cache import digest
from ..engine import engine
from ..native.builder import Builder, Value, Variable

WORD = 8
HASH = 0x9E3779B97F4A7C15 - (1 << 64)
"""Odd multiplier (2^64 / golden ratio) whose upper product bits spread lines over sets."""
HASH_BITS = 24
"""Bits of the hash that choose the set; the lowest choose the sets that are simulated at all."""

# Words of the argument block of the filter.
FILTER_ARGUMENTS = ("lines", "n", "codes", "hits", "tags", "sets", "ways")
BYPASS = 1
"""Code of an access that never hits and leaves no line."""

# Words of the argument block of the hierarchy.
HIERARCHY_ARGUMENTS = (
    "lines",
    "codes",
    "regions",
    "starts",
    "lengths",
    "shifts",
    "region_count",
    "out_starts",
    "out",
    "order",
    "next",
    "ends",
    "slots",
    "orders",
    "order_count",
    "slot_workgroup",
    "slot_position",
    "slice",
    "l2",
    "l2_sets",
    "l2_ways",
    "llc",
    "llc_sets",
    "llc_ways",
    "sample_bits",
    "stats",
    "xcds",
)
DIRTY, FETCH = 1, 2
"""Bits of the code of an access: it leaves its line dirty; it needs the line's data."""
STATS = (
    "reads",
    "l2_hits",
    "llc_hits",
    "hbm_reads",
    "writes",
    "l2_writebacks",
    "llc_writebacks",
)
UNSAMPLED, L2, LLC, HBM = 0, 1, 2, 3
"""What the hierarchy answers for an access."""


class _Arguments:
    """The words of an argument block, loaded where they are first used."""

    def __init__(self, b: Builder, names: Sequence[str]) -> None:
        self._loaded = {name: b.load("i64", b.w, WORD * i, WORD) for i, name in enumerate(names)}
        self.b = b

    def value(self, name: str) -> Value:
        return self._loaded[name]

    def pointer(self, name: str) -> Value:
        return self.b.emit(f"inttoptr {self._loaded[name]} to ptr", "ptr")


class _Lookup:
    """Looks for a line in a set, makes it the most recent, and evicts the least recent when it was absent."""

    def __init__(self, b: Builder) -> None:
        self.b = b
        self.position, self.found = b.var("i64", 0), b.var("i64", 0)
        self.evicted = b.var("i64", 0)

    def touch(self, tags: Value, ways: Value, line: Value, dirty: Value) -> None:
        """found: whether the line was there. evicted: word of the line that had to go, 0 for none."""
        b, tag = self.b, (line + 1) << 1
        self.position.set(0)
        self.found.set(0)

        def searching() -> Value:
            return self.position.get().cmp("ult", ways) & self.found.get().cmp("eq", 0)

        with b.while_(searching):
            word = b.load("i64", b.ptr(tags, self.position.get() << 3), 0, WORD)
            same = (word & -2).cmp("eq", tag)
            self.found.set(same.zext("i64"))
            self.position.set(self.position.get() + same.select(b.const("i64", 0), b.const("i64", 1)))
        found = self.found.get().cmp("ne", 0)
        last = found.select(self.position.get(), ways - 1)
        old = b.load("i64", b.ptr(tags, last << 3), 0, WORD)
        self.evicted.set(found.select(b.const("i64", 0), old))
        index = b.var("i64", last)
        with b.while_(lambda: index.get().cmp("ne", 0)):
            at = index.get()
            b.store(b.load("i64", b.ptr(tags, (at - 1) << 3), 0, WORD), b.ptr(tags, at << 3), 0, WORD)
            index.set(at - 1)
        kept = found.select(old & 1, b.const("i64", 0))
        b.store(tag | kept | dirty, tags, 0, WORD)


def _modulo(value: Value, by: Value) -> Value:
    return value - (value / by) * by


def _filter(symbol: str) -> str:
    """``hits[i]`` = whether line i is in the cache when it is accessed. Set: line number modulo the number of sets."""
    b = Builder(symbol, "ptr %w", "void")
    a = _Arguments(b, FILTER_ARGUMENTS)
    lines, codes, hits, tags = (a.pointer(name) for name in ("lines", "codes", "hits", "tags"))
    sets, ways = a.value("sets"), a.value("ways")
    look = _Lookup(b)
    with b.loop(a.value("n")) as i:
        line = b.load("i64", b.ptr(lines, i << 3), 0, WORD)
        out = b.ptr(hits, i)
        b.store(b.const("i8", 0), out, 0, 1)
        with b.if_(b.load("i8", b.ptr(codes, i), 0, 1).cmp("ne", BYPASS)):
            chosen = b.ptr(tags, (_modulo(line, sets) * ways) << 3)
            look.touch(chosen, ways, line, b.const("i64", 0))
            b.store(look.found.get().trunc("i8"), out, 0, 1)
    b.ret()
    return b.text()


def _count(b: Builder, stats: Value, name: str, by: Value | int = 1) -> None:
    at = b.ptr(stats, WORD * STATS.index(name))
    b.store(b.load("i64", at, 0, WORD) + by, at, 0, WORD)


def _set_of(b: Builder, tags: Value, index: Value, sets: Value, ways: Value) -> Value:
    return b.ptr(tags, ((index & (sets - 1)) * ways) << 3)


def _access(b: Builder, a: _Arguments, look: _Lookup, level: Variable, line: Value, code: Value, xcd: Value) -> None:
    """One access: its level goes to ``level`` and its traffic to the statistics."""
    stats = a.pointer("stats")
    hashed = (line * HASH) >> (64 - HASH_BITS)
    bits = a.value("sample_bits")
    level.set(UNSAMPLED)
    with b.if_((hashed & ((b.const("i64", 1) << bits) - 1)).cmp("eq", 0)):
        index = hashed >> bits
        dirty, fetch = code & DIRTY, (code >> 1) & 1
        l2_sets, l2_ways = a.value("l2_sets"), a.value("l2_ways")
        llc_sets, llc_ways = a.value("llc_sets"), a.value("llc_ways")
        own = b.ptr(a.pointer("l2"), (xcd * l2_sets * l2_ways) << 3)
        look.touch(_set_of(b, own, index, l2_sets, l2_ways), l2_ways, line, dirty)
        hit, out = look.found.get(), look.evicted.get()
        _count(b, stats, "reads", fetch)
        _count(b, stats, "writes", dirty)
        _count(b, stats, "l2_hits", hit & fetch)
        level.set(L2)
        with b.if_((out & 1).cmp("ne", 0)):  # a dirty line goes to the last-level cache
            _count(b, stats, "l2_writebacks")
            written = (out >> 1) - 1
            place = ((written * HASH) >> (64 - HASH_BITS)) >> bits
            look.touch(_set_of(b, a.pointer("llc"), place, llc_sets, llc_ways), llc_ways, written, b.const("i64", 1))
            _count(b, stats, "llc_writebacks", look.evicted.get() & 1)
        with b.if_(fetch.cmp("ne", 0) & hit.cmp("eq", 0)):
            look.touch(_set_of(b, a.pointer("llc"), index, llc_sets, llc_ways), llc_ways, line, b.const("i64", 0))
            _count(b, stats, "llc_writebacks", look.evicted.get() & 1)
            there = look.found.get()
            _count(b, stats, "llc_hits", there)
            _count(b, stats, "hbm_reads", there ^ 1)
            level.set(there.cmp("ne", 0).select(b.const("i64", LLC), b.const("i64", HBM)))


def _hierarchy(symbol: str) -> str:
    """All workgroups of a grid. Each slot (a place for a workgroup on a CU) advances by ``slice`` accesses in its turn; a slot
    that is free takes the next workgroup of its XCD. Slot s belongs to XCD s mod xcds. Each round takes the slots in another
    of the given orders, so that no workgroup is the first to touch what several share more often than the others."""
    b = Builder(symbol, "ptr %w", "void")
    a = _Arguments(b, HIERARCHY_ARGUMENTS)
    look, level, active, workgroup = _Lookup(b), b.var("i64", 0), b.var("i64", 1), b.var("i64", 0)
    rounds = b.var("i64", 0)

    def word(name: str, index: Value) -> Value:
        return b.ptr(a.pointer(name), index << 3)

    with b.while_(lambda: active.get().cmp("ne", 0)):
        active.set(0)
        with b.loop(a.value("slots")) as turn:
            slot = b.load("i64", word("orders", rounds.get() * a.value("slots") + turn), 0, WORD)
            xcd = _modulo(slot, a.value("xcds"))
            workgroup.set(b.load("i64", word("slot_workgroup", slot), 0, WORD))
            with b.if_(workgroup.get().cmp("slt", 0)):
                following = b.load("i64", word("next", xcd), 0, WORD)
                with b.if_(following.cmp("ult", b.load("i64", word("ends", xcd), 0, WORD))):
                    workgroup.set(b.load("i64", word("order", following), 0, WORD))
                    b.store(following + 1, word("next", xcd), 0, WORD)
                    b.store(b.const("i64", 0), word("slot_position", slot), 0, WORD)
            with b.if_(workgroup.get().cmp("sge", 0)):
                active.set(1)
                number = workgroup.get()
                first = b.load("i64", word("starts", number), 0, WORD)
                length = b.load("i64", word("lengths", number), 0, WORD)
                out = b.load("i64", word("out_starts", number), 0, WORD)
                shifts = b.ptr(a.pointer("shifts"), (number * a.value("region_count")) << 3)
                begin = b.load("i64", word("slot_position", slot), 0, WORD)
                stop = begin + a.value("slice")
                stop = stop.cmp("ult", length).select(stop, length)
                with b.loop(stop - begin) as step:
                    i = begin + step
                    entry = first + i
                    region = b.load("i8", b.ptr(a.pointer("regions"), entry), 0, 1).zext("i64")
                    line = b.load("i64", word("lines", entry), 0, WORD) + b.load(
                        "i64", b.ptr(shifts, region << 3), 0, WORD
                    )
                    code = b.load("i8", b.ptr(a.pointer("codes"), entry), 0, 1).zext("i64")
                    _access(b, a, look, level, line, code, xcd)
                    with b.if_(out.cmp("sge", 0)):
                        b.store(level.get().trunc("i8"), b.ptr(a.pointer("out"), out + i), 0, 1)
                b.store(stop, word("slot_position", slot), 0, WORD)
                done = stop.cmp("eq", length)
                b.store(done.select(b.const("i64", -1), number), word("slot_workgroup", slot), 0, WORD)
        rounds.set(_modulo(rounds.get() + 1, a.value("order_count")))
    b.ret()
    return b.text()


@cache
def _function(make: Callable[[str], str]) -> Callable[[int], None]:
    key = "timing-caches-" + digest([make("f")])
    address = engine().addresses({key: make})[key]
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)


def run_filter(words: Sequence[int]) -> None:
    """Runs the filter on an argument block of FILTER_ARGUMENTS (addresses and numbers)."""
    _call(_filter, words, FILTER_ARGUMENTS)


def run_hierarchy(words: Sequence[int]) -> None:
    """Runs the hierarchy on an argument block of HIERARCHY_ARGUMENTS (addresses and numbers)."""
    _call(_hierarchy, words, HIERARCHY_ARGUMENTS)


def _call(make: Callable[[str], str], words: Sequence[int], names: Sequence[str]) -> None:
    assert len(words) == len(names)
    block = (ctypes.c_uint64 * len(words))(*words)
    _function(make)(ctypes.addressof(block))
