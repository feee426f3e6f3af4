"""docs/mfma.md: every matrix instruction that it says can be reached is in the machine code of a small kernel, which is right."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs"))

import matrix_instructions as table

from tests.kernels.harness import compiled, device
from tileir.ir.types import ELEMS
from tileir.runtime import launch
from tileir.simulator.inspect import inspect
from tileir.target import Mfma, get, names

REACHED = [(chip, i) for chip in names() for i in table.reachable(chip)]


def integers(rng: np.random.Generator, shape: tuple[int, int], elem: str) -> Any:
    """Small integers, which all types hold: every sum is exact."""
    return rng.integers(-2, 3, shape).astype(np.float32).astype(ELEMS[elem].np)


@pytest.mark.parametrize(("chip", "i"), [pytest.param(c, i, id=f"{c}-{i.name}") for c, i in REACHED])
def test_reached(chip: str, i: Mfma) -> None:
    a_elem, b_elem = table.operands(i)
    kernel = compiled(table.text(i, chip), chip, tuple(table.parameters(a_elem, b_elem).items()))
    assert set(inspect(kernel.hsaco).kernel.counts.mfma) == {i.name}
    rng = np.random.default_rng(i.k)
    m, n, k = 33, 40, 2 * max(i.k, 32)
    a, b = integers(rng, (m, k), a_elem), integers(rng, (n, k), b_elem)
    c = np.zeros((m, n), ELEMS[i.c].np)
    arrays = {"A": a, "B": b, "C": c}
    x, y = a.astype(np.float64), b.astype(np.float64)
    if i.scaled:
        exponents = [rng.integers(-3, 4, (rows, k // 32)) for rows in (m, n)]
        for name, e in zip(("SA", "SB"), exponents, strict=True):
            arrays[name] = (127 + e).astype(np.uint8).view(ELEMS["f8E8M0FNU"].np)
        x, y = (v * 2.0 ** e.repeat(32, 1) for v, e in zip((x, y), exponents, strict=True))
    launch(kernel, arrays, device(f"simulator:{chip}"))
    assert np.array_equal(c.astype(np.float64), x @ y.T)


@pytest.mark.parametrize("chip", names())
def test_nothing_is_left_out(chip: str) -> None:
    """Each instruction of the chip has a row that says how it is reached, or why not; blocks are never faster."""
    page = (Path(table.__file__).parent / "mfma.md").read_text(encoding="utf-8")
    target = get(chip)
    for i in target.mfmas:
        found = table.reach(chip, i.name)
        assert bool(found.op) != bool(found.reason)
        assert f"| `{i.name}` |" in page
        if i.blocks > 1:
            whole = [o for o in target.mfmas_for(i.a[0], i.b[0], i.c) if o.blocks == 1]
            assert max(o.flops_per_clock for o in whole) >= i.flops_per_clock
