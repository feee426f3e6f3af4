"""Compiling from Python: text, files and built kernels become objects that launch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any

from tileir.api.builder import KernelBuilder
from tileir.api.locations import with_sources
from tileir.cache.compiling import Text, Wanted, compile_module, compile_text
from tileir.cache.outcome import Outcome
from tileir.frontend.source import decode
from tileir.ir.core import Kernel, Module
from tileir.ir.diagnostics import CompileError, Diagnostic, Log
from tileir.ir.printer import print_module
from tileir.ir.types import Elem
from tileir.passes.manager import find_kernel, run_pipeline, step_names
from tileir.records import dataclass
from tileir.runtime.launchable import Launchable

Source = str | Path | Module | Kernel | KernelBuilder
Parameters = Mapping[str, int | float | bool | str | Elem]
CODE_STAGES = ("mlir", "llvm", "asm")


@dataclass(frozen=True)
class Job:
    """One compilation for `compile_many`; can be sent to other processes."""

    source: Source
    target: str
    kernel: str = ""
    params: Parameters = field(default_factory=dict[str, "int | float | bool | str | Elem"])
    schedule: str = ""
    allow_spills: bool = False
    code_object_version: int = 5


class CompiledKernel(Launchable):
    """A kernel compiled for one chip. Stays valid and unchanged however often it is launched; can be pickled."""

    def __init__(self, job: Job, source: Text | Module, compiled: Outcome):
        self._job = job
        self._source = source
        self._compiled = compiled
        self._texts: dict[str, str] = {}

    @cached_property
    def _module(self) -> Module:
        """What was compiled; a kernel from the cache is parsed when somebody wants to know."""
        return self._source.module() if isinstance(self._source, Text) else self._source

    @property
    def name(self) -> str:
        return str(self._compiled.stats["kernel"])

    @property
    def kernel(self) -> Kernel:
        """The kernel as it was written, all parameters bound."""
        return self._kernel

    @cached_property
    def _kernel(self) -> Kernel:
        return find_kernel(self._module, self._job.kernel)

    @property
    def target(self) -> str:
        """The chip, such as "gfx950"."""
        return self._compiled.target

    @property
    def hsaco(self) -> bytes:
        """The linked code object."""
        return self._compiled.hsaco

    @property
    def block(self) -> tuple[int, int, int]:
        """Threads of a workgroup in x, y, z."""
        return self._compiled.block

    @property
    def interface(self) -> Mapping[str, object]:
        """Arguments, grid and written views as the code object states them."""
        return self._compiled.interface

    @property
    def stats(self) -> dict[str, Any]:
        """Registers, spills, LDS, sizes and times, read back from the code object: what `tileir-opt --emit stats` prints.
        "cached" says whether it was compiled earlier; times are those of the compilation."""
        return {**self._compiled.stats, "cached": self._compiled.cached}

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Warnings and remarks of the compilation."""
        return self._compiled.diagnostics

    @property
    def asm(self) -> str:
        """The assembly of the code object."""
        return self.text("asm")

    def text(self, stage: str = "tile") -> str:
        """The kernel as text at a stage: "parse", the name of a pass (after it), "tile" (what is lowered), "mlir", "llvm" or
        "asm". Raises ValueError for another stage."""
        if stage not in self._texts:
            self._texts[stage] = self._text(stage)
        return self._texts[stage]

    def _text(self, stage: str) -> str:
        if stage == "tile":
            return self._compiled.texts["tile"]
        if stage == "parse":
            return print_module(self._module)
        if stage in CODE_STAGES:
            again = _compile(self._job, self._source, CODE_STAGES, Log())
            self._texts.update({s: again.texts[s] for s in CODE_STAGES})
            return self._texts[stage]
        if stage not in step_names():
            legal = ", ".join(("parse", *step_names(), "tile", *CODE_STAGES))
            raise ValueError(f"there is no stage '{stage}'; stages: {legal}")
        result = run_pipeline(
            self._module, self.kernel.name, self.target, schedule=self._job.schedule, stop_after=stage, log=Log()
        )
        return print_module(Module([result.kernel]))

    def save(self, path: str | Path) -> None:
        """Writes the code object."""
        Path(path).write_bytes(self.hsaco)

    def __repr__(self) -> str:
        s = self._compiled.stats
        return f"<{self.name} for {self.target}: {s['vgprs']} VGPRs, {s['lds_bytes']} bytes of LDS>"


def compile(  # as it is called from outside: tileir.compile
    source: Source,
    target: str,
    *,
    kernel: str = "",
    params: Parameters | None = None,
    schedule: str = "",
    allow_spills: bool = False,
    code_object_version: int = 5,
) -> CompiledKernel:
    """Compiles one kernel for a chip.

    source: the text of a file, the `Path` of one, a module or kernel that was parsed, or a `KernelBuilder`.
    kernel: which one, if the source has several. params: values of compile-time parameters (of text and files).
    schedule: one by name, else the first that applies.

    Raises CompileError with located diagnostics, OSError for a file that cannot be read. Warnings are in `.diagnostics`.
    """
    return compile_job(Job(source, target, kernel, dict(params or {}), schedule, allow_spills, code_object_version))


def compile_job(job: Job) -> CompiledKernel:
    """What `compile` does, for a job. Raises CompileError, OSError."""
    try:
        source = _source(job)
        return CompiledKernel(job, source, _compile(job, source, (), Log()))
    except CompileError as e:
        if isinstance(job.source, KernelBuilder):
            raise with_sources(e.diagnostics) from None
        raise


def compile_many(jobs: Iterable[Job], executor: Executor | None = None) -> list[CompiledKernel]:
    """Compiles many kernels, in the order of the jobs; with an executor (of threads, processes, a cluster) in parallel.
    Raises the error of the first job that fails, after all are done."""
    if executor is None:
        return [compile_job(job) for job in jobs]
    futures = [executor.submit(compile_job, _portable(job)) for job in jobs]
    errors = [e for f in futures if (e := f.exception()) is not None]
    if errors:
        raise errors[0]
    return [f.result() for f in futures]


def _portable(job: Job) -> Job:
    """A job without a builder, which cannot travel."""
    if not isinstance(job.source, KernelBuilder):
        return job
    return Job(
        job.source.module(), job.target, job.kernel, job.params, job.schedule, job.allow_spills, job.code_object_version
    )


def _source(job: Job) -> Text | Module:
    source = job.source
    if isinstance(source, str):
        return Text(source, "<text>", job.params, job.kernel)
    if isinstance(source, Path):
        return Text(decode(source.read_bytes(), str(source)), str(source), job.params, job.kernel)
    if job.params:
        raise TypeError("params are values of a text's parameters; this kernel has all of its own")
    if isinstance(source, KernelBuilder):
        return source.module()
    return Module([source]) if isinstance(source, Kernel) else source


def _compile(job: Job, source: Text | Module, emit: tuple[str, ...], log: Log) -> Outcome:
    wanted = Wanted(
        schedule=job.schedule,
        code_object_version=job.code_object_version,
        emit=emit,
        allow_spills=job.allow_spills,
    )
    if isinstance(source, Text):
        return compile_text(source, job.target, wanted, log)
    return compile_module(source, job.kernel, job.target, wanted, log)
