"""Canonical text of an expression: the fewest parentheses, one space around infix operators."""

from __future__ import annotations

from tileir.frontend.parser import Node

_LEVELS: dict[str, tuple[str, int]] = {
    "or": ("|", 0),
    "xor": ("^", 1),
    "and": ("&", 2),
    "eq": ("==", 3),
    "ne": ("!=", 3),
    "lt": ("<", 3),
    "le": ("<=", 3),
    "gt": (">", 3),
    "ge": (">=", 3),
    "shl": ("<<", 4),
    "shr": (">>", 4),
    "add": ("+", 5),
    "sub": ("-", 5),
    "mul": ("*", 6),
    "div": ("/", 6),
}
_UNARY = {"neg": "-", "not": "!"}


def expression_text(node: Node, outer: int = 0) -> str:
    """The text of a compile-time expression that was found to be well formed."""
    if node.kind in _LEVELS:
        sign, level = _LEVELS[node.kind]
        left = level + 1 if level == 3 else level  # comparisons do not associate
        a, b = expression_text(node.children[0], left), expression_text(node.children[1], level + 1)
        return f"({a} {sign} {b})" if level < outer else f"{a} {sign} {b}"
    if node.kind in _UNARY:
        return f"{_UNARY[node.kind]}{expression_text(node.children[0], 7)}"
    if node.kind == "call":
        operands = node.children[2].children if node.children[2] is not None else []
        return f"{node.children[0].text}({', '.join(expression_text(o) for o in operands)})"
    return node.text or node.kind
