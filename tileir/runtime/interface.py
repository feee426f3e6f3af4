"""Launching what only a code object is left of: its section `.tileir.meta` says what a launcher must know.

The section is JSON: `kernel`, `target`, `args` in the order of the kernel arguments, each with `name`, `kind` (view, symbol,
scalar, reports), `type`, and for views `dims`, `strides` and `written`; `grid` as expressions of the language; `block`; `alias`;
`reports` for kernels that print or assert, the sites that records name by their numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tileir.codeobject import CodeObject, CodeObjectError
from tileir.frontend import parse
from tileir.ir.binding import written_views
from tileir.ir.core import Kernel
from tileir.ir.diagnostics import CompileError
from tileir.records import dataclass
from tileir.runtime.compiled import Compiled
from tileir.runtime.device import DeviceError


@dataclass(frozen=True)
class LoadedCodeObject:
    """A `Compiled` that was read from a code object."""

    hsaco: bytes
    interface: Mapping[str, object]
    target: str
    block: tuple[int, int, int]
    kernel: Kernel | None = None


def load_code_object(data: bytes) -> LoadedCodeObject:
    """A code object that TileIR made, ready for launch. Raises DeviceError if it is none."""
    from tileir.lowering.amdgpu.compile import META_SECTION

    try:
        code = CodeObject.from_bytes(data)
    except CodeObjectError as e:
        raise DeviceError(f"not a usable code object: {e}") from None
    section = code.section(META_SECTION)
    if section is None:
        raise DeviceError(f"the code object has no section {META_SECTION}: it was not made by TileIR, or was stripped")
    try:
        interface: dict[str, Any] = json.loads(section)
        x, y, z = (int(n) for n in interface["block"])
    except (ValueError, KeyError, TypeError) as e:
        raise DeviceError(f"section {META_SECTION} of the code object is damaged: {e!r}") from None
    return LoadedCodeObject(data, interface, code.chip, (x, y, z))


def signature(compiled: Compiled) -> Kernel:
    """The kernel with its arguments and grid; its body is empty if only the interface is known. Raises DeviceError."""
    if compiled.kernel is not None:
        return compiled.kernel
    try:
        kernel = parse(_text(compiled.interface), "<code object>").kernels[0]
        if compiled.interface.get("reports"):
            kernel.attrs["reports"] = True
        return kernel
    except (CompileError, KeyError, TypeError, IndexError) as e:
        raise DeviceError(f"the code object does not describe its arguments: {e}") from None


def written(compiled: Compiled) -> frozenset[str]:
    """Names of the views that the kernel writes."""
    if compiled.kernel is not None:
        return frozenset(written_views(compiled.kernel))
    args: Any = compiled.interface["args"]
    return frozenset(a["name"] for a in args if a.get("written"))


def _text(interface: Mapping[str, Any]) -> str:
    """The head of the kernel in the language, without a body."""
    args: list[str] = []
    for a in interface["args"]:
        if a["kind"] == "view":
            strides = f", strides = [{_list(a['strides'])}]" if "strides" in a else ""
            args.append(f"%{a['name']}: global<{a['type']}[{_list(a['dims'])}]{strides}>")
        elif a["kind"] == "scalar":
            args.append(f"%{a['name']}: {a['type']}")
    aliases = "".join(f" alias(%{a}, %{b})" for a, b in interface["alias"])
    head = f"kernel @{interface['kernel']}({', '.join(args)}) grid({_list(interface['grid'])}){aliases}"
    return f"tileir 1\n{head} {{\n}}\n"


def _list(items: list[Any]) -> str:
    return ", ".join(str(i) for i in items)
