"""Kernels compiled by Triton in this test run, executed by the simulator, compared with NumPy in float64.
All checks are on and must find nothing.

An interpreter with Triton 3.9 is named by the environment variable TILEIR_TRITON_PYTHON, or it is the one that runs the tests.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from triton_cases import Case, cases

from tileir.simulator import Simulator

HERE = Path(__file__).parent


def interpreter() -> str | None:
    """A Python that can import Triton."""
    named = os.environ.get("TILEIR_TRITON_PYTHON")
    return named or (sys.executable if importlib.util.find_spec("triton") else None)


class Compiler:
    """One process of Triton's that answers requests."""

    def __init__(self, python: str, folder: Path) -> None:
        self.folder = folder
        environment = os.environ | {"TRITON_CACHE_DIR": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen(
            [python, str(HERE / "triton_server.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )

    def compile(self, case: Case, chip: str) -> tuple[bytes, dict[str, Any]]:
        path = self.folder / f"{case.name}-{chip}.hsaco"
        request = {"kernel": case.kernel, "chip": chip, "types": case.types, "constants": case.constants}
        request |= {"options": case.options, "out": str(path)}
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, "the process with Triton ended"
        done = json.loads(answer)
        assert "error" not in done, done["error"]
        return path.read_bytes(), done


@pytest.fixture(scope="session")
def triton_compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    python = interpreter()
    if python is None:
        pytest.skip("TILEIR_TRITON_PYTHON names no interpreter with Triton, and this one has none")
    compiler = Compiler(python, tmp_path_factory.mktemp("triton"))
    yield compiler
    assert compiler.process.stdin
    compiler.process.stdin.close()
    compiler.process.wait(30)


def check(case: Case, chip: str, data: bytes, lds: int, kernel: str, threads: int) -> None:
    """Runs a code object and compares every array with what is expected of it."""
    launch = case.launch(np.random.default_rng(zlib.crc32(case.name.encode())))
    simulator = Simulator(chip)
    module = simulator.load(data)
    buffers: dict[str, Any] = {}
    values: list[Any] = []
    for name, value in launch.arguments.items():
        if isinstance(value, np.ndarray):
            buffers[name] = simulator.memory.allocate(value.nbytes, name)
            buffers[name].write(value.view(np.uint8) if value.dtype.kind == "V" else value)
            value = buffers[name]
        values.append(value)
    metadata = module.code.kernel(kernel).metadata
    assert metadata
    visible = [a for a in metadata.args if not a.hidden]
    values += [0] * (len(visible) - len(values))  # Triton's own scratch pointers
    static = module.code.kernel(kernel).descriptor.group_segment_fixed_size
    dynamic = max(0, lds - static)
    statistics = module.launch(kernel, launch.grid, (threads, 1, 1), values, lds_dynamic=dynamic, check="all")
    assert [str(f) for f in statistics.findings] == []
    for name, (want, allowed) in launch.expected.items():
        given = launch.arguments[name]
        got = buffers[name].read(np.uint8).view(given.dtype).reshape(given.shape).astype(np.float64)
        wrong = ~(np.abs(got - want.astype(np.float64)) <= allowed) & ~(
            np.isnan(got) & np.isnan(want.astype(np.float64))
        )
        where = np.argwhere(wrong)[:4]
        assert not len(where), (
            f"{name}: {wrong.sum()} of {wrong.size} wrong, first {where.tolist()}: "
            f"{[(float(got[tuple(i)]), float(want[tuple(i)])) for i in where]}"
        )


def _parameters(gate: bool) -> list[Any]:
    return [
        pytest.param(case, chip, id=f"{case.name}-{chip}")
        for case in cases()
        if case.gate == gate
        for chip in case.chips
    ]


@pytest.mark.parametrize("case,chip", _parameters(True))
def test_triton(case: Case, chip: str, triton_compiler: Compiler) -> None:
    data, done = triton_compiler.compile(case, chip)
    check(case, chip, data, done["lds"], done["kernel"], done["threads"])


@pytest.mark.nightly
@pytest.mark.parametrize("case,chip", _parameters(False))
def test_triton_more(case: Case, chip: str, triton_compiler: Compiler) -> None:
    data, done = triton_compiler.compile(case, chip)
    check(case, chip, data, done["lds"], done["kernel"], done["threads"])
