"""Lane groups copied by hand from published measurements, independent of the tables under test."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    op: str
    bytes_per_lane: int
    banks: int
    lane_groups: tuple[tuple[int, ...], ...]
    evidence: str = "measured"
    direction: str = "read"
    addresses_per_lane: int = 1
    bank_bytes: int = 4


def lanes(*ranges: tuple[int, int]) -> tuple[int, ...]:
    return tuple(lane for first, last in ranges for lane in range(first, last + 1))


def both_halves(*groups: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return (*groups, *(tuple(lane + 32 for lane in g) for g in groups))


def consecutive(size: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(range(i, i + size)) for i in range(0, 64, size))


EIGHTS = both_halves(
    lanes((0, 3), (20, 23)), lanes((4, 7), (16, 19)), lanes((8, 11), (28, 31)), lanes((12, 15), (24, 27))
)
SIXTEENS = both_halves(lanes((0, 3), (12, 15), (20, 27)), lanes((4, 11), (16, 19), (28, 31)))

GFX942 = {
    "ds_read_b128": Rule("ds_read_b128", 16, 32, EIGHTS),
    "ds_read_b64": Rule("ds_read_b64", 8, 32, consecutive(16)),
    "ds_write_b128": Rule("ds_write_b128", 16, 32, consecutive(8), direction="write"),
}
GFX950 = {
    "ds_read_b128": Rule("ds_read_b128", 16, 64, SIXTEENS),
    "ds_read_b96": Rule("ds_read_b96", 12, 32, EIGHTS),
    "ds_read_b64": Rule("ds_read_b64", 8, 64, consecutive(32)),
    "ds_read_b64_tr_b16": Rule("ds_read_b64_tr_b16", 8, 64, consecutive(32)),
    "ds_write_b64": Rule("ds_write_b64", 8, 32, consecutive(16), direction="write"),
}
CHIPS = {"gfx942": GFX942, "gfx950": GFX950}
