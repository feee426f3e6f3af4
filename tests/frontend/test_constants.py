"""Compile-time arithmetic: the text of an expression tree means that tree, and its value is the exact one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tileir.frontend import parse
from tileir.frontend.constants import MAX_INT, MIN_INT
from tileir.frontend.parser import Node, parse_tree
from tileir.frontend.unparse import expression_text
from tileir.ir.diagnostics import CompileError

_BINARY = "or xor and shl shr add sub mul div".split()


def token(kind: str, text: str) -> Node:
    return Node(kind, 0, 0, text)


def call(name: str, *operands: Node) -> Node:
    return Node("call", 0, 0, "", [token("LOWER", name), None, Node("operands", 0, 0, "", list(operands))])


integers = st.recursive(
    st.integers(0, 70).map(lambda n: token("INT", str(n))),
    lambda inner: st.one_of(
        st.builds(lambda op, a, b: Node(op, 0, 0, "", [a, b]), st.sampled_from(_BINARY), inner, inner),
        st.builds(lambda op, a: Node(op, 0, 0, "", [a]), st.sampled_from(["neg", "not"]), inner),
        st.builds(call, st.sampled_from(["mod", "cdiv", "min", "max"]), inner, inner),
        st.builds(call, st.just("abs"), inner),
    ),
    max_leaves=12,
)


class Undefined(Exception):
    pass


def value(node: Node) -> int:
    """The meaning of a tree, spelled out independently."""
    if node.kind == "INT":
        return int(node.text)
    name = node.children[0].text if node.kind == "call" else node.kind
    args = [value(c) for c in (node.children[2].children if node.kind == "call" else node.children)]
    result = _apply(name, *args)
    if not MIN_INT <= result <= MAX_INT:
        raise Undefined
    return result


def _apply(name: str, a: int, b: int = 0) -> int:
    if (name in ("div", "mod", "cdiv") and b == 0) or (name in ("shl", "shr") and not 0 <= b < 64):
        raise Undefined
    match name:
        case "div":
            return int(abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)
        case "mod":
            return abs(a) % abs(b) * (-1 if a < 0 else 1)
        case "cdiv":
            return -(-a // b)
    simple: dict[str, Any] = {
        "or": lambda: a | b, "xor": lambda: a ^ b, "and": lambda: a & b, "shl": lambda: a << b, "shr": lambda: a >> b,
        "add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b, "neg": lambda: -a, "not": lambda: ~a,
        "min": lambda: min(a, b), "max": lambda: max(a, b), "abs": lambda: abs(a),
    }  # fmt: skip
    return simple[name]()


def strip(node: Node | None) -> Any:
    """A tree without places."""
    return node and (node.kind, node.text, [strip(c) for c in node.children])


@given(integers)
def test_text_means_the_tree(tree: Node) -> None:
    text = expression_text(tree)
    assert strip(parse_tree(f"tileir 1 const A = {text}").children[1].children[1]) == strip(tree)


@given(integers)
def test_integers_are_exact(tree: Node) -> None:
    text = f"tileir 1\nkernel @k<A: int = ({expression_text(tree)})>() grid(1) {{ }}"
    try:
        want = value(tree)
    except Undefined:
        with pytest.raises(CompileError) as caught:
            parse(text)
        assert {d.code for d in caught.value.diagnostics} <= {"E0347", "E0348"}
        return
    assert parse(text).kernels[0].params["A"] == want


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_floats_are_f64(a: float, b: float) -> None:
    assume(b != 0)
    text = f"tileir 1\nconst A = {a!r} const B = {b!r}\nkernel @k<S: float = A + B, D: float = A - B, P: float = A * B, Q: float = A / B>() grid(1) {{ }}"
    assert list(parse(text).kernels[0].params.values()) == [a + b, a - b, a * b, a / b]
