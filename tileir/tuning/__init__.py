"""Searching for good tile sizes and schedules: `tune` compiles and times candidates, `choose` asks a quick model alone.

    result = tileir.tune(Path("gemm.tile"), "gfx950", {"M": 4096, "N": 4096, "K": 4096})
    print(result.table(), result.schedule)

`space` says what may vary, `work` reads from the IR what a kernel does for given sizes, `model` estimates clocks from that,
`trials` compiles and times one candidate, `search` joins them, `alternatives` ranks kernels for one
problem; `planning` says how a kernel should run for given sizes without compiling it, and an `adaptive` kernel does so at each launch.
Everything that is timed is an estimate of the simulator.
"""

from tileir.tuning.alternatives import compare
from tileir.tuning.planning import Plan, plan
from tileir.tuning.report import Compared, Trial, Tuned
from tileir.tuning.search import Choice, choose, tune
from tileir.tuning.versions import AdaptiveKernel, Version, adaptive

__all__ = [
    "AdaptiveKernel",
    "Choice",
    "Compared",
    "Plan",
    "Trial",
    "Tuned",
    "Version",
    "adaptive",
    "choose",
    "compare",
    "plan",
    "tune",
]
