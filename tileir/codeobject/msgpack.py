"""MessagePack, as far as AMDGPU metadata uses it: nil, booleans, integers, floats, strings, binaries, arrays, maps.

Decoding is bounded: each element takes at least one byte of input, nesting is limited, map keys are scalars and may
not repeat. Encoding is deterministic: the shortest form of every value, maps in insertion order.
Source: the MessagePack specification (format byte table).
"""

from __future__ import annotations

import struct

from tileir.codeobject.errors import CodeObjectError
from tileir.codeobject.reader import Reader, decode_utf8

MAX_DEPTH = 32  # AMDGPU metadata nests four deep

Value = None | bool | int | float | str | bytes | list["Value"] | dict["str | int", "Value"]

_UINT_SIZE = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_SINT_SIZE = {0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_BIN_SIZE = {0xC4: 1, 0xC5: 2, 0xC6: 4}
_STR_SIZE = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_ARRAY_SIZE = {0xDC: 2, 0xDD: 4}
_MAP_SIZE = {0xDE: 2, 0xDF: 4}


def decode(data: bytes, start: int = 0, end: int | None = None) -> Value:
    """The single value encoded in `data[start:end]`; `CodeObjectError` if it is malformed or bytes are left over."""
    reader = Reader(data, start, len(data) if end is None else end, "MessagePack metadata")
    value = _decode(reader, 0)
    if reader.remaining:
        raise CodeObjectError(f"{reader.remaining} bytes after the MessagePack value", reader.pos)
    return value


def _decode(reader: Reader, depth: int) -> Value:
    at = reader.pos
    if depth > MAX_DEPTH:
        raise CodeObjectError(f"MessagePack nested deeper than {MAX_DEPTH}", at)
    head = reader.uint(1)
    if head <= 0x7F:
        return head
    if head <= 0x8F:
        return _map(reader, head & 0x0F, depth)
    if head <= 0x9F:
        return _array(reader, head & 0x0F, depth)
    if head <= 0xBF:
        return _string(reader, head & 0x1F)
    if head >= 0xE0:
        return head - 0x100
    if head == 0xC0:
        return None
    if head in (0xC2, 0xC3):
        return head == 0xC3
    if head in _UINT_SIZE:
        return _big_endian(reader, _UINT_SIZE[head])
    if head in _SINT_SIZE:
        return int.from_bytes(reader.take(_SINT_SIZE[head]), "big", signed=True)
    if head == 0xCA:
        return struct.unpack(">f", reader.take(4))[0]
    if head == 0xCB:
        return struct.unpack(">d", reader.take(8))[0]
    if head in _STR_SIZE:
        return _string(reader, _big_endian(reader, _STR_SIZE[head]))
    if head in _BIN_SIZE:
        return reader.take(_big_endian(reader, _BIN_SIZE[head]))
    if head in _ARRAY_SIZE:
        return _array(reader, _big_endian(reader, _ARRAY_SIZE[head]), depth)
    if head in _MAP_SIZE:
        return _map(reader, _big_endian(reader, _MAP_SIZE[head]), depth)
    raise CodeObjectError(f"MessagePack type {head:#04x} is not used in code object metadata", at)


def _big_endian(reader: Reader, size: int) -> int:
    return int.from_bytes(reader.take(size), "big")


def _string(reader: Reader, length: int) -> str:
    at = reader.pos
    return decode_utf8(reader.take(length), at)


def _array(reader: Reader, count: int, depth: int) -> Value:
    if count > reader.remaining:
        raise CodeObjectError(f"MessagePack array of {count} elements in {reader.remaining} bytes", reader.pos)
    return [_decode(reader, depth + 1) for _ in range(count)]


def _map(reader: Reader, count: int, depth: int) -> Value:
    if 2 * count > reader.remaining:
        raise CodeObjectError(f"MessagePack map of {count} entries in {reader.remaining} bytes", reader.pos)
    result: dict[str | int, Value] = {}
    for _ in range(count):
        at = reader.pos
        key = _decode(reader, depth + 1)
        if not isinstance(key, (str, int)):
            raise CodeObjectError("MessagePack map key is neither string nor integer", at)
        if key in result:
            raise CodeObjectError(f"MessagePack map repeats the key {key!r}", at)
        result[key] = _decode(reader, depth + 1)
    return result


def encode(value: Value) -> bytes:
    """`value` in MessagePack, each element in its shortest form; ValueError for an integer outside 64 bits."""
    out = bytearray()
    _encode(value, out)
    return bytes(out)


def _encode(value: Value, out: bytearray) -> None:
    if value is None:
        out.append(0xC0)
    elif isinstance(value, bool):
        out.append(0xC3 if value else 0xC2)
    elif isinstance(value, int):
        _encode_int(value, out)
    elif isinstance(value, float):
        out += b"\xcb" + struct.pack(">d", value)
    elif isinstance(value, str):
        raw = value.encode("utf-8")
        _encode_head(len(raw), out, fixed=(0xA0, 31), sized=((0xD9, 1), (0xDA, 2), (0xDB, 4)))
        out += raw
    elif isinstance(value, bytes):
        _encode_head(len(value), out, fixed=None, sized=((0xC4, 1), (0xC5, 2), (0xC6, 4)))
        out += value
    elif isinstance(value, list):
        _encode_head(len(value), out, fixed=(0x90, 15), sized=((0xDC, 2), (0xDD, 4)))
        for element in value:
            _encode(element, out)
    else:
        _encode_head(len(value), out, fixed=(0x80, 15), sized=((0xDE, 2), (0xDF, 4)))
        for key, element in value.items():
            _encode(key, out)
            _encode(element, out)


def _encode_head(
    length: int, out: bytearray, fixed: tuple[int, int] | None, sized: tuple[tuple[int, int], ...]
) -> None:
    if fixed is not None and length <= fixed[1]:
        out.append(fixed[0] | length)
        return
    for head, size in sized:
        if length < 1 << (8 * size):
            out.append(head)
            out += length.to_bytes(size, "big")
            return
    raise ValueError(f"{length} elements do not fit a MessagePack length")


def _encode_int(value: int, out: bytearray) -> None:
    if 0 <= value <= 0x7F:
        out.append(value)
    elif -0x20 <= value < 0:
        out.append(value + 0x100)
    elif value > 0:
        for head, size in ((0xCC, 1), (0xCD, 2), (0xCE, 4), (0xCF, 8)):
            if value < 1 << (8 * size):
                out.append(head)
                out += value.to_bytes(size, "big")
                return
        raise ValueError(f"{value} does not fit 64 bits")
    else:
        for head, size in ((0xD0, 1), (0xD1, 2), (0xD2, 4), (0xD3, 8)):
            if value >= -(1 << (8 * size - 1)):
                out.append(head)
                out += value.to_bytes(size, "big", signed=True)
                return
        raise ValueError(f"{value} does not fit 64 bits")
