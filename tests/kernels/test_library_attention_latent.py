"""`attention_latent` of the library: keys of 576 values, of which 512 are the value as well, on both chips against float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.kernels.attention import reference
from tests.kernels.harness import CHIPS, DTYPES, compiled, device
from tileir import kernels
from tileir.ir.types import ELEMS
from tileir.lowering.amdgpu.compile import Compiled
from tileir.runtime import compare, launch
from tileir.runtime.compare import gamma, rounding_bound

Array = np.ndarray[Any, Any]
SIZES = ((1, 1), (1, 97), (97, 1), (33, 31), (40, 70))  # queries, keys


def latent(chip: str, **params: int | bool) -> Compiled:
    return compiled(kernels.source("attention_latent"), chip, tuple(params.items()))


def check_latent(
    kernel: Compiled,
    chip: str,
    sizes: tuple[int, int],
    value: int,
    rest: int,
    causal: bool = False,
    change: Callable[[Array], None] | None = None,
) -> None:
    """Two batches, three heads. The bounds are those of `check_attention`."""
    (nq, nk), depth, elem = sizes, value + rest, ELEMS["bf16"]
    rng = np.random.default_rng([nq, nk, depth])
    q = rng.standard_normal((2, nq, 3, depth)).astype(DTYPES["bf16"])
    c = rng.standard_normal((2, nk, depth)).astype(DTYPES["bf16"])
    if change is not None:
        change(c)
    o = np.full((2, nq, 3, value), np.nan).astype(DTYPES["bf16"])
    lse = np.full((2, 3, nq), np.nan, np.float32)
    scale = depth**-0.5
    launch(kernel, {"Q": q, "C": c, "O": o, "LSE": lse, "scale": scale}, device(f"simulator:{chip}"))
    keys = c[:, :, None]
    want, want_lse, size, terms = reference(q, keys, keys[..., :value], float(np.float32(scale)), causal)
    score = (gamma(depth + 10) * terms).transpose(0, 2, 1)[..., None]
    relative = score + float(rounding_bound(1.0, elem)) + gamma(2 * nk + 40)
    found = compare(o, want, 2 * relative * size + rounding_bound(size, elem) + 1e-37)
    assert found.ok, f"{sizes}: O {found}"
    found = compare(lse, want_lse, 2 * gamma(depth + 10) * terms + gamma(2 * nk + 40) * (1 + np.log(nk)))
    assert found.ok, f"{sizes}: LSE {found}"


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("causal", [False, True])
def test_small_vectors(chip: str, causal: bool) -> None:
    """The sum of both parts is no power of two, and neither is one of them."""
    kernel = latent(chip, BM=32, BN=32, DV=96, DR=16, CAUSAL=causal)
    for sizes in SIZES:
        check_latent(kernel, chip, sizes, 96, 16, causal)


def test_as_the_file_says() -> None:
    """576 and 512, at the default tile; nothing spills."""
    kernel = latent("gfx942")
    assert (kernel.stats["vgpr_spills"], kernel.stats["scratch_bytes"]) == (0, 0)
    check_latent(kernel, "gfx942", (33, 37), 512, 64)


@pytest.mark.nightly
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("causal", [False, True])
def test_every_size(chip: str, causal: bool) -> None:
    kernel = latent(chip, CAUSAL=causal)
    assert (kernel.stats["vgpr_spills"], kernel.stats["scratch_bytes"]) == (0, 0)
    for sizes in (*SIZES, (1, 1000), (257, 509), (997, 41), (13, 1000)):
        check_latent(kernel, chip, sizes, 512, 64, causal)


@pytest.mark.nightly
@pytest.mark.parametrize("chip", CHIPS)
def test_outliers(chip: str) -> None:
    kernel = latent(chip)
    for position in range(37):

        def change(c: Array, at: int = position) -> None:
            c[:, at] = (30.0 * c[:, at].astype(np.float64)).astype(c.dtype)

        check_latent(kernel, chip, (20, 37), 512, 64, change=change)
