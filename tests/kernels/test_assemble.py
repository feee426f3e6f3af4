"""slice, insert and concat on the simulator, against the interpreter bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

from tileir.frontend import parse
from tileir.ir.diagnostics import CompileError
from tileir.lowering.amdgpu.compile import compile_kernel

from .harness import CHIPS, compiled, integers
from .test_conversions import mnemonics
from .test_shapes import TYPES, agree


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    ("elem", "rows", "cols", "offsets", "shape", "waves"),
    [
        ("f32", 64, 64, (32, 0), (32, 64), 4),
        ("bf16", 64, 128, (0, 64), (64, 64), 4),
        ("i8", 48, 80, (16, 8), (24, 40), 2),
        ("f16", 12, 14, (3, 7), (7, 5), 1),  # nothing divides
        ("f64", 33, 16, (1, 0), (32, 16), 8),
        ("i32", 7, 5, (6, 4), (1, 1), 4),
    ],
)
def test_slice_and_insert(
    elem: str, rows: int, cols: int, offsets: tuple[int, ...], shape: tuple[int, ...], waves: int, chip: str
) -> None:
    r, c = shape
    text = f"""tileir 1
kernel @k(%A: global<{elem}[{rows}, {cols}]>, %B: global<{elem}[{r}, {c}]>, %C: global<{elem}[{rows}, {cols}]>) grid(1)
    with(waves = {waves}) {{
  %a = load(%A[0 +: {rows}, 0 +: {cols}])
  %s = slice<{list(offsets)}, {list(shape)}>(%a)
  store(%s, %B[0 +: {r}, 0 +: {c}])
  store(insert<{list(offsets)}>(%a, %s + %s), %C[0 +: {rows}, 0 +: {cols}])
}}
"""
    rng = np.random.default_rng(1)
    a = integers(rng, (rows, cols), TYPES[elem])
    zeros = {"B": np.zeros(shape, TYPES[elem]), "C": np.zeros_like(a)}
    agree(text, chip, {"A": a, **zeros}, "B")
    agree(text, chip, {"A": a, **zeros}, "C")


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    ("axis", "sizes", "waves"), [(1, (32, 32), 4), (0, (8, 24, 16), 2), (1, (3, 5, 1), 1), (0, (64, 1), 4)]
)
def test_concat(axis: int, sizes: tuple[int, ...], waves: int, chip: str) -> None:
    """Values that are loaded, computed, filled, and masks."""
    shapes = [(n, 16) if axis == 0 else (16, n) for n in sizes]
    total = (sum(sizes), 16) if axis == 0 else (16, sum(sizes))
    loads = "".join(f"  %x{i} = load(%A[0 +: {r}, {i} +: {c}])\n" for i, (r, c) in enumerate(shapes))
    names = ", ".join(f"%x{i}" for i in range(len(sizes)))
    masks = ", ".join(f"%x{i} > 0.0" for i in range(len(sizes)))
    filled = ", ".join(f"%f{i}" for i in range(len(sizes)))
    fills = "".join(f"  %f{i} = fill({i + 1}.0) : tile<f32[{r}, {c}]>\n" for i, (r, c) in enumerate(shapes))
    text = f"""tileir 1
kernel @k(%A: global<f32[80, 80]>, %B: global<f32[{total[0]}, {total[1]}]>) grid(1) with(waves = {waves}) {{
{loads}{fills}  %y = concat({names}, axis = {axis})
  %z = where(concat({masks}, axis = {axis}), %y, concat({filled}, axis = {axis}))
  store(%z, %B[0 +: {total[0]}, 0 +: {total[1]}])
}}
"""
    a = integers(np.random.default_rng(2), (80, 80), np.float32)
    agree(text, chip, {"A": a, "B": np.zeros(total, np.float32)}, "B")


ROTATE = """tileir 1
kernel @k(%A: global<f32[64, 128]>, %B: global<f32[64, 128]>) grid(1) {
  %a = load(%A[0 +: 64, 0 +: 128])
  %low = slice<[0, 0], [64, 64]>(%a)
  %high = slice<[0, 64], [64, 64]>(%a)
  store(concat(-%high, %low, axis = 1), %B[0 +: 64, 0 +: 128])
}
"""


@pytest.mark.parametrize("chip", CHIPS)
def test_halves_change_places_as_rotary_embeddings_want(chip: str) -> None:
    a = integers(np.random.default_rng(3), (64, 128), np.float32)
    arrays = {"A": a, "B": np.zeros_like(a)}
    agree(ROTATE, chip, arrays, "B")
    np.testing.assert_array_equal(arrays["B"], np.concatenate([-a[:, 64:], a[:, :64]], axis=1))


@pytest.mark.parametrize("chip", CHIPS)
def test_of_the_accumulator_of_a_product(chip: str) -> None:
    text = """tileir 1
kernel @k(%A: global<bf16[64, 64]>, %B: global<f32[32, 96]>) grid(1) {
  %c = mma(load(%A[0 +: 64, 0 +: 64]), load(%A[0 +: 64, 0 +: 64]))
  %s = slice<[32, 0], [32, 64]>(%c)
  store(concat(%s, slice<[0, 16], [32, 32]>(%c), axis = 1), %B[0 +: 32, 0 +: 96])
}
"""
    a = integers(np.random.default_rng(4), (64, 64), TYPES["bf16"], 2)
    agree(text, chip, {"A": a, "B": np.zeros((32, 96), np.float32)}, "B")


def test_pieces_that_are_too_small_are_an_error_at_their_line() -> None:
    text = """tileir 1
kernel @k(%A: global<f32[4096]>, %B: global<f32[4095]>) grid(1) {
  store(slice<[1], [4095]>(load(%A[0 +: 4096])), %B[0 +: 4095])
}
"""
    with pytest.raises(CompileError, match=r"E0863.*pieces of 1 elements") as e:
        compile_kernel(parse(text), "", "gfx950")
    assert e.value.diagnostics[0].loc.line == 3


def test_taking_apart_moves_nothing_where_layouts_fit() -> None:
    """One exchange in and one out at most: slices and concatenation themselves are names of registers."""
    assert mnemonics(compiled(ROTATE, "gfx950"))["s_barrier"] <= 4
