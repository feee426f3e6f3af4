"""Types of the tile IR: elements, tiles (rank 0 is a scalar), views of global memory, LDS buffers, register fragments."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

from tileir.layout.linear import Layout
from tileir.layout.shared import SharedLayout
from tileir.records import dataclass


@dataclass(frozen=True)
class Elem:
    """An element type. `kind` is "bool", "int" or "float"; `bits` is the storage width in a packed array."""

    name: str
    kind: str
    bits: int
    dtype: Any

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_int(self) -> bool:
        return self.kind == "int"

    @property
    def is_bool(self) -> bool:
        return self.kind == "bool"

    @cached_property
    def np(self) -> np.dtype[Any]:
        """The NumPy dtype that interpreter and host arrays use for this element."""
        return np.dtype(self.dtype)

    @property
    def bytes(self) -> int:
        """Bytes of one element in memory; sub-byte types are packed and answer 1 for the smallest addressable unit."""
        return max(1, self.bits // 8)

    @property
    def unit(self) -> tuple[int, int]:
        """(elements, bytes) of the smallest run of elements that is whole bytes: (1, size), (2, 1) for 4 bits, (4, 3) for 6."""
        elements = {4: 2, 6: 4}.get(self.bits, 1)
        return elements, max(1, elements * self.bits // 8)

    def run_bytes(self, count: int) -> int:
        """Bytes in memory of so many consecutive elements, begun bytes included."""
        return -(-count * self.bits // 8) if self.is_float else count * self.bytes

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name


_ELEMS = [
    Elem("i1", "bool", 1, np.bool_),
    Elem("i8", "int", 8, np.int8),
    Elem("i16", "int", 16, np.int16),
    Elem("i32", "int", 32, np.int32),
    Elem("i64", "int", 64, np.int64),
    Elem("f64", "float", 64, np.float64),
    Elem("f32", "float", 32, np.float32),
    Elem("f16", "float", 16, np.float16),
    Elem("bf16", "float", 16, ml_dtypes.bfloat16),
    Elem("f8E4M3FN", "float", 8, ml_dtypes.float8_e4m3fn),
    Elem("f8E5M2", "float", 8, ml_dtypes.float8_e5m2),
    Elem("f8E4M3FNUZ", "float", 8, ml_dtypes.float8_e4m3fnuz),
    Elem("f8E5M2FNUZ", "float", 8, ml_dtypes.float8_e5m2fnuz),
    Elem("f8E8M0FNU", "float", 8, ml_dtypes.float8_e8m0fnu),
    Elem("f6E2M3FN", "float", 6, ml_dtypes.float6_e2m3fn),
    Elem("f6E3M2FN", "float", 6, ml_dtypes.float6_e3m2fn),
    Elem("f4E2M1FN", "float", 4, ml_dtypes.float4_e2m1fn),
]
ELEMS: dict[str, Elem] = {e.name: e for e in _ELEMS}
I1, I8, I16, I32, I64 = (ELEMS[n] for n in ("i1", "i8", "i16", "i32", "i64"))
F64, F32, F16, BF16 = (ELEMS[n] for n in ("f64", "f32", "f16", "bf16"))


MAX_ELEMENTS = 1 << 24
"""Elements of the largest tile. 16 waves of 64 lanes with 512 registers of 32 bits hold 2^21 bytes, so this is generous."""


def _dims(dims: tuple[int | str, ...]) -> str:
    return "[" + ", ".join(str(d) for d in dims) + "]"


@dataclass(frozen=True)
class TileType:
    """A value spread over the registers of a workgroup; `shape` () is a workgroup-uniform scalar.

    `layout` is None at tile level; the wave level states which lane of which wave holds which element.
    """

    elem: Elem
    shape: tuple[int, ...] = ()
    layout: Layout | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_scalar(self) -> bool:
        return not self.shape

    @property
    def size(self) -> int:
        n = 1
        for d in self.shape:
            n *= d
        return n

    def with_elem(self, elem: Elem) -> TileType:
        return replace(self, elem=elem)

    def with_layout(self, layout: Layout | None) -> TileType:
        return replace(self, layout=layout)

    def __str__(self) -> str:
        if not self.shape:
            return self.elem.name
        layout = f", {self.layout}" if self.layout is not None else ""
        return f"tile<{self.elem}{_dims(self.shape)}{layout}>"


@dataclass(frozen=True)
class GlobalType:
    """A view of device memory: dimensions and strides (in elements) are literals or dimension symbols; row-major if
    `strides` is None."""

    elem: Elem
    dims: tuple[int | str, ...]
    strides: tuple[int | str, ...] | None = None

    @property
    def rank(self) -> int:
        return len(self.dims)

    def __str__(self) -> str:
        strides = f", strides = {_dims(self.strides)}" if self.strides is not None else ""
        return f"global<{self.elem}{_dims(self.dims)}{strides}>"


@dataclass(frozen=True)
class SharedType:
    """An LDS buffer of one workgroup; `layout` maps (row, column) to a byte offset and is None until it is chosen.

    Buffers of other ranks than 2 are seen as matrices whose rows are the last dimension.
    """

    elem: Elem
    shape: tuple[int, ...]
    layout: SharedLayout | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def matrix(self) -> tuple[int, int]:
        """(rows, columns) of the buffer as a matrix."""
        rows = 1
        for d in self.shape[:-1]:
            rows *= d
        return rows, self.shape[-1]

    def __str__(self) -> str:
        layout = f", {self.layout}" if self.layout is not None else ""
        return f"shared<{self.elem}{_dims(self.shape)}{layout}>"


@dataclass(frozen=True)
class FragmentType:
    """A run of registers in every lane of every wave: `count` elements a lane. What they hold of which tile is known to the
    ops alone that make and take fragments (see `tileir.ir.ops.fragments`)."""

    elem: Elem
    count: int

    @property
    def registers(self) -> int:
        """Registers of 32 bits per lane."""
        return -(-self.count * self.elem.bits // 32)

    def __str__(self) -> str:
        return f"fragment<{self.elem}[{self.count}]>"


Type = TileType | GlobalType | SharedType | FragmentType


def scalar(elem: Elem) -> TileType:
    """The type of a scalar of that element."""
    return TileType(elem)
