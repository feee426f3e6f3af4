"""Contractions: `mma` and its wave-level form, one or more MFMA instructions per wave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tileir.ir.registry import AttrSpec, Check, OpDef, declare
from tileir.ir.types import F32, F64, I32, Elem, TileType, Type
from tileir.layout.linear import Layout, LayoutError
from tileir.layout.mfma import mma_layouts


def accumulator(elem: Elem) -> Elem | None:
    """Element type in which products of `elem` are summed; None where no contraction exists."""
    if elem.name == "f64":
        return F64
    if elem.is_float and elem.name != "f8E8M0FNU":
        return F32
    return I32 if elem.name == "i8" else None


def layouts_of(
    shape: tuple[int, int, int], waves: tuple[int, int], instr: tuple[int, int, int], bits: int, swapped: bool
) -> tuple[Layout, Layout, Layout]:
    """Layouts of A [m, k], B [k, n] and C [m, n] of an `mma` over a workgroup. Raises LayoutError."""
    m, n, k = shape
    return mma_layouts(m, n, k, waves, instr, operand_bits=bits, swapped=swapped)


def _mma(c: Check) -> Sequence[Type]:
    a, b = c.tile(0, "a tile"), c.tile(1, "a tile")
    for i, t in enumerate((a, b)):
        if t.rank != 2:
            c.fail("E0332", f"operand {i} of 'mma' is {t.with_layout(None)}", i, legal="tiles of rank 2")
        if accumulator(t.elem) is None:
            c.fail("E0333", f"'mma' does not multiply {t.elem}", i, legal="f64, f32, f16, bf16, 8-bit floats or i8")
    if a.elem != b.elem and not (a.elem.bits == b.elem.bits == 8 and a.elem.is_float and b.elem.is_float):
        c.fail("E0313", f"'mma' mixes {a.elem} and {b.elem}", 1, legal="equal element types, or two 8-bit floats")
    (m, k), (k2, n) = a.shape, b.shape
    if k != k2:
        c.fail(
            "E0334",
            f"'mma' of [{m}, {k}] and [{k2}, {n}]: the inner dimensions differ",
            1,
            legal="a [m, k] and b [k, n]",
        )
    acc = accumulator(a.elem)
    assert acc is not None
    if len(c.operands) == 3:
        t = c.tile(2, "a tile")
        if t.shape != (m, n) or t.elem != acc:
            c.fail("E0335", f"the accumulator is {t.with_layout(None)}", 2, legal=f"tile<{acc}[{m}, {n}]>")
    elif len(c.operands) > 3:
        c.fail("E0302", f"'mma' has {len(c.operands)} operands", 3, legal="mma(a, b) or mma(a, b, c)")
    return [TileType(acc, (m, n), _mma_layout(c, (m, n, k), a, b))]


def _mma_layout(c: Check, shape: tuple[int, int, int], a: TileType, b: TileType) -> Layout | None:
    given: list[Layout | None] = [t.layout for t in c.operands if isinstance(t, TileType)]
    if all(x is None for x in given):
        return None
    instr, waves = c.attrs.get("instr", ()), c.attrs.get("waves", ())
    assert isinstance(instr, tuple) and isinstance(waves, tuple)
    if len(instr) != 3 or len(waves) != 2:
        c.fail(
            "E0336", "an 'mma' over layouts states instr and waves", legal="mma<instr = [16, 16, 32], waves = [2, 4]>"
        )
    try:
        need = layouts_of(shape, waves, instr, a.elem.bits, bool(c.attrs.get("swapped", False)))
    except LayoutError as e:
        c.fail("E0337", f"no layout for this 'mma': {e}", legal="tile, instr and waves that fit")
    for i, (got, want) in enumerate(zip(given, need, strict=False)):
        if got != want:
            c.fail(
                "E0312",
                f"operand {i} of 'mma' has layout {got}, but instr and waves need {want}",
                i,
                legal="convert_layout",
            )
    return need[2]


def _mma_value(ctx: Any, op: Any, args: Sequence[Any]) -> Any:
    acc = op.results[0].tile.elem
    wide = np.int64 if acc.is_int else np.float64
    total = np.asarray(args[0]).astype(wide) @ np.asarray(args[1]).astype(wide)
    if len(args) == 3:
        total = total + np.asarray(args[2]).astype(wide)
    return total.astype(acc.np)


declare(
    OpDef(
        "mma",
        "Matrix product a · b, added to c if given. Products are exact and summed in f32 (f64 for f64, i32 for i8) in unspecified but "
        "fixed order; the interpreter sums in f64 and rounds once.",
        ("a", "b", "c*"),
        _mma,
        attrs=(
            AttrSpec("instr", "shape", default=(), doc="MFMA shape m, n, k"),
            AttrSpec("waves", "shape", default=(), doc="waves over rows and columns of the result"),
            AttrSpec("swapped", "bool", default=False, doc="the instruction computes the transposed product"),
        ),
        level="both",
        category="contract",
        semantics=_mma_value,
        example="%d = mma(%a, %b, %acc) : tile<f32[64, 64]>",
    )
)
