"""Loops of a control-flow graph and how they nest.

A loop is a strongly connected region; its header is where it is entered from outside, and what remains connected
without the header are the loops inside (Steensgaard's loop nesting forest, 1993). A region with one header is exactly
the natural loop of that header by dominance: the header dominates the region, as every way in leads through it, and
every node of it reaches an edge back to the header. Loops with the same header are one. A region with several entries
is irreducible: no node of it dominates the others; it counts as one loop with several headers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tileir.records import dataclass

Successors = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Region:
    """A loop: its entry nodes (one, unless irreducible), all its nodes in ascending order, and the number of the
    innermost loop around it."""

    headers: tuple[int, ...]
    nodes: tuple[int, ...]
    parent: int | None


def reachable(successors: Successors, entries: Collection[int]) -> set[int]:
    """Nodes that can be reached from the entries, these included."""
    found = set(entries)
    stack = list(entries)
    while stack:
        for node in successors[stack.pop()]:
            if node not in found:
                found.add(node)
                stack.append(node)
    return found


def find_loops(successors: Successors, entries: Collection[int]) -> list[Region]:
    """All loops that can be reached from the entries: outer before inner, else by their lowest node."""
    alive = reachable(successors, entries)
    predecessors: dict[int, list[int]] = {node: [] for node in alive}
    for node in sorted(alive):
        for successor in successors[node]:
            predecessors[successor].append(node)
    found: list[Region] = []
    pending: list[tuple[set[int], int | None]] = [(alive, None)]
    while pending:
        nodes, parent = pending.pop()
        inner: list[tuple[set[int], int | None]] = []
        for component in _components(successors, nodes):
            first = next(iter(component))
            if len(component) == 1 and first not in successors[first]:
                continue
            headers = {n for n in component if n in entries or any(p not in component for p in predecessors[n])}
            found.append(Region(tuple(sorted(headers)), tuple(sorted(component)), parent))
            inner.append((component - headers, len(found) - 1))
        pending += reversed(inner)
    return _ordered(found)


def _ordered(found: list[Region]) -> list[Region]:
    order = sorted(range(len(found)), key=lambda i: (found[i].nodes[0], -len(found[i].nodes), found[i].headers))
    number = {old: new for new, old in enumerate(order)}
    return [
        Region(r.headers, r.nodes, None if r.parent is None else number[r.parent]) for r in (found[i] for i in order)
    ]


def _components(successors: Successors, nodes: set[int]) -> list[set[int]]:
    """Strongly connected components of the graph restricted to `nodes` (Tarjan, without recursion), by lowest node."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    components: list[set[int]] = []
    for root in sorted(nodes):
        if root in index:
            continue
        work: list[tuple[int, int]] = [(root, 0)]
        while work:
            node, position = work.pop()
            if position == 0:
                index[node] = low[node] = len(index)
                stack.append(node)
                on_stack.add(node)
            followers = successors[node]
            while position < len(followers):
                target = followers[position]
                position += 1
                if target not in nodes:
                    continue
                if target not in index:
                    work.append((node, position))
                    work.append((target, 0))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                if low[node] == index[node]:
                    component: set[int] = set()
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.add(member)
                        if member == node:
                            break
                    components.append(component)
                if work:
                    caller = work[-1][0]
                    low[caller] = min(low[caller], low[node])
    components.sort(key=min)
    return components
