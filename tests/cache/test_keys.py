"""Stale results: whatever can change the code changes the key. One test per class of input."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from api.kernels import axpy, gemm

from tileir.cache import keys
from tileir.cache.compiling import Wanted
from tileir.frontend import parse
from tileir.ir.core import Module
from tileir.ir.location import Loc
from tileir.lowering.amdgpu.compile import Options

TEXT = """tileir 1

kernel @add<B: int = 256>(%X: global<f32[N]>) grid(cdiv(N, B)) {
  %i = program_id()
  %x = load(%X[%i * B +: B])
  store(%x + %x, %X[%i * B +: B])
}
"""
BASE = (keys.text_source(TEXT, "add.tile", {"B": 128}), "add", "gfx950", Wanted().key())


def key(**changes: Any) -> str:
    source, kernel, target, options = BASE
    return keys.key_of(
        changes.get("source", source), changes.get("kernel", kernel), changes.get("target", target),
        {**options, **changes.get("options", {})},
    )  # fmt: skip


def test_the_same_input_has_the_same_key() -> None:
    again = keys.text_source(TEXT, "add.tile", {"B": 128})
    assert key() == key(source=again) and len(key()) == 64
    two = [keys.text_source(TEXT, "add.tile", dict(items)) for items in ([("A", 1), ("B", 2)], [("B", 2), ("A", 1)])]
    assert key(source=two[0]) == key(source=two[1])


@pytest.mark.parametrize(
    "text", [TEXT + "\n", TEXT.replace("+ %x", "* %x"), "// new\n" + TEXT], ids=["end", "op", "line"]
)
def test_text(text: str) -> None:
    assert key(source=keys.text_source(text, "add.tile", {"B": 128})) != key()


def test_file_name() -> None:
    """It stands in messages and line tables."""
    assert key(source=keys.text_source(TEXT, "other/add.tile", {"B": 128})) != key()


def test_parameters() -> None:
    values: list[Any] = [128, 256, 128.0, "128", True, 1, 1.0, "true", float("nan"), 0.0, -0.0]
    found = {key(source=keys.text_source(TEXT, "add.tile", {"B": v})) for v in values}
    found.add(key(source=keys.text_source(TEXT, "add.tile", {})))
    found.add(key(source=keys.text_source(TEXT, "add.tile", {"C": 128})))
    assert len(found) == len(values) + 2


def test_kernel_and_target() -> None:
    assert len({key(), key(kernel="other"), key(kernel=""), key(target="gfx942"), key(target="")}) == 5


def test_schedule_flags_and_outputs() -> None:
    changes: list[dict[str, Any]] = [
        {}, {"schedule": "fast"}, {"code_object_version": 6}, {"emit": ("asm",)}, {"emit": ("asm", "obj")},
        {"start_from": "layout-lds"}, {"allow_spills": True}, {"whole_tiles": True}, {"spare": 8},
    ]  # fmt: skip
    assert len({key(options=Wanted(**c).key()) for c in changes}) == len(changes)
    assert Wanted(emit=("asm", "obj")).key() == Wanted(emit=("obj", "asm")).key()


def test_every_option_of_the_compiler_is_in_the_key_or_prevents_caching() -> None:
    assert [f.name for f in dataclasses.fields(Wanted)] == [f.name for f in dataclasses.fields(Options)]
    for f in dataclasses.fields(Options):
        assert f.name in Wanted().key(), f.name
    assert Wanted(verify_each="run").watched and Wanted(print_after=lambda *_: None).watched and not Wanted().watched
    assert dataclasses.asdict(Wanted().options()) == {**dataclasses.asdict(Options()), "emit": ()}


@pytest.mark.parametrize("part", ["tileir", "sources", "python", *(p[0] for p in keys.PACKAGES)])
def test_every_version(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = key()
    now = keys.toolchain()
    assert now[part], f"{part} has no version here"
    monkeypatch.setattr(keys, "toolchain", lambda: {**now, part: "other"})
    assert key() != before


def test_the_format_of_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key()
    monkeypatch.setattr(keys, "FORMAT", keys.FORMAT + 1)
    assert key() != before


def test_stages() -> None:
    found = {key(source=keys.stage_source(s, t, f)) for s in ("mlir", "asm") for t in ("a", "b") for f in ("x", "y")}
    assert len(found) == 8


# Toolchain


def test_sources_of_a_checkout(tmp_path: Path) -> None:
    (tmp_path / "passes").mkdir()
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "passes" / "a.py").write_text("x = 1\n")
    first = keys.source_digest(tmp_path)
    (tmp_path / "__pycache__" / "a.py").write_text("ignored")
    (tmp_path / "notes.txt").write_text("ignored")
    assert keys.source_digest(tmp_path) == first
    seen = {first}
    for name, text in (("passes/a.py", "x = 2\n"), ("target.json", "{}"), ("g.lark", "a: b"), ("passes/b.py", "")):
        (tmp_path / name).write_text(text)
        seen.add(keys.source_digest(tmp_path))
    (tmp_path / "passes" / "b.py").rename(tmp_path / "passes" / "c.py")
    seen.add(keys.source_digest(tmp_path))
    assert len(seen) == 6


def test_a_process_knows_when_it_runs_older_sources(tmp_path: Path) -> None:
    """Otherwise the code of the old compiler would be kept under the key of the new one."""
    path = tmp_path / "a.py"
    path.write_text("x = 1")
    changed = path.stat().st_ctime
    assert keys.sources_before(tmp_path, changed + 1) and not keys.sources_before(tmp_path, changed)
    os.utime(path, (1, 1))
    assert not keys.sources_before(tmp_path, changed), "a time of modification that was set says nothing"


def test_installed_packages(tmp_path: Path) -> None:
    """A new version, and a library that was rebuilt in place."""
    (tmp_path / "llvmlite" / "binding").mkdir(parents=True)
    (tmp_path / "llvmlite" / "__init__.py").write_text("raise SystemExit('must not be imported')")
    library = tmp_path / "llvmlite" / "binding" / "libllvmlite.so"
    info = tmp_path / "llvmlite-1.0.dist-info"
    info.mkdir()
    (tmp_path / "llvmlite_more-7.0.dist-info").mkdir()

    def identity() -> str:
        found = keys.package_identity("llvmlite", "llvmlite", ("binding/libllvmlite.so",), [str(tmp_path)])
        return repr(found)

    assert "llvmlite-1.0" in identity() and "more" not in identity()
    seen = {identity()}
    library.write_bytes(b"code")
    seen.add(identity())
    os.utime(library, (1, 1))
    seen.add(identity())
    library.write_bytes(b"longer code")
    seen.add(identity())
    info.rename(tmp_path / "llvmlite-1.1.dist-info")
    seen.add(identity())
    assert len(seen) == 5
    assert keys.package_identity("nothing", "nothing", (), [str(tmp_path)]) == []


def test_toolchain_names_what_is_installed_and_loads_nothing() -> None:
    import subprocess

    code = (
        "import sys; from tileir.cache.keys import toolchain; print(toolchain());"
        "print(sorted({'mlir', 'llvmlite', 'numpy', 'lark'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split("\n")
    for name in (
        "xtc_mlir_python_bindings-",
        "libMLIRPythonCAPI.so",
        "llvmlite-",
        "libllvmlite.so",
        "ziglang-",
        "'zig'",
    ):
        assert name in out[0], name
    assert out[1] == "[]"


# Modules in memory


def module() -> Module:
    return parse(TEXT, "add.tile")


def change_location(m: Module) -> None:
    m.kernels[0].body.ops[1].loc = Loc("add.tile", 9, 1, 9, 2)


def change_operand_location(m: Module) -> None:
    next(op for op in m.kernels[0].walk() if op.operands).operand_locs = [Loc("add.tile", 9, 1, 9, 2)]


def change_attribute(m: Module) -> None:
    m.kernels[0].attrs["waves"] = 2


def change_operand(m: Module) -> None:
    op = next(op for op in m.kernels[0].walk() if op.name == "add")
    op.name = "mul"


def change_grid(m: Module) -> None:
    m.kernels[0].grid = m.kernels[0].grid * 2


def change_parameter(m: Module) -> None:
    m.kernels[0].params["B"] = 256.0


def change_mode(m: Module) -> None:
    m.kernels[0].fp = "strict"


@pytest.mark.parametrize(
    "change",
    [
        change_location,
        change_operand_location,
        change_attribute,
        change_operand,
        change_grid,
        change_parameter,
        change_mode,
    ],
)
def test_modules(change: Any) -> None:
    assert key(source=keys.module_source(module())) == key(source=keys.module_source(module()))
    changed = module()
    change(changed)
    assert key(source=keys.module_source(changed)) != key(source=keys.module_source(module()))


def test_built_kernels() -> None:
    assert key(source=keys.module_source(axpy().module())) == key(source=keys.module_source(axpy().module()))
    assert key(source=keys.module_source(axpy(128).module())) != key(source=keys.module_source(axpy().module()))
    one, two = gemm().module(), gemm().module()
    assert key(source=keys.module_source(one)) == key(source=keys.module_source(two))
    two.schedules[0] = dataclasses.replace(two.schedules[0], directives=two.schedules[0].directives[:-1])
    assert key(source=keys.module_source(one)) != key(source=keys.module_source(two))
    two.schedules[0] = dataclasses.replace(one.schedules[0], applies=False)
    assert key(source=keys.module_source(one)) != key(source=keys.module_source(two))
