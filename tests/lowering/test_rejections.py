"""What cannot fit is rejected soon: within five seconds of this process's time, with a place, a code, and what would be legal."""

from __future__ import annotations

import time

import pytest

from tests.lowering.test_register_cases import products
from tileir import kernels
from tileir.frontend import parse
from tileir.ir.core import Module
from tileir.ir.diagnostics import CompileError
from tileir.lowering.amdgpu.compile import compile_kernel

SECONDS = 5.0
FORMS = ("attention", "attention_lazy", "attention_prescaled")
# Kernel of the library, chip, parameters.
LIBRARY: list[tuple[str, str, str, dict[str, int | str]]] = [
    *((form, "attention", chip, {"D": 512}) for form in FORMS for chip in ("gfx942", "gfx950")),
    *(("attention_prescaled", "attention", chip, {"D": 256}) for chip in ("gfx942", "gfx950")),
    *(("attention_backward", "fused", chip, {"D": 256}) for chip in ("gfx942", "gfx950")),
    *(("attention_backward", "dkv", chip, {"BN": 512}) for chip in ("gfx942", "gfx950")),
    *(("gemm", "gemm", chip, {"BM": 256, "BN": 512}) for chip in ("gfx942", "gfx950")),
    *(("gemm", "gemm", chip, {"BM": 512, "BN": 512}) for chip in ("gfx942", "gfx950")),
]
DOUBLES = """tileir 1
kernel @doubles(%A: global<f64[M, K]>, %B: global<f64[N, K]>, %C: global<f64[M, N]>) grid(cdiv(M, 256), cdiv(N, 256)) {
  %i, %j = program_id()
  %zero = fill(0.0) : tile<f64[256, 256]>
  %sum = for %k = 0 to K step 16 carry(%c = %zero) {
    %a = load(%A[%i * 256 +: 256, %k +: 16])
    %b = load(%B[%j * 256 +: 256, %k +: 16])
    yield mma(%a, transpose(%b), %c)
  }
  store(%sum, %C[%i * 256 +: 256, %j * 256 +: 256])
}
"""


def assert_rejected_soon(module: Module, kernel: str, chip: str) -> None:
    start = time.process_time()
    with pytest.raises(CompileError) as caught:
        compile_kernel(module, kernel, chip)
    seconds = time.process_time() - start
    d = caught.value.diagnostics[0]
    assert d.code in ("E0861", "E0863") and d.loc.line and d.loc.file and d.legal, d
    assert seconds < SECONDS, (seconds, d.message)


@pytest.mark.nightly
@pytest.mark.parametrize(("file", "kernel", "chip", "params"), LIBRARY, ids=str)
def test_library(file: str, kernel: str, chip: str, params: dict[str, int | str]) -> None:
    assert_rejected_soon(parse(kernels.source(file), f"{file}.tile", params, kernel=kernel), kernel, chip)


@pytest.mark.nightly
@pytest.mark.parametrize("chip", ["gfx942", "gfx950"])
def test_accumulators(chip: str) -> None:
    """Of f64, twice as many registers as of f32; and eight that live at the same time."""
    assert_rejected_soon(parse(DOUBLES, "doubles.tile"), "doubles", chip)
    assert_rejected_soon(parse(products(128, 8), "many.tile"), "many", chip)
