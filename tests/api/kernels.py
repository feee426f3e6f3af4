"""Kernels built in Python that the tests of this folder share."""

from __future__ import annotations

import tileir
from tileir import KernelBuilder, bf16, cdiv, f32, i32, span, symbol


def axpy(block: int = 256) -> KernelBuilder:
    k = KernelBuilder("axpy", params={"B": block})
    X, Y = k.view("X", f32, ["N"]), k.view("Y", f32, ["N"])
    a = k.scalar("a", f32)
    k.grid(cdiv(symbol("N"), block))
    (i,) = k.program_id()
    here = span(i * block, block)
    y = a * k.load(X[here]) + k.load(Y[here])
    k.store(y, Y[here])
    return k


def gemm(tile: int = 64) -> KernelBuilder:
    k = KernelBuilder("gemm")
    A, B = k.view("A", bf16, ["M", "K"], strides=["LDA", 1]), k.view("B", bf16, ["N", "K"])
    C = k.view("C", f32, ["M", "N"])
    k.grid(cdiv(symbol("M"), tile), cdiv(symbol("N"), tile))
    i, j = k.program_id()
    zero = k.fill(0.0, f32, [tile, tile])
    with k.for_(0, k.dim("K"), 32, acc=zero) as loop:
        a = k.load(A[span(i * tile, tile), span(loop.index, 32)])
        b = k.load(B[span(j * tile, tile), span(loop.index, 32)])
        d = k.mma(a, b.T, loop.acc)
        loop.yield_(acc=d)
    c = loop.result
    k.store(c, C[span(i * tile, tile), span(j * tile, tile)])
    k.schedule("gfx950").waves(c, 2, 2).mma(d, 16, 16, 32).stage(a, b, path="direct").loop(loop.index, pattern="plain")
    return k


def collatz() -> KernelBuilder:
    """Steps of the Collatz sequence of each scalar start, and a choice by `if`: control flow of every kind."""
    k = KernelBuilder("collatz")
    S, R = k.view("S", i32, ["N"]), k.view("R", i32, ["N"])
    k.grid(symbol("N"))
    (i,) = k.program_id()
    start = k.load(S[i])
    with k.while_(x=start, steps=0) as loop:
        with loop.condition():
            loop.check(loop.x != 1)
        with loop.body():
            with k.if_(loop.x % 2 == 0, y=loop.x) as parity:
                with parity.then():
                    parity.yield_(parity.y / 2)
                with parity.otherwise():
                    parity.yield_(y=3 * parity.y + 1)
            loop.yield_(parity.result, loop.steps + 1)
    k.store(loop.results["steps"], R[i])
    return k


def error_of(make: object) -> tileir.CompileError:
    """The CompileError that a call raises."""
    try:
        make()  # type: ignore[operator]
    except tileir.CompileError as e:
        return e
    raise AssertionError("no CompileError")
