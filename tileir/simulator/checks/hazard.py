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
VALU writes a register that the MFMA reads as C       p - 1                      none
MFMA reads what a VALU instruction (no v_dot) wrote   2                          2
====================================================  =========================  ==========

The gfx950 surcharge does not apply to p = 2. The fourth row is not in LLVM (derived from code that waits there: 5 states
from 16x16x32 to 16x16x16). f64 forms have constants of their own; on gfx950, where 16x16x4 has 16 passes, not 8, LLVM has 19 states for
VALU readers, but still the 11 of gfx942 for VALU writers: here 19 are asked for (derived: the product writes its result no earlier
than a reader may have it; an instruction that writes before it loses what it wrote).
"""

from __future__ import annotations

from functools import lru_cache
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from tileir.records import dataclass
from tileir.simulator import state
from tileir.simulator.checks.collect import Collector, Key
from tileir.simulator.checks.paths import Paths, Registers
from tileir.simulator.checks.wait_states import missing_states
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
_VECTOR = (1 << state.CHECK_SGPR) - 1


def _covered(*operands: Operand) -> int:
    out = 0
    for first, count in checks_of(*operands):
        out |= ((1 << count) - 1) << first
    return out


@dataclass(frozen=True)
class _Matrix:
    """A matrix instruction: registers of its operands and its length in passes."""

    name: str
    result: int
    accumulator: int
    factors: int
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
    first: _Matrix, live: int, inst: Instruction, second: _Matrix | None, own: Registers, chip: str
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
    if inst.encoding in _MEMORY:
        memory = _F64_SMALL_MEMORY if small else _F64_MEMORY
        return (memory if first.kind == "f64" else read, "reads the result of an MFMA") if live & own.reads else (0, "")
    if not inst.name.startswith("v_"):
        return 0, ""
    if live & own.reads:
        return read, "reads the result of an MFMA"
    if live & own.writes:
        return read, "overwrites the result of an MFMA"
    if first.accumulator & own.writes and first.kind == "xdl":
        return first.passes - 1, "overwrites the accumulator that an MFMA still reads"
    return 0, ""


class _Walk:
    def __init__(self, paths: Paths, target: Target, collect: Collector) -> None:
        self.paths, self.collect = paths, collect
        self.matrices = [_matrix(inst, target) if inst and is_matrix(inst) else None for inst in paths.executed]

    def behind_matrix(self, start: int, first: _Matrix) -> None:
        chip = self.paths.program.chip

        def visit(i: int, states: int, live: int) -> None:
            inst = self.paths.executed[i]
            assert inst is not None
            needed, what = _needed(first, live, inst, self.matrices[i], self.paths.registers[i], chip)
            if states < needed:
                self._report(start, i, states, needed, what)

        self.paths.follow(start, first.result, _FARTHEST, visit)

    def behind_vector(self, start: int) -> None:
        def visit(i: int, states: int, live: int) -> None:
            matrix = self.matrices[i]
            if matrix is not None and live & (matrix.factors | matrix.accumulator):
                what = "is an MFMA that reads the result of a VALU instruction"
                self._report(start, i, states, _VALU_TO_MATRIX, what)

        self.paths.follow(start, self.paths.registers[start].writes & _VECTOR, _VALU_TO_MATRIX, visit)

    def _report(self, start: int, i: int, states: int, needed: int, what: str) -> None:
        def make() -> Finding:
            first, second = self.paths.program.location(start), self.paths.program.location(i)
            message = f"the instruction {what}: {states} wait states stand between the two, {needed} are needed"
            return Finding("mfma-hazard", message, Party(second, (0, 0, 0), 0), Party(first, (0, 0, 0), 0))

        self.collect.add(("mfma-hazard", start, i), make)


_FOUND: WeakKeyDictionary[Program, dict[bytes, list[tuple[Key, Finding]]]] = WeakKeyDictionary()
_MOST_FOUND = 8


def hazards(program: Program, counts: NDArray[np.uint64], target: Target, collect: Collector) -> None:
    """Missing wait states behind all instructions that were executed, along paths of executed instructions. counts: by
    record number. What was found for a program and what it executed is kept: later launches need not look again."""
    known = _FOUND.setdefault(program, {})
    executed = np.packbits(counts != 0).tobytes()
    if executed not in known:
        while len(known) >= _MOST_FOUND:
            del known[next(iter(known))]
        known[executed] = _search(program, counts, target, collect.limit)
    for key, finding in known[executed]:
        collect.add(key, lambda finding=finding: finding)


def _search(program: Program, counts: NDArray[np.uint64], target: Target, limit: int) -> list[tuple[Key, Finding]]:
    collect = Collector(False, limit)
    paths = Paths(program, counts)
    walk = _Walk(paths, target, collect)
    for i, matrix in enumerate(walk.matrices):
        inst = paths.executed[i]
        if matrix is not None:
            walk.behind_matrix(i, matrix)
        elif inst is not None and inst.name.startswith("v_") and not inst.name.startswith(("v_dot", "v_nop")):
            walk.behind_vector(i)
    missing_states(paths, collect)
    return list(zip(collect.keys, collect.findings, strict=True))
