"""Compile time of a 256x256x64 bf16 GEMM, TileIR against Triton, both measured in one run.

    python benchmarks/compile_time.py --triton-python /path/to/venv/bin/python

Two figures per chip, each the median of several repetitions that alternate between the two compilers:

* process: a fresh Python process from start to end: imports, one compile, exit.
* call: one compile in a process whose imports are done. The kernel has a new name each time, so no cache answers; one
  compile before the first repetition is not counted.

Both compile C = A · Bᵀ for any M, N, K with row-major operands, accumulated in f32, and both produce a code object in
memory. TileIR starts from examples/gemm.tile with its schedule; Triton starts from the kernel text below, with eight
warps and arguments known to be multiples of 16.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
GEMM = ROOT / "examples" / "gemm.tile"
TRITON_VERSION = "3.9.0"
CHIPS = ("gfx942", "gfx950")
TILE = (256, 256, 64)

# Which steps of each compiler do comparable work. ("contract" compares the code with the IR; Triton has no such step.) What a
# compile call takes beyond its steps is "rest".
STAGES = {
    "front and middle end": {"tileir": ("parse-tile", "passes", "emit"), "triton": ("ast", "ttir", "ttgir")},
    "to LLVM IR": {"tileir": ("parse", "check", "convert", "translate"), "triton": ("llir",)},
    "machine code": {
        "tileir": ("llvm-parse", "optimise", "codegen", "link", "contract"),
        "triton": ("amdgcn", "hsaco"),
    },
}

TRITON_KERNEL = """
import triton
import triton.language as tl


@triton.jit
def KERNEL(a_ptr, b_ptr, c_ptr, M, N, K, stride_a, stride_b, stride_c,
           BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    a_at = a_ptr + rows[:, None] * stride_a + inner[None, :]
    b_at = b_ptr + columns[:, None] * stride_b + inner[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = tl.load(a_at, mask=(rows[:, None] < M) & (inner[None, :] < K - k), other=0.0)
        b = tl.load(b_at, mask=(columns[:, None] < N) & (inner[None, :] < K - k), other=0.0)
        total = tl.dot(a, tl.trans(b), total)
        a_at += BK
        b_at += BK
    c_at = c_ptr + rows[:, None] * stride_c + columns[None, :]
    tl.store(c_at, total.to(tl.bfloat16), mask=(rows[:, None] < M) & (columns[None, :] < N))
"""

# How a compile call looks in each child. `compile_one(name, chip)` returns the seconds of each step, and the registers.
TILEIR_CHILD = """
import time
from tileir.lowering.amdgpu.compile import compile_kernel, start_worker
start_worker()
from tileir.frontend import parse

TEXT = open(FILE, encoding="utf-8").read()

def compile_one(name, chip):
    start = time.perf_counter()
    module = parse(TEXT.replace("@gemm", "@" + name), "gemm.tile")
    parsed = time.perf_counter() - start
    done = compile_kernel(module, name, chip)
    return {"parse-tile": parsed, **done.timings}, done.stats
"""

TRITON_CHILD = """
import importlib.util, os, re, time
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

times = {}

def listen(*, src, metadata, metadata_group, times, cache_hit):
    assert not cache_hit
    globals()["times"] = {"ast": times.ir_initialization / 1e6, **{k: v / 1e6 for k, v in times.lowering_stages}}

triton.knobs.compilation.listener = listen
TYPES = {"a_ptr": "*bf16", "b_ptr": "*bf16", "c_ptr": "*bf16", "M": "i32", "N": "i32", "K": "i32", "stride_a": "i32",
         "stride_b": "i32", "stride_c": "i32", "BM": "constexpr", "BN": "constexpr", "BK": "constexpr"}

def compile_one(name, chip):
    path = os.path.join(os.environ["TRITON_CACHE_DIR"], name + ".py")
    with open(path, "w") as file:  # the compiler reads the text of a kernel from its file
        file.write(KERNEL_TEXT.replace("KERNEL", name))
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    source = ASTSource(getattr(module, name), TYPES, {"BM": BM, "BN": BN, "BK": BK},
                       {(i,): [["tt.divisibility", 16]] for i in range(9)})
    done = triton.compile(source, target=GPUTarget("hip", chip, 64), options={"num_warps": 8, "num_stages": 2})
    text = done.asm["amdgcn"]
    def figure(key):
        return int(re.search(r"\\." + key + r":\\s*(\\d+)", text).group(1))
    stats = {"vgprs": figure("vgpr_count"), "agprs": figure("agpr_count"), "sgprs": figure("sgpr_count"),
             "vgpr_spills": figure("vgpr_spill_count"), "sgpr_spills": figure("sgpr_spill_count"),
             "scratch_bytes": figure("private_segment_fixed_size"), "lds_bytes": done.metadata.shared}
    return times, stats
"""

# A child compiles as often as its standard input has lines, and answers each with one line of JSON.
SERVE = """
import json, sys
for line in sys.stdin:
    name, chip = line.split()
    start = time.perf_counter()
    steps, stats = compile_one(name, chip)
    print(json.dumps({"call": time.perf_counter() - start, "steps": steps, "stats": stats}), flush=True)
"""
ONCE = 'compile_one("gemm", CHIP)\n'


@dataclass(frozen=True)
class Compiler:
    """A compiler to measure: its name, the interpreter that has it, and the code that defines `compile_one`."""

    name: str
    python: str
    code: str

    def environment(self, scratch: str) -> dict[str, str]:
        """Environment of a child: no cache that an earlier child filled."""
        environment = {
            **os.environ,
            "TRITON_CACHE_DIR": scratch,
            "TRITON_ALWAYS_COMPILE": "1",
            "TRITON_DEFAULT_FP_FUSION": "1",  # contraction, as TileIR allows it; this version asks to say so
        }
        if self.name == "tileir":
            environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        return environment


@dataclass
class Samples:
    """What was measured of one compiler on one chip, in seconds; `steps` are those of the calls."""

    process: list[float] = field(default_factory=list[float])
    call: list[float] = field(default_factory=list[float])
    steps: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    stats: dict[str, Any] = field(default_factory=dict[str, Any])


class Server:
    """A child that compiles on request."""

    def __init__(self, compiler: Compiler) -> None:
        self.scratch = tempfile.mkdtemp(prefix="compile-time-")
        self.process = subprocess.Popen(
            [compiler.python, "-c", compiler.code + SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=compiler.environment(self.scratch),
        )
        self.count = 0

    def compile(self, chip: str) -> dict[str, Any]:
        """One compile of a kernel that was never compiled before."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"gemm_{self.count} {chip}\n")
        self.process.stdin.flush()
        self.count += 1
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"error: {self.process.args[0]} ended with status {self.process.wait()}")  # type: ignore[index]
        return json.loads(answer)

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        shutil.rmtree(self.scratch, ignore_errors=True)


def time_process(compiler: Compiler, chip: str) -> float:
    """Seconds of a whole process that compiles once."""
    with tempfile.TemporaryDirectory(prefix="compile-time-") as scratch:
        command = [compiler.python, "-c", f"CHIP = {chip!r}\n" + compiler.code + ONCE]
        start = time.perf_counter()
        subprocess.run(command, env=compiler.environment(scratch), check=True)
        return time.perf_counter() - start


def compilers(triton_python: str | None) -> list[Compiler]:
    """TileIR, and Triton if an interpreter has it."""
    found = [Compiler("tileir", sys.executable, f"FILE = {str(GEMM)!r}\n" + TILEIR_CHILD)]
    python = triton_python or sys.executable
    try:
        probe = subprocess.run(
            [python, "-c", "import triton; print(triton.__version__)"], capture_output=True, text=True
        )
        version = probe.stdout.strip() if probe.returncode == 0 else ""
    except OSError as e:
        raise SystemExit(f"error: {python} cannot be run: {e.strerror}") from None
    if not version:
        if triton_python:
            raise SystemExit(
                f"error: {python} has no triton; install it with: {python} -m pip install triton=={TRITON_VERSION}"
            )
        print(
            f"Triton is not installed here, so only TileIR is measured. For the comparison make a virtual environment, run\n"
            f"  pip install triton=={TRITON_VERSION}\nin it, and name its interpreter with --triton-python."
        )
        return found
    if version != TRITON_VERSION:
        print(f"note: this is Triton {version}; the figures in docs/benchmarks.md are for {TRITON_VERSION}")
    head = f"KERNEL_TEXT = {TRITON_KERNEL!r}\nBM, BN, BK = {TILE}\n"
    return [*found, Compiler("triton", python, head + TRITON_CHILD)]


def measure(found: Sequence[Compiler], chips: Sequence[str], repetitions: int) -> dict[str, dict[str, Samples]]:
    """Samples by chip and compiler. Compilers and chips take turns, so that a slow minute of the machine hits all."""
    samples = {chip: {c.name: Samples() for c in found} for chip in chips}
    rounds = repetitions * 2 + 1
    done = 0

    def progress(text: str) -> None:
        nonlocal done
        done += 1
        if sys.stderr.isatty():
            print(f"\r{done}/{rounds * len(chips) * len(found)} {text:40}", end="", file=sys.stderr, flush=True)

    for _ in range(repetitions):
        for chip in chips:
            for c in found:
                progress(f"process, {c.name}, {chip}")
                samples[chip][c.name].process.append(time_process(c, chip))
    servers = {c.name: Server(c) for c in found}
    try:
        for i in range(repetitions + 1):
            for chip in chips:
                for c in found:
                    progress(f"call, {c.name}, {chip}")
                    answer = servers[c.name].compile(chip)
                    if i == 0:
                        continue  # loads what imports left for later
                    into = samples[chip][c.name]
                    into.call.append(answer["call"])
                    into.steps.append(answer["steps"])
                    into.stats = answer["stats"]
    finally:
        for s in servers.values():
            s.stop()
    if sys.stderr.isatty():
        print("\r" + " " * 60 + "\r", end="", file=sys.stderr)
    return samples


def medians(name: str, s: Samples) -> dict[str, float]:
    """Milliseconds: process, call, and the stages of the call."""
    out = {"process": statistics.median(s.process), "call": statistics.median(s.call)}
    for stage, steps in STAGES.items():
        out[stage] = statistics.median(sum(x.get(k, 0.0) for k in steps[name]) for x in s.steps)
    known = [k for steps in STAGES.values() for k in steps[name]]
    rest = [call - sum(x.get(k, 0.0) for k in known) for call, x in zip(s.call, s.steps, strict=True)]
    out["rest"] = statistics.median(rest)
    return {k: v * 1e3 for k, v in out.items()}


def report(samples: dict[str, dict[str, Samples]], repetitions: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Prints one table per chip and returns the same figures as data."""
    data: dict[str, Any] = {"repetitions": repetitions, "chips": {}}
    for chip, by_name in samples.items():
        figures = {name: medians(name, s) for name, s in by_name.items()}
        data["chips"][chip] = {
            name: {"milliseconds": figures[name], "steps": s.steps, "stats": s.stats} for name, s in by_name.items()
        }
        both = "triton" in figures
        say(f"\n{chip}, medians of {repetitions} in ms")
        say(f"  {'':24}{'TileIR':>9}" + (f"{'Triton':>9}{'ratio':>9}" if both else ""))
        for key, ours in figures["tileir"].items():
            label = key if key in ("process", "call") else "  " + key
            line = f"  {label:24}{ours:9.1f}"
            if both:
                theirs = figures["triton"][key]
                line += f"{theirs:9.1f}" + (f"{ours / theirs:9.3f}" if key != "rest" else "")
            say(line)
        for key in ("vgprs", "agprs", "vgpr_spills", "scratch_bytes", "lds_bytes"):
            values = "".join(f"{s.stats.get(key, '-'):>9}" for s in by_name.values())
            say(f"  {key:24}{values}")
    return data


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison; exit status 0 also without Triton."""
    about = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about[0], epilog=about[2], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--triton-python", metavar="PATH", help="interpreter of an environment that has triton")
    parser.add_argument("--repetitions", type=int, default=7, metavar="N", help="measurements of each kind (default 7)")
    parser.add_argument("--target", action="append", choices=CHIPS, help="only this chip; may be repeated")
    parser.add_argument("--json", metavar="FILE", help="writes all figures, also single ones, as JSON")
    options = parser.parse_args(arguments)
    if options.repetitions < 1:
        parser.error("--repetitions must be at least 1")
    found = compilers(options.triton_python)
    samples = measure(found, options.target or CHIPS, options.repetitions)
    data = report(samples, options.repetitions, print)
    if options.json:
        Path(options.json).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
