"""Writes `ops.py`: one method per op that authors use, from the op registry.

python -m tileir.api.generate_ops            # write
python -m tileir.api.generate_ops --check    # exit status 1 if the committed file is out of date
"""

from __future__ import annotations

import ast
import keyword
import textwrap
from pathlib import Path

from tileir.ir.registry import REQUIRED, AttrSpec, OpDef, all_ops, format_attr

OUT = Path(__file__).with_name("ops.py")

# Written by hand in builder.py, because they are more than a call: control flow, and results that the operands do not tell.
BY_HAND = frozenset("for while if guard yield constant fill program_id num_programs dim".split())

HEAD = '''"""The ops of the tile level as methods, one for each. Generated from the op registry by generate_ops.py; do not edit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from tileir.api.values import Access, Operand, Tile
from tileir.ir.core import Text
from tileir.ir.types import Elem


class Ops:
    """Methods named like the ops (with a trailing underscore where the name is a word of Python). `name` is the name of the
    result in the text; without it the Python variable on the left of `=` gives it. Raises CompileError."""

    def emit_one(
        self, op: str, operands: Sequence[Operand | Access], attrs: dict[str, Any] | None = None, name: str = ""
    ) -> Tile:
        raise NotImplementedError

    def emit_none(self, op: str, operands: Sequence[Operand | Access], attrs: dict[str, Any] | None = None) -> None:
        raise NotImplementedError
'''


def generate() -> str:
    """The text of `ops.py`."""
    ops = [o for o in all_ops().values() if o.level in ("tile", "both") and o.name not in BY_HAND]
    return HEAD + "".join("\n" + _method(o) for o in ops)


def _method(op: OpDef) -> str:
    name = op.name + "_" if keyword.iskeyword(op.name) else op.name
    positional: list[str] = []
    passed: list[str] = []
    for operand in op.operands:
        plain = operand.rstrip("*")
        if operand == "access":
            positional.append("access: Access")
            passed.append("access")
        elif operand.endswith("*"):
            positional.append(f"*{plain}: Operand")
            passed.append(f"*{plain}")
        else:
            positional.append(f"{plain}: Operand")
            passed.append(plain)
    shown = [a for a in op.attrs if a.name != "ids"]  # what only a pass sets
    leading = [a for a in shown if a.positional and not any(p.startswith("*") for p in positional)]
    positional += [f"{a.name}: {_type(a)}" + ("" if a.default is REQUIRED else f" = {_default(a)}") for a in leading]
    rest = [a for a in shown if a not in leading]
    required = [f"{a.name}: {_type(a)}" for a in rest if a.default is REQUIRED]
    optional = [f"{a.name}: {_type(a)} = {_default(a)}" for a in rest if a.default is not REQUIRED]
    has_result = ("write" not in op.effects or "atomic" in op.effects) and op.name not in (
        "assume",
        "print",
        "assert",
        "prefetch",
    )
    named = [*required, *optional, *(['name: str = ""'] if has_result else [])]
    star = [] if not named or any(p.startswith("*") for p in positional) else ["*"]
    arguments = ", ".join(["self", *positional, *star, *named])
    attrs = ", ".join(f'"{a.name}": {_value(a)}' for a in shown)
    call = f'"{op.name}", [{", ".join(passed)}]' + (f", {{{attrs}}}" if attrs or has_result else "")
    summary = "\n        ".join(textwrap.wrap(op.summary.replace("\\", "\\\\"), 105))
    body = f"return self.emit_one({call}, name)" if has_result else f"self.emit_none({call})"
    if has_result and not attrs:
        body = f'return self.emit_one("{op.name}", [{", ".join(passed)}], None, name)'
    result = "Tile" if has_result else "None"
    return f'    def {name}({arguments}) -> {result}:\n        """{summary}"""\n        {body}\n'


def _type(spec: AttrSpec) -> str:
    if spec.choices:
        return "Literal[" + ", ".join(f'"{c}"' for c in spec.choices) + "]"
    return {
        "int": "int",
        "number": "float",
        "bool": "bool",
        "constant": "float",
        "word": "str",
        "text": "str",
        "symbol": "str",
        "elem": "Elem",
        "shape": "Sequence[int]",
        "numbers": "Sequence[float]",
    }[spec.kind]


def _value(spec: AttrSpec) -> str:
    return (
        f"tuple({spec.name})"
        if spec.kind in ("shape", "numbers")
        else f"Text({spec.name})"
        if spec.kind == "text"
        else spec.name
    )


def _default(spec: AttrSpec) -> str:
    if spec.kind == "shape":
        return "()"
    if isinstance(spec.default, str):
        return f'"{spec.default}"'
    return "False" if spec.default is False else "True" if spec.default is True else format_attr(spec.default)


def is_current() -> bool:
    """Whether the committed file says what the registry says (its line breaks are the formatter's)."""
    committed = OUT.read_text(encoding="utf-8")
    return ast.dump(ast.parse(committed)) == ast.dump(ast.parse(generate()))


if __name__ == "__main__":
    OUT.write_text(generate(), encoding="utf-8")
