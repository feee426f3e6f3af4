"""Groups of accesses that can meet: never smaller than what the comparison of each pair says, and small where places are apart."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from tileir.frontend import parse
from tileir.ir.core import Kernel
from tileir.passes.hazards import Memory
from tileir.passes.manager import run_pipeline
from tileir.passes.meeting import groups

Box = tuple[tuple[int, int], tuple[int, int]]
boxes = st.tuples(*[st.tuples(st.integers(0, 12), st.integers(1, 4))] * 2)


def _meet(a: Box, b: Box) -> bool:
    return all(x < y + m and y < x + n for (x, n), (y, m) in zip(a, b, strict=True))


@settings(max_examples=200, deadline=None)
@given(st.lists(boxes, max_size=12))
def test_boxes_that_meet_are_in_one_group(found: list[Box]) -> None:
    numbered = list(enumerate(found))
    parts = groups(numbered, 2, lambda a, d: ("same", a[1][d][0], sum(a[1][d])), 1 << 31)
    assert sorted(i for part in parts for i, _ in part) == list(range(len(found)))
    group = {i: number for number, part in enumerate(parts) for i, _ in part}
    for (i, a), (j, b) in itertools.combinations(numbered, 2):
        assert not _meet(a, b) or group[i] == group[j]


def test_spans_that_cannot_be_compared_stay_together() -> None:
    spans = {"a": ("x", 0, 4), "b": ("x", 8, 12), "c": ("y", 0, 4)}
    assert groups("ab", 1, lambda a, _: spans[a], 100) == [["a"], ["b"]]
    assert groups("abc", 1, lambda a, _: spans[a], 100) == [["a", "b", "c"]]
    assert groups("ab", 1, lambda a, _: spans[a] if a == "a" else None, 100) == [["a", "b"]]
    assert groups("ab", 1, lambda a, _: spans[a], 12) == [["a", "b"]]  # indices wrap


def _kernel(body: str) -> Kernel:
    text = f"""tileir 1
kernel @k(%A: global<f32[N]>, %B: global<f32[N]>) grid(1) with(target = gfx950, waves = 4, lds = 0) {{
  %i = program_id()
  %x = load(%A[%i * 64 +: 64])
{body}
}}
"""
    return run_pipeline(parse(text), "", "gfx950").kernel


def test_stores_of_places_that_are_apart_are_not_followed() -> None:
    memory = Memory(_kernel("\n".join(f"  store(%x, %B[%i * 4096 + {64 * k} +: 64])" for k in range(9))))
    assert not memory.accesses
    memory = Memory(_kernel("\n".join(f"  store(%x, %B[%i * 4096 + {63 * k} +: 64])" for k in range(9))))
    assert len(memory.accesses) == 18  # in both versions


def test_loops_that_change_nothing_between_two_places_do_not_matter() -> None:
    loop = "  for %k{0} = 0 to N step 64 {{\n    store(%x, %B[8192 + %k{0} +: 64])\n  }}\n"
    kernel = _kernel("  store(%x, %B[0 +: 64])\n" + loop.format(0) + loop.format(1) + "  store(%x, %B[64 +: 64])\n")
    version = next(op for op in kernel.walk() if op.name == "if").regions[0]
    loops = frozenset(op for op in version.ops if op.name == "for")
    memory = Memory(kernel)
    first, last = (memory.of(op)[0] for op in version.ops if op.name == "store")
    assert len(loops) == 2 and not memory.ordered(first, last, loops)
    inner = memory.of(next(op for loop in loops for op in loop.walk() if op.name == "store"))[0]
    assert memory.ordered(first, inner, loops) and not memory.ordered(inner, inner, loops)
