"""The library's rotary position embedding on both chips against float64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.harness import CHIPS, DTYPES, device, library
from tileir.ir.types import ELEMS
from tileir.runtime import compare, launch
from tileir.runtime.compare import gamma, rounding_bound


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    ("shape", "dtype"), [((2, 37, 3, 64), "bf16"), ((1, 5, 2, 80), "f32"), ((1, 17, 1, 10), "f16")]
)
def test_rotary(chip: str, interleaved: bool, shape: tuple[int, ...], dtype: str) -> None:
    """Ragged and prime token counts, head widths that are no power of two, positions in any order, outliers; then back again."""
    batches, tokens, _, width = shape
    kernel = library("rotary", chip, BM=16, D=width, INTERLEAVED=interleaved, T=dtype)
    rng = np.random.default_rng(shape)
    x = rng.standard_normal(shape).astype(DTYPES[dtype])
    x[0, tokens // 2, 0, 1], x[0, 0, -1, width // 2] = 3e4, -2e4
    positions = 1000
    angle = np.arange(positions)[:, None] * 10000.0 ** (-np.arange(width // 2) / (width // 2))
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    position = rng.integers(0, positions, (batches, tokens)).astype(np.int32)
    position[0, 0] = positions - 1
    frame = np.full((batches + 2, *shape[1:]), 77, DTYPES[dtype])
    y = frame[1:-1]
    arrays = {"X": x, "COS": cos, "SIN": sin, "POS": position, "Y": y}
    launch(kernel, arrays, device(f"simulator:{chip}"))

    first, second = (
        (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(width // 2), slice(width // 2, None))
    )
    c, s = (v.astype(np.float64)[position][:, :, None] for v in (cos, sin))
    a, b = x[..., first].astype(np.float64), x[..., second].astype(np.float64)
    want, size = np.empty(shape), np.empty(shape)
    want[..., first], want[..., second] = a * c - b * s, b * c + a * s
    size[..., first], size[..., second] = np.abs(a * c) + np.abs(b * s), np.abs(b * c) + np.abs(a * s)
    bound = gamma(2) * size  # a product, and a sum of products
    found = compare(y, want, bound + rounding_bound(np.abs(want) + bound, ELEMS[dtype]))
    assert found.ok, found
    assert np.all(frame[[0, -1]] == 77), "wrote outside Y"
