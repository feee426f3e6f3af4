"""Stores of single elements (`emit/far_stores.py`) in a loop over registers: every element once, to its place, near and far."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.harness import CHIPS, DTYPES, device, integers
from tileir.frontend import parse
from tileir.lowering.amdgpu.compile import Compiled, Options, compile_kernel
from tileir.runtime import BufferView, launch

ROWS, COLUMNS = 50, 100  # of the view; the tile begins at (-3, 5) and is larger
TEXT = """tileir 1
kernel @k(%A: global<@S[64, 128]>, %C: global<@T[M, N], strides = [@R]>) grid(1) with(waves = 1) {
  store(@V, %C[-3 +: 64, 5 +: 128])
}
"""
TYPES = {**DTYPES, **{name: np.dtype(name.replace("i", "int")) for name in ("i8", "i16", "i32")}}
LOADED = "load(%A[0 +: 64, 0 +: 128])"
VALUES = {
    "f32": ("f32", LOADED),
    "f16": ("f16", LOADED),
    "i8": ("i8", LOADED),
    "bf16": ("f32", f"convert<bf16>({LOADED})"),
    "i16": ("f32", f"convert<i16>(convert<f16>({LOADED}))"),
    "i32": ("i16", f"convert<i32>({LOADED})"),
}


def compiled(chip: str, stored: str, strides: str) -> Compiled:
    source, value = VALUES[stored]
    text = TEXT.replace("@S", source).replace("@T", stored).replace("@V", value).replace("@R", strides)
    return compile_kernel(parse(text, "stores.tile"), "k", chip, Options(emit=("asm",)))


def expected(a: np.ndarray, stored: str) -> np.ndarray:
    """What the view holds at the end: 7 where the tile does not reach."""
    c = np.full((ROWS, COLUMNS), 7, TYPES[stored])
    c[:ROWS, 5:] = a[3 : 3 + ROWS, : COLUMNS - 5].astype(TYPES[stored])
    return c


@pytest.mark.parametrize("stored", VALUES)
@pytest.mark.parametrize("chip", CHIPS)
def test_rows_of_odd_length(chip: str, stored: str) -> None:
    kernel = compiled(chip, stored, "P, 1")
    assert "s_set_gpr_idx_on" in kernel.texts["asm"]
    a = integers(np.random.default_rng(1), (64, 128), TYPES[VALUES[stored][0]])
    size, pitch = np.dtype(TYPES[stored]).itemsize, COLUMNS + 1
    dev = device(f"simulator:{chip}")
    buffer = dev.alloc(ROWS * pitch * size)
    try:
        whole = np.full((ROWS, pitch), 7, TYPES[stored])
        dev.copy_in(buffer, whole.reshape(-1).view(np.uint8))
        elem = kernel.kernel.args[1].type.elem  # type: ignore[union-attr]
        launch(kernel, {"A": a, "C": BufferView(buffer, elem, (ROWS, COLUMNS), (pitch, 1))}, dev)
        out = np.asarray(dev.copy_out(buffer, ROWS * pitch * size), np.uint8)
    finally:
        dev.free(buffer)
    found = out.view(TYPES[stored]).reshape(ROWS, pitch)
    assert np.array_equal(found[:, :COLUMNS], expected(a, stored)) and np.all(found[:, COLUMNS:] == 7)


@pytest.mark.parametrize(("stored", "along"), [("f32", 1), ("bf16", 1), ("bf16", 0), ("i8", 1), ("i8", 0)])
@pytest.mark.parametrize("chip", CHIPS)
def test_rows_or_columns_far_apart(chip: str, stored: str, along: int) -> None:
    """More than 2 GiB from the first to the last element, where each lane has its turn; `along` is the contiguous dimension, in which a
    lane's elements of one register lie, or across which they do."""
    kernel = compiled(chip, stored, "P, 1" if along else "1, P")
    assert "s_set_gpr_idx_on" in kernel.texts["asm"]
    a = integers(np.random.default_rng(2), (64, 128), TYPES[VALUES[stored][0]])
    size = np.dtype(TYPES[stored]).itemsize
    pitch = (48 << 20) // size + 1
    shape, strides = (ROWS, COLUMNS), (pitch, 1) if along else (1, pitch)
    long, short = shape[1 - along], shape[along]
    want = expected(a, stored)
    want = want if along else want.T
    dev = device(f"simulator:{chip}")
    buffer = dev.alloc(long * pitch * size)
    try:
        for i in range(long):
            dev.copy_in(buffer, np.full(short, 7, TYPES[stored]).view(np.uint8), i * pitch * size)
        elem = kernel.kernel.args[1].type.elem  # type: ignore[union-attr]
        launch(kernel, {"A": a, "C": BufferView(buffer, elem, shape, strides)}, dev)
        for i in range(long):
            out = np.asarray(dev.copy_out(buffer, short * size, i * pitch * size), np.uint8)
            assert np.array_equal(out.view(TYPES[stored]), want[i]), i
    finally:
        dev.free(buffer)
