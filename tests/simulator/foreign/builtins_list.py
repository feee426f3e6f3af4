"""The builtin functions that the installed clang 22 has for a chip, read from the tables of its library."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PREFIX = "__builtin_amdgcn_"
_ENTRY = re.compile(rb"(?<=\0)(__builtin_amdgcn_[a-zA-Z0-9_]+)\0([^\0]*)\0([^\0]*)\0([^\0]*)(?=\0)")
_LIBRARY_FEATURES = ("vmem-to-lds-load-insts", "gws")
"""Features of these chips that clang keeps to itself."""


@dataclass(frozen=True)
class Builtin:
    """name: without the prefix. types: result and parameters in clang's encoding."""

    name: str
    types: str

    @property
    def signature(self) -> list[Type]:
        return _split(self.types)


@dataclass(frozen=True)
class Type:
    """constant: must be known at compile time. count: elements of a vector, 0 for a scalar. element: C type."""

    element: str
    count: int = 0
    constant: bool = False
    pointer: bool = False

    @property
    def c(self) -> str:
        """C text of the type; vectors by the names of :data:`VECTOR_TYPES`."""
        return f"v{self.count}{self.element}" if self.count else self.element


_BASES = {"v": "void", "b": "bool_", "c": "i8", "s": "i16", "i": "i32", "f": "float", "d": "double"}
_BASES |= {"h": "half", "x": "half", "y": "bf16"}
_PART = re.compile(r"(I?)(?:[VE](\d+))?(Q[a-z]|[USZWL]*[vbcsifdhxy])((?:[CD]*\*\d*)*[CD.]*)")


def _split(types: str) -> list[Type]:
    out: list[Type] = []
    position = 0
    while position < len(types):
        match = _PART.match(types, position)
        if match is None:
            raise ValueError(f"unknown type encoding {types!r}")
        position = match.end()
        constant, count, base, tail = match.groups()
        if base.startswith("Q"):
            element = {"Qb": "rsrc"}.get(base, "texture")
        else:
            element = _BASES[base[-1]]
            if element == "i32" and ("W" in base or "L" in base):
                element = "i64"
            if "U" in base and element.startswith("i"):
                element = "u" + element[1:]
        out.append(Type(element, int(count or 0), bool(constant), "*" in tail))
    return out


@cache
def library() -> bytes | None:
    """The library with the tables, or None where clang 22 is not installed in the usual way."""
    clang = shutil.which("clang-22")
    if clang is None:
        return None
    folder = Path(clang).resolve().parent.parent / "lib"
    found = sorted(folder.glob("libclang-cpp.so*"))
    return found[0].read_bytes() if found else None


def _features(chip: str) -> set[str]:
    command = ["clang-22", "--target=amdgcn-amd-amdhsa", f"-mcpu={chip}", "-x", "c", "-", "-S", "-emit-llvm", "-o", "-"]
    run = subprocess.run(command, input="int f(void) { return 0; }", capture_output=True, text=True, check=True)
    match = re.search(r'"target-features"="([^"]*)"', run.stdout)
    assert match
    return {part[1:] for part in match[1].split(",")}


def _offered(condition: str, features: set[str]) -> bool:
    """A condition such as ``a,b|c``."""
    return not condition or any(
        all(part in features for part in choice.split(","))
        for choice in condition.replace("(", "").replace(")", "").split("|")
    )


@cache
def available(chip: str) -> tuple[Builtin, ...]:
    """The builtins of a chip, by name."""
    data = library()
    assert data is not None
    features = _features(chip) | set(_LIBRARY_FEATURES)
    found = {}
    for match in _ENTRY.finditer(data):
        name, types, _, condition = (part.decode() for part in match.groups())
        if _offered(condition, features):
            found[name.removeprefix(PREFIX)] = types
    return tuple(Builtin(name, types) for name, types in sorted(found.items()))
