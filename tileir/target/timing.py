"""Parameters of the timing model: one frozen file, `timing_model.json`, each number with its source and evidence class.

Parameters of a chip come from the sections `cdna`, `memory` and the chip's own, which have no name in common. They are
frozen before kernels are tuned against them: whoever changes one raises `version`, and reports results under both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from tileir.records import dataclass
from tileir.target.load import CHIPS, DATA_DIRECTORY
from tileir.target.model import Fact, FactValue, UnknownTarget

FILE_NAME = "timing_model.json"
SHARED_SECTIONS = ("cdna", "memory")

Json = dict[str, Any]


@dataclass(frozen=True, eq=False)
class TimingModel:
    """The parameters of one chip. `version` names the state of the file that results are reported under."""

    chip: str
    version: str
    parameters: Mapping[str, Fact]

    def number(self, name: str) -> float:
        """A parameter that is one number; KeyError for a name that the file has not."""
        return float(cast(float, self._fact(name).value))

    def clocks(self, name: str) -> int:
        """A parameter that counts clocks, passes or pieces: a whole number."""
        return int(self.number(name))

    def table(self, name: str) -> Mapping[str, float]:
        """A parameter that has one number per case."""
        return cast(Mapping[str, float], self._fact(name).value)

    def has(self, name: str) -> bool:
        """Whether the chip has the parameter: some instructions exist on one chip only."""
        return name in self.parameters

    def _fact(self, name: str) -> Fact:
        if name not in self.parameters:
            raise KeyError(f"{self.chip} has no timing parameter '{name}'")
        return self.parameters[name]

    @property
    def evidence(self) -> Mapping[str, int]:
        """How many parameters there are of each evidence class."""
        counts: dict[str, int] = {}
        for fact in self.parameters.values():
            counts[fact.evidence] = counts.get(fact.evidence, 0) + 1
        return counts


@cache
def timing_model(chip: str) -> TimingModel:
    """The timing parameters of a chip; raises `UnknownTarget` for a name that is none."""
    if chip not in CHIPS:
        raise UnknownTarget(chip, CHIPS)
    return read_timing_model(chip, DATA_DIRECTORY)


def packs_under_products(chip: str) -> bool:
    """Whether packed f32 instructions issue beside a matrix instruction, as single ones do."""
    return timing_model(chip).clocks("packed_f32_under_mfma") > 0


def read_timing_model(chip: str, directory: Path) -> TimingModel:
    """The timing parameters of a chip from the file in a directory; ValueError when two sections state one name."""
    data = cast(Json, json.loads((directory / FILE_NAME).read_text("utf-8")))
    citations = cast(dict[str, str], data["sources"])
    facts: dict[str, Fact] = {}
    for section in (*SHARED_SECTIONS, chip):
        for name, entry in cast(dict[str, Json], data[section]).items():
            if name in facts:
                raise ValueError(f"{FILE_NAME}: {section}.{name} is also stated in another section")
            value = entry["value"]
            facts[name] = Fact(
                name,
                MappingProxyType(cast(dict[str, int], value)) if isinstance(value, dict) else cast(FactValue, value),
                str(entry["unit"]),
                tuple(citations[key] for key in str(entry["source"]).split()),
                str(entry["evidence"]),
                str(entry.get("note", "")),
            )
    return TimingModel(chip, str(data["version"]), MappingProxyType(facts))
