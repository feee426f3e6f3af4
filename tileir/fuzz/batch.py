"""Many kernels through code generation at once.

Most of what a small kernel costs is the same for every call of the code generator: a context, passes that find nothing, a
linker. So the kernels of several programs become one module, and one code object with an entry for each. What is not plain – interpretation
after every pass, a schedule, errors, registers that do not suffice – is left to the usual way, one by one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace

from tileir.codeobject import CodeObject
from tileir.fuzz.execute import Case
from tileir.ir.core import Kernel, Module
from tileir.ir.diagnostics import CompileError, Log
from tileir.lowering.amdgpu.compile import Compiled, worker_options
from tileir.lowering.amdgpu.contract import check
from tileir.lowering.amdgpu.emit.kernel import emit_module, interface
from tileir.lowering.amdgpu.failure import CodegenError
from tileir.lowering.amdgpu.worker import worker_for
from tileir.passes.manager import run_pipeline

CODE_OBJECT_VERSION = 5
_HEAD = "module attributes {gpu.container_module} {"
_OWN = re.compile(r"@(lds\b|tileir_)")
_PLACE = re.compile(r"#l(?=\d)")


def compile_together(programs: Sequence[tuple[Kernel, Case]]) -> list[dict[str, Compiled]]:
    """For each program its code by chip; a chip is missing where the program must be compiled alone."""
    made: list[dict[str, Compiled]] = [{} for _ in programs]
    for chip in dict.fromkeys(chip for _, case in programs for chip in case.chips):
        groups: dict[tuple[str, ...], list[tuple[int, Kernel, Kernel, str]]] = {}
        for i, (kernel, case) in enumerate(programs):
            if case.boundaries or case.schedules or not case.code or chip not in case.chips:
                continue
            named = replace(kernel, name=f"{kernel.name}_{i}")
            try:
                result = run_pipeline(Module([named]), "", chip, log=Log())
                text = emit_module(result.kernel, result.context.target)
            except Exception:  # whatever it is comes again when the program is compiled alone, and is judged there
                continue
            groups.setdefault(worker_options(named), []).append((i, named, result.kernel, text))
        for options, group in groups.items():
            for i, compiled in _generated(group, chip, options):
                made[i][chip] = compiled
    return made


def _generated(
    group: Sequence[tuple[int, Kernel, Kernel, str]], chip: str, options: tuple[str, ...]
) -> list[tuple[int, Compiled]]:
    """The kernels of one code object that keep what their text says; none if the code generator fails."""
    text = together([text for *_, text in group])
    try:
        out = worker_for(options).compile("mlir", text, chip, code_object_version=CODE_OBJECT_VERSION)
    except (CodegenError, CompileError):
        return []
    assert out.hsaco is not None
    code = CodeObject.from_bytes(out.hsaco)
    found: list[tuple[int, Compiled]] = []
    for i, source, final, _ in group:
        if check(out.hsaco, final):
            continue
        known = json.loads(json.dumps(interface(final)))
        x, y, z = known["block"]
        stats: dict[str, object] = {"kernel": code.kernel(final.name).name, "attempts": 1}
        found.append((i, Compiled(source, final, chip, out.hsaco, known, (x, y, z), {}, None, stats, Log())))
    return found


def together(texts: Sequence[str]) -> str:
    """One MLIR module from several that hold a `gpu.module` each; what is not an entry is renamed."""
    head: list[str] = []
    inner: list[str] = []
    places: list[str] = []
    for i, text in enumerate(texts):
        renamed = _PLACE.sub(f"#l{i}l", _OWN.sub(rf"@b{i}_\1", text))
        before, _, after = renamed.partition(_HEAD + "\n")
        body, last = _split(after)
        head = head or before.splitlines()
        inner += body
        places += last
    return "\n".join([*head, _HEAD, "  gpu.module @together {", *inner, "  }", "}", *places]) + "\n"


def _split(text: str) -> tuple[list[str], list[str]]:
    """What is in the `gpu.module`, and the lines behind all."""
    lines = text.splitlines()
    end = max(i for i, line in enumerate(lines) if line.startswith("}"))
    return lines[1 : end - 1], lines[end + 1 :]
