"""Checks of what a kernel gets away with in one execution and hardware may punish: races, reads of never-written
registers and memory, missing MFMA wait states, unequal barrier counts."""

from __future__ import annotations

from tileir.simulator.faults import SimulatorError

RACE, UNINIT, HAZARD, BARRIER = "race", "uninit", "hazard", "barrier"
CHECKS = (RACE, UNINIT, HAZARD, BARRIER)


def parse(text: str) -> frozenset[str]:
    """The checks that a comma-separated list names; ``"all"`` stands for every one, ``""`` for none."""
    names = {name.strip() for name in text.split(",")} - {""}
    unknown = sorted(names - {*CHECKS, "all"})
    if unknown:
        raise SimulatorError(f"there is no check '{unknown[0]}'; legal are all, {', '.join(CHECKS)}")
    return frozenset(CHECKS) if "all" in names else frozenset(names)
