"""A CPU simulator of AMD CDNA3 and CDNA4 machine code. It reads code objects and knows nothing of their compiler."""

from tileir.simulator.faults import SimulatorError, SimulatorFault, Statistics
from tileir.simulator.launch import Module, Simulator
from tileir.simulator.memory import Allocation, Memory

__all__ = ["Allocation", "Memory", "Module", "Simulator", "SimulatorError", "SimulatorFault", "Statistics"]
