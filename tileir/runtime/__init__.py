"""Running kernels: one device interface, with the reference interpreter and the simulator behind it."""

from tileir.runtime.compare import Comparison, compare, gemm_bound
from tileir.runtime.compiled import Compiled
from tileir.runtime.device import Argument, Buffer, BufferView, Device, DeviceError
from tileir.runtime.devices import device_names, get_device
from tileir.runtime.interface import load_code_object
from tileir.runtime.launch import launch

__all__ = [
    "Argument",
    "Buffer",
    "BufferView",
    "Comparison",
    "Compiled",
    "Device",
    "DeviceError",
    "compare",
    "device_names",
    "gemm_bound",
    "get_device",
    "launch",
    "load_code_object",
]
