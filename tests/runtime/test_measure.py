"""Times: measured on a GPU (the stand-in's virtual clock makes them exact), estimated on the simulator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tileir
from tileir.ir.binding import LaunchError
from tileir.runtime import DeviceError, benchmark, get_device
from tileir.runtime.hip_device import HipDevice

from .conftest import Standin
from .test_hip_device import scale
from .test_launch import compiled

LAUNCH = 0.25e-3  # seconds that a launch takes by the stand-in's clock (work.c)


def arguments() -> dict[str, object]:
    return {"X": np.ones((5, 7), np.float32), "Y": np.zeros((5, 7), np.float32), "f": 2}


def test_warm(standin: Standin, hip: HipDevice) -> None:
    standin.launches(False)
    before = standin.counts().launches
    given = arguments()
    found = benchmark(scale("gfx950"), given, hip, warmup=2, repeats=7)
    assert not found.estimated and not found.cold and len(found.samples) == 7
    assert found.launches == 4  # of 0.25 ms make the millisecond of a sample
    assert found.samples == pytest.approx([LAUNCH] * 7, rel=1e-4) and found.seconds == pytest.approx(LAUNCH, rel=1e-4)
    assert standin.counts().launches - before == 2 + 4 * (2 + 7)
    assert not given["Y"].any()  # type: ignore[attr-defined]
    assert str(found).startswith(
        "scale on hip:0: measured 250 µs, the median of 7 from 250 µs to 250 µs, warm caches (events"
    )
    assert found.json()["estimated"] is False and found.json()["seconds"] == found.seconds


def test_cold(standin: Standin, hip: HipDevice) -> None:
    """The flush is not part of the time, and what was allocated is given back."""
    standin.launches(False)
    hip._properties = replace(hip.properties, last_level_bytes=1 << 20)
    before = standin.alive()
    found = benchmark(scale("gfx950"), arguments(), hip, warmup=0, repeats=3, cold=True)
    assert found.cold and found.launches == 1 and found.samples == pytest.approx([LAUNCH] * 3, rel=1e-4)
    assert "cold caches" in str(found) and standin.alive() == {**before, "modules": before["modules"] + 1}


def test_failures_leak_nothing(standin: Standin, hip: HipDevice) -> None:
    standin.launches(False)
    hip._properties = replace(hip.properties, last_level_bytes=1 << 12)
    benchmark(scale("gfx950"), arguments(), hip, warmup=0, repeats=1, cold=True)
    before, calls = standin.alive(), standin.counts().calls
    benchmark(scale("gfx950"), arguments(), hip, warmup=0, repeats=1, cold=True)
    count = standin.counts().calls - calls
    for number in range(1, count + 1):
        standin.fail(f"@{number}:999")
        with pytest.raises(DeviceError, match="hipErrorUnknown, 999"):
            benchmark(scale("gfx950"), arguments(), hip, warmup=0, repeats=1, cold=True)
        standin.fail()
        assert standin.alive(before) == before


def test_an_estimate_is_called_one() -> None:
    found = tileir.benchmark(scale("gfx942"), arguments(), "simulator:gfx942", product="MI325X")
    assert found.estimated and found.cold and len(found.samples) == 1 and 1e-7 < found.seconds < 1e-4
    text = str(found)
    assert text.startswith("scale on simulator:gfx942: estimated ") and "not a measurement" in text and "MI325X" in text
    assert found.json()["estimated"] is True


def test_what_cannot_be_measured(hip: HipDevice) -> None:
    with pytest.raises(DeviceError, match="the interpreter says nothing about time"):
        benchmark(compiled(), arguments(), "interpreter")
    empty = {"X": np.zeros((0, 7), np.float32), "Y": np.zeros((0, 7), np.float32), "f": 2}
    with pytest.raises(DeviceError, match="there is nothing to measure"):
        benchmark(scale("gfx950"), empty, hip)
    with pytest.raises(DeviceError, match="0 repeats after 5 to warm up"):
        benchmark(scale("gfx950"), arguments(), hip, repeats=0)
    with pytest.raises(LaunchError, match="E1601"):
        benchmark(scale("gfx950"), {}, hip)
    with pytest.raises(DeviceError, match="interpreter has no clock of its own"):
        device = get_device("interpreter")
        device.event().seconds_since(device.event())
