"""`examples/attention.tile`, as it stands in its file, on both chips against float64: head sizes, masks, grouped heads, ragged
sizes, rows that see nothing, outliers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests.kernels.attention import Shape, attention_kernel, check_attention, raise_key, source
from tests.kernels.harness import CHIPS
from tileir.frontend import parse
from tileir.lowering.amdgpu.compile import compile_kernel

Array = np.ndarray[Any, Any]
NAMES = ("attention", "attention_lazy", "attention_prescaled")
DEPTHS = (64, 80, 128, 192, 256)
BM, BN = 32, 32  # small tiles: many blocks and edges for the work
# (queries, keys, heads, groups, batches): single ones, primes, multiples of the tiles, more queries than keys
SIZES = (
    (1, 1, 1, 1, 2), (1, 97, 2, 1, 1), (97, 1, 2, 2, 1), (31, 33, 4, 2, 1), (64, 64, 2, 1, 2), (67, 41, 3, 1, 1), (41, 67, 6, 2, 1),
)  # fmt: skip
LARGE = ((1, 1000), (1000, 1), (997, 991), (991, 997), (1000, 512), (13, 1000), (1000, 13), (257, 509))


def shapes(depth: int, causal: bool) -> list[Shape]:
    return [Shape(nq, nk, depth, h, g, b, causal) for nq, nk, h, g, b in SIZES]


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("depth", DEPTHS)
def test_every_head_size(chip: str, depth: int) -> None:
    """Causal and not, alternating over head sizes and chips; the nightly run has all."""
    causal = (DEPTHS.index(depth) + CHIPS.index(chip)) % 2 == 0
    for shape in shapes(depth, causal):
        check_attention(attention_kernel("attention", chip, shape, BM, BN), chip, shape)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_other_types(chip: str, dtype: str) -> None:
    for shape in shapes(64, True)[3:6]:
        check_attention(attention_kernel("attention", chip, shape, BM, BN, dtype), chip, shape, dtype)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", NAMES)
def test_masked_softmax(chip: str, name: str) -> None:
    """Rows that see nothing give 0 and -inf; rows that see their first key in a late block; no NaN from either."""
    shape = Shape(75, 33, 64, 2, 1, 1, causal=True)
    kernel = attention_kernel(name, chip, shape, BM, BN)
    o, lse = check_attention(kernel, chip, shape, name=name)
    blind = shape.nq - shape.nk
    assert not o[:, :blind].astype(np.float32).any() and np.all(np.isneginf(lse[:, :, :blind]))
    assert np.isfinite(lse[:, :, blind:]).all()


@pytest.mark.parametrize("chip", CHIPS)
def test_row_sum_chain(chip: str) -> None:
    """A thousand equal keys: the sum of the row is exactly their number, added up over 32 blocks; the output is the mean of V."""
    shape = Shape(5, 1000, 64, 1, 1)

    def same(q: Array, k: Array, v: Array) -> None:
        k[:] = k[:, :1]

    o, lse = check_attention(attention_kernel("attention", chip, shape, BM, BN), chip, shape, change=same)
    assert np.isfinite(lse).all() and np.abs(o.astype(np.float32)).max() < 0.2


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("causal", [False, True])
def test_an_outlier_key_in_every_position(chip: str, causal: bool) -> None:
    shape = Shape(40, 75, 64, causal=causal)
    kernel = attention_kernel("attention", chip, shape, BM, 16)
    for position in range(shape.nk):
        check_attention(kernel, chip, shape, change=raise_key(position))


@pytest.mark.parametrize("chip", CHIPS)
def test_as_the_file_says(chip: str) -> None:
    """All parameters at their defaults: 256 queries and 64 keys a tile, D = 128, bf16."""
    shape = Shape(300, 190, 128, 2, 1)
    check_attention(attention_kernel("attention", chip, shape, 256, 64), chip, shape)


@pytest.mark.parametrize(("chip", "depth"), [("gfx942", 192), ("gfx950", 256)])
def test_large_heads_at_the_default_tile(chip: str, depth: int) -> None:
    """Q does not fit LDS beside K and V, and for a depth of 256 not the registers either. Nothing spills."""
    shape = Shape(300, 190, depth, 2, 1)
    kernel = attention_kernel("attention", chip, shape, 256, 64)
    assert (kernel.stats["vgpr_spills"], kernel.stats["scratch_bytes"]) == (0, 0)
    check_attention(kernel, chip, shape)


# -- the whole, nightly ------------------------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("name", NAMES)
def test_every_size(chip: str, depth: int, causal: bool, name: str) -> None:
    # The exchange of P does not fit the 64 KiB of gfx942 beside 64 keys of this size, which is the located error E0861.
    large = (64, 32) if (chip, name, depth) == ("gfx942", "attention_prescaled", 256) else (64, 64)
    for tile in ((32, 32), large):
        for shape in shapes(depth, causal):
            check_attention(attention_kernel(name, chip, shape, *tile), chip, shape, name=name)
    for nq, nk in LARGE:
        shape = Shape(nq, nk, depth, 2, 1, 1, causal)
        check_attention(attention_kernel(name, chip, shape, *large), chip, shape, name=name)


@pytest.mark.nightly
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_every_small_size(chip: str, causal: bool, name: str) -> None:
    """All pairs of sizes around the tile of 16 x 16 up to three tiles."""
    sizes = (1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 47, 48)
    for nq, nk in itertools.product(sizes, sizes):
        shape = Shape(nq, nk, 64, 2, 2, 1, causal)
        check_attention(attention_kernel(name, chip, shape, 16, 16), chip, shape, name=name)


@pytest.mark.nightly
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("depth", DEPTHS)
def test_outliers_of_all_sizes(chip: str, name: str, depth: int) -> None:
    shape = Shape(70, 300, depth)
    kernel = attention_kernel(name, chip, shape, 64, 32)
    for position in range(shape.nk):
        factor = 4.0 if position % 2 else 100.0
        check_attention(kernel, chip, shape, change=raise_key(position, factor), name=name)


@pytest.mark.nightly
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("depth", DEPTHS)
def test_the_default_tile(chip: str, depth: int, causal: bool) -> None:
    """The file with nothing but D and CAUSAL given, without spills, on all sizes."""
    module = parse(source("attention"), "attention.tile", {"D": depth, "CAUSAL": causal})
    kernel = compile_kernel(module, "", chip)
    assert (kernel.stats["vgpr_spills"], kernel.stats["scratch_bytes"]) == (0, 0)
    for shape in shapes(depth, causal):
        check_attention(kernel, chip, shape)
    for nq, nk in LARGE:
        check_attention(kernel, chip, Shape(nq, nk, depth, 2, 1, 1, causal))
