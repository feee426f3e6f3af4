"""AMD GPUs as devices, through the HIP runtime."""

from __future__ import annotations

import ctypes
import re
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tileir.runtime.arguments import kernarg
from tileir.runtime.compiled import Compiled
from tileir.runtime.device import Argument, Buffer, Bytes, Device, DeviceError, DeviceProperties, Event, Stream
from tileir.runtime.hip_check import Isa
from tileir.runtime.hip_library import (
    INVALID_VALUE,
    NO_DEVICE,
    NON_BLOCKING_STREAM,
    ON_DEVICE,
    TO_DEVICE,
    TO_HOST,
    HipError,
    HipLibrary,
    load_library,
)
from tileir.runtime.hip_module import HipFunction, HipModule
from tileir.runtime.interface import signature
from tileir.target import get as get_target
from tileir.target import names

_COMPUTE_UNITS, _L2_BYTES, _CLOCK_KHZ, _LDS_BYTES = 63, 19, 5, 74
"""hipDeviceAttributeMultiprocessorCount, …L2CacheSize, …ClockRate, …MaxSharedMemoryPerBlock [HIP, ROCm 5 to 7]"""
_PROPERTIES_BYTES = 4096  # more than hipDeviceProp_t of any version: 792 bytes in ROCm 5, 1472 in ROCm 6 and 7
_NAME_BYTES = 256  # the first member of hipDeviceProp_t
_ARCHITECTURE = re.compile(rb"gfx[0-9a-f]+(?::[a-z]+[+-])*(?=\0)")
_ROCM_7_DLPACK = 10  # kDLROCM


class HipBuffer(Buffer):
    """Memory of a GPU that was allocated here."""

    def __init__(self, address: int, nbytes: int, device: HipDevice):
        self.address = address
        self.nbytes = nbytes
        self.device = device
        self._free = weakref.finalize(self, device.library.release, "hipFree", address)
        self._free.atexit = False  # the runtime may be gone then, and the process gives everything back

    def release(self) -> bool:
        """Whether the buffer was still there; it will not be freed again."""
        return self._free.detach() is not None


class ForeignBuffer(Buffer):
    """Memory of a GPU that belongs to another library; `owner` keeps it alive."""

    def __init__(self, address: int, nbytes: int, device: Device, owner: Any):
        self.address = address
        self.nbytes = nbytes
        self.device = device
        self.owner = owner


class HipStream(Stream):
    """A HIP stream. Host arrays of pending copies are kept until it is synchronised."""

    def __init__(self, device: HipDevice, handle: int | None = None):
        super().__init__(device)
        self._library = device.library
        self._pending: list[Any] = []
        self._destroy: Any = None  # for streams of other libraries, among them 0, the default stream
        if handle is not None:
            self.handle = handle
            return
        with device.current():
            self.handle = self._library.handle("hipStreamCreateWithFlags", NON_BLOCKING_STREAM)
            self._destroy = weakref.finalize(self, self._library.release, "hipStreamDestroy", self.handle)
            self._destroy.atexit = False

    def keep(self, value: Any) -> None:
        """Keeps host memory for the work that was given to the stream."""
        self._pending.append(value)

    def synchronize(self) -> None:
        self._library.call("hipStreamSynchronize", self.handle, what="waiting for a stream")
        self._pending.clear()

    @property
    def done(self) -> bool:
        return self._library.ready("hipStreamQuery", self.handle)

    def wait(self, event: Event) -> None:
        if not isinstance(event, HipEvent):
            raise DeviceError(f"a stream of {self.device.name} cannot wait for an event of {event.device.name}")
        self._library.call("hipStreamWaitEvent", self.handle, event.handle, 0)

    def close(self) -> None:
        if self._destroy is not None and self._destroy.detach() is not None:
            self._library.call("hipStreamDestroy", self.handle)


class HipEvent(Event):
    """A HIP event with the time at which it was reached."""

    def __init__(self, device: HipDevice):
        super().__init__(device)
        self._library = device.library
        self._hip = device
        with device.current():
            self.handle = self._library.handle("hipEventCreateWithFlags", 0)
            self._destroy = weakref.finalize(self, self._library.release, "hipEventDestroy", self.handle)
            self._destroy.atexit = False

    def record(self, stream: Stream | None = None) -> None:
        with self._hip.current():
            self._library.call("hipEventRecord", self.handle, stream.handle if stream else None)

    def synchronize(self) -> None:
        self._library.call("hipEventSynchronize", self.handle, what="waiting for an event")

    @property
    def done(self) -> bool:
        return self._library.ready("hipEventQuery", self.handle)

    def seconds_since(self, earlier: Event) -> float:
        if not isinstance(earlier, HipEvent):
            raise DeviceError(f"an event of {earlier.device.name} cannot be compared with one of {self.device.name}")
        milliseconds = ctypes.c_float()
        self._library.call("hipEventElapsedTime", ctypes.byref(milliseconds), earlier.handle, self.handle)
        return milliseconds.value * 1e-3

    def close(self) -> None:
        if self._destroy.detach() is not None:
            self._library.call("hipEventDestroy", self.handle)


class HipDevice(Device):
    """GPU number `index` of the HIP runtime. Raises DeviceError if there is no such GPU, or none that TileIR compiles for.

    Work is asynchronous: launches, and copies with a stream, return when the GPU has been told. Nothing in `launch` waits or
    allocates once the code object is loaded, so launches can be captured into a graph.
    """

    def __init__(self, index: int = 0):
        self.name = f"hip:{index}"
        self.index = index
        self.dlpack_device = (_ROCM_7_DLPACK, index)
        self.library = load_library()
        self._count = device_count(self.library)
        if index >= self._count:
            raise DeviceError(_no_gpu(self.name, self._count, self.library.path))
        self.isa = architecture(self.library, index)
        if self.isa.chip not in names():
            raise DeviceError(
                f"{self.name} is a {self.isa.chip}; TileIR compiles for {', '.join(names())}, which 'simulator:…' run as well"
            )
        version = self.library.integer("hipRuntimeGetVersion", what="asking for the version of the runtime")
        self.rocm = (version // 10_000_000, version // 100_000 % 100)
        self._properties = self._find_properties()
        self._modules: dict[bytes, HipModule] = {}

    @property
    def alone(self) -> bool:
        """Whether the runtime has no other device, so that none needs to be selected."""
        return self._count == 1

    @property
    def properties(self) -> DeviceProperties:
        return self._properties

    def _find_properties(self) -> DeviceProperties:
        library, index, target = self.library, self.index, get_target(self.isa.chip)
        name = ctypes.create_string_buffer(_NAME_BYTES)
        library.call("hipDeviceGetName", name, _NAME_BYTES, index, what=f"asking for the name of {self.name}")
        memory = ctypes.c_size_t()
        library.call("hipDeviceTotalMem", ctypes.byref(memory), index, what=f"asking for the memory of {self.name}")

        def attribute(number: int) -> int:
            return library.integer("hipDeviceGetAttribute", number, index, what=f"asking for properties of {self.name}")

        return DeviceProperties(
            name=self.name,
            kind="hip",
            chip=self.isa.chip,
            description=f"{name.value.decode('utf-8', 'replace')} ({self.isa}), ROCm {self.rocm[0]}.{self.rocm[1]}",
            compute_units=attribute(_COMPUTE_UNITS),
            memory_bytes=memory.value,
            lds_bytes=attribute(_LDS_BYTES),
            l2_bytes=attribute(_L2_BYTES),
            last_level_bytes=target.llc_bytes,
            clock_hz=attribute(_CLOCK_KHZ) * 1e3,
        )

    @contextmanager
    def current(self) -> Generator[None]:
        """Makes the device the one that calls of this thread mean, where there are several."""
        if self._count == 1:
            yield
            return
        before = self.library.integer("hipGetDevice")
        self.library.call("hipSetDevice", self.index, what=f"selecting {self.name}")
        try:
            yield
        finally:
            self.library.call("hipSetDevice", before)

    def alloc(self, nbytes: int, *, read_only: bool = False) -> Buffer:
        if nbytes < 1:
            raise DeviceError(f"a buffer of {nbytes} bytes; at least 1 is needed")
        with self.current():
            # what owns the memory exists before anything else can fail
            address = self.library.handle("hipMalloc", nbytes, what=f"{self.name}: a buffer of {nbytes} bytes")
            return HipBuffer(address, nbytes, self)

    def free(self, buffer: Buffer) -> None:
        if not isinstance(buffer, HipBuffer) or not self.owns(buffer):
            raise DeviceError("the buffer belongs to another device")
        if buffer.release():
            self.library.call("hipFree", buffer.address, what=f"{self.name}: freeing a buffer")

    def owns(self, buffer: Buffer) -> bool:
        device = buffer.device
        return device is self or (
            isinstance(device, HipDevice) and device.index == self.index and device.library is self.library
        )

    def copy_in(self, buffer: Buffer, data: Bytes, offset: int = 0, *, stream: Stream | None = None) -> None:
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        at = self._range(buffer, offset, raw.nbytes)
        self._move(at, raw.ctypes.data, raw.nbytes, TO_DEVICE, stream, raw)

    def copy_out(self, buffer: Buffer, nbytes: int, offset: int = 0, *, stream: Stream | None = None) -> Bytes:
        at = self._range(buffer, offset, nbytes)
        out = np.empty(nbytes, np.uint8)
        self._move(out.ctypes.data, at, nbytes, TO_HOST, stream, out)
        return out

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
        to, of = self._range(target, target_offset, nbytes), self._range(source, source_offset, nbytes)
        self._move(to, of, nbytes, ON_DEVICE, stream, None)

    def _move(self, to: int, of: int, nbytes: int, kind: int, stream: Stream | None, host: Any) -> None:
        if not nbytes:
            return
        what = f"{self.name}: copying {nbytes} bytes"
        with self.current():
            if stream is None:
                self.library.call("hipMemcpy", to, of, nbytes, kind, what=what)
                return
            self.library.call("hipMemcpyAsync", to, of, nbytes, kind, stream.handle, what=what)
        if host is not None and isinstance(stream, HipStream):
            stream.keep(host)

    def fill(self, buffer: Buffer, value: int, *, stream: Stream | None = None) -> None:
        at = self._range(buffer, 0, buffer.nbytes)
        with self.current():
            handle = stream.handle if stream else None
            self.library.call("hipMemsetAsync", at, value, buffer.nbytes, handle, what=f"{self.name}: filling a buffer")

    def _range(self, buffer: Buffer, offset: int, nbytes: int) -> int:
        if not self.owns(buffer):
            raise DeviceError("the buffer belongs to another device")
        if offset < 0 or offset + nbytes > buffer.nbytes:
            raise DeviceError(f"{nbytes} bytes at offset {offset} are outside a buffer of {buffer.nbytes} bytes")
        return buffer.address + offset

    def function(self, compiled: Compiled, dynamic_lds: int = 0) -> HipFunction:
        """The kernel, loaded once. Raises DeviceError if the device cannot run it."""
        module = self._modules.get(compiled.hsaco)
        if module is None:
            with self.current():
                lds = max(self.properties.lds_bytes, get_target(self.isa.chip).lds_bytes)  # some ROCm report less
                module = HipModule(self.library, compiled.hsaco, self.name, self.isa, self.rocm, lds)
            self._modules[compiled.hsaco] = module
        return module.function(signature(compiled).name, dynamic_lds)

    def launch(
        self,
        compiled: Compiled,
        grid: tuple[int, ...],
        args: Sequence[Argument],
        *,
        stream: Stream | None = None,
        dynamic_lds: int = 0,
    ) -> None:
        self.prepare(compiled, grid, args, dynamic_lds)(stream)

    def prepare(
        self, compiled: Compiled, grid: tuple[int, ...], args: Sequence[Argument], dynamic_lds: int = 0
    ) -> Callable[[Stream | None], None]:
        """The launch as a function of its stream, to be called any number of times. Raises DeviceError."""
        function = self.function(compiled, dynamic_lds)
        frame = function.frame(kernarg(args, function.metadata))

        def run(stream: Stream | None) -> None:
            with self.current():
                function.launch(grid, compiled.block, frame, stream.handle if stream else None, dynamic_lds)

        return run

    def synchronize(self) -> None:
        with self.current():
            self.library.call("hipDeviceSynchronize", what=f"waiting for {self.name}")

    def stream(self) -> HipStream:
        return HipStream(self)

    def foreign_stream(self, handle: int) -> HipStream:
        """A stream of another library, such as PyTorch's `torch.cuda.current_stream().cuda_stream`."""
        return HipStream(self, handle)

    def event(self) -> HipEvent:
        return HipEvent(self)

    def close(self) -> None:
        modules, self._modules = self._modules, {}
        self.launchers.clear()
        errors: list[DeviceError] = []
        for module in modules.values():
            try:
                module.close()
            except DeviceError as e:
                errors.append(e)
        if errors:
            raise errors[0]

    def pointer_device(self, address: int) -> int | None:
        """Number of the GPU that an address belongs to; None if it is no memory of a GPU."""
        attributes = (ctypes.c_int * 8)()  # hipPointerAttribute_t: kind, device, two pointers, managed, flags
        try:
            self.library.call("hipPointerGetAttributes", attributes, address)
        except HipError as e:
            if e.code == INVALID_VALUE:
                return None
            raise
        has_device_pointer = attributes[2] or attributes[3]
        return attributes[1] if has_device_pointer else None


def _no_gpu(name: str, count: int, library: str) -> str:
    """Why there is no GPU of a name."""
    if count:
        having = f"hip:0 to hip:{count - 1}" if count > 1 else "hip:0"
        return f"there is no GPU {name}; the HIP runtime '{library}' has: {having}"
    return (
        f"there is no GPU {name}: the HIP runtime '{library}' finds none; if there should be one, look at /dev/kfd, the groups 'render' "
        "and 'video', ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES; without a GPU, 'simulator:gfx942' and 'simulator:gfx950' run the same "
        "code objects"
    )


def device_count(library: HipLibrary) -> int:
    """GPUs that the runtime offers. Raises HipError, but not for none."""
    try:
        return library.integer("hipGetDeviceCount", what="counting GPUs")
    except HipError as e:
        if e.code == NO_DEVICE:
            return 0
        raise


def architecture(library: HipLibrary, index: int) -> Isa:
    """Chip and modes of a GPU. `gcnArchName` stands at different places of hipDeviceProp_t in ROCm 5 and 6, but is the only
    text of this form behind the name of the device. Raises DeviceError."""
    raw = ctypes.create_string_buffer(_PROPERTIES_BYTES)
    library.call("hipGetDeviceProperties", raw, index, what=f"asking for the architecture of hip:{index}")
    found = _ARCHITECTURE.search(raw.raw, _NAME_BYTES)
    if found is None:
        raise DeviceError(f"the HIP runtime '{library.path}' does not say which architecture hip:{index} has")
    return Isa.parse(found[0].decode())
