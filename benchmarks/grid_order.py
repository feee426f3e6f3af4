"""Orders of workgroups: what the caches of the chip make of them, and what the rule of the compiler is worth.

    python benchmarks/grid_order.py [--json FILE] [--markdown FILE] [--only TEXT]

Two parts, both by the cache simulation of the timing model (docs/timing.md) on lines that are generated for products C = A · Bᵀ in bf16:

* the published table (HipKittens, MI355X): hit rates beside ours, and whether the time that the simulated traffic takes puts the
  orders of each size into the published sequence of speeds;
* grids of many forms, in the order that the rule of `tileir/passes/grid_rules.py` chooses and in fixed ones. The figure is the time of the
  traffic beyond the L2: bytes at the rate of the last-level cache, and those beyond that at the rate of the memory besides.

Nothing is measured. One row in 64 of each tile stands for all: its lines go through caches of a 64th of the size.

exit status: 0 when all published sequences are met and the rule is nowhere more than --tolerance behind the best fixed order, else 1
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tileir.passes.grid_rules import Chip, order_rule, seconds
from tileir.passes.order_grid import Numbers, applies, remap, remap_by_rule
from tileir.simulator.timing.cache_sim import FETCH, Geometry, Stream, Traffic, simulate
from tileir.simulator.timing.caches import geometry
from tileir.target import get, timing_model

POINTS = Path(__file__).resolve().parent / "timing_points.json"
PUBLISHED_TILE = (192, 256)
"""Not stated in the table itself: the published chunks 216 and 542 are an eighth of the grids for this tile at 9216 and 14592."""
SAMPLE = 64
ITEM = 2
CLOSE = 0.02
"""Hit rates that are published as closer than this are not put into a sequence."""

HARDWARE, ROWS, RULE = "hardware", "row by row", "rule"
Fixed = tuple[int | None, int | None]
"""Chunk and window of a directive `order xcd`."""


@dataclass(frozen=True)
class Problem:
    """A product of rows x columns workgroups with tiles of `tile` elements and `k` elements of depth, and how many workgroups
    are on a CU at once."""

    chip: str
    rows: int
    columns: int
    k: int
    tile: tuple[int, int] = (256, 256)
    per_cu: int = 1

    def __str__(self) -> str:
        more = f", {self.per_cu} on a CU" if self.per_cu > 1 else ""
        return f"{self.chip}, {self.rows} x {self.columns} of {self.tile[0]} x {self.tile[1]}, k {self.k}{more}"

    @property
    def slots(self) -> int:
        return get(self.chip).cus_per_xcd * self.per_cu

    @property
    def count(self) -> int:
        return self.rows * self.columns


@dataclass(frozen=True)
class Outcome:
    """Of one order. seconds: of the traffic beyond the L2."""

    l2: float
    llc: float
    seconds: float


def places(problem: Problem, order: str | Fixed) -> tuple[Any, Any]:
    """Block row and block column of each workgroup, in the order of dispatch."""
    number, numbers = np.arange(problem.count), Numbers()
    rows, columns = problem.rows, problem.columns
    if order == ROWS:
        return number // columns, number % columns
    rule = order_rule(Chip.of(get(problem.chip)), *problem.tile, problem.per_cu)
    if order == HARDWARE or (order == RULE and not applies(numbers, rows, columns, rule)):
        return number % rows, number // rows
    if order == RULE:
        kept = [
            n * t * problem.k * ITEM * 8 <= rule.kept_bits for n, t in zip((rows, columns), problem.tile, strict=True)
        ]
        return remap_by_rule(numbers, number, rows, columns, rule, rows_kept=kept[0], columns_kept=kept[1])
    chunk, window = order
    assert isinstance(window, int | None) and not isinstance(chunk, str)
    return remap(numbers, number, rows, columns, xcds=rule.xcds, chunk=chunk, window=window)


def _sampled(chip: str) -> Geometry:
    whole = geometry(get(chip), timing_model(chip))
    return replace(
        whole,
        l2_bytes=whole.l2_bytes // SAMPLE,
        llc_bytes=whole.llc_bytes // SAMPLE,
        lockstep=max(1, whole.lockstep // SAMPLE),
    )


def traffic(problem: Problem, order: str | Fixed) -> Traffic:
    """What one row in SAMPLE of each tile causes. k is contiguous in both operands; stores are left out."""
    row, column = places(problem, order)
    sizes = _sampled(problem.chip)
    lines = -(-problem.k * ITEM // sizes.line)
    m, n = (t // SAMPLE for t in problem.tile)
    step = np.arange(lines)[:, None]
    read = np.concatenate([np.arange(m) * lines + step, np.arange(n) * lines + step], axis=1).reshape(-1)
    region = np.tile(np.repeat(np.array([0, 1], np.uint8), (m, n)), lines)
    stream = Stream(read, np.full(len(read), FETCH, np.uint8), region)
    shifts = np.stack([row * m * lines, (1 << 32) + column * n * lines], axis=1)
    target = get(problem.chip)
    return simulate(
        [stream],
        np.zeros(problem.count, np.int64),
        shifts,
        sizes,
        xcds=target.num_xcds,
        slots_per_xcd=problem.slots,
        accesses=1 << 40,
    )


def outcome(problem: Problem, order: str | Fixed) -> Outcome:
    """Hit rates of the L2s and of the last-level cache, and the time of what passes the L2s."""
    t = traffic(problem, order)
    line = SAMPLE * _sampled(problem.chip).line
    chip = Chip.of(get(problem.chip))
    return Outcome(t.l2_hit_rate, t.llc_hit_rate, seconds(chip, (t.reads - t.l2_hits) * line, t.hbm_reads * line))


# The published table


def published() -> list[tuple[dict[str, Any], Outcome]]:
    """Rows of the table and what the simulation gives for them."""
    found: list[tuple[dict[str, Any], Outcome]] = []
    for entry in json.loads(POINTS.read_text("utf-8"))["orders"]:
        m, n = PUBLISHED_TILE
        problem = Problem("gfx950", -(-entry["size"] // m), -(-entry["size"] // n), entry["size"], PUBLISHED_TILE)
        window, chunk = entry["order"] or (None, None)
        found.append((entry, outcome(problem, (chunk, window) if entry["order"] else ROWS)))
    return found


def contradictions(rows: Sequence[tuple[dict[str, Any], Outcome]]) -> list[str]:
    """Pairs of orders of one size that the simulation puts the other way round than the table."""
    found: list[str] = []
    for (a, ours_a), (b, ours_b) in combinations(rows, 2):
        if a["size"] != b["size"]:
            continue
        pair = f"{a['size']}: {name_of(a['order'])} and {name_of(b['order'])}"
        for what in ("l2", "llc"):
            if abs(a[what] - b[what]) > CLOSE and (a[what] < b[what]) != (
                getattr(ours_a, what) < getattr(ours_b, what)
            ):
                found.append(f"{pair} by hits of the {what}")
        if (a["tflops"] < b["tflops"]) != (ours_a.seconds > ours_b.seconds):
            found.append(f"{pair} by time")
    return found


def name_of(order: Sequence[int] | None) -> str:
    """As the table has it: window and chunk."""
    return f"window {order[0]}, chunk {order[1]}" if order else ROWS


# Many grids

GRIDS = [
    *(Problem("gfx950", n, n, k) for n, k in ((16, 4096), (20, 5120), (24, 6144), (36, 9216), (48, 4096), (57, 14592))),
    *(
        Problem("gfx950", m, n, 8192)
        for m, n in ((17, 200), (200, 17), (8, 100), (100, 8), (3, 333), (333, 3), (1, 257))
    ),
    *(Problem("gfx950", m, n, 4096) for m, n in ((31, 37), (13, 59), (64, 40), (9, 129), (25, 11))),
    *(Problem("gfx950", 60, 62, k, (128, 128), 2) for k in (1024, 8192)),
    Problem("gfx950", 40, 90, 6144, (256, 128)),
    *(Problem("gfx942", m, n, 8192) for m, n in ((32, 32), (57, 57), (40, 50), (21, 150), (150, 21))),
    *(Problem("gfx942", m, n, 4096, (128, 128), 2) for m, n in ((64, 80), (37, 101))),
]
FIXED: dict[str, str | Fixed] = {
    HARDWARE: HARDWARE,
    ROWS: ROWS,
    "a run for each chiplet": (None, None),
    "chunk 64, window 8": (64, 8),
    "chunk 32, window 4": (32, 4),
    "chunk 32, window 8": (32, 8),
    "chunk 32, window 16": (32, 16),
    "window 8": (1, 8),
}


def compare(problem: Problem) -> dict[str, Outcome]:
    """All orders of one problem, the rule's first."""
    return {RULE: outcome(problem, RULE), **{name: outcome(problem, order) for name, order in FIXED.items()}}


def behind(found: dict[str, Outcome]) -> tuple[float, str]:
    """Time of the rule over that of the best fixed order, and which that is."""
    best = min(FIXED, key=lambda name: found[name].seconds)
    return found[RULE].seconds / found[best].seconds, best


def _percent(x: float) -> str:
    return f"{100 * x:.0f} %"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables of docs/grid-order.md")
    parser.add_argument("--only", default="", metavar="TEXT", help="grids whose description contains the text")
    parser.add_argument("--tolerance", type=float, default=1.1, help="how far behind the rule may be (%(default)s)")
    args = parser.parse_args(argv)
    rows = published()
    lines = [
        "| size | order | published L2 hits | simulated | published last-level hits | simulated | published TFLOPS | traffic beyond L2, µs |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for entry, ours in rows:
        cells = [entry["size"], name_of(entry["order"]), *map(_percent, (entry["l2"], ours.l2, entry["llc"], ours.llc))]
        lines.append(f"| {' | '.join(map(str, [*cells, entry['tflops'], f'{ours.seconds * 1e6:.0f}']))} |")
    wrong = contradictions(rows)
    lines += ["", *(f"Against the table: {text}." for text in wrong), ""]
    print("\n".join(lines), flush=True)
    table = [
        "| grid | rule, µs | L2 hits | last-level hits | hardware, µs | row by row, µs | best fixed order | µs | rule / best |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(table), flush=True)
    figures: dict[str, Any] = {}
    late: list[str] = []
    for problem in GRIDS:
        if args.only not in str(problem):
            continue
        found = compare(problem)
        ratio, best = behind(found)
        if ratio > args.tolerance:
            late.append(str(problem))
        ours = found[RULE]
        times = [f"{found[name].seconds * 1e6:.1f}" for name in (RULE, HARDWARE, ROWS, best)]
        cells = [problem, times[0], _percent(ours.l2), _percent(ours.llc), *times[1:3], best, times[3], f"{ratio:.3f}"]
        table.append(f"| {' | '.join(map(str, cells))} |")
        print(table[-1], flush=True)
        figures[str(problem)] = {name: vars(o) for name, o in found.items()}
    if args.json:
        pairs = [{**entry, "simulated": vars(ours)} for entry, ours in rows]
        args.json.write_text(json.dumps({"published": pairs, "grids": figures}, indent=1))
    if args.markdown:
        args.markdown.write_text("\n".join([*lines, *table]) + "\n")
    for text in (*wrong, *(f"{name}: the rule is more than {args.tolerance} behind" for name in late)):
        print(f"error: {text}", file=sys.stderr)
    return 1 if wrong or late else 0


if __name__ == "__main__":
    sys.exit(main())
