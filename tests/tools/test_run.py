"""tileir-run: inputs from the command line, and that a wrong result does not pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tileir.frontend import parse
from tileir.interpreter import run as interpret
from tileir.tools import run
from tileir.tools.common import UsageError
from tileir.tools.inputs import make_inputs
from tileir.tools.tolerance import bounds, clone, is_linear

GEMM = """tileir 1
kernel @gemm<T: type = bf16, BK: int = 32>(%A: global<T[M, K], strides = [LDA, 1]>, %B: global<T[N, K]>, %C: global<T[M, N]>, %scale: f32)
    grid(cdiv(M, 32), cdiv(N, 32)) {
  %i, %j = program_id()
  %zero = fill(0.0) : tile<f32[32, 32]>
  %acc = for %k = 0 to K step BK carry(%c = %zero) {
    %d = mma(load(%A[%i * 32 +: 32, %k +: BK]), transpose(load(%B[%j * 32 +: 32, %k +: BK])), %c)
    yield %d
  }
  store(convert<T>(%acc * %scale), %C[%i * 32 +: 32, %j * 32 +: 32])
}
"""
SHAPE = ["--shape", "M=40,N=35,K=50"]


@pytest.fixture
def gemm(tmp_path: Path) -> str:
    path = tmp_path / "gemm.tile"
    path.write_text(GEMM)
    return str(path)


def kernel() -> Any:
    return parse(GEMM, "gemm.tile").kernels[0]


def inputs(*args: str, shape: str = "M=40,N=35,K=50", **fields: Any) -> Any:
    return make_inputs(kernel(), [shape], args, fields.pop("npz", None), fields.pop("seed", 0), **fields)


@pytest.mark.parametrize("chip", ["gfx942", "gfx950"])
def test_simulator_agrees_with_the_interpreter(chip: str, gemm: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run.main([gemm, "--target", chip, *SHAPE, "--shape", "LDA=56", "--arg", "scale=0.5", "--verify", "--stats"])
        == 0
    )
    out = capsys.readouterr().out
    assert f"gemm on simulator:{chip}, grid 2 x 2, M = 40, K = 50, LDA = 56, N = 35" in out
    assert "%C: ok, all within their bounds" in out and '"vgpr_spills": 0' in out


RACY = """tileir 1
kernel @racy(%A: global<i32[N]>, %C: global<i32[1]>) grid(N) {
  %i = program_id()
  store(load(%A[%i +: 1]), %C[0 +: 1])
}
"""
"""Every program stores a value of its own to the same place."""


@pytest.mark.parametrize("chip", ["gfx942", "gfx950"])
def test_checks(chip: str, gemm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main([gemm, "--target", chip, *SHAPE, "--shape", "LDA=56", "--arg", "scale=1", "--check", "all"]) == 0
    racy = tmp_path / "racy.tile"
    racy.write_text(RACY)
    command = [str(racy), "--target", chip, "--shape", "N=5", "--arg", "A=iota"]
    assert run.main(command) == 0
    assert run.main([*command, "--check", "uninit,wait,bounds,barrier,hazard"]) == 0
    capsys.readouterr()
    assert run.main([*command, "--check", "race"]) == 1
    err = capsys.readouterr().err
    assert "race-memory: the workgroup writes" in err and "racy.tile:4" in err and "other party" in err


def test_checks_are_the_simulators(gemm: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = [gemm, "--target", "gfx950", *SHAPE, "--arg", "scale=1", "--check"]
    assert run.main([*command, "races"]) == 2
    assert "there is no check 'races'; legal are all, race, wait" in capsys.readouterr().err
    assert run.main([*command, "all", "--device", "interpreter"]) == 2
    assert "interpreter makes no checks" in capsys.readouterr().err


def test_a_wrong_result_is_a_mismatch(
    gemm: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import tileir.runtime

    real = tileir.runtime.launch

    def wrong(compiled: Any, arrays: Any, device: Any, **fields: Any) -> Any:
        binding = real(compiled, arrays, device, **fields)
        arrays["C"][3, 4] += np.asarray(1, arrays["C"].dtype)
        return binding

    monkeypatch.setattr(tileir.runtime, "launch", wrong)
    assert run.main([gemm, "--device", "interpreter", *SHAPE, "--verify"]) == 1
    out = capsys.readouterr().out
    assert "%C: MISMATCH, 1 of 1400 outside their bounds" in out and "[3, 4]" in out


def test_results_are_saved(gemm: str, tmp_path: Path) -> None:
    a, b = np.arange(12, dtype=np.float32).reshape(3, 4), np.eye(4, dtype=np.float32)
    np.save(tmp_path / "a.npy", a)
    np.savez(tmp_path / "b.npz", B=b)
    files = ["--arg", f"A={tmp_path / 'a.npy'}", "--npz", str(tmp_path / "b.npz"), "--out", f"C={tmp_path / 'c.npy'}"]
    assert run.main([gemm, "--device", "interpreter", "--arg", "scale=2", *files]) == 0
    assert np.array_equal(np.load(tmp_path / "c.npy"), 2 * a)


def test_random_inputs_depend_on_the_seed_and_the_name_alone() -> None:
    first, again, other = inputs(), inputs("C=zeros"), inputs(seed=1)
    assert np.array_equal(first.values["A"], again.values["A"]) and not np.any(again.values["C"])
    assert not np.array_equal(first.values["A"], other.values["A"])
    assert not np.array_equal(first.values["A"][:3, :3], first.values["B"][:3, :3])
    small = inputs(small=True).values["A"].astype(np.float64)
    assert np.array_equal(small, np.rint(small)) and np.abs(small).max() == 3


def test_fills_strides_and_scalars() -> None:
    found = inputs("A=ones", "B=iota", "scale=1.5", shape="M=4,N=5,K=6,LDA=9")
    a, b = found.values["A"], found.values["B"]
    assert a.shape == (4, 6) and a.strides == (18, 2) and np.all(a == 1)
    assert b.astype(int).ravel().tolist() == list(range(30)) and found.values["scale"] == 1.5
    assert found.symbols == {"M": 4, "K": 6, "LDA": 9, "N": 5}
    assert inputs().symbols["LDA"] == 50  # dense


def test_raw_bytes_and_rounded_floats(tmp_path: Path) -> None:
    exact = np.arange(24, dtype=np.float32).reshape(4, 6).astype(ml_dtypes.bfloat16)
    np.save(tmp_path / "raw.npy", exact.view(np.dtype("V2")))
    np.save(tmp_path / "f64.npy", np.full((5, 6), 1 / 3))
    found = inputs(f"A={tmp_path / 'raw.npy'}", f"B={tmp_path / 'f64.npy'}", shape="M=4")
    assert np.array_equal(found.values["A"], exact) and found.symbols["N"] == 5
    assert found.values["B"].dtype == ml_dtypes.bfloat16 and "rounded to bf16" in found.remarks[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say --target"),
        (["--device", "toaster"], "there is no device 'toaster'"),
        (["--target", "gfx942", "--device", "simulator:gfx950"], "does not run on"),
        (["--device", "interpreter"], "the sizes of M, K, LDA, N are not known"),
        (["--device", "interpreter", "--shape", "Q=1"], "has no such dimension; it has M, K, LDA, N"),
        (["--device", "interpreter", "--shape", "M=x"], "a size is an integer"),
        (["--device", "interpreter", "--shape", "M=-1"], "not negative"),
        (["--device", "interpreter", "--shape", "M"], "--shape wants NAME=VALUE"),
        (["--device", "interpreter", "--arg", "X=1"], "has no argument %X"),
        (["--device", "interpreter", "--arg", "A=no.npy"], "there is no file 'no.npy'"),
        (["--device", "interpreter", *SHAPE, "--arg", "scale=much"], "give a number"),
        (["--device", "interpreter", *SHAPE, "--out", "A=a.npy"], "the kernel writes C"),
        (["--device", "interpreter", "--npz", "no.npz"], "cannot read arrays"),
    ],
)
def test_usage_errors(arguments: list[str], message: str, gemm: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main([gemm, *arguments]) == 2
    err = capsys.readouterr().err
    assert message in err and "Traceback" not in err


def test_arrays_that_do_not_fit_are_located(gemm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "a.npy", np.zeros((4, 6), np.float32))
    np.save(tmp_path / "b.npy", np.zeros((5, 7), np.float32))
    files = [f"A={tmp_path / 'a.npy'}", f"B={tmp_path / 'b.npy'}"]
    assert run.main([gemm, "--device", "interpreter", "--arg", files[0], "--arg", files[1]]) == 1
    assert f"{gemm}:2:" in (err := capsys.readouterr().err) and "K is" in err
    np.save(tmp_path / "c.npy", np.zeros((4, 5), np.int32))
    with pytest.raises(UsageError, match="holds int32, but %A is a view of bf16"):
        inputs(f"A={tmp_path / 'c.npy'}")


def test_the_bound_holds_for_another_order_and_notices_one_unit() -> None:
    """The derived bound of a sum of products: f32 sums in reverse order pass, an error of two units does not."""
    k = parse(GEMM, "gemm.tile", {"T": "f32"}).kernels[0]
    assert is_linear(k)
    found = make_inputs(k, ["M=8,N=8,K=4096"], ["scale=1"], None, 0)
    reference = {n: clone(v) if isinstance(v, np.ndarray) else v for n, v in found.values.items()}
    interpret(k, reference, symbols=found.symbols)
    limit = bounds(k, found.values, found.symbols, {"C": reference["C"]})["C"]
    a, b = found.values["A"], found.values["B"]
    sums = np.zeros((8, 8), np.float32)
    for i in reversed(range(4096)):
        sums += a[:, i, None] * b[None, :, i]
    assert np.all(np.abs(sums.astype(np.float64) - reference["C"]) <= limit.values)
    # one product missing is noticed where it is larger than what rounding explains
    worst = np.abs(a[:, None, :].astype(np.float64) * b[None, :, :]).max()
    assert np.all(limit.values < 4096 * worst) and "gamma_" in limit.text


def test_exactness_and_tolerance_are_told_apart() -> None:
    integers = parse(
        "tileir 1\nkernel @k(%X: global<i32[N]>) grid(1) {\n store(load(%X[0 +: 8]) * 3, %X[0 +: 8])\n}\n", "i.tile"
    ).kernels[0]
    x = np.arange(8, dtype=np.int32)
    assert bounds(integers, {"X": x}, {"N": 8}, {"X": x})["X"].values == 0.0
    functions = parse(
        "tileir 1\nkernel @k(%X: global<f32[N]>) grid(1) {\n store(exp2(load(%X[0 +: 8])), %X[0 +: 8])\n}\n", "f.tile"
    ).kernels[0]
    assert not is_linear(functions)
    y = np.ones(8, np.float32)
    values = bounds(functions, {"X": y}, {"N": 8}, {"X": y})["X"].values
    assert np.all(values > 0) and np.all(values < 1e-4)


def test_bench_says_that_an_estimate_is_one(gemm: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main([gemm, "--target", "gfx950", *SHAPE, "--shape", "LDA=56", "--arg", "scale=0.5", "--bench"]) == 0
    assert "  gemm on simulator:gfx950: estimated " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["--device", "interpreter", "--bench"], "--bench needs a GPU or a simulator"),
        (["--target", "gfx950", "--cold"], "--cold is for --bench"),
        (["--device", "hip:99"], "hip:99"),
        (["--device", "cuda"], "there is no device 'cuda'; devices: "),
    ],
)
def test_devices_that_do_not_fit(
    arguments: list[str], want: str, gemm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main([gemm, *arguments]) == 2
    assert want in capsys.readouterr().err
