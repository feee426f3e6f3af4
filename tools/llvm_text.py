"""Reading LLVM's lines of AMDGPU assembly: mnemonic, operands, modifiers (development only)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

ARRAYS = ("op_sel", "op_sel_hi", "neg_lo", "neg_hi", "neg")


def split_text(text: str, whole: bool) -> tuple[str, list[str], list[str]]:
    """Mnemonic, operands and modifiers of an LLVM line; ``whole``: everything is one operand."""
    mnemonic, _, rest = text.partition(" ")
    rest = rest.strip()
    if whole:
        return mnemonic, [rest], []
    parts: list[str] = []
    depth = 0
    current = ""
    for letter in rest:
        depth += (letter in "([" and 1) or 0
        depth -= (letter in ")]" and 1) or 0
        if letter == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += letter
    tail: list[str] = []
    depth = 0
    word = ""
    for letter in current.strip() + " ":
        depth += (letter in "([" and 1) or 0
        depth -= (letter in ")]" and 1) or 0
        if letter == " " and depth == 0:
            if word:
                tail.append(word)
            word = ""
        else:
            word += letter
    if tail and not re.match(r"[a-z_0-9]+:|(gds|sc[01]|nt)$", tail[0]):
        parts.append(tail.pop(0))
    return mnemonic, parts, tail


def token_values(tokens: Sequence[str]) -> dict[str, list[int]]:
    """Modifiers by name; a flag has the value 1."""
    result: dict[str, list[int]] = {}
    for token in tokens:
        name, _, value = token.partition(":")
        if name in ("mul", "div"):
            result["omod"] = [{"mul:2": 1, "mul:4": 2, "div:2": 3}[token]]
        elif value.startswith("[") and name in ARRAYS:
            result[name] = [int(part) for part in value[1:-1].split(",")]
        elif re.fullmatch(r"0x[0-9a-f]+|\d+", value):
            result[name] = [int(value, 0)]
        else:
            result[name] = [1]
    return result


_REGISTER = re.compile(r"(?:[vas]|ttmp)(?:(\d+)|\[(\d+):(\d+)\])$")


def register_count(texts: Iterable[str | None]) -> int | None:
    """Dwords of the first register tuple among the texts."""
    for text in texts:
        match = _REGISTER.match(text or "")
        if match:
            return 1 if match.group(1) else int(match.group(3)) - int(match.group(2)) + 1
    return None
