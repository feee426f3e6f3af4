"""Masks that compare positions which move with a loop: the same for every bound, up to the limits of i32."""

from __future__ import annotations

import numpy as np
import pytest

from tileir.frontend import parse
from tileir.interpreter.machine import run
from tileir.ir.core import Kernel
from tileir.ir.verifier import verify
from tileir.passes.affine import Ranges
from tileir.passes.facts import Divisibility
from tileir.passes.manager import run_pipeline
from tileir.passes.place_masks import place_masks

MOST = (1 << 31) - 1
TEXT = """tileir 1
kernel @k(%Y: global<i32[4, 8]>, %hi: i32, %n: i32) grid(1) {{
  %zero = fill(1) : tile<i32[4, 8]>
  %row = iota<[4, 1]>(axis = 0) * 3 + %n
  %a = for<masks = whole> %j = {start} to %hi step {step} carry(%c = %zero) {{
    %col = %j + iota<[1, 8]>(axis = 1)
    yield where({mask}, %c * 3 + 1, %c * 5) + convert<i32>(%col < %n)
  }}
  store(%a, %Y[0 +: 4, 0 +: 8])
}}
"""


def both(mask: str, start: int, step: int = 8) -> tuple[Kernel, Kernel]:
    """The kernel before and after."""
    before = run_pipeline(
        parse(TEXT.format(mask=mask, start=start, step=step)), "", "gfx950", stop_after="simplify"
    ).kernel
    after = place_masks(before, Ranges(before), Divisibility(before))
    verify(after)
    return before, after


@pytest.mark.parametrize("start", [0, 8, MOST - 63])
@pytest.mark.parametrize("relation", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("mask", ["%col {} %row", "%row {} %col", "%col {} %n", "%n {} %col"])
def test_results_stay(mask: str, relation: str, start: int) -> None:
    before, after = both(mask.format(relation), start)
    loop = next(op for op in after.walk() if op.name == "for")
    masks = [op for op in loop.walk() if op.name in ("lt", "le", "gt", "ge")]
    assert masks and all("sub" in [v.owner.name for v in op.operands if v.owner is not None] for op in masks)
    for n in (-MOST - 1, -MOST, -20, -1, 0, 1, 7, 8, 9, 30, start - 1, start, start + 13, MOST - 8, MOST):
        if n + 9 > MOST and "row" in mask:
            continue  # another number than meant
        found: list[np.ndarray[tuple[int, int], np.dtype[np.int32]]] = []
        for kernel in (before, after):
            y = np.zeros((4, 8), np.int32)
            run(kernel, {"Y": y, "hi": min(start + 40, MOST), "n": min(max(n, -MOST - 1), MOST)}, symbols={})
            found.append(y)
        assert (found[0] == found[1]).all(), n


@pytest.mark.parametrize(("start", "step"), [(-8, 8), (1, 8), (0, 4)])
def test_positions_that_may_wrap_stay(start: int, step: int) -> None:
    """Below zero, or up to where the last position of a block is beyond i32."""
    before, after = both("%col < %n", start, step)
    assert after is before


def test_bounds_of_each_element_stay() -> None:
    """They would take as many subtractions."""
    before, after = both("%col < %c", 0)
    names = [op.name for op in after.walk()]
    assert names.count("max") == 1 and [op.name for op in before.walk()].count("add") - names.count("add") <= 1
