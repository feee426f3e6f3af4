"""Real code objects for the tests: built once per session by llvmlite and lld, and by clang where it is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CLANG_VARIANTS = [("gfx942", 4, 4), ("gfx950", 5, 5), ("gfx950", 6, 4)]


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with `CHIP.VERSION.DWARF.hsaco` and `.o` for the variants of build_objects.py."""
    folder = tmp_path_factory.mktemp("objects")
    subprocess.run([sys.executable, str(HERE / "build_objects.py"), str(folder)], check=True)
    return folder


@pytest.fixture(scope="session")
def linked(objects: Path) -> bytes:
    """A linked gfx950 object, code object version 5, DWARF 5."""
    return (objects / "gfx950.5.5.hsaco").read_bytes()


@pytest.fixture(scope="session")
def clang_objects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Objects that clang compiled from kernels.cl: two kernels, scratch, dynamic LDS, required workgroup size."""
    clang = shutil.which("clang-22")
    if clang is None or shutil.which("ld.lld-22") is None:
        pytest.skip("clang-22 or ld.lld-22 is not installed")
    folder = tmp_path_factory.mktemp("clang")
    result: list[Path] = []
    for chip, version, dwarf in CLANG_VARIANTS:
        out = folder / f"{chip}.{version}.{dwarf}.hsaco"
        command = [clang, "-x", "cl", "-cl-std=CL2.0", "-target", "amdgcn-amd-amdhsa", f"-mcpu={chip}", "-nogpulib"]
        command += [f"-mcode-object-version={version}", "-O2", "-gline-tables-only", f"-gdwarf-{dwarf}"]
        command += [str(HERE / "kernels.cl"), f"--ld-path={shutil.which('ld.lld-22')}", "-o", str(out)]
        subprocess.run(command, check=True)
        result.append(out)
    return result
