"""The comparison with other tile languages is complete and tells the truth."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import generate  # noqa: E402  # pyright: ignore[reportMissingImports]

from tileir.ir.registry import all_ops  # noqa: E402

pytestmark = pytest.mark.xdist_group("docs")
LANGUAGES = ("cuda_tile", "tt", "tl")
# A name of each family of CUDA Tile IR, so that a list that lost a part is noticed.
SAMPLES = "absf atomic_cas_tko break cat get_tile_block_id loop make_token mmaf_scaled offset pack print_tko reduce scan yield".split()


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_name_has_an_op_or_a_reason(language: str) -> None:
    part: dict[str, Any] = generate.coverage()[language]
    assert "http" in part["source"] or "Triton" in part["source"]
    for name, entry in part["entries"].items():
        assert generate.covered(entry) or entry.get("gap"), f"{name} has neither ops that exist nor a reason"
        if not entry.get("gap"):
            assert all(op in all_ops() for op in entry.get("ops", [])), name
        assert set(entry) <= {"ops", "note", "gap", "language"}, name


def test_the_list_of_cuda_tile_is_whole() -> None:
    entries = generate.coverage()["cuda_tile"]["entries"]
    assert len(entries) == 100 and all(name in entries for name in SAMPLES)


def test_the_names_of_triton_are_those_of_the_installed_one() -> None:
    python = os.environ.get("TILEIR_TRITON_PYTHON")
    if not python:
        pytest.skip("TILEIR_TRITON_PYTHON names no Python with Triton")
    script = "import json, triton, triton.language as tl; print(json.dumps([triton.__version__, sorted(tl.__all__)]))"
    version, names = json.loads(subprocess.run([python, "-c", script], check=True, capture_output=True).stdout)
    part = generate.coverage()["tl"]
    if version not in part["source"]:
        pytest.skip(f"the list is of another version than {version}")
    assert sorted([*part["entries"], *part["left_out"]]) == names
