"""Launching a compiled kernel on arrays: bind, place the arrays on the device, run, bring results back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tileir.interpreter.arrays import array_info, check_writable, share_memory
from tileir.ir.binding import ArrayInfo, Binding, LaunchError, bind, check_overlap
from tileir.ir.core import AbiArgument, Kernel, Value
from tileir.ir.diagnostics import Diagnostic
from tileir.ir.types import GlobalType
from tileir.runtime.compiled import Compiled
from tileir.runtime.device import Argument, Buffer, BufferView, Device
from tileir.runtime.host_memory import Region, allocation, merged, placed
from tileir.runtime.interface import signature, written

Array = np.ndarray[Any, Any]


def launch(
    compiled: Compiled,
    arrays: Mapping[str, Any],
    device: Device,
    *,
    symbols: Mapping[str, int] | None = None,
) -> Binding:
    """Runs a kernel and waits for it.

    arrays: for each argument by name (without %): a NumPy array for a view, which is copied to the device and, if the
        kernel writes it, back; a `BufferView` for a view that lives in a buffer of the device; a number for a scalar.
        Views of one host allocation share a buffer on the device, so that aliases and gaps between strided elements are
        there as on the host.
    symbols: dimension symbols that no view determines, or a check on those that one does.

    Returns what the launch was bound to. Raises LaunchError if the arguments do not fit, DeviceError if the device fails.
    """
    kernel, writes = signature(compiled), written(compiled)
    views = {a.name for a in kernel.args if isinstance(a.type, GlobalType)}
    binding = bind(kernel, {k: _info(v) if k in views else v for k, v in arrays.items()}, symbols)
    given: dict[str, Array | BufferView] = {a.name: arrays[a.name] for a in kernel.args if a.name in views}
    check_writable(kernel, writes, {k: v for k, v in given.items() if isinstance(v, np.ndarray)})
    _check_buffers(kernel, given)
    check_overlap(kernel, writes, lambda a, b: _overlap(given[a], given[b]))
    if 0 in binding.grid:
        return binding
    host = _Placement(device, {k: v for k, v in given.items() if isinstance(v, np.ndarray)}, writes)
    try:
        host.place()
        placements = {k: v if isinstance(v, BufferView) else host.view(kernel, k) for k, v in given.items()}
        device.launch(compiled, binding.grid, [_argument(a, binding, placements) for a in kernel.abi()])
        device.synchronize()
        host.bring_back()
    finally:
        host.release()
    return binding


def _info(value: Any) -> Any:
    return value.info if isinstance(value, BufferView) else array_info(value)


def _argument(abi: AbiArgument, binding: Binding, views: Mapping[str, BufferView]) -> Argument:
    if abi.kind == "view":
        return Argument(abi, views[abi.name])
    return Argument(abi, binding.symbols[abi.name] if abi.kind == "symbol" else binding.scalars[abi.name])


def _check_buffers(kernel: Kernel, given: Mapping[str, Array | BufferView]) -> None:
    """Views in device buffers must lie inside them; packed elements have no host form yet."""
    found: list[Diagnostic] = []
    for arg in kernel.args:
        value = given.get(arg.name)
        if isinstance(value, BufferView):
            low, high = value.extent
            if low < 0 or high > value.buffer.nbytes:
                message = f"%{arg.name} spans bytes {low} to {high} of a buffer of {value.buffer.nbytes} bytes"
                found.append(_fault("E1620", message, arg, f"bytes 0 to {value.buffer.nbytes}"))
            elif value.offset % value.elem.bytes:
                message = f"%{arg.name} starts at byte {value.offset}, between two elements of {value.elem}"
                found.append(_fault("E1621", message, arg, f"a multiple of {value.elem.bytes}"))
    if found:
        raise LaunchError(found)


def _fault(code: str, message: str, arg: Value, legal: str) -> Diagnostic:
    return Diagnostic(code, message, arg.loc, "error", (), legal)


def _overlap(a: Array | BufferView, b: Array | BufferView) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return share_memory(a, b)
    if isinstance(a, BufferView) and isinstance(b, BufferView):
        return a.buffer is b.buffer and share_memory(_placed(a), _placed(b))
    return False


def _placed(view: BufferView) -> Array:
    size = view.elem.bytes
    return placed(view.address, view.shape, tuple(s * size for s in view.element_strides), size)


@dataclass(frozen=True)
class _Region:
    host: Region
    buffer: Buffer
    changes: bool


class _Placement:
    """Host allocations copied to buffers of a device for the time of one launch."""

    def __init__(self, device: Device, arrays: Mapping[str, Array], written: frozenset[str]):
        self._device = device
        self._arrays = arrays
        self._written = written
        self._regions: list[_Region] = []

    def place(self) -> None:
        """Allocates and copies in."""
        changing = [allocation(a) for name, a in self._arrays.items() if name in self._written]
        for host in merged([allocation(a) for a in self._arrays.values()]):
            changes = any(host.start <= c.start and c.end <= host.end for c in changing)
            region = _Region(host, self._device.alloc(max(1, host.nbytes), read_only=not changes), changes)
            self._regions.append(region)
            self._device.copy_in(region.buffer, host.bytes())

    def _region(self, array: Array) -> _Region:
        own = allocation(array)
        return next(r for r in self._regions if r.host.start <= own.start and own.end <= r.host.end)

    def view(self, kernel: Kernel, name: str) -> BufferView:
        """The array of an argument as it lies on the device."""
        array = self._arrays[name]
        region = self._region(array)
        arg = next(a for a in kernel.args if a.name == name)
        info = array_info(array)
        assert isinstance(info, ArrayInfo) and isinstance(arg.type, GlobalType)
        offset = array.__array_interface__["data"][0] - region.host.start
        return BufferView(region.buffer, arg.type.elem, info.shape, info.strides, offset)

    def bring_back(self) -> None:
        """Copies every allocation of which the kernel writes a view back to the host."""
        for r in self._regions:
            if r.changes and r.host.nbytes:
                r.host.bytes()[...] = self._device.copy_out(r.buffer, r.host.nbytes)

    def release(self) -> None:
        for r in self._regions:
            self._device.free(r.buffer)
