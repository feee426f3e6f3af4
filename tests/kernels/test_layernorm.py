"""`examples/layernorm.tile`, as it stands in its file, on both chips: dropout that a host can reproduce from the seed bit by bit,
residual sum and layer norm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.harness import CHIPS, compiled, device
from tileir.ir.types import ELEMS
from tileir.runtime import compare, launch
from tileir.runtime.compare import gamma, rounding_bound

Array = np.ndarray[Any, Any]
BF16 = ml_dtypes.bfloat16
SOURCE = (Path(__file__).resolve().parents[2] / "examples" / "layernorm.tile").read_text()


def philox(seed: int, counters: Array) -> Array:
    """First word of Philox-4x32-10 for each 64-bit counter (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1,
    2, 3", 2011), key and counter as docs/language.md lays them out."""
    low = np.uint64(0xFFFFFFFF)
    key = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32 & 0xFFFFFFFF)]
    n = counters.astype(np.uint64)
    x = [n & low, n >> np.uint64(32), np.zeros_like(n), np.zeros_like(n)]
    for _ in range(10):
        first, second = x[0] * np.uint64(0xD2511F53), x[2] * np.uint64(0xCD9E8D57)
        x = [second >> np.uint64(32) ^ x[1] ^ key[0], second & low, first >> np.uint64(32) ^ x[3] ^ key[1], first & low]
        key = [key[0] + np.uint64(0x9E3779B9) & low, key[1] + np.uint64(0xBB67AE85) & low]
    return x[0].astype(np.uint32)


def test_philox_gives_the_published_answers() -> None:
    """kat_vectors of Random123: key and counter all zero, and all ones in the words that are used here."""
    assert philox(0, np.zeros(1, np.uint64))[0] == 0x6627E8D5


def check_layernorm(chip: str, rows: int, width: int, bm: int, p: float, seed: int, outlier: float = 0.0) -> Array:
    """Gives the mask of what was kept; `outlier`, if given, is one residual of every row, at another place in each."""
    kernel = compiled(SOURCE, chip, (("BM", bm), ("D", width)))
    rng = np.random.default_rng([rows, width])
    x, r = (rng.standard_normal((rows, width)).astype(BF16) for _ in range(2))
    if outlier:
        r[np.arange(rows), np.arange(rows) * 7 % width] = outlier
    w, bias = (rng.standard_normal(width).astype(BF16) for _ in range(2))
    y, s = (np.full((rows, width), np.nan).astype(BF16) for _ in range(2))
    eps = 1e-5
    arrays = {"X": x, "R": r, "W": w, "BIAS": bias, "Y": y, "S": s, "p": p, "seed": seed, "eps": eps}
    launch(kernel, arrays, device(f"simulator:{chip}"))

    p32 = np.float32(p)
    bits = philox(seed, np.arange(rows * width).reshape(rows, width))
    kept = (bits >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24) >= p32
    total = np.where(kept, x.astype(np.float32) / (np.float32(1) - p32), np.float32(0)) + r.astype(np.float32)
    assert np.array_equal(s.view(np.uint16), total.astype(BF16).view(np.uint16)), "dropout and residual, bit by bit"

    exact = total.astype(np.float64)
    centred = exact - exact.mean(axis=1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=1, keepdims=True) + eps)
    scaled = centred / deviation * w.astype(np.float64)
    want = scaled + bias.astype(np.float64)
    # Mean and variance are sums of `width` terms in f32, each value is some ten operations more, and is rounded to bf16.
    largest = np.abs(exact).max(axis=1, keepdims=True) / deviation * np.abs(w.astype(np.float64))
    size = np.abs(scaled) + np.abs(bias.astype(np.float64))
    bound = gamma(width + 20) * (largest + size) + rounding_bound(size, ELEMS["bf16"])
    found = compare(y, want, bound)
    assert found.ok, found
    return kept


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("seed", [0, -5, 12345678901234567])
def test_dropout_is_reproducible_from_the_seed(chip: str, seed: int) -> None:
    kept = check_layernorm(chip, 37, 100, 4, 0.3, seed)
    assert 0.65 < kept.mean() < 0.75
    assert check_layernorm(chip, 5, 100, 4, 0.0, seed).all()


@pytest.mark.parametrize("chip", CHIPS)
def test_an_outlier_in_every_row(chip: str) -> None:
    """Mean and variance are of one value nearly alone; what it subtracts from the others must still come back."""
    check_layernorm(chip, 13, 101, 4, 0.25, 3, outlier=-3e4)


@pytest.mark.parametrize(("chip", "width"), [("gfx942", 4096), ("gfx950", 8192)])
def test_wide_rows(chip: str, width: int) -> None:
    """The nightly run has both widths on both chips."""
    check_layernorm(chip, 3, width, 1, 0.1, 77)


@pytest.mark.nightly
@pytest.mark.parametrize("chip", CHIPS)
def test_as_the_file_says(chip: str) -> None:
    """All parameters at their defaults: 4 rows of 4096."""
    for rows in (1, 4, 9):
        check_layernorm(chip, rows, 4096, 4, 0.5, 1 << 40)


@pytest.mark.nightly
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("width", [1, 7, 64, 100, 257, 1000, 1024, 2048, 3001, 4096, 5120, 8192])
def test_every_width(chip: str, width: int) -> None:
    check_layernorm(chip, 3, width, 2 if width < 3000 else 1, 0.2, 99)
