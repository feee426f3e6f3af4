"""How many registers LLVM will make of an emitted kernel, found without LLVM.

    prediction = predict(emit_module(kernel, target), target)
    prediction.vector, prediction.accumulation, prediction.scalar

The text is read (`text`), its values get the registers that selection gives them (`select`, `values`), what LLVM shares, moves out of
loops and schedules early is shared and moved (`motion`), registers are alive at points of that order (`liveness`), and are
placed as the greedy allocator does (`allocate`). docs/registers.md has the comparison with the metadata of code objects.
"""

from __future__ import annotations

import re
from dataclasses import field

from tileir.lowering.amdgpu.registers.allocate import Rows, allocate
from tileir.lowering.amdgpu.registers.liveness import Liveness, liveness, profile
from tileir.lowering.amdgpu.registers.motion import early_loads, hoist, share
from tileir.lowering.amdgpu.registers.select import select
from tileir.lowering.amdgpu.registers.text import Function, Instruction, read
from tileir.lowering.amdgpu.registers.values import ACCUMULATION, MASK, SCALAR, VECTOR, Registers
from tileir.records import dataclass
from tileir.target import Target

# Constants by measurement, the same for all kernels with matrix instructions and for all without: medians of what LLVM 22 takes beyond
# the simulated allocation, over the corpus of benchmarks/register_prediction.py.
# Registers inside operations that become several instructions (64-bit products, conversions). Without matrix instructions the
# scheduler makes up for them.
BESIDES_VECTOR = 3
# LLVM places little into an accumulator of which a part is dead, as long as there are registers besides.
ACCUMULATOR = 16
# VCC, FLAT_SCRATCH and XNACK_MASK are counted with the scalar registers (LLVM: getNumExtraSGPRs).
EXTRA_SCALAR = 6
# With matrix instructions: what is in between.
BESIDES_SCALAR = 1
# A mask of lanes; the scheduler, which runs for kernels without matrix instructions, lets half of those of a block wait.
PAIR, DESCRIPTOR = 2, 4
MOST_SCALAR = 106
"""100 + VCC and the others: what a wave of gfx9 can address (CDNA3 ISA, 3.6)."""
_WAVE = 64
_NAMED = re.compile(r'"=\{([va])\[\d+:(\d+)\]\}')
_MOST_WAVES = 8
_MOST_WORKGROUPS = 16


@dataclass(frozen=True)
class Prediction:
    """Registers of each file as the metadata of the code will count them: `vector` without those of the accumulation file. There may
    be more than the chip has: then the code will spill."""

    vector: int
    accumulation: int
    scalar: int
    function: Function = field(repr=False)
    registers: Registers = field(repr=False)
    live: Liveness = field(repr=False)

    @property
    def total(self) -> int:
        """Registers of both files of vectors: the accumulation file begins at a multiple of four (CDNA3 ISA, accum_offset)."""
        return -(-self.vector // 4) * 4 + self.accumulation if self.accumulation else self.vector


def predict(text: str, target: Target) -> Prediction:
    """The registers that an emitted module will take on a chip. Raises nothing for texts of `emit_module`."""
    function = read(text)
    share(function)
    select(function)
    share(function)
    hoist(function, pressure_limit(function, target))
    share(function)
    most, waiting = 0, 0
    if not function.has_products:
        registers = Registers(function)
        most = _scheduled(max(profile(liveness(function, registers), registers, VECTOR), default=0), target)
        early_loads(function)
        waiting = max(sum(_waits(i, registers) for i in b.instructions) for b in function.blocks)
    registers = Registers(function)
    live = liveness(function, registers)
    rows = Rows(function, registers, live)
    vector, accumulation, scalar = (
        allocate(rows, file, backwards=function.has_products) for file in (VECTOR, ACCUMULATION, SCALAR)
    )
    if function.has_products:
        whole = allocate(rows, VECTOR, backwards=True, widest=ACCUMULATOR)
        vector = min(whole, max(vector, target.max_arch_vgprs))
        vector, scalar = vector + BESIDES_VECTOR, scalar + BESIDES_SCALAR
        if accumulation:
            vector = -(-vector // 4) * 4
    else:
        vector = min(vector, most)
        scalar += waiting // 2
    vector, accumulation = max(vector, _pinned(text, "v")), max(accumulation, _pinned(text, "a"))
    scalar = min(MOST_SCALAR, scalar + EXTRA_SCALAR)
    return Prediction(vector, accumulation, scalar, function, registers, live)


def _waits(i: Instruction, registers: Registers) -> int:
    """Scalar registers that the scheduler lets wait for what uses them: masks of lanes and descriptors."""
    if registers.kinds.get(i.result) == MASK:
        return PAIR
    return DESCRIPTOR if i.op == "rocdl.make.buffer.rsrc" else 0


def _pinned(text: str, file: str) -> int:
    """One more than the last register of a file that the text names itself."""
    return max((int(last) + 1 for name, last in _NAMED.findall(text) if name == file), default=0)


def _scheduled(needed: int, target: Target) -> int:
    """Vector registers up to which the scheduler lets loads wait: as many as there are at the number of waves that the order of
    the text allows (GCNMaxOccupancySchedStrategy keeps that number)."""
    waves = _MOST_WAVES
    while waves > 1 and target.registers_per_wave(waves) < needed:
        waves -= 1
    return min(target.registers_per_wave(waves), target.max_arch_vgprs)


def pressure_limit(function: Function, target: Target) -> int:
    """Vector registers of a wave at the smallest number of waves per SIMD that LDS and the size of the workgroup allow: what LLVM
    takes for the limit while it moves code (SIRegisterInfo::getRegPressureLimit)."""
    waves = max(1, function.threads // _WAVE)
    groups = _MOST_WAVES * target.simds_per_cu // waves
    if waves > 1:
        groups = min(groups, _MOST_WORKGROUPS)
    if function.lds:
        groups = min(groups, target.lds_bytes // function.lds)
    per_simd = max(1, min(_MOST_WAVES, groups * waves // target.simds_per_cu))
    return min(target.registers_per_wave(per_simd), target.max_arch_vgprs)
