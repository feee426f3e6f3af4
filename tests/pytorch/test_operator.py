"""Kernels as PyTorch operators: schemas, results, shapes without data, torch.compile. Skipped where PyTorch is not installed."""

from __future__ import annotations

import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import tileir
from tileir import kernels

torch: Any = pytest.importorskip("torch")
import tileir.torch as tt  # noqa: E402

CompileCounterWithBackend: Any = import_module("torch._dynamo.testing").CompileCounterWithBackend

SCALE = """tileir 1

kernel @scale<B: int = 256, T: type = f32>(%X: global<T[N]>, %Y: global<T[N]>, %a: f32) grid(cdiv(N, B)) {
  %i = program_id()
  store(convert<T>(convert<f32>(load(%X[%i * B +: B])) * %a), %Y[%i * B +: B])
}
"""
ACCUMULATE = """tileir 1

kernel @accumulate(%X: global<f32[M, N], strides = [LDX, 1]>, %Y: global<f32[M, N], strides = [LDY, 1]>, %flip: i1) grid(M) {
  %i = program_id()
  %x = load(%X[%i, 0 +: 128])
  store(load(%Y[%i, 0 +: 128]) + where(%flip, -%x, %x), %Y[%i, 0 +: 128])
}
"""
TILED = """tileir 1

kernel @tiled(%X: global<f32[N]>, %k: i32, %Y: global<f32[R, N]>, %S: global<i32[R, 1]>) grid(R) {
  %r = program_id()
  store(load(%X[0 +: 64]) * convert<f32>(%r), %Y[%r, 0 +: 64])
  store(%r + %k, %S[%r, 0])
}
"""


def rule(arguments: Any) -> dict[str, Any]:
    return {"T": tt.elem_of(arguments["X"])}


scale = tt.register("tileir_tests::scale", SCALE, params=rule)
scale_on_interpreter = tt.register("tileir_tests::scale_on_interpreter", SCALE, params={"B": 64}, cpu="interpreter")
accumulate = tt.register("tileir_tests::accumulate", ACCUMULATE)
tiled = tt.register("tileir_tests::tiled", TILED)


def test_schemas() -> None:
    assert repr(scale) == "<tileir_tests::scale(Tensor X, float a) -> Tensor>"
    assert accumulate.schema == "(Tensor X, Tensor(a0!) Y, bool flip) -> ()"
    assert tiled.schema == "(Tensor X, SymInt k, SymInt R) -> (Tensor, Tensor)"
    assert (
        str(torch.ops.tileir_tests.tiled.default._schema)
        == "tileir_tests::tiled(Tensor X, SymInt k, SymInt R) -> (Tensor, Tensor)"
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_dtypes_choose_parameters(dtype: Any) -> None:
    x = torch.randn(300).to(dtype)
    y = torch.ops.tileir_tests.scale(x, 2.0)
    assert y.dtype == dtype and y.data_ptr() != x.data_ptr() and torch.equal(y, x * 2)


def test_the_interpreter_runs_them_too() -> None:
    x = torch.randn(100)
    assert torch.equal(scale_on_interpreter(x, 3.0), x * 3)
    assert scale_on_interpreter(torch.empty(0), 3.0).shape == (0,)


def test_changes_in_place_and_strides() -> None:
    whole = torch.zeros(5, 200)
    y, x = whole[:, 10:60], torch.randn(50, 5).T
    accumulate(x, y, False)
    accumulate(x, y, True)
    accumulate(x * 2, y, False)
    assert torch.equal(y, x * 2) and whole[:, :10].abs().sum() == 0 and whole[:, 60:].abs().sum() == 0
    with pytest.raises(tileir.LaunchError, match="E1610"):
        accumulate(x, torch.zeros(50, 5).T, False)


def test_sizes_that_no_argument_determines() -> None:
    x = torch.arange(64.0)
    y, s = tiled(x, 5, 3)
    assert (
        torch.equal(y, torch.outer(torch.arange(3.0), x))
        and s.flatten().tolist() == [5, 6, 7]
        and s.dtype == torch.int32
    )


def test_shapes_without_data_compile_nothing() -> None:
    fresh = tt.register("tileir_tests::fresh", kernels.source("gemm"), kernel="gemm", params={"T": "f16"})
    a, b = (torch.empty(n, 96, dtype=torch.float16, device="meta") for n in (1000, 77))
    c = fresh(a, b)
    assert c.shape == (1000, 77) and c.dtype == torch.float16 and c.device.type == "meta"
    assert not fresh._compiled
    with torch._subclasses.FakeTensorMode():
        assert fresh(torch.empty(3, 8), torch.empty(5, 8)).shape == (3, 5)


CALLS: list[tuple[Any, tuple[Any, ...]]] = [
    (scale, (torch.randn(70), 2.0)),
    (scale, (torch.randn(140)[::2].to(torch.bfloat16), -1.0)),
    (accumulate, (torch.randn(3, 20), torch.randn(3, 40)[:, ::1][:, :20], True)),
    (tiled, (torch.randn(64), 1, 4)),
]


@pytest.mark.parametrize("case", range(len(CALLS)))
def test_opcheck(case: int) -> None:
    op, arguments = CALLS[case]
    found = torch.library.opcheck(op.op, arguments)
    assert set(found.values()) == {"SUCCESS"}, found


# the C++ compiler takes a minute
INDUCTOR = [pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler"), pytest.mark.nightly]
BACKENDS = ["eager", "aot_eager", pytest.param("inductor", marks=INDUCTOR)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_torch_compile_with_dynamic_shapes(backend: str) -> None:
    """One graph for all sizes, without breaks; in-place changes are seen."""
    torch._dynamo.reset()
    count = CompileCounterWithBackend(backend)

    @torch.compile(backend=count, fullgraph=True, dynamic=True)
    def f(x: Any, y: Any) -> Any:
        z = scale(x.flatten().sin(), 2.0)
        accumulate(z.reshape(x.shape), y, False)
        t, s = tiled(x[0], 7, 3)
        return z.sum() + y.mean(), t + s

    for rows, columns in ((4, 60), (7, 33), (9, 64)):
        x, y = torch.randn(rows, columns), torch.zeros(rows, columns)
        got, t = f(x, y)
        want = x.sin() * 2
        assert torch.allclose(y, want) and torch.allclose(got, want.sum() + want.mean(), atol=1e-4)
        assert t.shape == (3, columns) and torch.allclose(
            t, torch.outer(torch.arange(3.0), x[0]) + torch.tensor([[7.0], [8], [9]])
        )
    assert count.frame_count == 1


def test_a_formula_of_one_s_own_makes_it_differentiable() -> None:
    op = tt.register("tileir_tests::differentiable", SCALE)
    x = torch.randn(10, requires_grad=True)
    with pytest.raises(RuntimeError, match="no autograd formula"):
        op(x, 2.0).sum().backward()
    op.op.register_autograd(
        lambda ctx, grad: (op(grad.contiguous(), ctx.a), None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "a", inputs[1]),
    )
    op(x, 2.0).sum().backward()
    assert torch.equal(x.grad, torch.full((10,), 2.0))
    assert set(torch.library.opcheck(op.op, (x, 2.0)).values()) == {"SUCCESS"}


def test_errors_are_those_of_a_launch(tmp_path: Path) -> None:
    with pytest.raises(tileir.LaunchError, match="E1604"):
        scale_on_interpreter(torch.ones(3, dtype=torch.float64), 1.0)
    with pytest.raises(tileir.LaunchError, match="E1605"):
        scale(torch.ones(3, 3), 1.0)
    with pytest.raises(tileir.LaunchError, match="E1611"):
        accumulate(torch.ones(3, 4), torch.ones(4, 4), True)
    with pytest.raises(tileir.CompileError, match="E0203"):
        tt.register("tileir_tests::broken", SCALE.replace("* %a", "* %b"))
    with pytest.raises(TypeError, match=r"no element type of the language is torch\.complex64"):
        scale(torch.ones(3, dtype=torch.complex64), 1.0)
    path = tmp_path / "scale.tile"
    path.write_text(SCALE)
    assert torch.equal(tt.register("tileir_tests::from_file", path)(torch.ones(3), 2.0), torch.full((3,), 2.0))
