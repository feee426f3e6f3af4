"""Order through memory: what a release and an acquire establish between waves and between workgroups, and what not."""

from __future__ import annotations

import pytest
from check_kernels import CHIPS, kinds, run

HAND_OVER = """
v_mov_b32 v9, 0
v_mov_b32 v3, 1
s_mov_b64 exec, 1
global_atomic_add v4, v9, v3, s[20:21] offset:2048 sc0
s_waitcnt vmcnt(0)
v_readfirstlane_b32 s22, v4
s_mov_b64 exec, -1
s_lshl_b32 s23, s22, 8
v_add_u32 v5, s23, v2
global_store_dword v5, v1, s[20:21]
buffer_wbl2 sc1
s_waitcnt vmcnt(0)
s_mov_b64 exec, 1
global_atomic_add v4, v9, v3, s[20:21] offset:2052 sc0 sc1
s_waitcnt vmcnt(0)
buffer_inv sc1
v_readfirstlane_b32 s24, v4
s_mov_b64 exec, -1
s_cmp_lg_u32 s24, 0
s_cbranch_scc0 1f
v_subrev_u32 v6, 0x100, v5
global_load_dword v7, v6, s[20:21]
s_waitcnt vmcnt(0)
1:
"""
"""Each workgroup takes a number, stores its part and counts itself; all but the first read the part before theirs."""


def _without(body: str, line: str, which: int) -> str:
    lines = body.strip().splitlines()
    places = [i for i, text in enumerate(lines) if text == line]
    lines[places[which]] = "s_nop 0"
    return "\n".join(lines)


@pytest.mark.parametrize("chip", CHIPS)
def test_release_and_acquire_between_workgroups(chip: str) -> None:
    assert run(HAND_OVER, chip, "race", groups=4, threads=64).findings == []


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    "line,which", [("buffer_wbl2 sc1", 0), ("s_waitcnt vmcnt(0)", 1), ("buffer_inv sc1", 0)], ids=str
)
def test_each_part_of_the_protocol_counts(chip: str, line: str, which: int) -> None:
    (finding,) = run(_without(HAND_OVER, line, which), chip, "race", groups=2, threads=64).findings
    assert finding.kind == "race-memory" and "no release and acquire order the two" in finding.message
    assert finding.disassembly.startswith("global_load_dword") and finding.party.workgroup == (1, 0, 0)
    assert finding.other and finding.other.location.disassembly.startswith("global_store_dword")


def test_another_address_orders_nothing() -> None:
    """What is read is the number that each workgroup took before it released anything."""
    body = HAND_OVER.replace(
        "global_atomic_add v4, v9, v3, s[20:21] offset:2052 sc0 sc1",
        "global_atomic_add v9, v3, s[20:21] offset:2052 sc1",
    )
    assert kinds(run(body, "gfx942", "race", groups=2, threads=64)) == ["race-memory"]


THROUGH_LDS = """
v_lshrrev_b32 v5, 6, v1
v_mov_b32 v8, 0
s_nop 0
v_readfirstlane_b32 s22, v5
v_and_b32 v6, 63, v1
v_lshlrev_b32 v6, 2, v6
s_cmp_lg_u32 s22, 0
s_cbranch_scc1 1f
ds_write_b32 v6, v1
s_waitcnt lgkmcnt(0)
ds_add_u32 v8, v1 offset:512
s_branch 2f
1:
ds_add_rtn_u32 v7, v8, v8 offset:512
s_waitcnt lgkmcnt(0)
ds_read_b32 v7, v6
s_waitcnt lgkmcnt(0)
2:
"""
"""Wave 0 writes and raises a flag, wave 1 looks at the flag and reads."""


@pytest.mark.parametrize("chip", CHIPS)
def test_flags_in_lds_order_waves(chip: str) -> None:
    assert run(THROUGH_LDS, chip, "race").findings == []
    late = _without(THROUGH_LDS, "s_waitcnt lgkmcnt(0)", 0)
    assert kinds(run(late, chip, "race")) == ["race-lds"]
    unseen = THROUGH_LDS.replace("ds_add_rtn_u32 v7, v8, v8 offset:512", "ds_add_rtn_u32 v7, v8, v8 offset:516")
    assert kinds(run(unseen, chip, "race")) == ["race-lds"]


def test_a_barrier_hands_on_what_one_wave_has_acquired() -> None:
    """Wave 0 takes part in the protocol, wave 1 reads behind a barrier."""
    wave = "v_lshrrev_b32 v10, 6, v1\ns_nop 0\nv_readfirstlane_b32 s28, v10\n"
    body = f"""{wave}
v_mov_b32 v9, 0
v_mov_b32 v3, 1
s_cmp_lg_u32 s28, 0
s_cbranch_scc1 3f
s_mov_b64 exec, 1
global_atomic_add v4, v9, v3, s[20:21] offset:2048 sc0
s_waitcnt vmcnt(0)
ds_write_b32 v9, v4
s_waitcnt lgkmcnt(0)
s_mov_b64 exec, -1
3:
s_barrier
ds_read_b32 v4, v9
s_waitcnt lgkmcnt(0)
v_lshl_add_u32 v5, v4, 9, v2
global_store_dword v5, v1, s[20:21]
s_waitcnt vmcnt(0)
s_barrier
s_cmp_lg_u32 s28, 0
s_cbranch_scc1 4f
s_mov_b64 exec, 1
buffer_wbl2 sc1
s_waitcnt vmcnt(0)
global_atomic_add v4, v9, v3, s[20:21] offset:2052 sc0 sc1
s_waitcnt vmcnt(0)
buffer_inv sc1
s_mov_b64 exec, -1
4:
s_barrier
v_cmp_lt_u32 vcc, 511, v5
s_nop 1
s_and_saveexec_b64 s[30:31], vcc
v_subrev_u32 v6, 0x200, v5
global_load_dword v7, v6, s[20:21]
s_waitcnt vmcnt(0)
"""
    assert run(body, "gfx950", "race", groups=3).findings == []
    assert kinds(run(_without(body, "buffer_inv sc1", 0), "gfx950", "race", groups=3)) == ["race-memory"]
    assert kinds(run(_without(body, "s_barrier", 1), "gfx950", "race", groups=3)) == ["race-memory"]


@pytest.mark.parametrize("chip", CHIPS)
def test_a_load_whose_registers_a_swap_uses_again_is_a_plain_load(chip: str) -> None:
    """Two waves read the same place; later both swap at another one, whose address is in the same registers."""
    body = """
v_mov_b32 v9, 0
v_mov_b32 v8, 0
global_load_dword v4, v9, s[20:21]
global_load_dword v7, v8, s[20:21]
s_waitcnt vmcnt(0)
v_mov_b32 v9, 0x800
v_mov_b32 v5, v9
global_atomic_cmpswap v9, v[4:5], s[20:21]
s_waitcnt vmcnt(0)
"""
    assert run(body, chip, "race").findings == []


@pytest.mark.parametrize("chip", CHIPS)
def test_the_first_guess_of_a_long_loop_of_swaps_is_no_plain_load(chip: str) -> None:
    """The loop of an addition in bf16 has more instructions between the load and the swap than are near each other."""
    rounding = "v_xor_b32 v4, 0, v4\n" * 14
    body = f"""
v_mov_b32 v9, 0x800
global_load_dword v5, v9, s[20:21]
s_mov_b64 s[30:31], 0
s_waitcnt vmcnt(0)
5:
v_add_u32 v4, 1, v5
{rounding}global_atomic_cmpswap v4, v9, v[4:5], s[20:21] sc0
s_waitcnt vmcnt(0)
v_cmp_eq_u32 vcc, v4, v5
s_or_b64 s[30:31], vcc, s[30:31]
v_mov_b32 v5, v4
s_andn2_b64 exec, exec, s[30:31]
s_cbranch_execnz 5b
s_mov_b64 exec, -1
"""
    assert run(body, chip, "race", groups=3).findings == []
    assert kinds(run(_without(body, "s_cbranch_execnz 5b", 0), chip, "race", groups=3)) == ["race-memory"]
