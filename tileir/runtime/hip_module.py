"""Code objects in the memory of a GPU, and launching their kernels."""

from __future__ import annotations

import ctypes
import weakref
from ctypes import c_size_t, c_uint64, c_void_p

from tileir.codeobject import CodeObjectError, KernelMetadata
from tileir.runtime.device import DeviceError
from tileir.runtime.hip_check import Isa, check_loadable
from tileir.runtime.hip_library import LAUNCH_BUFFER, LAUNCH_END, LAUNCH_SIZE, MAX_DYNAMIC_LDS, HipError, HipLibrary

_UNKNOWN_FUNCTION = (13, 98, 801)  # hipErrorInvalidSymbol, hipErrorInvalidDeviceFunction, hipErrorNotSupported


class Frame:
    """The explicit arguments of one launch, and the list by which HIP takes them. `words` are the bytes as 64-bit numbers;
    pointers are aligned, so one is one word."""

    __slots__ = ("_size", "bytes", "extra", "words")

    def __init__(self, packed: bytes):
        count = max(1, -(-len(packed) // 8))
        self.words = (c_uint64 * count)()
        ctypes.memmove(self.words, packed, len(packed))
        self.bytes = memoryview(self.words).cast("B")
        self._size = c_size_t(len(packed))
        self.extra = (c_void_p * 5)(
            LAUNCH_BUFFER,
            ctypes.addressof(self.words),
            LAUNCH_SIZE,
            ctypes.addressof(self._size),
            LAUNCH_END,
        )


class HipFunction:
    """A kernel of a loaded code object."""

    def __init__(self, library: HipLibrary, handle: int, metadata: KernelMetadata, module: HipModule):
        self._library = library
        self.handle = handle
        self.metadata = metadata
        self.start = library.function("hipModuleLaunchKernel")
        self._module = module  # lives as long as the function is used

    def frame(self, packed: bytes) -> Frame:
        """Arguments for launches of this kernel."""
        return Frame(packed)

    def launch(
        self, grid: tuple[int, ...], block: tuple[int, int, int], frame: Frame, stream: int | None, dynamic_lds: int
    ) -> None:
        """Gives the launch to a stream. Raises HipError. The arguments are copied before the call returns."""
        x, y, z = (*grid, 1, 1)[:3]
        code = self.start(self.handle, x, y, z, *block, dynamic_lds, stream, None, frame.extra)
        if code:
            self.fail(code)

    def fail(self, code: int) -> None:
        """Raises the error of a launch."""
        self._library.fail("hipModuleLaunchKernel", code, f"launching '{self.metadata.name}'")


class HipModule:
    """A code object in the memory of a GPU. Raises DeviceError if the GPU cannot run it, without asking the loader."""

    def __init__(
        self, library: HipLibrary, data: bytes, device: str, isa: Isa, rocm: tuple[int, int], lds_bytes: int
    ) -> None:
        self._library = library
        self._code = check_loadable(data, device, isa, rocm, lds_bytes)
        self._lds_bytes = lds_bytes
        self._device = device
        self._handle = library.handle("hipModuleLoadData", data, what=f"loading a code object on {device}")
        self._unload = weakref.finalize(self, library.release, "hipModuleUnload", self._handle)
        self._unload.atexit = False
        self._functions: dict[tuple[str, int], HipFunction] = {}

    def function(self, name: str, dynamic_lds: int = 0) -> HipFunction:
        """A kernel that may be launched with so many bytes of LDS behind its own. Raises DeviceError."""
        found = self._functions.get((name, dynamic_lds))
        if found is None:
            found = self._functions[name, dynamic_lds] = self._function(name, dynamic_lds)
        return found

    def _function(self, name: str, dynamic_lds: int) -> HipFunction:
        try:
            kernel = self._code.kernel(name)
        except CodeObjectError as e:
            raise DeviceError(str(e)) from None
        if kernel.metadata is None:
            raise DeviceError(f"kernel '{name}' has no metadata: HIP needs its list of arguments")
        total = kernel.descriptor.group_segment_fixed_size + dynamic_lds
        if total > self._lds_bytes:
            raise DeviceError(
                f"'{name}' asks for {total} bytes of LDS; {self._device} has {self._lds_bytes} for a workgroup"
            )
        handle = self._library.handle("hipModuleGetFunction", self._handle, name.encode(), what=f"finding '{name}'")
        if dynamic_lds:
            self._allow_dynamic_lds(handle, name, dynamic_lds)
        return HipFunction(self._library, handle, kernel.metadata, self)

    def _allow_dynamic_lds(self, handle: int, name: str, nbytes: int) -> None:
        """Raises the runtime's limit of dynamic LDS. Runtimes that keep a limit only for functions that were compiled into the
        program do not know this one, and then have no limit for it."""
        try:
            what = f"allowing '{name}' {nbytes} bytes of dynamic LDS"
            self._library.call("hipFuncSetAttribute", handle, MAX_DYNAMIC_LDS, nbytes, what=what)
        except HipError as e:
            if e.code not in _UNKNOWN_FUNCTION:
                raise

    def close(self) -> None:
        """Unloads the code object."""
        self._functions.clear()
        if self._unload.detach() is not None:
            self._library.call("hipModuleUnload", self._handle, what="unloading a code object")
