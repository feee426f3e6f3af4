"""`--format` keeps every token and comment, and is at rest after one step."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import kernels

from tileir.frontend import parse
from tileir.frontend.formatter import format_text
from tileir.frontend.parser import parse_tree, table
from tileir.ir.core import Module
from tileir.ir.diagnostics import CompileError
from tileir.ir.printer import print_module
from tileir.tools import opt

REPOSITORY = Path(__file__).parents[2]
FILES = sorted(f for d in ("examples", "tileir/kernels", "tests") for f in (REPOSITORY / d).rglob("*.tile"))
COMMENT = re.compile(r"//[^\n]*")


def tokens(text: str) -> list[str]:
    return [m[m.lastgroup] for m in table().tokens.finditer(text) if m.lastgroup]


def comments(text: str) -> list[str]:
    """Comments are found where no text in quotes is; none of the texts here has quotes around slashes."""
    return [c.group().rstrip() for c in COMMENT.finditer(text)]


def shape(node: Any) -> Any:
    return None if node is None else (node.kind, node.text, [shape(c) for c in node.children])


def assert_formats(text: str) -> str:
    out = format_text(text)
    assert tokens(out) == tokens(text)
    assert comments(out) == comments(text)
    assert shape(parse_tree(out)) == shape(parse_tree(text))
    assert format_text(out) == out
    assert not re.search(r"[ \t]$", out, re.MULTILINE) and out.endswith("\n") and "\n\n\n" not in out
    return out


def readable(path: Path) -> str | None:
    """The text if it is well formed (tests hold texts that are not)."""
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        format_text(text)
    except CompileError:
        return None
    return text


def test_every_file_of_the_repository() -> None:
    texts = [t for t in map(readable, FILES) if t is not None]
    assert len(texts) >= 20
    for text in texts:
        assert_formats(text)


@pytest.mark.parametrize("path", sorted((REPOSITORY / "tileir/kernels").glob("*.tile")), ids=lambda p: p.stem)
def test_the_library_is_formatted(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert format_text(text) == text


MESS = """// top
tileir 1
const   X=3   // const
kernel @a<BM:int=4,  F : type=f32>(%A:global<f32[M,4],strides=[LDA ,1]>, // first
  // own line
  %B:global<f32[M,4]>) grid( cdiv( M,BM ) ) fp strict
alias(%A,%B) {


// only
  %i=program_id( )
  %x = load(%A[%i*BM+:BM,0+:4],
  pad=-inf) %y:f32 = -%x*(-2.0)+ -1.0
  if %i<3 & !(%i>1){ store(%y,%B[%i*BM+:BM,0+:4]) // c
  yield}else{// nothing
  // hi
}
  // tail
}
schedule @s of @a for gfx950 when F==f32{ waves %x 2x4 // aa
 mma %y 16x16x32 swapped // b

 order xcd(chunk=64,window=8) registers 256 }
// end"""

ORDER = """// top
tileir 1
const X = 3  // const
kernel @a<BM: int = 4, F: type = f32>(%A: global<f32[M, 4], strides = [LDA, 1]>,  // first
    // own line
    %B: global<f32[M, 4]>) grid(cdiv(M, BM)) fp strict
    alias(%A, %B) {
  // only
  %i = program_id()
  %x = load(%A[%i * BM +: BM, 0 +: 4],
      pad = -inf)
  %y = -%x * (-2.0) + -1.0
  if %i < 3 & !(%i > 1) {
    store(%y, %B[%i * BM +: BM, 0 +: 4])  // c
    yield
  } else {  // nothing
    // hi
  }
  // tail
}
schedule @s of @a for gfx950 when F == f32 {
  waves %x 2x4             // aa
  mma %y 16x16x32 swapped  // b

  order xcd(chunk = 64, window = 8)
  registers 256
}
// end
"""


def test_spaces_lines_and_comments() -> None:
    assert assert_formats(MESS.replace("%y:f32", "%y")) == ORDER


def test_windows_line_ends() -> None:
    assert format_text(MESS.replace("%y:f32", "%y").replace("\n", "\r\n")) == ORDER


SPACES = st.sampled_from([" ", "  ", "\n", "\n\n", "\n\n\n", " // note\n", "\n  // own line\n", "\t"])


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(kernels(), st.data())
def test_random_kernels_with_any_spaces(kernel: Any, data: st.DataObject) -> None:
    """Spaces and comments between any two tokens: the result has the same tokens and comments, and means the same."""
    text = print_module(Module([kernel]))
    words = [w for w in tokens(text) if w]
    gaps = data.draw(st.lists(SPACES, min_size=7, max_size=7))
    mixed = "tileir 1 " + "".join(w + gaps[(3 * i + len(w)) % 7] for i, w in enumerate(words[2:])) + "\n"
    assert print_module(parse(assert_formats(mixed))) == print_module(parse(text))


def test_the_canonical_text_is_at_rest() -> None:
    source = (REPOSITORY / "examples/attention.tile").read_text(encoding="utf-8")
    canonical = print_module(parse(source))
    assert format_text(canonical) == canonical


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.tile"
    path.write_text(MESS.replace("%y:f32", "%y"), encoding="utf-8")
    assert opt.main(["--format", str(path), "-o", str(path)]) == 0
    assert path.read_text(encoding="utf-8") == ORDER
    path.write_text("tileir 1\nkernel @a() grid(1) { %x = fill(1.0 }\n", encoding="utf-8")
    before = path.read_bytes()
    assert opt.main(["--format", str(path), "-o", str(path)]) == 1
    assert "E0113" in capsys.readouterr().err
    assert path.read_bytes() == before
    assert opt.main(["--format", str(path), "--stop-after", "parse"]) == 2
