"""Hot loops of matrix products: TileIR against Triton, in one run.

    python benchmarks/hot_loops.py --triton-python /path/to/venv/bin/python [--json FILE] [--plot FILE.svg]

Each row is C = A · Bᵀ for any M, N, K on one chip, with one element type, tile and number of waves. It is compiled by TileIR and five
times by Triton: with masks, which is the same problem, and without, for sizes that are multiples of the tile only (`even`); each
as it comes and with the attribute `amdgpu-agpr-alloc` of 0, and the even one with matrix instructions of 16 rows. Every code
object is run by the simulator on a small product and compared with NumPy. `gluon` is a kernel with layouts and schedule by hand in
Triton's second language, for even sizes, where there is one. Then it is told

* n: instructions of the hot loop that are no MFMA, per 1024 MFMA clocks of one wave; registers of a wave, of these accumulation
  registers; spilled registers; bytes of scratch; accumulator moves in the loop; bytes of LDS; waits of the hot loop for all loads
  (`vmcnt(0)`): read from the code object, exact;
* compile times in ms, medians, of ours and of the same problem in Triton as it comes: of a whole process, and of the call in a process
  whose imports are done: measured;
* clocks of a whole product of --size in each direction (rounded down to whole tiles), and the efficiency of the hot loop,
  MFMA clocks over clocks of a SIMD in it, and the part of its LDS clocks that bank conflicts cost: *estimated* by the timing
  model (docs/timing.md).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from compilers import Child, Compiler, Job, Server, find_compilers, time_process
from hot_loops_plot import plot
from products import Product

from tileir.simulator import Simulator, SimulatorError, TimeOptions, estimate
from tileir.simulator.inspect import inspect
from tileir.target import get

HERE = Path(__file__).resolve().parent
DTYPES: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
}
OURS, SAME = "tileir", "triton"
"""Names of our code object, and of Triton's for the same problem as it comes."""
TRITON_KINDS: dict[str, dict[str, Any]] = {
    SAME: {"masks": True, "agprs": True},
    "triton, no AGPRs": {"masks": True, "agprs": False},
    "triton even": {"masks": False, "agprs": True},
    "triton even, no AGPRs": {"masks": False, "agprs": False},
    "triton even, 16 rows": {"masks": False, "instruction": 16},
}
GLUON = "gluon"
GLUON_POINTS = {
    ("gfx950", 4): "quarters 256x256",
    ("gfx950", 8): "ping-pong K 8192",
    ("gfx942", 8): "staged ping-pong K 8256",
}
"""Kernels of timing_kernels.py in Triton's language of explicit layouts, by hand for tiles of 256 x 256 x 64 and sizes that are
multiples of them: those of the points of timing_points.json with these names."""
TILE_TOLERANCE = 1.15
"""What tiles other than 256 x 256 may need, as a multiple of the bar of the square one."""
PROCESS_BAR, CALL_BAR = 0.3, 1 / 6


@dataclass(frozen=True)
class Row:
    """A product with the most n it should need (None: no bar). group: `main`, `f16` or `tiles`."""

    product: Product
    bar: float | None
    group: str


def rows() -> list[Row]:
    """All rows. A tile of which one step does not fit in LDS is left out."""
    square = {("gfx950", 4): 39.0, ("gfx950", 8): 68.0, ("gfx942", 8): 34.0}
    found = [Row(Product(chip, waves=waves), bar, "main") for (chip, waves), bar in square.items()]
    large = (256, 256, 128)
    found += [
        Row(Product("gfx950", "fp8", large, 4), 63.0, "main"),
        Row(Product("gfx950", "fp8", large, 8), 75.0, "main"),
        Row(Product("gfx942", "fp8", large, 8), 34.0, "main"),
        Row(Product("gfx950", waves=4, a_columns=True), 49.0, "main"),
        Row(Product("gfx950", waves=8, pattern="ping_pong"), 68.0, "main"),
        Row(Product("gfx942", waves=8, pattern="ping_pong"), 34.0, "main"),
    ]
    found += [Row(Product(chip, "f16", waves=waves), bar, "f16") for (chip, waves), bar in square.items()]
    for (chip, waves), bar in square.items():
        for m, n in ((128, 256), (192, 256), (256, 192), (256, 128)):
            for k in (32, 64, 128):
                product = Product(chip, tile=(m, n, k), waves=waves)
                if product.bytes_of_step <= get(chip).lds_bytes:
                    found.append(Row(product, bar * TILE_TOLERANCE, "tiles"))
    return found


@dataclass
class Result:
    """What was found of one code object. error: why there is none. call, process: seconds. clocks: estimated, of the product
    `sizes`; efficiency: estimated, of the hot loop; tflops: estimated. conflicts: part of the
    loop's LDS clocks that bank conflicts cost, by the lane groups that the target states or assumes. exposed: LDS reads with less MFMA work before their wait
    than an access takes."""

    error: str = ""
    n: float | None = None
    registers: int = 0
    agprs: int = 0
    spills: int = 0
    scratch_bytes: int = 0
    moves_in_loop: int = 0
    lds_bytes: int = 0
    drains: int = 0
    exposed: int = 0
    sizes: tuple[int, ...] = ()
    clocks: float | None = None
    efficiency: float | None = None
    tflops: float | None = None
    conflicts: float | None = None
    call: list[float] = field(default_factory=list[float])
    process: list[float] = field(default_factory=list[float])


Results = dict[str, Result]
"""Of one row, by the name of the code object."""


class GluonServer:
    """Compiles the kernels of `GLUON_POINTS`."""

    def __init__(self, compiler: Compiler) -> None:
        self.scratch = tempfile.TemporaryDirectory(prefix="gluon-")
        command = [compiler.python, str(HERE / "timing_compile.py")]
        self.child = Child(command, compiler.environment(self.scratch.name), quiet=True)

    def compile(self, job: Job) -> Job:
        """RuntimeError with the compiler's message."""
        return self.child.ask(job)

    def stop(self) -> None:
        self.child.stop()
        self.scratch.cleanup()


def gluon_job(product: Product) -> Job | None:
    """The request for the peer of a product, if there is one."""
    name = GLUON_POINTS.get((product.chip, product.waves))
    if name is None or product.pattern or product.tile != (256, 256, 64) or product.dtype == "fp8" or product.a_columns:
        return None
    points = json.loads((HERE / "timing_points.json").read_text("utf-8"))["points"]
    request = next(p["rebuild"] for p in points if p["name"] == name)
    types = {"a": "*T", "b": "*T", "c": "*T", "M": "i32", "N": "i32", "K": "i32"}
    return request | {"dtype": "fp16" if product.dtype == "f16" else product.dtype, "types": types, "flat": True}


class Loaded:
    """A code object on a fresh simulator, with what a launch of it needs. flat: its grid has one dimension, and it takes no strides."""

    def __init__(self, row: Product, code: bytes, answer: Job, *, flat: bool = False) -> None:
        self.product, self.answer, self.flat = row, answer, flat
        self.simulator = Simulator(row.chip)
        self.module = self.simulator.load(code)
        kernel = self.module.code.kernel(answer["kernel"])
        assert kernel.metadata
        self.arguments = [a for a in kernel.metadata.args if not a.hidden]
        self.lds = max(0, answer["lds"] - kernel.descriptor.group_segment_fixed_size)

    def place(self, sizes: Sequence[int]) -> tuple[Any, ...]:
        """Grid, block, arguments and buffers of a product."""
        m, n, k = sizes
        p = self.product
        item = np.dtype(DTYPES[p.element]).itemsize
        buffers = [self.simulator.memory.allocate(size) for size in (m * k * item, n * k * item, m * n * 2)]
        named = dict(zip("ABC", buffers, strict=True)) | {"M": m, "N": n, "K": k}
        if self.arguments[0].name in named:
            values = [named[a.name] for a in self.arguments]
        else:  # Triton's, in the order of its signature; its own scratch pointers come last
            values = [*buffers, m, n, k, *(() if self.flat else (m if p.a_columns else k, k, n))]
            values += [0] * (len(self.arguments) - len(values))
        x, y = -(-m // p.tile[0]), -(-n // p.tile[1])
        grid = (x * y, 1, 1) if self.flat else (x, y, 1)
        return grid, (self.answer["threads"], 1, 1), values, buffers

    def check(self, sizes: Sequence[int]) -> str:
        """Runs a product; what is wrong with its result, or nothing."""
        m, n, k = sizes
        grid, block, values, buffers = self.place(sizes)
        dtype, out = DTYPES[self.product.element], DTYPES[self.product.result]
        rng = np.random.default_rng(0)
        a, b = (rng.standard_normal(shape).astype(np.float32).astype(dtype) for shape in ((m, k), (n, k)))
        buffers[0].write(np.ascontiguousarray(a.T) if self.product.a_columns else a)
        buffers[1].write(b)
        self.module.launch(self.answer["kernel"], grid, block, values, lds_dynamic=self.lds)
        got = np.asarray(buffers[2].read(out)).reshape(m, n).astype(np.float64)
        want = a.astype(np.float64) @ b.astype(np.float64).T
        error = float(np.abs(got - want).max() / np.abs(want).max())
        return "" if error < 0.01 else f"wrong result for {m} x {n} x {k}: relative error {error:.3g}"

    def estimate(self, result: Result, hot: int) -> None:
        """Adds what is estimated of the product of `result.sizes`; `hot` is the number of its hot loop."""
        grid, block, values, _ = self.place(result.sizes)
        timing = estimate(
            self.module,
            self.answer["kernel"],
            grid,
            block,
            values,
            options=TimeOptions(sample_only=True),
            lds_dynamic=self.lds,
        )
        row = next(loop for loop in timing.loops if loop.number == hot).row
        together = min(timing.occupancy.workgroups_per_cu, timing.cu.simulated)
        waves = together * self.answer["threads"] / 64 / get(self.product.chip).simds_per_cu
        m, n, k = result.sizes
        result.clocks, result.efficiency = timing.clocks, waves * row.mfma_clocks / row.clocks
        result.tflops = 2e-12 * m * n * k / timing.seconds
        result.conflicts = row.conflict_clocks / row.lds_clocks if row.lds_clocks else 0.0


def examine(product: Product, job: Job, server: Server | GluonServer, path: Path, size: int, *, ragged: bool) -> Result:
    """Compiles a job once and reports on its code object. ragged: it is for any sizes. size 0: without an estimate."""
    result = Result()
    try:
        answer = server.compile({**job, "out": str(path)})
        code = path.read_bytes()
        report = inspect(code, answer["kernel"]).kernel
        result.lds_bytes = answer["lds"]
        result.registers, result.agprs = report.registers.vector_allocated, report.registers.agprs_stated or 0
        result.spills = (report.spills.vgprs_stated or 0) + (report.spills.sgprs_stated or 0)
        result.scratch_bytes = report.spills.scratch_bytes
        hot = report.hot_loop
        if hot is None or not hot.counts.mfma_clocks:
            result.error = "no loop with MFMAs"
            return result
        result.n, result.moves_in_loop = hot.counts.n, hot.counts.accumulator_moves
        result.drains, result.exposed = hot.counts.vmcnt_drains, hot.exposed_reads(report.target)
        m, n, k = product.tile
        loaded = Loaded(product, code, answer, flat=job.get("flat", False))
        result.error = loaded.check((m + 16, n - 16, 3 * k + 16) if ragged else (2 * m, 4 * n, 4 * k))
        if size and not result.error:
            result.sizes = tuple(size // t * t for t in product.tile)
            loaded.estimate(result, hot.number)
    except (RuntimeError, SimulatorError) as error:
        lines = str(error).splitlines()
        result.error = next((line.strip() for line in lines if line.strip()), type(error).__name__)
    return result


def jobs(product: Product, found: Sequence[Compiler]) -> dict[str, tuple[Compiler, Job, bool]]:
    """By the names of the columns: who compiles, what, and whether it is for ragged sizes."""
    out: dict[str, tuple[Compiler, Job, bool]] = {}
    for compiler in found:
        if compiler.name == "tileir":
            lds = get(product.chip).lds_bytes
            out[OURS] = (compiler, product.tileir(lds), True)
        else:
            for name, kind in TRITON_KINDS.items():
                out[name] = (compiler, product.triton(**kind), kind["masks"])
    return out


def measure(
    row: Row,
    found: Sequence[Compiler],
    servers: dict[str, Server],
    gluon: GluonServer | None,
    size: int,
    repetitions: int,
) -> Results:
    """All results of a row by column. Compilers take turns where times are measured."""
    asked = jobs(row.product, found)
    results: Results = {}
    with tempfile.TemporaryDirectory(prefix="hot-loops-") as folder:
        for i, (name, (compiler, job, ragged)) in enumerate(asked.items()):
            path = Path(folder) / f"{i}.hsaco"
            results[name] = examine(row.product, job, servers[compiler.name], path, size, ragged=ragged)
        peer = gluon_job(row.product)
        if gluon is not None and peer is not None:
            results[GLUON] = examine(row.product, peer, gluon, Path(folder) / "gluon.hsaco", size, ragged=False)
    for _ in range(repetitions):
        for name, (compiler, job, _) in asked.items():
            if name in (OURS, SAME) and results[name].n is not None and not results[name].error:
                try:
                    results[name].call.append(servers[compiler.name].compile(job)["call"])
                    results[name].process.append(time_process(compiler, job))
                except (RuntimeError, subprocess.CalledProcessError) as error:
                    results[name].error = f"compiled once, but not again: {str(error).splitlines()[0]}"
    return results


def best(results: Results, figure: str) -> float | None:
    """The peers' largest efficiency or lowest other figure, among results that are right."""
    values = [getattr(r, figure) for name, r in results.items() if name != OURS and not r.error]
    values = [v for v in values if v is not None]
    if not values:
        return None
    return max(values) if figure == "efficiency" else min(values)


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def missed(row: Row, results: Results) -> list[str]:
    """The bars that ours misses, in words."""
    ours = results[OURS]
    if ours.error:
        return [ours.error]
    out: list[str] = []
    assert ours.n is not None
    if row.bar is not None and ours.n > row.bar:
        out.append(f"n {ours.n:.1f} > {row.bar:.1f}")
    for name, value in (
        ("spills", ours.spills),
        ("bytes of scratch", ours.scratch_bytes),
        ("accumulator moves in the loop", ours.moves_in_loop),
        ("waits that drain", ours.drains),
        ("% of LDS clocks by conflicts", round(100 * (ours.conflicts or 0), 1)),
    ):
        if value:
            out.append(f"{value} {name}")
    theirs = best(results, "efficiency")
    if ours.efficiency is not None and theirs is not None and ours.efficiency < theirs:
        out.append(f"estimated efficiency {100 * ours.efficiency:.1f} % < {100 * theirs:.1f} %")
    triton = results.get(SAME)
    for name, bar in (("process", PROCESS_BAR), ("call", CALL_BAR)):
        mine, other = _median(getattr(ours, name)), _median(getattr(triton, name)) if triton else None
        if mine is not None and other is not None and mine > bar * other:
            out.append(f"{name} {mine / other:.2f} of Triton's > {bar:.2f}")
    return out


HEAD = (
    f"  {'':22} {'n':>6} {'regs':>5} {'agpr':>5} {'spill':>5} {'scr':>4} {'mov':>4} {'LDS':>7} {'drain':>5} "
    f"{'process':>8} {'call':>7} {'est. clocks':>11} {'est. loop':>9} {'conflicts':>9}"
)


def _cell(value: float | None, form: str, width: int) -> str:
    return f"{'–' if value is None else format(value, form):>{width}}"


def _percent(value: float | None) -> str:
    return _cell(None if value is None else 100 * value, ".1f", 7) + " %"


def table(row: Row, results: Results) -> list[str]:
    """The lines of a row: one for each code object, then ratios and the bars that are missed."""
    bar = "" if row.bar is None else f" (n at most {row.bar:.1f})"
    lines = [f"{row.product.name}{bar}", HEAD]
    for name, r in results.items():
        if r.n is None:
            lines.append(f"  {name:22} does not compile: {r.error}")
            continue
        process, call = _median(r.process), _median(r.call)
        lines.append(
            f"  {name:22} {r.n:6.1f} {r.registers:5} {r.agprs:5} {r.spills:5} {r.scratch_bytes:4} {r.moves_in_loop:4} "
            f"{r.lds_bytes:7} {r.drains:5} {_cell(process and process * 1e3, '.0f', 8)} "
            f"{_cell(call and call * 1e3, '.0f', 7)} {_cell(r.clocks, '.0f', 11)} "
            f"{_percent(r.efficiency)} {_percent(r.conflicts)}" + (f"  {r.error}" if r.error else "")
        )
    ours = results[OURS]
    ratios = []
    for label, figure in (("n", "n"), ("estimated clocks", "clocks"), ("estimated efficiency", "efficiency")):
        mine, theirs = getattr(ours, figure), best(results, figure)
        if mine is not None and theirs:
            ratios.append(f"{label} {mine / theirs:.3f}")
    triton = results.get(SAME)
    for figure in ("process", "call"):
        mine, theirs = _median(getattr(ours, figure)), _median(getattr(triton, figure)) if triton else None
        if mine is not None and theirs:
            ratios.append(f"{figure} {mine / theirs:.2f}")
    if ratios:
        lines.append("  ratio to the best peer (times: to the first): " + ", ".join(ratios))
    failures = missed(row, results)
    lines.append("  MISSED: " + "; ".join(failures) if failures else "  all bars met")
    return lines


def data(row: Row, results: Results) -> dict[str, Any]:
    """A row as JSON data."""
    return {
        "row": row.product.name,
        "group": row.group,
        "product": asdict(row.product),
        "bar": row.bar,
        "results": {name: asdict(result) for name, result in results.items()},
        "missed": missed(row, results),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison; exit status 0 also where bars are missed."""
    about = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about[0], epilog=about[2], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--triton-python", metavar="PATH", default=os.environ.get("TILEIR_TRITON_PYTHON"))
    groups = ("main", "f16", "tiles")
    parser.add_argument("--group", action="append", choices=groups, help="only these rows; may be repeated")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name contains the text")
    parser.add_argument("--size", type=int, default=4096, help="of the estimated product; 0 estimates none")
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help="of compile times; 0 measures none")
    parser.add_argument("--json", metavar="FILE", help="writes all figures as JSON")
    parser.add_argument("--plot", metavar="FILE.svg", help="draws n and the estimated efficiencies")
    options = parser.parse_args(arguments)
    chosen = [r for r in rows() if r.group in (options.group or groups) and options.only in r.product.name]
    if not chosen:
        parser.error(f"no row's name contains '{options.only}'")
    if 0 < options.size < 256:
        parser.error("--size must be 0 or at least 256, one tile")
    if options.repetitions < 0:
        parser.error("--repetitions must not be negative")
    found = find_compilers(options.triton_python)
    servers = {c.name: Server(c) for c in found}
    gluon = GluonServer(found[1]) if len(found) > 1 else None
    print("Clocks, efficiencies (est.) are estimates of a model; times of compiling are in ms.")
    collected: list[dict[str, Any]] = []
    try:
        for row in chosen:
            results = measure(row, found, servers, gluon, options.size, options.repetitions)
            collected.append(data(row, results))
            print("\n" + "\n".join(table(row, results)), flush=True)
            if options.json:
                Path(options.json).write_text(json.dumps(collected, indent=1) + "\n", "utf-8")
    finally:
        for server in (*servers.values(), *([gluon] if gluon else [])):
            server.stop()
    met = sum(not entry["missed"] for entry in collected)
    print(f"\n{met} of {len(collected)} rows meet all their bars")
    if options.plot:
        Path(options.plot).write_text(plot(collected), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
