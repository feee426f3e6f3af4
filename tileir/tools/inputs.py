"""Inputs of a kernel from the command line: sizes, files, and deterministic numbers for everything else."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tileir.ir.arrays import strided
from tileir.ir.core import Kernel, Value
from tileir.ir.types import Elem, GlobalType, TileType
from tileir.records import dataclass
from tileir.tools.common import UsageError

Array = np.ndarray[Any, Any]
FILLS = ("random", "zeros", "ones", "iota")


@dataclass
class Inputs:
    """Arrays and numbers by argument, the dimension symbols, and remarks on what was converted."""

    values: dict[str, Any]
    symbols: dict[str, int]
    remarks: list[str]


def settings(texts: Iterable[str], option: str) -> dict[str, str]:
    """`NAME=VALUE` texts, several of them separated by commas for --shape. Raises UsageError."""
    found: dict[str, str] = {}
    for text in texts:
        for part in text.split(",") if option == "--shape" else [text]:
            name, equals, value = part.strip().partition("=")
            name = name.removeprefix("%")
            if not equals or not name or not value:
                raise UsageError(f"{option} wants NAME=VALUE, not '{part}'")
            if name in found:
                raise UsageError(f"{option} {name} is given twice")
            found[name] = value
    return found


def sizes(texts: Iterable[str], kernel: Kernel) -> dict[str, int]:
    """The dimension symbols that --shape gives. Raises UsageError."""
    known = kernel.symbols()
    out: dict[str, int] = {}
    for name, value in settings(texts, "--shape").items():
        if name not in known:
            legal = ", ".join(known) or "none"
            raise UsageError(f"--shape {name}: kernel '{kernel.name}' has no such dimension; it has {legal}")
        try:
            out[name] = int(value)
        except ValueError:
            raise UsageError(f"--shape {name}={value}: a size is an integer") from None
        if out[name] < 0:
            raise UsageError(f"--shape {name}={value}: a size is not negative")
    return out


def make_inputs(
    kernel: Kernel, shape: Iterable[str], args: Iterable[str], npz: str | None, seed: int, *, small: bool = False
) -> Inputs:
    """All arguments of a kernel.

    shape: `M=512,N=512` texts; args: `A=file.npy`, `A=zeros`, `x=1.5` texts; npz: a file with arrays by argument.
    Sizes that are not given follow from the files; strides that are not given are those of dense rows.
    small: random floats are integers from -3 to 3, so that sums are exact.

    Raises UsageError for names that do not exist, files that cannot be read and sizes that are missing.
    """
    symbols = sizes(shape, kernel)
    wanted = settings(args, "--arg")
    known = {a.name: a for a in kernel.args}
    for name in wanted:
        if name not in known:
            raise UsageError(f"--arg {name}: kernel '{kernel.name}' has no argument %{name}; it has {', '.join(known)}")
    remarks: list[str] = []
    given = _archive(npz, known, remarks)
    for name, text in wanted.items():
        if isinstance(known[name].type, GlobalType) and text not in FILLS:
            given[name] = _convert(_load(text), known[name], text, remarks)
    for name, array in given.items():
        _learn(known[name], array, symbols)
    _dense_strides(kernel, symbols)
    missing = [s for s in kernel.symbols() if s not in symbols]
    if missing:
        raise UsageError(
            f"the sizes of {', '.join(missing)} are not known: --shape {','.join(f'{s}=…' for s in missing)}"
        )
    values: dict[str, Any] = {}
    for name, arg in known.items():
        if name in given:
            values[name] = given[name]
            continue
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        if isinstance(arg.type, GlobalType):
            values[name] = _array(arg.type, symbols, wanted.get(name, "random"), rng, small)
        else:
            assert isinstance(arg.type, TileType)
            values[name] = _scalar(name, arg.type.elem, wanted.get(name), rng)
    return Inputs(values, symbols, remarks)


def numbers(elem: Elem, count: int, rng: np.random.Generator, *, small: bool = False) -> Array:
    """Random elements: N(0, 1) for floats (small integers with `small`), -8 to 7 for integers (0 or 1 for i1)."""
    if elem.is_bool:
        return rng.integers(0, 2, count).astype(np.bool_)
    if elem.is_int:
        return rng.integers(-8, 8, count).astype(elem.np)
    if elem.name == "f8E8M0FNU":  # powers of two: scales
        return (2.0 ** rng.integers(-3, 4, count)).astype(elem.np)
    return (rng.integers(-3, 4, count) if small else rng.standard_normal(count, np.float32)).astype(elem.np)


def _array(view: GlobalType, symbols: Mapping[str, int], fill: str, rng: np.random.Generator, small: bool) -> Array:
    """A view filled as asked; elements between its rows are filled alike."""
    shape = tuple(d if isinstance(d, int) else symbols[d] for d in view.dims)
    strides = _element_strides(view, shape, symbols)
    extent = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    elem = view.elem
    try:
        match fill:
            case "zeros":
                flat = np.zeros(extent, elem.np)
            case "ones":
                flat = np.ones(extent, elem.np)
            case "iota":
                # small enough to be exact in every type: counts modulo 2^(bits of the significand)
                flat = (np.arange(extent) % (8 if elem.bits <= 8 else 128 if elem.bits <= 16 else 1 << 20)).astype(
                    elem.np
                )
            case _:
                flat = numbers(elem, extent, rng, small=small)
    except (MemoryError, ValueError, OverflowError) as e:
        raise UsageError(f"no memory for an array of shape {list(shape)}: {e}") from None
    size = elem.np.itemsize
    return strided(flat, shape, [s * size for s in strides])


def _element_strides(view: GlobalType, shape: tuple[int, ...], symbols: Mapping[str, int]) -> tuple[int, ...]:
    if view.strides is not None:
        return tuple(s if isinstance(s, int) else symbols[s] for s in view.strides)
    dense = [1] * len(shape)
    for d in reversed(range(len(shape) - 1)):
        dense[d] = dense[d + 1] * shape[d + 1]
    return tuple(dense)


def _scalar(name: str, elem: Elem, text: str | None, rng: np.random.Generator) -> int | float | bool:
    """The number given, else a random one: 1 to 8, or between 1/4 and 3/4."""
    if text is None or text == "random":
        if elem.is_bool:
            return True
        return int(rng.integers(1, 9)) if elem.is_int else float(rng.uniform(0.25, 0.75))
    try:
        if elem.is_bool:
            return {"true": True, "false": False, "1": True, "0": False}[text]
        return int(text, 0) if elem.is_int else float(text)
    except (ValueError, KeyError):
        legal = "true or false" if elem.is_bool else "an integer" if elem.is_int else "a number"
        raise UsageError(f"--arg {name}={text}: %{name} is {elem}; give {legal}, or random") from None


def _archive(path: str | None, known: Mapping[str, Value], remarks: list[str]) -> dict[str, Array]:
    if path is None:
        return {}
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, AttributeError, TypeError) as e:
        raise UsageError(f"cannot read arrays from '{path}': {e}") from None
    unknown = [n for n in arrays if n not in known or not isinstance(known[n].type, GlobalType)]
    if unknown:
        views = ", ".join(n for n, a in known.items() if isinstance(a.type, GlobalType))
        raise UsageError(f"'{path}' holds {', '.join(unknown)}, but the views of the kernel are {views}")
    return {name: _convert(array, known[name], path, remarks) for name, array in arrays.items()}


def _load(path: str) -> Array:
    if not Path(path).exists():
        raise UsageError(f"there is no file '{path}'; an array is a .npy file or one of {', '.join(FILLS)}")
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as e:
        raise UsageError(f"cannot read an array from '{path}': {e}") from None
    if not isinstance(array, np.ndarray):
        raise UsageError(f"'{path}' holds several arrays: --npz {path}")
    return array


def _convert(array: Array, arg: Value, path: str, remarks: list[str]) -> Array:
    """The array in the element type of the view: raw bytes as they are, floats rounded to it with a remark."""
    assert isinstance(arg.type, GlobalType)
    elem = arg.type.elem
    if array.dtype == elem.np:
        return array
    if array.dtype.kind == "V" and array.dtype.itemsize == elem.np.itemsize:
        return array.view(elem.np)
    if elem.is_float and array.dtype.kind == "f":
        remarks.append(f"%{arg.name}: {array.dtype} of '{path}' is rounded to {elem}")
        return array.astype(elem.np)
    raise UsageError(f"'{path}' holds {array.dtype}, but %{arg.name} is a view of {elem}")


def _learn(arg: Value, array: Array, symbols: dict[str, int]) -> None:
    """Sizes that an array tells; contradictions are found when the launch is bound."""
    assert isinstance(arg.type, GlobalType)
    if array.ndim != arg.type.rank:
        return
    for dim, n in zip(arg.type.dims, array.shape, strict=True):
        if isinstance(dim, str):
            symbols.setdefault(dim, n)
    for stride, n in zip(arg.type.strides or (), array.strides, strict=False):
        if isinstance(stride, str):
            symbols.setdefault(stride, n // array.itemsize)


def _dense_strides(kernel: Kernel, symbols: dict[str, int]) -> None:
    for arg in kernel.args:
        if not isinstance(arg.type, GlobalType) or arg.type.strides is None:
            continue
        dense = 1
        for dim, stride in reversed(list(zip(arg.type.dims, arg.type.strides, strict=True))):
            if isinstance(stride, str):
                symbols.setdefault(stride, dense)
            n = dim if isinstance(dim, int) else symbols.get(dim)
            if n is None:
                break
            dense *= n
