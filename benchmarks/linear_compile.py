"""How the time of TileIR's own stages grows with the length of a kernel: parsing, every pass, writing MLIR; not LLVM's share.

    python benchmarks/linear_compile.py [--chip gfx942] [--sizes 100,…,10000] [--shape NAME]… [--repetitions 2]
                                        [--budget SECONDS] [--json FILE] [--svg FILE]

Kernels of about 100 to 10,000 ops are generated in several shapes of growth (`SHAPES`). Printed are, per shape and stage, the
time per op of the text in microseconds at each size, and the exponent p of the best fit t = c · nᵖ (least squares of the logarithms)
over the sizes from 1,000 ops on – over all sizes where fewer than two are that long. 1 is linear. `checks` are normal forms and the
verifier between the passes.

The exit status is 1 if the exponent of the total of some shape is above 1.15. Sizes of a shape that would take longer than the
budget, by the growth of the two before, are left out, and the exponent is that of the others. Times are processor time, so that
other processes do not count; each is the shortest of the repetitions; sizes take turns, so that a slow minute of the machine hits all.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hot_loops_plot import COLOURS, text

from tileir.frontend import parse
from tileir.lowering.amdgpu.emit.kernel import emit_module
from tileir.passes.manager import run_pipeline
from tileir.passes.pipeline import pipeline

SIZES = (100, 300, 1000, 2000, 5000, 10000)
LIMIT = 1.15
"""Greatest exponent of the total that passes: the noise of a shared machine over a factor of ten, and a logarithm."""
FIT_FROM = 1000

Lines = list[str]


def chain(n: int) -> str:
    """Long straight-line code: every op uses the result of the one before and one a few ops back."""
    lines = ["%v0 = load(%A[%i * 256 +: 256])", "%v1 = load(%B[%i * 256 +: 256])"]
    ops = ("%v{a} + %v{b}", "%v{a} * %v{b}", "max(%v{a}, %v{b})", "%v{a} - %v{b}", "abs(%v{a})")
    for k in range(2, n):
        lines.append(f"%v{k} = " + ops[k % len(ops)].format(a=k - 1, b=max(0, k - 2 - k % 7)))
    return _kernel([*lines, f"store(%v{n - 1}, %C[%i * 256 +: 256])"])


def kept(n: int) -> str:
    """Straight-line code whose first half makes values that live until the second half adds them up."""
    half = n // 2
    lines = ["%v0 = load(%A[%i * 256 +: 256])", "%s0 = load(%B[%i * 256 +: 256])"]
    lines += [f"%v{k} = %v{k - 1} * %v0" for k in range(1, half)]
    lines += [f"%s{k} = %s{k - 1} + %v{k}" for k in range(1, half)]
    return _kernel([*lines, f"store(%s{half - 1}, %C[%i * 256 +: 256])"])


def memory(n: int) -> str:
    """Loads and stores of many places, with a little work between."""
    lines: Lines = []
    for k in range(n // 15):  # the starts are ops too
        at = f"[%i * 256 + {256 * k} +: 256]"
        lines += [f"%a{k} = load(%A{at})", f"%b{k} = load(%B{at})", f"store(%a{k} + %b{k}, %C{at})"]
    return _kernel(lines)


def places(n: int) -> str:
    """Stores to many places, then loads of the same."""
    half = n // 11
    lines = ["%v0 = load(%A[%i * 256 +: 256])"]
    lines += [f"store(%v0 * {k}.0, %C[%i * 256 + {256 * k} +: 256])" for k in range(half)]
    for k in range(half):
        lines += [f"%c{k} = load(%C[%i * 256 + {256 * k} +: 256])", f"%v{k + 1} = %v{k} + %c{k}"]
    return _kernel([*lines, f"store(%v{half}, %B[%i * 256 +: 256])"])


def rows(n: int) -> str:
    """Many reductions, each spread over the rows that it comes from."""
    lines = ["%x0 = load(%P[%i * 64 +: 64, 0 +: 64])"]
    for k in range(n // 2):
        lines += [f"%m{k} = reduce_max(%x{k}, axis = 1)", f"%x{k + 1} = %x{k} - %m{k}"]
    return _kernel([*lines, f"store(%x{n // 2}, %P[%i * 64 +: 64, 0 +: 64])"])


def loops(n: int) -> str:
    """Many short loops, one after the other."""
    lines = ["%r0 = load(%A[%i * 256 +: 256])"]
    for k in range(n // 8):
        lines += [
            f"%r{k + 1} = for %k{k} = 0 to N step 256 carry(%c{k} = %r{k}) {{",
            f"  %x{k} = load(%B[%k{k} +: 256])",
            f"  %y{k} = %x{k} * %c{k}",
            f"  yield max(%y{k}, %x{k}) + %c{k}",
            "}",
        ]
    return _kernel([*lines, f"store(%r{n // 8}, %C[%i * 256 +: 256])"])


def branches(n: int) -> str:
    """Many conditions, one after the other."""
    lines = ["%r0 = load(%A[%i * 256 +: 256])"]
    for k in range(n // 7):
        lines += [
            f"%r{k + 1} = if %i < {k} {{",
            f"  yield %r{k} + 1.0",
            "} else {",
            f"  yield %r{k} * 2.0",
            "}",
        ]
    return _kernel([*lines, f"store(%r{n // 7}, %C[%i * 256 +: 256])"])


def products(n: int) -> str:
    """Many matrix products of operands that pass through LDS."""
    lines = ["%z = fill(0.0) : tile<f32[64, 64]>"]
    last = "%z"
    for k in range(n // 9):
        lines += [
            f"%a{k} = load(%P[%i * 64 +: 64, {64 * k} +: 64])",
            f"%b{k} = load(%Q[0 +: 64, {64 * k} +: 64])",
            f"%d{k} = mma(%a{k}, transpose(%b{k}), {last})",
        ]
        last = f"%d{k}"
    return _kernel([*lines, f"store({last}, %R[%i * 64 +: 64, 0 +: 64])"])


def _kernel(body: Lines) -> str:
    arguments = "%A: global<f32[N]>, %B: global<f32[N]>, %C: global<f32[N]>, " + ", ".join(
        f"%{v}: global<{t}[M, K{v}]>" for v, t in (("P", "bf16"), ("Q", "bf16"), ("R", "f32"))
    )
    lines = "\n".join(f"  {line}" for line in ["%i = program_id()", *body])
    return f"tileir 1\n\nkernel @grown({arguments}) grid(cdiv(N, 256)) {{\n{lines}\n}}\n"


SHAPES: dict[str, Callable[[int], str]] = {
    f.__name__: f for f in (chain, kept, memory, places, rows, loops, branches, products)
}
"""Text of a kernel with about as many ops as asked for, by name of the shape."""


def stages() -> tuple[str, ...]:
    """Names of what is timed, in order, the total last."""
    return ("parse", *(s.label for s in pipeline()), "checks", "emit", "total")


def measure(source: str, chip: str) -> tuple[int, dict[str, float]]:
    """Ops of the kernel as parsed, and the seconds of each stage of compiling it."""
    gc.collect()
    start = time.process_time()
    module = parse(source)
    parsed = time.process_time()
    ops = sum(1 for _ in module.kernels[0].walk())
    before = time.process_time()
    result = run_pipeline(module, "", chip, clock=time.process_time)
    passed = time.process_time()
    emit_module(result.kernel, result.context.target)
    end = time.process_time()
    found = {"parse": parsed - start, **dict(result.timings)}
    found["checks"] = passed - before - sum(t for _, t in result.timings)
    found["emit"] = end - passed
    return ops, {**found, "total": sum(found.values())}


def run(
    shapes: Sequence[str], sizes: Sequence[int], chip: str, repetitions: int, budget: float = math.inf
) -> dict[str, Any]:
    """For each shape its ops and, by stage, the shortest times in seconds and the exponent, for the sizes within the budget;
    `left_out` are the others."""
    measure(chain(50), chip)  # imports and tables
    data: dict[str, Any] = {}
    for shape in shapes:
        ops: list[int] = []
        seconds: dict[str, list[float]] = {stage: [] for stage in stages()}
        for repetition in range(repetitions):
            for i, size in enumerate(sizes):
                if repetition == 0 and _forecast(ops, seconds["total"], size) > budget:
                    break
                if repetition > 0 and i >= len(ops):
                    break
                if sys.stderr.isatty():
                    print(f"\r{shape} {size}        ", end="", file=sys.stderr, flush=True)
                count, found = measure(SHAPES[shape](size), chip)
                if repetition == 0:
                    ops.append(count)
                for stage, t in found.items():
                    if repetition == 0:
                        seconds[stage].append(t)
                    seconds[stage][i] = min(seconds[stage][i], t)
        data[shape] = {
            "ops": ops,
            "left_out": list(sizes[len(ops) :]),
            "stages": {s: {"seconds": t, "exponent": round(exponent(ops, t), 3)} for s, t in seconds.items()},
        }
    return data


def _forecast(ops: Sequence[int], totals: Sequence[float], size: int) -> float:
    """Seconds that a size will take, with the growth of the last two; 0 where these are not known."""
    if len(ops) < 2:
        return 0.0
    growth = math.log(totals[-1] / totals[-2]) / math.log(ops[-1] / ops[-2])
    return totals[-1] * (size / ops[-1]) ** max(1.0, growth)


def exponent(ops: Sequence[int], seconds: Sequence[float]) -> float:
    """The slope of log t over log n, by least squares, of the sizes from `FIT_FROM` ops on (0.9 of it: sizes are rounded)."""
    points = [(math.log(n), math.log(t)) for n, t in zip(ops, seconds, strict=True) if n >= 0.9 * FIT_FROM]
    if len(points) < 2:
        points = [(math.log(n), math.log(t)) for n, t in zip(ops, seconds, strict=True)]
    x, y = (sum(p[i] for p in points) / len(points) for i in (0, 1))
    spread = sum((p[0] - x) ** 2 for p in points)
    return sum((p[0] - x) * (p[1] - y) for p in points) / spread


def table(shape: str, found: dict[str, Any]) -> str:
    """Microseconds per op by stage and size, and the exponents."""
    ops = found["ops"]
    lines = [f"{shape}, µs per op", f"  {'ops':20}" + "".join(f"{n:>9}" for n in ops) + "  exponent"]
    if found["left_out"]:
        lines.append(f"  left out, beyond the budget: {', '.join(map(str, found['left_out']))}")
    for stage, row in found["stages"].items():
        cells = "".join(f"{1e6 * t / n:9.2f}" for n, t in zip(ops, row["seconds"], strict=True))
        lines.append(f"  {stage:20}{cells}{row['exponent']:10.2f}")
    return "\n".join(lines)


WIDTH, HEIGHT, LEFT, GAP = 430, 260, 60, 50
"""Pixels of the plotting area, of the axis, and between panels."""


def plot(data: dict[str, Any]) -> str:
    """Time per op over the number of ops, both logarithmic, one panel for each shape: the total and its five longest stages."""
    panels = [_panel(shape, found, 10, 40 + i * (HEIGHT + GAP)) for i, (shape, found) in enumerate(data.items())]
    size = f'width="{LEFT + WIDTH + 190}" height="{40 + len(panels) * (HEIGHT + GAP)}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">\n'
        '<rect width="100%" height="100%" fill="#fff"/>\n'
        + text(10, 18, "µs per op over ops of the kernel (flat is linear); with the exponent from 1,000 ops on")
        + "\n"
        + "\n".join(panels)
        + "\n</svg>\n"
    )


def _panel(shape: str, found: dict[str, Any], left: float, top: float) -> str:
    ops, rows = found["ops"], found["stages"]
    longest = sorted((s for s in rows if s != "total"), key=lambda s: -rows[s]["seconds"][-1])[:5]
    shown = {s: [1e6 * t / n for n, t in zip(ops, rows[s]["seconds"], strict=True)] for s in ("total", *longest)}
    low = 10 ** math.floor(math.log10(min(map(min, shown.values()))))
    high = 10 ** math.ceil(math.log10(max(map(max, shown.values()))))
    left += LEFT

    def x(n: float) -> float:
        return left + WIDTH * math.log(n / ops[0]) / math.log(ops[-1] / ops[0])

    def y(t: float) -> float:
        return top + HEIGHT * (1 - math.log(t / low) / math.log(high / low))

    out = [text(left, top - 6, shape)]
    tick = low
    while tick <= high * 1.001:
        out.append(f'<path d="M{left:.1f} {y(tick):.1f}h{WIDTH}" stroke="#ddd"/>')
        out.append(text(left - 5, y(tick) + 4, f"{tick:g}", anchor="end"))
        tick *= 10
    out += [text(x(n), top + HEIGHT + 14, str(n), anchor="middle", size=9) for n in ops]
    for i, (stage, values) in enumerate(shown.items()):
        path = " ".join(f"{x(n):.1f},{y(t):.1f}" for n, t in zip(ops, values, strict=True))
        colour = COLOURS[i % len(COLOURS)]
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{3 if i == 0 else 1.5}"/>')
        at = top + 12 + 16 * i
        out.append(f'<rect x="{left + WIDTH + 10:.1f}" y="{at - 9:.1f}" width="10" height="10" fill="{colour}"/>')
        out.append(text(left + WIDTH + 25, at, f"{stage}: {rows[stage]['exponent']:.2f}"))
    return "\n".join(out)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    p = argparse.ArgumentParser(description="Growth of the compile time of TileIR's own stages.")
    p.add_argument("--chip", default="gfx942", choices=("gfx942", "gfx950"))
    p.add_argument("--sizes", default=",".join(map(str, SIZES)), help="ops, separated by commas; two at least")
    p.add_argument("--shape", action="append", choices=tuple(SHAPES), help="several times; default: all")
    p.add_argument("--repetitions", type=int, default=2)
    p.add_argument("--budget", type=float, default=30.0, help="seconds that one kernel may take (default: 30)")
    p.add_argument("--json", type=Path)
    p.add_argument("--svg", type=Path)
    args = p.parse_args(argv)
    sizes = sorted({int(s) for s in args.sizes.split(",")})
    if len(sizes) < 2 or sizes[0] < 20 or args.repetitions < 1:
        p.error("two sizes of at least 20 ops are needed, and one repetition")
    data = run(args.shape or tuple(SHAPES), sizes, args.chip, args.repetitions, args.budget)
    print("\n\n".join(table(shape, found) for shape, found in data.items()))
    if args.json:
        args.json.write_text(json.dumps({"chip": args.chip, "limit": LIMIT, "shapes": data}, indent=2) + "\n", "utf-8")
    if args.svg:
        args.svg.write_text(plot(data), "utf-8")
    worse = {s: e for s, f in data.items() if (e := f["stages"]["total"]["exponent"]) > LIMIT}
    for shape, found in worse.items():
        print(f"{shape}: the total grows with exponent {found:.2f}, above {LIMIT}", file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
