"""`--verify-diagnostics`: a file states the messages that it provokes, beside the lines they point at.

    %d = mma(%a, %b)        // error: the inner dimensions differ
    // error@+1: [E0203]
    %x = add(%y, %z)

A comment `// error: TEXT` expects an error on its line whose `[code] message` contains TEXT; `@+N` and `@-N` mean N lines
further down or up. `warning` and `remark` work alike; unexpected ones count only in files that expect some.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tileir.ir.diagnostics import Diagnostic
from tileir.records import dataclass

_COMMENT = re.compile(r"//\s*(error|warning|remark)(@[+-]\d+)?:[ \t]*(.*?)[ \t]*(?=//|$)")


@dataclass(frozen=True)
class Expectation:
    """A diagnostic that must be given at a line."""

    severity: str
    line: int
    text: str


def expectations(source: str) -> list[Expectation]:
    """What the comments of a file expect."""
    found: list[Expectation] = []
    for number, line in enumerate(source.splitlines(), 1):
        for severity, offset, text in _COMMENT.findall(line):
            found.append(Expectation(severity, number + int(offset[1:] or 0), text))
    return found


def mismatches(source: str, file: str, diagnostics: Iterable[Diagnostic]) -> list[str]:
    """One line for every expected diagnostic that is missing and for every one that nobody expects."""
    missing = expectations(source)
    checked = {"error"} | {e.severity for e in missing}
    problems: list[str] = []
    for d in diagnostics:
        if d.severity not in checked:
            continue
        text = f"[{d.code}] {d.message}"
        match = next((e for e in missing if e.severity == d.severity and e.line == d.loc.line and e.text in text), None)
        if match is not None and d.loc.file == file:
            missing.remove(match)
        else:
            problems.append(f"{d.loc}: unexpected {d.severity}: {text}")
    problems += [f"{file}:{e.line}: expected {e.severity} was not given: {e.text}" for e in missing]
    return problems
