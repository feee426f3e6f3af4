"""The reference interpreter as a device: memory is host memory, untouched pages of large buffers cost nothing."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from tileir.interpreter import run
from tileir.runtime.compiled import Compiled
from tileir.runtime.device import Argument, Buffer, BufferView, Bytes, Device, DeviceError, DeviceProperties, Stream
from tileir.runtime.packing import pack, unpack
from tileir.runtime.properties import interpreter_properties

# Linux: do not count untouched pages (the constant is in the module from Python 3.13 on; value from mman.h)
_MOST_ITERATIONS = 1 << 24  # of any one loop: a kernel that goes on longer is taken not to end
_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0


class HostBuffer(Buffer):
    """Anonymous memory of the process, zero at first."""

    def __init__(self, nbytes: int, device: Device):
        try:
            self._map = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
        except (OSError, OverflowError, ValueError) as e:
            raise DeviceError(f"no memory for a buffer of {nbytes} bytes: {e}") from None
        self.memory: Bytes = np.frombuffer(self._map, np.uint8)
        self.nbytes = nbytes
        self.address = int(self.memory.ctypes.data)
        self.device = device


class InterpreterDevice(Device):
    """Runs the IR of a compiled kernel with NumPy; the code object is not looked at."""

    name = "interpreter"

    @property
    def properties(self) -> DeviceProperties:
        return interpreter_properties()

    def alloc(self, nbytes: int, *, read_only: bool = False) -> Buffer:
        return HostBuffer(nbytes, self)

    def free(self, buffer: Buffer) -> None:
        """Memory goes when the last reference goes."""

    def owns(self, buffer: Buffer) -> bool:
        """Memory of the host serves every interpreter."""
        return isinstance(buffer, HostBuffer)

    def copy_in(self, buffer: Buffer, data: Bytes, offset: int = 0, *, stream: Stream | None = None) -> None:
        _memory(buffer)[offset : offset + len(data)] = data

    def copy_out(self, buffer: Buffer, nbytes: int, offset: int = 0, *, stream: Stream | None = None) -> Bytes:
        return _memory(buffer)[offset : offset + nbytes].copy()

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
        data = _memory(source)[source_offset : source_offset + nbytes]
        _memory(target)[target_offset : target_offset + nbytes] = data

    def fill(self, buffer: Buffer, value: int, *, stream: Stream | None = None) -> None:
        _memory(buffer)[:] = value

    def launch(
        self,
        compiled: Compiled,
        grid: tuple[int, ...],
        args: Sequence[Argument],
        *,
        stream: Stream | None = None,
        dynamic_lds: int = 0,
    ) -> None:
        if compiled.kernel is None:
            raise DeviceError("the interpreter runs tile IR, but only the code object of this kernel is known")
        values: dict[str, Any] = {}
        unpacked: list[tuple[BufferView, np.ndarray[Any, Any]]] = []
        symbols: dict[str, int] = {}
        for a in args:
            if a.abi.kind == "reports":
                continue  # the interpreter prints and asserts itself
            if isinstance(a.value, BufferView):
                packed = a.value.elem.unit[0] > 1
                codes = _codes(a.value) if packed else _memory(a.value.buffer)
                values[a.abi.name] = _array(a.value, codes, 0 if packed else a.value.offset)
                if packed:
                    unpacked.append((a.value, codes))
            elif isinstance(a.value, int):
                symbols[a.abi.name] = a.value
            else:
                values[a.abi.name] = a.value
        run(compiled.kernel, values, symbols=symbols, max_iterations=_MOST_ITERATIONS)
        for view, codes in unpacked:
            low, high = view.extent
            _memory(view.buffer)[low:high] = pack(codes, view.elem)

    def synchronize(self) -> None:
        """Launches return when they are done."""


def _memory(buffer: Buffer) -> Bytes:
    if not isinstance(buffer, HostBuffer):
        raise DeviceError("the buffer belongs to another device")
    return buffer.memory


def _codes(view: BufferView) -> Bytes:
    """Elements that share bytes in memory, in a byte each."""
    low, high = view.extent
    return unpack(_memory(view.buffer)[low:high], view.elem, (high - low) * 8 // view.elem.bits)


def _array(view: BufferView, memory: Bytes, offset: int) -> np.ndarray[Any, Any]:
    strides = tuple(s * view.elem.bytes for s in view.element_strides)
    return np.ndarray(view.shape, view.elem.np, memory.data, offset, strides)
