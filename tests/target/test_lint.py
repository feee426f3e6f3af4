"""The lint passes on the package and fails on every kind of mutated copy."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tileir.target.lint import lint
from tileir.target.load import DATA_DIRECTORY

Mutation = Callable[[dict[str, Any]], None]


@pytest.fixture
def copy_of_data(tmp_path: Path) -> Path:
    shutil.copytree(DATA_DIRECTORY, tmp_path / "target", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "target"


def test_the_package_is_clean() -> None:
    assert lint() == []


def _product(data: dict[str, Any]) -> None:
    del data["products"][min(data["products"])]["source"]


def _delete(section: str, key: str, field: str) -> Mutation:
    def mutate(data: dict[str, Any]) -> None:
        del data[section][key][field]

    return mutate


def _assign(section: str, key: str, value: Any) -> Mutation:
    def mutate(data: dict[str, Any]) -> None:
        data[section][key] = value

    return mutate


def _row(section: str, field: str, value: Any) -> Mutation:
    def mutate(data: dict[str, Any]) -> None:
        if value is None:
            del data[section][3][field]
        else:
            data[section][3][field] = value

    return mutate


MUTATIONS: list[tuple[str, Mutation, str]] = [
    ("no source", _delete("facts", "lds_bytes", "source"), "facts.lds_bytes: no source"),
    ("no evidence", _delete("facts", "lds_bytes", "evidence"), "facts.lds_bytes: evidence must be one of"),
    ("bare number", _assign("facts", "lds_bytes", 65536), "facts.lds_bytes: number 65536 without source"),
    ("bare value", _assign("facts", "lds_bytes", {"value": True}), "facts.lds_bytes: a value without source"),
    (
        "unknown evidence",
        _assign("facts", "lds_bytes", {"value": 1, "source": "llvm-usage", "evidence": "believed"}),
        "facts.lds_bytes: evidence must be one of",
    ),
    (
        "unlisted source",
        _assign("facts", "lds_bytes", {"value": 1, "source": "hearsay", "evidence": "measured"}),
        "source 'hearsay' is not listed",
    ),
    (
        "stated twice",
        _assign("facts", "wave_size", {"value": 64, "source": "llvm-usage", "evidence": "documented"}),
        "facts.wave_size: also stated in cdna.json",
    ),
    ("dead citation", _assign("sources", "nobody", "A book"), "sources.nobody: cited by no fact"),
    ("mfma row", _row("mfma", "evidence", None), "evidence must be one of"),
    ("product", _product, "no source"),
    ("lds row", _row("lds_access", "source", None), "no source"),
]


@pytest.mark.parametrize("chip", ["gfx942", "gfx950"])
@pytest.mark.parametrize(("label", "mutate", "message"), MUTATIONS, ids=[m[0] for m in MUTATIONS])
def test_mutated_data_fails(copy_of_data: Path, chip: str, label: str, mutate: Mutation, message: str) -> None:
    file = copy_of_data / f"{chip}.json"
    data = json.loads(file.read_text())
    mutate(data)
    file.write_text(json.dumps(data))
    findings = lint(copy_of_data)
    assert any(f.startswith(f"{chip}.json: ") and message in f for f in findings), findings


def test_repeated_key_fails(copy_of_data: Path) -> None:
    file = copy_of_data / "gfx950.json"
    file.write_text(file.read_text().replace('"facts": {', '"facts": {"x": {}, "x": {},', 1))
    assert "gfx950.json: key 'x' stands twice in one object" in lint(copy_of_data)


@pytest.mark.parametrize("line", ["LDS = 65536", "def f(x: int) -> int:\n    return x * 64", "HALF = 0.5"])
def test_hardware_literal_in_python_fails(copy_of_data: Path, line: str) -> None:
    file = copy_of_data / "load.py"
    file.write_text(file.read_text() + "\n" + line + "\n")
    assert any(f.startswith("load.py:") and "belongs in the data" in f for f in lint(copy_of_data))


def test_command_line(copy_of_data: Path) -> None:
    command = [sys.executable, "-m", "tileir.target.lint"]
    clean = subprocess.run(command, capture_output=True, text=True)
    assert (clean.returncode, clean.stdout) == (0, "target lint: 0 findings\n")
    file = copy_of_data / "cdna.json"
    file.write_text(file.read_text().replace('"evidence"', '"certainty"', 1))
    broken = subprocess.run([*command, str(copy_of_data)], capture_output=True, text=True)
    assert broken.returncode == 1 and "cdna.json: facts.simds_per_cu" in broken.stdout
