"""Sparse matrix instructions, element by element. [see native/sparse.py]"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from .matrix import BITS, elements, value_of

_NAME = re.compile(r"v_smfmac_(f32|i32)_(\d+)x\d+x(\d+)_([a-z0-9]+)(?:_([a-z0-9]+))?$")


def sparse_product(
    name: str,
    a: NDArray[np.uint32],
    b: NDArray[np.uint32],
    index: NDArray[np.uint32],
    chip: str,
    cbsz: int = 0,
    abid: int = 0,
) -> NDArray[np.float64]:
    """A·B as [row][column] in float64, for finite operands. a, b: [register][lane]; index: [lane]."""
    match = _NAME.match(name)
    assert match, name
    m, k = int(match[2]), int(match[3])
    left, right = match[4], match[5] or match[4]
    per_lane = k * m // 64
    kept = per_lane // 2
    values_a, values_b = (
        np.array([[value_of(code, kind, chip) for code in lane] for lane in elements(rows, BITS[kind])], np.float64)
        for rows, kind in ((a, left), (b, right))
    )
    chosen = 0 if cbsz else abid % (16 // kept)
    out = np.zeros((m, m))
    for lane in range(64):
        row, part = lane % m, lane // m
        for e in range(kept):
            field = int(index[lane]) >> 2 * (kept * chosen + e) & 3
            if values_a[lane, e]:
                out[row] += values_a[lane, e] * values_b[part * m : part * m + m, e // 2 * 4 + field]
    return out
