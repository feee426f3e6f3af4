"""One candidate, compiled and timed on the simulator: a function of data that can be sent to other processes and machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from tileir.ir.diagnostics import CompileError, Diagnostic, Log
from tileir.records import dataclass

if TYPE_CHECKING:
    from tileir.cache.outcome import Outcome
    from tileir.ir.core import Kernel

ParameterValue = int | float | bool | str


@dataclass(frozen=True)
class Order:
    """What to compile and time. params: of the compile-time parameters that the text leaves open; schedule: by name, "" for the first
    that applies. shape and arguments: as `tileir-run` takes them. seed: of random arguments.
    """

    text: str
    filename: str
    kernel: str
    target: str
    shape: str
    params: Mapping[str, ParameterValue] = field(default_factory=dict[str, ParameterValue])
    schedule: str = ""
    arguments: tuple[str, ...] = ()
    seed: int = 0
    product: str = ""


@dataclass(frozen=True)
class Result:
    """What came of an order. estimated_seconds, clocks, mfma_utilisation, matrix_tflops: of the simulator's timing model, 0 where there are
    none. workgroups_per_cu, waves: residency of the code object. diagnostic: why there is no time, or None. rejected: compiled, but not
    to be proposed (spills, scratch, moves between the register files, more registers than the text says). notes: of the estimate.
    """

    estimated_seconds: float = 0.0
    clocks: float = 0.0
    mfma_utilisation: float = 0.0
    matrix_tflops: float = 0.0
    grid: tuple[int, ...] = ()
    waves: int = 0
    workgroups_per_cu: int = 0
    vgprs: int = 0
    lds_bytes: int = 0
    parameters: str = ""
    diagnostic: Diagnostic | None = None
    warnings: tuple[str, ...] = ()
    rejected: bool = False

    @property
    def usable(self) -> bool:
        """Whether it has a time and may be proposed."""
        return self.diagnostic is None and not self.rejected


FAULTS = frozenset({"W0902", "W0903", "W0907"})
"""Warnings of the compiler about code that no schedule may have that is proposed: spills, of scalar registers included, moves between the
register files in a loop, and more registers than the text says."""


def carry_out(order: Order) -> Result:
    """Compiles a candidate (through the cache) and estimates its time. Every fault that it can have is in the result."""
    from tileir.cache.compiling import Text, Wanted, compile_text

    source = Text(order.text, order.filename, dict(order.params), order.kernel)
    try:
        compiled = compile_text(source, order.target, Wanted(schedule=order.schedule), Log())
        return _timed(order, source.module().kernel(order.kernel), compiled)
    except CompileError as e:
        return Result(diagnostic=_first_error(e))


def _first_error(e: CompileError) -> Diagnostic:
    return next((d for d in e.diagnostics if d.severity == "error"), e.diagnostics[0])


def _timed(order: Order, kernel: Kernel, compiled: Outcome) -> Result:
    from tileir.runtime import DeviceError
    from tileir.runtime.launch import bind_launch
    from tileir.runtime.simulator_device import SimulatorDevice
    from tileir.simulator import TimeOptions
    from tileir.tools.common import UsageError
    from tileir.tools.inputs import make_inputs

    launched = _Launched(kernel, compiled)
    device = SimulatorDevice(order.target)
    try:
        given = make_inputs(kernel, [order.shape] if order.shape else [], order.arguments, None, order.seed)
        with bind_launch(launched, given.values, device, given.symbols) as (binding, arguments):
            if 0 in binding.grid:
                return Result(diagnostic=Diagnostic("E1904", "the grid is empty with these sizes", kernel.loc))
            options = TimeOptions(product=order.product, sample_only=True)
            timing = device.estimate(launched, binding.grid, arguments, options)
    except (DeviceError, UsageError) as e:
        return Result(diagnostic=Diagnostic("E1904", f"the kernel cannot be timed: {e}", kernel.loc))
    stats = compiled.stats
    warnings = tuple(dict.fromkeys(d.code for d in compiled.diagnostics if d.severity == "warning"))
    return Result(
        estimated_seconds=timing.seconds,
        clocks=timing.clocks,
        mfma_utilisation=timing.mfma_utilisation,
        matrix_tflops=timing.matrix_tflops,
        grid=tuple(binding.grid),
        waves=timing.occupancy.waves_per_workgroup,
        workgroups_per_cu=timing.occupancy.workgroups_per_cu,
        vgprs=int(stats["vgprs"]),
        lds_bytes=int(stats["lds_bytes"]),
        parameters=timing.parameters,
        warnings=warnings,
        rejected=bool(stats["vgpr_spills"] or stats["scratch_bytes"] or FAULTS & set(warnings)),
    )


class _Launched:
    """What a launch wants to know of a compiled kernel."""

    def __init__(self, kernel: Kernel, compiled: Outcome):
        self.kernel = kernel
        self.target = compiled.target
        self.hsaco = compiled.hsaco
        self.interface: Mapping[str, object] = compiled.interface
        self.block = compiled.block
        self.stats: dict[str, Any] = compiled.stats
