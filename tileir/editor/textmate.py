"""The TextMate grammar of editors/tile.tmLanguage.json, from the grammar and the op registry.

python -m tileir.editor.textmate
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tileir.editor import words

OUT = Path(__file__).resolve().parents[2] / "editors" / "tile.tmLanguage.json"


def _any(names: Iterable[str]) -> str:
    return r"\b(" + "|".join(names) + r")\b"


def grammar() -> dict[str, object]:
    """The grammar as TextMate wants it; scopes are the conventional ones, so that every theme colours them."""
    rules = [
        ("comment.line.double-slash.tile", r"//.*$"),
        ("string.quoted.double.tile", r'"([^"\\]|\\.)*"'),
        ("variable.other.tile", r"%\w+"),
        ("entity.name.function.tile", r"@\w+"),
        ("storage.type.element.tile", _any(words.elements())),
        ("storage.type.space.tile", _any(words.SPACES) + r"(?=\s*<)"),
        ("constant.language.tile", _any(words.CONSTANTS)),
        ("keyword.declaration.tile", _any(words.DECLARATIONS)),
        ("keyword.control.tile", _any(words.CONTROL)),
        ("support.function.op.tile", _any(words.ops()) + r"(?=\s*[(<])"),
        ("keyword.control.directive.tile", r"^\s*" + _any(words.DIRECTIVES)),
        ("keyword.other.tile", _any(words.modifiers())),
        ("constant.numeric.shape.tile", r"\b\d+(\s*x\s*\d+)+\b"),
        ("constant.numeric.tile", r"\b\d+(\.\d*)?([eE][+-]?\d+)?"),
        ("variable.parameter.tile", r"\b[A-Z]\w*"),
        ("variable.other.attribute.tile", r"\b[a-z]\w*(?=\s*=(?!=))"),
        ("keyword.operator.tile", r"\+:|==|!=|<=|>=|<<|>>|[-+*/|^&<>!=]"),
    ]
    return {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": "TileIR",
        "scopeName": "source.tile",
        "fileTypes": ["tile"],
        "patterns": [{"name": name, "match": match} for name, match in rules],
    }


def text() -> str:
    """The file, byte by byte."""
    return json.dumps(grammar(), indent=2) + "\n"


if __name__ == "__main__":
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(text(), encoding="utf-8")
