"""Tiles of any shape under any number of waves: reductions along every axis, transpositions of rank 3, and the roundings
that a device could do twice. The inputs are small integers, so every result must equal the interpreter's bit by bit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tileir.frontend import parse
from tileir.interpreter import run
from tileir.ir.core import Kernel, Module
from tileir.ir.printer import print_module
from tileir.lowering.amdgpu.compile import Options, compile_kernel
from tileir.runtime import launch

from .harness import CHIPS, device, integers

Arrays = dict[str, np.ndarray[Any, Any]]
TYPES = {
    "f32": np.float32,
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f64": np.float64,
    "i32": np.int32,
    "i8": np.int8,
}


def agree(text: str, chip: str, arrays: Arrays, output: str) -> None:
    """The simulator computes the same bits as the interpreter, and the text parses back after every pass."""

    def round_trip(label: str, kernel: Kernel) -> None:
        module = Module([kernel])
        assert parse(print_module(module)) == module, label

    kernel = compile_kernel(parse(text, "kernel.tile"), "", chip, Options(print_after=round_trip, verify_each="run"))
    want = {name: a.copy() for name, a in arrays.items()}
    assert kernel.kernel is not None
    run(kernel.kernel, want, symbols={})
    launch(kernel, arrays, device(f"simulator:{chip}"))
    np.testing.assert_array_equal(arrays[output], want[output])


def span(shape: tuple[int, ...]) -> str:
    return ", ".join(f"0 +: {n}" for n in shape)


@pytest.mark.parametrize(
    ("shape", "axis", "waves", "elem"),
    [
        ((1000,), 0, 4, "f32"),  # the last part is short
        ((1000,), 0, 8, "bf16"),
        ((96, 80), 0, 8, "f32"),  # parts do not divide the axis
        ((3, 5), 0, 16, "i8"),
        ((4, 6, 8), 0, 2, "f16"),  # parts of rank 3, not of a power of two
        ((3, 5, 7), 0, 8, "i32"),
        ((1, 6, 5), 1, 4, "f64"),
    ],
)
def test_reductions(shape: tuple[int, ...], axis: int, waves: int, elem: str) -> None:
    chip = CHIPS[(axis + waves // 4) % 2]
    reduced = tuple(1 if d == axis else n for d, n in enumerate(shape))
    dims, out = ", ".join(map(str, shape)), ", ".join(map(str, reduced))
    text = f"""tileir 1
kernel @k(%A: global<{elem}[{dims}]>, %B: global<{elem}[2, {out}]>) grid(1) with(waves = {waves}) {{
  %a = load(%A[{span(shape)}])
  store(reduce_add(%a, axis = {axis}), %B[0, {span(reduced)}])
  store(reduce_max(%a, axis = {axis}) - reduce_min(%a, axis = {axis}), %B[1, {span(reduced)}])
}}
"""
    rng = np.random.default_rng(1)
    arrays = {"A": integers(rng, shape, TYPES[elem]), "B": np.zeros((2, *reduced), TYPES[elem])}
    agree(text, chip, arrays, "B")


@pytest.mark.parametrize("waves", [1, 4])
@pytest.mark.parametrize(("shape", "perm"), [((3, 5, 7), (2, 1, 0)), ((2, 2, 40), (1, 2, 0)), ((4, 6, 8), (2, 0, 1))])
def test_transpositions(shape: tuple[int, ...], perm: tuple[int, ...], waves: int) -> None:
    turned = tuple(shape[d] for d in perm)
    text = f"""tileir 1
kernel @k(%A: global<i8[{", ".join(map(str, shape))}]>, %B: global<i8[{", ".join(map(str, turned))}]>) grid(1)
    with(waves = {waves}) {{
  %a = load(%A[{span(shape)}])
  %b = load(%B[{span(turned)}])
  store(transpose<{list(perm)}>(%a) + %b, %B[{span(turned)}])
}}
"""
    rng = np.random.default_rng(2)
    arrays = {"A": integers(rng, shape, np.int8), "B": integers(rng, turned, np.int8)}
    agree(text, CHIPS[waves // 4], arrays, "B")


@pytest.mark.parametrize("chip", CHIPS)
def test_sums_of_narrow_floats_are_rounded_once(chip: str) -> None:
    """256 + 4 parts of 0.75 in bf16 (steps of 2 at 256): rounding every part leaves 256 or 258, one rounding gives 260."""
    text = """tileir 1
kernel @k(%A: global<bf16[1024]>, %B: global<bf16[1]>) grid(1) with(waves = 4) {
  store(reduce_add(load(%A[0 +: 1024]), axis = 0), %B[0 +: 1])
}
"""
    a = np.zeros(1024, ml_dtypes.bfloat16)
    a[::256] = [256, 0.75, 0.75, 0.75]
    a[1::256] = [0.75, 0, 0.125, 0.125]
    agree(text, chip, {"A": a, "B": np.zeros(1, ml_dtypes.bfloat16)}, "B")


@pytest.mark.parametrize("chip", CHIPS)
def test_conversion_of_wide_integers_is_rounded_once(chip: str) -> None:
    """Just above and below ties of bf16, where f64 no longer sees the difference."""
    text = """tileir 1
kernel @k(%A: global<i64[64]>, %B: global<bf16[64]>) grid(1) {
  store(convert<bf16>(load(%A[0 +: 64])), %B[0 +: 64])
}
"""
    near = np.concatenate([tie + np.arange(-8, 8) for tie in (2**62 + 2**54, -(2**62) - 2**54, 2**53, -(2**53))])
    agree(text, chip, {"A": near.astype(np.int64), "B": np.zeros(64, ml_dtypes.bfloat16)}, "B")


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("elem", ["bf16", "f16"])
def test_fma_of_narrow_floats_is_rounded_once(elem: str, chip: str) -> None:
    """a·b lies between two values, c moves it off the tie by less than f32 can tell."""
    text = f"""tileir 1
kernel @k(%A: global<{elem}[3, 512]>, %B: global<{elem}[512]>) grid(1) {{
  store(fma(load(%A[0, 0 +: 512]), load(%A[1, 0 +: 512]), load(%A[2, 0 +: 512])), %B[0 +: 512])
}}
"""
    bits = 8 if elem == "bf16" else 11
    factors = np.arange(
        2**bits // 3 + 1, 2 ** (bits + 1) // 3
    )  # three times these has bits + 1 bits: odd ones are ties
    a = np.zeros((3, 512))
    a[0] = np.resize(factors[factors % 2 == 1], 512) * np.repeat([1, -1], 256)
    a[1] = 3
    a[2] = np.resize([2.0**-20, -(2.0**-20)], 512)
    t = TYPES[elem]
    agree(text, chip, {"A": a.astype(t), "B": np.zeros(512, t)}, "B")


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("m", "n", "k", "waves"), [(1, 1, 1, 1), (48, 80, 33, 1), (96, 160, 40, 4), (17, 31, 100, 2)])
def test_products_outside_loops(m: int, n: int, k: int, waves: int, chip: str) -> None:
    """Operands whose LDS buffers share bytes, of one wave too; rows that are not multiples of 16 bytes."""
    text = f"""tileir 1
kernel @k(%A: global<f32[{m}, {k}]>, %B: global<f32[{k}, {n}]>, %C: global<f32[{m}, {n}]>) grid(1) with(waves = {waves}) {{
  store(mma(load(%A[{span((m, k))}]), load(%B[{span((k, n))}])), %C[{span((m, n))}])
}}
"""
    rng = np.random.default_rng(4)
    arrays = {"A": integers(rng, (m, k), np.float32), "B": integers(rng, (k, n), np.float32)}
    agree(text, chip, {**arrays, "C": np.zeros((m, n), np.float32)}, "C")
