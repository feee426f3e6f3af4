"""Checks that waits and barriers suffice, on the text that is lowered, whoever wrote it.

Not the method of `synchronise`: every access is followed on its own along all paths of a control flow graph, with a small
automaton that knows how far it is (issued, complete in its wave, visible to the workgroup) and how many instructions of its
counter came after it, at least. Reaching a conflicting access before it is visible is an error that names both.
"""

from __future__ import annotations

from bisect import bisect
from dataclasses import field

from tileir.ir.core import Block, Kernel, Op
from tileir.ir.diagnostics import CompileError, Diagnostic, Note
from tileir.passes.halves import Extra, enough, extra_barriers
from tileir.passes.hazards import LGKM, VM, Access, Loops, Memory
from tileir.passes.outstanding import instructions
from tileir.records import dataclass

# How far an access is: issued, or complete in its wave with so many barriers since and the extra barriers of the halves then.
Phase = tuple[int, Extra] | None
ISSUED: Phase = None
_ORDERS = ("wait", "barrier", "barrier_of")


@dataclass(eq=False)
class _Node:
    """An op (None for a place where paths meet) and its successors, each with the loop whose back edge leads there."""

    op: Op | None
    next: list[tuple[_Node, Op | None]] = field(default_factory=list["tuple[_Node, Op | None]"])
    run: _Run | None = None
    place: int = 0


Ends = list[tuple[_Node, "Op | None"]]


class _Run:
    """Ops that always follow each other, with an index of them: most are passed by, when one access is followed."""

    def __init__(self) -> None:
        self.nodes: list[_Node] = []
        self.issued = [0]  # vector-memory instructions of the first 0, 1, … ops
        self.orders: list[int] = []  # places of waits and barriers
        self.touching: dict[int, list[int]] = {}  # places by group of accesses

    def append(self, node: _Node, op: Op, memory: Memory) -> None:
        """Puts an op at the end."""
        node.run, node.place = self, len(self.nodes)
        if op.name in _ORDERS:
            self.orders.append(node.place)
        for group in dict.fromkeys(memory.group(a) for a in memory.of(op)):
            self.touching.setdefault(group, []).append(node.place)
        self.issued.append(self.issued[-1] + instructions(op, memory.kernel))
        self.nodes.append(node)

    def after(self, place: int, group: int) -> tuple[int, Ends]:
        """Where the way from a place leads that only stops at waits, barriers and accesses of a group: the instructions that it
        passes by, and what comes next."""
        stops = [
            found[i]
            for found in (self.orders, self.touching.get(group, ()))
            if (i := bisect(found, place)) < len(found)
        ]
        stop = min(stops, default=len(self.nodes))
        passed = self.issued[stop] - self.issued[place + 1]
        return passed, [(self.nodes[stop], None)] if stops else self.nodes[-1].next


class _Graph:
    """The control flow of a kernel, one node per op without regions that accesses or orders memory."""

    def __init__(self, kernel: Kernel, memory: Memory):
        self.kernel = kernel
        self.memory = memory
        self.at: dict[Op, _Node] = {}
        self._block(kernel.body, [(_Node(None), None)])

    def _node(self, op: Op | None, before: Ends) -> _Node:
        node = _Node(op)
        for previous, loop in before:
            previous.next.append((node, loop))
        if op is not None:
            self.at[op] = node
        return node

    def after(self, node: _Node, group: int) -> tuple[int, Ends]:
        """What follows a node, past ops of a run that do not matter to a group, and the instructions of these."""
        return node.run.after(node.place, group) if node.run is not None else (0, node.next)

    def _block(self, block: Block, before: Ends) -> Ends:
        run: _Run | None = None
        for op in block.ops:
            match op.name:
                case "for":
                    before = self._for(op, before)
                case "while":
                    before = self._while(op, before)
                case "if" | "guard":
                    fork: Ends = [(self._node(None, before), None)]
                    ends = [self._block(r, fork) for r in op.regions]
                    before = [e for branch in ends for e in branch] + (fork if len(ends) == 1 else [])
                case _ if op.name in _ORDERS or self.memory.of(op) or instructions(op, self.kernel):
                    node = self._node(op, before)
                    run = run or _Run()
                    run.append(node, op, self.memory)
                    before = [(node, None)]
                case _:
                    continue
            if op.regions:
                run = None
        return before

    def _for(self, op: Op, before: Ends) -> Ends:
        head = self._node(None, before)
        ends = self._block(op.regions[0], [(head, None)])
        _back(ends, head, op)
        return [(self._node(None, [*ends, *before]), None)]

    def _while(self, op: Op, before: Ends) -> Ends:
        head = self._node(None, before)
        decided = self._block(op.regions[0], [(head, None)])
        _back(self._block(op.regions[1], decided), head, op)
        return decided


def _back(ends: Ends, head: _Node, loop: Op) -> None:
    for node, _ in ends:
        node.next.append((head, loop))


def check_synchronised(kernel: Kernel) -> None:
    """Raises CompileError (one diagnostic per access that comes too early) unless every pair of conflicting accesses is
    separated by a wait and a barrier on every path – with one wave, by a wait – and no barrier stands where waves may
    skip it."""
    extra = extra_barriers(kernel)
    memory = Memory(kernel)
    graph = _Graph(kernel, memory)
    found = [_skipped_barrier(op, guard) for guard in kernel.walk() if guard.name == "guard" for op in guard.walk()]
    diagnostics = [d for d in found if d is not None]
    reported: set[Op] = set()
    most = 1 + max((int(op.attrs.get("vm", 0)) for op in graph.at if op.name == "wait"), default=0)  # type: ignore[arg-type]
    for op in kernel.walk():
        for access in memory.of(op):
            for later, complete, newer in _too_early(graph, memory, access, extra, most):
                if later.op not in reported:
                    reported.add(later.op)
                    diagnostics.append(_message(access, later, complete, newer, memory.single_wave))
    if diagnostics:
        raise CompileError(diagnostics)


def _skipped_barrier(op: Op, guard: Op) -> Diagnostic | None:
    if op.name not in ("barrier", "barrier_of"):
        return None
    notes = (Note("the guard", guard.loc),)
    return Diagnostic("E1031", "a barrier inside a 'guard', which some waves skip", op.loc, "error", notes, "outside")


def _too_early(
    graph: _Graph, memory: Memory, x: Access, extra: dict[Op, Extra], most: int
) -> list[tuple[Access, bool, int]]:
    """Conflicting accesses that are reached while `x` is not visible, with whether it is complete there and how many instructions of
    its counter are newer for sure. Counts of newer instructions from `most` on are alike."""
    found: dict[Access, tuple[bool, int]] = {}
    kind = memory.alike(x)
    start: Loops = frozenset()
    group = memory.group(x)
    passed, first = graph.after(graph.at[x.op], group)
    newer = min(passed, most) if x.counter == VM else 0
    pending = [(n, ISSUED, newer, start if loop is None else start | {loop}) for n, loop in first]
    seen = set(pending)
    while pending:
        node, phase, newer, crossed = pending.pop()
        op = node.op
        if op is not None:
            accesses = memory.of(op)
            for y in accesses:
                if memory.conflict(x, y, crossed):
                    complete, least = found.get(y, (True, newer))
                    found[y] = complete and phase is not ISSUED, min(least, newer)
            if x.in_lds and op is not x.op and any(memory.alike(y) is kind for y in accesses):
                continue  # from here on this one is the later to complete, and is followed on its own
            if x.counter == VM:
                newer = min(newer + instructions(op, memory.kernel), most)
            if phase is ISSUED and op.name == "wait" and _covers(op, x.counter, newer):
                phase = 0, extra[op]
            if phase is not None:
                if op.name == "barrier":
                    phase = phase[0] + 1, phase[1]
                now = extra.get(op)
                if memory.single_wave or (now is not None and enough(phase[0], phase[1], now)):
                    continue  # visible: this path is done
        passed, ways = graph.after(node, group)
        if x.counter == VM:
            newer = min(newer + passed, most)
        for following, loop in ways:
            state = (following, phase, newer, crossed if loop is None else crossed | {loop})
            if state not in seen:
                seen.add(state)
                pending.append(state)
    return [(y, *status) for y, status in found.items()]


def _covers(wait: Op, counter: str, newer: int) -> bool:
    """Whether a wait makes sure that an operation with so many newer ones of its counter is complete."""
    count = wait.attrs.get(counter, -1)
    assert isinstance(count, int)
    if counter == LGKM:
        return count == 0  # scalar loads share the counter and come out of order
    return 0 <= count <= newer


def _message(x: Access, y: Access, complete: bool, newer: int, single_wave: bool) -> Diagnostic:
    """Names both accesses and what is missing between them: the weakest wait that covers the first, directly before the second."""
    count = newer if x.counter == VM else 0
    what = "barrier()" if complete else f"wait<{x.counter} = {count}>()" + ("" if single_wave else " and barrier()")
    how = "overwrite" if y.writes and not x.writes else "overtake" if y.writes else "read before"
    them = "" if single_wave else " of another wave"
    return Diagnostic(
        "E1030",
        f"{y.describe()} may {how} {x.describe()}{them}: no {what} separates them on every path",
        y.op.loc,
        "error",
        (Note("the earlier access", x.op.loc),),
        f"{what} after the earlier access and before this one",
    )
