"""TileIR and Triton as processes that compile what they are asked to, for benchmarks that compare them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TRITON_VERSION = "3.9.0"
Job = dict[str, Any]


class Child:
    """A process that answers requests, one line of JSON each, as `compile_child.serve` does."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], *, quiet: bool = False) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if quiet else None,
            text=True,
            env=environment,
        )

    def ask(self, request: Job) -> Job:
        """The answer. RuntimeError with the message if it is {error}, SystemExit when the process has ended."""
        assert self.process.stdin and self.process.stdout
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            name = Path(str(self.process.args[0])).name  # type: ignore[index]
            raise SystemExit(f"error: {name} ended with status {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def stop(self) -> None:
        """Lets the process end."""
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(60)


@dataclass(frozen=True)
class Compiler:
    """A compiler to measure, `tileir` or `triton`, and the interpreter that has it."""

    name: str
    python: str

    def environment(self, scratch: str) -> dict[str, str]:
        """Environment of a child: no cache that an earlier child filled."""
        environment = {
            **os.environ,
            "TRITON_CACHE_DIR": scratch,
            "TRITON_ALWAYS_COMPILE": "1",
            "TRITON_DEFAULT_FP_FUSION": "1",  # contraction, as TileIR allows it; this version asks to say so
        }
        # Both as they are when installed: with bytecode, which the first child writes where there is none.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        if self.name == "tileir":
            paths = [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
            environment["PYTHONPATH"] = os.pathsep.join(paths)
        return environment

    @property
    def command(self) -> list[str]:
        return [self.python, str(HERE / "compile_child.py"), self.name]


class Server:
    """A child that compiles on request, its imports done."""

    def __init__(self, compiler: Compiler) -> None:
        self.scratch = tempfile.mkdtemp(prefix="compile-time-")
        self.child = Child(compiler.command, compiler.environment(self.scratch))
        self.count = 0

    def compile(self, job: Job) -> Job:
        """One compile of a job under a name that was never compiled before. RuntimeError with the compiler's message."""
        self.count += 1
        return self.child.ask({**job, "name": f"gemm_{self.count}"})

    def stop(self) -> None:
        self.child.stop()
        shutil.rmtree(self.scratch, ignore_errors=True)


def time_process(compiler: Compiler, job: Job) -> float:
    """Seconds of a whole process that compiles once."""
    with tempfile.TemporaryDirectory(prefix="compile-time-") as scratch:
        path = Path(scratch) / "job.json"
        path.write_text(json.dumps({**job, "name": "gemm"}), "utf-8")
        start = time.perf_counter()
        subprocess.run([*compiler.command, str(path)], env=compiler.environment(scratch), check=True)
        return time.perf_counter() - start


def find_compilers(triton_python: str | None) -> list[Compiler]:
    """TileIR, and Triton if an interpreter has it; says how to get it if none has. SystemExit if the named one has not."""
    found = [Compiler("tileir", sys.executable)]
    python = triton_python or sys.executable
    try:
        probe = subprocess.run(
            [python, "-c", "import triton; print(triton.__version__)"], capture_output=True, text=True
        )
        version = probe.stdout.strip() if probe.returncode == 0 else ""
    except OSError as e:
        raise SystemExit(f"error: {python} cannot be run: {e.strerror}") from None
    if not version:
        if triton_python:
            raise SystemExit(
                f"error: {python} has no triton; install it with: {python} -m pip install triton=={TRITON_VERSION}"
            )
        print(
            f"Triton is not installed here, so only TileIR is measured. For the comparison make a virtual environment, run\n"
            f"  pip install triton=={TRITON_VERSION}\nin it, and name its interpreter with --triton-python."
        )
        return found
    if version != TRITON_VERSION:
        print(f"note: this is Triton {version}; the figures in docs/benchmarks.md are for {TRITON_VERSION}")
    return [*found, Compiler("triton", python)]
