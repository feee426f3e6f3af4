"""The ways in which code is generated: options of LLVM, and how the text for it is written.

Light to import, so that a process can start the worker first and import the compiler while the worker loads MLIR and LLVM:

    start_worker()
    from tileir.lowering.amdgpu.compile import compile_kernel
"""

from __future__ import annotations

from tileir.lowering.amdgpu.llvm_options import IN_ORDER, MFMA_OPTIONS, NO_LSR, NO_MACHINE_LICM, NO_SCHEDULER
from tileir.lowering.amdgpu.worker import worker_for
from tileir.records import dataclass

# What may be wrong with generated code, in the order of `compile`: registers that spill to memory, in a kernel whose loops are written
# instruction by instruction and in any other; more registers than the text allows; accumulators that are moved; anything else that the text says
# and is not so; scalar registers that wait in lanes.
WOVEN_SPILLS, SPILLS, BUDGET, MOVES, TEXT, SCALARS = "woven spills", "spills", "budget", "moves", "text", "scalars"
EVERYTHING = frozenset((WOVEN_SPILLS, SPILLS, BUDGET, MOVES, TEXT, SCALARS))
NEAR = 32
"""Vector registers spilled in a loop of single instructions from which on no other way of generating code has been seen to keep it."""
FAR = 72
"""The same as `NEAR` for other loops, once one way was sparing."""
FEW = 8
"""So few that LLVM's own order, within the slots of a loop of single instructions, has been seen to save them (`gemm_persistent`, 256 x 256 on gfx942)."""


@dataclass(frozen=True)
class Attempt:
    """One way of generating code: options of LLVM, and whether the text is written to be `sparing` of registers or
    operands are `pinned` to their register file. It is not tried for code about which there is another complaint than those that it `mends`."""

    options: tuple[str, ...] = ()
    sparing: bool = False
    pinned: bool = False
    mends: frozenset[str] = EVERYTHING


# What is tried in turn until the code keeps what the text says; which one suits a kernel cannot be foreseen, only measured. LLVM's order and its
# own allocation of registers save some where it has a choice, at twice the time; in the order of single instructions it has little.
MFMA_ATTEMPTS = (
    Attempt(MFMA_OPTIONS),
    Attempt(MFMA_OPTIONS, sparing=True),
    Attempt((*MFMA_OPTIONS, NO_MACHINE_LICM), sparing=True, pinned=True, mends=EVERYTHING - {SCALARS}),
    Attempt((IN_ORDER, NO_SCHEDULER, NO_LSR), sparing=True, mends=EVERYTHING - {SCALARS, WOVEN_SPILLS}),
    Attempt((IN_ORDER, NO_LSR), sparing=True, mends=EVERYTHING - {SCALARS, WOVEN_SPILLS}),
)
OTHER_ATTEMPTS = (
    Attempt((IN_ORDER,)),
    Attempt((IN_ORDER, NO_LSR)),
    Attempt((IN_ORDER, NO_SCHEDULER, NO_LSR), mends=EVERYTHING - {SCALARS}),
)


def start_worker(matrix: bool = True) -> None:
    """Starts the worker that `compile_kernel` will use for kernels with (`matrix`) or without matrix products. Returns at once."""
    worker_for((MFMA_ATTEMPTS if matrix else OTHER_ATTEMPTS)[0].options).start()
