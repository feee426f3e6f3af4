"""How long a kernel takes: measured with events on a GPU, estimated on the simulator, and never one called the other."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tileir.records import dataclass
from tileir.runtime.compiled import Compiled
from tileir.runtime.device import Argument, Device, DeviceError
from tileir.runtime.devices import default_device, get_device
from tileir.runtime.interface import signature
from tileir.runtime.launch import bind_launch

if TYPE_CHECKING:
    from tileir.runtime.hip_device import HipDevice
    from tileir.runtime.simulator_device import SimulatorDevice

_SAMPLE_SECONDS = 1e-3
"""A sample of a short kernel repeats it until the resolution of events (about a microsecond) does not matter."""
_MOST_LAUNCHES = 1000
_FLUSHED = 2
"""What is written between cold launches, in sizes of the largest cache: that a buffer of one size replaces everything is not
sure with caches that are not fully associative."""


@dataclass(frozen=True)
class Measurement:
    """What `benchmark` found out. Times are in seconds and of one launch.

    estimated: whether the time is the simulator's estimate, and not measured. seconds: the median of the samples.
    samples: all of them in order; an estimate has one. launches: how often the kernel ran in each sample. cold: whether the caches
    were emptied before each launch. note: where the figure comes from.
    """

    kernel: str
    device: str
    estimated: bool
    samples: tuple[float, ...]
    launches: int
    cold: bool
    note: str

    @property
    def seconds(self) -> float:
        return statistics.median(self.samples)

    def json(self) -> dict[str, Any]:
        """As JSON data."""
        return {
            "kernel": self.kernel,
            "device": self.device,
            "estimated": self.estimated,
            "seconds": self.seconds,
            "samples": list(self.samples),
            "launches": self.launches,
            "cold": self.cold,
            "note": self.note,
        }

    def __str__(self) -> str:
        caches = "cold" if self.cold else "warm"
        if self.estimated:
            return f"{self.kernel} on {self.device}: estimated {_time(self.seconds)}, {caches} caches ({self.note})"
        low, high = _time(min(self.samples)), _time(max(self.samples))
        return (
            f"{self.kernel} on {self.device}: measured {_time(self.seconds)}, the median of {len(self.samples)} from {low} to "
            f"{high}, {caches} caches ({self.note})"
        )


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"


def benchmark(
    compiled: Compiled,
    arrays: Mapping[str, Any],
    device: Device | str | None = None,
    *,
    symbols: Mapping[str, int] | None = None,
    warmup: int = 5,
    repeats: int = 20,
    cold: bool = False,
    product: str = "",
) -> Measurement:
    """Measures a kernel on a GPU, or estimates its time with the simulator.

    compiled, arrays, symbols: as for `launch`; the kernel runs many times on the same arrays. Arrays of the host are copied to the
    device once and do not change. device: by default a GPU of the kernel's chip, else its simulator.

    On a GPU: `warmup` samples are thrown away, `repeats` are kept; each is the time between two events, over as many launches as
    make a millisecond. With `cold` each sample is one launch, after a buffer of twice the last-level cache has been written.

    On the simulator: one estimate of its timing model (docs/timing.md), which begins with empty caches; only the workgroups that it
    needs are executed. product: what carries the chip, such as "MI325X", for the bandwidth of its memory.

    Raises LaunchError for arguments that do not fit, DeviceError for what goes wrong on the device and for one without a clock.
    """
    if repeats < 1 or warmup < 0:
        raise DeviceError(f"{repeats} repeats after {warmup} to warm up; at least 1 and 0 are needed")
    where = default_device(compiled.target) if device is None else device
    on = get_device(where) if isinstance(where, str) else where
    kind = on.properties.kind
    if kind == "interpreter":
        raise DeviceError("the interpreter says nothing about time; use a GPU, or a simulator for an estimate")
    with bind_launch(compiled, arrays, on, symbols) as (binding, arguments):
        if 0 in binding.grid:
            raise DeviceError("the grid is empty with these sizes: there is nothing to measure")
        name = signature(compiled).name
        if kind == "simulator":
            simulator: Any = on
            return _estimated(simulator, compiled, name, binding.grid, arguments, product)
        gpu: Any = on
        return _measured(gpu, compiled, name, binding.grid, arguments, warmup, repeats, cold)


def _estimated(
    device: SimulatorDevice,
    compiled: Compiled,
    name: str,
    grid: tuple[int, ...],
    arguments: Sequence[Argument],
    product: str,
) -> Measurement:
    from tileir.simulator import TimeOptions

    timing = device.estimate(compiled, grid, arguments, TimeOptions(product=product, sample_only=True))
    note = f"a model of {timing.product} with parameters {timing.parameters}, not a measurement"
    return Measurement(name, device.name, True, (timing.seconds,), 1, True, note)


def _measured(
    device: HipDevice,
    compiled: Compiled,
    name: str,
    grid: tuple[int, ...],
    arguments: Sequence[Argument],
    warmup: int,
    repeats: int,
    cold: bool,
) -> Measurement:
    run = device.prepare(compiled, grid, arguments)
    stream, start, end = device.stream(), device.event(), device.event()
    flushed = device.alloc(_FLUSHED * device.properties.last_level_bytes) if cold else None
    try:

        def sample(launches: int) -> float:
            if flushed is not None:
                device.fill(flushed, 0, stream=stream)
            start.record(stream)
            for _ in range(launches):
                run(stream)
            end.record(stream)
            end.synchronize()
            return end.seconds_since(start) / launches

        first = sample(1)  # loads code and translations of addresses
        launches = 1 if cold else max(1, min(_MOST_LAUNCHES, int(_SAMPLE_SECONDS / max(sample(1), 1e-9))))
        for _ in range(warmup):
            sample(launches)
        samples = tuple(sample(launches) for _ in range(repeats))
    finally:
        for close in (start.close, end.close, stream.close):
            close()
        if flushed is not None:
            device.free(flushed)
    note = f"events of {device.properties.description}; the first launch took {_time(first)}"
    return Measurement(name, device.name, False, samples, launches, cold, note)
