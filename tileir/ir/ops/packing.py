"""`pack` and `unpack`: integers whose bits are several narrower elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tileir.ir.registry import AttrSpec, Check, OpDef, declare
from tileir.ir.types import Elem, TileType, Type
from tileir.layout.linear import LayoutError
from tileir.layout.regroup import apart, together

Array = Any


def elements_per_word(name: str, operand: Elem, result: Elem) -> int:
    """Elements in an integer, 0 if these types do not go together."""
    word, part = (operand, result) if name == "unpack" else (result, operand)
    if not word.is_int or part.is_bool or part.bits >= word.bits or word.bits % part.bits:
        return 0
    return word.bits // part.bits


def _regroup(c: Check) -> Sequence[Type]:
    t, elem = c.tile(0, "a tile"), c.attrs["elem"]
    assert isinstance(elem, Elem)
    n = elements_per_word(c.name, t.elem, elem)
    if not n:
        legal = "unpack<f4E2M1FN>(x) of i8, i16 or i32, and pack<i32>(x) of elements whose bits divide 32; not i1, not 6 bits"
        c.fail("E0362", f"'{c.name}' from {t.elem} to {elem}", 0, legal=legal)
    if t.is_scalar or (c.name == "pack" and t.shape[-1] % n):
        legal = f"a tile whose last dimension is a multiple of {n}" if c.name == "pack" else "a tile"
        c.fail("E0362", f"'{c.name}' of {t.with_layout(None)} to {elem}", 0, legal=legal)
    last = t.shape[-1] * n if c.name == "unpack" else t.shape[-1] // n
    layout = t.layout
    if layout is not None:
        try:
            layout = apart(layout, n) if c.name == "unpack" else together(layout, n)
        except LayoutError as e:
            c.fail("E0362", f"this layout cannot be packed in place: {e}", 0, legal="convert_layout first")
    return [TileType(elem, (*t.shape[:-1], last), layout)]


def _codes(x: Array, bits: int) -> Array:
    """The elements as numbers of their bits."""
    raw = np.ascontiguousarray(x).view(f"u{np.asarray(x).dtype.itemsize}")
    return raw.astype(np.uint64) & np.uint64((1 << bits) - 1)


def _of_codes(codes: Array, elem: Elem) -> Array:
    return codes.astype(f"u{elem.bytes}").view(elem.np)


def _unpack(ctx: Any, op: Any, args: Sequence[Array]) -> Array:
    source, elem = op.operands[0].tile.elem, op.attrs["elem"]
    codes = _codes(args[0], source.bits)
    shifts = np.arange(0, source.bits, elem.bits, dtype=np.uint64)
    parts = (codes[..., None] >> shifts) & np.uint64((1 << elem.bits) - 1)
    return _of_codes(parts.reshape(*codes.shape[:-1], -1), elem)


def _pack(ctx: Any, op: Any, args: Sequence[Array]) -> Array:
    source, elem = op.operands[0].tile.elem, op.attrs["elem"]
    codes = _codes(args[0], source.bits)
    n = elem.bits // source.bits
    shifts = np.arange(0, elem.bits, source.bits, dtype=np.uint64)
    groups = codes.reshape(*codes.shape[:-1], -1, n) << shifts
    return _of_codes(np.bitwise_or.reduce(groups, axis=-1), elem)


def _declare(name: str, summary: str, semantics: Any, example: str) -> None:
    declare(
        OpDef(
            name,
            summary,
            ("x",),
            _regroup,
            attrs=(AttrSpec("elem", "elem", positional=True),),
            category="shape",
            semantics=semantics,
            example=example,
        )
    )


_declare(
    "unpack",
    "The elements that lie in the bits of integers, the first in the lowest: the last dimension grows. For weights of 4 bits that come "
    "as bytes, and the like.",
    _unpack,
    "%t = unpack<f4E2M1FN>(%u) : tile<f4E2M1FN[512]>",
)
_declare(
    "pack",
    "Elements along the last dimension as the bits of integers, the first in the lowest; the inverse of `unpack`.",
    _pack,
    "%t = pack<i32>(%q) : tile<i32[64, 16]>",
)
