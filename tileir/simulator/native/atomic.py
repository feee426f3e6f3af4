"""Read-modify-write operations, shared by LDS, buffer, global and FLAT forms. Lanes act one after another."""

from __future__ import annotations

from collections.abc import Callable

from tileir.records import dataclass

from .access import lane_dword, put_lane_dword
from .builder import Builder, Value
from .convert import bf16_rne
from .valu_float import fmax, fmin


@dataclass(frozen=True)
class Atomic:
    """ty: LLVM type of the memory cell. update: (builder, old, data…) to the new cell; data is the new value and, for a
    compare-and-swap, the compared one. sources: number of data values."""

    ty: str
    dwords: int
    update: Callable[..., Value]
    sources: int = 1

    def fetch(self, b: Builder, row: Value, lane: Value, first: int = 0) -> Value:
        """A data value from the registers of a lane, beginning ``first`` rows into the operand."""
        low = lane_dword(b, row, lane, first)
        if self.dwords == 1:
            return low.bitcast(self.ty)
        high = lane_dword(b, row, lane, first + 1)
        return (low.zext("i64") | (high.zext("i64") << 32)).bitcast(self.ty)

    def apply(self, b: Builder, pointer: Value, data: list[Value]) -> Value:
        """Updates memory; returns the previous value."""
        old = b.load(self.ty, pointer, 0, 1)
        b.store(self.update(b, old, *data), pointer, 0, 1)
        return old

    def give(self, b: Builder, row: Value, lane: Value, old: Value) -> None:
        """The previous value to the result registers of a lane."""
        raw = old.bitcast(f"i{32 * self.dwords}")
        put_lane_dword(b, row, lane, 0, raw.trunc("i32"))
        if self.dwords == 2:
            put_lane_dword(b, row, lane, 1, (raw >> 32).trunc("i32"))


def _increment(b: Builder, old: Value, limit: Value) -> Value:
    return old.cmp("uge", limit).select(b.const(old.ty, 0), old + 1)


def _decrement(b: Builder, old: Value, limit: Value) -> Value:
    return (old.cmp("eq", 0) | old.cmp("ugt", limit)).select(limit, old - 1)


def _compare_swap(b: Builder, old: Value, new: Value, expected: Value) -> Value:
    return old.cmp("eq", expected).select(new, old)


_INTEGER: dict[str, Callable[..., Value]] = {
    "swap": lambda b, old, x: x,
    "cmpswap": _compare_swap,
    "add": lambda b, old, x: old + x,
    "sub": lambda b, old, x: old - x,
    "smin": lambda b, old, x: b.intrinsic("smin", old, x),
    "umin": lambda b, old, x: b.intrinsic("umin", old, x),
    "smax": lambda b, old, x: b.intrinsic("smax", old, x),
    "umax": lambda b, old, x: b.intrinsic("umax", old, x),
    "and": lambda b, old, x: old & x,
    "or": lambda b, old, x: old | x,
    "xor": lambda b, old, x: old ^ x,
    "inc": _increment,
    "dec": _decrement,
}


def _halves(b: Builder, old: Value, x: Value, add: Callable[[Value, Value], Value]) -> Value:
    low = add(old & 0xFFFF, x & 0xFFFF)
    return low | (add(old >> 16, x >> 16) << 16)


def _add_f16(old: Value, x: Value) -> Value:
    total = old.trunc("i16").bitcast("half") + x.trunc("i16").bitcast("half")
    return total.bitcast("i16").zext("i32")


def _packed_f16(b: Builder, old: Value, x: Value) -> Value:
    return _halves(b, old, x, _add_f16)


def _packed_bf16(b: Builder, old: Value, x: Value) -> Value:
    return _halves(b, old, x, lambda p, q: bf16_rne(b, (p << 16).bitcast("float") + (q << 16).bitcast("float")))


INTEGER: dict[tuple[str, int], Atomic] = {
    (name, dwords): Atomic(f"i{32 * dwords}", dwords, update, 2 if name == "cmpswap" else 1)
    for name, update in _INTEGER.items()
    for dwords in (1, 2)
}
"""By name and width in dwords."""

FLOAT: dict[str, Atomic] = {
    "add_f32": Atomic("float", 1, lambda b, old, x: old + x),
    "add_f64": Atomic("double", 2, lambda b, old, x: old + x),
    "min_f64": Atomic("double", 2, lambda b, old, x: fmin(b, old, x)),
    "max_f64": Atomic("double", 2, lambda b, old, x: fmax(b, old, x)),
    "min_f32": Atomic("float", 1, lambda b, old, x: fmin(b, old, x)),
    "max_f32": Atomic("float", 1, lambda b, old, x: fmax(b, old, x)),
    "pk_add_f16": Atomic("i32", 1, _packed_f16),
    "pk_add_bf16": Atomic("i32", 1, _packed_bf16),
}
"""By the tail of the instruction name."""
