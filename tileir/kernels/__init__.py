"""The library of kernels, as texts."""

from __future__ import annotations

from importlib import resources


def names() -> tuple[str, ...]:
    """Names of the library's kernel files, without `.tile`."""
    files = resources.files(__name__).iterdir()
    return tuple(sorted(f.name.removesuffix(".tile") for f in files if f.name.endswith(".tile")))


def source(name: str) -> str:
    """Text of a kernel file. Raises KeyError that lists what there is."""
    if name not in names():
        raise KeyError(f"no kernel '{name}' in the library; it has {', '.join(names())}")
    return resources.files(__name__).joinpath(f"{name}.tile").read_text(encoding="utf-8")
