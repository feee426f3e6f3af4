"""What an order of instructions costs: waves of one SIMD that issue it, under the rules and numbers of the timing model (docs/timing.md).

A `Problem` holds units to be put in order: single instructions, or several alike in a row. A wave issues its units one after the other;
each waits for its needs and for the pipe that it occupies. `issue_clocks` lets the waves of a SIMD do so together, the older ones first,
and counts clocks until all have issued everything; `least` says what no order can go below.

The rules, with the names of the parameters of `timing_model.json`: a wave issues at most one instruction per turn (`turn_clocks`), a SIMD at
most one matrix or vector instruction; a matrix instruction occupies its pipe as long as the target says, and closes the vector pipe for
`valu_closed_after_mfma`; reads of LDS queue up (`lds_queue_per_simd_pair`), are served one after the other at the share of a SIMD, and arrive
`lds_latency` behind that; direct copies and loads occupy their pipe for `vmem_issue_clocks_per_dword`. What is beyond LDS is not modelled.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from functools import cached_property

from tileir.records import dataclass
from tileir.target import Target
from tileir.target.timing import timing_model

MATRIX, VECTOR, READ, COPY, OTHER, MEETING = range(6)
NAMES = ("matrix instructions", "vector instructions", "LDS", "memory instructions", "other instructions", "meetings")
_NEVER = 1 << 60


@dataclass(frozen=True)
class Machine:
    """Parameters of a SIMD, in clocks but for `queue` (reads of LDS that may be under way)."""

    turn: int
    closed: int
    lds_latency: int
    queue: int
    lds_share: int
    meeting: int

    @classmethod
    def of(cls, target: Target) -> Machine:
        m = timing_model(target.name)
        pairs = m.clocks("lds_share_of_simd_pair")
        return cls(
            m.clocks("turn_clocks"),
            m.clocks("valu_closed_after_mfma"),
            m.clocks("lds_latency"),
            m.clocks("lds_queue_per_simd_pair") // 2,
            pairs * 2,
            m.clocks("barrier_clocks"),
        )


@dataclass(frozen=True)
class Unit:
    """`count` instructions of one kind in a row, each of which occupies its pipe for `busy` clocks. Those of LDS take `bank` clocks of its
    memory and `path` clocks of the way back."""

    kind: int
    busy: int
    count: int = 1
    bank: int = 0
    path: int = 0


@dataclass(frozen=True)
class Need:
    """A unit may not start before `clocks` after the start of unit `source` – after its arrival, if that is a read –, `distance`
    iterations earlier."""

    source: int
    clocks: int
    distance: int = 0


@dataclass(frozen=True)
class Held:
    """`registers` from the unit that makes them (-1: from before) to the last of `users`, or to the end if `kept`."""

    registers: int
    maker: int
    users: tuple[int, ...]
    kept: bool = False


@dataclass(frozen=True, eq=False)
class Problem:
    """Units to put in order. Needs of distance 0 point to units with smaller numbers. `loop` says that the order repeats without waiting for
    its end, and that clocks are those of an iteration in the steady state – several waves must meet in it –; else it runs from one meeting
    of the waves to the next. `late` of the waves are one meeting behind the others: they wait for the first of these before they begin. ValueError
    where that does not hold."""

    units: tuple[Unit, ...]
    needs: tuple[tuple[Need, ...], ...]
    waves: int
    machine: Machine
    held: tuple[Held, ...] = ()
    loop: bool = False
    rounds: int = 6
    late: int = 0

    def __post_init__(self) -> None:
        if any(n.distance == 0 and n.source >= i for i, needs in enumerate(self.needs) for n in needs):
            raise ValueError("a unit needs one of its own iteration that does not have a smaller number")
        if self.loop and self.waves > 1 and not any(u.kind == MEETING for u in self.units):
            raise ValueError("waves that never meet have no common iteration")
        if self.late and (not self.loop or self.late >= self.waves):
            raise ValueError("waves are late in a loop only, and not all of them")

    @cached_property
    def users(self) -> list[list[int]]:
        """For each unit those that need it in the same iteration."""
        found: list[list[int]] = [[] for _ in self.units]
        for i, needs in enumerate(self.needs):
            for need in needs:
                if need.distance == 0:
                    found[need.source].append(i)
        return found

    @cached_property
    def own(self) -> list[int]:
        """Clocks from the start of a unit to where its wave may go on."""
        return [(u.count - 1) * u.busy + self.machine.turn for u in self.units]

    @cached_property
    def waits(self) -> list[list[tuple[int, int]]]:
        """For each unit the units it needs in the same iteration, with the least clocks from start to start, whole turns."""
        turn = self.machine.turn
        return [
            [
                (n.source, max(self.own[n.source], -(-(self.arrival(n.source) + n.clocks) // turn) * turn))
                for n in needs
                if n.distance == 0
            ]
            for needs in self.needs
        ]

    def arrival(self, i: int) -> int:
        """Least clocks from the start of a read to its arrival, 0 for other units."""
        u = self.units[i]
        return max(u.bank * self.machine.lds_share // 2, u.path) + self.machine.lds_latency if u.kind == READ else 0

    def registers(self, order: Sequence[int]) -> int:
        """The most registers that are held at once."""
        at = {u: k for k, u in enumerate(order)}
        n = len(order)
        change = [0] * (n + 1)
        for h in self.held:
            begin = at[h.maker] if h.maker >= 0 else 0
            end = n if h.kept else max((at[x] for x in h.users), default=begin)
            change[begin] += h.registers
            change[min(n, max(end, begin + (h.maker >= 0)))] -= h.registers
        most = now = 0
        for c in change:
            now += c
            most = max(most, now)
        return most


class Simd:
    """The pipes of a SIMD, and when they are free."""

    __slots__ = ("back", "copies", "lds", "machine", "matrix", "opens", "port", "queue", "vector")

    def __init__(self, machine: Machine):
        self.machine = machine
        self.matrix = self.vector = self.opens = self.port = self.lds = self.back = self.copies = 0
        self.queue: deque[int] = deque()

    def copy(self) -> Simd:
        new = Simd(self.machine)
        new.matrix, new.vector, new.opens, new.port = self.matrix, self.vector, self.opens, self.port
        new.lds, new.back, new.copies, new.queue = self.lds, self.back, self.copies, self.queue.copy()
        return new

    def earliest(self, u: Unit, t: int) -> int:
        """When a unit that is ready at `t` may start."""
        kind = u.kind
        if kind == MATRIX:
            t = max(t, self.matrix, self.port)
        elif kind == VECTOR:
            t = max(t, self.vector, self.opens, self.port)
        elif kind == READ:
            queue, room = self.queue, self.machine.queue
            while queue and queue[0] <= t:
                queue.popleft()
            if len(queue) >= room:
                t = max(t, queue[len(queue) - room])
        elif kind == COPY:
            t = max(t, self.copies)
        turn = self.machine.turn
        return -(-t // turn) * turn

    def start(self, u: Unit, t: int) -> int:
        """Starts a unit; for a read the clock of its arrival, else `t`."""
        m, kind = self.machine, u.kind
        if kind == MATRIX:
            self.matrix = t + u.busy * u.count
            self.opens = t + (u.count - 1) * u.busy + m.closed
            self.port = t + (u.count - 1) * u.busy + m.turn
        elif kind == VECTOR:
            last = t + (u.count - 1) * u.busy
            self.vector, self.port = last + u.busy, last + m.turn
        elif kind == READ:
            begin = max(t, self.lds)
            self.lds = begin + u.bank * m.lds_share  # the other SIMD of the pair reads as much
            self.back = max(begin + u.bank * m.lds_share // 2, max(self.back, begin) + u.path)
            self.queue.append(self.back)
            return self.back + m.lds_latency
        elif kind == COPY:
            self.copies = t + u.busy * u.count
            self.lds = max(t, self.lds) + u.bank * m.lds_share
        return t


def issue_clocks(problem: Problem, order: Sequence[int], waves: int = 0) -> int:
    """Clocks until all waves (0: those of the problem) have issued the order; of a loop the clocks of an iteration in the steady state, if it
    settles within `rounds`, else the longest that was seen."""
    rounds = problem.rounds if problem.loop else 1
    ends = _ends(problem, order, waves or problem.waves, rounds)
    if rounds == 1:
        return ends[0]
    last = [b - a for a, b in itertools.pairwise(ends)]
    return last[-1] if last[-1] == last[-2] else max(last[1:])


def _ends(problem: Problem, order: Sequence[int], waves: int, rounds: int) -> list[int]:
    """For each round the clock at which the last wave may go on behind it."""
    units, needs, own, machine = problem.units, problem.needs, problem.own, problem.machine
    n, total = len(order), len(order) * rounds
    simd = Simd(machine)
    there = [[0] * total for _ in range(waves)]
    position, free, arrived = [0] * waves, [0] * waves, [0] * waves
    ready = [0] * waves
    ends = [0] * rounds
    meeting: list[int] = []

    def prepare(k: int) -> None:
        p = position[k]
        if p == total:
            ready[k] = _NEVER
            return
        base, t, known = p - p % n, free[k], there[k]
        for need in needs[order[p % n]]:
            at = base - need.distance * n + need.source
            if at >= 0 and known[at] + need.clocks > t:
                t = known[at] + need.clocks
        ready[k] = t

    early = waves - problem.late

    def meet(k: int) -> None:
        """A wave waits at a meeting; the last that comes lets all go on. Those that are early have one more at their end."""
        ready[k] = _NEVER
        meeting.append(k)
        if len(meeting) < waves:
            return
        begin = max(free[k] for k in meeting) + machine.meeting
        present = meeting.copy()
        meeting.clear()
        for k in present:
            free[k] = begin
            prepare(k)
            if problem.late and k < early and position[k] == total:
                meeting.append(k)

    for k in range(waves):
        prepare(k)
    for k in range(early, waves):
        meet(k)
    left = waves * total
    while left:
        best, who = _NEVER, 0
        for k in range(waves):
            if ready[k] < best:
                t = simd.earliest(units[order[position[k] % n]], ready[k])
                if t < best:
                    best, who = t, k
        p = position[who]
        i = order[p % n]
        at = simd.start(units[i], best)
        if units[i].kind == READ:
            at = arrived[who] = max(at, arrived[who])
        there[who][p - p % n + i] = at
        free[who] = best + own[i]
        position[who] = p + 1
        left -= 1
        ends[p // n] = max(ends[p // n], free[who])
        if units[i].kind == MEETING and waves > 1:
            meet(who)
        else:
            prepare(who)
            if problem.late and who < early and position[who] == total:
                meet(who)
    return ends


@dataclass(frozen=True)
class Least:
    """Clocks below which no order can go, and what keeps it from that."""

    clocks: int
    why: str


def least(problem: Problem) -> Least:
    """The largest of the bounds: each pipe must serve all units of all waves, a wave must issue all of its units, and a chain of needs
    takes its time. Between two meetings a pipe cannot begin before the first of its units is ready, nor a wave end before what must come
    behind the last of them."""
    found = [Least(sum(problem.own), "instructions of a wave")]
    heads: list[int] = []
    tails: list[int] = []
    if problem.loop:
        found.append(_recurrence(problem))
    else:
        heads, tails = earliest_starts(problem), least_rest(problem)
        found.append(Least(max((h + t for h, t in zip(heads, tails, strict=True)), default=0), "longest chain"))
    for kind in (MATRIX, VECTOR, READ, COPY):
        members = [i for i, u in enumerate(problem.units) if u.kind == kind]
        if members:
            found.append(Least(_pipe(problem, kind, members, heads, tails), NAMES[kind]))
    found.append(Least(_closed(problem), NAMES[VECTOR]))
    return max(found, key=lambda x: x.clocks)


def occupied(problem: Problem, i: int) -> int:
    """Clocks of its pipe that a unit takes."""
    u = problem.units[i]
    return u.bank * problem.machine.lds_share if u.kind == READ else u.busy * u.count


def earliest_starts(problem: Problem) -> list[int]:
    """For each unit a clock before which no order starts it: the longest chain to it, and all that must be issued before."""
    found: list[int] = []
    before: list[int] = []  # bit sets of the units that must come before
    for waits in problem.waits:
        mask = start = 0
        for j, clocks in waits:
            mask |= before[j] | 1 << j
            start = max(start, found[j] + clocks)
        before.append(mask)
        found.append(max(start, _issue(problem, mask)))
    return found


def least_rest(problem: Problem) -> list[int]:
    """For each unit the least clocks from its start to the end of the order in its wave."""
    n = len(problem.units)
    found, behind = list(problem.own), [0] * n
    for i in reversed(range(n)):
        found[i] = max(found[i], problem.own[i] + _issue(problem, behind[i]))
        for j, clocks in problem.waits[i]:
            behind[j] |= behind[i] | 1 << i
            found[j] = max(found[j], clocks + found[i])
    return found


def _issue(problem: Problem, mask: int) -> int:
    own, total = problem.own, 0
    while mask:
        low = mask & -mask
        total += own[low.bit_length() - 1]
        mask ^= low
    return total


def _pipe(problem: Problem, kind: int, members: list[int], heads: list[int], tails: list[int]) -> int:
    """The bound of one pipe. The last unit that it serves starts when all others are served; behind it its wave has the unit's rest to issue.
    Reads start as soon as the queue has room."""
    busy = {i: occupied(problem, i) for i in members}
    if problem.loop:
        return problem.waves * sum(busy.values())
    most = 0
    if kind == READ:
        first, longest = min(heads[i] for i in members), max(busy.values())
        return first + problem.waves * sum(busy.values()) - (problem.machine.queue + 1) * longest
    for key in (lambda i: -heads[i], lambda i: busy[i] - tails[i]):
        chosen = sorted(members, key=key)
        first, rest, total = _NEVER, _NEVER, 0
        for i in chosen:
            first, rest, total = min(first, heads[i]), min(rest, tails[i] - busy[i]), total + busy[i]
            most = max(most, first + problem.waves * total + rest)
    return most


def _closed(problem: Problem) -> int:
    """The bound of the vector pipe with the clocks in which matrix instructions close it. No two of these windows overlap, nor do two vector
    instructions; of a vector instruction that started before a window, what exceeds a turn may lie in it."""
    m, units = problem.machine, problem.units
    turn = m.turn
    work = sum(occupied(problem, i) for i, u in enumerate(units) if u.kind == VECTOR)
    windows = sum(u.count for u in units if u.kind == MATRIX)
    slow = sorted(
        (min(m.closed, u.busy - turn) for u in units if u.kind == VECTOR for _ in range(u.count)), reverse=True
    )
    total = problem.waves * (work + windows * m.closed - sum(slow[:windows])) if work else 0
    if problem.loop:
        return total
    return total - (max((u.busy for u in units if u.kind == VECTOR), default=turn) - turn) - max(0, m.closed - turn)


def _recurrence(problem: Problem) -> Least:
    """The longest cycle of needs, per iteration that it spans. Cycles through one carried need are looked at."""
    worst = 0
    for i, needs in enumerate(problem.needs):
        for need in needs:
            if need.distance == 0:
                continue
            way = _longest(problem, i, need.source)
            if way is not None:
                worst = max(worst, -(-(way + problem.arrival(need.source) + need.clocks) // need.distance))
    return Least(worst, "chain from iteration to iteration")


def _longest(problem: Problem, first: int, last: int) -> int | None:
    """The longest chain of needs from a unit to another, None if there is none."""
    if first == last:
        return 0
    found = {first: 0}
    for i in range(first + 1, last + 1):
        ways = [found[j] + clocks for j, clocks in problem.waits[i] if j in found]
        if ways:
            found[i] = max(ways)
    return found.get(last)
