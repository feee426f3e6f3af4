"""TileIR: a compiler for a textual tile IR, with the simulator that runs what it emits.

    import tileir

    kernel = tileir.compile(open("gemm.tile").read(), "gfx950", params={"BM": 64})
    kernel.launch(A=a, B=b, C=c)        # NumPy arrays; on the simulator of the chip

What stands in `__all__` may be relied on (docs/embedding.md). Everything is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tileir.api.builder import KernelBuilder
    from tileir.api.compiled import CompiledKernel, Job, compile, compile_many
    from tileir.api.schedule import ScheduleBuilder
    from tileir.api.values import Access, Size, Span, Tile, View, cdiv, span, symbol
    from tileir.bundle import Bundle, BundledKernel, BundleError, load_bundle, write_bundle
    from tileir.frontend import parse, parse_file
    from tileir.ir.binding import LaunchError
    from tileir.ir.diagnostics import CompileError, Diagnostic
    from tileir.ir.types import Elem
    from tileir.runtime import (
        Device,
        DeviceError,
        DeviceProperties,
        Event,
        Measurement,
        Stream,
        benchmark,
        default_device,
        device_names,
        devices,
        get_device,
        load_code_object,
    )
    from tileir.tuning import AdaptiveKernel, Trial, Tuned, adaptive, choose, tune

__version__ = "0.1.0"

_HOMES = {
    "tileir.api.builder": ("KernelBuilder",),
    "tileir.api.compiled": ("CompiledKernel", "Job", "compile", "compile_many"),
    "tileir.api.schedule": ("ScheduleBuilder",),
    "tileir.api.values": ("Access", "Size", "Span", "Tile", "View", "cdiv", "span", "symbol"),
    "tileir.bundle": ("Bundle", "BundleError", "BundledKernel", "load_bundle", "write_bundle"),
    "tileir.frontend": ("parse", "parse_file"),
    "tileir.ir.binding": ("LaunchError",),
    "tileir.ir.diagnostics": ("CompileError", "Diagnostic"),
    "tileir.ir.types": ("Elem",),
    "tileir.tuning": ("AdaptiveKernel", "Trial", "Tuned", "adaptive", "choose", "tune"),
    "tileir.runtime": (
        "Device",
        "DeviceError",
        "DeviceProperties",
        "Event",
        "Measurement",
        "Stream",
        "benchmark",
        "default_device",
        "device_names",
        "devices",
        "get_device",
        "load_code_object",
    ),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_ELEMS = (
    "i1", "i8", "i16", "i32", "i64", "f64", "f32", "f16", "bf16", "f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E5M2FNUZ",
    "f8E8M0FNU", "f6E2M3FN", "f6E3M2FN", "f4E2M1FN",
)  # fmt: skip

if TYPE_CHECKING:
    i1: Elem
    i8: Elem
    i16: Elem
    i32: Elem
    i64: Elem
    f64: Elem
    f32: Elem
    f16: Elem
    bf16: Elem
    f8E4M3FN: Elem
    f8E5M2: Elem
    f8E4M3FNUZ: Elem
    f8E5M2FNUZ: Elem
    f8E8M0FNU: Elem
    f6E2M3FN: Elem
    f6E3M2FN: Elem
    f4E2M1FN: Elem

__all__ = [
    "Access",
    "AdaptiveKernel",
    "Bundle",
    "BundleError",
    "BundledKernel",
    "CompileError",
    "CompiledKernel",
    "Device",
    "DeviceError",
    "DeviceProperties",
    "Diagnostic",
    "Elem",
    "Event",
    "Job",
    "KernelBuilder",
    "LaunchError",
    "Measurement",
    "ScheduleBuilder",
    "Size",
    "Span",
    "Stream",
    "Tile",
    "Trial",
    "Tuned",
    "View",
    "adaptive",
    "benchmark",
    "bf16",
    "cdiv",
    "choose",
    "compile",
    "compile_many",
    "default_device",
    "device_names",
    "devices",
    "f4E2M1FN",
    "f6E2M3FN",
    "f6E3M2FN",
    "f8E4M3FN",
    "f8E4M3FNUZ",
    "f8E5M2",
    "f8E5M2FNUZ",
    "f8E8M0FNU",
    "f16",
    "f32",
    "f64",
    "get_device",
    "i1",
    "i8",
    "i16",
    "i32",
    "i64",
    "load_bundle",
    "load_code_object",
    "parse",
    "parse_file",
    "span",
    "symbol",
    "tune",
    "write_bundle",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _ELEMS:
        value = import_module("tileir.ir.types").ELEMS[name]
    elif name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'tileir' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
