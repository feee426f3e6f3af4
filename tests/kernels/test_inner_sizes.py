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
    names = {op.name.removesuffix("_part").removesuffix("_fragment") for op in kernel.final.walk()}
    copies = names & {"copy_async", "shared_store", "copy"}
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
  %s = shared_alloc() : shared<f32[16, 20], @LDS>
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


WRITTEN = ("rotate(16, 12, 4, 1, 2)", "blocks(16)", "blocks(16, 6, 32, 7, 16, 8, 192, 9, 96)", "padded(96)")


@pytest.mark.parametrize("lds", WRITTEN)
@pytest.mark.parametrize("fill", list(FILLS))
@pytest.mark.parametrize("chip", CHIPS)
def test_written_layouts_of_odd_rows(chip: str, fill: str, lds: str) -> None:
    """A written layout of rows of 80 bytes, with holes in the registers, filled in every way."""
    if fill == "direct" and chip == "gfx942":
        return  # its direct copies take 4 bytes, of which a piece of 16 cannot be made
    if fill == "direct" and "padded" in lds:
        return  # direct copies fill consecutive places
    text = ROTATED.replace("@FILL", FILLS[fill]).replace("@CHIP", chip).replace("@LDS", lds)
    kernel = compile_kernel(parse(text, "r.tile"), "", chip, Options(start_from="layout-lds"))
    x = np.arange(320, dtype=np.float32).reshape(16, 20)
    y = np.zeros_like(x)
    d = device(f"simulator:{chip}")
    with traced(d, kernel.hsaco, "k") as trace:
        launch(kernel, {"X": x, "Y": y}, d)
    assert np.array_equal(x, y)
    assert kernel.final is not None
    (report,) = analyse(kernel.final, get_target(chip))
    assert str(report.proof.shared) == lds
    assert max(trace.degrees.values()) == max(p.degree for p in report.proof.accesses)


RAGGED = """tileir 1

kernel @k(%X: global<f16[20, 48]>, %Y: global<f16[20, 48]>) grid(1) with(target = gfx950, waves = 1) {
  %s = shared_alloc() : shared<f16[20, 48], @LDS>
  copy_async<bytes = 16>(%X[0 +: 20, 0 +: 48], %s)
  %y = shared_load(%s)
     : tile<f16[20, 48], linear(reg = [[0, 1], [0, 2], [16, 0]], lane = [[1, 0], [2, 0], [4, 0], [8, 0], [0, 4], [0, 8]], wave = [], reps = [1, 3])>
  store<bytes = 8, via = global>(%y, %Y[0 +: 20, 0 +: 48])
}
"""


@pytest.mark.parametrize("lds", ["blocks(32)", "blocks(16, 9, 128, 10, 64)", "blocks(32, 5, 16, 10, 32, 11, 224)"])
def test_direct_copies_fill_what_lies_between_blocks(lds: str) -> None:
    """20 rows of 96 bytes: blocks of 640 or 320 bytes begin at multiples of 256, and what lies between belongs to no row."""
    kernel = compile_kernel(
        parse(RAGGED.replace("@LDS", lds), "r.tile"), "", "gfx950", Options(start_from="layout-lds")
    )
    assert kernel.final is not None
    (alloc,) = (op for op in kernel.final.walk() if op.name == "shared_alloc")
    assert alloc.result.type.layout.size_bytes > 20 * 96  # type: ignore[union-attr]
    x = np.arange(960, dtype=np.float16).reshape(20, 48)
    y = np.zeros_like(x)
    launch(kernel, {"X": x, "Y": y}, device("simulator:gfx950"))
    assert np.array_equal(x, y)
