"""Attention backward: both forms of TileIR against both of Triton, in one run.

    python benchmarks/attention_backward.py --triton-python /path/to/venv/bin/python [--json FILE] [--length N] [--only TEXT]

Each row is one chip, head size, and kind of mask; bf16, 16 heads, as many keys as queries. Ours are the kernels of `attention_backward.tile`
as the file states them, Triton's those of `backward_kernels.py`, for lengths that are multiples of its tiles only, each in several tiles and
options, of which the one with the best estimate counts. Every code object is run on a small problem and compared with NumPy. Then it is told

* vector registers (of them in the accumulation file), spilled registers, bytes of scratch: read from the code object, exact;
* of its hot loop: moves (accumulator moves, and copies from vector register to vector register), and the ratio (4 · vector + 8 · transcendental
  instructions) / clocks of matrix instructions, as `tileir-inspect` counts them;
* clocks and time of the launch, and the part of the loop with most matrix instructions in which they run: *estimated* by the timing model
  (docs/timing.md).

The deterministic form is delta, dkv and dq one after the other; the fused one delta and fused. What fills dQ with zeros before the latter, and
converts it from f32, is in neither.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from attention_loops import command_line
from timing_validation import Compiler, Kernel

from tileir import kernels
from tileir.frontend import parse
from tileir.ir.diagnostics import CompileError
from tileir.lowering.amdgpu.compile import compile_kernel
from tileir.simulator import SimulatorError
from tileir.simulator.inspect import inspect
from tileir.target import get

ROWS = tuple((chip, depth, causal) for chip in ("gfx950", "gfx942") for depth in (128, 64) for causal in (False, True))
STEPS = ("delta", "dkv", "dq", "fused")
FORMS = {"deterministic": ("delta", "dkv", "dq"), "fused": ("delta", "fused")}
HEADS, CHECKED = 16, 512
TILES: dict[str, tuple[tuple[int, int, int], ...]] = {  # queries, keys, waves
    "delta": ((64, 0, 4),),
    "dkv": ((32, 64, 4), (32, 128, 4), (64, 128, 4), (64, 128, 8)),
    "dq": ((64, 32, 4), (128, 32, 4), (128, 64, 4), (128, 64, 8)),
    "fused": ((32, 64, 4), (32, 128, 4), (64, 128, 4), (64, 128, 8)),
}
PEERS = {
    "delta": ("delta", {}),
    "dkv": ("keys", {"ATOMIC": False}),
    "dq": ("queries", {}),
    "fused": ("keys", {"ATOMIC": True}),
}
OPERANDS = ("q", "k", "v", "g", "o")
GRADIENTS = {"delta": ("nd",), "dkv": ("dk", "dv"), "dq": ("dq",), "fused": ("dq", "dk", "dv")}


@dataclass
class Result:
    """What is known of one code object; its tile and options in `choice`."""

    step: str
    choice: str = ""
    registers: int = 0
    accumulation: int = 0
    spills: int = 0
    scratch_bytes: int = 0
    moves: int = 0
    ratio: float = 0.0
    clocks: float = 0.0
    microseconds: float = 0.0
    loop: float = 0.0
    error: str = ""


class Launch:
    """A code object, and how a launch of it is made. Buffers by name, of [heads, length, D] for Triton, [length, heads, D] for ours."""

    def __init__(self, step: str, kernel: Kernel, stationary: int, ours: bool) -> None:
        self.step, self.kernel, self.stationary, self.ours = step, kernel, stationary, ours

    def make(
        self, heads: int, length: int, depth: int
    ) -> tuple[tuple[int, int, int], list[Any], dict[str, tuple[Any, Any]]]:
        """Grid, arguments, and (buffer, type of its elements) by name."""
        memory = self.kernel.simulator.memory
        half, wide = ml_dtypes.bfloat16, np.float32
        types = dict.fromkeys((*OPERANDS, "dk", "dv"), half) | {"nl": wide, "nd": wide, "lse": wide}
        types["dq"] = wide if self.step == "fused" else half
        made: dict[str, tuple[Any, Any]] = {}
        for name, dtype in types.items():
            elements = heads * length * (1 if name in ("nl", "nd", "lse") else depth)
            buffer = memory.allocate(elements * np.dtype(dtype).itemsize)
            buffer.write(np.zeros(elements, dtype))
            made[name] = buffer, dtype
        tiles = -(-length // self.stationary)
        named: dict[str, Any] = {n: b for n, (b, _) in made.items()}
        named |= {"scale": np.float32(depth**-0.5), "length": length}
        if self.ours:
            named |= {"Q": named["q"], "K": named["k"], "V": named["v"], "DO": named["g"], "O": named["o"]}
            named |= {n.upper(): named[n] for n in ("nl", "nd", "lse", "dq", "dk", "dv")}
            named |= {"B": 1, "NQ": length, "NK": length, "H": heads, "G": heads}
            entry = self.kernel.module.code.kernel(self.step)
            assert entry.metadata
            return (heads, tiles, 1), [named[a.name] for a in entry.metadata.args if not a.hidden], made
        names = {"delta": ("o", "g", "nd"), "dq": ("q", "k", "v", "g", "nl", "nd", "dq")}.get(
            self.step, ("q", "k", "v", "g", "nl", "nd", "dq", "dk", "dv")
        )
        values = [*(named[n] for n in names), length, *(() if self.step == "delta" else (named["scale"],))]
        return (tiles, heads, 1), self.kernel.arguments(*values), made


def ours(step: str, chip: str, depth: int, causal: bool) -> tuple[Launch, bytes]:
    """One kernel of the library. CompileError if it is rejected."""
    params: dict[str, Any] = {"D": depth} | ({} if step == "delta" else {"CAUSAL": causal})
    module = parse(kernels.source("attention_backward"), "attention_backward.tile", params)
    compiled = compile_kernel(module, step, chip)
    assert compiled.kernel is not None and compiled.block is not None
    tile = compiled.kernel.params["BM" if step in ("delta", "dq") else "BN"]
    assert isinstance(tile, int)
    answer = {"kernel": step, "lds": 0, "threads": compiled.block[0]}
    return Launch(step, Kernel({"chip": chip}, compiled.hsaco, answer), tile, True), compiled.hsaco


def expected(depth: int, causal: bool) -> dict[str, np.ndarray[Any, Any]]:
    """Operands, and gradients in float64, of two heads: all [heads, length, D] or [heads, length]."""
    rng = np.random.default_rng(depth)
    scale = depth**-0.5
    found: dict[str, np.ndarray[Any, Any]] = {
        n: rng.standard_normal((2, CHECKED, depth)).astype(ml_dtypes.bfloat16) for n in ("q", "k", "v", "g")
    }
    q, k, v, g = (found[n].astype(np.float64) for n in ("q", "k", "v", "g"))
    scores = scale * q @ k.transpose(0, 2, 1)
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
    top = scores.max(2, keepdims=True)
    lse = np.log(np.exp(scores - top).sum(2, keepdims=True)) + top
    p = np.exp(scores - lse)
    found["o"] = (p @ v).astype(ml_dtypes.bfloat16)
    found["lse"], found["nl"] = lse[..., 0], -lse[..., 0] * np.log2(np.e)
    found["nd"] = -(found["o"].astype(np.float64) * g).sum(2)
    ds = p * (g @ v.transpose(0, 2, 1) + found["nd"][..., None])
    return found | {
        "dq": scale * ds @ k,
        "dk": scale * ds.transpose(0, 2, 1) @ q,
        "dv": p.transpose(0, 2, 1) @ g,
    }


def check(launch: Launch, depth: int, values: Mapping[str, np.ndarray[Any, Any]]) -> str:
    """Runs two heads; what is wrong with the result, or nothing."""
    grid, arguments, made = launch.make(2, CHECKED, depth)
    given = (*OPERANDS, "lse", *(("nl", "nd") if launch.step != "delta" else ()))
    for name in given:
        buffer, dtype = made[name]
        value = values[name].astype(dtype)
        buffer.write(np.ascontiguousarray(value.transpose(1, 0, 2) if launch.ours and value.ndim == 3 else value))
    launch.kernel.launch(grid, arguments)
    for name in GRADIENTS[launch.step]:
        buffer, dtype = made[name]
        got, want = np.asarray(buffer.read(dtype)).astype(np.float64), values[name]
        if launch.ours and want.ndim == 3:
            got = got.reshape(CHECKED, 2, depth).transpose(1, 0, 2)
        error = float(np.abs(got.reshape(want.shape) - want).max() / np.abs(want).max())
        if not error < 0.01:
            return f"wrong {name}: relative error {error:.3g}"
    return ""


def examine(
    launch: Launch, code: bytes, depth: int, length: int, values: Mapping[str, np.ndarray[Any, Any]], choice: str = ""
) -> Result:
    """Everything about one code object."""
    result = Result(launch.step, choice)
    try:
        report = inspect(code, launch.kernel.answer["kernel"]).kernel
        result.registers, result.accumulation = report.registers.vector_allocated, report.registers.agprs_used
        result.spills, result.scratch_bytes = report.spills.vgprs_stated or 0, report.spills.scratch_bytes
        if report.hot_loop is not None and report.hot_loop.counts.valu_ratio is not None:
            counts = report.hot_loop.counts
            result.ratio = counts.valu_ratio or 0.0
            result.moves = counts.accumulator_moves + counts.vector_copies
        result.error = check(launch, depth, values)
        if result.error:
            return result
        grid, arguments, _ = launch.make(HEADS, length, depth)
        timing = launch.kernel.estimate(grid, arguments)
        result.clocks, result.microseconds = timing.clocks, 1e6 * timing.seconds
        row = max((x.row for x in timing.loops), key=lambda r: r.mfma_clocks, default=None)
        if row is not None:
            together = min(timing.occupancy.workgroups_per_cu, timing.cu.simulated)
            waves = together * launch.kernel.block[0] / 64 / get(launch.kernel.rebuild["chip"]).simds_per_cu
            result.loop = waves * row.mfma_clocks / row.clocks
    except SimulatorError as error:
        result.error = str(error).splitlines()[0]
    return result


def triton(
    step: str, compiler: Compiler, chip: str, depth: int, causal: bool, length: int, values: Mapping[str, Any]
) -> Result:
    """The candidate with the best estimate."""
    name, more = PEERS[step]
    types = {n: "*T" for n in (*OPERANDS, "dk", "dv")} | {n: "*fp32" for n in ("nl", "nd")}
    types |= {"dq": "*fp32" if step == "fused" else "*T", "length": "i32", "scale": "fp32"}
    found: list[Result] = []
    for queries, keys, warps in TILES[step]:
        for options in ({"num_stages": 1}, {"num_stages": 2}, {"num_stages": 2, "waves_per_eu": 2}):
            constants: dict[str, Any] = {"ROWS": queries, "D": depth}
            if step != "delta":
                constants |= {"COLUMNS": keys, "CAUSAL": causal} | more
            job = {"module": "backward_kernels", "kernel": name, "chip": chip, "dtype": "bf16", "types": types}
            job |= {"constants": constants, "options": {"num_warps": warps, **options}, "length": length}
            try:
                code, answer = compiler.compile(job)
                stationary = queries if step in ("delta", "dq") else keys
                launch = Launch(step, Kernel(job, code, answer), stationary, False)
                choice = f"{queries}x{keys} waves {warps} " + " ".join(f"{k} {v}" for k, v in options.items())
                found.append(examine(launch, code, depth, length, values, choice))
            except (RuntimeError, SimulatorError):
                continue  # not every option suits every chip
    right = [r for r in found if not r.error]
    if right:
        return min(right, key=lambda r: r.microseconds)
    return Result(step, error=found[0].error if found else "no candidate compiles")


def line(who: str, r: Result) -> str:
    name = f"{who} {r.step}"
    if r.error:
        return f"  {name:14} {r.error}"
    return (
        f"  {name:14} {r.registers:5} {r.accumulation:5} {r.spills:6} {r.scratch_bytes:8} {r.moves:5} {r.ratio:6.3f} "
        f"{r.clocks / 1000:9.1f} {r.microseconds:9.1f} {100 * r.loop:8.1f} %  {r.choice}"
    )


def total(results: Mapping[str, Result], steps: Sequence[str]) -> float | None:
    """Estimated clocks of the launches, None if one is wrong."""
    return None if any(results[s].error for s in steps) else sum(results[s].clocks for s in steps)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; exit status 1 where ours is wrong or spills."""
    options = command_line(__doc__ or "", 128, arguments)
    collected: list[dict[str, Any]] = []
    bad = False
    with tempfile.TemporaryDirectory(prefix="attention-") as folder:
        compiler = Compiler(options.triton_python, Path(folder)) if options.triton_python else None
        for chip, depth, causal in ROWS:
            title = f"{chip} D = {depth} {'causal' if causal else 'full'}"
            if options.only not in title:
                continue
            print(f"{title}, {HEADS} heads of {options.length}")
            print(
                f"  {'':14} {'regs':>5} {'acc.':>5} {'spills':>6} {'scratch':>8} {'moves':>5} {'ratio':>6} {'est. kclk':>9} "
                f"{'est. us':>9} {'est. loop':>10}"
            )
            values = expected(depth, causal)
            mine: dict[str, Result] = {}
            theirs: dict[str, Result] = {}
            for step in STEPS:
                try:
                    mine[step] = examine(*ours(step, chip, depth, causal), depth, options.length, values)
                except CompileError as error:
                    mine[step] = Result(step, error=error.diagnostics[0].message)
                r = mine[step]
                print(line("ours", r), flush=True)
                bad |= bool(r.error or r.spills or r.scratch_bytes)
            for step in STEPS if compiler is not None else ():
                assert compiler is not None
                theirs[step] = triton(step, compiler, chip, depth, causal, options.length, values)
                print(line("triton", theirs[step]), flush=True)
            best: dict[str, float] = {}
            for who, results in (("ours", mine), ("triton", theirs)):
                for form, steps in FORMS.items() if results else ():
                    clocks = total(results, steps)
                    if clocks is not None:
                        print(f"  {who} {form}: {clocks / 1000:.1f} thousand clocks estimated")
                        best[who] = min(clocks, best.get(who, clocks))
            if len(best) == 2:
                print(f"  ratio of our better form to Triton's: estimated time {best['ours'] / best['triton']:.2f}")
            for step in STEPS[1:] if theirs else ():
                a, b = mine[step], theirs[step]
                if not a.error and not b.error:
                    print(
                        f"  ratio of {step} to Triton's: vector work {a.ratio / b.ratio:.2f}, estimated time "
                        f"{a.clocks / b.clocks:.2f}, estimated loop efficiency {a.loop / b.loop:.2f}"
                    )
            collected.append(
                {
                    "row": title,
                    "ours": [asdict(r) for r in mine.values()],
                    "triton": [asdict(r) for r in theirs.values()],
                }
            )
        if compiler is not None:
            compiler.close()
    if options.json:
        Path(options.json).write_text(json.dumps(collected, indent=1) + "\n", "utf-8")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
