"""Paths of executed instructions behind an instruction, for the checks of wait states."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from tileir.records import dataclass
from tileir.simulator.checks.dataflow import successors
from tileir.simulator.checks.registers import registers
from tileir.simulator.decoder import Instruction
from tileir.simulator.program import Program


def mask(numbers: frozenset[int]) -> int:
    out = 0
    for number in numbers:
        out |= 1 << number
    return out


@dataclass(frozen=True)
class Registers:
    """Registers (check numbering) that an instruction reads and writes, as bit masks; wait states that it stands for."""

    reads: int
    writes: int
    states: int


_NONE = Registers(0, 0, 1)


def _registers(inst: Instruction | None) -> Registers:
    if inst is None:
        return _NONE
    reads, writes = registers(inst)
    # each instruction stands for one wait state, s_nop N for N + 1 [CDNA3 ISA, S_NOP]
    states = inst.operands[0].index + 1 if inst.name == "s_nop" else 1
    return Registers(mask(reads), mask(writes), states)


_KNOWN: WeakKeyDictionary[Program, tuple[list[Registers], list[list[int]]]] = WeakKeyDictionary()


class Paths:
    """The executed part of a program. counts: executions by record number."""

    def __init__(self, program: Program, counts: NDArray[np.uint64]) -> None:
        self.program = program
        self.executed = [inst if counts[i] else None for i, inst in enumerate(program.instructions)]
        if program not in _KNOWN:
            numbers = {address: i for i, address in enumerate(program.addresses)}
            follow = [successors(program, i, numbers) for i in range(len(program.instructions))]
            _KNOWN[program] = [_registers(inst) for inst in program.instructions], follow
        self.registers, self.after = _KNOWN[program]

    def follow(self, start: int, live: int, farthest: int, visit: Callable[[int, int, int], None]) -> None:
        """Calls ``visit(record, wait states, live)`` for what comes behind ``start`` while fewer than ``farthest`` wait
        states stand between, along every path. live: registers whose values still come from ``start``."""
        nearest: dict[int, int] = {}
        work = [(n, 0, live) for n in self.after[start]]
        while work:
            i, states, live = work.pop()
            if self.executed[i] is None or states >= farthest or nearest.get(i, farthest) <= states or not live:
                continue
            nearest[i] = states
            visit(i, states, live)
            own = self.registers[i]
            live &= ~own.writes
            work += [(n, states + own.states, live) for n in self.after[i]]
