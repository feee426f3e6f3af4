"""Hostile input: mutated, truncated and arbitrary files give `CodeObjectError`, in bounded time and memory."""

from __future__ import annotations

import struct
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tileir.codeobject import CodeObject, CodeObjectError

SECONDS_PER_FILE = 2.0  # a whole read takes about 3 ms; the margin is for a busy machine
PEAK_BYTES = 16 << 20  # the objects have 7 KiB; a reader without bounds asks for gigabytes


def read_everything(data: bytes) -> bool:
    """Read `data` to the last corner; True if it was accepted. Any exception but CodeObjectError escapes."""
    start = time.process_time()
    try:
        code = CodeObject.from_bytes(data)
        for segment in code.segments:
            assert len(segment.data) <= segment.memsize
        for kernel in code.kernels.values():
            assert len(kernel.code) == kernel.code_size
            code.line_table.lookup(kernel.entry_address)
            kernel.descriptor.user_sgprs()
        for section in code.elf.sections:
            code.section(section.name)
        assert len(code.line_table) == len(code.line_table.rows)
        accepted = True
    except CodeObjectError as error:
        assert error.message and (error.offset is None or error.offset >= 0)
        accepted = False
    assert time.process_time() - start < SECONDS_PER_FILE
    return accepted


EXTREMES = [
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x7FFFFFFF,
    0xFFFFFFFF,
    1 << 40,
    2**63 - 1,
    2**63,
    2**64 - 1,
]
ONE_MUTATION = st.tuples(
    st.integers(0, 1 << 20), st.sampled_from([1, 2, 4, 8]), st.sampled_from(EXTREMES) | st.integers(0, 2**64 - 1)
)


def mutate(data: bytes, mutations: list[tuple[int, int, int]], regions: list[tuple[int, int]]) -> bytes:
    """Overwrite 1, 2, 4 or 8 bytes at places chosen inside `regions` (offset, size), the interesting ones."""
    out = bytearray(data)
    for number, width, value in mutations:
        offset, size = regions[number % len(regions)]
        at = offset + number // len(regions) % max(size, 1)
        out[at : at + width] = (value & (1 << 8 * width) - 1).to_bytes(width, "little")
    return bytes(out[: len(data)])


def regions_of(data: bytes) -> list[tuple[int, int]]:
    """Headers, section table, and every section that the reader looks into."""
    code = CodeObject.from_bytes(data)
    section_table = struct.unpack_from("<Q", data, 0x28)[0]
    names = (".note", ".dynsym", ".symtab", ".rodata", ".debug_line", ".debug_line_str", ".strtab", ".shstrtab")
    parts = [(s.offset, s.size) for s in code.elf.sections if s.name in names]
    return [(0, 64), (64, 56 * 8), (section_table, len(data) - section_table), *parts, (0, len(data))]


@pytest.fixture(scope="session", params=["gfx950.5.5.hsaco", "gfx950.6.4.hsaco", "gfx942.5.5.o"])
def victim(request: pytest.FixtureRequest, objects: Path) -> bytes:
    return (objects / request.param).read_bytes()


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutations=st.lists(ONE_MUTATION, min_size=1, max_size=6))
def test_mutated(victim: bytes, mutations: list[tuple[int, int, int]]) -> None:
    read_everything(mutate(victim, mutations, regions_of(victim)))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutations=st.lists(ONE_MUTATION, min_size=1, max_size=6))
def test_mutated_within_bounded_memory(victim: bytes, mutations: list[tuple[int, int, int]]) -> None:
    data = mutate(victim, mutations, regions_of(victim))
    tracemalloc.start()
    try:
        read_everything(data)
        assert tracemalloc.get_traced_memory()[1] < PEAK_BYTES
    finally:
        tracemalloc.stop()


def test_every_truncation(linked: bytes) -> None:
    for length in range(0, len(linked), 61):
        assert not read_everything(linked[:length])


def test_every_header_byte(linked: bytes) -> None:
    """Each byte of the ELF header, the program headers and the descriptor, set to 0, 0xff and its complement."""
    code = CodeObject.from_bytes(linked)
    symbol = next(s for s in code.symbols if s.name == "add.kd")
    at = code.elf.file_offset(symbol.value, 64)
    assert at is not None
    rejected = 0
    for offset in [*range(64 + 56 * 8), *range(at, at + 64)]:
        for value in (0, 0xFF, linked[offset] ^ 0xFF):
            rejected += not read_everything(linked[:offset] + bytes([value]) + linked[offset + 1 :])
    assert rejected > 100  # the mutations do hit what is checked


@given(st.binary(max_size=300))
def test_arbitrary_bytes(data: bytes) -> None:
    assert not read_everything(data)
    assert not read_everything(b"\x7fELF\x02\x01\x01\x40\x03" + bytes(7) + data)


def test_shared_long_names_do_not_multiply(linked: bytes) -> None:
    """Thousands of symbols that all point into one long string must not be copied out thousands of times."""
    elf = CodeObject.from_bytes(linked).elf
    strings, symbols, count = b"\0" + b"x" * 200_000 + b"\0", bytes(24), 20_000
    for index in range(count):
        symbols += struct.pack("<IBBHQQ", 1 + index, 0, 0, 1, 0, 0)
    strings_at = len(linked)
    symbols_at = strings_at + len(strings)
    table = struct.unpack_from("<Q", linked, 0x28)[0]
    out = bytearray(linked + strings + symbols)
    for name, offset, size in ((".strtab", strings_at, len(strings)), (".symtab", symbols_at, len(symbols))):
        index = next(i for i, s in enumerate(elf.sections) if s.name == name)
        struct.pack_into("<QQ", out, table + index * 64 + 0x18, offset, size)
    tracemalloc.start()
    try:
        with pytest.raises(CodeObjectError, match="the strings of this file add up"):
            CodeObject.from_bytes(bytes(out))
        assert tracemalloc.get_traced_memory()[1] < 16 * len(out)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (0x28, 1 << 60, "the loaded image would exceed"),
        (0x28, 0, "larger in the file than in memory"),
        (0x20, 1 << 60, "lies outside the file"),
        (0x08, 1 << 60, "lies outside the file"),
        (0x10, 0, "overlap or are not in ascending order"),
    ],
)
def test_absurd_segments(linked: bytes, field: int, value: int, message: str) -> None:
    """The third program header is the second loadable segment (the code)."""
    out = bytearray(linked)
    struct.pack_into("<Q", out, 64 + 2 * 56 + field, value)
    with pytest.raises(CodeObjectError, match=message):
        CodeObject.from_bytes(bytes(out))


def line_section(linked: bytes, body: bytes) -> bytes:
    """`linked` with its `.debug_line` replaced by `body` (appended to the file)."""
    elf = CodeObject.from_bytes(linked).elf
    index = next(i for i, s in enumerate(elf.sections) if s.name == ".debug_line")
    table = struct.unpack_from("<Q", linked, 0x28)[0]
    out = bytearray(linked + body)
    struct.pack_into("<QQ", out, table + index * 64 + 0x18, len(linked), len(body))
    return bytes(out)


def line_unit(version: int, rest: bytes, program: bytes = b"") -> bytes:
    """A line table unit; `rest` follows the header length, `program` follows the header."""
    head = struct.pack("<H", version) + (b"\x08\x00" if version >= 5 else b"")
    body = head + struct.pack("<I", len(rest)) + rest + program
    return struct.pack("<I", len(body)) + body


STANDARD_LENGTHS = bytes([0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1])
START_V4 = bytes([1, 1, 1, 0xFB, 14, 13]) + STANDARD_LENGTHS
NO_FILES = b"\0\0"
SET_ADDRESS = b"\0\x09\x02" + struct.pack("<Q", 0x1000)
END = b"\0\x01\x01"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (struct.pack("<I", 0xFFFFFFF0), "unit of 4294967280 bytes"),
        (struct.pack("<IQ", 0xFFFFFFFF, 1 << 62), "unit of 4611686018427387904 bytes"),
        (line_unit(7, b""), "version 7; versions 2 to 5"),
        (line_unit(4, bytes([1, 4, 1, 0xFB, 14, 13])), "VLIW"),
        (line_unit(4, bytes([1, 1, 1, 0xFB, 0, 13])), "line range or opcode base 0"),
        (line_unit(4, START_V4 + b"\0" + b"a\0\x09\0\0" + b"\0"), "names directory 9 of 1"),
        (line_unit(5, START_V4 + b"\0" + b"\xff\xff\xff\xff\x0f"), "4294967295 file or directory entries"),
        (line_unit(5, START_V4 + b"\x01\x01\x1f" + b"\x01" + struct.pack("<I", 1 << 30)), "which is not there"),
        (line_unit(5, START_V4 + b"\x01\x01\x7f" + b"\x01\x00"), "uses the form 0x7f"),
        (line_unit(4, START_V4 + NO_FILES, SET_ADDRESS + b"\x01"), "the last sequence has no end"),
        (line_unit(4, START_V4 + NO_FILES, b"\0\0"), "empty extended opcode"),
        (line_unit(4, START_V4 + NO_FILES, b"\0\x7f\x01"), "leads outside the range"),
        (line_unit(4, START_V4 + NO_FILES, SET_ADDRESS + b"\x01\0\x09\x02" + bytes(8) + b"\x01" + END), "go backwards"),
        (line_unit(4, START_V4 + NO_FILES, b"\x02" + b"\x80" * 11), "more than 10 bytes"),
    ],
)
def test_malformed_line_tables(linked: bytes, section: bytes, message: str) -> None:
    code = CodeObject.from_bytes(line_section(linked, section))
    with pytest.raises(CodeObjectError, match=message):
        _ = code.line_table


def test_hand_made_line_table_of_version_2(linked: bytes) -> None:
    """Version 2 has no field for operations per instruction; all standard opcodes, checked by hand against the standard."""
    header = (
        bytes([4, 1, 0xFF, 4, 13]) + STANDARD_LENGTHS + b"inc\0\0" + b"a.tile\0\x01\0\0" + b"b.tile\0\0\0\0" + b"\0"
    )
    program = SET_ADDRESS + b"\x03\x09\x05\x07\x01"  # line 10, column 7, copy
    program += b"\x02\x02\x04\x02\x03\x7d\x01"  # advance 2 x 4 bytes, file 2, line - 3, copy
    program += bytes([13 + 4 * 3 + 2])  # special opcode: address + 3 x 4, line + (-1) + 2
    program += b"\x08\x09\x10\x00\x06\x07\x0a\x0b\x0c\x05\x01"  # const add pc (60 x 4), fixed advance 16, negate, copy
    program += b"\x02\x01" + END
    code = CodeObject.from_bytes(line_section(linked, line_unit(2, header, program)))
    rows = [(r.address, r.source and (r.source.file, r.source.line), r.is_statement) for r in code.line_table.rows]
    assert rows == [
        (0x1000, ("inc/a.tile", 10), True),
        (0x1008, ("b.tile", 7), True),
        (0x1014, ("b.tile", 8), True),
        (0x1014 + 60 * 4 + 16, ("b.tile", 8), False),
    ]
    assert code.line_table.lookup(0x1000 + 8 + 12 + 240 + 16 + 4) is None
