"""The library's RMS norm on both chips against float64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.harness import CHIPS, DTYPES, device, library
from tileir.ir.types import ELEMS
from tileir.runtime import compare, launch
from tileir.runtime.compare import gamma, rounding_bound


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    ("rows", "width", "bm", "dtype"), [(5, 257, 2, "bf16"), (7, 100, 4, "f16"), (3, 1021, 1, "f32")]
)
def test_rms_norm(chip: str, rows: int, width: int, bm: int, dtype: str) -> None:
    kernel = library("rms_norm", chip, BM=bm, D=width, T=dtype)
    rng = np.random.default_rng([rows, width])
    x = rng.standard_normal((rows, width))
    x[0, width // 2] = 3e4  # its square fits f32 but no 16-bit type
    x[1] = 0.0  # eps alone is under the root
    x[2] *= 1e-4  # eps outweighs the squares
    x, w = x.astype(DTYPES[dtype]), rng.standard_normal(width).astype(DTYPES[dtype])
    frame = np.full((rows + 2, width), 77, DTYPES[dtype])
    y = frame[1 : rows + 1]
    eps = 1e-5
    launch(kernel, {"X": x, "W": w, "Y": y, "eps": eps}, device(f"simulator:{chip}"))
    exact = x.astype(np.float64)
    want = exact / np.sqrt((exact**2).mean(axis=1, keepdims=True) + np.float32(eps)) * w.astype(np.float64)
    # A sum of `width` squares in f32, all of one sign, and about ten roundings more; then one to the type of Y.
    bound = gamma(width + 10) * np.abs(want)
    found = compare(y, want, bound + rounding_bound(np.abs(want) + bound, ELEMS[dtype]))
    assert found.ok, found
    assert np.all(frame[[0, -1]] == 77), "wrote outside Y"
