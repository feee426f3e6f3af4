"""Where in the user's Python program an op was built: diagnostics point there."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterable
from types import FrameType

from tileir.ir.diagnostics import CompileError, Diagnostic
from tileir.ir.location import UNKNOWN, Loc

_HERE = __name__.rpartition(".")[0]
_ASSIGNED = re.compile(r"\s*\(?([A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)*),?\)?\s*(?::[^=]+)?=(?!=)")


def caller() -> Loc:
    """The call, outside of this package, that led here; with columns from Python 3.11 on."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    if frame is None:
        return UNKNOWN
    code, line = frame.f_code, frame.f_lineno
    if sys.version_info >= (3, 11):
        first, last, start, end = list(code.co_positions())[frame.f_lasti // 2]
        if first is not None and last is not None and start is not None and end is not None:
            path = code.co_filename
            return Loc(path, first, _column(path, first, start), last, _column(path, last, end))
    row = linecache.getline(code.co_filename, line).rstrip("\n")
    return Loc(code.co_filename, line, len(row) - len(row.lstrip()) + 1, line, len(row) + 1)


def _is_ours(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__", "")
    return name == _HERE or name.startswith(_HERE + ".") or name in ("contextlib",)


def _column(path: str, line: int, byte: int) -> int:
    """Column in characters, from 1, of a byte offset into a line."""
    row = linecache.getline(path, line)
    return len(row.encode("utf-8")[:byte].decode("utf-8", "replace")) + 1


def assigned_names(loc: Loc) -> list[str]:
    """The Python variables that the statement on this line assigns to."""
    match = _ASSIGNED.match(linecache.getline(loc.file, loc.line)) if loc.line else None
    return re.findall(r"[A-Za-z_]\w*", match[1]) if match else []


def with_sources(diagnostics: Iterable[Diagnostic]) -> CompileError:
    """The diagnostics with the Python lines that they point at."""
    found = tuple(diagnostics)
    places = [d.loc for d in found] + [n.loc for d in found for n in d.notes if n.loc is not None]
    files = dict.fromkeys(p.file for p in places if p.line)
    return CompileError(found, {f: "".join(lines) for f in files if (lines := linecache.getlines(f))})
