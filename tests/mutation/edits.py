"""Single edits of final texts, and what the two judges of synchronisation say of each.

Every wait, barrier, priority, access of memory and matrix instruction of the version for aligned views is deleted, weakened, moved
past its neighbour in either direction, and moved past the nearest wait or barrier, one edit at a time. The verifier reads the text as a
person would hand it in, with `synchronised = true`, so that nothing is added to it. The simulator runs what code generation makes
of the same text when nothing verifies it, with all checks on, and compares the results with those of the text as it was, bit by bit.

    python -m tests.mutation.edits                     # all subjects: what disagrees for no reason, and a count of the rest
    python -m tests.mutation.edits "gfx950 gemm"       # those whose names contain the words
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from unittest.mock import patch

import numpy as np

from tests.mutation.framework import unverified
from tileir import kernels
from tileir.frontend import parse
from tileir.interpreter import InterpreterError
from tileir.interpreter import run as interpret
from tileir.ir.core import Block, Kernel, Module, Op
from tileir.ir.diagnostics import CompileError, Diagnostic, Log
from tileir.ir.ops.fragments import part_mask
from tileir.ir.registry import get
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.ir.types import FragmentType, GlobalType, SharedType
from tileir.lowering.amdgpu.compile import Compiled, Options, compile_kernel
from tileir.passes import check_sync, priorities, references
from tileir.passes.halves import Extra
from tileir.passes.manager import run_pipeline
from tileir.passes.outstanding import LANES
from tileir.runtime import DeviceError, launch
from tileir.runtime.simulator_device import SimulatorDevice

MEETINGS = ("wait", "barrier", "barrier_of")
ACCESSES = (
    "copy", "copy_async", "copy_async_part", "load", "load_fragment", "store", "shared_load", "shared_load_fragment",
    "shared_load_transposed", "shared_load_transposed_fragment", "shared_store", "shared_store_fragment",
)  # fmt: skip
PLACES = (*MEETINGS, "priority", *ACCESSES, "mma", "mfma")
"""What edits are made of; all other ops go along where they are needed."""
Run = dict[str, Any]
"""Sizes of the arrays of a launch by name, and its scalars."""


@dataclass(frozen=True)
class Subject:
    """A kernel on a chip and launches of it, which take few and many trips of its loops: together they reach every part of the version
    for aligned views that has products, or an edit there would do nothing. unaligned: launches that run the other version. inexact: results are not
    exact in their type, since functions such as `exp` are in them."""

    name: str
    chip: str
    text: str
    runs: tuple[Run, ...]
    params: Mapping[str, object] = field(default_factory=dict[str, object])
    kernel: str = ""
    unaligned: tuple[Run, ...] = ()
    inexact: bool = False

    def __str__(self) -> str:
        return f"{self.chip} {self.name}"

    @cached_property
    def module(self) -> Module:
        """The text, parsed."""
        return parse(self.text, "subject.tile", dict(self.params))  # type: ignore[arg-type]

    @cached_property
    def compiled(self) -> Compiled:
        """The kernel without a fault."""
        return compile_kernel(self.module, self.kernel, self.chip)

    @cached_property
    def final(self) -> Kernel:
        """The text that is lowered, as its author would hand it in."""
        kernel = self.compiled.final
        assert kernel is not None
        return replace(kernel, attrs={**kernel.attrs, "synchronised": True})

    @cached_property
    def results(self) -> list[list[Any]]:
        """What the launches leave in all arrays."""
        found = [self.launched(self.compiled.hsaco, run) for run in self.runs]
        assert not any(isinstance(arrays, str) for arrays in found), found
        return found  # type: ignore[return-value]

    def arguments(self, run: Run) -> dict[str, Any]:
        """What a launch is given: the same numbers each time."""
        rng = np.random.default_rng(7)
        given: dict[str, Any] = {}
        assert self.compiled.kernel is not None
        for arg in self.compiled.kernel.args:
            value = run[arg.name]
            if isinstance(arg.type, GlobalType):
                value = rng.integers(-3, 4, value).astype(arg.type.elem.np)
            given[arg.name] = value
        return given

    def unreached(self) -> Counter[str]:
        """Accesses of LDS and matrix instructions of the machine code that no launch executes, by name."""
        reached: set[int] = set()
        device = SimulatorDevice(self.chip)
        for run in (*self.runs, *self.unaligned):
            launch(self.compiled, self.arguments(run), device)
            assert device.statistics is not None
            reached |= set(device.statistics.executions)
        module = device.load(self.compiled.hsaco)
        (name,) = module.kernels
        program = module.program(name)
        return Counter(
            inst.name
            for address, inst in zip(program.addresses, program.instructions, strict=True)
            if inst is not None and inst.name.startswith(("ds_", "v_mfma")) and address not in reached
        )

    def launched(self, hsaco: bytes, run: Run) -> list[Any] | str:
        """The arrays behind a launch, or what a check of the simulator says."""
        given = self.arguments(run)
        device = SimulatorDevice(self.chip, "all")
        try:
            launch(replace(self.compiled, hsaco=hsaco), given, device)
        except DeviceError as e:
            return str(e).splitlines()[0].split(": ", 1)[-1]
        assert device.statistics is not None
        kinds = sorted({f.kind for f in device.statistics.findings})
        return ", ".join(kinds) or [x for x in given.values() if isinstance(x, np.ndarray)]

    def errors(self, kernel: Kernel) -> Sequence[Diagnostic]:
        """What the compiler says of a text that is handed in; nothing if it takes it."""
        try:
            run_pipeline(Module([kernel]), "", self.chip, start_from="synchronise", log=Log())
        except CompileError as e:
            return e.diagnostics
        return ()

    def rejected(self, kernel: Kernel) -> str:
        """The first of the errors in words; "" if there is none."""
        for d in self.errors(kernel):
            return f"{d.code} {d.message}" + "".join(f" | {n.message}" for n in d.notes)
        return ""

    def code(self, kernel: Kernel, log: Log) -> Compiled:
        """The machine code of a text that nothing verifies."""
        with _unchecked():
            return compile_kernel(Module([kernel]), "", self.chip, Options(start_from="synchronise"), log)

    def says_so(self, kernel: Kernel) -> bool:
        """Whether the machine code of a text leaves what the interpreter makes of that text: numbers that `exp` and the like went
        into up to the last bit of bf16, all others exactly."""
        hsaco = self.code(kernel, Log()).hsaco
        for run in self.runs:
            given = self.arguments(run)
            try:
                interpret(kernel, given)
            except InterpreterError:
                return False
            found = self.launched(hsaco, run)
            if isinstance(found, str):
                return False
            for x, y in zip(found, (v for v in given.values() if isinstance(v, np.ndarray)), strict=True):
                a, b = x.astype(np.float64), y.astype(np.float64)
                if not np.allclose(a, b, rtol=2**-7 if self.inexact else 0, atol=0, equal_nan=True):
                    return False
        return True

    def wrong(self, kernel: Kernel) -> str:
        """What the machine code of a text does wrong; "" if nothing."""
        log = Log()
        try:
            made = self.code(kernel, log)
        except CompileError as e:
            return f"contract {e.diagnostics[0].code}"
        if made.hsaco != self.compiled.hsaco:
            for run, right in zip(self.runs, self.results, strict=True):
                found = self.launched(made.hsaco, run)
                if isinstance(found, str):
                    return found
                if any(x.tobytes() != y.tobytes() for x, y in zip(found, right, strict=True)):
                    return "result"
        codes = sorted({d.code for d in log.diagnostics if d.code.startswith("W09")} - self._known)
        return f"contract {', '.join(codes)}" if codes else ""

    @cached_property
    def _known(self) -> set[str]:
        return {d.code for d in self.compiled.log.diagnostics}


@contextmanager
def _unchecked() -> Generator[None]:
    """Without the checks of the text."""
    with ExitStack() as stack:
        stack.enter_context(unverified())
        for name in ("synchronise.check_synchronised", "manager.check_written", "check_written.check_written"):
            stack.enter_context(patch(f"tileir.passes.{name}", lambda kernel: None))
        for module, name in ((priorities, "check_priorities"), (references, "check_references")):
            stack.enter_context(patch.object(module, name, lambda kernel: None))
            stack.enter_context(patch(f"tileir.passes.manager.{name}", lambda kernel: None))
        yield


# -- edits -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Edit:
    """A change of one block: the ops it then has."""

    kind: str
    op: Op
    block: Block
    ops: tuple[Op, ...]

    @property
    def name(self) -> str:
        """What was done to which op."""
        where = next((v.name for v in (*self.op.results, *self.op.operands)), "")
        attrs = ", ".join(
            f"{k} = {v}" for k, v in self.op.attrs.items() if k in ("vm", "lgkm", "part", "at", "half", "level")
        )
        return f"{self.kind}: {self.op.name}<{attrs}> %{where} at {self.op.loc.line}"

    def applied(self, kernel: Kernel) -> Kernel:
        """The kernel with the edit. The ops are shared with the old one, but nothing changes them."""
        edited = Block(self.block.args, list(self.ops))
        if kernel.body is self.block:
            return rewrite(replace(kernel, body=edited), lambda rw, op: False)

        def rule(rw: Rewriter, op: Op) -> bool:
            if not any(r is self.block for r in op.regions):
                return False
            regions = [edited if r is self.block else r for r in op.regions]
            rw.copy(op)  # for the results and their names
            rw.block.ops.pop()
            made = Op(op.name, [rw.use(v) for v in op.operands], op.attrs, [rw.use(v) for v in op.results],
                      [rw.region(r) for r in regions], op.spans, op.loc, op.operand_locs)  # fmt: skip
            rw.insert(made)
            return True

        return rewrite(kernel, rule)


def edits(kernel: Kernel) -> Iterator[Edit]:
    """All edits of the version for aligned views, each text once."""
    seen: set[tuple[int, ...]] = set()
    for block in _blocks(_version(kernel)):
        for edit in _edits(block):
            key = (id(block), *((id(op) if op in block.ops else hash(op.key())) for op in edit.ops))
            if key not in seen:
                seen.add(key)
                yield edit


def _version(kernel: Kernel) -> Block:
    """The block with everything of the version for aligned views."""
    for op in kernel.body.ops:
        if op.name == "if" and len(op.regions) == 2 and any(o.name in ACCESSES for o in op.regions[1].walk()):
            return op.regions[0]
    return kernel.body


def _blocks(block: Block) -> Iterator[Block]:
    yield block
    for op in block.ops:
        for region in op.regions:
            yield from _blocks(region)


def _edits(block: Block) -> Iterator[Edit]:
    ops = list(block.ops)
    at = [i for i, op in enumerate(ops) if op.name in PLACES or _holds(op)]
    for n, i in enumerate(at):
        op = ops[i]
        if op.name not in PLACES:
            continue
        if not op.results:
            yield Edit("deleted", op, block, (*ops[:i], *ops[i + 1 :]))
        for kind, attrs in _weaker(op):
            yield Edit(kind, op, block, (*ops[:i], _with(op, attrs), *ops[i + 1 :]))
        for kind, numbers in (("later", at[n + 1 :]), ("earlier", at[:n][::-1])):
            meeting = next((j for j in numbers if ops[j].name in MEETINGS), None)
            for how, j in (("by one", next(iter(numbers), None)), ("past a meeting", meeting)):
                if j is not None and (moved := _moved(ops, i, j)) is not None:
                    yield Edit(f"{kind} {how}", op, block, tuple(moved))


def _holds(op: Op) -> bool:
    return any(o.name in PLACES for region in op.regions for o in region.walk())


def _with(op: Op, attrs: dict[str, Any]) -> Op:
    return Op(op.name, op.operands, attrs, op.results, op.regions, op.spans, op.loc, op.operand_locs)


def _weaker(op: Op) -> Iterator[tuple[str, dict[str, Any]]]:
    """Kinds of weaker forms, and their attributes."""
    if op.name == "barrier_of":
        yield "other half", {**op.attrs, "half": 1 - int(op.attrs["half"])}  # type: ignore[arg-type]
    if op.name != "wait":
        return
    vm = op.attrs.get("vm", -1)
    assert isinstance(vm, int)
    if 0 <= vm < 63:
        yield "weaker by one", {**op.attrs, "vm": vm + 1}
    if len(op.attrs) > 1:
        for counter in op.attrs:
            yield f"without {counter}", {k: v for k, v in op.attrs.items() if k != counter}


def _moved(ops: Sequence[Op], i: int, j: int) -> list[Op] | None:
    """The ops with op i behind op j (before it, if j < i), and with it what of the ops between needs it (what it needs); None where that
    includes op j, or what is not pure."""
    low, high = min(i, j), max(i, j)
    along = {i}
    for k in range(i + 1, j) if i < j else range(i - 1, j, -1):
        needs = _needs(ops[k], [ops[x] for x in along]) if i < j else any(_needs(ops[x], [ops[k]]) for x in along)
        if needs:
            if ops[k].regions or not get(ops[k].name).is_pure or ops[k].name in PLACES:
                return None
            along.add(k)
    last = [ops[x] for x in along]
    if (i < j and _needs(ops[j], last)) or (i > j and any(_needs(x, [ops[j]]) for x in last)):
        return None
    moving = [ops[k] for k in range(low, high + 1) if k in along]
    rest = [ops[k] for k in range(low, high + 1) if k not in along]
    middle = rest + moving if i < j else moving + rest
    return [*ops[:low], *middle, *ops[high + 1 :]]


def _needs(op: Op, others: Sequence[Op]) -> bool:
    made = {id(v) for other in others for v in other.results}
    return any(id(v) in made for o in op.walk() for v in o.operands)


# -- subjects --------------------------------------------------------------------------------------------------------


def _gemm(m: int, n: int, k: int) -> Run:
    return {"A": (m, k), "B": (n, k), "C": (m, n)}


def _schedule(name: str, chip: str, lines: str) -> str:
    return kernels.source(name) + f"\nschedule @edited of @gemm for {chip} {{\n  {lines}\n}}\n"


def _attention(nq: int, nk: int, d: int) -> Run:
    return {
        "Q": (1, nq, 1, d), "K": (1, nk, 1, d), "V": (1, nk, 1, d), "O": (1, nq, 1, d), "LSE": (1, 1, nq), "scale": 0.125
    }  # fmt: skip


NESTED = """tileir 1
kernel @gemm(%A: global<bf16[L, M, K]>, %B: global<bf16[L, N, K]>, %C: global<f32[L, M, N]>) grid(cdiv(M, 64)) {
  %i = program_id()
  %zero = fill(0.0) : tile<f32[64, 64]>
  for %l = 0 to L step 1 {
    %acc = for %k = 0 to K step 32 carry(%c = %zero) {
      %a = load(%A[%l, %i * 64 +: 64, %k +: 32])
      %b = load(%B[%l, 0 +: 64, %k +: 32])
      yield mma(%a, transpose(%b), %c)
    }
    store(%acc, %C[%l, %i * 64 +: 64, 0 +: 64])
  }
}
"""
SHARED = """tileir 1
kernel @gemm(%A: global<bf16[M, K]>, %B: global<bf16[N, K]>, %E: global<bf16[N, K]>, %C: global<f32[M, N]>, %D: global<f32[M, N]>)
    grid(cdiv(M, 64)) {
  %i = program_id()
  %zero = fill(0.0) : tile<f32[64, 64]>
  %x, %y = for %k = 0 to K step 32 carry(%c = %zero, %d = %zero) {
    %a = load(%A[%i * 64 +: 64, %k +: 32])
    %b = load(%B[0 +: 64, %k +: 32])
    %e = load(%E[0 +: 64, %k +: 32])
    %u = mma(%a, transpose(%b), %c)
    %v = mma(%a, transpose(%e), %d)
    yield %u, %v
  }
  store(%x, %C[%i * 64 +: 64, 0 +: 64])
  store(%y, %D[%i * 64 +: 64, 0 +: 64])
}
"""


def _batch(k: int) -> Run:
    return {"A": (3, 64, k), "B": (3, 64, k), "C": (3, 64, 64)}


def _pair(k: int) -> Run:
    return {"A": (64, k), "B": (64, k), "E": (64, k), "C": (64, 64), "D": (64, 64)}


def _epilogue(k: int) -> Run:
    sizes = {"A": (64, k), "B": (64, k), "C0": (64, 64), "bias": (1, 64), "C": (64, 64)}
    return {**sizes, "alpha": 1.0, "beta": 2.0}


def _scaled(k: int) -> Run:
    return {"A": (128, k), "SA": (128, k // 32), "B": (128, k), "SB": (128, k // 32), "C": (128, 128)}


def _int8(k: int) -> Run:
    sizes = {"A": (64, k), "B": (64, k), "SA": (64, 1), "ZA": (64, 1), "SB": (1, 64), "WB": (1, 64)}
    return {**sizes, "C": (64, 64)}


SMALL = {"BM": 64, "BN": 64, "BK": 32}
HALVES = {"BM": 128, "BN": 128, "BK": 64}
ATTENTIONS = (_attention(128, 64, 64), _attention(128, 300, 64), _attention(128, 384, 64))
K32 = (_gemm(64, 64, 96), _gemm(128, 64, 224), _gemm(64, 64, 320))
K32_OF_3 = (*K32, _gemm(64, 64, 160))
"""For loops of three tiles a trip: 3, 7, 10 and 5 tiles, so that none, one and two are left."""
K64 = (_gemm(128, 128, 192), _gemm(128, 128, 448))
ODD = tuple(_gemm(128, 128, k + 1) for k in range(0, 640, 32))
"""Rows of no whole number of dwords: the version for unaligned views, with every number of tiles up to 20."""
SUBJECTS = (
    Subject(
        "gemm interleave", "gfx950",
        _schedule("gemm", "gfx950", "stage %a, %b in shared depth 4 direct\n  loop %k pattern interleave\n  waves %acc 2 x 2"),
        K32, SMALL, unaligned=ODD,
    ),
    Subject(
        "gemm interleave depth 2", "gfx950",
        _schedule("gemm", "gfx950", "stage %a, %b in shared depth 2 direct\n  loop %k pattern interleave\n  waves %acc 1 x 2"),
        K32, SMALL, unaligned=ODD,
    ),
    Subject(
        "gemm ping_pong", "gfx950", _schedule("gemm", "gfx950", "waves %acc 2 x 4\n  loop %k pattern ping_pong"), K64, HALVES, unaligned=ODD
    ),
    Subject(
        "gemm plain", "gfx950", _schedule("gemm", "gfx950", "stage %a, %b in shared depth 3 direct\n  loop %k pattern plain"),
        K32_OF_3, SMALL, unaligned=ODD,
    ),
    Subject(
        "gemm interleave", "gfx942",
        _schedule("gemm", "gfx942", "stage %a, %b in shared depth 4 via_registers\n  loop %k pattern interleave\n  waves %acc 2 x 2"),
        K32_OF_3, SMALL, unaligned=ODD,
    ),
    Subject(
        "gemm ping_pong", "gfx942", _schedule("gemm", "gfx942", "waves %acc 2 x 4\n  loop %k pattern ping_pong"), K64, HALVES, unaligned=ODD
    ),
    Subject(
        "two loops", "gfx950", NESTED, (_batch(96), _batch(224), _batch(320)),
        unaligned=(_batch(97), _batch(225), _batch(321)),
    ),
    Subject(
        "two products", "gfx950", SHARED + "schedule @s of @gemm for gfx950 {\n  waves %x 2 x 2\n  waves %y 2 x 2\n}\n",
        (_pair(96), _pair(224), _pair(320)), unaligned=(_pair(97), _pair(225), _pair(321)),
    ),
    Subject(
        "epilogue", "gfx950", kernels.source("gemm_epilogue"),
        (_epilogue(96), _epilogue(224), _epilogue(320)),
        {"BM": 64, "BN": 64, "BK": 32, "ACT": 1}, unaligned=(_epilogue(97), _epilogue(225), _epilogue(321)),
    ),
    Subject(
        "scaled", "gfx950", kernels.source("gemm_mx"),
        (_scaled(256), _scaled(384), _scaled(640), _scaled(1280)), unaligned=(_scaled(288), _scaled(672)),
    ),
    Subject(
        "int8", "gfx942", kernels.source("gemm_int8"),
        (_int8(192), _int8(448)),
        {"BM": 64, "BN": 64}, unaligned=(_int8(193), _int8(449)),
    ),
    Subject(
        "attention", "gfx950", kernels.source("attention_lazy"), ATTENTIONS, {"BM": 128, "BN": 64, "D": 64}, inexact=True
    ),
    Subject(
        "attention", "gfx942", kernels.source("attention_lazy"), ATTENTIONS, {"BM": 128, "BN": 64, "D": 64}, inexact=True
    ),
    Subject("softmax", "gfx950", kernels.source("softmax"), ({"X": (8, 512), "Y": (8, 512)},), inexact=True),
)  # fmt: skip


# -- judgement -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """What the verifier says ("" if nothing) and what is wrong with the machine code ("" if nothing). reason: why the two may disagree,
    as another run has shown; "" if nothing shows it, or they agree."""

    edit: str
    rejected: str
    wrong: str
    reason: str = ""


WRITES = ("copy", "copy_async", "copy_async_part", "store", "shared_store", "shared_store_fragment")


def reason(subject: Subject, edit: Edit, kernel: Kernel, rejected: bool, wrong: str) -> str:
    """Why a text is accepted whose code is wrong, or rejected whose code is right."""
    if not rejected:
        took = edit.kind == "deleted" and edit.op.name in WRITES and wrong == "result"
        return "another program" if took and subject.says_so(kernel) else ""
    left = subject.errors(kernel)
    if all(d.code == "E1036" for d in left):
        return "priorities cost time alone"
    reasons: list[str] = []

    def without(name: str, fewer: Sequence[Diagnostic]) -> None:
        nonlocal left
        if len(fewer) < len(left):
            left = fewer
            reasons.append(name)

    waited = waited_for(kernel)
    without("the code waits for registers", subject.errors(waited))
    without("copies of the same lanes come in order", _not_of_same_lanes(left))
    waves = kernel.attrs["waves"]
    assert isinstance(waves, int)
    for name, size, rule in (("themselves", 1, _alone), ("waves of their half", waves // 2, _within_halves)):
        among = buffers_of(subject.final, size)  # no edit changes which elements an access touches
        if left and all(any(f" %{name}" in d.message for name in among) for d in left):
            with patch.object(check_sync, "enough", rule):
                without(f"waves meet only {name}", _not_of_same_lanes(subject.errors(waited)))
    return "" if left else ", ".join(reasons)


def _not_of_same_lanes(errors: Sequence[Diagnostic]) -> Sequence[Diagnostic]:
    """Errors but those about a copy that may overtake another: of the same part to the same buffer, which the same lanes make."""
    return [d for d in errors if "may overtake the 'copy_async" not in d.message]


def _alone(passed: int, complete: Extra, now: Extra) -> bool:
    """Instead of `enough`, for accesses of one wave."""
    return True


def _within_halves(passed: int, complete: Extra, now: Extra) -> bool:
    """Instead of `enough`, for accesses of two waves of one half: barriers that this half alone counts separate them, too."""
    return all(passed + after - before >= 1 for before, after in zip(complete, now, strict=True))


def waited_for(kernel: Kernel) -> Kernel:
    """The text with the waits that the code has anyway: before a product uses the registers of a read of LDS, LLVM waits for the read,
    and so for the LDS instructions of the wave before that, since they complete in order."""
    users: set[int] = set()
    for block in _blocks(kernel.body):
        late: set[int] = set()
        for op in block.ops:
            used = any(id(v) in late for v in op.operands)
            if op.name in ("mma", "mfma") and used:
                users.add(id(op))
                late.clear()
            elif op.name.startswith("shared_load") or (used and get(op.name).is_pure):
                late |= {id(v) for v in op.results}

    def rule(rw: Rewriter, op: Op) -> bool:
        if id(op) in users:
            rw.insert(Op("wait", [], {"lgkm": 0}, loc=op.loc))
        return False

    return rewrite(kernel, rule)


def buffers_of(kernel: Kernel, size: int) -> frozenset[str]:
    """Names of LDS buffers that only parts of direct copies write and only fragments read, and of which no wave touches an element that
    a wave of another group writes; groups are of so many waves that follow each other. Proved element by element: instruction `part` of a
    copy fills a slab of 64 lanes, and those of a wave follow each other (`part_mask`, which the interpreter's copies are tested
    with); a read takes what its map says of each wave. In groups of one, a wave's own waits order all that happens to the buffer, without
    a barrier."""
    waves = kernel.attrs["waves"]
    assert isinstance(waves, int)
    written: dict[str, dict[int, Any]] = {}
    read: dict[str, dict[int, Any]] = {}
    shared: set[str] = set()
    for op in kernel.walk():
        for v in op.operands if op.name != "shared_alloc" else ():
            if not isinstance(v.type, SharedType):
                continue
            kind = {"copy_async_part": written, "shared_load_fragment": read}.get(op.name)
            if kind is None or v.owner is None or v.owner.name != "shared_alloc":
                shared.add(v.name)
                continue
            for w in range(waves):
                mask = _copied_by(op, w, waves) if kind is written else _read_by(op, w)
                kind.setdefault(v.name, {}).setdefault(w, np.zeros(v.type.shape, bool))[mask] = True
    return frozenset(
        name
        for name in written
        if name not in shared
        and not any(
            (written[name][w] & other[name][x]).any()
            for other in (written, read)
            if name in other
            for w in range(waves)
            for x in range(waves)
            if w // size != x // size
        )
    )


def _copied_by(op: Op, wave: int, waves: int) -> Any:
    """The elements that a wave writes with a part of a copy: of the slabs of all waves, the part's own of this wave's run."""
    t, width, together = op.operands[-1].type, op.attrs["bytes"], op.attrs.get("together", 1)
    assert isinstance(t, SharedType) and t.layout is not None and isinstance(width, int) and isinstance(together, int)
    assert t.layout.kind != "slabs" and t.matrix == t.shape
    slabs = t.layout.offset(*np.indices(t.matrix)) // (width * LANES)
    return part_mask(op, waves * LANES) & (slabs // together % waves == wave)


def _read_by(op: Op, wave: int) -> Any:
    """The elements that a wave reads with a fragment."""
    layout, fragment, buffer = op.operands[1].tile.layout, op.results[0].type, op.operands[0].type
    at = op.attrs.get("at", 0)
    assert (
        layout is not None
        and isinstance(fragment, FragmentType)
        and isinstance(buffer, SharedType)
        and isinstance(at, int)
    )
    table = layout.owner_table()[wave, :, at : at + fragment.count].reshape(-1, layout.rank)
    mask = np.zeros(buffer.shape, bool)
    mask[tuple(table.T)] = True
    return mask


def judge(subject: Subject, wanted: Callable[[int, Edit], bool] = lambda i, edit: True) -> Iterator[Verdict]:
    """The verdicts on edits of a subject, on those that are wanted by number."""
    assert not subject.rejected(subject.final) and not subject.wrong(subject.final)
    for i, edit in enumerate(edits(subject.final)):
        if wanted(i, edit):
            kernel = edit.applied(subject.final)
            rejected, wrong = subject.rejected(kernel), subject.wrong(kernel)
            agree = bool(rejected) == bool(wrong)
            why = "" if agree else reason(subject, edit, kernel, bool(rejected), wrong)
            yield Verdict(edit.name, rejected, wrong, why)


def main(words: str = "") -> None:
    """Prints what the judges say of all edits."""
    for subject in SUBJECTS:
        if words not in str(subject):
            continue
        start, counts = time.process_time(), Counter[str]()
        for v in judge(subject):
            kind = f"{'rejected' if v.rejected else 'accepted'}, {'wrong' if v.wrong else 'right'}"
            counts[kind] += 1
            if v.reason:
                counts[v.reason] += 1
            elif bool(v.rejected) != bool(v.wrong):
                print(f"{subject}: {kind}: {v.edit}: {v.rejected or v.wrong}", flush=True)
        print(f"{subject}: {dict(counts)}, {time.process_time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
