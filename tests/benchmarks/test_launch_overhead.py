"""What a warm launch costs the caller stays below its aim."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "launch_overhead.py"


def test_a_warm_launch_stays_below_the_aim(tmp_path: Path) -> None:
    """By processor time of the thread, so that other work on the machine does not count."""
    command = [sys.executable, str(SCRIPT), "--calls", "500", "--repeats", "9", "--json", str(tmp_path / "out.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "out.json").read_text())
    assert len(found) == 3 and all(0.5 < f["least"] <= f["median"] < 20 for f in found.values())
    assert "launch overhead in µs, processor time, aim below 20" in done.stdout
