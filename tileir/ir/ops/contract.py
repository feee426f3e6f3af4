"""Contractions: `mma` and its wave-level form, one or more MFMA instructions per wave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tileir.ir.registry import AttrSpec, Check, OpDef, declare
from tileir.ir.small_floats import SCALE
from tileir.ir.types import F32, F64, I32, Elem, TileType, Type
from tileir.layout.linear import Layout, LayoutError
from tileir.layout.mma import mma_plan, scale_registers

SCALE_BLOCK = 32
"""Values of k that share a scale (OCP Microscaling Formats (MX) specification, 1.0)."""


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
    if len(c.operands) not in (2, 3, 5):
        c.fail("E0302", f"'mma' has {len(c.operands)} operands", 3, legal="mma(a, b) or mma(a, b, c)")
    if len(c.operands) > 2:
        t = c.tile(2, "a tile")
        if t.shape != (m, n) or t.elem != acc:
            c.fail("E0335", f"the accumulator is {t.with_layout(None)}", 2, legal=f"tile<{acc}[{m}, {n}]>")
    if len(c.operands) == 5:
        _check_scales(c, (0, 1), (3, 4))
    return [TileType(acc, (m, n), _mma_layout(c, a, b, (m, n)))]


def _check_scales(c: Check, factors: tuple[int, int], scales: tuple[int, int]) -> None:
    """Scales are one f8E8M0FNU for every 32 values of k of a row of a or a column of b, which are floats of at most 8 bits."""
    for axis, (i, j) in enumerate(zip(factors, scales, strict=True)):
        t, s = c.tile(i, "a tile"), c.tile(j, "a tile")
        if t.rank != 2 or not is_small_float(t.elem) or t.elem.name == SCALE:
            c.fail(
                "E0361", f"{t.with_layout(None)} is not scaled by blocks", i, legal="tiles of floats of 8, 6 or 4 bits"
            )
        along = 1 - axis
        if t.shape[along] % SCALE_BLOCK:
            c.fail(
                "E0361", f"{t.shape[along]} values of k are no whole blocks", i, legal=f"a multiple of {SCALE_BLOCK}"
            )
        shape = tuple(x // SCALE_BLOCK if d == along else x for d, x in enumerate(t.shape))
        if s.elem.name != SCALE or s.shape != shape:
            legal = f"tile<{SCALE}[{shape[0]}, {shape[1]}]>: a scale for each block of {SCALE_BLOCK} along k"
            c.fail("E0361", f"the scales of {t.with_layout(None)} are {s.with_layout(None)}", j, legal=legal)


def _mma_layout(c: Check, a: TileType, b: TileType, shape: tuple[int, int]) -> Layout | None:
    """Layout of the result: that of the accumulator, or the one written; the MFMAs must exist for it."""
    want = c.wanted()
    acc = c.operands[2] if len(c.operands) > 2 else want
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
        plan = mma_plan(
            a.layout,
            b.layout,
            layout,
            instr=instr,
            operand_bits=(a.elem.bits, b.elem.bits),
            swapped=bool(c.attrs.get("swapped", False)),
        )
        if len(c.operands) == 5:
            scales = c.tile(3).layout, c.tile(4).layout
            if scales[0] is None or scales[1] is None:
                c.fail("E0336", "the scales of an 'mma' over layouts have none", 3, legal="layouts on all operands")
            scale_registers(plan, (a.layout, b.layout), (scales[0], scales[1]), instr, (a.elem.bits, b.elem.bits))
    except LayoutError as e:
        c.fail("E0337", f"these layouts do not fit the instruction: {e}", legal="layouts of one wave grid and k order")
    return layout


def _scaled(x: Any, scales: Any, axis: int) -> Any:
    return x * np.repeat(np.asarray(scales).astype(np.float64), SCALE_BLOCK, axis)


def _mma_value(ctx: Any, op: Any, args: Sequence[Any]) -> Any:
    acc = op.results[0].tile.elem
    a, b = (np.asarray(x).astype(np.float64) for x in args[:2])
    if len(args) == 5:
        a, b = _scaled(a, args[3], 1), _scaled(b, args[4], 0)
    total = a @ b
    if acc.is_int:  # exact in f64: |products| <= 2^14, so sums of up to 2^39 of them
        exact = total.astype(np.int64)
        return (exact + args[2] if len(args) == 3 else exact).astype(acc.np)
    if len(args) > 2:
        total = total + np.asarray(args[2]).astype(np.float64)
    return total.astype(acc.np)


declare(
    OpDef(
        "mma",
        "Matrix product a · b, added to c if given. Products are exact and summed in f32 (f64 for f64, i32 for i8) in unspecified but "
        "fixed order; the interpreter sums in f64 and rounds once. With five operands the last two are scales of a and b as those of "
        "`mma_scaled`, which becomes this op when the kernel is bound to a chip.",
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
            AttrSpec(
                "pin", "shape", default=(), doc="first and last register of that file in which the accumulator lies"
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


def _mma_scaled(c: Check) -> Sequence[Type]:
    if len(c.operands) not in (4, 5):
        c.fail(
            "E0302",
            f"'mma_scaled' has {len(c.operands)} operands",
            legal="mma_scaled(a, sa, b, sb) or mma_scaled(a, sa, b, sb, c)",
        )
    _check_scales(c, (0, 2), (1, 3))
    a, b = c.tile(0), c.tile(2)
    (m, k), (k2, n) = a.shape, b.shape
    if k != k2:
        c.fail(
            "E0334",
            f"'mma_scaled' of [{m}, {k}] and [{k2}, {n}]: the inner dimensions differ",
            2,
            legal="a [m, k] and b [k, n]",
        )
    if len(c.operands) == 5 and (c.tile(4).shape != (m, n) or c.tile(4).elem != F32):
        c.fail("E0335", f"the accumulator is {c.tile(4).with_layout(None)}", 4, legal=f"tile<f32[{m}, {n}]>")
    return [TileType(F32, (m, n))]


def _mma_scaled_value(ctx: Any, op: Any, args: Sequence[Any]) -> Any:
    a, b = (np.asarray(args[i]).astype(np.float64) for i in (0, 2))
    total = _scaled(a, args[1], 1) @ _scaled(b, args[3], 0)
    return (total + np.asarray(args[4]) if len(args) == 5 else total).astype(np.float32)


declare(
    OpDef(
        "mma_scaled",
        "Matrix product of block-scaled operands (OCP microscaling formats), added to c if given: every 32 values of k of a row of a share "
        "the scale in sa, f8E8M0FNU[m, k / 32], and of a column of b the one in sb, f8E8M0FNU[k / 32, n]. a and b are floats of 8, 6 or 4 "
        "bits, of the same or different types. Products are exact and summed in f32; a scale of NaN makes NaN of its row or column.",
        ("a", "sa", "b", "sb", "c*"),
        _mma_scaled,
        category="contract",
        semantics=_mma_scaled_value,
        example="%d = mma_scaled(%q, %qs, %r, %rs) : tile<f32[64, 64]>",
    )
)
