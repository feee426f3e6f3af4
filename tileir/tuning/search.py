"""Searching for a schedule: the quick model ranks, the simulator's timing model decides among the best."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import fields, replace
from pathlib import Path
from queue import SimpleQueue

from tileir.frontend import parse
from tileir.frontend.source import Source, decode
from tileir.ir.core import Kernel, Module
from tileir.ir.diagnostics import CompileError, Diagnostic, Note, error
from tileir.ir.registry import format_attr
from tileir.passes.manager import find_kernel, find_target, run_pipeline
from tileir.records import dataclass
from tileir.target import Target
from tileir.tuning.executors import Here
from tileir.tuning.model import Estimate, Model
from tileir.tuning.report import Trial, Tuned
from tileir.tuning.schedules import Directives, handles, schedule_text
from tileir.tuning.space import Given, Space, neighbours, space_of, variants, wave_grids
from tileir.tuning.text import schedule_names, with_schedule
from tileir.tuning.trials import Order, ParameterValue, Result, carry_out
from tileir.tuning.work import Work, work_of

EXPANDED = 16
"""Bindings of the parameters whose schedules are all ranked: those that are best with what the compiler chooses by itself."""
SETTLED = 8
"""Bindings for which `choose` asks the passes how many waves and which instruction they take."""
ALIKE = 1e-3
"""Estimates that differ by less are those of one schedule that is said in two ways."""
DOUBT = 0.05
"""What each decision of a schedule must promise to be tried before the same without it: passes know more than the quick model."""
WORTHWHILE = 0.97
"""Another binding than that of the text must be faster by so much, by the quick model, to be chosen without a trial."""

Progress = Callable[[int, int, Trial], None]
"""Called after each trial with how many are done, how many there will be at least, and the trial."""


@dataclass(frozen=True)
class Candidate:
    values: tuple[int, ...]
    directives: Directives
    estimate: Estimate

    @property
    def rank(self) -> tuple[float, tuple[int, ...], str]:
        """What candidates are sorted by."""
        return self.estimate.clocks * (1 + DOUBT * self.said), self.values, str(self.directives)

    @property
    def said(self) -> int:
        """Decisions that are not left to the compiler."""
        return sum(bool(getattr(self.directives, f.name)) for f in fields(self.directives))


@dataclass(frozen=True)
class Choice:
    """Values of the open parameters for given sizes, by the quick model alone. params: those that differ from the text's.
    model_clocks, default_clocks: what the model says of them and of the text's own.
    """

    params: dict[str, int]
    model_clocks: float
    default_clocks: float
    notes: tuple[str, ...] = ()


def choose(
    source: str | Path,
    target: str,
    shape: Mapping[str, int],
    *,
    kernel: str = "",
    params: Given | None = None,
    filename: str = "<text>",
) -> Choice:
    """The tile sizes, and other parameters that only cut the work, for these sizes, without compiling anything.

    The rule: of all values of the open parameters (docs/tuning.md) the eight with the fewest clocks by the quick model go through the
    passes that choose waves and instructions, and are ranked again with what these choose. The best is taken if it needs at
    least 3 % less than the defaults of the text; of equals the one nearest to the defaults. Schedules of the file are not looked at.

    Raises CompileError for a text that is wrong, and for values that are.
    """
    task = Task.of(source, filename, target, shape, kernel, params or {})
    settled = map(task.settled, task.rank_bindings(any_waves=True)[:SETTLED])
    ranked = sorted((c for c in settled if c is not None), key=lambda c: c.estimate.clocks)
    defaults = task.space.defaults()
    own = task.settled(Candidate(defaults, Directives(), Estimate(0.0, "", 0, 0)))
    default_clocks = own.estimate.clocks if own is not None else math.inf
    if not ranked or ranked[0].estimate.clocks > WORTHWHILE * default_clocks:
        return Choice({}, default_clocks, default_clocks, tuple(task.space.notes))
    named = task.space.named(ranked[0].values)
    changed = {n: v for (n, v), d in zip(named.items(), defaults, strict=True) if v != d}
    return Choice(changed, ranked[0].estimate.clocks, default_clocks, tuple(task.space.notes))


def tune(
    source: str | Path,
    target: str,
    shape: Mapping[str, int],
    *,
    kernel: str = "",
    params: Given | None = None,
    arguments: Sequence[str] = (),
    seed: int = 0,
    product: str = "",
    trials: int = 12,
    executor: Executor | None = None,
    progress: Progress | None = None,
    keep_defaults: bool = False,
    filename: str = "<text>",
) -> Tuned:
    """Searches for the parameters and the schedule with which a kernel takes the least time for these sizes, by the simulator's model.

    source: a text, or the `Path` of a file. shape: sizes of the dimension symbols (strides that are missing are those of dense rows).
    params: values of compile-time parameters; one value fixes a parameter, a sequence of integers says which to try.
    arguments, seed: as `tileir-run --arg` and `--seed`. product: such as "MI325X". trials: how many candidates are compiled and timed;
    two thirds of them are the best by the quick model, the others differ from the best of those in one respect; for those of the first that
    fail, or whose code has spills or moves, the next ones are tried. executor: any; without one all
    happens in this process. keep_defaults: `Tuned.text` has the defaults of the parameters as they were.

    Raises CompileError with located diagnostics: for a text that is wrong, values that change what the kernel computes (E1902), or
    if no candidate can be used (E1901).
    """
    from tileir.simulator.timing.estimate import DEFAULT_PRODUCTS  # loads the simulator's engine

    task = Task.of(source, filename, target, shape, kernel, params or {})
    task.give(arguments, seed)
    task.product = product or DEFAULT_PRODUCTS[task.target.name]
    task.keep_defaults = keep_defaults
    with_progress = progress or (lambda done, total, trial: None)
    ranked, unfit = task.rank()
    count = max(1, trials)
    own_decisions = task.space.defaults(), Directives()
    is_baseline = task.kernel.name not in schedule_names(task.text, task.filename).values()
    first = [c for c in ranked if not is_baseline or (c.values, c.directives) != own_decisions]
    first = _diverse(first, max(1, count - count // 3))
    runner = _Runner(task, executor or Here(), with_progress, count + 1)
    own = task.estimate(*own_decisions)
    baseline = Candidate(*own_decisions, own or Estimate(math.inf, "", 0, 0))
    runner.run([(baseline, True), *((c, False) for c in first)])
    unusable = sum(not t.result.usable for t in runner.trials)
    tried = {(c.values, c.directives) for c, _ in runner.done}
    more = (c for c in ranked if (c.values, c.directives) not in tried)
    runner.run([(c, False) for c in itertools.islice(more, unusable)])
    best = runner.best()
    if best is not None and count - len(first) > 0:
        near = task.near(best, {(c.values, c.directives) for c, _ in runner.done})
        runner.run([(c, False) for c in near[: count - len(first)]])
        best = runner.best()
    made = runner.trials
    if best is None:
        raise task.nothing(made)
    candidate, trial = best
    notes = list(task.space.notes)
    if trial.directives is None:
        name, block, text = "", "", task.text
        notes.append("the file as it is, is the best of what was tried")
    else:
        name, block, text = task.written(candidate)
    return Tuned(
        kernel=task.kernel.name,
        target=task.target.name,
        product=task.product,
        shape=dict(shape),
        fixed=dict(task.space.fixed),
        candidates=len(ranked) + sum(unfit.values()),
        unfit=unfit,
        trials=tuple(made),
        best=trial,
        name=name,
        schedule=block,
        text=text,
        notes=tuple(notes),
    )


def _diverse(ranked: Sequence[Candidate], count: int) -> list[Candidate]:
    """The best candidates, of each binding of the parameters no more than a quarter: the model may be wrong about one."""
    each = max(1, count // 4)
    seen: Counter[tuple[int, ...]] = Counter()
    chosen: list[Candidate] = []
    for c in ranked:
        if len(chosen) < count and seen[c.values] < each:
            seen[c.values] += 1
            chosen.append(c)
    more = (c for c in ranked if c not in chosen)
    while len(chosen) < count and (c := next(more, None)) is not None:
        chosen.append(c)
    return chosen


class Task:
    """A kernel, a chip and sizes."""

    def __init__(
        self, text: str, filename: str, kernel: Kernel, target: Target, shape: Mapping[str, int], space: Space
    ):
        self.text, self.filename, self.kernel, self.target, self.space = text, filename, kernel, target, space
        self.shape = dict(shape)
        self.model = Model(target)
        self.arguments: tuple[str, ...] = ()
        self.seed = 0
        self.product = ""
        self.keep_defaults = False
        self._works: dict[tuple[int, ...], Work] = {}

    @classmethod
    def of(
        cls, source: str | Path, filename: str, target: str, shape: Mapping[str, int], kernel: str, params: Given
    ) -> Task:
        """Raises CompileError."""
        if isinstance(source, Path):
            filename, text = str(source), decode(source.read_bytes(), str(source))
        else:
            text = source
        text = Source(text, filename).text
        try:
            one = {n: v if isinstance(v, int | float | bool | str) else next(iter(v), 1) for n, v in params.items()}
            found = find_kernel(parse(text, filename, one, kernel=kernel or None), kernel)
            chip = find_target(found, target)
            missing = [s for s in found.symbols() if s not in shape and not _is_stride(found, s)]
            if missing:
                raise error(
                    "E1905",
                    f"the sizes of {', '.join(missing)} are not known",
                    found.loc,
                    legal=f"a size for each: {','.join(f'{s}=…' for s in missing)}",
                )
            unknown = [s for s in shape if s not in found.symbols()]
            if unknown:
                raise error(
                    "E1907",
                    f"kernel '{found.name}' has no dimension {', '.join(unknown)}",
                    found.loc,
                    legal=", ".join(found.symbols()) or "none",
                )
            return cls(text, filename, found, chip, shape, space_of(text, filename, found.name, chip, params))
        except CompileError as e:
            raise CompileError(e.diagnostics, {filename: text}) from None

    def give(self, arguments: Sequence[str], seed: int) -> None:
        """Arguments as texts. Raises CompileError for one that the kernel does not have."""
        names = [a.name for a in self.kernel.args]
        for text in arguments:
            name = text.partition("=")[0].strip().removeprefix("%")
            if name not in names:
                e = error(
                    "E1908",
                    f"kernel '{self.kernel.name}' has no argument %{name}",
                    self.kernel.loc,
                    legal=", ".join(f"%{n}" for n in names) or "none",
                )
                raise CompileError(e.diagnostics, {self.filename: self.text})
        self.arguments, self.seed = tuple(arguments), seed

    # -- ranking ---------------------------------------------------------------------------------------------------------

    def work(self, values: tuple[int, ...]) -> Work:
        """Raises CompileError."""
        if values not in self._works:
            kernel = self.space.bound(values)
            self._works[values] = work_of(kernel, {**dict.fromkeys(kernel.symbols(), 1), **self.shape})
        return self._works[values]

    def estimate(self, values: tuple[int, ...], choice: Directives) -> Estimate | None:
        """None for values under which the text is wrong."""
        try:
            return self.model.estimate(self.work(values), choice)
        except CompileError:
            return None

    def rank_bindings(self, any_waves: bool = False) -> list[Candidate]:
        """All values of the open parameters that can be expected to compile, the best first, with the usual number of waves, or with
        whatever number around that is best."""
        defaults = self.space.defaults()

        def distance(values: tuple[int, ...]) -> float:
            return sum(abs(math.log2(v / d)) for v, d in zip(values, defaults, strict=True) if v > 0 and d > 0)

        good: list[Candidate] = []
        for values in self.space.bindings():
            said = [Directives()]
            if any_waves and self.estimate(values, Directives()) is not None:
                said += [Directives(waves=w) for w in wave_grids(self.space.bound(values))]
            tried = [e for d in said if (e := self.estimate(values, d)) is not None and not e.why_not]
            if tried:
                good.append(Candidate(values, Directives(), min(tried, key=lambda e: e.clocks)))
        return sorted(good, key=lambda c: (round(c.estimate.clocks), distance(c.values), c.values))

    def settled(self, c: Candidate) -> Candidate | None:
        """A candidate with what the passes choose where it leaves waves and instruction open; None if they reject it."""
        kernel = self.space.bound(c.values)
        try:
            made = run_pipeline(Module([kernel]), kernel.name, self.target, stop_after="assign-layouts").kernel
        except CompileError:
            return None
        directives = c.directives
        for op in made.walk():
            grid, instr = op.attrs.get("waves"), op.attrs.get("instr")
            if op.name == "mma" and isinstance(grid, tuple) and isinstance(instr, tuple):
                directives = replace(directives, waves=(grid[0], grid[1]), instr=(instr[0], instr[1], instr[2]))
                break
        e = self.estimate(c.values, directives)
        return None if e is None or e.why_not else replace(c, estimate=e)

    def rank(self) -> tuple[list[Candidate], dict[str, int]]:
        """All candidates, the fewest clocks first; how many cannot compile, by code."""
        unfit: Counter[str] = Counter()
        bindings = self.rank_bindings()
        for values in self.space.bindings():
            e = self.estimate(values, Directives())
            if e is not None and e.why_not:
                unfit[e.why_not] += 1
        found: list[Candidate] = []
        for i, binding in enumerate(bindings):
            said = variants(self.space.bound(binding.values), self.target) if i < EXPANDED else [Directives()]
            found += self._distinct(binding.values, said, unfit)
        ranked = sorted(found, key=lambda c: c.rank)
        return ranked, dict(sorted(unfit.items()))

    def _distinct(
        self, values: tuple[int, ...], said: Iterator[Directives] | Sequence[Directives], unfit: Counter[str]
    ) -> list[Candidate]:
        """Candidates of one binding, of those that the model cannot tell apart the one that says least."""
        made: list[Candidate] = []
        for directives in said:
            e = self.estimate(values, directives)
            if e is None:
                continue
            if e.why_not:
                unfit[e.why_not] += 1
                continue
            made.append(Candidate(values, directives, e))
        made.sort(key=lambda c: (c.said, str(c.directives)))
        kept: list[Candidate] = []
        for c in made:
            if not any(abs(c.estimate.clocks - k.estimate.clocks) <= ALIKE * k.estimate.clocks for k in kept):
                kept.append(c)
        return kept

    def near(self, best: tuple[Candidate, Trial], tried: set[tuple[tuple[int, ...], Directives]]) -> list[Candidate]:
        """Candidates that differ from the best in one respect: in turn those with other values and those with another directive."""
        candidate, trial = best
        workgroups = math.prod(trial.result.grid)
        found: dict[tuple[tuple[int, ...], Directives], Candidate] = {}
        for values, directives in neighbours(self.space, candidate.values, candidate.directives, workgroups):
            if (values, directives) in tried or (values, directives) in found:
                continue
            e = self.estimate(values, directives)
            if e is not None and not e.why_not:
                found[values, directives] = Candidate(values, directives, e)

        def ranked(keep: Callable[[Candidate], bool]) -> list[Candidate]:
            return sorted(filter(keep, found.values()), key=lambda c: c.rank)

        other_values = ranked(lambda c: c.values != candidate.values)
        other_order = ranked(
            lambda c: c.values == candidate.values and c.directives.order != candidate.directives.order
        )
        others = ranked(lambda c: c.values == candidate.values and c.directives.order == candidate.directives.order)
        return list(_in_turn([other_values, others, other_order]))

    # -- texts -----------------------------------------------------------------------------------------------------------

    def written(self, c: Candidate) -> tuple[str, str, str]:
        """Name and text of the schedule, and the whole file with it."""
        taken = schedule_names(self.text, self.filename)
        name = f"tuned_{self.target.name}" if len({*taken.values(), self.kernel.name}) == 1 else ""
        name = name or f"tuned_{self.kernel.name}_{self.target.name}"
        while taken.get(name, self.kernel.name) != self.kernel.name:
            name += "_"
        named = self.space.named(c.values)
        kernel = self.space.bound(c.values)
        bound = {**{n: kernel.params[n] for n in self.space.fixed if n in kernel.params}, **named}
        when = " & ".join(f"{n} == {format_attr(v)}" for n, v in bound.items())
        block = schedule_text(name, kernel, self.target.name, when, c.directives, handles(kernel))
        defaults = {} if self.keep_defaults else named
        return name, block, with_schedule(self.text, self.filename, kernel.name, block, name, defaults)

    def order(self, c: Candidate, as_it_is: bool) -> Order:
        """What to compile and time for a candidate: exactly what `written` gives."""
        named: dict[str, ParameterValue] = dict(self.space.fixed)
        shape = ",".join(f"{k}={v}" for k, v in self.shape.items())
        if as_it_is:
            name, text = "", self.text
            named |= self.space.named(c.values)
        else:
            name, _, text = self.written(c)
            if self.keep_defaults:
                named |= self.space.named(c.values)
        return Order(
            text,
            self.filename,
            self.kernel.name,
            self.target.name,
            shape,
            named,
            name,
            self.arguments,
            self.seed,
            self.product,
        )

    def nothing(self, trials: Sequence[Trial]) -> CompileError:
        """The error for a search that found nothing."""
        notes = [Note(f"{t}: [{t.code}] {d.message if (d := t.result.diagnostic) else 'not proposed'}") for t in trials]
        made = error(
            "E1901",
            f"none of the {len(trials)} candidates that were tried for kernel '{self.kernel.name}' can be used",
            self.kernel.loc,
            legal="other values of its parameters, more trials, or smaller tiles",
            notes=notes,
        )
        return CompileError(made.diagnostics, {self.filename: self.text})


def _is_stride(kernel: Kernel, symbol: str) -> bool:
    """Whether a symbol is only ever a stride, so that dense rows say what it is."""
    return kernel.symbols()[symbol].bits == 64


def _in_turn(lists: Sequence[Sequence[Candidate]]) -> Iterator[Candidate]:
    for i in range(max(map(len, lists), default=0)):
        yield from (found[i] for found in lists if i < len(found))


class _Runner:
    """Has candidates carried out. What comes of it does not depend on the executor nor on who is ready first."""

    def __init__(self, task: Task, executor: Executor, progress: Progress, total: int):
        self.task, self.executor, self.progress, self.total = task, executor, progress, total
        self.done: list[tuple[Candidate, Trial]] = []

    @property
    def trials(self) -> list[Trial]:
        return [t for _, t in self.done]

    def run(self, candidates: Sequence[tuple[Candidate, bool]]) -> None:
        """Carries out candidates, each with whether it is the file as it is."""
        ready: SimpleQueue[tuple[int, Future[Result]]] = SimpleQueue()
        made: dict[int, Trial] = {}
        before = len(self.done)
        total = max(self.total, before + len(candidates))

        def collect(wait: bool) -> None:
            while len(made) < len(candidates) and (wait or not ready.empty()):
                i, future = ready.get()
                made[i] = self._trial(*candidates[i], future)
                self.progress(before + len(made), total, made[i])

        for i, (c, own) in enumerate(candidates):
            future = self._submitted(c, own)
            future.add_done_callback(lambda f, i=i: ready.put((i, f)))
            collect(wait=False)
        collect(wait=True)
        self.done += [(c, made[i]) for i, (c, _) in enumerate(candidates)]

    def _submitted(self, c: Candidate, own: bool) -> Future[Result]:
        try:
            return self.executor.submit(carry_out, self.task.order(c, own))
        except RuntimeError as e:  # an executor that is broken or shut down takes no more
            failed: Future[Result] = Future()
            failed.set_exception(e)
            return failed

    def _trial(self, c: Candidate, own: bool, future: Future[Result]) -> Trial:
        fault = future.exception()
        if fault is None:
            result = future.result()
        else:  # of the executor, such as a process that died; a candidate's own faults are in its result
            message = f"no answer from the executor: {type(fault).__name__}: {fault}"
            result = Result(diagnostic=Diagnostic("E1906", message, self.task.kernel.loc))
        named = self.task.space.named(c.values)
        return Trial(named, None if own else c.directives, c.estimate.clocks, result)

    def best(self) -> tuple[Candidate, Trial] | None:
        """The fastest candidate that may be proposed; the first of equals."""
        usable = [(c, t) for c, t in self.done if t.result.usable]
        return min(usable, key=lambda x: x[1].result.estimated_seconds, default=None)
