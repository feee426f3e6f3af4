"""Operations on packed bytes, cube maps, argument reduction; lane by lane. [CDNA3 ISA, VOP3A opcodes]"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .core import Array, vector


def _bytes(x: int) -> list[int]:
    return [x >> 8 * i & 255 for i in range(4)]


def _lanes(function: Callable[..., int], dtype: type[np.integer]) -> Callable[..., Array]:
    def run(*sources: Array) -> Array:
        return np.array([function(*map(int, lane)) for lane in zip(*sources, strict=True)], dtype)

    return run


def _sad(x: int, y: int, masked: bool = False) -> int:
    return sum(abs(p - q) for p, q in zip(_bytes(x), _bytes(y), strict=True) if q or not masked)


def _lerp(x: int, y: int, z: int) -> int:
    average = [(p + q + (r & 1)) // 2 for p, q, r in zip(_bytes(x), _bytes(y), _bytes(z), strict=True)]
    return int.from_bytes(bytes(average), "little")


def _four(x: int, y: int, z: int, masked: bool) -> int:
    return sum(((_sad(x >> 8 * i & 0xFFFFFFFF, y, masked) + (z >> 16 * i)) & 0xFFFF) << 16 * i for i in range(4))


def four_wide_sums(x: Array, y: Array, z: Array) -> Array:
    """v_mqsad_u32_u8: [dword][lane] of x (64 bits), y and z ([dword][lane], four dwords)."""
    out = np.zeros((4, len(x)), np.uint32)
    for lane, (p, q) in enumerate(zip(x.tolist(), y.tolist(), strict=True)):
        for i in range(4):
            out[i, lane] = (_sad(p >> 8 * i & 0xFFFFFFFF, q, True) + int(z[i, lane])) & 0xFFFFFFFF
    return out


vector("v_lerp_u8", "u32 = u32 u32 u32", _lanes(_lerp, np.uint32))
vector("v_sad_hi_u8", "u32 = u32 u32 u32", _lanes(lambda x, y, z: (_sad(x, y) << 16) + z & 0xFFFFFFFF, np.uint32))
vector("v_msad_u8", "u32 = u32 u32 u32", _lanes(lambda x, y, z: _sad(x, y, True) + z & 0xFFFFFFFF, np.uint32))
vector("v_qsad_pk_u16_u8", "u64 = u64 u32 u64", _lanes(lambda x, y, z: _four(x, y, z, False), np.uint64))
vector("v_mqsad_pk_u16_u8", "u64 = u64 u32 u64", _lanes(lambda x, y, z: _four(x, y, z, True), np.uint64))


def _cube(x: Any, y: Any, z: Any) -> tuple[Any, Any, Any, Any]:
    """Face, s, t and twice the major axis. No comparison with a NaN holds."""
    if abs(z) >= abs(x) and abs(z) >= abs(y):
        return (5.0 if z < 0 else 4.0), (-x if z < 0 else x), -y, 2 * z
    if abs(y) >= abs(x):
        return (3.0 if y < 0 else 2.0), x, (-z if y < 0 else z), 2 * y
    return (1.0 if x < 0 else 0.0), (z if x < 0 else -z), -y, 2 * x


def _cube_part(part: int) -> Callable[..., Array]:
    return lambda x, y, z: np.array([_cube(*lane)[part] for lane in zip(x, y, z, strict=True)], np.float32)


for _i, _name in enumerate(("id", "sc", "tc", "ma")):
    vector(f"v_cube{_name}_f32", "f32 = f32 f32 f32", _cube_part(_i))
vector(
    "v_cvt_off_f32_i4", "f32 = u32", lambda x: ((x & np.uint32(15)).astype(np.int32) ^ 8).astype(np.float32) / 16 - 0.5
)


def _arctan(numerator: int, denominator: int, unit: int) -> int:
    total, k = 0, 0
    while term := unit * numerator ** (2 * k + 1) // (denominator ** (2 * k + 1) * (2 * k + 1)):
        total += -term if k & 1 else term
        k += 1
    return total


def two_over_pi() -> int:
    """The first 1201 bits of 2/pi, by Euler's formula for pi."""
    unit = 1 << 1300
    return (unit << 1202) // (20 * _arctan(1, 7, unit) + 8 * _arctan(3, 79, unit))


_BITS: list[int] = []


def _trig_preop(x: int, segment: int) -> float:
    if not _BITS:
        _BITS.append(two_over_pi())
    exponent = x >> 52 & 2047
    shift = (segment & 31) * 53 + max(0, exponent - 1077)
    window = (_BITS[0] << shift & (1 << 1201) - 1) >> 1148
    return math.ldexp(window, -53 - shift + (128 if exponent >= 1968 else 0))


vector(
    "v_trig_preop_f64",
    "f64 = f64 u32",
    lambda x, y: np.array([_trig_preop(*map(int, lane)) for lane in zip(x.view(np.uint64), y, strict=True)]),
)
