"""What the analysis proves about written registers, and that what it does not prove is tested in the run."""

from __future__ import annotations

import pytest
from check_kernels import CHIPS, kernel, kinds, run
from mutants import program_of

from tests.kernels.harness import scheduled_gemm
from tileir.simulator.checks.dataflow import unproved
from tileir.simulator.native import check_state as c


def _tests(body: str, chip: str = "gfx950") -> int:
    """Instructions with reads that are left to test."""
    program = program_of(kernel(body, chip), chip)
    return sum(any(item >> 16 in c.READS for item in own) for own in unproved(program))


@pytest.mark.parametrize("chip", CHIPS)
def test_a_gemm_needs_no_tests_where_it_is_fast(chip: str) -> None:
    """Only what leads to copies of registers by number, which store from the version for unaligned views, is followed."""
    program = program_of(scheduled_gemm(chip, "2 x 2", (128, 128, 64)).hsaco, chip)
    followed = unproved(program)
    products = [i for i, inst in enumerate(program.instructions) if inst and inst.name.startswith("v_mfma")]
    by_number = zip(program.instructions, program.indexing, strict=True)
    copies = [i for i, (inst, indexing) in enumerate(by_number) if inst and indexing and inst.name == "v_mov_b32"]
    assert copies and all(followed[i] for i in copies)
    assert sum(not followed[i] for i in products) >= len(products) // 2
    assert not any(item >> 16 in c.READS for i in products for item in followed[i])


BRANCH = """
v_cmp_gt_u32 vcc, 32, v1
s_nop 1
s_and_saveexec_b64 s[22:23], vcc
v_mov_b32 v11, 0
{inside}
s_mov_b64 exec, s[22:23]
v_add_u32 v12, v{read}, v1
"""


def test_lanes_that_a_branch_switches_off() -> None:
    """Inside, the register is written in all active lanes; behind, in some; another one is written in all."""
    assert _tests(BRANCH.format(inside="v_add_u32 v13, v11, v1", read=1)) == 0
    assert run(BRANCH.format(inside="v_add_u32 v13, v11, v1", read=1), "gfx950", "uninit").findings == []
    partly = BRANCH.format(inside="s_nop 0", read=11)
    assert _tests(partly) == 1
    (finding,) = run(partly, "gfx950", "uninit").findings
    assert finding.lanes == tuple(range(32, 64)) and "v11" in finding.message


def test_one_way_is_enough_to_doubt() -> None:
    """Written on one of two ways: a test is needed, and the finding depends on the way that is taken."""
    body = "s_cmp_eq_u32 s22, {}\ns_cbranch_scc1 1f\nv_mov_b32 v11, 0\n1:\nv_add_u32 v12, v11, v1"
    for value, found in ((5, []), (7, ["uninit-register"])):
        text = "s_mov_b32 s22, 7\n" + body.format(value)
        assert _tests(text) == 1
        assert kinds(run(text, "gfx942", "uninit")) == found


def test_a_loop_that_writes_at_its_end() -> None:
    loop = "s_mov_b32 s22, 2\n1:\n{}v_add_u32 v12, v11, v1\nv_mov_b32 v11, 0\ns_sub_u32 s22, s22, 1\ns_cmp_lg_u32 s22, 0\ns_cbranch_scc1 1b"
    assert _tests(loop.format("")) == 1
    assert kinds(run(loop.format(""), "gfx950", "uninit")) == ["uninit-register"]
    assert _tests(loop.format("v_mov_b32 v11, 1\n")) == 0


def test_a_copy_of_nothing_takes_the_proof_away() -> None:
    body = "v_mov_b32 v11, 0\nv_mov_b32 v11, v14\nv_add_u32 v12, v11, v1"
    assert _tests(body) == 1
    (finding,) = run(body, "gfx950", "uninit").findings
    assert "v11" in finding.message


def test_indirect_jumps_prove_nothing() -> None:
    body = "s_getpc_b64 s[24:25]\ns_add_u32 s24, s24, 16\ns_addc_u32 s25, s25, 0\ns_setpc_b64 s[24:25]\ns_nop 0\nv_add_u32 v12, v11, v1"
    assert _tests(body) > 1
    assert "uninit-register" in kinds(run(body, "gfx950", "uninit"))


INDEXED = """
v_mov_b32 v11, 1
s_mov_b32 s22, 2
s_set_gpr_idx_on s22, gpr_idx({to})
v_mov_b32 v11, {value}
s_set_gpr_idx_off
v_mov_b32 v14, v11
s_set_gpr_idx_on s22, gpr_idx(SRC0)
v_mov_b32 v15, v{source}
s_set_gpr_idx_off
v_add_u32 v16, v{read}, v15
"""


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("value", ["0", "v1", "s22"])
def test_registers_relative_to_m0(value: str, chip: str) -> None:
    """What is written is v13, not v11; what is read is two behind the one that is named."""

    def found(read: int, source: int, to: str = "DST", value: str = value) -> list[str]:
        return [f.message.split()[0] for f in run(INDEXED.format(**locals()), chip, "uninit").findings]

    assert found(13, 11) == []
    assert found(12, 11) == ["v12"]
    assert found(13, 10) == ["v15"]
    assert found(13, 11, value="v12") == ["v13"]


def test_reloads_of_scalar_registers_that_hold_nothing() -> None:
    """What v_readlane_b32 takes from a register without contents is no fault until something is computed from it."""
    reload = "v_readlane_b32 s22, v11, 3\n"
    assert run(reload, "gfx950", "uninit").findings == []
    (finding,) = run(reload + "s_add_u32 s23, s22, 1", "gfx950", "uninit").findings
    assert "s22" in finding.message
    saved = "s_mov_b32 s24, 5\nv_writelane_b32 v11, s24, 3\n"
    assert run(saved + reload + "s_add_u32 s23, s22, 1", "gfx950", "uninit").findings == []
    (finding,) = run(saved + "v_readlane_b32 s22, v11, s25", "gfx950", "uninit").findings
    assert "s25" in finding.message


def test_the_upper_half_of_what_is_shifted_left() -> None:
    """It does not reach the lower half of the result; the amount and the lower half do."""
    shift = "v_mov_b32 v{written}, 1\nv_lshlrev_b64 v[14:15], {amount}, v[12:13]"
    assert run(shift.format(written=12, amount="v1"), "gfx950", "uninit").findings == []
    assert kinds(run(shift.format(written=13, amount="v1"), "gfx950", "uninit")) == ["uninit-register"]
    assert kinds(run(shift.format(written=12, amount="v11"), "gfx950", "uninit")) == ["uninit-register"]


def test_half_of_a_packed_operation() -> None:
    """What one half of a packed f32 operation makes of nothing is nothing; the other half is written."""
    packed = "v_mov_b32 v12, 1.0\nv_pk_fma_f32 v[14:15], v[12:13], v[12:13], v[12:13]{}\nv_add_f32 v16, v{}, v1"
    assert run(packed.format("", 14), "gfx950", "uninit").findings == []
    (finding,) = run(packed.format("", 15), "gfx950", "uninit").findings
    assert "v15" in finding.message and finding.disassembly.startswith("v_add_f32")
    assert run(packed.format(" op_sel_hi:[0,0,0]", 15), "gfx950", "uninit").findings == []
    assert kinds(run(packed.format(" op_sel:[0,1,0]", 14), "gfx950", "uninit")) == ["uninit-register"]


@pytest.mark.parametrize("mask,form", [("vcc", "e32"), ("s[22:23]", "e64")])
def test_a_choice_copies_what_it_takes(mask: str, form: str) -> None:
    """Lanes that take what was never written count as unwritten, and are reported where something is made of them."""
    body = "v_mov_b32 v11, 0\n{}\ns_nop 1\nv_cndmask_b32_{} v14, {}, {}, {}\nv_add_u32 v15, v14, v1"
    compare = f"v_cmp_gt_u32_e64 {mask}, 32, v1"
    low, high = tuple(range(32)), tuple(range(32, 64))
    for first, second, lanes in (
        ("v11", "v1", ()),
        ("v11", "v12", low),
        ("v12", "v11", high),
        ("v12", "v13", low + high),
    ):
        findings = run(body.format(compare, form, first, second, mask), "gfx950", "uninit").findings
        assert [f.lanes or low + high for f in findings] == ([lanes] if lanes else [])
        assert all("v14" in f.message for f in findings)
    (finding,) = run(body.format(compare, form, "0", "v12", mask), "gfx942", "uninit").findings
    assert finding.lanes == low
    never = body.format(f"s_mov_b64 {mask}, 0", form, "v11", "v12", mask)
    assert run(never, "gfx950", "uninit").findings == [] and _tests(never) == 1


def test_a_choice_by_a_mask_that_was_never_written() -> None:
    (finding,) = run("v_cndmask_b32_e64 v14, v1, 0, s[24:25]", "gfx950", "uninit").findings
    assert "s24" in finding.message
    (finding,) = run(
        "v_cmp_gt_u32_e64 s[24:25], 32, v1\ns_nop 1\nv_cndmask_b32_e64 v14, v12, 0, s[24:25]\nv_add_u32 v15, v14, v1",
        "gfx950",
        "uninit",
    ).findings
    assert finding.lanes == tuple(range(32, 64))
