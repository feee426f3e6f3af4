"""Recorded lines of some workgroups in, what the memory does for the whole grid out."""

from __future__ import annotations

import numpy as np
import pytest

from tileir.simulator.timing import caches
from tileir.simulator.timing.records import (
    INSTRUCTION,
    LINE,
    READ,
    SC1,
    SCALAR,
    WRITE,
    Dispatch,
    WaveTrace,
    WorkgroupTrace,
)
from tileir.target import get
from tileir.target.timing import timing_model

CHIP = get("gfx950")
MODEL = timing_model("gfx950")
A, B, C = 1 << 44, (1 << 44) + (2 << 30), (1 << 44) + (4 << 30)


def wave(accesses):
    """A wave with one instruction per access (record, address, bytes, kind[, policy])."""
    instructions = np.zeros(len(accesses), INSTRUCTION)
    lines = np.zeros(len(accesses), LINE)
    for i, (record, address, size, kind, *policy) in enumerate(accesses):
        instructions[i] = (record, 0, 0, i, 1)
        lines[i] = (address // 128 * 128, size, kind, policy[0] if policy else 0, i)
    return WaveTrace(instructions, lines)


def cut(trace: WorkgroupTrace, n: int) -> WorkgroupTrace:
    first = trace.waves[0]
    return WorkgroupTrace(trace.number, trace.workgroup, (WaveTrace(first.instructions[:n], first.lines[:n]),))


def product(dispatch: Dispatch, number: int, tile) -> WorkgroupTrace:
    """A tile of a product: 8 steps of 4 lines of A and of B, then 4 lines of C, dealt to two waves."""
    row, column = tile(number)
    accesses = []
    for k in range(8):
        for i in range(4):
            accesses.append((10, A + ((row * 4 + i) * 8 + k) * 128, 128, READ))
            accesses.append((11, B + ((column * 4 + i) * 8 + k) * 128, 128, READ))
    accesses += [(12, C + (number * 4 + i) * 128, 128, WRITE) for i in range(4)]
    return WorkgroupTrace(number, dispatch.workgroup(number), (wave(accesses[0::2]), wave(accesses[1::2])))


def dispatch_of(x: int, y: int = 1) -> Dispatch:
    return Dispatch((x, y, 1), 2, 1, CHIP.num_xcds, CHIP.cus_per_xcd)


def test_sample_takes_all_of_a_small_grid_and_a_few_of_a_large_one():
    assert caches.sample(dispatch_of(5), CHIP, 8) == [0, 1, 2, 3, 4]
    assert caches.sample(dispatch_of(100, 50), CHIP, 8) == [0, 2499, 4999]
    assert caches.sample(dispatch_of(100, 50), CHIP, 1) == [0]


@pytest.mark.parametrize("swizzled", (False, True))
def test_copies_of_a_workgroup_stand_for_the_others(swizzled):
    dispatch = dispatch_of(12, 12)

    def tile(number):
        if swizzled:  # columns of three rows each: not linear in the number
            return number // 36 * 3 + number % 36 % 3, number % 36 // 3
        return number // 12, number % 12

    everything = [product(dispatch, n, tile) for n in range(dispatch.count)]
    exact = caches.memory_service(everything, dispatch, CHIP, MODEL, "MI355X")
    if swizzled:  # prologues of one wave only, which must touch A and B: both waves as one
        exact = caches.memory_service(
            [WorkgroupTrace(t.number, t.workgroup, (joined(t),)) for t in everything], dispatch, CHIP, MODEL, "MI355X"
        )
        starts = [WorkgroupTrace(t.number, t.workgroup, (joined(t),)) for t in everything]
        full = [WorkgroupTrace(t.number, t.workgroup, (joined(t),)) for t in (everything[0], everything[77])]
        some = caches.memory_service(full, dispatch, CHIP, MODEL, "MI355X", prologues=[cut(t, 10) for t in starts])
    else:
        some = caches.memory_service([everything[n] for n in (0, 13, 77)], dispatch, CHIP, MODEL, "MI355X")
    assert some.sampled < exact.sampled == 144
    assert any("100.0 %" in note for note in some.notes), some.notes
    assert any("linear fit" in note for note in some.notes) == (not swizzled)
    assert some.hit_rates == pytest.approx(exact.hit_rates)
    assert some.bytes_by_level == exact.bytes_by_level


def joined(trace: WorkgroupTrace) -> WaveTrace:
    """Both waves as one that alternates."""
    accesses = []
    for i in range(len(trace.waves[0].lines)):
        for w in trace.waves:
            if i < len(w.lines):
                line = w.lines[i]
                accesses.append((int(w.instructions["record"][i]), int(line["address"]), 128, int(line["kind"])))
    return wave(accesses)


def test_a_fit_that_does_not_hold_is_told():
    """Tiles in columns of three rows: two thirds of the shifts are no linear map of the workgroup's number."""
    dispatch = dispatch_of(144)
    traces = [product(dispatch, n, lambda n: (n // 36 * 3 + n % 3, n % 36 // 3)) for n in (0, 4, 50, 71, 143)]
    notes = caches.memory_service(traces, dispatch, CHIP, MODEL, "MI355X").notes
    (note,) = [note for note in notes if note.startswith("the fit gives")]
    assert int(note.split()[3]) < int(note.split()[6])
    straight = [product(dispatch, n, lambda n: (n, 0)) for n in (0, 4, 50, 71, 143)]
    notes = caches.memory_service(straight, dispatch, CHIP, MODEL, "MI355X").notes
    (note,) = [note for note in notes if note.startswith("the fit gives")]
    assert note.split()[3] == note.split()[6]


def test_a_prediction_that_fails_is_told():
    dispatch = dispatch_of(144)
    tile = lambda n: (n % 7, n % 5)  # noqa: E731
    traces = [product(dispatch, n, tile) for n in (0, 71, 143)]
    odd = [(10, A + (1 << 20) + 128 * i, 128, READ) for i in range(9)]
    traces[1] = WorkgroupTrace(71, traces[1].workgroup, (wave([(10, A, 128, READ), *odd]), traces[1].waves[1]))
    notes = caches.memory_service(traces, dispatch, CHIP, MODEL, "MI355X").notes
    assert any("predicts" in note and "workgroup 71" in note and "100.0" not in note for note in notes)


def test_levels_of_single_lines():
    dispatch = dispatch_of(1)
    accesses = [
        (0, A, 64, READ),  # HBM
        (1, A + 64, 64, READ),  # the same line: L1
        (2, A, 64, READ, SC1),  # goes past the L1: L2
        (3, B, 16, READ | SCALAR),  # HBM
        (4, B, 16, READ | SCALAR),  # scalar cache
        (5, B, 16, READ),  # not in the vector L1: L2
        (6, C, 128, WRITE),  # stores go to the L2
        (7, C, 128, READ),  # and are found there
    ]
    trace = WorkgroupTrace(0, (0, 0, 0), (wave(accesses), wave([])))
    service = caches.memory_service([trace], dispatch, CHIP, MODEL, "MI355X")
    assert service.served[0][0].tolist() == [3, 0, 1, 3, 0, 1, 1, 1]
    assert service.served[0][1].tolist() == []
    assert service.bytes_by_level == {
        "L1": 3 * 64 + 3 * 16 + 2 * 128,
        "L2": 5 * 128 + 128,
        "LLC": 2 * 128 + 128,
        "HBM": 2 * 128,
    }
    assert service.hit_rates == {"L1": 2 / 7, "L2": 3 / 5, "LLC": 0}
    expected = [2 * 120 + 4 * 285 + 2 * 619 * 2.4]
    assert caches.average_latency(service) == pytest.approx(expected[0] / 8)


def test_rates_are_shares_of_the_chip():
    whole, half = dispatch_of(16, 16), dispatch_of(128)
    trace = WorkgroupTrace(0, (0, 0, 0), (wave([(0, A, 128, READ)]),))
    of = {d: caches.memory_service([trace], d, CHIP, MODEL, "MI355X").bytes_per_clock for d in (whole, half)}
    hbm = 0.8 * 8e12 / 2.4e9
    assert of[whole] == pytest.approx([64, 2048 / 32, 17.2e12 / 2.4e9 / 256, hbm / 256])
    assert of[half] == pytest.approx([64, 2048 / 16, 17.2e12 / 2.4e9 / 128, hbm / 128])
    with pytest.raises(KeyError, match="MI355X"):
        caches.memory_service([trace], whole, CHIP, MODEL, "MI300X")
    with pytest.raises(ValueError, match="no recorded"):
        caches.memory_service([], whole, CHIP, MODEL, "MI355X")


def test_a_copy_takes_the_time_of_its_bytes():
    """256 MiB read and written: HBM sets the pace, and stores count where they are written back."""
    dispatch = dispatch_of(64, 64)
    lines = 512

    def one(number):
        start = number * lines * 128
        reads = [(1, A + start + i * 128, 128, READ) for i in range(lines)]
        writes = [(2, C + start + i * 128, 128, WRITE) for i in range(lines)]
        return WorkgroupTrace(number, dispatch.workgroup(number), (wave([*reads, *writes]),))

    service = caches.memory_service([one(n) for n in (0, 1000, 4095)], dispatch, CHIP, MODEL, "MI355X")
    total = dispatch.count * lines * 128
    assert service.bytes_by_level["L1"] == 2 * total
    assert service.bytes_by_level["LLC"] == pytest.approx(2 * total, rel=0.01)
    # half of the last-level cache holds dirty lines at the end, and most of the L2s do
    assert service.bytes_by_level["HBM"] == pytest.approx(2 * total - (128 << 20) - (32 << 20), rel=0.05)
    clocks = caches.bandwidth_clocks(service, dispatch, CHIP, MODEL, "MI355X")
    assert max(clocks, key=clocks.__getitem__) == "HBM"
    assert clocks["HBM"] == pytest.approx(service.bytes_by_level["HBM"] / (0.8 * 8e12 / 2.4e9))
    # the reads get the part of HBM's time that the write-backs leave
    assert service.bytes_per_clock[3] * 256 < 0.8 * 8e12 / 2.4e9 * 0.75


def test_the_prologue_ends_when_all_inputs_were_touched():
    accesses = [(0, A, 128, READ)] * 5 + [(1, C, 128, WRITE)] * 3 + [(2, B, 128, READ)] * 4
    trace = WorkgroupTrace(0, (0, 0, 0), (wave(accesses),))
    assert caches.prologue_length(trace, CHIP) == 9
    assert caches.prologue_length(trace, CHIP, [(A, B), (B, C), (C, C + 1)]) == 9
    assert caches.prologue_length(WorkgroupTrace(0, (0, 0, 0), (wave(accesses[5:8]),)), CHIP) == 0


def test_a_kernel_without_memory():
    dispatch = dispatch_of(300, 40)
    traces = [WorkgroupTrace(n, dispatch.workgroup(n), (wave([]), wave([]))) for n in (0, 5000, 11999)]
    service = caches.memory_service(traces, dispatch, CHIP, MODEL, "MI355X")
    assert set(service.bytes_by_level.values()) == {0}
    assert service.hit_rates == {"L1": 0, "L2": 0, "LLC": 0}
    assert caches.average_latency(service) == 0
    assert set(caches.bandwidth_clocks(service, dispatch, CHIP, MODEL, "MI355X").values()) == {0}
    assert [levels.tolist() for levels in service.served[5000]] == [[], []]
