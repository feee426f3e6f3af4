"""Masks of odd tiles, bounds that are known, and places of many direct copies do not fill the scalar registers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.kernels.harness import CHIPS, DTYPES, device, integers
from tileir import kernels
from tileir.frontend import parse, parse_file
from tileir.lowering.amdgpu.compile import compile_kernel
from tileir.runtime import launch

EXAMPLES = Path(__file__).parents[2] / "examples"
# Primes; few columns, so that a wave copies many pieces of every stage.
TILES = ((61, 53, 29), (64, 16, 128))


@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("name", ["nt", "tn"])
@pytest.mark.parametrize("chip", CHIPS)
def test_odd_tiles(chip: str, name: str, tile: tuple[int, int, int]) -> None:
    params = {**dict(zip(("BM", "BN", "BK"), tile, strict=True)), "O": "f32"}
    module = parse(kernels.source("gemm_forms"), "forms.tile", params, kernel=f"gemm_{name}")
    compiled = compile_kernel(module, f"gemm_{name}", chip)
    stats = compiled.stats
    assert (stats["vgpr_spills"], stats["sgpr_spills"], stats["scratch_bytes"]) == (0, 0, 0), stats
    rng = np.random.default_rng(4)
    for m, n, k in ((61, 53, 58), (64, 56, 96), (5, 70, 31)):
        a, b = integers(rng, (m, k), DTYPES["bf16"]), integers(rng, (k, n), DTYPES["bf16"])
        c = np.full((m, n), 7, np.float32)
        views = {"A": a, "B": np.ascontiguousarray(b.T)} if name == "nt" else {"A": np.ascontiguousarray(a.T), "B": b}
        launch(compiled, {**views, "C": c}, device(f"simulator:{chip}"))
        assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


def test_rows_of_known_length() -> None:
    """Rows of 4096 elements that no access can leave: no test, no mask, in neither version."""
    compiled = compile_kernel(parse_file(EXAMPLES / "layernorm.tile"), "", "gfx950")
    stats = compiled.stats
    assert (stats["vgpr_spills"], stats["sgpr_spills"], stats["attempts"]) == (0, 0, 1), stats
