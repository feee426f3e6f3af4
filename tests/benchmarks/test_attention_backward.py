"""The comparison of both forms of attention backward runs, is right, and says what it saw."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import attention_backward  # noqa: E402


@pytest.mark.nightly
def test_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    given = ["--only", "gfx942 D = 64 causal", "--length", "512", "--json", str(out), "--triton-python", ""]
    assert attention_backward.main(given) == 0
    (row,) = json.loads(out.read_text())
    assert [r["step"] for r in row["ours"]] == ["delta", "dkv", "dq", "fused"] and not row["triton"]
    assert all(not r["error"] and r["spills"] == r["scratch_bytes"] == 0 < r["clocks"] for r in row["ours"])
    assert all(0 < r["loop"] < 1 and 0 < r["ratio"] for r in row["ours"][1:])
    said = capsys.readouterr().out
    assert "ours deterministic:" in said and "ours fused:" in said
