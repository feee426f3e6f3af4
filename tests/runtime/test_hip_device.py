"""GPUs through the HIP runtime, which here is the stand-in: a real shared library that executes on the simulator."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import pytest

from tileir.frontend import parse
from tileir.ir.binding import LaunchError
from tileir.ir.types import F32
from tileir.lowering.amdgpu.compile import Compiled, compile_kernel
from tileir.runtime import BufferView, Device, DeviceError, device_names, devices, get_device, launch
from tileir.runtime.hip_device import HipDevice
from tileir.runtime.hip_library import HipError

from .conftest import Standin
from .test_launch import SCALE


@cache
def scale(chip: str) -> Compiled:
    return compile_kernel(parse(SCALE, "scale.tile"), "scale", chip)


def test_devices(standin: Standin) -> None:
    assert device_names() == ("hip:0", "hip:1", "interpreter", "simulator:gfx942", "simulator:gfx950")
    first = devices()[0]
    assert first == Device("hip:0").properties
    assert (first.kind, first.chip, first.compute_units, first.lds_bytes) == ("hip", "gfx950", 256, 163840)
    assert first.description.endswith("(gfx950:sramecc+:xnack-), ROCm 6.2")
    assert isinstance(Device("hip:1"), HipDevice)
    with pytest.raises(DeviceError, match=r"there is no GPU hip:2; the HIP runtime '.*' has: hip:0 to hip:1"):
        Device("hip:2")


@pytest.mark.parametrize("index", [0, 1])
def test_the_same_launch_gives_the_same_numbers(standin: Standin, index: int) -> None:
    gpu = HipDevice(index)
    base = np.random.default_rng(1).standard_normal((50, 40)).astype(np.float32)
    other = base.copy()
    for where, on in ((base, gpu), (other, get_device("interpreter"))):
        launch(scale(gpu.isa.chip), {"X": where[:20, 3:20], "Y": where[21:41, 5:22], "f": 1.5}, on)
    assert np.array_equal(base, other)
    assert standin.counts().launches >= 1


def test_buffers_and_copies(hip: HipDevice) -> None:
    a, b = hip.alloc(1024), hip.alloc(512)
    data = np.arange(256, dtype=np.uint8)
    hip.fill(a, 7)
    hip.copy_in(a, data, 100)
    hip.copy(b, a, 300, source_offset=90, target_offset=10)
    out = hip.copy_out(b, 310)
    assert (
        out[10:20].tolist() == [7] * 10 and out[20:276].tolist() == data.tolist() and out[276:310].tolist() == [7] * 34
    )
    for nbytes, offset in ((4, 510), (4, -1)):
        with pytest.raises(DeviceError, match=f"4 bytes at offset {offset} are outside a buffer of 512 bytes"):
            hip.copy_out(b, nbytes, offset)
    with pytest.raises(DeviceError, match="a buffer of 0 bytes; at least 1 is needed"):
        hip.alloc(0)
    hip.free(a)
    hip.free(a)  # the second time there is nothing to do
    with pytest.raises(DeviceError, match="belongs to another device"):
        HipDevice(1).copy_out(b, 4)


def test_memory_is_given_back_with_the_last_reference(standin: Standin, hip: HipDevice) -> None:
    before = standin.alive()["allocations"]
    view = hip.array(np.zeros(10, np.float32))
    assert standin.alive()["allocations"] == before + 1
    del view
    assert standin.alive()["allocations"] == before


def test_streams_keep_what_they_copy(standin: Standin, hip: HipDevice) -> None:
    """The stand-in reads and writes host memory when somebody waits, not before."""
    stream, buffer = hip.stream(), hip.alloc(1 << 16)
    hip.copy_in(buffer, np.full(1 << 16, 5, np.uint8), stream=stream)
    assert not stream.done
    out = hip.copy_out(buffer, 1 << 16, stream=stream)
    trash = [np.full(1 << 16, 9, np.uint8) for _ in range(20)]  # would land in memory that was let go
    stream.synchronize()
    assert stream.done and (out == 5).all() and len(trash) == 20
    stream.close()
    stream.close()


def test_streams_of_other_libraries(standin: Standin, hip: HipDevice) -> None:
    """They are not ours to destroy; 0 is the default stream, which PyTorch uses unless told otherwise."""
    own, before = hip.stream(), standin.alive()
    x, y = hip.array(np.ones((5, 7), np.float32)), hip.empty((5, 7), np.float32)
    for handle in (0, own.handle):
        hip.fill(y.buffer, 0)
        stream = hip.foreign_stream(handle)
        assert stream.handle == handle
        launch(scale("gfx950"), {"X": x, "Y": y, "f": 2}, hip, stream=stream)
        stream.synchronize()
        assert (y.numpy() == 2).all()
        stream.close()
        del stream
    assert standin.alive()["streams"] == before["streams"]


def test_events_measure(hip: HipDevice) -> None:
    stream, start, end = hip.stream(), hip.event(), hip.event()
    buffer = hip.alloc(1 << 20)
    start.record(stream)
    hip.fill(buffer, 1, stream=stream)
    end.record(stream)
    assert not end.done
    stream.wait(end)
    end.synchronize()
    assert end.done and end.seconds_since(start) == pytest.approx((1 << 20) / 2**32 * 1e-3, rel=1e-4)
    with pytest.raises(DeviceError, match="an event of interpreter cannot be compared with one of hip:0"):
        end.seconds_since(get_device("interpreter").event())
    for thing in (start, end, stream):
        thing.close()


def test_launches_are_captured(standin: Standin, hip: HipDevice) -> None:
    """Once the code object is loaded nothing in a launch waits or allocates, which would break the capture."""
    x, y = hip.array(np.ones((5, 7), np.float32)), hip.array(np.zeros((5, 7), np.float32))
    arguments = {"X": x, "Y": y, "f": 3}
    launch(scale("gfx950"), arguments, hip)
    hip.fill(y.buffer, 0)
    stream, graph = hip.stream(), ctypes.c_void_p()
    call = standin.library
    assert call.hipStreamBeginCapture(ctypes.c_void_p(stream.handle), 0) == 0
    launch(scale("gfx950"), arguments, hip, stream=stream)
    assert call.hipStreamEndCapture(ctypes.c_void_p(stream.handle), ctypes.byref(graph)) == 0
    hip.synchronize()
    assert (y.numpy() == 0).all()
    assert call.hipGraphLaunch(graph, ctypes.c_void_p(stream.handle)) == 0
    stream.synchronize()
    assert (y.numpy() == 3).all()
    # what is not possible in a capture is reported by its name
    assert call.hipStreamBeginCapture(ctypes.c_void_p(stream.handle), 0) == 0
    with pytest.raises(HipError, match="load, allocate and synchronise before the capture begins"):
        hip.alloc(16)
    assert call.hipStreamEndCapture(ctypes.c_void_p(stream.handle), ctypes.byref(ctypes.c_void_p())) == 901
    call.hipGraphDestroy(graph)


def test_launches_are_asynchronous(standin: Standin, hip: HipDevice) -> None:
    x, y = hip.array(np.ones((5, 7), np.float32)), hip.array(np.zeros((5, 7), np.float32))
    stream = hip.stream()
    launch(scale("gfx950"), {"X": x, "Y": y, "f": 2}, hip, stream=stream)
    assert not stream.done
    stream.synchronize()
    assert y.numpy().tolist() == np.full((5, 7), 2).tolist()


def test_a_view_that_leaves_its_buffer_is_refused(hip: HipDevice) -> None:
    y = BufferView(hip.alloc(100), F32, (5, 7))
    with pytest.raises(LaunchError) as caught:
        launch(scale("gfx950"), {"X": np.ones((5, 7), np.float32), "Y": y, "f": 2}, hip)
    assert "%Y spans bytes 0 to 140 of a buffer of 100 bytes" in str(caught.value)
