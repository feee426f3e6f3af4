"""The library's attention backward against float64: every size, grouped heads, causal masks, outliers, races."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.attention import Shape
from tests.kernels.attention_backward import STEPS, backward_kernel, check_backward
from tests.kernels.harness import CHIPS, DTYPES
from tests.kernels.test_attention_loops import Work, counted
from tileir.lowering.amdgpu.compile import Compiled
from tileir.runtime import launch
from tileir.runtime.simulator_device import SimulatorDevice
from tileir.simulator.inspect import inspect

# Of each chip one in the gate, the others nightly, as are more sizes.
CASES = [
    pytest.param(chip, depth, causal, marks=() if (depth, causal) == gate else pytest.mark.nightly)
    for chip, gate in zip(CHIPS, ((64, False), (64, True)), strict=True)
    for depth in (64, 128)
    for causal in (False, True)
]


def steps_of(chip: str, shape: Shape, dtype: str = "bf16") -> dict[str, Compiled]:
    """The three kernels at the tiles that the file states."""
    found = {step: backward_kernel(step, chip, shape, dtype) for step in STEPS}
    for step, kernel in found.items():
        assert kernel.stats["vgpr_spills"] == kernel.stats["scratch_bytes"] == 0, step
    return found


@pytest.mark.parametrize(("chip", "depth", "causal"), CASES)
def test_gradients(chip: str, depth: int, causal: bool) -> None:
    """Grouped heads, more queries than keys (whose first rows see nothing when causal) and fewer, sizes that no tile divides; the last key
    an outlier or not. With all checks on once."""
    steps = steps_of(chip, Shape(1, 1, depth, causal=causal))
    for n, (nq, nk) in enumerate(((70, 90), (100, 33), (1, 140), (161, 200))):
        shape = Shape(nq, nk, depth, 4, 2, 1 + n % 2, causal)
        check_backward(shape, chip, steps, outlier=n % 2 == 1, seed=n)
    on = SimulatorDevice(chip, "race,uninit,barrier")
    check_backward(Shape(40, 130, depth, 2, 1, 1, causal), chip, steps, outlier=True, on=on)


@pytest.mark.nightly
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("depth", [64, 128])
def test_every_kind_of_size(chip: str, causal: bool, depth: int) -> None:
    """Sizes from 1 to 1000, both numbers of a launch from one draw."""
    steps = steps_of(chip, Shape(1, 1, depth, causal=causal))
    rng = np.random.default_rng(depth + causal)
    sizes = [1, 2, 31, 32, 33, 127, 128, 129, 255, 257, 511, 1000, *rng.integers(1, 1001, 8).tolist()]
    for nq, nk in zip(sizes, rng.permutation(sizes).tolist(), strict=True):
        check_backward(Shape(nq, nk, depth, 1, 1, 1, causal), chip, steps, outlier=bool(nq % 2))


@pytest.mark.nightly
@pytest.mark.parametrize("chip", CHIPS)
def test_half_precision(chip: str) -> None:
    steps = steps_of(chip, Shape(1, 1, 64, causal=True), "f16")
    check_backward(Shape(140, 150, 64, 2, 2, 1, True), chip, steps, "f16")


@pytest.mark.nightly
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("depth", [64, 128])
def test_atomic_updates_of_dq(chip: str, depth: int, causal: bool) -> None:
    """The kernel that computes scores once: several tiles of keys and heads add to the same rows."""
    shape = Shape(1, 1, depth, causal=causal)
    steps = {step: backward_kernel(step, chip, shape) for step in ("delta", "fused")}
    assert steps["fused"].stats["vgpr_spills"] == steps["fused"].stats["scratch_bytes"] == 0
    hot = inspect(steps["fused"].hsaco, "fused").kernel.hot_loop
    assert hot is not None and not hot.counts.accumulator_moves
    for n, (nq, nk) in enumerate(((70, 90), (161, 200), (30, 17), (256, 128))):
        check_backward(Shape(nq, nk, depth, 4, 2, 1, causal), chip, steps, outlier=n == 1, seed=n)
    on = SimulatorDevice(chip, "race,uninit,barrier")
    check_backward(Shape(40, 130, depth, 2, 1, 1, causal), chip, steps, outlier=True, on=on)


def test_gradients_are_the_same_bits_every_time() -> None:
    shape = Shape(70, 90, 64, 4, 2, 1, True)
    steps = steps_of("gfx950", shape)
    first, second = (check_backward(shape, "gfx950", steps, on=SimulatorDevice("gfx950")) for _ in range(2))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(("step", "registers"), [("dkv", 128), ("dq", 64)])
def test_accumulators_keep_their_registers(step: str, registers: int) -> None:
    """Through both loops, and the tile that is left over when two make a trip: no accumulator is moved, nor has a second place."""
    kernel = backward_kernel(step, "gfx950", Shape(1, 1, 128))
    assert kernel.stats["agprs"] == registers
    loops = [loop for loop in inspect(kernel.hsaco, step).kernel.loops if loop.counts.mfma_clocks]
    assert loops and not any(loop.counts.accumulator_moves for loop in loops)


@pytest.mark.nightly
@pytest.mark.parametrize(("step", "most"), [("dkv", 0.35), ("dq", 0.40)])
def test_vector_work_of_a_block(step: str, most: float) -> None:
    """(4 · vector + 8 · transcendental instructions) / clocks of matrix instructions of twelve blocks more, as executed on gfx950 at D = 128; no
    accumulator is moved in the loop."""
    kernel = backward_kernel(step, "gfx950", Shape(1, 1, 128))
    assert kernel.stats["vgpr_spills"] == 0 and not kernel.stats["deviations"]
    less, more = (executed(kernel, step, 32 * blocks) for blocks in (12, 24))
    assert (more - less).ratio <= most, more - less


def executed(kernel: Compiled, step: str, passing: int) -> Work:
    """What a launch of one tile that stays and so many positions that pass executes."""
    nq, nk = (passing, 128) if step == "dkv" else (128, passing)
    q, k = (np.ones((1, n, 1, 128), DTYPES["bf16"]) for n in (nq, nk))
    row = np.zeros((1, 1, nq), np.float32)
    arrays: dict[str, Any] = {"Q": q, "K": k, "V": k.copy(), "DO": q.copy(), "NL": row, "ND": row.copy(), "scale": 0.01}
    arrays |= {"DK": k.copy(), "DV": k.copy()} if step == "dkv" else {"DQ": q.copy()}
    on = SimulatorDevice("gfx950")
    launch(kernel, arrays, on)
    return counted(kernel, step, on)
