"""When registers are alive: sets of points of the program as bits of integers.

Every instruction has two points, one where it reads and one where it writes, in the order in which the function has them now (see `motion`).
"""

from __future__ import annotations

from dataclasses import field
from itertools import accumulate

from tileir.lowering.amdgpu.registers.text import Block, Function, Instruction
from tileir.lowering.amdgpu.registers.values import Registers
from tileir.records import dataclass


@dataclass(frozen=True)
class Point:
    """An instruction with the points where it reads and writes."""

    instruction: Instruction
    read: int
    write: int


@dataclass
class Liveness:
    """`bits[n]` are the points at which register n is alive; `points` the instructions in order, `spans`
    the first and last point of each block."""

    bits: dict[int, int] = field(default_factory=dict[int, int])
    points: list[Point] = field(default_factory=list[Point])
    spans: dict[str, tuple[int, int]] = field(default_factory=dict[str, "tuple[int, int]"])
    count: int = 0


def liveness(function: Function, registers: Registers) -> Liveness:
    """Points at which each register is alive."""
    rows = {b.label: [row_of(i, registers) for i in b.instructions] for b in function.blocks}
    handed = {b.label: _handed(function, b, registers) for b in function.blocks}
    args = {b.label: _args(function, b, registers) for b in function.blocks}
    entry = function.blocks[0].label
    args[entry] |= {d for name, _ in function.params for d in registers.of[name] if d is not None}
    outs = _flow(function, rows, handed, args)
    live = Liveness()
    spans: dict[int, list[tuple[int, int]]] = {}
    for b in function.blocks:
        first = live.count
        last = first + 2 * len(b.instructions) + 1
        live.spans[b.label] = (first, last)
        open_at = dict.fromkeys(outs[b.label], last)
        at = last
        for i, (uses, makes) in zip(reversed(b.instructions), reversed(rows[b.label]), strict=True):
            write, read = at - 1, at - 2
            at = read
            live.points.append(Point(i, read, write))
            for d in makes:
                spans.setdefault(d, []).append((write, open_at.pop(d, write)))
            for d in uses:
                open_at.setdefault(d, read)
        for d, end in open_at.items():
            spans.setdefault(d, []).append((first, end))
        live.points[len(live.points) - len(b.instructions) :] = reversed(
            live.points[len(live.points) - len(b.instructions) :]
        )
        live.count = last + 1
    live.bits = {d: _bits(pairs) for d, pairs in spans.items()}
    return live


def profile(live: Liveness, registers: Registers, file: str) -> list[int]:
    """How many registers of a file are alive at each point."""
    changes = [0] * (live.count + 1)
    for d, bits in live.bits.items():
        if registers.file[d] != file:
            continue
        at = 0
        while bits:
            skip = (bits & -bits).bit_length() - 1
            bits >>= skip
            run = (~bits & (bits + 1)).bit_length() - 1
            changes[at + skip] += 1
            changes[at + skip + run] -= 1
            bits >>= run
            at += skip + run
    return list(accumulate(changes))


def _bits(pairs: list[tuple[int, int]]) -> int:
    total = 0
    for first, last in pairs:
        total |= ((1 << (last - first + 1)) - 1) << first
    return total


def row_of(i: Instruction, registers: Registers) -> tuple[set[int], list[int]]:
    """Registers read and written; none where the result is the operand's registers."""
    uses = {d for v in i.operands for d in registers.of.get(v, ()) if d is not None}
    result = [d for d in registers.of.get(i.result, ()) if d is not None] if i.result else []
    makes = [d for d in result if d not in uses]
    if result and not makes:
        return set(), []
    return uses, makes


def _args(function: Function, b: Block, registers: Registers) -> set[int]:
    return {d for name, _ in b.args if name in function.needed for d in registers.of[name] if d is not None}


def _handed(function: Function, b: Block, registers: Registers) -> set[int]:
    found: set[int] = set()
    for label, values in b.targets:
        for (name, _), v in zip(function.by_label[label].args, values, strict=True):
            if name in function.needed:
                found.update(d for d in registers.of.get(v, ()) if d is not None)
    return found


def _flow(
    function: Function,
    rows: dict[str, list[tuple[set[int], list[int]]]],
    handed: dict[str, set[int]],
    args: dict[str, set[int]],
) -> dict[str, set[int]]:
    """Registers alive behind each block."""
    used: dict[str, set[int]] = {}
    made: dict[str, set[int]] = {}
    for b in function.blocks:
        uses, makes = set[int](), set(args[b.label])
        for u, m in rows[b.label]:
            uses |= u - makes
            makes.update(m)
        used[b.label], made[b.label] = uses, makes
    ins = {b.label: set[int]() for b in function.blocks}
    outs = {b.label: set(handed[b.label]) for b in function.blocks}
    changed = True
    while changed:
        changed = False
        for b in reversed(function.blocks):
            for label, _ in b.targets:
                outs[b.label] |= ins[label]
            new = used[b.label] | (outs[b.label] - made[b.label])
            if new != ins[b.label]:
                ins[b.label], changed = new, True
    return outs
