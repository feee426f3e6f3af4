"""Devices by name."""

from __future__ import annotations

from tileir.runtime.device import Device, DeviceError
from tileir.target import names


def device_names() -> tuple[str, ...]:
    """The names that `get_device` knows."""
    return ("interpreter", *(f"simulator:{chip}" for chip in names()))


def get_device(name: str, *, check: str = "") -> Device:
    """A new device: "interpreter", or "simulator:CHIP" such as "simulator:gfx950". Raises DeviceError for other names.

    check: checks that the simulator makes in each launch, such as "race,uninit" or "all"; what they find is in
    `statistics.findings` of the device.
    """
    if name not in device_names():
        raise DeviceError(f"there is no device '{name}'; devices: {', '.join(device_names())}")
    if name == "interpreter":
        if check:
            raise DeviceError("the interpreter makes no checks; they are the simulator's")
        from tileir.runtime.interpreter_device import InterpreterDevice

        return InterpreterDevice()
    from tileir.runtime.simulator_device import SimulatorDevice  # loads LLVM

    return SimulatorDevice(name.removeprefix("simulator:"), check)
