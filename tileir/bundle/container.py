"""The bytes of a bundle: a header, a manifest in JSON, code objects. Numbers are little-endian.

    0    8   magic "TILEIRB1"; the last character is the format
    8    4   CRC-32 of the manifest (as in zlib)
    12   4   zero
    16   8   bytes of the manifest
    24   …   the manifest: UTF-8, one JSON object; then zeros up to a multiple of 256
    …    …   code objects, each from a multiple of 256 on

The manifest's `variants` state `offset` and `size` (in bytes, from the beginning of the file) and `crc32` of their code objects.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from typing import Any

MAGIC = b"TILEIRB1"
HEADER = struct.Struct("<8sIIQ")
ALIGNMENT = 256
MAX_MANIFEST_BYTES = 1 << 28


class BundleError(Exception):
    """A bundle that cannot be read or written, or that does not hold what is asked for; the message says what it holds."""


def pack(manifest: dict[str, Any], codes: Sequence[bytes]) -> bytes:
    """The file. `manifest["variants"]` has one object for each code object; their places are filled in here."""
    size = 0
    while True:  # the length of the manifest depends on the offsets in it
        at = _aligned(HEADER.size + size)
        variants: list[dict[str, Any]] = []
        for variant, code in zip(manifest["variants"], codes, strict=True):
            variants.append({**variant, "offset": at, "size": len(code), "crc32": zlib.crc32(code)})
            at = _aligned(at + len(code))
        text = json.dumps({**manifest, "variants": variants}, separators=(",", ":")).encode()
        if _aligned(HEADER.size + len(text)) == _aligned(HEADER.size + size):
            break
        size = max(size, len(text))
    out = bytearray(HEADER.pack(MAGIC, zlib.crc32(text), 0, len(text)) + text)
    for variant, code in zip(variants, codes, strict=True):
        out += bytes(variant["offset"] - len(out)) + code
    return bytes(out)


def unpack(data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Manifest and code objects of a file, lengths and checksums verified. Raises BundleError."""
    if len(data) < HEADER.size or data[:7] != MAGIC[:7]:
        raise BundleError("this is not a bundle of TileIR")
    magic, crc, _, size = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise BundleError(f"the bundle has format {magic[7:].decode('ascii', 'replace')}; this version reads format 1")
    if size > min(MAX_MANIFEST_BYTES, len(data) - HEADER.size):
        raise BundleError("the bundle is damaged: it ends before its manifest does")
    text = data[HEADER.size : HEADER.size + size]
    if zlib.crc32(text) != crc:
        raise BundleError("the bundle is damaged: the checksum of its manifest does not fit")
    try:
        manifest: dict[str, Any] = json.loads(text)
        variants: list[dict[str, Any]] = manifest["variants"]
        if not isinstance(variants, list) or not variants:  # pyright: ignore[reportUnnecessaryIsInstance]: it comes from a file
            raise ValueError("it lists no variants")
        codes = [_code(data, v) for v in variants]
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise BundleError(f"the manifest of the bundle is damaged: {e!r}") from None
    return manifest, codes


def _code(data: bytes, variant: dict[str, Any]) -> bytes:
    offset, size = variant["offset"], variant["size"]
    if not 0 <= offset <= len(data) or not 0 <= size <= len(data) - offset:
        raise BundleError("the bundle is damaged: it ends before its code objects do")
    code = data[offset : offset + size]
    if zlib.crc32(code) != variant["crc32"]:
        raise BundleError(
            f"the bundle is damaged: the checksum of '{variant['kernel']}' for {variant['target']} does not fit"
        )
    return code


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
