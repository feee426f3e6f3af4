"""Devices by name."""

from __future__ import annotations

from tileir.runtime.device import Device, DeviceError
from tileir.target import names


def device_names() -> tuple[str, ...]:
    """The names that `get_device` knows."""
    return ("interpreter", *(f"simulator:{chip}" for chip in names()))


def get_device(name: str) -> Device:
    """A new device: "interpreter", or "simulator:CHIP" such as "simulator:gfx950". Raises DeviceError for other names."""
    if name not in device_names():
        raise DeviceError(f"there is no device '{name}'; devices: {', '.join(device_names())}")
    if name == "interpreter":
        from tileir.runtime.interpreter_device import InterpreterDevice

        return InterpreterDevice()
    from tileir.runtime.simulator_device import SimulatorDevice  # loads LLVM

    return SimulatorDevice(name.removeprefix("simulator:"))
