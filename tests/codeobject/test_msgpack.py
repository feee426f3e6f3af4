"""The MessagePack reader and writer: specification vectors, round trips, malformed input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileir.codeobject.errors import CodeObjectError
from tileir.codeobject.msgpack import MAX_DEPTH, decode, encode

SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS | st.binary(), lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(2, 9), inner)
)

VECTORS = [  # from the format table of the MessagePack specification: value and its shortest encoding
    (None, "c0"),
    (False, "c2"),
    (True, "c3"),
    (0, "00"),
    (127, "7f"),
    (128, "cc80"),
    (256, "cd0100"),
    (65536, "ce00010000"),
    (2**32, "cf0000000100000000"),
    (-1, "ff"),
    (-32, "e0"),
    (-33, "d0df"),
    (-129, "d1ff7f"),
    (-32769, "d2ffff7fff"),
    (-(2**31) - 1, "d3ffffffff7fffffff"),
    (1.5, "cb3ff8000000000000"),
    ("abc", "a3616263"),
    ("x" * 32, "d920" + "78" * 32),
    (b"\x01\x02", "c4020102"),
    ([1, "a"], "9201a161"),
    (list(range(16)), "dc0010" + "".join(f"{i:02x}" for i in range(16))),
    ({"a": 1}, "81a16101"),
]


@pytest.mark.parametrize(("value", "encoded"), VECTORS, ids=[e[:12] for _v, e in VECTORS])
def test_specification_vectors(value: object, encoded: str) -> None:
    assert encode(value).hex() == encoded  # type: ignore[arg-type]
    assert decode(bytes.fromhex(encoded)) == value


def test_longer_forms_are_read() -> None:
    assert decode(bytes.fromhex("ca3fc00000")) == 1.5
    assert decode(bytes.fromhex("da000161")) == "a"
    assert decode(bytes.fromhex("db0000000161")) == "a"
    assert decode(bytes.fromhex("dd0000000105")) == [5]
    assert decode(bytes.fromhex("de00010203")) == {2: 3}
    assert decode(bytes.fromhex("df000000010203")) == {2: 3}
    assert decode(bytes.fromhex("c5000107")) == b"\x07"


@given(VALUES)
def test_round_trip(value: object) -> None:
    assert decode(encode(value)) == value  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("encoded", "message"),
    [
        ("", "truncated"),
        ("a3", "truncated"),
        ("cd01", "truncated"),
        ("c1", "type 0xc1 is not used"),
        ("d40000", "type 0xd4 is not used"),
        ("0000", "1 bytes after"),
        ("ddffffffff", "array of 4294967295 elements in 0 bytes"),
        ("dfffffffff00", "map of 4294967295 entries in 1 bytes"),
        ("82a16101a16102", "repeats the key 'a'"),
        ("819001", "key is neither string nor integer"),
        ("a1ff", "not valid UTF-8"),
        ("91" * 40 + "00", f"deeper than {MAX_DEPTH}"),
    ],
)
def test_malformed(encoded: str, message: str) -> None:
    with pytest.raises(CodeObjectError, match=message):
        decode(bytes.fromhex(encoded))


@given(st.binary(max_size=200))
def test_arbitrary_bytes(data: bytes) -> None:
    try:
        decode(data)
    except CodeObjectError as error:
        assert error.offset is not None and 0 <= error.offset <= len(data)


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1])
def test_integers_beyond_64_bits_are_refused(value: int) -> None:
    with pytest.raises(ValueError, match="does not fit 64 bits"):
        encode(value)
