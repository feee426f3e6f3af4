"""Giving registers places as LLVM's greedy allocator does, as long as there are enough of them.

Registers that must stand in a row – the parts of a vector – are placed together, rows of two and more from an even number on (CDNA3
ISA: 64-bit and wider operands are even-aligned). Values that a jump or a matrix instruction hands on keep their place where their lives
do not meet. The order is that of RegAllocGreedy (DefaultPriorityAdvisor) with the classes of SIRegisterInfo.td: the widest rows first;
among them those that live in several blocks, the longest first, then those of one block from its end or from its beginning. Each takes
the first place where no one alive at the same time stands. Holes that nobody fits into are what an allocator takes beyond
what is alive.
"""

from __future__ import annotations

from bisect import bisect_right

from tileir.lowering.amdgpu.registers.liveness import Liveness
from tileir.lowering.amdgpu.registers.text import Function
from tileir.lowering.amdgpu.registers.values import Registers

NONE_WHOLE = 1 << 16
"""Wider than any row: a register whose value is dead serves another, whatever its neighbours hold."""


class Rows:
    """Registers of a function joined to rows."""

    def __init__(self, function: Function, registers: Registers, live: Liveness) -> None:
        self.file = registers.file
        self._spans = sorted(live.spans.values())
        self._starts = [first for first, _ in self._spans]
        self._parent: dict[int, tuple[int, int]] = {}
        self.lanes: dict[int, dict[int, int]] = {d: {0: b} for d, b in live.bits.items() if b}
        for name, row in registers.of.items():
            if name in function.definitions or row:
                self._together(row)
        for i in function.instructions():
            if i.is_product and i.result and len(i.operands) > 2:
                self._same(registers.of[i.result], registers.of.get(i.operands[2], ()))
            elif i.op == "llvm.inline_asm" and i.operands and i.result:  # the empty one ties its result to its operand
                self._same(registers.of[i.result], registers.of.get(i.operands[0], ()))
        for b in function.blocks:
            for label, values in b.targets:
                for (name, _), v in zip(function.by_label[label].args, values, strict=True):
                    if name in function.needed:
                        self._same(registers.of[name], registers.of.get(v, ()))

    def find(self, d: int) -> tuple[int, int]:
        """The register that leads the row of `d`, and the distance of `d` from it."""
        at = 0
        while d in self._parent:
            d, more = self._parent[d]
            at += more
        return d, at

    def in_one_block(self, first: int, last: int) -> bool:
        """Whether what lives from one point to another neither comes from another block nor goes to one."""
        begin, end = self._spans[bisect_right(self._starts, first) - 1]
        return begin < first and last < end

    def _together(self, row: tuple[int | None, ...]) -> None:
        first: tuple[int, int] | None = None
        for at, d in enumerate(row):
            if d is None or (d not in self.lanes and d not in self._parent):
                continue
            if first is None:
                first = (d, at)
            elif self.file[d] == self.file[first[0]]:
                self._join(d, first[0], at - first[1])

    def _same(self, a: tuple[int | None, ...], b: tuple[int | None, ...]) -> None:
        for x, y in zip(a, b, strict=False):
            if x is None or y is None or self.file[x] != self.file[y]:
                continue
            if self._alive(x) and self._alive(y):
                self._join(x, y, 0)

    def _alive(self, d: int) -> bool:
        return d in self.lanes or d in self._parent

    def _join(self, x: int, y: int, distance: int) -> bool:
        """Puts x `distance` behind y unless their rows meet in time; whether they are now so."""
        (a, at_a), (b, at_b) = self.find(x), self.find(y)
        if a == b:
            return at_a == at_b + distance
        shift = at_b + distance - at_a
        moved, into = self.lanes[a], self.lanes[b]
        if any(bits & into.get(at + shift, 0) for at, bits in moved.items()):
            return False
        for at, bits in moved.items():
            into[at + shift] = into.get(at + shift, 0) | bits
        del self.lanes[a]
        self._parent[a] = (b, shift)
        return True


def allocate(rows: Rows, file: str, *, backwards: bool, widest: int = NONE_WHOLE) -> int:
    """Registers of a file that the rows take. `backwards` is LLVM's option `-greedy-reverse-local-assignment`. Rows of `widest` and
    more keep all their registers while any of them is alive."""
    waiting: list[tuple[tuple[int, bool, int, int], int, list[tuple[int, int]]]] = []
    for leader, lanes in rows.lanes.items():
        if rows.file[leader] != file:
            continue
        low = min(lanes)
        alive = 0
        for bits in lanes.values():
            alive |= bits
        width = max(lanes) - low + 1
        first, last = (alive & -alive).bit_length() - 1, alive.bit_length() - 1
        local = rows.in_one_block(first, last)
        when = (-last if backwards else first) if local else -alive.bit_count()
        whole = width >= widest
        places = [(at - low, alive if whole else bits) for at, bits in lanes.items()]
        waiting.append(((-width, local, when, leader), width, places))
    waiting.sort(key=lambda x: x[0])
    taken: list[int] = []
    most = 0
    for _, width, lanes in waiting:
        step, place = (2 if width > 1 else 1), 0
        while True:
            if len(taken) < place + width:
                taken += [0] * (place + width - len(taken))
            if not any(taken[place + at] & bits for at, bits in lanes):
                break
            place += step
        for at, bits in lanes:
            taken[place + at] |= bits
        most = max(most, place + width)
    return most
