"""The timing model against published measurements: a table of every point, with the errors.

    python benchmarks/timing_validation.py --triton-python /path/to/venv/bin/python [--write docs/timing-validation.md]

`timing_points.json` lists measurements that other people published. Those whose kernel a package from PyPI can rebuild
(Triton 3.9.0, and Gluon inside it) are compiled from the kernels in `timing_kernels.py`, which are written here after the
published descriptions; each is run on small sizes and compared with NumPy; then the model estimates it at the published
size. The others are listed with the reason why not.

What is compared is the *use of the matrix pipes in the hot loop*: matrix clocks per SIMD and clock of the loop, as the sources
define it, because it does not depend on the clock that the part happened to run at. TFLOPS are shown with the clock at which the
estimate would equal the measurement; the parts are power-limited and the sources rarely say their clock.

With fewer than eight comparable points no correlation and no typical error is claimed. The parameters of the model are
frozen (`tileir/target/timing_model.json`) and not fitted to these points. Nothing here was measured by this project.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from compilers import Child  # noqa: E402

from tileir.simulator import Module, Simulator, TimeOptions, estimate  # noqa: E402
from tileir.simulator.timing.result import Timing  # noqa: E402

POINTS = HERE / "timing_points.json"
CLAIM = 8
"""Comparable points from which on correlation and typical error are told."""
DTYPES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}
Point = dict[str, Any]


@dataclass(frozen=True)
class Result:
    """What the model says about a point. efficiency: use of the matrix pipes in the hot loop. clocks_per_step: of one wave, per
    step of the loop over K (None where there is no such step). tflops: at the nominal clock."""

    efficiency: float
    clocks_per_step: float | None
    tflops: float
    clock_hz: float
    parameters: str
    versions: str
    host_seconds: float
    choice: str = ""
    """Which of several candidates this is."""


class Compiler:
    """A process of Triton's Python that compiles kernels."""

    def __init__(self, python: str, folder: Path) -> None:
        self.folder, self.count = folder, 0
        environment = os.environ | {"TRITON_CACHE_DIR": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
        self.child = Child([python, str(HERE / "timing_compile.py")], environment, quiet=True)

    def compile(self, rebuild: Point) -> tuple[bytes, Point]:
        """The code object and {lds, threads, kernel, triton}. RuntimeError with the compiler's message."""
        self.count += 1
        path = self.folder / f"{self.count}.hsaco"
        sizes = ("M", "N", "K") if "sizes" in rebuild else ("length",)
        types = {name: "*T" for name in "abcqkvo"} | dict.fromkeys(sizes, "i32") | {"scale": "fp32"}
        answer = self.child.ask({"types": types} | rebuild | {"out": str(path)})
        return path.read_bytes(), answer

    def close(self) -> None:
        self.child.stop()


class Kernel:
    """A compiled kernel on a fresh simulator."""

    def __init__(self, rebuild: Point, code: bytes, answer: Point) -> None:
        self.rebuild, self.answer = rebuild, answer
        self.simulator = Simulator(rebuild["chip"])
        self.module: Module = self.simulator.load(code)
        kernel = self.module.code.kernel(answer["kernel"])
        assert kernel.metadata
        self.visible = sum(not a.hidden for a in kernel.metadata.args)
        self.lds = max(0, answer["lds"] - kernel.descriptor.group_segment_fixed_size)
        self.block = (answer["threads"], 1, 1)

    def arguments(self, *values: Any) -> list[Any]:
        return [*values, *[0] * (self.visible - len(values))]  # Triton's own scratch pointers come last

    def buffer(self, elements: int) -> Any:
        return self.simulator.memory.allocate(elements * 2)

    def launch(self, grid: tuple[int, int, int], arguments: list[Any]) -> None:
        self.module.launch(self.answer["kernel"], grid, self.block, arguments, lds_dynamic=self.lds)

    def estimate(self, grid: tuple[int, int, int], arguments: list[Any]) -> Timing:
        options = TimeOptions(sample_only=True)
        return estimate(
            self.module, self.answer["kernel"], grid, self.block, arguments, options=options, lds_dynamic=self.lds
        )


def gemm(kernel: Kernel, sizes: Sequence[int]) -> tuple[tuple[int, int, int], list[Any], list[Any]]:
    """Grid, arguments and buffers of a product."""
    m, n, k = sizes
    spec = kernel.rebuild
    bm, bn = spec["product"]["tile"][:2] if "product" in spec else (spec["constants"]["BM"], spec["constants"]["BN"])
    buffers = [kernel.buffer(m * k), kernel.buffer(n * k), kernel.buffer(m * n)]
    return (m // bm * (n // bn), 1, 1), kernel.arguments(*buffers, m, n, k), buffers


def attention(
    kernel: Kernel, heads: int, length: int, d: int, rows: int
) -> tuple[tuple[int, int, int], list[Any], list[Any]]:
    buffers = [kernel.buffer(heads * length * d) for _ in range(4)]
    scale = np.float32(d**-0.5 * np.log2(np.e))
    return (length // rows, heads, 1), kernel.arguments(*buffers, length, scale), buffers


def check(compiled: tuple[bytes, Point], rebuild: Point) -> None:
    """Runs a kernel on small sizes; AssertionError when its result is wrong."""
    kernel = Kernel(rebuild, *compiled)
    dtype = DTYPES[rebuild["dtype"]]
    rng = np.random.default_rng(0)
    if "sizes" in rebuild:
        tile = (
            rebuild["product"]["tile"]
            if "product" in rebuild
            else [rebuild["constants"][n] for n in ("BM", "BN", "BK")]
        )
        m, n, k = 8 * tile[0] // 4, 4 * tile[1], 4 * tile[2]  # 8 tiles: the kernels deal them to 8 XCDs
        grid, arguments, buffers = gemm(kernel, (m, n, k))
        a, b = (rng.standard_normal(shape).astype(dtype) for shape in ((m, k), (n, k)))
        buffers[0].write(a), buffers[1].write(b)
        kernel.launch(grid, arguments)
        want = a.astype(np.float64) @ b.astype(np.float64).T
        got = np.asarray(buffers[2].read(dtype)).reshape(m, n).astype(np.float64)
    else:
        d, rows = rebuild["attention"]["head"], rebuild["attention"]["rows"]
        grid, arguments, buffers = attention(kernel, 2, 3 * rows, d, rows)
        q, k, v = (rng.standard_normal((2, 3 * rows, d)).astype(dtype) for _ in range(3))
        for buffer, values in zip(buffers, (q, k, v), strict=False):
            buffer.write(values)
        kernel.launch(grid, arguments)
        logits = q.astype(np.float64) @ k.astype(np.float64).transpose(0, 2, 1) * d**-0.5
        logits = np.where(np.tril(np.ones(logits.shape[1:], bool)), logits, -np.inf)
        weights = np.exp(logits - logits.max(2, keepdims=True))
        want = weights @ v.astype(np.float64) / weights.sum(2, keepdims=True)
        got = np.asarray(buffers[3].read(dtype)).reshape(want.shape).astype(np.float64)
    error = np.abs(got - want).max() / np.abs(want).max()
    assert error < 0.01, f"relative error {error:.3g}"


def run(point: Point, compiler: Compiler) -> Result:
    """Compiles, checks and estimates a point; of several candidates the one with the best estimate, as an autotuner takes
    the one with the best measurement."""
    rebuild = point["rebuild"]
    if "candidates" not in rebuild:
        return run_one(rebuild, compiler)
    found: list[Result] = []
    for candidate in rebuild["candidates"]:
        chosen = rebuild | {
            "constants": rebuild["constants"] | candidate["constants"],
            "options": candidate["options"],
            "attention": rebuild["attention"] | {"rows": candidate["constants"]["ROWS"]},
        }
        names = ", ".join(
            f"{name} {value}" for part in ("constants", "options") for name, value in candidate[part].items()
        )
        found.append(replace(run_one(chosen, compiler), choice=names))
    best = max(found, key=lambda result: result.tflops)
    return replace(best, host_seconds=sum(result.host_seconds for result in found))


def run_one(rebuild: Point, compiler: Compiler) -> Result:
    started = time.perf_counter()
    compiled = compiler.compile(rebuild)
    check(compiled, rebuild)
    kernel = Kernel(rebuild, *compiled)
    if "sizes" in rebuild:
        m, n, k = rebuild["sizes"]
        grid, arguments, _ = gemm(kernel, (m, n, k))
        flops = 2.0 * m * n * k
    else:
        a = rebuild["attention"]
        heads = a["batch"] * a["heads"]
        grid, arguments, _ = attention(kernel, heads, a["length"], a["head"], a["rows"])
        flops = 2.0 * heads * a["length"] ** 2 * a["head"]  # two products, half of them masked, as the source counts
    timing = kernel.estimate(grid, arguments)
    loop = max(timing.loops, key=lambda loop: loop.row.mfma_clocks)
    per_simd = kernel.block[0] // 64 / 4  # waves of the one workgroup on each SIMD, as the sources define it
    if "attention" in rebuild:
        efficiency = timing.mfma_utilisation
    else:
        efficiency = per_simd * loop.row.mfma_clocks / loop.row.clocks
    return Result(
        efficiency,
        loop.clocks_per_iteration / rebuild["steps"] if "steps" in rebuild else None,
        flops / timing.seconds / 1e12,
        timing.clock_hz,
        timing.parameters,
        f"Triton {compiled[1]['triton']}",
        time.perf_counter() - started,
    )


def ranks(values: Sequence[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Ranks from 0; equal values share the mean of theirs."""
    array = np.asarray(values, np.float64)
    order = np.argsort(array, kind="stable")
    out = np.empty(len(array))
    out[order] = np.arange(len(array))
    for value in np.unique(array):
        same = array == value
        out[same] = out[same].mean()
    return out


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's."""
    return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


def verdict(pairs: Sequence[tuple[str, float, float]]) -> list[str]:
    """What may be said about (name, published, estimated) of the comparable points."""
    if len(pairs) < CLAIM:
        return [
            f"There are {len(pairs)} comparable points, fewer than {CLAIM}: no correlation and no typical error is claimed."
        ]
    published, estimated = [p for _, p, _ in pairs], [e for _, _, e in pairs]
    errors = [abs(e - p) / p for p, e in zip(published, estimated, strict=True)]
    worst = max(zip(errors, pairs, strict=True), key=lambda item: item[0])
    bias = float(np.median([(e - p) / p for p, e in zip(published, estimated, strict=True)]))
    return [
        f"{len(pairs)} comparable points: Spearman rank correlation {rank_correlation(published, estimated):.3f}, "
        f"median error {100 * float(np.median(errors)):.1f} %, mean error {100 * float(np.mean(errors)):.1f} %, "
        f"median of the signed errors {100 * bias:+.1f} %, largest error {100 * worst[0]:.1f} % ({worst[1][0]})."
    ]


def percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def table(points: Sequence[Point], results: dict[str, Result]) -> list[str]:
    """The rebuilt points as rows of a Markdown table."""
    lines = [
        "| point | what | compiler and tuning of the source | published use of the matrix pipes | estimated | error | "
        "published clocks per step | estimated | published TFLOPS | estimated at nominal clock | clock for equal TFLOPS | "
        "the rebuilt kernel |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for point in points:
        result = results.get(point["name"])
        if result is None:
            continue
        published = point["published"]
        want, steps, tflops = (published.get(key) for key in ("mfma_efficiency", "clocks_per_step", "tflops"))
        error = "" if want is None else f"{100 * (result.efficiency - want) / want:+.1f} %"
        clock = "" if tflops is None else f"{result.clock_hz * tflops / result.tflops / 1e9:.2f} GHz"
        source = f"{point['source']}, {point['where']}; {point['versions']}; {point['tuning']}"
        cells = [
            point["name"],
            f"{point['product']}: {point['what']}" + (f" ({point['note']})" if "note" in point else ""),
            source,
            percent(want),
            percent(result.efficiency),
            error,
            "" if steps is None else f"{steps:.0f}",
            "" if result.clocks_per_step is None else f"{result.clocks_per_step:.0f}",
            "" if tflops is None else f"{tflops:.0f}",
            f"{result.tflops:.0f}",
            clock,
            point["same"]
            + (f": {result.choice}" if result.choice else "")
            + ("" if point["counted"] else "; **not counted**"),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def others(points: Sequence[Point]) -> list[str]:
    lines = ["| point | what | published | why it is not rebuilt |", "|---|---|---|---|"]
    units = {"mfma_efficiency": "use of the matrix pipes", "tflops": "TFLOPS", "clocks_per_step": "clocks per step"}
    for point in points:
        if point["rebuild"] is None:
            values = ", ".join(
                f"{percent(v) if key == 'mfma_efficiency' else v} {units[key]}" for key, v in point["published"].items()
            )
            where = f" ({point['source']}{', ' + point['where'] if point['where'] else ''})"
            lines.append(
                f"| {point['name']} | {point['product']}: {point['what']}{where} | {values} | {point['why_not']} |"
            )
    return lines


def orders(data: dict[str, Any]) -> list[str]:
    """Hit rates for orders of workgroups, as rows of a Markdown table."""
    from timing_orders import product_traffic

    lines = [
        "| size | order | published L2 hits | estimated | published last-level hits | estimated | published TFLOPS |",
        "|---|---|---|---|---|---|---|",
    ]
    for entry in data["orders"]:
        order = tuple(entry["order"]) if entry["order"] else None
        traffic = product_traffic(entry["size"], order, accesses=1 << 22)
        name = f"window {order[0]}, chunk {order[1]}" if order else "row by row"
        cells = [percent(x) for x in (entry["l2"], traffic.l2_hit_rate, entry["llc"], traffic.llc_hit_rate)]
        lines.append(f"| {entry['size']} | {name} | {' | '.join(cells)} | {entry['tflops']} |")
    return lines


def _large(point: Point) -> bool:
    """Whether the tile is 256 x 256."""
    rebuild = point["rebuild"]
    if "product" in rebuild:
        return bool(rebuild["product"]["tile"][:2] == [256, 256])
    return (rebuild["constants"]["BM"], rebuild["constants"]["BN"]) == (256, 256)


def document(data: dict[str, Any], results: dict[str, Result], failed: dict[str, str]) -> str:
    points: list[Point] = data["points"]
    any_result = next(iter(results.values()))
    counted = [p for p in points if p["counted"] and p["name"] in results]
    pairs = [(p["name"], p["published"]["mfma_efficiency"], results[p["name"]].efficiency) for p in counted]
    first = [(p["name"], p["published"]["mfma_efficiency"], p["first_run"]) for p in counted if "first_run" in p]
    again = [pair for pair in pairs if pair[0] in {name for name, _, _ in first}]
    lines = [
        "# The timing model against published measurements",
        "",
        "Written by `benchmarks/timing_validation.py`. **Every figure of this project in it is estimated**; the published ones "
        "were measured by others on hardware that this project has not seen.",
        "",
        f"Parameters: {any_result.parameters}, frozen, not fitted to these points. Rebuilt with {any_result.versions} (from "
        "PyPI) from kernels that are written here after the published descriptions; each was run on small sizes and compared "
        "with NumPy before it was estimated. That a kernel is rebuilt does not make it the same: the sources used other "
        "versions of the compiler.",
        "",
        "Compared is the use of the matrix pipes in the hot loop, matrix clocks per SIMD and clock of the loop: it does not depend "
        "on the clock. TFLOPS are those of the whole launch at the nominal clock (2.1 GHz for MI300X, 2.4 GHz for MI355X); the last "
        "figure is the clock at which the estimate would equal the measurement. One source gives 1.0 to 2.0 GHz for such kernels "
        "on MI300X, so TFLOPS of different kernels are not comparable without their clocks, and are not counted.",
        "",
        "## Result",
        "",
        *verdict(pairs),
        "",
        *[
            f"* {name}: {verdict(own)[0]}"
            for name, own in (
                ("MI355X", [pair for pair, p in zip(pairs, counted, strict=True) if p["product"] == "MI355X"]),
                ("MI300X", [pair for pair, p in zip(pairs, counted, strict=True) if p["product"] == "MI300X"]),
                ("tiles of 256 x 256", [pair for pair, p in zip(pairs, counted, strict=True) if _large(p)]),
                ("smaller tiles", [pair for pair, p in zip(pairs, counted, strict=True) if not _large(p)]),
            )
        ],
        "",
        "Smaller tiles give a step less time to cover the latency of memory, so they show how well that is known: the latencies of "
        "the last-level cache and of HBM on MI355X are derived from one published figure that may be read as the whole latency or "
        "as what comes on top of the L2's; the model has the latter, which is the slower reading.",
        "",
        "### What changed after the first run",
        "",
        "The first run of eleven points (one of them had been tried alone before) had shown a fault of the cache model: it let the "
        "resident workgroups take turns in one cyclic order, so that the simulated one was the first to touch most of the lines "
        "that it shares with others, and paid for their misses. The turns are random now. In the same hour the model of the "
        "compute unit got queues of the LDS by SIMD and keeps lines that are on their way. No parameter changed. So the model was "
        "not fitted to these points, but neither was it blind to them: the smaller tiles, which were first run afterwards, are the "
        "cleaner test. "
        "For these points the figures under both are:",
        "",
        "| point | published | first run | now |",
        "|---|---|---|---|",
        *[
            f"| {name} | {percent(want)} | {percent(then)} | {percent(results[name].efficiency)} |"
            for name, want, then in first
        ],
        "",
        f"* First run: {verdict(first)[0]}",
        f"* Now: {verdict(again)[0]}",
        "",
        "## Points that are rebuilt",
        "",
        *table(points, results),
        "",
        "## Points that are not",
        "",
        *others(points),
        *[f"| {name} |  |  | it did not compile or run here: {reason} |" for name, reason in failed.items()],
        "",
        "## Orders of workgroups",
        "",
        "Hit rates of the caches for a bf16 product on MI355X (hipkittens), published and from the cache model alone, on lines that "
        "are generated for tiles of 192 x 256 x 64 (`timing_orders.py`; see also grid-order.md):",
        "",
        *orders(data),
        "",
        "## Sources",
        "",
        *[f"* *{key}*: {source['title']}, <{source['url']}>" for key, source in data["sources"].items()],
        "",
    ]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--triton-python", default=os.environ.get("TILEIR_TRITON_PYTHON", ""), metavar="PATH")
    parser.add_argument("--only", default="", metavar="TEXT", help="points whose name contains the text")
    parser.add_argument("--write", metavar="FILE.md", help="write the table (all points must have been run)")
    parser.add_argument(
        "--results", metavar="FILE.json", help="keep results here; what is in it is not estimated again"
    )
    args = parser.parse_args(argv)
    if not args.triton_python:
        parser.error("which Python has Triton? --triton-python PATH")
    if args.write and args.only:
        parser.error("--write needs all points")
    data = json.loads(POINTS.read_text("utf-8"))
    kept = Path(args.results) if args.results else None
    results: dict[str, Result] = {}
    if kept is not None and kept.exists():
        results = {name: Result(**values) for name, values in json.loads(kept.read_text("utf-8")).items()}
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        compiler = Compiler(args.triton_python, Path(folder))
        for point in data["points"]:
            if point["rebuild"] is None or args.only not in point["name"] or point["name"] in results:
                continue
            try:
                result = run(point, compiler)
            except (RuntimeError, AssertionError) as error:
                failed[point["name"]] = str(error).splitlines()[0]
                print(f"{point['name']:<28} FAILED: {failed[point['name']]}", flush=True)
                continue
            results[point["name"]] = result
            if kept is not None:
                kept.write_text(json.dumps({name: asdict(r) for name, r in results.items()}, indent=1), "utf-8")
            want = point["published"].get("mfma_efficiency")
            print(
                f"{point['name']:<28} published {percent(want):>7}  estimated {percent(result.efficiency):>7}  "
                f"({result.tflops:.0f} TFLOPS estimated at nominal clock, {point['published'].get('tflops', '–')} published; "
                f"{result.host_seconds:.0f} s)",
                flush=True,
            )
        compiler.close()
    counted = [p for p in data["points"] if p["counted"] and p["name"] in results]
    print()
    for line in verdict(
        [(p["name"], p["published"]["mfma_efficiency"], results[p["name"]].efficiency) for p in counted]
    ):
        print(line)
    if args.write:
        Path(args.write).write_text(document(data, results, failed), "utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
