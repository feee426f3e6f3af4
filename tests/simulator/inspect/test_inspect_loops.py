"""Loops of control-flow graphs: hand-made graphs, and random ones against a direct computation of dominators."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tileir.simulator.inspect.loops import Region, find_loops, reachable

Graph = tuple[tuple[int, ...], ...]


def shapes(loops: list[Region]) -> list[tuple[tuple[int, ...], tuple[int, ...], int | None]]:
    return [(r.headers, r.nodes, r.parent) for r in loops]


def test_straight_line_has_no_loop() -> None:
    assert find_loops(((1,), (2,), ()), {0}) == []


def test_single_block_loop() -> None:
    assert shapes(find_loops(((1,), (1, 2), ()), {0})) == [((1,), (1,), None)]


def test_nested_loops() -> None:
    # 1 is the outer header, 2-3 the inner loop, 4 the outer latch
    graph = ((1,), (2,), (3,), (2, 4), (1, 5), ())
    assert shapes(find_loops(graph, {0})) == [((1,), (1, 2, 3, 4), None), ((2,), (2, 3), 0)]


def test_two_back_edges_to_one_header_are_one_loop() -> None:
    graph = ((1,), (2, 3), (1,), (1, 4), ())
    assert shapes(find_loops(graph, {0})) == [((1,), (1, 2, 3), None)]


def test_two_loops_in_a_row() -> None:
    graph = ((0, 1), (1, 2), ())
    assert shapes(find_loops(graph, {0})) == [((0,), (0,), None), ((1,), (1,), None)]


def test_irreducible_region_has_two_headers() -> None:
    graph = ((1, 2), (2,), (1, 3), ())
    assert shapes(find_loops(graph, {0})) == [((1, 2), (1, 2), None)]


def test_second_entry_makes_a_loop_irreducible() -> None:
    graph = ((1,), (2,), (1, 3), ())
    assert shapes(find_loops(graph, {0, 2})) == [((1, 2), (1, 2), None)]


def test_unreachable_cycle_is_no_loop() -> None:
    assert find_loops(((), (2,), (1,)), {0}) == []


def test_loop_inside_an_irreducible_region() -> None:
    graph = ((1, 2), (2,), (3,), (3, 1, 4), ())
    assert shapes(find_loops(graph, {0})) == [((1, 2), (1, 2, 3), None), ((3,), (3,), 0)]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    size = draw(st.integers(1, 9))
    node = st.integers(0, size - 1)
    return tuple(tuple(sorted(draw(st.sets(node, max_size=2)))) for _ in range(size))


def dominators(graph: Graph, root: int) -> dict[int, set[int]]:
    """Node to its dominators, by the definition: d dominates n if n cannot be reached without d."""
    alive = reachable(graph, {root})
    result: dict[int, set[int]] = {}
    for n in alive:
        result[n] = {n}
        for d in alive - {n}:
            without = tuple(tuple(s for s in succ if s != d) if i != d else () for i, succ in enumerate(graph))
            if d == root or n not in reachable(without, {root}):
                result[n].add(d)
    return result


def natural_loops(graph: Graph, root: int) -> dict[int, set[int]]:
    """Header to the nodes of its natural loop, by the textbook: all that reach a back edge without passing the header."""
    dominate = dominators(graph, root)
    loops: dict[int, set[int]] = {}
    for tail in dominate:
        for head in graph[tail]:
            if head not in dominate[tail]:
                continue
            body = {head, tail}
            stack = [tail]
            while stack:
                node = stack.pop()
                if node == head:
                    continue
                for p in dominate:
                    if node in graph[p] and p not in body:
                        body.add(p)
                        stack.append(p)
            loops.setdefault(head, set()).update(body)
    return loops


def is_reducible(graph: Graph, root: int) -> bool:
    """Whether no cycle remains once all edges to dominators are taken away."""
    dominate = dominators(graph, root)
    rest = {n: {s for s in graph[n] if s not in dominate[n]} for n in dominate}
    while rest:
        free = [n for n, succ in rest.items() if not succ & set(rest)]
        if not free:
            return False
        for n in free:
            del rest[n]
    return True


@given(graphs())
def test_loops_are_the_natural_loops_of_dominance(graph: Graph) -> None:
    found = find_loops(graph, {0})
    if is_reducible(graph, 0):
        assert all(len(r.headers) == 1 for r in found)
        assert {r.headers[0]: set(r.nodes) for r in found} == natural_loops(graph, 0)
    else:
        assert any(len(r.headers) > 1 for r in found)


@given(graphs())
def test_loops_nest(graph: Graph) -> None:
    found = find_loops(graph, {0})
    for number, region in enumerate(found):
        assert set(region.headers) <= set(region.nodes)
        smallest = [
            i
            for i, other in enumerate(found)
            if i != number and set(region.nodes) <= set(other.nodes) and not set(region.nodes) & set(other.headers)
        ]
        if region.parent is None:
            assert smallest == []
        else:
            assert region.parent == min(smallest, key=lambda i: len(found[i].nodes))
            assert region.parent < number


@given(graphs())
def test_cutting_all_headers_leaves_no_cycle(graph: Graph) -> None:
    alive = reachable(graph, {0})
    cut = {h for r in find_loops(graph, {0}) for h in r.headers}
    rest = {n: {s for s in graph[n] if s in alive and s not in cut} for n in alive}
    while rest:
        free = [n for n, succ in rest.items() if not succ & set(rest)]
        assert free
        for n in free:
            del rest[n]
