"""Registers predicted from the emitted text against those of the code: the library of kernels, and random programs.

    python benchmarks/register_prediction.py [--programs 100] [--only gemm] [--json FILE] [--table docs/register-prediction.md]

Every kernel of the library is compiled with several parameters for both chips, then random programs of `tileir.fuzz`. Of each code
object the metadata is compared with the prediction for the text that it was made of (`tileir.lowering.amdgpu.registers`):
registers of the vector file, of the accumulation file, scalar registers. Kernels that are rejected are left out and counted. The
bar: in the median within 4 registers, never less than the code takes by more than 8.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tileir import kernels
from tileir.frontend import parse
from tileir.fuzz.campaign import program
from tileir.ir.core import Module
from tileir.ir.diagnostics import CompileError
from tileir.lowering.amdgpu.compile import Options, compile_kernel
from tileir.lowering.amdgpu.emit.kernel import emit_module
from tileir.lowering.amdgpu.registers.predict import predict
from tileir.target import get

CHIPS = ("gfx942", "gfx950")
Params = dict[str, int | float | bool | str]
LIBRARY: tuple[tuple[str, str, tuple[Params, ...]], ...] = (
    ("vector_add", "", ({}, {"BN": 512}, {"T": "bf16", "BN": 8192})),
    ("softmax", "", ({}, {"BN": 2048}, {"BM": 1, "BN": 256, "T": "bf16"})),
    ("transpose", "", ({}, {"BM": 128, "BN": 32}, {"T": "bf16"})),
    ("gemm", "", ({}, {"BM": 256, "BN": 256}, {"BM": 256}, {"BM": 64, "BN": 64}, {"BM": 64, "BK": 32, "T": "f16"}, {"BM": 32, "BN": 32, "BK": 128})),
    ("gemm_batched", "", ({}, {"BM": 128, "BN": 128})),
    ("gemm_epilogue", "", ({}, {"ACT": 2, "BETA": False})),
    ("gemm_forms", "gemm_nt", ({}, {"BM": 256})),
    ("gemm_forms", "gemm_nn", ({}, {"BM": 256})),
    ("gemm_forms", "gemm_tt", ({}, {"BM": 64, "BN": 64})),
    ("gemm_forms", "gemm_tn", ({}, {"BM": 64})),
    ("gemm_fp8", "gemm_fp8_rows", ({}, {"BM": 64})),
    ("gemm_fp8", "gemm_fp8_blocks", ({},)),
    ("gemm_grouped", "", ({}, {"BN": 64})),
    ("gemm_int8", "", ({}, {"BM": 64, "BN": 64})),
    ("gemm_mx", "", ({}, {"BM": 64, "BN": 64})),
    ("gemm_split_k", "", ({}, {"S": 2, "BM": 64})),
    ("attention", "", ({}, {"CAUSAL": True}, {"D": 64}, {"BM": 128})),
    ("attention_lazy", "", ({}, {"D": 64})),
    ("attention_paged", "", ({}, {"D": 64})),
    ("cross_entropy", "", ({}, {"BN": 2048})),
    ("cumulative_sum", "", ({}, {"BM": 2, "BN": 128})),
    ("layer_norm", "", ({"D": 1024},)),
    ("rms_norm", "", ({}, {"D": 1024})),
    ("rotary", "", ({}, {"INTERLEAVED": True})),
)  # fmt: skip
FILES = ("vector", "accumulation", "scalar")
NEAR, BELOW = 4, 8
"""The bar: registers that the median may be away, and that a prediction may be below."""


@dataclass(frozen=True)
class Row:
    """A kernel: what was predicted and what the metadata says, of the three files."""

    group: str
    name: str
    chip: str
    predicted: tuple[int, int, int]
    actual: tuple[int, int, int]

    @property
    def errors(self) -> tuple[int, ...]:
        """Predicted less actual."""
        return tuple(p - a for p, a in zip(self.predicted, self.actual, strict=True))


def measure(group: str, name: str, module: Module, kernel: str, chip: str) -> Row | None:
    """The row of a kernel, None if it is rejected."""
    try:
        compiled = compile_kernel(module, kernel, chip, Options(allow_spills=True))
    except CompileError:
        return None
    final, stats = compiled.final, compiled.stats
    assert final is not None
    text = emit_module(final, get(chip), sparing=bool(stats["sparing"]), pinned=bool(stats["pinned"]))
    found = predict(text, get(chip))
    vgprs, agprs, sgprs = (int(str(stats[k])) for k in ("vgprs", "agprs", "sgprs"))
    return Row(group, name, chip, (found.vector, found.accumulation, found.scalar), (vgprs - agprs, agprs, sgprs))


def library(only: str) -> Iterator[Row | None]:
    for file, kernel, sets in LIBRARY:
        if only not in (kernel or file):
            continue
        for params in sets:
            for chip in CHIPS:
                formats: Params = {"T": "f8E4M3FNUZ"} if file == "gemm_fp8" and chip == "gfx942" else {}
                words = " ".join(f"{k}={v}" for k, v in params.items())
                module = parse(kernels.source(file), f"{file}.tile", {**params, **formats})
                yield measure("library", f"{kernel or file} {words}".strip(), module, kernel, chip)


def random_programs(count: int) -> Iterator[Row | None]:
    for seed in range(count):
        kind, chip = ("general", "product")[seed % 2], CHIPS[seed // 2 % 2]
        kernel, _ = program(kind, seed, CHIPS)
        yield measure("random", f"{kind} {seed}", Module([kernel]), "", chip)


def summary(rows: Sequence[Row]) -> list[tuple[str, float, int, int, int]]:
    """Of each file: median distance, the most below and above, how many are below by more than the bar."""
    found: list[tuple[str, float, int, int, int]] = []
    for i, file in enumerate(FILES):
        errors = [r.errors[i] for r in rows]
        far = sum(e < -BELOW for e in errors)
        found.append((file, statistics.median(map(abs, errors)), min(errors), max(errors), far))
    return found


def table(rows: Sequence[Row]) -> str:
    """The page with all figures."""
    command = "python benchmarks/register_prediction.py --table docs/register-prediction.md"
    lines = ["# Registers, predicted and taken", "", f"Written by `{command}`; [registers.md](registers.md) says how."]
    for group in ("library", "random"):
        own = [r for r in rows if r.group == group]
        if not own:
            continue
        words = "The library of kernels" if group == "library" else "Random programs"
        head = f"| file | median distance | most below | most above | below by more than {BELOW} |"
        lines += ["", f"## {words}: {len(own)}", "", head, "|---|---|---|---|---|"]
        lines += [f"| {f} | {m:g} | {low:+} | {high:+} | {far} |" for f, m, low, high, far in summary(own)]
        lines += ["", "| kernel | chip | vector | | accumulation | | scalar | |", "|---|---|---|---|---|---|---|---|"]
        for r in own:
            cells = [f"{p} / {a} | {e:+}" for p, a, e in zip(r.predicted, r.actual, r.errors, strict=True)]
            lines.append(f"| {r.name} | {r.chip} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(description="Predicted registers against those of the code.")
    p.add_argument("--programs", type=int, default=100, metavar="N", help="random programs (default 100)")
    p.add_argument("--only", default="", metavar="WORD", help="kernels of the library whose name has it")
    p.add_argument("--json", type=Path, metavar="FILE", help="write the rows")
    p.add_argument("--table", type=Path, metavar="FILE", help="write the page")
    args = p.parse_args(argv)
    rows: list[Row] = []
    rejected = 0
    jobs: tuple[Iterable[Row | None], ...] = (library(args.only), random_programs(args.programs))
    started = time.monotonic()
    for job in jobs:
        for row in job:
            if row is None:
                rejected += 1
                continue
            rows.append(row)
            cells = "  ".join(f"{p:4} / {a:4} {e:+4}" for p, a, e in zip(row.predicted, row.actual, row.errors, strict=True))  # fmt: skip
            print(f"{row.name:40} {row.chip}  {cells}", flush=True)
    for group in ("library", "random"):
        own = [r for r in rows if r.group == group]
        if own:
            print(f"{group}, {len(own)} kernels:")
            for file, median, low, high, far in summary(own):
                print(
                    f"  {file:12}: median {median:g} away, from {low:+} to {high:+}; {far} below by more than {BELOW}"
                )
    print(f"{rejected} rejected, {time.monotonic() - started:.0f} s")
    if args.json:
        args.json.write_text(json.dumps([asdict(r) for r in rows], indent=1) + "\n", encoding="utf-8")
    if args.table:
        args.table.write_text(table(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
