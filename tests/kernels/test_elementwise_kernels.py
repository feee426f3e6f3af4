"""Vector add, softmax and transposing copy of the library in the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import CHIPS, DTYPES, compiled, device, library
from tileir.runtime import launch


def run(kernel: Any, chip: str, **arrays: Any) -> None:
    launch(kernel, arrays, device(f"simulator:{chip}"))


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "i32"])
def test_vector_add(chip: str, dtype: str) -> None:
    t = DTYPES[dtype]
    kernel = library("vector_add", chip, T=dtype)
    rng = np.random.default_rng(1)
    for n in (1, 7, 1000, 2048, 2051, 4104):
        x, y = ((rng.standard_normal(n) * 100).astype(t) for _ in range(2))
        z = np.zeros(n, t)
        run(kernel, chip, X=x, Y=y, Z=z)
        assert np.array_equal(z, x + y), n


@pytest.mark.parametrize("chip", CHIPS)
def test_vector_add_special_values(chip: str) -> None:
    """Denormals are kept, infinities and NaN follow IEEE."""
    values = np.array([0.0, -0.0, 1e-45, -3e-39, np.inf, -np.inf, np.nan, 3.4e38], np.float32)
    x, y = (np.ascontiguousarray(g.ravel()) for g in np.meshgrid(values, values))
    z = np.zeros(x.size, np.float32)
    run(library("vector_add", chip), chip, X=x, Y=y, Z=z)
    with np.errstate(all="ignore"):
        want = x + y
    assert np.array_equal(z, want, equal_nan=True)
    assert np.array_equal(np.signbit(z)[~np.isnan(z)], np.signbit(want)[~np.isnan(want)])


def softmax_reference(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """float64; rows of only -inf give 0."""
    x = x.astype(np.float64)
    top = x.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        p = np.exp(x - np.where(np.isneginf(top), 0.0, top))
        total = p.sum(axis=1, keepdims=True)
        return p / np.where(total == 0.0, 1.0, total)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_softmax(chip: str, dtype: str) -> None:
    """f32: the exponent is rounded twice at |x - max| < 2^7 (2^-17 relative), exp2 and the sum of n terms add a few ulp more;
    2^-15 is above their sum for n up to 10,000. bf16 adds its own half ulp, 2^-9."""
    t = DTYPES[dtype]
    kernel = library("softmax", chip, T=dtype)
    rng = np.random.default_rng(2)
    for m, n in ((1, 1), (3, 1), (5, 7), (4, 1024), (7, 1031), (2, 10000)):
        x = (rng.standard_normal((m, n)) * 8).astype(t)
        y = np.full((m, n), 5, t)
        run(kernel, chip, X=x, Y=y)
        want = softmax_reference(x)
        tolerance = want * 2.0**-15 + 1e-37 if dtype == "f32" else want * (2.0**-15 + 2.0**-8) + 1e-37
        assert np.all(np.abs(y.astype(np.float64) - want) <= tolerance), (m, n)


@pytest.mark.parametrize("chip", CHIPS)
def test_softmax_infinities(chip: str) -> None:
    kernel = library("softmax", chip, BN=64)
    x = np.zeros((6, 130), np.float32)
    x[0] = -np.inf  # sees nothing: zeros
    x[1, :100] = -np.inf  # the first block of columns is empty
    x[2, 100:] = -np.inf
    x[3, 77] = np.inf  # inf - inf
    x[4, 5] = np.nan
    y = np.full_like(x, 9)
    run(kernel, chip, X=x, Y=y)
    assert np.all(y[0] == 0)
    assert np.allclose(y[1], np.where(np.arange(130) < 100, 0, 1 / 30), rtol=1e-5)
    assert np.allclose(y[2], np.where(np.arange(130) < 100, 1 / 100, 0), rtol=1e-5)
    assert np.isnan(y[3, 77]) and not np.isnan(y[5]).any()
    assert np.isnan(y[4]).all()
    assert np.allclose(y[5], 1 / 130, rtol=1e-5)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_transpose(chip: str, dtype: str) -> None:
    t = DTYPES[dtype]
    kernel = library("transpose", chip, T=dtype)
    for m, n in ((64, 64), (1, 100), (100, 1), (129, 65), (128, 192)):
        x = (np.arange(m * n).reshape(m, n) % 251).astype(t)
        y = np.full((n, m), 3, t)
        run(kernel, chip, X=x, Y=y)
        assert np.array_equal(y, x.T), (m, n)


STORE_THEN_LOAD = """tileir 1
kernel @k<W: int = 64>(%X: global<f32[W, W]>, %Y: global<f32[W, W]>) grid(1) {
  %x = load(%X[0 +: W, 0 +: W])
  store(%x * 2.0, %Y[0 +: W, 0 +: W])
  %y = load(%Y[0 +: W, 0 +: W])
  store(transpose(%y), %Y[0 +: W, 0 +: W])
}
"""


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("waves", [4, 8])
def test_store_then_load(chip: str, waves: int) -> None:
    """Case store-then-load: what other waves stored is there when it is read back, and read before it is overwritten."""
    text = STORE_THEN_LOAD.replace("grid(1)", f"grid(1) with(waves = {waves})")
    kernel = compiled(text, chip)
    assert kernel.block == (64 * waves, 1, 1)
    x = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    y = np.zeros_like(x)
    run(kernel, chip, X=x, Y=y)
    assert np.array_equal(y, 2 * x.T)


SCALARS = ("i32", "i64", "f32", "f64", "i16", "i8", "bf16", "f16")


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("count", [1, 2, 5, 9, 16])
@pytest.mark.parametrize("waves", [1, 16])
def test_many_arguments(chip: str, count: int, waves: int) -> None:
    """Case many-args: 1 to 16 arguments of mixed sizes, also with 16 waves."""
    types = [SCALARS[i % len(SCALARS)] for i in range(count)]
    args = ", ".join(f"%a{i}: {t}" for i, t in enumerate(types))
    total = " + ".join(f"convert<f64>(%a{i}) * {float(3**i)}" for i in range(count))
    text = (
        f"tileir 1\nkernel @k(%Y: global<f64[N]>, {args}) grid(1) with(waves = {waves}) {{\n"
        f"  %s = {total}\n  %t = fill(%s) : tile<f64[64]>\n  store(%t, %Y[0 +: 64])\n}}\n"
    )
    kernel = compiled(text, chip)
    values = [i % 5 - 2 for i in range(count)]
    y = np.zeros(50)
    run(kernel, chip, Y=y, **{f"a{i}": v for i, v in enumerate(values)})
    assert np.all(y == sum(v * 3.0**i for i, v in enumerate(values)))


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("shape", [(1, 1), (8, 8), (16, 4), (1, 64), (3, 5), (64, 1)])
def test_small_blocks(chip: str, shape: tuple[int, int]) -> None:
    """Case small-block: tiles smaller than a wave work."""
    m, n = shape
    text = (
        "tileir 1\nkernel @k<M: int, N: int>(%X: global<f32[R, C]>, %Y: global<f32[R, C]>, %S: global<f32[R, 1]>)\n"
        "    grid(cdiv(R, M), cdiv(C, N)) {\n  %i, %j = program_id()\n  %x = load(%X[%i * M +: M, %j * N +: N])\n"
        "  store(%x + 1.0, %Y[%i * M +: M, %j * N +: N])\n  store(reduce_add(%x, axis = 1), %S[%i * M +: M, 0 +: 1])\n}\n"
    )
    kernel = compiled(text, chip, (("M", m), ("N", n)))
    rows, cols = 2 * m + 1, n
    x = np.arange(rows * cols, dtype=np.float32).reshape(rows, cols)
    y, s = np.zeros_like(x), np.zeros((rows, 1), np.float32)
    run(kernel, chip, X=x, Y=y, S=s)
    assert np.array_equal(y, x + 1)
    assert np.array_equal(s, x.sum(axis=1, keepdims=True))
