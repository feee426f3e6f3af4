"""Damaged code objects: an InspectError or a report, never anything else, in bounded time."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inspect_assembly import assemble

from tests.kernels.harness import library
from tileir.codeobject import CodeObject
from tileir.simulator.inspect import InspectError, as_html, as_json, as_listing, as_table, inspect


def attempt(data: bytes) -> bool:
    """Whether the bytes could be reported on, in every form."""
    try:
        found = inspect(data)
    except InspectError as error:
        assert error.message
        return False
    assert as_table(found) and as_json(found) and as_listing(found) and as_html(found, "k")
    return True


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"hello" * 100, bytes(4096)])
def test_no_code_object(data: bytes) -> None:
    assert not attempt(data)


def test_every_truncation() -> None:
    data = assemble("s_endpgm", threads=64)
    assert attempt(data)
    for end in range(0, len(data), 37):
        attempt(data[:end])


@settings(max_examples=50)
@given(st.data())
def test_damaged_code(draw: st.DataObject) -> None:
    """Code bytes replaced: whatever they decode to, wherever they jump."""
    data = bytearray(library("softmax", "gfx950").hsaco)
    kernel = CodeObject.from_bytes(bytes(data)).kernels["softmax"]
    for _ in range(draw.draw(st.integers(1, 4))):
        at = kernel.code_offset + 4 * draw.draw(st.integers(0, kernel.code_size // 4 - 1))
        data[at : at + 4] = draw.draw(st.binary(min_size=4, max_size=4))
    attempt(bytes(data))


@settings(max_examples=150)
@given(st.data())
def test_damaged_file(draw: st.DataObject) -> None:
    data = bytearray(assemble("s_nop 0\n s_endpgm", threads=64))
    for _ in range(draw.draw(st.integers(1, 6))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    attempt(bytes(data))


@settings(max_examples=100)
@given(st.lists(st.integers(-40, 40), min_size=1, max_size=40))
def test_any_branches(distances: list[int]) -> None:
    """A kernel of branches to anywhere: into other code, behind the end, onto themselves."""
    words = b"".join((0xBF850000 | d & 0xFFFF).to_bytes(4, "little") for d in distances)
    data = assemble("\n".join([".long 0xbf800000"] * len(distances)) + "\n s_endpgm")
    kernel = CodeObject.from_bytes(data).kernels["k"]
    attempt(data[: kernel.code_offset] + words + data[kernel.code_offset + len(words) :])


def test_many_nested_loops_take_bounded_time() -> None:
    count = 400
    body = "".join(f".L{i}:\n s_nop 0\n" for i in range(count))
    body += "".join(f" s_cbranch_scc0 .L{i}\n" for i in reversed(range(count))) + " s_endpgm\n"
    data = assemble(body)
    start = time.process_time()
    assert len(inspect(data).kernel.loops) == count
    assert time.process_time() - start < 10
