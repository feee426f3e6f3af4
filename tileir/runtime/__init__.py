"""Running kernels: one device interface, with GPUs, the simulator and the reference interpreter behind it."""

from tileir.runtime.compare import Comparison, compare, gemm_bound
from tileir.runtime.compiled import Compiled
from tileir.runtime.device import (
    Argument,
    Buffer,
    BufferView,
    Device,
    DeviceError,
    DeviceProperties,
    Event,
    Stream,
)
from tileir.runtime.devices import default_device, device_names, devices, get_device
from tileir.runtime.interface import load_code_object
from tileir.runtime.launch import launch
from tileir.runtime.measure import Measurement, benchmark

__all__ = [
    "Argument",
    "Buffer",
    "BufferView",
    "Comparison",
    "Compiled",
    "Device",
    "DeviceError",
    "DeviceProperties",
    "Event",
    "Measurement",
    "Stream",
    "benchmark",
    "compare",
    "default_device",
    "device_names",
    "devices",
    "gemm_bound",
    "get_device",
    "launch",
    "load_code_object",
]
