"""Values that move between lanes, or between lanes and scalar registers, on arrays of 64 dwords. [CDNA3 and CDNA4 ISA]"""

from __future__ import annotations

import numpy as np

from .core import Array


def first_lane(active: int) -> int:
    """The lowest active lane; lane 0 when none is."""
    return (active & -active).bit_length() - 1 if active else 0


def readlane(x: Array, lane: int) -> int:
    return int(x[lane % 64])


def writelane(x: Array, lane: int, value: int) -> Array:
    """EXEC does not matter."""
    out = x.copy()
    out[lane % 64] = value
    return out


def swap(x: Array, y: Array, active: int) -> tuple[Array, Array]:
    """v_swap_b32."""
    live = np.array([bool(active >> lane & 1) for lane in range(64)])
    return np.where(live, y, x), np.where(live, x, y)


def permlane_swap(x: Array, y: Array, width: int) -> tuple[Array, Array]:
    """Odd rows of ``width`` lanes of x change places with the even rows of y before them."""
    a, b = x.reshape(-1, 2, width).copy(), y.reshape(-1, 2, width).copy()
    a[:, 1], b[:, 0] = y.reshape(-1, 2, width)[:, 0], x.reshape(-1, 2, width)[:, 1]
    return a.reshape(64), b.reshape(64)


LANES = (
    "v_readfirstlane_b32", "v_readlane_b32", "v_writelane_b32", "v_swap_b32", "v_permlane16_swap_b32",
    "v_permlane32_swap_b32",
)  # fmt: skip
