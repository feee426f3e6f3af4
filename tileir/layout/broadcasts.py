"""Which registers of a tile hold what a broadcast of it needs."""

from __future__ import annotations

from functools import lru_cache

from tileir.layout.linear import Layout


@lru_cache(maxsize=512)
def broadcast_registers(layout: Layout, shape: tuple[int, ...]) -> tuple[int, ...]:
    """For each register of `layout` the register of a broadcast operand of `shape` that holds its value."""
    current = layout
    total = list(range(layout.num_registers))
    for d, (n, full) in enumerate(zip(shape, layout.shape, strict=True)):
        if n != full:
            target = {}
            for new, group in enumerate(current.reduce_sources(d)):
                target.update(dict.fromkeys(group, new))
            total = [target[r] for r in total]
            current = current.reduce(d)
    return tuple(total)
