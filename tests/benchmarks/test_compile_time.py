"""The compile-time benchmark: its arithmetic, and that it runs, with and without Triton."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "compile_time.py"
sys.path.insert(0, str(SCRIPT.parent))

import compile_time  # noqa: E402
import compilers  # noqa: E402

pytestmark = pytest.mark.xdist_group("docs")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=300)


def test_medians_of_stages_are_milliseconds() -> None:
    steps = [
        {"parse-tile": 0.001 * i, "passes": 0.002, "codegen": 0.01, "link": 0.005, "unknown": 9.0} for i in (1, 2, 9)
    ]
    samples = compile_time.Samples(process=[3.0, 1.0, 2.0], call=[0.1, 0.2, 0.3], steps=steps)
    found = compile_time.medians("tileir", samples)
    assert found["process"] == 2000 and found["call"] == 200
    assert found["front and middle end"] == pytest.approx(4)
    assert found["to LLVM IR"] == 0 and found["machine code"] == pytest.approx(15)
    assert found["rest"] == pytest.approx(200 - 19)


def test_report_gives_ratios() -> None:
    def samples(name: str, seconds: float) -> compile_time.Samples:
        known = [step for steps in compile_time.STAGES.values() for step in steps[name]]
        return compile_time.Samples([seconds * 2], [seconds], [{s: seconds / 100 for s in known}], {"vgprs": 7})

    lines: list[str] = []
    by_name = {"tileir": samples("tileir", 0.1), "triton": samples("triton", 0.8)}
    data = compile_time.report({"gfx950": by_name}, 1, lines.append)
    text = "\n".join(lines)
    assert [line.split()[-1] for line in lines if line.strip().startswith(("process", "call"))] == ["0.125", "0.125"]
    assert "vgprs" in text and data["chips"]["gfx950"]["triton"]["milliseconds"]["call"] == pytest.approx(800)


def test_interpreter_without_triton_says_how_to_get_it(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    bare.chmod(0o755)
    done = run("--triton-python", str(bare))
    assert done.returncode == 1
    assert f"pip install triton=={compilers.TRITON_VERSION}" in done.stderr
    done = run("--triton-python", str(tmp_path / "nothing"))
    assert done.returncode == 1 and "cannot be run" in done.stderr


def test_runs_without_triton(tmp_path: Path) -> None:
    if subprocess.run([sys.executable, "-c", "import triton"], capture_output=True).returncode == 0:
        pytest.skip("triton is installed here")
    done = run("--repetitions", "1", "--target", "gfx950", "--json", str(tmp_path / "out.json"))
    assert done.returncode == 0, done.stderr
    assert f"pip install triton=={compilers.TRITON_VERSION}" in done.stdout
    figures = json.loads((tmp_path / "out.json").read_text())["chips"]["gfx950"]["tileir"]["milliseconds"]
    stages = [figures[stage] for stage in (*compile_time.STAGES, "rest")]
    assert all(s > 0 for s in stages) and sum(stages) == pytest.approx(figures["call"])
    assert figures["process"] > figures["call"]


@pytest.mark.nightly
def test_runs_with_triton(tmp_path: Path) -> None:
    python = os.environ.get("TRITON_PYTHON")
    if not python:
        pytest.skip("TRITON_PYTHON names no interpreter that has triton")
    done = run("--repetitions", "1", "--triton-python", python, "--json", str(tmp_path / "out.json"))
    assert done.returncode == 0, done.stderr
    for chip in json.loads((tmp_path / "out.json").read_text())["chips"].values():
        assert chip["triton"]["milliseconds"]["machine code"] > 0
        assert chip["triton"]["stats"]["vgprs"] > 0
