"""Kernels made for the checks: the body is inline assembly, which LLVM neither waits nor inserts wait states for."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np

from tests.simulator.simulator_compile import DATA_LAYOUT
from tileir.simulator import Simulator, Statistics

CHIPS = ("gfx942", "gfx950")


@lru_cache(maxsize=256)
def assembled(ir: str, chip: str) -> bytes:
    """Linked code object of LLVM IR with inline assembly: llvmlite prints it, ziglang's clang assembles it."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(f'target datalayout = "{DATA_LAYOUT}"\ntarget triple = "amdgcn-amd-amdhsa"\n' + ir)
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu=chip, opt=3)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "k.s"), Path(folder, "k.hsaco")
        source.write_text(machine.emit_assembly(module))
        command = [sys.executable, "-m", "ziglang", "clang", "--target=amdgcn-amd-amdhsa", f"-mcpu={chip}"]
        command += ["-nogpulib", "-x", "assembler", "-c", str(source), "-o", str(target) + ".o"]
        subprocess.run(command, check=True, capture_output=True)
        link = [sys.executable, "-m", "ziglang", "ld.lld", "-shared", str(target) + ".o", "-o", str(target)]
        subprocess.run(link, check=True, capture_output=True)
        return target.read_bytes()


def kernel(body: str, chip: str, lds_bytes: int = 1024, threads: int = 128) -> bytes:
    """A kernel of one pointer argument. s[20:21]: the pointer; v1: work-item; v2: four times that; LDS starts at 0."""
    lines = "\\0A".join(line.strip() for line in body.strip().splitlines())
    registers = ",".join(
        [f"~{{v{i}}}" for i in range(1, 64)] + [f"~{{a{i}}}" for i in range(32)] + [f"~{{s{i}}}" for i in range(20, 32)]
    )
    head = "v_and_b32 v1, 0x3ff, v0\\0Av_lshlrev_b32 v2, 2, v1"
    start = f"v_mov_b32 v0, $2\\0As_mov_b64 s[20:21], $0\\0A{head}"
    constraints = f"s,s,v,~{{v0}},~{{vcc}},~{{memory}},{registers}"
    text = f"""
@lds = internal addrspace(3) global [{lds_bytes} x i8] poison, align 16
define amdgpu_kernel void @k(ptr addrspace(1) %p) #0 {{
  %l = ptrtoint ptr addrspace(3) @lds to i32
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  call void asm sideeffect "{start}\\0A{lines}", "{constraints}"(ptr addrspace(1) %p, i32 %l, i32 %t)
  ret void
}}
declare i32 @llvm.amdgcn.workitem.id.x()
attributes #0 = {{ nounwind "amdgpu-flat-work-group-size"="{threads},{threads}" }}
"""
    return assembled(text, chip)


def run(
    body: str,
    chip: str,
    check: str = "all",
    *,
    groups: int = 1,
    threads: int = 128,
    uninitialised: bool = False,
    strict: bool = False,
) -> Statistics:
    """Launches a kernel on a buffer of 4096 bytes."""
    simulator = Simulator(chip)
    module = simulator.load(kernel(body, chip, threads=threads))
    buffer = simulator.memory.allocate(4096, "buffer", uninitialised=uninitialised)
    if uninitialised:
        buffer.write(np.zeros(128, np.uint32))
    return module.launch("k", (groups, 1, 1), (threads, 1, 1), [buffer], check=check, strict=strict)


def kinds(statistics: Statistics) -> list[str]:
    return sorted({f.kind for f in statistics.findings})
