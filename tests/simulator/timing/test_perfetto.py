"""The trace file is what the trace-event format says, and tells what the simulation did."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tileir.simulator.timing.perfetto import CU_PROCESS, UNIT_PROCESS, trace_events, trace_json
from tileir.simulator.timing.records import INTERVAL, Cause, CuResult, CuWave, Unit

PROGRAM = ("v_mfma_f32_16x16x32_bf16 v[0:3], v[4:7], v[8:11], v[0:3]", "s_waitcnt vmcnt(0)", "ds_read_b128 v[0:3], v9")
PLACES = ("k.tile:3", None, "k.tile:4")


def cu(rows, **changes):
    """rows: start, end, record, wave, simd, unit, cause."""
    intervals = np.zeros(len(rows), INTERVAL)
    for i, row in enumerate(rows):
        for name, value in zip(("start", "end", "record", "wave", "simd", "unit", "cause"), row, strict=True):
            intervals[name][i] = value
    none = np.zeros(len(PROGRAM), np.int64)
    waves = (CuWave(7, 0, 0, 0, 0, 100), CuWave(7, 1, 1, 0, 0, 90))
    values = dict(
        clocks=100, waves=waves, window=1000, intervals=intervals, issues=none, issue_clocks=none,
        stalls=np.zeros((len(PROGRAM), len(Cause)), np.int64), lds_clocks=none, conflict_clocks=none, mfma_clocks=none,
        bytes=np.zeros((len(PROGRAM), 4), np.int64), simd_mfma_clocks=(32, 16, 0, 0), lds_busy_clocks=0, simulated=1,
        total=1, workgroup_ends=(100,),
    )  # fmt: skip
    return CuResult(**(values | changes))


ROWS = [
    (0, 16, 0, 0, 0, Unit.MFMA, Cause.NONE),
    (4, 16, 0, 0, 0, Unit.MFMA, Cause.MFMA_BUSY),
    (0, 12, 2, 1, 1, Unit.LDS, Cause.NONE),
    (4, 40, 1, 1, 1, Unit.INTERNAL, Cause.WAIT_VM),
    (16, 32, 0, 0, 0, Unit.MFMA, Cause.NONE),
    (24, 40, 0, 1, 1, Unit.MFMA, Cause.NONE),
]

ANY = (int, float)
FIELDS = {
    "X": {"name": str, "cat": str, "ts": ANY, "dur": ANY, "pid": int, "tid": int, "args": dict},
    "C": {"name": str, "ts": ANY, "pid": int, "tid": int, "args": dict},
    "M": {"name": str, "pid": int, "tid": int, "args": dict},
}


def check_format(text: str) -> list[dict]:
    """Raises AssertionError unless the text is a JSON object of the trace-event format; its events."""
    trace = json.loads(text)
    assert set(trace) >= {"traceEvents", "displayTimeUnit"}
    assert trace["displayTimeUnit"] in ("ns", "ms")
    named = set()
    for event in trace["traceEvents"]:
        fields = FIELDS[event["ph"]]
        assert set(event) == set(fields) | {"ph"}
        for name, kind in fields.items():
            assert isinstance(event[name], kind), (name, event)
            assert not isinstance(event[name], bool)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name", "thread_sort_index")
            named.add((event["name"], event["pid"], event["tid"]))
        else:
            assert event["ts"] >= 0
        if event["ph"] == "C":
            assert event["args"]
            assert all(isinstance(v, ANY) for v in event["args"].values())
    ends: dict[tuple[int, int], float] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            assert event["dur"] > 0
            assert ("process_name", event["pid"], 0) in named
            thread = event["pid"], event["tid"]
            assert ("thread_name", *thread) in named
            assert event["ts"] >= ends.get(thread, 0) - 1e-9, "slices of a thread overlap"
            ends[thread] = event["ts"] + event["dur"]
    return trace["traceEvents"]


def test_the_format():
    events = check_format(trace_json(cu(ROWS), PROGRAM, PLACES, title="CU"))
    assert {e["ph"] for e in events} == {"M", "X", "C"}
    names = [e["args"]["name"] for e in events if e["name"] == "thread_name"]
    assert names[:2] == ["workgroup 7 wave 0 (SIMD 0 slot 0)", "workgroup 7 wave 1 (SIMD 1 slot 0)"]
    assert names[2:] == ["SIMD 0 MFMA", "SIMD 1 MFMA", "SIMD 1 LDS"]


def test_slices_of_waves_and_units():
    events = trace_events(cu(ROWS), PROGRAM, PLACES, title="CU")["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    waves = [(e["tid"], e["name"], e["ts"], e["dur"]) for e in slices if e["pid"] == CU_PROCESS]
    assert waves == [
        (1, "v_mfma_f32_16x16x32_bf16", 0, 0.004),
        (1, "matrix pipe busy", 0.004, 0.012),
        (1, "v_mfma_f32_16x16x32_bf16", 0.016, 0.016),
        (2, "ds_read_b128", 0, 0.004),
        (2, "waits for vmcnt", 0.004, 0.02),
        (2, "v_mfma_f32_16x16x32_bf16", 0.024, pytest.approx(0.016)),
    ]
    units = [(e["name"], e["ts"], e["dur"]) for e in slices if e["pid"] == UNIT_PROCESS]
    assert units == [
        ("v_mfma_f32_16x16x32_bf16", 0, 0.016),
        ("v_mfma_f32_16x16x32_bf16", 0.016, 0.016),
        ("v_mfma_f32_16x16x32_bf16", 0.024, 0.016),
        ("ds_read_b128", 0, 0.012),
    ]
    assert slices[0]["args"] == {"instruction": PROGRAM[0], "source": "k.tile:3"}
    assert slices[1]["cat"] == "stall"


def test_counters():
    rows = [
        *ROWS,
        (44, 45, 3, 1, 1, Unit.VMEM, Cause.NONE),
        (48, 49, 3, 1, 1, Unit.VMEM, Cause.NONE),
        (52, 53, 3, 1, 1, Unit.VMEM, Cause.NONE),
        (60, 61, 4, 1, 1, Unit.INTERNAL, Cause.NONE),
        (64, 65, 1, 1, 1, Unit.INTERNAL, Cause.NONE),
    ]
    program = (*PROGRAM, "buffer_load_dwordx4 v[0:3], v9, s[0:3], 0 offen", "s_waitcnt vmcnt(1) lgkmcnt(0)")
    events = trace_events(cu(rows), program, (*PLACES, None, None), title="CU")["traceEvents"]
    counters = [(e["name"], round(e["ts"] * 1000), *e["args"].values()) for e in events if e["ph"] == "C"]
    assert [c[1:] for c in counters if c[0] == "busy matrix pipes"] == [(0, 1), (24, 2), (32, 1), (40, 0)]
    assert [c[1:] for c in counters if c[0] == "waves: waits for vmcnt"] == [(4, 1), (40, 0)]
    assert [c[1:] for c in counters if c[0] == "LDS operations"] == [(0, 1), (12, 0)]
    vm, lgkm = ([c[1:] for c in counters if c[0] == f"{n} of workgroup 7 wave 1"] for n in ("vmcnt", "lgkmcnt"))
    assert vm == [(44, 1), (48, 2), (52, 3), (60, 1), (64, 0)]
    assert lgkm == [(0, 1), (60, 0)]


def test_it_says_that_times_are_estimated_and_is_the_same_each_time():
    texts = {trace_json(cu(ROWS), PROGRAM, PLACES, title="CU", notes=("cold caches",)) for _ in range(2)}
    assert len(texts) == 1
    trace = json.loads(texts.pop())
    assert "estimated" in trace["otherData"]["time"]
    assert trace["otherData"]["notes"] == ["cold caches"]


def test_nothing_recorded_is_a_trace_too():
    events = check_format(trace_json(cu([]), PROGRAM, PLACES, title="CU"))
    assert {e["ph"] for e in events} == {"M"}
