"""From text to a tree, by the LALR(1) table that `build_table` made of `grammar.lark`.

The tree is the one lark would build (a test compares them); driving the table ourselves saves the import of lark, tells exactly
which tokens a syntax error could have been, and lets keywords be ordinary words wherever the grammar has no use for them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from importlib import resources
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
    text and "$BAD" for a character that begins no token. `stack` holds what was read so far."""

    def __init__(self, token: Node, expected: list[str], stack: list[Node | None]):
        super().__init__(token, expected)
        self.token = token
        self.expected = expected
        self.stack = stack


class Table:
    """The parse table, ready for use."""

    def __init__(self, data: dict[str, Any]):
        self.digest: str = data["digest"]
        self.start: int = data["start"]
        self.end: int = data["end"]
        self.ignore = frozenset(data["ignore"])
        self.rules: list[tuple[str, int, str, list[int]]] = [tuple(rule) for rule in data["rules"]]
        self.actions: list[dict[str, int]] = [dict(zip(r[::2], r[1::2], strict=True)) for r in data["actions"]]
        self.gotos: list[dict[str, int]] = [dict(zip(r[::2], r[1::2], strict=True)) for r in data["gotos"]]
        self.literals: dict[str, str] = data["literals"]
        self.names: dict[str, str] = {name: text for text, name in self.literals.items()}
        word = re.compile(r"[a-z][a-z_0-9]*\Z")
        signs = sorted((t for t in self.literals if not word.match(t)), key=lambda t: (-len(t), t))
        groups = [f"(?P<{name}>{pattern})" for name, pattern in data["patterns"]]
        groups += [f"(?P<SIGN>{'|'.join(map(re.escape, signs))})", "(?P<BAD>.)"]
        self.tokens = re.compile("|".join(groups), re.DOTALL)

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
    text = resources.files("tileir.frontend").joinpath("grammar_table.json").read_text(encoding="utf-8")
    return Table(json.loads(text))


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
    actions, gotos, rules, ignore, literals = t.actions, t.gotos, t.rules, t.ignore, t.literals
    states = [t.start]
    values: list[Any] = []
    starts: list[int] = []
    ends: list[int] = []
    last = 0
    for match in t.tokens.finditer(text):
        start, end = match.span()
        kind: str = match.lastgroup  # type: ignore[assignment]
        if kind in ignore:
            continue
        word = match.group()
        row = actions[states[-1]]
        if kind == "LOWER":
            keyword = literals.get(word)
            if keyword is not None and (keyword in row or "LOWER" not in row):
                kind = keyword
        elif kind == "SIGN":
            kind = literals[word]
        while True:
            action = row.get(kind)
            if action is None or start == stop:
                raise SyntaxFault(Node(kind, start, end, word), t.accepts(states), values)
            if action > 0:
                break
            _reduce(rules[-action - 1], states, values, starts, ends, last, gotos)
            row = actions[states[-1]]
        states.append(action - 1)
        values.append(Node(kind, start, end, word))
        starts.append(start)
        ends.append(end)
        last = end
    while True:
        action = actions[states[-1]].get("$END")
        if action is None or stop >= 0:
            raise SyntaxFault(Node("$END", len(text), len(text)), t.accepts(states), values)
        _reduce(rules[-action - 1], states, values, starts, ends, last, gotos)
        if states[-1] == t.end:
            return values[-1]


def _reduce(
    rule: tuple[str, int, str, list[int]],
    states: list[int],
    values: list[Any],
    starts: list[int],
    ends: list[int],
    last: int,
    gotos: list[dict[str, int]],
) -> None:
    """Replaces the right side of a rule on top of the stacks by its node."""
    origin, length, name, steps = rule
    if length:
        parts = values[-length:]
        start, end = starts[-length], ends[-1]
        del states[-length:], values[-length:], starts[-length:], ends[-length:]
    else:
        parts = []
        start = end = last
    if name:
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
        node = Node(name, start, end, "", children)
    else:
        node = parts[steps[0] >> 1]
    states.append(gotos[states[-1]][origin])
    values.append(node)
    starts.append(start)
    ends.append(end)
