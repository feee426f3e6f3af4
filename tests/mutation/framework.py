"""Faults put into passes on purpose, and what notices them.

A mutant is a change of one function of a pass, or of the text that the passes leave. What may notice it:

* `text`: the verifier of the IR, which every step runs, and the normal forms but the last;
* `sync`: the verifier of synchronisation (`check_sync`), on the final text;
* `added`: the loop lacks waits or barriers before the pass `synchronise`, which adds them, so that the code is right, but slow;
* `priority`: the check that priorities are restored, on the final text;
* `proof`: the proof that LDS accesses are free of bank conflicts;
* `contract`: the comparison of the machine code with the text;
* `checks`: the checks of the simulator – races, unwritten LDS, barriers, bounds – on the machine code, made with `sync` switched off;
* `result`: the result of a run differs from the exact one, or the run does not end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from unittest.mock import patch

import ml_dtypes
import numpy as np

from tileir.frontend import parse
from tileir.ir.core import Block, Kernel, Op
from tileir.ir.diagnostics import CompileError, Log
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.ir.verifier import verify
from tileir.lowering.amdgpu import compile as driver
from tileir.passes import check_sync
from tileir.passes.explain_lds import analyse
from tileir.passes.manager import run_pipeline
from tileir.passes.priorities import check_priorities
from tileir.runtime import DeviceError, launch
from tileir.runtime.simulator_device import SimulatorDevice
from tileir.target import get

GEMM = """tileir 1
kernel @gemm<B: int = 64, BK: int = 32>(%A: global<bf16[M, K]>, %B: global<bf16[N, K]>, %C: global<f32[M, N]>)
    grid(cdiv(M, B), cdiv(N, B)) {
  %i, %j = program_id()
  %zero = fill(0.0) : tile<f32[B, B]>
  %acc = for %k = 0 to K step BK carry(%c = %zero) {
    %a = load(%A[%i * B +: B, %k +: BK])
    %b = load(%B[%j * B +: B, %k +: BK])
    %d = mma(%a, transpose(%b), %c)
    yield %d
  }
  store(%acc, %C[%i * B +: B, %j * B +: B])
}
"""
TRIPS = (1, 2, 3, 6, 7)
"""Numbers of tiles of k that are run: fewer than stages, whole trips of the loop, and some left over."""
ORDERS = ("wait", "barrier", "barrier_of")
BF16: Any = ml_dtypes.bfloat16


@dataclass(frozen=True)
class Subject:
    """A GEMM on a chip whose loop has a pattern and a number of stages."""

    chip: str
    pattern: str
    depth: int = 2

    @property
    def halves(self) -> bool:
        """Whether halves of the waves take turns."""
        return "ping_pong" in self.pattern

    @property
    def plain(self) -> bool:
        """Whether the loop consists of whole tiles."""
        return self.pattern == "plain"

    @property
    def text(self) -> str:
        """The kernel with its schedule."""
        way = "direct" if self.chip == "gfx950" else "via_registers"
        waves = f"  waves %acc 2 x {4 if self.halves else 2}\n"
        lines = f"  stage %a, %b in shared depth {self.depth} {way}\n  loop %k pattern {self.pattern}\n{waves}"
        text = (
            GEMM if self.plain else GEMM.replace("B: int = 64", "B: int = 128").replace("BK: int = 32", "BK: int = 64")
        )
        return f"{text}schedule @s of @gemm for {self.chip} {{\n{lines}}}\n"

    @property
    def step(self) -> int:
        """Values of k of a tile."""
        return 32 if self.plain else 64

    def __str__(self) -> str:
        return f"{self.chip} {self.pattern} depth {self.depth}"


SUBJECTS = (
    Subject("gfx950", "interleave"),
    Subject("gfx950", "interleave", 3),
    Subject("gfx950", "ping_pong"),
    Subject("gfx950", "ping_pong slices 2 x 2"),
    Subject("gfx950", "plain"),
    Subject("gfx950", "plain", 3),
    Subject("gfx942", "interleave"),
    Subject("gfx942", "interleave", 3),
    Subject("gfx942", "ping_pong"),
    Subject("gfx942", "plain"),
    Subject("gfx942", "plain", 3),
)


@dataclass(frozen=True)
class Mutant:
    """A fault. patches: pairs of a path such as "tileir.passes.weave.Weave.start" and what makes the faulty function from the right
    one. change: what makes the faulty text from the final one; None if it leaves it alone."""

    name: str
    patches: tuple[tuple[str, Callable[[Any], Any]], ...] = ()
    change: Callable[[Kernel], Kernel] | None = None


@dataclass(frozen=True)
class Verdict:
    """What noticed a mutant, and in which words. changed: whether the mutant differs from the right kernel at all."""

    killers: dict[str, str]
    changed: bool = True


def _resolve(path: str) -> tuple[Any, str]:
    """The object that holds an attribute, and the attribute's name."""
    from importlib import import_module

    parts = path.split(".")
    for i in range(len(parts) - 1, 0, -1):
        try:
            found: Any = import_module(".".join(parts[:i]))
        except ModuleNotFoundError:
            continue
        for name in parts[i:-1]:
            found = getattr(found, name)
        return found, parts[-1]
    raise AssertionError(path)


@contextmanager
def applied(mutant: Mutant) -> Any:
    """With the functions of a mutant in place."""
    opened: list[Any] = []
    try:
        for path, make in mutant.patches:
            holder, name = _resolve(path)
            p = patch.object(holder, name, make(holder.__dict__[name]))
            p.start()
            opened.append(p)
        yield
    finally:
        for p in reversed(opened):
            p.stop()


@contextmanager
def unverified() -> Any:
    """Without the verifier of synchronisation."""
    with patch.object(check_sync, "check_synchronised", lambda kernel: None):
        yield


@lru_cache(maxsize=64)
def right(subject: Subject) -> Kernel:
    """The final text without a fault."""
    return _texts(subject, Mutant(""))[1]


def _texts(subject: Subject, mutant: Mutant) -> tuple[Kernel, Kernel]:
    """The text before the pass `synchronise`, and the final one."""
    after: dict[str, Kernel] = {}
    with applied(mutant):
        module = parse(subject.text, "gemm.tile")
        final = run_pipeline(module, "gemm", subject.chip, log=Log(), print_after=after.__setitem__).kernel
    labels = list(after)
    return after[labels[labels.index("synchronise") - 1]], final


def judge(subject: Subject, mutant: Mutant, *, run: bool = True) -> Verdict:
    """What notices a mutant. run: also what only machine code shows."""
    killers: dict[str, str] = {}
    with unverified():
        try:
            if mutant.change is not None:
                kernel = early = mutant.change(right(subject))
            else:
                early, kernel = _texts(subject, mutant)
            verify(kernel)
            if mutant.patches and (n := len(places(kernel, *ORDERS)) - len(places(early, *ORDERS))):
                killers["added"] = f"{n} waits and barriers"
        except CompileError as e:
            return Verdict({"text": _words(e)})
    if not mutant.patches and kernel == right(subject):
        return Verdict({}, changed=False)
    try:
        check_sync.check_synchronised(kernel)
    except CompileError as e:
        killers["sync"] = _words(e)
    try:
        check_priorities(kernel)
    except CompileError as e:
        killers["priority"] = _words(e)
    if any(not r.proof.conflict_free for r in analyse(kernel, get(subject.chip))):
        killers["proof"] = "bank conflicts"
    if run:
        with unverified(), applied(replace(mutant, change=None)):
            killers.update(_run(subject, kernel))
    return Verdict(killers)


def _words(e: CompileError) -> str:
    d = e.diagnostics[0]
    inner = f": {d.notes[0].message}" if d.code == "E1003" and d.notes else ""
    return f"{d.code} {d.message}{inner}"


def waited_for_by_code(words: str) -> bool:
    """Whether what the verifier misses in a text may be in the code all the same: LLVM waits for a register before it is used, and so for
    the read of LDS that fills it, and for all LDS instructions of the wave before that, since they complete in order. (The barrier that is missed
    then stands in the text, behind the wait that is not there.)"""
    overwrite = "shared_load" in words and "overwrite" in words
    return overwrite or "no wait<lgkm = 0>() and barrier()" in words


def _run(subject: Subject, kernel: Kernel) -> dict[str, str]:
    """What the contract, the simulator's checks and the result say of a final text."""
    found: dict[str, str] = {}
    log = Log()
    whole = driver.run_pipeline

    def replaced(*args: Any, **kw: Any) -> Any:
        result = whole(*args, **kw)
        result.kernel = kernel
        return result

    with patch.object(driver, "run_pipeline", replaced):
        try:
            internal = driver.compile_kernel(parse(subject.text, "gemm.tile"), "gemm", subject.chip, log=log)
        except CompileError as e:
            return {"contract": _words(e)}
    warned = [d for d in log.diagnostics if d.code.startswith("W09")]
    if warned:
        found["contract"] = f"{warned[0].code} {warned[0].message}"
    for trips in TRIPS:
        kind = _launch(subject, internal, trips)
        if kind and kind != "result":
            found.setdefault("checks", kind)
        elif kind:
            found.setdefault("result", f"wrong with {trips} tiles of k")
    return found


def _launch(subject: Subject, compiled: Any, trips: int) -> str:
    rng = np.random.default_rng(trips)
    m, n, k = (132, 120, trips * subject.step) if not subject.plain else (68, 72, trips * subject.step)
    a, b = (rng.integers(-3, 4, (rows, k)).astype(BF16) for rows in (m, n))
    c = np.full((m, n), 7, np.float32)
    device = SimulatorDevice(subject.chip, "all")
    try:
        launch(compiled, {"A": a, "B": b, "C": c}, device)
    except DeviceError as e:
        return str(e).splitlines()[0]
    assert device.statistics is not None
    kinds = sorted({f.kind for f in device.statistics.findings})
    if kinds:
        return ", ".join(kinds)
    return "" if np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T) else "result"


# -- changes of the final text ---------------------------------------------------------------------------------------


def steady(kernel: Kernel) -> Op:
    """The loop of whole trips in the version for aligned views."""
    return next(op for op in kernel.walk() if op.name == "for")


def places(kernel: Kernel, *names: str) -> list[Op]:
    """Ops with these names in the version for aligned views: the loop, what is before and behind it."""
    loop = steady(kernel)

    def holder(block: Block) -> Block | None:
        if any(op is loop for op in block.ops):
            return block
        return next((b for op in block.ops for r in op.regions if (b := holder(r)) is not None), None)

    block = holder(kernel.body)
    assert block is not None
    return [op for outer in block.ops for op in _all(outer) if op.name in names]


def _all(op: Op) -> Sequence[Op]:
    return [op, *(o for region in op.regions for inner in region.ops for o in _all(inner))]


def changed(kernel: Kernel, place: Op, attrs: dict[str, Any] | None, operands: dict[int, Any] | None = None) -> Kernel:
    """The kernel with other attributes or operands of one op; without the op if both are None."""

    def rule(rw: Rewriter, op: Op) -> bool:
        if op is not place:
            return False
        if attrs is None and operands is None:
            return True
        values = [(operands or {}).get(i, v) for i, v in enumerate(op.operands)]
        new_attrs = op.attrs if attrs is None else attrs
        rw.copy(Op(op.name, values, new_attrs, op.results, op.regions, op.spans, op.loc, op.operand_locs))
        return True

    return rewrite(kernel, rule)
