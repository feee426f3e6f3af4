"""Tiles that one product sums over their rows and another does not, and rows of numbers beside them: how they pass through LDS."""

from __future__ import annotations

import pytest

from tileir.frontend import parse
from tileir.ir.core import Kernel
from tileir.passes.manager import run_pipeline

TEXT = """tileir 1

kernel @both(%K: global<bf16[64, 64]>, %Q: global<bf16[N, 64]>, %L: global<f32[N]>, %O: global<f32[64, 64]>) grid(1) {
  %k = load(%K[0 +: 64, 0 +: 64])
  %zero = fill(0.0) : tile<f32[64, 64]>
  %o = for %j = 0 to N step 64 carry(%oi = %zero) {
    %q = load(%Q[%j +: 64, 0 +: 64])
    %l = reshape<[1, 64]>(load(%L[%j +: 64]))
    yield mma(convert<bf16>(mma(%k, transpose(%q)) + %l), %q, %oi)
  }
  store(%o, %O[0 +: 64, 0 +: 64])
}
"""


def placed(chip: str) -> Kernel:
    return run_pipeline(parse(TEXT, "both.tile"), "", chip, stop_after="place-memory").kernel


@pytest.mark.parametrize(("chip", "buffers"), [("gfx950", 1), ("gfx942", 2)])
def test_each_product_reads_for_itself(chip: str, buffers: int) -> None:
    """From one buffer where the chip has transposing reads, else one of two is filled turned; from memory the tile comes once."""
    kernel = placed(chip)
    loop = next(op for op in kernel.walk() if op.name == "for")
    reads = [op for op in loop.walk() if op.name == "shared_load" and op.result.tile.rank == 2]
    assert len(reads) == 2 and len({op.operands[0] for op in reads}) == buffers
    assert sum(op.name in ("load", "copy_async") and op.operands[0].name == "Q" for op in loop.walk()) == 1


def test_a_row_of_numbers_goes_with_the_tiles() -> None:
    """Where tiles are copied directly, so is what every lane needs: no load stands between them."""
    first = next(op for op in placed("gfx950").walk() if op.name == "for")
    assert not any(op.name == "load" for op in first.walk())
    loop = next(op for op in placed("gfx942").walk() if op.name == "for")
    assert any(op.name == "load" and op.operands[0].name == "L" for op in loop.walk())
