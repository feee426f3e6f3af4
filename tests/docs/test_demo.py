"""The demo reports what it found, and fails when the result is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from tileir.tools import demo

pytestmark = pytest.mark.xdist_group("docs")


def test_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(["--size", "70", "--json", str(tmp_path / "report.json")]) == 0
    out = capsys.readouterr().out
    chips = json.loads((tmp_path / "report.json").read_text())["chips"]
    assert list(chips) == ["gfx942", "gfx950"]
    for name, chip in chips.items():
        times = chip["compile_milliseconds"]
        assert set(times) == {*demo.STAGES, "total"} and all(t > 0 for k, t in times.items() if k != "LLVM")
        assert times["total"] >= sum(t for k, t in times.items() if k != "total")
        assert chip["device"] == f"simulator:{name}"
        assert chip["elements"] == 70 * 70 and chip["failures"] == 0 and chip["ok"]
        assert 0 < chip["max_error"] and chip["max_error_over_bound"] <= 1
        assert chip["vgprs"] > 0 and chip["lds_bytes"] > 0
        assert f"{chip['vgprs']} VGPRs" in out and f"{chip['lds_bytes']} bytes" in out


def test_wrong_result_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    real = demo.launch

    def spoilt(compiled: Any, arrays: dict[str, Any], device: Any) -> None:
        real(compiled, arrays, device)
        arrays["C"][3, 5] += 1

    monkeypatch.setattr(demo, "launch", spoilt)
    assert demo.main(["--size", "16", "--target", "gfx950"]) == 1
    out = capsys.readouterr().out
    assert "WRONG" in out and "1 of 256" in out and "[3, 5]" in out


def test_rejected_kernel_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(demo, "source", lambda: ("tileir 1\nkernel @gemm() grid(1) { nothing() }\n", "bad.tile"))
    assert demo.main(["--target", "gfx950"]) == 1
    assert "bad.tile:2:26: error: [E0201]" in capsys.readouterr().err


def test_report_that_cannot_be_written_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "no" / "report.json"
    assert demo.main(["--size", "16", "--target", "gfx950", "--json", str(target)]) == 1
    assert f"cannot be written to {target}" in capsys.readouterr().err


def test_installed_package_has_a_kernel_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(demo, "__file__", str(tmp_path / "tileir" / "tools" / "demo.py"))
    text, name = demo.source()
    assert name == "gemm.tile" and "kernel @gemm" in text
