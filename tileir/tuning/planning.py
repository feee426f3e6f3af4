"""How a kernel should run for given sizes, without compiling anything: its parameters, its schedule, and whether its sum is split.

By the quick model alone (`model`). First the parameters are chosen as `choose` does; for the best of them schedules are compared that state waves,
stages, or the plain pattern. Where the grid of the best leaves compute units idle, the kernel is also split into parts of its sum and a kernel
that adds these up (`tileir.passes.split_sum`), if it can be; both are priced, with the pause between two kernels of a stream.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from tileir.ir.core import Kernel, Module
from tileir.ir.diagnostics import CompileError
from tileir.passes.manager import run_pipeline
from tileir.passes.split_sum import SplitSum, split_sum
from tileir.records import dataclass
from tileir.tuning.model import Estimate
from tileir.tuning.schedules import Directives, handles, schedule_text
from tileir.tuning.search import SETTLED, WORTHWHILE, Candidate, Task
from tileir.tuning.space import Given, is_power_of_two, wave_grids
from tileir.tuning.work import work_of

SCHEDULED = 3
"""Bindings of the parameters for which schedules are compared."""
MOST_PARTS = 64
LEAST_TRIPS = 2
"""Trips of the loop that a part has at least: the first fills the stages."""
SETTLED_SPLIT = 6
"""Split kernels for which the passes are asked how many waves they take."""
SCHEDULE = "chosen"


@dataclass(frozen=True)
class Plan:
    """params: those that differ from the text's. directives, schedule: what a schedule says, and its text, "" if all is left to the compiler.
    parts: of the sum, 1 for the whole kernel. seconds: estimated by the quick model; default_seconds: of the text as it is."""

    params: dict[str, int]
    directives: Directives
    schedule: str
    parts: int
    seconds: float
    default_seconds: float

    def __str__(self) -> str:
        said = [f"{n} = {v}" for n, v in self.params.items()]
        said += [str(self.directives)] if self.directives else []
        said += [f"sum in {self.parts} parts"] if self.parts > 1 else []
        return ", ".join(said) or "as it is"


def plan(
    source: str | Path,
    target: str,
    shape: Mapping[str, int],
    *,
    kernel: str = "",
    params: Given | None = None,
    split: bool = True,
    filename: str = "<text>",
) -> Plan:
    """The plan for these sizes; `split`: whether the sum may be split. Raises CompileError like `choose`."""
    task = Task.of(source, filename, target, shape, kernel, params or {})
    defaults = task.space.defaults()
    own = task.settled(Candidate(defaults, Directives(), Estimate(0.0, "", 0, 0)))
    default_clocks = own.estimate.clocks if own is not None else math.inf
    best = own
    for c in _whole(task):
        if best is None or c.estimate.clocks < WORTHWHILE * best.estimate.clocks:
            best = c
    clock = task.target.clock_hz
    values, directives, parts = defaults, Directives(), 1
    clocks = default_clocks
    if best is not None:
        values, directives, clocks = best.values, best.directives, best.estimate.clocks
    if split and best is not None and task.work(values).workgroups < task.target.num_cus:
        found = _split(task, WORTHWHILE * clocks)
        if found is not None:
            values, parts, clocks = found
            directives = Directives()
    named = task.space.named(values)
    changed = {n: v for (n, v), d in zip(named.items(), defaults, strict=True) if v != d}
    block = ""
    if directives:
        bound = task.space.bound(values)
        block = schedule_text(SCHEDULE, bound, task.target.name, "", directives, handles(bound))
    return Plan(changed, directives, block, parts, clocks / clock, default_clocks / clock)


# -- whole kernels -------------------------------------------------------------------------------------------------------


def _whole(task: Task) -> Iterator[Candidate]:
    """The best bindings, and the best schedules of the very best, in the order in which they should be looked at: what says least first."""
    settled = map(task.settled, task.rank_bindings(any_waves=True)[:SETTLED])
    ranked = sorted((c for c in settled if c is not None), key=lambda c: c.estimate.clocks)
    yield from ranked[:1]
    scheduled: list[Candidate] = []
    for c in ranked[:SCHEDULED]:
        loops = [p for p in task.work(c.values).phases if p.loop and p.products]
        if not loops or not all(p.only_products for p in loops):
            continue
        for directives in _directives(task.space.bound(c.values)):
            e = task.estimate(c.values, directives)
            if e is not None and not e.why_not:
                scheduled.append(Candidate(c.values, directives, e))
    yield from sorted(scheduled, key=lambda c: c.rank)[:1]


def _directives(kernel: Kernel) -> Iterator[Directives]:
    """Schedules of which the model knows enough to state them untried."""
    names = handles(kernel)
    stated = {a for op in kernel.walk() for a in ("depth", "pattern", "stage") if op.attrs.get(a)}
    if stated or not names.staged:
        return
    for waves in (None, *wave_grids(kernel)):
        for depth, pattern in ((None, ""), (2, ""), (3, ""), (4, ""), (None, "plain")):
            if waves or depth or pattern:
                yield Directives(waves, None, depth, "", pattern)


# -- split kernels -------------------------------------------------------------------------------------------------------


def _split(task: Task, limit: float) -> tuple[tuple[int, ...], int, float] | None:
    """The best binding and number of parts that take fewer clocks than `limit`, with the clocks; None if there are none."""
    gap = float(str(task.target.fact("kernel_gap_ns").value)) * 1e-9 * task.target.clock_hz
    if gap >= limit:
        return None
    ranked: list[tuple[float, tuple[int, ...], int, SplitSum]] = []
    for values in task.space.bindings():
        if not all(is_power_of_two(v) for v in values):
            continue
        try:
            whole = task.work(values)
        except CompileError:
            continue
        trips = max((p.trips for p in whole.phases if p.loop and p.products), default=0.0)
        counts = [n for n in _powers(MOST_PARTS) if n * LEAST_TRIPS <= trips]
        # About as many workgroups as run at a time: fewer leave the chip idle, and more have more to add.
        counts = [n for n in counts if n * whole.workgroups <= 2 * task.target.num_cus]
        made = split_sum(task.space.bound(values)) if counts else None
        if made is None:
            continue
        for count in counts[-2:]:
            clocks = _clocks(task, made, whole.grid, count, Directives())
            if clocks is not None and clocks + gap < limit:
                ranked.append((clocks + gap, values, count, made))
    ranked.sort(key=lambda x: x[:3])
    best: tuple[tuple[int, ...], int, float] | None = None
    for _, values, count, made in ranked[:SETTLED_SPLIT]:
        directives = _settled(task, made.parts)
        clocks = _clocks(task, made, task.work(values).grid, count, directives) if directives is not None else None
        if clocks is not None and clocks + gap < (best[2] if best else limit):
            best = values, count, clocks + gap
    return best


def _powers(most: int) -> Iterator[int]:
    n = 2
    while n <= most:
        yield n
        n *= 2


def _clocks(task: Task, made: SplitSum, grid: tuple[int, ...], count: int, choice: Directives) -> float | None:
    """Clocks of both kernels."""
    sizes = {**task.shape, **made.symbols(count, grid)}
    total = 0.0
    for kernel, directives in ((made.parts, choice), (made.sum, Directives())):
        symbols = {**dict.fromkeys(kernel.symbols(), 1), **sizes}
        e = task.model.estimate(work_of(kernel, symbols), directives)
        if e.why_not:
            return None
        total += e.clocks
    return total


def _settled(task: Task, kernel: Kernel) -> Directives | None:
    """What the passes choose for a kernel; None if they reject it."""
    try:
        made = run_pipeline(Module([kernel]), kernel.name, task.target, stop_after="assign-layouts").kernel
    except CompileError:
        return None
    for op in made.walk():
        grid, instr = op.attrs.get("waves"), op.attrs.get("instr")
        if op.name == "mma" and isinstance(grid, tuple) and isinstance(instr, tuple):
            return replace(Directives(), waves=(grid[0], grid[1]), instr=(instr[0], instr[1], instr[2]))
    return Directives()
