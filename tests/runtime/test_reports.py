"""`print` and `assert`: the same lines and errors on every device, bounded, in order, and at no cost where they are not used."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tileir.frontend import parse
from tileir.interpreter.errors import InterpreterError
from tileir.ir import reports
from tileir.ir.types import F32
from tileir.lowering.amdgpu.compile import Compiled, compile_kernel
from tileir.runtime import BufferView, get_device, launch
from tileir.runtime.hip_device import HipDevice
from tileir.runtime.interface import load_code_object
from tileir.runtime.reports import AssertionFailed
from tileir.runtime.simulator_device import SimulatorDevice

CHIPS = ("gfx942", "gfx950")
DEVICES = ("interpreter", *(f"simulator:{c}" for c in CHIPS))
LOOP = """tileir 1
kernel @loop(%X: global<i32[M, 20]>, %n: i32) grid(cdiv(M, 8), 2) with(waves = 2) {
  %i, %j = program_id()
  for %k = 0 to %n step 1 {
    %x = load(%X[%i * 8 +: 8, %k +: 3]) + %k
    print<"{}: {}, {{{}}}", limit = 4>(%k, %x, reduce_max(%x, axis = 0))
    if %k == 1 {
      print<"second">()
    }
    yield
  }
}
"""


def compiled(text: str, device: str) -> Compiled:
    chip = device.partition(":")[2] or "gfx950"
    return compile_kernel(parse(text, "folder/kernel.tile"), "", chip)


@pytest.mark.parametrize("device", DEVICES)
def test_lines_come_by_workgroup_and_in_program_order(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.arange(200, dtype=np.int32).reshape(10, 20)
    launch(compiled(LOOP, device), {"X": x, "n": 2}, get_device(device))
    lines = capsys.readouterr().out.splitlines()
    want: list[str] = []
    for j in range(2):
        for i in range(2):
            for k in range(2):
                tile = np.zeros((8, 3), int)
                tile[: 10 - 8 * i] = x[8 * i : 8 * i + 8, k : k + 3]
                tile += k
                first = f"[0, 0] = {tile[0, 0]}, [0, 1] = {tile[0, 1]}, [0, 2] = {tile[0, 2]}, [1, 0] = {tile[1, 0]}, … (24 elements)"
                top = ", ".join(f"[0, {c}] = {tile[:, c].max()}" for c in range(3))
                want.append(f"kernel.tile:6: ({i}, {j}): {k}: {first}, {{{top}}}")
                want += [f"kernel.tile:8: ({i}, {j}): second"] * (k == 1)
    assert lines == want


VALUES = """tileir 1
kernel @values<T: type = f32>(%X: global<T[2, 3]>, %s: T) grid(1) {
  %x = load(%X[0 +: 2, 0 +: 3])
  print<"{} and {} and {}">(%x, %s, %x == %x)
}
"""


@pytest.mark.parametrize("device", DEVICES[1:])
@pytest.mark.parametrize("elem", ["f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8"])
def test_values_of_every_type_arrive_whole(device: str, elem: str, capsys: pytest.CaptureFixture[str]) -> None:
    t = {"bf16": ml_dtypes.bfloat16, "f64": float}.get(elem) or np.dtype({"f": "float", "i": "int"}[elem[0]] + elem[1:])
    plain = [0.1, -2.5, 3e4, -0.0, np.inf, np.nan] if elem[0] in "fb" else [0, 1, -1, 7, -100, 127]
    x = np.array(plain).astype(t).reshape(2, 3)
    kernel = compile_kernel(parse(VALUES, "v.tile", {"T": elem}), "", device.partition(":")[2])
    arrays = {"X": x, "s": float(x[0, 1]) if elem[0] in "fb" else int(x[0, 1])}
    launch(kernel, arrays, get_device(device))
    got = capsys.readouterr().out
    launch(kernel, arrays, get_device("interpreter"))
    assert got == capsys.readouterr().out and "[1, 2] = " in got and "[0, 0] = true" in got


CHECK = """tileir 1
kernel @check(%X: global<f32[M, 20]>, %Y: global<f32[M, 20]>, %n: i32) grid(cdiv(M, 32)) {
  %i = program_id()
  %x = load(%X[%i * 32 +: 32, 0 +: 20])
  assert<"x is {} in block {}">(%x < 5.0, %x, %i)
  assert<"n is {}">(%n > 0, %n)
  store(%x, %Y[%i * 32 +: 32, 0 +: 20])
}
"""


@pytest.mark.parametrize("device", DEVICES)
def test_failed_assertions_name_line_workgroup_element_and_values(device: str) -> None:
    kernel, on = compiled(CHECK, device), get_device(device)
    x = np.zeros((70, 20), np.float32)
    y = np.zeros_like(x)
    launch(kernel, {"X": x, "Y": y, "n": 1}, on)
    x[33, 7], x[34, 19], x[69, 0] = 6.5, np.nan, 8
    with pytest.raises((AssertionFailed, InterpreterError)) as caught:
        launch(kernel, {"X": x, "Y": y, "n": 1}, on)
    (found,) = caught.value.diagnostics
    notes = [n.message for n in found.notes]
    assert (found.code, found.loc.file, found.loc.line) == ("E1708", "folder/kernel.tile", 5)
    assert notes[:2] == [
        "in program (1) at [1, 7]: x is 6.5 in block 1",
        "in program (1) at [2, 19]: x is nan in block 1",
    ]
    assert (notes[2:] == ["in program (2) at [5, 0]: x is 8 in block 2"]) == (
        device != "interpreter"
    )  # which stops at once
    assert "kernel.tile:5" in str(caught.value)
    with pytest.raises((AssertionFailed, InterpreterError), match=r"in program \(0\): n is -3"):
        launch(kernel, {"X": np.zeros_like(x), "Y": y, "n": -3}, on)


@pytest.mark.parametrize("chip", CHIPS)
def test_more_records_than_have_room_are_counted(chip: str, capsys: pytest.CaptureFixture[str]) -> None:
    on = get_device(f"simulator:{chip}")
    launch(compiled(LOOP, f"simulator:{chip}"), {"X": np.zeros((100, 20), np.int32), "n": 60}, on)
    got = capsys.readouterr()
    records = 13 * 2 * (60 * (1 + 4 + 3) + 1)
    assert f"{records - reports.CAPACITY} records that found no room" in got.err
    assert 0 < len(got.out.splitlines()) <= reports.CAPACITY // 8 + 26
    with pytest.raises(AssertionFailed, match="and 1396 more"):
        launch(
            compiled(CHECK, f"simulator:{chip}"),
            {"X": np.full((70, 20), 9, np.float32), "Y": np.zeros((70, 20), np.float32), "n": 1},
            on,
        )


@pytest.mark.parametrize("chip", CHIPS)
def test_the_code_object_says_what_is_needed(chip: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Launching needs nothing but the file; without such ops there is neither an argument nor an atomic."""
    kernel, on = compiled(CHECK, f"simulator:{chip}"), SimulatorDevice(chip, "all")
    loaded = load_code_object(kernel.hsaco)
    x = np.full((3, 20), 9, np.float32)
    with pytest.raises(AssertionFailed, match=r"kernel.tile:5:3: error: .*E1708") as caught:
        launch(loaded, {"X": x, "Y": np.zeros_like(x), "n": 1}, on)
    assert caught.value.diagnostics[0].loc.file == "kernel.tile"
    assert on.statistics is not None and on.statistics.findings == []
    metadata = on.load(kernel.hsaco).program("check").kernel.metadata
    assert metadata is not None and metadata.explicit_args[-1].name == reports.ARGUMENT
    plain = compiled("".join(line for line in CHECK.splitlines(True) if "assert" not in line), f"simulator:{chip}")
    assert reports.ARGUMENT.encode() not in plain.hsaco
    program = on.load(plain.hsaco).program("check")
    assert not any(i is not None and "atomic" in i.name for i in program.instructions)


def test_positions_are_those_of_the_language_under_an_order_of_workgroups(capsys: pytest.CaptureFixture[str]) -> None:
    text = """tileir 1
kernel @k(%X: global<i32[M, N]>) grid(M, N) with(order = xcd, order_chunk = 4, order_window = 2) {
  %i, %j = program_id()
  print<"{} {}">(%i, %j)
}
"""
    for device in DEVICES:
        launch(compiled(text, device), {"X": np.zeros((5, 4), np.int32)}, get_device(device))
        got = capsys.readouterr().out.splitlines()
        assert got == [f"kernel.tile:4: ({i}, {j}): {i} {j}" for j in range(4) for i in range(5)]


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_never_reached_needs_no_buffer(device: str) -> None:
    text = """tileir 1
kernel @k(%X: global<i32[M]>) grid(1) {
  for %k = 3 to 3 step 1 {
    print<"{}">(%k)
  }
  store(1, %X[0])
}
"""
    x = np.zeros(2, np.int32)
    launch(compiled(text, device), {"X": x}, get_device(device))
    assert x[0] == 1


def test_through_hip(hip: HipDevice, capsys: pytest.CaptureFixture[str]) -> None:
    """The same lines and errors on a GPU behind HIP (here the stand-in), with arrays of the host and of the device, each time."""
    kernel = compile_kernel(parse(CHECK, "folder/kernel.tile"), "", hip.isa.chip)
    loop = compile_kernel(parse(LOOP, "folder/kernel.tile"), "", hip.isa.chip)
    x = np.arange(200, dtype=np.int32).reshape(10, 20)
    for device in (get_device("interpreter"), hip):
        launch(loop, {"X": x, "n": 2}, device)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 24 and lines[:12] == lines[12:]

    values = np.full((3, 20), 4, np.float32)
    values[2, 5] = 77
    buffers = [hip.alloc(values.nbytes) for _ in range(2)]
    hip.copy_in(buffers[0], values.view(np.uint8).ravel())
    views = {name: BufferView(b, F32, values.shape) for name, b in zip("XY", buffers, strict=True)}
    for _ in range(3):
        with pytest.raises(AssertionFailed, match=r"in program \(0\) at \[2, 5\]: x is 77 in block 0"):
            launch(kernel, {**views, "n": 1}, hip)
        assert views["Y"].numpy()[2, 5] == 77
    with pytest.raises(AssertionFailed, match="x is 77"):
        launch(kernel, {"X": values, "Y": np.zeros_like(values), "n": 1}, hip)
    for b in buffers:
        hip.free(b)
