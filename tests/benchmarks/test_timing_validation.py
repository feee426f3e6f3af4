"""The validation of the timing model: its arithmetic, its list of points, and one point from end to end."""

import json
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import timing_validation as v  # noqa: E402

pytestmark = pytest.mark.xdist_group("docs")
DATA = json.loads(v.POINTS.read_text("utf-8"))
DOCUMENT = ROOT / "docs" / "timing-validation.md"


def test_ranks_share_ties() -> None:
    assert v.ranks([3.0, 1.0, 3.0, 2.0]).tolist() == [2.5, 0, 2.5, 1]
    assert v.rank_correlation([1, 2, 3, 4], [10, 20, 25, 90]) == pytest.approx(1)
    assert v.rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert v.rank_correlation([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)


def test_nothing_is_claimed_below_eight_points() -> None:
    pairs = [(f"p{i}", 0.1 * i, 0.11 * i) for i in range(1, 8)]
    (text,) = v.verdict(pairs)
    assert "no correlation" in text
    assert "%" not in text
    (text,) = v.verdict([*pairs, ("p8", 0.8, 0.4)])
    assert "8 comparable points" in text
    assert "median error 10.0 %" in text
    assert "largest error 50.0 % (p8)" in text


def test_points_say_where_they_come_from() -> None:
    names = [p["name"] for p in DATA["points"]]
    assert len(set(names)) == len(names)
    for point in DATA["points"]:
        assert point["source"] in DATA["sources"]
        assert set(point["published"]) <= {"mfma_efficiency", "tflops", "clocks_per_step"} and point["published"]
        assert 0 < point["published"].get("mfma_efficiency", 0.5) <= 1
        if point["rebuild"] is None:
            assert point["why_not"] and not point["counted"]
        else:
            assert point["same"] and point["versions"] and point["tuning"] and point["where"]
        if point["counted"]:
            assert "mfma_efficiency" in point["published"]


def test_the_document_lists_every_point_and_claims_what_may_be_claimed() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert "Every figure of this project in it is estimated" in text
    for point in DATA["points"]:
        assert f"| {point['name']} |" in text, point["name"]
    for source in DATA["sources"].values():
        assert source["url"] in text
    counted = sum(p["counted"] for p in DATA["points"])
    assert (f"{counted} comparable points" in text) == (counted >= v.CLAIM)


@pytest.mark.nightly
def test_a_point_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    python = os.environ.get("TILEIR_TRITON_PYTHON")
    if not python:
        pytest.skip("TILEIR_TRITON_PYTHON names no interpreter with Triton")
    compiler = v.Compiler(python, tmp_path)
    try:
        point = next(p for p in DATA["points"] if p["name"] == "quarters 128x128")
        small = point | {"rebuild": point["rebuild"] | {"sizes": [2048, 2048, 512]}}
        result = v.run(small, compiler)
    finally:
        compiler.close()
    assert 0.1 < result.efficiency < 1
    assert result.clocks_per_step is not None
    # a step is 32 MFMAs of 16 clocks for each wave
    assert result.clocks_per_step == pytest.approx(512 / result.efficiency, rel=0.05)
    assert result.versions == "Triton 3.9.0"


def test_command_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEIR_TRITON_PYTHON", raising=False)
    with pytest.raises(SystemExit):
        v.main([])
    assert "--triton-python" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        v.main(["--triton-python", "python", "--write", "x.md", "--only", "two"])
    assert "--write needs all points" in capsys.readouterr().err
