"""What the programs of a campaign contained: ops, element types, control flow, schedules."""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from tileir.fuzz.execute import Case
from tileir.ir.core import Kernel, Op
from tileir.ir.registry import all_ops
from tileir.ir.types import GlobalType, TileType
from tileir.records import dataclass

CONTROL = ("for", "while", "if", "guard")


@dataclass
class Coverage:
    """Programs that contain something, by group and by what it is."""

    groups: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])

    @staticmethod
    def of(kernel: Kernel, case: Case) -> Coverage:
        """What one program contains."""
        found: dict[str, set[str]] = {name: set() for name in ("ops", "elements", "control", "schedule", "shapes")}
        for op in kernel.walk():
            found["ops"].add(op.name)
            for v in op.results:
                if isinstance(v.type, TileType):
                    found["elements"].add(v.type.elem.name)
                    found["shapes"].add(f"rank {v.type.rank}")
            _control(op, found["control"])
        for a in kernel.args:
            if isinstance(a.type, GlobalType):
                found["elements"].add(a.type.elem.name)
                found["shapes"].add("strides" if a.type.strides is not None else "dense views")
        if 0 in case.sizes.values():
            found["shapes"].add("a dimension of 0")
        found["schedule"].add(f"waves {kernel.attrs.get('waves', 'open')}")
        for directive in {d for s in case.schedules for d in s.directives}:
            settings = [v for k, v in directive.settings if k in ("pattern", "path", "depth", "swapped")]
            found["schedule"].add(" ".join([directive.kind, *map(str, settings)]))
        if case.boundaries:
            found["schedule"].add("interpreted after every pass")
        return Coverage({group: Counter(sorted(names)) for group, names in found.items()})

    def add(self, other: Coverage) -> None:
        """Adds the counts of another."""
        for group, counts in other.groups.items():
            self.groups.setdefault(group, Counter()).update(counts)

    def table(self) -> dict[str, dict[str, int] | list[str]]:
        """Counts by group, the most frequent first, and the ops that authors may write but no program held."""
        out = {
            g: dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))) for g, counts in self.groups.items()
        }
        missing = [
            name for name, op in all_ops().items() if op.level != "wave" and name not in self.groups.get("ops", {})
        ]
        return {**out, "ops without a program": sorted(missing)}


def _control(op: Op, found: set[str]) -> None:
    """Control flow, and which stands in which."""
    if op.name not in CONTROL:
        return
    found.add(op.name)
    for region in op.regions:
        for inner in region.ops:
            if inner.name in CONTROL:
                found.add(f"{inner.name} in {op.name}")
