"""The ways in which code is generated: options of LLVM, and how the text for it is written.

Light to import, so that a process can start the worker first and import the compiler while the worker loads MLIR and LLVM:

    start_worker()
    from tileir.lowering.amdgpu.compile import compile_kernel
"""

from __future__ import annotations

from tileir.lowering.amdgpu.llvm_options import IN_ORDER, MFMA_OPTIONS, NO_LSR, NO_MACHINE_LICM, NO_SCHEDULER
from tileir.lowering.amdgpu.worker import worker_for
from tileir.records import dataclass


@dataclass(frozen=True)
class Attempt:
    """One way of generating code: options of LLVM, and whether the text is written to be `sparing` of registers or
    operands are `pinned` to their register file."""

    options: tuple[str, ...] = ()
    sparing: bool = False
    pinned: bool = False


# What is tried in turn until the code keeps what the text says; which one suits a kernel cannot be foreseen, only measured.
MFMA_ATTEMPTS = (
    Attempt(MFMA_OPTIONS),
    Attempt(MFMA_OPTIONS, sparing=True),
    Attempt((*MFMA_OPTIONS, NO_MACHINE_LICM), sparing=True, pinned=True),
    Attempt((IN_ORDER, NO_SCHEDULER, NO_LSR), sparing=True),
    Attempt((IN_ORDER, NO_LSR), sparing=True),
)
OTHER_ATTEMPTS = (
    Attempt((IN_ORDER,)),
    Attempt((IN_ORDER, NO_LSR)),
    Attempt((IN_ORDER, NO_SCHEDULER, NO_LSR)),
)


def start_worker(matrix: bool = True) -> None:
    """Starts the worker that `compile_kernel` will use for kernels with (`matrix`) or without matrix products. Returns at once."""
    worker_for((MFMA_ATTEMPTS if matrix else OTHER_ATTEMPTS)[0].options).start()
