"""No text gives anything but a module or a CompileError with located, renderable diagnostics."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tileir.frontend import parse
from tileir.frontend.parser import table
from tileir.ir.diagnostics import CompileError, catalogue
from tileir.ir.printer import print_module
from tileir.ir.verifier import verify

ROOT = Path(__file__).parent.parent.parent
TEXTS = [p.read_text(encoding="utf-8") for p in sorted(ROOT.glob("examples/*.tile"))]
TEXTS += [(Path(__file__).parent / "wave_level.tile").read_text(encoding="utf-8")]
TEXTS += [
    p.read_text(encoding="utf-8")
    for p in sorted(ROOT.glob("tests/filetests/errors/*.tile"))
    if not p.name.startswith("E0101")
]
LITERALS = sorted(table().literals)
WORDS = [
    *LITERALS,
    "%x",
    "%A",
    "@k",
    "BM",
    "M",
    "T",
    "add",
    "load",
    "mma",
    "bf16",
    "i1",
    "1",
    "0",
    "-1",
    "1.5",
    "99",
    "2 x 4",
]
WORDS += ["inf", "1e999", "9" * 30, "[4, 4]", "tile<f32[4]>", "\n", "//", '"a"', "constant<1>()", "program_id()"]


def check(text: str) -> None:
    """Parses; whatever is accepted verifies and survives a round trip."""
    try:
        module = parse(text, "f.tile")
    except CompileError as e:
        assert e.diagnostics and len(e.diagnostics) <= 20
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        for d in e.diagnostics:
            assert d.code in catalogue() and d.message and d.legal, d
            assert d.loc.file == "f.tile" and 1 <= d.loc.line <= len(lines), d
            assert 1 <= d.loc.column <= len(lines[d.loc.line - 1]) + 1, d
        assert e.render()
        return
    for kernel in module.kernels:
        verify(kernel)
    assert parse(print_module(module)) == module


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A known text with pieces of lines or tokens dropped, doubled, swapped or replaced."""
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 3))):
        spans = [m.span(m.lastgroup) for m in table().tokens.finditer(text) if m.lastgroup]
        i = draw(st.integers(0, len(spans) - 1))
        start, end = spans[i]
        match draw(st.sampled_from(["drop", "double", "replace", "insert", "swap", "cut", "character", "line"])):
            case "drop":
                text = text[:start] + text[end:]
            case "double":
                text = text[:end] + " " + text[start:]
            case "replace":
                text = text[:start] + draw(st.sampled_from(WORDS)) + text[end:]
            case "insert":
                text = text[:start] + draw(st.sampled_from(WORDS)) + " " + text[start:]
            case "swap":
                a, b = spans[draw(st.integers(0, len(spans) - 1))]
                if b <= start:
                    text = text[:a] + text[start:end] + text[b:start] + text[a:b] + text[end:]
            case "cut":
                text = text[:start]
            case "line":
                lines = text.split("\n")
                j, k = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
                lines[j], lines[k] = lines[k], lines[j]
                text = "\n".join(lines)
            case _:
                text = text[:start] + draw(st.characters()) + text[start:]
    return text


bodies = st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(mutated())
def test_mutated_texts(text: str) -> None:
    check(text)


@settings(max_examples=200)
@given(st.text())
def test_any_text(text: str) -> None:
    check(text)
    check("tileir 1\n" + text)


@settings(max_examples=200)
@given(bodies, bodies)
def test_random_tokens(head: str, body: str) -> None:
    check(f"tileir 1 {head}")
    check(f"tileir 1\nkernel @k<BM: int = 4>(%A: global<f32[M]>, %x: f32) grid(1) {{ {body} }}")
    check(f"tileir 1\nkernel @k(%x: f32) grid(1) {{ %y = {body} }} schedule @s of @k for gfx950 {{ {head} }}")


@pytest.mark.nightly
@settings(max_examples=20_000, suppress_health_check=[HealthCheck.too_slow])
@given(mutated())
def test_many_mutated_texts(text: str) -> None:
    check(text)


@pytest.mark.nightly
@settings(max_examples=20_000)
@given(bodies, bodies)
def test_many_random_tokens(head: str, body: str) -> None:
    check(f"tileir 1\nkernel @k<BM: int = 4>(%A: global<f32[M]>, %x: f32) grid(1) {{ %y = {head}\n{body} }}")
