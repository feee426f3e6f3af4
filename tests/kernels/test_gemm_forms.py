"""The four forms of GEMM in every element type, batched GEMM, and the shapes that broke compilers elsewhere."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import CHIPS, DTYPES, compiled, device, integers
from tileir import kernels
from tileir.frontend import parse
from tileir.ir.types import ELEMS
from tileir.lowering.amdgpu.compile import Compiled, compile_kernel
from tileir.runtime import compare, gemm_bound, launch

NUMPY: dict[str, Any] = {**DTYPES, "f64": np.float64, "i8": np.int8}
SUM = {"bf16": "f32", "f16": "f32", "f32": "f32", "f64": "f64", "i8": "i32"}
OUT = {"bf16": "bf16", "f16": "f16", "f32": "f32", "f64": "f64", "i8": "i32"}
UNIT = {"f32": 2.0**-24, "f64": 2.0**-53}
FORMS = ("nt", "nn", "tt", "tn")
TYPES = tuple(SUM)

# M, N, K for tiles of 64 x 64 x 32: primes, one row, one column, one k, less than a tile, aligned, one past a tile.
SHAPES = ((64, 64, 64), (67, 131, 37), (1, 97, 7), (127, 1, 100), (13, 17, 1), (65, 63, 129), (128, 72, 96))


@lru_cache(maxsize=64)
def form(name: str, chip: str, dtype: str, tile: tuple[int, int, int] = (64, 64, 32), out: str = "") -> Compiled:
    bm, bn, bk = tile
    params = {"BM": bm, "BN": bn, "BK": bk, "T": dtype, "S": SUM[dtype], "O": out or OUT[dtype]}
    module = parse(kernels.source("gemm_forms"), "gemm_forms.tile", params, kernel=f"gemm_{name}")
    return compile_kernel(module, f"gemm_{name}", chip)


def operands(rng: np.random.Generator, m: int, n: int, k: int, dtype: str) -> tuple[Any, Any]:
    """A as [m, k] and B as [k, n]."""
    if dtype == "i8":
        return tuple(rng.integers(-128, 128, s).astype(np.int8) for s in ((m, k), (k, n)))
    return tuple(rng.standard_normal(s).astype(NUMPY[dtype]) for s in ((m, k), (k, n)))


def stored(name: str, a: Any, b: Any) -> tuple[Any, Any]:
    """A [m, k] and B [k, n] as the form keeps them in memory."""
    return (
        np.ascontiguousarray(a.T) if name[0] == "t" else a,
        np.ascontiguousarray(b.T) if name[1] == "t" else b,
    )


def check(kernel: Compiled, name: str, chip: str, a: Any, b: Any, dtype: str, out: str = "") -> None:
    """C = A · B within the bound of accumulation over k terms, with guard elements around C that must stay."""
    m, n = a.shape[0], b.shape[1]
    out = out or OUT[dtype]
    frame = np.full((m + 2, n + 3), 77, NUMPY[out])
    c = frame[1 : m + 1, 1 : n + 1]
    x, y = stored(name, a, b)
    launch(kernel, {"A": x, "B": y, "C": c}, device(f"simulator:{chip}"))
    got = c.copy()
    frame[1 : m + 1, 1 : n + 1] = 77
    assert np.all(frame == 77), f"{name} {a.shape} {dtype}: wrote outside C"
    if dtype == "i8":
        assert np.array_equal(got, a.astype(np.int32) @ b.astype(np.int32)), (name, a.shape)
        return
    wide: Any = np.longdouble if dtype == "f64" else np.float64
    with np.errstate(all="ignore"):
        exact = a.astype(wide) @ b.astype(wide)
        bound = gemm_bound(a, b, ELEMS[out], unit=UNIT[SUM[dtype]])
    result = compare(got, exact, bound)
    assert result.ok, f"{name} {m}x{n}x{a.shape[1]} {dtype}: {result}"


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("chip", CHIPS)
def test_ragged_and_prime_shapes(chip: str, name: str, dtype: str) -> None:
    """Case primes: all forms and types, M, N, K prime, 1, below a tile, and aligned."""
    kernel = form(name, chip, dtype)
    for i, (m, n, k) in enumerate(SHAPES):
        a, b = operands(np.random.default_rng(i), m, n, k, dtype)
        check(kernel, name, chip, a, b, dtype)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("chip", CHIPS)
def test_outliers(chip: str, name: str, dtype: str) -> None:
    """Values that differ by 2¹² and more in one sum, subnormals, and results that overflow the output type."""
    kernel = form(name, chip, dtype)
    rng = np.random.default_rng(3)
    a, b = operands(rng, 70, 66, 75, dtype)
    a[rng.random(a.shape) < 0.02] *= 4096
    b[rng.random(b.shape) < 0.02] *= 4096
    a[5] = np.float32(6e-8) * rng.integers(1, 5, 75)  # subnormal in f16
    a[9, 3], b[3, 9] = NUMPY[dtype](60000), NUMPY[dtype](-60000)  # 3.6e9: infinite in f16
    check(kernel, name, chip, a, b, dtype)
    check(form(name, chip, dtype, out="f32"), name, chip, a, b, dtype, "f32")


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("chip", CHIPS)
def test_infinities_and_nan_stay_in_their_rows(chip: str, name: str) -> None:
    """Padding must not turn an infinity into NaN: 0 · inf beyond the edge would."""
    kernel = form(name, chip, "f16", out="f32")
    a, b = np.ones((40, 33), np.float16), np.ones((33, 40), np.float16)
    a[3, 32], b[4, 9] = np.inf, np.nan
    c = np.zeros((40, 40), np.float32)
    x, y = stored(name, a, b)
    launch(kernel, {"A": x, "B": y, "C": c}, device(f"simulator:{chip}"))
    with np.errstate(all="ignore"):
        want = a.astype(np.float64) @ b.astype(np.float64)
    assert np.array_equal(c, want, equal_nan=True)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("chip", CHIPS)
def test_strided_views(chip: str, name: str) -> None:
    """Rows that lie apart: aligned for wide accesses, at an odd element, with an odd pitch."""
    kernel = form(name, chip, "bf16")
    rng = np.random.default_rng(11)
    m, n, k = 70, 50, 96
    for offset, extra in ((0, 32), (1, 35), (8, 40)):
        a, b = integers(rng, (m, k), DTYPES["bf16"]), integers(rng, (k, n), DTYPES["bf16"])
        views = []
        for x in stored(name, a, b):
            big = np.full((x.shape[0], x.shape[1] + extra), 55, DTYPES["bf16"])
            big[:, offset : offset + x.shape[1]] = x
            views.append(big[:, offset : offset + x.shape[1]])
        big_c = np.full((m, n + extra), 9, DTYPES["bf16"])
        c = big_c[:, offset : offset + n]
        launch(kernel, {"A": views[0], "B": views[1], "C": c}, device(f"simulator:{chip}"))
        assert np.array_equal(c, (a.astype(np.float32) @ b.astype(np.float32)).astype(DTYPES["bf16"]))
        assert np.all(big_c[:, :offset] == 9) and np.all(big_c[:, offset + n :] == 9)


TILES = ((32, 32, 32), (16, 64, 64), (64, 16, 128), (128, 128, 64), (128, 256, 32), (256, 128, 64))


@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("chip", CHIPS)
def test_tiles_without_spills(chip: str, name: str, tile: tuple[int, int, int]) -> None:
    """Exact sums of small integers, so that every bit counts; no register goes to memory."""
    kernel = form(name, chip, "bf16", tile, "f32")
    stats = kernel.stats
    assert (stats["vgpr_spills"], stats["sgpr_spills"], stats["scratch_bytes"]) == (0, 0, 0), stats
    rng = np.random.default_rng(2)
    m, n, k = tile[0] + 5, tile[1] - 3, tile[2] + 9
    a, b = integers(rng, (m, k), DTYPES["bf16"]), integers(rng, (k, n), DTYPES["bf16"])
    for trim in (0, 1, 9):  # k and n: not a multiple of the vector width, so element-wise; the last with whole vectors
        check(kernel, name, chip, a[:, : k - trim], b[: k - trim], "bf16", "f32")


ODD_TILES = {
    "i8": ((16, 16, 1), (32, 32, 2), (96, 96, 48)),  # case sub-dword-lds: rows of 1 and 2 bytes in LDS
    "bf16": ((48, 80, 24), (3, 5, 7)),
    "f16": ((80, 48, 40),),
    "f32": ((17, 33, 40), (1, 1, 1)),
    "f64": ((17, 33, 40),),
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("chip", CHIPS)
def test_odd_tiles(chip: str, name: str, dtype: str) -> None:
    """Tiles that no instruction divides, in every dimension: what registers hold beyond them must not reach a sum."""
    for tile in ODD_TILES[dtype]:
        kernel = form(name, chip, dtype, tile)
        for i, (m, n, k) in enumerate(((33, 21, 19), (8, 40, 48))):
            a, b = operands(np.random.default_rng(i), m, n, k, dtype)
            check(kernel, name, chip, a, b, dtype)


# -- batched ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("chip", CHIPS)
def test_batched(chip: str, dtype: str) -> None:
    params = (("T", dtype), ("O", dtype))
    kernel = compiled(kernels.source("gemm_batched"), chip, params)
    rng = np.random.default_rng(4)
    for batch, m, n, k in ((3, 64, 64, 64), (2, 67, 5, 37), (5, 1, 130, 8)):
        a, b = (rng.standard_normal((batch, x, k)).astype(NUMPY[dtype]) for x in (m, n))
        c = np.zeros((batch, m, n), NUMPY[dtype])
        launch(kernel, {"A": a, "B": b, "C": c}, device(f"simulator:{chip}"))
        for i in range(batch):
            exact = a[i].astype(np.float64) @ b[i].astype(np.float64).T
            result = compare(c[i], exact, gemm_bound(a[i], b[i].T, ELEMS[dtype]))
            assert result.ok, f"batch {i} of {batch}x{m}x{n}x{k}: {result}"


@pytest.mark.parametrize("chip", CHIPS)
def test_batches_that_lie_apart(chip: str) -> None:
    """Heads inside rows, as attention has them: the batch stride is smaller than the row stride."""
    kernel = compiled(kernels.source("gemm_batched"), chip, (("O", "f32"),))
    rng = np.random.default_rng(5)
    t = DTYPES["bf16"]
    packed = integers(rng, (40, 3, 32), t)  # [row, head, k]
    a = packed.transpose(1, 0, 2)
    shared = integers(rng, (24, 32), t)
    b = np.broadcast_to(shared, (3, 24, 32))
    c = np.zeros((3, 40, 24), np.float32)
    launch(kernel, {"A": a, "B": b, "C": c}, device(f"simulator:{chip}"))
    assert np.array_equal(c, a.astype(np.float32) @ shared.astype(np.float32).T)


# -- faults reported by users of other compilers ---------------------------------------------------------------------

CHAINED = """tileir 1

kernel @chained<BM: int = 64, BN: int = 64, BK: int = 32>(
    %A: global<bf16[M, K]>, %B: global<bf16[K, N]>, %D: global<bf16[M, K]>, %E: global<bf16[N, K]>,
    %C: global<f32[M, N]>) grid(cdiv(M, BM), cdiv(N, BN)) {
  %i, %j = program_id()
  %zero = fill(0.0) : tile<f32[BM, BN]>
  %acc = for %k = 0 to K step BK carry(%c = %zero) {
    %ab = mma(load(%A[%i * BM +: BM, %k +: BK]), load(%B[%k +: BK, %j * BN +: BN]), %c)
    yield mma(load(%D[%i * BM +: BM, %k +: BK]), transpose(load(%E[%j * BN +: BN, %k +: BK])), %ab)
  }
  store(%acc, %C[%i * BM +: BM, %j * BN +: BN])
}
"""


@pytest.mark.parametrize("chip", CHIPS)
def test_chained_dots(chip: str) -> None:
    """Case chained-dots: C += A · B; C += D · E in one loop."""
    kernel = compiled(CHAINED, chip)
    rng = np.random.default_rng(6)
    for m, n, k in ((64, 64, 96), (70, 61, 37), (8, 8, 1)):
        a, d = (integers(rng, (m, k), DTYPES["bf16"]) for _ in range(2))
        b, e = integers(rng, (k, n), DTYPES["bf16"]), integers(rng, (n, k), DTYPES["bf16"])
        c = np.zeros((m, n), np.float32)
        launch(kernel, {"A": a, "B": b, "D": d, "E": e, "C": c}, device(f"simulator:{chip}"))
        f32 = np.float32
        assert np.array_equal(c, a.astype(f32) @ b.astype(f32) + d.astype(f32) @ e.astype(f32).T)


BACK_TO_BACK = """tileir 1

kernel @back_to_back(%A: global<bf16[M, 32]>, %B: global<bf16[32, 64]>, %D: global<bf16[64, N]>, %C: global<f32[M, N]>)
    grid(cdiv(M, 64), cdiv(N, 64)) {
  %i, %j = program_id()
  %p = mma(load(%A[%i * 64 +: 64, 0 +: 32]), load(%B[0 +: 32, 0 +: 64]))
  store(mma(convert<bf16>(%p), load(%D[0 +: 64, %j * 64 +: 64])), %C[%i * 64 +: 64, %j * 64 +: 64])
}
"""


@pytest.mark.parametrize("chip", CHIPS)
def test_product_of_a_product(chip: str) -> None:
    """The result of one product is the operand of the next: (A · B) · D."""
    kernel = compiled(BACK_TO_BACK, chip)
    rng = np.random.default_rng(7)
    t = DTYPES["bf16"]
    a, b, d = integers(rng, (70, 32), t, 1), integers(rng, (32, 64), t, 1), integers(rng, (64, 90), t, 1)
    c = np.zeros((70, 90), np.float32)
    launch(kernel, {"A": a, "B": b, "D": d, "C": c}, device(f"simulator:{chip}"))
    assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32) @ d.astype(np.float32))


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("chip", CHIPS)
def test_masked_direct_lds(chip: str, name: str) -> None:
    """Case masked-direct-lds: with aligned rows and a ragged last k tile, what the direct copies leave in LDS beyond K must
    be 0 – not the data of the k tile before, which NaN and large values in the first tile make visible."""
    kernel = form(name, chip, "bf16", out="f32")
    if chip == "gfx950":
        assert any(op.name.startswith("copy_async") for op in kernel.final.walk())
    a, b = np.full((64, 40), 3, DTYPES["bf16"]), np.full((40, 64), 5, DTYPES["bf16"])
    a[:, 8:32], b[8:32] = 1e4, 2.0
    a[7, 20], b[21, 9] = np.inf, np.nan
    with np.errstate(all="ignore"):
        want = a.astype(np.float64) @ b.astype(np.float64)
    c = np.zeros((64, 64), np.float32)
    x, y = stored(name, a, b)
    launch(kernel, {"A": x, "B": y, "C": c}, device(f"simulator:{chip}"))
    assert np.array_equal(c, want, equal_nan=True)


@pytest.mark.parametrize("k", [100, 1, 7])
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("chip", CHIPS)
def test_mask_width(chip: str, name: str, k: int) -> None:
    """Case mask-width: K is no multiple of the 8 elements of a 16-byte copy, in rows whose pitch is; what lies between the
    end of a row and its pitch is NaN, so that reading it shows."""
    kernel = form(name, chip, "bf16", out="f32")
    rng = np.random.default_rng(k)
    m, n = 60, 72
    a, b = integers(rng, (m, k), DTYPES["bf16"]), integers(rng, (k, n), DTYPES["bf16"])
    views = []
    for x in stored(name, a, b):
        pitch = -(-x.shape[1] // 8) * 8 + 8
        big = np.full((x.shape[0] + 8, pitch), np.nan, DTYPES["bf16"])
        big[: x.shape[0], : x.shape[1]] = x
        views.append(big[: x.shape[0], : x.shape[1]])
    c = np.zeros((m, n), np.float32)
    launch(kernel, {"A": views[0], "B": views[1], "C": c}, device(f"simulator:{chip}"))
    assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.parametrize("tile", [(16, 16, 32), (8, 16, 32), (16, 16, 16)], ids=str)
@pytest.mark.parametrize("chip", CHIPS)
def test_direct_lds_overrun(chip: str, tile: tuple[int, int, int]) -> None:
    """Case direct-lds-overrun: 4 waves x 64 lanes x 16 bytes are more than the LDS tiles of 512 or 1024 bytes; a write past
    the end would hit the other operand, and the simulator faults past the workgroup's allocation."""
    bm, bn, bk = tile
    text = kernels.source("gemm").replace(
        "grid(cdiv(M, BM), cdiv(N, BN))", "grid(cdiv(M, BM), cdiv(N, BN)) with(waves = 4)"
    )
    kernel = compiled(text, chip, (("BM", bm), ("BN", bn), ("BK", bk)))
    rng = np.random.default_rng(8)
    for m, n, k in ((16, 16, 64), (33, 20, 40), (5, 3, 100)):
        a, b = (integers(rng, (x, k), DTYPES["bf16"], 2) for x in (m, n))
        c = np.zeros((m, n), DTYPES["bf16"])
        launch(kernel, {"A": a, "B": b, "C": c}, device(f"simulator:{chip}"))
        assert np.array_equal(c, (a.astype(np.float32) @ b.astype(np.float32).T).astype(DTYPES["bf16"]))


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("chip", CHIPS)
def test_sub_dword_lds(chip: str, name: str, k: int) -> None:
    """Case sub-dword-lds: i8 matrices whose rows have 1, 2 or 3 bytes."""
    kernel = form(name, chip, "i8")
    a, b = operands(np.random.default_rng(k), 67, 35, k, "i8")
    check(kernel, name, chip, a, b, "i8")
    c, d = operands(np.random.default_rng(k), k, 35, 40, "i8")  # rows of 1 to 3 bytes in the transposed forms
    check(kernel, name, chip, c, d, "i8")
    e, f = operands(np.random.default_rng(k), 40, k, 33, "i8")
    check(kernel, name, chip, e, f, "i8")
