"""Kernels as functions: what is given, changed and returned."""

from __future__ import annotations

import pytest

import tileir
from tileir import kernels
from tileir.api.functional import Function, function_of, read_views, result_shapes
from tileir.ir.core import Kernel

COPY = "tileir 1\nkernel @k(%X: global<f32[N, 8]>, %a: f32, %Y: global<bf16[N, L], strides = [LD, 1]>, %n: i32) grid(N) {\n"
CASES = {
    "result": (
        COPY + "  store(convert<bf16>(load(%X[0, 0])), %Y[0, 0])\n}\n",
        Function(("X", "a", "n"), (), ("Y",), ("L",)),
    ),
    "changed": (
        COPY + "  store(load(%Y[0, 0]), %Y[0, 0])\n}\n",
        Function(("X", "a", "Y", "n"), ("Y",), (), ()),
    ),
    "read only": (COPY + "  %x = load(%X[0, 0])\n}\n", Function(("X", "a", "Y", "n"), (), (), ())),
    "read in one branch": (
        COPY + "  if %n > 0 {\n    store(load(%Y[0, 0]), %Y[0, 1])\n  }\n}\n",
        Function(("X", "a", "Y", "n"), ("Y",), (), ()),
    ),
    "stride of another": (
        "tileir 1\nkernel @k(%Y: global<f32[M], strides = [LD]>) grid(LD) {\n  store(1.0, %Y[0])\n}\n",
        Function((), (), ("Y",), ("M",)),
    ),
}


def kernel(text: str, name: str | None = None) -> Kernel:
    return tileir.parse(text, kernel=name).kernels[0]


@pytest.mark.parametrize("name", CASES)
def test_roles(name: str) -> None:
    text, want = CASES[name]
    assert function_of(kernel(text)) == want


def test_the_library() -> None:
    found = {
        n: function_of(kernel(kernels.source(n), k))
        for n, k in (("gemm", None), ("softmax", None), ("attention_lazy", None))
    }
    assert found["gemm"] == Function(("A", "B"), (), ("C",), ())
    assert found["softmax"] == Function(("X",), (), ("Y",), ())
    assert found["attention_lazy"] == Function(("Q", "K", "V", "scale"), (), ("O", "LSE"), ())
    assert read_views(kernel(kernels.source("gemm"))) == {"A", "B"}


def test_shapes_of_results() -> None:
    k = kernel(kernels.source("attention_lazy"))
    shapes = {"Q": (2, 100, 8, 128), "K": (2, 50, 4, 128), "V": (2, 50, 4, 128)}
    found = result_shapes(k, function_of(k), shapes, {})
    assert found == {"O": ([2, 100, 8, 128], tileir.bf16), "LSE": ([2, 8, 100], tileir.f32)}
    k = kernel(CASES["result"][0])
    assert result_shapes(k, function_of(k), {"X": ("s0", 8)}, {"L": 3}) == {"Y": (["s0", 3], tileir.bf16)}
