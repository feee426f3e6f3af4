"""Machine code to records: decodes a kernel once and binds each instruction to its native op."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tileir.codeobject import CodeObject, CodeObjectError, Kernel

from .decoder import DecodeError, Instruction, Operand, decode
from .engine import Engine
from .faults import Location
from .native.op import Context, Op, Unsupported
from .native.registry import REGISTER_RANGE, UNDECODABLE, UNSUPPORTED, lower
from .records import Records

_INDIRECT = {"s_setpc_b64", "s_swappc_b64", "s_call_b64"}


class Program:
    """The records of one kernel.

    addresses: address in the code object of each record. problems: why a record cannot run, by record number.
    """

    def __init__(self, code: CodeObject, kernel: Kernel, base: int, engine: Engine) -> None:
        self.code, self.kernel, self.base, self._engine = code, kernel, base, engine
        self.chip = code.chip
        self.instructions: list[Instruction | None] = []
        self.addresses: list[int] = []
        self.encodings: list[bytes] = []
        self.problems: dict[int, str] = {}
        self._sweep()
        self._context_options = self._float_options()
        self.indexing = self._indexing()
        self.ops = [self._lower(i, self.indexing[i]) for i in range(len(self.instructions))]
        self._build(self.ops)

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
        plain = plain and not (d.float_round_mode_32 or d.float_round_mode_16_64 or d.fp16_overflow)
        changes = any(i and i.name.startswith("s_setreg") for i in self.instructions)
        return {"dynamic_mode": changes or not plain, "dx10_clamp": d.dx10_clamp, "ieee": d.ieee_mode}

    def _indexing(self) -> list[int]:
        """For each instruction the operands that s_set_gpr_idx_on made relative to M0, in textual order; the ops
        themselves check that the mode is really on."""
        out: list[int] = []
        current = 0
        for inst in self.instructions:
            out.append(current)
            if inst and inst.name == "s_set_gpr_idx_on":
                current = inst.operands[1].index & 15
            elif inst and inst.name == "s_set_gpr_idx_mode":
                current = inst.operands[0].index & 15
            elif inst and inst.name == "s_set_gpr_idx_off":
                current = 0
        return out

    def _lower(self, number: int, indexing: int) -> Op:
        inst = self.instructions[number]
        if inst is None:
            return UNDECODABLE
        problem = self._register_problem(inst)
        if problem:
            self.problems[number] = problem
            return REGISTER_RANGE
        try:
            address, vgprs = self.base + self.addresses[number], self.kernel.descriptor.accum_offset
            op = lower(inst, Context(self.chip, address, indexing=indexing, vgprs=vgprs, **self._context_options))
            self._engine.prepare(op.key, op.make)
            return op
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
    def _build(self, ops: list[Op]) -> None:
        simulated = [self.base + address for address in self.addresses]
        self.records = Records(ops, simulated, self._engine, self.base + self.end_address)
        self.code_start = min(self.addresses, default=0)
        self.code_bytes = max(self.addresses, default=0) - self.code_start + 4 if self.addresses else 0
        self.code_map: NDArray[np.int32] = np.full(max(1, self.code_bytes // 4), -1, np.int32)
        for i, address in enumerate(self.addresses):
            self.code_map[(address - self.code_start) // 4] = i

    @property
    def end_address(self) -> int:
        """Address behind the last instruction."""
        return self.addresses[-1] + len(self.encodings[-1]) if self.addresses else self.kernel.entry_address

    @property
    def starts(self) -> set[int]:
        """Addresses in the code object at which instructions start."""
        return set(self.addresses)

    def location(self, number: int) -> Location:
        """Address, disassembly and source line of a record."""
        if number >= len(self.instructions):
            return Location(self.end_address, "end of the code")
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


def _register_name(operand: Operand) -> str:
    last = operand.index + operand.count - 1
    return f"{operand.kind}{operand.index}" if operand.count == 1 else f"{operand.kind}[{operand.index}:{last}]"
