"""How good the schedule is that the compiler picks when nobody states one: its estimated time over that of the best schedule that can be stated.

For each problem and chip the kernel is compiled as it is, and under schedules. Each schedule states one decision – waves over rows and columns,
pattern, stages, matrix instruction –; then the best of these is taken, and one more decision is stated beside it, until that does not help. With
`--all` every combination is tried instead, which takes hours. All times are estimates of the simulator's model (docs/timing.md).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path

from tileir import kernels
from tileir.records import dataclass
from tileir.target import get
from tileir.tuning.schedules import Directives, handles, schedule_text
from tileir.tuning.space import bind, variants
from tileir.tuning.trials import Order, carry_out

AXES = ({"waves"}, {"pattern", "slices"}, {"depth"}, {"instr"})
Run = Callable[[Directives], float]


@dataclass(frozen=True)
class Case:
    """A kernel of the library, its tile, and a problem: M, N, K."""

    kernel: str
    tile: tuple[int, int, int]
    sizes: tuple[int, int, int]
    file: str = ""
    types: tuple[tuple[str, str], ...] = ()  # element type by chip

    def __str__(self) -> str:
        return f"{self.kernel} {' x '.join(map(str, self.sizes))}, tile {' x '.join(map(str, self.tile))}"

    def params(self, chip: str) -> dict[str, int | str]:
        own: dict[str, int | str] = dict(zip(("BM", "BN", "BK"), self.tile, strict=True))
        elem = dict(self.types).get(chip)
        return own | ({"T": elem} if elem else {})


CASES = (
    Case("gemm", (16, 16, 128), (1, 4096, 4096)),
    Case("gemm", (16, 64, 128), (16, 4096, 4096)),
    Case("gemm", (32, 32, 128), (128, 128, 8192)),
    Case("gemm", (64, 64, 64), (512, 512, 2048)),
    Case("gemm", (32, 128, 64), (64, 4096, 4096)),
    Case("gemm", (128, 128, 64), (2048, 2048, 1024)),
    Case("gemm", (256, 256, 64), (4096, 4096, 1024)),
    Case(
        "gemm_fp8_rows",
        (128, 128, 128),
        (2048, 2048, 2048),
        "gemm_fp8",
        (("gfx942", "f8E4M3FNUZ"), ("gfx950", "f8E4M3FN")),
    ),
)


@dataclass(frozen=True)
class Found:
    """Microseconds: of what the compiler picks, and of the best schedule that was stated."""

    case: Case
    chip: str
    picked: float
    best: float
    schedule: str
    tried: int

    @property
    def ratio(self) -> float:
        return self.picked / self.best


def measure(case: Case, chip: str, everything: bool = False) -> Found:
    """Estimates a problem under its schedules."""
    text, params = kernels.source(case.file or case.kernel), case.params(chip)
    name = f"{case.kernel}.tile"
    kernel = bind(text, name, case.kernel, params)
    shape = ",".join(f"{n}={v}" for n, v in zip("MNK", case.sizes, strict=True))
    names = handles(kernel)
    seen: dict[Directives, float] = {}

    def run(choice: Directives) -> float:
        if choice not in seen:
            block = schedule_text("trial", kernel, chip, "", choice, names) if choice else ""
            order = Order(f"{text}\n{block}", name, case.kernel, chip, shape, params, "trial" if choice else "")
            result = carry_out(order)
            seen[choice] = result.estimated_seconds * 1e6 if result.usable else float("inf")
        return seen[choice]

    picked = run(Directives())
    stated = list(variants(kernel, get(chip)))
    best = min(stated, key=run) if everything else _descend(stated, run)
    return Found(case, chip, picked, run(best), str(best), len(seen))


def _descend(stated: Sequence[Directives], run: Run) -> Directives:
    """Of all schedules that differ in one decision the best, as long as that is better."""
    best, before = Directives(), None
    while best != before:
        before = best
        best = min([best, *_others(stated, best)], key=run)
    return best


def _others(stated: Sequence[Directives], choice: Directives) -> Iterator[Directives]:
    """Schedules that differ in one decision alone."""
    for other in stated:
        changed = {f.name for f in fields(other) if getattr(other, f.name) != getattr(choice, f.name)}
        if any(changed and changed <= axis for axis in AXES):
            yield other


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chips", default="gfx942,gfx950", metavar="LIST")
    parser.add_argument("--only", default="", metavar="TEXT", help="problems whose description contains the text")
    parser.add_argument("--all", action="store_true", help="every combination of decisions")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    args = parser.parse_args(argv)
    done: list[Found] = []
    print("| chip | problem | picked, µs | best stated, µs | ratio | best stated | tried |")
    print("|---|---|---|---|---|---|---|")
    for case in CASES:
        for chip in args.chips.split(","):
            if args.only not in f"{chip} {case}":
                continue
            f = measure(case, chip, args.all)
            print(
                f"| {chip} | {case} | {f.picked:.1f} | {f.best:.1f} | {f.ratio:.3f} | {f.schedule} | {f.tried} |",
                flush=True,
            )
            done.append(f)
    if done:
        worst = max(done, key=lambda f: f.ratio)
        print(f"\nworst: {worst.ratio:.3f} ({worst.chip} {worst.case})")
    if args.json:
        rows = [{"chip": f.chip, "problem": str(f.case), "picked_us": f.picked, "best_us": f.best} for f in done]
        args.json.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
