"""Loops of products: every pattern, depth, way into LDS and type, for every trip count from 0 to 9 (cases odd-trips, stale-lds, barrier-parity)."""

from __future__ import annotations

import random

import pytest

from tests.kernels.harness import CHIPS
from tests.passes.loop_matrix import PATTERNS, WAYS, Case, cases, check, deserves

HARD = (
    Case("gfx942", "ping_pong", 3, "via_registers", "bf16"),
    Case("gfx950", "ping_pong", 4, "direct", "fp8"),
    Case("gfx950", "interleave", 4, "direct", "mxfp8"),
    Case("gfx950", "interleave", 2, "direct", "mxfp8"),  # loads of scales among the copies before the loop
    Case("gfx942", "interleave", 1, "via_registers", "i8"),
)
ERRORS = {deserves(c): c for c in cases() if deserves(c)}
SAMPLE = random.Random(5).sample([c for c in cases() if not deserves(c)], 4)


@pytest.mark.parametrize("case", [*HARD, *ERRORS.values(), *SAMPLE], ids=str)
def test_right_for_every_trip_count(case: Case) -> None:
    check(case)


@pytest.mark.nightly
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("chip", CHIPS)
def test_whole_matrix(chip: str, way: str, pattern: str) -> None:
    broken: list[str] = []
    for case in cases():
        if (case.chip, case.way, case.pattern) == (chip, way, pattern):
            try:
                check(case)
            except AssertionError as e:
                broken.append(str(e).splitlines()[0])
    assert not broken, "\n".join(broken)
