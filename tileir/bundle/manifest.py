"""The manifest: for each variant what a launcher must know, taken from its code object.

    format      1
    producer    "tileir VERSION"
    variants    in order of preference; each has
        kernel      name of the kernel, and of the function in the code object
        target      chip, such as "gfx950"
        xnack, sramecc  "any", "on" or "off": the modes of the device that the code runs in ("unsupported": has no such mode)
        code_object_version
        params      values of the compile-time parameters by name: numbers, true or false, texts for types
        grid        1 to 3 expressions over symbols: workgroups in x, y, z
        block       threads of a workgroup in x, y, z
        lds_bytes, kernarg_bytes   LDS of a workgroup; size of the kernarg segment
        arguments   in order; each has name, kind, type, and offset and size in the kernarg segment, in bytes
            kind "view"    a pointer; also dims and strides (numbers or symbols, in elements; strides only if declared),
                           written (whether the kernel writes it)
            kind "symbol"  a size or stride, an integer
            kind "scalar"  a number
        alias       pairs of views that may overlap
        offset, size, crc32        place and checksum of the code object

Expressions: integers, symbols, + - * / (truncating), parentheses, cdiv(a, b) rounding up, mod(a, b) with the sign of a,
min(a, b), max(a, b). Readers ignore what they do not know.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tileir.bundle.container import BundleError
from tileir.codeobject import CodeObject, CodeObjectError
from tileir.lowering.amdgpu.compile import META_SECTION

FORMAT = 1


def variant_of(data: bytes) -> dict[str, Any]:
    """The variant that a code object of TileIR is. Raises BundleError."""
    try:
        code = CodeObject.from_bytes(data)
        section = code.section(META_SECTION)
    except CodeObjectError as e:
        raise BundleError(f"not a usable code object: {e}") from None
    if section is None:
        raise BundleError(f"the code object has no section {META_SECTION}: it was not made by TileIR, or was stripped")
    interface: dict[str, Any] = json.loads(section)
    name = interface["kernel"]
    kernel = code.kernel(name)
    if kernel.metadata is None:
        raise BundleError(f"the code object does not describe the arguments of '{name}'")
    places = kernel.metadata.explicit_args
    arguments = [
        {**argument, "offset": place.offset, "size": place.size}
        for argument, place in zip(interface["args"], places, strict=True)
    ]
    return {
        "kernel": name,
        "target": code.chip,
        "xnack": code.xnack,
        "sramecc": code.sramecc,
        "code_object_version": code.code_object_version,
        "params": interface["params"],
        "grid": interface["grid"],
        "block": interface["block"],
        "lds_bytes": kernel.descriptor.group_segment_fixed_size,
        "kernarg_bytes": kernel.metadata.kernarg_segment_size,
        "arguments": arguments,
        "alias": interface["alias"],
    }


def check_readable(manifest: Mapping[str, Any]) -> None:
    """Raises BundleError if a manifest that was read does not say what readers need to tell variants apart."""
    if manifest.get("format") != FORMAT:
        raise BundleError(f"the manifest has format {manifest.get('format')}; this version reads {FORMAT}")
    for number, variant in enumerate(manifest["variants"]):
        for key in ("kernel", "target", "xnack", "sramecc"):
            if not isinstance(variant.get(key), str):
                raise BundleError(f"the manifest of the bundle is damaged: variant {number} has no '{key}'")
        if not isinstance(variant.get("params"), dict):
            raise BundleError(f"the manifest of the bundle is damaged: variant {number} has no 'params'")


def check_distinct(variants: Sequence[Mapping[str, Any]]) -> None:
    """Raises BundleError if two variants cannot be told apart."""
    seen: set[str] = set()
    for v in variants:
        text = describe(v)
        if text in seen:
            raise BundleError(f"{text} is in the bundle twice; variants differ in kernel, chip or parameters")
        seen.add(text)


def describe(variant: Mapping[str, Any]) -> str:
    """`gemm for gfx950 (BM=128, T=bf16)`."""
    settings = ", ".join(f"{k}={setting_text(v)}" for k, v in variant["params"].items())
    return f"{variant['kernel']} for {variant['target']}{f' ({settings})' if settings else ''}"


def setting_text(value: object) -> str:
    """A value of a parameter as the command line writes it; types by name."""
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
