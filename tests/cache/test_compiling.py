"""Compiling through the cache: nobody can tell what came from it, and nothing can go wrong because of it."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from api.kernels import axpy

import tileir
from tileir import kernels
from tileir.cache import location
from tileir.cache.outcome import decode, encode
from tileir.cache.store import Store
from tileir.tools import cache as cache_tool
from tileir.tools import opt, run

SCALE = """tileir 1

kernel @scale<B: int = 256>(%X: global<f32[N]>, %Y: global<f32[N]>, %a: f32) grid(cdiv(N, B)) {
  %i = program_id()
  %x = load(%X[%i * B +: B])
  %unused = %x + 1.0
  store(%x * %a, %Y[%i * B +: B])
}
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own for every test."""
    monkeypatch.setenv("TILEIR_CACHE", "1")
    # the simulator goes on with the native code that other tests have made
    monkeypatch.setattr("tileir.simulator.cache.default_directory", _simulator_directory())
    monkeypatch.setenv("TILEIR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(location, "_said", set())
    # somebody may edit the sources while the tests run; what that means has a test of its own
    monkeypatch.setattr("tileir.cache.keys.sources_unchanged", lambda: True)
    return tmp_path / "cache" / "kernels"


def _simulator_directory() -> Any:
    from tileir.simulator.cache import default_directory

    found = default_directory()
    return lambda: found


def entries(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.exists() else []


GEMM = kernels.source("gemm")
CASES: list[dict[str, Any]] = [
    {"source": SCALE, "params": {"B": 128}},
    {"source": GEMM, "params": {"BM": 96, "BN": 96}},
    {"source": GEMM, "params": {"BM": 256, "BN": 256, "T": "f16"}, "allow_spills": True},
]


@pytest.mark.parametrize("case", CASES, ids=["warning", "remark", "large"])
@pytest.mark.parametrize("chip", ["gfx942", "gfx950"])
def test_the_cache_gives_what_the_compiler_gave(
    case: dict[str, Any], chip: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"kernel": "gemm"} if case["source"] is GEMM else {}
    first = tileir.compile(target=chip, **case, **options)
    again = tileir.compile(target=chip, **case, **options)
    monkeypatch.setenv("TILEIR_CACHE", "0")
    fresh = tileir.compile(target=chip, **case, **options)
    assert (first.stats["cached"], again.stats["cached"], fresh.stats["cached"]) == (False, True, False)
    assert first.diagnostics and first.diagnostics == again.diagnostics == fresh.diagnostics
    assert first.hsaco == again.hsaco == fresh.hsaco
    assert first.interface == again.interface and list(first.interface) == list(again.interface)
    assert (first.name, first.block, first.target) == (again.name, again.block, again.target)
    assert first.text() == again.text() and first.text("parse") == again.text("parse")
    assert first.kernel == again.kernel
    assert {**first.stats, "cached": True} == again.stats
    assert repr(first) == repr(again)


def test_texts_of_later_stages_come_from_the_cache_too(directory: Path) -> None:
    first = tileir.compile(SCALE, "gfx950")
    texts = {stage: first.text(stage) for stage in ("mlir", "llvm", "asm")}
    assert len(entries(directory)) == 2
    again = tileir.compile(SCALE, "gfx950")
    assert {stage: again.text(stage) for stage in texts} == texts and len(entries(directory)) == 2


def test_every_source_is_cached(directory: Path, tmp_path: Path) -> None:
    path = tmp_path / "scale.tile"
    path.write_text(SCALE)
    module = tileir.parse(SCALE, "scale.tile")
    for source in (SCALE, path, axpy(), module, module.kernels[0]):
        before = len(entries(directory))
        first, again = tileir.compile(source, "gfx950"), tileir.compile(source, "gfx950")
        assert not first.stats["cached"] and again.stats["cached"] and first.hsaco == again.hsaco, type(source)
        assert len(entries(directory)) == before + 1
    module.kernels[0].attrs["waves"] = 2
    assert not tileir.compile(module, "gfx950").stats["cached"]


@pytest.mark.parametrize("device", ["interpreter", "simulator:gfx950"])
def test_a_cached_kernel_launches_everywhere(device: str) -> None:
    tileir.compile(SCALE, "gfx950")
    cached = tileir.compile(SCALE, "gfx950")
    for kernel in (cached, pickle.loads(pickle.dumps(cached))):
        x, y = np.arange(300, dtype=np.float32), np.zeros(300, np.float32)
        kernel.launch(X=x, Y=y, a=2.0, device=device)
        assert (y == 2 * x).all()
    with pytest.raises(tileir.LaunchError, match=r"<text>:3:"):
        cached.launch(X=x, Y=y, device=device)


def test_a_changed_file_is_compiled_anew(tmp_path: Path) -> None:
    path = tmp_path / "scale.tile"
    path.write_text(SCALE)
    first = tileir.compile(path, "gfx950")
    path.write_text(SCALE.replace("%x * %a", "%x + %a"))
    second = tileir.compile(path, "gfx950")
    assert not second.stats["cached"] and second.hsaco != first.hsaco
    assert first.kernel != second.kernel, "the first one still is what was compiled"


def test_sources_that_changed_under_a_process_are_not_trusted(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tileir.cache.keys.sources_unchanged", lambda: False)
    assert tileir.compile(SCALE, "gfx950").hsaco and entries(directory) == []


def test_failures_and_watched_compilations_are_not_cached(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(tileir.CompileError):
        tileir.compile(SCALE.replace("1.0", "%nobody"), "gfx950")
    path = tmp_path / "scale.tile"
    path.write_text(SCALE)
    for option in ("--verify-each", "--print-after-all"):
        assert opt.main([str(path), "--target", "gfx950", "-o", str(tmp_path / "out"), option]) == 0
    assert entries(directory) == []


def test_options_that_change_code_are_told_apart(directory: Path) -> None:
    found = [
        tileir.compile(SCALE, chip, code_object_version=v, allow_spills=s)
        for chip in ("gfx942", "gfx950") for v in (5, 6) for s in (False, True)
    ]  # fmt: skip
    assert not any(f.stats["cached"] for f in found) and len(entries(directory)) == 8


# Tools


def tool(capfd: pytest.CaptureFixture[str], main: Any, *arguments: str) -> tuple[int, str, str]:
    status = main(list(arguments))
    captured = capfd.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize("emit", ["hsaco", "obj", "asm", "llvm", "mlir"])
def test_opt_says_and_writes_the_same(emit: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scale.tile"
    path.write_text(SCALE)
    found = []
    for name in ("a", "b"):
        out = tmp_path / name
        done = tool(capfd, opt.main, str(path), "--target", "gfx942", "--emit", emit, "-o", str(out), "--remarks")
        found.append((*done, out.read_bytes()))
    assert found[0] == found[1] and "W0201" in found[0][2]


def test_opt_resumes_through_the_cache(tmp_path: Path, directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path, asm, out = tmp_path / "scale.tile", str(tmp_path / "scale.s"), str(tmp_path / "out.hsaco")
    path.write_text(SCALE)
    assert opt.main([str(path), "--target", "gfx950", "-o", asm]) == 0
    results = []
    for _ in range(2):
        assert opt.main([asm, "--target", "gfx950", "--start-from", "asm", "-o", out]) == 0
        results.append(Path(out).read_bytes())
    assert results[0] == results[1] and len(entries(directory)) == 2
    Path(asm).write_text(Path(asm).read_text() + "\n")
    assert opt.main([asm, "--target", "gfx950", "--start-from", "asm", "-o", out]) == 0
    assert len(entries(directory)) == 3


def test_run_shares_entries_with_opt_and_says_warnings_once(
    tmp_path: Path, directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "scale.tile"
    path.write_text(SCALE)
    assert tool(capfd, opt.main, str(path), "--target", "gfx950", "-o", str(tmp_path / "out.hsaco"))[0] == 0
    command = (str(path), "--target", "gfx950", "--shape", "N=100", "--arg", "a=2", "--verify", "--stats")
    status, out, err = tool(capfd, run.main, *command)
    assert status == 0 and '"cached": true' in out and len(entries(directory)) == 1
    assert err.count("W0201") == 1


def test_a_hit_loads_no_compiler(tmp_path: Path) -> None:
    path = tmp_path / "scale.tile"
    path.write_text(SCALE)
    code = (
        "import sys; from tileir.tools.opt import main; "
        f"assert main([{str(path)!r}, '--target', 'gfx950', '-o', {str(tmp_path / 'out')!r}]) == 0; "
        "print(sorted({'numpy', 'lark', 'tileir.passes.manager', 'tileir.frontend'} & set(sys.modules)))"
    )
    found = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(2)]
    assert "numpy" in found[0].stdout and found[1].stdout == "[]\n"
    assert found[0].stderr == found[1].stderr != ""


# What may go wrong


def test_flipped_bits_are_compiled_anew(directory: Path) -> None:
    want = tileir.compile(SCALE, "gfx950")
    (path,) = entries(directory)
    good = path.read_bytes()
    for at in random.Random(3).sample(range(len(good)), 6):
        bad = bytearray(good)
        bad[at] ^= 0x10
        path.write_bytes(bad)
        again = tileir.compile(SCALE, "gfx950")
        assert not again.stats["cached"] and again.hsaco == want.hsaco
        assert tileir.compile(SCALE, "gfx950").stats["cached"]


def test_a_sound_entry_that_is_no_kernel_is_compiled_anew(directory: Path) -> None:
    tileir.compile(SCALE, "gfx950")
    (path,) = entries(directory)
    store = Store(directory, 1 << 20, print)
    good = store.get(path.name)
    assert good is not None and encode(decode(good)) == good
    for body in (b"", b"\0" * 40, b"{}", good[:-1], good + b"x", good.replace(b'"block"', b'"blick"')):
        with pytest.raises(ValueError, match="not a compiled kernel"):
            decode(body)
        store.put(path.name, body)
        assert not tileir.compile(SCALE, "gfx950").stats["cached"]


def test_without_a_usable_directory_there_is_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    monkeypatch.setenv("TILEIR_CACHE_DIR", str(open_to_all))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        images = [tileir.compile(SCALE, "gfx950").hsaco for _ in range(3)]
    assert images[0] == images[1] == images[2]
    (said,) = [w for w in found if issubclass(w.category, location.CacheWarning)]
    assert "others may write to" in str(said.message) and "TILEIR_CACHE=0" in str(said.message)
    path, command = tmp_path / "scale.tile", [sys.executable, "-m", "tileir.tools.opt"]
    path.write_text(SCALE)
    command += [str(path), "--target", "gfx950", "-o", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr.count("tileir-opt: warning: the cache is not used:") == 1
    assert list(open_to_all.iterdir()) == []


def test_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for text, limit in (("", 1 << 30), ("5", 5), ("3K", 3 << 10), ("7m", 7 << 20), ("2G", 2 << 30)):
        monkeypatch.setenv("TILEIR_CACHE_LIMIT", text)
        assert location.settings().limit == limit
    monkeypatch.setenv("TILEIR_CACHE_LIMIT", "much")
    with pytest.warns(location.CacheWarning, match="not a size such as 512M"):
        assert location.settings().limit == 1 << 30
    for text, enabled in (("0", False), ("off", False), ("simulator", False), ("1", True), ("", True)):
        monkeypatch.setenv("TILEIR_CACHE", text)
        assert location.settings().enabled == enabled and (location.store() is not None) == enabled
    monkeypatch.delenv("TILEIR_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert location.settings().directory == tmp_path / "tileir"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert location.settings().directory == tmp_path / "home" / ".cache" / "tileir"


def test_switched_off_nothing_is_written(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEIR_CACHE", "0")
    tileir.compile(SCALE, "gfx950")
    assert not directory.parent.exists()


# Many processes


def compile_one(block: int) -> tuple[int, bytes]:
    return block, tileir.compile(SCALE, "gfx950", params={"B": block}).hsaco


def test_sixteen_processes_at_once(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight want the same kernel, eight others others; all get what a single process gets, and each is compiled once."""
    from tileir.lowering.amdgpu import compile as lowering

    real, calls = lowering.compile_kernel, tmp_path / "calls"

    def counted(*arguments: Any) -> Any:
        with calls.open("a") as file:
            file.write("x")
        return real(*arguments)

    monkeypatch.setattr(lowering, "compile_kernel", counted)
    blocks = [256] * 8 + [64, 128, 192, 320, 512, 768, 1024, 2048]
    context = multiprocessing.get_context("fork")
    with context.Pool(16) as pool:
        found = pool.map(compile_one, blocks, chunksize=1)
    assert len(entries(directory)) == 9 == len(calls.read_text())
    assert list(Store(directory, 1 << 30, print).damaged()) == []
    want = {b: tileir.compile(SCALE, "gfx950", params={"B": b}) for b in set(blocks)}
    assert all(k.stats["cached"] for k in want.values())
    assert all(image == want[block].hsaco for block, image in found)


COMPILER = """
import sys, tileir
text = open(sys.argv[1]).read()
print("ready", flush=True)
for b in range(64, 4096, 64):
    tileir.compile(text, "gfx950", params={"B": b})
    print(b, flush=True)
"""


def test_compilers_that_are_killed_leave_sound_entries(directory: Path, tmp_path: Path) -> None:
    path = tmp_path / "scale.tile"
    path.write_text(SCALE)
    chance = random.Random(5)
    for _ in range(3):
        child = subprocess.Popen([sys.executable, "-c", COMPILER, str(path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        for _ in range(3):
            child.stdout.readline()
        time.sleep(chance.random() * 0.05)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        assert list(Store(directory, 1 << 30, print).damaged()) == []
    names = [p.name for p in entries(directory)]
    assert len([n for n in names if len(n) == 64]) >= 2


# tileir-cache


def test_info_clear_verify(directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import json

    for block in (64, 128, 256):
        tileir.compile(SCALE, "gfx942", params={"B": block})
    status, out, _ = tool(capfd, cache_tool.main, "info", "--json", "--list")
    found = json.loads(out)
    assert status == 0 and found["kernels"] == 3 and found["directory"] == str(directory.parent) and found["enabled"]
    assert [(e["kernel"], e["target"]) for e in found["entries"]] == [("scale", "gfx942")] * 3
    status, out, _ = tool(capfd, cache_tool.main, "info", "--list")
    assert status == 0 and "kernels    3 in" in out and out.count("scale for gfx942") == 3
    assert tool(capfd, cache_tool.main, "verify") == (0, "3 entries are sound, 0 damaged\n", "")
    bad = entries(directory)[1]
    bad.write_bytes(bad.read_bytes()[:-1])
    Store(directory, 1 << 30, print).put("f" * 64, b"no kernel")
    status, out, err = tool(capfd, cache_tool.main, "verify")
    assert status == 1 and out == "2 entries are sound, 2 damaged\n"
    assert f"{bad.name}: it holds" in err and f"{'f' * 64}: it holds no compiled kernel" in err
    assert "damaged" in tool(capfd, cache_tool.main, "info", "--list")[1]
    assert tool(capfd, cache_tool.main, "verify", "--remove")[0] == 1
    assert tool(capfd, cache_tool.main, "verify")[:2] == (0, "2 entries are sound, 0 damaged\n")
    assert tool(capfd, cache_tool.main, "clear")[1].startswith("removed 2 files of kernels")
    assert tool(capfd, cache_tool.main, "info")[1].split("\n")[1].startswith("kernels    0 in 0 bytes of 1 GiB")
    assert not tileir.compile(SCALE, "gfx942", params={"B": 64}).stats["cached"]


def test_usage_of_the_tool(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert tool(capfd, cache_tool.main, "clear", "--json")[0] == 2
    assert tool(capfd, cache_tool.main, "info", "--remove")[0] == 2
    monkeypatch.setenv("TILEIR_CACHE", "0")
    assert "switched off by TILEIR_CACHE" in tool(capfd, cache_tool.main, "info")[1]
    assert cache_tool.size_text(0) == "0 bytes" and cache_tool.size_text(1536) == "1.5 KiB"
    assert cache_tool.size_text(1 << 30) == "1 GiB" and cache_tool.size_text(5 << 40) == "5 TiB"
