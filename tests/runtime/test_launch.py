"""Launching on the interpreter: placement, aliases, strided and very large views."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tileir.frontend import parse
from tileir.ir.binding import LaunchError
from tileir.ir.core import Kernel
from tileir.ir.types import BF16, F32
from tileir.runtime import BufferView, DeviceError, device_names, get_device, launch
from tileir.runtime.device import Device


@dataclass
class Interpreted:
    kernel: Kernel
    interface: dict[str, object] = field(default_factory=dict)
    hsaco: bytes = b""
    target: str = "gfx950"
    block: tuple[int, int, int] = (256, 1, 1)


SCALE = """tileir 1
kernel @scale<BM: int = 4, BN: int = 8>(%X: global<f32[M, N], strides = [SX, 1]>, %Y: global<f32[M, N], strides = [SY, 1]>, %f: f32)
    grid(cdiv(M, BM), cdiv(N, BN)) {
  %i, %j = program_id()
  store(load(%X[%i * BM +: BM, %j * BN +: BN]) * %f, %Y[%i * BM +: BM, %j * BN +: BN])
}
"""


def compiled(text: str = SCALE) -> Interpreted:
    return Interpreted(parse(text, "scale.tile").kernels[0])


@pytest.fixture
def device() -> Device:
    return get_device("interpreter")


def test_launch(device: Device) -> None:
    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    y = np.full_like(x, np.nan)
    binding = launch(compiled(), {"X": x, "Y": y, "f": 2}, device)
    assert np.array_equal(y, 2 * x)
    assert binding.symbols == {"M": 5, "N": 7, "SX": 7, "SY": 7} and binding.grid == (2, 1)


def test_strided_views_of_one_allocation(device: Device) -> None:
    base = np.arange(200, dtype=np.float32).reshape(10, 20)
    before = base.copy()
    launch(compiled(), {"X": base[:5, 1:8], "Y": base[5:, 10:17], "f": 3}, device)
    want = before.copy()
    want[5:, 10:17] = 3 * before[:5, 1:8]
    assert np.array_equal(base, want)


def test_columns_that_interleave_do_not_overlap(device: Device) -> None:
    text = SCALE.replace("[SX, 1]", "[SX, TX]").replace("[SY, 1]", "[SY, TY]")
    base = np.arange(40, dtype=np.float32).reshape(4, 10)
    want = 2 * base[:, ::2]
    launch(compiled(text), {"X": base[:, ::2], "Y": base[:, 1::2], "f": 2}, device)
    assert np.array_equal(base[:, 1::2], want)


def test_overlap_is_rejected_unless_declared(device: Device) -> None:
    base = np.arange(8, dtype=np.float32).reshape(1, 8)
    arguments = {"X": base[:, :7], "Y": base[:, 1:], "f": 2}
    with pytest.raises(LaunchError, match=r"scale\.tile:2:.*%X and %Y share memory"):
        launch(compiled(), arguments, device)
    launch(compiled(SCALE.replace("cdiv(N, BN))", "cdiv(N, BN)) alias(%X, %Y)")), arguments, device)
    assert base.tolist() == [[0, 0, 2, 4, 6, 8, 10, 12]]


def test_inputs_may_share_memory(device: Device) -> None:
    text = """tileir 1
kernel @add(%A: global<f32[N]>, %B: global<f32[N]>, %C: global<f32[N]>) grid(1) {
  store(load(%A[0 +: 8]) + load(%B[0 +: 8]), %C[0 +: 8])
}
"""
    x, c = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    x.flags.writeable = False
    launch(compiled(text), {"A": x, "B": x, "C": c}, device)
    assert c.tolist() == (2 * x).tolist()


def test_inputs_in_memory_that_cannot_be_written(device: Device, tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(np.arange(8, dtype=np.float32).tobytes())
    x = np.memmap(tmp_path / "x.bin", np.float32, "r", shape=(1, 8))
    y = np.zeros((1, 8), np.float32)
    launch(compiled(), {"X": x, "Y": y, "f": 2}, device)  # writing x back would be a segmentation fault
    assert y.tolist() == [[0, 2, 4, 6, 8, 10, 12, 14]]


def test_a_read_only_output(device: Device) -> None:
    x = np.zeros((1, 8), np.float32)
    y = np.broadcast_to(x[:1], (1, 8))
    with pytest.raises(LaunchError, match=r"\[E1619\] %Y is written, but its array is read-only"):
        launch(compiled(), {"X": x.copy(), "Y": y, "f": 2}, device)


def test_an_empty_grid_runs_nothing(device: Device) -> None:
    x, y = np.zeros((0, 8), np.float32), np.zeros((0, 8), np.float32)
    assert launch(compiled(), {"X": x, "Y": y, "f": 2}, device).grid == (0, 1)


def test_a_view_whose_byte_offset_passes_4_gib(device: Device) -> None:
    buffer = device.alloc(5 << 30)
    offset = (1 << 32) + 52
    device.copy_in(buffer, np.arange(16, dtype=np.float32).view(np.uint8), offset)
    y = np.zeros((2, 8), np.float32)
    launch(compiled(), {"X": BufferView(buffer, F32, (2, 8), offset=offset), "Y": y, "f": 2}, device)
    assert y.tolist() == (2 * np.arange(16).reshape(2, 8)).tolist()
    # rows 2 GiB apart, written
    rows = BufferView(buffer, F32, (3, 8), (1 << 29, 1), offset=64)
    launch(compiled(), {"X": np.ones((3, 8), np.float32), "Y": rows, "f": 5}, device)
    assert device.copy_out(buffer, 32, (1 << 32) + 64).view(np.float32).tolist() == [5] * 8
    device.free(buffer)


def test_views_in_one_buffer_that_overlap(device: Device) -> None:
    buffer = device.alloc(1024)
    x = BufferView(buffer, F32, (2, 8), (16, 1))
    launch(compiled(), {"X": x, "Y": BufferView(buffer, F32, (2, 8), (16, 1), offset=32), "f": 2}, device)
    with pytest.raises(LaunchError, match="share memory"):
        launch(compiled(), {"X": x, "Y": BufferView(buffer, F32, (2, 8), (16, 1), offset=28), "f": 2}, device)


def test_views_outside_their_buffer(device: Device) -> None:
    buffer, y = device.alloc(64), np.zeros((2, 8), np.float32)
    with pytest.raises(LaunchError, match=r"\[E1620\] %X spans bytes 4 to 68 of a buffer of 64 bytes"):
        launch(compiled(), {"X": BufferView(buffer, F32, (2, 8), offset=4), "Y": y, "f": 2}, device)
    with pytest.raises(LaunchError, match=r"\[E1621\] %X starts at byte 2, between two elements of f32"):
        launch(compiled(), {"X": BufferView(buffer, F32, (1, 8), offset=2), "Y": y[:1], "f": 2}, device)
    with pytest.raises(LaunchError, match=r"\[E1604\] %X has elements of f32, but the array has dtype bfloat16"):
        launch(compiled(), {"X": BufferView(buffer, BF16, (2, 8)), "Y": y, "f": 2}, device)


def test_buffers_of_another_device(device: Device) -> None:
    foreign = get_device("simulator:gfx950").alloc(64)
    with pytest.raises(DeviceError, match="belongs to another device"):
        device.copy_out(foreign, 4)
    with pytest.raises(DeviceError, match="belongs to another device"):
        get_device("simulator:gfx942").free(device.alloc(64))


def test_device_names() -> None:
    assert device_names() == ("interpreter", "simulator:gfx942", "simulator:gfx950")
    for name in ("cuda", "simulator", "simulator:gfx90a", ""):
        with pytest.raises(DeviceError, match="devices: interpreter, simulator:gfx942, simulator:gfx950"):
            get_device(name)


def test_importing_the_runtime_is_light() -> None:
    import subprocess
    import sys

    code = "import sys, tileir.runtime; print([m for m in ('llvmlite', 'mlir') if m in sys.modules])"
    root = Path(__file__).parents[2]
    found: Any = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
    assert found.stdout.strip() == "[]"
