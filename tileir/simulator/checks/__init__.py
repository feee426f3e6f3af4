"""Checks of what a kernel gets away with in one execution and hardware may punish.

``race``     accesses of LDS and device memory by several waves or workgroups that nothing orders
``wait``     use of a result, or of LDS, before a wait has covered the operation that writes it; always on
``bounds``   accesses outside every allocation, LDS or scratch, of read-only memory, or misaligned; always on
``uninit``   reads of registers, LDS and memory that nothing has written
``barrier``  unequal numbers of barriers: waves that wait where others have ended (a fault without this check)
``hazard``   missing wait states between instructions

What is always on stops the kernel with a fault, because nothing that comes after can be trusted. The others note
findings and let the kernel go on.
"""

from __future__ import annotations

from tileir.simulator.faults import SimulatorError

RACE, WAIT, BOUNDS, UNINIT, BARRIER, HAZARD = "race", "wait", "bounds", "uninit", "barrier", "hazard"
CHECKS = (RACE, WAIT, BOUNDS, UNINIT, BARRIER, HAZARD)
ALWAYS = frozenset((WAIT, BOUNDS))


def parse(text: str) -> frozenset[str]:
    """The checks on request that a comma-separated list names; ``"all"`` stands for every one, ``""`` for none.

    ``wait`` and ``bounds`` may be named; they are on in any case. Raises SimulatorError for an unknown name.
    """
    names = {name.strip() for name in text.split(",")} - {""}
    unknown = sorted(names - {*CHECKS, "all"})
    if unknown:
        raise SimulatorError(f"there is no check '{unknown[0]}'; legal are all, {', '.join(CHECKS)}")
    return (frozenset(CHECKS) if "all" in names else frozenset(names)) - ALWAYS
