"""The library's persistent GEMM: a loop over output tiles around the loop over k, for any number of workgroups."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.harness import CHIPS, DTYPES, check_gemm, device, integers, library
from tileir.lowering.amdgpu.compile import Compiled
from tileir.runtime import launch
from tileir.runtime.simulator_device import SimulatorDevice


def kernel(chip: str, workgroups: int = 3, window: int = 2, dtype: str = "bf16") -> Compiled:
    return library("gemm_persistent", chip, BM=32, BN=64, BK=32, G=workgroups, W=window, X=4, T=dtype)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (32, 64, 32), (33, 65, 31), (161, 200, 100), (7, 300, 64), (300, 7, 0)], ids=str
)
def test_ragged_shapes(m: int, n: int, k: int, chip: str) -> None:
    """Fewer tiles than workgroups, and several rounds; nothing is written outside C, whose rows lie apart."""
    check_gemm(kernel(chip), chip, m, n, k)


@pytest.mark.parametrize("workgroups", [1, 2, 7, 8, 64])
@pytest.mark.parametrize("window", [1, 3, 8])
def test_every_tile_is_computed_once(workgroups: int, window: int) -> None:
    """Exact sums of small integers, with all checks of the simulator: buffers in LDS change hands between tiles, too."""
    chip = CHIPS[(workgroups + window) % 2]
    rng = np.random.default_rng(workgroups)
    a, b = integers(rng, (150, 72), DTYPES["f16"]), integers(rng, (200, 72), DTYPES["f16"])
    c = np.full((150, 200), 77, DTYPES["f16"])
    checked = SimulatorDevice(chip, "all")
    launch(kernel(chip, workgroups, window, "f16"), {"A": a, "B": b, "C": c}, checked)
    np.testing.assert_array_equal(c, (a.astype(np.float32) @ b.astype(np.float32).T).astype(c.dtype))
    assert checked.statistics is not None and not checked.statistics.findings


@pytest.mark.parametrize("chip", CHIPS)
def test_interpreter_agrees(chip: str) -> None:
    rng = np.random.default_rng(1)
    a, b = integers(rng, (100, 40), DTYPES["bf16"]), integers(rng, (130, 40), DTYPES["bf16"])
    found = []
    for name in ("interpreter", f"simulator:{chip}"):
        c = np.zeros((100, 130), DTYPES["bf16"])
        launch(kernel(chip), {"A": a, "B": b, "C": c}, device(name))
        found.append(c)
    assert np.array_equal(*found)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("tile", [(256, 256, 64), (192, 256, 64), (128, 128, 64)], ids=str)
def test_no_spills_and_as_many_stages_as_the_plain_product(chip: str, tile: tuple[int, int, int]) -> None:
    bm, bn, bk = tile
    code = library("gemm_persistent", chip, BM=bm, BN=bn, BK=bk, G=2)
    assert code.stats["lds_bytes"] == library("gemm", chip, BM=bm, BN=bn, BK=bk).stats["lds_bytes"]
    for name in ("vgpr_spills", "sgpr_spills", "scratch_bytes"):
        assert code.stats[name] == 0, name
    assert not code.stats["deviations"]
    check_gemm(code, chip, bm + 1, bn + 3, 72)


@pytest.mark.parametrize("chip", CHIPS)
def test_the_largest_tile_stays_in_the_order_of_single_instructions(chip: str) -> None:
    """What lives across the outer loop leaves too few registers for the usual order: operands are read later, and the products are right."""
    code = library("gemm_persistent", chip, BM=256, BN=256, G=2)
    assert "R0814" in {d.code for d in code.log.diagnostics}
    assert code.final is not None and any(op.name == "mfma" for op in code.final.walk())
    rng = np.random.default_rng(3)
    a, b = integers(rng, (300, 360), DTYPES["bf16"]), integers(rng, (520, 360), DTYPES["bf16"])
    c = np.zeros((300, 520), DTYPES["bf16"])
    checked = SimulatorDevice(chip, "all")
    launch(code, {"A": a, "B": b, "C": c}, checked)
    np.testing.assert_array_equal(c, (a.astype(np.float32) @ b.astype(np.float32).T).astype(c.dtype))
    assert checked.statistics is not None and not checked.statistics.findings
