"""MFMA wait states: one too few is found, enough are silent, and LLVM's own code has enough."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from check_kernels import CHIPS, run

from tests.simulator.simulator_compile import from_ir
from tileir.simulator import Simulator
from tileir.simulator.checks.collect import Collector
from tileir.simulator.checks.hazard import hazards

SETUP = "\n".join(f"v_mov_b32 v{i}, 0" for i in range(2, 60)) + "\ns_nop 1\n"
P4 = "v_mfma_f32_16x16x16_f16 v[8:11], v[2:3], v[4:5], v[8:11]"
P8 = "v_mfma_f32_32x32x8_f16 v[8:23], v[2:3], v[4:5], v[8:23]"
F32 = "v_mfma_f32_16x16x4_f32 v[8:11], v2, v4, v[8:11]"
# (MFMA, dependent instruction, wait states on gfx942 and gfx950); the passes are those of the target data
CASES = [
    (P4, "v_add_f32 v30, v8, v8", 7, 8),
    (P4, "v_mov_b32 v9, 0", 7, 8),
    (P4, "ds_write_b32 v2, v11", 7, 8),
    (P4, "global_store_dword v2, v8, s[20:21]", 7, 8),
    (P8, "v_add_f32 v30, v23, v8", 11, 12),
    (F32, "v_add_f32 v30, v8, v8", 10, 10),
    (P4, "v_mfma_f32_16x16x16_f16 v[40:43], v[8:9], v[4:5], v[40:43]", 7, 8),
    (P4, "v_mfma_f32_16x16x16_f16 v[40:43], v[2:3], v[10:11], v[40:43]", 7, 8),
    (P4, "v_mfma_f32_16x16x16_f16 v[10:13], v[2:3], v[4:5], v[10:13]", 5, 6),
    (P4, P4, 0, 0),
    (P4.replace("v[8:11]", "v[40:43]", 1), "v_mov_b32 v8, 0", 3, 3),
    (F32.replace("v[8:11]", "v[40:43]", 1), "v_mov_b32 v8, 0", 0, 0),
    (P4, "v_mov_b32 v31, 0", 0, 0),
    ("v_mov_b32 v2, 0", P4, 2, 2),
    ("v_mov_b32 v8, 0", P4, 2, 2),
]


def nops(n: int) -> str:
    return "".join(f"s_nop {min(k, 8) - 1}\n" for k in ([8] * (n // 8) + ([n % 8] if n % 8 else [])))


@pytest.mark.parametrize("first,second,old,new", CASES, ids=[str(i) for i in range(len(CASES))])
def test_dependence(first: str, second: str, old: int, new: int) -> None:
    for chip, needed in zip(CHIPS, (old, new), strict=True):
        assert run(SETUP + f"{first}\n{nops(needed)}{second}", chip, "hazard", threads=64).findings == []
        if needed:
            (finding,) = run(SETUP + f"{first}\n{nops(needed - 1)}{second}", chip, "hazard", threads=64).findings
            assert finding.kind == "mfma-hazard" and f"{needed} are needed" in finding.message
            assert finding.disassembly.split()[0].removesuffix("_e32") == second.split()[0]
            assert (
                finding.other is not None
                and finding.other.location.disassembly.split()[0].removesuffix("_e32") == first.split()[0]
            )


def test_other_opcode_continues_the_accumulator() -> None:
    wide = "v_mfma_f32_16x16x32_f16 v[8:11], v[32:35], v[36:39], v[8:11]"
    body = SETUP + "{}\n{}{}"
    (finding,) = run(body.format(wide, nops(4), P4), "gfx950", "hazard", threads=64).findings
    assert "of another opcode" in finding.message and "5 are needed" in finding.message
    assert run(body.format(wide, nops(5), P4), "gfx950", "hazard", threads=64).findings == []
    assert run(body.format(wide, "", wide), "gfx950", "hazard", threads=64).findings == []


def test_hazard_round_a_loop() -> None:
    loop = f"s_mov_b32 s22, 2\n1:\nv_add_f32 v30, v8, v8\n{nops(8)}{P4}\ns_sub_u32 s22, s22, 1\ns_cmp_lg_u32 s22, 0\ns_cbranch_scc1 1b"
    (finding,) = run(SETUP + loop, "gfx942", "hazard", threads=64).findings
    assert "v_add_f32" in finding.disassembly and "3 wait states stand" in finding.message


_IR = """
define amdgpu_kernel void @k(ptr addrspace(1) %p) {{
  %a = load <4 x half>, ptr addrspace(1) %p
  %c = load <{n} x float>, ptr addrspace(1) %p
  %d = call <{n} x float> @llvm.amdgcn.mfma.f32.{shape}(<4 x half> %a, <4 x half> %a, <{n} x float> %c, i32 0, i32 0, i32 0)
  %h = fptrunc <{n} x float> %d to <{n} x half>
  %b = shufflevector <{n} x half> %h, <{n} x half> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %e = call <{n} x float> @llvm.amdgcn.mfma.f32.{shape}(<4 x half> %b, <4 x half> %a, <{n} x float> %d, i32 0, i32 0, i32 0)
  %s = fadd <{n} x float> %e, %d
  store <{n} x float> %s, ptr addrspace(1) %p
  ret void
}}
declare <{n} x float> @llvm.amdgcn.mfma.f32.{shape}(<4 x half>, <4 x half>, <{n} x float>, i32, i32, i32)
"""


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("shape,n", [("4x4x4f16", 4), ("16x16x16f16", 4), ("32x32x8f16", 16), ("32x32x4f16", 32)])
def test_llvm_keeps_enough_wait_states(chip: str, shape: str, n: int) -> None:
    """Silent on LLVM's code for 2, 4, 8 and 16 passes; every s_nop that it inserted is needed by this count."""
    simulator = Simulator(chip)
    module = simulator.load(from_ir(_IR.format(shape=shape, n=n), chip))
    buffer = simulator.memory.allocate(4096)
    statistics = module.launch("k", (1, 1, 1), (64, 1, 1), [buffer], check="hazard")
    assert statistics.findings == []
    program = module.program("k")
    kept = list(program.instructions)
    waits = [
        i
        for i, inst in enumerate(kept)
        if inst and inst.name == "s_nop" and program.addresses[i] in statistics.executions
    ]
    assert waits
    for i in waits:
        collect = Collector(False, 100)
        changed = copy.copy(program)
        changed.instructions = kept[:i] + kept[i + 1 :]
        changed.addresses = program.addresses[:i] + program.addresses[i + 1 :]
        hazards(changed, np.ones(len(kept), np.uint64), simulator.target, collect)
        assert collect.findings, (i, kept[i])
