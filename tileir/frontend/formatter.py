"""`tileir-opt --format`: a text with its spaces put in order, nothing else.

Every token and every comment stays, and so do the author's line ends inside a statement; statements, braces and
indentation are put where they belong, and comments at the ends of neighbouring lines are aligned. The tree of the result is
that of the input, and formatting it again changes nothing. (The canonical form, one op per line with types, is what
`--stop-after parse` prints; it has no comments.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field

from tileir.frontend.parser import table
from tileir.frontend.source import Source
from tileir.frontend.syntax import read
from tileir.records import dataclass

INDENT = 2
CONTINUATION = 4  # further than the statement that goes on

# What begins a line of its own.
_STATEMENTS = frozenset(
    "assign control_assign call_statement control_statement yield const type_alias kernel schedule "
    "waves mma stage loop order registers pin".split()
)
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_OPERATORS = frozenset("+ - * / | ^ & == != < <= > >= << >> = +:".split())
# After these words comes a new expression, so a sign is unary and a bracket stands apart.
_WORDS_BEFORE_EXPRESSION = frozenset("to step when if while guard yield for of in".split())
# A '<' after one of these opens a list; elsewhere it compares.
_CONTROL = frozenset("for while if guard".split())
_CONSTANTS = frozenset("inf nan true false".split())
_COMMENT = re.compile(r"//[^\n]*")


@dataclass
class _Token:
    kind: str  # as the lexer says, or COMMENT
    text: str
    start: int
    newlines: int  # line ends before it
    list_bracket: bool = False  # '<' or '>' around parameters, attributes or the parts of a type
    unary: bool = False
    depth: int = 0  # brackets that are open before it, other than those of regions around it


@dataclass
class _Line:
    indent: int
    text: str = ""
    comment: str = ""
    blank_before: bool = False
    tokens: list[_Token] = field(default_factory=list[_Token])


def format_text(text: str, filename: str = "<text>") -> str:
    """The text in order, with one line end at its end. Raises CompileError if it is not well formed."""
    source = Source(text, filename)
    starts = {node.start for node in read(source).walk() if node.kind in _STATEMENTS}
    lines = _aligned(_lines(_tokens(source.text), starts))
    out: list[str] = []
    for line in lines:
        if line.blank_before and out:
            out.append("")
        out.append((" " * line.indent + line.text).rstrip())
    return "\n".join(out) + "\n"


def _tokens(text: str) -> list[_Token]:
    """Tokens and comments in order, brackets and signs told apart."""
    found: list[_Token] = []
    end = 0
    for match in table().tokens.finditer(text):
        kind = match.lastgroup
        assert kind is not None
        start, stop = match.span(kind)
        for comment in _COMMENT.finditer(text, end, start):
            found.append(
                _Token("COMMENT", comment.group().rstrip(), comment.start(), text.count("\n", end, comment.start()))
            )
            end = comment.end()
        if kind == "END":
            break
        found.append(_Token(kind, match[kind], start, text.count("\n", end, start)))
        end = stop
    _classify(found)
    return found


def _classify(tokens: list[_Token]) -> None:
    """Marks `<` and `>` that are brackets, and signs that are unary."""
    stack: list[str] = []
    previous: _Token | None = None
    for token in tokens:
        if token.kind == "COMMENT":
            continue
        text = token.text
        token.depth = next((i for i, bracket in enumerate(reversed(stack)) if bracket == "{"), len(stack))
        if text in _OPENING:
            stack.append(text)
        elif text in _CLOSING:
            stack.pop()
        elif text == "<" and previous is not None and _opens_list(previous):
            token.list_bracket = True
            stack.append("<")
        elif text == ">" and stack and stack[-1] == "<":
            token.list_bracket = True
            stack.pop()
        elif text == "!" or (text == "-" and (previous is None or not _ends_operand(previous))):
            token.unary = True
        previous = token


def _opens_list(token: _Token) -> bool:
    return token.kind == "SYMBOL" or (token.kind == "LOWER" and token.text not in _CONSTANTS)


def _ends_operand(token: _Token) -> bool:
    if token.kind == "LOWER":
        return token.text in _CONSTANTS
    return token.kind not in ("SIGN", "COMMENT") or token.text in (")", "]")


def _lines(tokens: list[_Token], starts: set[int]) -> list[_Line]:
    """The tokens in lines, each with its indentation."""
    lines: list[_Line] = []
    regions = 0  # that are open
    fresh = True  # the next token begins a statement or closes a region
    previous = ""  # text of the token before, comments left out
    for token, following in _with_next(tokens):
        open_line = bool(lines) and bool(lines[-1].tokens) and not lines[-1].comment  # may go on
        if token.kind == "COMMENT":
            if open_line and token.newlines == 0:
                lines[-1].comment = token.text
            else:  # stands with what follows it
                inside = not fresh and following is not None and following.start not in starts
                inside = inside and following is not None and following.text != "}"
                indent = INDENT * regions + (CONTINUATION if inside else 0)
                lines.append(_Line(indent, token.text, blank_before=token.newlines > 1 and previous != "{"))
            continue
        closes = token.text == "}"
        regions -= closes
        begins = fresh or closes or token.start in starts
        joins = token.text == "{" or (previous == "}" and token.text in ("else", "do")) or (closes and previous == "{")
        if not open_line or (not joins and (begins or token.newlines > 0)):
            level = INDENT * regions + (0 if begins else CONTINUATION)
            blank = token.newlines > 1 and begins and not closes and previous != "{"
            lines.append(_Line(level, blank_before=blank))
        line = lines[-1]
        line.text += (" " if line.tokens and _spaced(line.tokens, token) else "") + token.text
        line.tokens.append(token)
        fresh = token.text in ("{", "}")
        regions += token.text == "{"
        previous = token.text
    return lines


def _with_next(tokens: list[_Token]) -> Iterator[tuple[_Token, _Token | None]]:
    """Each token with the next that is no comment."""
    following: list[_Token | None] = []
    after: _Token | None = None
    for token in reversed(tokens):
        following.append(after)
        if token.kind != "COMMENT":
            after = token
    return zip(tokens, reversed(following), strict=True)


def _spaced(before: list[_Token], token: _Token) -> bool:
    """Whether a space stands between the last token of a line and the next."""
    last = before[-1]
    if token.text in (",", ")", "]") or last.text in ("(", "[") or (last.unary and last.text in "-!"):
        return False
    if token.list_bracket or (last.list_bracket and last.text == "<"):
        return False
    if token.text == "(":
        return not _called(last)
    if token.text == "[":
        return (
            not _in_registers(before)
            and last.kind not in ("VALUE", "ELEM", "UPPER")
            and not (last.kind == "SIGN" and last.text in ")]")
        )
    if token.text == ":":
        return _declares_result(before, token)
    if last.text == ":":
        return not _in_location(before) and not _in_registers(before)
    return True


def _called(last: _Token) -> bool:
    """Whether an opening parenthesis after this token belongs to it."""
    if last.list_bracket:
        return True
    if last.kind == "LOWER":
        return last.text not in _WORDS_BEFORE_EXPRESSION
    return last.kind == "SYMBOL"


def _declares_result(before: list[_Token], token: _Token) -> bool:
    """A colon outside of brackets gives the type of a result; inside, that of a parameter or argument."""
    return token.depth == 0 and not _in_location(before)


def _in_registers(before: list[_Token]) -> bool:
    """Whether these tokens begin a range of registers, as in `pin %d in v[0:31]`."""
    texts = [t.text for t in before[-7:]]
    return "pin" in texts and texts[texts.index("pin") + 2 : texts.index("pin") + 3] == ["in"]


def _in_location(before: list[_Token]) -> bool:
    texts = [t.text for t in before[-6:]]
    return "loc" in texts and any(t.kind == "STRING" for t in before[-4:])


def _aligned(lines: list[_Line]) -> list[_Line]:
    """Puts the comments at line ends: two spaces after the text, at one column in a run of neighbouring lines."""
    i = 0
    while i < len(lines):
        run = [lines[i]]
        while run[-1].comment and i + len(run) < len(lines):
            following = lines[i + len(run)]
            if not following.comment or following.blank_before or following.indent != run[0].indent:
                break
            if not (_is_whole(run[-1]) and _is_whole(following)):
                break
            run.append(following)
        width = max(len(line.text) for line in run)
        for line in run:
            if line.comment:
                line.text = f"{line.text.ljust(width)}  {line.comment}"
        i += len(run)
    return lines


def _is_whole(line: _Line) -> bool:
    """Whether a line ends its statement, as far as its last token tells."""
    return bool(line.tokens) and line.tokens[-1].text not in (",", "(", "[", "{", "=")
