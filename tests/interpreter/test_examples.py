"""The example kernels, parsed from their files, against references written independently in float64."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tileir.frontend import parse_file
from tileir.interpreter import run
from tileir.ir.core import Kernel
from tileir.ir.types import ELEMS
from tileir.runtime.compare import compare, gamma, gemm_bound, rounding_bound

Array = np.ndarray[Any, Any]


def kernel(repository: Path, file: str, **params: Any) -> Kernel:
    return parse_file(repository / "examples" / f"{file}.tile", params).kernels[0]


def normal(rng: np.random.Generator, elem: str, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(ELEMS[elem].np)


# -- GEMM ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (7, 129, 16), (100, 64, 300), (257, 65, 7), (64, 64, 64)])
@pytest.mark.parametrize("elem", ["bf16", "f16", "f32"])
def test_gemm(repository: Path, m: int, n: int, k: int, elem: str) -> None:
    rng = np.random.default_rng(m + n + k)
    a, b, c = normal(rng, elem, m, k), normal(rng, elem, n, k), np.full((m, n), np.nan).astype(ELEMS[elem].np)
    run(kernel(repository, "gemm", BM=64, BN=32, BK=16, T=elem), {"A": a, "B": b, "C": c})
    found = compare(c, a.astype(np.float64) @ b.astype(np.float64).T, gemm_bound(a, b.T, ELEMS[elem]))
    assert found.ok, found


def test_gemm_is_exact_on_small_integers(repository: Path) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-4, 5, s).astype(ELEMS["bf16"].np) for s in ((65, 40), (33, 40)))
    c = np.zeros((65, 33), ELEMS["bf16"].np)
    run(kernel(repository, "gemm", BM=32, BN=32, BK=32), {"A": a, "B": b, "C": c})
    exact = a.astype(np.int64) @ b.astype(np.int64).T
    assert np.array_equal(c.astype(np.float64), exact.astype(ELEMS["bf16"].np).astype(np.float64))


# -- attention -------------------------------------------------------------------------------------------------------------


def attention_reference(q: Array, k: Array, v: Array, scale: float, causal: bool) -> tuple[Array, Array, Array]:
    """Output, log-sum-exp and Σ p|v| / Σ p in f64, one query at a time; a query that sees no key gives 0 and -inf."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    batches, nq, heads, _ = q.shape
    nk, groups = k.shape[1], k.shape[2]
    out, size, lse = np.zeros_like(q), np.zeros_like(q), np.full((batches, heads, nq), -np.inf)
    for b in range(batches):
        for h in range(heads):
            g = h // (heads // groups)
            for i in range(nq):
                last = i + (nk - nq) if causal else nk - 1  # the last query sees the last key
                if last < 0:
                    continue
                scores = np.array([scale * (q[b, i, h] @ k[b, j, g]) for j in range(last + 1)])
                weights = np.exp(scores - scores.max())
                out[b, i, h] = weights @ v[b, : last + 1, g] / weights.sum()
                size[b, i, h] = weights @ np.abs(v[b, : last + 1, g]) / weights.sum()
                lse[b, h, i] = scores.max() + math.log(weights.sum())
    return out, lse, size


def check_attention(
    repository: Path, elem: str, nq: int, nk: int, heads: int, groups: int, causal: bool, outlier: int | None = None
) -> tuple[Array, Array]:
    rng = np.random.default_rng(nq * 1000 + nk)
    depth, batches, scale = 16, 2, 0.25
    q = normal(rng, elem, batches, nq, heads, depth)
    k, v = normal(rng, elem, batches, nk, groups, depth), normal(rng, elem, batches, nk, groups, depth)
    if outlier is not None:
        k[:, outlier] = (30 * k[:, outlier].astype(np.float64)).astype(k.dtype)
    o, lse = np.full_like(q, np.nan), np.full((batches, heads, nq), np.nan, np.float32)
    program = kernel(repository, "attention", BM=16, BN=8, D=depth, CAUSAL=causal, T=elem)
    run(program, {"Q": q, "K": k, "V": v, "O": o, "LSE": lse, "scale": scale})
    want, want_lse, size = attention_reference(q, k, v, scale, causal)
    # A score s is wrong by a few f32 roundings of |s|, and exp makes an absolute error of it a relative one of p. Each p is
    # rounded to the type of V (half an ulp, relative), then summed and rescaled in f32, and the result is rounded.
    largest = max(1.0, float(np.nanmax(np.abs(want_lse[np.isfinite(want_lse)]), initial=1.0)) + math.log(nk))
    relative = 8 * largest * 2.0**-24 + float(rounding_bound(1.0, ELEMS[elem])) + gamma(2 * nk)
    found = compare(o, want, 2 * relative * size + rounding_bound(size, ELEMS[elem]) + 1e-37)
    assert found.ok, found
    found = compare(lse, want_lse, 16 * largest * 2.0**-24 + gamma(2 * nk))
    assert found.ok, found
    return o, lse


@pytest.mark.parametrize("elem", ["bf16", "f16", "f32"])
@pytest.mark.parametrize(("nq", "nk"), [(1, 1), (16, 8), (37, 21), (5, 40)])
def test_attention(repository: Path, elem: str, nq: int, nk: int) -> None:
    check_attention(repository, elem, nq, nk, heads=2, groups=2, causal=False)


@pytest.mark.parametrize(("nq", "nk"), [(40, 40), (19, 33), (33, 19)])
def test_causal_attention_with_grouped_heads(repository: Path, nq: int, nk: int) -> None:
    check_attention(repository, "f32", nq, nk, heads=4, groups=2, causal=True)


def test_rows_that_see_nothing_give_zero_and_not_nan(repository: Path) -> None:
    o, lse = check_attention(repository, "bf16", 33, 19, heads=2, groups=1, causal=True)
    assert not o[:, : 33 - 19].astype(np.float32).any() and np.all(lse[:, :, : 33 - 19] == -np.inf)
    assert np.all(np.isfinite(lse[:, :, 33 - 19 :]))


@pytest.mark.parametrize("outlier", [0, 7, 8, 20])
def test_outlier_keys_in_any_block(repository: Path, outlier: int) -> None:
    check_attention(repository, "f32", 9, 21, heads=1, groups=1, causal=False, outlier=outlier)


# -- layernorm with dropout -------------------------------------------------------------------------------------------------


def philox_word(seed: int, counter: int) -> int:
    """First word of Philox-4x32-10 in plain integers, written from the paper: key = seed, counter = (low, high, 0, 0)."""
    low, high = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
    left, right = [counter & 0xFFFFFFFF, 0], [(counter >> 32) & 0xFFFFFFFF, 0]
    for _ in range(10):
        product = [0xD2511F53 * left[0], 0xCD9E8D57 * left[1]]
        left = [product[1] >> 32 ^ right[0] ^ low, product[0] >> 32 ^ right[1] ^ high]
        right = [product[1] & 0xFFFFFFFF, product[0] & 0xFFFFFFFF]
        low, high = (low + 0x9E3779B9) & 0xFFFFFFFF, (high + 0xBB67AE85) & 0xFFFFFFFF
    return left[0]


def test_the_reference_philox_gives_the_published_answer() -> None:
    assert philox_word(0, 0) == 0x6627E8D5  # kat_vectors of Random123


@pytest.mark.parametrize("seed", [0, 12345678901234567, -5])
@pytest.mark.parametrize("p", [0.0, 0.3])
def test_dropout_residual_layernorm(repository: Path, seed: int, p: float) -> None:
    rng = np.random.default_rng(7)
    m, d, eps = 7, 96, 1e-5
    x, r, w, bias = (normal(rng, "bf16", *s) for s in ((m, d), (m, d), (d,), (d,)))
    y, s = (np.full((m, d), np.nan).astype(x.dtype) for _ in range(2))
    program = kernel(repository, "layernorm", BM=4, D=d)
    run(
        program,
        {"X": x, "R": r, "W": w, "BIAS": bias, "Y": y, "S": s, "p": p, "seed": seed, "eps": eps},
    )
    p32 = float(np.float32(p))
    kept = np.array([[(philox_word(seed, i * d + j) >> 8) / 2**24 >= p32 for j in range(d)] for i in range(m)])
    total = np.where(kept, x.astype(np.float64) / (1 - p32), 0.0) + r.astype(np.float64)
    centred = total - total.mean(axis=1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + eps) * w.astype(np.float64)
    want = scaled + bias.astype(np.float64)
    bf16 = ELEMS["bf16"]
    # some 20 roundings of f32 before the rounding to bf16, relative to the magnitudes that are added
    size = np.abs(scaled) + np.abs(bias.astype(np.float64)) + 1
    assert compare(
        s, total, 4 * 2.0**-24 * (np.abs(total) + np.abs(r.astype(np.float64))) + rounding_bound(total, bf16)
    ).ok
    found = compare(y, want, 20 * 2.0**-24 * size + rounding_bound(size, bf16))
    assert found.ok, found
    if p == 0:
        assert kept.all()
    else:
        assert 0.6 < kept.mean() < 0.8
