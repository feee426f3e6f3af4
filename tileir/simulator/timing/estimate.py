"""From a launch to an estimate of its time: records some workgroups, simulates caches and one compute unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from tileir.simulator.faults import SimulatorError, Statistics
from tileir.simulator.inspect.occupancy import Occupancy, occupancy
from tileir.simulator.timing import caches
from tileir.simulator.timing.cu import DEFAULT_WINDOW, simulate_cu
from tileir.simulator.timing.recorder import Recorder
from tileir.simulator.timing.records import CuResult, Dim3, Dispatch, MemoryService
from tileir.simulator.timing.static import static_table
from tileir.target import timing_model

if TYPE_CHECKING:
    from tileir.simulator.launch import Argument, Module

_ROUNDS = 3
"""How often the simulated CU is filled with workgroups, at most; what it gets beyond is extrapolated."""
_RECORDED = 64
"""Workgroups that are recorded for the caches, at most."""
_START = 1024
"""Instructions that are kept of workgroups which are not recorded in full."""
DEFAULT_PRODUCTS = {"gfx942": "MI300X", "gfx950": "MI355X"}


@dataclass(frozen=True)
class TimeOptions:
    """product: what carries the chip, which decides the bandwidth of its memory; ``""`` is MI300X or MI355X.

    sample_only: executes only the workgroups that are recorded, so the results of the kernel are not complete. window:
    clocks for which the result says what each wave does. rounds: how often the simulated CU is filled.
    """

    product: str = ""
    sample_only: bool = False
    window: int = DEFAULT_WINDOW
    rounds: int = _ROUNDS
    recorded: int = _RECORDED


@dataclass(frozen=True, eq=False)
class Estimate:
    """An estimate before it is put into rows. clocks: of the whole grid; cu_clocks: what the CU model alone gives for it;
    bandwidth_clocks: what each level of memory alone would take."""

    dispatch: Dispatch
    occupancy: Occupancy
    cu: CuResult
    memory: MemoryService
    clocks: float
    cu_clocks: float
    bandwidth_clocks: dict[str, float]
    notes: tuple[str, ...]


def run_and_estimate(
    module: Module,
    kernel: str,
    grid: Dim3,
    block: Dim3,
    args: bytes | Sequence[Argument],
    options: TimeOptions,
    **limits: Any,
) -> tuple[Estimate, Statistics]:
    """Runs a kernel and estimates its time. limits: what :meth:`Module.launch` takes besides."""
    from tileir.simulator.launch import DEFAULT_MAX_INSTRUCTIONS, DEFAULT_STACK, _Launch  # pyright: ignore

    simulator = module.simulator
    target, model = simulator.target, timing_model(simulator.chip)
    product = options.product or DEFAULT_PRODUCTS[simulator.chip]
    names = [p.name for p in target.products]
    if product not in names:
        raise SimulatorError(f"{simulator.chip} is not on a product '{product}'; it is on {', '.join(names)}")
    program = module.program(kernel)
    lds_dynamic = int(limits.get("lds_dynamic", 0))
    launch = _Launch(simulator, module, program, grid, block, args, lds_dynamic, limits.get("stack", DEFAULT_STACK))
    fits = occupancy(program.kernel, target, lds_dynamic, launch.items)
    if not fits.workgroups_per_cu:
        raise SimulatorError("not even one workgroup fits on a compute unit, so there is no time to estimate")
    dispatch = Dispatch(grid, launch.wave_count, fits.workgroups_per_cu, target.num_xcds, target.cus_per_xcd)
    own = list(dispatch.of_cu(0, 0))
    simulated = own[: options.rounds * fits.workgroups_per_cu]
    wanted = sorted({*caches.sample(dispatch, target, options.recorded), *simulated})
    recorder = Recorder(launch, wanted, _START)
    try:
        launch.watch(cast(Any, recorder))
        limit = limits.get("max_instructions", DEFAULT_MAX_INSTRUCTIONS)
        launch.prepare(limit, limits.get("strict_barriers", True))
        regions = [(a.address, a.address + a.size) for a in simulator.memory.allocations]
        chosen = [dispatch.workgroup(n) for n in wanted] if options.sample_only else None
        statistics = launch.run(chosen)
    finally:
        launch.close()
    service = caches.memory_service(
        recorder.traces, dispatch, target, model, product, prologues=recorder.starts, regions=regions
    )
    table = static_table(program, target, model)
    by_number = {t.number: t for t in recorder.traces}
    traces = [by_number[n] for n in simulated]
    cu = simulate_cu(simulator.engine, table, traces, service, model, fits.workgroups_per_cu, len(own), options.window)
    cu_clocks, notes = _extrapolate(cu, fits.workgroups_per_cu)
    bandwidth = caches.bandwidth_clocks(service, dispatch, target, model, product)
    slowest = max(bandwidth, key=lambda level: bandwidth[level])
    if bandwidth[slowest] > cu_clocks:
        notes.append(f"the {slowest} of the whole chip takes longer than the simulated CU: the time is its bandwidth's")
    if options.sample_only:
        notes.append(f"{statistics.workgroups} of {dispatch.count} workgroups were executed: results are not complete")
    clocks = max(cu_clocks, bandwidth[slowest])
    return Estimate(dispatch, fits, cu, service, clocks, cu_clocks, bandwidth, (*notes, *service.notes)), statistics


def _extrapolate(cu: CuResult, resident: int) -> tuple[float, list[str]]:
    """Clocks of all workgroups of the CU: those beyond the simulated ones end at the rate of those that were not in the
    first filling."""
    left = cu.total - cu.simulated
    if not left:
        return float(cu.clocks), [f"all {cu.total} workgroups of one CU were simulated"]
    ends = sorted(cu.workgroup_ends)
    first = min(resident, len(ends) - 1)
    rate = (ends[-1] - ends[first - 1]) / (len(ends) - first) if len(ends) > 1 else float(cu.clocks)
    note = (
        f"{cu.simulated} of the {cu.total} workgroups of one CU were simulated, {rate:.0f} clocks for each further one"
    )
    return cu.clocks + left * rate, [note]
