"""Search for the order of a `Problem` that takes the fewest clocks (`issue_model`), and what is known of how good it is.

1. *List orders*: at each step of a single wave, of the units whose needs are issued, one that can start soonest; of several a matrix instruction
   first, and else by one of several rules (`Rule`). None takes a vector instruction that would keep a matrix instruction waiting.
2. Where none of them meets the bound `least`: *local improvement* – units move within what their needs allow, and stay where that is no worse.
3. For up to `EXACT` units: *branch and bound* over all orders. A prefix is dropped if what must still come cannot be issued in fewer clocks than
   the best order takes. Units that are exact copies of each other keep the order of their numbers, and of two prefixes of the same
   units one that is nowhere sooner is dropped (with one wave).

An order is *optimal* if it meets the bound, or if the search came to its end. Budgets count orders and nodes, never time: the same problem gives
the same order everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from tileir.passes.issue_model import COPY, MATRIX, READ, VECTOR, Problem, Simd, issue_clocks, least, least_rest
from tileir.records import dataclass

EXACT = 40  # units of the largest problem that is searched to its end
NODES = 1500  # of that search
MOVES = 60  # of local improvement
ROOM = 4  # registers that an order may hold beyond the thriftiest list order: a read of 16 bytes
_NEVER = 1 << 60
BOUND, SEARCH = "bound", "search"


@dataclass(frozen=True)
class Rule:
    """How a list order chooses: `by_use` prefers what the first matrix instruction is waiting for, else what has the longest way to the end;
    reads come at most `ahead` matrix instructions before their use; with `spread` (percent) vector work is spread evenly under the
    matrix instructions, at most so much of its share, and `margin` of them ahead; with `lean` matrix instructions that go on
    with an accumulator that did not exist before come before those that begin another."""

    by_use: bool
    ahead: int
    spread: int = 0
    margin: int = 0
    lean: bool = False


THRIFTY = Rule(True, 2, lean=True)
RULES = (
    Rule(True, 2, 110, 4, True),
    Rule(True, 2, 100, 3, True),
    THRIFTY,
    Rule(True, 3, 100, 1, True),
    Rule(True, 5, 100, 1, True),
    Rule(False, 2, 100, 3, True),
    Rule(True, 3, 100, 3),
)


@dataclass(frozen=True)
class Solution:
    """An order, its clocks, and the bound with its reason. `proof` is `BOUND` or `SEARCH` where no order takes less, else empty."""

    order: tuple[int, ...]
    clocks: int
    bound: int
    why: str
    proof: str
    registers: int

    @property
    def gap(self) -> float:
        """How far the clocks may be from the best order, as part of the bound."""
        return 0.0 if self.proof or not self.bound else self.clocks / self.bound - 1

    def text(self) -> str:
        """What is known of the order, for a remark."""
        if self.proof == BOUND:
            return f"{self.clocks} clocks, optimal: the bound by {self.why}"
        if self.proof == SEARCH:
            return f"{self.clocks} clocks, optimal: the search came to its end"
        return f"{self.clocks} clocks, within {100 * self.gap:.1f} % of the bound by {self.why}, {self.bound}"


def rated(problem: Problem, order: Sequence[int]) -> Solution:
    """What is known of an order that is given."""
    bound = least(problem)
    clocks = issue_clocks(problem, order)
    proof = BOUND if clocks <= bound.clocks else ""
    return Solution(tuple(order), clocks, bound.clocks, bound.why, proof, problem.registers(order))


def solve(
    problem: Problem, *, limit: int = 0, nodes: int = NODES, moves: int = MOVES, rules: Sequence[Rule] = RULES
) -> Solution:
    """The best order that the budgets find. It holds at most `limit` registers (0: `ROOM` more than the thriftiest list order), if a list
    order does."""
    bound = least(problem)
    lists = ListOrders(problem)
    first = lists.order(THRIFTY)
    limit = max(limit or problem.registers(first) + ROOM, problem.registers(first))
    best = first
    clocks = issue_clocks(problem, first)
    for rule in rules:
        if clocks <= bound.clocks:
            break
        order = first if rule == THRIFTY else lists.order(rule)
        if problem.registers(order) <= limit and (found := issue_clocks(problem, order)) < clocks:
            best, clocks = order, found
    proof = BOUND if clocks <= bound.clocks else ""
    if not proof and len(best) <= EXACT:
        search = _Search(problem, limit, nodes, best, clocks, bound.clocks)
        search.run()
        best, clocks = search.best, search.clocks
        proof = BOUND if clocks <= bound.clocks else SEARCH if search.nodes > 0 else ""
    if not proof:
        best, clocks = _improved(problem, best, clocks, bound.clocks, limit, moves)
        proof = BOUND if clocks <= bound.clocks else ""
    return Solution(tuple(best), clocks, bound.clocks, bound.why, proof, problem.registers(best))


class ListOrders:
    """List orders of one problem."""

    def __init__(self, problem: Problem):
        self.problem = problem
        units, n = problem.units, len(problem.units)
        self.way = least_rest(problem)
        grows = [0] * n  # registers that a unit adds for certain
        for h in problem.held:
            if h.maker >= 0:
                grows[h.maker] += h.registers
            if len(h.users) == 1 and not h.kept:
                grows[h.users[0]] -= h.registers
        self.goes_on = [False] * n  # with an accumulator that was begun in this order
        begun = [u.kind == MATRIX and grows[i] > 0 for i, u in enumerate(units)]
        for i, needs in enumerate(problem.needs):
            if units[i].kind == MATRIX and not begun[i]:
                self.goes_on[i] = begun[i] = any(begun[x.source] for x in needs if x.distance == 0)
        self.ranks = {lean: self._ranks(lean) for lean in (False, True)}
        self.uses = {lean: self._uses(rank) for lean, rank in self.ranks.items()}
        self.work = sum(u.busy * u.count for u in units if u.kind == VECTOR)

    def _ranks(self, lean: bool) -> dict[int, int]:
        """The matrix instructions in the order in which a list would take them if nothing else were needed."""
        units, way = self.problem.units, self.way
        matrix = [i for i, u in enumerate(units) if u.kind == MATRIX]
        if not lean:
            return {i: r for r, i in enumerate(sorted(matrix, key=lambda i: (-way[i], i)))}
        left = {i: {j for j, _ in self.problem.waits[i] if units[j].kind == MATRIX} for i in matrix}
        found: dict[int, int] = {}
        while left:
            i = min((i for i, needs in left.items() if not needs), key=lambda i: (not self.goes_on[i], -way[i], i))
            del left[i]
            for needs in left.values():
                needs.discard(i)
            found[i] = len(found)
        return found

    def _uses(self, rank: dict[int, int]) -> tuple[list[int], list[int]]:
        """For each unit the first matrix instruction that waits for it, directly or not, and the first that uses it itself."""
        n = len(self.problem.units)
        use, direct = [n] * n, [0] * n
        for i in reversed(range(n)):
            users = self.problem.users[i]
            direct[i] = min((rank[x] for x in users if x in rank), default=0)
            use[i] = min((rank.get(x, use[x]) for x in users), default=n)
        return use, direct

    def order(self, rule: Rule) -> list[int]:
        """The list order by a rule."""
        problem, units = self.problem, self.problem.units
        rank, (use, direct) = self.ranks[rule.lean], self.uses[rule.lean]
        left = [len(waits) for waits in problem.waits]
        ready: dict[int, None] = {i: None for i, count in enumerate(left) if not count}
        simd = Simd(problem.machine)
        usable = [0] * len(units)  # from when the needs of a unit are met
        time = products = done = arrived = 0
        order: list[int] = []
        while ready:
            found: list[tuple[int, int, int, int, int]] = []
            following = _NEVER
            for i in ready:
                if units[i].kind == MATRIX:
                    start = simd.earliest(units[i], max(time, usable[i]))
                    following = min(following, start)
                    found.append((start, 1, rule.lean and not self.goes_on[i], -self.way[i], i))
            share = self.work * (products + rule.margin) * rule.spread
            held_back = following < _NEVER and rule.spread and done * 100 * len(rank) > share
            postponed: list[tuple[int, int, int, int, int]] = []
            for i in ready:
                u = units[i]
                if u.kind in (MATRIX, READ):
                    continue
                start = simd.earliest(u, max(time, usable[i]))
                first, second = (use[i], -self.way[i]) if rule.by_use else (-self.way[i], use[i])
                entry = (start, 2, first, second, i)
                late = u.kind == VECTOR and (held_back or start + problem.own[i] > following)
                (postponed if late else found).append(entry)
            none = not found
            for i in ready:
                if units[i].kind == READ and (none or direct[i] < products + rule.ahead):
                    found.append((simd.earliest(units[i], time), 0, direct[i], 0, i))
            start, _, _, _, i = min(found or postponed)
            u = units[i]
            at = simd.start(u, start)
            if u.kind == READ:
                at = arrived = max(at, arrived)
            time = start + problem.own[i]
            products += u.kind == MATRIX
            done += u.busy * u.count if u.kind == VECTOR else 0
            del ready[i]
            order.append(i)
            for x in problem.users[i]:
                clocks = max(n.clocks for n in problem.needs[x] if n.source == i and n.distance == 0)
                usable[x] = max(usable[x], at + clocks)
                left[x] -= 1
                if not left[x]:
                    ready[x] = None
        return order


def _improved(
    problem: Problem, order: Sequence[int], clocks: int, bound: int, limit: int, moves: int
) -> tuple[list[int], int]:
    """The order after so many tries to move a unit; which are tried is the same for the same problem."""
    best, alone, state = list(order), issue_clocks(problem, order, 1), 1
    n = len(best)
    for _ in range(moves if n > 2 else 0):
        if clocks <= bound:
            break
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        at = (state >> 8) % n
        i = best[at]
        before = {need.source for need in problem.needs[i] if need.distance == 0}
        behind = set(problem.users[i])
        low = next((k + 1 for k in reversed(range(at)) if best[k] in before), 0)
        high = next((k - 1 for k in range(at + 1, n) if best[k] in behind), n - 1)
        if low == high:
            continue
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        to = low + (state >> 8) % (high - low + 1)
        tried = best[:at] + best[at + 1 :]
        tried.insert(to, i)
        single = issue_clocks(problem, tried, 1)
        if single > alone or problem.registers(tried) > limit:
            continue
        found = issue_clocks(problem, tried) if problem.waves > 1 else single
        if found <= clocks:
            best, clocks, alone = tried, found, single
    return best, clocks


class _Search:
    """Branch and bound over the orders of a problem."""

    def __init__(self, problem: Problem, limit: int, nodes: int, best: Sequence[int], clocks: int, bound: int):
        self.problem, self.limit, self.nodes, self.bound = problem, limit, nodes, bound
        self.best, self.clocks = list(best), clocks
        self.rest = least_rest(problem)
        self.twin = _twins(problem)
        self.seen: dict[int, list[tuple[int, ...]]] = {}
        self.prefix: list[int] = []
        self.live = _Registers(problem)
        self.alone = problem.waves == 1 and not problem.loop

    def run(self) -> None:
        """Searches until all is seen, the bound is met, or the nodes are used up (then `nodes` is 0)."""
        n = len(self.problem.units)
        self._node(0, Simd(self.problem.machine), 0, 0, [0] * n)

    def _node(self, done: int, simd: Simd, time: int, arrived: int, usable: list[int]) -> None:
        problem, units = self.problem, self.problem.units
        n = len(units)
        if len(self.prefix) == n:
            clocks = time if self.alone else issue_clocks(problem, self.prefix)
            if clocks < self.clocks:
                self.best, self.clocks = list(self.prefix), clocks
            return
        open_: list[tuple[int, int, int]] = []
        for i in range(n):
            if done >> i & 1 or any(not done >> j & 1 for j, _ in problem.waits[i]):
                continue
            if self.twin[i] >= 0 and not done >> self.twin[i] & 1:
                continue
            start = simd.earliest(units[i], max(time, usable[i]))
            open_.append((start, -self.rest[i], i))
        open_.sort()
        for _, _, i in open_:
            if self.clocks <= self.bound:
                return
            if self.nodes <= 0:
                return
            self.nodes -= 1
            peak = self.live.put(i)
            if peak <= self.limit:
                self.prefix.append(i)
                self._try(i, done, simd, time, arrived, usable)
                self.prefix.pop()
            self.live.take(i)

    def _try(self, i: int, done: int, simd: Simd, time: int, arrived: int, usable: list[int]) -> None:
        problem, u = self.problem, self.problem.units[i]
        new = simd.copy()
        start = new.earliest(u, max(time, usable[i]))
        at = new.start(u, start)
        if u.kind == READ:
            at = arrived = max(at, arrived)
        time = start + problem.own[i]
        usable = list(usable)
        for x in problem.users[i]:
            clocks = max(need.clocks for need in problem.needs[x] if need.source == i and need.distance == 0)
            usable[x] = max(usable[x], at + clocks)
        done |= 1 << i
        if self._least(done, new, time, usable) >= self.clocks:
            return
        if self.alone and self._dominated(done, new, time, arrived, usable):
            return
        self._node(done, new, time, arrived, usable)

    def _least(self, done: int, simd: Simd, time: int, usable: list[int]) -> int:
        """Clocks below which no order goes that begins so: of one wave, which others can only delay."""
        problem, units, rest = self.problem, self.problem.units, self.rest
        issue, most = time, 0
        pipes = {
            MATRIX: (simd.matrix, _NEVER, _NEVER, 0),
            VECTOR: (simd.vector, _NEVER, _NEVER, 0),
            COPY: (simd.copies, _NEVER, _NEVER, 0),
        }
        ready = list(usable)
        for i in range(len(units)):
            if done >> i & 1:
                continue
            u = units[i]
            start = max(ready[i], time)
            for j, clocks in problem.waits[i]:
                if not done >> j & 1:
                    start = max(start, ready[j] + clocks)
            ready[i] = start
            issue += problem.own[i]
            most = max(most, start + rest[i])
            if u.kind in pipes:
                free, first, behind, total = pipes[u.kind]
                busy = u.busy * u.count
                pipes[u.kind] = free, min(first, start), min(behind, rest[i] - busy), total + busy
        most = max(most, issue)
        for free, first, behind, total in pipes.values():
            if total:
                most = max(most, max(free, first) + total + behind)
        return most

    def _dominated(self, done: int, simd: Simd, time: int, arrived: int, usable: list[int]) -> bool:
        """Whether another order of the same units is nowhere later; else notes this one."""
        queue = [*simd.queue, *([0] * self.problem.machine.queue)]
        live = [usable[x] for x in range(len(usable)) if not done >> x & 1]
        state = (
            time, simd.matrix, simd.vector, simd.opens, simd.port, simd.lds, simd.back, simd.copies, arrived,
            *sorted(queue, reverse=True)[: self.problem.machine.queue], *live,
        )  # fmt: skip
        known = self.seen.setdefault(done, [])
        if any(all(a <= b for a, b in zip(other, state, strict=True)) for other in known):
            return True
        known.append(state)
        return False


class _Registers:
    """Registers that a prefix holds, unit by unit."""

    def __init__(self, problem: Problem):
        self.makes: list[int] = [0] * len(problem.units)
        self.ends: list[list[int]] = [[] for _ in problem.units]  # by unit, the values that it uses
        self.left: list[int] = []
        self.sizes: list[int] = []
        self.now = 0
        for number, h in enumerate(problem.held):
            users = () if h.kept else h.users
            self.left.append(len(users))
            self.sizes.append(h.registers)
            if h.maker < 0:
                self.now += h.registers if h.kept or users else 0
            elif h.kept or users:
                self.makes[h.maker] += h.registers
            for x in users:
                self.ends[x].append(number)
        self.unused = [0] * len(problem.units)
        for h in problem.held:
            if h.maker >= 0 and not h.kept and not h.users:
                self.unused[h.maker] += h.registers

    def put(self, i: int) -> int:
        """Issues a unit; gives what is held behind it."""
        for v in self.ends[i]:
            self.left[v] -= 1
            if not self.left[v]:
                self.now -= self.sizes[v]
        self.now += self.makes[i]
        return self.now + self.unused[i]

    def take(self, i: int) -> None:
        """Takes back the unit that was issued last."""
        self.now -= self.makes[i]
        for v in self.ends[i]:
            if not self.left[v]:
                self.now += self.sizes[v]
            self.left[v] += 1


def _twins(problem: Problem) -> list[int]:
    """For each unit the one before it that nothing tells apart from it, -1 if there is none."""
    sizes: list[list[tuple[int, bool, tuple[int, ...]]]] = [[] for _ in problem.units]
    uses: list[list[int]] = [[] for _ in problem.units]
    for number, h in enumerate(problem.held):
        if h.maker >= 0:
            sizes[h.maker].append((h.registers, h.kept, h.users))
        for x in h.users:
            uses[x].append(number)
    carried = {need.source for needs in problem.needs for need in needs if need.distance}
    last: dict[object, int] = {}
    found: list[int] = []
    for i, u in enumerate(problem.units):
        users = tuple((x, *(n for n in problem.needs[x] if n.source == i)) for x in problem.users[i])
        users = tuple((x[0], *((n.clocks, n.distance) for n in x[1:])) for x in users)  # type: ignore[union-attr]
        key = (u, problem.needs[i], users, tuple(sizes[i]), tuple(uses[i]))
        known = i not in carried and not any(n.distance for n in problem.needs[i])
        found.append(last.get(key, -1) if known else -1)
        last[key] = i
    return found
