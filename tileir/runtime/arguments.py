"""Packing kernel arguments into the bytes that the hardware reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tileir.codeobject import KernelMetadata
from tileir.ir.core import AbiArgument, names_in_metadata
from tileir.ir.types import TileType
from tileir.records import dataclass
from tileir.runtime.device import Argument, BufferView, DeviceError

POINTER_BYTES = 8


@dataclass(frozen=True)
class Slot:
    """Where one argument lies in the kernarg segment, in bytes."""

    offset: int
    size: int


def size_of(abi: AbiArgument) -> int:
    """Bytes of an argument: pointers 8, i1 one byte, everything else its element's size."""
    if abi.kind in ("view", "reports"):
        return POINTER_BYTES
    assert isinstance(abi.type, TileType)
    return abi.type.elem.bytes


def natural_layout(abi: Sequence[AbiArgument]) -> tuple[Slot, ...]:
    """Slots as LLVM lays out kernel arguments: in order, each aligned to its size (LLVM AMDGPUUsage, "Kernel Argument
    Memory": natural alignment of each type)."""
    slots: list[Slot] = []
    offset = 0
    for a in abi:
        size = size_of(a)
        offset = -(-offset // size) * size
        slots.append(Slot(offset, size))
        offset += size
    return tuple(slots)


def metadata_layout(abi: Sequence[AbiArgument], metadata: KernelMetadata) -> tuple[Slot, ...]:
    """Slots that the code object states, after checking that they are those of this kernel. Raises DeviceError."""
    found = metadata.explicit_args
    if len(found) != len(abi):
        raise DeviceError(
            f"the code object's '{metadata.name}' takes {len(found)} arguments, but the kernel has {len(abi)}: "
            f"{', '.join(a.name for a in abi)}"
        )
    slots: list[Slot] = []
    for want, name, got in zip(abi, names_in_metadata(abi), found, strict=True):
        if got.name not in ("", name) or got.size != size_of(want):
            raise DeviceError(
                f"argument {len(slots)} of '{metadata.name}' is {got.name or 'unnamed'} of {got.size} bytes in the code "
                f"object, but {name} of {size_of(want)} bytes in the kernel"
            )
        slots.append(Slot(got.offset, got.size))
    return tuple(slots)


def slots_of(abi: Sequence[AbiArgument], metadata: KernelMetadata | None) -> tuple[Slot, ...]:
    """Where the arguments lie: what the code object states, or for one without metadata the natural layout."""
    return natural_layout(abi) if metadata is None else metadata_layout(abi, metadata)


def kernarg(args: Sequence[Argument], metadata: KernelMetadata | None) -> bytes:
    """The explicit part of the kernarg segment of a launch. Hidden arguments lie behind it and are filled in by who launches;
    arguments that the hardware preloads into registers are read from the same bytes. Raises DeviceError."""
    return pack(args, slots_of([a.abi for a in args], metadata))


def argument_bytes(arg: Argument) -> bytes:
    """Little-endian bytes of one argument."""
    if isinstance(arg.value, BufferView):
        return arg.value.address.to_bytes(POINTER_BYTES, "little")
    if isinstance(arg.value, int):
        return arg.value.to_bytes(size_of(arg.abi), "little", signed=True)
    return np.asarray(arg.value).tobytes()


def pack(args: Sequence[Argument], slots: Sequence[Slot]) -> bytes:
    """The explicit part of the kernarg segment; gaps are zero."""
    out = bytearray(max((s.offset + s.size for s in slots), default=0))
    for arg, slot in zip(args, slots, strict=True):
        out[slot.offset : slot.offset + slot.size] = argument_bytes(arg)
    return bytes(out)
