"""simplify: exact on random kernels, and each rule by hand."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings

from tests.strategies import kernels
from tileir.frontend import parse
from tileir.ir.core import Kernel
from tileir.ir.printer import print_kernel
from tileir.ir.verifier import verify
from tileir.passes import replay
from tileir.passes.simplify import simplify

SYMBOLS = {"M": 5, "N": 9, "P": 3}


def _symbols(kernel: Kernel) -> dict[str, int]:
    """Sizes, with dense strides."""
    symbols = dict(SYMBOLS)
    for arg in kernel.args:
        replay._dense_strides(arg, symbols)
    return {s: symbols.get(s, 1) for s in kernel.symbols()}


@settings(max_examples=150)
@given(kernels())
def test_random_kernels_keep_every_bit(kernel: Kernel) -> None:
    symbols = _symbols(kernel)
    inputs = replay.make_inputs(kernel, symbols)
    assert inputs is not None
    text = print_kernel(kernel)
    simple = simplify(kernel)
    verify(simple)
    assert print_kernel(kernel) == text, "the old kernel must be left alone"
    with np.errstate(all="ignore"):
        before, after = (replay.execute(k, symbols, inputs) for k in (kernel, simple))
    for name, want in before.items():
        got = after[name]
        np.testing.assert_array_equal(got, want)  # NaN in the same places
        known = ~np.isnan(want.astype(np.float64)) if want.dtype.kind not in "iub" else np.ones(want.shape, bool)
        assert (got[known].tobytes()) == want[known].tobytes(), "also the signs of zeros"


@settings(max_examples=60)
@given(kernels())
def test_simplifying_twice_changes_nothing(kernel: Kernel) -> None:
    once = simplify(kernel)
    assert simplify(once) == once


def body(text: str, args: str = "%A: global<f32[64, 64]>, %O: global<i32[64]>, %n: i32, %f: f32, %p: i1") -> list[str]:
    """Lines of the simplified kernel with that body."""
    module = parse(f"tileir 1\nkernel @k({args}) grid(1) {{\n{text}\n}}\n", "test.tile")
    simple = simplify(module.kernels[0])
    verify(simple)
    return [line.strip() for line in print_kernel(simple).splitlines()[1:-1]]


def keep(expression: str) -> str:
    """A body that stores an i32 scalar; `$5` is the op `constant<5>()`, which the frontend does not fold."""
    numbers = sorted(set(re.findall(r"\$(-?\d+)", expression)))
    lines = [f"%c{i} = constant<{n}>() : i32" for i, n in enumerate(numbers)]
    for i, n in enumerate(numbers):
        expression = re.sub(rf"\${n}(?!\d)", f"%c{i}", expression)
    return "\n".join([*lines, f"%x = {expression}", *STORE])


STORE = ["%tile = fill(%x) : tile<i32[64]>", "store(%tile, %O[0 +: 64])"]


def stored(lines: list[str]) -> str:
    """The op that computes the stored scalar."""
    fill = next(line for line in lines if "= fill(" in line)
    name = fill.split("fill(")[1].split(")")[0]
    return next((line.split(" = ", 1)[1] for line in lines if line.startswith(f"{name} = ")), name)


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("($2 + $3) * $4", "constant<20>() : i32"),
        ("$2147483647 + %n * $0 + $1", "constant<-2147483648>() : i32"),  # wraps
        ("$-7 / $2", "constant<-3>() : i32"),
        ("mod($-7, $4)", "constant<-3>() : i32"),
        ("cdiv($7, $2)", "constant<4>() : i32"),
        ("$1 << $33", "constant<2>() : i32"),  # the count is modulo the width
        ("%n + $0", "%n"),
        ("$0 + %n", "%n"),
        ("%n - $0", "%n"),
        ("%n * $1", "%n"),
        ("%n / $1", "%n"),
        ("%n - %n", "constant<0>() : i32"),
        ("%n ^ %n", "constant<0>() : i32"),
        ("%n & $-1", "%n"),
        ("%n | $0", "%n"),
        ("%n << $0", "%n"),
        ("mod(%n, $1)", "constant<0>() : i32"),
        ("min(%n, %n)", "%n"),
        ("- -%n", "%n"),
        ("!(!%n)", "%n"),
        ("abs(abs(%n))", "abs(%n) : i32"),
        ("where(%p, %n, %n)", "%n"),
        ("where($1 < $2, %n, $7)", "%n"),
        ("where(%n < %n, $7, %n)", "%n"),
        ("convert<i32>(%n)", "%n"),
        ("bitcast<i32>(bitcast<f32>(%n))", "%n"),
    ],
)
def test_scalars(expression: str, result: str) -> None:
    assert stored(body(keep(expression))) == result


@pytest.mark.parametrize(
    ("expression", "kept"),
    [
        ("%f + 0.0", "add"),  # -0 + 0 is +0
        ("%f * 0.0", "mul"),  # NaN and infinities
        ("%f - %f", "sub"),
        ("%f / %f", "div"),
        ("min(%f, %f)", None),
        ("%f * 1.0", None),
        ("%f / 1.0", None),
        ("- -%f", None),
        ("rsqrt(-1.0) + %f", "rsqrt"),  # a NaN is not folded
    ],
)
def test_floats_only_what_is_exact(expression: str, kept: str | None) -> None:
    lines = body(f"%x = {expression}\n%tile = fill(%x) : tile<f32[64, 64]>\nstore(%tile, %A[0 +: 64, 0 +: 64])")
    ops = [line.split(" = ")[1].split("(")[0] for line in lines if " = " in line]
    computed = [op for op in ops if not op.startswith(("constant", "fill"))]
    assert (kept in computed) if kept else not computed


def test_common_subexpressions_are_found_in_enclosing_scopes_only() -> None:
    lines = body(
        "%x = %n * 3\n"
        "%r = if %p { %y = %n * 3\n yield %y } else { %z = %n * 5\n yield %z }\n"
        "%q = if %p { %w = %n * 5\n yield %w } else { yield %n }\n"
        "%tile = fill(%x + %r + %q) : tile<i32[64]>\nstore(%tile, %O[0 +: 64])"
    )
    assert sum("mul(" in line for line in lines) == 3  # one of n * 3, n * 5 in each of two branches


def test_invariant_scalars_leave_loops_and_the_others_stay() -> None:
    lines = body(
        "for %i = 0 to %n step 1 {\n"
        "  for %j = 0 to %n step 1 {\n"
        "    %inv = %n * 7\n    %outer = %i * 9\n    %inner = %j * 11\n"
        "    %tile = fill(%inv + %outer + %inner) : tile<i32[64]>\nstore(%tile, %O[0 +: 64])\n  }\n}"
    )
    first, second = (i for i, line in enumerate(lines) if line.startswith("for"))
    where = {
        text: next(i for i, line in enumerate(lines) if f"{text} = mul" in line)
        for text in ("%inv", "%outer", "%inner")
    }
    assert where["%inv"] < first < where["%outer"] < second < where["%inner"]


def test_carried_values_that_do_not_change_or_that_nobody_reads_disappear() -> None:
    lines = body(
        "%a, %b, %c = for %i = 0 to %n step 1 carry(%x = 5, %y = 0, %z = %n) {\n"
        "  %dead = %y + 3\n  %live = %z + %x\n  yield %x, %dead, %live\n}\n"
        "%tile = fill(%a + %c) : tile<i32[64]>\nstore(%tile, %O[0 +: 64])"
    )
    loop = next(line for line in lines if "for %i" in line)
    assert "%z = %n" in loop and "%x" not in loop and "%y" not in loop


def test_branches_on_constants_and_empty_loops() -> None:
    lines = body(
        "%a = if 1 == 1 carry(%x = %n) { %y = %x + 1\n yield %y } else { yield %x }\n"
        "%b = for %i = 5 to 5 step 1 carry(%z = %a) { %w = %z * 3\n yield %w }\n"
        "%c = if 1 == 2 carry(%u = %b) { yield 9 }\n"
        "%tile = fill(%c) : tile<i32[64]>\nstore(%tile, %O[0 +: 64])"
    )
    assert not any(word in line for line in lines for word in ("if ", "for ", "mul("))
    assert stored(lines).startswith("add(%n")


def test_effects_stay_and_unused_loads_go() -> None:
    lines = body(
        "%x = load(%A[0 +: 64, 0 +: 64])\nassume(%n > 0)\n"
        "for %i = 0 to %n step 1 { %y = load(%A[%i, 0 +: 64])\n }\n"
        "%k = while carry(%c = %n) { yield %c > 0 } do carry(%d = %c) { yield %d - 1 }"
    )
    assert not any("load(" in line or "for" in line for line in lines)
    assert any(line.startswith("assume(") for line in lines) and any("while" in line for line in lines)


def test_shape_ops_that_undo_each_other() -> None:
    lines = body(
        "%x = load(%A[0 +: 64, 0 +: 64])\n"
        "%y = transpose(transpose(%x))\n%z = reshape<[64, 64]>(%y)\n%w = broadcast<[64, 64]>(%z)\n"
        "store(%w, %A[0 +: 64, 0 +: 64])"
    )
    assert [line.split("(")[0] for line in lines if "constant" not in line] == ["%x = load", "store"]


def test_schedules_find_their_names() -> None:
    """Names that the author gave survive where the op does."""
    lines = body("%keep = %n * 3\n%also = %keep + 0\n%tile = fill(%also) : tile<i32[64]>\nstore(%tile, %O[0 +: 64])")
    assert any(line.startswith("%keep = mul") for line in lines)


def test_scalars_that_become_tiles_fill_them() -> None:
    lines = body(
        "%x = reshape<[1, 1]>(%n)\n%y = broadcast<[64]>(%n)\nstore(%y, %O[0 +: 64])\nstore(reshape<[1]>(%x), %O[0 +: 1])"
    )
    assert sum("= fill(%n)" in line for line in lines) == 2 and not any("broadcast" in line for line in lines)
