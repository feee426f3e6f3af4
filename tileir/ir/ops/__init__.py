"""Declarations of all ops, one module per family; importing the package registers them."""

from tileir.ir.ops import contract, control, create, elementwise, fragments, lanes, memory, program, random, reduce, shape, wave

__all__ = [
    "contract",
    "control",
    "create",
    "elementwise",
    "fragments",
    "lanes",
    "memory",
    "program",
    "random",
    "reduce",
    "shape",
    "wave",
]
