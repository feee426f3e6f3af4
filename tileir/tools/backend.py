"""The one place where the tools call the back end."""

from __future__ import annotations

from typing import Any

from tileir.ir.core import Module
from tileir.ir.diagnostics import Log
from tileir.passes.manager import PrintAfter


def start_early(text: str) -> None:
    """Starts the code generation worker, so that it loads MLIR and LLVM while the front end works."""
    from tileir.lowering.amdgpu.compile import start_worker

    start_worker(matrix="mma(" in text)


def compile_module(
    module: Module,
    kernel: str,
    target: str,
    *,
    log: Log,
    emit: tuple[str, ...] = (),
    schedule: str = "",
    start_from: str | None = None,
    verify_each: str = "off",
    print_after: PrintAfter | None = None,
    code_object_version: int = 5,
    allow_spills: bool = False,
) -> Any:
    """A compiled kernel (`tileir.lowering.amdgpu.compile.Compiled`) from a module. Raises CompileError."""
    from tileir.lowering.amdgpu.compile import Options, compile_kernel

    options = Options(
        schedule=schedule,
        code_object_version=code_object_version,
        emit=emit,
        verify_each=verify_each,
        print_after=print_after,
        start_from=start_from,
        allow_spills=allow_spills,
    )
    return compile_kernel(module, kernel, target, options, log)


def resume_text(
    stage: str,
    text: str,
    target: str,
    *,
    log: Log,
    file: str,
    emit: tuple[str, ...] = (),
    code_object_version: int = 5,
    allow_spills: bool = False,
) -> Any:
    """A compiled kernel from edited text of a later stage: mlir, llvm or asm. Raises CompileError."""
    from tileir.lowering.amdgpu.compile import Options, resume

    options = Options(code_object_version=code_object_version, emit=emit, allow_spills=allow_spills)
    return resume(stage, text, target, options, log, file)
