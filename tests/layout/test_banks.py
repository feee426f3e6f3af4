"""The bank conflict model: published vectors, brute force, and the rank argument."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileir import target
from tileir.layout import (
    Access,
    BankRule,
    LayoutError,
    SharedLayout,
    conflict_degree,
    conflict_degrees,
    mfma_operand,
    prove,
)
from tileir.layout.banks import coset, linear_part, rank_arguments

from .rules import CHIPS, EIGHTS, GFX942, GFX950, SIXTEENS, Rule, consecutive


def brute_force(addresses: Sequence[int], width: int, banks: int, groups: Sequence[Sequence[int]]) -> list[int]:
    """Degrees by sets of dwords per bank: written without regard to the code under test."""
    out: list[int] = []
    for group in groups:
        per_bank: dict[int, set[int]] = {}
        for lane in group:
            if addresses[lane] >= 0:
                for byte in range(addresses[lane], addresses[lane] + width):
                    per_bank.setdefault(byte // 4 % banks, set()).add(byte // 4)
        out.append(max((len(s) for s in per_bank.values()), default=0))
    return out


# -- the model by hand -----------------------------------------------------------------------------------------------


def test_by_hand() -> None:
    lane = np.arange(64)
    halves = consecutive(32)
    assert conflict_degree(4 * lane, 4, 32, halves) == 1
    assert conflict_degree(8 * lane, 4, 32, halves) == 2  # stride two: 16 banks serve 32 lanes
    assert conflict_degree(128 * lane, 4, 32, halves) == 32  # one column of 128-byte rows
    assert conflict_degree(132 * lane, 4, 32, halves) == 1  # padded by one bank
    assert conflict_degree(0 * lane, 4, 32, halves) == 1  # the same dword for all
    assert conflict_degree(2 * lane, 2, 32, halves) == 1  # two lanes share each dword
    assert conflict_degree(128 * lane, 4, 64, halves) == 16
    assert conflict_degree(np.where(lane % 32 < 3, 128 * lane, -1), 4, 32, halves) == 3  # inactive lanes do not count
    assert conflict_degrees(np.full(64, -1), 4, 32, halves).tolist() == [0, 0]


def test_groups_decide() -> None:
    # lanes 0 and 20 on one bank: served together by gfx942's b128 reads, not by consecutive groups of eight
    address = np.full(64, -1)
    address[[0, 20]] = [0, 128]
    assert conflict_degree(address, 16, 32, EIGHTS) == 2
    assert conflict_degree(address, 16, 32, consecutive(8)) == 1


@given(
    st.lists(st.integers(-1, 300), min_size=64, max_size=64),
    st.sampled_from([1, 2, 4, 8, 12, 16]),
    st.sampled_from([32, 64]),
    st.sampled_from([EIGHTS, SIXTEENS, consecutive(16), consecutive(8), consecutive(32)]),
)
def test_against_brute_force(units: list[int], width: int, banks: int, groups: tuple[tuple[int, ...], ...]) -> None:
    step = min(width & -width, 4)
    addresses = [u * step if u >= 0 else -1 for u in units]
    assert conflict_degrees(addresses, width, banks, groups).tolist() == brute_force(addresses, width, banks, groups)


def test_malformed_input() -> None:
    with pytest.raises(LayoutError, match="exactly once"):
        conflict_degree([0] * 64, 4, 32, [range(32)])
    with pytest.raises(LayoutError, match="64 addresses"):
        conflict_degree([0] * 32, 4, 32, consecutive(32))
    with pytest.raises(LayoutError, match="several addresses"):
        zeros = np.zeros((1, 64), dtype=np.int64)
        Access("x", replace(GFX942["ds_read_b64"], addresses_per_lane=2), zeros, zeros)


# -- published vectors and traps -------------------------------------------------------------------------------------
# Fragment reads of 16 rows: lane l reads 16 bytes of row l % 16 at byte 16 * (l // 16). (chip, row bytes, swizzle, degree)
VECTORS = [
    ("gfx942", 64, None, 2),
    ("gfx942", 64, (2, 4, 2), 1),
    ("gfx942", 64, (2, 4, 3), 1),
    ("gfx942", 64, (3, 4, 2), 2),  # trap: clean under consecutive groups
    ("gfx942", 64, (4, 4, 2), 2),  # trap
    ("gfx942", 128, (3, 4, 3), 1),  # 16-byte column XOR row % 8
    ("gfx942", 256, (3, 4, 4), 1),  # the same for 256-byte rows
    ("gfx942", 512, (3, 4, 5), 1),
    ("gfx950", 64, (2, 4, 3), 1),
    ("gfx950", 64, (2, 4, 4), 2),  # trap
    ("gfx950", 64, (3, 4, 4), 2),  # trap
    ("gfx950", 64, (4, 4, 2), 2),  # trap
    ("gfx950", 64, (4, 4, 4), 2),  # trap
    ("gfx950", 128, None, 4),
    ("gfx950", 128, (3, 4, 4), 1),
    ("gfx950", 128, (4, 4, 3), 2),  # trap
    ("gfx950", 256, (3, 4, 4), 2),  # row % 8 is not enough for 256-byte rows
    ("gfx950", 256, (4, 4, 4), 1),
    ("gfx950", 512, (3, 4, 5), 2),
]


def fragment_read(rule: Rule, row_bytes: int) -> Access:
    lane = np.arange(64)
    starts = range(0, row_bytes, 64)
    rows = np.stack([lane % 16 for _ in starts])
    cols = np.stack([16 * (lane // 16) + s for s in starts])
    return Access("fragment", rule, rows, cols)


@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_published_vectors(vector: tuple[str, int, tuple[int, ...] | None, int]) -> None:
    chip, row_bytes, swizzle, degree = vector
    kind = ("swizzle", swizzle) if swizzle else ("rows", ())
    shared = SharedLayout(16, row_bytes, 8, *kind)
    for rules in (CHIPS[chip], target.get(chip).lds_access_by_op):
        proof = prove(shared, [fragment_read(rules["ds_read_b128"], row_bytes)])  # pyright: ignore[reportArgumentType]
        assert proof.degree == degree
        assert proof.accesses[0].ranks is not None
    for address in fragment_read(CHIPS[chip]["ds_read_b128"], row_bytes).addresses(shared):
        rule = CHIPS[chip]["ds_read_b128"]
        assert max(brute_force(address.tolist(), 16, rule.banks, rule.lane_groups)) <= degree


TRAPS = [(c, r, s) for c, r, s, d in VECTORS if s is not None and d == 2 and r < 256]


@pytest.mark.parametrize(("chip", "row_bytes", "swizzle"), TRAPS)
def test_the_traps_would_pass_under_consecutive_lanes(chip: str, row_bytes: int, swizzle: tuple[int, ...]) -> None:
    """What makes them traps, and why the measured groups matter."""
    rule = CHIPS[chip]["ds_read_b128"]
    naive = replace(rule, lane_groups=consecutive(rule.banks * 4 // 16))
    shared = SharedLayout(16, row_bytes, 8, "swizzle", swizzle)
    assert prove(shared, [fragment_read(naive, row_bytes)]).degree == 1
    assert prove(shared, [fragment_read(rule, row_bytes)]).degree == 2


def test_fp8_16x16x128_rows_of_128_bytes() -> None:
    # operand of 16x16x128 fp8: each lane reads two 16-byte pieces, k = 16 * (l // 16) and the same + 64
    operand = mfma_operand(16, 128, bits=8)
    access = Access.of_layout("A", GFX950["ds_read_b128"], operand, 8)
    assert len(access.rows) == 2
    assert access.cols[:, 17].tolist() == [16, 80]
    assert prove(SharedLayout(16, 128, 8), [access]).degree == 4
    assert prove(SharedLayout(16, 128, 8, "swizzle", (3, 4, 4)), [access]).degree == 1


def test_160_byte_rows() -> None:
    # 16 rows of 160 bytes = 40 banks: on 32 banks, lanes r and r + 4 start 160 banks = 0 (mod 32) apart
    rule = GFX942["ds_read_b64"]
    lane = np.arange(64)
    access = Access("A", rule, (lane % 16)[None], (8 * (lane // 16))[None])
    proof = prove(SharedLayout(16, 160, 8), [access])
    assert proof.degree == 4 and proof.accesses[0].ranks is None
    assert "the enumeration is the proof" in str(proof)
    assert prove(SharedLayout(16, 160, 8, "padded", (168,)), [access]).degree == 1


# -- a wrong table must be noticed -------------------------------------------------------------------------------------


def pair_probes(rule: BankRule) -> np.ndarray:
    """Degree for every pair of lanes that touch different dwords of one bank while all others rest."""
    first, second = np.triu_indices(64, 1)
    address = np.full((len(first), 64), -1)
    address[np.arange(len(first)), first] = 0
    address[np.arange(len(first)), second] = rule.banks * 4
    return Access("probe", rule, address, address * 0).degrees(SharedLayout(1 << 12, 1, 8)).max(axis=1)


def expected_probes(rule: Rule) -> np.ndarray:
    together = np.zeros((64, 64), dtype=bool)
    for group in rule.lane_groups:
        together[np.ix_(group, group)] = True
    return np.where(together[np.triu_indices(64, 1)], 2, 1)


@pytest.mark.parametrize(("chip", "op"), [(c, op) for c, rules in CHIPS.items() for op in rules])
def test_tables_of_the_target_and_every_mutation_of_them(chip: str, op: str) -> None:
    hand = CHIPS[chip][op]
    rule = target.get(chip).lds_access_by_op[op]
    assert (rule.banks, rule.bytes_per_lane, rule.bank_bytes) == (hand.banks, hand.bytes_per_lane, 4)
    assert rule.evidence == "measured"
    expected = expected_probes(hand)
    assert np.array_equal(pair_probes(rule), expected)
    groups = rule.lane_groups
    for g in range(len(groups)):
        h = (g + 1) % len(groups)
        for i in range(0, len(groups[g]), 3):
            mutated = [list(x) for x in groups]
            mutated[g][i], mutated[h][i] = mutated[h][i], mutated[g][i]
            wrong = replace(rule, lane_groups=tuple(tuple(x) for x in mutated))
            assert not np.array_equal(pair_probes(wrong), expected)


# -- the rank argument ---------------------------------------------------------------------------------------------------


def test_measured_groups_are_cosets() -> None:
    assert coset(EIGHTS[0]) == (0, (1, 2, 20))  # l0, l1, l2 + l4
    assert coset(SIXTEENS[0]) == (0, (1, 2, 12, 20))  # l0, l1, l2 + l3, l2 + l4
    assert coset(EIGHTS[5]) == (36, (1, 2, 20))
    assert coset((0, 1, 2, 4)) is None


@given(
    st.lists(st.integers(0, 255), min_size=6, max_size=6),
    st.integers(0, 255),
    st.sampled_from([4, 8, 16]),
    st.sampled_from([32, 64]),
    st.sampled_from([EIGHTS, SIXTEENS, consecutive(16), consecutive(32)]),
)
def test_ranks_give_the_enumerated_degree(
    units: list[int], start: int, width: int, banks: int, groups: tuple[tuple[int, ...], ...]
) -> None:
    vectors = [u * width for u in units]
    lane = np.arange(64)
    address = np.full(64, start * width)
    for i, v in enumerate(vectors):
        address ^= (lane >> i & 1) * v
    assert linear_part(address) == tuple(vectors)
    arguments = rank_arguments(address, width, banks, groups)
    assert arguments is not None
    assert [a.degree for a in arguments] == brute_force(address.tolist(), width, banks, groups)


def test_no_rank_argument_without_linearity() -> None:
    lane = np.arange(64)
    assert rank_arguments(160 * lane, 16, 32, EIGHTS) is None
    assert rank_arguments(16 * lane, 12, 32, EIGHTS) is None  # three dwords are no subspace
    assert rank_arguments(np.where(lane < 32, 16 * lane, -1), 16, 32, EIGHTS) is None


def test_report_shows_enumeration_rank_and_evidence() -> None:
    access = fragment_read(GFX950["ds_read_b128"], 128)
    text = str(prove(SharedLayout(16, 128, 8, "swizzle", (4, 4, 3)), [access]))
    assert "swizzle(4, 4, 3): 16 x 128 elements of 8 bits, 2048 bytes" in text
    assert "fragment: ds_read_b128 degree 2 (lane groups measured)" in text
    assert "lanes {0-3, 12-15, 20-27}: degree 2" in text
    # row 1: 128 bytes on, column 0 XOR (128 >> 7 & 15) = 1
    assert "lane 1 at 144 banks 36-39" in text
    assert "rank 6 in all, rank 5 on the bank bits, degree 2^1 = 2" in text


def test_torn_lanes_are_refused() -> None:
    access = fragment_read(GFX942["ds_read_b128"], 128)
    with pytest.raises(LayoutError, match="tears the 16 bytes"):
        prove(SharedLayout(16, 128, 8, "swizzle", (4, 3, 4)), [access])


def test_accesses_need_runs() -> None:
    with pytest.raises(LayoutError, match="needs 16 elements contiguous"):
        Access.of_layout("A", GFX942["ds_read_b128"], mfma_operand(16, 32, bits=8), 8)
