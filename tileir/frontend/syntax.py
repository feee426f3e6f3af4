"""Messages for syntax errors: what stands there, what could, in the words of the language."""

from __future__ import annotations

import re

from tileir.frontend.parser import Node, SyntaxFault, parse_tree, table
from tileir.frontend.source import Source
from tileir.ir.diagnostics import CompileError, Diagnostic, Note
from tileir.ir.location import Loc
from tileir.ir.printer import FORMAT_VERSION

_WORDS = {
    "VALUE": "a value such as %x",
    "SYMBOL": "a name such as @gemm",
    "UPPER": "an upper-case name such as BM",
    "LOWER": "a word",
    "ELEM": "an element type such as bf16",
    "INT": "an integer",
    "NUMBER": "a number",
    "STRING": "a text in quotes",
    "SHAPE": "a shape such as 2 x 4",
    "$END": "the end of the file",
}
_HEADER = re.compile(r"(?:\s|//[^\n]*)*")
_VERSION = re.compile(r"tileir\b[ \t]*([0-9]*)")
_FOREIGN = {
    ";": "statements end with their line: leave it out",
    "#": "// starts a comment",
    "'": "texts stand in double quotes, names without",
    "$": "%name for values, @name for kernels",
    "\\": "a statement may go on in the next line as it is",
    "?": "where(condition, a, b) chooses",
    "~": "!x is the complement",
}
_EXPRESSION = {"VALUE", "INT", "NUMBER", "UPPER"}


def check_version(source: Source) -> None:
    """Raises CompileError unless the text begins with the version line of a format that this version reads."""
    start = _HEADER.match(source.text).end()  # type: ignore[union-attr]
    found = _VERSION.match(source.text, start)
    if found is None or not found.group(1):
        line_end = source.text.find("\n", start)
        end = len(source.text) if line_end < 0 else line_end
        raise _error(
            source,
            "E0103",
            "the file does not begin with a version line",
            source.loc(start, max(source.rstrip(end), start)),
            f"tileir {FORMAT_VERSION}",
        )
    if found.group(1).lstrip("0") != str(FORMAT_VERSION):
        raise _error(
            source,
            "E0104",
            f"format version {found.group(1)[:20]} is not known",
            source.loc(found.start(), found.end()),
            f"tileir {FORMAT_VERSION}",
        )


def read(source: Source) -> Node:
    """The tree of a text. Raises CompileError with the first syntax error."""
    check_version(source)
    try:
        return parse_tree(source.text)
    except SyntaxFault as fault:
        raise CompileError([_diagnostic(source, fault)], {source.filename: source.text}) from None


def _error(source: Source, code: str, message: str, loc: Loc, legal: str) -> CompileError:
    return CompileError([Diagnostic(code, message, loc, legal=legal)], {source.filename: source.text})


def _diagnostic(source: Source, fault: SyntaxFault) -> Diagnostic:
    token, expected = fault.token, set(fault.expected)
    loc = source.loc(token.start, token.end)
    if token.kind == "BAD":
        return _bad_character(source, token, loc)
    if token.kind == "$END":
        return _unfinished(source, fault)
    shown = token.text if len(token.text) <= 40 else token.text[:37] + "…"
    before = [v.kind for v in fault.stack if v is not None]
    if token.kind == "YIELD" or (before and before[-1] == "yield"):
        return Diagnostic(
            "E0501", "'yield' must be the last operation of a region", loc, legal="move it to the end of the region"
        )
    if token.kind in _COMPARISONS and any(k in _COMPARISON_NODES for k in before[-1:]):
        return Diagnostic(
            "E0110", f"comparisons do not chain: '{shown}' after a comparison", loc, legal="(a < b) & (b < c)"
        )
    if "WAVES" in expected and token.kind == "LOWER":
        names = "waves, mma, stage, loop, order, registers"
        return Diagnostic("E0602", f"there is no directive '{shown}'", loc, legal=f"one of: {names}")
    legal = describe(expected)
    message = f"'{shown}' cannot stand here"
    if "RPAR" in expected or "RSQB" in expected:
        opened = _open_bracket(source.text, token.start)
        if opened is not None:
            return Diagnostic(
                "E0105", message, loc, notes=(Note("opened here", source.loc(opened, opened + 1)),), legal=legal
            )
    return Diagnostic("E0105", message, loc, legal=legal)


_COMPARISONS = frozenset({"EQUAL", "MORETHAN", "LESSTHAN"} | {f"__ANON_{i}" for i in range(40)})
_COMPARISON_NODES = frozenset("eq ne lt le gt ge".split())


def _bad_character(source: Source, token: Node, loc: Loc) -> Diagnostic:
    c = token.text
    if c == '"':
        end = source.text.find("\n", token.start)
        loc = source.loc(token.start, len(source.text) if end < 0 else end)
        return Diagnostic("E0109", "this text has no closing quote", loc, legal='"…" on one line')
    if c in "%@":
        names = "%x" if c == "%" else "@gemm"
        return Diagnostic("E0102", f"'{c}' without a name", loc, legal=f"a name such as {names}")
    shown = f"'{c}'" if c.isprintable() else f"U+{ord(c):04X}"
    legal = _FOREIGN.get(c, "letters, digits, and the signs of the language; other characters only in comments")
    return Diagnostic("E0102", f"the character {shown} has no meaning here", loc, legal=legal)


def _unfinished(source: Source, fault: SyntaxFault) -> Diagnostic:
    """The text ends too early: points at its last character, and at the bracket that is still open."""
    end = source.rstrip(len(source.text))
    loc = source.loc(max(end - 1, 0), max(end, 1))
    opened = _open_bracket(source.text, len(source.text))
    notes = (Note("opened here", source.loc(opened, opened + 1)),) if opened is not None else ()
    return Diagnostic("E0106", "the file ends in the middle", loc, notes=notes, legal=describe(set(fault.expected)))


def _open_bracket(text: str, end: int) -> int | None:
    """Offset of the innermost bracket that is open at `end`; comments and texts in quotes do not count."""
    stack: list[int] = []
    for m in re.finditer(r'//[^\n]*|"[^"\n]*"|[(\[{)\]}]', text[:end]):
        if m.group() in "([{":
            stack.append(m.start())
        elif m.group() in ")]}" and stack:
            stack.pop()
    return stack[-1] if stack else None


def describe(expected: set[str]) -> str:
    """Terminals in words: the general ones first, operators of a complete expression summed up."""
    t = table()
    names = set(expected)
    out: list[str] = []
    if names >= _EXPRESSION:
        names -= {
            "VALUE",
            "INT",
            "NUMBER",
            "UPPER",
            "LOWER",
            "ELEM",
            "LPAR",
            "MINUS",
            "BANG",
            "INF",
            "NAN",
            "TRUE",
            "FALSE",
        }
        out.append("an expression")
    texts = {t.names[n]: n for n in names if n in t.names}
    if {"+", "*"} <= set(texts):
        for sign in ("+", "-", "*", "/", "|", "^", "&", "==", "!=", "<", "<=", ">", ">=", "<<", ">>"):
            if sign != ">" or len(texts) > 6:
                texts.pop(sign, None)
        out.append("an operator")
    out += [_WORDS[n] for n in _WORDS if n in names]
    out += [f"'{text}'" for text in sorted(texts)]
    shown = out[:8] + (["…"] if len(out) > 8 else [])
    return " or ".join(shown) if len(shown) < 3 else ", ".join(shown[:-1]) + f" or {shown[-1]}"
