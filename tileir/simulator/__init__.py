"""A CPU simulator of AMD CDNA3 and CDNA4 machine code. It reads code objects and knows nothing of their compiler.

The names below load the engine, and with it numpy and llvmlite, when they are first used: the decoder and the static
report (`tileir.simulator.inspect`) do without.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tileir.simulator.faults import Finding, Party, SimulatorError, SimulatorFault, Statistics
    from tileir.simulator.launch import Module, Simulator
    from tileir.simulator.memory import Allocation, Memory
    from tileir.simulator.timing.estimate import TimeOptions, estimate
    from tileir.simulator.timing.result import Timing

__all__ = [
    "Allocation",
    "Finding",
    "Memory",
    "Module",
    "Party",
    "Simulator",
    "SimulatorError",
    "SimulatorFault",
    "Statistics",
    "TimeOptions",
    "Timing",
    "estimate",
]

_HOMES = {
    "Allocation": "memory",
    "Finding": "faults",
    "Memory": "memory",
    "Module": "launch",
    "Party": "faults",
    "Simulator": "launch",
    "SimulatorError": "faults",
    "SimulatorFault": "faults",
    "Statistics": "faults",
    "TimeOptions": "timing.estimate",
    "Timing": "timing.result",
    "estimate": "timing.estimate",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
