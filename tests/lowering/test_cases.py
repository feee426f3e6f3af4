"""Faults that users of other compilers reported for GEMMs, and the tests that would see them here: an index that is checked."""

from __future__ import annotations

import importlib

import pytest

from tests.kernels.gemm_matrix import CHIPS, Case
from tileir.simulator.inspect import inspect

CASES = {
    "plain-gemm-spills": ("tests.lowering.test_cases", "test_plain_gemm_spills"),
    "masked-direct-lds": ("tests.kernels.test_gemm_forms", "test_masked_direct_lds"),
    "mask-width": ("tests.kernels.test_gemm_forms", "test_mask_width"),
    "direct-lds-overrun": ("tests.kernels.test_gemm_forms", "test_direct_lds_overrun"),
    "sub-dword-lds": ("tests.kernels.test_gemm_forms", "test_sub_dword_lds"),
    "unswizzled-direct": ("tests.passes.test_lds_conflicts", "test_unswizzled_direct"),
    "needless-swizzle": ("tests.passes.test_lds_conflicts", "test_needless_swizzle"),
    "silent-scalar": ("tests.passes.test_lds_conflicts", "test_silent_scalar"),
    "chained-dots": ("tests.kernels.test_gemm_forms", "test_chained_dots"),
    "head-dim": ("tests.lowering.test_register_cases", "test_head_dim"),
    "launch-bound": ("tests.lowering.test_register_cases", "test_launch_bound"),
    "row-sum-chain": ("tests.lowering.test_register_cases", "test_row_sum_chain"),
    "far-too-much": ("tests.lowering.test_pressure", "test_far_too_much"),
    "half-rate-mfma": ("tests.kernels.test_gemm", "test_gfx950_never_uses_half_rate_matrix_instructions"),
    "wave-grids": ("tests.kernels.test_gemm", "test_wave_grids"),
    "raster-tail": ("tests.kernels.test_gemm", "test_raster_tail"),
    "byte-offset-overflow": ("tests.kernels.test_gemm", "test_rows_past_four_gigabytes"),
    "fnuz-nan": ("tests.kernels.test_small_float_products", "test_every_code"),
    "fp8-kind": ("tests.passes.test_specialise", "test_fp8_kind"),
    "primes": ("tests.kernels.test_gemm_forms", "test_ragged_and_prime_shapes"),
}


@pytest.mark.parametrize("case", list(CASES))
def test_every_case_has_its_test(case: str) -> None:
    module, name = CASES[case]
    found = importlib.import_module(module)
    test = getattr(found, name, None)
    assert callable(test), f"{module}.{name} is gone"
    assert case in (test.__doc__ or found.__doc__ or ""), f"{module}.{name} does not say that it is for {case}"


@pytest.mark.parametrize("form", ["nt", "nn", "tt", "tn"])
@pytest.mark.parametrize("chip", CHIPS)
def test_plain_gemm_spills(chip: str, form: str) -> None:
    """Case plain-gemm-spills: f16, 256 x 256 x 64, eight waves. Elsewhere 14 spills on gfx942, on gfx950 6 and 162 reads of
    accumulators; here nothing spills and no loop with products moves an accumulator."""
    compiled = Case(form, "f16", chip, 256, 256, 64, 8).compile()
    s = compiled.stats
    assert (s["vgpr_spills"], s["sgpr_spills"], s["scratch_bytes"], s["deviations"]) == (0, 0, 0, [])
    loops = [loop for loop in inspect(compiled.hsaco).kernel.loops if loop.counts.mfma_count]
    assert len(loops) >= 2 and all(loop.counts.accumulator_moves == 0 for loop in loops)
