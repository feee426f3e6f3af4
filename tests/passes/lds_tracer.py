"""Steps a workgroup through the simulator one instruction at a time and notes every LDS address that it uses, with bank
conflicts counted by hand: nothing here reads the tables or the bank model of the compiler."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tests.layout.rules import EIGHTS, SIXTEENS, consecutive
from tileir.simulator import state
from tileir.simulator.program import Program

# (banks, lane groups) of the instructions whose groups are not consecutive lanes that cover 32 banks.
SPECIAL = {
    ("gfx942", "ds_read_b96"): (32, EIGHTS),
    ("gfx942", "ds_read_b128"): (32, EIGHTS),
    ("gfx950", "ds_read_b96"): (32, EIGHTS),
    ("gfx950", "ds_read_b128"): (64, SIXTEENS),
    ("gfx950", "ds_read_b64"): (64, consecutive(32)),
    ("gfx950", "ds_read2_b64"): (64, consecutive(32)),
    ("gfx950", "ds_read2st64_b64"): (64, consecutive(32)),
    ("gfx950", "ds_read_b64_tr_b16"): (64, consecutive(32)),
    ("gfx950", "ds_read_b64_tr_b8"): (64, consecutive(32)),
    ("gfx950", "ds_read_b64_tr_b4"): (64, consecutive(32)),
}


def rule(chip: str, name: str) -> tuple[int, tuple[tuple[int, ...], ...]]:
    """(banks, lane groups) of an instruction, as written down here."""
    size = bytes_of(name)
    lanes = {1: 32, 2: 32, 4: 32, 8: 16, 12: 8, 16: 8}[size]
    return SPECIAL.get((chip, name), (32, consecutive(lanes)))


def bytes_of(name: str) -> int:
    """Bytes per lane and address, from the name of the instruction."""
    if "dwordx4" in name or "b128" in name:
        return 16
    if "dwordx3" in name or "b96" in name:
        return 12
    if "b64" in name:
        return 8
    if "b16" in name or "u16" in name or "i16" in name:
        return 2
    if "b8" in name or "u8" in name or "i8" in name:
        return 1
    assert "b32" in name or "dword" in name, name
    return 4


@cache
def degree(chip: str, name: str, addresses: tuple[int | None, ...]) -> int:
    """Most distinct dwords of one bank in one group of lanes."""
    size = bytes_of(name)
    banks, groups = rule(chip, name)
    worst = 0
    for group in groups:
        wanted: dict[int, set[int]] = {}
        for lane in group:
            address = addresses[lane]
            if address is not None:
                for byte in range(address, address + size):
                    wanted.setdefault(byte // 4 % banks, set()).add(byte // 4)
        worst = max([worst, *map(len, wanted.values())])
    return worst


@dataclass
class Trace:
    """What one launch did in LDS: `accesses` are (instruction, source line, addresses by lane or None), `degrees` the worst
    degree by (instruction, source line)."""

    chip: str
    accesses: set[tuple[str, int, tuple[int | None, ...]]] = field(default_factory=set)
    count: int = 0

    def add(self, name: str, line: int, addresses: tuple[int | None, ...]) -> None:
        self.accesses.add((name, line, addresses))
        self.count += 1

    @property
    def degrees(self) -> dict[tuple[str, int], int]:
        out: dict[tuple[str, int], int] = {}
        for name, line, addresses in self.accesses:
            out[name, line] = max(out.get((name, line), 0), degree(self.chip, name, addresses))
        return out


class _Stepper:
    def __init__(self, engine: Any, program: Program, trace: Trace):
        self.engine, self.program, self.trace = engine, program, trace

    def run_workgroup(self, address: int) -> int:
        """In place of the native loop over waves: a wave runs until it ends or meets a barrier, one step at a time."""
        wg = (ctypes.c_uint8 * state.WG_BYTES).from_address(address)
        (first,) = struct.unpack_from("<Q", wg, state.WG_WAVES)
        (count,) = struct.unpack_from("<I", wg, state.WG_WAVE_COUNT)
        waves = [(ctypes.c_uint8 * state.WAVE_BYTES).from_address(first + i * state.WAVE_BYTES) for i in range(count)]
        while True:
            for i, wave in enumerate(waves):
                while self._status(wave) in (state.STATUS_RUNNING, state.STATUS_SLICE):
                    self._look(wave)
                    struct.pack_into("<Q", wave, state.BUDGET, 1)
                    result = self.engine.run_wave(first + i * state.WAVE_BYTES)
                    if result >= state.FAULT_BASE:
                        return result | i << 8
            if all(self._status(w) == state.STATUS_ENDED for w in waves):
                return 0
            for wave in waves:
                if self._status(wave) == state.STATUS_BARRIER:
                    struct.pack_into("<I", wave, state.STATUS, state.STATUS_RUNNING)

    @staticmethod
    def _status(wave: Any) -> int:
        return struct.unpack_from("<I", wave, state.STATUS)[0]

    def _look(self, wave: Any) -> None:
        (record,) = struct.unpack_from("<Q", wave, state.CURRENT)
        number = self.program.records.number(record)
        inst = self.program.instructions[number] if number < len(self.program.instructions) else None
        if inst is None:
            return
        (active,) = struct.unpack_from("<Q", wave, state.EXEC)
        source = self.program.source(self.program.addresses[number])
        line = int(source.rsplit(":", 1)[1]) if source else 0
        lanes = range(64)
        if inst.name.startswith("buffer_load") and inst.modifiers.get("lds"):
            (m0,) = struct.unpack_from("<I", wave, state.M0)
            start = m0 + inst.modifiers.get("offset", 0)
            size = bytes_of(inst.name)
            used = tuple(start + lane * size if active >> lane & 1 else None for lane in lanes)
            self.trace.add(f"{inst.name}_lds", line, used)
        elif inst.name.startswith(("ds_read", "ds_write")):
            operand = inst.operands[1 if "read" in inst.name else 0]
            assert operand.kind == "v"
            base = struct.unpack_from("<64I", wave, state.VGPR + 256 * operand.index)
            for offset in self._offsets(inst):
                used = tuple(base[lane] + offset if active >> lane & 1 else None for lane in lanes)
                self.trace.add(inst.name, line, used)

    @staticmethod
    def _offsets(inst: Any) -> list[int]:
        if "2" not in inst.name.split("_")[1]:
            return [inst.modifiers.get("offset", 0)]
        unit = bytes_of(inst.name) * (64 if "st64" in inst.name else 1)
        return [unit * inst.modifiers.get(f"offset{i}", 0) for i in range(2)]


@contextmanager
def traced(device: Any, hsaco: bytes, kernel: str) -> Iterator[Trace]:
    """While the context is open, launches on the simulator device are stepped and noted in the trace."""
    engine = device.simulator.engine
    trace = Trace(device.simulator.target.name)
    original = engine.run_workgroup
    engine.run_workgroup = _Stepper(engine, device.load(hsaco).program(kernel), trace).run_workgroup
    try:
        yield trace
    finally:
        engine.run_workgroup = original
