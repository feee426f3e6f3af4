"""The benchmark of hot loops: its rows, its arithmetic, and that it runs."""

import json
import os
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import hot_loops as h  # noqa: E402
from hot_loops_plot import plot  # noqa: E402
from products import Product  # noqa: E402

pytestmark = pytest.mark.xdist_group("docs")
ROW = h.Row(Product("gfx950"), 68.0, "main")


def test_rows_fit_and_have_names_of_their_own() -> None:
    rows = h.rows()
    names = [r.product.name for r in rows]
    assert len(set(names)) == len(names)
    assert {r.group for r in rows} == {"main", "f16", "tiles"}
    assert {r.product.dtype for r in rows} == {"bf16", "f16", "fp8"}
    assert "gfx942 bf16 256x128x64, 8 waves" in names
    assert "gfx942 bf16 256x128x128, 8 waves" not in names  # 96 KiB in 64 KiB of LDS
    assert next(r.bar for r in rows if r.product.name == names[0]) == 39
    assert max(r.bar for r in rows if r.group == "tiles") == pytest.approx(1.15 * 68)


def test_buffers_are_two_where_they_fit() -> None:
    assert "depth 2 direct" in Product("gfx950").tileir(163840)["text"]
    assert "depth 1 direct" in Product("gfx950", tile=(256, 192, 128)).tileir(163840)["text"]
    assert "depth 2 via_registers" in Product("gfx942").tileir(65536)["text"]


def test_peers_by_hand() -> None:
    found = {r.product.name for r in h.rows() if h.gluon_job(r.product)}
    assert len(found) == 6 and all(
        "256x256x64" in name and "fp8" not in name and "M-cont" not in name for name in found
    )
    job = h.gluon_job(Product("gfx950", "f16"))
    assert job and job["dtype"] == "fp16" and job["constants"]["PING_PONG"] and job["options"]["num_warps"] == 8


def test_missed_bars_are_told() -> None:
    good = {"efficiency": 0.9, "call": [0.1], "process": [0.3]}
    triton = {h.SAME: h.Result(n=90, efficiency=0.8, call=[0.9], process=[1.2])}
    triton["triton even"] = h.Result(n=80, efficiency=0.85)
    assert h.missed(ROW, {h.OURS: h.Result(n=68, **good), **triton}) == []
    triton["triton even"].efficiency = 0.95
    ours = h.Result(n=68.5, spills=1, moves_in_loop=2, drains=3, conflicts=0.25, **good | {"call": [0.2]})
    assert h.missed(ROW, {h.OURS: ours, **triton}) == [
        "n 68.5 > 68.0",
        "1 spills",
        "2 accumulator moves in the loop",
        "3 waits that drain",
        "25.0 % of LDS clocks by conflicts",
        "estimated efficiency 90.0 % < 95.0 %",
        "call 0.22 of Triton's > 0.17",
    ]
    triton["triton even"].error = "wrong result"  # what is wrong is no peer
    assert "estimated" not in " ".join(h.missed(ROW, {h.OURS: ours, **triton}))
    assert h.missed(ROW, {h.OURS: h.Result(error="E0906")}) == ["E0906"]


def test_what_does_not_compile_is_printed() -> None:
    results = {h.OURS: h.Result(error="E0906 no such product"), h.SAME: h.Result(n=90.0)}
    lines = h.table(ROW, results)
    assert "does not compile: E0906 no such product" in "\n".join(lines)
    assert lines[-1] == "  MISSED: E0906 no such product"
    picture = plot([h.data(ROW, results)])
    assert "does not compile" in picture and "90.0" in picture
    ET.fromstring(picture)


def test_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    python = os.environ.get("TILEIR_TRITON_PYTHON", "")
    out, picture = tmp_path / "out.json", tmp_path / "out.svg"
    command = ["--only", "gfx942 bf16 256x128x32", "--size", "1024", "--repetitions", "1", "--json", str(out)]
    command += ["--plot", str(picture)]
    assert h.main([*command, *(["--triton-python", python] if python else [])]) == 0
    (row,) = json.loads(out.read_text())
    ours = row["results"][h.OURS]
    assert not ours["error"], ours["error"]
    assert ours["n"] > 0 and ours["lds_bytes"] >= 24576 and ours["spills"] == 0
    assert ours["sizes"] == [1024, 1024, 1024] and 0 < ours["efficiency"] < 1 and ours["conflicts"] == 0
    assert len(ours["call"]) == 1 and ours["process"][0] > ours["call"][0]
    ET.parse(picture)
    text = capsys.readouterr().out
    assert "est. clocks" in text and "1 rows" in text
    if not python:
        pytest.skip("TILEIR_TRITON_PYTHON names no interpreter that has Triton: only TileIR was measured")
    for name in h.TRITON_KINDS:
        theirs = row["results"][name]
        assert not theirs["error"] and theirs["n"] > 0 and theirs["clocks"] > 0, name
    assert "ratio to the best peer" in text


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (["--only", "gfx90a"], ["--size", "100"], ["--repetitions", "-1"]):
        with pytest.raises(SystemExit):
            h.main(wrong)
        assert "usage" in capsys.readouterr().err
