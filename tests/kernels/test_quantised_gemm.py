"""The library's GEMMs on quantised operands against float64: 8-bit floats with scales by row and by block, 8-bit integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import CHIPS, DTYPES, device
from tests.kernels.test_small_float_products import KINDS
from tileir import kernels
from tileir.frontend import parse
from tileir.ir.types import ELEMS, Elem
from tileir.lowering.amdgpu.compile import Compiled, compile_kernel
from tileir.runtime import compare, launch
from tileir.runtime.compare import gamma, rounding_bound
from tileir.runtime.simulator_device import SimulatorDevice
from tileir.simulator.inspect import inspect

SHAPES = ((128, 128, 256), (70, 67, 300), (1, 130, 17), (200, 5, 129))


def library(file: str, kernel: str, chip: str, **params: object) -> Compiled:
    """A kernel of a library file."""
    return compile_kernel(parse(kernels.source(file), f"{file}.tile", params, kernel=kernel), kernel, chip)


def bound(size: Any, value: Any, terms: int, out: Elem) -> Any:
    """Bound on sums of `terms` products whose magnitudes add up to `size`, summed and scaled in f32, rounded once."""
    error = gamma(terms + 4) * size + terms * 2.0**-140
    return error + rounding_bound(np.abs(value) + error, out)


def with_outliers(rng: np.random.Generator, shape: tuple[int, int], elem: Elem) -> Any:
    """A few values at the ends of the type among ordinary ones, subnormals among the small ones."""
    import ml_dtypes

    info: Any = ml_dtypes.finfo(elem.np)
    x = rng.standard_normal(shape)
    x = np.where(rng.random(shape) < 0.01, np.sign(x) * float(info.max), x)
    x = np.where(rng.random(shape) < 0.05, np.sign(x) * 3 * float(info.smallest_subnormal), x)
    return x.astype(elem.np)


def hot_loop(kernel: Compiled) -> set[str]:
    """Matrix instructions of the hot loop."""
    loop = inspect(kernel.hsaco).kernel.hot_loop
    assert loop is not None
    return set(loop.counts.mfma)


def is_dense(chip: str, names: set[str]) -> bool:
    """Only instructions of the full rate of 8-bit floats."""
    narrow = {"gfx942": ("fp8_fp8", "bf8_bf8", "fp8_bf8", "bf8_fp8"), "gfx950": ("f8f6f4",)}
    return bool(names) and all(name.endswith(narrow[chip]) for name in names)


@pytest.mark.parametrize("pair", [(0, 0), (0, 1)])
@pytest.mark.parametrize("chip", CHIPS)
def test_fp8_with_scales_by_row(chip: str, pair: tuple[int, int]) -> None:
    """Outliers in operands and scales."""
    t, u = (KINDS[chip][i] for i in pair)
    kernel = library("gemm_fp8", "gemm_fp8_rows", chip, BM=64, BN=64, T=t, U=u)
    assert is_dense(chip, hot_loop(kernel))
    for m, n, k in SHAPES:
        rng = np.random.default_rng(m)
        a, b = with_outliers(rng, (m, k), ELEMS[t]), with_outliers(rng, (n, k), ELEMS[u])
        sa = (2.0 ** rng.integers(-9, 9, (m, 1))).astype(np.float32) * np.float32(1.25)
        sb = (rng.random((1, n)) + 0.5).astype(np.float32)
        c = np.zeros((m, n), DTYPES["bf16"])
        launch(kernel, {"A": a, "B": b, "SA": sa, "SB": sb, "C": c}, device(f"simulator:{chip}"))
        x, y = a.astype(np.float64) * sa, b.astype(np.float64).T * sb
        result = compare(c, x @ y, bound(np.abs(x) @ np.abs(y), x @ y, k, ELEMS["bf16"]))
        assert result.ok, f"{m}x{n}x{k}: {result}"


@pytest.mark.parametrize("chip", CHIPS)
def test_fp8_with_scales_by_block(chip: str) -> None:
    """Scales of blocks that differ by many powers of two."""
    t = KINDS[chip][0]
    kernel = library("gemm_fp8", "gemm_fp8_blocks", chip, BM=64, BN=64, T=t)
    assert is_dense(chip, hot_loop(kernel))
    for m, n, k in SHAPES:
        rng = np.random.default_rng(n)
        blocks = -(-k // 128)
        a, b = with_outliers(rng, (m, k), ELEMS[t]), with_outliers(rng, (n, k), ELEMS[t])
        sa = (2.0 ** rng.integers(-12, 12, (m, blocks)) * 1.5).astype(np.float32)
        sb = (2.0 ** rng.integers(-6, 6, (-(-n // 128), blocks)) * 0.75).astype(np.float32)
        c = np.zeros((m, n), np.float32)
        wide = library("gemm_fp8", "gemm_fp8_blocks", chip, BM=64, BN=64, T=t, O="f32")
        launch(wide, {"A": a, "B": b, "SA": sa, "SB": sb, "C": c}, device(f"simulator:{chip}"))
        x = a.astype(np.float64) * sa.repeat(128, 1)[:, :k]
        y = (b.astype(np.float64) * sb.repeat(128, 0)[:n].repeat(128, 1)[:, :k]).T
        result = compare(c, x @ y, bound(np.abs(x) @ np.abs(y), x @ y, k + 2 * blocks, ELEMS["f32"]))
        assert result.ok, f"{m}x{n}x{k}: {result}"


def scales(rng: np.random.Generator, shape: tuple[int, int]) -> Any:
    """Powers of two over a wide range, as f8E8M0FNU."""
    return (127 + rng.integers(-20, 20, shape)).astype(np.uint8).view(ELEMS["f8E8M0FNU"].np)


SCALED = {"v_mfma_scale_f32_16x16x128_f8f6f4", "v_mfma_scale_f32_32x32x64_f8f6f4"}
MX_SHAPES = ((128, 128, 256), (70, 67, 288), (1, 130, 32))


def check_mx(kernel: Compiled, t: str, u: str) -> None:
    """Against float64 with outliers and scales of many sizes."""
    for m, n, k in MX_SHAPES:
        rng = np.random.default_rng(m)
        a, b = with_outliers(rng, (m, k), ELEMS[t]), with_outliers(rng, (n, k), ELEMS[u])
        sa, sb = scales(rng, (m, k // 32)), scales(rng, (n, k // 32))
        c = np.zeros((m, n), np.float32)
        launch(kernel, {"A": a, "SA": sa, "B": b, "SB": sb, "C": c}, device("simulator:gfx950"))
        x = a.astype(np.float64) * sa.astype(np.float64).repeat(32, 1)
        y = (b.astype(np.float64) * sb.astype(np.float64).repeat(32, 1)).T
        result = compare(c, x @ y, bound(np.abs(x) @ np.abs(y), x @ y, k, ELEMS["f32"]))
        assert result.ok, f"{t} x {u} {m}x{n}x{k}: {result}"


@pytest.mark.parametrize("u", KINDS["gfx950"])
@pytest.mark.parametrize("t", KINDS["gfx950"])
def test_mxfp8(t: str, u: str) -> None:
    """Both kinds in all pairings; blocks of k past the end of the views count for nothing."""
    kernel = library("gemm_mx", "gemm_mx", "gfx950", BM=64, BN=64, BK=128, T=t, U=u, O="f32")
    assert hot_loop(kernel) and hot_loop(kernel) <= SCALED
    check_mx(kernel, t, u)


MX_PAIRS = [
    ("f4E2M1FN", "f4E2M1FN"),
    ("f6E2M3FN", "f6E2M3FN"),
    ("f6E3M2FN", "f4E2M1FN"),
    ("f4E2M1FN", "f8E4M3FN"),
    ("f8E5M2", "f6E3M2FN"),
]


@pytest.mark.parametrize(("t", "u"), MX_PAIRS)
def test_mxfp4_and_mxfp6(t: str, u: str) -> None:
    """Packed operands, also of different widths."""
    kernel = library("gemm_mx", "gemm_mx", "gfx950", BM=64, BN=64, BK=128, T=t, U=u, O="f32")
    assert hot_loop(kernel) and hot_loop(kernel) <= SCALED
    check_mx(kernel, t, u)


@pytest.mark.parametrize("tile", [(64, 64, 32), (64, 32, 64), (48, 80, 96), (128, 128, 256)])
def test_mx_tiles(tile: tuple[int, int, int]) -> None:
    """Tiles that do not fill the instruction along k, odd ones, and ones with several blocks in a lane: all four bytes of a
    register of scales."""
    bm, bn, bk = tile
    kernel = library("gemm_mx", "gemm_mx", "gfx950", BM=bm, BN=bn, BK=bk, T="f8E4M3FN", O="f32")
    assert hot_loop(kernel) <= SCALED
    check_mx(kernel, "f8E4M3FN", "f8E4M3FN")


@pytest.mark.parametrize("chip", CHIPS)
def test_int8_with_zero_points(chip: str) -> None:
    """All of the range; the sums are exact, so that only scaling and the result round."""
    kernel = library("gemm_int8", "gemm_int8", chip, BM=64, BN=64)
    widest = {
        "gfx942": {"v_mfma_i32_16x16x32_i8", "v_mfma_i32_32x32x16_i8"},
        "gfx950": {"v_mfma_i32_16x16x64_i8", "v_mfma_i32_32x32x32_i8"},
    }
    assert hot_loop(kernel) and hot_loop(kernel) <= widest[chip]
    for m, n, k in SHAPES:
        rng = np.random.default_rng(k)
        a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((m, k), (n, k)))
        za = rng.integers(-128, 128, (m, 1)).astype(np.int32)
        sa, sb = (rng.random(s).astype(np.float32) + np.float32(0.01) for s in ((m, 1), (1, n)))
        c = np.zeros((m, n), DTYPES["bf16"])
        wb = b.astype(np.int32).sum(1, dtype=np.int32)[None]
        arrays = {"A": a, "B": b, "SA": sa, "ZA": za, "SB": sb, "WB": wb, "C": c}
        launch(kernel, arrays, device(f"simulator:{chip}"))
        exact = (a.astype(np.int64) - za) @ b.astype(np.int64).T * (sa.astype(np.float64) * sb)
        result = compare(
            c, exact, 4 * 2.0**-24 * np.abs(exact) + rounding_bound(np.abs(exact) * (1 + 2.0**-20), ELEMS["bf16"])
        )
        assert result.ok, f"{m}x{n}x{k}: {result}"


@pytest.mark.parametrize(("chip", "t"), [("gfx942", "f8E4M3FNUZ"), ("gfx950", "f8E4M3FN"), ("gfx950", "f4E2M1FN")])
def test_checks_are_silent(chip: str, t: str) -> None:
    """No race, no read of what was never written, no hazard of matrix instructions, on ragged shapes."""
    sim = SimulatorDevice(chip, "all")
    rng = np.random.default_rng(0)
    m, n, k = 70, 66, 288
    a, b = with_outliers(rng, (m, k), ELEMS[t]), with_outliers(rng, (n, k), ELEMS[t])
    c = np.zeros((m, n), DTYPES["bf16"])
    if t != "f4E2M1FN":
        kernel = library("gemm_fp8", "gemm_fp8_rows", chip, BM=64, BN=64, T=t)
        sa, sb = np.ones((m, 1), np.float32), np.ones((1, n), np.float32)
        launch(kernel, {"A": a, "B": b, "SA": sa, "SB": sb, "C": c}, sim)
        assert sim.statistics is not None and sim.statistics.findings == []
    if chip == "gfx950":
        kernel = library("gemm_mx", "gemm_mx", chip, BM=64, BN=64, T=t)
        launch(kernel, {"A": a, "SA": scales(rng, (m, k // 32)), "B": b, "SB": scales(rng, (n, k // 32)), "C": c}, sim)
        assert sim.statistics is not None and sim.statistics.findings == []
