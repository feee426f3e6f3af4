"""Control flow of hand-written kernels whose structure is known."""

from __future__ import annotations

import pytest
from inspect_assembly import CHIPS, assemble, report

from tileir.simulator.inspect import InspectError, KernelReport, inspect

NESTED = """
  s_mov_b32 s0, 0
.Louter:
  s_mov_b32 s1, 0
.Linner:
  v_add_u32 v0, v0, v1
  s_add_i32 s1, s1, 1
  s_cmp_lt_i32 s1, 8
  s_cbranch_scc1 .Linner
  s_add_i32 s0, s0, 1
  s_cmp_lt_i32 s0, 8
  s_cbranch_scc1 .Louter
  s_endpgm
"""


def address(kernel: KernelReport, name: str, which: int = 0) -> int:
    """Address of the n-th instruction of that name."""
    return [i.address for i in kernel.flow.items if i.name == name][which]


@pytest.mark.parametrize("chip", CHIPS)
def test_nested_loops(chip: str) -> None:
    kernel = report(NESTED, chip)
    outer, inner = kernel.loops
    assert (outer.depth, outer.parent, outer.innermost) == (1, None, False)
    assert (inner.depth, inner.parent, inner.innermost) == (2, 0, True)
    assert outer.headers == (address(kernel, "s_mov_b32", 1),)
    assert inner.headers == (address(kernel, "v_add_u32"),)
    assert (outer.counts.instructions, inner.counts.instructions) == (8, 4)
    assert inner.counts.classes["valu"] == 1 and inner.counts.classes["salu"] == 2
    assert kernel.hot == 1 and kernel.flow.complete
    assert inner.exits == ((address(kernel, "s_cbranch_scc1"), address(kernel, "s_add_i32", 1)),)


def test_loop_with_two_exits() -> None:
    kernel = report("""
  s_nop 0
.Lloop:
  s_cmp_eq_u32 s0, s1
  s_cbranch_scc1 .Lfound
  s_add_i32 s0, s0, 1
  s_cmp_lt_i32 s0, 100
  s_cbranch_scc1 .Lloop
  s_endpgm
.Lfound:
  v_mov_b32 v0, 1
  s_endpgm
""")
    (loop,) = kernel.loops
    assert loop.exits == (
        (address(kernel, "s_cbranch_scc1", 0), address(kernel, "v_mov_b32")),
        (address(kernel, "s_cbranch_scc1", 1), address(kernel, "s_endpgm", 0)),
    )
    assert loop.counts.instructions == 5 and loop.counts.classes["branch"] == 2


def test_no_loop() -> None:
    kernel = report("v_mov_b32 v0, 0\n s_cbranch_execz .Lskip\n v_mov_b32 v1, 0\n.Lskip:\n s_endpgm\n")
    assert kernel.loops == () and kernel.hot is None and kernel.hot_loop is None
    assert kernel.counts.instructions == 4


def test_irreducible_loop() -> None:
    kernel = report("""
  s_cmp_eq_u32 s0, 0
  s_cbranch_scc1 .Lsecond
.Lfirst:
  v_mov_b32 v0, 0
.Lsecond:
  v_mov_b32 v1, 0
  s_cbranch_scc1 .Lfirst
  s_endpgm
""")
    (loop,) = kernel.loops
    assert loop.irreducible
    assert loop.headers == (address(kernel, "v_mov_b32", 0), address(kernel, "v_mov_b32", 1))
    assert loop.counts.instructions == 3


def test_loop_whose_test_stands_first() -> None:
    """A while loop: the header ends in the exit, an unconditional branch closes the loop."""
    kernel = report("""
.Lhead:
  s_cmp_lt_i32 s0, 8
  s_cbranch_scc0 .Ldone
  v_mov_b32 v0, 0
  s_branch .Lhead
.Ldone:
  s_endpgm
""")
    (loop,) = kernel.loops
    assert loop.counts.instructions == 4 and loop.headers == (address(kernel, "s_cmp_lt_i32"),)


def test_code_that_cannot_be_reached_is_told_apart() -> None:
    kernel = report("s_branch .Lend2\n v_mov_b32 v0, 0\n v_mov_b32 v200, 0\n.Lend2:\n s_endpgm\n", vgprs=256, accum=256)
    assert kernel.unreachable_instructions == 2
    assert kernel.counts.instructions == 2
    assert kernel.registers.vgprs_used == 0


FAR = """
.Lloop:
  v_mov_b32 v0, 0
  s_cbranch_scc1 .Lout
  s_getpc_b64 s[4:5]
.Lpost:
  s_add_u32 s4, s4, (.Lloop-.Lpost)&4294967295
  s_addc_u32 s5, s5, (.Lloop-.Lpost)>>32
  s_setpc_b64 s[4:5]
.Lout:
  s_endpgm
"""


def test_far_branch_is_followed() -> None:
    kernel = report(FAR)
    (loop,) = kernel.loops
    assert loop.counts.instructions == 6
    assert kernel.flow.complete and kernel.notes == ()


@pytest.mark.parametrize(
    "old, new",
    [
        ("s_add_u32 s4, s4, (.Lloop-.Lpost)&4294967295", "s_add_u32 s4, s4, s9"),
        ("s_setpc_b64 s[4:5]", "s_mov_b32 s4, s9\n  s_setpc_b64 s[4:5]"),
        ("s_setpc_b64 s[4:5]", "s_setpc_b64 s[6:7]"),
        (".Lpost:", ".Lpost:\n  s_mov_b32 s5, s9"),
        (".Lpost:", ".Lpost:\n  v_readfirstlane_b32 s4, v0"),
        (".Lpost:", ".Lpost:\n  s_cmp_eq_u32 s0, 0\n  s_cbranch_scc1 .Lout"),
    ],
)
def test_computed_jump_is_not_guessed(old: str, new: str) -> None:
    assert old in FAR
    kernel = report(FAR.replace(old, new))
    assert not kernel.flow.complete
    assert any("s_setpc_b64" in note and "not followed" in note for note in kernel.notes)


def test_carry_between_the_halves_must_survive() -> None:
    broken = FAR.replace("  s_addc_u32", "  s_cmp_eq_u32 s0, 0\n  s_addc_u32")
    assert not report(broken).flow.complete


def test_call_returns() -> None:
    kernel = report("""
.Lloop:
  s_getpc_b64 s[4:5]
  s_add_u32 s4, s4, 0x1000
  s_addc_u32 s5, s5, 0
  s_swappc_b64 s[30:31], s[4:5]
  s_cbranch_scc1 .Lloop
  s_endpgm
""")
    (loop,) = kernel.loops
    assert loop.counts.instructions == 5 and kernel.flow.complete
    target = address(kernel, "s_add_u32") + 0x1000
    assert kernel.notes == (
        f"{address(kernel, 's_swappc_b64'):#x}: s_swappc_b64 calls {target:#x}; the called code is not counted",
    )


def test_branch_out_of_the_kernel() -> None:
    kernel = report("s_cbranch_scc0 .Lelsewhere\n s_endpgm\n", more=".Lelsewhere:\n s_endpgm\n")
    assert not kernel.flow.complete
    (note,) = kernel.notes
    assert "outside the kernel" in note


def test_execution_past_the_end_is_noted() -> None:
    kernel = report("v_mov_b32 v0, 0\n")
    assert not kernel.flow.complete
    assert "runs past it" in kernel.notes[0]


@pytest.mark.parametrize("chip", CHIPS)
def test_reachable_bytes_must_be_instructions(chip: str) -> None:
    data = assemble("s_nop 0\n .long 0xffffffff\n s_endpgm\n", chip)
    with pytest.raises(InspectError) as caught:
        inspect(data)
    assert caught.value.offset is not None and caught.value.address is not None
    assert data[caught.value.offset : caught.value.offset + 4] == b"\xff\xff\xff\xff"


def test_data_behind_the_code_does_not_matter() -> None:
    kernel = report("s_nop 0\n s_endpgm\n .long 0xffffffff\n .byte 1\n")
    assert kernel.counts.instructions == 2


def test_kernarg_preload_has_two_entries() -> None:
    """A kernel with preloaded arguments begins 256 bytes later on firmware that preloads (LLVM AMDGPUUsage)."""
    body = "  s_endpgm\n  .p2align 8\n  v_mov_b32 v7, 0\n  s_endpgm\n"
    preload = ".amdhsa_user_sgpr_kernarg_segment_ptr 1\n  .amdhsa_user_sgpr_kernarg_preload_length 2"
    assert report(body).registers.vgprs_used == 0
    assert report(body, directives=preload).registers.vgprs_used == 8
