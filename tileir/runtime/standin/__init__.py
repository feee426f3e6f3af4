"""A stand-in for AMD's `libamdhip64`: a shared library with the HIP C interface that executes launches on the simulator.

    python -m tileir.runtime.standin DIRECTORY

builds it. Programs that load code objects through HIP – in C, in Python, of other projects – then run without a GPU: let them
find the library by `TILEIR_HIP_LIBRARY`, `LD_LIBRARY_PATH` or `ROCM_PATH`. Only what loading and launching needs is there.

Environment: `TILEIR_STANDIN_DEVICES`, the GPUs, such as "gfx950:sramecc+:xnack-,gfx942:sramecc+:xnack-" (empty: none);
`TILEIR_STANDIN_FAIL`, calls that fail (`control.h`); `TILEIR_STANDIN_PYTHON`, the interpreter that runs the simulator.
"""

from tileir.runtime.standin.build import build

__all__ = ["build"]
