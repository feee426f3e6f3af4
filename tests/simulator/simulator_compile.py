"""Makes code objects for tests: from LLVM IR with llvmlite and ziglang, from C with clang 22 when it is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

import llvmlite.binding as llvm
import pytest

DATA_LAYOUT = (
    "e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-p7:160:256:256:32-p8:128:128:128:48-"
    "p9:192:256:256:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-"
    "v2048:2048-n32:64-S32-A5-G1-ni:7:8:9"
)
CHIPS = ("gfx942", "gfx950")


@lru_cache(maxsize=1)
def _initialise() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def _link(obj: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "k.o"), Path(folder, "k.hsaco")
        source.write_bytes(obj)
        linker = [
            sys.executable,
            "-m",
            "ziglang",
            "ld.lld",
            "-shared",
            "--no-undefined",
            str(source),
            "-o",
            str(target),
        ]
        subprocess.run(linker, check=True, capture_output=True)
        return target.read_bytes()


@lru_cache(maxsize=64)
def from_ir(text: str, chip: str) -> bytes:
    """Linked code object of LLVM IR text (without layout and triple)."""
    _initialise()
    head = f'target datalayout = "{DATA_LAYOUT}"\ntarget triple = "amdgcn-amd-amdhsa"\n'
    module = llvm.parse_assembly(head + text)
    module.verify()
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu=chip, opt=3)
    return _link(machine.emit_object(module))


PRELUDE = """
#define GLOBAL __attribute__((address_space(1)))
#define LDS __attribute__((address_space(3)))
#define SHARED static __attribute__((address_space(3), loader_uninitialized))
#define KERNEL __attribute__((amdgpu_kernel, visibility("protected")))
typedef unsigned char u8; typedef signed char i8; typedef unsigned short u16; typedef short i16;
typedef unsigned int u32; typedef int i32; typedef unsigned long u64; typedef long i64;
#define TID __builtin_amdgcn_workitem_id_x()
#define WG __builtin_amdgcn_workgroup_id_x()
#define BARRIER() do { __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); __builtin_amdgcn_s_barrier(); \\
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"); } while (0)
"""


@lru_cache(maxsize=64)
def from_c(source: str, chip: str, *options: str) -> bytes:
    """Linked code object of C source with the prelude above; skips the test without clang 22."""
    clang = shutil.which("clang-22")
    if clang is None:
        pytest.skip("clang-22 is not installed")
    with tempfile.TemporaryDirectory() as folder:
        file, target = Path(folder, "kernel.c"), Path(folder, "kernel.o")
        file.write_text(PRELUDE + source)
        command = [
            clang,
            "--target=amdgcn-amd-amdhsa",
            f"-mcpu={chip}",
            "-O2",
            "-g",
            "-nogpulib",
            "-mcode-object-version=5",
        ]
        subprocess.run([*command, *options, "-c", str(file), "-o", str(target)], check=True, capture_output=True)
        return _link(target.read_bytes())
