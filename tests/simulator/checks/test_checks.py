"""Each check catches its fault in a kernel made for it and is silent on the same kernel without the fault."""

from __future__ import annotations

import pytest
from check_kernels import CHIPS, kernel, kinds, run

from tileir.simulator import Simulator, SimulatorError, SimulatorFault
from tileir.simulator.faults import Finding

EXCHANGE = """
ds_write_b32 v2, v1
s_waitcnt lgkmcnt(0)
s_barrier
v_xor_b32 v3, 0x1fc, v2
ds_read_b32 v4, v3
s_waitcnt lgkmcnt(0)
global_store_dword v2, v4, s[20:21]
"""
"""Each wave reads what the other has written to LDS."""


def without(body: str, line: str, which: int = 0) -> str:
    """The body without the ``which``-th line of that text."""
    lines = body.strip().splitlines()
    places = [i for i, text in enumerate(lines) if text == line]
    del lines[places[which]]
    return "\n".join(lines)


@pytest.mark.parametrize("chip", CHIPS)
def test_race_lds(chip: str) -> None:
    assert run(EXCHANGE, chip).findings == []
    (finding,) = run(without(EXCHANGE, "s_barrier"), chip, "race").findings
    assert finding.kind == "race-lds" and "no barrier" in finding.message
    assert finding.other is not None
    assert {finding.wave, finding.other.wave} == {0, 1}
    assert {finding.disassembly.split()[0], finding.other.location.disassembly.split()[0]} == {
        "ds_read_b32",
        "ds_write_b32",
    }
    # the address of the reader is that of the writer with these bits turned over
    assert len(finding.lanes) == len(finding.other.lanes) == 1
    assert finding.lanes[0] ^ finding.other.lanes[0] == 63


@pytest.mark.parametrize("chip", CHIPS)
def test_barrier_without_wait(chip: str) -> None:
    """The barrier does not order a write that its wave has not waited for."""
    (finding,) = run(without(EXCHANGE, "s_waitcnt lgkmcnt(0)"), chip, "race").findings
    assert finding.kind == "race-lds" and "passed a barrier before a wait" in finding.message


def test_race_needs_common_bytes_and_a_write() -> None:
    own = EXCHANGE.replace("0x1fc", "0")
    assert run(without(own, "s_barrier"), "gfx950", "race").findings == []
    reads = "v_mov_b32 v3, 0\nds_read_b32 v4, v3\ns_waitcnt lgkmcnt(0)"
    assert run(reads, "gfx950", "race").findings == []


def test_neighbouring_bytes_do_not_race() -> None:
    """Waves write the even and the odd halves of the same dwords."""
    body = """
    v_lshrrev_b32 v5, 6, v1
    v_and_b32 v6, 63, v1
    v_lshlrev_b32 v6, 2, v6
    v_lshl_add_u32 v6, v5, 1, v6
    ds_write_b16 v6, v1
    """
    assert run(body, "gfx942", "race").findings == []
    assert kinds(run(body.replace("ds_write_b16", "ds_write_b32"), "gfx942", "race")) == ["race-lds"]


def test_write_after_read_round_a_loop() -> None:
    """The second round of writes meets reads of the first when the barrier at the end of the loop is missing."""
    loop = f"s_mov_b32 s22, 2\n1:\n{EXCHANGE.strip()}\ns_barrier\ns_sub_u32 s22, s22, 1\ns_cmp_lg_u32 s22, 0\ns_cbranch_scc1 1b"
    assert run(loop, "gfx950", "race").findings == []
    assert kinds(run(without(loop, "s_barrier", 1), "gfx950", "race")) == ["race-lds"]


def test_waves_may_write_the_same() -> None:
    body = "v_and_b32 v3, 63, v1\nv_lshlrev_b32 v4, 2, v3\nds_write_b32 v4, {}"
    assert run(body.format("v3"), "gfx942", "race").findings == []
    (finding,) = run(body.format("v1"), "gfx942", "race").findings
    assert finding.kind == "race-lds" and finding.disassembly.startswith("ds_write_b32")


def test_moves_pass_on_what_is_not_written() -> None:
    moved = "v_mov_b32 v12, v11\nv_accvgpr_write_b32 a3, v12\nv_accvgpr_read_b32 v13, a3\n"
    assert run(moved, "gfx942", "uninit").findings == []
    (finding,) = run(moved + "v_add_u32 v14, v13, v1", "gfx942", "uninit").findings
    assert "v13 is read" in finding.message and finding.disassembly.startswith("v_add_u32")
    assert run("v_mov_b32 v11, 0\n" + moved + "v_add_u32 v14, v13, v1", "gfx942", "uninit").findings == []


def test_lds_atomics_do_not_race_with_each_other() -> None:
    body = "v_mov_b32 v3, 0\nds_add_u32 v3, v1\ns_waitcnt lgkmcnt(0)"
    assert run(body, "gfx950", "race").findings == []
    assert kinds(run(body + "\nds_read_b32 v4, v3\ns_waitcnt lgkmcnt(0)", "gfx950", "race")) == ["race-lds"]


@pytest.mark.parametrize("chip", CHIPS)
def test_race_in_memory(chip: str) -> None:
    body = """
    global_store_dword v2, v1, s[20:21]
    s_waitcnt vmcnt(0)
    s_barrier
    v_xor_b32 v3, 0x1fc, v2
    global_load_dword v4, v3, s[20:21]
    s_waitcnt vmcnt(0)
    """.replace("    ", "")
    assert run(body, chip, "race").findings == []
    assert kinds(run(without(body, "s_barrier"), chip, "race")) == ["race-memory"]
    assert kinds(run(without(body, "s_waitcnt vmcnt(0)"), chip, "race")) == ["race-memory"]
    assert run("global_store_dword v2, v1, s[20:21]", chip, "race", groups=2).findings == []  # the same values
    different = "s_memtime s[22:23]\ns_waitcnt lgkmcnt(0)\nv_add_u32 v1, s22, v1\n"
    across = run(different + body, chip, "race", groups=2).findings
    pairs = {(f.disassembly.split()[0], f.other.location.disassembly.split()[0]) for f in across if f.other}
    assert pairs == {("global_store_dword", "global_store_dword"), ("global_store_dword", "global_load_dword")}
    assert all(f.other and f.other.workgroup == (0, 0, 0) and f.party.workgroup == (1, 0, 0) for f in across)


@pytest.mark.parametrize("chip", CHIPS)
def test_uninitialised_registers(chip: str) -> None:
    (finding,) = run("v_add_u32 v10, v11, v1", chip, "uninit").findings
    assert finding.kind == "uninit-register" and "v11" in finding.message and "v_add_u32" in finding.disassembly
    (finding,) = run("s_add_u32 s30, s31, 1", chip, "uninit").findings
    assert "s31" in finding.message
    (finding,) = run("v_accvgpr_read_b32 v10, a7\nv_add_u32 v11, v10, v1", chip, "uninit").findings
    assert "v10" in finding.message
    assert run("v_mov_b32 v11, 0\nv_add_u32 v10, v11, v1", chip, "uninit").findings == []


def test_only_active_lanes_count() -> None:
    written = "s_mov_b64 exec, 0xff\nv_mov_b32 v11, 0\n"
    assert run(written + "v_add_u32 v10, v11, v1", "gfx950", "uninit").findings == []
    (finding,) = run(written + "s_mov_b64 exec, 0x3ff\nv_add_u32 v10, v11, v1", "gfx950", "uninit").findings
    assert finding.lanes == (8, 9)


@pytest.mark.parametrize("chip", CHIPS)
def test_uninitialised_lds_and_memory(chip: str) -> None:
    read = "ds_read_b32 v4, v2\ns_waitcnt lgkmcnt(0)"
    (finding,) = run(read, chip, "uninit").findings
    assert finding.kind == "uninit-lds" and finding.lanes == tuple(range(64))
    assert run("ds_write_b32 v2, v1\n" + read, chip, "uninit").findings == []
    (finding,) = run(read + "\nds_write_b32 v2, v1", chip, "uninit", threads=64).findings
    load = "global_load_dword v4, v2, s[20:21] offset:{}\ns_waitcnt vmcnt(0)"
    assert run(load.format(0), chip, "uninit", uninitialised=True).findings == []
    (finding,) = run(load.format(4), chip, "uninit", uninitialised=True).findings
    assert finding.kind == "uninit-memory" and finding.lanes == (63,) and finding.wave == 1
    store = "global_store_dword v2, v1, s[20:21] offset:512\ns_waitcnt vmcnt(0)\n"
    assert run(store + load.format(512), chip, "uninit", uninitialised=True).findings == []


def test_scalar_loads_take_part() -> None:
    load = "s_load_dwordx4 s[24:27], s[20:21], 0x{:x}\ns_waitcnt lgkmcnt(0)\n"
    (finding,) = run(load.format(508), "gfx942", "uninit", uninitialised=True).findings
    assert finding.kind == "uninit-memory" and finding.disassembly.startswith("s_load_dwordx4")
    assert run(load.format(496), "gfx942", "uninit", uninitialised=True).findings == []
    store = "global_store_dword v2, v1, s[20:21]\ns_waitcnt vmcnt(0)\n"
    assert kinds(run(store + load.format(0), "gfx950", "race")) == ["race-memory"]
    assert run(store + "s_barrier\n" + load.format(0), "gfx950", "race").findings == []


UNEQUAL = """
v_readfirstlane_b32 s22, v1
s_cmp_lt_u32 s22, 64
s_cbranch_scc1 1f
s_barrier
1:
s_barrier
"""


def test_unequal_barriers() -> None:
    (finding,) = run(UNEQUAL, "gfx950", "barrier").findings
    assert finding.kind == "barrier-count" and finding.wave == 1 and finding.disassembly == "s_barrier"
    assert "waves [1] wait" in finding.message and "waves [0]" in finding.message
    assert any("wave 1 waits at its barrier 2" in note for note in finding.notes)
    with pytest.raises(SimulatorFault) as caught:
        run(UNEQUAL, "gfx950", "race")
    assert caught.value.kind == "barrier-divergence"


def test_strict_raises_and_names_both() -> None:
    with pytest.raises(SimulatorFault) as caught:
        run(without(EXCHANGE, "s_barrier"), "gfx950", "race", strict=True)
    assert caught.value.kind == "race-lds"
    assert "ds_read_b32" in str(caught.value) and "ds_write_b32" in str(caught.value)


def test_unknown_check() -> None:
    with pytest.raises(
        SimulatorError, match="no check 'races'; legal are all, race, wait, bounds, uninit, barrier, hazard"
    ):
        run(EXCHANGE, "gfx950", "races")


@pytest.mark.parametrize("chip", CHIPS)
def test_checked_runs_count_the_same(chip: str) -> None:
    plain, checked = run(EXCHANGE, chip, ""), run(EXCHANGE, chip, "all")
    assert (plain.instructions, plain.executions, plain.waves) == (
        checked.instructions,
        checked.executions,
        checked.waves,
    )


@pytest.mark.parametrize("chip", CHIPS)
def test_loads_to_lds_are_aligned(chip: str) -> None:
    load = "s_mov_b32 m0, {}\ns_nop 0\nglobal_load_lds_dword v2, s[20:21]\ns_waitcnt vmcnt(0)"
    assert run(load.format(8), chip, threads=64).findings == []
    with pytest.raises(SimulatorFault) as caught:
        run(load.format(10), chip, threads=64)
    assert caught.value.kind == "misaligned" and "0xa is no multiple" in str(caught.value)


def test_deadlock_names_the_waiting_waves() -> None:
    """Wave 1 spins on a flag that wave 0 would set behind a barrier that wave 1 never reaches."""
    body = """
    v_lshrrev_b32 v5, 6, v1
    s_nop 0
    v_readfirstlane_b32 s22, v5
    s_cmp_lg_u32 s22, 0
    s_cbranch_scc1 1f
    s_barrier
    1:
    s_branch 1b
    """
    simulator = Simulator("gfx950")
    module = simulator.load(kernel(body, "gfx950"))
    with pytest.raises(SimulatorFault) as caught:
        module.launch("k", (1, 1, 1), (128, 1, 1), [0], check="all", max_instructions=10000)
    assert caught.value.kind == "instruction-budget" and "waves [0] wait at a barrier" in str(caught.value)


def test_findings_before_a_fault_are_kept() -> None:
    body = without(EXCHANGE, "s_barrier") + "\nv_mov_b32 v2, -1\nglobal_load_dword v4, v2, s[20:21]"
    with pytest.raises(SimulatorFault) as caught:
        run(body, "gfx950", "race")
    assert caught.value.kind == "memory-bounds"
    assert kinds_of(caught.value.findings) == []  # wave 1 has not run yet
    late = body.replace("v_mov_b32 v2, -1", "s_barrier\nv_mov_b32 v2, -1")
    with pytest.raises(SimulatorFault) as caught:
        run(late, "gfx950", "race")
    assert kinds_of(caught.value.findings) == ["race-lds"]


def kinds_of(findings: list[Finding]) -> list[str]:
    return sorted({f.kind for f in findings})


def test_more_barriers_than_a_clock_counts() -> None:
    """Clocks have 16 bits and are set back at a barrier; what comes behind is judged as before."""
    loop = (
        "s_mov_b32 s22, 33000\n1:\ns_barrier\ns_barrier\ns_sub_u32 s22, s22, 1\ns_cmp_lg_u32 s22, 0\ns_cbranch_scc1 1b"
    )
    around = f"{EXCHANGE.strip()}\ns_barrier\n{loop}\n"
    assert run(around + EXCHANGE, "gfx950", "race,uninit").findings == []
    (finding,) = run(around + without(EXCHANGE, "s_barrier"), "gfx950", "race,uninit").findings
    assert finding.kind == "race-lds" and finding.other is not None
    assert len({finding.pc, finding.other.location.pc}) == 2
