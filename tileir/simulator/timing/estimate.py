"""From a launch to an estimate of its time: records some workgroups, simulates caches and one compute unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tileir.records import dataclass
from tileir.simulator.faults import SimulatorError, Statistics
from tileir.simulator.inspect.occupancy import occupancy
from tileir.simulator.program import Program
from tileir.simulator.timing import caches
from tileir.simulator.timing.cu import DEFAULT_WINDOW, simulate_cu
from tileir.simulator.timing.recorder import Recorder
from tileir.simulator.timing.records import CuResult, Dim3, Dispatch
from tileir.simulator.timing.result import Timing
from tileir.simulator.timing.rows import summarise
from tileir.simulator.timing.static import static_table
from tileir.target import Target, timing_model
from tileir.target.timing import FILE_NAME

if TYPE_CHECKING:
    from tileir.simulator.launch import Argument, Module

_ROUNDS = 3
"""How often the simulated CU is filled with workgroups, at most; what it gets beyond is extrapolated."""
_CUS = 4
"""CUs that are simulated, at most, where workgroups differ."""
MOST_WORKGROUPS = 1 << 24
"""The plan of the caches keeps about 180 bytes for each workgroup."""
_ALIKE = 1.02
"""Workgroups are alike when the longest executes so many times the instructions of the shortest, at most."""
_RECORDED = 64
"""Workgroups that are recorded for the caches, at most."""
_START = 1024
"""Instructions that are kept of workgroups which are not recorded in full."""
_MOST_STARTS = 1 << 13
"""Workgroups that are begun when not all are executed, to see where they read."""
DEFAULT_PRODUCTS = {"gfx942": "MI300X", "gfx950": "MI355X"}


@dataclass(frozen=True)
class TimeOptions:
    """product: what carries the chip, which decides the bandwidth of its memory; ``""`` is MI300X or MI355X.

    sample_only: executes only the workgroups that are recorded, and begins others, so the results of the kernel are not
    complete and ``Timing.statistics`` counts what was begun. window: clocks for which the result says what each wave does.
    rounds: how often the simulated CU is filled with workgroups. recorded: workgroups that are recorded in full, at most,
    besides those of that CU. cus: CUs that are simulated where workgroups differ in length, at most.
    """

    product: str = ""
    sample_only: bool = False
    window: int = DEFAULT_WINDOW
    rounds: int = _ROUNDS
    recorded: int = _RECORDED
    cus: int = _CUS


def estimate(
    module: Module,
    kernel: str,
    grid: Dim3,
    block: Dim3,
    args: bytes | Sequence[Argument] = (),
    *,
    options: TimeOptions | None = None,
    lds_dynamic: int = 0,
    max_instructions: int | None = None,
    strict_barriers: bool = True,
    stack: int | None = None,
) -> Timing:
    """Runs a kernel and estimates how long it would take on the hardware.

    The kernel is executed as by :meth:`Module.launch`, with the same arguments and the same results, unless
    ``options.sample_only``. Raises :class:`SimulatorFault` at the first fault, :class:`SimulatorError` for an impossible
    launch or an unknown product.
    """
    from tileir.simulator.launch import DEFAULT_MAX_INSTRUCTIONS, DEFAULT_STACK, _Launch  # pyright: ignore

    options = options or TimeOptions()
    simulator = module.simulator
    target, model = simulator.target, timing_model(simulator.chip)
    product = _product(options, target)
    program = module.program(kernel)
    launch = _Launch(
        simulator, module, program, grid, block, args, lds_dynamic, DEFAULT_STACK if stack is None else stack
    )
    fits = occupancy(program.kernel, target, lds_dynamic, launch.items)
    if not fits.workgroups_per_cu:
        raise SimulatorError("not even one workgroup fits on a compute unit, so there is no time to estimate")
    dispatch = Dispatch(grid, launch.wave_count, fits.workgroups_per_cu, target.num_xcds, target.cus_per_xcd)
    if dispatch.count > MOST_WORKGROUPS:
        raise SimulatorError(
            f"grid {grid} has {dispatch.count} workgroups; an estimate takes up to {MOST_WORKGROUPS}, which is enough to see "
            "how long a larger grid takes"
        )
    cus = _chosen_cus(dispatch, options)
    wanted = sorted({*caches.sample(dispatch, target, options.recorded), *(n for numbers in cus for n in numbers)})
    begun = sorted({*wanted, *range(min(dispatch.count, _MOST_STARTS))})
    recorder = Recorder(launch, wanted, _START, leave=options.sample_only)
    try:
        launch.watch(cast(Any, recorder))
        launch.prepare(DEFAULT_MAX_INSTRUCTIONS if max_instructions is None else max_instructions, strict_barriers)
        regions = [(a.address, a.address + a.size) for a in simulator.memory.allocations]
        statistics = launch.run([dispatch.workgroup(n) for n in begun] if options.sample_only else None)
    finally:
        launch.close()
    service = caches.memory_service(
        recorder.traces, dispatch, target, model, product, prologues=recorder.starts, regions=regions
    )
    table = static_table(program, target, model)

    def simulate(numbers: Sequence[int]) -> tuple[float, CuResult, str]:
        total = len(range(numbers[0], dispatch.count, dispatch.num_cus))
        traces = [by_number[n] for n in numbers]
        result = simulate_cu(
            simulator.engine, table, traces, service, model, fits.workgroups_per_cu, total, options.window
        )
        clocks, note = _extrapolate(result, fits.workgroups_per_cu)
        return clocks, result, note

    by_number = {t.number: t for t in recorder.traces}
    lengths = [sum(len(wave.instructions) for wave in t.waves) for t in recorder.traces]
    alike = max(lengths) <= _ALIKE * min(lengths)
    runs = [simulate(numbers) for numbers in (cus[:1] if alike else cus)]
    cu_clocks, cu, note = max(runs, key=lambda run: run[0])
    notes = [note]
    if not alike:
        notes.append(
            f"workgroups differ, from {min(lengths)} to {max(lengths)} instructions: the slowest of {len(runs)} simulated CUs "
            f"is shown, they take from {min(run[0] for run in runs):.0f} to {cu_clocks:.0f} clocks"
        )
    bandwidth = caches.bandwidth_clocks(service, dispatch, target, model, product)
    slowest = max(bandwidth, key=lambda level: bandwidth[level])
    if bandwidth[slowest] > cu_clocks:
        notes.append(f"the bandwidth of the {slowest}, not the simulated CU, decides the time")
    if options.sample_only and len(wanted) < dispatch.count:
        notes.append(
            f"{len(wanted)} of {dispatch.count} workgroups were executed to their end: results are not complete"
        )
    rows = summarise(program, table, cu)
    return Timing(
        chip=simulator.chip,
        product=product,
        kernel=kernel,
        grid=grid,
        block=block,
        clock_hz=float(target.clock_hz),
        clocks=max(cu_clocks, bandwidth[slowest]),
        cu_clocks=cu_clocks,
        bandwidth_clocks=bandwidth,
        matrix_flops=_matrix_flops(program, target, _executions(program, recorder, statistics, dispatch, options)),
        occupancy=fits,
        dispatch=dispatch,
        cu=cu,
        memory=service,
        total=rows.total,
        loops=rows.loops,
        lines=rows.lines,
        statistics=statistics,
        parameters=f"{FILE_NAME} version {model.version}",
        evidence=model.evidence,
        notes=(*notes, *rows.notes, *service.notes),
    )


def _chosen_cus(dispatch: Dispatch, options: TimeOptions) -> list[list[int]]:
    """Workgroups of each CU that may be simulated: the first CU, and others evenly spaced, as far as workgroups may be
    recorded for them."""
    most = -(-dispatch.count // dispatch.num_cus)
    first = min(most, max(1, options.rounds) * dispatch.workgroups_per_cu)
    count = max(1, min(options.cus, options.recorded // first, dispatch.active_cus))
    places = sorted({i * (dispatch.active_cus - 1) // max(1, count - 1) for i in range(count)})
    return [list(range(place, dispatch.count, dispatch.num_cus))[:first] for place in places]


def _product(options: TimeOptions, target: Target) -> str:
    product = options.product or DEFAULT_PRODUCTS[target.name]
    names = [p.name for p in target.products]
    if product not in names:
        raise SimulatorError(f"{target.name} is not on a product '{product}'; it is on {', '.join(names)}")
    return product


def _executions(
    program: Program, recorder: Recorder, statistics: Statistics, dispatch: Dispatch, options: TimeOptions
) -> list[float]:
    """How often the whole grid executes each record: as counted, or scaled up from the workgroups that were recorded."""
    if not options.sample_only:
        return [float(statistics.executions.get(address, 0)) for address in program.addresses]
    total = np.zeros(len(program.addresses), np.int64)
    for trace in recorder.traces:
        for wave in trace.waves:
            total += np.bincount(wave.instructions["record"], minlength=len(total))
    return (total * dispatch.count / max(1, len(recorder.traces))).tolist()


def _matrix_flops(program: Program, target: Target, executions: Sequence[float]) -> float:
    """Operations of all matrix instructions that are executed."""
    total = 0.0
    for inst, times in zip(program.instructions, executions, strict=True):
        if inst is not None and inst.name in target.mfma_by_name:
            total += times * target.mfma(inst.name).flops
    return total


def _extrapolate(cu: CuResult, resident: int) -> tuple[float, str]:
    """Clocks of all workgroups of the CU: those beyond the simulated ones end at the rate of those that were not in the
    first filling."""
    left = cu.total - cu.simulated
    if not left:
        return float(cu.clocks), f"all {cu.total} workgroups of one CU were simulated"
    ends = sorted(cu.workgroup_ends)
    first = min(resident, len(ends) - 1)
    rate = (ends[-1] - ends[first - 1]) / (len(ends) - first) if len(ends) > 1 else float(cu.clocks)
    note = (
        f"{cu.simulated} of the {cu.total} workgroups of one CU were simulated, {rate:.0f} clocks for each further one"
    )
    return cu.clocks + left * rate, note
