"""All checks are silent on the kernels of the library."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.harness import CHIPS, library, scheduled_gemm
from tileir.runtime import Compiled, launch
from tileir.runtime.simulator_device import SimulatorDevice


def _checked(kernel: Compiled, arrays: dict[str, Any], device: SimulatorDevice) -> list[str]:
    launch(kernel, arrays, device)
    assert device.statistics is not None
    return [str(f) for f in device.statistics.findings]


@pytest.mark.parametrize("chip", CHIPS)
def test_silent_on_the_library(chip: str) -> None:
    rng = np.random.default_rng(3)
    device = SimulatorDevice(chip, "all")
    for n in (7, 4104):
        x, z = rng.standard_normal(n).astype(np.float32), np.zeros(n, np.float32)
        assert _checked(library("vector_add", chip), {"X": x, "Y": x, "Z": z}, device) == []
    for rows, columns in ((3, 1024), (5, 300)):
        x = rng.standard_normal((rows, columns)).astype(np.float32)
        assert _checked(library("softmax", chip), {"X": x, "Y": np.zeros_like(x)}, device) == []
        assert _checked(library("transpose", chip), {"X": x, "Y": np.zeros((columns, rows), np.float32)}, device) == []
    for m, n, k in ((256, 256, 192), (129, 17, 70)):
        a, b = (rng.standard_normal((r, k)).astype(ml_dtypes.bfloat16) for r in (m, n))
        c = np.zeros((m, n), ml_dtypes.bfloat16)
        assert _checked(scheduled_gemm(chip, "2 x 2", (128, 128, 64)), {"A": a, "B": b, "C": c}, device) == []
