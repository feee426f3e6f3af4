"""Every wait, barrier and swizzle of our GEMM counts: without it a check fires or the result is wrong, or a wait that
stands elsewhere makes it redundant, which is computed from what the waves execute."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from mutants import Mutant, Traces, mutants, program_of, why_redundant

from tests.kernels.harness import CHIPS, scheduled_gemm
from tileir.runtime import Compiled, DeviceError, launch
from tileir.runtime.simulator_device import SimulatorDevice
from tileir.simulator.checks.monitor import Monitor


class Subject:
    """A GEMM and a launch of it. Small integers: every bit of the result is known."""

    def __init__(self, kernel: Compiled, chip: str, size: tuple[int, int, int]) -> None:
        m, n, k = size
        rng = np.random.default_rng(11)
        self.kernel, self.chip = kernel, chip
        self.a, self.b = (rng.integers(-3, 4, (rows, k)).astype(ml_dtypes.bfloat16) for rows in (m, n))
        self.exact = (self.a.astype(np.float32) @ self.b.astype(np.float32).T).astype(ml_dtypes.bfloat16)
        self.program = program_of(kernel.hsaco, chip)
        self.executed: set[int] = set()

    def outcome(self, hsaco: bytes, check: str = "all") -> str:
        """The kind of the fault, the kinds of findings, "wrong result", or "silent"."""
        c = np.zeros(self.exact.shape, ml_dtypes.bfloat16)
        device = SimulatorDevice(self.chip, check)
        try:
            launch(dataclasses.replace(self.kernel, hsaco=hsaco), {"A": self.a, "B": self.b, "C": c}, device)
        except DeviceError as error:
            return str(error).partition(":")[0]
        assert device.statistics
        numbers = {address: i for i, address in enumerate(self.program.addresses)}
        self.executed = {numbers[address] for address in device.statistics.executions}
        kinds = ", ".join(sorted({f.kind for f in device.statistics.findings}))
        return kinds or ("silent" if np.array_equal(c, self.exact) else "wrong result")

    def traces(self, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
        """What the waves of the last workgroup execute."""
        traces = Traces()
        with monkeypatch.context() as patch:
            patch.setattr(Monitor, "run", lambda self, workgroup: traces.run(self.launch, workgroup))
            assert self.outcome(self.kernel.hsaco, "barrier") == "silent"
        return traces.waves

    def judge(self, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, str], list[str]]:
        """Mutants by what they are with what became of them, and those that nothing noticed and nothing excuses."""
        assert self.outcome(self.kernel.hsaco) == "silent"
        executed = set(self.executed)
        traces = self.traces(monkeypatch)
        seen: dict[str, str] = {}
        missed: list[str] = []
        for mutant in mutants(self.kernel.hsaco, self.program, executed):
            outcome = self.outcome(mutant.hsaco)
            name = f"{self.program.addresses[mutant.record]:#x} {mutant.what}"
            if outcome == "silent":
                outcome = self.excuse(mutant, traces) or "silent"
                if outcome == "silent":
                    missed.append(name)
            seen[name] = outcome
        return seen, missed

    def excuse(self, mutant: Mutant, traces: list[list[int]]) -> str | None:
        if mutant.counts is None:
            return None
        reasons = [why_redundant(self.program, trace, mutant) for trace in traces]
        return reasons[0] if all(reasons) else None


def _check(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    seen, missed = subject.judge(monkeypatch)
    for name, outcome in seen.items():
        print(f"{name}: {outcome}")
    assert missed == []
    kinds = Counter(name.split(maxsplit=1)[1].partition(":")[0] for name in seen)
    assert kinds["barrier deleted"] and kinds["wait deleted"] and kinds["vmcnt + 1"] and kinds["lgkmcnt + 1"]
    assert any(kind.startswith("source") for kind in kinds), "the kernel has no swizzle"
    barriers = [outcome for name, outcome in seen.items() if "barrier deleted" in name]
    assert all("race-lds" in outcome for outcome in barriers), barriers
    return kinds


@pytest.mark.parametrize("chip", CHIPS)
def test_every_mutant_is_noticed(chip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the loop that is written tile by tile. (Waits of the order by instruction: `tests/passes/test_pipeline_loops.py`.)"""
    kernel = scheduled_gemm(chip, "2 x 2", (128, 128, 64), extra="  loop %k pattern plain\n")
    _check(Subject(kernel, chip, (128, 128, 192)), monkeypatch)


PLAIN = "  loop %k pattern plain\n"
SHAPES: list[Any] = [
    ("2 x 4", (256, 256, 64), (256, 256, 320), PLAIN),
    ("4 x 1", (64, 128, 32), (128, 128, 96), PLAIN),
    ("1 x 2", (64, 64, 128), (64, 128, 256), PLAIN),
]


@pytest.mark.nightly
@pytest.mark.parametrize("waves,tile,size,extra", SHAPES, ids=[str(s[1]) for s in SHAPES])
@pytest.mark.parametrize("chip", CHIPS)
def test_every_mutant_is_noticed_more(
    chip: str, waves: str, tile: Any, size: Any, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _check(Subject(scheduled_gemm(chip, waves, tile, extra=extra), chip, size), monkeypatch)
