"""What the editor is told: hover, definition, references, completion, outline – also of texts with faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from tileir.editor.analysis import Analysis

ROOT = Path(__file__).parents[2]
TEXT = """tileir 1
const STEP = 32

// %a of the comment
kernel @first<BM: int = 64, T: type = bf16>(%A: global<T[M, K]>, %B: global<T[M, K]>) grid(cdiv(M, BM)) {
  %i = program_id()
  %zero = fill(0.0) : tile<f32[BM, STEP]>
  %sum = for %k = 0 to K step STEP carry(%c = %zero) {
    %a = load(%A[%i * BM +: BM, %k +: STEP])
    yield %c + convert<f32>(%a)
  }
  %s = reduce_add(%sum, axis = 1)
  store(convert<T>(%sum), %B[%i * BM +: BM, 0 +: STEP])
}

kernel @second(%A: global<f32[4]>) grid(1) {
  %a = load(%A[0 +: 4])
  store(%a, %A[0 +: 4])
}

schedule @s of @first for gfx950 {
  loop %k pattern plain
}
"""


def at(text: str, mark: str, nth: int = 0) -> int:
    """The offset in the middle of the nth occurrence of a word."""
    offset = -1
    for _ in range(nth + 1):
        offset = text.index(mark, offset + 1)
    return offset + 1


@pytest.fixture
def analysis() -> Analysis:
    found = Analysis(TEXT, "t.tile")
    assert [d for d in found.diagnostics if d.severity == "error"] == []
    return found


@pytest.mark.parametrize(
    ("mark", "nth", "says"),
    [
        ("%a", 1, "%a: tile<bf16[64, 32]>"),
        ("%a", 3, "%a: tile<f32[4]>"),
        ("%c", 0, "%c: tile<f32[64, 32]>"),
        ("%k", 0, "%k: i32"),
        ("%A", 0, "%A: global<bf16[M, K]>"),
        ("%k", 2, "%k: i32"),
        ("@first", 1, "kernel @first<BM = 64, T = bf16>"),
        ("reduce_add", 0, "reduce_add(x, axis = …)"),
        ("BM", 2, "parameter `BM` = 64"),
        ("K", 1, "dimension symbol `K`: i32 argument of @first"),
        ("f32", 0, "`f32`: float of 32 bits"),
    ],
)
def test_hover(analysis: Analysis, mark: str, nth: int, says: str) -> None:
    found = analysis.hover(at(TEXT, mark, nth))
    assert found is not None and says in found[0], found


def test_no_hover_in_comments_and_spaces(analysis: Analysis) -> None:
    assert analysis.hover(at(TEXT, "%a", 0)) is None
    assert analysis.hover(TEXT.index("\n\n") + 1) is None


@pytest.mark.parametrize(
    ("mark", "nth", "line", "column"),
    [
        ("%a)", 0, 9, 5),  # the load
        ("%sum", 1, 8, 3),
        ("%c +", 0, 8, 42),
        ("%k +:", 0, 8, 14),
        ("%A[", 0, 5, 45),
        ("%A[", 1, 16, 16),  # that of the second kernel
        ("%k pattern", 0, 8, 14),
        ("@first for", 0, 5, 8),
        ("STEP carry", 0, 2, 7),
        ("BM +:", 0, 5, 15),
        ("T>(%sum", 0, 5, 29),
    ],
)
def test_definition(analysis: Analysis, mark: str, nth: int, line: int, column: int) -> None:
    word = analysis.definition(at(TEXT, mark, nth))
    assert word is not None
    assert analysis.source.position(word.start) == (line, column)


def test_references_stay_in_their_kernel(analysis: Analysis) -> None:
    lines = [analysis.source.position(w.start)[0] for w in analysis.references(at(TEXT, "%k", 0))]
    assert lines == [8, 9, 22]
    lines = [analysis.source.position(w.start)[0] for w in analysis.references(at(TEXT, "%a = load(%A[0", 0))]
    assert lines == [17, 18]
    assert analysis.references(at(TEXT, "load", 0)) == []


def labels(analysis: Analysis, offset: int) -> list[str]:
    return [c.label for c in analysis.completions(offset)]


def test_completion(analysis: Analysis) -> None:
    inside = at(TEXT, "yield", 0) + 7  # behind "yield %c"
    assert {"%A", "%B", "%i", "%zero", "%sum", "%k", "%a"} <= set(labels(analysis, inside))
    assert "%s" not in labels(analysis, inside)  # defined later
    everything = labels(analysis, at(TEXT, "reduce_add", 0) - 1)
    assert {"load", "exp", "kernel", "bf16", "BM", "K"} <= set(everything) and "waves" in everything
    schedule = TEXT.index("loop %k")
    assert "waves" in labels(analysis, schedule) and "load" not in labels(analysis, schedule)
    assert labels(analysis, TEXT.index("@first for") + 3) == ["@first", "@second", "@s"]
    details = {c.label: c.detail for c in analysis.completions(inside)}
    assert details["%zero"] == "tile<f32[64, 32]>"
    assert analysis.completions(at(TEXT, "of the comment")) == []


def test_values_in_a_schedule(analysis: Analysis) -> None:
    assert {"%k", "%sum", "%a"} <= set(labels(analysis, TEXT.index("%k pattern") + 2))


def test_outline(analysis: Analysis) -> None:
    assert [(s.kind, s.name) for s in analysis.symbols()] == [
        ("const", "STEP"), ("kernel", "first"), ("kernel", "second"), ("schedule", "s"),
    ]  # fmt: skip


def test_broken_text_keeps_what_was_known(analysis: Analysis) -> None:
    broken = TEXT.replace("%s = reduce_add(%sum, axis = 1)", "%s = reduce_add(%su")
    later = Analysis(broken, "t.tile", analysis)
    assert any(d.severity == "error" for d in later.diagnostics) and later.module is None
    found = later.hover(at(broken, "%sum", 0))
    assert found is not None and "%sum: tile<f32[64, 32]>" in found[0]
    word = later.definition(at(broken, "%c +", 0))
    assert word is not None and later.source.position(word.start) == (8, 42)
    assert "%sum" in labels(later, broken.index("%su\n") + 3)


@pytest.mark.parametrize("step", [1, 7])
def test_any_prefix_of_a_file_is_answered(step: int) -> None:
    """An editor sees every half-written text: no question may fail on any of them."""
    text = (ROOT / "tileir/kernels/gemm.tile").read_text(encoding="utf-8")
    before: Analysis | None = None
    for end in range(0, len(text), 13 if step == 1 else 29):
        part = text[:end]
        before = Analysis(part, "p.tile", before)
        for offset in range(0, end + 1, 17 * step):
            before.hover(offset)
            before.definition(offset)
            before.references(offset)
        before.completions(end)
        before.symbols()
