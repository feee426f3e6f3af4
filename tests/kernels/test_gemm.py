"""GEMM C = A·Bᵀ of the library in the simulator: ragged and prime shapes, tiles, wave grids, strides, types."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.kernels.harness import CHIPS, DTYPES, check_gemm, device, integers, library, scheduled_gemm
from tileir.runtime import BufferView, launch

SIZES = (1, 7, 16, 100, 129, 256, 300)
ALL = list(itertools.product(SIZES, repeat=3))
# Every pair of (M, N), (M, K) and (N, K) occurs: a Latin square, and once more with another slope.
COVER = sorted({(SIZES[i], SIZES[j], SIZES[(i + s * j) % 7]) for i in range(7) for j in range(7) for s in (1,)})
GRIDS = ("1 x 1", "2 x 2", "1 x 4", "4 x 1", "2 x 4", "4 x 2", "1 x 8", "8 x 1")
GRID_SHAPES = ((129, 300, 100), (256, 128, 64), (7, 100, 16))
TILES = ((32, 32, 32), (32, 256, 32), (64, 64, 64), (128, 32, 128), (256, 64, 32), (128, 256, 64), (256, 256, 64))


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("m", SIZES)
def test_covering_shapes(chip: str, m: int) -> None:
    kernel = library("gemm", chip)
    for shape in (s for s in COVER if s[0] == m):
        check_gemm(kernel, chip, *shape)


@pytest.mark.nightly
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("tile", [(64, 64, 32), (128, 128, 64), (256, 256, 64)], ids=str)
@pytest.mark.parametrize("m", SIZES)
def test_all_shapes(chip: str, dtype: str, tile: tuple[int, int, int], m: int) -> None:
    bm, bn, bk = tile
    kernel = library("gemm", chip, BM=bm, BN=bn, BK=bk, T=dtype)
    for shape in (s for s in ALL if s[0] == m):
        check_gemm(kernel, chip, *shape, dtype=dtype)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("waves", GRIDS)
def test_wave_grids(chip: str, waves: str) -> None:
    """Case wave-grids: elsewhere only 2x4 and 4x2 were wrong."""
    rows, cols = (int(x) for x in waves.split(" x "))
    kernel = scheduled_gemm(chip, waves, (32 * rows, 32 * cols, 32))
    assert kernel.block == (64 * rows * cols, 1, 1)
    for shape in GRID_SHAPES:
        check_gemm(kernel, chip, *shape)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_tiles(chip: str, tile: tuple[int, int, int]) -> None:
    bm, bn, bk = tile
    kernel = library("gemm", chip, BM=bm, BN=bn, BK=bk)
    for shape in ((bm, bn, bk), (bm + 8, bn - 8, 2 * bk + 8), (bm - 1, bn + 1, bk + 1)):
        check_gemm(kernel, chip, *shape)


@pytest.mark.parametrize("chip", CHIPS)
def test_f16(chip: str) -> None:
    kernel = library("gemm", chip, T="f16")
    for shape in ((128, 128, 64), (100, 129, 256), (1, 1, 7)):
        check_gemm(kernel, chip, *shape, dtype="f16")


@pytest.mark.parametrize("chip", CHIPS)
def test_interpreter_and_simulator_agree_on_integers(chip: str) -> None:
    """Sums of small integers are exact in f32, so both must give the same bits."""
    kernel = library("gemm", chip)
    rng = np.random.default_rng(5)
    for m, n, k in ((100, 72, 40), (129, 7, 300), (64, 64, 1)):
        a, b = (integers(rng, (x, k), DTYPES["bf16"], 2) for x in (m, n))
        out = []
        for name in ("interpreter", f"simulator:{chip}"):
            c = np.zeros((m, n), DTYPES["bf16"])
            launch(kernel, {"A": a, "B": b, "C": c}, device(name))
            out.append(c)
        assert np.array_equal(out[0], out[1])


@pytest.mark.parametrize("chip", CHIPS)
def test_outliers(chip: str) -> None:
    """Huge and tiny values, infinities and NaN land where they belong and nowhere else."""
    kernel = library("gemm", chip, BM=32, BN=32, BK=32)
    a = np.ones((40, 33), DTYPES["bf16"])
    b = np.ones((40, 33), DTYPES["bf16"])
    a[3, 32], a[5, 0], a[7, 1] = np.inf, 3e38, 1e-38
    b[9, 4] = np.nan
    c = np.zeros((40, 40), DTYPES["bf16"])
    launch(kernel, {"A": a, "B": b, "C": c}, device(f"simulator:{chip}"))
    with np.errstate(all="ignore"):
        exact = a.astype(np.float64) @ b.astype(np.float64).T
        want = exact.astype(np.float32).astype(DTYPES["bf16"])
    assert np.array_equal(np.isnan(c), np.isnan(want))
    finite = np.isfinite(exact)
    assert np.all(np.isposinf(c[3, np.arange(40) != 9]))
    assert np.allclose(c[finite].astype(np.float64), exact[finite], rtol=2.0**-8)


@pytest.mark.parametrize("chip", CHIPS)
def test_strided_views(chip: str) -> None:
    """Rows that lie apart, at an address that is not a multiple of 16 bytes, and rows that do allow wide accesses."""
    kernel = library("gemm", chip)
    rng = np.random.default_rng(11)
    for offset, pitch in ((0, 128), (1, 131), (8, 136)):
        big_a = integers(rng, (70, pitch + 8), DTYPES["bf16"])
        big_b = integers(rng, (50, pitch + 8), DTYPES["bf16"])
        big_c = np.full((70, pitch + 8), 9, DTYPES["bf16"])
        a, b = (x[:, offset : offset + 96] for x in (big_a, big_b))
        c = big_c[:, offset : offset + 50]
        launch(kernel, {"A": a, "B": b, "C": c}, device(f"simulator:{chip}"))
        want = a.astype(np.float32) @ b.astype(np.float32).T
        assert np.array_equal(c, want.astype(DTYPES["bf16"]))
        assert np.all(big_c[:, :offset] == 9) and np.all(big_c[:, offset + 50 :] == 9)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("pitch", [(1 << 25) + 8, (1 << 27) + 8, (1 << 27) + 1])
def test_rows_past_four_gigabytes(chip: str, pitch: int) -> None:
    """Case byte-offset-overflow: with rows of 64 to 256 MiB the last rows of A and C lie beyond 2³², and for the larger
    pitches a tile itself spans more than 2 GiB."""
    kernel = library("gemm", chip, BM=32, BN=32, BK=32)
    rows, n, k = 70 if pitch < 1 << 26 else 36, 20, 40
    rng = np.random.default_rng(13)
    dev = device(f"simulator:{chip}")
    t = DTYPES["bf16"]
    a, b = integers(rng, (rows, k), t), integers(rng, (n, k), t)
    nbytes = (rows - 1) * pitch * 2 + 4096
    assert nbytes > 1 << 32
    buffers = [dev.alloc(nbytes) for _ in range(2)]
    try:
        for i in range(rows):
            dev.copy_in(buffers[0], np.ascontiguousarray(a[i]).view(np.uint8), i * pitch * 2)
        elem = kernel.kernel.args[0].type.elem
        views = [
            BufferView(buffer, elem, shape, (pitch, 1))
            for buffer, shape in zip(buffers, ((rows, k), (rows, n)), strict=True)
        ]
        launch(kernel, {"A": views[0], "B": b, "C": views[1]}, dev)
        want = (a.astype(np.float32) @ b.astype(np.float32).T).astype(t)
        for i in range(rows):
            got = dev.copy_out(buffers[1], n * 2, i * pitch * 2).view(t)
            assert np.array_equal(got, want[i]), i
    finally:
        for buffer in buffers:
            dev.free(buffer)


def test_gfx950_never_uses_half_rate_matrix_instructions() -> None:
    """Case half-rate-mfma: 16x16x16 and 32x32x8 run at half rate on gfx950."""
    for tile in TILES:
        bm, bn, bk = tile
        kernel = library("gemm", "gfx950", BM=bm, BN=bn, BK=bk)
        shapes = {op.attrs["instr"] for op in kernel.final.walk() if op.name == "mma"}
        assert shapes <= {(16, 16, 32), (32, 32, 16)}


@pytest.mark.parametrize("chip", CHIPS)
def test_nothing_spills(chip: str) -> None:
    for tile in TILES:
        bm, bn, bk = tile
        stats = library("gemm", chip, BM=bm, BN=bn, BK=bk).stats
        assert (stats["vgpr_spills"], stats["sgpr_spills"], stats["scratch_bytes"]) == (0, 0, 0), (tile, stats)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("size", [1152, 1280, 1536])
def test_raster_tail(chip: str, size: int) -> None:
    """Case raster-tail: block grids that the window of the order does not divide, and not by 8 chiplets either."""
    kernel = scheduled_gemm(chip, "2 x 2", (128, 128, 32), extra="  order xcd(chunk = 4, window = 4)\n")
    t = DTYPES["bf16"]
    rng = np.random.default_rng(size)
    a, b = integers(rng, (size, 8), t), integers(rng, (size, 8), t)
    c = np.full((size, size), 99, t)
    launch(kernel, {"A": a, "B": b, "C": c}, device(f"simulator:{chip}"))
    assert np.array_equal(c, (a.astype(np.float32) @ b.astype(np.float32).T).astype(t))
