"""The library's grouped GEMM: tokens that go to experts, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import CHIPS, DTYPES, device, integers, library
from tileir.ir.types import BF16
from tileir.runtime import Compiled, compare, launch
from tileir.runtime.compare import gamma, rounding_bound
from tileir.runtime.simulator_device import SimulatorDevice

Array = np.ndarray[Any, Any]
BM = 16


def kernel(chip: str, top: int, out: str = "bf16") -> Compiled:
    return library("gemm_grouped", chip, BM=BM, BN=64, BK=32, TOP=top, O=out)


def sort_by_expert(expert: Array, experts: int, spare: int = 1) -> tuple[Array, Array]:
    """ROUTE and EXPERT of routes that go to `expert` (-1: dropped), with `spare` blocks for nobody at the end."""
    route, of_block = [], []
    for e in range(experts):
        mine = np.flatnonzero(expert == e)
        blocks = -(-len(mine) // BM)
        route += [*mine, *[-1] * (blocks * BM - len(mine))]
        of_block += [e] * blocks
    return np.array(route + [-1] * (spare * BM), np.int32), np.array(of_block + [-1] * spare, np.int32)


def product(a: Array, b: Array, w: Array, expert: Array, top: int, size: bool = False) -> Array:
    """w · a · bᵀ of every route in float64, or the sum of its magnitudes; 0 for dropped routes."""
    a, b, w = (np.abs(x.astype(np.float64)) if size else x.astype(np.float64) for x in (a, b, w))
    y = np.einsum("rk,rnk->rn", a[np.arange(len(expert)) // top], b[np.maximum(expert, 0)]) * w[:, None]
    return np.where(expert[:, None] >= 0, y, 0.0)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    ("tokens", "top", "experts", "n", "k"), [(24, 2, 4, 64, 64), (37, 3, 5, 67, 41), (1, 1, 3, 7, 97)]
)
def test_every_route_goes_to_its_expert(tokens: int, top: int, experts: int, n: int, k: int, chip: str) -> None:
    """Outliers, experts without a token, dropped routes, whose rows keep what they hold."""
    rng = np.random.default_rng(k)
    a, b = (
        (rng.standard_normal(s) * np.where(rng.random(s) < 0.02, 1e4, 1.0)).astype(DTYPES["bf16"])
        for s in ((tokens, k), (experts, n, k))
    )
    expert = rng.integers(1, experts, tokens * top)  # nobody goes to expert 0
    expert[5::11] = -1
    w = rng.standard_normal(tokens * top).astype(np.float32)
    route, of_block = sort_by_expert(expert, experts)
    y = np.full((tokens * top, n), 77, DTYPES["bf16"])
    arrays = {"A": a, "B": b, "W": w, "ROUTE": route, "EXPERT": of_block, "Y": y}
    launch(kernel(chip, top), arrays, device(f"simulator:{chip}"))
    want, size = (product(a, b, w, expert, top, s) for s in (False, True))
    error = gamma(k + 1) * size + 1e-37
    kept = expert < 0
    assert np.all(y[kept] == 77)
    result = compare(y[~kept], want[~kept], (error + rounding_bound(np.abs(want) + error, BF16))[~kept])
    assert result.ok, str(result)


@pytest.mark.parametrize("chip", CHIPS)
def test_numbers_outside_are_nobody(chip: str) -> None:
    """Routes and experts far outside, also past the end of tables that no block fills; all checks are silent."""
    rng = np.random.default_rng(2)
    a, b = integers(rng, (9, 40), DTYPES["bf16"]), integers(rng, (3, 50, 40), DTYPES["bf16"])
    expert = rng.integers(0, 3, 18)
    w = integers(rng, (18,), np.float32)
    route, of_block = sort_by_expert(expert, 3, spare=2)
    route[route < 0] = np.resize([-1, 18, 1 << 30, -(1 << 31), -2], np.count_nonzero(route < 0))
    of_block[of_block < 0] = [3, -(1 << 31)]
    y = np.full((18, 50), 77, np.float32)
    arrays = {"A": a, "B": b, "W": w, "ROUTE": route[:-3], "EXPERT": of_block, "Y": y}
    checked = SimulatorDevice(chip, "all")
    launch(kernel(chip, 2, "f32"), arrays, checked)
    np.testing.assert_array_equal(y, product(a, b, w, expert, 2))
    assert checked.statistics is not None and not checked.statistics.findings
