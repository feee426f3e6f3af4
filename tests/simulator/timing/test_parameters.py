"""The frozen parameters of the timing model: typed, all used, and in agreement with the description of the chips."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import tileir.simulator.timing
from tests.simulator.timing.timing_kernels import CHIPS
from tileir.target import UnknownTarget, get, timing_model
from tileir.target.load import DATA_DIRECTORY
from tileir.target.model import EVIDENCE_CLASSES
from tileir.target.timing import FILE_NAME, read_timing_model

SOURCES = Path(tileir.simulator.timing.__file__).parent


def test_every_parameter_is_used() -> None:
    """By name, in the sources of the model."""
    text = "".join(file.read_text("utf-8") for file in sorted(SOURCES.glob("*.py")))
    names = {name for chip in CHIPS for name in timing_model(chip).parameters}
    assert [name for name in sorted(names) if f'"{name}"' not in text] == []


@pytest.mark.parametrize("chip", CHIPS)
def test_parameters_agree_with_the_chip(chip: str) -> None:
    """What the description of the chip also says, as a number, a range or by case, is the same."""
    target, model = get(chip), timing_model(chip)
    both = {
        "valu_clocks": "valu_clocks",
        "permlane_swap_clocks": "permlane_swap_clocks",
        "lds_queue_per_simd_pair": "lds_queue_per_simd_pair",
        "valu_closed_after_mfma": "valu_closed_after_mfma",
    }
    compared = 0
    for name, fact in both.items():
        if fact in target.timing and model.has(name):
            assert target.fact(fact).value == model.number(name)
            compared += 1
    assert compared >= 3
    for name, fact in (("transcendental_clocks", "transcendental_clocks"), ("l2_latency", "l2_latency")):
        low, high = target.fact(fact).value  # type: ignore[misc]
        assert low <= model.number(name) <= high
    low, high = target.fact("lds_latency").value  # type: ignore[misc]
    path = model.number("lds_return_bytes_per_clock")
    for bytes_per_lane in (4, 16):
        assert low <= model.number("lds_latency") + 64 * bytes_per_lane / path <= high
    assert target.fact("vmem_issue_clocks_per_dwordx4").value == 4 * model.number("vmem_issue_clocks_per_dword")
    waits = target.fact("mfma_to_valu_wait_states").value
    for passes, states in waits.items():  # type: ignore[union-attr]
        surcharge = model.clocks("mfma_result_surcharge_passes") if int(passes) > 2 else 0
        assert int(passes) + model.table("mfma_result_extra_passes")["xdl"] + surcharge == states


@pytest.mark.parametrize("chip", CHIPS)
def test_parameters_are_facts(chip: str) -> None:
    model = timing_model(chip)
    assert sum(model.evidence.values()) == len(model.parameters)
    assert set(model.evidence) <= set(EVIDENCE_CLASSES)
    for fact in model.parameters.values():
        assert fact.unit and fact.sources and all(fact.sources)
    with pytest.raises(KeyError, match="no timing parameter 'tea_time'"):
        model.number("tea_time")


def test_unknown_chip() -> None:
    with pytest.raises(UnknownTarget, match="gfx90a"):
        timing_model("gfx90a")


def test_one_name_in_two_sections(tmp_path: Path) -> None:
    shutil.copy(DATA_DIRECTORY / FILE_NAME, tmp_path)
    file = tmp_path / FILE_NAME
    data = json.loads(file.read_text())
    data["gfx942"]["valu_clocks"] = data["cdna"]["valu_clocks"]
    file.write_text(json.dumps(data))
    assert read_timing_model("gfx950", tmp_path).number("valu_clocks") == 4
    with pytest.raises(ValueError, match=r"gfx942\.valu_clocks is also stated in another section"):
        read_timing_model("gfx942", tmp_path)
