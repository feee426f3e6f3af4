"""What an editor asks about a text: faults, what a word means, where it is defined, what could stand here.

Positions are offsets in characters; the server translates. Works on texts that are half written: what the parser cannot
read is answered from the words of the text alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from tileir.editor import words
from tileir.frontend import parse
from tileir.frontend.expressions import signature
from tileir.frontend.parser import Node, SyntaxFault, parse_tree
from tileir.frontend.source import Source
from tileir.ir.core import Kernel, Module, Value
from tileir.ir.diagnostics import CompileError, Diagnostic, Log
from tileir.ir.printer import print_kernel
from tileir.ir.registry import REQUIRED, format_attr, lookup
from tileir.ir.types import ELEMS, TileType
from tileir.ir.verifier import verify
from tileir.records import dataclass

_WORD = re.compile(r"[%@]?\w+")
_KERNEL = re.compile(r"^\s*(?:kernel|schedule)\s+@(\w+)", re.MULTILINE)
_DEFINES = re.compile(r"%(\w+)(?=(?:\s*,\s*%\w+)*\s*=(?!=))|%(\w+)(?=\s*:)")


@dataclass(frozen=True)
class Word:
    """A word of the text and where it stands."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Completion:
    """Something that could stand at a place. `kind` is value, kernel, op, keyword, type or parameter."""

    label: str
    kind: str
    detail: str = ""


@dataclass(frozen=True)
class Symbol:
    """A named thing of a file: kernel, schedule, const or type."""

    name: str
    kind: str
    start: int
    end: int


class Analysis:
    """One version of one text. `before` is the last version that could be read, whose types serve where this one cannot."""

    def __init__(self, text: str, filename: str, before: Analysis | None = None):
        self.source = Source(text, filename)
        self.text = self.source.text
        self.diagnostics: list[Diagnostic] = []
        self.module: Module | None = None
        log = Log()
        try:
            module = parse(text, filename, log=log)
            for kernel in module.kernels:
                verify(kernel)
            self.module = module
        except CompileError as e:
            self.diagnostics += e.diagnostics
        self.diagnostics += log.diagnostics
        self.known: Module | None = self.module or (before.known if before is not None else None)

    # -- words and places ----------------------------------------------------------------------------------------

    def word(self, offset: int) -> Word | None:
        """The word at an offset, or that ends there; none in comments."""
        line = self.text.rfind("\n", 0, offset) + 1
        if "//" in self.text[line:offset]:
            return None
        for m in _WORD.finditer(self.text, line):
            if m.start() <= offset <= m.end():
                return Word(m.group(), m.start(), m.end())
            if m.start() > offset:
                return None
        return None

    @cached_property
    def _tree(self) -> Node | None:
        try:
            return parse_tree(self.text)
        except SyntaxFault:
            return None

    def region(self, offset: int) -> tuple[int, int]:
        """From where to where the kernel or schedule around an offset reaches."""
        starts = [m.start() for m in _KERNEL.finditer(self.text)]
        start = max((s for s in starts if s <= offset), default=0)
        return start, min((s for s in starts if s > offset), default=len(self.text))

    def _kernel_at(self, offset: int) -> Kernel | None:
        """The kernel around an offset; for a schedule the one that it is for."""
        start, end = self.region(offset)
        head = re.search(r"schedule\s+@\w+\s+of\s+@(\w+)|kernel\s+@(\w+)", self.text[start:end])
        name = (head[1] or head[2]) if head else ""
        kernels = self.known.kernels if self.known is not None else []
        return next((k for k in kernels if k.name == name), None)

    def _definitions(self, name: str, offset: int) -> Iterator[Word]:
        """Places in the kernel around an offset where `%name` is defined."""
        start, end = self._home(offset)
        for m in _DEFINES.finditer(self.text, start, end):
            group = 1 if m[1] is not None else 2
            if m[group] == name and not self._in_comment(m.start()):
                yield Word(f"%{name}", m.start(), m.end(group))

    def _home(self, offset: int) -> tuple[int, int]:
        """The extent of the kernel that names at this offset belong to."""
        start, end = self.region(offset)
        of = re.match(r"\s*schedule\s+@\w+\s+of\s+@(\w+)", self.text[start:end])
        if of is not None:
            m = re.search(rf"^\s*kernel\s+@{of[1]}\b", self.text, re.MULTILINE)
            return self.region(m.end()) if m else (start, end)
        return start, end

    def _in_comment(self, offset: int) -> bool:
        return "//" in self.text[self.text.rfind("\n", 0, offset) + 1 : offset]

    # -- questions -----------------------------------------------------------------------------------------------

    def hover(self, offset: int) -> tuple[str, Word] | None:
        """What the word at an offset means, as Markdown, and the word."""
        word = self.word(offset)
        if word is None:
            return None
        meaning = self._meaning(word, offset)
        return (meaning, word) if meaning else None

    def _meaning(self, word: Word, offset: int) -> str:
        name = word.text
        kernel = self._kernel_at(offset)
        if name.startswith("%"):
            value = _value(kernel, name[1:]) if kernel is not None else None
            return _describe(value) if value is not None else ""
        if name.startswith("@"):
            kernels = self.known.kernels if self.known is not None else []
            found = next((k for k in kernels if k.name == name[1:]), None)
            return f"```tile\n{_head(found)}\n```" if found is not None else ""
        if name in ELEMS:
            e = ELEMS[name]
            return f"`{name}`: {e.kind} of {e.bits} bits"
        definition = lookup(name)
        if definition is not None:
            attrs = [
                f"* `{a.name}`: {a.kind}"
                + (
                    ""
                    if a.default is REQUIRED
                    else f", default {format_attr(a.default)}"
                    if a.default not in ("", ())
                    else ""
                )
                + (f" – {a.doc}" if a.doc else "")
                for a in definition.attrs
            ]
            return "\n".join([f"```tile\n{signature(definition)}\n```", definition.summary, *attrs])
        if name[:1].isupper() and kernel is not None:
            if name in kernel.params:
                return f"parameter `{name}` = {kernel.params[name]}"
            if name in kernel.symbols():
                return f"dimension symbol `{name}`: {kernel.symbols()[name]} argument of @{kernel.name}"
        return ""

    def definition(self, offset: int) -> Word | None:
        """Where the word at an offset is defined."""
        word = self.word(offset)
        if word is None:
            return None
        if word.text.startswith("%"):
            return next(self._definitions(word.text[1:], offset), None)
        if word.text.startswith("@"):
            m = re.search(rf"^\s*(?:kernel|schedule)\s+({re.escape(word.text)})\b", self.text, re.MULTILINE)
            return Word(word.text, m.start(1), m.end(1)) if m else None
        if word.text[:1].isupper():
            start, end = self._home(offset)
            pattern = rf"[<,]\s*({word.text})\s*:|[\[,]\s*({word.text})\b"
            for text_start, text_end, p in (
                (0, len(self.text), rf"^\s*(?:const|type)\s+({word.text})\b"),
                (start, end, pattern),
            ):
                m = re.compile(p, re.MULTILINE).search(self.text, text_start, text_end)
                if m:
                    group = m.lastindex or 0
                    return Word(word.text, m.start(group), m.end(group))
        return None

    def references(self, offset: int) -> list[Word]:
        """Every place where the value at an offset is named, its definition included."""
        word = self.word(offset)
        if word is None or not word.text.startswith("%"):
            return []
        start, end = self._home(offset)
        places = [(start, end)]
        for m in re.finditer(r"^\s*schedule\s+@\w+\s+of\s+@(\w+)", self.text, re.MULTILINE):
            if self._home(m.end()) == (start, end):
                places.append(self.region(m.end()))
        return [
            Word(word.text, m.start(), m.end())
            for s, e in places
            for m in re.compile(rf"{re.escape(word.text)}(?!\w)").finditer(self.text, s, e)
            if not self._in_comment(m.start())
        ]

    def completions(self, offset: int) -> list[Completion]:
        """What could stand at an offset."""
        if self._in_comment(offset):
            return []
        word = self.word(offset)
        begun = self.text[word.start : offset] if word is not None else ""
        kernel = self._kernel_at(offset)
        if begun.startswith("%") or self.text[offset - 1 : offset] == "%":
            return self._values(offset, kernel)
        if begun.startswith("@") or self.text[offset - 1 : offset] == "@":
            return [Completion(f"@{m[1]}", "kernel") for m in _KERNEL.finditer(self.text)]
        start, _ = self.region(offset)
        if re.match(r"\s*schedule\b", self.text[start:offset]):
            return [Completion(d, "keyword", "directive") for d in words.DIRECTIVES] + _plain(words.modifiers())
        out = [Completion(name, "op", signature(d)) for name in words.ops() if (d := lookup(name)) is not None]
        out += _plain(words.keywords())
        out += [Completion(e, "type", f"{ELEMS[e].bits} bits") for e in words.elements()]
        if kernel is not None:
            out += [Completion(n, "parameter", str(v)) for n, v in kernel.params.items()]
            out += [Completion(n, "parameter", f"{e}, dimension") for n, e in kernel.symbols().items()]
        return out

    def _values(self, offset: int, kernel: Kernel | None) -> list[Completion]:
        start, end = self._home(offset)
        stop = end if start > offset or end < offset else offset  # a schedule may speak of every value
        found: dict[str, Completion] = {}
        for m in _DEFINES.finditer(self.text, start, stop):
            name = m[1] or m[2]
            value = _value(kernel, name) if kernel is not None else None
            found.setdefault(name, Completion(f"%{name}", "value", _type_text(value) if value is not None else ""))
        return list(found.values())

    def symbols(self) -> list[Symbol]:
        """Kernels, schedules, constants and type aliases in the order of the text."""
        pattern = re.compile(r"^\s*(kernel|schedule|const|type)\s+@?(\w+)", re.MULTILINE)
        return [Symbol(m[2], m[1], m.start(2), m.end(2)) for m in pattern.finditer(self.text)]


def _plain(names: tuple[str, ...]) -> list[Completion]:
    return [Completion(n, "keyword") for n in names]


def _value(kernel: Kernel, name: str) -> Value | None:
    for arg in kernel.args:
        if arg.name == name:
            return arg
    for op in kernel.walk():
        for v in (*op.results, *(a for r in op.regions for a in r.args)):
            if v.name == name:
                return v
    return None


def _type_text(v: Value) -> str:
    return str(v.type.with_layout(None)) if isinstance(v.type, TileType) else str(v.type)


def _describe(v: Value) -> str:
    lines = [f"```tile\n%{v.name}: {v.type}\n```"]
    if v.owner is not None:
        definition = lookup(v.owner.name)
        summary = definition.summary if definition is not None else ""
        lines.append(f"result of `{v.owner.name}`" + (f": {summary}" if summary else ""))
    return "\n".join(lines)


def _head(kernel: Kernel) -> str:
    return print_kernel(kernel).split("{\n")[0].strip()
