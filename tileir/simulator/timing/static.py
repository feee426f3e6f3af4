"""What the model of the CU knows about each instruction of a program: unit, clocks, counters, registers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tileir.records import dataclass
from tileir.simulator.checks.hazard import is_matrix
from tileir.simulator.checks.registers import registers
from tileir.simulator.decoder import Instruction, Operand
from tileir.simulator.decoder.immediates import waitcnt_fields
from tileir.simulator.faults import SimulatorError
from tileir.simulator.inspect import classify
from tileir.simulator.native.op import check_of
from tileir.simulator.program import Program
from tileir.simulator.timing import layout
from tileir.simulator.timing.lds_rules import LdsRules
from tileir.simulator.timing.records import Unit
from tileir.target import Mfma, Target, TimingModel

_FIELDS = {
    "unit": layout.S_UNIT, "class": layout.S_CLASS, "flags": layout.S_FLAGS, "busy": layout.S_BUSY,
    "delay": layout.S_DELAY, "taken_delay": layout.S_TAKEN_DELAY, "wait_vm": layout.S_WAIT_VM,
    "wait_lgkm": layout.S_WAIT_LGKM, "value": layout.S_VALUE, "return": layout.S_RETURN, "to_use": layout.S_TO_USE,
    "to_factor": layout.S_TO_FACTOR, "to_same": layout.S_TO_SAME, "to_other": layout.S_TO_OTHER,
    "to_partial": layout.S_TO_PARTIAL, "opcode": layout.S_OPCODE, "result": layout.S_RESULT,
    "result_count": layout.S_RESULT_COUNT, "list": layout.S_LIST, "uses": layout.S_USES,
    "factors": layout.S_FACTORS, "accumulator": layout.S_ACCUMULATOR,
    "accumulator_count": layout.S_ACCUMULATOR_COUNT,
}  # fmt: skip
STATIC = np.dtype(
    {
        "names": list(_FIELDS),
        "formats": ["<i4"] * len(_FIELDS),
        "offsets": list(_FIELDS.values()),
        "itemsize": layout.S_BYTES,
    }
)
_CLASS_BITS = {Unit.VALU: 1, Unit.MFMA: 1, Unit.VMEM: 2, Unit.SALU: 4, Unit.SMEM: 4, Unit.LDS: 8, Unit.BRANCH: 16}
"""The classes of which a SIMD issues one instruction per turn; what the wave executes itself has none.
[ROCm profiler documentation, scheduler]"""
_VECTOR_MEMORY = ("mubuf", "mtbuf", "global", "flat", "scratch")
_INTERNAL = (classify.WAIT, classify.BARRIER, classify.NOP, classify.PRIORITY, classify.OTHER)
_MULTIPLIES = ("v_mul_lo_u32", "v_mul_hi_u32", "v_mul_hi_i32", "v_mad_u64_u32", "v_mad_i64_i32")
_SWAPS = ("v_permlane16_swap", "v_permlane32_swap")
_NARROW_FORMATS = (2, 3, 4)
"""cbsz and blgp of operands below 8 bits. [CDNA4 ISA, V_MFMA_F32_*_F8F6F4]"""
_NOTHING = -1


@dataclass(frozen=True, eq=False)
class StaticTable:
    """rows: :data:`STATIC` by record. registers: their operands, u2. classes: the class of each record, as
    :mod:`tileir.simulator.inspect` names them."""

    rows: NDArray[np.void]
    registers: NDArray[np.uint16]
    classes: tuple[str, ...]


def static_table(program: Program, target: Target, model: TimingModel) -> StaticTable:
    """The table of a program."""
    return _Maker(target, model).table(program)


def class_of(inst: Instruction) -> str:
    to_lds = bool(inst.modifiers.get("lds")) or "_load_lds_" in inst.name
    return classify.classify(inst.name, inst.encoding, to_lds)


class _Maker:
    def __init__(self, target: Target, model: TimingModel) -> None:
        if target.simds_per_cu != layout.SIMDS or model.clocks("turn_clocks") != layout.SIMDS:
            raise SimulatorError(f"the timing model is made for {layout.SIMDS} SIMDs that take turns")
        self.target, self.model = target, model
        self.turn = model.clocks("turn_clocks")
        self.rules = LdsRules(target)
        self.list: list[int] = []
        self.opcodes: dict[str, int] = {}

    def table(self, program: Program) -> StaticTable:
        n = len(program.instructions)
        rows = np.zeros(n + 1, STATIC)
        rows["wait_vm"] = rows["wait_lgkm"] = rows["result"] = rows["accumulator"] = _NOTHING
        classes: list[str] = []
        for i, inst in enumerate(program.instructions):
            if inst is None:
                classes.append(classify.OTHER)
                continue
            class_ = class_of(inst)
            classes.append(class_)
            row = self._row(inst, class_)
            for name, value in row.items():
                rows[i][name] = value
        return StaticTable(rows, np.array([*self.list, 0], np.uint16), tuple(classes))

    def _row(self, inst: Instruction, class_: str) -> dict[str, int]:
        unit = _unit(inst, class_)
        row = {"unit": int(unit), "class": _CLASS_BITS.get(unit, 0), "busy": self.turn, "delay": self.turn}
        flags = 0
        if unit == Unit.VALU:
            row["busy"] = self._valu_clocks(inst, class_)
            flags |= layout.F_PACKED if inst.name.startswith("v_pk_") and inst.name.endswith("_f32") else 0
        elif unit == Unit.MFMA:
            row["busy"] = self._matrix(inst).passes * self.target.mfma_pass_clocks
            flags |= layout.F_MATRIX
        elif unit == Unit.VMEM:
            flags |= self._vector_memory(inst, class_, row)
        elif unit == Unit.LDS:
            rule = self.rules.of(inst)
            moved = rule.bytes_per_lane * self.target.wave_size if rule else 0
            row["return"] = round(moved / self.model.number("lds_return_bytes_per_clock"))
            flags |= layout.F_LDS | layout.F_LGKM
        elif unit == Unit.SMEM:
            flags |= layout.F_SCALAR | layout.F_LGKM
        elif unit == Unit.BRANCH:
            row["delay"] = self.model.clocks("branch_not_taken_clocks")
            row["taken_delay"] = self.model.clocks("branch_taken_clocks")
        else:
            flags |= self._internal(inst, row)
        row.setdefault("taken_delay", row["delay"])
        row["flags"] = flags
        self._registers(inst, unit, row)
        return row

    def _internal(self, inst: Instruction, row: dict[str, int]) -> int:
        immediate = inst.operands[0].index if inst.operands else 0
        if inst.name == "s_waitcnt":
            vm, _, lgkm = waitcnt_fields(immediate)
            row["wait_vm"] = _NOTHING if vm >= self.target.vmcnt_max else vm
            row["wait_lgkm"] = _NOTHING if lgkm >= self.target.lgkmcnt_max else lgkm
        elif inst.name == "s_nop":
            row["delay"] = (immediate + 1) * self.turn
        elif inst.name == "s_sleep":
            row["delay"] = max(self.turn, (immediate & 0x7F) * self.model.clocks("sleep_clocks"))
        elif inst.name == "s_setprio":
            row["value"] = immediate & self.target.setprio_max
            return layout.F_PRIORITY
        elif inst.name == "s_barrier":
            return layout.F_BARRIER
        elif inst.name.startswith("s_endpgm"):
            return layout.F_END
        return 0

    def _vector_memory(self, inst: Instruction, class_: str, row: dict[str, int]) -> int:
        dwords = max(1, -(-classify.width(inst.name) // self.target.register_bytes))
        least = self.model.clocks("vmem_issue_clocks_min")
        row["busy"] = max(least, dwords * self.model.clocks("vmem_issue_clocks_per_dword"))
        if class_ == classify.CACHE:  # has no result to wait for
            row["busy"] = least
            return 0
        flags = layout.F_VM
        if class_ == classify.TO_LDS:
            flags |= layout.F_TO_LDS
        if inst.encoding == "flat":
            flags |= layout.F_LGKM
        return flags

    def _valu_clocks(self, inst: Instruction, class_: str) -> int:
        if class_ == classify.TRANSCENDENTAL:
            return self.model.clocks("transcendental_clocks")
        if inst.name.startswith(_MULTIPLIES):
            return self.model.clocks("integer_multiply_clocks")
        if inst.name.startswith(_SWAPS):
            return self.model.clocks("permlane_swap_clocks")
        return self.model.clocks("valu_clocks")

    # ---- matrix instructions
    def _matrix(self, inst: Instruction) -> _Matrix:
        if inst.name not in self.target.mfma_by_name:
            raise SimulatorError(f"the length of {inst.name} is not known")
        mfma = self.target.mfma(inst.name)
        formats = (inst.modifiers.get("cbsz", 0), inst.modifiers.get("blgp", 0))
        narrow = inst.name.endswith("f8f6f4") and all(f in _NARROW_FORMATS for f in formats)
        return _Matrix(mfma, mfma.passes_narrow if narrow else mfma.passes)

    def _results(self, inst: Instruction, row: dict[str, int]) -> None:
        """Clocks until others may use the result of an MFMA: so many wait states between the two, and one turn."""
        m = self.model
        matrix = self._matrix(inst)
        passes, kind = matrix.passes, matrix.kind
        surcharge = m.clocks("mfma_result_surcharge_passes") if passes > 2 else 0
        if kind == "f64":
            small = matrix.mfma.m == 4
            read = m.clocks("mfma_f64_small_read_passes" if small else "mfma_f64_read_passes")
            partial = other = passes - 1
        else:
            extra = surcharge if kind == "xdl" else 0
            read = passes + int(m.table("mfma_result_extra_passes")[kind]) + extra
            partial = passes + int(m.table("mfma_partial_extra_passes")[kind]) + extra
            other = passes - 1
            if m.clocks("mfma_other_opcode_extra_passes"):
                other = passes + m.clocks("mfma_other_opcode_extra_passes")
        row["to_use"] = row["to_factor"] = (read + 1) * self.turn
        row["to_partial"] = (partial + 1) * self.turn
        row["to_same"] = passes * self.target.mfma_pass_clocks
        row["to_other"] = (other + 1) * self.turn

    # ---- registers
    def _registers(self, inst: Instruction, unit: Unit, row: dict[str, int]) -> None:
        """Vector registers alone: scalar results may be used in the wave's next turn."""
        reads, writes = registers(inst)
        uses = sorted(n for n in reads | writes if n < layout.REGISTERS)
        row["list"] = len(self.list)
        row["opcode"] = self.opcodes.setdefault(inst.name, len(self.opcodes))
        if is_matrix(inst):
            d, rest = inst.operands[0], inst.operands[1:]
            sparse = inst.name.startswith("v_smfmac")
            accumulator = _numbers(d if sparse else rest[2])
            factors = [n for i, o in enumerate(rest) if sparse or i != 2 for n in _numbers(o)]
            result = _numbers(d)
            uses = [n for n in result if n not in accumulator]
            self.list += [*uses, *factors, *accumulator]
            row |= {"uses": len(uses), "factors": len(factors)}
            row["accumulator"] = accumulator[0] if accumulator else _NOTHING
            row["accumulator_count"] = len(accumulator)
            self._results(inst, row)
            row |= {"result": result[0], "result_count": len(result)}
            return
        self.list += uses
        row["uses"] = len(uses)
        written = sorted(n for n in writes if n < layout.REGISTERS)
        if unit == Unit.VALU and written:
            states = self.model.clocks("valu_to_mfma_wait_states")
            row["to_use"] = row["busy"]
            row["to_factor"] = row["to_same"] = row["to_other"] = row["to_partial"] = max(
                row["busy"], (states + 1) * self.turn
            )
            row |= {"result": written[0], "result_count": written[-1] - written[0] + 1}


@dataclass(frozen=True)
class _Matrix:
    mfma: Mfma
    passes: int

    @property
    def kind(self) -> str:
        """Which row of the table of wait states holds: by the elements that are multiplied."""
        if self.mfma.c == "f64":
            return "f64"
        return "f32" if self.mfma.a == ("f32",) and not self.mfma.math else "xdl"


def _numbers(operand: Operand) -> list[int]:
    found = check_of(operand)
    if found is None or found[0] >= layout.REGISTERS:
        return []
    return list(range(found[0], found[0] + found[1]))


def _unit(inst: Instruction, class_: str) -> Unit:
    if class_ in (classify.MFMA,):
        return Unit.MFMA
    if inst.encoding == "ds":
        return Unit.LDS
    if inst.encoding in _VECTOR_MEMORY:
        return Unit.VMEM
    if class_ == classify.SMEM:
        return Unit.SMEM
    if class_ in (classify.VALU, classify.TRANSCENDENTAL):
        return Unit.VALU
    if class_ == classify.BRANCH:
        return Unit.BRANCH
    return Unit.INTERNAL if class_ in _INTERNAL else Unit.SALU
