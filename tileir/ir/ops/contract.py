"""Contractions: `mma` and its wave-level form, one or more MFMA instructions per wave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tileir.ir.registry import AttrSpec, Check, OpDef, declare
from tileir.ir.types import F32, F64, I32, Elem, TileType, Type
from tileir.layout.linear import Layout, LayoutError
from tileir.layout.mma import mma_plan


def is_small_float(elem: Elem) -> bool:
    """Floats of 8 bits and less, whose kinds differ from chip to chip."""
    return elem.is_float and elem.bits <= 8


def accumulator(elem: Elem) -> Elem | None:
    """Element type in which products of `elem` are summed; None where no contraction exists."""
    if elem.name == "f64":
        return F64
    if elem.is_float and elem.name != "f8E8M0FNU":
        return F32
    return I32 if elem.name == "i8" else None


def _mma(c: Check) -> Sequence[Type]:
    a, b = c.tile(0, "a tile"), c.tile(1, "a tile")
    for i, t in enumerate((a, b)):
        if t.rank != 2:
            c.fail("E0332", f"operand {i} of 'mma' is {t.with_layout(None)}", i, legal="tiles of rank 2")
        if accumulator(t.elem) is None:
            c.fail(
                "E0333",
                f"'mma' does not multiply {t.elem}",
                i,
                legal="f64, f32, f16, bf16, floats of 8, 6 or 4 bits, or i8",
            )
    if a.elem != b.elem and not (is_small_float(a.elem) and is_small_float(b.elem)):
        c.fail(
            "E0313", f"'mma' mixes {a.elem} and {b.elem}", 1, legal="equal element types, or floats of at most 8 bits"
        )
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
    return [TileType(acc, (m, n), _mma_layout(c, a, b, (m, n)))]


def _mma_layout(c: Check, a: TileType, b: TileType, shape: tuple[int, int]) -> Layout | None:
    """Layout of the result: that of the accumulator, or the one written; the MFMAs must exist for it."""
    want = c.wanted()
    acc = c.operands[2] if len(c.operands) == 3 else want
    layout = acc.layout if isinstance(acc, TileType) and acc.shape == shape else None
    if a.layout is None and b.layout is None and layout is None:
        return None
    instr = c.attrs.get("instr", ())
    assert isinstance(instr, tuple)
    if a.layout is None or b.layout is None or layout is None or len(instr) != 3:
        c.fail(
            "E0336",
            "an 'mma' over layouts has a layout on every operand and states its instruction",
            legal="mma<instr = [16, 16, 32]> with layouts on a, b and the result",
        )
    try:
        mma_plan(
            a.layout,
            b.layout,
            layout,
            instr=instr,
            operand_bits=(a.elem.bits, b.elem.bits),
            swapped=bool(c.attrs.get("swapped", False)),
        )
    except LayoutError as e:
        c.fail("E0337", f"these layouts do not fit the instruction: {e}", legal="layouts of one wave grid and k order")
    return layout


def _mma_value(ctx: Any, op: Any, args: Sequence[Any]) -> Any:
    acc = op.results[0].tile.elem
    total = np.asarray(args[0]).astype(np.float64) @ np.asarray(args[1]).astype(np.float64)
    if acc.is_int:  # exact in f64: |products| <= 2^14, so sums of up to 2^39 of them
        exact = total.astype(np.int64)
        return (exact + args[2] if len(args) == 3 else exact).astype(acc.np)
    if len(args) == 3:
        total = total + np.asarray(args[2]).astype(np.float64)
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
            AttrSpec(
                "file",
                "word",
                default="",
                choices=("", "vector", "accumulation"),
                doc="register file of the accumulator",
            ),
            *(
                AttrSpec(
                    f"file_{x}",
                    "word",
                    default="",
                    choices=("", "vector", "accumulation"),
                    doc=f"register file from which the instruction takes {x}",
                )
                for x in "ab"
            ),
        ),
        level="both",
        category="contract",
        semantics=_mma_value,
        example="%d = mma(%a, %b, %acc) : tile<f32[64, 64]>",
    )
)
