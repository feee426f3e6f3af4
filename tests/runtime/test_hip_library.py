"""Which HIP runtime is loaded, what is said when there is none, and other clients and runtimes than ours."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import tileir
from tileir.runtime import DeviceError, default_device, device_names
from tileir.runtime.hip_device import architecture
from tileir.runtime.hip_library import VARIABLE, candidates, load_library
from tileir.runtime.standin import build

from .conftest import Standin
from .test_hip_device import scale

DEBIAN = Path("/usr/lib/x86_64-linux-gnu/libamdhip64.so.5")


def test_no_library_says_what_was_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "libamdhip64.so.6"))
    with pytest.raises(DeviceError) as caught:
        tileir.Device("hip:0")
    text = str(caught.value)
    assert f"it was looked for as {VARIABLE} says:\n  {tmp_path}/libamdhip64.so.6: cannot open shared object" in text
    assert "'simulator:gfx942' and 'simulator:gfx950' run the same code objects" in text
    assert device_names() == ("interpreter", "simulator:gfx942", "simulator:gfx950")


def test_a_library_that_is_not_hip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "libc.so.6")
    with pytest.raises(
        DeviceError, match=r"libc\.so\.6: has no function hipGetDeviceCount: it is not HIP of ROCm 5 or later"
    ):
        load_library()


def test_where_it_is_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    (tmp_path / "rocm" / "lib").mkdir(parents=True)
    (tmp_path / "packages" / "_rocm_sdk_core" / "lib").mkdir(parents=True)
    for path in (
        "rocm/lib/libamdhip64.so.5",
        "rocm/lib/libamdhip64.so",
        "packages/_rocm_sdk_core/lib/libamdhip64.so.7",
    ):
        (tmp_path / path).touch()
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "rocm"))
    monkeypatch.syspath_prepend(tmp_path / "packages")
    found = [c for c in candidates() if "site-packages" not in c and not c.startswith("/opt")]
    ours = [c.removeprefix(f"{tmp_path}/") for c in found if c.startswith(str(tmp_path))]
    assert ours[-3:] == [
        "rocm/lib/libamdhip64.so.5",
        "rocm/lib/libamdhip64.so",
        "packages/_rocm_sdk_core/lib/libamdhip64.so.7",
    ]
    assert candidates()[-4:] == ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"]


def test_the_library_that_is_loaded_already_comes_first(subprocess_run: Callable[..., str]) -> None:
    """PyTorch brings its own; memory of one HIP runtime is nothing to another."""
    program = f"""
        import ctypes, os
        path = os.environ.pop("{VARIABLE}")
        ctypes.CDLL(path)
        from tileir.runtime.hip_library import load_library
        assert load_library().path == path, load_library().path
        import tileir
        print(tileir.Device("hip:0").properties.description)
    """
    assert "(gfx950:sramecc+:xnack-), ROCm 6.2" in subprocess_run(program)


@pytest.mark.parametrize("major", [5, 7])
def test_structures_of_other_versions(
    major: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subprocess_run: Callable[..., str]
) -> None:
    path = build(tmp_path, major)
    program = """
        from tileir.runtime import Device
        device = Device("hip:1")
        print(device.isa, device.rocm, device.properties.compute_units)
    """
    said = subprocess_run(program, TILEIR_HIP_LIBRARY=str(path), TILEIR_STANDIN_DEVICES="gfx950,gfx942:sramecc+:xnack+")
    assert said.strip() == f"gfx942:sramecc+:xnack+ ({major}, 2) 304"


def test_default_device(subprocess_run: Callable[..., str]) -> None:
    """A GPU of the chip if there is one, else the simulator, and one line about it."""
    program = """
        from tileir.runtime import default_device
        print([default_device(chip).name for chip in ("gfx942", "gfx950", "", "gfx950")])
    """
    out = subprocess_run(program, TILEIR_STANDIN_DEVICES="gfx950:sramecc+:xnack-")
    assert "['simulator:gfx942', 'hip:0', 'hip:0', 'hip:0']" in out
    assert out.count("no gfx942 GPU is here: running on simulator:gfx942") == 1 and "gfx950 GPU" not in out
    out = subprocess_run(program, TILEIR_STANDIN_DEVICES="")
    assert "['simulator:gfx942', 'simulator:gfx950', 'simulator:gfx950', 'simulator:gfx950']" in out
    assert out.count("no gfx950 GPU is here") == 1 and out.count("no supported GPU is here") == 1


def test_why_a_gpu_is_not_used(subprocess_run: Callable[..., str], tmp_path: Path) -> None:
    program = """
        from tileir.runtime import default_device
        print(default_device("gfx950").name)
    """
    out = subprocess_run(program, TILEIR_STANDIN_FAIL="hipDeviceGetName:999")
    assert "simulator:gfx950" in out
    assert (
        out.count("no gfx950 GPU is here (asking for the name of hip:0: the runtime does not say what is wrong (hipDev")
        == 1
    )
    missing = str(tmp_path / "libamdhip64.so")
    out = subprocess_run(program, TILEIR_HIP_LIBRARY=missing)
    want = f"no gfx950 GPU is here (the HIP runtime cannot be loaded; it was looked for as {VARIABLE} says): running on simulator"
    assert out.count(want) == 1


def test_a_gpu_that_is_not_supported(subprocess_run: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        path = "libamdhip64.so"

        def call(self, name: str, out: ctypes.Array[ctypes.c_char], *rest: object, what: str) -> None:
            out[300:308] = b"gfx1100\0"

    assert architecture(Other(), 0).chip == "gfx1100"  # type: ignore[arg-type]
    Other.call = lambda *a, **k: None  # type: ignore[method-assign]
    with pytest.raises(DeviceError, match="does not say which architecture hip:0 has"):
        architecture(Other(), 0)  # type: ignore[arg-type]


@pytest.mark.skipif(not DEBIAN.exists(), reason="Debian's libamdhip64-5 is not installed")
def test_the_library_of_debian_finds_no_gpu(subprocess_run: Callable[..., str]) -> None:
    """AMD's own code, of ROCm 5.2: it loads, every function is there, and without a GPU the message says so."""
    if any(Path(p).exists() for p in ("/dev/kfd", "/dev/dxg")):
        pytest.skip("there may be a GPU here")
    program = """
        import tileir
        from tileir.runtime import DeviceError, device_names
        print(device_names())
        try:
            tileir.Device("hip:0")
        except DeviceError as e:
            print(e)
        print(tileir.runtime.default_device("gfx950").name)
    """
    out = subprocess_run(program, TILEIR_HIP_LIBRARY=str(DEBIAN))
    assert "('interpreter', 'simulator:gfx942', 'simulator:gfx950')" in out
    assert (
        f"there is no GPU hip:0: the HIP runtime '{DEBIAN}' finds none; if there should be one, look at /dev/kfd" in out
    )
    assert "without a GPU, 'simulator:gfx942' and 'simulator:gfx950' run the same code objects" in out
    assert "no gfx950 GPU is here: running on simulator:gfx950" in out


@cache
def client_python() -> str:
    """An interpreter with AMD's HIP bindings (`rocm-bindings-hip`, which `hip-python` brings as well): the one that
    TILEIR_HIP_CLIENT_PYTHON names, or the one that runs the tests. Skips if there is none."""
    named = os.environ.get("TILEIR_HIP_CLIENT_PYTHON")
    for python in [named] if named else [sys.executable]:
        if subprocess.run([python, "-c", "import rocm.bindings.util.loader"], capture_output=True).returncode == 0:
            return python
    pytest.skip("rocm-bindings-hip is not installed, and TILEIR_HIP_CLIENT_PYTHON names no interpreter that has it")


CLIENT = """
import ctypes, sys
from array import array
from rocm.bindings import hip

def checked(result):
    code, *rest = result if isinstance(result, tuple) else (result,)
    if int(code):
        raise SystemExit(f"HIP error {code}")
    return rest[0] if len(rest) == 1 else rest

properties = checked(hip.hipGetDeviceProperties(0))
print(properties.gcnArchName, properties.multiProcessorCount, properties.warpSize)
module = checked(hip.hipModuleLoadData(open(sys.argv[1], "rb").read()))
kernel = checked(hip.hipModuleGetFunction(module, b"scale"))
x, y = array("f", range(35)), array("f", [0.0] * 35)
on, out = checked(hip.hipMalloc(140)), checked(hip.hipMalloc(140))
checked(hip.hipMemcpy(on, x, 140, hip.hipMemcpyKind.hipMemcpyHostToDevice))
stream = checked(hip.hipStreamCreate())
checked(hip.hipModuleLaunchKernel(kernel, 2, 1, 1, int(sys.argv[2]), 1, 1, 0, stream, None, (
    on, ctypes.c_int(5), ctypes.c_int(7), ctypes.c_int64(7), out, ctypes.c_int64(7), ctypes.c_float(3.0))))
checked(hip.hipStreamSynchronize(stream))
checked(hip.hipMemcpy(y, out, 140, hip.hipMemcpyKind.hipMemcpyDeviceToHost))
assert list(y) == [3.0 * v for v in x], list(y)
for free, what in ((hip.hipFree, on), (hip.hipFree, out), (hip.hipStreamDestroy, stream), (hip.hipModuleUnload, module)):
    checked(free(what))
print("right")
"""


def test_a_client_that_is_not_ours(standin_library: Path, tmp_path: Path) -> None:
    """AMD's bindings load a code object of this compiler through the stand-in and launch it: it is HIP to others, too."""
    python = client_python()
    compiled = scale("gfx950")
    arguments = [a["name"] for a in compiled.interface["args"]]  # type: ignore[index, union-attr]
    assert arguments == ["X", "M", "N", "SX", "Y", "SY", "f"]
    (tmp_path / "scale.hsaco").write_bytes(compiled.hsaco)
    (tmp_path / "lib").symlink_to(standin_library.parent)
    environment = {**os.environ, "ROCM_PATH": str(tmp_path), "TILEIR_STANDIN_DEVICES": "gfx950:sramecc+:xnack-"}
    command = [python, "-c", CLIENT, str(tmp_path / "scale.hsaco"), str(compiled.block[0])]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["gfx950:sramecc+:xnack-", "256", "64", "right"]


def test_numbers_are_those_of_amds_bindings() -> None:
    """Our numbers of attributes, errors and flags against the enumerations that AMD publishes."""
    from tileir.runtime import hip_device, hip_library

    python = client_python()
    program = """
        from rocm.bindings import hip
        import json
        names = ("MultiprocessorCount", "L2CacheSize", "ClockRate", "MaxSharedMemoryPerBlock")
        attributes = [int(getattr(hip.hipDeviceAttribute_t, f"hipDeviceAttribute{n}")) for n in names]
        errors = {m.name: int(m) for m in hip.hipError_t}
        errors.update({n: int(v) for n, v in hip.hipError_t.__members__.items()})
        other = [int(hip.hipFuncAttribute.hipFuncAttributeMaxDynamicSharedMemorySize), int(hip.hipStreamNonBlocking)]
        other += [int(getattr(hip.hipMemcpyKind, f"hipMemcpy{k}")) for k in ("HostToDevice", "DeviceToHost", "DeviceToDevice")]
        print(json.dumps([attributes, errors, other]))
    """
    import json

    done = subprocess.run([python, "-c", textwrap.dedent(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    attributes, errors, other = json.loads(done.stdout)
    assert attributes == [hip_device._COMPUTE_UNITS, hip_device._L2_BYTES, hip_device._CLOCK_KHZ, hip_device._LDS_BYTES]
    library = hip_library
    assert other == [
        library.MAX_DYNAMIC_LDS,
        library.NON_BLOCKING_STREAM,
        library.TO_DEVICE,
        library.TO_HOST,
        library.ON_DEVICE,
    ]
    table = json.loads((Path(library.__file__).parent / "hip_errors.json").read_text("utf-8"))["errors"]
    for code, entry in table.items():
        assert errors[entry[0]] == int(code)


def test_the_process_of_the_simulator_ends_with_its_client(subprocess_run: Callable[..., str]) -> None:
    program = """
        import numpy as np, os, tileir
        tileir.Device("hip:0").array(np.zeros(4))
        print(os.getpid())
    """
    parent = int(subprocess_run(program).split()[0])
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
        except OSError:
            continue
        assert f"PPid:\t{parent}\n" not in text


def test_default_device_is_kept(standin: Standin) -> None:
    assert default_device("gfx950") is default_device("gfx950")
    assert default_device("gfx942").name == "hip:1"
