"""Random kernels for property tests: the generator of the fuzzer, with choices that hypothesis makes and can shrink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import strategies as st

from tileir.fuzz.generate import Limits, random_kernel
from tileir.ir.core import Kernel

T = TypeVar("T")


class _Drawn:
    """Choices by hypothesis."""

    def __init__(self, draw: st.DrawFn):
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def boolean(self) -> bool:
        return self._draw(st.booleans())

    def real(self) -> float:
        return self._draw(st.floats(width=32))

    def pick(self, options: Sequence[T]) -> T:
        return self._draw(st.sampled_from(list(options)))


@st.composite
def kernels(draw: st.DrawFn, limits: Limits | None = None) -> Kernel:
    """A random kernel within the limits."""
    return random_kernel(_Drawn(draw), limits)


__all__ = ["Limits", "kernels"]
