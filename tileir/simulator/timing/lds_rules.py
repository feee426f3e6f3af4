"""How the LDS serves each instruction, for the recorder: banks and lane groups from the description of the target."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tileir.records import dataclass
from tileir.simulator.decoder import Instruction
from tileir.simulator.inspect.classify import width
from tileir.simulator.timing import layout
from tileir.target import LdsAccess, Target

_RULE = np.dtype(
    [("banks", "<i4"), ("groups", "<i4"), ("atomic", "<i4"), ("spare", "<i4"), ("group_of_lane", "u1", 64)]
)
assert _RULE.itemsize == layout.RULE_BYTES
_ACROSS = ("ds_bpermute", "ds_permute", "ds_swizzle")
"""Instructions that use the paths of the LDS and not its memory."""
_LIKE_WRITES = {1: "ds_write_b32", 2: "ds_write_b64", 3: "ds_write_b96", 4: "ds_write_b128"}


@dataclass(frozen=True)
class Rule:
    """Rule ``number`` of the packed table. least_clocks: LDS clocks of an instruction without conflicts."""

    number: int
    least_clocks: int
    bytes_per_lane: int
    write: bool


class LdsRules:
    """The rules that the instructions of a program need.

    Instructions that the description does not list (atomics, those that move data across lanes, ``flat`` accesses) are
    served like the write of the same width (assumed).
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._rules: dict[tuple[str, bool], Rule] = {}
        self._packed: list[tuple[int, int, int, int, list[int]]] = []

    def of(self, inst: Instruction) -> Rule | None:
        """The rule for an instruction, or None when it does not use the LDS."""
        name = inst.name
        to_lds = bool(inst.modifiers.get("lds")) or "_load_lds_" in name
        if inst.encoding not in ("ds", "flat") and not to_lds:
            return None
        listed = f"{name}_lds" if inst.modifiers.get("lds") else name
        atomic = not (to_lds or name.startswith(("ds_read", "ds_write", *_ACROSS)) or inst.encoding == "flat")
        if listed not in self._target.lds_access_by_op:
            bytes_per_lane = max(width(name), _atomic_bytes(name)) if inst.encoding in ("ds", "flat") else width(name)
            listed = _LIKE_WRITES[min(4, max(1, -(-bytes_per_lane // 4)))]
        return self._rule(listed, atomic)

    def _rule(self, listed: str, atomic: bool) -> Rule:
        if (listed, atomic) not in self._rules:
            access = self._target.lds_access(listed)
            self._packed.append(_pack(access, atomic))
            clocks = len(access.lane_groups) * access.addresses_per_lane
            self._rules[listed, atomic] = Rule(
                len(self._rules), clocks, access.bytes_per_lane, access.direction == "write"
            )
        return self._rules[listed, atomic]

    def packed(self) -> NDArray[np.void]:
        """The rules as native code reads them."""
        out = np.zeros(max(1, len(self._packed)), _RULE)
        for i, (banks, groups, atomic, spare, lanes) in enumerate(self._packed):
            out[i] = (banks, groups, atomic, spare, lanes)
        return out


def _atomic_bytes(name: str) -> int:
    return 8 if "64" in name or name.endswith("_x2") else 4


def _pack(access: LdsAccess, atomic: bool) -> tuple[int, int, int, int, list[int]]:
    group_of_lane = [0] * 64
    for number, group in enumerate(access.lane_groups):
        for lane in group:
            group_of_lane[lane] = number
    assert len(access.lane_groups) * access.addresses_per_lane <= layout.MAX_SLOTS
    return access.banks, len(access.lane_groups), int(atomic), 0, group_of_lane
