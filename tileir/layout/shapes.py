"""Shapes of tiles."""

from __future__ import annotations


def reshape_groups(old: tuple[int, ...], new: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Smallest groups of consecutive dimensions with equal products; a size-1 dimension joins the group behind it."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        a: list[int] = []
        b: list[int] = []
        size_a = size_b = 1
        while True:
            if size_a <= size_b and i < len(old) and (size_a < size_b or size_a == 1 or j >= len(new)):
                size_a *= old[i]
                a.append(i)
                i += 1
            elif j < len(new) and (size_b < size_a or size_b == 1):
                size_b *= new[j]
                b.append(j)
                j += 1
            else:
                break
            if size_a == size_b and size_a > 1:
                break
        if not a and not b:  # only size-1 dimensions are left
            a, b = list(range(i, len(old))), list(range(j, len(new)))
            i, j = len(old), len(new)
        groups.append((a, b))
    return groups
