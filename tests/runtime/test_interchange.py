"""Arrays of other libraries as arguments: DLPack in both directions, `__cuda_array_interface__`, tensors, checks by name."""

from __future__ import annotations

import gc
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tileir.frontend import parse
from tileir.ir.binding import LaunchError
from tileir.ir.types import BF16, ELEMS, F32
from tileir.runtime import BufferView, Device, DeviceError, get_device, launch
from tileir.runtime.device import Buffer
from tileir.runtime.hip_device import ForeignBuffer, HipDevice
from tileir.runtime.interchange import as_array

from .conftest import Standin
from .test_hip_device import scale
from .test_launch import Interpreted, compiled


class OnlyDlpack:
    """An array that offers DLPack and nothing else. old: the protocol from before versions."""

    def __init__(self, array: Any, *, old: bool = False):
        self.array = array
        self.old = old

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None, stream: object = None) -> object:
        if self.old:
            if max_version is not None:
                raise TypeError("unexpected keyword argument 'max_version'")
            return self.array.__dlpack__()
        return self.array.__dlpack__(max_version=max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


class OnlyCuda:
    """An array that offers `__cuda_array_interface__` and nothing else."""

    def __init__(self, view: BufferView, *, read_only: bool = False, **other: Any):
        self.view = view
        strides = None if view.strides is None else tuple(s * view.elem.bytes for s in view.strides)
        self.__cuda_array_interface__ = {
            "version": 3,
            "typestr": view.elem.np.str,
            "shape": view.shape,
            "strides": strides,
            "data": (view.address, read_only),
            **other,
        }


class Tensor:
    """As much of a PyTorch tensor of a GPU as a launch looks at."""

    def __init__(self, view: BufferView, kind: str = "cuda"):
        self.view = view
        self.dtype = {"f32": "torch.float32", "bf16": "torch.bfloat16"}.get(view.elem.name, "torch.complex64")
        self.layout = "torch.strided"
        self.shape = view.shape
        self.device = type("device", (), {"type": kind, "index": 0, "__str__": lambda s: f"{kind}:0"})()

    def stride(self) -> tuple[int, ...]:
        return self.view.element_strides

    def data_ptr(self) -> int:
        return self.view.address

    def detach(self) -> Tensor:
        return self


Tensor.__module__ = "torch"


@pytest.mark.parametrize("old", [False, True])
def test_host_arrays_by_dlpack(old: bool) -> None:
    x = np.arange(70, dtype=np.float32).reshape(5, 14)[:, ::2]
    y = np.zeros((5, 7), np.float32)
    text = {"X": OnlyDlpack(np.ascontiguousarray(x), old=old), "Y": OnlyDlpack(y, old=old), "f": 2}
    launch(compiled(), text, get_device("interpreter"))
    assert np.array_equal(y, 2 * x)


def test_host_memory_lives_as_long_as_it_is_used() -> None:
    base = np.array(np.arange(12).reshape(3, 4), np.float32)  # owns its memory
    kept = weakref.ref(base)
    array = as_array(OnlyDlpack(base[::-1, 1:]), get_device("interpreter"))
    assert array.tolist() == base[::-1, 1:].tolist() and array.ctypes.data == base[2:, 1:].ctypes.data
    del base
    gc.collect()
    assert kept() is not None and array[0, 0] == 9
    del array
    gc.collect()
    assert kept() is None


def test_read_only_memory_is_seen() -> None:
    x, y = np.ones((1, 8), np.float32), np.zeros((1, 8), np.float32)
    y.flags.writeable = False
    with pytest.raises(LaunchError, match=r"\[E1619\] %Y is written, but its array is read-only"):
        launch(compiled(), {"X": x, "Y": OnlyDlpack(y), "f": 2}, get_device("interpreter"))


@pytest.mark.parametrize("name", ["interpreter", "simulator:gfx950"])
def test_arrays_of_host_devices_go_out_by_dlpack(name: str) -> None:
    device = get_device(name)
    data = np.arange(24, dtype=np.float32).reshape(4, 6)
    view = device.array(data)
    seen = np.from_dlpack(view)
    assert np.array_equal(seen, data)
    device.fill(view.buffer, 0)
    assert not seen.any(), "it is the memory itself"
    part = BufferView(view.buffer, F32, (2, 3), (12, 2), 4)
    assert np.from_dlpack(part).shape == (2, 3) and np.from_dlpack(part).strides == (48, 8)
    assert not np.from_dlpack(BufferView(view.buffer, F32, (2, 3), read_only=True)).flags.writeable
    count = sys.getrefcount(view)
    for _ in range(10):
        view.__dlpack__()  # nobody takes it over
        np.from_dlpack(view)
    gc.collect()
    assert sys.getrefcount(view) == count


@pytest.mark.parametrize("elem", [e for e in ELEMS.values() if e.bits >= 8 or e.is_bool], ids=str)
def test_every_element_type_survives(elem: Any) -> None:
    device = get_device("interpreter")
    data = np.arange(6).astype(elem.np).reshape(2, 3)
    found = as_array(OnlyDlpack(device.array(data)), device)
    assert found.dtype == elem.np and found.tobytes() == data.tobytes()


def test_what_dlpack_cannot_say() -> None:
    device = get_device("interpreter")
    with pytest.raises(DeviceError, match="DLPack has no packed f4E2M1FN"):
        device.empty((4, 4), ELEMS["f4E2M1FN"]).__dlpack__()
    with pytest.raises(BufferError, match="without a copy"):
        device.empty((4,), F32).__dlpack__(copy=True)
    with pytest.raises(BufferError, match="a consumer that knows DLPack"):
        BufferView(device.alloc(16), F32, (4,), read_only=True).__dlpack__()
    with pytest.raises(DeviceError, match="no element type of the language is a 'complex64'; types: i1, i8"):
        device.empty((4,), np.complex64)
    z = np.zeros((5, 7), np.complex64)
    with pytest.raises(
        LaunchError, match=r"\[E1603\] %X is a view, but gets str an array of DLPack type 5 with 64 bits"
    ):
        launch(compiled(), {"X": OnlyDlpack(z), "Y": np.zeros((5, 7), np.float32), "f": 2}, device)


def gpu_arrays(device: Device) -> tuple[BufferView, BufferView]:
    return device.array(np.arange(35, dtype=np.float32).reshape(5, 7)), device.array(np.zeros((5, 7), np.float32))


@pytest.mark.parametrize("wrap", [OnlyDlpack, OnlyCuda, Tensor, lambda view: view])
def test_arrays_of_the_gpu_are_not_copied(standin: Standin, hip: HipDevice, wrap: Any) -> None:
    x, y = gpu_arrays(hip)
    allocated = standin.alive()["allocations"]
    for factor in (2, 3, 3):
        binding = launch(scale("gfx950"), {"X": wrap(x), "Y": wrap(y), "f": factor}, hip)
        assert standin.alive()["allocations"] == allocated
        assert np.array_equal(y.numpy(), factor * x.numpy())
        assert binding.symbols == {"M": 5, "N": 7, "SX": 7, "SY": 7} and binding.scalars["f"] == factor


def test_a_consumer_gets_finished_work(standin: Standin, hip: HipDevice) -> None:
    """Whatever stream it names; -1 says that it waits itself."""
    x, stream = hip.array(np.zeros(4, np.float32)), hip.stream()
    for request, waits in (({}, True), ({"stream": 0}, True), ({"stream": -1}, False)):
        hip.fill(x.buffer, 1, stream=stream)
        x.__dlpack__(**request)
        assert stream.done == waits
    stream.synchronize()


@pytest.mark.parametrize("wrap", [OnlyDlpack, OnlyCuda, Tensor])
def test_strided_arrays_of_the_gpu(hip: HipDevice, wrap: Any) -> None:
    base = np.arange(200, dtype=np.float32).reshape(10, 20)
    whole = hip.array(base)
    x, y = BufferView(whole.buffer, F32, (5, 7), (20, 1), 4), BufferView(whole.buffer, F32, (5, 7), (20, 1), 4 * 110)
    launch(scale("gfx950"), {"X": wrap(x), "Y": wrap(y), "f": 3}, hip)
    base[5:, 10:17] = 3 * base[:5, 1:8]
    assert np.array_equal(whole.numpy(), base)


def test_arrays_on_another_device(standin: Standin, hip: HipDevice) -> None:
    x, y = gpu_arrays(hip)
    other, simulator = HipDevice(1), get_device("simulator:gfx950")
    elsewhere = other.array(np.zeros((5, 7), np.float32))
    here = "but the kernel is launched on hip:0"
    for wrap in (OnlyDlpack, OnlyCuda, lambda view: view):
        with pytest.raises(LaunchError, match=rf"scale\.tile:2:.*\[E1622\] %Y lies on hip:1, {here}") as caught:
            launch(scale("gfx950"), {"X": x, "Y": wrap(elsewhere), "f": 2}, hip)
        assert "legal: an array of hip:0 or of the host" in str(caught.value)
    for wrap in (OnlyDlpack, Tensor, lambda view: view):
        with pytest.raises(
            LaunchError, match=r"\[E1622\] %X lies on hip:0, but the kernel is launched on simulator:gfx950"
        ):
            launch(scale("gfx950"), {"X": wrap(x), "Y": np.zeros((5, 7), np.float32), "f": 2}, simulator)
    with pytest.raises(LaunchError, match="%X lies on a GPU that simulator:gfx950 does not know"):
        launch(scale("gfx950"), {"X": OnlyCuda(x), "Y": y, "f": 2}, simulator)
    with pytest.raises(LaunchError, match="%X lies on another simulator:gfx950, but"):
        there = get_device("simulator:gfx950").array(np.zeros((5, 7), np.float32))
        launch(scale("gfx950"), {"X": there, "Y": np.zeros((5, 7), np.float32), "f": 2}, simulator)
    with pytest.raises(LaunchError, match="%X lies on xpu:0, but"):
        launch(scale("gfx950"), {"X": Tensor(x, "xpu"), "Y": y, "f": 2}, hip)


def test_checks_by_name(hip: HipDevice) -> None:
    x, y = gpu_arrays(hip)
    half = hip.empty((5, 7), ml_dtypes.bfloat16)
    cases: list[tuple[Any, str]] = [
        (half, r"\[E1604\] %Y has elements of f32, but the array has dtype bfloat16"),
        (Tensor(half), r"\[E1604\] %Y has elements of f32, but the array has dtype bfloat16"),
        (Tensor(BufferView(y.buffer, ELEMS["i8"], (5, 7))), r"\[E1603\] %Y is a view, but gets str a tensor of torch.complex64"),
        (OnlyCuda(y, read_only=True), r"\[E1619\] %Y is written, but its array is read-only"),
        (OnlyCuda(y, typestr="<c8"), r"\[E1603\] %Y is a view, but gets str an array of complex64"),
        (OnlyCuda(y, strides=(29, 4)), r"strides \(29, 4\) in bytes, no multiples of 4"),
        (OnlyCuda(BufferView(y.buffer, F32, (5, 7), offset=2)), r"\[E1621\] %Y starts at byte"),
        (Tensor(x), r"\[E1618\] %X and %Y share memory"),
        (OnlyCuda(BufferView(x.buffer, F32, (5, 7), (7, 1), 0)), r"\[E1618\] %X and %Y share memory"),
        (BufferView(y.buffer, F32, (5, 7), (-7, 1), 112), r"\[E1608\] %Y has negative strides"),
    ]  # fmt: skip
    for array, want in cases:
        with pytest.raises(LaunchError, match=want):
            launch(scale("gfx950"), {"X": x, "Y": array, "f": 2}, hip)


def test_warm_launches_make_the_same_checks(standin: Standin, hip: HipDevice) -> None:
    x, y = gpu_arrays(hip)
    kernel = scale("gfx950")
    launch(kernel, {"X": x, "Y": y, "f": 2}, hip)
    before = standin.counts().calls
    launch(kernel, {"X": x, "Y": y, "f": 2}, hip)
    assert standin.counts().calls - before == 4  # the launch; and selecting one of two GPUs, and back
    small = hip.array(np.zeros(100, np.float32))
    cases: list[tuple[dict[str, Any], str]] = [
        ({"X": x, "f": 2}, "E1601"),
        ({"X": x, "Y": y, "f": 2, "g": 1}, "E1602"),
        ({"X": x, "Y": y, "f": None}, "E1615"),
        ({"X": x, "Y": y, "f": [1]}, "E1615"),
        ({"X": x, "Y": x, "f": 2}, "E1618"),
        ({"X": BufferView(x.buffer, F32, (4, 7)), "Y": BufferView(x.buffer, F32, (4, 7), offset=28), "f": 2}, "E1618"),
        ({"X": x, "Y": BufferView(small.buffer, F32, (5, 7), offset=300), "f": 2}, "E1620"),
        ({"X": x, "Y": BufferView(small.buffer, F32, (5, 7), offset=2), "f": 2}, "E1621"),
        ({"X": x, "Y": HipDevice(1).array(np.zeros((5, 7), np.float32)), "f": 2}, "E1622"),
        ({"X": x, "Y": BufferView(y.buffer, F32, (5, 7), read_only=True), "f": 2}, "E1619"),
        ({"X": x, "Y": BufferView(y.buffer, BF16, (5, 7)), "f": 2}, "E1604"),
    ]
    for arguments, code in cases:
        with pytest.raises(LaunchError, match=code):
            launch(kernel, arguments, hip)
    with pytest.raises(LaunchError, match="E1611"):
        launch(kernel, {"X": x, "Y": y, "f": 2}, hip, symbols={"M": 6})
    # columns that interleave do not overlap
    both = hip.array(np.zeros((5, 20), np.float32))
    left, right = BufferView(both.buffer, F32, (5, 7), (20, 1)), BufferView(both.buffer, F32, (5, 7), (20, 1), 40)
    for _ in range(2):
        assert launch(kernel, {"X": left, "Y": right, "f": 2}, hip).grid == (2, 1)


def test_scalars_of_warm_launches_are_exact(hip: HipDevice) -> None:
    x, y = hip.array(np.ones((1, 8), np.float32)), hip.empty((1, 8), np.float32)
    values = (0.1, 0.0, -0.0, 1, 1.5, np.float64(0.1), np.float32(-0.0), float("inf"), 3, 3.0)
    for value in values * 2:
        launch(scale("gfx950"), {"X": x, "Y": y, "f": value}, hip)
        want = np.full((1, 8), np.float32(value))
        assert y.numpy().tobytes() == want.tobytes()


def test_threads_share_a_kernel(hip: HipDevice) -> None:
    """Each launch has an argument block of its own, also where many threads use one plan."""
    kernel = scale("gfx950")
    arrays = [(hip.array(np.full((5, 7), i, np.float32)), hip.empty((5, 7), np.float32)) for i in range(8)]
    launch(kernel, {"X": arrays[0][0], "Y": arrays[0][1], "f": 1}, hip)

    def work(number: int) -> list[bool]:
        x, y = arrays[number]
        right: list[bool] = []
        for factor in range(6):
            launch(kernel, {"X": x, "Y": y, "f": factor}, hip)
            right.append(bool((y.numpy() == number * factor).all()))
        return right

    with ThreadPoolExecutor(8) as pool:
        assert all(all(right) for right in pool.map(work, range(8)))


def test_many_signatures_and_kernels_are_forgotten(hip: HipDevice) -> None:
    base = hip.alloc(1 << 16)
    x, y = (BufferView(base, F32, (1, 8), offset=o) for o in (0, 4096))
    for n in range(300):
        launch(scale("gfx950"), {"X": BufferView(base, F32, (1, 8), offset=64 * n), "Y": BufferView(base, F32, (1, 8), offset=40000), "f": 1}, hip)  # fmt: skip
    assert len(hip.launchers) == 1
    kernel = Interpreted(parse("tileir 1\nkernel @k(%X: global<f32[N]>) grid(1) {\n}\n", "k.tile").kernels[0])
    device = get_device("interpreter")
    launch(kernel, {"X": np.zeros(3, np.float32)}, device)
    assert len(device.launchers) == 1
    del kernel
    gc.collect()
    assert not device.launchers and x.shape == y.shape


def test_torch_tensors_of_the_host() -> None:
    torch = pytest.importorskip("torch")
    device = get_device("interpreter")
    x = torch.arange(35, dtype=torch.float32).reshape(5, 7).requires_grad_()
    y = torch.zeros(7, 5).t().contiguous()
    launch(compiled(), {"X": x, "Y": y, "f": 2}, device)
    assert torch.equal(y, 2 * x.detach())
    found = as_array(torch.ones(3, 4, dtype=torch.bfloat16)[:, ::2], device)
    assert found.dtype == BF16.np and found.shape == (3, 2) and found.strides == (8, 4)


def test_a_foreign_buffer_is_not_freed(standin: Standin, hip: HipDevice) -> None:
    x, _ = gpu_arrays(hip)
    seen = as_array(OnlyCuda(x), hip)
    buffer: Buffer = seen.buffer
    assert isinstance(buffer, ForeignBuffer) and (buffer.address, buffer.nbytes) == (x.address, 140)
    with pytest.raises(DeviceError, match="the buffer belongs to another device"):
        hip.free(buffer)
