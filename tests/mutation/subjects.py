"""Kernels whose final texts are edited (`edits.py`), with the launches that judge them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
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
from tileir.ir.core import Kernel, Module
from tileir.ir.diagnostics import CompileError, Diagnostic, Log
from tileir.ir.types import GlobalType
from tileir.lowering.amdgpu.compile import Compiled, Options, compile_kernel
from tileir.passes import priorities, references
from tileir.passes.manager import run_pipeline
from tileir.runtime import DeviceError, launch
from tileir.runtime.simulator_device import SimulatorDevice

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
