"""The search for orders: the bound holds, what it calls optimal is, and budgets are kept."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.harness import CHIPS
from tileir.passes.issue_model import (
    COPY,
    MATRIX,
    MEETING,
    OTHER,
    READ,
    VECTOR,
    Held,
    Machine,
    Need,
    Problem,
    Unit,
    issue_clocks,
    least,
)
from tileir.passes.order_search import BOUND, EXACT, NODES, SEARCH, solve
from tileir.target import get

ALL = 1 << 30  # nodes that no small problem uses up


@st.composite
def units(draw: st.DrawFn) -> Unit:
    kind = draw(st.sampled_from((MATRIX, MATRIX, VECTOR, VECTOR, READ, COPY, OTHER)))
    if kind == READ:
        bank = draw(st.sampled_from((2, 4, 8)))
        return Unit(READ, 4, bank=bank, path=draw(st.sampled_from((8, 16))))
    busy = {MATRIX: (16, 32, 64), VECTOR: (4, 4, 16), COPY: (16, 64), OTHER: (4,)}[kind]
    count = draw(st.sampled_from((1, 1, 2, 3))) if kind == VECTOR else 1
    return Unit(kind, draw(st.sampled_from(busy)), count)


@st.composite
def problems(draw: st.DrawFn, most: int = 5) -> Problem:
    made = draw(st.lists(units(), min_size=1, max_size=most))
    loop, waves = draw(st.booleans()), draw(st.integers(1, 2))
    if loop and waves > 1:
        made.insert(draw(st.integers(0, len(made))), Unit(MEETING, 4))
    n = len(made)
    needs: list[tuple[Need, ...]] = []
    held: list[Held] = []
    for i in range(n):
        sources = draw(st.lists(st.integers(0, i - 1), max_size=2, unique=True)) if i else []
        found = [Need(j, draw(st.sampled_from((0, 4, 16, 52)))) for j in sources]
        if loop and draw(st.booleans()):
            found.append(Need(draw(st.integers(i, n - 1)), draw(st.sampled_from((4, 64))), draw(st.integers(1, 2))))
        needs.append(tuple(found))
    for i in range(n):
        users = tuple(x for x in range(n) if any(d.source == i and not d.distance for d in needs[x]))
        held.append(Held(draw(st.integers(0, 4)), i, users, draw(st.booleans())))
    if draw(st.booleans()):
        held.append(Held(draw(st.integers(1, 4)), -1, (draw(st.integers(0, n - 1)),)))
    machine = Machine.of(get(draw(st.sampled_from(CHIPS))))
    return Problem(tuple(made), tuple(needs), waves, machine, tuple(held), loop)


def orders(problem: Problem, prefix: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """All orders that the needs allow."""
    n = len(problem.units)
    if len(prefix) == n:
        yield prefix
    for i in range(n):
        if i not in prefix and all(d.distance or d.source in prefix for d in problem.needs[i]):
            yield from orders(problem, (*prefix, i))


@settings(max_examples=80, deadline=None)
@given(problems())
def test_against_all_orders(problem: Problem) -> None:
    """With nodes enough the order is the best of all, and no order goes below the bound."""
    clocks = {order: issue_clocks(problem, order) for order in orders(problem)}
    best = min(clocks.values())
    found = solve(problem, limit=1 << 20, nodes=ALL)
    assert found.proof in (BOUND, SEARCH)
    assert found.clocks == clocks[found.order] == best >= found.bound
    assert least(problem).clocks == found.bound


@settings(max_examples=60, deadline=None)
@given(problems(), st.integers(1, 8))
def test_registers_are_kept(problem: Problem, limit: int) -> None:
    """The order is the best of those that hold no more registers than the limit, or than the list order that holds least."""
    found = solve(problem, limit=limit, nodes=ALL)
    least_held = min(problem.registers(order) for order in orders(problem))
    allowed = [o for o in orders(problem) if problem.registers(o) <= max(limit, found.registers, least_held)]
    assert found.registers <= max(limit, problem.registers(solve(problem, limit=1, nodes=0, moves=0, rules=()).order))
    assert found.clocks >= min(issue_clocks(problem, o) for o in allowed)
    if found.registers <= limit:
        within = [issue_clocks(problem, o) for o in orders(problem) if problem.registers(o) <= limit]
        assert found.clocks <= min(within)


@settings(max_examples=25, deadline=None)
@given(problems(most=24))
def test_budget_is_kept_and_orders_repeat(problem: Problem) -> None:
    """Whatever the budget finds respects the needs, is not below the bound, and is the same the next time."""
    found = solve(problem, nodes=60, moves=10)
    at = {i: k for k, i in enumerate(found.order)}
    assert sorted(at) == list(range(len(problem.units)))
    assert all(d.distance or at[d.source] < at[i] for i, needs in enumerate(problem.needs) for d in needs)
    assert found.clocks == issue_clocks(problem, found.order) >= found.bound
    assert found == solve(problem, nodes=60, moves=10)


@pytest.mark.parametrize("chip", CHIPS)
def test_matrix_instructions_hide_the_rest(chip: str) -> None:
    """A body of `EXACT` units whose vector work, reads and copies fit under its matrix instructions takes no longer than these."""
    machine = Machine.of(get(chip))
    made: list[Unit] = []
    needs: list[tuple[Need, ...]] = []
    for i in range(EXACT // 4):
        made += [Unit(READ, 4, bank=4, path=16), Unit(VECTOR, 4), Unit(VECTOR, 16), Unit(MATRIX, 32)]
        needs += [(), (), (Need(4 * i + 1, 4),), (Need(4 * i, 0), Need(4 * i + 2, 16))]
    for waves in (1, 2):
        found = solve(Problem(tuple(made), tuple(needs), waves, machine))
        matrix = waves * 32 * (EXACT // 4)
        assert found.proof and found.clocks <= matrix + 64


def test_meetings_hold_all_waves() -> None:
    """What stands behind a meeting starts when the last wave has come."""
    machine = Machine.of(get("gfx950"))
    problem = Problem(
        (Unit(MATRIX, 64), Unit(MEETING, 4), Unit(VECTOR, 4)), ((), (Need(0, 4),), (Need(1, 4),)), 2, machine
    )
    clocks = issue_clocks(problem, (0, 1, 2))
    # The second wave multiplies when the first has; both meet, and one after the other computes.
    assert clocks == 64 + 4 + 4 + machine.meeting + 4 + 4
    assert issue_clocks(problem, (0, 1, 2), 1) < clocks


def test_search_beats_lists() -> None:
    """Bodies of up to `EXACT` units are searched to the end in the budget, or the bound is met, where they are as loops are: rows of units
    that are alike."""
    machine = Machine.of(get("gfx950"))
    solved = 0
    for kinds in range(1, 6):
        made: list[Unit] = []
        needs: list[tuple[Need, ...]] = []
        for j in range(EXACT // kinds):
            for k in range(kinds):
                made.append(
                    (
                        Unit(READ, 4, bank=4, path=16),
                        Unit(MATRIX, 32),
                        Unit(VECTOR, 16),
                        Unit(VECTOR, 4),
                        Unit(MATRIX, 16),
                    )[k]
                )
                needs.append((Need(kinds * j + k - 1, 0 if k == 1 else 52 if k == 2 else 16),) if k else ())
        found = solve(Problem(tuple(made), tuple(needs), 1, machine), nodes=NODES)
        solved += bool(found.proof)
    assert solved >= 3


def test_waves_that_are_apart() -> None:
    """Of two waves one is a meeting behind the other: it issues while the other computes. Together they share the matrix pipe."""
    machine = Machine.of(get("gfx950"))
    body = (Unit(MATRIX, 16, 4), Unit(MEETING, 4), Unit(OTHER, 4, 16), Unit(MEETING, 4))
    needs = ((), (Need(0, 0),), (Need(1, 0),), (Need(2, 0),))
    order = range(len(body))
    together, apart = (issue_clocks(Problem(body, needs, 2, machine, (), True, 4, late), order) for late in (0, 1))
    phase = 16 * 4 + 4 + machine.meeting  # the longer part, a meeting, and what that costs
    assert apart == 2 * phase and together > apart + 32
    for late, loop in ((2, True), (1, False)):
        with pytest.raises(ValueError, match="late"):
            Problem(body, needs, 2, machine, (), loop, 4, late)
