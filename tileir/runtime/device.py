"""The device protocol: buffers of bytes, copies, streams, events, launches. Interpreter, simulator and GPU stand behind it."""

from __future__ import annotations

from abc import ABC, ABCMeta, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np

from tileir.ir.binding import ArrayInfo
from tileir.ir.core import AbiArgument
from tileir.ir.types import Elem
from tileir.records import dataclass
from tileir.runtime.compiled import Compiled

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_T = TypeVar("_T")


class DeviceError(Exception):
    """A device cannot do what it was asked: unknown name, not enough memory, a code object for another chip, or a fault
    of the running kernel. The message says what would be possible."""


@dataclass(frozen=True)
class DeviceProperties:
    """What a device is.

    name: as `Device` takes it. chip: "gfx942" or "gfx950", "" for the interpreter. kind: "hip", "simulator" or
    "interpreter". description: one line for people, such as the product's name. compute_units: 0 for the interpreter.
    memory_bytes: of the device, 0 where it is the host's. lds_bytes: of one workgroup. l2_bytes: of one XCD.
    last_level_bytes: of the cache behind the L2s. clock_hz: highest clock of the compute units, 0 if unknown.
    """

    name: str
    kind: str
    chip: str = ""
    description: str = ""
    compute_units: int = 0
    memory_bytes: int = 0
    lds_bytes: int = 0
    l2_bytes: int = 0
    last_level_bytes: int = 0
    clock_hz: float = 0.0


class Buffer(ABC):
    """`nbytes` bytes of memory of `device` at `address` (at least 256-byte aligned where the device allocated it), contents
    undefined at first. Memory that is not given back is freed with the last reference."""

    address: int
    nbytes: int
    device: Device


@dataclass(frozen=True)
class BufferView:
    """An array in device memory: for arguments that live there already, of any size.

    offset: byte offset of the first element in the buffer; may pass 2^32.
    strides: in elements, row-major if None.
    read_only: kernels that write the view are refused.
    """

    buffer: Buffer
    elem: Elem
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    offset: int = 0
    read_only: bool = False

    @property
    def info(self) -> ArrayInfo:
        """Dtype, shape and strides."""
        return ArrayInfo(self.elem.np, self.shape, self.element_strides)

    @cached_property
    def element_strides(self) -> tuple[int, ...]:
        if self.strides is not None:
            return self.strides
        sizes = [1]
        for n in reversed(self.shape[1:]):
            sizes.insert(0, sizes[0] * n)
        return tuple(sizes[: len(self.shape)])

    @property
    def extent(self) -> tuple[int, int]:
        """First byte and end of the bytes that the elements span in the buffer (equal for an empty array)."""
        if 0 in self.shape:
            return self.offset, self.offset
        steps = [(n - 1) * s for n, s in zip(self.shape, self.element_strides, strict=True)]
        low, high = sum(min(0, s) for s in steps), sum(max(0, s) for s in steps)
        if self.elem.unit[0] > 1:
            return self.offset + low * self.elem.bits // 8, self.offset + self.elem.run_bytes(high + 1)
        return self.offset + low * self.elem.bytes, self.offset + (high + 1) * self.elem.bytes

    @cached_property
    def address(self) -> int:
        """Device address of the first element."""
        return self.buffer.address + self.offset

    @cached_property
    def signature(self) -> tuple[object, ...]:
        """Everything that the checks of a launch depend on besides the address."""
        buffer = self.buffer
        return self.elem.name, self.shape, self.strides, self.offset, buffer.nbytes, self.read_only, buffer.device

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy of the elements on the host, row-major. Waits for everything that the device has to do."""
        low, high = self.extent
        self.buffer.device.synchronize()
        raw = self.buffer.device.copy_out(self.buffer, high - low, low) if high > low else np.zeros(0, np.uint8)
        strides = tuple(s * self.elem.bytes for s in self.element_strides)
        return np.ndarray(self.shape, self.elem.np, raw.data, self.offset - low, strides).copy("C")

    def __dlpack__(self, **request: Any) -> object:
        """A DLPack capsule of the memory itself, for PyTorch, CuPy, JAX and others. Options as the DLPack protocol says. Waits for
        everything that the device has to do, whatever stream the consumer names, unless that is -1: it takes care itself."""
        from tileir.runtime.dlpack import export

        if request.get("stream") != -1:
            self.buffer.device.synchronize()
        return export(self, **request)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.buffer.device.dlpack_device


@dataclass(frozen=True)
class Argument:
    """One argument of a launch in the order of `Kernel.abi()`; `value` is a BufferView for a view, an int for a symbol, a
    0-d NumPy array of the exact dtype for a scalar."""

    abi: AbiArgument
    value: BufferView | int | np.ndarray[Any, Any]


class Stream:
    """Work of a device that is done in order. This one is of a device that does everything before its call returns.

    handle: what the device's own library calls it, 0 for its default stream.
    """

    handle = 0

    def __init__(self, device: Device):
        self.device = device

    def synchronize(self) -> None:
        """Waits until everything that was given to the stream is done. Raises DeviceError for what went wrong."""

    @property
    def done(self) -> bool:
        """Whether there is nothing left to do."""
        return True

    def wait(self, event: Event) -> None:
        """What is given to the stream from now on begins after the event."""

    def close(self) -> None:
        """Gives the stream back once its work is done."""


class Event:
    """A point in a stream. This one is of a device that does everything before its call returns."""

    def __init__(self, device: Device):
        self.device = device

    def record(self, stream: Stream | None = None) -> None:
        """Puts the event behind everything that the stream has to do now."""

    def synchronize(self) -> None:
        """Waits until the work before the event is done."""

    @property
    def done(self) -> bool:
        """Whether the work before the event is done."""
        return True

    def seconds_since(self, earlier: Event) -> float:
        """Time between two recorded events on the device. Raises DeviceError for a device that has no clock."""
        raise DeviceError(f"{self.device.name} has no clock of its own; tileir.benchmark gives an estimate")

    def close(self) -> None:
        """Gives the event back."""


class _ByName(ABCMeta):
    """`Device(name)` gives a device of the class that the name stands for."""

    def __call__(cls: type[_T], *args: Any, **named: Any) -> _T:
        if cls is Device:
            from tileir.runtime.devices import get_device

            return cast(_T, get_device(*args, **named))
        return cast(_T, type.__call__(cls, *args, **named))


class Device(metaclass=_ByName):
    """A place where kernels run: `Device("hip:0")`, `Device("simulator:gfx950")`, `Device("interpreter")`.

    Work is done in order in each stream; without one it is the device's default stream. `synchronize` waits for all of it
    and raises what went wrong.
    """

    name: str
    dlpack_device: tuple[int, int] = (1, 0)
    """Type and number by which DLPack knows the memory; (1, 0) is the host's."""

    @cached_property
    def launchers(self) -> dict[int, Any]:
        """What `launch` knows of kernels that were launched on the device."""
        return {}

    @property
    @abstractmethod
    def properties(self) -> DeviceProperties:
        """What the device is."""

    @abstractmethod
    def alloc(self, nbytes: int, *, read_only: bool = False) -> Buffer:
        """New memory of at least one byte; with `read_only` kernels must not write it, and a device that can tell reports
        it if they do. Raises DeviceError if there is not enough."""

    @abstractmethod
    def free(self, buffer: Buffer) -> None:
        """Gives a buffer back; it must not be used again."""

    @abstractmethod
    def owns(self, buffer: Buffer) -> bool:
        """Whether kernels of this device may use the buffer."""

    @abstractmethod
    def copy_in(self, buffer: Buffer, data: Bytes, offset: int = 0, *, stream: Stream | None = None) -> None:
        """Writes host bytes into a buffer from byte `offset` on. With a stream the copy may happen later; `data` is kept, and
        must not change until the stream is synchronised."""

    @abstractmethod
    def copy_out(self, buffer: Buffer, nbytes: int, offset: int = 0, *, stream: Stream | None = None) -> Bytes:
        """A host copy of `nbytes` bytes of a buffer; with a stream its contents are there once that is synchronised."""

    @abstractmethod
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
        """Copies bytes between two buffers of the device that do not overlap."""

    @abstractmethod
    def fill(self, buffer: Buffer, value: int, *, stream: Stream | None = None) -> None:
        """Sets every byte of a buffer to `value` (0 to 255)."""

    @abstractmethod
    def launch(
        self,
        compiled: Compiled,
        grid: tuple[int, ...],
        args: Sequence[Argument],
        *,
        stream: Stream | None = None,
        dynamic_lds: int = 0,
    ) -> None:
        """Runs the kernel on `grid` workgroups (1 to 3 dimensions, none zero), with `dynamic_lds` bytes of LDS behind those
        that its code object states. Raises DeviceError, or CompileError for a fault that has a place in the `.tile` file."""

    @abstractmethod
    def synchronize(self) -> None:
        """Waits until everything is done."""

    def stream(self) -> Stream:
        """A new stream beside the default one."""
        return Stream(self)

    def event(self) -> Event:
        """A new event."""
        return Event(self)

    def close(self) -> None:
        """Gives back what the device holds; it must not be used again."""

    def array(self, data: Any) -> BufferView:
        """A NumPy array (or what NumPy makes one of) copied into a new buffer of the device, row-major.
        Raises DeviceError for a dtype that no element type of the language has."""
        host = np.ascontiguousarray(data)
        view = self.empty(np.shape(data), host.dtype)
        if host.nbytes:
            self.copy_in(view.buffer, host.reshape(-1).view(np.uint8))
        return view

    def empty(self, shape: tuple[int, ...], dtype: Any) -> BufferView:
        """A row-major array of this shape in a new buffer, contents undefined. dtype: a NumPy dtype, or an element type.
        Raises DeviceError for a dtype that no element type of the language has."""
        from tileir.runtime.interchange import elem_of

        elem = dtype if isinstance(dtype, Elem) else elem_of(np.dtype(dtype))
        size = int(np.prod(shape, dtype=object)) * elem.bytes
        return BufferView(self.alloc(max(1, size)), elem, tuple(int(n) for n in shape))
