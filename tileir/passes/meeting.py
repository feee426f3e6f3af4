"""Which accesses of views can meet at all, found without comparing every pair.

Accesses whose spans are in one dimension a constant apart, whatever the control flow between them, share no element. Those of a view
are sorted by where they start, dimension by dimension, and fall into groups: accesses of different groups never meet, those of
one group may. A kernel that stores to a thousand places one after the other has a thousand groups of one access.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

A = TypeVar("A")
Span = tuple[object, int, int]
"""What the start of an access is the sum of, besides a constant; and the constants from which on and before which its elements
lie. Spans of equal first parts can be compared."""


def groups(accesses: Sequence[A], rank: int, span: Callable[[A, int], Span | None], most: int) -> list[list[A]]:
    """The accesses of one view with `rank` dimensions in groups that share no element, those of a group in the order given.
    `span` is where an access lies in a dimension, None where that is not known; differences of `most` and more may wrap."""
    found = [list(accesses)]
    for d in range(rank):
        found = [part for group in found for part in _apart(group, [span(a, d) for a in group], most)]
    return found


def _apart(group: list[A], spans: list[Span | None], most: int) -> list[list[A]]:
    """A group taken apart where no span of one dimension reaches across; whole if not all spans can be compared."""
    known = [s for s in spans if s is not None]
    if len(group) < 2 or len(known) < len(spans) or any(s[0] != known[0][0] for s in known):
        return [group]
    if max(s[2] for s in known) - min(s[1] for s in known) >= most:
        return [group]
    parts: list[list[int]] = []
    end = 0
    for i in sorted(range(len(group)), key=lambda i: known[i][1:]):
        _, low, high = known[i]
        if not parts or low >= end:
            parts.append([])
            end = high
        parts[-1].append(i)
        end = max(end, high)
    return [[group[i] for i in sorted(part)] for part in parts]
