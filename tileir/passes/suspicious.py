"""Warnings of what an author hardly means: comparisons that never hold, and conversions that change nothing.

Both are looked for in the text as it comes in. What depends on a compile-time parameter is left alone: for another value of it the same line
may be needed. Whether it does is read from the source, op by op, back from the comparison or conversion.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tileir.ir.core import Kernel, Op, Value
from tileir.ir.diagnostics import Log, Note
from tileir.ir.location import Loc
from tileir.ir.types import Elem
from tileir.passes.affine import Interval, Ranges, constant_int


def warn_of_suspicious(kernel: Kernel, sources: Mapping[str, str], log: Log) -> None:
    """Adds W0203 and W0204 for a kernel to the log; `sources` maps file names to texts. Says nothing of ops without a place in them."""
    ranges, texts = Ranges(kernel), _Texts(kernel, sources)
    for op in kernel.walk():
        if op.name in _NEVER:
            _comparison(op, ranges, texts, log)
        elif op.name == "convert":
            _conversion(op, kernel, texts, log)


def _comparison(op: Op, ranges: Ranges, texts: _Texts, log: Log) -> None:
    a, b = op.operands
    if not a.tile.elem.is_int or (constant_int(a) is not None and constant_int(b) is not None):
        return
    left, right = ranges.of(a), ranges.of(b)
    if _NEVER[op.name](left, right) and texts.are_free_of_parameters(op):
        log.warning(
            "W0203",
            f"this comparison never holds: on its left are {_span(left)}, on its right {_span(right)}",
            op.loc,
            legal="a comparison that some element can meet, or nothing of what depends on it",
        )


def _conversion(op: Op, kernel: Kernel, texts: _Texts, log: Log) -> None:
    source, target = op.operands[0], op.result.tile.elem
    between, inner = source.tile.elem, source.owner
    notes: list[Note] = []
    if between == target:
        message = f"this converts {target} to {target}"
    elif (
        inner is not None
        and inner.name == "convert"
        and inner.operands[0].tile.elem == target
        and _holds(between, target)
    ):
        message = f"this converts to {target} what was {target} before it was converted to {between}"
        notes.append(Note("converted here", inner.loc))
    else:
        return
    # The type of a view may be a parameter, which the text of a load does not show.
    if not any(isinstance(v, Elem) for v in kernel.params.values()) and texts.are_free_of_parameters(op):
        log.warning("W0204", message, op.loc, legal="the value as it was", notes=notes)


def _holds(wide: Elem, narrow: Elem) -> bool:
    """Whether a type certainly has every value of another one: integers and the IEEE-like floats from 16 bits on, where both are of a kind."""
    if narrow.is_bool or narrow.is_int != wide.is_int or narrow.bits >= wide.bits:
        return False
    return narrow.is_int or (narrow.bits >= 16 and wide.bits >= 32)


_NEVER = {
    "lt": lambda a, b: a[0] >= b[1],
    "le": lambda a, b: a[0] > b[1],
    "gt": lambda a, b: a[1] <= b[0],
    "ge": lambda a, b: a[1] < b[0],
    "eq": lambda a, b: a[1] < b[0] or b[1] < a[0],
    "ne": lambda a, b: a == b and a[0] == a[1],
}
"""For each comparison whether it fails for all numbers of two intervals."""


def _span(interval: Interval) -> str:
    low, high = interval
    return f"{low}" if low == high else f"{low} to {high}"


class _Texts:
    """The source of ops, and whether it names a parameter."""

    def __init__(self, kernel: Kernel, sources: Mapping[str, str]):
        self._lines = {file: text.splitlines() for file, text in sources.items()}
        self._names = re.compile(rf"\b({'|'.join(kernel.params)})\b") if kernel.params else None
        self._bounds = {op.regions[0].args[0]: op for op in kernel.walk() if op.name == "for"}
        self._known: dict[Op, bool] = {}

    def are_free_of_parameters(self, op: Op) -> bool:
        """Whether neither the op nor what its operands are computed from names a parameter, as far as intervals are known: not through
        what control flow carries."""
        waiting, seen = [op], {op}
        while waiting:
            for v in waiting.pop().operands:
                made = self._bounds.get(v) or (v.owner if not _leaves_a_region(v) else None)
                if made is not None and made not in seen:
                    seen.add(made)
                    waiting.append(made)
        return all(self._is_free(made) for made in seen)

    def _is_free(self, op: Op) -> bool:
        if op not in self._known:
            text = self._text(op.loc)
            self._known[op] = text is not None and (self._names is None or not self._names.search(text))
        return self._known[op]

    def _text(self, loc: Loc) -> str | None:
        lines = self._lines.get(loc.file)
        if lines is None or not 1 <= loc.line <= loc.end_line <= len(lines):
            return None
        if loc.line == loc.end_line:
            return lines[loc.line - 1][loc.column - 1 : loc.end_column - 1]
        return "\n".join([lines[loc.line - 1][loc.column - 1 :], *lines[loc.line : loc.end_line]])


def _leaves_a_region(v: Value) -> bool:
    return v.owner is not None and bool(v.owner.regions)


__all__ = ["warn_of_suspicious"]
