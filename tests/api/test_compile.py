"""Compiling from Python: every form of source, results that launch, texts of every stage, many at once."""

from __future__ import annotations

import concurrent.futures
import importlib.util
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tileir
from tileir import Job, kernels
from tileir.passes.manager import step_names

from .kernels import axpy, error_of, gemm

BF16 = tileir.bf16.np


@pytest.mark.parametrize("chip", ["gfx942", "gfx950"])
def test_launch_on_the_simulator(chip: str) -> None:
    x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    binding = tileir.compile(axpy(), chip).launch(X=x, Y=y, a=2.0)
    assert (y == 2 * x + 1).all() and binding.grid == (4,) and binding.symbols["N"] == 1000


def test_all_sources(tmp_path: Path) -> None:
    text = kernels.source("vector_add")
    path = tmp_path / "v.tile"
    path.write_text(text, encoding="utf-8")
    module = tileir.parse(text)
    images = [tileir.compile(s, "gfx950").hsaco for s in (text, path, module, module.kernels[0])]
    assert images[1:3] == images[:1] * 2 or len(set(images)) <= 2  # the name of the file is in the line table
    built = axpy()
    assert tileir.compile(built, "gfx950").hsaco == tileir.compile(built, "gfx950").hsaco


def test_object() -> None:
    c = tileir.compile(kernels.source("gemm"), "gfx950", params={"BM": 64, "BN": 64, "T": "f16"})
    assert (c.name, c.target, c.block) == ("gemm", "gfx950", (256, 1, 1))
    assert c.stats["vgpr_spills"] == 0 and c.stats["lds_bytes"] > 0
    assert c.hsaco[:4] == b"\x7fELF" and "v_mfma_f32_16x16x32_f16" in c.asm
    assert c.interface["kernel"] == "gemm" and "gemm for gfx950" in repr(c)
    assert "llvm.func" in c.text("mlir") and "define amdgpu_kernel" in c.text("llvm")
    assert c.text("parse").startswith("tileir 1\n\nkernel @gemm<BM = 64")
    for stage in step_names():
        assert c.text(stage).startswith("tileir 1"), stage
    assert c.text() == c.text("tile") == c.text(step_names()[-1])
    with pytest.raises(ValueError, match="assign-layouts"):
        c.text("nonsense")


def test_devices_by_name() -> None:
    c = tileir.compile(axpy(), "gfx942")
    for device in ("interpreter", "simulator:gfx942", tileir.get_device("simulator:gfx942")):
        x, y = np.ones(7, np.float32), np.ones(7, np.float32)
        c.launch(device=device, X=x, Y=y, a=3.0)
        assert (y == 4).all()
    with pytest.raises(tileir.DeviceError):
        c.launch(device="simulator:gfx950", X=x, Y=y, a=3.0)
    with pytest.raises(tileir.LaunchError, match=r"no value for %Y"):
        c.launch(X=x, a=3.0)


def test_errors_are_structured() -> None:
    e = error_of(lambda: tileir.compile("tileir 1\nkernel @k() grid(1) {\n  %x = exq(1.0)\n}\n", "gfx950"))
    (d,) = e.diagnostics
    assert (d.code, d.severity, d.loc.line, d.loc.column, d.loc.end_column) == ("E0201", "error", 3, 8, 11)
    assert "did you mean" in d.legal and "^^^" in str(e)
    again = pickle.loads(pickle.dumps(e))
    assert again.diagnostics == e.diagnostics and str(again) == str(e)
    assert error_of(lambda: tileir.compile(axpy(), "gfx1100")).diagnostics[0].legal
    with pytest.raises(OSError):
        tileir.compile(Path("/nonexistent.tile"), "gfx950")
    with pytest.raises(TypeError, match="params"):
        tileir.compile(axpy(), "gfx950", params={"B": 1})


def test_a_fault_of_a_pass_points_at_the_python_line() -> None:
    k = tileir.KernelBuilder("k")
    X = k.view("X", tileir.f32, [512, 512])
    k.grid(1)
    x = k.load(X[0:512, 0:512])
    y = k.load(X[0:512, 0:512])
    k.store(x + y.T, X[0:512, 0:512])
    e = error_of(lambda: tileir.compile(k, "gfx950"))
    assert e.diagnostics[0].loc.file == __file__, e


JOBS = [Job(kernels.source("vector_add"), chip, params={"BN": b}) for chip in ("gfx942", "gfx950") for b in (64, 256)]


def test_compile_many_in_any_executor() -> None:
    alone = [c.hsaco for c in tileir.compile_many(JOBS)]
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        assert [c.hsaco for c in tileir.compile_many(JOBS, threads)] == alone
    with concurrent.futures.ProcessPoolExecutor(2) as processes:
        found = tileir.compile_many([*JOBS, Job(gemm(), "gfx950")], processes)
    assert [c.hsaco for c in found[:-1]] == alone
    assert found[-1].name == "gemm"


def test_compile_many_reports_the_first_error() -> None:
    jobs = [JOBS[0], Job("tileir 1\nkernel @k( {", "gfx950"), Job("nothing", "gfx950")]
    with concurrent.futures.ProcessPoolExecutor(2) as processes:
        e = error_of(lambda: tileir.compile_many(jobs, processes))
    assert e.diagnostics[0].code != "E0103"
    assert error_of(lambda: tileir.compile_many(jobs)).diagnostics == e.diagnostics


def test_threads_share_one_kernel() -> None:
    """Launches and compilations from many threads do not disturb each other."""
    c = tileir.compile(axpy(), "gfx950")
    wrong: list[int] = []

    def work(n: int) -> None:
        x, y = np.full(100 + n, n, np.float32), np.zeros(100 + n, np.float32)
        c.launch(X=x, Y=y, a=2.0)
        if not (y == 2 * n).all() or tileir.compile(axpy(), "gfx950").hsaco != c.hsaco:
            wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_kernels_travel() -> None:
    c = tileir.compile(axpy(), "gfx950")
    again = pickle.loads(pickle.dumps(c))
    x, y = np.ones(7, np.float32), np.ones(7, np.float32)
    again.launch(X=x, Y=y, a=3.0)
    assert (y == 4).all() and again.asm == c.asm


def test_saved_code_objects_load(tmp_path: Path) -> None:
    path = tmp_path / "a.hsaco"
    tileir.compile(axpy(), "gfx950").save(path)
    loaded = tileir.load_code_object(path.read_bytes())
    x, y = np.ones(7, np.float32), np.ones(7, np.float32)
    tileir.runtime.launch(loaded, {"X": x, "Y": y, "a": 3.0}, tileir.get_device("simulator:gfx950"))  # type: ignore[attr-defined]
    assert (y == 4).all()


def test_import_is_light() -> None:
    code = (
        "import sys, tileir; tileir.KernelBuilder; tileir.parse; tileir.f32; "
        "heavy = {'mlir', 'llvmlite', 'lark'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_all_names_are_there() -> None:
    assert sorted(tileir.__all__) == sorted(set(tileir.__all__))
    for name in tileir.__all__:
        assert getattr(tileir, name) is not None and name in dir(tileir)
    with pytest.raises(AttributeError, match="nothing"):
        _ = tileir.nothing  # type: ignore[attr-defined]


def example(repository: Path) -> Any:
    spec = importlib.util.spec_from_file_location("array_dsl", repository / "examples/array_dsl.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["array_dsl"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("rows", [1, 31, 100])
def test_array_dsl(repository: Path, rows: int) -> None:
    dsl = example(repository)
    r = np.random.default_rng(rows)
    inputs = [r.standard_normal(s) / s[0] ** 0.5 for s in ((rows, 64), (64, 96), (1, 96), (96, 16))]
    got, want = dsl.network(*inputs), dsl.network.reference(*inputs)
    assert np.abs(got - want).max() < 0.02
    assert np.abs(got.sum(1) - 1).max() < 1e-3


def test_array_dsl_of_one_s_own(repository: Path) -> None:
    dsl = example(repository)
    scope = {"Rows": dsl.Rows, "Weight": dsl.Weight, "exp": dsl.exp, "row_max": dsl.row_max}
    exec("def f(x: Rows, y: Rows, b: Weight) -> Rows:\n    return exp(x * y - row_max(y)) / 2.0 + b", scope)
    f = dsl.rowwise(scope["f"], target="gfx942", block=16)
    r = np.random.default_rng(0)
    x, y, b = (r.standard_normal(s) for s in ((45, 80), (45, 80), (1, 80)))
    assert np.allclose(f(x, y, b), f.reference(x, y, b), rtol=1e-5, atol=1e-5)
