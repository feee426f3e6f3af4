"""The benchmark of growth: its arithmetic, that its kernels have the sizes they are asked for, and that it runs."""

import json
import math
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import linear_compile  # noqa: E402

from tileir.frontend import parse  # noqa: E402

pytestmark = pytest.mark.xdist_group("docs")


def test_exponent_is_of_the_long_kernels() -> None:
    ops = [100, 1000, 2000, 10000]
    assert linear_compile.exponent(ops, [9.0, *(3e-6 * n**1.5 for n in ops[1:])]) == pytest.approx(1.5)
    assert linear_compile.exponent([100, 200, 400], [1.0, 2.0, 4.0]) == pytest.approx(1), "none is long: all count"


@pytest.mark.parametrize("shape", linear_compile.SHAPES)
def test_shapes_have_about_the_ops_asked_for(shape: str) -> None:
    for size in (100, 800):
        ops = sum(1 for _ in parse(linear_compile.SHAPES[shape](size)).kernels[0].walk())
        assert 0.8 * size < ops < 1.4 * size


def test_runs_and_prints_every_stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shapes = ("chain", "kept", "memory", "loops", "branches")
    files = {"--json": tmp_path / "growth.json", "--svg": tmp_path / "growth.svg"}
    chosen = [x for s in shapes for x in ("--shape", s)]
    status = linear_compile.main(
        [*chosen, "--sizes", "100,400,800", "--repetitions", "1", *(str(x) for kv in files.items() for x in kv)]
    )
    printed = capsys.readouterr().out.split("\n\n")
    data = json.loads(files["--json"].read_text())
    assert [block.split(",")[0] for block in printed] == list(shapes)
    for block, shape in zip(printed, shapes, strict=True):
        head, *rows = block.strip().splitlines()[1:]
        assert head.split()[0] == "ops" and head.split()[-1] == "exponent"
        assert [row.split()[0] for row in rows] == list(linear_compile.stages())
        assert all(len(row.split()) == 5 and all(float(x) >= 0 for x in row.split()[1:4]) for row in rows)
        stages = data["shapes"][shape]["stages"]
        total = stages.pop("total")["seconds"]
        assert total == pytest.approx([sum(s["seconds"][i] for s in stages.values()) for i in range(3)])
    exponents = [f["stages"]["total"]["exponent"] for f in json.loads(files["--json"].read_text())["shapes"].values()]
    assert status == int(max(exponents) > linear_compile.LIMIT)
    picture = ET.parse(files["--svg"]).getroot()
    lines = [e for e in picture.iter() if e.tag.endswith("polyline")]
    assert len(lines) == 6 * len(shapes), "the total and five stages"


def test_a_product_is_timed() -> None:
    ops, seconds = linear_compile.measure(linear_compile.products(30), "gfx950")
    assert ops > 20 and list(seconds) == list(linear_compile.stages()) and min(seconds.values()) > 0


def test_sizes_beyond_the_budget_are_left_out() -> None:
    found = linear_compile.run(["chain"], [30, 60, 10**9], "gfx942", 2, budget=60)["chain"]
    assert found["left_out"] == [10**9] and len(found["ops"]) == 2
    assert math.isfinite(found["stages"]["total"]["exponent"])
    assert "1000000000" in linear_compile.table("chain", found)
