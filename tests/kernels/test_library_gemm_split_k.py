"""The library's split-K GEMM: parts of k that different workgroups add to C, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.harness import CHIPS, DTYPES, device, integers, library
from tests.kernels.test_conversions import mnemonics
from tileir.lowering.amdgpu.compile import Compiled
from tileir.runtime import compare, gemm_bound, launch
from tileir.runtime.simulator_device import SimulatorDevice


def kernel(chip: str, parts: int = 4) -> Compiled:
    return library("gemm_split_k", chip, BM=64, BN=32, BK=32, S=parts)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("m", "n", "k"), [(64, 32, 512), (67, 41, 331), (1, 3, 97), (5, 7, 33), (130, 1, 1)])
def test_sum_with_what_was_there(m: int, n: int, k: int, chip: str) -> None:
    """Outliers, ragged edges, parts without any k; nothing is touched outside C, whose rows lie apart."""
    rng = np.random.default_rng(k)
    a, b = (rng.standard_normal((r, k)) * np.where(rng.random((r, k)) < 0.02, 1e4, 1.0) for r in (m, n))
    a, b = a.astype(DTYPES["bf16"]), b.astype(DTYPES["bf16"])
    frame = np.full((m + 2, n + 3), 77, np.float32)
    c = frame[1 : m + 1, 1 : n + 1]
    c[:] = initial = rng.standard_normal((m, n)).astype(np.float32)
    launch(kernel(chip), {"A": a, "B": b, "C": c}, device(f"simulator:{chip}"))
    exact = a.astype(np.float64) @ b.astype(np.float64).T + initial
    result = compare(c, exact, gemm_bound(a, b.T, initial=initial))
    assert result.ok, f"{m}x{n}x{k}: {result}"
    c[:] = 77
    assert np.all(frame == 77), "wrote outside C"


@pytest.mark.parametrize("parts", [1, 3, 16])
def test_any_number_of_parts_covers_k_once(parts: int) -> None:
    """Exact sums of small integers; all checks of the simulator are silent."""
    chip = CHIPS[parts % 2]
    rng = np.random.default_rng(parts)
    a, b = integers(rng, (70, 200), DTYPES["bf16"]), integers(rng, (40, 200), DTYPES["bf16"])
    c = np.zeros((70, 40), np.float32)
    checked = SimulatorDevice(chip, "all")
    launch(kernel(chip, parts), {"A": a, "B": b, "C": c}, checked)
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T)
    assert checked.statistics is not None and not checked.statistics.findings


@pytest.mark.parametrize("chip", CHIPS)
def test_empty_parts_leave_c_alone(chip: str) -> None:
    """Without any k not even the sign of a zero changes. Sums are added by the chip's instruction."""
    c = np.array([[-0.0, 1.0, np.nan]], np.float32)
    want = c.copy()
    arrays = {"A": np.zeros((1, 0), DTYPES["bf16"]), "B": np.zeros((3, 0), DTYPES["bf16"]), "C": c}
    launch(kernel(chip), arrays, device(f"simulator:{chip}"))
    np.testing.assert_array_equal(c.view(np.uint32), want.view(np.uint32))
    assert mnemonics(kernel(chip))["global_atomic_add_f32"] > 0
