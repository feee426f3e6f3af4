"""Bundles in Python: writing them, and launching what is in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import tileir
from tileir.bundle.container import BundleError, pack, unpack
from tileir.bundle.manifest import FORMAT, check_distinct, check_readable, describe, setting_text, variant_of
from tileir.runtime import Device, load_code_object
from tileir.runtime.launchable import Launchable


class HasCode(Protocol):
    """A compiled kernel, such as `tileir.CompiledKernel`."""

    @property
    def hsaco(self) -> bytes: ...


def bundle_bytes(kernels: Iterable[HasCode | bytes]) -> bytes:
    """The bundle of compiled kernels, or of code objects, as bytes. Raises BundleError."""
    codes = [k if isinstance(k, bytes) else k.hsaco for k in kernels]
    if not codes:
        raise BundleError("a bundle holds at least one kernel")
    variants = [variant_of(code) for code in codes]
    check_distinct(variants)
    return pack({"format": FORMAT, "producer": f"tileir {tileir.__version__}", "variants": variants}, codes)


def write_bundle(path: str | Path, kernels: Iterable[HasCode | bytes]) -> None:
    """Writes compiled kernels, or code objects, in order of preference, to one file. Raises BundleError, OSError."""
    Path(path).write_bytes(bundle_bytes(kernels))


class BundledKernel(Launchable):
    """One variant of a bundle, ready for launch on any device but the interpreter."""

    def __init__(self, variant: Mapping[str, Any], hsaco: bytes):
        self.variant = variant
        self._loaded = load_code_object(hsaco)

    @property
    def name(self) -> str:
        return str(self.variant["kernel"])

    @property
    def params(self) -> Mapping[str, int | float | bool | str]:
        """Values of the compile-time parameters; types by name."""
        return self.variant["params"]

    @property
    def kernel(self) -> None:
        """Its text is not in the bundle."""
        return None

    @property
    def interface(self) -> Mapping[str, object]:
        """Arguments, grid and written views as the code object states them."""
        return self._loaded.interface

    @property
    def hsaco(self) -> bytes:
        """The code object."""
        return self._loaded.hsaco

    @property
    def target(self) -> str:
        """The chip, such as "gfx950"."""
        return self._loaded.target

    @property
    def block(self) -> tuple[int, int, int]:
        """Threads of a workgroup in x, y, z."""
        return self._loaded.block

    def __repr__(self) -> str:
        return f"<{describe(self.variant)}>"


class Bundle:
    """The contents of a bundle. `manifest` is described in `tileir.bundle.manifest`."""

    def __init__(self, data: bytes):
        self.manifest, self._codes = unpack(data)
        check_readable(self.manifest)
        self._kernels: dict[int, BundledKernel] = {}

    @property
    def variants(self) -> tuple[Mapping[str, Any], ...]:
        """What the manifest says of each variant."""
        return tuple(self.manifest["variants"])

    def select(self, target: str | Device, kernel: str = "", /, **params: Any) -> BundledKernel:
        """The first variant for a chip ("gfx950", also "gfx950:sramecc+:xnack-" as HIP says it) or a device, of the kernel if the
        bundle has several, with these values of parameters. Raises BundleError that lists what there is."""
        isa = target if isinstance(target, str) else _isa(target)
        names = list(dict.fromkeys(v["kernel"] for v in self.variants))
        if not kernel and len(names) > 1:
            raise BundleError(f"the bundle holds several kernels; say which: {', '.join(names)}")
        wanted = {k: setting_text(v) for k, v in params.items()}
        for number, v in enumerate(self.variants):
            has = {k: setting_text(value) for k, value in v["params"].items()}
            if (not kernel or v["kernel"] == kernel) and _suits(v, isa) and wanted.items() <= has.items():
                if number not in self._kernels:
                    self._kernels[number] = BundledKernel(v, self._codes[number])
                return self._kernels[number]
        settings = ", ".join(f"{k}={v}" for k, v in wanted.items())
        what = f"{kernel or names[0]} for {isa}{f' with {settings}' if settings else ''}"
        raise BundleError(f"the bundle has no {what}; it has {'; '.join(map(describe, self.variants))}")

    def __repr__(self) -> str:
        return f"<bundle: {'; '.join(map(describe, self.variants))}>"


def load_bundle(path: str | Path) -> Bundle:
    """Reads a bundle. Raises BundleError, OSError."""
    return Bundle(Path(path).read_bytes())


def _isa(device: Device) -> str:
    """What a device executes: of a GPU chip and modes as HIP names them, of a simulator the chip."""
    isa = str(getattr(device, "isa", "") or device.properties.chip)
    if not isa:
        raise BundleError(f"{device.name} runs no code objects, and a bundle holds nothing else")
    return isa


def _suits(variant: Mapping[str, Any], isa: str) -> bool:
    """Whether a GPU runs the code: the same chip, and the modes that it was compiled for. [LLVM AMDGPUUsage, "Target Features"]"""
    chip, *modes = isa.split(":")
    if variant["target"] != chip:
        return False
    on = {m[:-1]: m.endswith("+") for m in modes}
    return all(
        variant[mode] in ("any", "unsupported") or mode not in on or on[mode] == (variant[mode] == "on")
        for mode in ("xnack", "sramecc")
    )
