"""Arrays of other libraries as arguments: NumPy, DLPack, `__cuda_array_interface__`, PyTorch – none of them copied.

An array becomes a NumPy array that looks at its memory if that is the host's, else a `BufferView` of it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, cast

import numpy as np

from tileir.ir.types import ELEMS, Elem
from tileir.runtime.device import Buffer, BufferView, Device, DeviceError

HostArray = np.ndarray[Any, Any]


class Elsewhere:
    """An array that no kernel of this device can see; `where` says where it is. `bind` never gets one."""

    def __init__(self, where: str):
        self.where = where


def elem_of(dtype: np.dtype[Any]) -> Elem:
    """The element type of a NumPy dtype. Raises DeviceError for one that the language does not have."""
    for elem in ELEMS.values():
        if elem.np == dtype:
            return elem
    raise DeviceError(f"no element type of the language is a '{dtype}'; types: {', '.join(ELEMS)}")


@cache
def _torch_elem(name: str) -> Elem | None:
    """The element type of a torch.dtype by its name."""
    short = name.removeprefix("torch.")
    names = {
        "bool": "i1",
        "bfloat16": "bf16",
        "float8_e4m3fn": "f8E4M3FN",
        "float8_e5m2": "f8E5M2",
        "float8_e4m3fnuz": "f8E4M3FNUZ",
        "float8_e5m2fnuz": "f8E5M2FNUZ",
        "float8_e8m0fnu": "f8E8M0FNU",
        **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
        **{f"float{bits}": f"f{bits}" for bits in (16, 32, 64)},
    }
    return ELEMS.get(names.get(short, ""))


def as_array(value: Any, device: Device) -> Any:
    """A NumPy array or a `BufferView` for every array that can be one on this device, an `Elsewhere` for arrays on other GPUs;
    anything else (numbers, and what is no array) comes back as it is."""
    if isinstance(value, np.ndarray | BufferView | int | float | np.generic):
        return cast(Any, value)
    if is_torch(value):
        return _from_torch(value, device)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        from tileir.runtime.dlpack import import_

        return import_(value, device)
    if hasattr(value, "__cuda_array_interface__"):
        return _from_cuda(value, device)
    return value


def is_torch(value: Any) -> bool:
    """Whether this is a PyTorch tensor (or a subclass), without importing PyTorch."""
    return _is_torch_type(type(value))


@cache
def _is_torch_type(kind: type) -> bool:
    return any(c.__name__ == "Tensor" and c.__module__.partition(".")[0] == "torch" for c in kind.__mro__)


def torch_place(tensor: Any) -> tuple[str, int]:
    """Kind and number of the device of a tensor: ("cuda", 0) is the first GPU, also under ROCm."""
    place = tensor.device
    return place.type, place.index or 0


def _from_torch(tensor: Any, device: Device) -> Any:
    elem = _torch_elem(str(tensor.dtype))
    if elem is None:
        return f"a tensor of {tensor.dtype}"
    if str(tensor.layout) != "torch.strided":
        return f"a tensor with layout {tensor.layout}"
    kind, index = torch_place(tensor)
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    tensor = tensor.detach()
    if kind == "cpu":
        return on_host(tensor.data_ptr(), elem, shape, strides, tensor)
    if kind == "cuda":
        return on_gpu(tensor.data_ptr(), index, elem, shape, strides, device, tensor)
    return Elsewhere(str(tensor.device))


def _from_cuda(value: Any, device: Device) -> Any:
    """Version 3 of the interface: `typestr`, `shape`, `strides` in bytes or None, `data` with address and read-only flag."""
    interface: dict[str, Any] = value.__cuda_array_interface__
    dtype = np.dtype(interface["typestr"])
    try:
        elem = elem_of(dtype)
    except DeviceError:
        return f"an array of {dtype}"
    shape = tuple(interface["shape"])
    given = interface.get("strides")
    if given is not None and any(s % dtype.itemsize for s, n in zip(given, shape, strict=True) if n > 1):
        return f"an array with strides {tuple(given)} in bytes, no multiples of {dtype.itemsize}"
    strides = None if given is None else tuple(s // dtype.itemsize for s in given)
    address, read_only = interface["data"]
    find: Callable[[int], int | None] | None = getattr(device, "pointer_device", None)
    index = find(address) if find is not None and 0 not in shape else None
    if index is None and 0 not in shape:
        return Elsewhere(f"a GPU that {device.name} does not know")
    return on_gpu(address, index or 0, elem, shape, strides, device, value, read_only=bool(read_only))


def on_host(
    address: int,
    elem: Elem,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    owner: Any,
    *,
    read_only: bool = False,
) -> HostArray:
    """A NumPy array of memory of the host that `owner` keeps. Strides in elements, None for row-major."""
    size = elem.np.itemsize
    whole = BufferView(_Somewhere(), elem, shape, strides)
    low, high = whole.extent
    if high == low:
        return np.empty(shape, elem.np)
    # an array keeps its base, and this base keeps the owner
    memory: Any = (ctypes.c_uint8 * (high - low)).from_address(address + low)
    memory.owner = owner
    raw = np.frombuffer(memory, np.uint8)
    steps = tuple(s * size for s in whole.element_strides)
    array: HostArray = np.ndarray(shape, elem.np, raw, -low, steps)
    array.flags.writeable = not read_only
    return array


class _Somewhere(Buffer):
    """Stands for a buffer where only the extent of a view is wanted."""


def on_gpu(
    address: int,
    index: int,
    elem: Elem,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    device: Device,
    owner: Any,
    *,
    read_only: bool = False,
) -> BufferView | Elsewhere:
    """A view of memory of GPU number `index` that `owner` keeps; an `Elsewhere` if the device is not that GPU."""
    if device.properties.kind != "hip" or device.dlpack_device[1] != index:
        return Elsewhere(f"hip:{index}")
    from tileir.runtime.hip_device import ForeignBuffer

    low, high = BufferView(_Somewhere(), elem, shape, strides).extent
    buffer = ForeignBuffer(address + low, high - low, device, owner)
    return BufferView(buffer, elem, shape, strides, -low, read_only)
