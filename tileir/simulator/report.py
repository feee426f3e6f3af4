"""From a stopped wave to a :class:`SimulatorFault` that says what happened, where, and what it waited for."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from . import state
from .faults import SimulatorFault, lanes_of

if TYPE_CHECKING:
    from .launch import Dim3, _Launch  # pyright: ignore[reportPrivateUsage]

_KINDS = {
    state.FAULT_UNSUPPORTED: "unsupported-instruction",
    state.FAULT_UNDECODABLE: "undecodable-instruction",
    state.FAULT_POISONED_REGISTER: "missing-wait",
    state.FAULT_POISONED_LDS: "missing-wait-lds",
    state.FAULT_LDS_BOUNDS: "lds-bounds",
    state.FAULT_MEMORY_BOUNDS: "memory-bounds",
    state.FAULT_READ_ONLY: "read-only-memory",
    state.FAULT_SCRATCH_BOUNDS: "scratch-bounds",
    state.FAULT_MISALIGNED: "misaligned",
    state.FAULT_JUMP: "illegal-jump",
    state.FAULT_BUDGET: "instruction-budget",
    state.FAULT_BARRIER: "barrier-divergence",
    state.FAULT_END_OF_CODE: "end-of-code",
    state.FAULT_TRAP: "trap",
    state.FAULT_DESCRIPTOR: "buffer-descriptor",
    state.FAULT_INDEX: "register-range",
    state.FAULT_MODE: "float-mode",
    state.FAULT_EXEC: "inactive-lanes",
}


def register_name(number: int) -> str:
    """Name of a register in check numbering."""
    if number < state.CHECK_AGPR:
        return f"v{number}"
    if number < state.CHECK_SGPR:
        return f"a{number - state.CHECK_AGPR}"
    scalar = number - state.CHECK_SGPR
    names = {102: "flat_scratch_lo", 103: "flat_scratch_hi", 106: "vcc_lo", 107: "vcc_hi", 124: "m0"}
    if scalar >= 108 and scalar < 124:
        return f"ttmp{scalar - 108}"
    return names.get(scalar, f"s{scalar}")


class _Wave:
    """Reads fields of a wave's memory image."""

    def __init__(self, launch: _Launch, number: int) -> None:
        self.raw = launch.waves[number]
        self.number = number

    def u32(self, offset: int) -> int:
        return int(struct.unpack_from("<I", self.raw, offset)[0])

    def u64(self, offset: int) -> int:
        return int(struct.unpack_from("<Q", self.raw, offset)[0])

    def entries(self) -> list[int]:
        """Offsets of all pending operations."""
        out: list[int] = []
        for queue, head, length in (
            (state.QUEUE_VM, state.VM_HEAD, state.VM_LENGTH),
            (state.QUEUE_LGKM, state.LGKM_HEAD, state.LGKM_LENGTH),
        ):
            first, n = self.u32(head), self.u32(length)
            out += [queue + (first + i) % state.QUEUE_CAPACITY * state.ENTRY_BYTES for i in range(n)]
        for queue, length in ((state.QUEUE_SMEM, state.SMEM_LENGTH), (state.QUEUE_FLAT, state.FLAT_LENGTH)):
            out += [queue + i * state.ENTRY_BYTES for i in range(self.u32(length))]
        return out


def fault(launch: _Launch, code: int, wave_number: int, workgroup: Dim3) -> SimulatorFault:
    """The fault of a stopped workgroup."""
    program = launch.program
    wave = _Wave(launch, wave_number)
    number = launch.records.number(wave.u64(state.CURRENT))
    location = program.location(number)
    lanes = lanes_of(wave.u64(state.FAULT_LANES))
    address = wave.u64(state.FAULT_ADDRESS)
    notes: list[str] = []
    message = ""
    if code == state.FAULT_UNSUPPORTED:
        message = f"the instruction cannot be executed: {program.problems.get(number, '')}"
        notes.append(f"encoding {program.encodings[number].hex(' ')}")
    elif code == state.FAULT_UNDECODABLE:
        message = f"the bytes are no instruction of {program.chip}: {program.problems.get(number, '')}"
        notes.append(f"encoding {program.encodings[number].hex(' ')}")
    elif code == state.FAULT_INDEX:
        index = wave.u32(state.M0) & 0xFF
        message = program.problems.get(
            number, f"register index {index} in M0 leads outside the registers of the kernel"
        )
    elif code == state.FAULT_POISONED_REGISTER:
        register = wave.u32(state.FAULT_REGISTER)
        message = f"{register_name(register)} is used before the operation that writes it has been waited for"
        notes += _pending_register(launch, wave, register)
    elif code == state.FAULT_POISONED_LDS:
        message = f"LDS byte {address:#x} is used while a load to LDS that writes it is still on its way"
        notes += _pending_lds(launch, address)
    elif code == state.FAULT_LDS_BOUNDS:
        message = f"LDS address {address:#x} ({address}) is outside the {launch.lds_bytes} bytes of the workgroup"
    elif code in (state.FAULT_MEMORY_BOUNDS, state.FAULT_READ_ONLY):
        verb = "is outside every allocation" if code == state.FAULT_MEMORY_BOUNDS else "is read-only"
        message = f"address {address:#x} {verb}"
        notes.append(f"the address is {launch.simulator.memory.describe(address)}")
    elif code == state.FAULT_SCRATCH_BOUNDS:
        message = f"scratch address {address:#x} is outside the {launch.scratch_bytes} bytes of a lane"
        if launch.kernel.descriptor.uses_dynamic_stack:
            notes.append("the kernel's stack is dynamic: the launch decides how large it is")
    elif code == state.FAULT_MISALIGNED:
        message = f"{address:#x} is no multiple of the size of the atomic operation, or of 4 for a load to LDS"
    elif code == state.FAULT_JUMP:
        message = f"jump to {address:#x}, where no instruction of the code object starts"
    elif code == state.FAULT_BUDGET:
        message = f"the workgroup has executed {launch.max_instructions} instructions without ending (endless loop?)"
        words = launch.waves.view("<u4")[:, state.STATUS // 4]
        waiting = [w for w in range(launch.wave_count) if words[w] == state.STATUS_BARRIER]
        if waiting:
            notes.append(f"waves {waiting} wait at a barrier (deadlock?)")
    elif code == state.FAULT_BARRIER:
        message, more = _barrier(launch)
        notes += more
        location = program.location(max(0, number - 1))
    elif code == state.FAULT_END_OF_CODE:
        message = "execution ran past the last instruction"
    elif code == state.FAULT_TRAP:
        message = "the kernel executed a trap"
    elif code == state.FAULT_DESCRIPTOR:
        message = "the buffer descriptor, or the format of the access, asks for something that no document defines"
    elif code == state.FAULT_MODE:
        message = "DX10_CLAMP, IEEE, GPR_IDX_EN and VSKIP of MODE keep the values that the kernel starts with"
    elif code == state.FAULT_EXEC:
        message = "the instruction needs all lanes active"
    return SimulatorFault(
        _KINDS.get(code, f"fault-{code}"),
        message,
        workgroup=workgroup,
        wave=wave_number,
        lanes=lanes,
        location=location,
        notes=tuple(notes),
    )


def _pending_register(launch: _Launch, wave: _Wave, register: int) -> list[str]:
    owner = wave.u32(state.OWNER + 4 * register)
    for entry in wave.entries():
        if wave.u32(entry + state.ENTRY_SEQUENCE) == owner:
            origin = launch.program.location(launch.records.number(wave.u64(entry + state.ENTRY_RECORD)))
            return [f"written by {origin}", "an s_waitcnt that covers it has to come first"]
    return []


def _pending_lds(launch: _Launch, address: int) -> list[str]:
    notes: list[str] = []
    for number in range(launch.wave_count):
        wave = _Wave(launch, number)
        for entry in wave.entries():
            size = wave.u32(entry + state.ENTRY_LDS_BYTES)
            base = wave.u32(entry + state.ENTRY_LDS_BASE)
            if size and base <= address < base + 64 * size:
                origin = launch.program.location(launch.records.number(wave.u64(entry + state.ENTRY_RECORD)))
                notes.append(f"written by wave {number}: {origin}")
    return notes


def _barrier(launch: _Launch) -> tuple[str, list[str]]:
    ended: list[int] = []
    waiting: list[int] = []
    for number in range(launch.wave_count):
        status = _Wave(launch, number).u32(state.STATUS)
        (ended if status == state.STATUS_ENDED else waiting).append(number)
    message = f"waves {waiting} wait at a barrier that waves {ended} never reach: they have ended"
    return message, []
