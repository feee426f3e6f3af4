"""Devices by name, and the one that is taken where nobody names one."""

from __future__ import annotations

import logging
import os
from functools import cache

from tileir.runtime.device import Device, DeviceError, DeviceProperties
from tileir.runtime.hip_library import VARIABLE, gpu_is_possible, load_library
from tileir.runtime.properties import interpreter_properties, simulated_properties
from tileir.target import names

_log = logging.getLogger("tileir")


def devices() -> tuple[DeviceProperties, ...]:
    """What kernels can run on here: GPUs of supported chips, the interpreter, the simulator of every chip. A GPU that the HIP
    runtime has trouble with is left out; `Device("hip:0")` says what is wrong."""
    return (*_gpus()[0], interpreter_properties(), *(simulated_properties(chip) for chip in names()))


def _gpus() -> tuple[list[DeviceProperties], list[str]]:
    """The GPUs that can be used, and why others cannot."""
    found: list[DeviceProperties] = []
    reasons: list[str] = []
    if not gpu_is_possible():
        return found, reasons
    from tileir.runtime.hip_device import HipDevice, device_count

    try:
        for index in range(device_count(load_library())):
            try:
                found.append(HipDevice(index).properties)
            except DeviceError as e:
                reasons.append(str(e))
    except DeviceError as e:
        reasons.append(str(e))
    return found, reasons


def device_names() -> tuple[str, ...]:
    """The names of all devices of `devices()`."""
    return tuple(d.name for d in devices())


def get_device(name: str, *, check: str = "") -> Device:
    """A new device: "hip:N", "simulator:CHIP" such as "simulator:gfx950", or "interpreter". Raises DeviceError for other names, or
    if there is no such GPU.

    check: checks that the simulator makes in each launch, such as "race,uninit" or "all"; what they find is in
    `statistics.findings` of the device.
    """
    kind, _, which = name.partition(":")
    if check and kind != "simulator":
        raise DeviceError(f"{name or 'this device'} makes no checks; they are the simulator's")
    if kind == "hip" and which.isdecimal():
        from tileir.runtime.hip_device import HipDevice

        return HipDevice(int(which))
    if kind == "simulator" and which in names():
        from tileir.runtime.simulator_device import SimulatorDevice  # loads LLVM

        return SimulatorDevice(which, check)
    if name == "interpreter":
        from tileir.runtime.interpreter_device import InterpreterDevice

        return InterpreterDevice()
    raise DeviceError(f"there is no device '{name}'; devices: {', '.join(device_names())}")


def default_device(chip: str = "") -> Device:
    """The first GPU of this chip (any supported one for ""), else a new simulator of the chip (gfx950 for ""). One line, logged as
    a warning of the logger `tileir` and therefore on standard error unless the program says otherwise, tells once which one it is,
    and why a GPU that seems to be there is not used."""
    gpu, reasons = _gpu(chip, os.environ.get(VARIABLE))
    if gpu is not None:
        return gpu
    name = f"simulator:{chip or 'gfx950'}"
    why = f" ({reasons[0].splitlines()[0].rstrip(':')})" if reasons else ""
    _say(f"no {chip or 'supported'} GPU is here{why}: running on {name}", logging.WARNING)
    return get_device(name)


@cache
def _gpu(chip: str, library: str | None) -> tuple[Device | None, list[str]]:
    """The GPU for a chip, one object, so that code objects stay loaded; or why there is none. library: the variable that decides
    what is found."""
    found, reasons = _gpus()
    for gpu in found:
        if chip in ("", gpu.chip):
            _say(f"running on {gpu.name}, {gpu.description}", logging.INFO)
            return get_device(gpu.name), []
    return None, reasons


@cache
def _say(text: str, level: int) -> None:
    """Each line once."""
    _log.log(level, "%s", text)
