"""Speed of the simulator on a 1024 x 1024 x 1024 bf16 GEMM of the library, per chip, on one core.

    python benchmarks/simulator_speed.py [--size 1024] [--repetitions 5] [--chip gfx942] [--json FILE]

Printed are, after one run that is not counted (it translates the kernel and compiles ops that the cache lacks):

* functional: seconds of a launch, and instructions per second;
* specification: how long the NumPy specifications of the same executed instructions would take: each mnemonic is timed on
  operands of its kind and counted as often as it ran. Instructions without a specification that computes something
  (waits, barriers, branches, no-ops) count nothing. The ratio is against the functional run;
* checks: each check and all of them, as a multiple of the functional run;
* time: the same for the timing model.

Each figure is the shortest of the repetitions, which take turns, so that load on the machine hits all alike.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tileir.codeobject import CodeObject
from tileir.frontend import parse_file
from tileir.lowering.amdgpu.compile import compile_kernel
from tileir.runtime import get_device, launch
from tileir.runtime.simulator_device import SimulatorDevice
from tileir.simulator import Module, Statistics, estimate
from tileir.simulator.decoder import Instruction
from tileir.simulator.spec import convert, matrix, memory, vector_float, vector_int  # noqa: F401  (fill tables)
from tileir.simulator.spec.core import DTYPES, VECTOR
from tileir.simulator.spec.scalar import SCALAR

ROOT = Path(__file__).resolve().parent.parent
GEMM = ROOT / "examples" / "gemm.tile"
CHIPS = ("gfx942", "gfx950")
CHECKS = ("barrier", "hazard", "uninit", "race", "all")
_ACTIVE = (1 << 64) - 1


class Subject:
    """The compiled GEMM with its operands on a simulated device."""

    def __init__(self, chip: str, size: int) -> None:
        module = parse_file(str(GEMM), {})
        self.chip, self.compiled = chip, compile_kernel(module, module.kernels[0].name, chip)
        rng = np.random.default_rng(1)
        self.a, self.b = (rng.standard_normal((size, size)).astype(ml_dtypes.bfloat16) for _ in range(2))
        self.c = np.zeros((size, size), ml_dtypes.bfloat16)
        device = get_device(f"simulator:{chip}")
        assert isinstance(device, SimulatorDevice)
        self.device = device

    def run(self, check: str = "", *, timed: bool = False) -> tuple[float, Statistics]:
        """Seconds of the launch itself, without copies to and from the device. timed: under the timing model, whose
        statistics are empty."""
        seconds: list[float] = []
        plain = Module.launch

        def measured(module: Module, *args: Any, **options: Any) -> Statistics:
            options["check"] = check
            start = time.perf_counter()
            if timed:
                del options["check"]
                estimate(module, *args, **options)
                result = Statistics()
            else:
                result = plain(module, *args, **options)
            seconds.append(time.perf_counter() - start)
            return result

        Module.launch = measured  # type: ignore[method-assign]
        try:
            launch(self.compiled, {"A": self.a, "B": self.b, "C": self.c}, self.device)
        finally:
            Module.launch = plain  # type: ignore[method-assign]
        assert self.device.statistics is not None
        return seconds[0], self.device.statistics

    def mix(self, statistics: Statistics) -> list[tuple[Instruction, int]]:
        """The executed instructions, one of each mnemonic, and how often it ran."""
        module = self.device.load(self.compiled.hsaco)
        program = module.program(next(iter(CodeObject.from_bytes(self.compiled.hsaco).kernels)))
        at = dict(zip(program.addresses, program.instructions, strict=True))
        first: dict[str, Instruction] = {}
        times: Counter[str] = Counter()
        for address, count in statistics.executions.items():
            inst = at[address]
            assert inst is not None
            first.setdefault(inst.name, inst)
            times[inst.name] += count
        return [(first[name], times[name]) for name in sorted(times)]


def specification(inst: Instruction, chip: str) -> Callable[[], object] | None:
    """Calls the NumPy specification of an instruction on operands of its kind; ``None`` where it computes nothing."""
    rng = np.random.default_rng(2)
    name = inst.name

    def rows(n: int) -> np.ndarray[Any, Any]:
        return rng.standard_normal((n, 64)).astype(np.float32).view(np.uint32)

    if name.startswith("v_mfma"):
        a, b, c = (rows(o.count) & np.uint32(0x3F803F80) for o in inst.operands[1:4])
        return lambda: matrix.multiply(name, chip, a, b, c)
    if name in VECTOR:
        spec = VECTOR[name]
        sources = [rng.integers(0, 2, 64).astype(DTYPES[t]) for t in spec.sources]
        extra = [rng.integers(0, 2, 64).astype(DTYPES[spec.results[0]])] if spec.accumulate else []
        return lambda: spec.function(*sources, *extra)
    if name in SCALAR:
        scalar = SCALAR[name]
        values = [1 for _ in scalar.sources] + [1 for _ in scalar.reads]
        return lambda: scalar.function(*values)
    return _memory(inst, rows)


def _memory(inst: Instruction, rows: Callable[[int], np.ndarray[Any, Any]]) -> Callable[[], object] | None:
    name = inst.name
    tail = name.partition("_load_")[2] or name.partition("_store_")[2]
    loads = memory.LDS_READS.get(name) or (
        memory.LOADS.get(tail) if "_load_" in name and inst.encoding != "smem" else None
    )
    stores = memory.LDS_WRITES.get(name) or (memory.STORES.get(tail) if "_store_" in name else None)
    part = loads or stores
    if part is None:
        return None
    data, addresses = np.zeros(64 * part.bytes, np.uint8), [part.bytes * lane for lane in range(64)]
    registers = rows(part.dwords)
    if loads:
        return lambda: memory.load(data, addresses, part, registers, _ACTIVE)
    return lambda: memory.store(data, addresses, part, registers, _ACTIVE)


def seconds_of(call: Callable[[], object], at_least: float = 0.01) -> float:
    """The shortest time of one call; calls for at least that many seconds, and twice."""
    best, spent, calls = float("inf"), 0.0, 0
    with np.errstate(all="ignore"):
        while spent < at_least or calls < 2:
            start = time.perf_counter()
            call()
            took = time.perf_counter() - start
            best, spent, calls = min(best, took), spent + took, calls + 1
    return best


def measure(chip: str, size: int, repetitions: int) -> dict[str, Any]:
    """All figures of one chip."""
    subject = Subject(chip, size)
    variants: dict[str, dict[str, Any]] = {
        "time": {"timed": True},
        **{c: {"check": c} for c in CHECKS},
        "functional": {},
    }
    best = dict.fromkeys(variants, float("inf"))
    statistics = Statistics()
    for turn in range(repetitions + 1):
        for name, options in variants.items():
            seconds, statistics = subject.run(**options)
            assert not statistics.findings, statistics.findings[0]
            if turn:
                best[name] = min(best[name], seconds)
    total, counted = 0.0, 0
    for inst, times in subject.mix(statistics):
        call = specification(inst, chip)
        if call is not None:
            total, counted = total + seconds_of(call) * times, counted + times
    exact = subject.a.astype(np.float32) @ subject.b.astype(np.float32).T
    wrong = np.abs(subject.c.astype(np.float32) - exact) > 2.0**-7 * np.abs(exact) + 2.0**-10 * np.sqrt(size)
    assert not wrong.any(), "the product is wrong"
    functional = best.pop("functional")
    return {
        "chip": chip,
        "size": size,
        "instructions": statistics.instructions,
        "functional_seconds": functional,
        "specification_seconds": total,
        "specification_share": counted / statistics.instructions,
        "specification_ratio": total / functional,
        "ratios": {name: seconds / functional for name, seconds in best.items()},
    }


def table(result: dict[str, Any]) -> str:
    """The figures of one chip as text."""
    functional, size = result["functional_seconds"], result["size"]
    rate = result["instructions"] / functional / 1e6
    order = sorted(result["ratios"].items(), key=lambda item: item[0] == "time")
    lines = [
        f"{result['chip']}, {size} x {size} x {size} bf16, {result['instructions']} instructions of waves",
        f"  functional               {functional:9.3f} s   {rate:.1f} million instructions per second",
        f"  NumPy specification      {result['specification_seconds']:9.1f} s   {result['specification_ratio']:.0f} x functional"
        f" ({100 * result['specification_share']:.0f} % of the instructions)",
    ]
    for name, ratio in order:
        label = "--time" if name == "time" else f"--check {name}"
        lines.append(f"  {label:<24} {ratio * functional:9.3f} s   {ratio:.2f} x functional")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--size", type=int, default=1024, help="rows, columns and depth (default 1024)")
    p.add_argument("--repetitions", type=int, default=5, help="runs of each variant (default 5)")
    p.add_argument("--chip", action="append", choices=CHIPS, help="default: both")
    p.add_argument("--json", metavar="FILE", help="write the figures as JSON")
    args = p.parse_args(argv)
    results = [measure(chip, args.size, args.repetitions) for chip in args.chip or CHIPS]
    print("\n\n".join(table(r) for r in results))
    if args.json:
        Path(args.json).write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
