"""How good the order of a loop of single instructions is: its clocks by the timing model against the bound (`issue_model`).

Reads the text as `pipeline-loops` leaves it: matrix instructions, reads and writes of LDS, copies, loads, waits and meetings of the waves, in
the order of the machine code. Data of copies and loads are taken to have come: the number of stages sees to that.
"""

from __future__ import annotations

from tileir.ir.core import Kernel, Op, Value
from tileir.ir.types import FragmentType
from tileir.passes.issue_model import COPY, MEETING, OTHER, READ, Machine, Need, Problem, Unit
from tileir.passes.order_ops import NAMES, clocks_between, unit_of
from tileir.passes.order_search import Solution, rated
from tileir.target import Target
from tileir.target.timing import timing_model

_FREE = (*NAMES, "schedule_fence", "yield")


def loop_problem(loop: Op, waves_per_simd: int, target: Target) -> Problem | None:
    """The body of a loop as a problem whose units have the order of the text; None where it holds anything but what the loops of products
    of `pipeline-loops` do. With `ping_pong` half of the waves of a SIMD are one meeting behind the others."""
    body, m = loop.regions[0], timing_model(target.name)
    turn = m.clocks("turn_clocks")
    ops: list[Op] = []
    units: list[Unit] = []
    in_m0: tuple[Value, int] | None = None
    for op in body.ops:
        unit = _unit(op, target)
        if unit is None:
            if op.regions or (op.name not in _FREE and not _is_scalar(op)):
                return None
            continue
        if unit.kind == COPY and op.name == "copy_async_part" and (target_of_copy := _target(op)) != in_m0:
            in_m0 = target_of_copy
            ops.append(op)
            units.append(Unit(OTHER, turn))
        ops.append(op)
        units.append(unit)
    if not any(op.name == "mfma" for op in ops):
        return None
    sources = _Sources(loop)
    last: dict[Op, int] = {op: i for i, op in enumerate(ops)}
    needs: list[tuple[Need, ...]] = []
    reads: list[int] = []
    for i, op in enumerate(ops):
        found: dict[tuple[int, int], int] = {}
        for v in op.operands if isinstance(op.result.type if op.results else None, FragmentType) else ():
            for source, distance in sources(v):
                j = last.get(source)
                if j is not None and (distance or j < i):
                    found[j, distance] = clocks_between(source, op, (units[j], units[i]), target)
        if op.name == "wait" and op.attrs.get("lgkm") == 0:
            found |= {(j, 0): 0 for j in reads}
            reads = []
        if units[i].kind == READ:
            reads.append(i)
        needs.append(tuple(Need(j, clocks, distance) for (j, distance), clocks in found.items()))
    # The loop's own instructions: its variable, the comparison, the branch.
    units += [Unit(OTHER, turn, 2), Unit(OTHER, turn, m.clocks("branch_taken_clocks") // turn)]
    needs += [(), ()]
    if waves_per_simd > 1 and not any(u.kind == MEETING for u in units):
        return None
    late = waves_per_simd // 2 if loop.attrs.get("pattern") == "ping_pong" else 0
    return Problem(tuple(units), tuple(needs), waves_per_simd, Machine.of(target), (), True, 4, late)


def _target(copy: Op) -> tuple[Value, int]:
    """What M0 must hold for an instruction of a direct copy: those with the same differ by the offset in the instruction."""
    part, together = copy.attrs["part"], copy.attrs.get("together", 1)
    assert isinstance(part, int) and isinstance(together, int)
    return copy.operands[-1], part // together


def _unit(op: Op, target: Target) -> Unit | None:
    m = timing_model(target.name)
    turn = m.clocks("turn_clocks")
    if op.name in ("mfma", "shared_load_fragment", "shared_load_transposed_fragment"):
        return unit_of(op, target)
    if op.name == "shared_store_fragment":
        t = op.operands[0].type
        moved = t.count * t.elem.bits // 8 if isinstance(t, FragmentType) else 0
        path = round(moved * target.wave_size / m.number("lds_return_bytes_per_clock"))
        return Unit(READ, turn, bank=_write_clocks(target, moved, False), path=path)
    if op.name in ("copy_async_part", "load_fragment"):
        direct = op.name == "copy_async_part"
        t = op.result.type if not direct else None
        moved = op.attrs["bytes"] if direct else t.count * t.elem.bits // 8 if isinstance(t, FragmentType) else 0
        assert isinstance(moved, int)
        dwords = max(1, -(-moved // target.register_bytes))
        busy = max(m.clocks("vmem_issue_clocks_min"), dwords * m.clocks("vmem_issue_clocks_per_dword"))
        return Unit(COPY, busy, bank=_write_clocks(target, moved, True) if direct else 0)
    if op.name in ("wait", "priority"):
        return Unit(OTHER, turn)
    return Unit(MEETING, turn) if op.name == "barrier" else None


def _write_clocks(target: Target, moved: int, direct: bool) -> int:
    """Clocks of the LDS for a write of so many bytes a lane, free of conflicts."""
    fitting = [
        len(a.lane_groups)
        for a in target.lds_accesses
        if a.direction == "write"
        and a.addresses_per_lane == 1
        and a.op.endswith("_lds") == direct
        and a.bytes_per_lane >= moved
    ]
    return min(fitting, default=1)


def _is_scalar(op: Op) -> bool:
    """Whether an op computes a scalar: addresses are prepared before the loop."""
    return bool(op.results) and not any(isinstance(v.type, FragmentType) for v in (*op.results, *op.operands))


class _Sources:
    """The ops that make what a value of a body is, through names and around the loop: with the number of iterations in between."""

    def __init__(self, loop: Op):
        body = loop.regions[0]
        self.carried = dict(zip(body.args[1:], body.terminator.operands, strict=True))
        self.inside = set(body.ops)

    def __call__(self, v: Value) -> list[tuple[Op, int]]:
        found: dict[tuple[Op, int], None] = {}
        pending, seen = [(v, 0)], {(v, 0)}
        while pending:
            v, distance = pending.pop()
            more: list[tuple[Value, int]] = []
            if v in self.carried:
                more = [(self.carried[v], distance + 1)] if distance < 2 else []
            elif v.owner is not None and v.owner in self.inside:
                if v.owner.name in NAMES:
                    more = [(x, distance) for x in v.owner.operands]
                else:
                    found[v.owner, distance] = None
            for entry in more:
                if entry not in seen:
                    seen.add(entry)
                    pending.append(entry)
        return list(found)


def rate(kernel: Kernel, target: Target) -> list[tuple[Op, Solution]]:
    """The innermost loops of single instructions of a kernel, with what is known of their order as it stands in the text."""
    waves = kernel.attrs["waves"]
    assert isinstance(waves, int)
    found: list[tuple[Op, Solution]] = []
    for loop in kernel.walk():
        if loop.name == "for":
            problem = loop_problem(loop, target.waves_per_simd(waves), target)
            if problem is not None:
                found.append((loop, rated(problem, range(len(problem.units)))))
    return found
