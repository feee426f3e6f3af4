"""Layouts of tiles whose elements are taken together or apart along the last dimension."""

from __future__ import annotations

from .linear import Layout, LayoutError, Vector


def apart(layout: Layout, n: int) -> Layout:
    """Every element becomes `n` (a power of two) side by side, in registers side by side."""
    rank = layout.rank
    shape = (*layout.shape[:-1], layout.shape[-1] * n)
    inner = [tuple(1 << i if d == rank - 1 else 0 for d in range(rank)) for i in range(n.bit_length() - 1)]

    def wider(vectors: tuple[Vector, ...]) -> list[Vector]:
        return [(*v[:-1], v[-1] * n) for v in vectors]

    return Layout.from_bases(shape, [*inner, *wider(layout.reg)], wider(layout.lane), wider(layout.wave), layout.reps)


def together(layout: Layout, n: int) -> Layout:
    """The inverse of `apart`.

    Raises:
        LayoutError: the elements that become one do not lie in registers side by side, whole groups of them.
    """
    count = n.bit_length() - 1
    shape = (*layout.shape[:-1], layout.shape[-1] // n)

    def narrower(vectors: tuple[Vector, ...]) -> list[Vector]:
        return [(*v[:-1], v[-1] // n) for v in vectors]

    if layout.shape[-1] % n == 0 and len(layout.reg) >= count:
        found = Layout.from_bases(
            shape, narrower(layout.reg[count:]), narrower(layout.lane), narrower(layout.wave), layout.reps
        )
        if apart(found, n) == layout:
            return found
    raise LayoutError(f"{layout} does not hold {n} elements of a row side by side in the lowest registers")
