"""Buffer intrinsics that only LLVM IR can name: formatted and structured accesses, compiled by llvmlite in the test run."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_compile import CHIPS, from_ir

from tileir.simulator import Simulator, SimulatorFault
from tileir.simulator.spec import typed
from tileir.simulator.spec.memory import swizzled

LANES = np.arange(64)
ATTRIBUTES = '"amdgpu-flat-work-group-size"="64,64"'


def kernel(body: str, stride: int, records: int, flags: int, declarations: str) -> str:
    """``out`` and ``in`` in global memory, ``%r`` a descriptor of ``in``, ``%t`` the lane."""
    return f"""
declare i32 @llvm.amdgcn.workitem.id.x()
{declarations}
define protected amdgpu_kernel void @k(ptr addrspace(1) %out, ptr addrspace(1) %in) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %address = ptrtoint ptr addrspace(1) %in to i64
  %with = or i64 %address, {stride << 48}
  %two = bitcast i64 %with to <2 x i32>
  %r0 = shufflevector <2 x i32> %two, <2 x i32> <i32 {records}, i32 {flags}>, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %r = freeze <4 x i32> %r0
{body}
  ret void
}}
attributes #0 = {{ {ATTRIBUTES} }}
"""


def run(text: str, chip: str, out: np.ndarray, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Contents of both arrays afterwards."""
    simulator = Simulator(chip)
    module = simulator.load(from_ir(text, chip))
    buffers = [simulator.memory.allocate(x.nbytes, name) for x, name in ((out, "out"), (data, "in"))]
    for buffer, x in zip(buffers, (out, data), strict=True):
        buffer.write(x)
    module.launch("k", (1, 1, 1), (64, 1, 1), buffers)
    return buffers[0].read(out.dtype), buffers[1].read(data.dtype)


SELECT = 4 | 5 << 3 | 6 << 6 | 7 << 9


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("data,number", [(10, 0), (5, 1), (9, 0), (12, 7), (14, 4), (6, 7)])
def test_load_format(chip: str, data: int, number: int) -> None:
    """llvm.amdgcn.struct.buffer.load.format: the format stands in the descriptor."""
    size = typed.size(data)
    raw = np.random.default_rng(data).integers(0, 256, 64 * 16).astype(np.uint8)
    body = """
  %v = call <4 x float> @llvm.amdgcn.struct.buffer.load.format.v4f32(<4 x i32> %r, i32 %t, i32 0, i32 0, i32 0)
  %p = getelementptr <4 x float>, ptr addrspace(1) %out, i32 %t
  store <4 x float> %v, ptr addrspace(1) %p"""
    declaration = "declare <4 x float> @llvm.amdgcn.struct.buffer.load.format.v4f32(<4 x i32>, i32, i32, i32, i32)"
    flags = SELECT | number << 12 | data << 15
    got, _ = run(kernel(body, 16, 60, flags, declaration), chip, np.zeros(256, np.uint32), raw)
    for lane in range(64):
        element = raw[16 * lane : 16 * lane + size].tobytes() if lane < 60 else b""
        want = typed.load(element, data, number, False)
        for g, w in zip(got[4 * lane : 4 * lane + 4].tolist(), want, strict=True):
            both = np.isnan(np.array([g, w], np.uint32).view(np.float32)).all()
            assert g == w or both, (lane, hex(g), hex(w))


@pytest.mark.parametrize("chip", CHIPS)
def test_tbuffer(chip: str) -> None:
    """llvm.amdgcn.struct.tbuffer.load and .store, also of 16-bit registers: the format stands in the instruction."""
    rng = np.random.default_rng(1)
    raw = rng.integers(0, 256, 64 * 8).astype(np.uint8)
    body = """
  %v = call <2 x float> @llvm.amdgcn.struct.tbuffer.load.v2f32(<4 x i32> %r, i32 %t, i32 0, i32 0, i32 5, i32 0)
  %h = call <2 x half> @llvm.amdgcn.struct.tbuffer.load.v2f16(<4 x i32> %r, i32 %t, i32 0, i32 0, i32 21, i32 0)
  %w = fpext <2 x half> %h to <2 x float>
  %p = getelementptr <4 x float>, ptr addrspace(1) %out, i32 %t
  store <2 x float> %v, ptr addrspace(1) %p
  %q = getelementptr <2 x float>, ptr addrspace(1) %p, i32 1
  store <2 x float> %w, ptr addrspace(1) %q
  call void @llvm.amdgcn.struct.tbuffer.store.v2f32(<2 x float> %v, <4 x i32> %r, i32 %t, i32 4, i32 0, i32 21, i32 0)"""
    declarations = """
declare <2 x float> @llvm.amdgcn.struct.tbuffer.load.v2f32(<4 x i32>, i32, i32, i32, i32 immarg, i32 immarg)
declare <2 x half> @llvm.amdgcn.struct.tbuffer.load.v2f16(<4 x i32>, i32, i32, i32, i32 immarg, i32 immarg)
declare void @llvm.amdgcn.struct.tbuffer.store.v2f32(<2 x float>, <4 x i32>, i32, i32, i32, i32 immarg, i32 immarg)"""
    got, after = run(kernel(body, 8, 64, SELECT, declarations), chip, np.zeros(256, np.float32), raw)
    expected = raw.copy()
    for lane in range(64):
        element = raw[8 * lane : 8 * lane + 4].tobytes()
        unorm = typed.load(element, 5, 0, False)[:2]
        snorm = [np.array(x, np.uint16).view(np.float16) for x in typed.load(element, 5, 1, True)[:2]]
        assert got[4 * lane : 4 * lane + 2].view(np.uint32).tolist() == unorm
        assert got[4 * lane + 2 : 4 * lane + 4].tolist() == [float(x) for x in snorm]
        expected[8 * lane + 4 : 8 * lane + 8] = np.frombuffer(typed.store(unorm, 5, 1, False), np.uint8)
    assert np.array_equal(after, expected)


@pytest.mark.parametrize("chip", CHIPS)
def test_swizzled_structures(chip: str) -> None:
    """Records of 12 bytes, 8 of them interleaved; the bit that asks for it is the top one of the stride."""
    raw = np.random.default_rng(2).integers(0, 1 << 32, 64 * 3, dtype=np.uint32)
    body = """
  %v = call i32 @llvm.amdgcn.struct.buffer.load.i32(<4 x i32> %r, i32 %t, i32 8, i32 0, i32 0)
  %p = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %v, ptr addrspace(1) %p"""
    declaration = "declare i32 @llvm.amdgcn.struct.buffer.load.i32(<4 x i32>, i32, i32, i32, i32)"
    text = kernel(body, 12 | 1 << 15, 60, 0x20000, declaration)
    got, _ = run(text, chip, np.zeros(64, np.uint32), raw)
    for lane in range(64):
        at = swizzled(lane, 8, 4, 12, 60, 8)
        assert got[lane] == (0 if at is None else raw[at // 4])


@pytest.mark.parametrize("chip", CHIPS)
def test_a_format_without_a_meaning_is_located(chip: str) -> None:
    body = """
  %v = call float @llvm.amdgcn.struct.buffer.load.format.f32(<4 x i32> %r, i32 %t, i32 0, i32 0, i32 0)
  store float %v, ptr addrspace(1) %out"""
    declaration = "declare float @llvm.amdgcn.struct.buffer.load.format.f32(<4 x i32>, i32, i32, i32, i32)"
    text = kernel(body, 4, 64, SELECT | 7 << 12 | 1 << 15, declaration)
    with pytest.raises(SimulatorFault, match="format of the access") as fault:
        run(text, chip, np.zeros(64, np.uint32), np.zeros(256, np.uint8))
    assert fault.value.kind == "buffer-descriptor"
    assert fault.value.disassembly and "buffer_load_format_x" in fault.value.disassembly
