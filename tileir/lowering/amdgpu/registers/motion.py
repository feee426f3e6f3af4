"""What LLVM moves before registers are placed: values are computed once, what loops repeat without change comes before them, and in kernels
without matrix instructions, for which the scheduler runs, loads come early."""

from __future__ import annotations

import re

from tileir.lowering.amdgpu.registers.liveness import liveness, profile, row_of
from tileir.lowering.amdgpu.registers.select import SCALAR_CONSTANT
from tileir.lowering.amdgpu.registers.text import EFFECTS, Block, Function, Instruction
from tileir.lowering.amdgpu.registers.values import VECTOR, Registers

# Not moved and not shared: what touches memory, and what depends on which lanes are active.
_STAY = (*EFFECTS, "llvm.load", "rocdl.", "amdgpu.", "llvm.inline_asm")
_NAMES = re.compile(r"%\w+")


def loops(function: Function) -> list[tuple[Block, set[str]]]:
    """Natural loops, outer ones first: the header and the labels of all blocks."""
    before: dict[str, list[str]] = {}
    for b in function.blocks:
        for label, _ in b.targets:
            before.setdefault(label, []).append(b.label)
    found: dict[str, set[str]] = {}
    for b in function.blocks:
        for label, _ in b.targets:
            header = function.by_label[label]
            if header.number > b.number:
                continue
            body, work = found.setdefault(label, {label}), [b.label]
            while work:
                at = work.pop()
                if at not in body:
                    body.add(at)
                    work += before.get(at, [])
    order = sorted(found.items(), key=lambda x: -len(x[1]))
    return [(function.by_label[label], body) for label, body in order]


def hoist(function: Function, limit: int) -> None:
    """Moves what loops repeat without change behind the last instruction before the loop, as long as fewer than `limit` vector
    registers are alive where it stands (MachineLICM: CanCauseHighRegPressure)."""
    registers = Registers(function)
    alive = _alive(function, registers)
    for header, body in loops(function):
        entries = [b for b in function.blocks if b.label not in body and any(t == header.label for t, _ in b.targets)]
        if len(entries) != 1:
            continue
        inside = [b for b in function.blocks if b.label in body]
        changing = {name for b in inside for name, _ in b.args}
        more = 0
        for b in inside:
            stay: list[Instruction] = []
            for i in b.instructions:
                moved = i.result and not i.op.startswith(_STAY) and not any(v in changing for v in i.operands)
                row = row_of(i, registers)[1] if moved else []
                width = sum(registers.file[d] == VECTOR for d in row)
                if not moved or (width and alive[i] + more + width >= limit):
                    stay.append(i)
                    if i.result:
                        changing.add(i.result)
                else:
                    more += width
                    entries[0].instructions.insert(len(entries[0].instructions) - 1, i)
                    i.block = entries[0].number
            b.instructions = stay


def _alive(function: Function, registers: Registers) -> dict[Instruction, int]:
    """Vector registers alive at each instruction."""
    live = liveness(function, registers)
    counts = profile(live, registers, VECTOR)
    return {p.instruction: counts[p.write] for p in live.points}


# What loads do not pass: the scheduler keeps barriers and fences, and what may write to the memory that is read.
_WALLS = ("rocdl.s.", "rocdl.sched", "llvm.fence", "llvm.atomicrmw", "llvm.cmpxchg", "llvm.call_intrinsic")


def early_loads(function: Function) -> None:
    """Puts loads from memory, with all that they need, before the rest of their stretch of a block, as LLVM's scheduler does to
    hide their latency (GCNMaxOccupancySchedStrategy)."""
    for b in function.blocks:
        order: list[Instruction] = []
        stretch: list[Instruction] = []
        for i in (*b.instructions, None):
            if i is not None and not i.op.startswith(_WALLS):
                stretch.append(i)
                continue
            order += _loads_first(stretch)
            stretch = []
            if i is not None:
                order.append(i)
        b.instructions = order


def _loads_first(stretch: list[Instruction]) -> list[Instruction]:
    made = {i.result: i for i in stretch if i.result}
    wanted: set[Instruction] = set()
    work = [
        i
        for i in stretch
        if i.op == "rocdl.raw.ptr.buffer.load" or (i.op == "llvm.load" and "!llvm.ptr<3>" not in i.text)
    ]
    while work:
        i = work.pop()
        if i not in wanted:
            wanted.add(i)
            work += [made[v] for v in i.operands if v in made]
    return [i for i in stretch if i in wanted] + [i for i in stretch if i not in wanted]


def share(function: Function) -> None:
    """Lets a value be computed once wherever its first computation is passed before (MachineCSE)."""
    same: dict[str, str] = {}
    under: dict[int, list[Block]] = {}
    for b in function.blocks[1:]:
        under.setdefault(_dominator(function, b), []).append(b)

    def visit(b: Block, known: dict[str, str]) -> None:
        known = dict(known)
        kept: list[Instruction] = []
        for i in b.instructions:
            i.operands = [same.get(v, v) for v in i.operands]
            if i.result and not i.op.startswith(_STAY):
                key = _NAMES.sub(lambda m: same.get(m[0], m[0]), i.text)
                if i.op == SCALAR_CONSTANT and i.type is not None and i.type.dwords == 1:  # a move: only within a block
                    key = f"{i.block} {key}"
                if key in known:
                    same[i.result] = known[key]
                    continue
                known[key] = i.result
            kept.append(i)
        b.instructions = kept
        for inner in under.get(b.number, []):
            visit(inner, known)

    visit(function.blocks[0], {})
    for b in function.blocks:  # a jump back hands over what is computed behind its target
        for i in b.instructions:
            i.operands = [same.get(v, v) for v in i.operands]
        b.targets = [(label, [same.get(v, v) for v in values]) for label, values in b.targets]
    function.incoming.clear()
    for b in function.blocks:
        for label, values in b.targets:
            function.incoming.setdefault(label, []).append(values)


def _dominator(function: Function, block: Block) -> int:
    """The number of the block that every way to `block` passes last."""
    return _dominators(function)[block.number]


def _dominators(function: Function) -> list[int]:
    """Immediate dominators by block number (Cooper, Harvey and Kennedy, A Simple, Fast Dominance Algorithm)."""
    if function.dominators:
        return function.dominators
    before: list[list[int]] = [[] for _ in function.blocks]
    for b in function.blocks:
        for label, _ in b.targets:
            before[function.by_label[label].number].append(b.number)
    order = _postorder(function)
    rank = {n: i for i, n in enumerate(order)}
    found = [-1] * len(function.blocks)
    found[0] = 0
    changed = True
    while changed:
        changed = False
        for n in reversed(order[:-1]):
            at = -1
            for p in before[n]:
                if found[p] < 0:
                    continue
                if at < 0:
                    at = p
                    continue
                while at != p:
                    while rank[at] < rank[p]:
                        at = found[at]
                    while rank[p] < rank[at]:
                        p = found[p]
            if at != found[n]:
                found[n], changed = at, True
    function.dominators = found
    return found


def _postorder(function: Function) -> list[int]:
    order: list[int] = []
    seen = {0}
    stack = [(0, iter(function.blocks[0].targets))]
    while stack:
        n, targets = stack[-1]
        for label, _ in targets:
            t = function.by_label[label].number
            if t not in seen:
                seen.add(t)
                stack.append((t, iter(function.blocks[t].targets)))
                break
        else:
            order.append(n)
            stack.pop()
    return order
