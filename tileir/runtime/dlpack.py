"""DLPack in both directions, by the C structures of its version 1 (and the older form without a version).

NumPy's own reader knows no bf16 and no 8-bit floats, and nothing of GPUs; hence this one.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p, py_object
from typing import Any

from tileir.ir.types import ELEMS, Elem
from tileir.runtime.device import BufferView, Device, DeviceError
from tileir.runtime.interchange import Elsewhere, on_gpu, on_host

CPU, CUDA, CUDA_HOST, ROCM, ROCM_HOST = 1, 2, 3, 10, 11  # DLDeviceType
_HOST = (CPU, CUDA_HOST, ROCM_HOST)
_INT, _FLOAT, _BFLOAT, _BOOL = 0, 2, 4, 6  # DLDataTypeCode
_CODES = {"f8E4M3FN": 10, "f8E4M3FNUZ": 11, "f8E5M2": 12, "f8E5M2FNUZ": 13, "f8E8M0FNU": 14, "bf16": _BFLOAT}
_READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY
_VERSION = (1, 0)


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", c_void_p), ("deleter", c_void_p))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    )


_python = ctypes.pythonapi
_new = ctypes.PYFUNCTYPE(py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", _python))
_pointer = ctypes.PYFUNCTYPE(c_void_p, py_object, c_char_p)(("PyCapsule_GetPointer", _python))
_is = ctypes.PYFUNCTYPE(ctypes.c_int, py_object, c_char_p)(("PyCapsule_IsValid", _python))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, py_object, c_char_p)(("PyCapsule_SetName", _python))
# in the destructor of a capsule it must not be referenced again: its address is handed on
_is_at = ctypes.PYFUNCTYPE(ctypes.c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", _python))
_pointer_at = ctypes.PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", _python))
_FORMS: tuple[tuple[bytes, bytes, type[_Managed] | type[_Versioned]], ...] = (
    (b"dltensor_versioned", b"used_dltensor_versioned", _Versioned),
    (b"dltensor", b"used_dltensor", _Managed),
)


class _Import:
    """The memory of a capsule; its deleter is called with the last reference."""

    def __init__(self, capsule: Any):
        for name, used, form in _FORMS:
            if _is(capsule, name):
                address = _pointer(capsule, name)
                self._address: int = address or 0
                self.managed = form.from_address(self._address)
                _rename(capsule, used)
                return
        raise DeviceError("__dlpack__ did not give a DLPack capsule")

    def __del__(self) -> None:
        managed = getattr(self, "managed", None)
        if managed is not None and managed.deleter:
            _Deleter(managed.deleter)(self._address)


def import_(value: Any, device: Device) -> Any:
    """What `as_array` makes of an object that speaks DLPack. The capsule is asked for without copying, and without a
    stream: what it holds is ready for the default stream."""
    kind, index = value.__dlpack_device__()
    if kind not in (*_HOST, CUDA, ROCM):
        return Elsewhere(f"a device of DLPack type {int(kind)}")
    try:
        capsule = value.__dlpack__(max_version=_VERSION)
    except TypeError:  # from before versions
        capsule = value.__dlpack__()
    held = _Import(capsule)
    tensor = held.managed.tensor
    elem = _elem(tensor.code, tensor.bits, tensor.lanes)
    if elem is None:
        return f"an array of DLPack type {tensor.code} with {tensor.bits} bits in {tensor.lanes} lanes"
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None
    address = (tensor.data or 0) + tensor.byte_offset
    read_only = isinstance(held.managed, _Versioned) and bool(held.managed.flags & _READ_ONLY)
    if kind in _HOST:
        return on_host(address, elem, shape, strides, held, read_only=read_only)
    return on_gpu(address, int(index), elem, shape, strides, device, held, read_only=read_only)


def _elem(code: int, bits: int, lanes: int) -> Elem | None:
    if lanes != 1:
        return None
    for elem in ELEMS.values():
        if _type_of(elem) == (code, bits):
            return elem
    return None


def _type_of(elem: Elem) -> tuple[int, int] | None:
    """DLDataTypeCode and bits of an element type; None for those that fill no whole bytes."""
    if elem.is_bool:
        return _BOOL, 8
    if elem.bits < 8:
        return None
    return _CODES.get(elem.name, _INT if elem.is_int else _FLOAT), elem.bits


_exported: dict[int, Any] = {}
"""What is handed out, by the address of its structure: kept until its deleter is called."""


@_Deleter
def _delete(address: int) -> None:
    _exported.pop(address, None)


@_Deleter
def _drop(capsule: int) -> None:
    """Destructor of a capsule: one that nobody has taken over still owns its structure."""
    for name, _, _form in _FORMS:
        if _is_at(capsule, name):
            _delete(_pointer_at(capsule, name))


def export(
    view: BufferView, *, max_version: tuple[int, int] | None = None, copy: bool | None = None, **_: Any
) -> object:
    """A capsule of the memory of a view; the caller sees to it that work that writes it is done, or in order with what follows.
    Raises DeviceError for memory that nobody else can see, BufferError if a copy is asked for."""
    kind = _type_of(view.elem)
    if kind is None:
        raise DeviceError(f"DLPack has no packed {view.elem}")
    if copy:
        raise BufferError("TileIR hands its arrays over without a copy")
    host = getattr(view.buffer, "memory", None)
    simulated = getattr(view.buffer, "allocation", None)
    if simulated is not None:
        host = simulated.bytes
    address = view.address if host is None else int(host.ctypes.data) + view.offset
    rank = len(view.shape)
    shape = (c_int64 * max(1, rank))(*view.shape)
    strides = (c_int64 * max(1, rank))(*view.element_strides)
    tensor = _Tensor(address, *view.__dlpack_device__(), rank, *kind, 1, shape, strides, 0)
    if max_version is not None and max_version >= (1, 0):
        flags = _READ_ONLY if view.read_only else 0
        managed = _Versioned(*_VERSION, None, ctypes.cast(_delete, c_void_p), flags, tensor)
        name = _FORMS[0][0]
    elif view.read_only:
        raise BufferError("a read-only array needs a consumer that knows DLPack 1.0")
    else:
        managed = _Managed(tensor, None, ctypes.cast(_delete, c_void_p))
        name = _FORMS[1][0]
    address = ctypes.addressof(managed)
    _exported[address] = (managed, shape, strides, view)
    return _new(address, name, ctypes.cast(_drop, c_void_p))
