"""Launching a compiled kernel on arrays: bind, place the arrays on the device, run, bring results back."""

from __future__ import annotations

import weakref
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from tileir.interpreter.arrays import array_info, check_writable, share_memory
from tileir.ir.binding import ArrayInfo, Binding, LaunchError, bind, check_overlap
from tileir.ir.core import AbiArgument, Kernel, Value
from tileir.ir.diagnostics import Diagnostic
from tileir.ir.reports import ARGUMENT, Site
from tileir.ir.types import Elem, GlobalType
from tileir.passes.split_access import contiguous_dim
from tileir.records import dataclass
from tileir.runtime.compiled import Compiled
from tileir.runtime.device import Argument, Buffer, BufferView, Device, Stream
from tileir.runtime.host_memory import Region, allocation, merged, placed
from tileir.runtime.interchange import Elsewhere, as_array
from tileir.runtime.interface import signature, written
from tileir.runtime.packing import pack, packed_elem, unpack
from tileir.runtime.reports import ReportBuffer, sites_of
from tileir.runtime.warm import WarmLaunches

Array = np.ndarray[Any, Any]


def launch(
    compiled: Compiled,
    arrays: Mapping[str, Any],
    device: Device,
    *,
    symbols: Mapping[str, int] | None = None,
    stream: Stream | None = None,
) -> Binding:
    """Runs a kernel.

    arrays: for each argument by name (without %): a number for a scalar; for a view an array – of the host (NumPy, or PyTorch
        and others by DLPack), which is copied to the device and, if the kernel writes it, back; or of the device (a
        `BufferView`, a PyTorch tensor, DLPack, `__cuda_array_interface__`), which is used where it is. Views of one host
        allocation share a buffer on the device, so that aliases and gaps between strided elements are there as on the host.
    symbols: dimension symbols that no view determines, or a check on those that one does.
    stream: of the device; without one its default stream.

    With host arrays the call returns when the results are there. With arrays of a GPU alone it returns when the GPU has been
    told; what goes wrong later is raised by `synchronize`. Returns what the launch was bound to. Raises LaunchError if the
    arguments do not fit, DeviceError if the device fails.
    """
    return _launcher(compiled, device)(compiled, arrays, symbols, stream)


def _launcher(compiled: Compiled, device: Device) -> Launcher:
    """The launcher of a kernel on a device, made once and forgotten with the kernel."""
    known: dict[int, tuple[weakref.ref[Compiled], Launcher]] = device.launchers
    number = id(compiled)
    found = known.get(number)
    if found is not None and found[0]() is compiled:
        return found[1]
    launcher = Launcher(compiled, device)

    def forget(_: object) -> None:
        known.pop(number, None)

    known[number] = weakref.ref(compiled, forget), launcher
    return launcher


class Launcher:
    """Launches of one kernel on one device."""

    def __init__(self, compiled: Compiled, device: Device):
        self._kernel = signature(compiled)
        self._writes = written(compiled)
        self._views = [a for a in self._kernel.args if isinstance(a.type, GlobalType)]
        self._sites = sites_of(compiled)
        # The compiler may find that nothing is ever printed or asserted.
        self._abi = [a for a in self._kernel.abi() if a.kind != "reports" or self._sites]
        self._device = device
        self._warm = WarmLaunches(self._kernel, self._writes, device)

    def __call__(
        self,
        compiled: Compiled,
        arrays: Mapping[str, Any],
        symbols: Mapping[str, int] | None,
        stream: Stream | None,
    ) -> Binding:
        return self._warm.launch(arrays, symbols, stream) or self._cold(compiled, arrays, symbols, stream)

    def _cold(
        self,
        compiled: Compiled,
        arrays: Mapping[str, Any],
        symbols: Mapping[str, int] | None,
        stream: Stream | None,
    ) -> Binding:
        device = self._device
        binding, given = self._bound(arrays, symbols)
        if 0 in binding.grid:
            return binding
        with self._placed(binding, given) as (arguments, host):
            device.launch(compiled, binding.grid, arguments, stream=stream)
            if host.used:
                (stream or device).synchronize()
                host.bring_back()
            else:
                self._warm.learn(compiled, arrays, symbols, binding, arguments)
        return binding

    @contextmanager
    def ready(
        self, arrays: Mapping[str, Any], symbols: Mapping[str, int] | None
    ) -> Generator[tuple[Binding, list[Argument]]]:
        """What `bind_launch` gives."""
        binding, given = self._bound(arrays, symbols)
        if 0 in binding.grid:
            yield binding, []
            return
        with self._placed(binding, given) as (arguments, _):
            yield binding, arguments

    def _bound(
        self, arrays: Mapping[str, Any], symbols: Mapping[str, int] | None
    ) -> tuple[Binding, dict[str, Array | BufferView]]:
        """All checks of a launch: what it is bound to, and its views as arrays of host or device."""
        given = self._checked_views(arrays)
        infos = {k: _info(given[k]) if k in given else v for k, v in arrays.items()}
        binding = bind(self._kernel, infos, symbols)
        self._check_views(given)
        check_overlap(self._kernel, self._writes, lambda a, b: _overlap(given[a], given[b]))
        return binding, given

    @contextmanager
    def _placed(
        self, binding: Binding, given: Mapping[str, Array | BufferView]
    ) -> Generator[tuple[list[Argument], _Placement]]:
        """The arguments with every array on the device, for the time of the context."""
        host = _Placement(self._device, {k: v for k, v in given.items() if isinstance(v, np.ndarray)}, self._writes)
        try:
            host.place()
            views = {k: v if isinstance(v, BufferView) else host.view(self._kernel, k) for k, v in given.items()}
            if self._sites:
                views[ARGUMENT] = host.reports(self._sites, len(binding.grid)).view
            yield [_argument(a, binding, views) for a in self._abi], host
        finally:
            host.release()

    def _checked_views(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """The given views as arrays of host or device. Raises LaunchError for those that no kernel of the device can see."""
        device = self._device
        given = {a.name: as_array(arrays[a.name], device) for a in self._views if a.name in arrays}
        found: list[Diagnostic] = []
        for arg in self._views:
            value = given.get(arg.name)
            where = value.where if isinstance(value, Elsewhere) else ""
            if isinstance(value, BufferView) and not device.owns(value.buffer):
                where = value.buffer.device.name
                where = f"another {where}" if where == device.name else where
            if where:
                message = f"%{arg.name} lies on {where}, but the kernel is launched on {device.name}"
                found.append(_fault("E1622", message, arg, f"an array of {device.name} or of the host"))
        if found:
            raise LaunchError(found)
        return given

    def _check_views(self, given: Mapping[str, Array | BufferView]) -> None:
        """Arrays that are written must be writable; views in device buffers must lie inside them."""
        kernel = self._kernel
        check_writable(kernel, self._writes, {k: v for k, v in given.items() if isinstance(v, np.ndarray)})
        found: list[Diagnostic] = []
        for arg in self._views:
            value = given[arg.name]
            found += _between_bytes(arg, value)
            if not isinstance(value, BufferView):
                continue
            low, high = value.extent
            if low < 0 or high > value.buffer.nbytes:
                message = f"%{arg.name} spans bytes {low} to {high} of a buffer of {value.buffer.nbytes} bytes"
                found.append(_fault("E1620", message, arg, f"bytes 0 to {value.buffer.nbytes}"))
            elif value.address % value.elem.bytes:
                message = f"%{arg.name} starts at byte {value.offset}, between two elements of {value.elem}"
                found.append(_fault("E1621", message, arg, f"a multiple of {value.elem.bytes}"))
            elif value.read_only and arg.name in self._writes:
                message = f"%{arg.name} is written, but its array is read-only"
                found.append(_fault("E1619", message, arg, "a writable array"))
        if found:
            raise LaunchError(found)


def bind_launch(
    compiled: Compiled, arrays: Mapping[str, Any], device: Device, symbols: Mapping[str, int] | None
) -> AbstractContextManager[tuple[Binding, list[Argument]]]:
    """A launch that is checked and not done, for callers that repeat it: what it is bound to, and its arguments (none for an
    empty grid). Arrays of the host are copied to the device for the time of the context, and not back. Raises as `launch`."""
    return _launcher(compiled, device).ready(arrays, symbols)


def _info(value: Any) -> Any:
    return value.info if isinstance(value, BufferView) else array_info(value)


def _argument(abi: AbiArgument, binding: Binding, views: Mapping[str, BufferView]) -> Argument:
    if abi.kind in ("view", "reports"):
        return Argument(abi, views[abi.name])
    return Argument(abi, binding.symbols[abi.name] if abi.kind == "symbol" else binding.scalars[abi.name])


def _between_bytes(arg: Value, value: Array | BufferView) -> list[Diagnostic]:
    """E1623 for a view of elements that share bytes of which a row begins or ends inside one."""
    assert isinstance(arg.type, GlobalType)
    together = arg.type.elem.unit[0]
    if together == 1 or 0 in value.shape:
        return []
    if isinstance(value, BufferView):
        start, strides = 0, value.element_strides
    else:
        start, strides = value.__array_interface__["data"][0] - allocation(value).start, value.strides
    d = contiguous_dim(arg.type)
    steps = [
        n if i == d else step for i, (n, step) in enumerate(zip(value.shape, strides, strict=True)) if n > 1 or i == d
    ]
    if all(x % together == 0 for x in (start, *steps)):
        return []
    message = (
        f"%{arg.name} has rows that begin or end inside a byte, which {together} elements of {arg.type.elem} share"
    )
    return [
        _fault(
            "E1623", message, arg, f"rows of a multiple of {together} elements, and as many from one row to the next"
        )
    ]


def _fault(code: str, message: str, arg: Value, legal: str) -> Diagnostic:
    return Diagnostic(code, message, arg.loc, "error", (), legal)


def _overlap(a: Array | BufferView, b: Array | BufferView) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return share_memory(a, b)
    if isinstance(a, BufferView) and isinstance(b, BufferView):
        return share_memory(_placed(a), _placed(b))
    return False


def _placed(view: BufferView) -> Array:
    size = view.elem.bytes
    return placed(view.address, view.shape, tuple(s * size for s in view.element_strides), size)


@dataclass(frozen=True)
class _Region:
    host: Region
    buffer: Buffer
    changes: bool
    elem: Elem | None
    """Of elements that share bytes on the device and have one each on the host."""


class _Placement:
    """Host allocations copied to buffers of a device for the time of one launch."""

    def __init__(self, device: Device, arrays: Mapping[str, Array], written: frozenset[str]):
        self._device = device
        self._arrays = arrays
        self._written = written
        self._regions: list[_Region] = []
        self._reports: ReportBuffer | None = None

    @property
    def used(self) -> bool:
        """Whether something must come back to the host: arrays of it, or reports."""
        return bool(self._arrays) or self._reports is not None

    def place(self) -> None:
        """Allocates and copies in."""
        changing = [allocation(a) for name, a in self._arrays.items() if name in self._written]
        for host in merged([allocation(a) for a in self._arrays.values()]):
            changes = any(host.start <= c.start and c.end <= host.end for c in changing)
            elem = self._packed(host)
            data = host.bytes() if elem is None else pack(host.bytes(), elem)
            region = _Region(host, self._device.alloc(max(1, len(data)), read_only=not changes), changes, elem)
            self._regions.append(region)
            self._device.copy_in(region.buffer, data)

    def _packed(self, host: Region) -> Elem | None:
        inside = (a for a in self._arrays.values() if host.start <= allocation(a).start < host.end)
        return next((e for a in inside if (e := packed_elem(a.dtype)) is not None), None)

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
        if region.elem is not None:
            offset = region.elem.run_bytes(offset)
        return BufferView(region.buffer, arg.type.elem, info.shape, info.strides, offset)

    def reports(self, sites: Sequence[Site], rank: int) -> ReportBuffer:
        """A buffer for what the kernel prints and asserts, which `bring_back` delivers."""
        self._reports = ReportBuffer(sites, self._device, rank)
        return self._reports

    def bring_back(self) -> None:
        """Copies every allocation of which the kernel writes a view back to the host, and delivers reports. Raises
        AssertionFailed."""
        for r in self._regions:
            if r.changes and r.host.nbytes:
                count = r.host.nbytes
                data = self._device.copy_out(r.buffer, count if r.elem is None else r.elem.run_bytes(count))
                r.host.bytes()[...] = data if r.elem is None else unpack(data, r.elem, count)
        if self._reports is not None:
            self._reports.deliver()

    def release(self) -> None:
        """Frees all buffers; the first error is raised when all are freed."""
        regions, self._regions = self._regions, []
        errors: list[Exception] = []
        reports, self._reports = self._reports, None
        if reports is not None:
            try:
                reports.release()
            except Exception as e:
                errors.append(e)
        for r in regions:
            try:
                self._device.free(r.buffer)
            except Exception as e:
                errors.append(e)
        if errors:
            raise errors[0]
