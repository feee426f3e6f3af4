"""The simulator as a device: runs the bytes of the code object, and sees every access outside a buffer."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import numpy as np

from tileir.runtime.arguments import metadata_layout, natural_layout, pack
from tileir.runtime.compiled import Compiled
from tileir.runtime.device import Argument, Buffer, Bytes, Device, DeviceError
from tileir.runtime.interface import signature
from tileir.simulator import Allocation, Module, Simulator, SimulatorError, SimulatorFault, Statistics
from tileir.simulator.checks import parse


class SimulatedBuffer(Buffer):
    """A buffer in the address space of the simulator; untouched pages cost nothing."""

    def __init__(self, allocation: Allocation):
        self.allocation = allocation
        self.address = allocation.address
        self.nbytes = allocation.size


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

    def alloc(self, nbytes: int, *, read_only: bool = False) -> Buffer:
        with _translated():
            return SimulatedBuffer(self.simulator.memory.allocate(nbytes, read_only=read_only))

    def free(self, buffer: Buffer) -> None:
        with _translated():
            self.simulator.memory.free(_allocation(buffer))

    def copy_in(self, buffer: Buffer, data: Bytes, offset: int = 0) -> None:
        with _translated():
            _allocation(buffer).write(data, offset)

    def copy_out(self, buffer: Buffer, nbytes: int, offset: int = 0) -> Bytes:
        with _translated():
            return _allocation(buffer).read(np.uint8, nbytes, offset).view(np.uint8)

    def load(self, hsaco: bytes) -> Module:
        """The code object in simulated memory, loaded once. Raises DeviceError if it is for another chip."""
        if hsaco not in self._modules:
            with _translated():
                self._modules[hsaco] = self.simulator.load(hsaco)
        return self._modules[hsaco]

    def launch(self, compiled: Compiled, grid: tuple[int, ...], args: Sequence[Argument]) -> None:
        module = self.load(compiled.hsaco)
        name = signature(compiled).name
        with _translated():
            metadata = module.program(name).kernel.metadata
        abi = [a.abi for a in args]
        slots = natural_layout(abi) if metadata is None else metadata_layout(abi, metadata)
        x, y, z = (*grid, 1, 1)[:3]
        with _translated():
            self.statistics = module.launch(name, (x, y, z), compiled.block, pack(args, slots), check=self.check)

    def synchronize(self) -> None:
        """Launches return when they are done."""


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
