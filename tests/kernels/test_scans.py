"""Scans and reductions of bits and positions on the simulator: equal to the interpreter bit by bit. Sums are of small integers."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import CHIPS, integers
from .test_shapes import TYPES as SHAPE_TYPES
from .test_shapes import agree, span

TYPES = {**SHAPE_TYPES, "i64": np.int64, "i16": np.int16}


def scanned(
    ops: list[str], shape: tuple[int, ...], elem: str, waves: int, chip: str, x: np.ndarray, source: str = ""
) -> None:
    dims = ", ".join(map(str, shape))
    lines = "\n".join(f"  store({op}, %B[{i}, {span(shape)}])" for i, op in enumerate(ops))
    text = f"""tileir 1
kernel @k(%A: global<{elem}[{dims}]>, %B: global<{elem}[{len(ops)}, {dims}]>) grid(1) with(waves = {waves}) {{
  %a = {source or f"load(%A[{span(shape)}])"}
{lines}
}}
"""
    agree(text, chip, {"A": x, "B": np.zeros((len(ops), *shape), TYPES[elem])}, "B")


FORMS = ("", "<exclusive = true>", "<reverse = true>", "<exclusive = true, reverse = true>")


@pytest.mark.parametrize(
    ("shape", "axis", "waves", "elem"),
    [
        ((64, 64), 1, 4, "f32"),
        ((64, 64), 0, 4, "f32"),
        ((1000,), 0, 4, "f32"),  # over waves, with holes
        ((4096,), 0, 8, "i32"),
        ((3, 5, 7), 1, 8, "i64"),
        ((96, 80), 1, 2, "bf16"),  # repetitions along the axis
        ((48, 10), 0, 1, "f16"),
        ((40, 192), 1, 4, "f64"),
        ((1, 1), 0, 4, "i8"),
        ((2, 300), 1, 16, "i16"),
        ((6, 4, 8), 2, 2, "i8"),
        ((5,), 0, 1, "f32"),
    ],
)
def test_sums(shape: tuple[int, ...], axis: int, waves: int, elem: str) -> None:
    x = integers(np.random.default_rng(1), shape, TYPES[elem], 3 if elem != "bf16" else 1)
    for i, chip in enumerate(CHIPS):
        scanned([f"scan_add{form}(%a, axis = {axis})" for form in FORMS[i::2]], shape, elem, waves, chip, x)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("elem", ["f32", "f16", "f64", "i32", "i8", "i64"])
def test_extremes_and_products(elem: str, chip: str) -> None:
    """NaN is passed over, what is before everything changes nothing."""
    shape = (5, 70)
    x = integers(np.random.default_rng(2), shape, TYPES[elem], 9)
    if elem[0] == "f":
        x[::3, ::5] = np.nan
        x[3], x[4, :9] = np.nan, np.inf
    signs = np.where(np.random.default_rng(3).random(shape) < 0.5, -1, 1).astype(TYPES[elem])
    scanned([f"scan_max{form}(%a, axis = 1)" for form in FORMS[:2]], shape, elem, 4, chip, x)
    scanned([f"scan_min{form}(%a, axis = 0)" for form in FORMS[2:]], shape, elem, 2, chip, x)
    scanned([f"scan_mul{form}(%a, axis = 1)" for form in FORMS[::2]], shape, elem, 4, chip, signs)


@pytest.mark.parametrize("chip", CHIPS)
def test_scans_of_what_is_computed(chip: str) -> None:
    """Free operands, accumulators of products, and results that other layouts want."""
    shape = (64, 32)
    x = integers(np.random.default_rng(4), shape, np.float32, 2)
    source = "mma(load(%A[0 +: 64, 0 +: 32]), load(%A[0 +: 32, 0 +: 32]))"
    ops = [
        "scan_add(%a, axis = 1)",
        "scan_add(%a, axis = 0) + %a",
        "%a * convert<f32>(scan_add(iota<[64, 32]>(axis = 1), axis = 0))",
    ]
    scanned(ops, shape, "f32", 4, chip, x, source)


@pytest.mark.parametrize("chip", CHIPS)
def test_a_scan_over_many_tiles(chip: str) -> None:
    """A running sum along rows of any length: the last column is carried from tile to tile."""
    text = """tileir 1
kernel @k(%A: global<i32[M, N]>, %B: global<i32[M, N]>) grid(cdiv(M, 8)) with(waves = 2) {
  %i = program_id()
  %zero = fill(0) : tile<i32[8, 1]>
  %t = for %j = 0 to N step 128 carry(%c = %zero) {
    %a = load(%A[%i * 8 +: 8, %j +: 128])
    store(scan_add(%a, axis = 1) + %c, %B[%i * 8 +: 8, %j +: 128])
    yield %c + reduce_add(%a, axis = 1)
  }
}
"""
    a = integers(np.random.default_rng(5), (19, 500), np.int32, 99)
    agree(text, chip, {"A": a, "B": np.zeros_like(a)}, "B")


@pytest.mark.parametrize(("shape", "axis", "waves"), [((1000,), 0, 4), ((96, 80), 0, 8), ((3, 5, 7), 1, 4)])
@pytest.mark.parametrize("elem", ["i8", "i64"])
def test_bits(elem: str, shape: tuple[int, ...], axis: int, waves: int) -> None:
    x = np.random.default_rng(6).integers(-128, 128, shape).astype(TYPES[elem])
    parts = [f"broadcast<{list(shape)}>(reduce_{op}(%a, axis = {axis}))" for op in ("and", "or", "xor")]
    scanned(parts, shape, elem, waves, CHIPS[len(elem) % 2], x)


@pytest.mark.parametrize(("shape", "axis", "waves"), [((1000,), 0, 4), ((48, 40), 0, 8), ((1, 3), 0, 1)])
@pytest.mark.parametrize("elem", ["f32", "bf16", "i64"])
def test_positions(elem: str, shape: tuple[int, ...], axis: int, waves: int) -> None:
    """The first of equal ones; NaN only if there is nothing else."""
    reduced = tuple(1 if d == axis else n for d, n in enumerate(shape))
    out = ", ".join(map(str, reduced))
    text = f"""tileir 1
kernel @k(%A: global<{elem}[{", ".join(map(str, shape))}]>, %B: global<i32[4, {out}]>) grid(1) with(waves = {waves}) {{
  %a = load(%A[{span(shape)}])
  store(reduce_argmax(%a, axis = {axis}), %B[0, {span(reduced)}])
  store(reduce_argmin(%a, axis = {axis}), %B[1, {span(reduced)}])
  store(convert<i32>(any(%a > 2, axis = {axis})), %B[2, {span(reduced)}])
  store(convert<i32>(all(%a < 3, axis = {axis})), %B[3, {span(reduced)}])
}}
""".replace("> 2,", f"> {2.0 if elem[0] != 'i' else 2},").replace("< 3,", f"< {3.0 if elem[0] != 'i' else 3},")
    x = integers(np.random.default_rng(7), shape, TYPES[elem])
    if elem[0] != "i":
        x.reshape(-1)[::4] = np.nan
        x.reshape(-1)[1::7] = -0.0
        if len(shape) > 1:
            x[0 if axis else slice(None), :1] = np.nan
    arrays = {"A": x, "B": np.zeros((4, *reduced), np.int32)}
    agree(text, CHIPS[len(elem) % 2], arrays, "B")
    if elem[0] == "i":
        np.testing.assert_array_equal(arrays["B"][0], np.argmax(x, axis, keepdims=True))
        np.testing.assert_array_equal(arrays["B"][3], np.all(x < 3, axis, keepdims=True))
