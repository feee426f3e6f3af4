"""Rules about grids: into how many parts a sum over k is cut. Orders are in test_order_grid.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileir.passes.grid_rules import LEAST_STEPS, WORTH_STEPS, Chip, split_k
from tileir.target import get

CHIPS = {name: Chip.of(get(name)) for name in ("gfx942", "gfx950")}
SIZES = st.integers(1, 5000)


@given(st.sampled_from(sorted(CHIPS)), SIZES, SIZES, st.integers(1, 4))
def test_parts_fill_the_chip_and_no_more(name: str, tiles: int, steps: int, per_cu: int) -> None:
    chip = CHIPS[name]
    parts = split_k(chip, tiles, steps, per_cu)
    assert parts >= 1 and parts & (parts - 1) == 0
    places = chip.cus * per_cu
    if parts > 1:
        assert parts * tiles <= places and parts * LEAST_STEPS <= steps and steps >= WORTH_STEPS
    elif steps >= WORTH_STEPS:
        assert 2 * tiles > places
    # The next doubling would not fit, or leave a part too short.
    if steps >= WORTH_STEPS:
        assert 2 * parts * tiles > places or 2 * parts * LEAST_STEPS > steps


# What the timing model found best (benchmarks/split_k.py) for C of 256, 512 and 1024 rows in tiles of 128 x 128 x 64.
@pytest.mark.parametrize(
    ("chip", "size", "k", "best"),
    [
        *(("gfx950", size, k, best) for k in (4096, 16384) for size, best in ((512, 16), (1024, 4))),
        *(("gfx942", size, k, best) for k in (4096, 16384) for size, best in ((512, 16), (1024, 4))),
    ],
)
def test_the_rule_is_what_the_model_found(chip: str, size: int, k: int, best: int) -> None:
    assert split_k(CHIPS[chip], (size // 128) ** 2, k // 64) == best


def test_full_chips_and_short_sums_are_not_cut() -> None:
    for chip in CHIPS.values():
        assert split_k(chip, chip.cus, 1000) == 1 and split_k(chip, 1, WORTH_STEPS - 1) == 1
        assert split_k(chip, chip.cus // 2, 1000) == 2
    assert split_k(CHIPS["gfx950"], 1, 1 << 20) == 256
