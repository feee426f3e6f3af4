"""The command line of `tileir-sim`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.simulator.simulator_compile import from_ir
from tileir.tools.sim import main

AXPY = """
define amdgpu_kernel void @axpy(ptr addrspace(1) %X, ptr addrspace(1) %Y, float %alpha, i32 %n) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %w = call i32 @llvm.amdgcn.workgroup.id.x()
  %b = mul i32 %w, 64
  %i = add i32 %b, %t
  %in = icmp ult i32 %i, %n
  br i1 %in, label %body, label %done
body:
  %at = zext i32 %i to i64
  %px = getelementptr float, ptr addrspace(1) %X, i64 %at
  %py = getelementptr float, ptr addrspace(1) %Y, i64 %at
  %x = load float, ptr addrspace(1) %px
  %y = load float, ptr addrspace(1) %py
  %p = fmul float %x, %alpha
  %s = fadd float %p, %y
  store float %s, ptr addrspace(1) %py
  br label %done
done:
  ret void
}
define amdgpu_kernel void @endless(ptr addrspace(1) %P) {
  br label %again
again:
  %v = load volatile i32, ptr addrspace(1) %P
  br label %again
}
define amdgpu_kernel void @scalars(ptr addrspace(1) %O, i8 %a, i16 %b, half %h, i64 %c, double %d, bfloat %f) {
  %z = sext i8 %a to i64
  store i64 %z, ptr addrspace(1) %O
  %p1 = getelementptr i64, ptr addrspace(1) %O, i64 1
  %zb = zext i16 %b to i64
  store i64 %zb, ptr addrspace(1) %p1
  %p2 = getelementptr i64, ptr addrspace(1) %O, i64 2
  store i64 %c, ptr addrspace(1) %p2
  %p3 = getelementptr i64, ptr addrspace(1) %O, i64 3
  store double %d, ptr addrspace(1) %p3
  %p4 = getelementptr i64, ptr addrspace(1) %O, i64 4
  store half %h, ptr addrspace(1) %p4
  %p5 = getelementptr i64, ptr addrspace(1) %O, i64 5
  store bfloat %f, ptr addrspace(1) %p5
  ret void
}
define amdgpu_kernel void @racy(ptr addrspace(1) %O) {
  %w = call i32 @llvm.amdgcn.workgroup.id.x()
  store i32 %w, ptr addrspace(1) %O
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
attributes #0 = { "amdgpu-flat-work-group-size"="64,64" }
"""
Capture = pytest.CaptureFixture[str]


@pytest.fixture(params=["gfx942", "gfx950"])
def hsaco(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    file = tmp_path / "k.hsaco"
    file.write_bytes(from_ir(AXPY, request.param))
    return str(file)


def axpy(file: str, *more: str, y: str = "ones:f32:100", n: str = "n=100") -> list[str]:
    base = [file, "--kernel", "axpy", "--grid", "2", "--block", "64", "--arg", "X=iota:f32:100", "--arg", f"Y={y}"]
    return [*base, "--arg", "alpha=0.5", "--arg", n, *more]


def test_list(hsaco: str, capsys: Capture) -> None:
    assert main([hsaco, "--list"]) == 0
    out = capsys.readouterr().out
    assert "kernel axpy" in out and "kernel endless" in out and "at most 64 work-items" in out
    lines = [line.split() for line in out.splitlines()]
    assert ["2", "alpha", "4", "bytes", "by", "value,", "at", "byte", "16"] in lines
    assert main([hsaco, "--list", "-k", "endless"]) == 0
    assert "axpy" not in capsys.readouterr().out


def test_runs_and_saves(hsaco: str, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "y.npy"
    assert main(axpy(hsaco, "--out", f"Y={out}")) == 0
    assert np.array_equal(np.load(out), np.arange(100) * 0.5 + 1)
    text = capsys.readouterr().out
    assert "2 workgroups, 2 waves" in text and "Y: f32[100], 99 of 100 elements changed" in text and "store" in text


def test_arguments_by_position_and_from_files(hsaco: str, tmp_path: Path) -> None:
    x, y = np.linspace(0, 1, 70, dtype=np.float32), np.full(70, 3, np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    out = tmp_path / "out.npy"
    arguments = [f"0={tmp_path / 'x.npy'}", f"1={tmp_path / 'y.npy'}", "2=2:f32", "3=0x46"]
    command = [hsaco, "-k", "axpy", "--grid", "2,1,1", "--block", "64,1,1", "--out", f"1={out}"]
    assert main(command + [part for a in arguments for part in ("--arg", a)]) == 0
    assert np.array_equal(np.load(out), x * np.float32(2) + y)


def test_scalars_of_every_size(hsaco: str, tmp_path: Path) -> None:
    out = tmp_path / "o.npy"
    given = ["O=zeros:i64:6", "a=-3", "b=65535", "h=1.5", "c=-1234567890123", "d=1e300", "f=-2.5:bf16"]
    command = [hsaco, "-k", "scalars", "--grid", "1", "--block", "1", "--out", f"O={out}"]
    assert main(command + [part for a in given for part in ("--arg", a)]) == 0
    got = np.load(out)
    assert got[:3].tolist() == [-3, 65535, -1234567890123]
    assert got[3:4].view(np.float64)[0] == 1e300
    assert got[4:5].view(np.float16)[0] == 1.5 and got[5:6].view(ml_dtypes.bfloat16)[0] == -2.5


def test_raw_files_of_types_that_numpy_lacks(hsaco: str, tmp_path: Path) -> None:
    raw = np.arange(300, dtype=np.uint16)
    np.save(tmp_path / "raw.npy", raw)
    out = tmp_path / "x.npy"
    command = axpy(hsaco, "--out", f"X={out}")
    command[command.index("X=iota:f32:100")] = f"X={tmp_path / 'raw.npy'}:bf16"
    assert main(command) == 0
    assert np.array_equal(np.load(out), raw.view(ml_dtypes.bfloat16).astype(np.float32), equal_nan=True)


def test_random_depends_on_the_seed(hsaco: str, tmp_path: Path) -> None:
    saved: list[np.ndarray] = []
    for seed in ("0", "0", "1"):
        path = tmp_path / f"{len(saved)}.npy"
        assert main(axpy(hsaco, "--seed", seed, "--out", f"Y={path}", y="random:f32:100")) == 0
        saved.append(np.load(path))
    assert np.array_equal(saved[0], saved[1]) and not np.array_equal(saved[0], saved[2])


def test_json(hsaco: str, capsys: Capture) -> None:
    assert main(axpy(hsaco, "--json", "-")) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["kernel"] == "axpy" and data["fault"] is None and data["waves"] == 2
    assert sum(data["by_class"].values()) == sum(data["by_opcode"].values()) == data["instructions"]
    assert data["by_opcode"]["global_load_dword"] == 4 and data["by_class"]["load"] == 4
    assert data["buffers"][1] == {"name": "Y", "type": "f32[100]", "elements": 100, "changed": 99, "nan": 0}


def test_fault(hsaco: str, tmp_path: Path, capsys: Capture) -> None:
    assert main(axpy(hsaco, "--json", str(tmp_path / "f.json"), y="ones:f32:90")) == 1
    captured = capsys.readouterr()
    assert "stopped by a fault" in captured.out
    assert "fault: memory-bounds" in captured.err and "argument Y" in captured.err and "lanes 26-35" in captured.err
    fault = json.loads((tmp_path / "f.json").read_text())["fault"]
    assert (
        fault["kind"] == "memory-bounds" and fault["lanes"] == list(range(26, 36)) and "global_" in fault["disassembly"]
    )


def test_endless_kernel_stops(hsaco: str, capsys: Capture) -> None:
    command = [hsaco, "-k", "endless", "--grid", "1", "--block", "64", "--arg", "P=zeros:i32:1"]
    assert main([*command, "--max-instructions", "10000"]) == 1
    assert "10000 instructions" in capsys.readouterr().err


def test_checks(hsaco: str, capsys: Capture) -> None:
    assert main(axpy(hsaco, "--check", "all")) == 0
    capsys.readouterr()
    racy = [hsaco, "-k", "racy", "--grid", "2", "--block", "1", "--arg", "O=zeros:i32:1"]
    assert main([*racy, "--check", "race", "--json", "-"]) == 1
    captured = capsys.readouterr()
    findings = json.loads(captured.out)["findings"]
    assert [f["kind"] for f in findings] == ["race-memory"] and "race-memory" in captured.err
    (finding,) = findings
    assert (finding["workgroup"], finding["wave"], finding["lanes"]) == ([1, 0, 0], 0, [0])
    assert finding["other"]["workgroup"] == [0, 0, 0] and finding["pc"] == finding["other"]["pc"]
    assert finding["disassembly"].startswith("global_") and finding["message"] in finding["text"]
    assert main([*racy, "--check", "uninit,wait,bounds,barrier,hazard"]) == 0
    assert main(racy) == 0


@pytest.mark.parametrize(
    "change,message",
    [
        (["--kernel", "nothing"], "the code object has axpy, endless, scalars, racy"),
        (["--arg", "beta=1"], "it has X, Y, alpha, n"),
        (["--arg", "n=7"], "given twice"),
        (["--arg", "n"], "NAME=VALUE"),
        (["--out", "n=x.npy"], "not a buffer"),
        (["--grid", "0"], "positive integers"),
        (["--grid", "1,2,3,4"], "positive integers"),
        (["--max-instructions", "-1"], "no integer"),
        (["--check", "everything"], "legal are all, race"),
    ],
)
def test_wrong_usage(hsaco: str, change: list[str], message: str, capsys: Capture) -> None:
    try:
        status = main(axpy(hsaco) + change)
    except SystemExit as e:  # argparse's own errors
        status = e.code
    assert status == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "old,new,message",
    [
        ("n=100", "n=ten", "want a number"),
        ("n=100", "n=99999999999", "4 bytes"),
        ("n=100", "n=1:f64", "4 bytes"),
        ("n=100", "n=1:i16", "4 bytes"),
        ("n=100", "n=zeros:i32:4", "not a pointer"),
        ("Y=ones:f32:100", "Y=ones:f33:100", "there is no type 'f33'"),
        ("Y=ones:f32:100", "Y=ones:f32", "ones:TYPE:SHAPE"),
        ("Y=ones:f32:100", "Y=ones:f32:10*10", "sizes with x"),
        ("Y=ones:f32:100", "Y=ones:f32:-4", "not negative"),
        ("Y=ones:f32:100", "Y=ones:f32:99999999x99999999", "at most"),
        ("Y=ones:f32:100", "Y=7", "a pointer wants"),
        ("Y=ones:f32:100", "Y=missing.npy", "there is no file"),
        ("Y=ones:f32:100", f"Y={__file__}:f32", "a pointer wants"),
        ("alpha=0.5", "X2=1", "no such argument"),
    ],
)
def test_wrong_values(hsaco: str, old: str, new: str, message: str, capsys: Capture) -> None:
    command = axpy(hsaco)
    command[command.index(old)] = new
    assert main(command) == 2
    error = capsys.readouterr().err
    assert message in error and "internal" not in error


def test_missing_arguments_and_sizes(hsaco: str, capsys: Capture) -> None:
    assert main([hsaco, "--grid", "1"]) == 2
    assert "several kernels" in capsys.readouterr().err
    assert main([hsaco, "-k", "axpy", "--block", "64"]) == 2
    assert "--grid" in capsys.readouterr().err
    assert main([hsaco, "-k", "axpy", "--grid", "1"]) == 2
    assert "the kernel allows 64" in capsys.readouterr().err
    assert main([hsaco, "-k", "axpy", "--grid", "1", "--block", "64", "--arg", "n=1"]) == 2
    error = capsys.readouterr().err
    assert "--arg X=" in error and "--arg alpha=NUMBER" in error and "--arg n" not in error


def test_impossible_launch(hsaco: str, capsys: Capture) -> None:
    command = axpy(hsaco)
    command[command.index("--block") + 1] = "128"
    assert main(command) == 1
    assert "the kernel allows 64" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"text\n", b"\x7fELF" + bytes(60)])
def test_no_code_object(content: bytes, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "x.hsaco"
    file.write_bytes(content)
    assert main([str(file), "--grid", "1", "--block", "1"]) == 1
    assert main([str(file), "--list"]) == 1
    error = capsys.readouterr().err
    assert error.count("error:") == 2 and "internal" not in error
    assert main([str(tmp_path / "none"), "--list"]) == 2


def test_loads_nothing_of_the_compiler(hsaco: str) -> None:
    """Whoever brings kernels of their own needs target, codeobject and simulator, not the compiler."""
    script = (
        "import sys; from tileir.tools.sim import main; status = main(sys.argv[1:]); "
        "rooms = {name.split('.')[1] for name in sys.modules if name.startswith('tileir.')}; "
        "print('ROOMS', status, *sorted(rooms), 'mlir' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script, *axpy(hsaco)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "ROOMS 0 codeobject collector records simulator target tools False"
