"""Which ops of a loop are written instruction by instruction, and which direct copies may stand among them."""

from __future__ import annotations

import pytest

from tileir.frontend import parse
from tileir.ir.types import SharedType
from tileir.passes.weave_blocks import early_copies, runs

LOOP = """tileir 1

kernel @k(%A: global<f32[64, 64]>) grid(1) with(target = gfx950, waves = 4) {{
  %s = shared_alloc() : shared<f32[32, 32], rows>
  %t = shared_alloc() : shared<f32[32, 32], rows>
  %z = constant<0>() : i32
  %n = constant<8>() : i32
  %b = lt(%z, %n) : i1
  %one = fill(1.0) : tile<f32[32, 32]>
  for %i = %z to %n step %n {{
    copy_async<bytes = 16>(%A[%z +: 32, %z +: 32], %s)
    copy_async<bytes = 16>(%A[%z +: 32, %z +: 32], %t)
    {between}
    %y = add(%one, %one) : tile<f32[32, 32]>
    {inside}
    %w = add(%y, %y) : tile<f32[32, 32]>
    yield
  }}
}}
"""
READS = "%{0}r = shared_load(%{0}) : tile<f32[32, 32]>"


@pytest.mark.parametrize(
    ("between", "inside", "kept"),
    [
        ("", "", "st"),
        (READS.format("s"), "", "t"),
        ("", READS.format("t"), "s"),
        (READS.format("t"), READS.format("s"), ""),
        ("if %b { " + READS.format("s") + " }", "", ""),  # paths part before the run
        ("barrier()", "", ""),
    ],
)
def test_copies_stay_before_what_reads_them(between: str, inside: str, kept: str) -> None:
    """A copy is put among the ops of a run only if nothing reads its buffer before the end of the run."""
    (kernel,) = parse(LOOP.format(between=between, inside=inside), "k.tile").kernels
    (loop,) = (op for op in kernel.walk() if op.name == "for")
    body = loop.regions[0]
    first = next(op for op in body.ops if op.results and op.results[0].name == "y")
    (run,) = (r for r in runs(body) if first in r)
    run = run[run.index(first) :]
    found = early_copies(body, {first: run})
    filled = [v.name for copy in found[first] for v in copy.operands if isinstance(v.type, SharedType)]
    assert filled == list(kept)
