"""The order of the ops of a straight piece of a loop: matrix instructions never wait for what could have been computed under them.

Ops on fragments become units of a `Problem` with what they need of each other, what they occupy (docs/timing.md), and the registers
that they hold; `order_search` puts them in order, and says how far that is from the best order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from tileir.ir.core import Op, Value
from tileir.ir.types import F32, FragmentType
from tileir.passes.issue_model import MATRIX, OTHER, READ, VECTOR, Held, Machine, Need, Problem, Unit
from tileir.passes.mma_cost import REGISTER_BITS, TRANSCENDENTAL
from tileir.passes.order_search import Solution, solve
from tileir.records import dataclass
from tileir.target import Target, packs_under_products
from tileir.target.timing import timing_model

SHORTEST = 16  # clocks of the shortest matrix instructions
NAMES = ("slice_fragment", "join_fragments", "split_registers", "register_map", "constant", "fill")
READS = ("shared_load_fragment", "shared_load_transposed_fragment")
PACKED = ("add", "sub", "mul", "fma")  # one instruction for two f32, where that may stand under matrix instructions


def instruction_clocks(op: Op, target: Target) -> int:
    """Clocks of the matrix instruction of an `mfma`, or of each of an `mma`."""
    a, b = (v.elem.name for v in op.operands[:2])
    fitting = [i for i in target.mfmas_for(a, b, op.result.elem.name) if (i.m, i.n, i.k) == op.attrs.get("instr")]
    return target.mfma_clocks(fitting[0], a, b) if fitting else SHORTEST


def unit_of(op: Op, target: Target) -> Unit:
    """What an op on fragments occupies."""
    m = timing_model(target.name)
    turn = m.clocks("turn_clocks")
    if op.name == "mfma":
        return Unit(MATRIX, instruction_clocks(op, target))
    t = op.results[0].type if op.results else None
    n = t.count if isinstance(t, FragmentType) else 1
    if op.name in READS and isinstance(t, FragmentType):
        moved = n * t.elem.bits // 8
        path = round(moved * target.wave_size / m.number("lds_return_bytes_per_clock"))
        return Unit(READ, turn, bank=_lds_clocks(target, moved, op.name == READS[1]), path=path)
    if op.name == "fold_fragment":
        x = op.operands[1].type
        n = x.count if isinstance(x, FragmentType) else 1
        return Unit(VECTOR, turn, max(1, n if op.attrs["kind"] == "add" and not op.attrs.get("flush") else n // 2))
    if op.name == "swap_fragments" and isinstance(t, FragmentType):
        registers = max(1, t.count * t.elem.bits // REGISTER_BITS)
        return Unit(VECTOR, m.clocks("permlane_swap_clocks"), registers)
    if op.name in TRANSCENDENTAL:
        return Unit(VECTOR, m.clocks("transcendental_clocks"), n)
    if op.name == "convert" and t is not None and t.elem.bits == 16:
        packed = target.supports("bf16_packed_convert") or t.elem.name == "f16"
        return Unit(VECTOR, turn, max(1, n // 2 if packed else 4 * n))
    if op.name in PACKED and n > 1 and t is not None and t.elem is F32 and packs_under_products(target.name):
        return Unit(VECTOR, turn, n // 2)
    return Unit(VECTOR, turn, n) if t is not None else Unit(OTHER, turn)


def _lds_clocks(target: Target, moved: int, transposed: bool) -> int:
    """Clocks of the LDS for a read of so many bytes a lane, free of conflicts: one for each group of lanes."""
    fitting = [
        len(a.lane_groups)
        for a in target.lds_accesses
        if a.direction == "read"
        and a.addresses_per_lane == 1
        and ("_tr_" in a.op) == transposed
        and a.bytes_per_lane >= moved
    ]
    return min(fitting, default=1)


def clocks_between(source: Op, user: Op, units: tuple[Unit, Unit], target: Target) -> int:
    """Clocks from the start of an op – of a read from its arrival – until another may use its result."""
    m = timing_model(target.name)
    first, second = units
    turn = m.clocks("turn_clocks")
    if first.kind == READ:
        return 0
    if first.kind == MATRIX:
        if second.kind == MATRIX and len(user.operands) > 2 and user.operands[2] is source.result:
            return first.busy  # an accumulator that goes on is passed on inside of the pipe
        passes = first.busy // target.mfma_pass_clocks
        extra = m.clocks("mfma_result_surcharge_passes") if passes > 2 else 0
        return (passes + int(m.table("mfma_result_extra_passes")["xdl"]) + extra + 1) * turn
    last = (first.count - 1) * first.busy
    if second.kind == MATRIX:
        return last + max(first.busy, (m.clocks("valu_to_mfma_wait_states") + 1) * turn)
    return last + first.busy


@dataclass(frozen=True)
class Ordered:
    """Ops in order, in slots that begin with a matrix instruction – but for what comes before the first –, and what is known of it; `new`
    where it was not known before."""

    slots: list[list[Op]]
    solution: Solution
    new: bool


Known = dict[object, tuple[list[list[int]], Solution]]
"""Orders that were found already, by what `_key` says of the ops: slots of numbers of ops."""


def order(
    ops: Sequence[Op],
    used: Set[Value],
    ending: Set[Value],
    waves: int,
    target: Target,
    known: Known,
    before: Mapping[Op, Sequence[Op]] | None = None,
    inner: Set[Op] = frozenset(),
) -> Ordered:
    """The ops that lead to what is `used` behind them, in their order; `ending` are values from before them that nothing else uses.
    `waves` share a SIMD. Ops that only name registers, and masks, stand before the first op that uses them. Runs that are alike – the
    iterations in one trip of a pipelined loop – get one order, whatever ends in them. `before` are, of some ops, others that have to stand before them;
    `inner` are computed within the ops that use them (`fused`)."""
    number = {op: i for i, op in enumerate(ops)}
    before = before or {}
    key = (
        _key(ops, used),
        tuple((number[op], tuple(number[x] for x in others)) for op, others in before.items()),
    )
    new = key not in known
    if new:
        slots, solution = _ordered(ops, used, ending, waves, target, before, inner)
        known[key] = [[number[op] for op in slot] for slot in slots], solution
    numbers, solution = known[key]
    return Ordered([[ops[i] for i in slot] for slot in numbers], solution, new)


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
    ops: Sequence[Op],
    used: Set[Value],
    ending: Set[Value],
    waves: int,
    target: Target,
    before: Mapping[Op, Sequence[Op]],
    inner: Set[Op],
) -> tuple[list[list[Op]], Solution]:
    makers: dict[Value, Op] = {v: op for op in ops for v in op.results}
    live = _live(ops, used)
    names = {op for op in ops if op in inner or _is_name(op)}
    issued = [op for op in ops if op not in names and op in live]
    units = [unit_of(op, target) for op in issued]
    number = {op: i for i, op in enumerate(issued)}
    needs: list[tuple[Need, ...]] = []
    for i, op in enumerate(issued):
        found: dict[int, int] = {}
        for source in before.get(op, ()):
            if source in number:
                found[number[source]] = 0
        for source in _sources(op, makers, names):
            j = number[source]
            found[j] = clocks_between(source, op, (units[j], units[i]), target)
        needs.append(tuple(Need(j, clocks) for j, clocks in found.items()))
    held = _held(issued, used, ending, makers, names)
    solution = solve(Problem(tuple(units), tuple(needs), waves, Machine.of(target), held))
    slots = _slots([issued[i] for i in solution.order], makers, names)
    placed = {op for slot in slots for op in slot}
    slots[-1] += [op for op in ops if op in live and op in names and op not in placed]
    return slots, solution


def _held(
    issued: list[Op], used: Set[Value], ending: Set[Value], makers: dict[Value, Op], names: set[Op]
) -> tuple[Held, ...]:
    """The values that hold registers: each until the last of those that use it, under whatever name."""
    number = {op: i for i, op in enumerate(issued)}
    users: dict[Value, set[int]] = {}
    for i, op in enumerate(issued):
        for v in _roots(op.operands, makers, names):
            users.setdefault(v, set()).add(i)
    behind = set(_roots(tuple(used), makers, names))
    held: list[Held] = []
    for v in dict.fromkeys([*(v for op in issued for v in op.results), *users]):
        maker = number.get(makers[v], -1) if v in makers else -1
        if not isinstance(v.type, FragmentType) or (maker < 0 and not _ends(v, ending, makers)):
            continue
        held.append(Held(v.type.registers, maker, tuple(sorted(users.get(v, ()))), v in behind))
    return tuple(held)


def _ends(v: Value, ending: Set[Value], makers: dict[Value, Op]) -> bool:
    """Whether a fragment from before the ops is of a value that nothing else uses."""
    source = makers.get(v)
    return v in ending or (
        source is not None and source.name == "split_registers" and all(x in ending for x in source.operands)
    )


def _roots(values: Sequence[Value], makers: dict[Value, Op], names: set[Op]) -> list[Value]:
    """The fragments that values are made of: results of ops that are issued, and of those that cut a tile into fragments."""
    found: dict[Value, None] = {}
    pending = list(values)
    while pending:
        v = pending.pop()
        source = makers.get(v)
        if source is not None and source in names and source.name != "split_registers":
            pending += source.operands
        else:
            found[v] = None
    return list(found)


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


def _slots(issued: list[Op], makers: dict[Value, Op], names: set[Op]) -> list[list[Op]]:
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

    for op in issued:
        if op.name == "mfma" and slots[-1]:
            slots.append([])
        put(op)
    return slots
