"""A HIP runtime for tests: the stand-in for `libamdhip64`, built once and loaded once per process."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tileir.runtime.device import Device
from tileir.runtime.hip_device import HipDevice
from tileir.runtime.standin import build


class Counts(ctypes.Structure):
    _fields_ = [(n, ctypes.c_int) for n in ("allocations", "modules", "streams", "events", "graphs")] + [
        (n, ctypes.c_uint64) for n in ("calls", "launches")
    ]


@dataclass
class Standin:
    """The stand-in and what tests ask of it (`control.h`)."""

    path: Path
    library: ctypes.CDLL

    def counts(self) -> Counts:
        found = Counts()
        self.library.hipStandinCounts(ctypes.byref(found))
        return found

    def alive(self, expected: dict[str, int] | None = None) -> dict[str, int]:
        """Numbers of what has not been given back. expected: what is hoped for; only if it is not so, garbage is collected."""
        if expected is None or self._alive() != expected:
            gc.collect()
        return self._alive()

    def _alive(self) -> dict[str, int]:
        found = self.counts()
        return {n: getattr(found, n) for n in ("allocations", "modules", "streams", "events", "graphs")}

    def fail(self, what: str = "") -> None:
        self.library.hipStandinFail(what.encode())

    def launches(self, on: bool) -> None:
        self.library.hipStandinLaunches(int(on))

    def last_call(self) -> str:
        self.library.hipStandinLastCall.restype = ctypes.c_char_p
        return self.library.hipStandinLastCall().decode()


@pytest.fixture(scope="session")
def standin_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("hip") / "lib")


@pytest.fixture
def standin(standin_library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Standin]:
    """The stand-in as the HIP runtime of this process; at the end nothing may be alive that was not before."""
    monkeypatch.setenv("TILEIR_HIP_LIBRARY", str(standin_library))
    monkeypatch.setenv("TILEIR_STANDIN_DEVICES", "gfx950:sramecc+:xnack-,gfx942:sramecc+:xnack-")
    found = Standin(standin_library, ctypes.CDLL(str(standin_library)))
    gc.collect()
    gc.freeze()  # what other tests of this process keep is not looked through at each count
    before = found.alive()
    yield found
    found.fail()
    found.launches(True)
    assert found.alive(before) == before


@pytest.fixture
def hip(standin: Standin) -> Iterator[Device]:
    """The first GPU of the stand-in, a gfx950."""
    device = HipDevice(0)
    yield device
    device.close()


@pytest.fixture
def subprocess_run(standin_library: Path, repository: Path) -> Callable[..., str]:
    """Runs a Python program in a process of its own, with the stand-in as its HIP runtime; gives what it prints, errors as well."""

    def run(program: str, **variables: str) -> str:
        environment = {**os.environ, "TILEIR_HIP_LIBRARY": str(standin_library), **variables}
        environment["PYTHONPATH"] = os.pathsep.join((str(repository), str(repository / "tests")))
        command = [sys.executable, "-c", textwrap.dedent(program)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=repository)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    return run
