"""The one place where the tools call the back end: always through the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tileir.cache.compiling import Text, Wanted, compile_text, is_cached
from tileir.cache.compiling import resume_text as resume_cached
from tileir.cache.outcome import Outcome
from tileir.ir.diagnostics import Log

if TYPE_CHECKING:
    from tileir.ir.core import Kernel


def start_early(source: Text, target: str, *, schedule: str = "", allow_spills: bool = False) -> None:
    """Starts the code generation worker, so that it loads MLIR and LLVM while the front end works; not where the kernel is
    in the cache."""
    if not is_cached(source, target, Wanted(schedule=schedule, allow_spills=allow_spills)):
        _start(source)


def _start(source: Text) -> None:
    from tileir.lowering.amdgpu.attempts import start_worker

    start_worker(matrix="mma(" in source.text)


def compile_source(
    source: Text,
    target: str,
    *,
    log: Log,
    emit: tuple[str, ...] = (),
    schedule: str = "",
    start_from: str | None = None,
    verify_each: str = "off",
    print_after: Callable[[str, Kernel], None] | None = None,
    code_object_version: int = 5,
    allow_spills: bool = False,
) -> Outcome:
    """A compiled kernel from a text. Raises CompileError."""
    wanted = Wanted(schedule, code_object_version, emit, verify_each, print_after, start_from, allow_spills)
    return compile_text(source, target, wanted, log, before=lambda: _start(source))


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
) -> Outcome:
    """A compiled kernel from edited text of a later stage: mlir, llvm or asm. Raises CompileError."""
    wanted = Wanted(code_object_version=code_object_version, emit=emit, allow_spills=allow_spills)
    return resume_cached(stage, text, file, target, wanted, log)


def statistics(outcome: Outcome) -> dict[str, Any]:
    """What `--emit stats` and `--stats` print."""
    return {**outcome.stats, "cached": outcome.cached}
