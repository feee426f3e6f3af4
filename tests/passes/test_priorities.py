"""Priorities are restored on every path, or the text is rejected."""

from __future__ import annotations

import pytest

from tests.passes.test_synchronise import wave_kernel
from tileir.ir.core import Kernel, Module
from tileir.ir.diagnostics import CompileError, Log
from tileir.passes.manager import run_pipeline
from tileir.passes.priorities import check_priorities

FIRST = 10  # line of the body


def kernel(body: str) -> Kernel:
    return wave_kernel("\n".join(f"  {line}" for line in body.split("\n")))


LOOP = "for %i = %z to %n step %one {{\n{}\nyield\n}}"
RIGHT = {
    "raised in a loop": LOOP.format("priority<1>()\nbarrier()\npriority<0>()"),
    "raised around a loop": "priority<1>()\n" + LOOP.format("barrier()") + "\npriority<0>()",
    "higher in a loop than around it": "priority<1>()\n"
    + LOOP.format("priority<2>()\npriority<1>()")
    + "\npriority<0>()",
    "lower in a branch": "priority<3>()\n%p = lt(%z, %n) : i1\nif %p {\npriority<0>()\npriority<3>()\nyield\n}\npriority<0>()",
}
# The text, the line of the priority that is left, what is said, and the line of the region.
WRONG = {
    "the end of the kernel": ("priority<1>()", 0, "'priority<1>' is still in force at the end of the kernel", None),
    "the end of an iteration": (
        LOOP.format("priority<2>()") + "\npriority<0>()",
        1,
        "'priority<2>' is still in force at the end of an iteration of this 'for', which began at 0",
        0,
    ),
    "one path": (
        "priority<1>()\n%p = lt(%z, %n) : i1\nif %p {\npriority<0>()\nyield\n} else {\nyield\n}\npriority<0>()",
        3,
        "'priority<0>' is still in force at the end of a way through this 'if', which began at 1",
        2,
    ),
    "the condition of a loop": (
        "while {\n%p = lt(%z, %n) : i1\npriority<1>()\nyield %p\n} do {\npriority<0>()\nyield\n}",
        2,
        "'priority<1>' is still in force at the end of an iteration of this 'while'",
        0,
    ),
    "raised twice": (
        "priority<1>()\nbarrier()\npriority<1>()\npriority<0>()",
        2,
        "nothing has lowered it in between",
        0,
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_restored_priorities_are_accepted(name: str) -> None:
    check_priorities(kernel(RIGHT[name]))


@pytest.mark.parametrize("name", WRONG)
def test_a_wave_left_at_raised_priority_is_rejected(name: str) -> None:
    body, line, words, region = WRONG[name]
    with pytest.raises(CompileError) as caught:
        check_priorities(kernel(body))
    first = caught.value.diagnostics[0]
    assert first.code == "E1036" and words in first.message and first.loc.line == FIRST + line and first.legal
    assert [n.loc.line - FIRST for n in first.notes if n.loc is not None] == ([region] if region is not None else [])


def test_the_pipeline_rejects_such_a_text_when_it_comes_in() -> None:
    text = kernel(WRONG["the end of the kernel"][0])
    with pytest.raises(CompileError) as caught:
        run_pipeline(Module([text]), "", "gfx950", start_from="synchronise", log=Log())
    assert [d.code for d in caught.value.diagnostics] == ["E1036"]
