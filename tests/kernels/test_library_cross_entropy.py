"""The library's cross entropy on both chips against float64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.harness import CHIPS, DTYPES, device, library
from tileir.runtime import compare, launch
from tileir.runtime.compare import gamma

IGNORED = -100


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("rows", "width", "dtype", "index"), [(13, 311, "f32", np.int32), (11, 1, "bf16", np.int64)])
def test_cross_entropy(chip: str, rows: int, width: int, dtype: str, index: type) -> None:
    """Rows longer than a tile with a ragged end; targets in the first and last column; outliers before and behind the target."""
    kernel = library("cross_entropy", chip, BM=4, BN=128, T=dtype, I=np.dtype(index).name.replace("int", "i"))
    rng = np.random.default_rng([rows, width])
    x, target = rng.standard_normal((rows, width)), rng.integers(0, width, rows).astype(index)
    target[0], target[1] = 0, width - 1
    x[2, 0] = 1e4  # the maximum comes first, all else vanishes
    x[3, -1], target[3] = 300.0, width - 1  # it comes last: sums so far are rescaled to 0; the loss is 0
    x[4, : width // 2] = -np.inf  # the first tiles have nothing
    target[4] = width - 1
    target[5], target[6] = IGNORED, width  # the second is outside the row
    x[7, target[7]] = -np.inf
    x[8] = -np.inf
    x[9, width // 3] = np.nan
    x[10, 0] = np.inf
    if rows > 12:
        x[12] += 3e4  # all logits are large, the loss is not: it must not be a difference of the log-sum-exp
    x = x.astype(DTYPES[dtype])
    frames = np.full((2, rows + 2), 77, np.float32)
    loss, lse = frames[:, 1:-1]
    arrays = {"X": x, "TARGET": target, "LOSS": loss, "LSE": lse, "ignore": IGNORED}
    launch(kernel, arrays, device(f"simulator:{chip}"))
    assert np.all(frames[:, [0, -1]] == 77), "wrote outside LOSS or LSE"

    exact = x.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        top = exact.max(axis=1)
        log = np.log(np.exp(exact - np.where(np.isneginf(top), 0.0, top)[:, None]).sum(axis=1))
        picked = np.where((target >= 0) & (target < width), exact[np.arange(rows), target.clip(0, width - 1)], -np.inf)
        want, want_lse = np.where(target == IGNORED, 0.0, top - picked + log), top + log
    if width > 1:
        assert want[6] == want[7] == np.inf and np.isnan(want[8:11]).all()
    # exp2 of a difference that is scaled by log2 e: its error grows with the magnitude, up to 88 until the result vanishes; a sum of
    # `width` terms in f32, rescaled once per tile; log2 and one product; the last sum rounds by half an ulp of the logits.
    absolute = gamma(width + 200) + 4 * gamma(4) * log.max(where=np.isfinite(log), initial=1.0)
    for got, ref in ((loss, want), (lse, want_lse)):
        found = compare(got, ref, absolute + gamma(3) * np.where(np.isfinite(ref), np.abs(ref), 0.0))
        assert found.ok, found
