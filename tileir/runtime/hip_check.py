"""Whether a GPU can run a code object, found out and said before the driver's loader sees it.

The loader answers most mismatches with "invalid image" or "no binary for GPU". The ELF header says everything that is needed
for a better answer: chip, xnack and sramecc modes, version of the code-object format.
"""

from __future__ import annotations

import re

from tileir.codeobject import CodeObject, CodeObjectError
from tileir.records import dataclass
from tileir.runtime.device import DeviceError

_ISA = re.compile(r"(gfx[0-9a-f]+)((?::[a-z0-9]+[+-])*)\Z")
_FIRST_ROCM = {4: (4, 1), 5: (5, 2), 6: (6, 2)}
"""ROCm that first loads a code object of this version. 4: documented (LLVM review D99235); 5 and 6: assumed, from the LLVM that
these releases contain."""


@dataclass(frozen=True)
class Isa:
    """What a GPU executes: chip and modes, as its name `gfx950:sramecc+:xnack-` says. A mode that the name does not
    mention is None: the chip does not have it."""

    chip: str
    xnack: bool | None = None
    sramecc: bool | None = None

    @classmethod
    def parse(cls, text: str) -> Isa:
        """From the name that HIP gives. Raises DeviceError for something else."""
        found = _ISA.match(text)
        if found is None:
            raise DeviceError(f"the HIP runtime calls the GPU '{text}', which is no name of an AMD GPU architecture")
        modes = {part[:-1]: part[-1] == "+" for part in found[2].split(":") if part}
        return cls(found[1], modes.get("xnack"), modes.get("sramecc"))

    def __str__(self) -> str:
        modes = {"sramecc": self.sramecc, "xnack": self.xnack}
        return self.chip + "".join(f":{k}{'+' if v else '-'}" for k, v in modes.items() if v is not None)


def check_loadable(data: bytes, device: str, isa: Isa, rocm: tuple[int, int], lds_bytes: int) -> CodeObject:
    """The parsed code object, if the device can run it. device: its name, for messages; rocm: major and minor version of the
    runtime; lds_bytes: LDS of one workgroup. Raises DeviceError."""
    try:
        code = CodeObject.from_bytes(data)
    except CodeObjectError as e:
        raise DeviceError(f"{device} cannot load this: not a usable code object: {e}") from None
    if not code.linked:
        raise DeviceError(f"{device} cannot load this: the object is not linked; link it with lld (-shared) first")
    if code.chip != isa.chip:
        raise DeviceError(
            f"the code object is for {code.chip}, but {device} is a {isa.chip}; compile it with --target {isa.chip}, or run "
            f"this one on 'simulator:{code.chip}'"
        )
    _check_mode("xnack", code.xnack, isa.xnack, device, "HSA_XNACK=1 or 0 in the environment sets the device's mode")
    _check_mode("sramecc", code.sramecc, isa.sramecc, device, "the mode of the device is fixed")
    first = _FIRST_ROCM[code.code_object_version]
    if rocm < first:
        raise DeviceError(
            f"the code object has format version {code.code_object_version}, which ROCm reads from {first[0]}.{first[1]} on; "
            f"the runtime of {device} is ROCm {rocm[0]}.{rocm[1]}; compile with an older --code-object-version"
        )
    for kernel in code.kernels.values():
        needed = kernel.descriptor.group_segment_fixed_size
        if needed > lds_bytes:
            raise DeviceError(
                f"kernel '{kernel.name}' needs {needed} bytes of LDS, but {device} has {lds_bytes} for a workgroup"
            )
    return code


def _check_mode(name: str, wanted: str, has: bool | None, device: str, how: str) -> None:
    """The loader's rule: a code object that was compiled for one mode runs only in it, `any` runs in both. [LLVM
    AMDGPUUsage, "Target Features"]"""
    if wanted in ("any", "unsupported") or (wanted == "on") == bool(has):
        return
    state = "does not have it" if has is None else f"runs with {name} {'on' if has else 'off'}"
    raise DeviceError(
        f"the code object was compiled for {name} {wanted}, but {device} {state}; {how}, or compile without {name} in the "
        "target, which suits both"
    )
