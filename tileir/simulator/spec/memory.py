"""Memory operations on byte arrays: which bytes go to which register of which lane. [CDNA3 and CDNA4 ISA]"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tileir.records import dataclass

from .vector_float import fmax, fmin

Bytes = NDArray[np.uint8]
Registers = NDArray[np.uint32]


@dataclass(frozen=True)
class Part:
    """Whole dwords, or ``bits`` (8, 16) of one; ``half``: "lo" or "hi" for forms that keep the other half."""

    dwords: int
    bits: int = 32
    signed: bool = False
    half: str = ""

    @property
    def bytes(self) -> int:
        return 4 * self.dwords if self.bits == 32 else self.bits // 8


LOADS: dict[str, Part] = {
    "dword": Part(1),
    "dwordx2": Part(2),
    "dwordx3": Part(3),
    "dwordx4": Part(4),
    "ubyte": Part(1, 8),
    "sbyte": Part(1, 8, True),
    "ushort": Part(1, 16),
    "sshort": Part(1, 16, True),
    "ubyte_d16": Part(1, 8, False, "lo"),
    "ubyte_d16_hi": Part(1, 8, False, "hi"),
    "sbyte_d16": Part(1, 8, True, "lo"),
    "sbyte_d16_hi": Part(1, 8, True, "hi"),
    "short_d16": Part(1, 16, False, "lo"),
    "short_d16_hi": Part(1, 16, False, "hi"),
}
STORES: dict[str, Part] = {
    "dword": Part(1),
    "dwordx2": Part(2),
    "dwordx3": Part(3),
    "dwordx4": Part(4),
    "byte": Part(1, 8),
    "byte_d16_hi": Part(1, 8, False, "hi"),
    "short": Part(1, 16),
    "short_d16_hi": Part(1, 16, False, "hi"),
}
LDS_READS: dict[str, Part] = {
    **{f"ds_read_b{32 * n}": Part(n) for n in (1, 2, 3, 4)},
    "ds_read_u8": Part(1, 8),
    "ds_read_i8": Part(1, 8, True),
    "ds_read_u16": Part(1, 16),
    "ds_read_i16": Part(1, 16, True),
    "ds_read_u8_d16": Part(1, 8, False, "lo"),
    "ds_read_u8_d16_hi": Part(1, 8, False, "hi"),
    "ds_read_i8_d16": Part(1, 8, True, "lo"),
    "ds_read_i8_d16_hi": Part(1, 8, True, "hi"),
    "ds_read_u16_d16": Part(1, 16, False, "lo"),
    "ds_read_u16_d16_hi": Part(1, 16, False, "hi"),
}
LDS_WRITES: dict[str, Part] = {
    **{f"ds_write_b{32 * n}": Part(n) for n in (1, 2, 3, 4)},
    "ds_write_b8": Part(1, 8),
    "ds_write_b16": Part(1, 16),
    "ds_write_b8_d16_hi": Part(1, 8, False, "hi"),
    "ds_write_b16_d16_hi": Part(1, 16, False, "hi"),
}


def load(memory: Bytes, addresses: Sequence[int], part: Part, old: Registers, active: int) -> Registers:
    """Registers [dword][lane] after a load; inactive lanes keep ``old``."""
    out = old.copy()
    for lane, address in enumerate(addresses):
        if not active >> lane & 1:
            continue
        data = memory[address : address + part.bytes].tobytes()
        if part.bits == 32:
            out[:, lane] = np.frombuffer(data, np.uint32)
            continue
        value = int.from_bytes(data, "little", signed=part.signed) & 0xFFFFFFFF
        before = int(old[0, lane])
        if part.half == "lo":
            value = before & 0xFFFF0000 | value & 0xFFFF
        elif part.half == "hi":
            value = before & 0xFFFF | (value & 0xFFFF) << 16
        out[0, lane] = value
    return out


def store(memory: Bytes, addresses: Sequence[int], part: Part, data: Registers, active: int) -> None:
    """Changes ``memory`` in place, lanes in ascending order."""
    for lane, address in enumerate(addresses):
        if active >> lane & 1:
            raw = np.ascontiguousarray(data[:, lane]).tobytes()
            first = 2 if part.half == "hi" else 0
            memory[address : address + part.bytes] = np.frombuffer(raw[first : first + part.bytes], np.uint8)


def transposing_read(memory: Bytes, addresses: Sequence[int], bits: int) -> Registers:
    """ds_read_b64_tr_b16 / b8 / b4 (two registers) and ds_read_b96_tr_b6 (three). In each block of 16 lanes, lane i
    element j is element ``i % n`` of what lane ``(16 / n) j + i / n`` addresses, n elements per lane. [16 and 8 bits:
    fitted to compiled kernels; 6 and 4: the same rule]"""
    size = 12 if bits == 6 else 8
    n = 8 * size // bits
    out = np.zeros((size // 4, 64), np.uint32)
    for lane in range(64):
        word = 0
        for j in range(n):
            source = addresses[lane // 16 * 16 + 16 // n * j + lane % 16 // n]
            held = int.from_bytes(memory[source : source + size].tobytes(), "little")
            word |= (held >> bits * (lane % n) & ((1 << bits) - 1)) << bits * j
        out[:, lane] = [word >> 32 * k & 0xFFFFFFFF for k in range(size // 4)]
    return out


def swizzled(index: int, inner: int, size: int, stride: int, records: int, together: int) -> int | None:
    """Byte offset of ``size`` bytes at offset ``inner`` of a record in a swizzled buffer that interleaves ``together``
    records by dwords; ``None`` where it is out of range."""
    if index >= records or inner + size > stride:
        return None
    group, within = divmod(index, together)
    return (group * stride + inner // 4 * 4) * together + within * 4 + inner % 4


def bpermute(index: Sequence[int], data: NDArray[np.uint32], offset: int, active: int) -> list[int]:
    """Each lane reads from lane (index + offset) / 4; inactive sources give zero."""
    sources = [(i + offset) // 4 % 64 for i in index]
    return [int(data[src]) if active >> src & 1 else 0 for src in sources]


def permute(index: Sequence[int], data: NDArray[np.uint32], offset: int, active: int) -> list[int]:
    """Each active lane writes to lane (index + offset) / 4; the highest writer wins, untouched lanes are zero."""
    out = [0] * 64
    for lane in range(64):
        if active >> lane & 1:
            out[(index[lane] + offset) // 4 % 64] = int(data[lane])
    return out


def swizzle(data: NDArray[np.uint32], offset: int) -> NDArray[np.uint32]:
    """ds_swizzle_b32: bit reversal for FFT, rotation, quad permutation, or and/or/xor of the lane number, all within 32
    lanes."""
    out = np.zeros(64, np.uint32)
    for lane in range(64):
        half, i = lane // 32 * 32, lane % 32
        if offset >> 13 == 0b111:
            kept = offset & 31
            source = half + (int(f"{i:05b}"[::-1], 2) >> kept.bit_count() | i & kept)
        elif offset >> 13 == 0b110:
            amount, keep = offset >> 5 & 31, offset & 31
            if offset >> 10 & 1:
                amount = -amount
            source = half + ((i & keep) | ((i + amount) & 31 & ~keep))
        elif offset >> 15:
            source = lane // 4 * 4 + (offset >> 2 * (lane % 4) & 3)
        else:
            source = half + (((i & offset) | offset >> 5 & 31) ^ offset >> 10 & 31) % 32
        out[lane] = data[source]
    return out


@dataclass(frozen=True)
class AtomicSpec:
    """update: (old, data…) to new; data is (value) or, for compare-and-swap, (new value, compared value)."""

    global_name: str
    lds_name: str
    dtype: str
    update: Callable[..., np.generic]
    sources: int = 1
    packed: str = ""

    def random(self, rng: np.random.Generator, n: int) -> NDArray[np.generic]:
        dtype = np.dtype(self.dtype)
        if dtype.kind == "f":
            return rng.integers(-64, 64, n).astype(dtype)
        if self.packed:
            values = rng.integers(-8, 8, (n, 2))
            if self.packed == "f16":
                return np.ascontiguousarray(values.astype(np.float16)).view(np.uint32).reshape(n)
            bits = values.astype(np.float32).view(np.uint32).reshape(n, 2) >> 16
            return (bits[:, 0] | bits[:, 1] << 16).astype(np.uint32)
        raw = rng.integers(0, 1 << 63, n).astype(np.uint64) >> np.uint64(0 if dtype.itemsize == 8 else 31)
        return raw.astype(np.dtype(f"u{dtype.itemsize}")).view(dtype)


ATOMICS: dict[str, AtomicSpec] = {}


def _wrap(value: int, dtype: str) -> np.generic:
    size = np.dtype(dtype).itemsize
    return np.array([value & ((1 << 8 * size) - 1)], np.dtype(f"u{size}")).view(dtype)[0]


def _halves(kind: str) -> Callable[..., np.generic]:
    def update(old: np.generic, x: np.generic) -> np.generic:
        parts = []
        for shift in (0, 16):
            p, q = int(old) >> shift & 0xFFFF, int(x) >> shift & 0xFFFF
            if kind == "f16":
                total = np.array([p, q], np.uint16).view(np.float16).sum(dtype=np.float16)
                parts.append(int(total.view(np.uint16)))
            else:
                total = np.array([p << 16, q << 16], np.uint32).view(np.float32).sum(dtype=np.float32)
                parts.append(int(total.view(np.uint32)) >> 16)  # exact on the small integers of the tests
        return np.uint32(parts[0] | parts[1] << 16)

    return update


for _size in (4, 8):
    _x2, _b = ("_x2" if _size == 8 else ""), 8 * _size
    _u, _i = f"u{_size}", f"i{_size}"
    for _name, _lds, _dtype, _update in (
        ("add", f"ds_add_rtn_u{_b}", _u, lambda old, x: int(old) + int(x)),
        ("sub", f"ds_sub_rtn_u{_b}", _u, lambda old, x: int(old) - int(x)),
        ("smin", f"ds_min_rtn_i{_b}", _i, lambda old, x: min(int(old), int(x))),
        ("smax", f"ds_max_rtn_i{_b}", _i, lambda old, x: max(int(old), int(x))),
        ("umin", f"ds_min_rtn_u{_b}", _u, lambda old, x: min(int(old), int(x))),
        ("umax", f"ds_max_rtn_u{_b}", _u, lambda old, x: max(int(old), int(x))),
        ("and", f"ds_and_rtn_b{_b}", _u, lambda old, x: int(old) & int(x)),
        ("or", f"ds_or_rtn_b{_b}", _u, lambda old, x: int(old) | int(x)),
        ("xor", f"ds_xor_rtn_b{_b}", _u, lambda old, x: int(old) ^ int(x)),
        ("swap", f"ds_wrxchg_rtn_b{_b}", _u, lambda old, x: int(x)),
        ("inc", f"ds_inc_rtn_u{_b}", _u, lambda old, x: 0 if int(old) >= int(x) else int(old) + 1),
        ("dec", f"ds_dec_rtn_u{_b}", _u, lambda old, x: int(x) if old == 0 or int(old) > int(x) else int(old) - 1),
    ):
        ATOMICS[_name + _x2] = AtomicSpec(
            _name + _x2, _lds, _dtype, lambda old, x, f=_update, t=_dtype: _wrap(f(old, x), t)
        )
    ATOMICS["cmpswap" + _x2] = AtomicSpec(
        "cmpswap" + _x2, f"ds_cmpst_rtn_b{_b}", _u, lambda old, new, expected: new if old == expected else old, 2
    )


def _pick(function: Callable[..., NDArray[np.generic]]) -> Callable[..., np.generic]:
    return lambda old, x: function(np.array([old]), np.array([x]))[0]


ATOMICS.update(
    {
        "add_f32": AtomicSpec("add_f32", "ds_add_rtn_f32", "f4", lambda old, x: old + x),
        "add_f64": AtomicSpec("add_f64", "ds_add_rtn_f64", "f8", lambda old, x: old + x),
        "min_f64": AtomicSpec("min_f64", "ds_min_rtn_f64", "f8", _pick(fmin)),
        "max_f64": AtomicSpec("max_f64", "ds_max_rtn_f64", "f8", _pick(fmax)),
        "min_f32": AtomicSpec("min_f32", "ds_min_rtn_f32", "f4", _pick(fmin)),
        "max_f32": AtomicSpec("max_f32", "ds_max_rtn_f32", "f4", _pick(fmax)),
        "pk_add_f16": AtomicSpec("pk_add_f16", "ds_pk_add_rtn_f16", "u4", _halves("f16"), packed="f16"),
        "pk_add_bf16": AtomicSpec("pk_add_bf16", "ds_pk_add_rtn_bf16", "u4", _halves("bf16"), packed="bf16"),
    }
)


def _signed_half(old: int, data: int) -> int:
    """One half of ds_condxchg32: a set top bit replaces memory, without the bit."""
    return data & 0x7FFFFFFF if data >> 31 else old


def _float_compare(size: int) -> Callable[..., int]:
    def update(old: int, compared: int, new: int) -> int:
        dtype = (np.uint32, np.float32) if size == 4 else (np.uint64, np.float64)
        x, y = np.array([old, compared], dtype[0]).view(dtype[1])
        return new if x == y else old

    return update


@dataclass(frozen=True)
class LdsUpdate:
    """A read-modify-write of LDS that no other space has. size: bytes. update: (old, data operands in their order) as
    unsigned integers. plain: there is a form without a result, too."""

    size: int
    data: int
    update: Callable[..., int]
    plain: bool = True


LDS_UPDATES: dict[str, LdsUpdate] = {
    "ds_condxchg32_rtn_b64": LdsUpdate(
        8,
        1,
        lambda old, x: _signed_half(old & 0xFFFFFFFF, x & 0xFFFFFFFF) | _signed_half(old >> 32, x >> 32) << 32,
        False,
    ),
    "ds_wrap_rtn_b32": LdsUpdate(4, 2, lambda old, x, y: old - x if old >= x else old + y & 0xFFFFFFFF, False),
}
"""By the name of the form with a result."""
for _size in (4, 8):
    _ones = (1 << 8 * _size) - 1
    LDS_UPDATES[f"ds_rsub_rtn_u{8 * _size}"] = LdsUpdate(_size, 1, lambda old, x, m=_ones: x - old & m)
    LDS_UPDATES[f"ds_mskor_rtn_b{8 * _size}"] = LdsUpdate(_size, 2, lambda old, x, y: old & ~x | y)
    LDS_UPDATES[f"ds_cmpst_rtn_f{8 * _size}"] = LdsUpdate(_size, 2, _float_compare(_size))

SCALAR_STORES: dict[str, int] = {
    f"s_{space}store_dword{tail}": n for space in ("", "buffer_") for n, tail in ((1, ""), (2, "x2"), (4, "x4"))
}
"""Dwords of scalar stores."""
SCALAR_LOADS: dict[str, int] = {
    f"s_{space}load_dword{f'x{n}' if n > 1 else ''}": n for space in ("", "buffer_") for n in (1, 2, 4, 8, 16)
}
"""Dwords of scalar loads."""
