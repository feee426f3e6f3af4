"""The library's cumulative sum on both chips against NumPy: integers bit by bit, floats against float64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.harness import CHIPS, DTYPES, device, integers, library
from tileir.ir.types import ELEMS
from tileir.runtime import compare, launch
from tileir.runtime.compare import gamma, rounding_bound


def sums(x: np.ndarray, exclusive: bool) -> np.ndarray:
    """Running sums along the rows in the type of x."""
    out = np.cumsum(x, axis=1, dtype=x.dtype)
    if exclusive:
        out = np.concatenate([np.zeros_like(out[:, :1]), out[:, :-1]], axis=1)
    return out


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("chip", CHIPS)
def test_integers_wrap(chip: str, exclusive: bool) -> None:
    """Rows of one tile, of less, and of several with a ragged end."""
    kernel = library("cumulative_sum", chip, BM=4, BN=128, EXCLUSIVE=exclusive, T="i32", S="i32")
    for rows, width in ((1, 1), (5, 128), (7, 401)):
        x = integers(np.random.default_rng(width), (rows, width), np.int32, 2**30)
        frame = np.full((rows + 2, width), 77, np.int32)
        launch(kernel, {"X": x, "Y": frame[1:-1]}, device(f"simulator:{chip}"))
        np.testing.assert_array_equal(frame[1:-1], sums(x, exclusive))
        assert np.all(frame[[0, -1]] == 77), "wrote outside Y"


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_floats(chip: str, dtype: str) -> None:
    """A large value counts for everything behind it and for nothing before; infinities and what is behind them as in NumPy."""
    rows, width = 9, 397
    kernel = library("cumulative_sum", chip, BM=8, BN=128, T=dtype)
    x = np.random.default_rng(3).standard_normal((rows, width))
    x[1, 130] = 1e30
    x[2, 200] = np.inf
    x[3, 5], x[3, 260] = -np.inf, np.inf
    x[4, 390] = np.nan
    x = x.astype(DTYPES[dtype])
    y = np.zeros_like(x)
    launch(kernel, {"X": x, "Y": y}, device(f"simulator:{chip}"))
    with np.errstate(invalid="ignore"):
        want, size = sums(x.astype(np.float64), False), sums(np.abs(x.astype(np.float64)), False)
    # Up to `width` sums in f32 in any order, over the elements of the sum; then one rounding to the type of Y.
    known = np.isfinite(size)
    bound = gamma(width) * np.where(known, size, 0.0)
    found = compare(y, want, bound + rounding_bound(np.where(known, np.abs(want), 0.0) + bound, ELEMS[dtype]))
    assert found.ok, found
