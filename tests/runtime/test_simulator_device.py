"""Compiled kernels on the simulator, through the same launch as on the interpreter."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tileir.frontend import parse
from tileir.ir.binding import LaunchError
from tileir.ir.types import F32
from tileir.lowering.amdgpu.compile import Compiled, compile_kernel
from tileir.runtime import BufferView, DeviceError, get_device, launch, load_code_object
from tileir.runtime.simulator_device import SimulatorDevice

from .test_launch import SCALE

CHIPS = ("gfx942", "gfx950")


@cache
def compiled(chip: str) -> Compiled:
    return compile_kernel(parse(SCALE, "scale.tile"), "scale", chip)


@cache
def device(chip: str) -> SimulatorDevice:
    found = get_device(f"simulator:{chip}")
    assert isinstance(found, SimulatorDevice)
    return found


@pytest.mark.parametrize("chip", CHIPS)
def test_the_same_launch_gives_the_same_numbers(chip: str) -> None:
    rng = np.random.default_rng(1)
    base = rng.standard_normal((50, 40)).astype(np.float32)
    other = base.copy()
    for where, on in ((base, device(chip)), (other, get_device("interpreter"))):
        launch(compiled(chip), {"X": where[:20, 3:20], "Y": where[21:41, 5:22], "f": 1.5}, on)
    assert np.array_equal(base, other)
    statistics = device(chip).statistics
    assert statistics is not None and statistics.workgroups == 5 * 3


@pytest.mark.parametrize("chip", CHIPS)
def test_a_code_object_says_how_it_is_launched(chip: str) -> None:
    loaded = load_code_object(compiled(chip).hsaco)
    assert loaded.kernel is None and loaded.target == chip and loaded.block == compiled(chip).block
    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    x.flags.writeable = False
    y = np.full((5, 7), np.nan, np.float32)
    binding = launch(loaded, {"X": x, "Y": y, "f": 2}, device(chip))
    assert np.array_equal(y, 2 * x) and binding.grid == (2, 1)
    with pytest.raises(LaunchError, match="M is 5 in %X but 4 in %Y"):
        launch(loaded, {"X": x, "Y": y[:4], "f": 2}, device(chip))
    with pytest.raises(LaunchError, match="%X and %Y share memory"):
        launch(loaded, {"X": y[:4], "Y": y[1:], "f": 2}, device(chip))
    with pytest.raises(DeviceError, match="only the code object of this kernel is known"):
        launch(loaded, {"X": x, "Y": y, "f": 2}, get_device("interpreter"))


@pytest.mark.parametrize("chip", CHIPS)
def test_a_view_whose_byte_offset_passes_4_gib(chip: str) -> None:
    on = device(chip)
    buffer = on.alloc(5 << 30)
    offset = (1 << 32) + 52
    on.copy_in(buffer, np.arange(16, dtype=np.float32).view(np.uint8), offset)
    y = np.zeros((2, 8), np.float32)
    launch(compiled(chip), {"X": BufferView(buffer, F32, (2, 8), offset=offset), "Y": y, "f": 2}, on)
    assert y.tolist() == (2 * np.arange(16).reshape(2, 8)).tolist()
    rows = BufferView(buffer, F32, (3, 8), (1 << 29, 1), offset=64)
    launch(compiled(chip), {"X": np.ones((3, 8), np.float32), "Y": rows, "f": 5}, on)
    assert on.copy_out(buffer, 32, (1 << 32) + 64).view(np.float32).tolist() == [5] * 8
    on.free(buffer)


def test_a_code_object_for_another_chip() -> None:
    x, y = np.ones((5, 7), np.float32), np.zeros((5, 7), np.float32)
    with pytest.raises(DeviceError, match="the code object is for gfx942, the simulated chip is gfx950"):
        launch(compiled("gfx942"), {"X": x, "Y": y, "f": 2}, device("gfx950"))


def test_a_fault_of_the_kernel_is_a_device_error_with_its_place() -> None:
    on = device("gfx950")
    read_only = on.alloc(4 * 35, read_only=True)
    x = np.ones((5, 7), np.float32)
    with pytest.raises(DeviceError, match=r"scale\.tile:5"):
        launch(compiled("gfx950"), {"X": x, "Y": BufferView(read_only, F32, (5, 7)), "f": 2}, on)


def test_bytes_that_are_no_code_object() -> None:
    with pytest.raises(DeviceError, match="not a usable code object"):
        load_code_object(b"\x7fELF and then nothing")
