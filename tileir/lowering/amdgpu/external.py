"""Linking and assembling with the tools inside the `ziglang` wheel, called directly.

The `zig` binary contains LLVM's linker and clang. Called as `python -m ziglang` it costs an interpreter start;
called directly a link takes a few milliseconds. Objects travel through memory files and pipes, so nothing is left
on disk and no path gets into the output.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from functools import cache
from pathlib import Path

TIMEOUT_SECONDS = 300.0
_CLANG_MESSAGE = re.compile(r"^<stdin>:(\d+):(\d+): (error|warning): (.*)$", re.MULTILINE)


class ToolError(Exception):
    """A tool rejected its input. `located` holds (severity, message, line, column) of messages about that input."""

    def __init__(self, message: str, located: tuple[tuple[str, str, int, int], ...] = ()) -> None:
        super().__init__(message)
        self.located = located


@cache
def zig() -> Path:
    """The binary of the `ziglang` wheel; raises `ToolError` where the wheel is not installed."""
    spec = importlib.util.find_spec("ziglang")
    if spec is None or not spec.submodule_search_locations:
        raise ToolError("the package 'ziglang', which contains the linker, is not installed")
    path = Path(next(iter(spec.submodule_search_locations))) / "zig"
    if not path.is_file():
        raise ToolError(f"the package 'ziglang' has no binary at {path}")
    return path


def link(obj: bytes) -> bytes:
    """Links one relocatable object into a loadable code object; undefined symbols are errors."""
    descriptor = os.memfd_create("object")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(obj)
        source = f"/proc/self/fd/{descriptor}"
        command = [str(zig()), "ld.lld", "-shared", "--no-undefined", source, "-o", "-"]
        done = _run(command, pass_fds=(descriptor,))
    finally:
        os.close(descriptor)
    if done.returncode != 0:
        text = done.stderr.decode(errors="replace").replace(source, "the object").replace("ld.lld: error: ", "")
        undefined = sorted(set(re.findall(r"undefined symbol: (\S+)", text)))
        if undefined:
            raise ToolError(f"undefined symbols: {', '.join(undefined)}; a code object must define all that it uses")
        raise ToolError(f"the linker failed: {text.strip()}")
    return done.stdout


def assemble(text: str, chip: str, code_object_version: int) -> bytes:
    """Assembles AMDGPU assembly for `chip` into a relocatable object.

    A `.amdhsa_code_object_version` directive in the text takes precedence over `code_object_version`.
    """
    command = [str(zig()), "clang", "--target=amdgcn-amd-amdhsa", f"-mcpu={chip}"]
    command += [f"-mcode-object-version={code_object_version}", "-c", "-x", "assembler", "-", "-o", "-"]
    done = _run(command, stdin=text.encode())
    if done.returncode != 0:
        output = done.stderr.decode(errors="replace")
        located = tuple((s, m, int(line), int(col)) for line, col, s, m in _CLANG_MESSAGE.findall(output))
        raise ToolError("the assembler rejected the text" if located else f"the assembler failed: {output}", located)
    return done.stdout


def _run(command: list[str], stdin: bytes = b"", pass_fds: tuple[int, ...] = ()) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(command, input=stdin, capture_output=True, pass_fds=pass_fds, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired as expired:
        raise ToolError(f"'{command[1]}' did not finish within {TIMEOUT_SECONDS:.0f} s") from expired
