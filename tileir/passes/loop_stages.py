"""Loops with staged buffers: what is copied, loaded, stored and computed in them, and whether that may happen ahead of its turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from tileir.ir.core import Block, Kernel, Op, Value
from tileir.ir.diagnostics import CompileError, Note, error
from tileir.ir.registry import get
from tileir.passes.hazards import Memory
from tileir.passes.scaled_products import FIRST_SCALE, scale_source
from tileir.records import dataclass

MOST_DEPTH = 4  # stages that a loop gets by itself, and that a schedule may ask for


@dataclass
class Plan:
    """A loop to pipeline. All lists are in program order."""

    loop: Op
    depth: int
    copies: list[Op] = field(default_factory=list[Op])  # direct copies into staged buffers
    loads: list[Op] = field(default_factory=list[Op])  # loads of what goes through registers
    turns: list[Op] = field(default_factory=list[Op])  # what happens to it between load and store
    stores: list[Op] = field(default_factory=list[Op])
    addresses: list[Op] = field(default_factory=list[Op])  # what the addresses of copies and loads are computed by
    scales: list[Op] = field(
        default_factory=list[Op]
    )  # loads of scales of products, which may come ahead of their turn

    @property
    def body(self) -> Block:
        return self.loop.regions[0]

    @property
    def tiles(self) -> int:
        """Tiles of one trip of the pipelined loop."""
        if self.copies:
            return self.depth
        return max(1, self.depth - 1)

    @property
    def held(self) -> int:
        """Tiles in LDS ahead of the one being computed, of those that go through registers; one more is in registers."""
        return self.depth - 2

    def stages(self, op: Op) -> int:
        """LDS buffers that take turns for the buffer of a copy or store."""
        if op in self.copies:
            return self.depth
        return 1 if self.held == 0 else self.tiles

    @property
    def consumers(self) -> list[Op]:
        """The rest of the body: what computes."""
        gone = {*self.copies, *self.loads, *self.turns, *self.stores}
        return [op for op in self.body.ops[:-1] if op not in gone]


def depth_of(alloc: Op) -> int:
    """Stages asked for a buffer, 0 where that is open."""
    depth = alloc.attrs.get("depth", 0)
    assert isinstance(depth, int)
    return depth


Depth = Callable[[Op], int]


def allocation(buffer: Value) -> Op | None:
    return buffer.owner if buffer.owner is not None and buffer.owner.name == "shared_alloc" else None


def is_ordered(loop: Op) -> bool:
    """Whether the text asks for an order of single instructions."""
    return loop.attrs.get("pattern", "") not in ("", "plain")


def plan(loop: Op, kernel: Kernel, memory: Memory, depth: Depth = depth_of) -> Plan | None:
    """How to pipeline a loop with so many stages by allocation, None if none of its buffers has any. Raises CompileError where it
    cannot be."""
    stages = {
        op: (alloc, depth(alloc))
        for op in loop.regions[0].ops
        if op.name in ("copy_async", "shared_store") and (alloc := allocation(op.operands[-1])) is not None
    }
    fills = [(op, alloc) for op, (alloc, count) in stages.items() if count > 1 or (count == 1 and is_ordered(loop))]
    if not fills:
        return None
    plan = Plan(loop, max(2, *(stages[op][1] for op, _ in fills)))
    for op, _ in fills:
        if stages[op][1] == 1 and op.name == "copy_async":
            raise error(
                "E0606",
                "the order of this loop needs two buffers for what is copied directly, and one is asked for",
                op.loc,
                legal="depth 2 to 4, via_registers, or pattern plain",
                notes=[Note("the loop", loop.loc)],
            )
    position = {op: i for i, op in enumerate(plan.body.ops)}
    addresses: set[Op] = set()
    for op, alloc in fills:
        _check_buffer(plan, op, alloc, kernel, position)
        if op.name == "copy_async":
            plan.copies.append(op)
            _collect(plan, op, op.operands[:-1], addresses, position)
        else:
            plan.stores.append(op)
            _trace_back(plan, op, addresses, position)
    for op in plan.body.ops:
        if op.name in ("wait", "barrier"):
            raise _refused(plan, op, f"the loop has a '{op.name}' of its own")
    for op in (*plan.copies, *plan.loads):
        _check_view(plan, op, memory)
    _add_scales(plan, addresses, position, memory)
    plan.addresses = sorted(addresses, key=lambda op: position[op])
    plan.loads.sort(key=lambda op: position[op])
    plan.turns.sort(key=lambda op: position[op])
    return plan


def _add_scales(plan: Plan, addresses: set[Op], position: dict[Op, int], memory: Memory) -> None:
    """The loads of scales, if all of them may come ahead of their turn. They stay where they are in a loop that is written tile by
    tile."""
    products = (op for op in plan.body.ops if op.name == "mma")
    sources = [scale_source(v) for op in products for v in op.operands[FIRST_SCALE:]]
    loads = list(dict.fromkeys(op for op in sources if op is not None and op in position))
    found = set(addresses)
    try:
        for op in loads:
            _collect(plan, op, op.operands, found, position)
            _check_view(plan, op, memory)
    except CompileError:
        return
    addresses |= found
    plan.scales = loads


def _check_buffer(plan: Plan, fill: Op, alloc: Op, kernel: Kernel, position: dict[Op, int]) -> None:
    """The buffer is filled once per iteration, before it is read, and used nowhere else."""
    if alloc in position:
        raise _refused(plan, fill, f"%{alloc.result.name} is allocated inside the loop")
    inside = {op for op in plan.loop.walk() if alloc.result in op.operands}
    everywhere = {op for op in kernel.walk() if alloc.result in op.operands}
    if everywhere - inside:
        raise _refused(plan, fill, f"%{alloc.result.name} is used outside of the loop")
    for op in inside - {fill}:
        if op.name not in ("shared_load", "shared_load_transposed"):
            raise _refused(plan, fill, f"%{alloc.result.name} is filled more than once")
        top = next(o for o in plan.body.ops if any(i is op for i in o.walk()))
        if position[top] < position[fill]:
            raise _refused(plan, fill, f"%{alloc.result.name} is read before it is filled")


def _collect(plan: Plan, op: Op, values: list[Value], found: set[Op], position: dict[Op, int]) -> None:
    """The ops of the body that compute these values, which must depend on the loop's variable alone."""
    pending = list(values)
    while pending:
        v = pending.pop()
        if v in plan.body.args[1:]:
            raise _refused(plan, op, f"its address depends on %{v.name}, which the loop carries")
        owner = v.owner
        if owner is None or owner not in position or owner in found:
            continue
        if not get(owner.name).is_pure or owner.regions:
            raise _refused(plan, op, f"its address depends on '{owner.name}' inside the loop")
        found.add(owner)
        pending += owner.operands


def _trace_back(plan: Plan, store: Op, addresses: set[Op], position: dict[Op, int]) -> None:
    """The loads that a stored tile comes from, and what is done to it on the way."""
    pending = [store.operands[0]]
    while pending:
        v = pending.pop()
        owner = v.owner
        if owner is None or owner not in position:
            continue  # known before the loop
        if owner in plan.loads or owner in plan.turns:
            continue
        if owner.name == "load":
            plan.loads.append(owner)
            _collect(plan, owner, owner.operands, addresses, position)
        elif get(owner.name).is_pure and not owner.regions and v not in plan.body.args:
            plan.turns.append(owner)
            pending += owner.operands
        else:
            raise _refused(plan, store, f"what is stored depends on '{owner.name}' inside the loop")
        if v in plan.body.args:
            raise _refused(plan, store, f"what is stored depends on %{v.name}, which the loop carries")


def _check_view(plan: Plan, op: Op, memory: Memory) -> None:
    """The loop must not write what is read ahead of its turn: in an earlier iteration, or earlier in the same one."""
    inside = list(plan.loop.walk())
    position = {o: i for i, o in enumerate(inside)}
    for read in memory.of(op):
        if read.in_lds:
            continue
        for other in inside:
            for access in memory.of(other):
                if not access.writes or access.in_lds:
                    continue
                meets = memory.ordered(access, read, frozenset({plan.loop}))
                if position[other] < position[op]:
                    meets = meets or memory.ordered(access, read)
                if meets:
                    raise _refused(plan, op, f"the loop writes %{read.place.name}", [Note("the write", other.loc)])


def _refused(plan: Plan, op: Op, why: str, notes: list[Note] | None = None) -> CompileError:
    return error(
        "E0606",
        f"this loop cannot have {plan.depth} stages: {why}",
        op.loc,
        legal="depth 1, or a loop that only reads what it stages, at places that its variable gives",
        notes=[*(notes or []), Note("the loop", plan.loop.loc)],
    )


def plans(kernel: Kernel) -> dict[Op, Plan]:
    """The loops to pipeline: where loops are nested, the innermost that has staged buffers."""
    memory = Memory(kernel)
    found: dict[Op, Plan] = {}
    for op in reversed(list(kernel.walk())):
        if op.name == "for" and not any(inner in found for inner in op.walk()):
            made = plan(op, kernel, memory)
            if made is not None:
                found[op] = made
    return found
