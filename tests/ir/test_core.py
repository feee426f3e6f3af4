"""Kernels as data: the ABI, equality, grid expressions, printing and rewriting."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import kernels

from tileir.frontend import parse
from tileir.ir import expr, registry
from tileir.ir.builder import Names
from tileir.ir.core import Kernel, Op, Value
from tileir.ir.printer import print_kernel
from tileir.ir.registry import format_attr, format_float
from tileir.ir.rewriter import Rewriter, rewrite, uses
from tileir.ir.types import ELEMS, I32, I64
from tileir.ir.verifier import verify

TEXT = """tileir 1
kernel @k<BM: int = 64>(%A: global<f32[M, K], strides = [S, 1]>, %B: global<f32[K, N, 4]>, %s: f16) grid(cdiv(M, BM)) {
  %i = program_id()
  %x = load(%A[%i * BM +: BM, 0 +: 4]) * 1.0
  %y = for %k = 0 to K step 1 carry(%c = %x) { yield %c + %x }
  store(%y, %A[%i * BM +: BM, 0 +: 4])
}
"""


def test_abi_lists_each_symbol_after_the_view_that_introduces_it() -> None:
    k = parse(TEXT).kernels[0]
    assert [(a.name, a.kind, str(a.type)) for a in k.abi()] == [
        ("A", "view", "global<f32[M, K], strides = [S, 1]>"),
        ("M", "symbol", "i32"),
        ("K", "symbol", "i32"),
        ("S", "symbol", "i64"),
        ("B", "view", "global<f32[K, N, 4]>"),
        ("N", "symbol", "i32"),
        ("s", "scalar", "f16"),
    ]
    assert k.symbols() == {"M": I32, "K": I32, "S": I64, "N": I32}


def test_a_stride_that_is_also_a_dimension_is_i32() -> None:
    k = parse("tileir 1 kernel @k(%A: global<f32[M], strides = [N]>, %B: global<f32[N]>) grid(1) { }").kernels[0]
    assert k.symbols() == {"M": I32, "N": I32}


def test_equality_looks_at_everything_but_locations() -> None:
    k = parse(TEXT).kernels[0]
    assert k == parse(TEXT.replace("\n", "\n\n"), "other.tile").kernels[0]
    assert k != parse(TEXT, params={"BM": 32}).kernels[0]
    assert k != parse(TEXT.replace("* 1.0", "* 2.0")).kernels[0]
    assert k != parse(TEXT.replace("%y", "%z")).kernels[0]
    assert k != parse(TEXT.replace("grid(cdiv(M, BM))", "grid(cdiv(M, BM)) fp fast")).kernels[0]
    assert k != replace(k, attrs={"target": "gfx950"})
    assert replace(k, attrs={"x": 1}) != replace(k, attrs={"x": True})
    assert replace(k, attrs={"x": math.nan}) == replace(k, attrs={"x": math.nan})


@pytest.mark.parametrize(
    ("op", "a", "b", "want"),
    [
        ("div", -7, 2, -3), ("div", 7, -2, -3), ("mod", -7, 2, -1), ("mod", 7, -2, 1), ("cdiv", -7, 2, -3),
        ("cdiv", 7, 2, 4), ("cdiv", 8, 2, 4), ("min", 3, -1, -1), ("max", 3, -1, 3), ("sub", 1, 2, -1),
    ],
)  # fmt: skip
def test_integer_arithmetic(op: str, a: int, b: int, want: int) -> None:
    assert expr.apply(op, a, b) == want
    assert expr.binary(op, expr.integer(a), expr.integer(b)) == expr.integer(want)
    assert expr.binary(op, expr.symbol("M"), expr.integer(b)).evaluate({"M": a}) == want


@given(st.floats())
def test_floats_print_shortest_and_read_back(value: float) -> None:
    text = format_float(value)
    again = float(text)
    assert math.copysign(1, again) == math.copysign(1, value) or math.isnan(value)
    assert again == value or (math.isnan(again) and math.isnan(value))
    assert any(c in text for c in ".in"), "a float never looks like an integer"


def test_attributes_print_as_the_language_writes_them() -> None:
    assert format_attr((1, -2.5, True, ("x", ELEMS["bf16"]), ())) == "[1, -2.5, true, [x, bf16], []]"


def test_names_are_fresh() -> None:
    names = Names({"x", "0", "x_0"})
    assert [names.fresh("x"), names.fresh("y"), names.fresh(), names.fresh("x")] == ["x_1", "y", "1", "x_2"]


def test_defaults_are_not_attributes() -> None:
    assert registry.without_defaults("load", {"pad": 0, "bytes": 0, "via": "buffer"}) == {"via": "buffer"}
    assert registry.without_defaults("load", {"pad": -0.0}) == {"pad": -0.0}
    assert registry.without_defaults("reduce_add", {"axis": 0}) == {"axis": 0}


def test_rewriting_replaces_uses_and_keeps_the_old_kernel() -> None:
    k = parse(TEXT).kernels[0]
    before = print_kernel(k)

    def drop_mul_by_one(rw: Rewriter, op: Op) -> bool:
        owner = op.operands[1].owner if op.name == "mul" else None
        if owner is None or owner.attrs.get("value") != 1.0:
            return False
        rw.replace(op, [rw.use(op.operands[0])])
        return True

    new = rewrite(k, drop_mul_by_one)
    verify(new)
    assert print_kernel(k) == before
    names = [op.name for op in new.walk()]
    assert names.count("mul") == [op.name for op in k.walk()].count("mul") - 1
    loop = next(op for op in new.walk() if op.name == "for")
    assert loop.operands[3].owner is not None and loop.operands[3].owner.name == "load"


@settings(max_examples=60)
@given(kernels())
def test_rewriting_with_no_rule_copies(kernel: Kernel) -> None:
    new = rewrite(kernel, lambda rw, op: False)
    assert new == kernel
    old_values = {v for op in kernel.walk() for v in op.results}
    assert not any(v in old_values for op in new.walk() for v in op.operands)


def test_uses_are_in_program_order() -> None:
    k = parse(TEXT).kernels[0]
    x = next(v for op in k.walk() for v in op.results if v.name == "x")
    assert [(op.name, i) for op, i in uses(k)[x]] == [("for", 3), ("add", 1)]


def test_value_knows_its_sort() -> None:
    k = parse(TEXT).kernels[0]
    assert k.args[0].view.rank == 2
    with pytest.raises(AssertionError):
        _ = k.args[0].tile
    assert isinstance(k.args[2], Value) and k.args[2].tile.is_scalar
