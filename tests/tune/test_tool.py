"""tileir-tune: what it writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tileir import kernels
from tileir.tools import opt, tune

SIZES = ["--target", "gfx950", "--shape", "M=32,N=32,K=64"]
FEW = ["-D", "BM=16,32", "-D", "BN=16", "-D", "BK=64", "--trials", "2", "--jobs", "1"]


@pytest.fixture
def gemm(tmp_path: Path) -> Path:
    path = tmp_path / "gemm.tile"
    path.write_text(kernels.source("gemm"))
    return path


def test_in_place(gemm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.json"
    assert tune.main([str(gemm), *SIZES, *FEW, "--in-place", "--json", str(report)]) == 0
    out = capsys.readouterr()
    assert "estimated times of the simulator's model, not measurements" in out.out
    assert "[3/3] estimated" in out.err
    data = json.loads(report.read_text())
    assert data["schema"] == "tileir-tune/1" and data["estimated"] is True and len(data["trials"]) == 3
    text = gemm.read_text()
    assert data["schedule"] in text and text.startswith("tileir 1\n\n// C = A · Bᵀ")
    assert opt.main([str(gemm), "--target", "gfx950", "-D", "BN=16", "--emit", "stats"]) == 0


def test_defaults_may_stay(gemm: Path, tmp_path: Path) -> None:
    out = tmp_path / "tuned.tile"
    assert tune.main([str(gemm), *SIZES, *FEW, "--keep-defaults", "--quiet", "-o", str(out)]) == 0
    assert out.read_text().startswith(gemm.read_text())


def test_the_quick_model_alone(gemm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune.main([str(gemm), *SIZES, "-D", "BK=64", "--quick"]) == 0
    out = capsys.readouterr().out
    assert "-D BM=" in out and "by the quick model" in out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--in-place", "-o", "x"], "the result goes to one file"),
        (["--json", "-", "-o", "-"], "only one of"),
        (["--keep-defaults"], "is about the written file"),
        (["--quick", "-o", "x"], "--quick only says"),
        (["--executor", "fibres"], "processes, threads or dask:ADDRESS"),
        (["--product", "MI300X"], "gfx950 is on MI355X"),
        (["--shape", "M=x"], "a size is an integer"),
        (["-D", "BM"], "-D wants NAME=VALUE"),
        (["-o", "nowhere/tuned.tile"], "-o nowhere/tuned.tile: there is no directory 'nowhere'"),
        (["--json", "nowhere/found.json"], "there is no directory 'nowhere'"),
    ],
)
def test_usage(more: list[str], message: str, gemm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = [str(gemm), "--target", "gfx950"]
    assert tune.main([*base, *more]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "code", "place"),
    [
        (["-D", "T=bf16,f16"], "E1903", "4:58"),
        (["-D", "BX=1,2"], "E0209", "4:8"),
        (["--shape", "Q=1"], "E1907", "4:8"),
        (["-k", "other"], "E0210", "1:1"),
        (["--arg", "Z=ones"], "E1908", "4:8"),
    ],
)
def test_errors_have_a_place(
    more: list[str], code: str, place: str, gemm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune.main([str(gemm), *SIZES, *more]) == 1
    assert f"{gemm}:{place}: error: [{code}]" in capsys.readouterr().err


def test_a_kernel_without_sizes_and_parameters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "fixed.tile"
    file.write_text(
        "tileir 1\n\nkernel @double(%A: global<f32[128]>, %C: global<f32[128]>) grid(1) {\n"
        "  store(load(%A[0 +: 128]) * 2.0, %C[0 +: 128])\n}\n"
    )
    assert tune.main([str(file), "--target", "gfx950", "--quiet", "--executor", "threads", "--jobs", "1"]) == 0
    assert "as it is" in capsys.readouterr().out
