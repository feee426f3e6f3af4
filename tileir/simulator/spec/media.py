"""Operations on packed bytes, byte by byte. [CDNA3 ISA, VOP3A opcodes]"""

from __future__ import annotations

from collections.abc import Callable

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


vector("v_lerp_u8", "u32 = u32 u32 u32", _lanes(_lerp, np.uint32))
vector("v_sad_hi_u8", "u32 = u32 u32 u32", _lanes(lambda x, y, z: (_sad(x, y) << 16) + z & 0xFFFFFFFF, np.uint32))
vector("v_msad_u8", "u32 = u32 u32 u32", _lanes(lambda x, y, z: _sad(x, y, True) + z & 0xFFFFFFFF, np.uint32))
vector("v_qsad_pk_u16_u8", "u64 = u64 u32 u64", _lanes(lambda x, y, z: _four(x, y, z, False), np.uint64))
vector("v_mqsad_pk_u16_u8", "u64 = u64 u32 u64", _lanes(lambda x, y, z: _four(x, y, z, True), np.uint64))
