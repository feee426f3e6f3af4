"""Names of the native functions of the timing model in the op library of the engine."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from tileir.simulator.cache import digest
from tileir.simulator.engine import Engine


@cache
def _version() -> str:
    """Digest of the sources that generate the functions: the engine's own covers the ops alone."""
    files = sorted(Path(__file__).parent.glob("native_*.py"))
    return digest(
        [part for file in (*files, Path(__file__).parent / "layout.py") for part in (file.name, file.read_bytes())]
    )


def function(engine: Engine, name: str, make: Callable[[str], str], arguments: int) -> Callable[..., int]:
    """A native function of so many pointer arguments that returns an i32. make: module text for a symbol name."""
    key = f"timing|{name}|{_version()}"
    address = engine.addresses({key: make})[key]
    return ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * arguments)(address)


def one_module(functions: Sequence[str]) -> str:
    """The text of several functions as one module: each declaration once, every function but the last internal."""
    declarations: dict[str, None] = {}
    bodies: list[str] = []
    for i, text in enumerate(functions):
        lines = text.splitlines()
        declarations |= dict.fromkeys(line for line in lines if line.startswith("declare "))
        body = "\n".join(line for line in lines if not line.startswith("declare "))
        bodies.append(body.replace("define ", "define internal ", 1) if i < len(functions) - 1 else body)
    return "\n".join([*declarations, *bodies, ""])
