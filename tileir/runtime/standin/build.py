"""Building the stand-in with the C compiler of the `ziglang` package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tileir.runtime.device import DeviceError

SOURCES = ("hip_api.c", "hip_streams.c", "control.c", "work.c", "wire.c")
_HERE = Path(__file__).parent


def build(directory: Path, major: int = 6, python: str = sys.executable) -> Path:
    """Builds `libamdhip64.so.MAJOR` in a directory, with the link `libamdhip64.so` to it, and gives its path.

    major: the ROCm that it stands for: 5 has the properties structure of that time only. python: runs the simulator.
    Raises DeviceError with what the compiler says.
    """
    directory.mkdir(parents=True, exist_ok=True)
    name = f"libamdhip64.so.{major}"
    defines = {"STANDIN_MAJOR": str(major), "STANDIN_PYTHON": f'"{python}"', "STANDIN_ROOT": f'"{_HERE.parents[2]}"'}
    command = [
        *(sys.executable, "-m", "ziglang", "cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror"),
        *("-fvisibility=hidden", "-fPIC", "-shared", f"-Wl,-soname,{name}", "-o", str(directory / name)),
        *(f"-D{key}={value}" for key, value in defines.items()),
        *(str(_HERE / source) for source in SOURCES),
        "-lpthread",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise DeviceError(f"the stand-in for libamdhip64 cannot be built:\n{done.stderr}")
    link = directory / "libamdhip64.so"
    link.unlink(missing_ok=True)
    link.symlink_to(name)
    return directory / name
