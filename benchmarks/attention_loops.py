"""Causal attention forward: TileIR against Triton, in one run.

    python benchmarks/attention_loops.py --triton-python /path/to/venv/bin/python [--json FILE] [--length N]

Each row is one chip and head size, bf16, 16 heads, as many keys as queries. Ours are the kernels of the library; Triton's is the kernel of
`timing_kernels.py`, for lengths that are multiples of its tile only, in several tiles and options, of which the one with the best estimate
counts. Every code object is run on a small problem and compared with NumPy. Then it is told

* vector registers, spilled registers, bytes of scratch: read from the code object, exact;
* the ratio (4 · vector + 8 · transcendental instructions) / clocks of matrix instructions, of all that a launch of 1024 queries and keys of
  one head executes: counted;
* the time of the launch, and the part of it in which matrix instructions run, of the whole and of the loop with most of them:
  *estimated* by the timing model (docs/timing.md).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from timing_validation import Compiler, Kernel, attention

from tileir import kernels
from tileir.frontend import parse
from tileir.ir.diagnostics import CompileError
from tileir.lowering.amdgpu.compile import compile_kernel
from tileir.simulator import SimulatorError
from tileir.simulator.inspect import inspect
from tileir.simulator.inspect.classify import TRANSCENDENTAL, classify
from tileir.target import get

ROWS = (("gfx950", 128), ("gfx950", 64), ("gfx942", 128))
OURS = (
    ("attention", {}),
    ("attention_lazy", {}),
    ("attention_lazy", {"AWAY": True}),
    ("attention_prescaled", {}),
)
CANDIDATES = tuple(
    {"constants": {"ROWS": rows, "COLUMNS": columns}, "options": {"num_warps": warps, "num_stages": stages, **more}}
    for rows, columns, warps in ((128, 64, 4), (256, 64, 8), (128, 32, 4))
    for stages in (1, 2)
    for more in ({}, {"waves_per_eu": 2})
)
HEADS, COUNTED = 16, 1024


@dataclass
class Result:
    """What is known of one code object; times in microseconds."""

    name: str
    registers: int = 0
    spills: int = 0
    scratch_bytes: int = 0
    ratio: float = 0.0
    microseconds: float = 0.0
    busy: float = 0.0
    loop: float = 0.0
    error: str = ""


class Ours(Kernel):
    """One of the library's kernels on a fresh simulator."""

    def __init__(self, name: str, params: dict[str, Any], chip: str, depth: int) -> None:
        module = parse(kernels.source(name), f"{name}.tile", {"D": depth, "CAUSAL": True, **params})
        compiled = compile_kernel(module, "", chip)
        tile = compiled.kernel.params["BM"] if compiled.kernel is not None else 0
        assert isinstance(tile, int) and compiled.block is not None
        self.rows, self.code = tile, compiled.hsaco
        answer = {"kernel": "attention", "lds": 0, "threads": compiled.block[0]}
        super().__init__({"chip": chip}, compiled.hsaco, answer)

    def place(self, heads: int, length: int, depth: int) -> tuple[tuple[int, int, int], list[Any], list[Any]]:
        buffers = [self.buffer(length * heads * depth) for _ in range(4)]
        named: dict[str, Any] = dict(zip(("Q", "K", "V", "O"), buffers, strict=True))
        named |= {"LSE": self.simulator.memory.allocate(4 * heads * length), "scale": np.float32(depth**-0.5)}
        named |= {"B": 1, "NQ": length, "NK": length, "H": heads, "G": heads}
        kernel = self.module.code.kernel("attention")
        assert kernel.metadata
        values = [named[a.name] for a in kernel.metadata.args if not a.hidden]
        return (heads, -(-length // self.rows), 1), values, buffers


def check(kernel: Kernel, depth: int, length: int) -> str:
    """Runs two heads; what is wrong with the result, or nothing."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, length, depth)).astype(ml_dtypes.bfloat16) for _ in range(3))
    grid, values, buffers = place(kernel, 2, length, depth)
    turned = isinstance(kernel, Ours)
    for buffer, x in zip(buffers, (q, k, v), strict=False):
        buffer.write(np.ascontiguousarray(x.transpose(1, 0, 2)) if turned else x)
    kernel.launch(grid, values)
    got = np.asarray(buffers[3].read(ml_dtypes.bfloat16)).astype(np.float64)
    got = got.reshape(length, 2, depth).transpose(1, 0, 2) if turned else got.reshape(2, length, depth)
    scores = q.astype(np.float64) @ k.astype(np.float64).transpose(0, 2, 1) * depth**-0.5
    scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(2, keepdims=True))
    want = weights @ v.astype(np.float64) / weights.sum(2, keepdims=True)
    error = float(np.abs(got - want).max() / np.abs(want).max())
    return "" if error < 0.01 else f"wrong result: relative error {error:.3g}"


def place(kernel: Kernel, heads: int, length: int, depth: int) -> tuple[tuple[int, int, int], list[Any], list[Any]]:
    """Grid, arguments and buffers of a launch."""
    if isinstance(kernel, Ours):
        return kernel.place(heads, length, depth)
    return attention(kernel, heads, length, depth, kernel.rebuild["attention"]["rows"])


def ratio(kernel: Kernel, depth: int) -> float:
    """Clocks of vector work over those of matrix instructions, as executed."""
    grid, values, _ = place(kernel, 1, COUNTED, depth)
    statistics = kernel.module.launch(kernel.answer["kernel"], grid, kernel.block, values, lds_dynamic=kernel.lds)
    program = kernel.module.program(kernel.answer["kernel"])
    target = get(kernel.rebuild["chip"])
    clocks = {i.name: target.mfma_clocks(i, "bf16", "bf16") for i in target.mfmas_for("bf16", "bf16", "f32")}
    vector = matrix = 0
    for address, inst in zip(program.addresses, program.instructions, strict=True):
        times = statistics.executions.get(address, 0)
        if inst is not None and inst.name.startswith("v_mfma"):
            matrix += times * clocks[inst.name]
        elif inst is not None and inst.name.startswith("v_"):
            vector += times * (8 if classify(inst.name, inst.encoding, False) == TRANSCENDENTAL else 4)
    return vector / matrix


def examine(name: str, kernel: Kernel, code: bytes, depth: int, length: int) -> Result:
    """Everything about one code object."""
    result = Result(name)
    try:
        report = inspect(code, kernel.answer["kernel"]).kernel
        result.registers = report.registers.vector_allocated
        result.spills, result.scratch_bytes = report.spills.vgprs_stated or 0, report.spills.scratch_bytes
        result.error = check(kernel, depth, 768)
        if result.error:
            return result
        result.ratio = ratio(kernel, depth)
        grid, values, _ = place(kernel, HEADS, length, depth)
        timing = kernel.estimate(grid, values)
        row = max((x.row for x in timing.loops), key=lambda r: r.mfma_clocks)
        together = min(timing.occupancy.workgroups_per_cu, timing.cu.simulated)
        waves = together * kernel.block[0] / 64 / get(kernel.rebuild["chip"]).simds_per_cu
        result.microseconds, result.busy = 1e6 * timing.seconds, timing.mfma_utilisation
        result.loop = waves * row.mfma_clocks / row.clocks
    except SimulatorError as error:
        result.error = str(error).splitlines()[0]
    return result


def triton(compiler: Compiler, chip: str, depth: int, length: int) -> Result:
    """The candidate with the best estimate."""
    found: list[Result] = []
    for candidate in CANDIDATES:
        constants = {**candidate["constants"], "D": depth}
        rows = constants["ROWS"]
        job = {"kernel": "attention", "chip": chip, "dtype": "bf16", "attention": {"rows": rows}}
        job |= {"constants": constants, "options": candidate["options"]}
        try:
            code, answer = compiler.compile(job)
            kernel = Kernel(job, code, answer)
        except (RuntimeError, SimulatorError):
            continue  # not every option suits every chip
        name = f"triton {rows}x{constants['COLUMNS']} " + " ".join(
            f"{k[4:7]}{v}" for k, v in candidate["options"].items()
        )
        found.append(examine(name, kernel, code, depth, length))
    right = [r for r in found if not r.error]
    return min(right, key=lambda r: r.microseconds) if right else Result("triton", error="no candidate is right")


def line(r: Result) -> str:
    if r.error:
        return f"  {r.name:34} {r.error}"
    return (
        f"  {r.name:34} {r.registers:5} {r.spills:6} {r.scratch_bytes:8} {r.ratio:6.3f} {r.microseconds:9.1f} "
        f"{100 * r.busy:8.1f} % {100 * r.loop:8.1f} %"
    )


def command_line(doc: str, multiple: int, arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options of a benchmark of attention, whose lengths are multiples of a number."""
    about = doc.partition("\n")
    parser = argparse.ArgumentParser(
        description=about[0], epilog=about[2], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--triton-python", metavar="PATH", default=os.environ.get("TILEIR_TRITON_PYTHON"))
    length = f"queries and keys, a multiple of {multiple}"
    parser.add_argument("--length", type=int, default=4096, metavar="N", help=length)
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name contains the text")
    parser.add_argument("--json", metavar="FILE", help="writes all figures")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; exit status 1 where ours is wrong or spills."""
    options = command_line(__doc__ or "", 768, arguments)
    collected: list[dict[str, Any]] = []
    bad = False
    with tempfile.TemporaryDirectory(prefix="attention-") as folder:
        compiler = Compiler(options.triton_python, Path(folder)) if options.triton_python else None
        for chip, depth in ROWS:
            title = f"{chip} D = {depth}"
            if options.only not in title:
                continue
            print(f"{title}, causal, {HEADS} heads of {options.length}")
            print(
                f"  {'':34} {'regs':>5} {'spills':>6} {'scratch':>8} {'ratio':>6} {'est. us':>9} {'est. busy':>10} {'est. loop':>10}"
            )
            results: list[Result] = []
            for name, params in OURS:
                if params and chip != "gfx942":
                    continue
                shown = name + "".join(f" {k}" for k in params)
                try:
                    kernel = Ours(name, params, chip, depth)
                    results.append(examine(shown, kernel, kernel.code, depth, options.length))
                except CompileError as error:
                    results.append(Result(shown, error=error.diagnostics[0].message))
                print(line(results[-1]), flush=True)
                bad |= bool(results[-1].error or results[-1].spills or results[-1].scratch_bytes)
            if compiler is not None:
                peer = triton(compiler, chip, depth, options.length)
                print(line(peer))
                best = min((r for r in results if not r.error), key=lambda r: r.microseconds, default=None)
                if best is not None and not peer.error:
                    print(
                        f"  ratio of the best to Triton: vector work {best.ratio / peer.ratio:.2f}, estimated time "
                        f"{best.microseconds / peer.microseconds:.2f}, estimated loop efficiency {best.loop / peer.loop:.2f}"
                    )
                results.append(peer)
            collected.append({"row": title, "results": [asdict(r) for r in results]})
        if compiler is not None:
            compiler.close()
    if options.json:
        Path(options.json).write_text(json.dumps(collected, indent=1) + "\n", "utf-8")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
