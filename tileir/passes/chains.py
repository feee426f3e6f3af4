"""Values that are one thing at different times: an accumulator and what carries it through control flow."""

from __future__ import annotations

from collections.abc import Iterable

from tileir.ir.core import Kernel, Op, Value
from tileir.passes.layout_classes import carried

Links = dict[Value, list[Value]]


def carried_links(kernel: Kernel) -> Links:
    """Which values become which others by being carried: initial values, block arguments, yielded values, results."""
    links: Links = {}

    def link(a: Value, b: Value) -> None:
        links.setdefault(a, []).append(b)
        links.setdefault(b, []).append(a)

    for op in kernel.walk():
        for init, arg, out in carried(op):
            link(init, arg)
            link(arg, out)
        for i, region in enumerate(op.regions):
            if not (op.name == "while" and i == 0):
                for v, r in zip(region.terminator.operands, op.results, strict=True):
                    link(v, r)
    return links


def reached(links: Links, start: Iterable[Value]) -> list[Value]:
    """The values and everything they are connected with, nearest first."""
    found = list(dict.fromkeys(start))
    known = set(found)
    for v in found:  # grows while it is read
        for other in links.get(v, []):
            if other not in known:
                known.add(other)
                found.append(other)
    return found


def accumulators(op: Op) -> list[Value]:
    """The result of an `mma` and the value that it adds to."""
    return [op.result, *op.operands[2:3]]
