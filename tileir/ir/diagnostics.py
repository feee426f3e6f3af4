"""Diagnostics: located messages with a code, and the exception that carries them.

Every fault a user can cause becomes a `Diagnostic`: a code from the catalogue (`diagnostic_catalogue.json`), the exact span,
what is wrong, notes that point at other places, and what would be legal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cache
from pathlib import Path

from tileir.ir.location import UNKNOWN, Loc
from tileir.records import dataclass


@dataclass(frozen=True, slots=True)
class Note:
    """An explanation attached to a diagnostic, optionally pointing at another place."""

    message: str
    loc: Loc | None = None


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One located message. `severity` is "error", "warning" or "remark"; `legal` says what would be accepted."""

    code: str
    message: str
    loc: Loc = UNKNOWN
    severity: str = "error"
    notes: tuple[Note, ...] = ()
    legal: str = ""

    def render(self, sources: Mapping[str, str] | None = None) -> str:
        """The message as a terminal shows it: header, source line with carets, notes, legal alternative."""
        lines = [f"{self.loc}: {self.severity}: [{self.code}] {self.message}"]
        lines += _excerpt(self.loc, sources)
        if self.legal:
            lines.append(f"  = legal: {self.legal}")
        for note in self.notes:
            if note.loc is not None:
                lines.append(f"{note.loc}: note: {note.message}")
                lines += _excerpt(note.loc, sources)
            else:
                lines.append(f"  = note: {note.message}")
        return "\n".join(lines)


def _excerpt(loc: Loc, sources: Mapping[str, str] | None) -> list[str]:
    text = (sources or {}).get(loc.file)
    if text is None or loc.line <= 0:
        return []
    rows = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if loc.line > len(rows):
        return []
    row = rows[loc.line - 1]
    end = loc.end_column if loc.end_line == loc.line else len(row) + 1
    carets = max(1, end - loc.column)
    indent = "".join("\t" if c == "\t" else " " for c in row[: loc.column - 1])
    return [f"  {row}", f"  {indent}{'^' * carets}"]


class CompileError(Exception):
    """A compilation that failed. `diagnostics` holds every message, errors first in source order."""

    def __init__(self, diagnostics: Iterable[Diagnostic], sources: Mapping[str, str] | None = None):
        self.diagnostics: tuple[Diagnostic, ...] = tuple(diagnostics)
        self.sources: dict[str, str] = dict(sources or {})
        super().__init__(self.render())

    def render(self) -> str:
        return "\n".join(d.render(self.sources) for d in self.diagnostics)

    def __reduce__(self) -> tuple[type[CompileError], tuple[tuple[Diagnostic, ...], dict[str, str]]]:
        """Errors travel between processes whole."""
        return type(self), (self.diagnostics, self.sources)


def error(code: str, message: str, loc: Loc, *, legal: str = "", notes: Iterable[Note] = ()) -> CompileError:
    """A `CompileError` with a single error; `raise error(...)` is the way a pass or rule rejects something."""
    return CompileError([Diagnostic(code, message, loc, "error", tuple(notes), legal)])


@dataclass(slots=True)
class Log:
    """Collects warnings and remarks of a compilation in the order in which they arise."""

    diagnostics: list[Diagnostic] = field(default_factory=list[Diagnostic])

    def warning(self, code: str, message: str, loc: Loc, *, legal: str = "", notes: Iterable[Note] = ()) -> None:
        self.diagnostics.append(Diagnostic(code, message, loc, "warning", tuple(notes), legal))

    def remark(self, code: str, message: str, loc: Loc) -> None:
        self.diagnostics.append(Diagnostic(code, message, loc, "remark"))


@cache
def catalogue() -> dict[str, str]:
    """Code → one-sentence explanation, for every diagnostic that TileIR can give."""
    path = Path(__file__).parent / "diagnostic_catalogue.json"
    return json.loads(path.read_text(encoding="utf-8"))
