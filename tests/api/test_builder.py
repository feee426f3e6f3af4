"""Building kernels op by op: the text that comes out, and faults located in the Python program."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import numpy as np
import pytest

import tileir
from tileir import KernelBuilder, bf16, cdiv, f32, i32, i64, interpreter, span, symbol
from tileir.api import generate_ops
from tileir.api.ops import Ops
from tileir.ir.registry import all_ops
from tileir.runtime import launch

from .kernels import axpy, collatz, error_of, gemm


def test_generated_methods_are_current() -> None:
    assert generate_ops.is_current(), "run python -m tileir.api.generate_ops && ruff format tileir/api/ops.py"


def test_every_op_of_authors_has_a_method() -> None:
    for op in all_ops().values():
        if op.level in ("tile", "both") and op.name != "yield":
            assert hasattr(KernelBuilder, op.name) or hasattr(KernelBuilder, op.name + "_"), op.name


def test_text() -> None:
    assert (
        str(axpy())
        == """tileir 1

kernel @axpy<B = 256>(%X: global<f32[N]>, %Y: global<f32[N]>, %a: f32) grid(cdiv(N, 256)) {
  %i = program_id() : i32
  %c = constant<256>() : i32
  %here = mul(%i, %c) : i32
  %2 = load(%X[%here +: 256]) : tile<f32[256]>
  %3 = mul(%a, %2) : tile<f32[256]>
  %4 = load(%Y[%here +: 256]) : tile<f32[256]>
  %y = add(%3, %4) : tile<f32[256]>
  store(%y, %Y[%here +: 256])
}
"""
    )


@pytest.mark.parametrize("make", [axpy, gemm, collatz])
def test_text_means_the_same(make: Any) -> None:
    module = make().module()
    assert tileir.parse(str(make())) == module


def test_schedule_is_part_of_the_text() -> None:
    assert str(gemm()).endswith(
        """schedule @gemm_gfx950 of @gemm for gfx950 {
  waves %acc_0 2 x 2
  mma %d 16x16x32
  stage %a, %b in shared direct
  loop %k pattern plain
}
"""
    )


def test_control_flow_in_the_interpreter() -> None:
    class Interpreted:
        kernel = collatz().build()
        interface: dict[str, object] = {}  # noqa: RUF012
        hsaco = b""
        target = ""
        block = (1, 1, 1)

    start = np.array([1, 2, 3, 6, 7, 27], np.int32)
    result = np.zeros(6, np.int32)
    launch(Interpreted(), {"S": start, "R": result}, tileir.get_device("interpreter"))
    assert result.tolist() == [0, 1, 7, 8, 16, 111]


def test_operators_are_the_ops_of_the_language() -> None:
    k = KernelBuilder("ops")
    X = k.view("X", i32, [8])
    k.grid(1)
    x, y = k.load(X[0:8]), k.load(X[span(0, 8)])
    made = [
        x + y, x - y, x * y, x / y, x % y, x & y, x | y, x ^ y, x << y, x >> y, x < y, x <= y, x > y, x >= y, x == y, x != y,
        -x, ~x, abs(x), 1 + x, 2 - x, 3 * x, 4 / x, 5 % x, 6 & x, 7 | x, 8 ^ x, x.convert(f32),
    ]  # fmt: skip
    names = [t.value.owner.name for t in made if t.value.owner is not None]
    assert names == (
        "add sub mul div mod and or xor shl shr lt le gt ge eq ne neg not abs add sub mul div mod and or xor convert".split()
    )
    turned = made[20].value.owner  # 2 - x
    assert turned is not None and turned.operands[0].owner is not None
    assert turned.operands[0].owner.attrs["value"] == 2
    assert hash(x) == hash(x) and len({x, y}) == 2


def test_numbers_take_the_type_they_meet() -> None:
    k = KernelBuilder("numbers")
    X, Y = k.view("X", bf16, [8]), k.view("Y", i64, [8])
    k.grid(1)
    assert (k.load(X[0:8]) * 2).elem is bf16
    assert (k.load(Y[0:8]) + 1).elem is i64
    assert k.where(k.load(Y[0:8]) > 0, 1.5, k.load(X[0:8])).elem is bf16
    assert k.philox_uniform(7, k.iota([8]).convert(i64)).elem is f32


HERE = inspect.getsourcefile(test_text)


def faults() -> list[tuple[str, Any]]:
    def start() -> tuple[KernelBuilder, tileir.View]:
        k = KernelBuilder("k")
        X = k.view("X", f32, ["N", 4])
        k.grid(1)
        return k, X

    def broadcast() -> Any:
        k, _ = start()
        return k.fill(1.0, f32, [4, 4]) + k.fill(1.0, f32, [3, 4])

    def indices() -> Any:
        k, X = start()
        return k.load(X[0])

    def no_grid() -> Any:
        return KernelBuilder("k").program_id()

    def unknown_symbol() -> Any:
        k = KernelBuilder("k")
        k.grid(symbol("Z"))
        return k.build()

    def other_kernel() -> Any:
        (a, X), (b, _) = start(), start()
        return b.exp(a.load(X[0, 0:4]))

    def no_yield() -> Any:
        k, _ = start()
        with k.for_(0, 4, x=1.0):
            pass

    def wrong_yield() -> Any:
        k, _ = start()
        with k.for_(0, 4, x=1.0) as loop:
            loop.yield_(1.0, 2.0)

    def types() -> Any:
        k, _ = start()
        with k.for_(0, 4, x=1.0) as loop:
            loop.yield_(k.iota([4]))

    def order() -> Any:
        k, _ = start()
        with k.if_(k.constant(True, tileir.i1)) as branch, branch.otherwise():
            pass

    def element() -> Any:
        k, X = start()
        return k.load(X[0, 0:4]) & 1

    def twice() -> Any:
        k, _ = start()
        return k.view("X", f32, [4])

    def strides() -> Any:
        k, _ = start()
        return k.view("Z", f32, [4], strides=[4, 1])

    def name() -> Any:
        return KernelBuilder("a b")

    def argument() -> Any:
        k, _ = start()
        return k.scalar("é", f32)

    def mode() -> Any:
        return KernelBuilder("k", fp="loose")

    def small_symbol() -> Any:
        k, _ = start()
        return k.view("Z", f32, ["n"])

    def negative() -> Any:
        k, _ = start()
        return k.view("Z", f32, [-1])

    def fraction() -> Any:
        k, _ = start()
        return k.view("Z", f32, [1.5])  # type: ignore[list-item]

    def no_element() -> Any:
        k, _ = start()
        return k.view("Z", "f33", [4])  # type: ignore[arg-type]

    def half_a_grid() -> Any:
        return KernelBuilder("k").grid(1.5)  # type: ignore[arg-type]

    def no_part() -> Any:
        k, _ = start()
        with k.if_(k.constant(True, tileir.i1), x=1.0) as branch:
            branch.yield_(2.0)

    def number() -> Any:
        k, _ = start()
        return k.exp("x")  # type: ignore[arg-type]

    def other_view() -> Any:
        k, _ = start()
        _, other = start()
        return k.load(other[0, 0:4])

    def other_index() -> Any:
        k, X = start()
        _, other = start()
        return k.load(X[other.builder.constant(0, tileir.i32), 0:4])

    def other_alias() -> Any:
        k, X = start()
        _, other = start()
        k.alias(X, other)

    def slice_at_run_time() -> Any:
        k, X = start()
        i = k.constant(0, tileir.i32)
        return k.load(X[0, i : i + 4])

    def extent_at_run_time() -> Any:
        k, X = start()
        return k.load(X[0, span(0, k.constant(4, tileir.i32))])  # type: ignore[arg-type]

    def no_index() -> Any:
        k, X = start()
        return k.load(X["x", 0:4])  # type: ignore[index]

    return [
        ("E0217", other_view), ("E0217", other_index), ("E0217", other_alias),
        ("E0403", slice_at_run_time), ("E0403", extent_at_run_time), ("E0403", no_index),
        ("E0311", broadcast), ("E0402", indices), ("E0510", no_grid), ("E0205", unknown_symbol), ("E0217", other_kernel),
        ("E0502", no_yield), ("E0503", wrong_yield), ("E0504", types), ("E0516", order), ("E0323", element),
        ("E0202", twice), ("E0352", strides), ("E0216", small_symbol), ("E0316", negative), ("E0301", number),
        ("E0216", name), ("E0216", argument), ("E0214", mode), ("E0316", fraction), ("E0301", no_element),
        ("E0510", half_a_grid), ("E0516", no_part),
    ]  # fmt: skip


@pytest.mark.parametrize(("code", "make"), faults(), ids=lambda x: x if isinstance(x, str) else x.__name__)
def test_faults_point_at_the_python_line(code: str, make: Any) -> None:
    e = error_of(make)
    (d,) = e.diagnostics
    assert d.legal
    lines, first = inspect.getsourcelines(make)
    assert d.loc.file == HERE and first <= d.loc.line < first + len(lines), d
    assert lines[d.loc.line - first].strip() in str(e)
    assert d.code == code, d
    if sys.version_info >= (3, 11):
        assert "^" in str(e)


def test_no_truth_value() -> None:
    k = KernelBuilder("k")
    X = k.view("X", f32, [4])
    k.grid(1)
    with pytest.raises(TypeError, match="where"):
        if k.load(X[0]) > 0:
            pass
    with k.for_(0, 4, x=1.0) as loop:
        with pytest.raises(AttributeError, match="carried here are x"):
            _ = loop.y
        with pytest.raises(RuntimeError):
            _ = loop.result
        loop.yield_(loop.x)


def test_an_exception_inside_a_region_is_not_hidden() -> None:
    k = KernelBuilder("k")
    k.grid(1)
    with pytest.raises(ZeroDivisionError), k.for_(0, 4, x=1.0):
        _ = 1 / 0


def test_ops_that_have_no_builder_say_so() -> None:
    with pytest.raises(NotImplementedError):
        Ops().emit_one("add", [])


def test_grid_sizes() -> None:
    k = KernelBuilder("k")
    k.view("X", f32, ["M", "N"])
    k.grid(cdiv(symbol("M") + 3, 4), 2 * symbol("N") - 1, "M")
    assert [str(g) for g in k.build().grid] == ["cdiv(M + 3, 4)", "2 * N - 1", "M"]


def test_print_and_assert(capsys: pytest.CaptureFixture[str]) -> None:
    k = KernelBuilder("says")
    X = k.view("X", f32, ["N"])
    k.grid(1)
    x = k.load(X[span(0, 4)])
    k.print(x, message="x = {}", limit=2)
    k.assert_(x < 2.0, x, message='"{}"')
    text = str(k)
    assert 'print<"x = {}", limit = 2>(%x)' in text and 'assert<"\\"{}\\"">(' in text
    assert tileir.parse(text) == k.module()
    kernel = k.build()
    interpreter.run(kernel, {"X": np.zeros(4, np.float32)})
    assert capsys.readouterr().out.endswith("(0): x = [0] = 0, [1] = 0, … (4 elements)\n")
    with pytest.raises(tileir.CompileError, match='"3"'):
        interpreter.run(kernel, {"X": np.array([0, 1, 3, 0], np.float32)})
