"""Starts of the loads of products that only the launch knows are tested there, and wide if they are aligned."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tileir
from tests.kernels.harness import CHIPS
from tests.passes.test_pipeline_loops import checked_device
from tileir.frontend import parse
from tileir.ir.core import Kernel
from tileir.ir.diagnostics import Log
from tileir.passes.manager import run_pipeline
from tileir.simulator.inspect import inspect

TEXT = """tileir 1
kernel @k(%A: global<bf16[M, K]>, %B: global<bf16[N, K]>, %C: global<f32[M, N]>, %P: global<i32[4]>, %x: i32, %y: i32)
    grid(cdiv(M, {tile}), cdiv(N, {tile})) {{
  %i, %j = program_id()
  %zero = fill(0.0) : tile<f32[{tile}, {tile}]>
  {head}
  %acc = for %k = {start} to K step {step} carry(%c = %zero) {{
    %a = load(%A[%i * {tile} +: {tile}, {index} +: 64])
    %b = load(%B[%j * {tile} +: {tile}, {index} +: 64])
    yield mma(%a, transpose(%b), %c)
  }}
  store(%acc, %C[%i * {tile} +: {tile}, %j * {tile} +: {tile}])
}}
"""


def text(start: str = "%x", step: str = "64", index: str = "%k", head: str = "", tile: int = 64) -> str:
    return TEXT.format(start=start, step=step, index=index, head=head, tile=tile)


def split(source: str) -> tuple[Kernel, Log]:
    log = Log()
    kernel = run_pipeline(parse(source, "k.tile"), "k", "gfx950", stop_after="split-access", verify_each="run", log=log)
    return kernel.kernel, log


def divisors_tested(kernel: Kernel) -> list[tuple[str, int]]:
    """What is compared with zero before the versions part: the op or argument that makes it, and its divisor."""
    found: list[tuple[str, int]] = []
    for op in kernel.body.ops:
        rest = op.operands[0].owner if op.name == "eq" else None
        if rest is not None and rest.name == "and":
            number, mask = rest.operands
            assert mask.owner is not None and isinstance(mask.owner.attrs["value"], int)
            found.append((number.owner.name if number.owner else f"%{number.name}", mask.owner.attrs["value"] + 1))
    return found


def widths(kernel: Kernel) -> set[object]:
    """Bytes of an access of A and B in the version for wide accesses."""
    branch = next(op for op in reversed(kernel.body.ops) if op.name == "if")
    return {op.attrs["bytes"] for op in branch.regions[0].walk() if op.name == "load" and op.operands[0].name in "AB"}


@pytest.mark.parametrize(
    ("source", "wants"),
    [
        (text(), [("%x", 8)]),
        (text(start="%x * 4"), [("mul", 8)]),
        (text(start="%x + %y"), [("add", 8)]),
        (text(start="0", index="%k + %x"), [("%x", 8)]),
        (text(start="0", index="%k * 2 - %x"), [("%x", 8)]),
        (text(start="0", step="4", index="%k * %x"), [("%x", 2)]),
        (text(start="%x", step="%y", index="max(%k, 0)"), [("%x", 8), ("%y", 8)]),
        (text(start="min(%x, K)"), [("min", 8)]),
        (text(start="%x * 8"), []),
        (text(start="%x", head="assume(mod(%x, 16) == 0)"), []),
        (text(start="%i * 8 + %x"), [("add", 8)]),
    ],
)
def test_what_is_tested(source: str, wants: list[tuple[str, int]]) -> None:
    kernel, log = split(source)
    assert divisors_tested(kernel) == wants
    assert widths(kernel) == {16}
    assert "R0816" not in {d.code for d in log.diagnostics}


@pytest.mark.parametrize(
    "source",
    [
        text(start="%n", head="%n = load(%P[0])"),
        text(start="0", index="%k / 128 * 3"),
        text(start="%x / %y"),  # a division that may fail stays where it is
    ],
)
def test_what_the_launch_does_not_know_is_told(source: str) -> None:
    kernel, log = split(source)
    assert divisors_tested(kernel) == [] and widths(kernel) == {2}
    assert "R0816" in {d.code for d in log.diagnostics}


def test_other_loads_are_not_tested() -> None:
    """A load that is meant to be shifted would take the products of its launch to the version for unaligned views."""
    source = text(start="0").replace(
        "  store(", "  %r = load(%A[0 +: 1, %x +: 64])\n  store(convert<f32>(%r), %C[0 +: 1, 0 +: 64])\n  store(", 1
    )
    assert divisors_tested(split(source)[0]) == []


@pytest.mark.parametrize("chip", CHIPS)
def test_right_wherever_it_begins(chip: str) -> None:
    compiled = tileir.compile(text(), chip)
    device = checked_device(chip)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (rows, 256)).astype(ml_dtypes.bfloat16) for rows in (70, 60))
    for start in (0, 8, 64, 72, 3, 255, 256, 300, -64, -8, -5):
        c = np.zeros((70, 60), np.float32)
        compiled.launch(A=a, B=b, C=c, P=np.zeros(4, np.int32), x=start, y=0, device=device)
        x, y = (m[:, max(start, 0) :].astype(np.float32) for m in (a, b))
        assert (c == x @ y.T).all(), start


@pytest.mark.parametrize(("chip", "bar"), [("gfx942", 34), ("gfx950", 68)])
def test_as_dense_as_from_zero(chip: str, bar: float) -> None:
    def n(start: str) -> float | None:
        hot = inspect(tileir.compile(text(start, tile=256), chip).hsaco).kernel.hot_loop
        assert hot is not None
        return hot.counts.n

    found = n("%x")
    assert found is not None and found <= bar and found == n("0")
