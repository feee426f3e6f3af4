"""The control-flow graph of machine code.

Jumps through registers (s_setpc_b64, s_swappc_b64) are followed where the address is formed by s_getpc_b64 and
constants, as LLVM does for far branches and calls; otherwise the block has an unknown successor, the graph is marked
incomplete, and a note says where. A call is taken to return; what it calls is not part of the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from tileir.codeobject import CodeObject, Kernel
from tileir.records import dataclass
from tileir.simulator.decoder import DecodeError, Operand
from tileir.simulator.inspect import classify
from tileir.simulator.inspect.items import Item, skim
from tileir.simulator.inspect.loops import Region, find_loops, reachable

_U64 = (1 << 64) - 1


class InspectError(ValueError):
    """The bytes cannot be reported on. `offset` is a byte of the file, `address` one of the loaded code; both may be
    unknown (None)."""

    def __init__(self, message: str, offset: int | None = None, address: int | None = None) -> None:
        self.message = message
        self.offset = offset
        self.address = address
        super().__init__(message)


@dataclass(frozen=True)
class Block:
    """A basic block: the items `first` to `last` (exclusive), the blocks that may follow, and whether other code may."""

    number: int
    first: int
    last: int
    successors: tuple[int, ...]
    unknown_successor: bool
    reachable: bool


@dataclass(frozen=True)
class Flow:
    """The graph of one kernel. `notes` say what it could not follow; `complete` is false if that could hide a loop."""

    items: Sequence[Item]
    blocks: tuple[Block, ...]
    loops: tuple[Region, ...]
    notes: tuple[str, ...]
    complete: bool

    def items_of(self, nodes: Sequence[int]) -> list[Item]:
        """The items of some blocks, in address order."""
        return [item for node in nodes for item in self.items[self.blocks[node].first : self.blocks[node].last]]


@dataclass
class _Builder:
    items: Sequence[Item]
    index: dict[int, int]
    notes: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """Item number, and what there is to say about it."""
    targets: dict[int, int] = field(default_factory=dict[int, int])
    """Item number of a branch to item number of its target."""
    unknown: set[int] = field(default_factory=set[int])

    def branch(self, number: int) -> None:
        item = self.items[number]
        if classify.is_call(item.name):
            self._call(number)
            return
        if classify.is_indirect(item.name):
            address = _computed_target(self.items, number)
            if address is None:
                self._lost(number, "jumps to an address that is not known here")
                return
        else:
            address = item.end + item.distance
        if address not in self.index:
            inside = self.items[0].address <= address < self.items[-1].end
            self._lost(
                number, f"jumps to {address:#x}, {'between two instructions' if inside else 'outside the kernel'}"
            )
            return
        self.targets[number] = self.index[address]

    def _call(self, number: int) -> None:
        item = self.items[number]
        if item.name == "s_call_b64":
            address: int | None = item.end + item.distance
        else:
            address = _computed_target(self.items, number)
        where = "an address that is not known here" if address is None else f"{address:#x}"
        self.notes.append((number, f"calls {where}; the called code is not counted"))

    def _lost(self, number: int, what: str) -> None:
        self.unknown.add(number)
        self.notes.append((number, f"{what}; it is not followed"))


def control_flow(code: CodeObject, kernel: Kernel) -> Flow:
    """The control-flow graph of a kernel. Raises InspectError when reachable bytes are no instruction."""
    items = skim(code.chip, kernel.code, kernel.entry_address)
    starts = {item.address for item in items}
    entries = [kernel.entry_address]
    if kernel.preloaded_entry_address in starts:
        entries.append(kernel.preloaded_entry_address)
    flow = build_flow(items, entries)
    for item in flow.items_of([b.number for b in flow.blocks if b.reachable]):
        if item.problem:
            raise undecodable(kernel, item.address, item.raw, item.problem)
    return flow


def undecodable(kernel: Kernel, address: int, raw: bytes, reason: str) -> InspectError:
    """The error for bytes at an address of a kernel's code."""
    offset = kernel.code_offset + address - kernel.entry_address
    return InspectError(f"kernel '{kernel.name}': bytes {raw.hex(' ')}: {reason}", offset, address)


def build_flow(items: Sequence[Item], entries: Sequence[int]) -> Flow:
    """The graph of a kernel that may start at any of the addresses `entries` (each that of an item)."""
    builder = _Builder(items, {item.address: i for i, item in enumerate(items)})
    leaders = {builder.index[address] for address in entries}
    for number, item in enumerate(items):
        if classify.is_branch(item.name):
            builder.branch(number)
            leaders.add(number + 1)
        elif not classify.falls_through(item.name):
            leaders.add(number + 1)
    leaders |= set(builder.targets.values())
    starts = sorted(leader for leader in leaders | {0} if leader < len(items))
    block_of = {start: number for number, start in enumerate(starts)}
    successors: list[tuple[int, ...]] = []
    for number in range(len(starts)):
        last = starts[number + 1] if number + 1 < len(starts) else len(items)
        end = items[last - 1]
        follow: list[int] = []
        if classify.falls_through(end.name):
            if last < len(items):
                follow.append(block_of[last])
            else:
                builder.unknown.add(last - 1)
                builder.notes.append((last - 1, "is the last instruction, and execution runs past it"))
        target = builder.targets.get(last - 1)
        if target is not None and block_of[target] not in follow:
            follow.append(block_of[target])
        successors.append(tuple(follow))
    roots = sorted({block_of[builder.index[address]] for address in entries})
    alive = reachable(successors, roots)
    blocks: list[Block] = []
    for number, start in enumerate(starts):
        last = starts[number + 1] if number + 1 < len(starts) else len(items)
        blocks.append(Block(number, start, last, successors[number], last - 1 in builder.unknown, number in alive))
    live = [b for b in blocks if b.reachable]
    seen = {number for b in live for number in range(b.first, b.last)}
    notes = [f"{items[n].address:#x}: {items[n].name} {text}" for n, text in sorted(builder.notes) if n in seen]
    complete = not any(b.unknown_successor for b in live)
    return Flow(items, tuple(blocks), tuple(find_loops(successors, roots)), tuple(notes), complete)


# Addresses formed from the program counter


def _computed_target(items: Sequence[Item], number: int) -> int | None:
    """Target of a jump through registers whose address is s_getpc_b64 plus a constant; None if it is anything else."""
    try:
        pair = items[number].instruction.operands[-1]
        if pair.kind != "s":
            return None
        low = _last_write(items, number, pair.index)
        high = _last_write(items, number, pair.index + 1)
        if low is None or high is None:
            return None
        offset_low, offset_high = _added(items[low], pair.index), _added(items[high], pair.index + 1)
        base = _last_write(items, min(low, high), pair.index)
        if (items[low].name, items[high].name) != ("s_add_u32", "s_addc_u32") or not low < high:
            return None
        if offset_low is None or offset_high is None or base is None or items[base].name != "s_getpc_b64":
            return None
        if _last_write(items, high, pair.index + 1) != base or _carry_is_lost(items, low, high):
            return None
        return (items[base].end + (offset_low | offset_high << 32)) & _U64
    except DecodeError:
        return None


def _carry_is_lost(items: Sequence[Item], low: int, high: int) -> bool:
    return any(classify.classify(i.name, i.encoding, i.to_lds) == classify.SALU for i in items[low + 1 : high])


def _last_write(items: Sequence[Item], before: int, register: int) -> int | None:
    """The item that last wrote an SGPR in the straight line before item `before`."""
    for number in range(before - 1, -1, -1):
        item = items[number]
        if classify.is_branch(item.name) or not classify.falls_through(item.name):
            return None
        if any(_covers(operand, register) for operand in item.instruction.operands[:2]) and _writes(item, register):
            return number
    return None


def _covers(operand: Operand, register: int) -> bool:
    return operand.kind == "s" and operand.index <= register < operand.index + operand.count


def _writes(item: Item, register: int) -> bool:
    """Whether it writes that SGPR, or might: the second operand of a vector instruction can be a carry."""
    name, operands = item.name, item.instruction.operands
    if name.startswith(("s_cmp", "s_bitcmp", "s_store", "s_buffer_store", "s_setreg")) or item.encoding == "sopp":
        return False
    return _covers(operands[0], register) or (
        name.startswith("v_") and len(operands) > 1 and _covers(operands[1], register)
    )


def _added(item: Item, register: int) -> int | None:
    """The constant that the item adds to the SGPR in place."""
    operands = item.instruction.operands
    if len(operands) != 3 or not _covers(operands[0], register) or not _covers(operands[1], register):
        return None
    return operands[2].index & 0xFFFFFFFF if operands[2].kind in ("imm", "lit") else None
