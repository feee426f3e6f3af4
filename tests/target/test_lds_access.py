"""The LDS lane groups: partition of the wave, coset property, and mutants of both."""

from __future__ import annotations

import copy
import random
from itertools import chain
from typing import Any

import pytest

from tileir import target
from tileir.target.load import build_target, parse_lanes, read_data
from tileir.target.model import LdsAccess, Target

CHIPS = target.names()


def span(masks: tuple[int, ...]) -> set[int]:
    vectors = {0}
    for mask in masks:
        vectors |= {v ^ mask for v in vectors}
    return vectors


def violations(access: LdsAccess, wave_size: int) -> list[str]:
    """What is wrong with the groups: they must partition the wave, each must be a coset of the stated subspace."""
    found: list[str] = []
    if sorted(chain.from_iterable(access.lane_groups)) != list(range(wave_size)):
        found.append("the groups do not partition the lanes")
    subspace = span(access.subspace)
    if len(subspace) != 2 ** len(access.subspace):
        found.append("the generators are dependent")
    for group in access.lane_groups:
        if {group[0] ^ v for v in subspace} != set(group):
            found.append(f"group {group} is not a coset")
    return found


def all_accesses() -> list[tuple[Target, LdsAccess]]:
    return [(target.get(c), a) for c in CHIPS for a in target.get(c).lds_accesses]


@pytest.mark.parametrize(("chip", "access"), all_accesses(), ids=lambda x: getattr(x, "op", getattr(x, "name", "")))
def test_groups_are_cosets_that_partition_the_wave(chip: Target, access: LdsAccess) -> None:
    assert violations(access, chip.wave_size) == []


@pytest.mark.parametrize(("chip", "access"), all_accesses(), ids=lambda x: getattr(x, "op", getattr(x, "name", "")))
def test_a_group_fits_the_banks(chip: Target, access: LdsAccess) -> None:
    """A group is what one clock can serve at best: its bytes never exceed one pass over the banks."""
    per_address = access.bytes_per_lane // access.addresses_per_lane
    width = max(per_address, access.bank_bytes)
    assert len(access.lane_groups[0]) * width <= access.banks * access.bank_bytes
    assert access.direction in ("read", "write") and access.evidence in ("measured", "assumed")


def test_measured_groups_as_published() -> None:
    small, large = target.get("gfx942"), target.get("gfx950")
    b128 = small.lds_access("ds_read_b128")
    assert b128.lane_groups[0] == (0, 1, 2, 3, 20, 21, 22, 23) and b128.banks == 32 and b128.evidence == "measured"
    assert b128.lane_groups[7] == tuple(parse_lanes("44-47,56-59"))
    b128 = large.lds_access("ds_read_b128")
    assert b128.lane_groups[0] == tuple(parse_lanes("0-3,12-15,20-27")) and b128.banks == 64
    assert large.lds_access("ds_read_b96").lane_groups == small.lds_access("ds_read_b128").lane_groups
    assert [len(g) for g in large.lds_access("ds_read_b64").lane_groups] == [32, 32]
    assert large.lds_access("ds_write_b128").evidence == "assumed"
    assert large.lds_access("buffer_load_dwordx4_lds").direction == "write"


def test_missing_instruction_is_named() -> None:
    with pytest.raises(KeyError, match="gfx942 has no LDS instruction 'ds_read_b64_tr_b16'"):
        target.get("gfx942").lds_access("ds_read_b64_tr_b16")


def _mutants(rows: list[dict[str, Any]], rng: random.Random) -> list[tuple[str, list[dict[str, Any]]]]:
    """Every row with one lane swapped between two groups, and every row with one generator bit flipped."""
    result: list[tuple[str, list[dict[str, Any]]]] = []
    for index, row in enumerate(rows):
        swapped = copy.deepcopy(rows)
        groups = [list(parse_lanes(g)) for g in row["lane_groups"]]
        first, second = rng.sample(range(len(groups)), 2)
        i, j = rng.randrange(len(groups[first])), rng.randrange(len(groups[second]))
        groups[first][i], groups[second][j] = groups[second][j], groups[first][i]
        swapped[index]["lane_groups"] = [",".join(map(str, g)) for g in groups]
        result.append((f"{row['op']} swap", swapped))
        flipped = copy.deepcopy(rows)
        generator = rng.randrange(len(row["subspace"]))
        flipped[index]["subspace"][generator] ^= 32  # no group of any class joins lanes of both halves of the wave
        result.append((f"{row['op']} flip", flipped))
        dropped = copy.deepcopy(rows)
        dropped[index]["lane_groups"] = dropped[index]["lane_groups"][1:]
        result.append((f"{row['op']} drop", dropped))
    return result


@pytest.mark.parametrize("name", CHIPS)
def test_every_mutant_is_found(name: str) -> None:
    data = read_data(name)
    for label, rows in _mutants(data["lds_access"], random.Random(7)):
        mutant = build_target({**data, "lds_access": rows})
        assert any(violations(a, mutant.wave_size) for a in mutant.lds_accesses), label
