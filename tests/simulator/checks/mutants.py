"""Mutants of machine code: a wait deleted or weakened, a barrier deleted, a swizzle left out; and why one may be silent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tileir.codeobject import CodeObject
from tileir.simulator import Simulator, state
from tileir.simulator.checks.registers import registers
from tileir.simulator.decoder import Instruction
from tileir.simulator.launch import _Launch  # pyright: ignore[reportPrivateUsage]
from tileir.simulator.program import Program

NOP = b"\x00\x00\x80\xbf"
_WAIT = 0xBF8C0000
_VM_MOST, _LGKM_MOST = 63, 15
_ZERO = 128
"""The inline constant 0 as a source. [CDNA3 ISA, "Scalar ALU operands"]"""
_XORS = ("v_xor_b32", "v_bitop3_b32", "v_xad_u32")


@dataclass(frozen=True)
class Mutant:
    """record: the instruction that was changed. counts: of a wait afterwards, (vmcnt, lgkmcnt)."""

    record: int
    what: str
    hsaco: bytes
    counts: tuple[int, int] | None = None


def program_of(hsaco: bytes, chip: str) -> Program:
    module = Simulator(chip).load(hsaco)
    return module.program(module.kernels[0])


def counts_of(inst: Instruction) -> tuple[int, int]:
    """(vmcnt, lgkmcnt) of an s_waitcnt. [CDNA3 ISA, S_WAITCNT]"""
    simm16 = inst.operands[0].index
    return (simm16 & 15) | (simm16 >> 14 & 3) << 4, simm16 >> 8 & 15


def _wait(inst: Instruction, vm: int, lgkm: int) -> bytes:
    keep = inst.operands[0].index & 0x70
    return (_WAIT | keep | (vm & 15) | (vm >> 4) << 14 | lgkm << 8).to_bytes(4, "little")


def _zeroed(inst: Instruction) -> Iterator[tuple[str, bytes]]:
    """An exclusive or with each of its sources replaced by 0 in turn."""
    word = int.from_bytes(inst.raw[:4], "little")
    if inst.size == 4:
        yield "source 0", ((word & ~0x1FF) | _ZERO).to_bytes(4, "little")
        # v_mov_b32 of source 0: what is left of an exclusive or with 0. [VOP1 encoding]
        yield "source 1", (0x7E000200 | (word >> 17 & 0xFF) << 17 | word & 0x1FF).to_bytes(4, "little")
    elif inst.encoding.startswith("vop3"):
        high = int.from_bytes(inst.raw[4:], "little")
        for i in range(2 if inst.name == "v_xor_b32" else 3):
            changed = (high & ~(0x1FF << 9 * i)) | _ZERO << 9 * i
            if changed != high:
                yield f"source {i}", inst.raw[:4] + changed.to_bytes(4, "little")


def addresses(program: Program, executed: set[int]) -> set[int]:
    """Records of the exclusive ors from which addresses of LDS accesses and of loads to LDS are computed."""
    wanted: set[int] = set()
    out: set[int] = set()
    # Registers are followed backwards without regard to order, which can only find more.
    while True:
        before = len(wanted), len(out)
        for i in executed:
            inst = program.instructions[i]
            assert inst is not None
            if inst.encoding == "ds" or inst.modifiers.get("lds", 0) or "_load_lds_" in inst.name:
                reads = inst.operands[0 if not inst.name.startswith("ds_read") else 1]
                wanted |= set(range(reads.index, reads.index + reads.count)) if reads.kind == "v" else set()
            elif inst.name.startswith("v_") and inst.encoding != "vop3p":
                reads, writes = registers(inst)
                if writes & wanted:
                    wanted |= {r for r in reads if r < state.CHECK_AGPR}
                    if inst.name in _XORS:
                        out.add(i)
        if (len(wanted), len(out)) == before:
            return out


def mutants(hsaco: bytes, program: Program, executed: set[int]) -> Iterator[Mutant]:
    """All mutants of what was executed. executed: record numbers."""
    (segment,) = [s for s in CodeObject.from_bytes(hsaco).segments if s.executable]
    base = hsaco.index(segment.data) - segment.vaddr

    def changed(i: int, what: str, code: bytes, counts: tuple[int, int] | None = None) -> Mutant:
        inst, at = program.instructions[i], base + program.addresses[i]
        assert inst is not None and hsaco[at : at + inst.size] == inst.raw and len(code) <= inst.size
        code += NOP * ((inst.size - len(code)) // 4)
        return Mutant(i, f"{what}: {inst.text}", hsaco[:at] + code + hsaco[at + inst.size :], counts)

    swizzles = addresses(program, executed)
    for i in sorted(executed):
        inst = program.instructions[i]
        assert inst is not None
        if inst.name == "s_barrier":
            yield changed(i, "barrier deleted", NOP)
        elif inst.name == "s_waitcnt":
            vm, lgkm = counts_of(inst)
            yield changed(i, "wait deleted", NOP, (_VM_MOST, _LGKM_MOST))
            if vm < _VM_MOST:
                yield changed(i, "vmcnt + 1", _wait(inst, vm + 1, lgkm), (vm + 1, lgkm))
            if lgkm < _LGKM_MOST:
                yield changed(i, "lgkmcnt + 1", _wait(inst, vm, lgkm + 1), (vm, lgkm + 1))
        elif i in swizzles:
            for what, code in _zeroed(inst):
                yield changed(i, f"{what} is 0", code)


# ---- what a wave executes, instruction by instruction
class Traces:
    """While in use, workgroups run step by step; ``waves`` has the records that each wave of the last one executed."""

    def __init__(self) -> None:
        self.waves: list[list[int]] = []

    def run(self, launch: _Launch, workgroup: tuple[int, int, int]) -> int:
        del workgroup
        engine = launch.simulator.engine
        self.waves = [[] for _ in range(launch.wave_count)]
        quads, words = launch.waves.view(np.uint64), launch.waves.view(np.uint32)
        status = words[:, state.STATUS // 4]
        while True:
            for w, trace in enumerate(self.waves):
                while status[w] in (state.STATUS_RUNNING, state.STATUS_SLICE):
                    trace.append(launch.records.number(int(quads[w, state.CURRENT // 8])))
                    quads[w, state.BUDGET // 8] = 1
                    engine.run_wave(launch.waves[w].ctypes.data)
                assert status[w] < state.FAULT_BASE
            if (status == state.STATUS_ENDED).all():
                return 0
            status[status == state.STATUS_BARRIER] = state.STATUS_RUNNING


def _queue(inst: Instruction) -> str:
    if inst.encoding in ("ds", "smem"):
        return "lgkm"
    return "vm" if inst.encoding in ("mubuf", "global", "scratch") else ""


@dataclass
class _Pending:
    record: int
    queue: str
    registers: frozenset[int]
    in_lds: bool
    stores: bool


def why_redundant(program: Program, trace: list[int], mutant: Mutant) -> str | None:
    """What makes a wait redundant in the trace of a wave: the wait that has covered everything before, or those that
    cover in time what this one leaves on its way. ``None`` when neither is so."""
    assert mutant.counts is not None
    own = program.instructions[mutant.record]
    assert own is not None
    pending: list[_Pending] = []
    left: list[_Pending] = []
    """What the original wait covers and the mutant does not."""
    last_wait, before, behind = -1, set[int](), set[int]()
    for record in trace:
        inst = program.instructions[record]
        assert inst is not None
        if inst.name == "s_waitcnt":
            original = counts_of(inst)
            counts = mutant.counts if record == mutant.record else original
            if record == mutant.record:
                full = _covered(pending, original)
                left += [p for p in full if p not in _covered(pending, counts) and p not in left]
                if not full:
                    before.add(last_wait)
            else:
                last_wait = record
            done = _covered(pending, counts)
            behind |= {record for p in done if p in left}
            pending = [p for p in pending if p not in done]
            left = [p for p in left if p not in done]
            continue
        reads, writes = registers(inst)
        for p in left:
            if p.registers & (reads | writes):
                return None
            if inst.name == "s_barrier" and (p.in_lds or p.stores):
                return None
        queue = _queue(inst)
        if queue:
            lds = bool(inst.modifiers.get("lds", 0)) or "_load_lds_" in inst.name
            loads = not ("_store_" in inst.name or inst.name.startswith("ds_write"))
            target = writes if loads and not lds else frozenset[int]()
            pending.append(_Pending(record, queue, target, inst.encoding == "ds" or lds, not loads))
    texts = sorted({program.location(r).pc for r in behind})
    if texts:
        return "covered in time by the wait at " + ", ".join(f"{pc:#x}" for pc in texts)
    places = sorted(program.location(r).pc for r in before if r >= 0)
    if places:
        return "nothing is on its way: the wait at " + ", ".join(f"{pc:#x}" for pc in places) + " has covered it"
    return "nothing that needs a wait is on its way"


def _covered(pending: list[_Pending], counts: tuple[int, int]) -> list[_Pending]:
    """The operations that a wait covers: the oldest, so that no more than the counts are left."""
    out: list[_Pending] = []
    for queue, count in zip(("vm", "lgkm"), counts, strict=True):
        own = [p for p in pending if p.queue == queue]
        out += own[: max(0, len(own) - count)]
    return out
