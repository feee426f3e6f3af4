"""Results are poisoned until a wait covers them; a missing wait is a fault that names both instructions."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from simulator_compile import CHIPS, from_c, from_ir
from simulator_harness import M0, Bench, imm, instruction, s, v, wait

from tileir.simulator import Simulator, SimulatorFault, state
from tileir.simulator.decoder import Instruction

MISSING, MISSING_LDS = state.FAULT_POISONED_REGISTER, state.FAULT_POISONED_LDS


def bench() -> Bench:
    b = Bench("gfx950")
    memory = b.memory.allocate(4096)
    memory.view(np.uint32)[:] = np.arange(1024)
    b.set_sgpr64(0, memory.address)
    b.row(v(0))[:] = np.arange(64) * 4
    b.set_sgpr64(4, memory.address)
    b.set_sgpr(6, 4096)
    b.set_sgpr(7, 0x00020000)
    return b


def load(destination: int, offset: int = 0) -> Instruction:
    return instruction("global_load_dword", v(destination), v(0), s(0, 2), encoding="global", offset=offset)


def lds_read(destination: int) -> Instruction:
    return instruction("ds_read_b32", v(destination), v(0), encoding="ds")


def scalar_load(destination: int) -> Instruction:
    return instruction("s_load_dword", s(destination), s(0, 2), imm(4), encoding="smem")


def move(destination: int, source: int) -> Instruction:
    return instruction("v_mov_b32", v(destination), v(source), encoding="vop1", size=4)


def to_lds(base: int) -> tuple[Instruction, Instruction]:
    return (
        instruction("s_mov_b32", M0, imm(base), encoding="sop1", size=4),
        instruction("buffer_load_dword", v(0), s(4, 4), imm(0), encoding="mubuf", offen=1, lds=1),
    )


NOP = instruction("s_nop", imm(0), encoding="sopp", size=4)


@pytest.mark.parametrize(
    "program,status",
    [
        ((load(1), move(2, 1)), MISSING),
        ((load(1), wait(vm=0), move(2, 1)), 1),
        ((load(1), load(2), wait(vm=1), move(3, 1)), 1),
        ((load(1), load(2), wait(vm=1), move(3, 2)), MISSING),
        ((load(1), wait(lgkm=0), move(2, 1)), MISSING),
        ((load(1), NOP, move(1, 0)), MISSING),  # the load would overwrite the move
        ((load(1), load(1), wait(vm=1), move(2, 1)), MISSING),  # the second load still writes v1
        ((load(1), load(1), wait(vm=0), move(2, 1)), 1),
        ((lds_read(1), move(2, 1)), MISSING),
        ((lds_read(1), lds_read(2), wait(lgkm=1), move(3, 1)), 1),
        ((lds_read(1), wait(vm=0), move(2, 1)), MISSING),
        ((load(1), lds_read(1)), MISSING),  # different counters have no order
        ((lds_read(1), load(1)), MISSING),
    ],
)
def test_vector_results(program: tuple[Instruction, ...], status: int) -> None:
    assert bench().run(*program) == status


@pytest.mark.parametrize("lgkm,status", [(0, 1), (1, MISSING)])
def test_scalar_loads_arrive_in_any_order(lgkm: int, status: int) -> None:
    use = instruction("s_add_u32", s(20), s(10), imm(1), encoding="sop2", size=4)
    assert bench().run(scalar_load(10), scalar_load(11), wait(lgkm=lgkm), use) == status


def test_scalar_load_beside_lds_reads() -> None:
    """lgkmcnt(1) with one scalar load on its way proves that the older of two LDS reads is there, and no more."""
    assert bench().run(lds_read(1), lds_read(2), scalar_load(10), wait(lgkm=1), move(3, 1)) == 1
    assert bench().run(lds_read(1), lds_read(2), scalar_load(10), wait(lgkm=1), move(3, 2)) == MISSING


def test_counter_saturation() -> None:
    """At most 63 vector-memory operations can be on their way: the first of 64 has arrived."""
    loads = [load(10 + i) for i in range(64)]
    assert bench().run(*loads, move(1, 10)) == 1
    assert bench().run(*loads, move(1, 11)) == MISSING


def test_store_reads_its_register_at_once() -> None:
    store = instruction("global_store_dword", v(0), v(0), s(0, 2), encoding="global", offset=1024)
    assert bench().run(store, move(0, 3)) == 1


def test_store_counts_as_vector_memory() -> None:
    store = instruction("global_store_dword", v(0), v(0), s(0, 2), encoding="global", offset=1024)
    assert bench().run(load(1), store, wait(vm=1), move(2, 1)) == 1
    assert bench().run(store, load(1), wait(vm=1), move(2, 1)) == MISSING


def test_lds_bytes_of_direct_loads() -> None:
    b = bench()
    assert b.run(*to_lds(0), lds_read(1), wait(lgkm=0)) == MISSING_LDS
    assert b.words[state.FAULT_ADDRESS // 4] == 0
    b = bench()
    assert b.run(*to_lds(0), wait(vm=0), lds_read(1), wait(lgkm=0)) == 1
    assert np.array_equal(b.row(v(1)), np.arange(64))
    b = bench()
    assert b.run(*to_lds(512), lds_read(1), wait(lgkm=0)) == 1  # other bytes
    b = bench()
    assert b.run(*to_lds(0), *to_lds(512), wait(vm=1), lds_read(1), wait(lgkm=0)) == 1
    b = bench()
    write = instruction("ds_write_b32", v(0), v(0), encoding="ds")
    assert b.run(*to_lds(128), write) == MISSING_LDS


def _waits(code: bytes) -> list[int]:
    """File offsets of s_waitcnt instructions in the text of a linked code object."""
    start = code.find(b"\x7fELF")
    assert start == 0
    return [i for i in range(0, len(code) - 3, 4) if code[i + 2 : i + 4] == b"\x8c\xbf"]


@pytest.mark.parametrize("chip", CHIPS)
def test_every_dropped_wait_is_seen(chip: str) -> None:
    source = """
    SHARED float t[256];
    KERNEL __attribute__((amdgpu_flat_work_group_size(256, 256))) void k(GLOBAL float *a, GLOBAL float *b, GLOBAL float *c) {
      int i = TID; t[i] = a[i]; BARRIER(); c[i] = t[255 - i] + b[i]; }"""
    code = from_c(source, chip)
    offsets = _waits(code)
    assert len(offsets) >= 3
    x, y = np.arange(256, dtype=np.float32), np.ones(256, np.float32)

    def outcome(data: bytes) -> str:
        simulator = Simulator(chip)
        module = simulator.load(data)
        buffers = [simulator.memory.allocate(1024) for _ in range(3)]
        buffers[0].write(x)
        buffers[1].write(y)
        try:
            module.launch("k", (1, 1, 1), (256, 1, 1), buffers)
        except SimulatorFault as fault:
            assert fault.source is not None and "kernel.c:" in fault.source
            return fault.kind
        return "ok" if np.array_equal(buffers[2].read(np.float32), x[::-1] + y) else "wrong"

    assert outcome(code) == "ok"
    killed = 0
    for offset in offsets:
        mutant = code[:offset] + struct.pack("<I", 0xBF800000) + code[offset + 4 :]
        result = outcome(mutant)
        assert result in ("missing-wait", "ok"), result
        killed += result == "missing-wait"
    # The wait between an LDS write and its barrier has no result register: seeing it is the race check's task.
    assert killed >= len(offsets) - 1


_TO_LDS = """
@lds = internal addrspace(3) global [1024 x i8] poison, align 16
declare void @llvm.amdgcn.raw.ptr.buffer.load.lds(ptr addrspace(8), ptr addrspace(3), i32 immarg, i32, i32, i32 immarg, i32 immarg)
declare ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1), i16, i64, i32)
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.readfirstlane.i32(i32)
declare void @llvm.amdgcn.s.barrier()
declare void @llvm.amdgcn.s.waitcnt(i32 immarg)
define amdgpu_kernel void @k(ptr addrspace(1) %in, ptr addrspace(1) %out) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %w = lshr i32 %t, 6
  %wave = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %w)
  %r = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %in, i16 0, i64 512, i32 159744)
  %v = shl i32 %t, 2
  %o = shl i32 %wave, 8
  %p = getelementptr i8, ptr addrspace(3) @lds, i32 %o
  call void @llvm.amdgcn.raw.ptr.buffer.load.lds(ptr addrspace(8) %r, ptr addrspace(3) %p, i32 4, i32 %v, i32 0, i32 0, i32 0), !alias.scope !3, !noalias !4
  call void @llvm.amdgcn.s.waitcnt(i32 WAIT)
  call void @llvm.amdgcn.s.barrier()
  %x = xor i32 %v, 508
  %q = getelementptr i8, ptr addrspace(3) @lds, i32 %x
  %d = load i32, ptr addrspace(3) %q, !alias.scope !4, !noalias !3
  %z = zext i32 %v to i64
  %g = getelementptr i8, ptr addrspace(1) %out, i64 %z
  store i32 %d, ptr addrspace(1) %g
  ret void
}
attributes #0 = { nounwind "amdgpu-flat-work-group-size"="128,128" "uniform-work-group-size"="true" }
!0 = distinct !{!0, !"lds"}
!1 = distinct !{!1, !0, !"dma"}
!2 = distinct !{!2, !0, !"read"}
!3 = !{!1}
!4 = !{!2}
"""


@pytest.mark.parametrize("chip", CHIPS)
def test_another_wave_reads_too_early(chip: str) -> None:
    """Both waves pass the barrier without having waited for their own loads to LDS."""
    data = np.arange(128, dtype=np.uint32) + 7

    def launch(simm16: int) -> np.ndarray:
        simulator = Simulator(chip)
        module = simulator.load(from_ir(_TO_LDS.replace("WAIT", str(simm16)), chip))
        source, target = simulator.memory.allocate(512), simulator.memory.allocate(512)
        source.write(data)
        module.launch("k", (1, 1, 1), (128, 1, 1), [source, target])
        return target.read(np.uint32)

    assert np.array_equal(launch(0x0F70), data[np.arange(128) ^ 127])  # vmcnt(0)
    with pytest.raises(SimulatorFault) as caught:
        launch(0x4F71)  # vmcnt(17)
    fault = caught.value
    assert fault.kind == "missing-wait-lds"
    assert fault.wave == 0 and "ds_read_b32" in str(fault)
    assert any("wave 1" in note and "buffer_load_dword" in note for note in fault.notes)


def test_message_names_both_instructions() -> None:
    source = "KERNEL void k(GLOBAL float *a) { a[TID] += 1.0f; }"
    code = from_c(source, "gfx950")
    offset = _waits(code)[-1]
    mutant = code[:offset] + struct.pack("<I", 0xBF800000) + code[offset + 4 :]
    simulator = Simulator("gfx950")
    module = simulator.load(mutant)
    buffer = simulator.memory.allocate(256)
    with pytest.raises(SimulatorFault) as caught:
        module.launch("k", (1, 1, 1), (64, 1, 1), [buffer])
    text = str(caught.value)
    assert "v_add_f32" in text and "global_load_dword" in text and "kernel.c:" in text and "s_waitcnt" in text
