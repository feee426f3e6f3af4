"""What would help a kernel whose registers do not suffice: smaller tiles, fewer stages, more waves, each with what it would take.

Every candidate goes through the passes; if its tiles fit, the emitted text is read by `predict`. Nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tileir.frontend import parse
from tileir.ir.core import Directive, Kernel, Module
from tileir.ir.diagnostics import CompileError, Log, Note
from tileir.ir.location import Loc
from tileir.lowering.amdgpu.emit.kernel import emit_module
from tileir.lowering.amdgpu.registers.lifetimes import lifetimes
from tileir.lowering.amdgpu.registers.predict import predict
from tileir.lowering.amdgpu.registers.values import SCALAR
from tileir.passes.manager import find_kernel, run_pipeline
from tileir.passes.pressure import budget, peak
from tileir.target import Target, get

HALVINGS = 3
"""How often a parameter is halved before it is given up."""
LEAST = 32
"""Parameters from twice this on are taken for sizes of tiles."""
MOST_PARAMETERS = 4
HOLDERS = 8
LONG = 5_000
"""Lines of emitted text from which on a candidate is judged by its tiles alone: reading it would take seconds."""


def advice(module: Module, source: Kernel, target: Target, schedule: str) -> list[Note]:
    """Notes such as "BM=128 would need about 212 of 256 registers", for changes with which the registers suffice. The same for
    the same module; empty where nothing that is tried helps. Raises nothing."""
    notes: list[Note] = []
    for words, changes in _candidates(module, source, target, schedule):
        for value, changed in changes:
            needed = _needs(changed, source.name, target, schedule)
            if needed is not None and needed[0] <= needed[1]:
                notes.append(Note(f"{words.format(value)} would need about {needed[0]} of {needed[1]} registers"))
                break
    return notes


def scalars_of(kernel: Kernel, chip: str) -> tuple[Loc, tuple[Note, ...]]:
    """Where a kernel wants the most scalar registers, and what holds them."""
    worst = lifetimes(kernel, get(chip)).scalars
    by_role: dict[tuple[str, str, int], int] = {}
    for h in worst.held:
        if h.file == SCALAR:
            key = h.name, h.role, h.line
            by_role[key] = by_role.get(key, 0) + h.registers
    largest = sorted(by_role.items(), key=lambda x: (-x[1], x[0]))[:HOLDERS]
    words = [f"{n} hold the {role} of {name}" + (f", line {line}" if line else "") for (name, role, line), n in largest]
    notes = (Note(f"about {worst.scalar} scalar registers are in use here"), *map(Note, words))
    return worst.op.loc if worst.op.loc.line else kernel.loc, notes


def _needs(module: Module, kernel: str, target: Target, schedule: str) -> tuple[int, int] | None:
    """Registers that a kernel takes and has; None if it does not pass the passes, or its tiles alone are too many."""
    try:
        final = run_pipeline(module, kernel, target, schedule=schedule, log=Log()).kernel
        room, worst = budget(final, target), peak(final)
        if worst.registers > room or worst.accumulators > target.max_acc_vgprs:
            return None
        text = emit_module(final, target)
    except CompileError:
        return None
    if text.count("\n") > LONG:
        return worst.registers, room
    found = predict(text, target)
    return found.total, room


Changes = Iterator[tuple[int, Module]]


def _candidates(module: Module, source: Kernel, target: Target, schedule: str) -> Iterator[tuple[str, Changes]]:
    """What can be changed, with the changed modules, the smallest change first."""
    sizes = [n for n, v in source.params.items() if type(v) is int and v >= 2 * LEAST and v & (v - 1) == 0]
    for name in sizes[:MOST_PARAMETERS]:
        yield f"{name}={{}}", _smaller(module, source, name)
    yield "a stage depth of {}", _shallower(module, source, target, schedule)
    yield "{} waves", _more_waves(module, source)


def _smaller(module: Module, source: Kernel, name: str) -> Changes:
    value = source.params[name]
    text = module.sources.get(source.loc.file)
    if text is None or not isinstance(value, int):
        return
    for _ in range(HALVINGS):
        value //= 2
        if value < LEAST:
            return
        try:
            smaller = parse(text, source.loc.file, {**_own(source), name: value}, kernel=source.name)
        except CompileError:
            continue
        views = [a.type for a in find_kernel(smaller, source.name).args]
        if views != [a.type for a in source.args]:  # the size of a problem, of which nobody is free to choose another
            return
        yield value, smaller


def _own(source: Kernel) -> dict[str, int | float | bool | str]:
    return {n: v if isinstance(v, int | float | bool) else str(v) for n, v in source.params.items()}


def _shallower(module: Module, source: Kernel, target: Target, schedule: str) -> Changes:
    """One stage less, where the schedule states how many."""
    try:
        bound = run_pipeline(module, source.name, target, schedule=schedule, stop_after="specialise", log=Log()).kernel
    except CompileError:
        return
    name = bound.attrs.get("schedule")
    for s in module.schedules:
        depths = [d.get("depth") for d in s.directives if d.kind == "stage"]
        deepest = max((d for d in depths if isinstance(d, int)), default=0)
        if s.name != name or s.kernel != source.name or deepest < 2:
            continue
        changed = tuple(_with_depth(d, deepest - 1) if d.get("depth") == deepest else d for d in s.directives)
        others = [replace(x, directives=changed) if x is s else x for x in module.schedules]
        yield deepest - 1, replace(module, schedules=others)


def _with_depth(d: Directive, depth: int) -> Directive:
    return replace(d, settings=tuple((n, depth if n == "depth" else v) for n, v in d.settings))


def _more_waves(module: Module, source: Kernel) -> Changes:
    """Twice as many waves, where the text states how many; where it does not, others have been tried."""
    waves = find_kernel(module, source.name).attrs.get("waves")
    if isinstance(waves, int) and waves <= 4:
        more = replace(source, attrs={**source.attrs, "waves": 2 * waves})
        yield 2 * waves, replace(module, kernels=[more if k is source else k for k in module.kernels])
