"""The simulator as a device: runs the bytes of the code object, and sees every access outside a buffer."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from tileir.runtime.arguments import kernarg
from tileir.runtime.compiled import Compiled
from tileir.runtime.device import Argument, Buffer, Bytes, Device, DeviceError, DeviceProperties, Stream
from tileir.runtime.interface import signature
from tileir.runtime.properties import simulated_properties
from tileir.simulator import Allocation, Module, Simulator, SimulatorError, SimulatorFault, Statistics
from tileir.simulator.checks import parse

if TYPE_CHECKING:
    from tileir.simulator import TimeOptions, Timing


class SimulatedBuffer(Buffer):
    """A buffer in the address space of the simulator; untouched pages cost nothing."""

    def __init__(self, allocation: Allocation, device: Device):
        self.allocation = allocation
        self.address = allocation.address
        self.nbytes = allocation.size
        self.device = device


class SimulatorDevice(Device):
    """A simulated GPU of one chip ("gfx942" or "gfx950").

    check: checks that launches make, such as "race,uninit" or "all" (names: `tileir.simulator.checks`). `statistics` are
    those of the last launch, with what its checks found in `statistics.findings`; None before the first.
    """

    def __init__(self, chip: str, check: str = ""):
        self.name = f"simulator:{chip}"
        self.check = check
        with _translated():
            parse(check)
            self.simulator = Simulator(chip)
        self.statistics: Statistics | None = None
        self._modules: dict[bytes, Module] = {}

    @property
    def properties(self) -> DeviceProperties:
        return simulated_properties(self.simulator.chip)

    def alloc(self, nbytes: int, *, read_only: bool = False) -> Buffer:
        with _translated():
            return SimulatedBuffer(self.simulator.memory.allocate(nbytes, read_only=read_only), self)

    def free(self, buffer: Buffer) -> None:
        with _translated():
            self.simulator.memory.free(_allocation(buffer))

    def owns(self, buffer: Buffer) -> bool:
        return isinstance(buffer, SimulatedBuffer) and buffer.device is self

    def copy_in(self, buffer: Buffer, data: Bytes, offset: int = 0, *, stream: Stream | None = None) -> None:
        with _translated():
            _allocation(buffer).write(data, offset)

    def copy_out(self, buffer: Buffer, nbytes: int, offset: int = 0, *, stream: Stream | None = None) -> Bytes:
        with _translated():
            return _allocation(buffer).read(np.uint8, nbytes, offset).view(np.uint8)

    def copy(
        self,
        target: Buffer,
        source: Buffer,
        nbytes: int,
        *,
        target_offset: int = 0,
        source_offset: int = 0,
        stream: Stream | None = None,
    ) -> None:
        with _translated():
            _allocation(target).write(_allocation(source).read(np.uint8, nbytes, source_offset), target_offset)

    def fill(self, buffer: Buffer, value: int, *, stream: Stream | None = None) -> None:
        with _translated():
            _allocation(buffer).write(np.full(buffer.nbytes, value, np.uint8))

    def load(self, hsaco: bytes) -> Module:
        """The code object in simulated memory, loaded once. Raises DeviceError if it is for another chip."""
        if hsaco not in self._modules:
            with _translated():
                self._modules[hsaco] = self.simulator.load(hsaco)
        return self._modules[hsaco]

    def launch(
        self,
        compiled: Compiled,
        grid: tuple[int, ...],
        args: Sequence[Argument],
        *,
        stream: Stream | None = None,
        dynamic_lds: int = 0,
    ) -> None:
        module, name, packed = self._prepare(compiled, args)
        with _translated():
            self.statistics = module.launch(
                name, _three(grid), compiled.block, packed, lds_dynamic=dynamic_lds, check=self.check
            )

    def estimate(
        self, compiled: Compiled, grid: tuple[int, ...], args: Sequence[Argument], options: TimeOptions
    ) -> Timing:
        """Runs the kernel as `launch` does, without checks, and estimates its time on the hardware (docs/timing.md)."""
        from tileir.simulator import estimate

        module, name, packed = self._prepare(compiled, args)
        with _translated():
            timing = estimate(module, name, _three(grid), compiled.block, packed, options=options)
        self.statistics = timing.statistics
        return timing

    def _prepare(self, compiled: Compiled, args: Sequence[Argument]) -> tuple[Module, str, bytes]:
        module = self.load(compiled.hsaco)
        name = signature(compiled).name
        with _translated():
            metadata = module.program(name).kernel.metadata
        return module, name, kernarg(args, metadata)

    def synchronize(self) -> None:
        """Launches return when they are done."""


def _three(grid: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*grid, 1, 1)[:3]
    return x, y, z


def _allocation(buffer: Buffer) -> Allocation:
    if not isinstance(buffer, SimulatedBuffer):
        raise DeviceError("the buffer belongs to another device")
    return buffer.allocation


@contextmanager
def _translated() -> Generator[None]:
    """Faults of the simulator as faults of the device; the original is the cause."""
    try:
        yield
    except (SimulatorError, SimulatorFault) as e:
        raise DeviceError(str(e)) from e
