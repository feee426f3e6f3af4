"""The device protocol: buffers of bytes, copies, launches. Interpreter, simulator and hardware stand behind it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tileir.ir.binding import ArrayInfo
from tileir.ir.core import AbiArgument
from tileir.ir.types import Elem
from tileir.runtime.compiled import Compiled

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class DeviceError(Exception):
    """A device cannot do what it was asked: unknown name, not enough memory, a code object for another chip, or a fault
    of the running kernel. The message says what would be possible."""


class Buffer(ABC):
    """`nbytes` bytes of device memory at `address` (at least 256-byte aligned), contents undefined at first."""

    address: int
    nbytes: int


@dataclass(frozen=True)
class BufferView:
    """An array in device memory: for arguments that live there already, of any size.

    offset: byte offset of the first element in the buffer; may pass 2^32.
    strides: in elements, row-major if None.
    """

    buffer: Buffer
    elem: Elem
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    offset: int = 0

    @property
    def info(self) -> ArrayInfo:
        """Dtype, shape and strides."""
        return ArrayInfo(self.elem.np, self.shape, self.element_strides)

    @property
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
        return self.offset + low * self.elem.bytes, self.offset + (high + 1) * self.elem.bytes

    @property
    def address(self) -> int:
        """Device address of the first element."""
        return self.buffer.address + self.offset


@dataclass(frozen=True)
class Argument:
    """One argument of a launch in the order of `Kernel.abi()`; `value` is a BufferView for a view, an int for a symbol, a
    0-d NumPy array of the exact dtype for a scalar."""

    abi: AbiArgument
    value: BufferView | int | np.ndarray[Any, Any]


class Device(ABC):
    """A place where kernels run. Work is done in order; `synchronize` waits for it and raises what went wrong."""

    name: str

    @abstractmethod
    def alloc(self, nbytes: int, *, read_only: bool = False) -> Buffer:
        """New memory of at least one byte; with `read_only` kernels must not write it, and a device that can tell reports
        it if they do. Raises DeviceError if there is not enough."""

    @abstractmethod
    def free(self, buffer: Buffer) -> None:
        """Gives a buffer back; it must not be used again."""

    @abstractmethod
    def copy_in(self, buffer: Buffer, data: Bytes, offset: int = 0) -> None:
        """Writes host bytes into a buffer from byte `offset` on."""

    @abstractmethod
    def copy_out(self, buffer: Buffer, nbytes: int, offset: int = 0) -> Bytes:
        """A host copy of `nbytes` bytes of a buffer."""

    @abstractmethod
    def launch(self, compiled: Compiled, grid: tuple[int, ...], args: Sequence[Argument]) -> None:
        """Runs the kernel on `grid` workgroups (1 to 3 dimensions, none zero). Raises DeviceError, or CompileError for
        a fault that has a place in the `.tile` file."""

    @abstractmethod
    def synchronize(self) -> None:
        """Waits until everything is done."""
