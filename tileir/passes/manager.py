"""Runs the pipeline over one kernel: order, normal forms, stopping, resuming, printing, timing, checking.

Nothing travels beside the IR: whatever a pass decides stands in the kernel it returns, so the text after any pass can be
printed, edited, parsed and resumed. Before each pass the normal forms that it requires are checked, after it those it
establishes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial

from tileir.collector import collect_if_much, collector_paused
from tileir.ir.core import Kernel, Module
from tileir.ir.diagnostics import CompileError, Diagnostic, Log, Note, error
from tileir.ir.location import UNKNOWN, Loc
from tileir.ir.types import TileType
from tileir.ir.verifier import verify
from tileir.passes import forms, replay
from tileir.passes.base import Context, Pass
from tileir.passes.check_written import check_written
from tileir.passes.pipeline import Step, pipeline
from tileir.passes.priorities import check_priorities
from tileir.passes.references import check_references
from tileir.passes.suspicious import warn_of_suspicious
from tileir.records import dataclass
from tileir.target import Target, UnknownTarget
from tileir.target import get as get_target
from tileir.target import names as target_names

PrintAfter = Callable[[str, Kernel], None]
Check = Callable[[], None]
VERIFY_MODES = ("off", "verify", "run")


@dataclass
class Result:
    """What a run produced: the kernel after the last pass, the context with its log, and seconds per pass in order of execution
    (label of the step, see `step_names`)."""

    kernel: Kernel
    context: Context
    timings: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])


def step_names() -> tuple[str, ...]:
    """Labels of the steps in order, as `stop_after` and `start_from` take them; a pass that runs again has a number
    (`simplify`, `simplify-2`)."""
    return tuple(s.label for s in pipeline())


def find_kernel(module: Module, name: str) -> Kernel:
    """The kernel called `name` ("" for the only one). Raises CompileError that lists the legal names."""
    names = [k.name for k in module.kernels]
    place = module.kernels[0].loc if module.kernels else _file_loc(module)
    legal = ", ".join(names) or "add a kernel to the file"
    if not name:
        if len(names) == 1:
            return module.kernels[0]
        what = "holds no kernel" if not names else f"holds {len(names)} kernels; say which"
        raise CompileError([Diagnostic("E1005", f"the file {what}", place, legal=legal)], module.sources)
    for k in module.kernels:
        if k.name == name:
            return k
    raise CompileError([Diagnostic("E1005", f"there is no kernel '{name}'", place, legal=legal)], module.sources)


def find_target(kernel: Kernel, target: str | Target) -> Target:
    """The chip to compile for: the one asked for, else the one that the text is bound to.

    Raises CompileError if there is none, no such chip, or the text is bound to another one.
    """
    bound = kernel.attrs.get("target")
    if isinstance(target, Target):
        target = target.name
    name = target or (str(bound) if bound is not None else "")
    legal = " | ".join(target_names())
    if not name:
        raise error("E1004", f"no target is given for kernel '{kernel.name}'", kernel.loc, legal=f"--target {legal}")
    try:
        found = get_target(name)
    except UnknownTarget:
        raise error("E1004", f"there is no target '{name}'", kernel.loc, legal=legal) from None
    if bound is not None and bound != name:
        raise error(
            "E1006",
            f"the text of kernel '{kernel.name}' is already bound to {bound}, but {name} is asked for",
            kernel.loc,
            legal=f"--target {bound}, or start from the unbound text",
        )
    return found


def run_pipeline(
    module: Module,
    kernel_name: str,
    target: str | Target,
    *,
    schedule: str = "",
    whole_tiles: bool = False,
    spare: int = 0,
    stop_after: str | None = None,
    start_from: str | None = None,
    print_after: PrintAfter | None = None,
    verify_each: str = "off",
    log: Log | None = None,
    clock: Callable[[], float] = time.perf_counter,
    later: list[Check] | None = None,
) -> Result:
    """Runs the steps from `start_from` (the first one; the last one for a text that all have run on) to `stop_after` (the last one), both included.

    Args:
        kernel_name: "" for the only kernel of the module.
        target: name of the chip; "" takes the one the text is bound to.
        schedule: name of a schedule; "" takes the first one that applies.
        whole_tiles: no loop is written instruction by instruction, see `tileir.passes.base.Context`.
        spare: vector registers that loops leave free beyond the estimate, see there.
        print_after: called with the label of each step and the kernel after it.
        verify_each: "verify" runs the IR verifier after every pass; "run" also interprets the kernel before and after
            each pass on small inputs and compares.
        clock: seconds, for the timings of the passes.
        later: gets the checks of what the compiler itself guarantees – the normal forms between steps, and of the final text the IR
            verifier, too – instead of having them run here: for a caller that can do so while something else works. Each raises
            CompileError.

    Raises:
        CompileError: with the sources of the module attached; also where the kernel adds values against different references of a
            guard (`tileir.passes.references`), leaves waves at raised priority (`tileir.passes.priorities`), or a text that is
            resumed reads LDS that nothing has written (`tileir.passes.check_written`).
    """
    if verify_each not in VERIFY_MODES:
        raise ValueError(f"verify_each must be one of {VERIFY_MODES}, not '{verify_each}'")
    try:
        kernel = find_kernel(module, kernel_name)
        chip = find_target(kernel, target)
        start_from = start_from or _where_to_resume(kernel)
        steps = select_steps(kernel, start_from, stop_after)
        context = Context(chip, module, log if log is not None else Log(), schedule, whole_tiles, spare)
        result = Result(kernel, context)
        if start_from is not None:
            verify(kernel)
            check_written(kernel)
        else:
            warn_of_suspicious(kernel, module.sources, context.log)
        check_references(kernel)
        check_priorities(kernel)
        with collector_paused():
            checks = _Checks(later is not None)
            _run(steps, result, checks, print_after, verify_each, clock)
            checks.add(lambda: verify(result.kernel))
        if later is not None:
            later += [partial(_with_sources, check, module) for check in checks.pending]
        return result
    except CompileError as e:
        raise CompileError(e.diagnostics, e.sources or module.sources) from e


class _Checks:
    """Checks of what steps guarantee to each other, run at once or `deferred`: kernels do not change once a step has returned them."""

    def __init__(self, deferred: bool) -> None:
        self.deferred = deferred
        self.pending: list[Check] = []

    def add(self, check: Check) -> None:
        if self.deferred:
            self.pending.append(check)
        else:
            check()

    def run(self) -> None:
        """All that were deferred."""
        for check in self.pending:
            check()


def _with_sources(check: Check, module: Module) -> None:
    try:
        check()
    except CompileError as e:
        raise CompileError(e.diagnostics, e.sources or module.sources) from e


def _where_to_resume(kernel: Kernel) -> str | None:
    """The last step for a text that the pipeline ended with, None for one that no pass has given layouts. Raises CompileError (E1007) for one
    from between, which does not say where."""
    if "target" not in kernel.attrs or not any(
        isinstance(v.type, TileType) and v.type.layout for v, _ in forms.values(kernel)
    ):
        return None
    last = step_names()[-1]
    if isinstance(kernel.attrs.get("registers"), tuple):
        return last
    labels = step_names()[step_names().index("assign-layouts") + 1 :]
    message = f"passes have run on kernel '{kernel.name}' already: it is bound to a chip and its tiles have layouts"
    legal = f"--start-from the pass behind the last that ran, one of {', '.join(labels)}; or the text from before; of a text of your own, one that is not bound"
    raise error("E1007", message, kernel.loc, legal=legal)


def select_steps(kernel: Kernel, start_from: str | None, stop_after: str | None) -> Sequence[Step]:
    """The part of the pipeline between two labels. Raises CompileError for a label that does not exist."""
    steps = pipeline()
    labels = [s.label for s in steps]
    for label in (start_from, stop_after):
        if label is not None and label not in labels:
            raise error("E1002", f"there is no pass '{label}'", kernel.loc, legal=", ".join(labels))
    first = labels.index(start_from) if start_from is not None else 0
    last = labels.index(stop_after) if stop_after is not None else len(steps) - 1
    if last < first:
        raise error(
            "E1002",
            f"pass '{stop_after}' runs before '{start_from}': nothing would run",
            kernel.loc,
            legal=f"stop after one of {', '.join(labels[first:])}",
        )
    return steps[first : last + 1]


def _run(
    steps: Sequence[Step],
    result: Result,
    checks: _Checks,
    print_after: PrintAfter | None,
    verify_each: str,
    clock: Callable[[], float],
) -> None:
    """Runs the steps and their checks."""
    sample = replay.sample(result.kernel) if verify_each == "run" else None
    if verify_each == "run" and sample is None:
        result.context.log.warning(
            "W1001",
            f"kernel '{result.kernel.name}' is not interpreted: it runs on none of the small inputs that are tried",
            result.kernel.loc,
            legal="tileir-run --verify with sizes that the kernel accepts",
        )
    holds: set[str] = set()  # forms known to hold of the current kernel
    if (
        steps[-1].label == step_names()[-1]
    ):  # code will be generated: forms that the steps left out would have established
        for step in pipeline()[: step_names().index(steps[0].label)]:
            for form in sorted(step.pass_.establishes - holds):
                _require(form, steps[0].pass_, result.kernel, chip=result.context.target, resumed=True)
                holds.add(form)
    for i, step in enumerate(steps):
        before = result.kernel
        for form in sorted(step.pass_.requires - holds):
            check = partial(_require, form, step.pass_, before, chip=result.context.target, resumed=i == 0)
            if i == 0:  # of a text that somebody wrote
                check()
            else:
                checks.add(check)
        start = clock()
        try:
            after = step.pass_.run(before, result.context)
        except Exception:
            checks.run()  # if one does not hold, that is the cause
            raise
        result.timings.append((step.label, clock() - start))
        result.kernel = after
        if after is not before:
            holds = set()
        for form in sorted(step.pass_.establishes):
            checks.add(partial(_established, form, step.label, after, result.context.target))
            holds.add(form)
        if verify_each != "off":
            _verify(step.label, after)
        if sample is not None and after is not before:
            replay.compare(sample, after, step.label)
        if print_after is not None:
            print_after(step.label, after)
        collect_if_much()


def _require(form: str, pass_: Pass, kernel: Kernel, *, chip: Target, resumed: bool) -> None:
    try:
        forms.check(form, kernel, chip)
    except CompileError as e:
        by = [s.label for s in pipeline() if form in s.pass_.establishes]
        head = Diagnostic(
            "E1001",
            f"pass '{pass_.name}' requires the normal form '{form}' ({forms.summary(form)}), which this text does not have",
            first_loc(e, kernel.loc),
            legal=f"start from '{by[0]}', which establishes it" if by else "",
            notes=tuple(Note(d.message, d.loc) for d in e.diagnostics)
            + (
                ()
                if resumed
                else (Note("an earlier pass broke it: this is a fault of the compiler, please report it"),)
            ),
        )
        raise CompileError([head]) from e


def _established(form: str, label: str, kernel: Kernel, chip: Target) -> None:
    try:
        forms.check(form, kernel, chip)
    except CompileError as e:
        raise CompileError(_blame(e, label, f"pass '{label}' promises the normal form '{form}' but left this")) from e


def _verify(label: str, kernel: Kernel) -> None:
    try:
        verify(kernel)
    except CompileError as e:
        raise CompileError(_blame(e, label, f"pass '{label}' produced a kernel that the verifier rejects")) from e


def _blame(e: CompileError, label: str, message: str) -> list[Diagnostic]:
    notes = tuple(Note(f"[{d.code}] {d.message}", d.loc) for d in e.diagnostics)
    fault = Note(f"this is a fault of pass '{label}', not of the file; please report it")
    return [Diagnostic("E1003", message, first_loc(e, UNKNOWN), notes=(*notes, fault))]


def first_loc(e: CompileError, fallback: Loc) -> Loc:
    """The first known location among the diagnostics of an error."""
    return next((d.loc for d in e.diagnostics if d.loc.line), fallback)


def _file_loc(module: Module) -> Loc:
    return Loc(next(iter(module.sources), "<unknown>"), 1, 1, 1, 2)
