"""Operand values for differential tests: every special pattern against every other, then random bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_SPECIAL = {
    "f16": [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x3C00, 0xBC00, 0x3800, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x7D01],
    "f32": [
        0x00000000, 0x80000000, 0x00000001, 0x807FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x3F7FFFFF, 0x4B000001,
        0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7FA00001, 0x7E800001, 0x43800000, 0x3E800000,
    ],
    "f64": [
        0x0000000000000000, 0x8000000000000000, 0x0000000000000001, 0x800FFFFFFFFFFFFF, 0x0010000000000000,
        0x3FF0000000000000, 0xBFF0000000000000, 0x3FEFFFFFFFFFFFFF, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000,
        0xFFF0000000000000, 0x7FF8000000000000, 0x7FF4000000000001, 0x41E0000000000000, 0x7FD0000000000001,
    ],
}  # fmt: skip


def _specials(ty: str) -> list[int]:
    if ty in _SPECIAL:
        return _SPECIAL[ty]
    width = int(ty[1:])
    top = 1 << width - 1
    mask = (1 << width) - 1
    return [0, 1, 2, 31, 32, 63, 64, 255, top - 1, top, top + 1, mask, mask - 1, 0x5555555555555555 & mask]


def rounds(types: list[str], seed: int, count: int = 12) -> list[list[NDArray[np.unsignedinteger]]]:
    """``count`` rounds of 64 lanes of bit patterns for each source type."""
    rng = np.random.default_rng(seed)
    out: list[list[NDArray[np.unsignedinteger]]] = []
    for i in range(count):
        lanes: list[NDArray[np.unsignedinteger]] = []
        for position, ty in enumerate(types):
            width = int(ty[1:])
            dtype = np.dtype(f"u{width // 8}")
            random = (
                rng.integers(0, 1 << width, 64, dtype=dtype, endpoint=False)
                if width < 64
                else rng.integers(0, (1 << 64) - 1, 64, dtype=np.uint64, endpoint=True)
            )
            special = np.array(_specials(ty), dtype=dtype)
            if i < count // 2:
                stride = len(special) ** position
                index = (np.arange(64) + 64 * i) // stride % len(special)
                lanes.append(special[index])
            elif i % 2:
                near = rng.normal(0, 4, 64)
                if ty[0] == "f":
                    lanes.append(near.astype(f"f{width // 8}").view(dtype))
                else:
                    lanes.append(rng.integers(-40, 40, 64).astype(f"i{width // 8}").view(dtype))
            else:
                lanes.append(random)
        out.append(lanes)
    return out


def ulp_distance(got: NDArray[np.floating], want: NDArray[np.floating]) -> NDArray[np.int64]:
    """Distance in units in the last place; 0 for two NaNs, large for one."""
    size = got.dtype.itemsize
    integer = np.dtype(f"i{size}")

    def ordered(x: NDArray[np.floating]) -> NDArray[np.int64]:
        raw = x.view(integer).astype(object)
        flipped = [int(r) if r >= 0 else -(int(r) + (1 << 8 * size - 1)) for r in raw]
        return np.array(flipped, dtype=object)

    distance = np.abs(ordered(got) - ordered(want))
    both = np.isnan(got) & np.isnan(want)
    one = np.isnan(got) ^ np.isnan(want)
    return np.array([0 if b else 1 << 60 if o else int(d) for b, o, d in zip(both, one, distance, strict=True)])
