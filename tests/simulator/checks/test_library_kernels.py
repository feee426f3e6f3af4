"""All checks are silent on the kernels of the library; the GEMM without one of its waits or barriers is caught."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.harness import CHIPS, library, scheduled_gemm
from tileir.codeobject import CodeObject
from tileir.runtime import DeviceError, get_device, launch
from tileir.simulator import Module, Simulator, Statistics


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Statistics]]:
    """Launches under all checks; collects what they return."""
    seen: list[Statistics] = []
    plain = Module.launch

    def launched(self: Module, *args: Any, **options: Any) -> Statistics:
        seen.append(plain(self, *args, check="all", **options))
        return seen[-1]

    monkeypatch.setattr(Module, "launch", launched)
    yield seen


def _findings(seen: list[Statistics]) -> list[str]:
    return [str(f) for s in seen for f in s.findings]


@pytest.mark.parametrize("chip", CHIPS)
def test_silent_on_the_library(chip: str, checked: list[Statistics]) -> None:
    rng = np.random.default_rng(3)
    device = get_device(f"simulator:{chip}")
    for n in (7, 4104):
        x, z = rng.standard_normal(n).astype(np.float32), np.zeros(n, np.float32)
        launch(library("vector_add", chip), {"X": x, "Y": x, "Z": z}, device)
    for rows, columns in ((3, 1024), (5, 300)):
        x = rng.standard_normal((rows, columns)).astype(np.float32)
        launch(library("softmax", chip), {"X": x, "Y": np.zeros_like(x)}, device)
        launch(library("transpose", chip), {"X": x, "Y": np.zeros((columns, rows), np.float32)}, device)
    for m, n, k in ((256, 256, 192), (129, 17, 70)):
        a, b = (rng.standard_normal((r, k)).astype(ml_dtypes.bfloat16) for r in (m, n))
        c = np.zeros((m, n), ml_dtypes.bfloat16)
        launch(scheduled_gemm(chip, "2 x 2", (128, 128, 64)), {"A": a, "B": b, "C": c}, device)
    assert len(checked) == 8
    assert _findings(checked) == []


def _mutants(hsaco: bytes, chip: str) -> Iterator[tuple[int, str, bytes]]:
    """Code objects with one wait or barrier replaced by s_nop: address, text of the instruction, bytes."""
    code = CodeObject.from_bytes(hsaco)
    module = Simulator(chip).load(hsaco)
    program = module.program(module.kernels[0])
    (segment,) = [s for s in code.segments if s.executable]
    base = hsaco.index(segment.data) - segment.vaddr
    for inst, address in zip(program.instructions, program.addresses, strict=True):
        if inst and inst.name in ("s_waitcnt", "s_barrier"):
            at = base + address
            assert hsaco[at : at + 4] == inst.raw
            yield address, inst.text, hsaco[:at] + b"\x00\x00\x80\xbf" + hsaco[at + 4 :]


REDUNDANT = {"s_waitcnt lgkmcnt(0)": "LDS reads of the round before are covered by the wait before their last MFMA"}
"""Waits whose absence changes nothing, by their text, with what makes them redundant: at most one in the GEMM."""


@pytest.mark.parametrize("chip", CHIPS)
def test_every_wait_and_barrier_of_the_gemm_counts(chip: str, checked: list[Statistics]) -> None:
    kernel = scheduled_gemm(chip, "2 x 2", (128, 128, 64))
    a, b = (np.ones((128, 192), ml_dtypes.bfloat16) for _ in range(2))
    device = get_device(f"simulator:{chip}")

    def outcome(hsaco: bytes) -> str:
        c = np.zeros((128, 128), ml_dtypes.bfloat16)
        checked.clear()
        try:
            launch(dataclasses.replace(kernel, hsaco=hsaco), {"A": a, "B": b, "C": c}, device)
        except DeviceError as error:
            return str(error).partition(":")[0]
        kinds = sorted({f.kind for f in checked[0].findings})
        return kinds[0] if kinds else "silent"

    assert outcome(kernel.hsaco) == "silent"
    executed = checked[0].executions
    outcomes = [(text, outcome(h)) for address, text, h in _mutants(kernel.hsaco, chip) if address in executed]
    barriers = [kind for text, kind in outcomes if text == "s_barrier"]
    assert barriers and set(barriers) == {"race-lds"}
    silent = [text for text, kind in outcomes if kind == "silent"]
    assert len(silent) <= 1 and set(silent) <= set(REDUNDANT), silent
    assert len(outcomes) >= 8
