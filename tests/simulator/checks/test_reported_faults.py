"""Faults that users of other compilers reported, as kernels that must be caught or right."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from check_kernels import CHIPS, kernel, kinds, run

from tileir.simulator import Simulator, SimulatorFault

PING_PONG = """
v_lshrrev_b32 v5, 6, v1
s_nop 0
v_readfirstlane_b32 s22, v5
v_and_b32 v6, 0x3fc, v2
s_cmp_lt_u32 s22, 4
s_cbranch_scc0 2f
s_mov_b32 s23, 3
1:
ds_write_b32 v6, v1
s_waitcnt lgkmcnt(0)
s_barrier
{early}
s_barrier
{late}
s_sub_u32 s23, s23, 1
s_cmp_lg_u32 s23, 0
s_cbranch_scc1 1b
s_branch 3f
2:
s_mov_b32 s23, 3
4:
s_barrier
ds_read_b32 v7, v6
{before}
s_barrier
{after}
global_store_dword v2, v7, s[20:21]
s_sub_u32 s23, s23, 1
s_cmp_lg_u32 s23, 0
s_cbranch_scc1 4b
3:
"""
"""Two clusters of four waves: one fills a buffer, the other reads it, round after round, with two barriers a round. The
reader's wait stands before the second barrier, or, as in the fault, behind it."""


@pytest.mark.parametrize("chip", CHIPS)
def test_stale_lds(chip: str) -> None:
    """[triton 11696] A barrier before the wait for ds_read: the other cluster may overwrite what is still being read."""
    wait = "s_waitcnt lgkmcnt(0)"
    right = PING_PONG.format(early="", late="", before=wait, after="")
    assert run(right, chip, threads=512).findings == []
    wrong = PING_PONG.format(early="", late="", before="", after=wait)
    findings = run(wrong, chip, threads=512).findings
    assert findings and {f.kind for f in findings} == {"race-lds"}
    (finding,) = findings
    assert "passed a barrier before a wait had covered its access" in finding.message
    assert {finding.disassembly.split()[0], finding.other.location.disassembly.split()[0]} == {  # type: ignore[union-attr]
        "ds_write_b32",
        "ds_read_b32",
    }


@pytest.mark.parametrize("chip", CHIPS)
def test_stale_lds_of_one_wave(chip: str) -> None:
    """A load to LDS may overtake a ds_read of its own wave: vmcnt and lgkmcnt know nothing of each other."""
    body = """
    ds_write_b32 v2, v1
    s_waitcnt lgkmcnt(0)
    s_mov_b32 m0, 0
    ds_read_b32 v7, v2
    {wait}
    global_load_lds_dword v2, s[20:21]
    s_waitcnt vmcnt(0) lgkmcnt(0)
    global_store_dword v2, v7, s[20:21] offset:1024
    """
    assert run(body.format(wait="s_waitcnt lgkmcnt(0)"), chip, threads=64).findings == []
    (finding,) = run(body.format(wait="s_nop 0"), chip, threads=64).findings
    assert finding.kind == "race-lds" and "may overtake it" in finding.message
    assert finding.disassembly.startswith("global_load_lds_dword") and "ds_read_b32" in str(finding.other)
    elsewhere = body.format(wait="s_mov_b32 m0, 0x100\ns_nop 0")
    assert run(elsewhere, chip, threads=64).findings == []


FNUZ_KINDS = {"gfx942": (ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz), "gfx950": (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)}  # fmt: skip


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("which", [0, 1])
def test_fnuz_nan(chip: str, which: int) -> None:
    """[triton 10745] All 256 codes through the conversions of the chip: 0x80 is NaN in FNUZ and -0 in OCP."""
    name = ("fp8", "bf8")[which]
    body = f"""
    global_load_ubyte v5, v1, s[20:21]
    s_waitcnt vmcnt(0)
    v_cvt_f32_{name} v6, v5
    global_store_dword v2, v6, s[20:21] offset:1024
    s_waitcnt vmcnt(0)
    """
    simulator = Simulator(chip)
    module = simulator.load(kernel(body, chip, threads=256))
    buffer = simulator.memory.allocate(4096, "buffer")
    codes = np.arange(256, dtype=np.uint8)
    buffer.write(codes)
    statistics = module.launch("k", (1, 1, 1), (256, 1, 1), [buffer], check="all")
    assert statistics.findings == []
    got = buffer.read(np.float32, 256, 1024)
    want = codes.view(FNUZ_KINDS[chip][which]).astype(np.float32)
    assert np.array_equal(got, want, equal_nan=True)
    assert np.array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))
    assert np.isnan(got[0x80]) == (chip == "gfx942")


def test_transposed_read_exec() -> None:
    """[triton 11434] A transposing read hands lanes what others address: with lanes switched off it has no result."""
    body = """
    v_lshlrev_b32 v3, 3, v1
    v_mov_b32 v4, v1
    v_mov_b32 v5, v1
    ds_write_b64 v3, v[4:5]
    s_waitcnt lgkmcnt(0)
    {mask}
    ds_read_b64_tr_b16 v[6:7], v3
    s_waitcnt lgkmcnt(0)
    s_mov_b64 exec, -1
    global_store_dwordx2 v3, v[6:7], s[20:21]
    """
    assert run(body.format(mask=""), "gfx950", threads=64).findings == []
    with pytest.raises(SimulatorFault) as caught:
        run(body.format(mask="s_mov_b64 exec, 0xffff"), "gfx950", threads=64)
    assert caught.value.kind == "inactive-lanes" and "ds_read_b64_tr_b16" in str(caught.value)
    assert caught.value.lanes == tuple(range(16, 64))


PARITY = """
v_lshrrev_b32 v5, 6, v1
s_nop 0
v_readfirstlane_b32 s22, v5
s_cmp_lt_u32 s22, 2
s_cbranch_scc1 1f
s_barrier
1:
ds_write_b32 v2, v1
s_waitcnt lgkmcnt(0)
s_barrier
"""


@pytest.mark.parametrize("chip", CHIPS)
def test_barrier_parity(chip: str) -> None:
    """[rocMLIR] One group of waves executes one barrier more: a fault, or with the check a finding that counts them."""
    with pytest.raises(SimulatorFault) as caught:
        run(PARITY, chip, "", threads=256)
    assert caught.value.kind == "barrier-divergence"
    (finding,) = run(PARITY, chip, "barrier", threads=256).findings
    assert finding.kind == "barrier-count" and "waves [2, 3] wait" in finding.message
    assert "after [1] barriers" in finding.message and len(finding.notes) == 2
    even = PARITY.replace("s_cbranch_scc1 1f\ns_barrier", "s_cbranch_scc1 5f\ns_barrier\ns_branch 1f\n5:\ns_barrier")
    assert kinds(run(even, chip, threads=256)) == []
