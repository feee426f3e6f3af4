"""What names mean in one kernel or file, and how its faults are located and collected."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import NoReturn, TypeVar

from tileir.frontend.parser import Node
from tileir.frontend.source import Source
from tileir.ir.diagnostics import CompileError, Diagnostic, Log, Note, error
from tileir.ir.location import Loc
from tileir.ir.types import Elem, Type

Const = int | float | bool | Elem
"""A compile-time value. A number has no element type of its own: it takes that of what it meets."""

MAX_DEPTH = 100
"""Levels of nesting that an expression may have: far beyond what can be read, and safe for Python's stack."""

T = TypeVar("T")


class Poisoned(Exception):
    """Something depends on what was already reported as wrong: no further message."""


class Scope:
    """Compile-time names of a kernel: parameters and constants with their values, type aliases, dimension symbols."""

    def __init__(self, source: Source, faults: Faults, log: Log | None):
        self.source = source
        self.faults = faults
        self.log = log
        self.values: dict[str, Const | None] = {}  # None: known, but its value was reported as wrong
        self.types: dict[str, Type | None] = {}
        self.symbols: dict[str, Elem] = {}
        self.locs: dict[str, Loc] = {}

    def child(self) -> Scope:
        """A scope for one kernel of the file."""
        inner = Scope(self.source, self.faults, self.log)
        inner.values = dict(self.values)
        inner.types = dict(self.types)
        inner.locs = dict(self.locs)
        return inner

    def loc(self, node: Node) -> Loc:
        return self.source.loc(node.start, node.end)

    def fail(self, code: str, message: str, node: Node, *, legal: str, notes: Iterable[Note] = ()) -> NoReturn:
        """Rejects what was written at a node."""
        raise error(code, message, self.loc(node), legal=legal, notes=notes)

    def fail_at(self, code: str, message: str, loc: Loc, *, legal: str, notes: Iterable[Note] = ()) -> NoReturn:
        """Rejects what was written at a location."""
        raise error(code, message, loc, legal=legal, notes=notes)

    def place(self, file: Node, line: Node, column: Node) -> Loc:
        """The location that a `loc("file":line:column)` trailer states."""
        for number in (line, column):
            if len(number.text) > 9:
                self.fail("E0107", "this line or column is too large", number, legal="a number of at most 9 digits")
        name = self.text(file)
        at = int(line.text), int(column.text)
        return Loc(name, *at, at[0], at[1] + 1)

    def text(self, node: Node) -> str:
        """What a text in quotes says."""
        try:
            said: str = json.loads(node.text)
            said.encode()  # half of a surrogate pair is no text
            return said
        except ValueError:
            self.fail("E0109", "this text has an unknown escape", node, legal='\\" and \\\\')

    def names(self) -> list[str]:
        """Every compile-time name, for suggestions."""
        return [*self.values, *self.symbols, *self.types]


class Faults:
    """Errors of one run. Work goes on after an error, so that independent ones are all reported."""

    LIMIT = 20

    def __init__(self) -> None:
        self.diagnostics: list[Diagnostic] = []

    def add(self, e: CompileError) -> None:
        for d in e.diagnostics:
            if d not in self.diagnostics:
                self.diagnostics.append(d)

    def attempt(self, action: Callable[[], T]) -> T | None:
        """The result of an action, or None after recording why there is none."""
        try:
            return action()
        except CompileError as e:
            self.add(e)
        except Poisoned:
            pass
        return None

    def raise_if_any(self, source: Source) -> None:
        """Raises one CompileError with all errors in the order of the text."""
        if not self.diagnostics:
            return
        self.diagnostics.sort(key=lambda d: (d.loc.line, d.loc.column))
        shown = self.diagnostics[: self.LIMIT]
        raise CompileError(shown, {source.filename: source.text})


def did_you_mean(name: str, known: Iterable[str], prefix: str = "") -> str:
    """ "did you mean …?" if some known name is close, else ""."""
    import difflib  # not at the top: only errors need it

    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    close = close or [n for n in names if n.lower() == name.lower()]
    return f"did you mean {prefix}{close[0]}?" if close else ""
