"""The package as a user gets it: wheel, empty environment, console commands, outside the repository."""

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

# One worker for all of these, or each would make its own environment.
pytestmark = pytest.mark.xdist_group("packaging")

VECTOR_ADD = """tileir 1

kernel @vector_add<B: int = 256, T: type = f32>(%X: global<T[N]>, %Y: global<T[N]>, %Z: global<T[N]>)
    grid(cdiv(N, B)) {
  %i = program_id()
  %x = load(%X[%i * B +: B])
  %y = load(%Y[%i * B +: B])
  store(%x + %y, %Z[%i * B +: B])
}
"""


def run(*command: str | Path, cwd: Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Runs a command as a user would: without this source tree on the path."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV", "COV"))}
    done = subprocess.run(
        [str(c) for c in command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy (so that no build artefact leaks in or out)."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(repository / name, source)
    shutil.copytree(repository / "tileir", source / "tileir", ignore=shutil.ignore_patterns("__pycache__"))
    out = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", out]
    run(*pip, "-c", repository / "constraints.txt", ".", cwd=source)
    (found,) = out.glob("tileir-*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` directory of an environment that holds the wheel and its dependencies, nothing else."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "-c", repository / "constraints.txt", wheel, cwd=home)
    return home / "bin"


def test_wheel_holds_the_package_its_data_and_its_licence(wheel: Path, repository: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata_name,) = (n for n in names if n.endswith(".dist-info/METADATA"))
        metadata = archive.read(metadata_name).decode()
    assert "License-Expression: Apache-2.0 WITH LLVM-exception" in metadata
    assert any(n.endswith("licenses/LICENSE") for n in names)
    assert not any(n.startswith(("tests/", "benchmarks/", "docs/", "examples/")) for n in names)
    shipped = {".py", ".json", ".lark", ".tile", ".c", ".h", ".typed"}
    files = {p.relative_to(repository).as_posix() for p in (repository / "tileir").rglob("*") if p.suffix in shipped}
    missing = files - names
    assert not missing, f"not in the wheel: {sorted(missing)}"


def test_constraints_pin_every_dependency(repository: Path) -> None:
    lines = (repository / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][0-9A-Za-z.]*", pin) for pin in pins)
    pinned = {pin.split("==")[0].lower().replace("_", "-") for pin in pins}
    tomllib = pytest.importorskip("tomllib")  # in the standard library from Python 3.11 on
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    names = {re.split(r"[\[<>=!; ]", w)[0].lower().replace("_", "-") for w in wanted}
    assert names <= pinned


def test_import_is_light(repository: Path) -> None:
    code = "import sys, tileir; print(sorted({'mlir', 'llvmlite'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=repository, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("tool", ["tileir-opt", "tileir-run"])
def test_console_commands_explain_themselves(installed: Path, tool: str, tmp_path: Path) -> None:
    text = run(installed / tool, "--help", cwd=tmp_path).stdout
    assert f"usage: {tool}" in text
    assert "--target" in text


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_installed_compiler_makes_a_code_object(installed: Path, target: str, tmp_path: Path) -> None:
    (tmp_path / "add.tile").write_text(VECTOR_ADD)
    out = tmp_path / "add.hsaco"
    run(installed / "tileir-opt", "add.tile", "--target", target, "--emit", "hsaco", "-o", out, cwd=tmp_path)
    code = out.read_bytes()
    assert code[:4] == b"\x7fELF"
    assert int.from_bytes(code[18:20], "little") == 224  # EM_AMDGPU


def test_installed_runner_verifies_on_the_simulator(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "add.tile").write_text(VECTOR_ADD)
    command = [installed / "tileir-run", "add.tile", "-k", "vector_add", "--target", "gfx950", "--shape", "N=1000"]
    run(*command, "--verify", cwd=tmp_path)


def test_licence_is_apache_with_the_llvm_exception(repository: Path) -> None:
    text = (repository / "LICENSE").read_text()
    assert "Apache License" in text and "Version 2.0, January 2004" in text
    assert "---- LLVM Exceptions to the Apache 2.0 License ----" in text
