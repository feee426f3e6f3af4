"""Which register file accumulators and operands get, and what the text says of registers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.harness import CHIPS, DTYPES, device, integers
from tileir import kernels
from tileir.frontend import parse
from tileir.ir.core import Kernel, Op
from tileir.lowering.amdgpu.compile import compile_kernel
from tileir.passes.manager import run_pipeline
from tileir.passes.pressure import peak
from tileir.runtime import launch

LASTING = """tileir 1
kernel @k(%A: global<bf16[M, 64]>, %B: global<bf16[N, 64]>, %C: global<f32[M, N]>) grid(1) with(waves = 4) {
  %a = load(%A[0 +: 64, 0 +: 64])
  %zero = fill(0.0) : tile<f32[64, 64]>
  %sum = for %j = 0 to N step 64 carry(%c = %zero) {
    %b = load(%B[%j +: 64, 0 +: 64])
    %scaled = %c * 0.5
    yield mma(%a, transpose(%b), %scaled)
  }
  store(%sum, %C[0 +: 64, 0 +: 64])
}
"""


def products(kernel: Kernel) -> list[Op]:
    return [op for op in kernel.walk() if op.name == "mma"]


def gemm(chip: str, tile: tuple[int, int, int], waves: int) -> Kernel:
    bm, bn, bk = tile
    module = parse(kernels.source("gemm"), "gemm.tile", {"BM": bm, "BN": bn, "BK": bk})
    module.kernels[0].attrs["waves"] = waves
    return run_pipeline(module, "", chip).kernel


@pytest.mark.parametrize(
    "tile, waves, file",
    [
        ((256, 256, 32), 4, "accumulation"),  # 256 registers
        ((128, 128, 32), 4, "accumulation"),  # 64
        ((64, 64, 32), 4, "vector"),  # 16: the vector file has room, and so has a second workgroup
        ((256, 256, 32), 8, "vector"),  # 128 of a budget that both files share
    ],
)
@pytest.mark.parametrize("chip", CHIPS)
def test_file_of_accumulators(chip: str, tile: tuple[int, int, int], waves: int, file: str) -> None:
    for op in products(gemm(chip, tile, waves)):
        assert (op.attrs["file"], op.attrs["file_a"], op.attrs["file_b"]) == (file, "vector", "vector")


@pytest.mark.parametrize("chip", CHIPS)
def test_what_the_text_states_stays(chip: str) -> None:
    text = kernels.source("gemm").replace("mma(%a", "mma<file = vector>(%a")
    module = parse(text, "gemm.tile", {"BM": 128, "BN": 128, "BK": 32})
    module.kernels[0].attrs["waves"] = 4
    assert {op.attrs["file"] for op in products(run_pipeline(module, "", chip).kernel)} == {"vector"}


@pytest.mark.parametrize("chip", CHIPS)
def test_accumulator_that_is_rescaled_stays_a_vector(chip: str) -> None:
    """Arithmetic does not reach the accumulation file; an operand that lives through the loop goes there instead, if large."""
    large = LASTING.replace("64", "128")
    for text in (LASTING, large):
        kernel = run_pipeline(parse(text, "k.tile"), "", chip).kernel
        for op in products(kernel):
            assert (op.attrs["file"], op.attrs["file_a"], op.attrs["file_b"]) == ("vector", "accumulation", "vector")


@pytest.mark.parametrize("chip", CHIPS)
def test_lasting_operand_is_kept_in_the_accumulation_file(chip: str) -> None:
    """The code agrees with the text: no deviation, and registers of both files in use."""
    compiled = compile_kernel(parse(LASTING, "k.tile"), "", chip)
    assert compiled.stats["deviations"] == [] and compiled.stats["agprs"]


@pytest.mark.parametrize("waves", [4, 8])
@pytest.mark.parametrize("chip", CHIPS)
def test_bound_of_registers(chip: str, waves: int) -> None:
    """What tiles need and 112, at most the budget; the whole vector file where a wave has its SIMD to itself, and it needs much."""
    kernel = gemm(chip, (256, 256, 32), waves)
    stated, need = kernel.attrs["registers"], peak(kernel)
    if waves == 4:
        assert stated == (256, 256)
    else:
        assert stated == (min(256, need.most_vector + 112), 0)
    small = gemm(chip, (64, 64, 32), 4)
    assert small.attrs["registers"] == (256, 0)
    tiny = gemm(chip, (16, 16, 32), 1)
    need = peak(tiny).most_vector
    assert need <= 48 and tiny.attrs["registers"] == ((128, 0) if need <= 16 else (256, 0))


@pytest.mark.parametrize("chip", CHIPS)
def test_lasting_operand_computes_right(chip: str) -> None:
    """sum = (…((A·B₀ᵀ) / 2 + A·B₁ᵀ)…), exact for small integers and few halvings; aligned and other views."""
    kernel = compile_kernel(parse(LASTING, "k.tile"), "", chip)
    rng = np.random.default_rng(1)
    bf16 = DTYPES["bf16"]
    for m, n in ((64, 192), (50, 130)):
        a, b = integers(rng, (m, 64), bf16), integers(rng, (n, 64), bf16)
        blocks = np.zeros((-(-n // 64) * 64, 64), np.float32)
        blocks[:n] = b
        want = np.zeros((m, 64), np.float32)
        for block in blocks.reshape(-1, 64, 64):
            want = want * 0.5 + a.astype(np.float32) @ block.T
        c = np.zeros((m, n), np.float32)
        launch(kernel, {"A": a, "B": b, "C": c}, device(f"simulator:{chip}"))
        assert np.array_equal(c[:, :64], want[:, : min(n, 64)])
