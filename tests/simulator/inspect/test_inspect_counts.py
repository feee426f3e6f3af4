"""Classes, widths and clocks of instructions, by hand and against the target's own tables."""

from __future__ import annotations

import pytest
from inspect_assembly import CHIPS, report

from tileir import target as targets
from tileir.simulator.decoder.table import load
from tileir.simulator.inspect import classify
from tileir.simulator.inspect.classify import classify as class_by_name

EXPECTED = {
    ("v_mfma_f32_16x16x16_bf16", "mai", False): "mfma",
    ("v_smfmac_f32_16x16x32_f16", "mai", False): "mfma",
    ("v_mfma_scale_f32_16x16x128_f8f6f4", "vop3px2", False): "mfma",
    ("ds_read_b128", "ds", False): "lds_read",
    ("ds_read2st64_b32", "ds", False): "lds_read",
    ("ds_read_b64_tr_b16", "ds", False): "lds_transpose_read",
    ("ds_read_b96_tr_b6", "ds", False): "lds_transpose_read",
    ("ds_write_b8_d16_hi", "ds", False): "lds_write",
    ("ds_write2_b64", "ds", False): "lds_write",
    ("ds_add_u32", "ds", False): "lds_other",
    ("ds_bpermute_b32", "ds", False): "lds_other",
    ("ds_swizzle_b32", "ds", False): "lds_other",
    ("buffer_load_dwordx4", "mubuf", True): "direct_to_lds",
    ("buffer_load_dwordx4", "mubuf", False): "load",
    ("global_load_lds_dwordx4", "global", True): "direct_to_lds",
    ("tbuffer_load_format_xy", "mtbuf", False): "load",
    ("global_store_short_d16_hi", "global", False): "store",
    ("flat_load_dword", "flat", False): "load",
    ("buffer_atomic_add_f32", "mubuf", False): "atomic",
    ("scratch_load_dwordx4", "scratch", False): "scratch_load",
    ("scratch_store_byte", "scratch", False): "scratch_store",
    ("buffer_inv", "mubuf", False): "cache",
    ("buffer_wbl2", "mubuf", False): "cache",
    ("s_load_dwordx8", "smem", False): "smem",
    ("s_dcache_inv", "smem", False): "smem",
    ("v_exp_f32", "vop1", False): "transcendental",
    ("v_rcp_iflag_f32", "vop1", False): "transcendental",
    ("v_rsq_f64", "vop1", False): "transcendental",
    ("v_frexp_exp_i32_f32", "vop1", False): "valu",
    ("v_ldexp_f32", "vop3", False): "valu",
    ("v_mfma_ld_scale_b32", "vop3p", False): "valu",
    ("v_accvgpr_read_b32", "vop3p", False): "valu",
    ("v_cmp_lt_f32", "vopc", False): "valu",
    ("v_readfirstlane_b32", "vop1", False): "valu",
    ("s_add_u32", "sop2", False): "salu",
    ("s_getpc_b64", "sop1", False): "salu",
    ("s_cmpk_eq_i32", "sopk", False): "salu",
    ("s_waitcnt", "sopp", False): "wait",
    ("s_barrier", "sopp", False): "barrier",
    ("s_nop", "sopp", False): "nop",
    ("s_setprio", "sopp", False): "priority",
    ("s_cbranch_execz", "sopp", False): "branch",
    ("s_setpc_b64", "sop1", False): "branch",
    ("s_call_b64", "sopk", False): "branch",
    ("s_endpgm", "sopp", False): "other",
    ("s_sleep", "sopp", False): "other",
}


def test_classes_by_hand() -> None:
    assert {key: class_by_name(*key) for key in EXPECTED} == EXPECTED


def mnemonics(chip: str) -> set[str]:
    """Every mnemonic of the decoder's tables."""
    table = load(chip)
    entries = (table.entries[form].get(opcode) for form in table.entries for opcode in table.opcodes(form))
    return {entry.name for entry in entries if entry is not None}


@pytest.mark.parametrize("chip", CHIPS)
def test_every_matrix_instruction_has_clocks(chip: str) -> None:
    matrix = {name for name in mnemonics(chip) if class_by_name(name, "", False) == classify.MFMA}
    assert len(matrix) > 30
    assert all(targets.get(chip).mfma(name).issue_clocks >= 8 for name in matrix)


@pytest.mark.parametrize("chip", CHIPS)
def test_widths_are_those_of_the_target(chip: str) -> None:
    """The target's LDS table states bytes per lane independently."""
    accesses = [a for a in targets.get(chip).lds_accesses if a.op.startswith("ds_")]
    assert len(accesses) > 20
    assert {a.op: classify.width(a.op) for a in accesses} == {a.op: a.bytes_per_lane for a in accesses}


@pytest.mark.parametrize(
    "name, width",
    [
        ("buffer_load_dwordx3", 12),
        ("global_load_lds_dwordx4", 16),
        ("buffer_store_short_d16_hi", 2),
        ("flat_load_sbyte", 1),
        ("buffer_load_format_xyz", 12),
        ("buffer_load_format_d16_xyzw", 8),
        ("buffer_store_format_d16_hi_x", 2),
        ("scratch_store_dwordx2", 8),
        ("ds_read_addtid_b32", 4),
    ],
)
def test_widths_by_hand(name: str, width: int) -> None:
    assert classify.width(name) == width


MIX = """
.Lloop:
  v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]
  v_mfma_f32_16x16x16_f16 v[4:7], v[0:1], v[2:3], v[4:7]
  v_accvgpr_read_b32 v8, a0
  v_accvgpr_write_b32 a1, v8
  v_accvgpr_mov_b32 a2, a1
  v_mov_b32 v9, v10
  v_mov_b32 v9, 0
  v_mov_b32_dpp v9, v10 row_shr:1 row_mask:0xf bank_mask:0xf
  v_exp_f32 v9, v9
  ds_read_b128 v[12:15], v9
  ds_read2_b64 v[12:15], v9 offset1:1
  ds_write_b64 v9, v[12:13]
  buffer_load_dword v9, s[4:7], 0 offen lds
  buffer_load_dwordx2 v[12:13], v9, s[4:7], 0 offen
  global_store_dwordx4 v[12:13], v[12:15], off
  s_load_dword s0, s[2:3], 0x0
  s_waitcnt vmcnt(0) lgkmcnt(2)
  s_waitcnt lgkmcnt(0)
  s_waitcnt vmcnt(40)
  s_nop 3
  s_nop 0
  s_setprio 1
  s_barrier
  s_sleep 1
  s_add_u32 s0, s0, 1
  s_cbranch_scc1 .Lloop
  s_endpgm
"""


@pytest.mark.parametrize("chip", CHIPS)
def test_a_loop_counted_by_hand(chip: str) -> None:
    (loop,) = report(MIX, chip).loops
    c = loop.counts
    assert c.instructions == 26
    assert {kind: n for kind, n in c.classes.items() if n} == {
        "mfma": 2,
        "lds_read": 2,
        "lds_write": 1,
        "direct_to_lds": 1,
        "load": 1,
        "store": 1,
        "smem": 1,
        "transcendental": 1,
        "valu": 6,
        "salu": 1,
        "wait": 3,
        "barrier": 1,
        "nop": 2,
        "priority": 1,
        "branch": 1,
        "other": 1,
    }
    assert c.widths == {
        "lds_read": {16: 2},
        "lds_write": {8: 1},
        "direct_to_lds": {4: 1},
        "load": {8: 1},
        "store": {16: 1},
    }
    assert {name: (o.count, o.clocks) for name, o in c.mfma.items()} == {
        "v_mfma_f32_16x16x16_f16": (1, 16),
        "v_mfma_f32_32x32x8_f16": (1, 32),
    }
    assert c.waits == {"lgkmcnt(0)": 1, "vmcnt(0) lgkmcnt(2)": 1, "vmcnt(40)": 1}
    assert (c.vmcnt_drains, c.lgkmcnt_drains) == (1, 1)
    assert (c.nop_states, c.nop_clocks) == (5, 20)
    assert (c.accumulator_reads, c.accumulator_writes, c.accumulator_copies, c.accumulator_moves) == (1, 1, 1, 3)
    assert (c.vector_moves, c.vector_copies) == (2, 1)
    assert c.mfma_clocks == 48 and c.non_mfma == 24
    assert c.n == 24 * 1024 / 48
    assert c.valu_ratio == (4 * 6 + 8 * 1) / 48


def test_narrow_formats_run_faster() -> None:
    """Both operands below 8 bits halve the time; one alone does not (formats: 0 fp8, 2 fp6, 4 fp4)."""
    (loop,) = report("""
.Lloop:
  v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[8:15], v[16:23], v[0:3]
  v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[8:11], v[16:23], v[0:3] cbsz:4
  v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[8:11], v[16:21], v[0:3] cbsz:4 blgp:2
  v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[8:11], v[16:19], v[0:3], v24, v25 cbsz:4 blgp:4
  s_cbranch_scc1 .Lloop
  s_endpgm
""").loops
    found = {name: (o.count, o.clocks) for name, o in loop.counts.mfma.items()}
    assert found == {"v_mfma_f32_16x16x128_f8f6f4": (3, 32 + 32 + 16), "v_mfma_scale_f32_16x16x128_f8f6f4": (1, 16)}


def test_without_mfma_there_is_no_n() -> None:
    (loop,) = report(".Lloop:\n v_mov_b32 v0, 0\n s_cbranch_scc1 .Lloop\n s_endpgm\n").loops
    assert loop.counts.n is None and loop.counts.valu_ratio is None


HOT = """
.Lslow:
  v_mfma_f32_16x16x16_f16 v[4:7], v[0:1], v[2:3], v[4:7]
  s_nop 0
  s_nop 0
  s_cbranch_scc1 .Lslow
.Lfast:
  v_mfma_f32_16x16x16_f16 v[4:7], v[0:1], v[2:3], v[4:7]
  s_nop 0
  s_cbranch_scc1 .Lfast
.Llong:
  s_nop 0
  s_nop 0
  s_nop 0
  s_nop 0
  s_nop 0
  s_cbranch_scc1 .Llong
  s_endpgm
"""


def test_hot_loop() -> None:
    """Matrix work decides, then leanness; without matrix work, length."""
    assert report(HOT).hot == 1
    two = HOT.replace("s_nop 0", "v_mfma_f32_16x16x16_f16 v[4:7], v[0:1], v[2:3], v[4:7]", 1)
    assert report(two).hot == 0
    plain = HOT.replace("v_mfma_f32_16x16x16_f16 v[4:7], v[0:1], v[2:3], v[4:7]", "s_nop 0")
    assert report(plain).hot == 2


def test_hot_loop_with_a_small_loop_inside() -> None:
    """A copy loop inside the matrix loop does not take its place."""
    kernel = report("""
.Lmain:
  v_mfma_f32_16x16x16_f16 v[4:7], v[0:1], v[2:3], v[4:7]
  v_accvgpr_read_b32 v8, a0
.Lcopy:
  s_nop 0
  s_cbranch_scc1 .Lcopy
  s_cbranch_vccz .Lmain
  s_endpgm
""")
    assert kernel.hot == 0 and len(kernel.loops) == 2
    assert kernel.spills.loop_accumulator_moves == 1


def test_hot_loop_is_the_inner_one_of_two_with_matrix_work() -> None:
    kernel = report("""
.Louter:
  v_mfma_f32_16x16x16_f16 v[4:7], v[0:1], v[2:3], v[4:7]
.Linner:
  v_mfma_f32_16x16x16_f16 v[4:7], v[0:1], v[2:3], v[4:7]
  s_cbranch_scc1 .Linner
  s_cbranch_vccz .Louter
  s_endpgm
""")
    assert kernel.hot == 1 and kernel.loops[0].counts.mfma_count == 2
