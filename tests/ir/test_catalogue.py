"""Every diagnostic code in the sources has an explanation, and every explanation a code in the sources."""

import re
from pathlib import Path

from tileir.ir.diagnostics import catalogue

_CODE = re.compile(r'"([EWR][0-9]{4})"')


def _used(root: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path in sorted((root / "tileir").rglob("*.py")):
        for code in _CODE.findall(path.read_text(encoding="utf-8")):
            found.setdefault(code, set()).add(str(path.relative_to(root)))
    return found


def test_catalogue_has_exactly_the_codes_of_the_sources(repository: Path) -> None:
    used = _used(repository)
    assert {c: sorted(used[c]) for c in used if c not in catalogue()} == {}, "codes without an explanation"
    assert [c for c in catalogue() if c not in used] == [], "explanations of codes that nothing gives"


def test_explanations_are_sentences() -> None:
    for code, text in catalogue().items():
        assert text[0].isupper() or text[0] == "`", code
        assert text.endswith(".") and "\n" not in text and len(text) < 200, code
    assert len(set(catalogue().values())) == len(catalogue())
