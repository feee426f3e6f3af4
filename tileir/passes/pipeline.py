"""The order of the passes. Each step is a pass with a label that is unique even where a pass runs again."""

from __future__ import annotations

import importlib
from functools import cache

from tileir.passes.base import Pass
from tileir.records import dataclass

ORDER = (
    "specialise",
    "expand-ops",
    "accumulate-products",
    "simplify",
    "split-loops",
    "narrow-loops",
    "split-access",
    "place-memory",
    "assign-layouts",
    "simplify",
    "rematerialise",
    "lower-conversions",
    "settle-guards",
    "defer-lanes",
    "rotate-loops",
    "transposing-reads",
    "layout-lds",
    "register-files",
    "pipeline-loops",
    "weave-blocks",
    "allocate-lds",
    "order-grid",
    "simplify",
    "bound-registers",
    "order-atomics",
    "synchronise",
)


@dataclass(frozen=True)
class Step:
    """One place in the pipeline."""

    label: str
    pass_: Pass


@cache
def pipeline() -> tuple[Step, ...]:
    """All steps in order; the modules of the passes are imported on first use."""
    seen: dict[str, int] = {}
    steps: list[Step] = []
    for name in ORDER:
        module = f"tileir.passes.{name.replace('-', '_')}"
        seen[name] = seen.get(name, 0) + 1
        label = name if seen[name] == 1 else f"{name}-{seen[name]}"
        steps.append(Step(label, importlib.import_module(module).PASS))
    return tuple(steps)
