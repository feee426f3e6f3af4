"""Reading the data files: JSON to the typed `Target`, once per chip and process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from tileir.target.model import Fact, FactValue, LdsAccess, Mfma, Product, Target, UnknownTarget

DATA_DIRECTORY = Path(__file__).parent
CHIPS = ("gfx942", "gfx950")

Json = dict[str, Any]


def names() -> tuple[str, ...]:
    """Names of all targets, in a fixed order."""
    return CHIPS


def get(name: str) -> Target:
    """The target called `name`; raises `UnknownTarget` (a KeyError that lists the legal names) otherwise."""
    if name not in CHIPS:
        raise UnknownTarget(name, CHIPS)
    return _load(name)


@cache
def _load(name: str) -> Target:
    return build_target(read_data(name))


def read_data(name: str, directory: Path = DATA_DIRECTORY) -> Json:
    """The data of chip `name` with what it extends merged in (one level, per section); chip entries win."""
    data = cast(Json, json.loads((directory / f"{name}.json").read_text("utf-8")))
    base = cast(Json, json.loads((directory / f"{data['extends']}.json").read_text("utf-8")))
    merged: Json = dict(base)
    for section, entries in data.items():
        merged[section] = {**base[section], **entries} if section in base else entries
    return merged


def _frozen_value(value: Any) -> FactValue:
    if isinstance(value, list):
        return tuple(cast(list[int], value))
    if isinstance(value, dict):
        return MappingProxyType(cast(dict[str, int], value))
    return cast(FactValue, value)


def parse_lanes(text: str) -> tuple[int, ...]:
    """Lane numbers of a range list such as `0-3,20-23`."""
    lanes: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        lanes.extend(range(int(first), int(last or first) + 1))
    return tuple(lanes)


def build_target(data: Json) -> Target:
    """A `Target` from merged data (see `read_data`); KeyError when a fact that `Target` names is missing."""
    citations = cast(dict[str, str], data["sources"])

    def cite(entry: Json) -> tuple[str, ...]:
        return tuple(citations[key] for key in str(entry["source"]).split())

    def fact_table(section: str) -> Mapping[str, Fact]:
        return MappingProxyType(
            {
                key: Fact(
                    key, _frozen_value(e["value"]), e.get("unit", ""), cite(e), str(e["evidence"]), e.get("note", "")
                )
                for key, e in cast(dict[str, Json], data[section]).items()
            }
        )

    def value_table(section: str) -> Mapping[str, Any]:
        return MappingProxyType({k: _frozen_value(e["value"]) for k, e in cast(dict[str, Json], data[section]).items()})

    facts = fact_table("facts")
    pass_clocks = cast(int, facts["mfma_pass_clocks"].value)
    mfmas = tuple(
        Mfma(
            name=e["name"],
            intrinsic=e["intrinsic"],
            m=e["m"],
            n=e["n"],
            k=e["k"],
            blocks=e["blocks"],
            a=tuple(e["a"]),
            b=tuple(e["b"]),
            c=e["c"],
            passes=e["passes"],
            passes_narrow=e.get("passes_narrow", e["passes"]),
            pass_clocks=pass_clocks,
            sparse=e.get("sparse", False),
            scaled=e.get("scaled", False),
            math=e.get("math", ""),
            sources=cite(e),
            evidence=e["evidence"],
        )
        for e in cast(list[Json], data["mfma"])
    )
    lds = tuple(
        LdsAccess(
            op=e["op"],
            direction=e["direction"],
            bytes_per_lane=e["bytes_per_lane"],
            addresses_per_lane=e.get("addresses_per_lane", 1),
            banks=e["banks"],
            bank_bytes=cast(int, facts["lds_address_granule"].value),
            lane_groups=tuple(parse_lanes(g) for g in e["lane_groups"]),
            subspace=tuple(e["subspace"]),
            sources=cite(e),
            evidence=e["evidence"],
        )
        for e in cast(list[Json], data["lds_access"])
    )
    products = tuple(
        Product(key, e["hbm_bytes_per_second"], e["hbm_bytes"], cite(e), e["evidence"])
        for key, e in cast(dict[str, Json], data["products"]).items()
    )
    by_name: dict[str, Mfma] = {}
    for instruction in mfmas:  # a later, scaled form takes over the shared intrinsic on purpose
        by_name[instruction.name] = instruction
        by_name[instruction.intrinsic] = instruction
        by_name[instruction.rocdl] = instruction
    given: dict[str, Any] = {
        "name": data["name"],
        "facts": facts,
        "timing": fact_table("timing"),
        "features": value_table("features"),
        "element_bits": value_table("element_bits"),
        "element_uses": value_table("element_uses"),
        "mfmas": mfmas,
        "lds_accesses": lds,
        "products": products,
        "peak_flops": fact_table("peak_flops"),
        "mfma_by_name": MappingProxyType(by_name),
        "lds_access_by_op": MappingProxyType({a.op: a for a in lds}),
    }
    for field in fields(Target):
        if field.name not in given:
            given[field.name] = facts[field.name].value
    return Target(**given)
