"""Linking and assembling with the tools inside the `ziglang` wheel, called directly.

The `zig` binary contains LLVM's linker and clang. Called as `python -m ziglang` it costs an interpreter start;
called directly a link takes a few milliseconds. Objects travel through pipes, so nothing is left
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
    with Linker() as linker:
        return linker.link(obj)


class Linker:
    """A linker for one object, whose process starts at once and then waits for it: half of what linking takes is the start, which so can
    run beside code generation. The object comes through a pipe."""

    def __init__(self) -> None:
        linker = str(zig())
        source, self._sink = os.pipe()
        self._source = f"/proc/self/fd/{source}"
        command = [linker, "ld.lld", "-shared", "--no-undefined", self._source, "-o", "-"]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(source,),
            )
        except OSError:
            self._close()
            raise
        finally:
            os.close(source)

    def __enter__(self) -> Linker:
        return self

    def __exit__(self, *error: object) -> None:
        """Ends the process if it still waits."""
        if self._process.returncode is None:
            self._process.kill()
            self._process.communicate()
        self._close()

    def _close(self) -> None:
        if self._sink >= 0:
            os.close(self._sink)
            self._sink = -1

    def link(self, obj: bytes) -> bytes:
        """The loadable code object; undefined symbols are errors."""
        try:
            view = memoryview(obj)  # it reads all before it writes
            while view:
                view = view[os.write(self._sink, view) :]
        except BrokenPipeError:  # it has ended, and says why
            pass
        self._close()
        try:
            output, errors = self._process.communicate(timeout=TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired as expired:
            raise ToolError(f"'ld.lld' did not finish within {TIMEOUT_SECONDS:.0f} s") from expired
        if self._process.returncode == 0:
            return output
        text = errors.decode(errors="replace").replace(self._source, "the object").replace("ld.lld: error: ", "")
        undefined = sorted(set(re.findall(r"undefined symbol: (\S+)", text)))
        if undefined:
            raise ToolError(f"undefined symbols: {', '.join(undefined)}; a code object must define all that it uses")
        raise ToolError(f"the linker failed: {text.strip()}")


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


def _run(command: list[str], stdin: bytes) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(command, input=stdin, capture_output=True, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired as expired:
        raise ToolError(f"'{command[1]}' did not finish within {TIMEOUT_SECONDS:.0f} s") from expired
