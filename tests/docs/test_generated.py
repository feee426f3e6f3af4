"""The generated parts of the documentation are those that the code gives now."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import generate  # noqa: E402

from tileir.ir.diagnostics import catalogue  # noqa: E402
from tileir.ir.registry import all_ops  # noqa: E402
from tileir.passes.pipeline import pipeline  # noqa: E402

pytestmark = pytest.mark.xdist_group("docs")


def test_committed_text_is_up_to_date() -> None:
    for path, text in generate.documents().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is out of date: run python docs/generate.py"


def test_everything_is_documented() -> None:
    language = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    assert [n for n in all_ops() if f"#### `{n}`" not in language] == []
    architecture = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert [s.label for s in pipeline() if f"| `{s.label}` |" not in architecture] == []
    diagnostics = (ROOT / "docs" / "diagnostics.md").read_text(encoding="utf-8")
    assert [c for c in catalogue() if f"| {c} |" not in diagnostics] == []


def test_stale_text_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- generated: normal forms -->\nold\n<!-- end of normal forms -->\nafter\n")
    (tmp_path / "README.md").write_text("nothing generated\n")
    monkeypatch.setattr(generate, "DOCS", tmp_path)
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["generate.py", "--check"])
    assert generate.main() == 1
    assert "page.md is out of date" in capsys.readouterr().out
    assert "old" in page.read_text()
    monkeypatch.setattr(sys, "argv", ["generate.py"])
    assert generate.main() == 0
    text = page.read_text()
    assert "old" not in text and "| bound | the kernel names its chip |" in text
    assert text.startswith("before\n") and text.endswith("after\n")
