"""Missing wait states behind matrix instructions.

Software keeps an instruction that depends on an MFMA a number of *wait states* away: each instruction between the two
counts one, ``s_nop N`` counts N + 1. Numbers: LLVM 22, GCNHazardRecognizer (documented), for p = passes of the MFMA:

====================================================  =========================  ==========
dependence on the result D                            XDL                        f32 forms
====================================================  =========================  ==========
VALU, memory or LDS reads D; VALU writes D            p + 3, gfx950 p + 4        p + 2
MFMA reads D as A or B                                p + 3, gfx950 p + 4        p + 2
MFMA reads a part of D as C                           p + 1, gfx950 p + 2        p
MFMA of another opcode reads the same D as C, gfx950  p + 1                      p + 1
VALU writes a register that the MFMA reads as C       p - 1                      p - 1
MFMA reads what a VALU instruction (no v_dot) wrote   2                          2
====================================================  =========================  ==========

The gfx950 surcharge does not apply to p = 2. The fourth row is not in LLVM (derived from code that waits there: 5 states
from 16x16x32 to 16x16x16). f64 forms have constants of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tileir.simulator import state
from tileir.simulator.checks.collect import Collector
from tileir.simulator.checks.registers import registers
from tileir.simulator.decoder import Instruction, Operand
from tileir.simulator.faults import Finding, Party
from tileir.simulator.native.op import checks_of
from tileir.simulator.program import Program
from tileir.target import Target

_BYTE_FORMATS = 2
"""cbsz and blgp of the f8f6f4 forms: 0 and 1 are 8-bit formats, the others 6- and 4-bit. [CDNA4 ISA]"""
_MEMORY = ("ds", "mubuf", "mtbuf", "global", "flat", "scratch")
_F64_READ, _F64_MEMORY, _F64_SMALL_READ, _F64_SMALL_MEMORY = {"gfx942": 11, "gfx950": 19}, 18, 6, 9
_FARTHEST = 24
"""No dependence needs as many wait states."""
_VALU_TO_MATRIX = 2
"""Wait states from a VALU result to an MFMA that reads it. [LLVM 22, GCNHazardRecognizer]"""
_VECTOR = frozenset(range(state.CHECK_SGPR))


def _covered(*operands: Operand) -> frozenset[int]:
    return frozenset(n for first, count in checks_of(*operands) for n in range(first, first + count))


@dataclass(frozen=True)
class _Matrix:
    """A matrix instruction: registers of its operands and its length in passes."""

    name: str
    result: frozenset[int]
    accumulator: frozenset[int]
    factors: frozenset[int]
    passes: int

    @property
    def kind(self) -> str:
        return "f64" if self.name.startswith("v_mfma_f64") else "f32" if self.name.endswith("_f32") else "xdl"


def is_matrix(inst: Instruction) -> bool:
    return inst.name.startswith(("v_mfma_f", "v_mfma_i", "v_mfma_scale_", "v_smfmac"))


@lru_cache(maxsize=8)
def _passes(target: Target) -> dict[str, tuple[int, int]]:
    return {m.name: (m.passes, m.passes_narrow) for m in target.mfmas}


def _matrix(inst: Instruction, target: Target) -> _Matrix | None:
    found = _passes(target).get(inst.name)
    if found is None:
        return None
    formats = (inst.modifiers.get("cbsz", 0), inst.modifiers.get("blgp", 0))
    narrow = inst.name.endswith("f8f6f4") and all(code >= _BYTE_FORMATS for code in formats)
    d, rest = inst.operands[0], inst.operands[1:]
    accumulator = d if inst.name.startswith("v_smfmac") else rest[2]
    factors = [o for i, o in enumerate(rest) if i != 2 or inst.name.startswith("v_smfmac")]
    return _Matrix(inst.name, _covered(d), _covered(accumulator), _covered(*factors), found[narrow])


def _needed(
    first: _Matrix, live: frozenset[int], inst: Instruction, second: _Matrix | None, chip: str
) -> tuple[int, str]:
    """Wait states that ``inst`` must keep from ``first``, whose results ``live`` still stand; and what it does."""
    surcharge = int(chip == "gfx950" and first.passes != 2)
    small = first.name.startswith("v_mfma_f64_4x4")
    if first.kind == "f64":
        read = _F64_SMALL_READ if small else _F64_READ[chip]
    else:
        read = first.passes + (2 if first.kind == "f32" else 3 + surcharge)
    if second is not None:
        if live & second.factors:
            return read, "reads the result of an MFMA as a factor"
        if not live & second.accumulator or first.kind == "f64" or second.kind == "f64":
            return 0, ""
        if first.result == second.accumulator:
            other = first.name != second.name and chip == "gfx950"
            return (first.passes + 1 if other else 0), "continues the accumulator of an MFMA of another opcode"
        if second.kind == "xdl" and first.kind == "f32":
            return 0, ""
        partly = first.passes + (0 if first.kind == "f32" else 1 + surcharge)
        return partly, "reads a part of the result of an MFMA as its accumulator"
    reads, writes = registers(inst)
    if inst.encoding in _MEMORY:
        memory = _F64_SMALL_MEMORY if small else _F64_MEMORY
        return (memory if first.kind == "f64" else read, "reads the result of an MFMA") if live & reads else (0, "")
    if not inst.name.startswith("v_"):
        return 0, ""
    if live & reads:
        return read, "reads the result of an MFMA"
    if live & writes:
        return read, "overwrites the result of an MFMA"
    if first.accumulator & writes and first.kind != "f64":
        return first.passes - 1, "overwrites the accumulator that an MFMA still reads"
    return 0, ""


def _states(inst: Instruction) -> int:
    return inst.operands[0].index + 1 if inst.name == "s_nop" else 1


class _Walk:
    def __init__(self, program: Program, counts: NDArray[np.uint64], target: Target, collect: Collector) -> None:
        self.program, self.collect = program, collect
        self.executed = [inst if counts[i] else None for i, inst in enumerate(program.instructions)]
        self.matrices = [_matrix(inst, target) if inst and is_matrix(inst) else None for inst in self.executed]
        self.numbers = {address: i for i, address in enumerate(program.addresses)}

    def _successors(self, i: int, inst: Instruction) -> list[int]:
        out: list[int] = []
        if not inst.name.startswith(("s_endpgm", "s_setpc", "s_swappc", "s_branch", "s_call")):
            out.append(i + 1)
        if inst.name.startswith(("s_branch", "s_cbranch")) and inst.operands[-1].kind == "label":
            target = self.numbers.get(self.program.addresses[i] + inst.size + inst.operands[-1].index)
            if target is not None:
                out.append(target)
        return out

    def follow(self, start: int, first: _Matrix | None, farthest: int) -> None:
        """All executed instructions near behind an MFMA, or (None) behind another vector instruction, along every path."""
        nearest: dict[int, int] = {}
        inst = self.program.instructions[start]
        assert inst is not None
        work = [(start + 1, 0, first.result if first else registers(inst)[1] & _VECTOR)]
        while work:
            i, states, live = work.pop()
            inst = self.executed[i] if i < len(self.executed) else None
            if inst is None or states >= farthest or nearest.get(i, farthest) <= states or not live:
                continue
            nearest[i] = states
            matrix = self.matrices[i]
            if first:
                needed, what = _needed(first, live, inst, matrix, self.program.chip)
            else:
                meets = matrix is not None and bool(live & (matrix.factors | matrix.accumulator))
                needed, what = (
                    (_VALU_TO_MATRIX if meets else 0),
                    "is an MFMA that reads the result of a VALU instruction",
                )
            if states < needed:
                self._report(start, i, states, needed, what)
            live = live - registers(inst)[1]
            work += [(n, states + _states(inst), live) for n in self._successors(i, inst)]

    def _report(self, start: int, i: int, states: int, needed: int, what: str) -> None:
        def make() -> Finding:
            first, second = self.program.location(start), self.program.location(i)
            message = f"the instruction {what}: {states} wait states stand between the two, {needed} are needed"
            return Finding("mfma-hazard", message, Party(second, (0, 0, 0), 0), Party(first, (0, 0, 0), 0))

        self.collect.add(("mfma-hazard", start, i), make)


def hazards(program: Program, counts: NDArray[np.uint64], target: Target, collect: Collector) -> None:
    """Looks behind every MFMA and VALU instruction that was executed, along paths of executed instructions. counts: by record number."""
    walk = _Walk(program, counts, target, collect)
    for i, matrix in enumerate(walk.matrices):
        inst = walk.executed[i]
        if matrix is not None:
            walk.follow(i, matrix, _FARTHEST)
        elif inst is not None and inst.name.startswith("v_") and not inst.name.startswith(("v_dot", "v_nop")):
            walk.follow(i, None, _VALU_TO_MATRIX)
