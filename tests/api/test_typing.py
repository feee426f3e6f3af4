"""The types of the public interface: pyright in strict mode accepts a user's program, and rejects wrong ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

RIGHT = """
import numpy as np

import tileir
from tileir import KernelBuilder, Tile, bf16, cdiv, f32, span, symbol


def scaled(k: KernelBuilder, x: Tile, factor: float) -> Tile:
    return k.where(x > 0, x * factor, -x)


k = KernelBuilder("scale")
X, Y = k.view("X", f32, ["N"]), k.view("Y", bf16, ["N"])
k.grid(cdiv(symbol("N"), 64))
(i,) = k.program_id()
x = k.load(X[span(i * 64, 64)])
with k.for_(0, 4, y=x) as loop:
    loop.yield_(scaled(k, loop.y, 2.0))
k.store(loop.result.convert(bf16), Y[span(i * 64, 64)])
compiled = tileir.compile(k, "gfx950")
binding = compiled.launch(X=np.zeros(100, np.float32), Y=np.zeros(100, bf16.np))
text: str = compiled.asm
image: bytes = compiled.hsaco
count: int = binding.symbols["N"]
try:
    tileir.compile("tileir 1", "gfx950")
except tileir.CompileError as e:
    for d in e.diagnostics:
        where: tuple[str, int] = (d.loc.file, d.loc.line)
"""

WRONG = """
import tileir
from tileir import KernelBuilder, f32

k = KernelBuilder("k")
X = k.view("X", "f32", [4])
x = k.load(X[0:4])
y = k.exp("x")
z = k.mma(x, x, swap=True)
t = tileir.compile(k)
k.load(x)
"""


def pyright(path: Path) -> list[tuple[int, str]]:
    """(line, rule) of every error in a file, checked strictly."""
    (path.parent / "pyrightconfig.json").write_text(
        json.dumps({"typeCheckingMode": "strict", "extraPaths": [str(ROOT)], "include": [path.name]})
    )
    run = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(path.parent)],
        capture_output=True,
        text=True,
    )
    found = json.loads(run.stdout)["generalDiagnostics"]
    return [(d["range"]["start"]["line"] + 1, d.get("rule", "")) for d in found if d["severity"] == "error"]


@pytest.mark.parametrize("text", [RIGHT])
def test_strict_mode_accepts(tmp_path: Path, text: str) -> None:
    path = tmp_path / "user.py"
    path.write_text(text)
    assert pyright(path) == []


def test_strict_mode_rejects(tmp_path: Path) -> None:
    path = tmp_path / "user.py"
    path.write_text(WRONG)
    assert {line for line, _ in pyright(path)} >= {6, 8, 9, 10, 11}


def test_the_example_is_typed(tmp_path: Path) -> None:
    path = tmp_path / "array_dsl.py"
    path.write_text((ROOT / "examples/array_dsl.py").read_text(encoding="utf-8"), encoding="utf-8")
    assert pyright(path) == []
