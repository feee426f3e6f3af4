"""Machine code to records: decodes a kernel once and binds each instruction to its native op."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tileir.codeobject import CodeObject, CodeObjectError, Kernel

from . import state
from .decoder import DecodeError, Instruction, Operand
from .decoder.decode import decode
from .engine import Engine
from .faults import Location
from .native.op import Context, Op, Unsupported
from .native.registry import END_OF_CODE, ILLEGAL_JUMP, REGISTER_RANGE, UNDECODABLE, UNSUPPORTED, lower

_INDIRECT = {"s_setpc_b64", "s_swappc_b64", "s_call_b64"}
_HEAD = struct.Struct(f"<QQQQII{state.SLOTS}q")


class Program:
    """The records of one kernel.

    addresses: address in the code object of each record. problems: why a record cannot run, by record number.
    """

    def __init__(self, code: CodeObject, kernel: Kernel, base: int, engine: Engine) -> None:
        self.code, self.kernel, self.base = code, kernel, base
        self.chip = code.chip
        self.instructions: list[Instruction | None] = []
        self.addresses: list[int] = []
        self.encodings: list[bytes] = []
        self.problems: dict[int, str] = {}
        self._sweep()
        self._context_options = self._float_options()
        ops = [self._lower(i) for i in range(len(self.instructions))]
        ops.append(END_OF_CODE)
        self._build(ops, engine)

    # ---- decoding
    def _regions(self, everything: bool) -> list[tuple[int, int]]:
        """Address ranges to decode: the kernel, or all executable segments when it jumps to computed addresses."""
        if everything:
            return [(s.vaddr, s.vaddr + s.filesize) for s in self.code.segments if s.executable]
        return [(self.kernel.entry_address, self.kernel.entry_address + self.kernel.code_size)]

    def _sweep(self) -> None:
        self._decode(self._regions(False))
        names = {i.name for i in self.instructions if i}
        low, high = self._regions(False)[0]
        leaves = any(
            not low <= address + inst.size + inst.operands[-1].index < high
            for address, inst in zip(self.addresses, self.instructions, strict=True)
            if inst and inst.operands and inst.operands[-1].kind == "label"
        )
        if names & _INDIRECT or leaves:
            self._decode(self._regions(True))

    def _decode(self, regions: list[tuple[int, int]]) -> None:
        self.instructions, self.addresses, self.encodings, self.problems = [], [], [], {}
        for start, end in regions:
            data = self.code.read(start, end - start)
            offset = 0
            while offset < len(data):
                inst: Instruction | None = None
                size = 4
                try:
                    inst = decode(self.chip, data, offset)
                    size = inst.size
                except DecodeError as error:
                    self.problems[len(self.instructions)] = error.reason
                self.instructions.append(inst)
                self.addresses.append(start + offset)
                self.encodings.append(data[offset : offset + size])
                offset += size

    # ---- lowering
    def _float_options(self) -> dict[str, bool]:
        d = self.kernel.descriptor
        plain = d.float_denorm_mode_32 == 3 and d.float_denorm_mode_16_64 == 3
        changes = any(i and i.name.startswith("s_setreg") for i in self.instructions)
        return {"dynamic_mode": changes or not plain, "dx10_clamp": d.dx10_clamp, "ieee": d.ieee_mode}

    def _lower(self, number: int) -> Op:
        inst = self.instructions[number]
        if inst is None:
            return UNDECODABLE
        problem = self._register_problem(inst)
        if problem:
            self.problems[number] = problem
            return REGISTER_RANGE
        try:
            return lower(inst, Context(self.chip, self.addresses[number], **self._context_options))
        except Unsupported as error:
            self.problems[number] = str(error)
            return UNSUPPORTED

    def _register_problem(self, inst: Instruction) -> str | None:
        """Registers beyond those that the kernel descriptor allocates."""
        d = self.kernel.descriptor
        for operand in inst.operands:
            limit = {"v": d.accum_offset, "a": d.vgpr_count - d.accum_offset}.get(operand.kind)
            if limit is not None and operand.index + operand.count > limit:
                return f"{_register_name(operand)} is outside the {limit} registers that the kernel allocates"
        return None

    # ---- records
    def _build(self, ops: list[Op], engine: Engine) -> None:
        makers: dict[str, Callable[[str], str]] = {op.key: op.make for op in (*ops, ILLEGAL_JUMP)}
        functions = engine.addresses(makers)
        n = len(ops)
        self.records: NDArray[np.uint8] = np.zeros((n + 1) * state.RECORD_SIZE, np.uint8)
        self.first_record = self.records.ctypes.data
        numbers = {address: i for i, address in enumerate(self.addresses)}
        self._numbers = numbers
        lost = self.first_record + n * state.RECORD_SIZE
        for i, op in enumerate(ops):
            target = 0
            if op.target is not None:
                found = numbers.get(op.target)
                target = lost if found is None else self.first_record + found * state.RECORD_SIZE
            address = self.addresses[i] if i < len(self.addresses) else self._end_address()
            words = _check_words(op)
            slots = [_signed(s) for s in op.slots]
            slots += [0] * (state.SLOTS - len(slots))
            at = i * state.RECORD_SIZE
            _HEAD.pack_into(self.records, at, functions[op.key], target, self.base + address, 0, len(words), 0, *slots)
            for k, (word, mask) in enumerate(words):
                self.records[at + state.REC_CHECK_WORDS + k] = word
                struct.pack_into("<Q", self.records, at + state.REC_CHECK_MASKS + 8 * k, mask)
        _HEAD.pack_into(self.records, n * state.RECORD_SIZE, functions[ILLEGAL_JUMP.key], 0, 0, 0, 0, 0, *[0] * state.SLOTS)
        self.code_start = min(self.addresses, default=0)
        self.code_bytes = (max(self.addresses, default=0) - self.code_start + 4) if self.addresses else 0
        self.code_map: NDArray[np.int32] = np.full(max(1, self.code_bytes // 4), -1, np.int32)
        for address, i in numbers.items():
            self.code_map[(address - self.code_start) // 4] = i

    def _end_address(self) -> int:
        return self.addresses[-1] + len(self.encodings[-1]) if self.addresses else self.kernel.entry_address

    def record_of(self, address: int) -> int:
        """Host pointer of the record at an address of the code object."""
        return self.first_record + self._numbers[address] * state.RECORD_SIZE

    def number_of(self, pointer: int) -> int:
        """Record number of a host pointer."""
        return (pointer - self.first_record) // state.RECORD_SIZE

    def location(self, number: int) -> Location:
        """Address, disassembly and source line of a record."""
        if number >= len(self.instructions):
            return Location(self._end_address(), "end of the code")
        address, inst = self.addresses[number], self.instructions[number]
        text = inst.text if inst else ".long " + " ".join(f"0x{b:02x}" for b in self.encodings[number])
        return Location(address, text, self.source(address))

    def source(self, address: int) -> str | None:
        """``file:line`` of an address, if the code object has a line table."""
        try:
            line = self.code.line_table.lookup(address)
        except CodeObjectError:
            return None
        return f"{line.file}:{line.line}" if line else None

    def counts(self) -> NDArray[np.uint64]:
        """Executions of each record so far."""
        table = self.records.reshape(-1, state.RECORD_SIZE)[:, state.REC_COUNT : state.REC_COUNT + 8]
        return np.ascontiguousarray(table).view(np.uint64).reshape(-1)


def _register_name(operand: Operand) -> str:
    last = operand.index + operand.count - 1
    return f"{operand.kind}{operand.index}" if operand.count == 1 else f"{operand.kind}[{operand.index}:{last}]"


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _check_words(op: Op) -> list[tuple[int, int]]:
    """The registers of an op as (word, mask) of the poison flags."""
    words: dict[int, int] = {}
    for first, n in op.checks:
        for register in range(first, first + n):
            words[register // 64] = words.get(register // 64, 0) | 1 << register % 64
    return sorted(words.items())
