"""Case no-location: every diagnostic of the front end has a file with faulty text; this reads the same files as `make filetests`, and also checks
that each message says what would be legal and underlines the right characters."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tileir.frontend import parse, parse_file
from tileir.ir.diagnostics import CompileError, Diagnostic, Log, catalogue
from tileir.ir.verifier import verify
from tileir.tools.expectations import mismatches

ERRORS = sorted((Path(__file__).parent.parent / "filetests" / "errors").glob("[EW]*.tile"))
# Codes of the front end and of type rules that no file can show, and where they are tested instead.
ELSEWHERE = {
    "E0101": "test_invalid_utf8",
    "E0210": "test_unknown_kernel",
    "E0216": "tests/api/test_builder.py",
    "E0217": "tests/api/test_builder.py",
    "E0505": "tests/ir/test_verifier.py",
    "E0516": "tests/api/test_builder.py",
}


def diagnose(path: Path) -> tuple[Diagnostic, ...]:
    """Warnings and errors of a file, with the definitions of its RUN line."""
    log = Log()
    defines = dict(d.split("=") for d in re.findall(r"-D (\S+)", path.read_text(encoding="utf-8", errors="replace")))
    try:
        for kernel in parse_file(path, defines, log=log).kernels:
            verify(kernel)
    except CompileError as e:
        return (*log.diagnostics, *e.diagnostics)
    return tuple(log.diagnostics)


# Bytes that are no text have a test of their own; where the first RUN line goes further than the parser, passes find the fault.
PARSED = [
    p
    for p in ERRORS
    if not p.name.startswith("E0101") and "--stop-after parse" in p.read_text(encoding="utf-8").splitlines()[0]
]


@pytest.mark.parametrize("path", PARSED, ids=lambda p: p.stem)
def test_file(path: Path) -> None:
    found = diagnose(path)
    assert mismatches(path.read_text(encoding="utf-8"), str(path), found) == []
    assert {d.code for d in found} == {path.name[:5]}, "one file per code"
    text = path.read_text(encoding="utf-8").splitlines()
    for d in found:
        assert d.legal, d
        assert 1 <= d.loc.line <= len(text) and 1 <= d.loc.column <= len(text[d.loc.line - 1]) + 1
        assert (d.loc.line, d.loc.column) < (d.loc.end_line, d.loc.end_column)
        assert d.loc.column <= len(text[d.loc.line - 1].split(" // ")[0]), "the caret is not under a comment"
        assert d.code in catalogue()


def test_every_code_of_the_front_end_has_a_file() -> None:
    shown = {p.name[:5] for p in ERRORS}
    mine = {c for c in catalogue() if c < "E06" or c.startswith(("E062", "E063", "W02"))}
    assert mine - shown - set(ELSEWHERE) == set()
    assert len(shown) >= 50


def test_invalid_utf8() -> None:
    (path,) = [p for p in ERRORS if p.name.startswith("E0101")]
    (d,) = diagnose(path)
    assert (d.code, d.loc.line, d.loc.column) == ("E0101", 6, 6)


def only(text: str, **options: object) -> Diagnostic:
    with pytest.raises(CompileError) as caught:
        parse(text, "t.tile", **options)  # type: ignore[arg-type]
    (d,) = caught.value.diagnostics
    return d


def test_unknown_kernel() -> None:
    d = only("tileir 1\nkernel @gemm() grid(1) { }\n", kernel="gem")
    assert (d.code, d.loc.line, d.legal) == ("E0210", 1, "did you mean @gemm?")


HEAD = "tileir 1\nkernel @k(%A: global<f32[M, N]>, %scale: f32, %h: f16, %b: i1) grid(M) {\n"


@pytest.mark.parametrize(
    ("line", "underlined", "legal"),
    [
        ("%x = exp2(%scal) + 1", "%scal", "did you mean %scale?"),
        ("%x = %scale * (%h + 1)", "(%h + 1)", "convert<f32>(…)"),
        ("%x = load(%A[M, 0 +: 4.5])", "4.5", "a compile-time integer"),
        ("%x = exq2(%scale)", "exq2", "did you mean exp2?"),
        ("%x = load(%A[0, 0], pas = 1)", "pas = 1", "did you mean pad?"),
        ("%x = load(%A[0, %scale])", "%scale", "an i32 or i64 scalar (or integer tile of rows)"),
        ("%x = add(%h, %scale)", "%scale", "convert<f16>(…)"),
        ("%x = where(%b, %h, 70000.5 + MN)", "MN", "did you mean N?"),
        ("%x = fill(1) : tile<f32[64, N]>", "N", "a compile-time value (literals and parameters)"),
        ("if %b & %scale { }", "%scale", "elements of kind int or bool"),
        ("%x = convert<F32>(%h)", "F32", "one of the names in scope: M, N"),
        ("%r = if %b carry(%c = %h) { }", "}", "yield …, one value for each that is carried"),
        ("%x = reduce_add(%h, axis = 0)", "%h", "axis no axis: the operand is a scalar"),
        ("%x = %scale +", "}", None),
    ],
)
def test_spans(line: str, underlined: str, legal: str | None) -> None:
    text = HEAD + line + "\n}\n"
    d = only(text)
    rows = text.split("\n")
    assert d.loc.line == d.loc.end_line
    got = rows[d.loc.line - 1][d.loc.column - 1 : d.loc.end_column - 1]
    if underlined.startswith("("):
        underlined = underlined[1:-1]
    assert got == underlined
    assert legal is None or d.legal == legal


def test_rendering() -> None:
    with pytest.raises(CompileError) as caught:
        parse(HEAD + "  %x = %scale + 1\n  %x = %h\n}\n", "t.tile")
    assert str(caught.value) == (
        "t.tile:4:3: error: [E0202] %x is defined twice\n"
        "    %x = %h\n"
        "    ^^\n"
        "  = legal: a name that is unique in the kernel\n"
        "t.tile:3:3: note: first defined here\n"
        "    %x = %scale + 1\n"
        "    ^^"
    )


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "E0103"),
        ("\n\n// nothing\n", "E0103"),
        ("tileir", "E0103"),
        ("tileir x", "E0103"),
        ("tileir 99999999999999999999999999", "E0104"),
        ("tileir 1 2", "E0105"),
        ("tileir 1\nkernel", "E0106"),
        ("tileir 1\nkernel @k() grid(1) {\n" + "if true {\n" * 60 + "}\n" * 61, "E0108"),
        ("tileir 1\nconst A = " + "(" * 5000 + "1" + ")" * 5000, None),
        ("tileir 1\nconst A = " + "1 + " * 5000 + "1", "E0108"),
        ("tileir 1\nconst A = " + "-" * 5000 + "1", "E0108"),
        ("tileir 1\nconst A = 1 << 63 << 63", "E0347"),
        ("tileir 1\nconst A = " + "9" * 10000, "E0107"),
        ("tileir 1\nconst A = " + "9" * 10000 + ".5", "E0107"),
        ("tileir 1\nkernel @k() grid(1) {\n%x = iota<" + "[" * 3000 + "]" * 3000 + ">()\n}", "E0108"),
        (
            "tileir 1\nkernel @k() grid(1) {\n%x = fill(0) : tile<f32[4], linear(reg = "
            + "[" * 3000
            + "]" * 3000
            + ")>\n}",
            "E0108",
        ),
        ("tileir 1\nkernel @k(%A: global<f32[99999999999999999999]>) grid(1) {\n}", "E0107"),
        ("tileir 1\nkernel @k() grid(99999999999) {\n}", "E0510"),
        ("tileir 1\nkernel @k() grid(1 - 1) {\n}", "E0510"),
        ("tileir 1\nkernel @k(%A: global<f32[M]>) grid(M / 0) {\n}", "E0348"),
        ('tileir 1\nkernel @k() grid(1) {\n%x = 1 loc("\\q":1:1)\n}', "E0109"),
        ('tileir 1\nkernel @k() grid(1) {\n%x = 1 loc("q":99999999999:1)\n}', "E0107"),
        ("tileir 1\nkernel @k(%s: f32) grid(1) {\n%s\n}", "E0105"),
        ("tileir 1\nkernel @k(%s: f32) grid(1) {\n%s = 2\n}", "E0202"),
        ("tileir 1\nkernel @k(%s: f32, %s: f32) grid(1) {\n}", "E0202"),
        ("tileir 1\nkernel @k(%s: f32) grid(1) {\nmax(1, 2)\n}", "E0349"),
        ("tileir 1\nkernel @k(%s: f32) grid(1) {\n%x, %y = max(1, 2)\n}", "E0303"),
        ("tileir 1\nkernel @k(%s: f32) grid(1) {\n%x, %y = convert<f16>(1.5)\n}", "E0303"),
        ("tileir 1\nkernel @k(%s: f32) grid(1) {\n%x, %y = where(true, %s, %s)\n}", "E0303"),
        ("tileir 1\nkernel @k(%s: f32) grid(1) {\n%x, %y = %s + 1\n}", "E0303"),
        ("tileir 1\nkernel @k(%s: f32) grid(1) {\n%x = %s + 1 : f32, f32\n}", "E0303"),
        (
            "tileir 1\nkernel @k(%s: f32) grid(1) {\n%x = num_programs() + program_id() + 1\nif true { %y = program_id() }\n}",
            None,
        ),
        ("tileir 1\nconst A = 1\nconst A = 2", "E0207"),
        ("tileir 1\ntype A = f32\nconst A = 2", "E0207"),
        ("tileir 1\ntype A = tile<f32[B]>\n", "E0205"),
        ("tileir 1\nkernel @k<T: type>() grid(1) {\n%x = 1 : T\n}", "E0208"),
        ("\u00a0tileir 1", "E0102"),
        ("tileir 1\n\x00", "E0102"),
        ("tileir 1\n\ud800", "E0102"),
    ],
)
def test_odd_texts(text: str, code: str | None) -> None:
    if code is None:
        parse(text)
    else:
        assert only(text).code == code


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"BM": "x"}, "E0212"),
        ({"BM": "99999999999999999999999"}, "E0212"),
        ({"BM": 1 << 80}, "E0212"),
        ({"BM": 1.5}, "E0212"),
        ({"BM": True}, "E0212"),
        ({"T": "f33"}, "E0212"),
        ({"T": 3}, "E0212"),
        ({"C": "yes"}, "E0212"),
        ({"E": "fast"}, "E0212"),
        ({"bm": "64"}, "E0209"),
    ],
)
def test_values_from_outside(given: dict[str, object], code: str) -> None:
    text = "tileir 1\nkernel @k<BM: int = 1, T: type = f32, C: bool = true, E: float = 1.0>() grid(BM) {\n}\n"
    d = only(text, params=given)
    assert d.code == code and d.legal
