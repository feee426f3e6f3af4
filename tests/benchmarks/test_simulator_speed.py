"""The benchmark of the simulator's speed: that it runs, and coarse bounds that hold on a loaded machine."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import simulator_speed  # noqa: E402

pytestmark = pytest.mark.xdist_group("docs")


@pytest.mark.parametrize("chip", simulator_speed.CHIPS)
def test_bounds(chip: str) -> None:
    """The bars are 1 s, 50 and 10; the seconds leave room for other work on the machine, the ratios are of one run."""
    result = simulator_speed.measure(chip, 1024, 2)
    assert result["functional_seconds"] < 5
    assert result["specification_ratio"] >= 50 and result["specification_share"] > 0.5
    assert set(simulator_speed.CHECKS) <= set(result["ratios"])
    assert all(ratio <= (20 if name == "time" else 10) for name, ratio in result["ratios"].items()), result["ratios"]
    text = simulator_speed.table(result)
    assert chip in text and "--check all" in text


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "speed.json"
    assert simulator_speed.main(["--size", "128", "--repetitions", "1", "--chip", "gfx950", "--json", str(out)]) == 0
    (result,) = json.loads(out.read_text())
    assert result["size"] == 128 and "gfx950, 128 x 128 x 128 bf16" in capsys.readouterr().out
