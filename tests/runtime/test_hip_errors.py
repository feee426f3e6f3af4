"""Every call of the HIP runtime may fail: each failure is reported in words, by the name of the call, and leaks nothing."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tileir.runtime
from tileir.runtime import launch
from tileir.runtime.hip_device import HipDevice
from tileir.runtime.hip_library import PROTOTYPES, HipError

from .conftest import Standin
from .test_hip_device import scale


def everything() -> None:
    """Calls every function that the runtime uses, and gives everything back."""
    device = HipDevice(0)
    try:
        x, y = np.ones((5, 7), np.float32), np.zeros((5, 7), np.float32)
        launch(scale("gfx950"), {"X": x, "Y": y, "f": 2}, device)
        on, out = device.array(x), device.empty((5, 7), np.float32)
        stream, start, end = device.stream(), device.event(), device.event()
        start.record(stream)
        for _ in range(2):  # the second launch is a warm one
            launch(scale("gfx950"), {"X": on, "Y": out, "f": 3}, device, stream=stream)
        end.record(stream)
        stream.wait(end)
        end.synchronize()
        assert end.done and stream.done and end.seconds_since(start) > 0
        device.fill(out.buffer, 0, stream=stream)
        device.copy_out(out.buffer, 4, stream=stream)
        stream.synchronize()
        device.synchronize()
        assert device.pointer_device(on.address) == 0 and device.pointer_device(1) is None
        device.function(scale("gfx950"), dynamic_lds=1024)
        for close in (
            start.close,
            end.close,
            stream.close,
            lambda: device.free(on.buffer),
            lambda: device.free(out.buffer),
        ):
            close()
    finally:
        device.close()


def test_a_failure_of_any_call_is_reported_and_leaks_nothing(standin: Standin) -> None:
    standin.launches(False)  # it is about calls here
    everything()
    before, calls = standin.alive(), standin.counts().calls
    everything()
    count = standin.counts().calls - calls
    assert count > 60
    failed: set[str] = set()
    for number in range(1, count + 1):
        standin.fail(f"@{number}:999")
        try:
            everything()
        except HipError as e:
            assert e.code == 999 and f"{e.function} gave hipErrorUnknown, 999); look into the kernel log" in str(e)
            failed.add(e.function)
        else:
            pytest.fail(f"call {number} failed, and nobody noticed")
        standin.fail()
        assert standin.alive(before) == before, f"call {number} left something behind"
    assert failed == set(PROTOTYPES) - {"hipGetLastError"}


@pytest.mark.parametrize(
    ("what", "want"),
    [
        ("hipMalloc:2", "hip:0: a buffer of 140 bytes: the device has not enough free memory (hipMalloc gave hipErrorOutOfMemory, 2)"),
        ("hipModuleLaunchKernel:701", "launching 'scale': the kernel needs more registers or LDS than the device has"),
        ("hipModuleLoadData:209", "loading a code object on hip:0: the code object is for another GPU"),
        ("hipMemcpy:700", "run the kernel on the simulator, which names the line"),
        ("hipDeviceSynchronize:4242", "an error that TileIR does not know (hipDeviceSynchronize gave an unknown error, 4242)"),
    ],
)  # fmt: skip
def test_words(standin: Standin, hip: HipDevice, what: str, want: str) -> None:
    x, y = np.ones((5, 7), np.float32), np.zeros((5, 7), np.float32)
    standin.fail(what)
    with pytest.raises(HipError) as caught:
        launch(scale("gfx950"), {"X": x, "Y": y, "f": 2}, hip)
    assert want in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and again.code == caught.value.code
    assert standin.library.hipPeekAtLastError() == 0, "the runtime must not keep the error for others to find"


def test_a_failure_in_the_background_is_logged(
    standin: Standin, hip: HipDevice, caplog: pytest.LogCaptureFixture
) -> None:
    view = hip.array(np.zeros(4, np.float32))
    standin.fail("hipFree:700")
    del view
    assert (
        "giving back what is not used any more" in caplog.text and "hipFree gave hipErrorIllegalAddress" in caplog.text
    )


def test_a_fault_of_a_kernel_stays(standin_library: Path, subprocess_run: Callable[[str], str]) -> None:
    """In a process of its own: like a GPU, the stand-in is of no use after it."""
    program = """
        import numpy as np
        from runtime.test_hip_device import scale
        from tileir.ir.types import F32
        from tileir.runtime import BufferView, Device, DeviceError
        from tileir.runtime.device import Argument
        device = Device("hip:0")
        kernel = scale("gfx950")
        x = device.array(np.ones((5, 7), np.float32))
        y = device.empty((1, 1), np.float32)
        sizes = {"M": 5, "N": 7, "SX": 7, "SY": 1 << 30}
        def argument(a):
            value = {"X": x, "Y": y, "f": np.float32(2)}.get(a.name, sizes.get(a.name))
            return Argument(a, np.asarray(value) if a.kind == "scalar" else value)
        device.launch(kernel, (2, 1), [argument(a) for a in kernel.kernel.abi()])
        for _ in range(2):
            try:
                device.synchronize()
            except DeviceError as e:
                print(e)
    """
    out = subprocess_run(program)
    assert out.count("a kernel ended with a fault (hipDeviceSynchronize gave hipErrorLaunchFailure, 719)") == 2
    assert "HIP stand-in:" in out and "scale.tile:5" in out


def test_the_table_of_errors() -> None:
    table = json.loads((Path(tileir.runtime.__file__).parent / "hip_errors.json").read_text("utf-8"))["errors"]
    for code, entry in table.items():
        name, words, advice = entry
        assert code.isdecimal() and name.startswith("hipError") and words and advice
    assert len({name for name, _, _ in table.values()}) == len(table)
