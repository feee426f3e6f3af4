"""Mutated text and bytes for the parser: whatever comes, a module or located diagnostics come out."""

from __future__ import annotations

from functools import cache

from tileir import kernels
from tileir.frontend import parse
from tileir.frontend.parser import table
from tileir.frontend.source import decode
from tileir.fuzz.generate import Seeded
from tileir.ir.diagnostics import CompileError, catalogue
from tileir.ir.printer import print_module
from tileir.ir.verifier import verify


@cache
def _texts() -> tuple[str, ...]:
    sources = tuple(kernels.source(name) for name in kernels.names())
    return sources + tuple(print_module(parse(text)) for text in sources)


def mutate(seed: int) -> bytes:
    """A text of the kernel library with a few tokens, lines or bytes dropped, doubled, moved or replaced."""
    choices = Seeded(seed)
    text = choices.pick(_texts())
    words = sorted(table().literals)
    for _ in range(choices.integer(1, 4)):
        spans = [m.span(m.lastgroup) for m in table().tokens.finditer(text) if m.lastgroup]
        start, end = choices.pick(spans)
        other = choices.pick(spans)
        match choices.integer(0, 6):
            case 0:
                text = text[:start] + text[end:]
            case 1:
                text = text[:end] + " " + text[start:]
            case 2:
                text = f"{text[:start]} {choices.pick(words)} {text[end:]}"
            case 3:
                text = text[:start] + text[other[0] : other[1]] + text[end:]
            case 4:
                text = text[: choices.integer(0, len(text))]
            case 5:
                text = f"{text[:start]}{choices.pick([0, -1, 7, 1 << 31, 1 << 64])}{text[end:]}"
            case _:
                at = choices.integer(0, len(text))
                text = text[:at] + chr(choices.integer(0, 0x2FFF)) + text[at:]
    data = bytearray(text.encode("utf-8", "replace"))
    if data and choices.integer(0, 3) == 0:
        data[choices.integer(0, len(data) - 1)] = choices.integer(0, 255)
    return bytes(data)


def mutate_and_read(seed: int) -> tuple[str, str]:
    """What is wrong with how the parser treats the mutated text ("" if nothing), and the text."""
    data = mutate(seed)
    shown = data.decode("utf-8", "replace")
    try:
        module = parse(decode(data, "f.tile"), "f.tile")
        for kernel in module.kernels:
            verify(kernel)
        if parse(print_module(module)) != module:
            return "the text does not parse back", shown
    except CompileError as e:
        for d in e.diagnostics:
            if d.code not in catalogue() or not d.message or not d.legal or d.loc.line < 1:
                return f"a poor diagnostic: {d}", shown
        e.render()
    except Exception as e:
        return f"{type(e).__name__}: {e}", shown
    return "", shown
