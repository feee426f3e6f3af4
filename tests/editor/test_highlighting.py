"""Highlighting: Pygments and TextMate know every word of the language, whatever the files of the repository say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tileir.editor import textmate, words
from tileir.frontend.parser import table
from tileir.ir.registry import all_ops

ROOT = Path(__file__).parents[2]
FILES = sorted([*(ROOT / "tileir/kernels").glob("*.tile"), *(ROOT / "examples").glob("*.tile")])

SAMPLE = (
    "tileir 1\nkernel @k<T: type = bf16>(%A: global<T[M]>) grid(1) {\n  %x = load(%A[0 +: 4], pad = -1.5) // c\n}\n"
)


def lexed(text: str) -> list[tuple[str, str]]:
    pygments_lexer = pytest.importorskip("tileir.editor.pygments_lexer")
    return [
        (str(kind).removeprefix("Token."), s) for kind, s in pygments_lexer.TileLexer().get_tokens(text) if s.strip()
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_pygments_reads_every_file(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = lexed(text)
    assert [s for kind, s in found if kind.startswith("Error")] == []
    assert re.sub(r"\s", "", "".join(s for _, s in found)) == re.sub(r"\s", "", text)
    assert {"Keyword.Declaration", "Name.Function", "Name.Variable", "Name.Builtin"} <= {kind for kind, _ in found}


def test_pygments_kinds() -> None:
    found = dict((s, kind) for kind, s in lexed(SAMPLE))
    assert (
        found["kernel"] == "Keyword.Declaration" and found["@k"] == "Name.Function" and found["%A"] == "Name.Variable"
    )
    assert found["bf16"] == "Keyword.Type" and found["global"] == "Keyword.Type" and found["T"] == "Name.Constant"
    assert (
        found["load"] == "Name.Builtin" and found["pad"] == "Name.Attribute" and found["1.5"] == "Literal.Number.Float"
    )
    assert found["// c"] == "Comment.Single" and found["+:"] == "Operator"


def test_pygments_finds_the_lexer_by_name() -> None:
    pytest.importorskip("pygments")
    from importlib.metadata import entry_points

    named = [e for e in entry_points(group="pygments.lexers") if e.name == "tileir"]
    assert all(e.value == "tileir.editor.pygments_lexer:TileLexer" for e in named)


def test_textmate_grammar_is_current() -> None:
    assert textmate.OUT.read_text(encoding="utf-8") == textmate.text(), "run python -m tileir.editor.textmate"


def textmate_kinds(line: str) -> dict[str, str]:
    """Scopes of the words of a line, as an editor gives them: at each place the first rule that matches there."""
    rules = [(str(r["name"]), re.compile(r["match"])) for r in json.loads(textmate.text())["patterns"]]
    found: dict[str, str] = {}
    at = 0
    while at < len(line):
        hits = [(m.start(), i, m, name) for i, (name, p) in enumerate(rules) if (m := p.search(line, at)) and m.group()]
        if not hits:
            break
        _, _, m, name = min(hits, key=lambda h: h[:2])
        found[m.group().strip()] = name
        at = m.end()
    return found


def test_textmate_scopes() -> None:
    found = textmate_kinds("  %x = load(%A[0 +: 64], pad = -1.5) : tile<bf16[BM, 64]>  // note")
    assert found["load"] == "support.function.op.tile" and found["%x"] == "variable.other.tile"
    assert found["tile"] == "storage.type.space.tile" and found["bf16"] == "storage.type.element.tile"
    assert found["BM"] == "variable.parameter.tile" and found["pad"] == "variable.other.attribute.tile"
    assert found["1.5"] == "constant.numeric.tile" and found["// note"] == "comment.line.double-slash.tile"
    found = textmate_kinds("  waves %acc 2 x 4")
    assert found["waves"] == "keyword.control.directive.tile" and found["2 x 4"] == "constant.numeric.shape.tile"
    for element in words.elements():
        assert textmate_kinds(f"{element}[4]")[element] == "storage.type.element.tile"


def test_every_word_has_one_place() -> None:
    groups = [words.DECLARATIONS, words.CONTROL, words.CONSTANTS, words.SPACES, words.DIRECTIVES, words.modifiers()]
    listed = [w for group in groups for w in group]
    assert sorted(set(listed)) == list(words.keywords()) == sorted(t for t in table().literals if t.isalpha())
    assert len(listed) == len(set(listed))
    regional = {n for n, o in all_ops().items() if o.regions} | {"yield"}
    assert set(words.ops()) | regional == set(all_ops())
