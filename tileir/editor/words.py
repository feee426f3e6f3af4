"""The words of the language, from the grammar and the op registry, for highlighting and completion."""

from __future__ import annotations

from functools import cache

from tileir.frontend.parser import table
from tileir.ir.registry import all_ops
from tileir.ir.types import ELEMS

DECLARATIONS = ("tileir", "kernel", "schedule", "const", "type")
CONTROL = ("for", "while", "do", "if", "else", "guard", "yield", "carry", "to", "step")
CONSTANTS = ("inf", "nan", "true", "false")
SPACES = ("global", "tile", "shared", "fragment")
DIRECTIVES = ("waves", "mma", "stage", "loop", "order", "registers", "pin")


@cache
def keywords() -> tuple[str, ...]:
    """Every word that the grammar itself uses, sorted."""
    return tuple(sorted(text for text in table().literals if text.isalpha()))


@cache
def modifiers() -> tuple[str, ...]:
    """Keywords that are neither declarations, control flow, constants, spaces of memory nor directives: `grid`, `when`, …"""
    others = {*DECLARATIONS, *CONTROL, *CONSTANTS, *SPACES, *DIRECTIVES}
    return tuple(w for w in keywords() if w not in others)


@cache
def ops() -> tuple[str, ...]:
    """Every op that is called by its name, sorted."""
    return tuple(sorted(name for name, op in all_ops().items() if not op.regions and name != "yield"))


@cache
def elements() -> tuple[str, ...]:
    """Element types, longer names first, so that a pattern of alternatives finds the whole name."""
    return tuple(sorted(ELEMS, key=lambda n: (-len(n), n)))
