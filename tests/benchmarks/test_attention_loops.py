"""The comparison of attention kernels runs, is right, and says what it saw."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import attention_loops  # noqa: E402


def test_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    assert (
        attention_loops.main(["--only", "gfx950 D = 64", "--length", "768", "--json", str(out), "--triton-python", ""])
        == 0
    )
    (row,) = json.loads(out.read_text())
    assert [r["name"] for r in row["results"]] == ["attention", "attention_lazy", "attention_prescaled"]
    textbook, lazy, prescaled = row["results"]
    assert all(not r["error"] and r["spills"] == r["scratch_bytes"] == 0 for r in row["results"])
    assert 0 < prescaled["ratio"] < lazy["ratio"] < textbook["ratio"]
    assert all(0 < r["busy"] < 1 and r["microseconds"] > 0 for r in row["results"])
    assert "est. us" in capsys.readouterr().out
