"""Damaged code objects and wild machine code, every other one under all checks: a fault or an error, never a traceback,
never a crash of the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from simulator_compile import CHIPS, from_ir

PROGRAM = """
import faulthandler, random, struct, sys
from tileir.simulator import Simulator, SimulatorError, SimulatorFault
faulthandler.enable()
chip, seed, count, kind = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
base = open(sys.argv[5], "rb").read()
rng = random.Random(seed)
simulator = Simulator(chip)
buffers = [simulator.memory.allocate(4096) for _ in range(3)]
kernel = simulator.load(base).code.kernel("k")
PREFIXES = (0x7E000000, 0xD0000000, 0xD1000000, 0xD2000000, 0xD3000000, 0xD3800000, 0xD8000000, 0xDC000000, 0xE0000000,
            0xC0000000, 0x80000000, 0xBE800000, 0xBF000000, 0xBF800000, 0x00000000, 0x20000000, 0x40000000, 0x7C000000)
outcomes = {}
for number in range(count):
    code = bytearray(base)
    for _ in range(rng.choice((1, 1, 2, 8))):
        if kind == "code":
            at = kernel.code_offset + 4 * rng.randrange(kernel.code_size // 4)
            word = rng.choice(PREFIXES) | rng.getrandbits(26)
            if rng.random() < 0.4:
                word = struct.unpack_from("<I", code, at)[0] ^ 1 << rng.randrange(32)
            struct.pack_into("<I", code, at, word & 0xFFFFFFFF)
        else:
            code[rng.randrange(len(code))] = rng.randrange(256)
    if kind == "file" and rng.random() < 0.2:
        del code[rng.randrange(len(code)):]
    try:
        module = simulator.load(bytes(code))
        try:
            args = struct.pack("<3Q2I", *(b.address for b in buffers), 64, 0)
            size = module.program("k").kernel.descriptor.kernarg_size
            check = "all" if number % 2 else ""
            found = module.launch("k", (2, 1, 1), (128, 1, 1), args[:size], max_instructions=5000, check=check).findings
            assert all(str(f) and f.disassembly for f in found)
            outcome = "found" if found else "ran"
        finally:
            simulator.memory.free(module.image)
    except (SimulatorError, SimulatorFault) as error:
        assert str(error)
        outcome = getattr(error, "kind", "error")
    outcomes[outcome] = outcomes.get(outcome, 0) + 1
print(outcomes)
"""

KERNEL = """
@t = internal addrspace(3) global [128 x float] poison, align 16
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare void @llvm.amdgcn.s.barrier()
declare <4 x float> @llvm.amdgcn.mfma.f32.16x16x4f32(float, float, <4 x float>, i32 immarg, i32 immarg, i32 immarg)
define amdgpu_kernel void @k(ptr addrspace(1) %a, ptr addrspace(1) %b, ptr addrspace(1) %c, i32 %n, i32 %m) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %s = shl i32 %g, 7
  %i = or i32 %s, %t
  %w = zext i32 %i to i64
  %pa = getelementptr float, ptr addrspace(1) %a, i64 %w
  %pb = getelementptr float, ptr addrspace(1) %b, i64 %w
  %pc = getelementptr float, ptr addrspace(1) %c, i64 %w
  %x = load float, ptr addrspace(1) %pa
  %y = load float, ptr addrspace(1) %pb
  %q = getelementptr float, ptr addrspace(3) @t, i32 %t
  store float %x, ptr addrspace(3) %q
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %o = xor i32 %t, 127
  %r = getelementptr float, ptr addrspace(3) @t, i32 %o
  %z = load float, ptr addrspace(3) %r
  %d = call <4 x float> @llvm.amdgcn.mfma.f32.16x16x4f32(float %y, float %z, <4 x float> zeroinitializer, i32 0, i32 0, i32 0)
  %e = extractelement <4 x float> %d, i32 1
  %k = icmp ult i32 %t, %n
  br i1 %k, label %then, label %done
then:
  %f = fdiv float %e, %y
  store float %f, ptr addrspace(1) %pc
  br label %done
done:
  ret void
}
attributes #0 = { nounwind "amdgpu-flat-work-group-size"="128,128" }
"""


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("kind,count", [("code", 80), ("file", 200)])
def test_mutants(chip: str, kind: str, count: int, tmp_path: Path) -> None:
    file = tmp_path / "k.hsaco"
    file.write_bytes(from_ir(KERNEL, chip))
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, chip, "20", str(count), kind, str(file)], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert "'ran'" in result.stdout


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10))
def test_many_mutants(seed: int, tmp_path: Path) -> None:
    file = tmp_path / "k.hsaco"
    file.write_bytes(from_ir(KERNEL, CHIPS[seed % 2]))
    for kind in ("code", "file"):
        result = subprocess.run(
            [sys.executable, "-c", PROGRAM, CHIPS[seed % 2], str(seed), "1000", kind, str(file)],
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, result.stderr


ENDLESS = """
define amdgpu_kernel void @k(ptr addrspace(1) %p) #0 {
entry:
  br label %again
again:
  %v = load volatile i32, ptr addrspace(1) %p
  store volatile i32 %v, ptr addrspace(1) %p
  br label %again
}
attributes #0 = { nounwind "amdgpu-flat-work-group-size"="1024,1024" }
"""
LIMITED = """
import struct, sys, time
from tileir.simulator import Simulator, SimulatorError, SimulatorFault
simulator = Simulator(sys.argv[1])
module = simulator.load(open(sys.argv[2], "rb").read())
buffer = simulator.memory.allocate(1 << 36)
start = time.perf_counter()
grid = tuple(int(n) for n in sys.argv[3].split(","))
try:
    module.launch("k", grid, (1024, 1, 1), [buffer], max_instructions=100000, check="all")
except (SimulatorError, SimulatorFault) as error:
    print(error)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))  # getrusage would count the parent's memory
print("seconds", time.perf_counter() - start, "megabytes", int(status["VmHWM"].split()[0]) >> 10)
"""


@pytest.mark.parametrize("grid", ["1,1,1", "4294967295,4294967295,4294967295"])
def test_endless_loop_under_all_checks(grid: str, tmp_path: Path) -> None:
    """A huge buffer, a huge grid, and a loop that never ends: the budget stops it; time and memory stay small."""
    file = tmp_path / "k.hsaco"
    file.write_bytes(from_ir(ENDLESS, "gfx950"))
    command = [sys.executable, "-c", LIMITED, "gfx950", str(file), grid]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert "instruction-budget" in result.stdout and "endless loop" in result.stdout
    megabytes = int(result.stdout.split()[-1])
    assert megabytes < 1500, megabytes
