"""Arguments of a foreign kernel from the command line, read with the code object's metadata alone."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tileir.codeobject import KernelArg
from tileir.records import dataclass
from tileir.tools.common import UsageError

Array = np.ndarray[Any, Any]
DTYPES: Mapping[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
    "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "f8e8m0": ml_dtypes.float8_e8m0fnu,
    **{f"{sign}{bits}": np.dtype(f"{sign}{bits // 8}") for sign in "iu" for bits in (8, 16, 32, 64)},
}
FILLS = ("random", "zeros", "ones", "iota")
MAX_BYTES = 1 << 34
_BY_SIZE = {2: "f16", 4: "f32", 8: "f64"}


@dataclass
class Buffer:
    """An argument that points to memory. `given` is what it holds before the launch."""

    label: str
    given: Array
    dtype: str

    @property
    def type(self) -> str:
        """`f16[512x512]`."""
        return f"{self.dtype}[{'x'.join(map(str, self.given.shape))}]"


Value = Buffer | bytes


def label(argument: KernelArg, position: int) -> str:
    """What messages call an argument: its name, or its position where the metadata has no names."""
    return argument.name or str(position)


def describe(argument: KernelArg, position: int) -> str:
    """One line of --list: position, name, kind, size, offset."""
    kind = {
        "global_buffer": f"pointer to {argument.address_space or 'global'} memory",
        "dynamic_shared_pointer": "LDS address",
        "by_value": f"{argument.size} bytes by value",
    }.get(argument.value_kind, argument.value_kind)
    notes = [argument.type_name, argument.actual_access or argument.access]
    more = f" ({', '.join(n for n in notes if n)})" if any(notes) else ""
    return f"{position:>3}  {argument.name or '-':<16} {kind}{more}, at byte {argument.offset}"


def _pointer(argument: KernelArg) -> bool:
    return argument.value_kind == "global_buffer"


def find(text: str, arguments: Sequence[KernelArg], option: str) -> int:
    """Position of the argument that a name or a number means."""
    for i, argument in enumerate(arguments):
        if argument.name == text:
            return i
    if text.isascii() and text.isdigit() and int(text) < len(arguments):
        return int(text)
    names = ", ".join(label(a, i) for i, a in enumerate(arguments)) or "none"
    raise UsageError(f"{option} {text}: the kernel has no such argument; it has {names}")


def settings(texts: Sequence[str], arguments: Sequence[KernelArg], option: str) -> dict[int, str]:
    """`NAME=VALUE` or `POSITION=VALUE` texts by position. Raises UsageError."""
    found: dict[int, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise UsageError(f"{option} wants NAME=VALUE or POSITION=VALUE, not '{text}'")
        position = find(name, arguments, option)
        if position in found:
            raise UsageError(f"{option} {name} is given twice")
        found[position] = value
    return found


def values(texts: Sequence[str], arguments: Sequence[KernelArg], seed: int) -> list[Value]:
    """A value for each explicit argument. Raises UsageError for what is missing, cannot be read, or does not fit."""
    given = settings(texts, arguments, "--arg")
    missing = [i for i in range(len(arguments)) if i not in given]
    if missing:
        forms = ["random:f32:SHAPE, FILE.npy or null" if _pointer(arguments[i]) else "NUMBER" for i in missing]
        lines = [f"  --arg {label(arguments[i], i)}={form}" for i, form in zip(missing, forms, strict=True)]
        raise UsageError("\n".join(["these arguments are missing:", *lines]))
    return [_value(given[i], a, i, seed) for i, a in enumerate(arguments)]


def _value(text: str, argument: KernelArg, position: int, seed: int) -> Value:
    name = label(argument, position)
    fill = text.partition(":")[0]
    if fill in FILLS and text != fill:
        if not (_pointer(argument) or argument.size == 8):
            raise UsageError(f"--arg {name}={text}: this argument is {argument.size} bytes by value, not a pointer")
        return _filled(name, text, seed)
    if text.removesuffix(":").endswith(".npy") or ".npy:" in text:
        return _file(name, text, argument)
    if text == "null":
        return bytes(argument.size)
    if _pointer(argument):
        fills = ", ".join(f"{f}:TYPE:SHAPE" for f in FILLS)
        raise UsageError(
            f"--arg {name}={text}: a pointer wants {fills}, FILE.npy, or null; for example random:f16:512x512"
        )
    return _scalar(name, text, argument)


def _dtype(name: str, option: str) -> Any:
    if name not in DTYPES:
        raise UsageError(f"{option}: there is no type '{name}'; the types are {', '.join(DTYPES)}")
    return np.dtype(DTYPES[name])


def _filled(name: str, text: str, seed: int) -> Buffer:
    parts = text.split(":")
    option = f"--arg {name}={text}"
    if len(parts) != 3:
        raise UsageError(f"{option}: the form is {parts[0]}:TYPE:SHAPE, for example {parts[0]}:f16:512x512")
    fill, kind, sizes = parts
    dtype = _dtype(kind, option)
    try:
        shape = tuple(int(s) for s in sizes.split("x"))
    except ValueError:
        raise UsageError(f"{option}: a shape is sizes with x between them, not '{sizes}'") from None
    count = 1
    for n in shape:
        count *= n
    if any(n < 0 for n in shape) or count * dtype.itemsize > MAX_BYTES:
        raise UsageError(f"{option}: sizes are not negative, and an array has at most {MAX_BYTES} bytes")
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    integer = kind[0] in "iu"
    try:
        if fill == "zeros":  # also where the type has no zero: the bytes are zero
            data = np.zeros(count * dtype.itemsize, np.uint8).view(dtype)
        elif fill == "ones":
            data = np.ones(count, dtype)
        elif fill == "iota":  # integers that each type holds exactly
            limit = 1 << min(20, 8 * dtype.itemsize - 1) if integer else {1: 8, 2: 128}.get(dtype.itemsize, 1 << 20)
            data = (np.arange(count) % limit).astype(dtype)
        elif integer:
            data = rng.integers(0 if kind[0] == "u" else -8, 8, count).astype(dtype)
        elif kind == "f8e8m0":
            data = (2.0 ** rng.integers(-3, 4, count)).astype(dtype)
        else:
            data = rng.standard_normal(count, np.float32).astype(dtype)
        return Buffer(name, data.reshape(shape), kind)
    except MemoryError:
        raise UsageError(f"{option}: no memory for {count * dtype.itemsize} bytes") from None


def _file(name: str, text: str, argument: KernelArg) -> Value:
    """`FILE.npy`, or `FILE.npy:TYPE` for raw elements of a type that NumPy does not know and for conversions."""
    path, _, kind = text.rpartition(":") if not text.endswith(".npy") else (text, "", "")
    option = f"--arg {name}={text}"
    if not Path(path).is_file():
        raise UsageError(f"{option}: there is no file '{path}'")
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as e:
        raise UsageError(f"{option}: cannot read an array: {e}") from None
    if not isinstance(array, np.ndarray):
        raise UsageError(f"{option}: the file holds several arrays")
    array = np.ascontiguousarray(array)
    if kind:
        dtype = _dtype(kind, option)
        raw = array.dtype.kind in "Vu" and array.dtype.itemsize == dtype.itemsize and kind[0] in "fb"
        array = array.view(dtype) if raw else array.astype(dtype)
    known = next((n for n, d in DTYPES.items() if np.dtype(d) == array.dtype), None)
    if known is None:
        raise UsageError(f"{option}: the file holds {array.dtype}; name a type, for example {path}:bf16")
    if _pointer(argument) or argument.size == 8:
        return Buffer(name, array, known)
    if array.nbytes != argument.size:
        raise UsageError(f"{option}: the argument has {argument.size} bytes by value, the file {array.nbytes}")
    return array.tobytes()


def _scalar(name: str, text: str, argument: KernelArg) -> bytes:
    """`1024`, `1.5`, `1.5:f32`. Without a type, a number with a point or exponent is a float of the argument's size."""
    number, colon, kind = text.partition(":")
    option = f"--arg {name}={text}"
    size = argument.size
    integer: int | None = None
    try:
        integer = int(number, 0)
        value = float(integer)
    except (ValueError, OverflowError):
        try:
            value = float(number)
        except ValueError:
            raise UsageError(f"{option}: {size} bytes by value want a number such as 7, 0x7, 1.5 or 1.5:f32") from None
    if not colon:
        floating = argument.type_name in ("half", "float", "double")
        kind = _BY_SIZE.get(size, "") if floating or integer is None else f"i{8 * size}"
    if kind[:1] in "iu" and integer is not None and kind[1:].isdigit():
        bits = 8 * size if not colon else int(kind[1:])
        low, high = -(1 << bits - 1), (1 << bits) - 1
        if bits != 8 * size or not low <= integer <= high:
            raise UsageError(f"{option}: the argument has {size} bytes: an integer from {low} to {high} fits")
        return (integer & (1 << 8 * size) - 1).to_bytes(size, "little")
    if kind not in DTYPES:
        raise UsageError(
            f"{option}: an argument of {size} bytes by value wants a number, or a .npy file with its bytes"
        )
    dtype = _dtype(kind, option)
    if kind[0] in "iu" or dtype.itemsize != size:
        raise UsageError(f"{option}: the argument has {size} bytes, which a number of type {kind} does not make")
    try:
        return np.array([value]).astype(dtype).tobytes()
    except (OverflowError, struct.error):
        raise UsageError(f"{option}: the number does not fit into {kind}") from None


def npy(array: Array) -> bytes:
    """A .npy file; types that NumPy does not know are saved as f32, which holds each of their values."""
    buffer = io.BytesIO()
    known = array.dtype.kind in "iub" or array.dtype in (np.float16, np.float32, np.float64)
    np.save(buffer, array if known else array.astype(np.float32))
    return buffer.getvalue()
