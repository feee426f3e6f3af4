"""What checking adds to a translated program, kept with it: ops that log their accesses and ops that test registers."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from tileir.records import dataclass
from tileir.simulator.checks import dataflow
from tileir.simulator.decoder import Instruction
from tileir.simulator.engine import Engine
from tileir.simulator.native import check_state as c
from tileir.simulator.native.access import logged
from tileir.simulator.native.checked import checked, fenced
from tileir.simulator.program import Program
from tileir.simulator.records import Records

READ, WRITE, ATOMIC = c.READ, c.WRITE, c.ATOMIC
VERBS = {READ: "reads", WRITE: "writes", ATOMIC: "updates"}
_QUEUE = {"ds": c.QUEUE_LGKM, "smem": c.QUEUE_SMEM, "flat": c.QUEUE_FLAT}
_LOGGED = ("ds", "mubuf", "mtbuf", "global", "flat", "smem")
"""Encodings of the instructions that access LDS or device memory."""
FENCES = ("buffer_wbl2", "buffer_inv")
_MOST_NUMBERED = c.RECORD_MASK - 1
DWORD = 4  # bytes of an instruction word


def to_lds(inst: Instruction) -> bool:
    return bool(inst.modifiers.get("lds", 0)) or "_load_lds_" in inst.name


def coherent(inst: Instruction) -> bool:
    """Vector accesses that bypass caches of some level: how atomic loads and stores look in machine code.
    [LLVM AMDGPUUsage, "Memory Model gfx942": sc0 for workgroups, sc1 for the agent, both for the system]"""
    return bool(inst.modifiers.get("sc0", 0) or inst.modifiers.get("sc1", 0)) and not to_lds(inst)


def uses(inst: Instruction) -> tuple[int, int]:
    """READ, WRITE or ATOMIC (which includes coherent accesses): what an instruction does to LDS and to device memory."""
    name = inst.name
    if to_lds(inst):
        return WRITE, READ
    if inst.encoding == "ds":
        kind = READ if name.startswith("ds_read") else WRITE if name.startswith("ds_write") else ATOMIC
        return kind, kind
    if "_atomic_" in name or (inst.encoding != "smem" and coherent(inst)):
        return ATOMIC, ATOMIC
    kind = WRITE if "_store_" in name else READ
    return kind, kind


def is_logged(inst: Instruction | None) -> bool:
    return inst is not None and (inst.encoding in _LOGGED or "_load_lds_" in inst.name)


def returns_value(inst: Instruction) -> bool:
    """Whether an atomic operation gives the previous value, or a coherent load gives one."""
    if inst.encoding == "ds":
        return "_rtn_" in inst.name
    return bool(inst.modifiers.get("sc0", 0)) if "_atomic_" in inst.name else "_load_" in inst.name


def orders_through(instructions: Sequence[Instruction | None], space: int) -> bool:
    """Whether a wave can learn from another through LDS (0) or device memory (1): some atomic access gives it a value."""
    for inst in instructions:
        if inst is None or not is_logged(inst) or (inst.encoding == "ds") != (space == 0):
            continue
        if uses(inst)[space] == ATOMIC and returns_value(inst):
            return True
    return False


def _place(inst: Instruction, swaps: bool) -> tuple[object, ...]:
    """The operands and offset that make the address of a memory instruction."""
    first = 1 if not swaps or returns_value(inst) or inst.encoding in ("mubuf", "mtbuf") else 0
    operands = list(inst.operands[first:])
    if swaps and inst.encoding not in ("mubuf", "mtbuf"):
        del operands[1 : 2 if inst.encoding != "ds" else None]
    return (inst.encoding, *((o.kind, o.index, o.name) for o in operands), inst.modifiers.get("offset", 0))


def feeds_swap(instructions: Sequence[Instruction | None]) -> set[int]:
    """Loads that only fetch the first guess of a compare-and-swap at the same address.

    LLVM expands atomic operations that the hardware does not have into such loops, with a plain load before them; a
    stale value only costs a round of the loop. Register numbers alone do not tell that two addresses are the same: the
    swap is the next access to that place, and a branch behind it leads back to between the two.
    """
    found: set[int] = set()
    last: dict[tuple[object, ...], int] = {}  # the last load from a place
    for i, inst in enumerate(instructions):
        if inst is None or not is_logged(inst):
            continue
        if "_load_dword" in inst.name or inst.name.startswith("ds_read_b"):
            last[_place(inst, False)] = i
        elif "cmpswap" in inst.name or "cmpst" in inst.name:
            load = last.pop(_place(inst, True), None)
            near = load is not None and i - load <= _NEAR and _branches(instructions, i)
            if load is not None and (near or _leads_back(instructions, i, load)):
                found.add(load)
    return found


_NEAR = 12
"""Instructions between a load and a swap of the same place within which the load is taken for the first guess if any branch follows:
clang jumps round the loop by ways that are not followed here."""
_LOOP_END = 32
"""Instructions behind a compare-and-swap within which LLVM's loop around it ends (comparison, masks, branch)."""


def _branches(instructions: Sequence[Instruction | None], swap: int) -> bool:
    """Whether there is a branch soon behind the swap."""
    behind = instructions[swap + 1 : swap + 1 + _LOOP_END]
    return any(inst is not None and inst.name.startswith(("s_cbranch_", "s_branch")) for inst in behind)


def _leads_back(instructions: Sequence[Instruction | None], swap: int, load: int) -> bool:
    """Whether a branch soon behind the swap goes to a place between the load and the swap."""
    since = 0  # bytes from the end of the load
    starts: list[int] = []
    for inst in instructions[load + 1 : swap + 1 + _LOOP_END]:
        starts.append(since)
        since += inst.size if inst is not None else DWORD
    for start, inst in zip(starts[swap - load :], instructions[swap + 1 :], strict=False):
        if inst is not None and len(inst.operands) == 1 and inst.name.startswith(("s_cbranch_", "s_branch")):
            target = start + inst.size + inst.operands[0].index
            if 0 <= target <= starts[swap - load - 1]:
                return True
    return False


@dataclass
class Plan:
    """Records with checks. numbered: record of each memory instruction, by its number less 1. ops: table for native
    code. table, items: register checks. syncs: whether waves can learn from each other through memory."""

    records: Records
    numbered: list[int]
    ops: bytearray
    table: bytes
    items: list[int]
    syncs: bool

    def queue(self, inst: Instruction) -> int:
        """The queue in which an instruction waits while it is on its way."""
        return _QUEUE.get(inst.encoding, c.QUEUE_VM)


_PLANS: WeakKeyDictionary[Program, dict[tuple[bool, bool], Plan]] = WeakKeyDictionary()


def plan(program: Program, engine: Engine, *, memory: bool, registers: bool) -> Plan:
    """The plan of a program: memory: accesses are logged; registers: reads of registers are tested. Made once."""
    made = _PLANS.setdefault(program, {})
    key = memory, registers
    if key not in made:
        made[key] = _make(program, engine, memory, registers)
    return made[key]


def _make(program: Program, engine: Engine, memory: bool, registers: bool) -> Plan:
    ops = list(program.ops)
    instructions = program.instructions
    table = bytearray(4 * (len(ops) + 2))
    numbered: list[int] = []
    spaces = tuple(memory and orders_through(instructions, space) for space in (0, 1))
    guesses = feeds_swap(instructions)
    for i, inst in enumerate(instructions):
        if inst is not None and spaces[1] and inst.name in FENCES:
            ops[i] = fenced(ops[i])
        if not memory or inst is None or not is_logged(inst):
            continue
        numbered.append(i)
        does = (ATOMIC, ATOMIC) if i in guesses else uses(inst)
        ops[i] = logged(ops[i], does, _QUEUE.get(inst.encoding, c.QUEUE_VM))
        flag = c.OP_SYNC if ATOMIC in uses(inst) and spaces[inst.encoding != "ds"] else 0
        struct.pack_into("<I", table, 4 * i, min(len(numbered), _MOST_NUMBERED) | flag)
    entries, items = bytearray((len(ops) + 2) * c.CHECKED_BYTES), [0]
    if registers:
        for i, own in enumerate(dataflow.unproved(program)):
            if own:
                struct.pack_into("<II", entries, i * c.CHECKED_BYTES, len(items), len(own))
                items += own
                ops[i] = checked(ops[i])
    simulated = [program.base + address for address in program.addresses]
    records = Records(ops, simulated, engine, program.base + program.end_address)
    return Plan(records, numbered, table, bytes(entries), items, any(spaces))
