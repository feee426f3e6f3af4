"""GEMMs of every form and type on values at the ends of their types: the largest, subnormals, infinities, NaN, zeros of both signs."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.harness import CHIPS, DTYPES, compiled, device
from tests.kernels.test_gemm_forms import FORMS, NUMPY, form, stored
from tileir import kernels
from tileir.runtime import launch

FLOATS = ("bf16", "f16", "f32", "f64")
SHAPES = ((64, 64, 64), (37, 71, 41))  # aligned and, in all forms, element by element


def special(dtype: str) -> dict[str, float]:
    info: Any = ml_dtypes.finfo(NUMPY[dtype])
    return {"max": float(info.max), "tiny": float(info.smallest_subnormal), "normal": float(info.smallest_normal)}


def product(kernel: Any, name: str, chip: str, a: Any, b: Any, out: Any) -> Any:
    c = np.full((a.shape[0], b.shape[1]), 7, out)
    x, y = stored(name, a, b)
    launch(kernel, {"A": x, "B": y, "C": c}, device(f"simulator:{chip}"))
    return c


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("chip", CHIPS)
def test_one_term_per_element(chip: str, name: str, dtype: str) -> None:
    """B selects: column j is 1 or a power of two in row j % K. So every element of C is one element of A, scaled, and exact: the
    largest value, subnormals and infinities come through bit by bit, zeros of the other terms change nothing."""
    kernel = form(name, chip, dtype)
    t, s = NUMPY[dtype], special(dtype)
    values = [s["max"], -s["max"], s["tiny"], -s["tiny"], 3 * s["tiny"], s["normal"], 1.0, -0.5, np.inf, -np.inf]
    for m, n, k in SHAPES:
        rng = np.random.default_rng(m)
        finite = np.array(values[:8])[rng.integers(0, 8, (m, k))]
        a = finite.astype(t)
        b = np.zeros((k, n), t)
        scale = np.where(np.arange(n) % 3 == 0, 0.5, 1.0)
        b[np.arange(n) % k, np.arange(n)] = scale.astype(t)
        want = (a[:, np.arange(n) % k].astype(np.float64) * scale).astype(t)
        if dtype in ("bf16", "f32"):  # sums are f32, in which half of the smallest subnormal is rounded away
            want = (a[:, np.arange(n) % k].astype(np.float32) * scale.astype(np.float32)).astype(t)
        got = product(kernel, name, chip, a, b, t)
        assert np.array_equal(got, want), f"{m}x{n}x{k}"
        a[3, :] = t(np.inf)  # inf · 0 is NaN, inf · 1 infinite: where K is one, nothing else is added
        single = product(kernel, name, chip, a[:, :1], np.ones((1, n), t), t)
        assert np.all(np.isposinf(single[3].astype(np.float64))) and np.isfinite(single[0].astype(np.float64)).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("chip", CHIPS)
def test_infinities_propagate_and_stay(chip: str, name: str, dtype: str) -> None:
    """An infinity fills its row with the sign of its partner, opposite ones meet in NaN, NaN fills its column; overflow of a
    sum of large values is infinite, of large values that cancel is not seen."""
    kernel = form(name, chip, dtype)
    t = NUMPY[dtype]
    for m, n, k in SHAPES:
        a, b = np.ones((m, k), t), np.ones((k, n), t)
        b[k - 1, 5] = t(-1.0)
        a[2, k - 1] = t(np.inf)
        a[4, 0], a[4, k - 1] = t(np.inf), t(-np.inf)
        b[1, 9] = t(np.nan)
        big = t(special(dtype)["max"])
        a[7] = big
        with np.errstate(all="ignore"):
            exact = a.astype(np.longdouble) @ b.astype(np.longdouble)
            want = exact.astype(np.float64 if dtype == "f64" else np.float32).astype(t)
        got = product(kernel, name, chip, a, b, t).astype(np.float64)
        assert np.array_equal(got, want.astype(np.float64), equal_nan=True), f"{m}x{n}x{k}"
        assert np.isposinf(got[7, 0]) and np.isnan(got[4, 0]) and np.isposinf(got[2, 0]) and np.isneginf(got[2, 5])


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("chip", CHIPS)
def test_extreme_integers(chip: str, name: str) -> None:
    """-128 and 127 everywhere: sums of |x| up to 2²⁰ are exact in i32."""
    kernel = form(name, chip, "i8")
    for m, n, k in SHAPES:
        rng = np.random.default_rng(k)
        a, b = (rng.choice(np.array([-128, 127], np.int8), s) for s in ((m, k), (k, n)))
        got = product(kernel, name, chip, a, b, np.int32)
        assert np.array_equal(got, a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.parametrize("dtype, total", [("f64", "f64"), ("i8", "i32")])
@pytest.mark.parametrize("chip", CHIPS)
def test_batched_of_the_other_types(chip: str, dtype: str, total: str) -> None:
    """Batched products in f64 and i8, ragged; small integers, so exact."""
    params = (("T", dtype), ("S", total), ("O", total), ("BK", 32))
    kernel = compiled(kernels.source("gemm_batched"), chip, params)
    t, out = NUMPY[dtype], {**DTYPES, "f64": np.float64}[total]
    rng = np.random.default_rng(3)
    for batch, m, n, k in ((2, 64, 64, 32), (3, 67, 5, 37)):
        a, b = (rng.integers(-5, 6, (batch, x, k)).astype(t) for x in (m, n))
        c = np.zeros((batch, m, n), out)
        launch(kernel, {"A": a, "B": b, "C": c}, device(f"simulator:{chip}"))
        assert np.array_equal(c, np.einsum("bmk,bnk->bmn", a.astype(np.float64), b.astype(np.float64)))
