"""Atomic updates in the interpreter: values worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tileir.frontend import parse
from tileir.interpreter import run

NAN = float("nan")


def update(op: str, elem: str, before: Sequence[Any], operands: Sequence[Sequence[Any]]) -> tuple[list[Any], list[Any]]:
    """What is there after the update of four elements, and its result."""
    t = {"i32": np.int32, "f32": np.float32}[elem]
    loads = ", ".join(f"load(%X{i}[0 +: 4])" for i in range(len(operands)))
    args = ", ".join(f"%X{i}: global<{elem}[4]>" for i in range(len(operands)))
    text = f"""tileir 1
kernel @k({args}, %C: global<{elem}[4]>, %O: global<{elem}[4]>) grid(1) {{
  %old = {op}<scope = system, ordering = acq_rel>({loads}, %C[0 +: 4])
  store(%old, %O[0 +: 4])
}}
"""
    arrays = {f"X{i}": np.array(x, t) for i, x in enumerate(operands)}
    arrays |= {"C": np.array(before, t), "O": np.zeros(4, t)}
    run(parse(text).kernels[0], arrays)
    return arrays["C"].tolist(), arrays["O"].tolist()


@pytest.mark.parametrize(
    ("op", "elem", "before", "operands", "after"),
    [
        ("atomic_add", "i32", [1, 2, -3, 2**31 - 1], [[1, -2, 3, 1]], [2, 0, 0, -(2**31)]),
        ("atomic_add", "f32", [0.5, 1.0, 2.0**24, -1.0], [[0.25, -1.0, 1.0, 3.0]], [0.75, 0.0, 2.0**24, 2.0]),
        ("atomic_max", "i32", [1, 2, -3, 7], [[3, -2, -4, 7]], [3, 2, -3, 7]),
        ("atomic_max", "f32", [1.0, NAN, -3.0, 7.0], [[3.0, -2.0, NAN, 8.0]], [3.0, -2.0, -3.0, 8.0]),
        ("atomic_min", "i32", [1, 2, -3, 7], [[3, -2, -4, 7]], [1, -2, -4, 7]),
        ("atomic_min", "f32", [1.0, NAN, -3.0, 7.0], [[3.0, -2.0, NAN, 8.0]], [1.0, -2.0, -3.0, 7.0]),
        ("atomic_and", "i32", [12, -1, 0, 5], [[10, 7, 7, 2]], [8, 7, 0, 0]),
        ("atomic_or", "i32", [12, -1, 0, 5], [[10, 7, 7, 2]], [14, -1, 7, 7]),
        ("atomic_xor", "i32", [12, -1, 0, 5], [[10, 7, 7, 2]], [6, -8, 7, 7]),
        ("atomic_xchg", "i32", [1, 2, 3, 4], [[5, 6, 7, 8]], [5, 6, 7, 8]),
        ("atomic_cas", "i32", [1, 2, 3, 4], [[1, 1, 3, 3], [9, 9, 9, 9]], [9, 2, 9, 4]),
        ("atomic_cas", "f32", [0.0, -0.0, 1.0, 2.0], [[-0.0, -0.0, 1.0, 3.0], [9.0] * 4], [0.0, 9.0, 9.0, 2.0]),
    ],
)
def test_updates(op: str, elem: str, before: list[Any], operands: list[list[Any]], after: list[Any]) -> None:
    found, old = update(op, elem, before, operands)
    assert found == after
    np.testing.assert_array_equal(old, before)


def test_rows_picked_twice_are_updated_twice() -> None:
    """Every update sees what those before it left; outside there is 0, and a scalar counts for all."""
    text = """tileir 1
kernel @k(%I: global<i32[5]>, %C: global<i32[3, 2]>, %O: global<i32[5, 4]>) grid(1) {
  %at = load(%I[0 +: 5])
  %old = atomic_add(10, %C[%at, -1 +: 4])
  store(%old, %O[0 +: 5, 0 +: 4])
  atomic_add(1, %C[%at, 0])
}
"""
    arrays = {
        "I": np.array([2, 0, 2, -1, 3], np.int32),
        "C": np.array([[1, 2], [3, 4], [5, 6]], np.int32),
        "O": np.full((5, 4), 77, np.int32),
    }
    run(parse(text).kernels[0], arrays)
    assert arrays["C"].tolist() == [[12, 12], [3, 4], [27, 26]]
    assert arrays["O"].tolist() == [[0, 5, 6, 0], [0, 1, 2, 0], [0, 15, 16, 0], [0] * 4, [0] * 4]


def test_places_that_a_stride_of_zero_repeats() -> None:
    text = """tileir 1
kernel @k(%C: global<i32[3, 2], strides = [0, 1]>, %n: i32, %O: global<i32[1]>) grid(1) {
  atomic_add(2, %C[1 +: 5, 0 +: 2])
  %old = atomic_max(%n, %C[0, 1])
  store(%old, %O[0])
}
"""
    c, out = np.array([1, 5], np.int32), np.zeros(1, np.int32)
    run(parse(text).kernels[0], {"C": np.lib.stride_tricks.as_strided(c, (3, 2), (0, 4)), "n": 20, "O": out})
    assert c.tolist() == [5, 20] and out.tolist() == [9]


def test_a_fence_changes_nothing() -> None:
    text = """tileir 1
kernel @k(%C: global<i32[1]>) grid(1) {
  fence<release>()
  atomic_add(1, %C[0])
  fence<acquire, scope = system>()
}
"""
    c = np.zeros(1, np.int32)
    run(parse(text).kernels[0], {"C": c})
    assert c.tolist() == [1]


COVERS = {
    **{f"atomic_{x}": [test_updates] for x in "add max min and or xor xchg cas".split()},
    "fence": [test_a_fence_changes_nothing],
}
