"""Runs single instructions on one wave, without a code object."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from tileir.simulator import state
from tileir.simulator.decoder import Instruction, Operand
from tileir.simulator.engine import engine
from tileir.simulator.memory import Memory
from tileir.simulator.native.global_memory import PRIVATE_APERTURE, SHARED_APERTURE
from tileir.simulator.native.op import Context
from tileir.simulator.native.registry import lower
from tileir.simulator.records import Records

FULL = (1 << 64) - 1


def v(index: int, count: int = 1, **modifiers: bool) -> Operand:
    return Operand("v", index, count, "", **modifiers)


def a(index: int, count: int = 1) -> Operand:
    return Operand("a", index, count)


def s(index: int, count: int = 1, **modifiers: bool) -> Operand:
    return Operand("s", index, count, "", **modifiers)


def imm(value: int, count: int = 1) -> Operand:
    return Operand("imm", value & ((1 << 32 * count) - 1), count)


VCC = Operand("special", 0, 2, "vcc")
EXEC = Operand("special", 0, 2, "exec")
M0 = Operand("special", 0, 1, "m0")
OFF = Operand("off", 0, 0)


def instruction(name: str, *operands: Operand, encoding: str = "vop3", size: int = 8, **modifiers: int) -> Instruction:
    return Instruction(name, encoding, size, operands, modifiers, b"\0" * size)


def end() -> Instruction:
    return instruction("s_endpgm", encoding="sopp", size=4)


def wait(vm: int = 63, lgkm: int = 15) -> Instruction:
    simm16 = (vm & 15) | (vm >> 4) << 14 | lgkm << 8 | 7 << 4
    return instruction("s_waitcnt", imm(simm16), encoding="sopp", size=4)


def _aligned(size: int) -> NDArray[np.uint8]:
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


class Bench:
    """One wave with LDS, scratch and device memory."""

    def __init__(
        self, chip: str = "gfx950", lds_bytes: int = 65536, scratch_bytes: int = 256, dynamic: bool = False
    ) -> None:
        self.chip, self.dynamic = chip, dynamic
        self.memory = Memory()
        self.raw = _aligned(state.WAVE_BYTES)
        self.words = self.raw.view(np.uint32)
        self.workgroup = _aligned(state.WG_BYTES)
        self.lds = _aligned(lds_bytes + 64)
        self.lds_bytes = lds_bytes
        self.poison = np.zeros(lds_bytes // 4 + 64, np.uint8)
        self.scratch = _aligned(64 * scratch_bytes)
        self.scratch_bytes = scratch_bytes
        self.mode = 0xF0 | 1 << 8 | 1 << 9
        self.exec = FULL
        self.ieee = True
        self.indexing: dict[int, int] = {}
        """By position of the instruction, the operands that s_set_gpr_idx made relative to M0."""

    def row(self, operand: Operand, register: int = 0) -> NDArray[np.uint32]:
        """64 dwords of a register, writable."""
        base = state.VGPR if operand.kind == "v" else state.AGPR
        at = (base + 256 * (operand.index + register)) // 4
        return self.words[at : at + 64]

    def set(self, operand: Operand, values: NDArray[np.generic]) -> None:
        """Stores 64 values of 16, 32 or 64 bits in a register operand; 16-bit values get garbage above them."""
        size = values.dtype.itemsize
        raw = values.view(np.dtype(f"u{size}"))
        if size == 2:
            self.row(operand)[:] = raw.astype(np.uint32) | np.uint32(0xABCD0000)
        elif size == 4:
            self.row(operand)[:] = raw
        else:
            self.row(operand)[:] = raw.astype(np.uint32)
            self.row(operand, 1)[:] = (raw >> np.uint64(32)).astype(np.uint32)

    def get(self, operand: Operand, dtype: type[np.generic]) -> NDArray[np.generic]:
        size = np.dtype(dtype).itemsize
        low = self.row(operand)
        if size == 2:
            return low.astype(np.uint16).view(dtype)
        if size == 4:
            return low.copy().view(dtype)
        return (low.astype(np.uint64) | self.row(operand, 1).astype(np.uint64) << np.uint64(32)).view(dtype)

    def sgpr(self, index: int) -> int:
        return int(self.words[index])

    def set_sgpr(self, index: int, value: int) -> None:
        self.words[index] = value & 0xFFFFFFFF

    def sgpr64(self, index: int) -> int:
        return self.sgpr(index) | self.sgpr(index + 1) << 32

    def set_sgpr64(self, index: int, value: int) -> None:
        self.set_sgpr(index, value)
        self.set_sgpr(index + 1, value >> 32)

    @property
    def vcc(self) -> int:
        return self.sgpr64(106)

    @vcc.setter
    def vcc(self, value: int) -> None:
        self.set_sgpr64(106, value)

    @property
    def scc(self) -> int:
        return int(self.words[state.SCC // 4])

    @scc.setter
    def scc(self, value: int) -> None:
        self.words[state.SCC // 4] = value

    def run(self, *instructions: Instruction, budget: int = 100_000) -> int:
        """Executes and returns the status of the wave (1 = ended)."""
        program = [*instructions, end()]
        addresses = list(np.cumsum([0x1000, *(i.size for i in program)])[:-1].tolist())
        context = [
            Context(self.chip, address, dynamic_mode=self.dynamic, ieee=self.ieee, indexing=self.indexing.get(i, 0))
            for i, address in enumerate(addresses)
        ]
        self.ops = [lower(i, c) for i, c in zip(program, context, strict=True)]
        library = engine()
        self.records = Records(self.ops, addresses, library)
        self.code_map = np.full(addresses[-1] // 4, -1, np.int32)
        for i, address in enumerate(addresses):
            self.code_map[(address - 0x1000) // 4] = i
        raw, wg = self.raw, self.workgroup
        table = self.memory.table()
        for offset, value in {
            state.WG_LDS: self.lds.ctypes.data,
            state.WG_LDS_SIZE: self.lds_bytes,
            state.WG_LDS_POISON: self.poison.ctypes.data,
            state.WG_WAVES: raw.ctypes.data,
            state.WG_WAVE_COUNT: 1,
            state.WG_ALLOCATIONS: table.ctypes.data,
            state.WG_ALLOCATION_COUNT: len(table),
            state.WG_CODE_BASE: 0x1000,
            state.WG_CODE_BYTES: addresses[-1] + 4 - 0x1000,
            state.WG_CODE_MAP: self.code_map.ctypes.data,
            state.WG_RECORDS: self.records.first,
        }.items():
            struct.pack_into("<Q", wg, offset, value)
        raw[state.STATUS : state.STATUS + 4] = 0
        for offset, value in {
            state.EXEC: self.exec,
            state.CURRENT: self.records.first,
            state.BUDGET: budget,
            state.WORKGROUP: wg.ctypes.data,
            state.HELPERS: library.helper_table,
            state.SCRATCH: self.scratch.ctypes.data,
            state.SCRATCH_BYTES: self.scratch_bytes,
            state.SHARED_BASE: SHARED_APERTURE << 32,
            state.PRIVATE_BASE: PRIVATE_APERTURE << 32,
        }.items():
            struct.pack_into("<Q", raw, offset, value)
        struct.pack_into("<I", raw, state.MODE, self.mode)
        return library.run_wave(raw.ctypes.data)

    def must_run(self, *instructions: Instruction) -> None:
        assert self.run(*instructions) == state.STATUS_ENDED
