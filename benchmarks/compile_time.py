"""Compile time of a 256x256x64 bf16 GEMM, TileIR against Triton, both measured in one run.

    python benchmarks/compile_time.py --triton-python /path/to/venv/bin/python

Figures per chip, each the median of several repetitions that alternate between the two compilers:

* process: a fresh Python process from start to end: imports, one compile, exit. The first one, which writes bytecode where there is
  none yet, is not counted. Its processor time, that of the processes that it starts included, depends less on what else runs.
* call: one compile in a process whose imports are done. The kernel has a new name each time, so no cache answers; one
  compile before the first repetition is not counted.

Both compile C = A · Bᵀ for any M, N, K with row-major operands, accumulated in f32, and both produce a code object in
memory. TileIR starts from examples/gemm.tile with its schedule; Triton starts from the kernel text of products.py, with eight
warps and arguments known to be multiples of 16.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compilers import Compiler, Job, Server, find_compilers, time_process
from products import Product

GEMM = Path(__file__).resolve().parent.parent / "examples" / "gemm.tile"
CHIPS = ("gfx942", "gfx950")
PROCESSOR = "its processor time"

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


@dataclass
class Samples:
    """What was measured of one compiler on one chip, in seconds; `steps` are those of the calls, `processor` is of the processes."""

    process: list[float] = field(default_factory=list[float])
    call: list[float] = field(default_factory=list[float])
    steps: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    stats: dict[str, Any] = field(default_factory=dict[str, Any])
    processor: list[float] = field(default_factory=list[float])


def job(compiler: Compiler, chip: str) -> Job:
    """What a compiler is asked to do."""
    if compiler.name == "triton":
        return Product(chip).triton()
    return {"text": GEMM.read_text("utf-8").replace("@gemm", "@KERNEL"), "chip": chip}


def measure(found: Sequence[Compiler], chips: Sequence[str], repetitions: int) -> dict[str, dict[str, Samples]]:
    """Samples by chip and compiler. Compilers and chips take turns, so that a slow minute of the machine hits all."""
    samples = {chip: {c.name: Samples() for c in found} for chip in chips}
    rounds = repetitions * 2 + 2
    done = 0

    def progress(text: str) -> None:
        nonlocal done
        done += 1
        if sys.stderr.isatty():
            print(f"\r{done}/{rounds * len(chips) * len(found)} {text:40}", end="", file=sys.stderr, flush=True)

    for i in range(repetitions + 1):
        for chip in chips:
            for c in found:
                progress(f"process, {c.name}, {chip}")
                before = _processor_seconds()
                seconds = time_process(c, job(c, chip))
                if i:  # the first one writes bytecode, as installing does
                    samples[chip][c.name].process.append(seconds)
                    samples[chip][c.name].processor.append(_processor_seconds() - before)
    servers = {c.name: Server(c) for c in found}
    try:
        for i in range(repetitions + 1):
            for chip in chips:
                for c in found:
                    progress(f"call, {c.name}, {chip}")
                    answer = servers[c.name].compile(job(c, chip))
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


def _processor_seconds() -> float:
    """Of all children that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def medians(name: str, s: Samples) -> dict[str, float]:
    """Milliseconds: process, call, and the stages of the call."""
    out = {"process": statistics.median(s.process)}
    if s.processor:
        out[PROCESSOR] = statistics.median(s.processor)
    out["call"] = statistics.median(s.call)
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
            label = key if key in ("process", PROCESSOR, "call") else "  " + key
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
    found = find_compilers(options.triton_python)
    samples = measure(found, options.target or CHIPS, options.repetitions)
    data = report(samples, options.repetitions, print)
    if options.json:
        Path(options.json).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
