"""Transposing LDS reads of 16 and 8 bits in the simulator: every order of k that an operand can have, with holes, in every LDS
layout, and the machine instruction that is meant."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.kernels.test_gemm_forms import NUMPY, check, form, operands
from tests.passes.lds_tracer import traced
from tileir.frontend import parse
from tileir.ir.types import ELEMS, TileType
from tileir.layout import Layout, accumulator_k_order, mfma_accumulator, mma_layouts
from tileir.lowering.amdgpu.compile import Compiled, Options, compile_kernel
from tileir.passes.explain_lds import analyse
from tileir.passes.transposing_reads import READS, addressed_layout
from tileir.runtime import launch
from tileir.target import get as get_target

from .harness import device

CHIP = "gfx950"
INSTR = {"bf16": (16, 16, 32), "f16": (32, 32, 16), "i8": (16, 16, 64)}

TEXT = """tileir 1

kernel @turn(%X: global<@T[@K, @N]>, %Y: global<@T[@K, @N]>) grid(1) with(target = gfx950, waves = 1) {
  %s = shared_alloc() : shared<@T[@K, @N]@LDS>
  copy<bytes = @B>(%X[0 +: @K, 0 +: @N], %s)
  %y = shared_load_transposed(%s)
     : tile<@T[@K, @N], @L>
  store<bytes = @B, via = global>(%y, %Y[0 +: @K, 0 +: @N])
}
"""


def operand(dtype: str, k: int, n: int, order: tuple[int, ...] | None) -> Layout:
    return mma_layouts(16, n, k, wave_grid=(1, 1), instr=INSTR[dtype], operand_bits=ELEMS[dtype].bits, k_order=order)[1]


def orders(dtype: str, k: int) -> list[tuple[int, ...]]:
    """The instruction's own order, that of an accumulator, reversed and rotated bits, and sums of bits."""
    bits = k.bit_length() - 1
    units = [1 << i for i in range(bits)]
    found = [tuple(units), tuple(reversed(units)), *(tuple(units[i:] + units[:i]) for i in range(1, bits))]
    found.append(tuple(u | (1 if i else 0) for i, u in enumerate(units)))
    if dtype == "bf16":
        found.append(accumulator_k_order(mfma_accumulator(16, 16), 0, (16, 16, 16), 16) + tuple(units[4:]))
    return found


def run(dtype: str, k: int, n: int, layout: Layout, lds: str = "") -> Compiled:
    assert addressed_layout(TileType(ELEMS[dtype], (k, n), layout)) is not None
    parts = {"@T": dtype, "@K": k, "@N": n, "@LDS": lds, "@B": ELEMS[dtype].bytes, "@L": layout}
    text = TEXT
    for name, value in parts.items():
        text = text.replace(name, str(value))
    kernel = compile_kernel(parse(text, "turn.tile"), "", CHIP, Options(start_from="layout-lds"))
    x: Any = (np.arange(k * n) % 251 - 125).reshape(k, n).astype(NUMPY[dtype])
    y = np.zeros_like(x)
    d = device(f"simulator:{CHIP}")
    with traced(d, kernel.hsaco, "turn") as trace:
        launch(kernel, {"X": x, "Y": y}, d)
    assert np.array_equal(x, y)
    assert READS[ELEMS[dtype].bits] in {op for op, _ in trace.degrees}
    assert kernel.final is not None
    (report,) = analyse(kernel.final, get_target(CHIP))
    proved = {p.access.rule.op: p.degree for p in report.proof.accesses}
    counted = {op: degree for (op, _), degree in trace.degrees.items() if op in proved}
    assert counted == {op: proved[op] for op in counted}
    return kernel


@cache
def same(k: int) -> tuple[int, ...]:
    return tuple(1 << i for i in range(k.bit_length() - 1))


@pytest.mark.parametrize("dtype", list(INSTR))
def test_every_order_of_k(dtype: str) -> None:
    for order in orders(dtype, 64):
        run(dtype, 64, 32, operand(dtype, 64, 32, order))


@pytest.mark.parametrize(("k", "n"), [(16, 32), (24, 48), (40, 80), (96, 16)])
@pytest.mark.parametrize("dtype", ["bf16", "i8"])
def test_holes_along_both_dimensions(dtype: str, k: int, n: int) -> None:
    run(dtype, k, n, operand(dtype, k, n, None))


BLOCKS = "blocks(16, 5, 8, 7, 24, 10, 64, 11, 16)"


@pytest.mark.parametrize(
    "lds", ["rows", "swizzle(2, 4, 3)", "xor(6, 16, 8, 48)", "padded(80)", "rotate(16, 6, 1)", BLOCKS]
)
@pytest.mark.parametrize("dtype", ["bf16", "i8"])
def test_every_lds_layout(dtype: str, lds: str) -> None:
    n = (48 if "rotate" in lds or "blocks" in lds else 32) * (1 if dtype == "bf16" else 2)
    if "padded" in lds:
        lds = f"padded({n * ELEMS[dtype].bytes + 16})"
    run(dtype, 64, n, operand(dtype, 64, n, same(64)), f", {lds}")


def test_what_cannot_be_read_so() -> None:
    """Rows or columns that no whole reads cover, elements of another size, runs along columns."""
    for dtype, k, n in (("i8", 20, 32), ("i8", 64, 20), ("bf16", 30, 32)):
        assert addressed_layout(TileType(ELEMS[dtype], (k, n), operand(dtype, k, n, None))) is None
    wide = mma_layouts(16, 32, 32, wave_grid=(1, 1), instr=(16, 16, 4), operand_bits=32)[1]
    assert addressed_layout(TileType(ELEMS["f32"], (32, 32), wide)) is None
    turned = operand("bf16", 64, 32, None).transpose((1, 0))
    assert addressed_layout(TileType(ELEMS["bf16"], (32, 64), turned)) is None


@pytest.mark.parametrize("name", ["nn", "tt", "tn"])
def test_products_of_i8_use_them(name: str) -> None:
    """Operands summed over their rows go to LDS as they are, by direct copies, and are turned by the read."""
    kernel = form(name, CHIP, "i8", (64, 64, 64))
    assert kernel.final is not None
    ops = [op for op in kernel.final.walk() if op.loc.line]
    turned = {op.loc.line for op in ops if op.name.startswith("shared_load_transposed")}  # tiles, or their fragments
    copied = {op.loc.line for op in ops if op.name.startswith("copy_async")}
    assert len(turned) == (2 if name == "tn" else 1) and len(copied) == 2
    a, b = operands(np.random.default_rng(4), 70, 90, 200, "i8")
    check(kernel, name, CHIP, a, b, "i8")
