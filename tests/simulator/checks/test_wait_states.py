"""Each rule of wait states: one state too few is found, enough are silent; LLVM's own code keeps them all."""

from __future__ import annotations

import pytest
from check_kernels import CHIPS, run

from tileir.simulator.checks.wait_states import rules

SETUP = "\n".join(f"v_mov_b32 v{i}, 0" for i in range(2, 20)) + "\ns_mov_b32 s22, 0\ns_mov_b64 s[24:25], 0\ns_nop 7\n"
# (text of the rule, producer, consumer, wait states, chips)
CASES = [
    ("the lane select", "v_readfirstlane_b32 s22, v3", "v_readlane_b32 s23, v2, s22", 4, CHIPS),
    ("a VALU instruction reads a scalar", "v_readfirstlane_b32 s22, v3", "v_add_u32 v10, s22, v2", 2, CHIPS),
    ("a VALU instruction reads a scalar", "v_cmp_eq_u32 vcc, v2, v3", "v_cndmask_b32 v10, v2, v3, vcc", 2, CHIPS),
    ("v_div_fmas", "v_cmp_eq_u32 vcc, v2, v3", "v_div_fmas_f32 v10, v2, v3, v4", 4, CHIPS),
    (
        "a DPP instruction reads",
        "v_mov_b32 v3, 0",
        "v_mov_b32_dpp v10, v3 row_shr:1 row_mask:0xf bank_mask:0xf",
        2,
        CHIPS,
    ),
    (
        "a DPP instruction runs",
        "v_cmpx_eq_u32 v2, v3",
        "v_mov_b32_dpp v10, v4 row_shr:1 row_mask:0xf bank_mask:0xf",
        5,
        CHIPS,
    ),
    ("a lane access", "v_cmpx_eq_u32 v2, v3", "v_readfirstlane_b32 s22, v4", 4, CHIPS),
    ("a lane is read", "v_mov_b32 v3, 0", "v_readfirstlane_b32 s22, v3", 1, CHIPS),
    ("a VALU instruction reads the result", "v_exp_f32 v3, v2", "v_add_f32 v10, v3, v3", 1, CHIPS),
    (
        "a VALU instruction reads a register of which",
        "v_mov_b32_sdwa v3, v2 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_0",
        "v_add_f32 v10, v3, v3",
        1,
        CHIPS,
    ),
    ("a VALU instruction overwrites", "global_store_dwordx4 v9, v[4:7], s[20:21]", "v_mov_b32 v5, 0", 2, CHIPS),
    ("M0 is used", "s_mov_b32 m0, 0", "global_load_lds_dword v9, s[20:21]", 1, CHIPS),
    ("s_getreg", "s_setreg_b32 hwreg(HW_REG_MODE, 4, 2), s22", "s_getreg_b32 s23, hwreg(HW_REG_MODE, 0, 4)", 2, CHIPS),
    ("s_setreg", "s_setreg_b32 hwreg(HW_REG_MODE, 4, 2), s22", "s_setreg_b32 hwreg(HW_REG_MODE, 6, 2), s22", 2, CHIPS),
    ("a swap of lanes reads", "v_mov_b32 v3, 0", "v_permlane16_swap_b32 v3, v4", 2, CHIPS[1:]),
    ("a swap of lanes runs", "v_cmpx_eq_u32 v2, v3", "v_permlane16_swap_b32 v4, v5", 4, CHIPS[1:]),
]


def _body(first: str, second: str, states: int) -> str:
    nops = f"s_nop {states - 1}\n" if states else ""
    return f"{SETUP}{first}\n{nops}{second}\ns_waitcnt vmcnt(0) lgkmcnt(0)"


@pytest.mark.parametrize("text,first,second,states,chips", CASES, ids=[str(i) for i in range(len(CASES))])
def test_rule(text: str, first: str, second: str, states: int, chips: tuple[str, ...]) -> None:
    for chip in chips:
        assert run(_body(first, second, states), chip, "hazard", threads=64).findings == []
        findings = run(_body(first, second, states - 1), chip, "hazard", threads=64).findings
        assert [f.kind for f in findings] == ["hazard"]
        (finding,) = findings
        assert finding.message.startswith(text) and f"{states} are needed" in finding.message
        assert finding.other is not None
        producer = finding.other.location.disassembly.split()[0].removesuffix("_e32").removesuffix("_e64")
        assert producer == first.split()[0]


@pytest.mark.parametrize("chip", CHIPS)
def test_scalar_address_of_a_load(chip: str) -> None:
    """The pair of an address comes from lanes; the load needs five states after the second half."""
    pair = "v_mov_b32 v10, s20\nv_mov_b32 v11, s21\ns_nop 0\nv_readfirstlane_b32 s22, v10\nv_readfirstlane_b32 s23, v11"
    load = "global_load_dword v12, v9, s[22:23]"
    assert run(_body(pair, load, 5), chip, "hazard", threads=64).findings == []
    (finding,) = run(_body(pair, load, 4), chip, "hazard", threads=64).findings
    assert finding.message.startswith("a vector-memory instruction reads a scalar") and "s23" in str(finding.other)


def test_what_does_not_count() -> None:
    """A scalar instruction's result needs no states; what is overwritten on the way does not count either."""
    assert run(SETUP + "s_mov_b32 s22, 1\nv_readlane_b32 s23, v2, s22", "gfx950", "hazard", threads=64).findings == []
    between = "v_readfirstlane_b32 s22, v3\ns_mov_b32 s22, 0\nv_readlane_b32 s23, v2, s22"
    assert run(SETUP + between, "gfx950", "hazard", threads=64).findings == []
    both = "v_exp_f32 v3, v2\nv_log_f32 v10, v3"
    assert run(SETUP + both, "gfx942", "hazard", threads=64).findings == []


def test_every_rule_has_a_case() -> None:
    covered = [text for text, *_ in CASES] + ["a vector-memory instruction reads a scalar"]
    assert [r.text for r in rules() if not any(r.text.startswith(text) for text in covered)] == []
    assert all(r.source and r.states > 0 for r in rules())
