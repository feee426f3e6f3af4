"""How far LDS reads stand before their use, and before the wait that completes them.

A wave that reaches the wait before the data have come is idle, so what stands between a read and its wait is what hides
the latency of the LDS. Distances are along the shortest path inside the loop, round its end where that is the way.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable

from tileir.records import dataclass
from tileir.simulator.inspect import classify
from tileir.simulator.inspect.counts import class_of, mfma_clocks, wait_of
from tileir.simulator.inspect.flow import Flow
from tileir.simulator.inspect.items import Item
from tileir.target import Target

_FILE = 256  # registers of one file; accumulation registers are numbered behind the vector registers
_RETURNING = frozenset({"ds_swizzle_b32", "ds_permute_b32", "ds_bpermute_b32", "ds_consume", "ds_append"})
_UPDATES = ("v_fmac", "v_mac_", "v_pk_fmac", "v_dot2c", "v_dot4c", "v_dot8c", "v_writelane", "v_smfmac", "v_cvt_sr")
_SWAPS = ("v_swap_b32", "v_permlane16_swap", "v_permlane32_swap")
_LOADS = frozenset(
    {classify.LDS_READ, classify.LDS_TRANSPOSE_READ, classify.LOAD, classify.SCRATCH_LOAD, classify.MFMA, classify.VALU,
     classify.TRANSCENDENTAL}
)  # fmt: skip
_LDS = frozenset(
    {classify.LDS_READ, classify.LDS_TRANSPOSE_READ, classify.LDS_WRITE, classify.LDS_OTHER, classify.SMEM}
)


@dataclass(frozen=True)
class Distance:
    """Instructions from a read to the one meant (1 is the next one), and MFMA issue clocks between the two."""

    instructions: int
    mfma_clocks: int


@dataclass(frozen=True)
class ReadDistance:
    """One LDS read of a loop: where its data are first used, and the wait that completes it; None if not in the loop."""

    address: int
    name: str
    use: Distance | None
    wait: Distance | None

    def exposed(self, latency: int) -> bool:
        """Whether less MFMA work than `latency` clocks stands between the read and its wait (its use, if no wait)."""
        meant = self.wait or self.use
        return meant is not None and meant.mfma_clocks < latency


def vector_registers(item: Item) -> tuple[int, int]:
    """Bit masks of the vector and accumulation registers that an instruction reads and writes. Raises DecodeError."""
    kind, operands = class_of(item), item.instruction.operands
    masks = [
        ((1 << o.count) - 1) << (o.index + (_FILE if o.kind == "a" else 0)) if o.kind in ("v", "a") else 0
        for o in operands
    ]
    if not masks:
        return 0, 0
    first, rest = masks[0], 0
    for mask in masks[1:]:
        rest |= mask
    name = item.name
    if name.startswith(_SWAPS):
        return first | rest, first | rest
    if kind in _LOADS:
        return (rest | first if name.startswith(_UPDATES) or "_d16" in name else rest), first
    if kind == classify.LDS_OTHER:
        return (rest, first) if "_rtn_" in name or name in _RETURNING else (first | rest, 0)
    if kind == classify.ATOMIC and item.instruction.modifiers.get("sc0"):
        return (first | rest if item.encoding == "mubuf" else rest), first
    return first | rest, 0


class _Search:
    def __init__(self, flow: Flow, nodes: Collection[int], target: Target) -> None:
        self.flow = flow
        self.nodes = frozenset(nodes)
        self.items = flow.items
        inside = [n for b in sorted(self.nodes) for n in range(flow.blocks[b].first, flow.blocks[b].last)]
        self.kinds = {n: class_of(self.items[n]) for n in inside}
        self.registers = {n: vector_registers(self.items[n]) for n in inside}
        self.clocks = {
            n: mfma_clocks(self.items[n], target) if kind == classify.MFMA else 0 for n, kind in self.kinds.items()
        }
        self.lgkm = {
            n: wait_of(self.items[n], target).lgkm if kind == classify.WAIT else None for n, kind in self.kinds.items()
        }
        self.block_of = {n: b for b in self.nodes for n in range(flow.blocks[b].first, flow.blocks[b].last)}

    def reads(self) -> list[int]:
        wanted = (classify.LDS_READ, classify.LDS_TRANSPOSE_READ)
        return [n for n, kind in self.kinds.items() if kind in wanted]

    def first(self, start: int, step: Callable[[int, int], tuple[bool, int]], state: int) -> Distance | None:
        """The nearest item behind `start` at which `step(item, state)` says so; it gives the next state. A state of -1
        ends a path."""
        # distance so far, next item, its block, MFMA clocks so far, state
        heap = [(0, start + 1, self.block_of[start], 0, state)]
        seen: set[int] = set()
        while heap:
            distance, number, place, clocks, state = heapq.heappop(heap)
            block = self.flow.blocks[place]
            while number < block.last:
                distance += 1
                found, state = step(number, state)
                if found:
                    return Distance(distance, clocks)
                if state < 0 or number == start:
                    break
                clocks += self.clocks[number]
                number += 1
            else:
                for successor in block.successors:
                    if successor in self.nodes and successor not in seen:
                        seen.add(successor)
                        heapq.heappush(heap, (distance, self.flow.blocks[successor].first, successor, clocks, state))
        return None

    def use(self, start: int) -> Distance | None:
        def step(number: int, live: int) -> tuple[bool, int]:
            reads, writes = self.registers[number]
            live_after = live & ~writes
            return bool(live & reads), live_after if live_after else -1

        return self.first(start, step, self.registers[start][1])

    def wait(self, start: int) -> Distance | None:
        """The wait that lets no more operations be outstanding than were issued behind the read (they end in order)."""

        def step(number: int, later: int) -> tuple[bool, int]:
            allowed = self.lgkm[number]
            if allowed is not None and allowed <= later:
                return True, later
            return False, later + (self.kinds[number] in _LDS)

        return self.first(start, step, 0)


def read_distances(flow: Flow, nodes: Collection[int], target: Target) -> tuple[ReadDistance, ...]:
    """All LDS reads of a loop made of the blocks `nodes`, in address order. Raises DecodeError."""
    search = _Search(flow, nodes, target)
    return tuple(
        ReadDistance(flow.items[n].address, flow.items[n].name, search.use(n), search.wait(n)) for n in search.reads()
    )


def registers_used(items: Iterable[Item]) -> dict[str, int]:
    """One more than the highest register that occurs, by file: v, a, s. Raises DecodeError."""
    used = {"v": 0, "a": 0, "s": 0}
    for item in items:
        for operand in item.instruction.operands:
            if operand.kind in used:
                used[operand.kind] = max(used[operand.kind], operand.index + operand.count)
    return used


def lds_latency(target: Target) -> int:
    """Clocks from an LDS read to its data: the upper figure of the target's range."""
    value = target.fact("lds_latency").value
    assert isinstance(value, tuple)
    return max(value)
