"""What a launch costs the caller: a warm call from Python with all its checks, up to the point at which HIP has taken it.

    python benchmarks/launch_overhead.py

The HIP runtime is the stand-in of `tileir.runtime.standin`, told to accept launches and do nothing, so the figures hold our side
and the call of a C function with eleven arguments, not AMD's runtime and not the device. They are processor time of the calling
thread, which other work on the machine disturbs little; --wall takes the clock on the wall instead.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

AIM_MICROSECONDS = 20.0
SCALE = """tileir 1
kernel @scale<B: int = 256>(%X: global<f32[N]>, %Y: global<f32[N]>, %a: f32) grid(cdiv(N, B)) {
  %i = program_id()
  store(%a * load(%X[%i * B +: B]), %Y[%i * B +: B])
}
"""


class TorchLike:
    """What a launch asks of a PyTorch tensor of a GPU; its answers cost about what PyTorch's cost."""

    def __init__(self, view: Any):
        self.dtype = "torch.bfloat16"
        self.layout = "torch.strided"
        self.shape = view.shape
        self.device = _Place()
        self._strides = view.element_strides
        self._address = view.address

    def stride(self) -> tuple[int, ...]:
        return self._strides

    def data_ptr(self) -> int:
        return self._address

    def detach(self) -> TorchLike:
        return self


TorchLike.__name__, TorchLike.__module__ = "Tensor", "torch"


class _Place:
    type, index = "cuda", 0


def microseconds(call: Callable[[], object], clock: Callable[[], int], calls: int, repeats: int) -> tuple[float, float]:
    """Least and median time of a call over `repeats` runs of `calls`."""
    runs: list[float] = []
    for _ in range(repeats):
        start = clock()
        for _ in range(calls):
            call()
        runs.append((clock() - start) / calls / 1e3)
    return min(runs), statistics.median(runs)


def measure(library: Path, clock: Callable[[], int], calls: int, repeats: int) -> dict[str, tuple[float, float]]:
    """Microseconds of each kind of call, least and median."""
    os.environ["TILEIR_HIP_LIBRARY"] = str(library)
    os.environ["TILEIR_STANDIN_DEVICES"] = "gfx950:sramecc+:xnack-"
    import ml_dtypes

    import tileir
    from tileir import kernels

    ctypes.CDLL(str(library)).hipStandinLaunches(0)
    device = tileir.Device("hip:0")
    gemm = tileir.compile(kernels.source("gemm"), "gfx950")
    scale = tileir.compile(SCALE, "gfx950")
    views = {name: device.array(np.zeros((512, 512), ml_dtypes.bfloat16)) for name in "ABC"}
    tensors = {name: TorchLike(view) for name, view in views.items()}
    x, y = device.array(np.zeros(1000, np.float32)), device.array(np.zeros(1000, np.float32))
    a, b, c = views["A"], views["B"], views["C"]
    run: dict[str, Callable[[], object]] = {
        "gemm, three views of buffers": lambda: gemm.launch(A=a, B=b, C=c, device=device),
        "gemm, three tensors": lambda: gemm.launch(tensors, device=device),
        "scale, two views and a scalar": lambda: scale.launch(X=x, Y=y, a=0.5, device=device),
    }
    for call in run.values():
        call()
    return {name: microseconds(call, clock, calls, repeats) for name, call in run.items()}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=2000, help="calls of a run (default 2000)")
    parser.add_argument("--repeats", type=int, default=25, help="runs (default 25)")
    parser.add_argument("--wall", action="store_true", help="time on the wall instead of the thread's processor time")
    parser.add_argument("--json", metavar="FILE", help="also writes the figures as JSON")
    options = parser.parse_args(arguments)
    from tileir.runtime.standin import build

    clock = time.perf_counter_ns if options.wall else time.thread_time_ns
    with tempfile.TemporaryDirectory() as directory:
        found = measure(build(Path(directory)), clock, options.calls, options.repeats)
    print(
        f"launch overhead in µs, {'time on the wall' if options.wall else 'processor time'}, aim below {AIM_MICROSECONDS:.0f}"
    )
    for name, (least, median) in found.items():
        print(f"  {name:32}  least {least:6.2f}  median {median:6.2f}")
    if options.json:
        Path(options.json).write_text(json.dumps({k: {"least": a, "median": b} for k, (a, b) in found.items()}) + "\n")
    return 0 if all(median < AIM_MICROSECONDS for _, median in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
