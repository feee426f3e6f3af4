"""Frames on the pipe between a compiling process and its code generation worker.

A frame is two lengths (unsigned 64-bit, little endian), then a JSON object of the first length, then bytes of the
second. The object's `blobs` lists names and lengths of the byte strings that follow it, in order.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, cast

LENGTHS = struct.Struct("<QQ")
MAX_HEADER_BYTES = 1 << 28
MAX_BLOB_BYTES = 1 << 32


class ProtocolError(Exception):
    """The peer sent something that is not a frame (for example because it died, or printed into the pipe)."""


def encode(message: Mapping[str, Any], blobs: Mapping[str, bytes] | None = None) -> bytes:
    """One frame."""
    blobs = blobs or {}
    header = json.dumps({**message, "blobs": [[name, len(data)] for name, data in blobs.items()]}).encode()
    return b"".join([LENGTHS.pack(len(header), sum(map(len, blobs.values()))), header, *blobs.values()])


def lengths(prefix: bytes) -> tuple[int, int]:
    """Lengths of the JSON object and of the blobs, from the first `LENGTHS.size` bytes of a frame."""
    header, body = LENGTHS.unpack(prefix)
    if header > MAX_HEADER_BYTES or body > MAX_BLOB_BYTES:
        raise ProtocolError(f"not a frame: lengths {header} and {body}")
    return header, body


def decode(header: bytes, body: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Message and blobs of a frame without its lengths."""
    message = cast(dict[str, Any], json.loads(header))
    blobs: dict[str, bytes] = {}
    offset = 0
    for name, size in message.pop("blobs"):
        blobs[name] = body[offset : offset + size]
        offset += size
    if offset != len(body):
        raise ProtocolError(f"blobs take {offset} bytes of {len(body)}")
    return message, blobs
