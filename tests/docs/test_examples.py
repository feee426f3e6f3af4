"""Every example in the documentation does what the documentation says."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import blocks  # noqa: E402

pytestmark = pytest.mark.xdist_group("docs")
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=[d.name for d in DOCUMENTS])
def test_examples_hold(document: Path) -> None:
    failures = blocks.Runner(document).run()
    assert not failures, "\n\n".join([*failures, f"python docs/blocks.py --update {document.relative_to(ROOT)}"])


@pytest.mark.parametrize("document", DOCUMENTS, ids=[d.name for d in DOCUMENTS])
def test_links_lead_somewhere(document: Path) -> None:
    import re

    text = document.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        assert (document.parent / link).exists(), f"{document.name} links to {link}"


# The runner itself


def document(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "example.md"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```tile\n%r = nothing(%x)\n```\n", "should be accepted"),
        ("```tile error=E0313\n%r = %x + 1.0\n```\n", "should be rejected with E0313"),
        ("```tile error=E0313\n%r = nothing(%x)\n```\n", "not E0201"),
        (
            "```tile compile\ntileir 1\nkernel @k(%X: global<i1[N]>) grid(N) {\n  store(load(%X[0]), %X[0])\n}\n```\n",
            "E0701",
        ),
        ("```tile op=add\n%r = add(%a, %a) : tile<f32[64, 64]>\n```\n", "not the example"),
        ("```sh\n$ echo a\nb\n```\n", "printed\na"),
        ("```sh\n$ false\n```\n", "status 1"),
        ("```sh fails\n$ true\n```\n", "status 0"),
        ("```sh\necho a\n```\n", "runs nothing"),
        ("```python\nprint(1)\n```\n", "no `output` block"),
        ("```python\nprint(1)\n```\n\n```output\n2\n```\n", "printed\n1"),
        ("```python\nraise ValueError\n```\n", "script failed"),
    ],
)
def test_runner_sees_what_does_not_hold(tmp_path: Path, text: str, complaint: str) -> None:
    (failure,) = blocks.Runner(document(tmp_path, text)).run()
    assert failure.startswith("example.md:2: ")
    assert complaint in failure


def test_runner_accepts_what_holds(tmp_path: Path) -> None:
    text = (
        "```tile file=a.tile\ntileir 1\n```\n\n```sh\n$ cat a.tile\ntileir 1\n$ echo b; echo c; \\\n  echo d\nb\n…\n```\n\n"
        "```python\nprint('x')\n```\n\n```output\nx\n```\n\n```text\n$ false\n```\n"
        "```python needs=no_such_module\nnothing()\n```\n"
    )
    runner = blocks.Runner(document(tmp_path, text))
    assert runner.run() == []
    assert runner.count == 3


def test_masks_stand_for_text_that_varies() -> None:
    assert blocks.matches("took … s\n", "took 1.2 s\n")
    assert not blocks.matches("took … s\n", "took 1.2 ms\n")
    assert not blocks.matches("took … s\n", "took 1\n2 s\n")
    assert blocks.matches("a\n…\nz\n", "a\nb\nc\nz\n")
    assert blocks.matches("a\n…\n", "a\n")
    assert not blocks.matches("", "a\n")
    assert blocks.matches("a.c\n", "a.c\n") and not blocks.matches("a.c\n", "abc\n")


def test_update_writes_the_real_output_and_keeps_masks(tmp_path: Path) -> None:
    path = document(tmp_path, "```sh\n$ echo took 3 s; echo two\ntook … s\none\n```\nend\n")
    runner = blocks.Runner(path)
    assert runner.run()
    runner.update()
    assert path.read_text() == "```sh\n$ echo took 3 s; echo two\ntook … s\ntwo\n```\nend\n"
    assert blocks.Runner(path).run() == []
