"""Tables of constants on the simulator."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import CHIPS, integers
from .test_shapes import TYPES, agree


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    ("elem", "count", "waves"),
    [("f32", 4, 1), ("i8", 300, 4), ("bf16", 16, 2), ("f64", 5, 4), ("i32", 64, 8), ("f16", 1, 1)],
)
def test_a_table_alone_and_along_every_dimension(elem: str, count: int, waves: int, chip: str) -> None:
    """The same table as it is, as a row, as a column, and picking rows."""
    values = np.random.default_rng(1).integers(0, 8, count)
    numbers = ", ".join(str(v) if elem[0] == "i" else f"{v}.5" for v in values)
    picks = ", ".join(map(str, values))
    text = f"""tileir 1
kernel @k(%A: global<{elem}[8, {count}]>, %B: global<{elem}[2, {count}]>, %C: global<{elem}[{count}, {count}]>) grid(1)
    with(waves = {waves}) {{
  %t = table<{elem}, [{numbers}]>()
  %x = load(%A[0, 0 +: {count}])
  store(%t, %B[0, 0 +: {count}])
  store(%t + %x, %B[1, 0 +: {count}])
  %r = load(%A[table<i32, [{picks}]>(), 0 +: 4])
  %s = reduce_add(%r, axis = 1) + reshape<[{count}, 1]>(%t)
  store(%s, %C[0 +: {count}, 0 +: 1])
}}
"""
    a = integers(np.random.default_rng(2), (8, count), TYPES[elem])
    arrays = {"A": a, "B": np.zeros((2, count), TYPES[elem]), "C": np.zeros((count, count), TYPES[elem])}
    agree(text, chip, {n: x.copy() for n, x in arrays.items()}, "B")
    agree(text, chip, arrays, "C")
