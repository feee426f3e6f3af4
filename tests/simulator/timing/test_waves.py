"""Waves against each other and against memory: barriers, priorities, ping-pong, counters, residency, a copy."""

from __future__ import annotations

import pytest

from tests.simulator.timing.timing_kernels import CHIPS, LANE_ADDRESSES, ZEROS, clocks_of_each, conflicting, timed
from tileir.simulator.timing.estimate import TimeOptions
from tileir.simulator.timing.records import Cause, Unit
from tileir.target import get, timing_model

BY_WAVE = "v_readfirstlane_b32 s8, v0\ns_barrier\ns_cmp_ge_u32 s8, {first}\ns_cbranch_scc1 Lsecond\n"
"""Waves from work-item ``first`` on go to Lsecond."""


@pytest.mark.parametrize("chip", CHIPS)
def test_barrier(chip: str) -> None:
    """A wave waits for one that is 100 instructions behind."""
    slow = "s_add_u32 s4, s4, s5\n" * 100
    body = BY_WAVE.format(first=64) + slow + "s_barrier\ns_endpgm\nLsecond:\ns_barrier\n"
    timing = timed(body, chip, waves=2)
    waiting = timing.cu.stalls[:, Cause.BARRIER]
    assert 380 <= timing.total.stalls["barrier"] <= 440
    assert waiting.max() >= 380 and (waiting > 380).sum() == 1


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("priority", [0, 3])
def test_priority(chip: str, priority: int) -> None:
    """The older wave of a SIMD wins, unless the younger one has asked for a higher priority."""
    work = "v_add_f32 v1, v1, v2\n" * 200
    second = f"s_setprio {priority}\n" + work
    timing = timed(BY_WAVE.format(first=256) + work + "s_endpgm\nLsecond:\n" + second, chip, waves=8)
    older, younger = timing.cu.waves[0], timing.cu.waves[4]
    assert older.simd == younger.simd
    assert (older.end < younger.end) == (priority == 0)


def _two_groups(staggered: bool, chip: str, iterations: int = 12) -> str:
    """Eight waves, two on a SIMD, that alternate between reading LDS and computing. Staggered, the second four are held
    back by one barrier, so that one group computes while the other one reads."""
    read = "ds_read_b128 v[96:99], v2\n" * 12 + "s_waitcnt lgkmcnt(0)\n"
    compute = "".join(
        f"v_mfma_f32_32x32x8_f16 v[{16 * (i % 2)}:{16 * (i % 2) + 15}], v[64:65], v[66:67], v[{16 * (i % 2)}:{16 * (i % 2) + 15}]\n"
        for i in range(16)
    )
    step = read + "s_barrier\n" + "s_setprio 1\n" + compute + "s_setprio 0\n" + "s_barrier\n"
    extra = "s_barrier\n" if staggered else ""
    first, second = step * iterations + extra, extra + step * iterations
    return first + "s_endpgm\nLsecond:\n" + second


@pytest.mark.parametrize("chip", CHIPS)
def test_ping_pong(chip: str) -> None:
    """The matrix pipes need 2 · 16 · 32 clocks per iteration; staggered groups hide the reads, groups in step do not."""
    data = conflicting(chip, "ds_read_b128", 1)
    clocks: dict[bool, float] = {}
    for staggered in (False, True):
        before = LANE_ADDRESSES.replace("v_and_b32 v0", "v_readfirstlane_b32 s8, v0\nv_and_b32 v0", 1)
        before += "s_cmp_ge_u32 s8, 256\ns_cbranch_scc1 Lsecond\n"

        def run(n: int, staggered: bool = staggered, before: str = before) -> int:
            body = before + _two_groups(staggered, chip, n)
            return timed(body, chip, waves=8, lds=16384, data=data).cu.clocks

        clocks[staggered] = (run(24) - run(12)) / 12
    floor = 2 * 16 * 32
    reads = 12 * 2 * (32 if chip == "gfx942" else 16)  # both waves of a SIMD, at the rate of a SIMD among four
    assert floor <= clocks[True] <= 1.06 * floor
    assert floor + 0.8 * reads <= clocks[False]


@pytest.mark.parametrize("chip", CHIPS)
def test_counted_wait(chip: str) -> None:
    """Loads that hit the L1: draining the counter pays the latency each time, keeping three on their way a quarter of it."""
    load = "global_load_dword v4, v1, s[4:5]\n"
    latency = timing_model(chip).clocks("l1_latency")
    drained = clocks_of_each(load + "s_waitcnt vmcnt(0)", chip, before=LANE_ADDRESSES)
    counted = clocks_of_each(load + "s_waitcnt vmcnt(3)", chip, before=LANE_ADDRESSES + load * 3)
    assert latency <= drained <= latency + 16
    assert latency / 4 <= counted <= latency / 4 + 8


@pytest.mark.parametrize("chip", CHIPS)
def test_wide_loads_issue_every_64_clocks(chip: str) -> None:
    """And a wait names its cause."""
    load = "global_load_dwordx4 v[4:7], v1, s[4:5]"
    assert clocks_of_each(load, chip, before=LANE_ADDRESSES) == 64
    timing = timed(LANE_ADDRESSES + f"{load}\ns_waitcnt vmcnt(0)\n", chip)
    assert timing.total.stalls["wait_vm"] > 1000  # lines come from memory: a first touch


@pytest.mark.parametrize("chip", CHIPS)
def test_a_taken_branch_costs_more(chip: str) -> None:
    model = timing_model(chip)
    loop = "s_movk_i32 s6, 100\nLloop:\ns_sub_u32 s6, s6, 1\ns_cmp_lg_u32 s6, 0\ns_cbranch_scc1 Lloop\n"
    timing = timed(loop, chip)
    taken = model.clocks("branch_taken_clocks")
    assert timing.cu.clocks == 4 + 99 * (8 + taken) + 8 + model.clocks("branch_not_taken_clocks") + 4
    (row,) = timing.loops
    assert (row.iterations, row.row.mix) == (100, {"salu": 200, "branch": 100})
    assert row.row.stalls == {"branch": 99 * (taken - 4)}


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("lds", "resident"), [(0, 8), (20480, None), (65536, None)])
def test_residency(chip: str, lds: int, resident: int | None) -> None:
    """Workgroups of four waves: eight by wave slots, else as many as have LDS; others start when one has ended."""
    target = get(chip)
    expected = resident or min(8, target.lds_bytes // lds)
    body = "v_add_f32 v1, v1, v2\n" * 100
    options = TimeOptions(rounds=3, sample_only=True)
    timing = timed(
        body, chip, waves=4, lds=lds, vgprs=64, accum=64, groups=target.num_cus * 3 * expected, options=options
    )
    assert timing.occupancy.workgroups_per_cu == expected
    for wave in timing.cu.waves:
        there = [w for w in timing.cu.waves if w.start <= wave.start < w.end and w.simd == wave.simd]
        assert len({w.slot for w in there}) == len(there) <= target.max_waves_per_simd
    starts = sorted(w.start for w in timing.cu.waves)
    assert starts[4 * expected - 1] < 100 <= starts[4 * expected]


@pytest.mark.parametrize("chip", CHIPS)
def test_time_of_workgroups_that_are_not_simulated(chip: str) -> None:
    """Extrapolation from three fillings of the CU agrees with simulating all."""
    body = ZEROS + "\n" + "v_mfma_f32_32x32x8_f16 v[0:15], v[64:65], v[66:67], v[0:15]\n" * 40
    options = {"waves": 4, "groups": get(chip).num_cus * 12, "vgprs": 256, "accum": 256}
    few = timed(body, chip, options=TimeOptions(rounds=3, sample_only=True), **options)
    all_ = timed(body, chip, options=TimeOptions(rounds=12, sample_only=True), **options)
    assert few.cu.simulated < all_.cu.simulated == 12
    assert few.clocks == pytest.approx(all_.clocks, rel=0.03)


COPY = """
s_load_dwordx2 s[4:5], s[0:1], 0
s_lshl_b32 s6, s2, 12
v_lshlrev_b32 v1, 4, v0
v_add_u32 v1, s6, v1
s_waitcnt lgkmcnt(0)
global_load_dwordx4 v[4:7], v1, s[4:5]
s_add_u32 s4, s4, {size}
s_addc_u32 s5, s5, 0
s_waitcnt vmcnt(0)
global_store_dwordx4 v1, v[4:7], s[4:5]
"""


@pytest.mark.parametrize("chip", CHIPS)
def test_copy_at_full_bandwidth(chip: str) -> None:
    """A copy of more than the caches hold runs at what memory delivers, with many waves to hide its latency."""
    target, model = get(chip), timing_model(chip)
    groups = target.num_cus * 64
    size = groups * 4096
    timing = timed(
        COPY.format(size=size),
        chip,
        waves=4,
        groups=groups,
        vgprs=32,
        accum=32,
        buffer=2 * size,
        options=TimeOptions(sample_only=True),
    )
    read = timing.memory.bytes_by_level["HBM"] / timing.seconds
    (product,) = [p for p in target.products if p.name == timing.product]
    peak = product.hbm_bytes_per_second * model.number("hbm_efficiency")
    assert timing.clocks >= max(timing.bandwidth_clocks.values())
    assert 0.75 * peak <= read <= peak
    assert max(timing.total.stalls, key=lambda cause: timing.total.stalls[cause]) == "wait_vm"


def test_intervals_do_not_overlap() -> None:
    """What a wave does is a sequence, units of a SIMD do one thing at a time, and the sums agree."""
    chip = "gfx950"
    body = LANE_ADDRESSES + _two_groups(False, chip, 3).replace("s_endpgm\nLsecond:\n", "")
    timing = timed(
        body, chip, waves=8, lds=16384, data=conflicting(chip, "ds_read_b128", 1), options=TimeOptions(window=10**6)
    )
    intervals = timing.cu.intervals
    for wave in range(8):
        mine = intervals[(intervals["wave"] == wave) & (intervals["cause"] != Cause.NONE)]
        assert (mine["start"][1:] >= mine["end"][:-1]).all()
    for unit in (Unit.VALU, Unit.MFMA):
        for simd in range(4):
            busy = intervals[(intervals["simd"] == simd) & (intervals["unit"] == unit)]
            assert (busy["start"][1:] >= busy["end"][:-1]).all()
    for cause in Cause:
        if cause is not Cause.NONE:
            mine = intervals[intervals["cause"] == cause]
            assert int((mine["end"] - mine["start"]).sum()) == int(timing.cu.stalls[:, cause].sum())
    mfma = intervals[intervals["unit"] == Unit.MFMA]
    assert int((mfma["end"] - mfma["start"]).sum()) == sum(timing.cu.simd_mfma_clocks) == timing.total.mfma_clocks
    spent = sum(w.end - w.start for w in timing.cu.waves)
    assert timing.total.clocks == spent
