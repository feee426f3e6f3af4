"""VOP3P: pairs of 16-bit or 32-bit operations, and the mixed-precision fma. [CDNA3 ISA, "Packed Math"]"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .core import Array, fma_lanes
from .vector_float import fmax, fmin


def _propagate(x: Array, y: Array, largest: bool) -> Array:
    out = fmax(x, y) if largest else fmin(x, y)
    return np.where(np.isnan(x) | np.isnan(y), np.nan, out).astype(x.dtype)


PACKED: dict[str, tuple[str, int, Callable[..., Array]]] = {
    "v_pk_add_f16": ("f16", 2, np.add),
    "v_pk_mul_f16": ("f16", 2, np.multiply),
    "v_pk_fma_f16": ("f16", 3, fma_lanes),
    "v_pk_min_f16": ("f16", 2, fmin),
    "v_pk_max_f16": ("f16", 2, fmax),
    "v_pk_minimum3_f16": ("f16", 3, lambda x, y, z: _propagate(_propagate(x, y, False), z, False)),
    "v_pk_maximum3_f16": ("f16", 3, lambda x, y, z: _propagate(_propagate(x, y, True), z, True)),
    "v_pk_add_i16": ("i16", 2, np.add),
    "v_pk_add_u16": ("u16", 2, np.add),
    "v_pk_sub_i16": ("i16", 2, np.subtract),
    "v_pk_sub_u16": ("u16", 2, np.subtract),
    "v_pk_mul_lo_u16": ("u16", 2, np.multiply),
    "v_pk_mad_i16": ("i16", 3, lambda x, y, z: x * y + z),
    "v_pk_mad_u16": ("u16", 3, lambda x, y, z: x * y + z),
    "v_pk_min_i16": ("i16", 2, np.minimum),
    "v_pk_max_i16": ("i16", 2, np.maximum),
    "v_pk_min_u16": ("u16", 2, np.minimum),
    "v_pk_max_u16": ("u16", 2, np.maximum),
    "v_pk_lshlrev_b16": ("u16", 2, lambda x, y: y << (x & np.uint16(15))),
    "v_pk_lshrrev_b16": ("u16", 2, lambda x, y: y >> (x & np.uint16(15))),
    "v_pk_ashrrev_i16": ("i16", 2, lambda x, y: y >> (x & np.int16(15))),
    "v_pk_add_f32": ("f32", 2, np.add),
    "v_pk_mul_f32": ("f32", 2, np.multiply),
    "v_pk_fma_f32": ("f32", 3, fma_lanes),
}
"""Element type, number of sources, function on one half."""


def apply(
    name: str, halves: list[tuple[Array, Array]], op_sel: int, op_sel_hi: int, neg_lo: int = 0, neg_hi: int = 0
) -> tuple[Array, Array]:
    """Results of both halves. halves: (low, high) of each source. Bit i of a selector belongs to source i."""
    function = PACKED[name][2]
    out: list[Array] = []
    for select, negate in ((op_sel, neg_lo), (op_sel_hi, neg_hi)):
        values = [pair[select >> i & 1] for i, pair in enumerate(halves)]
        values = [-v if negate >> i & 1 else v for i, v in enumerate(values)]
        with np.errstate(all="ignore"):
            out.append(function(*values))
    return out[0], out[1]


def fma_mix(sources: list[Array], halves: list[tuple[Array, Array]], op_sel: int, op_sel_hi: int) -> Array:
    """f32 fma whose sources are f32 (``sources``) or, where op_sel_hi says so, the f16 half that op_sel names."""
    values = [halves[i][op_sel >> i & 1].astype(np.float32) if op_sel_hi >> i & 1 else sources[i] for i in range(3)]
    return fma_lanes(*values)
