"""Every instruction of code compiled by clang 22 and by llvmlite: decoded, printed as LLVM does, and reassembled."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

llvm_oracle = pytest.importorskip("llvm_oracle")

from tileir.simulator.decoder import disassemble  # noqa: E402
from tileir.simulator.decoder.table import CHIPS  # noqa: E402

SOURCES = Path(__file__).resolve().parent / "sources"
TOOLS = ("clang-22", "llvm-objcopy-22")

pytestmark = pytest.mark.skipif(not llvm_oracle.available(), reason="llvm-mc-22 is not installed")


def check(chip: str, code: bytes) -> set[str]:
    """Compare with LLVM and reassemble; returns the mnemonics seen."""
    instructions = [instruction for _, instruction in disassemble(chip, code)]
    theirs = llvm_oracle.raw_disassemble(chip, [instruction.raw for instruction in instructions])
    differing = [
        f"{ours.raw.hex()}: {ours.text!r}, LLVM {text!r}"
        for ours, (size, text) in zip(instructions, theirs, strict=True)
        if (ours.size, ours.text) != (size, text)
    ]
    assert not differing, "\n".join(differing[:20])
    again = llvm_oracle.assemble(chip, [instruction.text for instruction in instructions])
    changed = [
        f"{ours.raw.hex()}: {ours.text!r} assembles to {code if isinstance(code, str) else code.hex()}"
        for ours, code in zip(instructions, again, strict=True)
        if ours.raw != code
    ]
    assert not changed, "\n".join(changed[:20])
    return {instruction.name for instruction in instructions}


def text_section(path: Path, directory: Path) -> bytes:
    """The machine code of an object file."""
    out = directory / "text.bin"
    subprocess.run(["llvm-objcopy-22", "-O", "binary", "-j", ".text", str(path), str(out)], check=True)
    return out.read_bytes()


@pytest.mark.skipif(any(shutil.which(tool) is None for tool in TOOLS), reason="clang-22 is not installed")
@pytest.mark.parametrize("level", ["-O0", "-O2"])
@pytest.mark.parametrize("source", ["arithmetic.c", "memory.c", "matrix.c", "math.cl"])
@pytest.mark.parametrize("chip", CHIPS)
def test_clang(chip: str, source: str, level: str, tmp_path: Path) -> None:
    path = tmp_path / "kernel.o"
    language = ["-x", "cl", "-cl-std=CL2.0"] if source.endswith(".cl") else ["-x", "c"]
    command = ["clang-22", *language, "-target", "amdgcn-amd-amdhsa", f"-mcpu={chip}", "-nogpulib", level]
    subprocess.run([*command, "-c", str(SOURCES / source), "-o", str(path)], check=True, capture_output=True)
    assert len(check(chip, text_section(path, tmp_path))) > 15


LLVM_IR = """
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare <4 x float> @llvm.amdgcn.mfma.f32.16x16x16f16(<4 x half>, <4 x half>, <4 x float>, i32, i32, i32)
define amdgpu_kernel void @kernel(ptr addrspace(1) %a, ptr addrspace(1) %b, i32 %n) {
entry:
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr <4 x half>, ptr addrspace(1) %a, i32 %i
  %x = load <4 x half>, ptr addrspace(1) %p
  br label %loop
loop:
  %k = phi i32 [ 0, %entry ], [ %k1, %loop ]
  %c = phi <4 x float> [ zeroinitializer, %entry ], [ %d, %loop ]
  %q = getelementptr <4 x half>, ptr addrspace(1) %p, i32 %k
  %y = load <4 x half>, ptr addrspace(1) %q
  %d = call <4 x float> @llvm.amdgcn.mfma.f32.16x16x16f16(<4 x half> %x, <4 x half> %y, <4 x float> %c, i32 0, i32 0, i32 0)
  %k1 = add i32 %k, 1
  %more = icmp slt i32 %k1, %n
  br i1 %more, label %loop, label %exit
exit:
  %r = getelementptr <4 x float>, ptr addrspace(1) %b, i32 %i
  store <4 x float> %d, ptr addrspace(1) %r
  ret void
}
"""


@pytest.mark.skipif(shutil.which("llvm-objcopy-22") is None, reason="llvm-objcopy-22 is not installed")
@pytest.mark.parametrize("chip", CHIPS)
def test_llvmlite(chip: str, tmp_path: Path) -> None:
    binding = pytest.importorskip("llvmlite.binding")
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    target = binding.Target.from_triple("amdgcn-amd-amdhsa")
    machine = target.create_target_machine(cpu=chip, opt=3)
    module = binding.parse_assembly(LLVM_IR)
    path = tmp_path / "kernel.o"
    path.write_bytes(machine.emit_object(module))
    names = check(chip, text_section(path, tmp_path))
    assert {"v_mfma_f32_16x16x16_f16", "s_waitcnt", "s_cbranch_scc1", "global_load_dwordx2"} <= names
