"""No lane group of any instruction on any chip can be wrong unnoticed: every table entry must give the degrees that were worked
out on paper, and every mutation of every group must give others.

On paper: lanes of one group that touch different dwords of one bank wait for one another, so as many lanes as the group has make a
degree of that many; lanes of different groups never meet. The groups are those of `tests.layout.rules` and of the consecutive
rule, written down there and in `tests.passes.lds_tracer` by hand.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.passes.lds_tracer import bytes_of, rule
from tileir import target
from tileir.layout import LayoutError, conflict_degrees
from tileir.target.load import build_target, read_data
from tileir.target.model import LdsAccess

CHIPS = target.names()
BANK_ROWS = 64 * 4  # bytes after which 32 and 64 banks both repeat


def vectors(chip: str, op: str) -> Iterator[tuple[list[int], int]]:
    """(byte address of each lane or -1, degree by hand) of accesses that tell the groups and the number of banks."""
    banks, groups = rule(chip, op)
    for group in groups:  # a group alone, each lane on its own row of bank 0: all wait for one another
        yield [BANK_ROWS * lane if lane in group else -1 for lane in range(64)], len(group)
    yield [BANK_ROWS * lane for lane in range(64)], len(groups[0])  # everyone: still only the own group waits
    first, second = groups[0][0], groups[0][-1]  # two rows of 32 banks apart: one bank of 32, two of 64
    yield [{first: 0, second: 128}.get(lane, -1) for lane in range(64)], 2 if banks == 32 else 1
    yield [0] * 64, 1  # one dword for everybody


def noticed(access: LdsAccess, chip: str, op: str) -> bool:
    """Whether the table disagrees with a vector, or is no table at all."""
    try:
        width = access.bytes_per_lane // access.addresses_per_lane
        for addresses, degree in vectors(chip, op):
            got = conflict_degrees(addresses, width, access.banks, access.lane_groups, access.bank_bytes)
            if int(got.max()) != degree:
                return True
    except LayoutError:
        return True
    return False


def entries() -> list[tuple[str, int, str]]:
    return [(chip, i, row["op"]) for chip in CHIPS for i, row in enumerate(read_data(chip)["lds_access"])]


def access(chip: str, row: dict[str, Any]) -> LdsAccess:
    (found,) = build_target({**read_data(chip), "lds_access": [row]}).lds_accesses
    return found


def expanded(row: dict[str, Any]) -> list[list[int]]:
    groups: list[list[int]] = []
    for text in row["lane_groups"]:
        lanes: list[int] = []
        for part in text.split(","):
            first, _, last = part.partition("-")
            lanes += range(int(first), int(last or first) + 1)
        groups.append(lanes)
    return groups


def mutants(row: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each group in turn: one lane exchanged with the next group, its first half exchanged, joined to the next, cut in two, left
    out; and the other number of banks."""

    def with_groups(groups: list[list[int]]) -> dict[str, Any]:
        new = copy.deepcopy(row)
        new["lane_groups"] = [",".join(map(str, sorted(g))) for g in groups]
        return new

    groups = expanded(row)
    for g, group in enumerate(groups):
        h = (g + 1) % len(groups)
        for lane in range(0, len(group), 3):
            changed = copy.deepcopy(groups)
            changed[g][lane], changed[h][lane] = changed[h][lane], changed[g][lane]
            yield f"lane {group[lane]} exchanged", with_groups(changed)
        half = len(group) // 2
        changed = copy.deepcopy(groups)
        changed[g][:half], changed[h][:half] = changed[h][:half], changed[g][:half]
        yield f"half of group {g} exchanged", with_groups(changed)
        rest = [x for i, x in enumerate(groups) if i not in (g, h)]
        yield f"groups {g} and {h} joined", with_groups([group + groups[h], *rest])
        others = groups[:g] + groups[g + 1 :]
        yield f"group {g} cut", with_groups([group[:half], group[half:], *others])
        yield f"group {g} left out", with_groups(others)
    yield "other banks", {**row, "banks": 96 - row["banks"]}


@pytest.mark.parametrize(("chip", "index", "op"), entries(), ids=str)
def test_every_mutation_of_every_group_is_noticed(chip: str, index: int, op: str) -> None:
    row = read_data(chip)["lds_access"][index]
    real = access(chip, row)
    assert not noticed(real, chip, op)
    assert real.bytes_per_lane == bytes_of(op) * real.addresses_per_lane
    count = 0
    for name, mutant in mutants(row):
        assert noticed(access(chip, mutant), chip, op), name
        count += 1
    assert count > 10


def test_traps_on_paper() -> None:
    """16-byte reads of 16 rows, lane l at row l % 16 and byte 16 · (l / 16): the sixteen-byte columns that the lanes of the first
    group hit, worked out by hand, for layouts that look clean when lanes are taken in order."""
    # gfx942, 64-byte rows, swizzle(3, 4, 2): bits 6-8 of the byte (row % 8) onto bits 4-6. Lanes 0-3 and 20-23; 8 columns of
    # 16 bytes are 32 banks, a row has 4 of them. Row r, column q is at 4·r + q, and then q's bits 0-2 get row % 8's.
    lanes = [0, 1, 2, 3, 20, 21, 22, 23]
    rows, columns = [lane % 16 for lane in lanes], [lane // 16 for lane in lanes]
    places = [(4 * r + q) ^ (r % 8) for r, q in zip(rows, columns, strict=True)]
    assert [p % 8 for p in places] == [0, 5, 2, 7, 5, 0, 7, 2]  # each of 4 columns twice: 2-way
    # in order, lanes 0-7 hit 0, 5, 2, 7, 4, 1, 6, 3: free, which is the trap
    assert sorted(((4 * r) ^ (r % 8)) % 8 for r in range(8)) == list(range(8))
    # gfx950, 256-byte rows, row % 8 onto the column: 64 banks are one row of 16 columns. Lanes 0-3, 12-15 read column 0, lanes
    # 20-27 column 1 of rows 4-11.
    lanes = [0, 1, 2, 3, 12, 13, 14, 15, *range(20, 28)]
    places = [(lane // 16) ^ (lane % 16 % 8) for lane in lanes]
    assert places == [0, 1, 2, 3, 4, 5, 6, 7, 5, 4, 7, 6, 1, 0, 3, 2]  # 8 columns twice: 2-way
    for chip, swizzle, row_bytes in (("gfx942", (3, 4, 2), 64), ("gfx950", (3, 4, 4), 256)):
        bits, base, shift = swizzle
        x = np.array([lane % 16 * row_bytes + lane // 16 * 16 for lane in range(64)])
        x = x ^ ((x >> base + shift & (1 << bits) - 1) << base)
        found = target.get(chip).lds_access("ds_read_b128")
        assert int(conflict_degrees(x, 16, found.banks, found.lane_groups).max()) == 2
