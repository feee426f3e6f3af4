"""From text to IR: `parse` reads what authors write and what the printer prints, at every stage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tileir.collector import collector_paused

with collector_paused():  # modules are full of objects, and none of them is garbage
    from tileir.frontend.elaborate import FileText
    from tileir.frontend.source import Source, decode
    from tileir.frontend.syntax import read
    from tileir.ir.core import Module
    from tileir.ir.diagnostics import CompileError, Log
    from tileir.ir.types import Elem

__all__ = ["parse", "parse_file"]


def parse(
    text: str,
    filename: str = "<text>",
    params: Mapping[str, int | float | bool | str | Elem] | None = None,
    *,
    kernel: str | None = None,
    log: Log | None = None,
) -> Module:
    """The type-checked module of a text, with all compile-time parameters bound.

    `params` override the defaults of parameters (strings are read as the parameter's kind requires: "128", "bf16", "true");
    each must belong to some kernel. `kernel` elaborates that one only, with its schedules. Warnings go to `log`.
    Raises CompileError with up to 20 located errors in the order of the text.
    """
    source = Source(text, filename)
    try:
        with collector_paused():
            return FileText(source, read(source), params or {}, kernel, log).elaborate()
    except CompileError as e:
        raise CompileError(e.diagnostics, {source.filename: source.text}) from None


def parse_file(
    path: str | Path,
    params: Mapping[str, int | float | bool | str | Elem] | None = None,
    *,
    kernel: str | None = None,
    log: Log | None = None,
) -> Module:
    """Like `parse`, for a file. Raises OSError if it cannot be read, CompileError if it is not UTF-8."""
    return parse(decode(Path(path).read_bytes(), str(path)), str(path), params, kernel=kernel, log=log)
