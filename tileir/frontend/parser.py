"""From text to a tree, by the LALR(1) table that `build_table` made of `grammar.lark`.

The tree is the one lark would build (a test compares them); driving the table ourselves saves the import of lark, tells exactly
which tokens a syntax error could have been, and lets keywords be ordinary words wherever the grammar has no use for them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any


class Node:
    """A node of the tree, or a token (then `text` is what was written and `children` is empty). An absent optional part
    is a None among the children. `start` and `end` are offsets into the text."""

    __slots__ = ("children", "end", "kind", "start", "text")

    def __init__(self, kind: str, start: int, end: int, text: str = "", children: list[Any] | None = None):
        self.kind = kind
        self.start = start
        self.end = end
        self.text = text
        self.children: list[Any] = children if children is not None else []

    def walk(self) -> Iterator[Node]:
        """This node and everything below it in the order of the text, without recursion."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack += [c for c in reversed(node.children) if c is not None]

    def __repr__(self) -> str:
        return f"{self.kind}({self.text!r})" if not self.children else f"{self.kind}{self.children}"


class SyntaxFault(Exception):
    """The first token that cannot stand where it is, and the terminals that could; `kind` is "$END" at the end of the
    text and "BAD" for a character that begins no token. `stack` holds what was read so far, `starts` where its parts begin."""

    def __init__(self, token: Node, expected: list[str], stack: list[Node], starts: list[int]):
        super().__init__(token, expected)
        self.token = token
        self.expected = expected
        self.stack = stack
        self.starts = starts


class Table:
    """The parse table, ready for use."""

    def __init__(self, data: dict[str, Any]):
        self.digest: str = data["digest"]
        self.start: int = data["start"]
        self.end: int = data["end"]
        self.rules: list[tuple[str, int, str, list[int]]] = [tuple(rule) for rule in data["rules"]]
        self.actions: list[dict[str, int]] = [dict(zip(r[::2], r[1::2], strict=True)) for r in data["actions"]]
        self.gotos: list[dict[str, int]] = [dict(zip(r[::2], r[1::2], strict=True)) for r in data["gotos"]]
        self.units: dict[tuple[int, int, str], int] = {}
        self.literals: dict[str, str] = data["literals"]
        self.names: dict[str, str] = {name: text for text, name in self.literals.items()}
        word = re.compile(r"[a-z][a-z_0-9]*\Z")
        signs = sorted((t for t in self.literals if not word.match(t)), key=lambda t: (-len(t), t))
        between = "|".join(pattern for name, pattern in data["patterns"] if name in data["ignore"])
        groups = [f"(?P<{name}>{pattern})" for name, pattern in data["patterns"] if name not in data["ignore"]]
        groups += [f"(?P<SIGN>{'|'.join(map(re.escape, signs))})", r"(?P<END>\Z)", "(?P<BAD>.)"]
        self.tokens = re.compile(f"(?:{between})*(?:{'|'.join(groups)})", re.DOTALL)
        # Tokens that always have the same text share one node; no rule asks where they stand.
        self.fixed = {name: Node(name, -1, -1, text) for text, name in self.literals.items()}

    def unit(self, below: int, state: int, kind: str) -> int:
        """The state after all reductions of one symbol to one symbol without a node of its own, which the precedence levels
        of expressions are full of; `below` is the state under `state`. Remembered, as there are few and they repeat."""
        first = state
        while (action := self.actions[state].get(kind, 1)) < 0:
            origin, length, name, _ = self.rules[-action - 1]
            if length != 1 or name:
                break
            state = self.gotos[below][origin]
        self.units[below, first, kind] = state
        return state

    def accepts(self, states: list[int]) -> list[str]:
        """The terminals that can follow in this state, by trying each of them."""
        return [name for name in self.actions[states[-1]] if self._shifts(states, name)]

    def _shifts(self, states: list[int], name: str) -> bool:
        states = list(states)
        while (action := self.actions[states[-1]].get(name)) is not None:
            if action > 0:
                return True
            origin, length, _, _ = self.rules[-action - 1]
            if length:
                del states[-length:]
            states.append(self.gotos[states[-1]][origin])
            if name == "$END" and states[-1] == self.end:
                return True
        return False


@cache
def table() -> Table:
    """The shipped table."""
    path = Path(__file__).parent / "grammar_table.json"
    return Table(json.loads(path.read_text(encoding="utf-8")))


def parse_tree(text: str) -> Node:
    """The tree of a whole text. Raises SyntaxFault."""
    try:
        return _parse(text, -1)
    except SyntaxFault as fault:
        # Reductions that the faulty token seemed to allow have hidden part of what could stand there: read up to it again.
        _parse(text, fault.token.start)
        raise AssertionError("the second reading stops at the same token") from None


def _parse(text: str, stop: int) -> Node:
    """Reads the text, or up to the token at `stop`, where it raises SyntaxFault."""
    t = table()
    actions, gotos, rules, units, literals, fixed = t.actions, t.gotos, t.rules, t.units, t.literals, t.fixed
    states = [t.start]
    values: list[Any] = []
    starts: list[int] = []
    last = 0  # where the last token ended: all that is reduced before the next one ends there
    for match in t.tokens.finditer(text):
        kind: str = match.lastgroup  # type: ignore[assignment]
        start, end = match.span(kind)
        word = match[kind]
        row = actions[states[-1]]
        if kind == "LOWER":
            keyword = literals.get(word)
            if keyword is not None and (keyword in row or "LOWER" not in row):
                kind = keyword
        elif kind == "SIGN":
            kind = literals[word]
        elif kind == "END":
            kind = "$END"
        while True:
            action = row.get(kind)
            if action is None or start == stop:
                raise SyntaxFault(Node(kind, start, end, word), t.accepts(states), values, starts)
            if action > 0:
                break
            origin, length, name, steps = rules[-action - 1]
            if length == 1 and not name:
                key = (states[-2], states[-1], kind)
                state = units.get(key)
                if state is None:
                    state = t.unit(*key)
                states[-1] = state
                row = actions[state]
                continue
            if length:
                parts = values[-length:]
                begin = starts[-length]
                del states[-length:], values[-length:], starts[-length:]
            else:
                parts = []
                begin = last
            values.append(Node(name, begin, last, "", _children(parts, steps)) if name else parts[steps[0] >> 1])
            starts.append(begin)
            state = gotos[states[-1]][origin]
            states.append(state)
            row = actions[state]
            if state == t.end:
                return values[-1]
        states.append(action - 1)
        values.append(fixed.get(kind) or Node(kind, start, end, word))
        starts.append(start)
        last = end
    raise AssertionError("the pattern of tokens matches the end of every text")


def _children(parts: list[Any], steps: list[int]) -> list[Any]:
    """The children of a node, by the steps of its rule (see build_table)."""
    children: list[Any] = []
    for step in steps:
        if step < 0:
            children.append(None)
        elif not step & 1:
            children.append(parts[step >> 1])
        elif children:
            children += parts[step >> 1].children
        else:  # a list that grows from the left: keep it, so that long lists cost linear time
            children = parts[step >> 1].children
    return children
