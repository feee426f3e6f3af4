"""Shrinks a failing kernel: takes away ops as long as it keeps failing in the same way."""

from __future__ import annotations

from collections.abc import Callable

from tileir.fuzz.replace import unroll, without_op
from tileir.ir.core import Kernel
from tileir.ir.diagnostics import CompileError
from tileir.ir.verifier import verify

MOST_TRIES = 400


def reduce_kernel(kernel: Kernel, fails: Callable[[Kernel], bool], most: int = MOST_TRIES) -> Kernel:
    """The smallest kernel found for which `fails` still holds. Each step removes one op – its results become a zero, or an
    operand of the same type – or replaces a loop or branch by its body; the last ops are tried first."""
    tries = 0
    progress = True
    while progress and tries < most:
        progress = False
        for index in reversed(range(sum(1 for _ in kernel.walk()))):
            for step in (without_op, unroll):
                if tries >= most:
                    return kernel
                smaller = _valid(step(kernel, index))
                if smaller is None:
                    continue
                tries += 1
                if fails(smaller):
                    kernel, progress = smaller, True
                    break
            if index >= sum(1 for _ in kernel.walk()):
                continue
    return kernel


def _valid(kernel: Kernel | None) -> Kernel | None:
    if kernel is None:
        return None
    try:
        verify(kernel)
    except CompileError:
        return None
    return kernel
