"""Products and classes that are alike are chosen as one, those that differ in something are not."""

from __future__ import annotations

import pytest

from tileir.frontend import parse
from tileir.passes.alike import MOST_ROUNDS, Alike
from tileir.passes.choose_mapping import Problem
from tileir.passes.layout_classes import Classes
from tileir.passes.manager import run_pipeline
from tileir.target import get


def _problem(products: str, n: int, stores: str = "") -> Problem:
    lines = ["%d0 = fill(0.0) : tile<f32[64, 64]>"]
    for k in range(n):
        lines += [
            f"%a{k} = load(%P[0 +: 64, {64 * k} +: 64])",
            f"%b{k} = load(%Q[0 +: 64, {64 * k} +: 64])",
            products.format(k=k, next=k + 1),
        ]
    body = "\n".join([*lines, stores or f"store(%d{n}, %R[0 +: 64, 0 +: 64])"])
    views = "%P: global<bf16[M, K]>, %Q: global<bf16[M, K]>, %R: global<f32[M, N]>"
    module = parse(f"tileir 1\nkernel @k({views}) grid(1) {{\n{body}\n}}\n")
    kernel = run_pipeline(module, "", "gfx942", stop_after="place-memory").kernel
    return Problem(kernel, get("gfx942"), Classes(kernel))


CHAIN = "%d{next} = mma(%a{k}, transpose(%b{k}), %d{k})"


@pytest.mark.parametrize("n", [2, 7])
def test_a_chain_of_equal_products_is_one(n: int) -> None:
    problem = _problem(CHAIN, n)
    assert [(p.alike, p.trips, len(p.ops)) for p in problem.products] == [(n, float(n), 2 * n)]
    # what is priced does not grow with the chain
    assert len(problem.prices(4).items) == len(_problem(CHAIN, 3).prices(4).items)


def test_a_chain_costs_what_its_products_cost_together() -> None:
    """Two products cost what three cost, less what the third adds: the sums are those of single products."""
    totals = []
    for n in (2, 3, 4):
        problem = _problem(CHAIN, n)
        mapping = problem.candidates(problem.products[0], 4)[0][2]
        totals.append(problem.evaluate(4, (mapping,)).clocks.total)
    assert totals[2] - totals[1] == pytest.approx(totals[1] - totals[0]) and totals[1] > totals[0]


def test_products_that_are_used_otherwise_are_told_apart() -> None:
    stores = "store(%d1, %R[0 +: 64, 0 +: 64])\nstore(exp(%d2), %R[64 +: 64, 0 +: 64])"
    problem = _problem("%d{next} = mma(%a{k}, transpose(%b{k}))", 2, stores)
    assert [p.alike for p in problem.products] == [1, 1]
    both = "store(%d1, %R[0 +: 64, 0 +: 64])\nstore(%d2, %R[64 +: 64, 0 +: 64])"
    assert [p.alike for p in _problem("%d{next} = mma(%a{k}, transpose(%b{k}))", 2, both).products] == [2]


def test_long_chains_without_two_links_alike_stay_as_they_are() -> None:
    n = 2 * MOST_ROUNDS + 8
    lines = ["%x0 = load(%P[0 +: 64, 0 +: 64])", *(f"%x{k + 1} = transpose(%x{k})" for k in range(n))]
    body = "\n".join([*lines, f"store(%x{n}, %P[0 +: 64, 0 +: 64])"])
    kernel = parse(f"tileir 1\nkernel @k(%P: global<bf16[M, K]>) grid(1) {{\n{body}\n}}\n").kernels[0]
    classes = Classes(kernel)
    alike = Alike(classes, {}, {op: 1.0 for op in kernel.walk()})
    tiles = [op.result for op in kernel.walk() if op.name == "transpose"]
    assert len({alike.root(v) for v in tiles}) == n
