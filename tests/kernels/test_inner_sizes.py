"""Products whose tiles along k are no powers of two: buffers with odd rows, holes in the operands, tails of any length."""

from typing import Any

import numpy as np
import pytest

from tests.passes.lds_tracer import traced
from tileir.frontend import parse
from tileir.lowering.amdgpu.compile import Options, compile_kernel
from tileir.passes.explain_lds import analyse
from tileir.runtime import launch
from tileir.target import get as get_target

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


WIDTHS = """tileir 1

kernel @widths<BK: int>(%A: global<f16[M, K]>, %B: global<f16[N, K]>, %C: global<f32[M, N]>)
    grid(cdiv(M, 32), cdiv(N, 32)) with(waves = 4) {
  %i, %j = program_id()
  %zero = fill(0.0) : tile<f32[32, 32]>
  %c = for %k = 0 to K step BK carry(%s = %zero) {
    %a = load(%A[%i * 32 +: 32, %k +: BK])
    %b = load(%B[%j * 32 +: 32, %k +: BK])
    yield mma(%a, transpose(%b), %s)
  }
  store(%c, %C[%i * 32 +: 32, %j * 32 +: 32])
}
"""


@pytest.mark.parametrize("inner", [40, 48, 80, 96, 192], ids=lambda k: f"rows of {2 * k} bytes")
@pytest.mark.parametrize("chip", CHIPS)
def test_rows_of_any_width_in_lds(chip: str, inner: int) -> None:
    """Rows in LDS that are no power of two, filled by direct copies (gfx950), by register writes (gfx942), and element by
    element (odd k). What the machine code does must conflict exactly as the text was proved to."""
    kernel = compiled(WIDTHS, chip, (("BK", inner),))
    assert kernel.final is not None
    copies = {op.name for op in kernel.final.walk()} & {"copy_async", "shared_store", "copy"}
    assert copies == {"copy", "copy_async" if chip == "gfx950" else "shared_store"}
    proved = max(p.degree for r in analyse(kernel.final, get_target(chip)) for p in r.proof.accesses)
    rng = np.random.default_rng(inner)
    worst = 0
    for k in (2 * inner, inner + 8, inner + 5):
        a: Any = rng.integers(-3, 4, (40, k)).astype(np.float16)
        b: Any = rng.integers(-3, 4, (50, k)).astype(np.float16)
        c = np.zeros((40, 50), np.float32)
        d = device(f"simulator:{chip}")
        with traced(d, kernel.hsaco, "widths") as trace:
            launch(kernel, {"A": a, "B": b, "C": c}, d)
        assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T)
        worst = max([worst, *trace.degrees.values()])
    assert worst == proved
    if inner >= 80:
        assert proved == 1


ROTATED = """tileir 1

kernel @k(%X: global<f32[16, 20]>, %Y: global<f32[16, 20]>) grid(1) with(target = @CHIP, waves = 1) {
  %s = shared_alloc() : shared<f32[16, 20], rotate(16, 12, 4, 1, 2)>
  @FILL
  %y = shared_load(%s)
     : tile<f32[16, 20], linear(reg = [[0, 1], [0, 2], [0, 16]], lane = [[1, 0], [2, 0], [4, 0], [8, 0], [0, 4], [0, 8]], wave = [])>
  store<bytes = 4, via = global>(%y, %Y[0 +: 16, 0 +: 20])
}
"""
FILLS = {
    "direct": "copy_async<bytes = 16>(%X[0 +: 16, 0 +: 20], %s)",
    "elements": "copy<bytes = 4>(%X[0 +: 16, 0 +: 20], %s)",
    "registers": "%x = load<bytes = 4, via = global>(%X[0 +: 16, 0 +: 20]) : tile<f32[16, 20], linear(reg = [[0, 1], [0, 2], "
    "[0, 16]], lane = [[0, 4], [0, 8], [1, 0], [2, 0], [4, 0], [8, 0]], wave = [])>\n  shared_store(%x, %s)",
}


@pytest.mark.parametrize("fill", list(FILLS))
@pytest.mark.parametrize("chip", CHIPS)
def test_turned_rows(chip: str, fill: str) -> None:
    """A written rotation of rows of 80 bytes, with holes in the registers, filled in every way."""
    if fill == "direct" and chip == "gfx942":
        return  # its direct copies take 4 bytes, of which a piece of 16 cannot be made
    text = ROTATED.replace("@FILL", FILLS[fill]).replace("@CHIP", chip)
    kernel = compile_kernel(parse(text, "r.tile"), "", chip, Options(start_from="layout-lds"))
    x = np.arange(320, dtype=np.float32).reshape(16, 20)
    y = np.zeros_like(x)
    d = device(f"simulator:{chip}")
    with traced(d, kernel.hsaco, "k") as trace:
        launch(kernel, {"X": x, "Y": y}, d)
    assert np.array_equal(x, y)
    assert kernel.final is not None
    (report,) = analyse(kernel.final, get_target(chip))
    assert str(report.proof.shared) == "rotate(16, 12, 4, 1, 2)"
    assert max(trace.degrees.values()) == max(p.degree for p in report.proof.accesses)
