"""Faults at run time."""

from __future__ import annotations

from tileir.ir.diagnostics import CompileError, Diagnostic, Note
from tileir.ir.location import Loc


class InterpreterError(CompileError):
    """A kernel did something that has no meaning (a broken assumption, a read of LDS that nobody wrote, …). Carries one
    diagnostic at the op, with the position in the grid as a note."""


class Fault(Exception):
    """Raised where the op's location is not known; the machine turns it into an InterpreterError."""

    def __init__(self, code: str, message: str, legal: str = "", notes: tuple[Note, ...] = (), located: bool = False):
        super().__init__(message)
        self.code = code
        self.message = message
        self.legal = legal
        self.notes = notes
        self.located = located  # the notes say in which program it was

    def at(self, loc: Loc, program: tuple[int, ...]) -> InterpreterError:
        where = () if self.located else (Note(f"in program ({', '.join(map(str, program))})"),)
        return InterpreterError([Diagnostic(self.code, self.message, loc, "error", (*self.notes, *where), self.legal)])
