"""Products whose tiles along k are no powers of two: buffers with odd rows, holes in the operands, tails of any length."""

from typing import Any

import numpy as np
import pytest

from tileir.runtime import launch

from .harness import CHIPS, compiled, device

TEXT = """tileir 1

kernel @product<BM: int, BN: int, BK: int>(%A: global<f16[M, K]>, %B: global<f16[@B]>, %C: global<f32[M, N]>)
    grid(cdiv(M, BM), cdiv(N, BN)) {
  %i, %j = program_id()
  %zero = fill(0.0) : tile<f32[BM, BN]>
  %c = for %k = 0 to K step BK carry(%s = %zero) {
    %a = load(%A[%i * BM +: BM, %k +: BK])
    %b = @LOAD
    yield mma(%a, %b, %s)
  }
  store(%c, %C[%i * BM +: BM, %j * BN +: BN])
}
"""
FORMS = {
    "rows": ("K, N", "load(%B[%k +: BK, %j * BN +: BN])"),
    "columns": ("N, K", "transpose(load(%B[%j * BN +: BN, %k +: BK]))"),
}


@pytest.mark.parametrize("shape", [(64, 96, 80), (50, 90, 71)], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("tile", [(48, 80, 40), (32, 32, 40), (64, 64, 24), (16, 16, 20)], ids=str)
@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize("chip", CHIPS)
def test_product_is_exact_on_small_integers(
    chip: str, form: str, tile: tuple[int, int, int], shape: tuple[int, int, int]
) -> None:
    dims, load = FORMS[form]
    text = TEXT.replace("@B", dims).replace("@LOAD", load)
    kernel = compiled(text, chip, tuple(zip(("BM", "BN", "BK"), tile, strict=True)))
    m, n, k = shape
    rng = np.random.default_rng(1)
    a: Any = rng.integers(-3, 4, (m, k)).astype(np.float16)
    b: Any = rng.integers(-3, 4, (k, n)).astype(np.float16)
    c = np.zeros((m, n), np.float32)
    launch(
        kernel, {"A": a, "B": b if form == "rows" else np.ascontiguousarray(b.T), "C": c}, device(f"simulator:{chip}")
    )
    assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32))
