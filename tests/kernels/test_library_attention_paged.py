"""The library's decode attention over pages against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.attention import reference
from tests.kernels.harness import CHIPS, DTYPES, library
from tileir.ir.types import ELEMS
from tileir.runtime import Compiled, compare, launch
from tileir.runtime.compare import gamma, rounding_bound
from tileir.runtime.simulator_device import SimulatorDevice

Array = np.ndarray[Any, Any]


def kernel(chip: str, depth: int, page: int, keys: int = 32, dtype: str = "bf16") -> Compiled:
    return library("attention_paged", chip, D=depth, BN=keys, PAGE=page, T=dtype)


def paged(rng: np.random.Generator, dense: list[Array], page: int, most: int) -> tuple[Array, Array]:
    """Rows of pages, in random order with NaN wherever no key is, and the block table with `most` pages a sequence."""
    used = [-(-len(x) // page) for x in dense]
    order = iter(rng.permutation(sum(used) + 2).astype(np.int32))
    table = np.full((len(dense), most), 1 << 30, np.int32)
    for b, n in enumerate(used):
        table[b, :n] = [next(order) for _ in range(n)]
    rows = np.full(((sum(used) + 2) * page, *dense[0].shape[1:]), np.nan).astype(dense[0].dtype)
    for b, x in enumerate(dense):
        for i, key in enumerate(x):
            rows[table[b, i // page] * page + i % page] = key
    return rows, table


def check(
    chip: str,
    depth: int,
    page: int,
    lengths: list[int],
    groups: int,
    heads: int,
    dtype: str = "bf16",
    factor: float = 30.0,
) -> None:
    """Every sequence by itself against float64; one key of each, at another place, is an outlier. All checks are silent."""
    rng, t = np.random.default_rng([depth, page, *lengths]), DTYPES[dtype]
    q = rng.standard_normal((len(lengths), groups, heads, depth)).astype(t)
    keys, values = ([rng.standard_normal((n, groups, depth)).astype(t) for n in lengths] for _ in range(2))
    for b, x in enumerate(keys):
        if len(x):
            at = (0, len(x) - 1, len(x) // 2)[b % 3]
            x[at] = (factor * x[at].astype(np.float64)).astype(t)
    most = -(-max(lengths) // page) + 1
    # The same permutation for keys and values.
    (k, table), (v, _) = (paged(np.random.default_rng(1), x, page, most) for x in (keys, values))
    o, lse = np.full(q.shape, np.nan).astype(t), np.full(q.shape[:3], np.nan, np.float32)
    scale = depth**-0.5
    arrays = {"Q": q, "K": k, "V": v, "TABLE": table, "LEN": np.array(lengths, np.int32), "O": o, "LSE": lse}
    checked = SimulatorDevice(chip, "all")
    launch(kernel(chip, depth, page, dtype=dtype), {**arrays, "scale": scale}, checked)
    assert checked.statistics is not None and not checked.statistics.findings
    elem = ELEMS[dtype]
    for b, n in enumerate(lengths):
        if n == 0:
            assert np.all(o[b] == 0) and np.all(np.isneginf(lse[b]))
            continue
        one = q[b].reshape(1, 1, groups * heads, depth)
        want, want_lse, size, terms = reference(one, keys[b][None], values[b][None], float(np.float32(scale)), False)
        # As for the other attention kernels: errors of a score become relative ones of exp, then p and the result are rounded.
        score = gamma(depth + 10) * terms
        relative = score.transpose(0, 2, 1)[..., None] + float(rounding_bound(1.0, elem)) + gamma(2 * n + 40)
        found = compare(o[b].reshape(want.shape), want, 2 * relative * size + rounding_bound(size, elem) + 1e-37)
        assert found.ok, f"sequence {b} of length {n}: O {found}"
        found = compare(lse[b].reshape(want_lse.shape), want_lse, 2 * score + gamma(2 * n + 40) * (1 + np.log(n)))
        assert found.ok, f"sequence {b} of length {n}: LSE {found}"


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    ("depth", "page", "lengths", "groups", "heads", "dtype"),
    [
        (64, 16, [97, 0, 1, 64], 2, 4, "bf16"),  # the usual case, a sequence without keys, one with a single one
        (80, 7, [67, 33, 5], 1, 19, "bf16"),  # no powers of two, more heads than rows of one product
        (32, 64, [31, 130], 3, 1, "f16"),  # pages longer than a step of the loop, every head by itself
    ],
)
def test_sequences_of_pages(
    depth: int, page: int, lengths: list[int], groups: int, heads: int, dtype: str, chip: str
) -> None:
    check(chip, depth, page, lengths, groups, heads, dtype)


@pytest.mark.parametrize("chip", CHIPS)
def test_pages_outside_do_not_count(chip: str) -> None:
    """Missing pages, numbers that would wrap to a page, and lengths past the table."""
    rng, t = np.random.default_rng(2), DTYPES["bf16"]
    q = rng.standard_normal((2, 1, 3, 32)).astype(t)
    k, v = (rng.standard_normal((5 * 16 + 3, 1, 32)).astype(t) for _ in range(2))  # the last page is not whole
    table = np.array([[-1, 1 << 28, 3, 5], [-(1 << 31), 6, 1 << 30, 5]], np.int32)
    o, lse = np.full(q.shape, np.nan).astype(t), np.full(q.shape[:3], np.nan, np.float32)
    arrays = {"Q": q, "K": k, "V": v, "TABLE": table, "LEN": np.array([1000, 64], np.int32), "O": o, "LSE": lse}
    checked = SimulatorDevice(chip, "all")
    launch(kernel(chip, 32, 16), {**arrays, "scale": 0.25}, checked)
    assert checked.statistics is not None and not checked.statistics.findings
    want, _, size, _ = reference(q[:1].reshape(1, 1, 3, 32), k[None, 48:64], v[None, 48:64], 0.25, False)
    assert compare(o[:1].reshape(want.shape), want, 2.0**-6 * size).ok
    assert np.all(o[1] == 0) and np.all(np.isneginf(lse[1]))
