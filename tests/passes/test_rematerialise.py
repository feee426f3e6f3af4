"""Cheap tiles are computed again where they are used: a mask from before a loop does not fill the scalar registers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.harness import DTYPES, device, integers
from tileir.frontend import parse
from tileir.ir.core import Kernel
from tileir.lowering.amdgpu.compile import compile_kernel
from tileir.passes.manager import run_pipeline
from tileir.runtime import launch

LOWER = """tileir 1

kernel @lower<BM: int = 128, BN: int = 128>(%A: global<bf16[128, K]>, %B: global<bf16[128, K]>, %C: global<f32[128, 128]>, %d: i32)
    grid(1) with(waves = 4) {
  %zero = fill(0.0) : tile<f32[BM, BN]>
  %row = iota<[BM, 1]>(axis = 0)
  %col = iota<[1, BN]>(axis = 1)
  %seen = (%row * %d >= %col) & (%col + %row != %d)
  %sum = for %k = 0 to K step 64 carry(%c = %zero) {
    %a = load(%A[0 +: BM, %k +: 64])
    %b = load(%B[0 +: BN, %k +: 64])
    yield %c + where(%seen, mma(%a, transpose(%b)), 0.0)
  }
  store(%sum, %C[0 +: BM, 0 +: BN])
}
"""


@pytest.mark.parametrize("chip", ["gfx950", pytest.param("gfx942", marks=pytest.mark.nightly)])
def test_a_mask_of_the_whole_tile(chip: str) -> None:
    """64 masks of a lane would take 128 of 106 scalar registers."""
    compiled = compile_kernel(parse(LOWER, "k.tile"), "", chip)
    assert [compiled.stats[k] for k in ("vgpr_spills", "sgpr_spills", "scratch_bytes")] == [0, 0, 0]
    rng = np.random.default_rng(7)
    for k, d in ((64, 1), (136, 2), (71, -1)):
        a, b = (integers(rng, (128, k), DTYPES["bf16"]) for _ in range(2))
        c = np.full((128, 128), 7, np.float32)
        launch(compiled, {"A": a, "B": b, "C": c, "d": d}, device(f"simulator:{chip}"))
        row, col = np.arange(128)[:, None], np.arange(128)[None, :]
        seen = (row * d >= col) & (col + row != d)
        whole = a.astype(np.float32) @ b.astype(np.float32).T
        assert np.array_equal(c, np.where(seen, whole, np.float32(0)))


def after(text: str) -> Kernel:
    return run_pipeline(parse(text, "k.tile"), "", "gfx950", stop_after="rematerialise").kernel


def loops(kernel: Kernel) -> list[list[str]]:
    return [[inner.name for inner in op.regions[0].ops] for op in kernel.walk() if op.name == "for"]


def test_what_is_not_cheap_stays() -> None:
    """A mask of floats that were loaded is not computed again."""
    text = LOWER.replace("%row * %d >= %col", "load(%C[0 +: BM, 0 +: BN]) >= 1.0")
    assert all("where" in ops and "and" not in ops and "ge" not in ops for ops in loops(after(text)))
    assert all("ge" in ops and "ne" in ops for ops in loops(after(LOWER)))


def test_later_passes_leave_it_in_the_loop() -> None:
    """Duplicates of positions and masks outside of a loop do not stand for those in it; so a second run changes nothing."""
    kernel = run_pipeline(parse(LOWER, "k.tile"), "", "gfx950", whole_tiles=True, stop_after="simplify-3").kernel
    assert all("ge" in ops for ops in loops(kernel) if "mma" in ops)
