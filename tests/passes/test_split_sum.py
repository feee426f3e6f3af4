"""Splitting a sum gives two kernels that compute what the whole one does, whatever the sizes and the number of parts."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tileir
from tileir import kernels
from tileir.frontend import parse
from tileir.ir.core import Kernel, Module
from tileir.ir.printer import print_module
from tileir.ir.types import GlobalType
from tileir.ir.verifier import verify
from tileir.passes.split_sum import SplitSum, split_sum
from tileir.runtime import launch
from tileir.runtime.interface import signature

TILES = {"BM": 16, "BN": 32, "BK": 32}


class Interpreted:
    """A kernel for the interpreter."""

    hsaco = b""
    target = ""
    block = (1, 1, 1)

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.interface: dict[str, object] = {}


def made_of(text: str, **params: Any) -> tuple[Kernel, SplitSum | None]:
    kernel = parse(text, "k.tile", params).kernels[0]
    return kernel, split_sum(kernel)


def run(kernel: Kernel, split: SplitSum, arrays: dict[str, Any], parts: int) -> None:
    """Both kernels, one after the other."""
    device = tileir.get_device("interpreter")
    views = {a.name: a.type for a in kernel.args if isinstance(a.type, GlobalType)}
    sizes = {str(d): n for name, v in views.items() for d, n in zip(v.dims, arrays[name].shape, strict=True)}
    grid = tuple(e.evaluate(sizes) for e in kernel.grid)
    for i, (name, elem, _) in enumerate(split.workspaces):
        arrays[name] = np.full(split.shape(i, parts, grid), np.nan if not elem.is_int else -1, elem.np)
    for half in (split.parts, split.sum):
        launch(Interpreted(half), arrays, device)


@pytest.mark.parametrize("parts", [1, 2, 3, 8, 40])
@pytest.mark.parametrize("k", [0, 1, 32, 33, 200])
def test_parts_add_up_to_the_whole(k: int, parts: int) -> None:
    """Ragged sizes, no steps at all, more parts than steps: part sums without steps are zeros."""
    kernel, split = made_of(kernels.source("gemm"), **TILES)
    assert split is not None
    rng = np.random.default_rng(k)
    a, b = (rng.integers(-3, 4, (n, k)).astype(ml_dtypes.bfloat16) for n in (19, 45))
    c = np.full((19, 45), 7, ml_dtypes.bfloat16)
    run(kernel, split, {"A": a, "B": b, "C": c}, parts)
    want = (a.astype(np.float64) @ b.astype(np.float64).T).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(c, want)


def test_both_kernels_are_text() -> None:
    _, split = made_of(kernels.source("gemm"), **TILES)
    assert split is not None and split.workspaces[0][2] == (16, 32)
    for half in (split.parts, split.sum):
        verify(half)
        text = print_module(Module([half]))
        assert print_module(parse(text)) == text
    assert not any(op.name == "atomic_add" for half in (split.parts, split.sum) for op in half.walk())
    assert len(split.parts.grid) == len(split.sum.grid) + 1 == 3
    assert signature(Interpreted(split.parts)).args[-1].name == "W"


EPILOGUE = """tileir 1
kernel @k(%A: global<i8[M, K]>, %B: global<i8[N, K]>, %D: global<i32[M, N]>, %C: global<i32[M, N]>, %a: i32)
    grid(cdiv(M, 16), cdiv(N, 16)) {
  %i, %j = program_id()
  %zero = fill(0) : tile<i32[16, 16]>
  %scale = load(%D[%i * 16 +: 16, %j * 16 +: 16])
  %x, %y = for %k = 0 to K step 32 carry(%c = %zero, %e = %zero) {
    %l = load(%A[%i * 16 +: 16, %k +: 32])
    %r = load(%B[%j * 16 +: 16, %k +: 32])
    %d = mma(%l, transpose(%r), %c)
    %f = mma(%l, transpose(%l), %e)
    yield %d, %f
  }
  store(%x * %scale + %y * %a, %C[%i * 16 +: 16, %j * 16 +: 16])
}
"""


def test_several_sums_and_what_follows_them() -> None:
    kernel, split = made_of(EPILOGUE)
    assert split is not None and [w[0] for w in split.workspaces] == ["W", "W_0"]
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-9, 10, (16, 150)).astype(np.int8) for _ in range(2))
    d, c = rng.integers(-9, 10, (16, 16)).astype(np.int32), np.zeros((16, 16), np.int32)
    device, whole = tileir.get_device("interpreter"), c.copy()
    launch(Interpreted(kernel), {"A": a, "B": b, "D": d, "C": whole, "a": 3}, device)
    arrays: dict[str, Any] = {"A": a, "B": b, "D": d, "C": c}
    for i, (name, elem, _) in enumerate(split.workspaces):
        arrays[name] = np.zeros(split.shape(i, 4, (1, 1)), elem.np)
    for half in (split.parts, split.sum):
        launch(Interpreted(half), {**arrays, "a": 3}, device)
    np.testing.assert_array_equal(c, whole)


REFUSED = {
    "a start that is not zero": ("fill(0)", "fill(1)"),
    "a carried value that is used": ("%f = mma(%l, transpose(%l), %e)", "%f = mma(%l, transpose(%l), %e + %c)"),
    "a store in the loop": ("    yield %d, %f", "    store(%d, %C[%i * 16 +: 16, %j * 16 +: 16])\n    yield %d, %f"),
    "a store before the loop": ("  %x, %y = for", "  store(%scale, %C[%i * 16 +: 16, %j * 16 +: 16])\n  %x, %y = for"),
    "sums that change places": ("yield %d, %f", "yield %f, %d"),
}


@pytest.mark.parametrize("why", sorted(REFUSED))
def test_what_cannot_be_split(why: str) -> None:
    old, new = REFUSED[why]
    assert old in EPILOGUE
    assert made_of(EPILOGUE.replace(old, new))[1] is None


def test_kernels_without_such_a_loop() -> None:
    for name in ("softmax", "gemm_split_k", "attention"):
        module = parse(kernels.source(name), name)
        assert split_sum(module.kernels[0]) is None
