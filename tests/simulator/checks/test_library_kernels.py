"""All checks are silent on the kernels of the library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.harness import CHIPS, library, scheduled_gemm
from tileir import kernels
from tileir.runtime import Compiled, launch
from tileir.runtime.simulator_device import SimulatorDevice
from tileir.tools import run


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


@pytest.mark.parametrize("chip", CHIPS)
def test_silent_on_the_smallest_product(chip: str) -> None:
    """One element a tile: LLVM must not read LDS before the loop to keep in a register what the loop stores there."""
    device = SimulatorDevice(chip, "all")
    a, b = (np.arange(n * 5, dtype=np.float32).reshape(n, 5) for n in (3, 4))
    c = np.zeros((3, 4), np.float32)
    assert _checked(library("gemm", chip, BM=1, BN=1, BK=1, T="f32"), {"A": a, "B": b, "C": c}, device) == []
    assert (c == a @ b.T).all()


EXAMPLES = Path(__file__).parents[3] / "examples"
RUNS: list[tuple[str, str, str]] = [
    ("attention_latent", "", "B=1,NQ=130,NK=37,H=1 --arg scale=0.1"),
    ("attention_paged", "", "B=9,G=2,HG=17,ROWS=100,PAGES=2 --arg scale=0.1"),
    ("cross_entropy", "", "M=9,N=1500 --arg ignore=-100"),
    ("cumulative_sum", "", "M=9,N=1100"),
    ("gemm", "", "M=129,N=257,K=100,LDA=104,LDB=104,LDC=264"),
    ("gemm_batched", "", "L=3,M=65,N=70,K=33"),
    ("gemm_epilogue", "", "M=130,N=67,K=64 --arg alpha=0.5 --arg beta=2"),
    ("gemm_forms", "gemm_nt", "M=130,N=67,K=72"),
    ("gemm_forms", "gemm_nn", "M=130,N=72,K=72"),
    ("gemm_forms", "gemm_tn", "M=136,N=72,K=72"),
    ("gemm_forms", "gemm_tt", "M=136,N=67,K=72"),
    ("gemm_int8", "", "M=130,N=67,K=72"),
    ("gemm_split_k", "", "M=130,N=67,K=300"),
    ("rms_norm", "", "M=5 --arg eps=0.001"),
    ("rotary", "", "B=2,N=70,H=2,P=9"),
    ("rotary", "", "B=1,N=5,H=1,P=9 -D INTERLEAVED=true"),
    ("softmax", "", "M=9,N=1500"),
    ("transpose", "", "M=130,N=70"),
    ("vector_add", "", "N=5000"),
    ("attention.tile", "", "B=1,NQ=300,NK=200,H=2,G=1 --arg scale=0.1"),
    ("attention.tile", "", "B=1,NQ=256,NK=256,H=1,G=1 --arg scale=0.1 -D CAUSAL=true"),
    ("attention.tile", "", "B=1,NQ=300,NK=130,H=1,G=1 --arg scale=0.1 -D D=256 -D CAUSAL=true"),
    ("gemm.tile", "", "M=512,N=300,K=192"),
    ("layernorm.tile", "", "M=9 --arg p=0.1 --arg seed=5 --arg eps=0.001"),
]
"""Kernels of the library, and examples, with the sizes and arguments of tileir-run."""


@pytest.mark.nightly
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name,kernel,sizes", RUNS, ids=[f"{r[0]}-{r[1]}" for r in RUNS])
def test_silent_on_everything(
    name: str, kernel: str, sizes: str, chip: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = EXAMPLES / name
    if not name.endswith(".tile"):
        path = tmp_path / f"{name}.tile"
        path.write_text(kernels.source(name))
    command = [str(path), "--target", chip, "--shape", *sizes.split(), "--check", "all", "--verify"]
    status = run.main(command + (["-k", kernel] if kernel else []))
    captured = capsys.readouterr()
    assert status == 0, captured.out + captured.err
