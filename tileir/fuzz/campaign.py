"""Many random programs, in parallel, with progress; what fails is reduced and kept."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path

from tileir.fuzz.attention import random_attention
from tileir.fuzz.batch import compile_together
from tileir.fuzz.coverage import Coverage
from tileir.fuzz.execute import Case, Outcome, execute
from tileir.fuzz.generate import Limits, Seeded, random_kernel
from tileir.fuzz.mutate import mutate_and_read
from tileir.fuzz.products import random_product
from tileir.fuzz.reduce import reduce_kernel
from tileir.ir.core import Kernel, Module, Schedule
from tileir.ir.printer import print_module
from tileir.lowering.amdgpu.compile import Compiled
from tileir.records import dataclass

KINDS = ("general", "product", "attention", "text")
"""Any ops with every bit defined; around matrix products; two products in a loop with masks; mutated text for the parser."""

LIMITS = Limits(
    exact=True,
    elems=("f32", "bf16", "f16", "f64", "i32", "i64", "i16", "i8"),
    dims=(1, 2, 3, 5, 8, 16, 24, 40),
    ops=16,
    exclude=frozenset({"mma"}),  # products have a kind of their own
)
_SIZES = (0, 1, 2, 5, 7, 16, 31, 33, 64, 100, 128)


@dataclass(frozen=True)
class Failure:
    """A program that went wrong: its reduced text, and how to get there again."""

    kind: str
    seed: int
    outcome: Outcome
    text: str
    original: str


@dataclass(frozen=True)
class Result:
    """What became of one program."""

    kind: str
    seed: int
    outcome: Outcome
    failure: Failure | None = None
    coverage: Coverage | None = None


def program(kind: str, seed: int, chips: tuple[str, ...]) -> tuple[Kernel, Case]:
    """The kernel of a seed and how it is run: the same on every machine."""
    choices = Seeded(seed)
    schedules: tuple[Schedule, ...] = ()
    known: dict[str, int] = {}
    if kind == "product":
        kernel, schedules = random_product(choices)
        values = "integers"
    elif kind == "attention":
        kernel, schedules, known = random_attention(choices)
        values = "integers"
    else:
        kernel, values = replace(random_kernel(choices, LIMITS), fp="strict"), "special"
        kernel.attrs["waves"] = choices.pick([1, 2, 4, 8])
    names = {d for a in kernel.args for d in getattr(a.type, "dims", ()) if isinstance(d, str)}
    sizes = {name: choices.pick(_SIZES) for name in sorted(names - known.keys())} | known
    boundaries = choices.integer(0, 7) == 0
    gap, drawn = choices.pick([0, 1, 3, 8]), choices.integer(0, 99)
    return kernel, Case(chips, sizes, gap, drawn, values, boundaries, schedules)


def try_one(kind: str, seed: int, chips: tuple[str, ...], code: bool = True) -> Result:
    """Makes, runs, and if it fails reduces the program of a seed. Without `code` it ends with the last text of the passes."""
    if kind == "text":
        message, text = mutate_and_read(seed)
        outcome = Outcome("wrong", "parser", message) if message else Outcome("right")
        return Result(kind, seed, outcome, Failure(kind, seed, outcome, text, text) if message else None)
    kernel, case = program(kind, seed, chips)
    return _tried(kind, seed, kernel, replace(case, code=code), {})


def try_together(jobs: Sequence[tuple[str, int]], chips: tuple[str, ...], code: bool = True) -> list[Result]:
    """As `try_one` for several seeds, with one call of the code generator for many of them."""
    if not code:
        return [try_one(*job, chips, code) for job in jobs]
    programs = {job: program(*job, chips) for job in jobs if job[0] != "text"}
    made = dict(zip(programs, compile_together(list(programs.values())), strict=True))
    return [_tried(*job, *programs[job], made[job]) if job in programs else try_one(*job, chips) for job in jobs]


def _tried(kind: str, seed: int, kernel: Kernel, case: Case, made: Mapping[str, Compiled]) -> Result:
    outcome = execute(kernel, case, made)
    coverage = Coverage.of(kernel, case)
    if outcome.kind != "wrong":
        return Result(kind, seed, outcome, coverage=coverage)
    original = print_module(Module([kernel], list(case.schedules)))
    alone = execute(kernel, case) if made else outcome
    if alone.kind != "wrong":
        outcome = replace(outcome, message=f"(only in a code object with others) {outcome.message}")
        return Result(kind, seed, outcome, Failure(kind, seed, outcome, original, original), coverage)
    small = reduce_kernel(kernel, lambda k: execute(k, case).signature == alone.signature)
    reduced = print_module(Module([small], list(case.schedules)))
    return Result(kind, seed, alone, Failure(kind, seed, execute(small, case), reduced, original), coverage)


BATCH = 16
"""Programs that are compiled together."""


def campaign(
    jobs: Iterable[tuple[str, int]],
    chips: tuple[str, ...],
    executor: Executor | None = None,
    ahead: int = 8,
    code: bool = True,
) -> Iterator[Result]:
    """The results of many programs, as they come."""
    left = iter(jobs)
    batches = iter(lambda: list(itertools.islice(left, BATCH)), [])
    if executor is None:
        for batch in batches:
            yield from try_together(batch, chips, code)
        return
    from concurrent.futures import FIRST_COMPLETED, wait

    running: dict[Future[list[Result]], list[tuple[str, int]]] = {}
    for batch in batches:
        running[executor.submit(try_together, batch, chips, code)] = batch
        if len(running) >= ahead:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for f in done:
                yield from _results(f, running.pop(f))
    for f, batch in running.items():
        yield from _results(f, batch)


def _results(future: Future[list[Result]], jobs: list[tuple[str, int]]) -> list[Result]:
    """A process that died is a failure of its programs."""
    error = future.exception()
    if error is None:
        return future.result()
    outcome = Outcome("wrong", "process", f"{type(error).__name__}: {error}")
    return [Result(*job, outcome, Failure(*job, outcome, "", "")) for job in jobs]


def keep(failure: Failure, folder: Path) -> Path:
    """Writes a failing program as a `.tile` file with its story in comments."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{failure.kind}-{failure.seed}.tile"
    story = [f"python -m tileir.fuzz --kind {failure.kind} --first {failure.seed} --programs 1", failure.outcome.stage]
    comment = "".join(f"// {line}\n" for line in [*story, *failure.outcome.message.splitlines()])
    path.write_text(comment + failure.text, encoding="utf-8")
    return path


@dataclass
class Summary:
    """Counts of a campaign."""

    outcomes: Counter[str]
    rejected: Counter[str]
    failures: list[Failure]
    kinds: Counter[str]
    coverage: Coverage

    @staticmethod
    def of(results: Iterable[Result], each: Callable[[Result, Summary], None]) -> Summary:
        s = Summary(Counter(), Counter(), [], Counter(), Coverage())
        for r in results:
            s.outcomes[r.outcome.kind] += 1
            s.kinds[f"{r.kind} {r.outcome.kind}"] += 1
            if r.coverage is not None:
                s.coverage.add(r.coverage)
            if r.outcome.kind == "rejected":
                s.rejected[r.outcome.message] += 1
            if r.failure is not None:
                s.failures.append(r.failure)
            each(r, s)
        return s

    def json(self) -> str:
        return json.dumps(
            {
                "programs": sum(self.outcomes.values()),
                "outcomes": dict(sorted(self.outcomes.items())),
                "kinds": dict(sorted(self.kinds.items())),
                "rejected": dict(sorted(self.rejected.items())),
                "failures": [
                    {"kind": f.kind, "seed": f.seed, "stage": f.outcome.stage, "message": f.outcome.message}
                    for f in self.failures
                ],
                "coverage": self.coverage.table(),
            },
            indent=2,
        )
