"""What is recorded: LDS clocks against a count by hand, cache lines against addresses, and results that stay the same."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.simulator.timing.timing_kernels import CHIPS, LANE_ADDRESSES, code
from tileir.simulator import Simulator, SimulatorFault
from tileir.simulator.launch import _Launch  # pyright: ignore[reportPrivateUsage]
from tileir.simulator.timing.estimate import TimeOptions, estimate
from tileir.simulator.timing.recorder import Recorder
from tileir.simulator.timing.records import ATOMIC, NT, READ, SC0, SCALAR, WRITE, WaveTrace
from tileir.target import LdsAccess, get


def recorded(
    body: str, chip: str, *, waves: int = 1, lds: int = 0, data: NDArray[Any] | None = None
) -> list[WaveTrace]:
    """The traces of the waves of one workgroup."""
    simulator = Simulator(chip)
    module = simulator.load(code(body, chip, waves, lds))
    memory = simulator.memory.allocate(1 << 16, "buffer")
    memory.write(np.zeros(1 << 16, np.uint8))
    if data is not None:
        memory.write(data)
    program = module.program("k")
    arguments = struct.pack("<Q", memory.address)
    launch = _Launch(simulator, module, program, (1, 1, 1), (64 * waves, 1, 1), arguments, 0, 1024)
    recorder = Recorder(launch, [0])
    launch.watch(recorder)  # type: ignore[arg-type]
    launch.prepare(100_000, True)
    launch.run(None)
    launch.close()
    (trace,) = recorder.traces
    return list(trace.waves)


def _by_hand(access: LdsAccess, addresses: list[list[int]]) -> tuple[int, int]:
    """(LDS clocks, conflict clocks) of an instruction. addresses: for each address of an instruction that of each lane, -1 for
    one that is switched off."""
    size = access.bytes_per_lane // access.addresses_per_lane
    clocks = conflicts = 0
    for lanes in addresses:
        for group in access.lane_groups:
            banks: dict[int, set[int]] = {}
            for lane in group:
                if lanes[lane] >= 0:
                    for byte in range(lanes[lane], lanes[lane] + size):
                        banks.setdefault(byte // 4 % access.banks, set()).add(byte // 4)
            most = max([1, *map(len, banks.values())])
            clocks += most
            conflicts += most - 1
    return clocks, conflicts


def _patterns(size: int) -> list[NDArray[np.int32]]:
    rng = np.random.default_rng(5)
    lane = np.arange(64)
    out = [
        lane * size,
        np.zeros(64),
        lane % 16 * 64 + lane // 16 * size,
        (lane ^ lane >> 3) % 8 * size + lane // 8 * 256,
    ]
    out += [rng.integers(0, 16384 // size - 64, 64) * size for _ in range(4)]
    return [p.astype(np.int32) for p in out]


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    "op", ["ds_read_b32", "ds_read_b64", "ds_read_b96", "ds_read_b128", "ds_write_b64", "ds_write_b128", "ds_write_b8"]
)
def test_lds_clocks(chip: str, op: str) -> None:
    access = get(chip).lds_access(op)
    registers = {1: "v4", 4: "v4", 8: "v[4:5]", 12: "v[4:6]", 16: "v[4:7]"}[access.bytes_per_lane]
    for exec_ in ("-1", "0x00ff00ff0f0f0f0f"):
        mask = (1 << 64) - 1 if exec_ == "-1" else int(exec_, 16)
        low, high = f"{mask & 0xFFFFFFFF:#x}", f"{mask >> 32:#x}"
        operands = f"v2, {registers}" if "write" in op else f"{registers}, v2"
        body = LANE_ADDRESSES + f"s_mov_b32 exec_lo, {low}\ns_mov_b32 exec_hi, {high}\n{op} {operands}\n"
        for pattern in _patterns(access.bytes_per_lane if access.bytes_per_lane != 12 else 16):
            (wave,) = recorded(body, chip, lds=16384, data=pattern)
            lanes = [int(a) if mask >> lane & 1 else -1 for lane, a in enumerate(pattern)]
            got = wave.instructions[wave.instructions["lds_clocks"] > 0]
            assert len(got) == 1
            assert (int(got[0]["lds_clocks"]), int(got[0]["conflict_clocks"])) == _by_hand(access, [lanes])


@pytest.mark.parametrize("chip", CHIPS)
def test_lds_clocks_of_two_addresses(chip: str) -> None:
    access = get(chip).lds_access("ds_read2_b64")
    for pattern in _patterns(8):
        (wave,) = recorded(
            LANE_ADDRESSES + "ds_read2_b64 v[4:7], v2 offset1:33\n", chip, lds=16384, data=pattern // 2 // 8 * 8
        )
        first = [int(a) for a in pattern // 2 // 8 * 8]
        got = wave.instructions[wave.instructions["lds_clocks"] > 0][0]
        assert (int(got["lds_clocks"]), int(got["conflict_clocks"])) == _by_hand(
            access, [first, [a + 264 for a in first]]
        )


@pytest.mark.parametrize("chip", CHIPS)
def test_lds_atomics_on_one_address(chip: str) -> None:
    """Lanes that update one dword take turns: 32 of them in each of two groups."""
    (wave,) = recorded(LANE_ADDRESSES + "ds_add_u32 v2, v4\n", chip, lds=256, data=np.zeros(64, np.int32))
    assert int(wave.instructions["lds_clocks"].max()) == 64


def test_direct_loads_count_both_sides() -> None:
    body = LANE_ADDRESSES + "s_mov_b32 m0, 0\nv_lshlrev_b32 v1, 4, v0\nglobal_load_lds_dwordx4 v1, s[4:5]\n"
    (wave,) = recorded(body, "gfx950", lds=1024)
    last = wave.instructions[wave.instructions["lds_clocks"] > 0][-1]
    assert (int(last["lds_clocks"]), int(last["conflict_clocks"]), int(last["lines"])) == (8, 0, 8)


def _lines(wave: WaveTrace, which: int) -> NDArray[np.void]:
    entry = wave.instructions[which]
    return wave.lines[int(entry["first_line"]) : int(entry["first_line"]) + int(entry["lines"])]


@pytest.mark.parametrize("chip", CHIPS)
def test_lines(chip: str) -> None:
    head = LANE_ADDRESSES + "v_lshlrev_b32 v3, 4, v0\nv_lshlrev_b32 v8, 8, v0\n"
    body = head + (
        "global_load_dwordx4 v[4:7], v3, s[4:5]\n"  # 64 * 16 bytes in a row
        "global_load_dword v4, v8, s[4:5] nt\n"  # one dword each 256 bytes
        "global_load_dwordx2 v[4:5], v1, s[4:5] offset:124\n"  # 8 bytes each 4, across lines
        "global_store_dword v1, v9, s[4:5]\n"
        "global_atomic_add v1, v9, s[4:5]\n"
        "global_load_dword v10, v1, s[4:5] sc0\n"
    )
    (wave,) = recorded(body, chip)
    count = len(wave.instructions)
    base = int(wave.lines["address"][wave.lines["kind"] == READ].min())
    rows = [_lines(wave, which) for which in range(count - 7, count - 1)]
    assert [len(r) for r in rows] == [8, 64, 3, 2, 2, 2]
    assert (rows[0]["address"] - base).tolist() == [128 * i for i in range(8)]
    assert rows[0]["bytes"].tolist() == [128] * 8
    assert (rows[1]["address"] - base).tolist() == [256 * i for i in range(64)]
    assert rows[1]["bytes"].tolist() == [4] * 64
    assert (rows[2]["address"] - base).tolist() == [0, 128, 256]
    assert [int(r["kind"][0]) for r in rows] == [READ, READ, READ, WRITE, ATOMIC, READ]
    assert [int(r["policy"][0]) for r in rows] == [0, NT, 0, 0, 0, SC0]
    assert wave.lines["instruction"].tolist() == sorted(wave.lines["instruction"].tolist())
    scalar = wave.lines[wave.lines["kind"] == READ | SCALAR]
    assert len(scalar) == 1 and int(scalar[0]["bytes"]) == 8


def test_buffers_grow() -> None:
    """More instructions and lines than the buffers begin with."""
    loop = (
        "v_lshlrev_b32 v8, 8, v0\ns_movk_i32 s6, 400\nLloop:\nglobal_load_dword v4, v8, s[4:5]\ns_sub_u32 s6, s6, 1\n"
    )
    loop += "s_nop 0\n" * 20 + "s_cmp_lg_u32 s6, 0\ns_cbranch_scc1 Lloop\n"
    (wave,) = recorded(LANE_ADDRESSES + loop, "gfx950")
    loads = wave.instructions[wave.instructions["lines"] == 64]
    assert len(loads) == 400 and len(wave.instructions) > 400 * 24
    assert (np.diff(loads["first_line"]) == 64).all()
    addresses = wave.lines["address"][-400 * 64 :].reshape(400, 64)
    assert (addresses == addresses[0]).all()


@pytest.mark.parametrize("chip", CHIPS)
def test_results_and_counts_are_those_of_a_plain_launch(chip: str) -> None:
    body = LANE_ADDRESSES + "v_add_u32 v3, v2, v0\nds_write_b32 v1, v3\ns_waitcnt lgkmcnt(0)\ns_barrier\n"
    body += "v_sub_u32 v6, 0xfc, v1\nds_read_b32 v7, v6\ns_waitcnt lgkmcnt(0)\nglobal_store_dword v1, v7, s[4:5] offset:1024\n"
    results: list[list[int]] = []
    counts: list[dict[int, int]] = []
    for timed in (False, True):
        simulator = Simulator(chip)
        module = simulator.load(code(body, chip, 2, 1024))
        memory = simulator.memory.allocate(4096, "buffer")
        memory.write(np.arange(1024, dtype=np.int32))
        arguments = struct.pack("<Q", memory.address)
        if timed:
            statistics = estimate(module, "k", (3, 1, 1), (128, 1, 1), arguments).statistics
        else:
            statistics = module.launch("k", (3, 1, 1), (128, 1, 1), arguments)
        results.append(memory.read(np.int32, 1024).tolist())
        counts.append(statistics.executions)
    assert results[0] == results[1] and counts[0] == counts[1]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("global_load_dword v4, v1, s[4:5]\nv_add_u32 v5, v4, v4\n", "missing-wait"),
        ("v_lshlrev_b32 v1, 20, v0\nglobal_load_dword v4, v1, s[4:5]\n", "memory-bounds"),
        ("Lloop:\ns_branch Lloop\n", "instruction-budget"),
    ],
)
def test_faults_are_those_of_a_plain_launch(body: str, kind: str) -> None:
    texts: list[str] = []
    for timed in (False, True):
        simulator = Simulator("gfx950")
        module = simulator.load(code(LANE_ADDRESSES + body, "gfx950"))
        memory = simulator.memory.allocate(4096, "buffer")
        memory.write(np.zeros(4096, np.uint8))
        arguments = struct.pack("<Q", memory.address)
        with pytest.raises(SimulatorFault) as fault:
            if timed:
                estimate(module, "k", (1, 1, 1), (64, 1, 1), arguments, max_instructions=300_000, options=TimeOptions())
            else:
                module.launch("k", (1, 1, 1), (64, 1, 1), arguments, max_instructions=300_000)
        assert fault.value.kind == kind
        texts.append(str(fault.value))
    assert texts[0] == texts[1]
