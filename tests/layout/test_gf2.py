"""Linear algebra over GF(2), against brute force."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileir.layout import gf2

vectors = st.lists(st.integers(0, 63), max_size=7)


def brute_span(columns: list[int]) -> set[int]:
    out = {0}
    for c in columns:
        out |= {x ^ c for x in out}
    return out


@given(vectors)
def test_rank_counts_the_span(columns: list[int]) -> None:
    assert 1 << gf2.rank(columns) == len(brute_span(columns))


@given(vectors, st.integers(0, 63))
def test_solve_finds_a_preimage_exactly_when_there_is_one(columns: list[int], target: int) -> None:
    x = gf2.solve(columns, target)
    if x is None:
        assert target not in brute_span(columns)
    else:
        assert gf2.apply(columns, x) == target


@given(vectors)
def test_kernel_is_the_set_of_zeros(columns: list[int]) -> None:
    zeros = {x for x in range(1 << len(columns)) if gf2.apply(columns, x) == 0}
    basis = gf2.kernel(columns)
    assert brute_span(list(basis)) == zeros
    assert gf2.rank(basis) == len(basis)


@given(st.lists(st.integers(0, 31), min_size=5, max_size=5))
def test_inverse(columns: list[int]) -> None:
    images = {gf2.apply(columns, x) for x in range(32)}
    if len(images) < 32:
        with pytest.raises(ValueError, match="no inverse"):
            gf2.inverse(columns)
    else:
        assert gf2.compose(gf2.inverse(columns), columns) == gf2.identity(5)
        assert gf2.compose(columns, gf2.inverse(columns)) == gf2.identity(5)


@given(st.lists(st.integers(0, 7), min_size=4, max_size=4), st.lists(st.integers(0, 15), min_size=3, max_size=3))
def test_compose_applies_the_inner_matrix_first(outer: list[int], inner: list[int]) -> None:
    for x in range(8):
        assert gf2.apply(gf2.compose(outer, inner), x) == gf2.apply(outer, gf2.apply(inner, x))


def test_apply_rejects_a_vector_that_is_too_long() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        gf2.apply([1, 2], 4)


def test_a_worked_example() -> None:
    # columns (1,1,0), (0,1,1), (1,0,1): the third is the sum of the first two
    assert gf2.rank([0b011, 0b110, 0b101]) == 2
    assert gf2.solve([0b011, 0b110, 0b101], 0b101) == 0b011
    assert gf2.solve([0b011, 0b110, 0b101], 0b001) is None
    assert gf2.kernel([0b011, 0b110, 0b101]) == (0b111,)
    assert [a ^ b for a, b in itertools.pairwise((0b011, 0b110, 0b101))] == [0b101, 0b011]
