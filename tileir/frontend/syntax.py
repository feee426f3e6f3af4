"""Messages for syntax errors: what stands there, what could, in the words of the language."""

from __future__ import annotations

import re

from tileir.frontend.parser import Node, SyntaxFault, parse_tree, table
from tileir.frontend.source import Source
from tileir.ir.diagnostics import CompileError, Diagnostic, Note
from tileir.ir.location import Loc
from tileir.ir.printer import FORMAT_VERSION

MAX_ERRORS = 10

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
_STATEMENT = re.compile(r"[ \t]*(%\w+([ \t]*,[ \t]*%\w+)*[ \t]*=(?!=)|yield\b|[a-z_0-9]+[ \t]*\()")
_VERSION = re.compile(r"tileir\b[ \t]*([0-9]*)")
_FOREIGN = {
    ";": "statements end with their line: leave it out",
    "#": "// starts a comment",
    "'": "texts stand in double quotes, names without",
    "$": "%name for values, @name for kernels",
    "\\": "a statement may go on in the next line as it is",
    "?": "where(condition, a, b) chooses",
    ".": "a number begins with a digit: 0.5",
    "~": "!x is the complement",
}
_FROM_ELSEWHERE = {
    "&&": "'&' joins conditions",
    "||": "'|' joins conditions",
    "/*": "// starts a comment",
    "->": "': type' after an operation",
    "+=": "every value is defined once: %new = %old + …",
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
    """The tree of a text. Raises CompileError with its syntax errors: after one inside a statement, the rest of the text is
    read as if the statement were not there."""
    check_version(source)
    found: list[Diagnostic] = []
    text: str | None = source.text
    while text is not None:
        try:
            tree = parse_tree(text)
        except SyntaxFault as fault:
            found.append(_diagnostic(source, text, fault))
            text = _without_statement(source, text, fault) if len(found) < MAX_ERRORS else None
        else:
            if not found:
                return tree
            text = None
    raise CompileError(found, {source.filename: source.text})


def _without_statement(source: Source, text: str, fault: SyntaxFault) -> str | None:
    """The text with the lines of the faulty statement blanked, or None where its end cannot be told for sure."""
    begin = _boundary(fault)
    if fault.token.kind == "$END" or begin < 0:
        return None
    start = fault.starts[begin + 1] if begin + 1 < len(fault.stack) else fault.token.start
    start = text.rfind("\n", 0, start) + 1
    last = text.rfind("\n", 0, fault.token.start) + 1
    if last != start and _begins_statement(text, fault.token.start):
        end = last - 1  # the fault is that the statement before does not end
    elif last == start:
        end = text.find("\n", last)
    else:
        return None
    if end < 0 or re.search("[{}]", text[start:end]):
        return None
    return text[:start] + " " * (end - start) + text[end:]


def _is_boundary(node: Node) -> bool:
    """What stands on the parser's stack before a statement of a region: its brace, and the statements so far."""
    return node.kind == "LBRACE" or node.kind.startswith("__region_star")


def _error(source: Source, code: str, message: str, loc: Loc, legal: str) -> CompileError:
    return CompileError([Diagnostic(code, message, loc, legal=legal)], {source.filename: source.text})


def _diagnostic(source: Source, text: str, fault: SyntaxFault) -> Diagnostic:
    token, expected = fault.token, set(fault.expected)
    loc = source.loc(token.start, token.end)
    if token.kind == "BAD":
        return _bad_character(source, token, loc)
    if token.kind == "$END":
        return _unfinished(source, text, fault)
    shown = token.text if len(token.text) <= 40 else token.text[:37] + "…"
    begins = _begins_statement(text, token.start)
    opened = _open_bracket(text, token.start)
    if (
        opened is not None
        and text[opened] in "(["
        and (token.text == "}" or (begins and "\n" in text[opened : token.start]))
    ):
        bracket = text[opened]
        return Diagnostic(
            "E0113", f"this '{bracket}' is not closed", source.loc(opened, opened + 1), legal=f"'{_CLOSING[bracket]}'"
        )
    first = _boundary(fault) + 1
    if token.text == ":" and [v.kind for v in fault.stack[first : first + 1]] == ["YIELD"]:
        legal = "give the value a name before: %x = … : type, then yield %x"
        return Diagnostic("E0105", "':' cannot stand here: 'yield' has no types", loc, legal=legal)
    if token.kind == "YIELD" or (begins and [v.kind for v in fault.stack[first : first + 1]] == ["YIELD"]):
        at = loc if token.kind == "YIELD" else source.loc(fault.starts[first], fault.starts[first] + len("yield"))
        return Diagnostic(
            "E0501", "'yield' must be the last operation of a region", at, legal="move it to the end of the region"
        )
    if token.text in _COMPARISONS and any(v.text in _COMPARISONS for v in fault.stack[-2:-1]):
        return Diagnostic(
            "E0110", f"comparisons do not chain: '{shown}' after a comparison", loc, legal="(a < b) & (b < c)"
        )
    if "WAVES" in expected and token.kind == "LOWER":
        names = "waves, mma, stage, loop, order, registers, pin"
        return Diagnostic("E0621", f"there is no directive '{shown}'", loc, legal=f"one of: {names}")
    last = fault.stack[-1] if fault.stack else None
    if last is not None and last.kind == "LOWER" and "LPAR" in expected and expected <= {"LPAR", "LESSTHAN"}:
        word = last.text[:40]
        return Diagnostic(
            "E0112",
            f"'{word}' alone is not a value",
            source.loc(last.start, last.end),
            legal=f"{word}(…) for an op, %{word} for a value; parameters are in upper case",
        )
    legal = describe(expected)
    if token.text == "=" and "==" in [table().names.get(n) for n in expected]:
        legal = "'==' compares"
    legal = _FROM_ELSEWHERE.get(
        text[token.start - 1 : token.end], _FROM_ELSEWHERE.get(text[token.start : token.end + 1], legal)
    )
    if token.kind == "SHAPE" and token.text.startswith("0x"):
        legal = "a decimal number"
    message = f"'{shown}' cannot stand here"
    notes = (Note("opened here", source.loc(opened, opened + 1)),) if opened and text[opened] in "([" else ()
    return Diagnostic("E0105", message, loc, notes=notes, legal=legal)


def _begins_statement(text: str, offset: int) -> bool:
    """Whether a statement seems to begin on the line of that offset, at or before it."""
    start = text.rfind("\n", 0, offset) + 1
    return _STATEMENT.match(text, start) is not None


def _boundary(fault: SyntaxFault) -> int:
    """Index on the parser's stack of what stands before the current statement, -1 if none does."""
    return next((i for i, v in reversed(list(enumerate(fault.stack))) if _is_boundary(v)), -1)


_CLOSING = {"(": ")", "[": "]"}
_COMPARISONS = frozenset("== != < <= > >=".split())


def _bad_character(source: Source, token: Node, loc: Loc) -> Diagnostic:
    c = token.text
    if c == '"':
        end = source.text.find("\n", token.start)
        loc = source.loc(token.start, len(source.text) if end < 0 else end)
        return Diagnostic("E0109", "this text has no closing quote", loc, legal='"…" on one line')
    if c in "%@":
        legal = "a name such as %x, or mod(a, b) for the remainder" if c == "%" else "a name such as @gemm"
        return Diagnostic("E0102", f"'{c}' without a name", loc, legal=legal)
    shown = f"'{c}'" if c.isprintable() else f"U+{ord(c):04X}"
    legal = _FOREIGN.get(c, "letters, digits, and the signs of the language; other characters only in comments")
    return Diagnostic("E0102", f"the character {shown} has no meaning here", loc, legal=legal)


def _unfinished(source: Source, text: str, fault: SyntaxFault) -> Diagnostic:
    """The text ends too early: points at its last token, and at the bracket that is still open."""
    start = end = 0
    for match in table().tokens.finditer(text):
        if match.lastgroup and match.lastgroup != "END":
            start, end = match.span(match.lastgroup)
    loc = source.loc(start, end)
    opened = _open_bracket(text, len(text))
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
        closing = ">" if "<" not in texts else ""  # ends a list of attributes
        for sign in ("+", "-", "*", "/", "|", "^", "&", "==", "!=", "<", "<=", ">", ">=", "<<", ">>"):
            if sign != closing:
                texts.pop(sign, None)
        out.append("an operator")
    out += [_WORDS[n] for n in _WORDS if n in names]
    out += [f"'{text}'" for text in sorted(texts)]
    shown = out[:8] + (["…"] if len(out) > 8 else [])
    return " or ".join(shown) if len(shown) < 3 else ", ".join(shown[:-1]) + f" or {shown[-1]}"
