"""Declarations of all ops, one module per family; importing the package registers them."""

from tileir.ir.ops import (
    atomic,
    contract,
    control,
    create,
    elementwise,
    fragments,
    lanes,
    memory,
    packing,
    program,
    random,
    reduce,
    report,
    scan,
    shape,
    wave,
)

__all__ = [
    "atomic",
    "contract",
    "control",
    "create",
    "elementwise",
    "fragments",
    "lanes",
    "memory",
    "packing",
    "program",
    "random",
    "reduce",
    "report",
    "scan",
    "shape",
    "wave",
]
