"""Kernels that adapt to the sizes of a launch: what is planned, which version runs, and that it is right."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tileir
from tileir import kernels
from tileir.runtime import DeviceError
from tileir.runtime.launch import bind_launch
from tileir.runtime.simulator_device import SimulatorDevice
from tileir.simulator import TimeOptions
from tileir.target import get as get_target
from tileir.tuning import AdaptiveKernel, planning
from tileir.tuning.planning import plan

GEMM = kernels.source("gemm")
PROBLEMS = {
    "square": (4096, 4096, 4096),
    "long": (128, 128, 8192),
    "skinny": (16, 4096, 4096),
    "vector": (1, 4096, 4096),
}
"""Square, few tiles and a long k, few rows, one row."""


def sizes(problem: str) -> dict[str, int]:
    return dict(zip("MNK", PROBLEMS[problem], strict=True))


@pytest.mark.parametrize("chip", ["gfx942", "gfx950"])
def test_plans_fill_the_chip(chip: str) -> None:
    """Few tiles and a long k are cut into parts, few rows get small tiles, and large squares large ones; each promises more than the defaults."""
    target = get_target(chip)
    square = plan(GEMM, chip, sizes("square"))
    assert square.parts == 1 and square.params["BM"] == square.params["BN"] == 256
    long = plan(GEMM, chip, sizes("long"))
    assert long.parts > 1 and long.seconds < long.default_seconds / 3
    tiles = -(-128 // long.params.get("BM", 128)) * -(-128 // long.params.get("BN", 128))
    assert target.num_cus // 4 <= tiles * long.parts <= 2 * target.num_cus
    skinny = plan(GEMM, chip, sizes("skinny"))
    assert skinny.params["BM"] <= 32 and skinny.seconds < skinny.default_seconds / 1.5


def test_a_plan_says_what_it_is() -> None:
    long = plan(GEMM, "gfx950", sizes("long"))
    assert f"sum in {long.parts} parts" in str(long) and "BM = " in str(long)
    fixed = plan(GEMM, "gfx950", {"M": 128, "N": 128, "K": 128}, params={"BM": 128, "BN": 128, "BK": 64})
    assert fixed.params == {} and fixed.parts == 1


def test_a_schedule_that_is_planned_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where stating waves or stages promises more, the text says so, and compiles."""
    made = plan(GEMM, "gfx942", sizes("skinny"), split=False)
    if not made.schedule:  # the compiler's own is as good: make it worth saying
        monkeypatch.setattr(planning, "WORTHWHILE", 1.5)
        made = plan(GEMM, "gfx942", sizes("skinny"), split=False)
    module = tileir.parse(f"{GEMM}\n{made.schedule}", params=made.params)
    (schedule,) = module.schedules
    assert schedule.name == planning.SCHEDULE and schedule.directives


def product(kernel: AdaptiveKernel, m: int, n: int, k: int, device: Any) -> tuple[Any, Any]:
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.integers(-2, 3, (rows, k)).astype(ml_dtypes.bfloat16) for rows in (m, n))
    c = np.full((m, n), 9, ml_dtypes.bfloat16)
    kernel.launch(A=a, B=b, C=c, device=device)
    return c, (a.astype(np.float64) @ b.astype(np.float64).T).astype(ml_dtypes.bfloat16)


def test_each_bucket_has_a_version_that_is_right() -> None:
    """On the simulator: a small product, one in parts, and one of the same bucket with other sizes and ragged edges."""
    kernel = tileir.adaptive(GEMM, "gfx950")
    device = tileir.get_device("simulator:gfx950")
    for m, n, k in ((20, 30, 40), (33, 64, 4096), (40, 50, 2100)):
        got, want = product(kernel, m, n, k, device)
        np.testing.assert_array_equal(got, want)
    assert "2 versions" in repr(kernel)
    version = kernel.version(M=40, N=50, K=2100)
    assert version is kernel.version(M=33, N=64, K=4096) and len(version.kernels) == 2
    assert version.split is not None and str(version) == str(version.plan)


def test_what_a_launch_says_is_said() -> None:
    """Arguments that do not fit, and sizes of zero, are left to the kernel as it is."""
    kernel = tileir.adaptive(GEMM, "gfx950")
    device = tileir.get_device("interpreter")
    a = np.zeros((4, 8), ml_dtypes.bfloat16)
    with pytest.raises(tileir.LaunchError, match="K"):
        kernel.launch(A=a, B=np.zeros((4, 9), ml_dtypes.bfloat16), C=a[:, :4].copy(), device=device)
    with pytest.raises(tileir.LaunchError, match="E16"):
        kernel.launch(A=a, device=device)
    empty = kernel.launch(A=a[:0], B=a, C=np.zeros((0, 4), ml_dtypes.bfloat16), device=device)
    assert 0 in empty.grid


def test_kernels_without_products_run_as_they_are() -> None:
    kernel = tileir.adaptive(kernels.source("vector_add"), "gfx950")
    version = kernel.version(**dict.fromkeys(kernel.kernel.symbols(), 1000))
    assert version.plan is None and str(version) == "as it is"


def test_plans_that_do_not_compile_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """First the split, then all of it."""
    asked: list[bool] = []

    def refused(*args: Any, split: bool, **more: Any) -> Any:
        asked.append(split)
        raise tileir.CompileError([])

    monkeypatch.setattr("tileir.tuning.versions.plan", refused)
    version = tileir.adaptive(GEMM, "gfx950").version(M=64, N=64, K=64)
    assert asked == [True, False] and version.plan is None


def seconds(kernel: tileir.CompiledKernel, chip: str, arrays: dict[str, tuple[int, ...]]) -> float:
    """The simulator's estimate of one launch."""
    device = SimulatorDevice(chip)
    assert kernel.kernel is not None
    views = {a.name: device.empty(arrays[a.name], a.view.elem) for a in kernel.kernel.args}
    with bind_launch(kernel, views, device, None) as (binding, arguments):
        try:
            return device.estimate(kernel, binding.grid, arguments, TimeOptions(sample_only=True)).seconds
        except DeviceError as e:  # pragma: no cover
            raise AssertionError(str(e)) from e


@pytest.mark.nightly
@pytest.mark.parametrize("chip", ["gfx942", "gfx950"])
@pytest.mark.parametrize("problem", sorted(PROBLEMS))
def test_versions_are_faster_than_the_text_as_it_is(problem: str, chip: str) -> None:
    """By the simulator, with the pause between two kernels; never slower, and small and skinny problems at least 1.5 times as fast."""
    m, n, k = PROBLEMS[problem]
    version = tileir.adaptive(GEMM, chip).version(M=m, N=n, K=k)
    arrays: dict[str, tuple[int, ...]] = {"A": (m, k), "B": (n, k), "C": (m, n)}
    default = seconds(tileir.compile(GEMM, chip), chip, arrays)
    if version.split is not None:
        assert version.plan is not None
        p = version.plan.params
        grid = (-(-m // p.get("BM", 128)), -(-n // p.get("BN", 128)))
        arrays["W"] = version.split.shape(0, version.plan.parts, grid)
    gap = float(str(get_target(chip).fact("kernel_gap_ns").value)) * 1e-9 * (len(version.kernels) - 1)
    found = sum(seconds(kernel, chip, arrays) for kernel in version.kernels) + gap
    assert found <= default * (1.0 if problem == "square" else 1 / 1.5), (found, default, str(version))
