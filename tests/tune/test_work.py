"""What is read from a kernel for given sizes, and the quick model on it."""

from __future__ import annotations

import math

import pytest

from tileir import kernels, target
from tileir.frontend import parse
from tileir.tuning.model import Model
from tileir.tuning.schedules import Directives
from tileir.tuning.work import Work, work_of

CHIPS = ("gfx942", "gfx950")


def work(name: str, params: dict[str, int], **sizes: int) -> Work:
    kernel = parse(kernels.source(name), name, params).kernels[0]
    dense = {"LDA": sizes.get("K", 1), "LDB": sizes.get("K", 1), "LDC": sizes.get("N", 1)}
    return work_of(kernel, {**dense, **sizes})


def clocks(chip: str, work: Work, choice: Directives | None = None) -> float:
    return Model(target.get(chip)).estimate(work, choice or Directives()).clocks


def test_a_gemm() -> None:
    w = work("gemm", {"BM": 64, "BN": 32, "BK": 64}, M=100, N=64, K=200)
    assert w.grid == (2, 2) and w.share == 1
    straight, loop = w.phases
    assert (loop.loop, loop.trips, loop.row_bytes) == ("k", 4, 128)
    a, b = loop.loads
    assert a.staged and b.staged
    assert (a.tile_bytes, a.dims, a.view_bytes) == (64 * 64 * 2, {0}, 100 * 200 * 2)
    assert a.bytes == pytest.approx(100 / 128 * 200 / 256 * a.tile_bytes)  # the part of tiles that is inside
    assert (b.tile_bytes, b.dims) == (32 * 64 * 2, {1})
    assert loop.only_products and len(loop.products) == 1
    (c,) = straight.stores
    assert c.tile_bytes == 64 * 32 * 2 and c.dims == {0, 1} and straight.rounded == 64 * 32


def test_parts_of_k_without_work() -> None:
    w = work("gemm_split_k", {"BM": 16, "BN": 16, "BK": 64, "S": 8}, M=16, N=16, K=256)
    assert w.grid == (1, 1, 8)
    assert [p.trips for p in w.phases if p.loop] == [1]
    assert w.share == pytest.approx(2 / 3)  # of the first, a middle and the last part, the last has none
    assert sum(len(p.atomics) for p in w.phases) == 1


def test_rows() -> None:
    source = """tileir 1
kernel @softmax<B: int = 4>(%X: global<f32[M, N]>, %Y: global<f32[M, N]>) grid(cdiv(M, B)) {
  %i = program_id()
  %x = load(%X[%i * B +: B, 0 +: 1024], pad = -inf)
  %p = exp(%x - reduce_max(%x, axis = 1))
  store(%p / reduce_add(%p, axis = 1), %Y[%i * B +: B, 0 +: 1024])
}
"""
    (straight,) = work_of(parse(source).kernels[0], {"M": 4096, "N": 1000}).phases
    assert straight.transcendental == 2 * 4 * 1024  # exp and the division
    assert straight.exchanges == 2
    assert straight.loads[0].bytes == pytest.approx(4 * 1000 * 4)


@pytest.mark.parametrize("chip", CHIPS)
def test_large_tiles_for_large_products_and_small_ones_for_small(chip: str) -> None:
    large, small = {"BM": 256, "BN": 256, "BK": 64}, {"BM": 16, "BN": 16, "BK": 64}
    for sizes, best, other in (
        ({"M": 8192, "N": 8192, "K": 8192}, large, small),
        ({"M": 64, "N": 64, "K": 64}, small, large),
        ({"M": 16, "N": 4096, "K": 4096}, small, large),
    ):
        assert clocks(chip, work("gemm", best, **sizes)) < 0.8 * clocks(chip, work("gemm", other, **sizes))


@pytest.mark.parametrize("chip", CHIPS)
def test_k_is_split_where_few_tiles_have_a_long_k(chip: str) -> None:
    def split(s: int, **sizes: int) -> float:
        return clocks(chip, work("gemm_split_k", {"BM": 64, "BN": 64, "BK": 64, "S": s}, **sizes))

    assert split(16, M=64, N=64, K=16384) < 0.3 * split(1, M=64, N=64, K=16384)
    assert split(1, M=8192, N=8192, K=1024) < 0.8 * split(16, M=8192, N=8192, K=1024)


@pytest.mark.parametrize("chip", CHIPS)
def test_no_estimate_beats_the_matrix_pipes(chip: str) -> None:
    t = target.get(chip)
    flops = 2 * 4096**3
    peak = max(t.mfma_rate(i, "bf16", "bf16") for i in t.mfmas_for("bf16", "bf16", "f32"))
    least = flops / (peak * t.simds_per_cu * t.num_cus)
    for tile in (64, 128, 256):
        w = work("gemm", {"BM": tile, "BN": tile, "BK": 64}, M=4096, N=4096, K=4096)
        assert least < clocks(chip, w) < 10 * least


@pytest.mark.parametrize("chip", CHIPS)
def test_what_cannot_fit_is_not_ranked(chip: str) -> None:
    model = Model(target.get(chip))
    huge = work("gemm", {"BM": 512, "BN": 512, "BK": 16}, M=4096, N=4096, K=4096)
    assert model.estimate(huge, Directives()).why_not == "E0863"
    deep = work("gemm", {"BM": 256, "BN": 128, "BK": 128}, M=4096, N=4096, K=4096)
    assert model.estimate(deep, Directives(depth=4)).why_not == "E0861"
    assert math.isinf(model.estimate(deep, Directives(depth=4)).clocks)


def test_an_empty_grid_takes_no_time() -> None:
    assert clocks("gfx950", work("gemm", {}, M=0, N=64, K=64)) == 0
