"""GEMM with an epilogue: act(alpha · A · Bᵀ + beta · C0 + bias), against float64 within a derived bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import CHIPS, DTYPES, compiled, device
from tileir import kernels
from tileir.ir.types import ELEMS
from tileir.lowering.amdgpu.compile import Compiled
from tileir.runtime import compare, launch
from tileir.runtime.compare import F32_UNIT, gamma, rounding_bound

Array = np.ndarray[Any, Any]
ACTIVATIONS = ("none", "relu", "gelu", "silu")
# Rounding errors of f32 that the function of an activation adds, in units of 2^-24 relative to its argument: 8 of tanh and
# sigmoid themselves (LLVM's expansions are good to a few ulp), 8 of the operations around them.
FUNCTION_UNITS = 16
# Largest slope of each activation: how much an error of the argument can grow. gelu by tanh: 1.1290, silu: 1.0998.
SLOPE = {"none": 1.0, "relu": 1.0, "gelu": 1.13, "silu": 1.1}


def kernel_for(
    chip: str, act: int = 0, beta: bool = True, bias: bool = True, dtype: str = "bf16", out: str = ""
) -> Compiled:
    tile = (("BM", 64), ("BN", 64), ("BK", 32))
    select = (("BETA", beta), ("BIAS", bias), ("ACT", act), ("T", dtype), ("O", out or dtype))
    return compiled(kernels.source("gemm_epilogue"), chip, (*tile, *select))


def activation(name: str, x: Array) -> Array:
    """The definitions, in float64."""
    if name == "relu":
        return np.maximum(x, 0.0)
    if name == "gelu":
        return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))
    if name == "silu":
        with np.errstate(over="ignore"):
            return x / (1.0 + np.exp(-x))
    return x


def check(
    chip: str, shape: tuple[int, int, int], act: str, beta: bool, bias: bool, dtype: str, out: str, scale: float = 1.0
) -> None:
    kernel = kernel_for(chip, ACTIVATIONS.index(act), beta, bias, dtype, out)
    m, n, k = shape
    rng = np.random.default_rng(m + n + k)
    a, b = ((rng.standard_normal((x, k)) * scale).astype(DTYPES[dtype]) for x in (m, n))
    c0 = rng.standard_normal((m, n)).astype(DTYPES[out])
    row = rng.standard_normal((1, n)).astype(np.float32)
    c = np.zeros((m, n), DTYPES[out])
    alpha, factor = np.float32(0.625), np.float32(-1.5)
    arrays = {"A": a, "B": b, "C0": c0, "bias": row, "C": c, "alpha": alpha, "beta": factor}
    launch(kernel, arrays, device(f"simulator:{chip}"))
    a, b, c0, row = (x.astype(np.float64) for x in (a, b, c0, row))
    parts = [float(alpha) * (a @ b.T)] + [float(factor) * c0] * beta + [row] * bias
    sizes = [abs(float(alpha)) * (np.abs(a) @ np.abs(b).T)] + [np.abs(p) for p in parts[1:]]
    x = sum(parts)
    error = gamma(k + 4) * sum(sizes)  # k of the product, then one each for alpha, beta and the two sums
    y = activation(act, x)
    error = SLOPE[act] * error + (FUNCTION_UNITS * F32_UNIT * (np.abs(x) + error) if act in ("gelu", "silu") else 0.0)
    result = compare(c, y, error + rounding_bound(np.abs(y) + error, ELEMS[out]))
    assert result.ok, f"{act} {shape}: {result}"


@pytest.mark.parametrize("act", ACTIVATIONS)
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("chip", CHIPS)
def test_activations(chip: str, dtype: str, act: str) -> None:
    for shape in ((64, 64, 64), (67, 71, 37), (1, 130, 5)):
        check(chip, shape, act, True, True, dtype, dtype)
    check(chip, (64, 64, 64), act, True, True, dtype, "f32")


@pytest.mark.parametrize("act", ["gelu", "silu"])
@pytest.mark.parametrize("chip", CHIPS)
def test_far_from_zero(chip: str, act: str) -> None:
    """Arguments in the hundreds: the functions saturate and must not overflow into NaN."""
    check(chip, (64, 64, 32), act, True, True, "bf16", "f32", scale=16.0)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("beta", [False, True])
@pytest.mark.parametrize("chip", CHIPS)
def test_parts_are_selected(chip: str, beta: bool, bias: bool) -> None:
    check(chip, (67, 71, 37), "none", beta, bias, "bf16", "f32")


@pytest.mark.parametrize("chip", CHIPS)
def test_without_beta_c0_is_not_read(chip: str) -> None:
    """As BLAS says of beta = 0: NaN in C0 must not matter, and the access is gone from the code."""
    kernel = kernel_for(chip, beta=False, bias=False, out="f32")
    assert all(op.operands[0].name != "C0" for op in kernel.final.walk() if op.name in ("load", "copy", "copy_async"))
    a, b = np.ones((20, 10), DTYPES["bf16"]), np.ones((30, 10), DTYPES["bf16"])
    c0, row = np.full((20, 30), np.nan, np.float32), np.full((1, 30), np.nan, np.float32)
    c = np.zeros((20, 30), np.float32)
    arrays = {"A": a, "B": b, "C0": c0, "bias": row, "C": c, "alpha": np.float32(2.0), "beta": np.float32(0.0)}
    launch(kernel, arrays, device(f"simulator:{chip}"))
    assert np.all(c == 20.0)


@pytest.mark.parametrize("chip", CHIPS)
def test_interpreter_and_simulator_agree(chip: str) -> None:
    """Small integers and powers of two: every sum is exact, so all bits must agree."""
    kernel = kernel_for(chip, 1, out="f32")
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-2, 3, (x, 24)).astype(DTYPES["bf16"]) for x in (40, 50))
    c0, row = rng.integers(-4, 5, (40, 50)).astype(np.float32), rng.integers(-4, 5, (1, 50)).astype(np.float32)
    found = []
    for name in ("interpreter", f"simulator:{chip}"):
        c = np.zeros((40, 50), np.float32)
        scalars = {"alpha": np.float32(0.5), "beta": np.float32(2.0)}
        launch(kernel, {"A": a, "B": b, "C0": c0, "bias": row, "C": c, **scalars}, device(name))
        found.append(c)
    assert np.array_equal(found[0], found[1])


TILES = ((64, 64, 64), (128, 64, 64), (64, 128, 32))


@pytest.mark.parametrize("act", range(4))
@pytest.mark.parametrize("chip", CHIPS)
def test_nothing_spills(chip: str, act: int) -> None:
    for tile in TILES:
        stats = sized(chip, act, tile).stats
        assert (stats["vgpr_spills"], stats["sgpr_spills"], stats["scratch_bytes"]) == (0, 0, 0), (tile, stats)


@pytest.mark.parametrize("chip", CHIPS)
def test_named_spill(chip: str) -> None:
    """At 128 x 128 the version for views that are not aligned keeps 16 column masks and more alive, and 12 SGPRs wait in
    lanes of a VGPR outside of all loops. No memory is touched."""
    stats = sized(chip, 2, (128, 128, 64)).stats
    assert (stats["vgpr_spills"], stats["scratch_bytes"]) == (0, 0)
    assert isinstance(stats["sgpr_spills"], int) and stats["sgpr_spills"] <= 12


def sized(chip: str, act: int, tile: tuple[int, int, int]) -> Compiled:
    bm, bn, bk = tile
    return compiled(kernels.source("gemm_epilogue"), chip, (("BM", bm), ("BN", bn), ("BK", bk), ("ACT", act)))
