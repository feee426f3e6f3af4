"""The loops of the library's fast attention kernels: right for every number of blocks, free of races, and as short as is promised."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.kernels.attention import Shape, attention_kernel, check_attention, inputs, raise_key
from tests.kernels.harness import CHIPS
from tileir.lowering.amdgpu.compile import Compiled
from tileir.runtime import launch
from tileir.runtime.simulator_device import SimulatorDevice
from tileir.simulator.inspect.classify import TRANSCENDENTAL, classify

FAST = ("attention_lazy", "attention_prescaled")
BM, BN = 256, 64  # the defaults of the files
MATRIX_CLOCKS = {"v_mfma_f32_32x32x16_bf16": 32, "v_mfma_f32_32x32x8_bf16": 32, "v_mfma_f32_16x16x32_bf16": 16}


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", FAST)
def test_every_number_of_blocks(chip: str, name: str) -> None:
    """One to nine blocks of keys, the last one ragged or not; an outlier moves the reference in the last block."""
    kernel = attention_kernel(name, chip, Shape(1, 1, 128), BM, BN)
    assert not kernel.stats["deviations"] and kernel.stats["vgpr_spills"] == kernel.stats["scratch_bytes"] == 0
    for blocks in range(1, 10):
        shape = Shape(70, BN * blocks - (0, 7, 63)[blocks % 3], 128, 1, 1)
        check_attention(kernel, chip, shape, change=raise_key(shape.nk - 1), name=name)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", FAST)
def test_causal_with_checks(chip: str, name: str) -> None:
    """Blocks without and with masks, more queries than keys and fewer; no race and nothing read that was not written."""
    for sizes in ((300, 190), (129, 460)):
        shape = Shape(*sizes, 128, 1, 1, 1, causal=True)
        kernel = attention_kernel(name, chip, shape, BM, BN)
        check_attention(kernel, chip, shape, name=name, on=SimulatorDevice(chip, "race,uninit,barrier"))


def test_order_of_instructions_is_in_the_text() -> None:
    """Vector work stands between matrix instructions, with a fence before each; the loop is rotated and its rest is not."""
    kernel = attention_kernel("attention_prescaled", "gfx950", Shape(1, 1, 128), BM, BN).final
    assert kernel is not None
    loops = [op for op in kernel.walk() if op.name == "for" and any(x.name == "mfma" for x in op.walk())]
    (loop,) = loops
    names = [op.name for op in loop.regions[0].ops]
    at = [i for i, n in enumerate(names) if n == "mfma"]
    between = [names[a + 1 : b] for a, b in itertools.pairwise(at)]
    assert all("schedule_fence" in x or "guard" in x for x in between)
    assert sum("exp2" in x for x in between) > len(at) // 3


class Work(NamedTuple):
    """Instructions of all waves."""

    vector: int
    slow: int
    clocks: int

    def __sub__(self, other: Work) -> Work:  # type: ignore[override]
        return Work(*(a - b for a, b in zip(self, other, strict=True)))

    @property
    def ratio(self) -> float:
        """Clocks of vector instructions, four each and eight of transcendental ones, over those of matrix instructions."""
        return (4 * self.vector + 8 * self.slow) / self.clocks


def work(kernel: Compiled, chip: str, shape: Shape) -> Work:
    """What a launch on inputs of a normal distribution executes."""
    q, k, v = inputs(shape, "bf16")
    on = SimulatorDevice(chip)
    o, lse = np.zeros_like(q), np.zeros((shape.batches, shape.heads, shape.nq), np.float32)
    arrays: dict[str, Any] = {"Q": q, "K": k, "V": v, "O": o, "LSE": lse, "scale": shape.depth**-0.5}
    launch(kernel, arrays, on)
    return counted(kernel, "attention", on)


def counted(kernel: Compiled, name: str, on: SimulatorDevice) -> Work:
    """What the last launch executed."""
    assert on.statistics is not None
    program = on.load(kernel.hsaco).program(name)
    vector = slow = clocks = 0
    for address, inst in zip(program.addresses, program.instructions, strict=True):
        times = on.statistics.executions.get(address, 0)
        if inst is None or not inst.name.startswith("v_"):
            continue
        if inst.name.startswith("v_mfma"):
            clocks += times * MATRIX_CLOCKS[inst.name]
        elif classify(inst.name, inst.encoding, False) == TRANSCENDENTAL:
            slow += times
        else:
            vector += times
    return Work(vector, slow, clocks)


@pytest.mark.parametrize(
    ("name", "chip", "depth", "bar"),
    [
        ("attention_prescaled", "gfx950", 128, 0.45),
        ("attention_lazy", "gfx950", 128, 0.56),
        ("attention_prescaled", "gfx950", 64, 0.90),
        ("attention_lazy", "gfx942", 128, 0.34),
    ],
)
def test_vector_work_of_a_block(name: str, chip: str, depth: int, bar: float) -> None:
    """What twelve blocks more cost; the region that rescales is in it as often as it runs. gfx942 rounds halves away from zero."""
    kernel = attention_kernel(name, chip, Shape(1, 1, depth), BM, BN, away=chip == "gfx942")
    assert kernel.stats["vgpr_spills"] == kernel.stats["scratch_bytes"] == 0 and not kernel.stats["deviations"]
    less, more = (work(kernel, chip, Shape(BM, BN * blocks, depth, 1, 1)) for blocks in (12, 24))
    assert (more - less).ratio <= bar, more - less


def test_halves_rounded_away() -> None:
    """The loop that is shortest on gfx942: right with all checks, the wait states of matrix instructions among them."""
    kernel = attention_kernel("attention_lazy", "gfx942", Shape(1, 1, 128), BM, BN, away=True)
    shape = Shape(70, 2 * BN + 7, 128, 1, 1)
    on = SimulatorDevice("gfx942", "all")
    check_attention(kernel, "gfx942", shape, change=raise_key(shape.nk - 1), name="attention_lazy", on=on)
    assert on.statistics is not None and not on.statistics.findings


@pytest.mark.nightly
@pytest.mark.parametrize(("depth", "most"), [(128, 0.51), (64, 1.0)])
def test_vector_work_of_causal_attention(depth: int, most: float) -> None:
    """The blocks of 4096 queries and keys: full ones, those on the diagonal, and what is left behind a pipelined loop. What stands outside of
    the loops is what a launch with a single key executes."""
    kernel = attention_kernel("attention_prescaled", "gfx950", Shape(1, 1, depth, causal=True), BM, BN)
    whole, outside = (work(kernel, "gfx950", Shape(4096, nk, depth, 1, 1, 1, causal=True)) for nk in (4096, 1))
    assert (whole - outside).ratio <= most, whole - outside
