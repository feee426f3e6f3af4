"""The whole way once: compile a GEMM for both chips, run the code objects, compare with float64. A chip of which there is a GPU runs
on that, others on the simulator; the report says which.

python -m tileir.tools.demo
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tileir.frontend import parse
from tileir.ir.diagnostics import CompileError, Log
from tileir.ir.types import BF16
from tileir.lowering.amdgpu.attempts import start_worker
from tileir.lowering.amdgpu.compile import Compiled, compile_kernel
from tileir.records import dataclass
from tileir.runtime import Comparison, DeviceError, DeviceProperties, compare, default_device, gemm_bound, launch
from tileir.target import names

SEED = 2026
STAGES = {  # stage of the report: the steps of the compiler that it sums
    "parse": ("parse-tile",),
    "passes": ("passes",),
    "emit": ("emit",),
    "MLIR": ("parse", "check", "convert", "translate"),
    "LLVM": ("llvm-parse", "optimise"),
    "codegen": ("codegen",),
    "link": ("link",),
    "check": ("contract",),
}
"""What a stage does: text to IR; the passes on the IR; IR to MLIR text; that to LLVM IR; reading the LLVM IR; LLVM IR to
machine code; the linker; comparing the code with its text. The total also holds waiting for the code generation process to start."""


@dataclass(frozen=True)
class Run:
    """What the demo found out about one chip. Times are in seconds."""

    chip: str
    compiled: Compiled
    times: dict[str, float]
    device: DeviceProperties
    seconds: float
    comparison: Comparison

    def report(self) -> dict[str, Any]:
        """The figures as JSON data; times in milliseconds but for `simulation_seconds`."""
        s, c = self.compiled.stats, self.comparison
        kept = ("vgprs", "agprs", "sgprs", "vgpr_spills", "sgpr_spills", "scratch_bytes", "lds_bytes")
        return {
            "compile_milliseconds": {k: round(v * 1e3, 2) for k, v in self.times.items()},
            **{k: s.get(k) for k in kept},
            "device": self.device.name,
            "device_description": self.device.description,
            "simulation_seconds": round(self.seconds, 3),
            "elements": c.elements,
            "failures": c.failures,
            "max_error": c.max_error,
            "max_error_over_bound": c.max_ratio,
            "ok": c.ok,
        }


def source() -> tuple[str, str]:
    """Text and name of the kernel file: examples/gemm.tile of the source tree, else the library kernel of the package."""
    example = Path(__file__).resolve().parents[2] / "examples" / "gemm.tile"
    if example.is_file():
        return example.read_text(encoding="utf-8"), "examples/gemm.tile"
    return resources.files("tileir.kernels").joinpath("gemm.tile").read_text(encoding="utf-8"), "gemm.tile"


def compile_for(chip: str, text: str, name: str, log: Log) -> tuple[Compiled, dict[str, float]]:
    """The compiled kernel and the seconds of each stage."""
    start = time.perf_counter()
    module = parse(text, name, kernel="gemm", log=log)
    parsed = time.perf_counter() - start
    compiled = compile_kernel(module, "gemm", chip, log=log)
    total = time.perf_counter() - start
    steps = {"parse-tile": parsed, **compiled.timings}
    return compiled, {**{k: sum(steps.get(s, 0.0) for s in v) for k, v in STAGES.items()}, "total": total}


def inputs(m: int, n: int, k: int) -> tuple[Any, Any]:
    """Standard normal matrices [m, k] and [n, k] in bf16."""
    rng = np.random.default_rng(SEED)
    return tuple(rng.standard_normal((rows, k)).astype(ml_dtypes.bfloat16) for rows in (m, n))  # type: ignore[return-value]


def run_on(chip: str, shape: tuple[int, int, int], say: Progress) -> Run:
    """Compiles, runs and compares. Raises CompileError or DeviceError."""
    text, name = source()
    log = Log()
    say(f"{chip}: compiling {name}")
    compiled, times = compile_for(chip, text, name, log)
    for d in log.diagnostics:
        if d.severity != "remark":
            say.keep(d.render({name: text}))
    m, n, k = shape
    a, b = inputs(m, n, k)
    c = np.zeros((m, n), ml_dtypes.bfloat16)
    say.clear()  # what is said about the device gets a line of its own
    device = default_device(chip)
    say(f"{chip}: running {m} x {n} x {k} on {device.name}")
    start = time.perf_counter()
    launch(compiled, {"A": a, "B": b, "C": c}, device)
    seconds = time.perf_counter() - start
    say(f"{chip}: comparing with float64")
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    comparison = compare(c, exact, gemm_bound(a, b.T, BF16))
    return Run(chip, compiled, times, device.properties, seconds, comparison)


class Progress:
    """Says on standard error what is being done: one line that is overwritten on a terminal, else nothing."""

    def __init__(self) -> None:
        self.width = 0
        self.terminal = sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        if self.terminal:
            print(f"\r{text + ' …':{self.width}}", end="", file=sys.stderr, flush=True)
            self.width = len(text) + 2

    def clear(self) -> None:
        """Removes the line."""
        if self.terminal and self.width:
            print(f"\r{'':{self.width}}\r", end="", file=sys.stderr, flush=True)
            self.width = 0

    def keep(self, text: str) -> None:
        """Prints something that stays."""
        self.clear()
        print(text, file=sys.stderr)


def show(r: Run) -> None:
    """Prints the report of one chip."""
    s, c = r.compiled.stats, r.comparison
    stages = ", ".join(f"{k} {v * 1e3:.0f}" for k, v in r.times.items())
    print(f"\n{r.chip}")
    print(f"  compile    {stages} ms")
    print(f"  registers  {s['vgprs']} VGPRs, {s['agprs']} AGPRs, {s['sgprs']} SGPRs")
    print(f"  spills     {s['vgpr_spills']} VGPRs, {s['sgpr_spills']} SGPRs, {s['scratch_bytes']} bytes of scratch")
    print(f"  LDS        {s['lds_bytes']} bytes")
    print(f"  device     {r.device.name} ({r.device.description}), {r.seconds:.2f} s of host time")
    print(f"  result     {'correct' if c.ok else 'WRONG'}: {c}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0 if every chip computed the right result, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tileir.tools.demo", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--target", action="append", choices=names(), help="only this chip; may be repeated")
    parser.add_argument("--size", type=int, default=512, metavar="N", help="M = N = K of the product (default 512)")
    parser.add_argument("--json", metavar="FILE", help="also writes the report as JSON")
    options = parser.parse_args(arguments)
    if options.size < 1:
        parser.error("--size must be at least 1")
    start_worker()
    size: int = options.size
    print(f"C = A · Bᵀ in bf16, {size} x {size} x {size}, from {source()[1]}")
    say = Progress()
    chips: dict[str, dict[str, Any]] = {}
    for chip in options.target or names():
        try:
            run = run_on(chip, (size, size, size), say)
        except (CompileError, DeviceError) as e:
            say.keep(str(e))
            chips[chip] = {"ok": False, "error": str(e)}
            continue
        say.clear()
        show(run)
        chips[chip] = run.report()
    if options.json:
        report = {"shape": {"M": size, "N": size, "K": size}, "elem": "bf16", "chips": chips}
        try:
            Path(options.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        except OSError as e:
            print(f"error: the report cannot be written to {options.json}: {e.strerror}", file=sys.stderr)
            return 1
    return 0 if all(c["ok"] for c in chips.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
