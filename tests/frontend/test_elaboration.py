"""What sugar means: each short text is compared with its canonical form."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from tileir.frontend import parse, parse_file
from tileir.ir.core import Kernel
from tileir.ir.diagnostics import CompileError, Log
from tileir.ir.printer import print_kernel
from tileir.ir.types import BF16, F16, I64
from tileir.ir.verifier import verify

HEAD = (
    "tileir 1\nconst LOG2E = 1.5 * 2\nconst TWO = 2\ntype ROW = tile<f32[1, 64]>\ntype ACC = f32\n"
    "kernel @k<BM: int = 64, CAUSAL: bool = true, EPS: float = 1, T: type = bf16>"
    "(%A: global<T[M, K]>, %V: global<f32[K]>, %s: f32, %h: f16, %n: i64, %b: i1) grid(cdiv(M, BM)) {\n"
)


def kernel(body: str, **params: Any) -> Kernel:
    module = parse(HEAD + body + "\n}\n", params=params)
    verify(module.kernels[0])
    return module.kernels[0]


def canonical(body: str, **params: Any) -> str:
    """The body as printed, without indentation of the first level."""
    lines = print_kernel(kernel(body, **params)).splitlines()[1:-1]
    return textwrap.dedent("\n".join(lines))


def same(body: str, expected: str, **params: Any) -> None:
    assert canonical(body, **params) == textwrap.dedent(expected).strip()


def test_nested_expressions_become_numbered_ops() -> None:
    same(
        "%c = -%s * 1.5 + %s",
        """
        %0 = neg(%s) : f32
        %1 = constant<1.5>() : f32
        %2 = mul(%0, %1) : f32
        %c = add(%2, %s) : f32
        """,
    )


def test_numbers_avoid_the_names_of_the_author() -> None:
    same("%0 = %s + 1.0 // not %1", "%1 = constant<1.0>() : f32\n%0 = add(%s, %1) : f32")


def test_precedence() -> None:
    same(
        "%x = %n + 1 << 2 == %n & !%b | %b ^ %b",
        """
        %0 = constant<1>() : i64
        %1 = add(%n, %0) : i64
        %2 = constant<2>() : i64
        %3 = shl(%1, %2) : i64
        %4 = eq(%3, %n) : i1
        %5 = not(%b) : i1
        %6 = and(%4, %5) : i1
        %7 = xor(%b, %b) : i1
        %x = or(%6, %7) : i1
        """,
    )


@pytest.mark.parametrize(
    ("text", "constant"),
    [
        ("%x = %h * 2", "constant<2.0>() : f16"),
        ("%x = 2 * %h", "constant<2.0>() : f16"),
        ("%x = %h * -inf", "constant<-inf>() : f16"),
        ("%x = max(nan, %h)", "constant<nan>() : f16"),
        ("%x = %h / BM", "constant<64.0>() : f16"),
        ("%x = %n / BM", "constant<64>() : i64"),
        ("%x = %n + -(3 - 1)", "constant<-2>() : i64"),
        ("%x = %b & CAUSAL", "constant<true>() : i1"),
        ("%x = %h + EPS", "constant<1.0>() : f16"),
        ("%x = %s * LOG2E", "constant<3.0>() : f32"),
        ("%x = where(%b, 0, %h)", "constant<0.0>() : f16"),
        ("%x = where(%b, %h, -1)", "constant<-1.0>() : f16"),
        ("%x = clamp(%h, 0, 1)", "constant<0.0>() : f16"),
        ("%x = philox_bits(3, %n)", "constant<3>() : i64"),
        ("%x = fill(0) : tile<f16[4]>", "constant<0.0>() : f16"),
        ("%x = fill(-inf) : ROW", "constant<-inf>() : f32"),
        ("%x = 3", "%x = constant<3>() : i32"),
        ("%x = 3 : i64", "%x = constant<3>() : i64"),
        ("%x = 3 : ACC", "%x = constant<3.0>() : f32"),
        ("%x = 3.0", "%x = constant<3.0>() : f32"),
        ("%x = true", "%x = constant<true>() : i1"),
        ("%x = BM * 2 + cdiv(BM, 3) : i16", "%x = constant<150>() : i16"),
        ("%x = BM > 3 & !CAUSAL", "%x = constant<false>() : i1"),
        ("%x = T == bf16", "%x = constant<true>() : i1"),
        ("%x = where(CAUSAL, TWO, 3)", "%x = constant<2>() : i32"),
        ("%x = convert<T>(1.5)", "%x = constant<1.5>() : bf16"),
        ("%x = convert<i64>(5000000000)", "%x = constant<5000000000>() : i64"),
        ("%x = min(7, 1.5)", "%x = constant<1.5>() : f32"),
        ("%x = -7 / 2", "%x = constant<-3>() : i32"),
        ("%x = mod(-7, 2)", "%x = constant<-1>() : i32"),
        ("%x = cdiv(-7, 2)", "%x = constant<-3>() : i32"),
        ("%x = 1 / 0.0", "%x = constant<inf>() : f32"),
        ("%x = !5", "%x = constant<-6>() : i32"),
        ("%x = abs(-5) ^ 3 | 8", "%x = constant<14>() : i32"),
        ("%x = exp2(1.0)", "constant<1.0>() : f32"),
        ("assume(true)", "constant<true>() : i1"),
        ("store(0, %A[0, 0])", "constant<0.0>() : bf16"),
    ],
)
def test_literals_take_the_type_of_what_they_meet(text: str, constant: str) -> None:
    assert constant in canonical(text)


def test_alias_reuses_the_value() -> None:
    k = kernel("%x = %s + %s\n%y = %x\n%z = (%y)\n%w = %z * %y")
    assert [op.name for op in k.walk()] == ["add", "mul"]
    assert [v.name for v in k.body.ops[1].operands] == ["x", "x"]


def test_symbols_become_one_dim_op_at_the_entry() -> None:
    same(
        "%x = M + K\n%y = K + M\n%K = %s + %s",
        """
        %M = dim<M>() : i32
        %K_0 = dim<K>() : i32
        %x = add(%M, %K_0) : i32
        %y = add(%K_0, %M) : i32
        %K = add(%s, %s) : f32
        """,
    )


def test_a_symbol_of_strides_alone_is_i64() -> None:
    text = "tileir 1 kernel @k(%A: global<f32[M], strides = [S]>) grid(1) { %x = S * 2 }"
    assert [op.result.type for op in parse(text).kernels[0].walk()] == [
        parse(text).kernels[0].body.ops[0].result.type
    ] * 3
    assert parse(text).kernels[0].body.ops[0].result.tile.elem == I64


def test_static_where_keeps_one_branch() -> None:
    same("%x = where(CAUSAL, %s, exp2(%s))", "", CAUSAL=True)
    same("%x = where(CAUSAL, %s, exp2(%s))\n%y = %x + %x", "%x = exp2(%s) : f32\n%y = add(%x, %x) : f32", CAUSAL=False)
    same(
        "%t = fill(1.0) : tile<f32[4]>\n%x = where(CAUSAL, %s, %t)",
        "%0 = constant<1.0>() : f32\n%t = fill(%0) : tile<f32[4]>\n%x = broadcast<[4]>(%s) : tile<f32[4]>",
    )
    same("%x = where(CAUSAL, 0, %h)", "%x = constant<0.0>() : f16")


def test_both_branches_of_a_static_where_are_checked() -> None:
    with pytest.raises(CompileError) as caught:
        kernel("%x = where(CAUSAL, %s, %h)")
    assert [d.code for d in caught.value.diagnostics] == ["E0313"]


def test_accesses() -> None:
    same(
        "%t = load(%A[%n, 0 +: BM * 2], pad = -1)\nstore(%t, %A[M - 1, K +: 128])",
        """
        %M = dim<M>() : i32
        %K = dim<K>() : i32
        %0 = constant<0>() : i32
        %t = load(%A[%n, %0 +: 128], pad = -1) : tile<bf16[128]>
        %1 = constant<1>() : i32
        %2 = sub(%M, %1) : i32
        store(%t, %A[%2, %K +: 128])
        """,
    )


def test_attributes_equal_to_the_default_say_nothing() -> None:
    same("%x = iota<[4, 4]>(axis = 0)", "%x = iota<[4, 4]>() : tile<i32[4, 4]>")
    same("%x = iota<axis = 1, [4, 4]>()", "%x = iota<[4, 4]>(axis = 1) : tile<i32[4, 4]>")
    assert "pad = -0.0" in canonical("%x = load(%V[0], pad = -0.0)")
    assert "pad" not in canonical("%x = load(%V[0], pad = 0.0)")


def test_loops() -> None:
    same(
        "for %k = 0 to K step BM { }",
        """
        %K = dim<K>() : i32
        %0 = constant<0>() : i32
        %1 = constant<64>() : i32
        for %k = %0 to %K step %1 {
          yield
        }
        """,
    )
    same(
        "%r = for %k = 0 to %n step 1 carry(%c = %n) { yield %c + %k }",
        """
        %0 = constant<0>() : i64
        %1 = constant<1>() : i64
        %r = for %k = %0 to %n step %1 carry(%c = %n) {
          %2 = add(%c, %k) : i64
          yield %2
        }
        """,
    )


def test_a_literal_yield_takes_the_carried_type() -> None:
    same(
        "%r = if %b carry(%c = %h) { yield 1 }",
        """
        %r = if %b carry(%c = %h) {
          %0 = constant<1.0>() : f16
          yield %0
        }
        """,
    )


def test_second_regions_see_the_carried_names() -> None:
    same(
        "%r = while carry(%c = %s) { yield %c < 1 } do { yield %c * 2 }\n"
        "%q = if %b carry(%d = %r) { yield %d } else { yield -%d }",
        """
        %r = while carry(%c = %s) {
          %0 = constant<1.0>() : f32
          %1 = lt(%c, %0) : i1
          yield %1
        } do carry(%c_0 = %c) {
          %2 = constant<2.0>() : f32
          %3 = mul(%c_0, %2) : f32
          yield %3
        }
        %q = if %b carry(%d = %r) {
          yield %d
        } else carry(%d_0 = %r) {
          %4 = neg(%d_0) : f32
          yield %4
        }
        """,
    )


def test_if_without_carry_yields_what_its_branches_agree_on() -> None:
    same(
        "%r = if %b { yield %s } else { yield 0 }",
        """
        %r = if %b {
          yield %s
        } else {
          %0 = constant<0.0>() : f32
          yield %0
        }
        """,
    )


def test_guard() -> None:
    k = kernel(
        "%t = fill(1.0) : tile<f32[8, 4]>\n%g = guard iota<[8, 1]>() < 3 carry(%u = %t) { yield %u * 2 }\n%z = %g + %t"
    )
    assert k.body.ops[-1].operands[0].type == k.body.ops[-1].operands[1].type


def test_parameters_from_outside() -> None:
    k = kernel("", BM="32", CAUSAL="false", EPS="1e-3", T="f16")
    assert k.params == {"BM": 32, "CAUSAL": False, "EPS": 1e-3, "T": F16}
    k = kernel("", BM=32, CAUSAL=False, EPS=2, T=F16)
    assert k.params == {"BM": 32, "CAUSAL": False, "EPS": 2.0, "T": F16}
    assert isinstance(k.params["EPS"], float)
    assert str(k.grid[0]) == "cdiv(M, 32)"
    assert kernel("").params == {"BM": 64, "CAUSAL": True, "EPS": 1.0, "T": BF16}


def test_defaults_may_use_earlier_parameters_and_constants() -> None:
    text = "tileir 1 const A = 3 kernel @k<B: int = A * 2, C: bool = (B == 6), T: type = f32>() grid(B) { }"
    assert parse(text).kernels[0].params["C"] is True
    assert parse(text, params={"B": 2}).kernels[0].params["C"] is False


TWO = """tileir 1
kernel @a<X: int = 1>() grid(X) { }
kernel @b<X: int, Y: int = 2>() grid(X + Y) { }
schedule @sa of @a for gfx950 { }
schedule @sb of @b for gfx942 when X == Y { registers 128 }
"""


def test_one_kernel_of_several() -> None:
    module = parse(TWO, kernel="a")
    assert [k.name for k in module.kernels] == ["a"]
    assert [s.name for s in module.schedules] == ["sa"]
    module = parse(TWO, params={"X": 2})
    assert [k.params for k in module.kernels] == [{"X": 2}, {"X": 2, "Y": 2}]
    assert [s.applies for s in module.schedules] == [True, True]
    assert parse(TWO, params={"X": 3, "Y": 4}).schedules[1].applies is False


def test_schedule_of_an_alias_names_the_value() -> None:
    text = (
        "tileir 1 kernel @k(%A: global<f16[M, M]>) grid(1) { %a = load(%A[0 +: 32, 0 +: 32]) %b = %a %c = mma(%a, %b) } "
        "schedule @s of @k for gfx950 { stage %b in shared  mma %c 16x16x32 swapped }"
    )
    stage, mma = parse(text).schedules[0].directives
    assert stage.values == ("a",)
    assert mma.get("swapped") is True and mma.get("shape") == (16, 16, 32)
    assert (stage.loc.line, stage.value_locs[0].column) == (1, text.index("%b in") + 1)


def test_locations(repository: Path) -> None:
    module = parse_file(repository / "examples" / "gemm.tile")
    ops = {op.results[0].name: op for op in module.kernels[0].walk() if op.results}
    d = ops["d"]
    lines = (repository / "examples" / "gemm.tile").read_text().splitlines()
    assert lines[d.loc.line - 1][d.loc.column - 1 : d.loc.end_column - 1] == "mma(%a, transpose(%b), %c)"
    spans = [lines[o.line - 1][o.column - 1 : o.end_column - 1] for o in d.operand_locs]
    assert spans == ["%a", "transpose(%b)", "%c"]
    assert d.loc.file.endswith("gemm.tile")
    assert lines[ops["acc"].loc.line - 1][ops["acc"].loc.column - 1 :].startswith("for %k = 0 to K")


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_byte_order_mark(repository: Path, tmp_path: Path, newline: str, mark: str) -> None:
    text = (repository / "examples" / "gemm.tile").read_text()
    path = tmp_path / "x.tile"
    path.write_bytes((mark + text.replace("\n", newline)).encode())
    expected = parse(text, str(path))
    module = parse_file(path)
    assert module == expected
    assert [op.loc for op in module.kernels[0].walk()] == [op.loc for op in expected.kernels[0].walk()]


def test_tabs_are_one_column_and_carets_follow_them() -> None:
    with pytest.raises(CompileError) as caught:
        parse("tileir 1\nkernel @k() grid(1) {\n\t\t%x = %y\n}\n", "t.tile")
    assert str(caught.value).splitlines()[:3] == [
        "t.tile:3:8: error: [E0203] %y is not defined",
        "  \t\t%x = %y",
        "  \t\t     ^^",
    ]


def test_warnings_of_unused_names() -> None:
    log = Log()
    text = HEAD + "%x = %s + 1\n%_y = %s\n%i = program_id()\nstore(convert<T>(%h), %A[%n, 0])\n}"
    parse(text, "w.tile", log=log)
    assert [(d.code, d.severity, d.loc.line, d.message) for d in log.diagnostics] == [
        ("W0202", "warning", 6, "the argument %V is never used"),
        ("W0202", "warning", 6, "the argument %b is never used"),
        ("W0201", "warning", 7, "%x is never used"),
    ]
    assert all(d.legal for d in log.diagnostics)


def test_several_errors_in_source_order_and_no_consequences() -> None:
    with pytest.raises(CompileError) as caught:
        kernel(
            "%a = %q + 1\n%c = %a * 2\nstore(%c, %A[0, 0])\n%d = foo(%c)\n"
            "%r = for %k = 0 to K step 1 carry(%u = %s) { %v = %u + %n\n yield %v }\n%e = %r + %h\n%f = load(%A[0])"
        )
    assert [(d.loc.line, d.code) for d in caught.value.diagnostics] == [
        (7, "E0203"),
        (10, "E0201"),
        (11, "E0313"),
        (13, "E0313"),
        (14, "E0402"),
    ]


def test_at_most_twenty_errors() -> None:
    with pytest.raises(CompileError) as caught:
        kernel("\n".join(f"%x{i} = %y{i}" for i in range(50)))
    assert len(caught.value.diagnostics) == 20
    assert caught.value.diagnostics[-1].message == "%y19 is not defined"


def test_several_syntax_errors() -> None:
    with pytest.raises(CompileError) as caught:
        kernel("%a = ) 1\n%b = %s\n%c = foo\n%d = add(%s,\n%e = %s\n%f = 1 + * 2")
    assert [(d.loc.line, d.code) for d in caught.value.diagnostics] == [
        (7, "E0105"),
        (9, "E0112"),
        (10, "E0113"),
        (12, "E0105"),
    ]
