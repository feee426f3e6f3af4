"""Issue, matrix pipes, VALU and LDS on microbenchmarks: the clocks that the documents say."""

from __future__ import annotations

import pytest

from tests.simulator.timing.timing_kernels import (
    CHIPS,
    LANE_ADDRESSES,
    ZEROS,
    clocks_of_each,
    conflicting,
    timed,
)
from tileir.simulator.timing.records import Cause

# instruction, registers of D / A / B, clocks on gfx942 and gfx950 (None: does not exist)
MATRIX = [
    ("v_mfma_f32_16x16x16_f16", 4, 2, 2, 16, 16),
    ("v_mfma_f32_32x32x8_bf16", 16, 2, 2, 32, 32),
    ("v_mfma_i32_16x16x32_i8", 4, 2, 2, 16, 16),
    ("v_mfma_f32_32x32x16_fp8_fp8", 16, 2, 2, 32, 32),
    ("v_mfma_f32_16x16x32_bf16", 4, 4, 4, None, 16),
    ("v_mfma_f32_32x32x16_f16", 16, 4, 4, None, 32),
    ("v_mfma_f32_16x16x8_xf32", 4, 2, 2, 16, None),
    ("v_mfma_f32_16x16x4_f32", 4, 1, 1, 32, 32),
    ("v_mfma_f32_32x32x2_f32", 16, 1, 1, 64, 64),
    ("v_mfma_f64_16x16x4_f64", 8, 2, 2, 32, 64),
    ("v_mfma_f32_16x16x128_f8f6f4", 4, 8, 8, None, 32),
    ("v_mfma_f32_32x32x64_f8f6f4", 16, 8, 8, None, 64),
    ("v_mfma_f32_16x16x128_f8f6f4 cbsz:4 blgp:4", 4, 4, 4, None, 16),
    ("v_mfma_f32_32x32x64_f8f6f4 cbsz:4 blgp:4", 16, 4, 4, None, 32),
]


def _matrix(name: str, d: int, a: int, b: int, result: int, factor: int = 64) -> str:
    """An MFMA that accumulates into the registers from ``result`` on."""
    op, _, modifiers = name.partition(" ")

    def span(first: int, count: int) -> str:
        return f"v[{first}:{first + count - 1}]" if count > 1 else f"v{first}"

    return f"{op} {span(result, d)}, {span(factor, a)}, {span(factor + 16, b)}, {span(result, d)} {modifiers}"


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("name", "d", "a", "b", "gfx942", "gfx950"), MATRIX, ids=[m[0] for m in MATRIX])
def test_chains_of_matrix_instructions(
    chip: str, name: str, d: int, a: int, b: int, gfx942: int | None, gfx950: int | None
) -> None:
    """Independent ones issue at the interval; a chain on one accumulator does, too, as no wait states are needed."""
    expected = {"gfx942": gfx942, "gfx950": gfx950}[chip]
    if expected is None:
        return
    dependent = clocks_of_each(_matrix(name, d, a, b, 0), chip, times=24)
    independent = clocks_of_each("\n".join(_matrix(name, d, a, b, 16 * i) for i in range(3)), chip, times=8) / 3
    assert (dependent, independent) == (expected, expected)


# wait states between an MFMA and one that reads its result as a factor (passes + 3, gfx950 one more), and one turn
@pytest.mark.parametrize(
    ("chip", "name", "expected"),
    [
        ("gfx942", "v_mfma_f32_32x32x8_f16 v[0:15], v[0:1], v[64:65], v[16:31]", 4 * (8 + 3 + 1)),
        ("gfx950", "v_mfma_f32_32x32x8_f16 v[0:15], v[0:1], v[64:65], v[16:31]", 4 * (8 + 4 + 1)),
        ("gfx942", "v_mfma_f32_16x16x16_f16 v[0:3], v[0:1], v[64:65], v[16:19]", 4 * (4 + 3 + 1)),
        ("gfx950", "v_mfma_f32_16x16x4_f32 v[0:3], v0, v64, v[16:19]", 4 * (8 + 2 + 1)),
        ("gfx942", "v_mfma_f32_4x4x4_16b_f16 v[0:3], v[0:1], v[64:65], v[16:19]", 4 * (2 + 3 + 1)),
        ("gfx950", "v_mfma_f32_4x4x4_16b_f16 v[0:3], v[0:1], v[64:65], v[16:19]", 4 * (2 + 3 + 1)),
    ],
)
def test_result_as_a_factor(chip: str, name: str, expected: int) -> None:
    assert clocks_of_each(name, chip) == expected


@pytest.mark.parametrize(("chip", "expected"), [("gfx942", 4 * (8 + 3 + 1)), ("gfx950", 4 * (8 + 4 + 1))])
def test_valu_waits_for_a_matrix_result(chip: str, expected: int) -> None:
    """The VALU instruction reads the result and writes a factor: two wait states from it to the next MFMA."""
    body = "v_mfma_f32_32x32x8_f16 v[0:15], v[64:65], v[66:67], v[0:15]\nv_add_f32 v64, v0, v1"
    assert clocks_of_each(body, chip) == expected + 4 * (2 + 1)


@pytest.mark.parametrize("chip", CHIPS)
def test_two_opcodes_on_one_accumulator(chip: str) -> None:
    """gfx950 needs p + 1 wait states between them, which the check for hazards asks for as well."""
    body = "v_mfma_f32_16x16x16_f16 v[0:3], v[64:65], v[66:67], v[0:3]\nv_mfma_f32_16x16x16_bf16 v[0:3], v[64:65], v[66:67], v[0:3]"
    assert clocks_of_each(body, chip) == {"gfx942": 2 * 16, "gfx950": 2 * 4 * (4 + 1 + 1)}[chip]


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("waves", "times"), [(1, 1), (4, 1), (8, 2), (16, 4)])
def test_each_simd_has_a_matrix_pipe(chip: str, waves: int, times: int) -> None:
    body = _matrix("v_mfma_f32_32x32x8_f16", 16, 2, 2, 0)
    assert clocks_of_each(body, chip, waves=waves, times=24, vgprs=96, accum=96) == 32 * times


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    ("body", "gfx942", "gfx950"),
    [
        ("v_add_f32 v1, v1, v2", 4, 4),
        ("v_fma_f64 v[2:3], v[2:3], v[4:5], v[6:7]", 4, 4),
        ("v_pk_fma_f32 v[2:3], v[2:3], v[4:5], v[6:7]", 4, 4),
        ("v_exp_f32 v1, v1", 16, 16),
        ("v_mul_lo_u32 v1, v1, v2", 16, 16),
        ("v_permlane32_swap_b32 v1, v2", None, 20),
        ("s_add_u32 s4, s4, s5", 4, 4),
        ("s_nop 0", 4, 4),
        ("s_nop 7", 32, 32),
        ("s_sleep 2", 128, 128),
    ],
)
def test_one_wave_alone(chip: str, body: str, gfx942: int | None, gfx950: int | None) -> None:
    expected = {"gfx942": gfx942, "gfx950": gfx950}[chip]
    if expected is not None:
        assert clocks_of_each(body, chip) == expected


@pytest.mark.parametrize(("chip", "free"), [("gfx942", 7), ("gfx950", 6)])
def test_valu_under_a_matrix_instruction(chip: str, free: int) -> None:
    """28 of the 32 clocks are open on gfx942, 24 on gfx950: so many VALU instructions cost nothing, and one more does."""
    matrix = _matrix("v_mfma_f32_32x32x8_f16", 16, 2, 2, 0) + "\n"
    assert clocks_of_each(matrix + "v_add_f32 v90, v91, v92\n" * free, chip, times=16) == 32
    assert clocks_of_each(matrix + "v_add_f32 v90, v91, v92\n" * (free + 1), chip, times=16) == 36


@pytest.mark.parametrize(("chip", "expected"), [("gfx942", 32), ("gfx950", 32 + 3 * 4)])
def test_packed_f32_under_a_matrix_instruction(chip: str, expected: int) -> None:
    """It does not issue while the matrix pipe of gfx950 works."""
    body = _matrix("v_mfma_f32_32x32x8_f16", 16, 2, 2, 0) + "\nv_pk_mul_f32 v[90:91], v[92:93], v[92:93]" * 3
    assert clocks_of_each(body, chip, times=16) == expected


@pytest.mark.parametrize("chip", CHIPS)
def test_one_instruction_of_a_class_per_turn(chip: str) -> None:
    """Two waves of one SIMD share the VALU; one with VALU and one with scalar work do not disturb each other."""
    by_wave = "v_readfirstlane_b32 s8, v0\ns_barrier\ns_cmp_ge_u32 s8, 256\ns_cbranch_scc1 Lsecond\n"
    valu, salu = "v_add_f32 v1, v1, v2\n" * 200, "s_add_u32 s4, s4, s5\n" * 200
    both = timed(by_wave + valu + "s_endpgm\nLsecond:\n" + valu, chip, waves=8)
    mixed = timed(by_wave + valu + "s_endpgm\nLsecond:\n" + salu, chip, waves=8)
    assert both.cu.clocks > 1600 and mixed.cu.clocks < 900
    assert both.total.stalls["issue"] + both.total.stalls.get("valu_busy", 0) > 700
    assert mixed.total.stalls.get("valu_busy", 0) == 0


READS = [("ds_read_b128", "v[4:7]", 16), ("ds_read_b64", "v[4:5]", 8), ("ds_read_b32", "v4", 4)]


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("op", "to", "bytes_"), READS, ids=[r[0] for r in READS])
def test_reads_with_conflicts(chip: str, op: str, to: str, bytes_: int) -> None:
    """Four waves, one on each SIMD: the CU moves 128 bytes a clock (gfx950: 256, with reads of 8 and 16 bytes), and
    n lanes in one bank take n times as long; conflict clocks are what is beyond the clocks without conflicts."""
    rate = 256 if chip == "gfx950" and bytes_ > 4 else 128
    plain = 4 * 64 * bytes_ // rate
    least = 64 * bytes_ // rate
    for degree in (1, 2, 4, 8):
        data = conflicting(chip, op, degree)
        options = {"waves": 4, "lds": 16384, "data": data}
        assert clocks_of_each(f"{op} {to}, v2", chip, before=LANE_ADDRESSES, **options) == plain * degree
        timing = timed(LANE_ADDRESSES + f"{op} {to}, v2\n" * 8, chip, **options)  # type: ignore[arg-type]
        assert timing.total.lds_clocks == 4 * 8 * least * degree
        assert timing.total.conflict_clocks == 4 * 8 * least * (degree - 1)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("op", "to", "interval"), [("ds_read_b128", "v[4:7]", 16), ("ds_read_b64", "v[4:5]", 8)])
def test_one_wave_reads_at_its_own_rate(chip: str, op: str, to: str, interval: int) -> None:
    data = conflicting(chip, op, 1)
    assert clocks_of_each(f"{op} {to}, v2", chip, before=LANE_ADDRESSES, lds=16384, data=data) == interval


@pytest.mark.parametrize("chip", CHIPS)
def test_latency_of_the_lds(chip: str) -> None:
    """30 to 50 clocks until the data have come; the wait is an instruction more."""
    for op, to in (("ds_read_b32", "v4"), ("ds_read_b128", "v[4:7]")):
        body = f"{op} {to}, v2\ns_waitcnt lgkmcnt(0)"
        clocks = clocks_of_each(body, chip, before=LANE_ADDRESSES, lds=16384, data=conflicting(chip, op, 1))
        assert 30 <= clocks - 4 <= 52


@pytest.mark.parametrize("chip", CHIPS)
def test_stalls_have_causes(chip: str) -> None:
    """A chain waits for its result; a wave beside another one for the pipe."""
    chain = timed(ZEROS + "\n" + "v_mfma_f32_32x32x8_f16 v[0:15], v[0:1], v[64:65], v[16:31]\n" * 32, chip)
    assert max(chain.total.stalls, key=lambda cause: chain.total.stalls[cause]) == "dependency"
    pipe = timed(ZEROS + "\n" + _matrix("v_mfma_f32_32x32x8_f16", 16, 2, 2, 0) + "\n", chip)
    assert pipe.cu.stalls[:, Cause.MFMA_BUSY].sum() == 0
    two = _matrix("v_mfma_f32_32x32x8_f16", 16, 2, 2, 0) + "\n" + _matrix("v_mfma_f32_32x32x8_f16", 16, 2, 2, 16)
    busy = timed(ZEROS + "\n" + (two + "\n") * 32, chip)
    assert max(busy.total.stalls, key=lambda cause: busy.total.stalls[cause]) == "mfma_busy"


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    ("body", "expected"), [("ds_bpermute_b32 v4, v2, v3", 8), ("ds_swizzle_b32 v4, v2 offset:swizzle(SWAP,1)", 8)]
)
def test_moves_across_lanes_use_the_lds(chip: str, body: str, expected: int) -> None:
    """Like writes of 4 bytes (assumed): 512 bytes of a pair of waves at half of 128 bytes a clock."""
    assert clocks_of_each(body, chip, before=LANE_ADDRESSES, waves=4, lds=256) == expected


def test_direct_loads_use_the_bandwidth_of_the_lds() -> None:
    """A load to LDS and a read with 4-way conflicts share the pair of SIMDs: 16 clocks for the one, 32 for the other."""
    chip, op = "gfx950", "ds_read_b128"
    before = LANE_ADDRESSES + "s_mov_b32 m0, 0x2000\nv_lshlrev_b32 v1, 4, v0\n"
    options = {"waves": 2, "lds": 16384, "data": conflicting(chip, op, 4)}
    read = f"{op} v[4:7], v2\n" * 4
    alone = clocks_of_each(read, chip, before=before, times=16, **options)
    both = clocks_of_each(read + "global_load_lds_dwordx4 v1, s[4:5]", chip, before=before, times=16, **options)
    assert (alone, both) == (4 * 2 * 32, 4 * 2 * 32 + 2 * 16)


@pytest.mark.parametrize("chip", CHIPS)
def test_cache_control_is_no_load(chip: str) -> None:
    """buffer_inv does not count: the wait for the load before it is the same."""
    load = "global_load_dword v4, v1, s[4:5]\n"
    plain, inv = (
        timed(LANE_ADDRESSES + load + more + "s_waitcnt vmcnt(0)\n", chip) for more in ("", "buffer_inv sc1\n")
    )
    assert 0 <= inv.cu.clocks - plain.cu.clocks <= 16
