"""The order of the ops of a straight piece of a loop: matrix instructions never wait for what could have been computed under them.

Ops are put one behind the other as a wave would issue them. At each step the wave takes, of the ops whose operands it has computed, one
that it could issue soonest; of several a matrix instruction first, and else the one with the longest way to the end. Reads of LDS come
at most `AHEAD` matrix instructions before the first that uses them, so that they take no registers before their time.

Clocks: a matrix instruction occupies its pipe as the target says and is issued in 4 clocks; VALU work takes 4 clocks an instruction, a
transcendental function what the target says (docs/timing.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import field

from tileir.ir.core import Op, Value
from tileir.ir.types import F32, FragmentType
from tileir.passes.mma_cost import REGISTER_BITS, TRANSCENDENTAL
from tileir.records import dataclass
from tileir.target import Target, packs_under_products

SHORTEST = 16  # clocks of the shortest matrix instructions
ISSUE = 4  # clocks of a turn of a SIMD
AHEAD = 3  # matrix instructions of 32 clocks, of each of two waves: LDS answers after about 130
LDS_CLOCKS = 130
NAMES = ("slice_fragment", "join_fragments", "split_registers", "register_map", "constant", "fill")
READS = ("shared_load_fragment", "shared_load_transposed_fragment")
PACKED = ("add", "sub", "mul", "fma")  # one instruction for two f32, where that may stand under matrix instructions
MATRIX, READ, VECTOR = "matrix", "read", "vector"


@dataclass
class Unit:
    """An op that the machine issues. `clocks` occupy its unit, its result is there `latency` after that."""

    op: Op
    number: int
    kind: str
    clocks: int
    latency: int
    needs: list[Unit] = field(default_factory=list["Unit"])
    users: list[Unit] = field(default_factory=list["Unit"])
    way: int = 0  # clocks from here to the end


def instruction_clocks(op: Op, target: Target) -> int:
    """Clocks of the matrix instruction of an `mfma`, or of each of an `mma`."""
    a, b = (v.elem.name for v in op.operands[:2])
    fitting = [i for i in target.mfmas_for(a, b, op.result.elem.name) if (i.m, i.n, i.k) == op.attrs.get("instr")]
    return target.mfma_clocks(fitting[0], a, b) if fitting else SHORTEST


def clocks_of(op: Op, target: Target) -> tuple[str, int, int]:
    """Kind, clocks and latency of an op on fragments."""
    if op.name == "mfma":
        return MATRIX, instruction_clocks(op, target), 4 * ISSUE
    if op.name in READS:
        return READ, ISSUE, LDS_CLOCKS
    t = op.results[0].type if op.results else None
    n = t.count if isinstance(t, FragmentType) else 1
    if op.name == "fold_fragment":
        x = op.operands[1].type
        n = x.count if isinstance(x, FragmentType) else 1
        return VECTOR, ISSUE * max(1, n if op.attrs["kind"] == "add" and not op.attrs.get("flush") else n // 2), ISSUE
    if op.name == "swap_fragments":
        each = target.fact("permlane_swap_issue_clocks").value
        assert isinstance(each, int) and t is not None and isinstance(t, FragmentType)
        return VECTOR, each * max(1, t.count * t.elem.bits // REGISTER_BITS), ISSUE
    if op.name in TRANSCENDENTAL:
        value = target.fact("transcendental_clocks").value
        each = max(value) if isinstance(value, tuple) else int(value)  # type: ignore[call-overload]
        return VECTOR, int(each) * n, ISSUE
    if op.name == "convert" and t is not None and t.elem.bits == 16:
        packed = target.supports("bf16_packed_convert") or t.elem.name == "f16"
        return VECTOR, ISSUE * max(1, n // 2 if packed else 4 * n), ISSUE
    if op.name in PACKED and n > 1 and t is not None and t.elem is F32 and packs_under_products(target.name):
        return VECTOR, ISSUE * n // 2, ISSUE
    return VECTOR, ISSUE * n, ISSUE


Known = dict[object, list[list[int]]]
"""Orders that were found already, by what `_key` says of the ops: slots of numbers of ops."""


def order(
    ops: Sequence[Op],
    used: Set[Value],
    target: Target,
    known: Known,
    before: Mapping[Op, Sequence[Op]] | None = None,
    inner: Set[Op] = frozenset(),
) -> list[list[Op]]:
    """The ops that lead to what is `used` behind them, in their order, as slots: each begins with a matrix instruction, but for what
    comes before the first. Ops that only name registers, and masks, stand before the first op that uses them. Runs that are alike
    – the iterations in one trip of a pipelined loop – get one order. `before` are, of some ops, others that have to stand before them;
    `inner` are computed within the ops that use them (`fused`)."""
    number = {op: i for i, op in enumerate(ops)}
    before = before or {}
    key = _key(ops, used), tuple((number[op], tuple(number[x] for x in others)) for op, others in before.items())
    if key not in known:
        known[key] = [[number[op] for op in slot] for slot in _ordered(ops, used, target, before, inner)]
    return [[ops[i] for i in slot] for slot in known[key]]


def _key(ops: Sequence[Op], used: Set[Value]) -> object:
    number: dict[Value, int] = {}
    for op in ops:
        for v in op.results:
            number[v] = len(number)
    return tuple(
        (
            op.name,
            tuple(sorted((k, str(v)) for k, v in op.attrs.items() if k != "at" or op.name not in READS)),
            tuple((str(v.type) if isinstance(v.type, FragmentType) else "", v in used) for v in op.results),
            tuple(number.get(v, -1) for v in op.operands),
        )
        for op in ops
    )


def _ordered(
    ops: Sequence[Op], used: Set[Value], target: Target, before: Mapping[Op, Sequence[Op]], inner: Set[Op]
) -> list[list[Op]]:
    makers: dict[Value, Op] = {v: op for op in ops for v in op.results}
    live = _live(ops, used)
    names = {op for op in ops if op in inner or _is_name(op)}
    units: dict[Op, Unit] = {}
    for op in ops:
        if op in names or op not in live:
            continue
        kind, clocks, latency = clocks_of(op, target)
        unit = units[op] = Unit(op, len(units), kind, clocks, latency)
        for source in dict.fromkeys((*_sources(op, makers, names), *before.get(op, ()))):
            if source not in live:
                continue
            unit.needs.append(units[source])
            units[source].users.append(unit)
    for unit in reversed(units.values()):
        unit.way = unit.clocks + unit.latency + max((u.way for u in unit.users), default=0)
    slots = _slots(_Issue(list(units.values())).run(), makers, names)
    placed = {op for slot in slots for op in slot}
    slots[-1] += [op for op in ops if op in live and op in names and op not in placed]
    return slots


def fused(ops: Sequence[Op], used: Set[Value]) -> set[Op]:
    """Products that become one instruction with the sum that is all that uses them, unless the kernel forbids it."""
    users: dict[Value, list[Op]] = {}
    for op in ops:
        for v in op.operands:
            users.setdefault(v, []).append(op)
    return {
        op
        for op in ops
        if op.name == "mul"
        and op.result not in used
        and op.result.elem.is_float
        and [x.name for x in users.get(op.result, ())] in (["add"], ["sub"])
    }


def _is_name(op: Op) -> bool:
    """Whether an op stands right before the first that uses it: it names registers, or makes a mask, which takes scalar registers for
    as long as it waits."""
    if op.name in NAMES or not op.results:
        return True
    t = op.results[0].type
    return not isinstance(t, FragmentType) or t.elem.is_bool


def _live(ops: Sequence[Op], used: Set[Value]) -> set[Op]:
    """Ops that lead to something that is used."""
    needed = set(used)
    found: set[Op] = set()
    for op in reversed(ops):
        if any(v in needed for v in op.results):
            found.add(op)
            needed.update(op.operands)
    return found


def _sources(op: Op, makers: dict[Value, Op], names: set[Op]) -> list[Op]:
    """The issued ops that an op needs, looking through names."""
    found: dict[Op, None] = {}
    pending = list(op.operands)
    while pending:
        source = makers.get(pending.pop())
        if source is None:
            continue
        if source in names:
            pending += source.operands
        else:
            found[source] = None
    return list(found)


class _Issue:
    """A wave that issues units one after the other; times in clocks."""

    def __init__(self, units: list[Unit]):
        self.units = units
        self.there: dict[int, int] = {}  # by number of the unit: when its result can be used
        self.left = {u.number: len(u.needs) for u in units}
        self.ready: dict[str, list[Unit]] = {MATRIX: [], READ: [], VECTOR: []}
        self.time = self.pipe = self.products = 0
        for u in units:
            if not u.needs:
                self.ready[u.kind].append(u)
        ranks = sorted((u for u in units if u.kind == MATRIX), key=lambda u: (-u.way, u.number))
        rank = {u.number: i for i, u in enumerate(ranks)}
        # The first matrix instruction that uses what a read delivers, in the order of their ways to the end.
        self.first_use = {
            u.number: min((rank[x.number] for x in u.users if x.kind == MATRIX), default=0)
            for u in units
            if u.kind == READ
        }

    def run(self) -> list[Unit]:
        issued: list[Unit] = []
        while len(issued) < len(self.units):
            issued.append(self._issue(*self._next()))
        return issued

    def _earliest(self, u: Unit) -> int:
        return max((self.there[x.number] for x in u.needs), default=0)

    def _next(self) -> tuple[Unit, int]:
        """The unit to issue, and when."""
        matrix = [(max(self.time, self.pipe, self._earliest(u)), 1, -u.way, u.number, u) for u in self.ready[MATRIX]]
        following = min((m[0] for m in matrix), default=None)
        found = list(matrix)
        for u in self.ready[VECTOR]:
            start = max(self.time, self._earliest(u))
            if following is None or start + u.clocks <= following + ISSUE:  # no matrix instruction waits for it
                found.append((start, 2, -u.way, u.number, u))
        others = bool(found)
        for u in self.ready[READ]:
            if not others or self.first_use[u.number] < self.products + AHEAD:
                found.append((self.time, 0, self.first_use[u.number], u.number, u))
        if not found:  # only vector work that a matrix instruction would wait for
            found = [(max(self.time, self._earliest(u)), 2, -u.way, u.number, u) for u in self.ready[VECTOR]]
        best = min(found, key=lambda x: x[:4])
        return best[4], best[0]

    def _issue(self, u: Unit, start: int) -> Unit:
        self.ready[u.kind].remove(u)
        self.time = start + (u.clocks if u.kind == VECTOR else ISSUE)
        self.there[u.number] = self.time + u.latency
        if u.kind == MATRIX:
            self.products += 1
            self.pipe = start + u.clocks
            # An accumulator that the next instruction goes on with is passed on inside of the pipe.
            goes_on = any(x.kind == MATRIX and u.op.result is x.op.operands[2] for x in u.users)
            self.there[u.number] = self.pipe + (0 if goes_on else u.latency)
        for x in u.users:
            self.left[x.number] -= 1
            if not self.left[x.number]:
                self.ready[x.kind].append(x)
        return u


def _slots(issued: list[Unit], makers: dict[Value, Op], names: set[Op]) -> list[list[Op]]:
    """The ops that are issued, with what they need that is not, cut before each matrix instruction."""
    slots: list[list[Op]] = [[]]
    written: set[Op] = set()

    def put(op: Op) -> None:
        for v in op.operands:
            source = makers.get(v)
            if source is not None and source in names and source not in written:
                put(source)
        written.add(op)
        slots[-1].append(op)

    for unit in issued:
        if unit.kind == MATRIX and slots[-1]:
            slots.append([])
        put(unit.op)
    return slots
