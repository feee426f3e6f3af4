"""Estimated time of products with few tiles and a long sum: whole, and with k cut into parts.

    python benchmarks/split_k.py [--json FILE] [--only TEXT]

C = A · Bᵀ in bf16 with the library's `gemm` and `gemm_split_k`, square C of 256, 512 and 1024 rows, K up to 16384, tiles of 64 x 64 x 64 and 128 x
128 x 64, both chips. For each: the plain product, the parts that the rule (`tileir/passes/grid_rules.py`, `split_k`) takes, half and
twice as many. Estimated by the timing model (docs/timing.md) for the kernel alone: `gemm_split_k` needs a cleared C, which is not counted,
and leaves C in f32. Nothing is measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tileir import kernels
from tileir.frontend import parse
from tileir.lowering.amdgpu.compile import Compiled, compile_kernel
from tileir.passes.grid_rules import Chip, split_k
from tileir.simulator import Simulator, TimeOptions, estimate
from tileir.target import get

DEPTH = 64
MOST_PER_CU = 2


@dataclass(frozen=True)
class Case:
    chip: str
    tile: int
    size: int
    k: int

    def __str__(self) -> str:
        return f"{self.chip}, {self.size} x {self.size} x {self.k}, tiles of {self.tile}"

    @property
    def tiles(self) -> int:
        return (-(-self.size // self.tile)) ** 2

    @property
    def steps(self) -> int:
        return -(-self.k // DEPTH)


CASES = [
    Case(chip, tile, size, k)
    for chip in ("gfx942", "gfx950")
    for tile in (64, 128)
    for size in (256, 512, 1024)
    for k in (1024, 4096, 16384)
]


@cache
def compiled(chip: str, tile: int, parts: int) -> Compiled:
    name = "gemm" if parts == 1 else "gemm_split_k"
    values = {"BM": tile, "BN": tile, "BK": DEPTH, **({"S": parts} if parts > 1 else {})}
    return compile_kernel(parse(kernels.source(name), f"{name}.tile", values), "", chip)


def per_cu(case: Case) -> int:
    """Workgroups of the kernel on a CU, by LDS."""
    lds = compiled(case.chip, case.tile, 2).stats["lds_bytes"]
    assert isinstance(lds, int)
    return max(1, min(MOST_PER_CU, get(case.chip).lds_bytes // lds))


def rule(case: Case) -> int:
    """Parts that the rule takes."""
    return split_k(Chip.of(get(case.chip)), case.tiles, case.steps, per_cu(case))


def microseconds(case: Case, parts: int) -> float:
    """Estimated, of the kernel alone."""
    code = compiled(case.chip, case.tile, parts)
    simulator = Simulator(case.chip)
    module = simulator.load(code.hsaco)
    name = "gemm" if parts == 1 else "gemm_split_k"
    m = n = case.size
    buffers = [simulator.memory.allocate(size) for size in (m * case.k * 2, n * case.k * 2, m * n * 4)]
    named = dict(zip("ABC", buffers, strict=True)) | {
        "M": m,
        "N": n,
        "K": case.k,
        "LDA": case.k,
        "LDB": case.k,
        "LDC": n,
    }
    metadata = module.code.kernel(name).metadata
    assert metadata
    values = [named[a.name] for a in metadata.args if not a.hidden]
    across = -(-case.size // case.tile)
    timing = estimate(module, name, (across, across, parts), code.block, values, options=TimeOptions(sample_only=True))
    return timing.seconds * 1e6


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose description contains the text")
    args = parser.parse_args(argv)
    found: dict[str, dict[int, float]] = {}
    print("| product | workgroups whole | whole, µs | parts by rule | µs | half as many, µs | twice as many, µs |")
    print("|---|---|---|---|---|---|---|")
    for case in CASES:
        if args.only not in str(case):
            continue
        parts = rule(case)
        times = {1: microseconds(case, 1)}
        for count in (parts // 2, parts, 2 * parts):
            if count > 1 and 2 * count <= case.steps:
                times[count] = microseconds(case, count)
        cells = [f"{times[count]:.1f}" if count in times else "" for count in (1, parts, parts // 2, 2 * parts)]
        print(f"| {case} | {case.tiles} | {cells[0]} | {parts} | {' | '.join(cells[1:])} |", flush=True)
        found[str(case)] = times
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
