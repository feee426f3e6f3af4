"""PyTorch itself, imported in one place, and its element types."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tileir.ir.types import ELEMS, Elem

OLDEST = (2, 4)
"""The first version with `torch.library.custom_op`."""
_NAMES = {
    "i1": "bool",
    "bf16": "bfloat16",
    "f8E4M3FN": "float8_e4m3fn",
    "f8E5M2": "float8_e5m2",
    "f8E4M3FNUZ": "float8_e4m3fnuz",
    "f8E5M2FNUZ": "float8_e5m2fnuz",
    "f8E8M0FNU": "float8_e8m0fnu",
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
}


def _load() -> Any:
    try:
        module = import_module("torch")
    except ModuleNotFoundError as e:
        if e.name != "torch":
            raise
        raise ModuleNotFoundError("tileir.torch needs PyTorch: pip install 'tileir[torch]'", name="torch") from None
    version = tuple(int(n) for n in module.__version__.split("+")[0].split(".")[:2])
    if version < OLDEST:
        raise ImportError(f"tileir.torch needs PyTorch 2.4 or newer, this is {module.__version__}", name="torch")
    return module


torch: Any = _load()


def dtype_of(elem: Elem) -> Any:
    """The torch.dtype of an element type. Raises TypeError where this PyTorch has none."""
    found = getattr(torch, _NAMES.get(elem.name, ""), None)
    if found is None:
        raise TypeError(f"PyTorch {torch.__version__} has no dtype for elements of {elem}")
    return found


def elem_of(dtype: Any) -> Elem:
    """The element type of a torch.dtype, or of a tensor. Raises TypeError for one that the language does not have."""
    dtype = getattr(dtype, "dtype", dtype)
    for name, known in _NAMES.items():
        if getattr(torch, known, None) == dtype:
            return ELEMS[name]
    raise TypeError(f"no element type of the language is {dtype}; types: {', '.join(_NAMES.values())}")
