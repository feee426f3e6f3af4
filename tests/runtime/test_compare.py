"""Error bounds and the comparison of results."""

from __future__ import annotations

import numpy as np
import pytest

from tileir.ir.types import BF16, ELEMS, F16, F32, F64
from tileir.runtime.compare import F32_UNIT, compare, gamma, gemm_bound, rounding_bound

INF, NAN = float("inf"), float("nan")


def test_gamma() -> None:
    assert gamma(1) == pytest.approx(2.0**-24, rel=1e-6)
    assert gamma(2**23) == 1.0
    with pytest.raises(ValueError, match="no error bound"):
        gamma(2**24)


def test_rounding_bound_is_half_an_ulp() -> None:
    assert rounding_bound(1.0, F32) == 2.0**-24
    assert rounding_bound(1.999, F32) == 2.0**-24
    assert rounding_bound(2.0, F32) == 2.0**-23
    assert rounding_bound(1.0, BF16) == 2.0**-8
    assert rounding_bound(1.0, F64) == 2.0**-53
    assert rounding_bound(0.0, F32) == 2.0**-150
    assert rounding_bound(0.0, F16) == 2.0**-25
    assert rounding_bound(65519.0, F16) == 16
    assert rounding_bound(65520.0, F16) == INF
    assert rounding_bound(1.0, ELEMS["f8E4M3FN"]) == 2.0**-4


def test_rounding_bound_holds_for_every_rounding() -> None:
    x = np.random.default_rng(1).standard_normal(10_000) * np.exp2(np.random.default_rng(2).integers(-30, 15, 10_000))
    for elem in (F16, BF16, F32):
        error = np.abs(x - x.astype(elem.np).astype(np.float64))
        assert np.all(error <= rounding_bound(x, elem))
        assert np.max(error / rounding_bound(x, elem)) > 0.99


def f32_products(a: np.ndarray, b: np.ndarray, order: np.ndarray) -> np.ndarray:
    """a · b with every product and sum rounded to f32, terms in the given order."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in order:
        total = total + a[:, k : k + 1] * b[k : k + 1]
    return total


@pytest.mark.parametrize("k", [1, 2, 100, 700])
def test_gemm_bound_holds_in_any_order_and_is_not_idle(k: int) -> None:
    rng = np.random.default_rng(k)
    a = rng.standard_normal((20, k)).astype(np.float32)
    b = np.abs(rng.standard_normal((k, 30)).astype(np.float32))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    for order in (np.arange(k), np.arange(k)[::-1], rng.permutation(k)):
        got = f32_products(a, b, order)
        found = compare(got, exact, gemm_bound(a, b))
        assert found.ok
    assert not compare(f32_products(a[:, : k - 1], b[: k - 1], np.arange(k - 1)), exact, gemm_bound(a, b)).ok
    assert found.max_ratio > 1e-4


def test_gemm_bound_counts_the_initial_value() -> None:
    a, b, c = np.ones((1, 1)), np.ones((1, 1)), np.full((1, 1), 2.0**20)
    want = gamma(2) * (1 + 2.0**20) + 2 * 2.0**-149
    assert gemm_bound(a, b, F64, initial=c)[0, 0] == pytest.approx(want + 2.0**-33)
    assert gemm_bound(a, b, F64)[0, 0] == pytest.approx(F32_UNIT, rel=1e-6)


def test_gemm_bound_allows_products_that_underflow() -> None:
    tiny = np.full((1, 1), 2.0**-100)
    assert compare([[0.0]], tiny @ tiny, gemm_bound(tiny, tiny, F64)).ok


def test_compare_agrees() -> None:
    found = compare([1.0, NAN, INF, -INF], [1.0, NAN, INF, -INF], 0.0)
    assert found.ok and found.failures == 0 and found.max_error == 0 and found.elements == 4
    assert compare(np.float32(1.5), 1.25, 0.25).max_ratio == 1


@pytest.mark.parametrize(
    ("got", "ref", "bound"),
    [
        (NAN, 1.0, 1e9),
        (1.0, NAN, 1e9),
        (INF, -INF, 1e9),
        (INF, 5.0, 1e9),
        (5.0, INF, 1e9),
        (1.1, 1.0, 0.09),
        (-INF, 5.0, INF),
    ],
)
def test_compare_disagrees(got: float, ref: float, bound: float) -> None:
    found = compare([0.0, got], [0.0, ref], bound)
    assert not found.ok and found.failures == 1 and found.worst_index == (1,)
    assert "1 of 2 outside their bounds" in str(found)


def test_an_overflow_within_the_bound_agrees() -> None:
    assert compare([INF], [65519.0], [INF]).ok
    assert not compare([NAN], [65519.0], [INF]).ok


def test_the_worst_element_is_the_one_with_the_largest_share_of_its_bound() -> None:
    found = compare([[1.0, 100.0]], [[1.1, 101.0]], [[0.11, 10.0]])
    assert found.ok and found.worst_index == (0, 0) and found.max_error == 1.0
    assert found.max_ratio == pytest.approx(0.1 / 0.11)
    failing = compare([[1.0, 100.0]], [[1.3, 111.0]], [[0.1, 10.0]])
    assert failing.failures == 2 and failing.worst_index == (0, 0) and failing.want == 1.3


def test_shapes_must_agree_and_empty_arrays_do() -> None:
    with pytest.raises(ValueError, match="differ"):
        compare(np.zeros(2), np.zeros(3), 1)
    assert compare(np.zeros((0, 3)), np.zeros((0, 3)), 1).ok
