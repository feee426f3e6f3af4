"""`min`, `max` and what is made of them prefer a number to NaN, quiet or signalling, with one instruction each."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.kernels.harness import CHIPS, DTYPES, device
from tileir.frontend import parse
from tileir.lowering.amdgpu.compile import Options, compile_kernel
from tileir.runtime import launch

TEXT = """tileir 1
kernel @k<T: type = f32>(%A: global<T[64, 64]>, %B: global<T[64, 64]>, %P: global<T[64, 64]>, %Q: global<T[64, 64]>,
    %R: global<T[64, 1]>, %S: global<T[1, 64]>) grid(1) {
  %a = load(%A[0 +: 64, 0 +: 64])
  %b = load(%B[0 +: 64, 0 +: 64])
  store(max(%a, %b), %P[0 +: 64, 0 +: 64])
  store(min(%a, %b), %Q[0 +: 64, 0 +: 64])
  store(reduce_max(%a, axis = 1), %R[0 +: 64, 0 +: 1])
  store(reduce_min(%a, axis = 0), %S[0 +: 1, 0 +: 64])
}
"""
# Bits of a quiet and a signalling NaN, the latter with the lowest bit of the fraction.
NANS = {"f32": (0x7FC00000, 0x7F800001), "f16": (0x7E00, 0x7C01), "bf16": (0x7FC0, 0x7F81)}


@pytest.mark.parametrize("name", NANS)
@pytest.mark.parametrize("chip", CHIPS)
def test_numbers_win(chip: str, name: str) -> None:
    kernel = compile_kernel(parse(TEXT, "k.tile", {"T": name}), "k", chip)
    rng = np.random.default_rng(6)
    dtype = np.dtype(DTYPES[name])
    word = np.dtype(f"u{dtype.itemsize}")

    def values() -> np.ndarray:
        x = rng.integers(-9, 10, (64, 64)).astype(dtype)
        for bits in NANS[name]:
            x.view(word)[rng.random(x.shape) < 0.3] = bits
        x.view(word)[:8, :] = rng.choice(np.array(NANS[name], word), (8, 64))  # rows without a number
        return x

    a, b = values(), values()
    out = {n: np.zeros(shape, dtype) for n, shape in (("P", (64, 64)), ("Q", (64, 64)), ("R", (64, 1)), ("S", (1, 64)))}
    launch(kernel, {"A": a, "B": b, **out}, device(f"simulator:{chip}"))
    with np.errstate(invalid="ignore"):
        x, y = (np.where(np.isnan(v), np.nan, v.astype(np.float64)) for v in (a, b))  # all quiet
        want = {
            "P": np.fmax(x, y),
            "Q": np.fmin(x, y),
            "R": np.fmax.reduce(x, axis=1, keepdims=True),
            "S": np.fmin.reduce(x, axis=0, keepdims=True),
        }
    for n, value in want.items():
        assert np.array_equal(out[n].astype(np.float64), value, equal_nan=True), n


@pytest.mark.parametrize("chip", CHIPS)
def test_one_instruction(chip: str) -> None:
    """None that only quiets: a maximum of a register with itself."""
    text = compile_kernel(parse(TEXT, "k.tile"), "k", chip, Options(emit=("asm",))).texts["asm"]
    assert re.search(r"v_max_f32", text)
    assert not re.search(r"v_m(?:ax|in)_f32_e(?:32|64) (v\d+), (v\d+), \2\b", text)
