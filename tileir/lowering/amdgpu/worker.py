"""Code generation in a process of its own: the side of the compiling process.

MLIR and LLVM abort, exit or crash on some inputs, and importing them takes 150 ms; so they live in a worker process
that stays up between compiles. Its death becomes a `CodegenError` here and the next compile gets a new worker. This
module imports neither MLIR nor LLVM.

    worker = worker_for(())
    worker.start()                      # returns at once; the imports overlap the front end
    code = worker.compile("mlir", text, "gfx950").hsaco
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import IO, Any

from tileir import target as targets
from tileir.lowering.amdgpu import protocol
from tileir.lowering.amdgpu.accumulation_file import Moves
from tileir.lowering.amdgpu.failure import CodegenDiagnostic, CodegenError, explain_death, read_messages
from tileir.records import dataclass

STAGES = ("mlir", "llvm", "asm")
OUTPUTS = ("mlir", "llvm", "asm", "obj", "hsaco")
PASSES = ("none", "minimal", "O1", "O2", "O3")
CODE_OBJECT_VERSIONS = (5, 6)
DEFAULT_TIMEOUT = 120.0
"""Seconds that a compile may take before its worker is killed."""

_STDERR_TAIL_BYTES = 8192
_STDERR_LIMIT_BYTES = 1 << 20
_PIPE_BYTES = 1 << 20  # what Linux allows everyone
_LAUNCH = "import json, sys; a = json.loads(sys.argv[1]); sys.path[:] = a['path']; \
from tileir.lowering.amdgpu.worker_main import main; main(tuple(a['options']), a['chip'])"


@dataclass(frozen=True)
class CompileOutput:
    """Results of `Worker.compile`; what was not asked for is None.

    `mlir` is the module after conversion to the `llvm` and `rocdl` dialects, with locations; `llvm` the LLVM IR after
    the IR passes; `asm` assembly that assembles again; `obj` the relocatable object; `hsaco` the code object.
    `timings` are seconds per step, `round_trip` among them is the whole wait of the caller. `diagnostics` are warnings.
    """

    mlir: str | None = None
    llvm: str | None = None
    asm: str | None = None
    obj: bytes | None = None
    hsaco: bytes | None = None
    timings: dict[str, float] = field(default_factory=dict[str, float])
    diagnostics: tuple[CodegenDiagnostic, ...] = ()


class Worker:
    """One code generation process with fixed LLVM options. Threads take turns; a forked child starts its own."""

    def __init__(self, options: Sequence[str] = ()) -> None:
        """`options` are process-wide options of LLVM such as `-enable-misched=0`."""
        self.options = tuple(options)
        for option in self.options:
            if not option.startswith("-"):
                raise CodegenError(f"'{option}' is not an LLVM option; one looks like -enable-misched=0")
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None

    def start(self) -> None:
        """Starts the process if there is none; returns at once, its imports run in parallel."""
        if self._lock.acquire(blocking=False):
            try:
                if self._process is None:
                    self._launch()
            finally:
                self._lock.release()

    def stop(self) -> None:
        """Ends the process. The next compile starts another."""
        with self._lock:
            self._kill()

    @property
    def pid(self) -> int | None:
        """The process id, None when there is no process."""
        return None if self._process is None else self._process.pid

    def compile(
        self,
        stage: str,
        text: str,
        target: str,
        *,
        code_object_version: int | None = None,
        opt: int = 2,
        passes: str = "none",
        emit: Sequence[str] = ("hsaco",),
        moved: Moves = (),
        timeout: float = DEFAULT_TIMEOUT,
    ) -> CompileOutput:
        """Compiles `text`; raises `CodegenError` for everything that goes wrong.

        `stage` says what the text is: "mlir" (a builtin.module with one gpu.module), "llvm" (LLVM IR) or "asm".
        `code_object_version` is 5 or 6; None means what the text states, else 5. `opt` is the level of LLVM's code
        generation (0 to 3; 2 gives the code of 3 in less time). `passes` are LLVM IR passes: "none" for text in final
        form, "minimal", or "O1" to "O3". `emit` names the wanted fields of the result, any of `OUTPUTS` from the
        stage on. `moved` renames registers of the accumulation file in LLVM's assembly (`accumulation_file.py`). `timeout` is in seconds.
        """
        emit = tuple(dict.fromkeys(emit))
        _check_request(stage, target, code_object_version, opt, passes, emit)
        request = {
            "stage": stage,
            "target": target,
            "code_object_version": code_object_version,
            "opt": opt,
            "passes": passes,
            "emit": emit,
            "moved": moved,
        }
        start = time.perf_counter()
        with self._lock:
            message, blobs, warnings = self._exchange(request, text, timeout)
        if "rejected" in message:
            located = [CodegenDiagnostic(*row) for row in message["located"]]
            raise CodegenError(message["rejected"], located)
        timings: dict[str, float] = {**message["timings"], "round_trip": time.perf_counter() - start}
        texts = {name: blobs[name].decode() for name in ("mlir", "llvm", "asm") if name in blobs}
        return CompileOutput(
            mlir=texts.get("mlir"),
            llvm=texts.get("llvm"),
            asm=texts.get("asm"),
            obj=blobs.get("obj"),
            hsaco=blobs.get("hsaco"),
            timings=timings,
            diagnostics=warnings,
        )

    def _launch(self) -> None:
        # In memory: a temporary file has no other use than to be read back, and the module for it takes 3 ms to import.
        stderr = os.fdopen(os.memfd_create("tileir-codegen"), "r+b", buffering=0)
        # The worker sees the modules that this process sees, whatever put them on the path.
        root = str(Path(__file__).resolve().parents[3])
        path = [root, *(entry or os.getcwd() for entry in sys.path)]
        arguments = json.dumps({"options": self.options, "chip": targets.names()[-1], "path": path})
        self._process = subprocess.Popen(
            # -S: the path is all that `site` would set up, and takes a third of the start.
            [sys.executable, "-S", "-c", _LAUNCH, arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            bufsize=0,
            # A group of its own: an interrupt at the terminal is for the compiler, which then ends the worker; and
            # the tools that the worker runs end with it.
            start_new_session=True,
        )
        self._stderr = stderr
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            _widen(pipe.fileno())

    def _exchange(
        self, request: dict[str, Any], text: str, timeout: float
    ) -> tuple[dict[str, Any], dict[str, bytes], tuple[CodegenDiagnostic, ...]]:
        stage = str(request["stage"])
        frame = protocol.encode(request, {"text": text.encode("utf-8", "replace")})
        if self._process is not None and self._process.poll() is not None:
            self._kill()  # died between compiles, for example killed from outside: not this request's fault
        if self._process is None:
            self._launch()
        assert self._stderr is not None
        try:
            offset = self._trim_stderr()
            message, blobs = self._transfer(frame, time.monotonic() + timeout)
            printed = os.pread(self._stderr.fileno(), _STDERR_TAIL_BYTES, offset).decode(errors="replace")
            return message, blobs, read_messages(printed)
        except TimeoutError:
            tail = self._stderr_tail()
            self._kill()
            raise CodegenError(f"code generation did not finish within {timeout:g} s", (), tail, True) from None
        except (EOFError, protocol.ProtocolError, ValueError) as error:
            raise self._death(stage, text) from error
        except BaseException:
            # Interrupted between request and answer: the pipe is of no further use.
            self._kill()
            raise

    def _transfer(self, frame: bytes, deadline: float) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Sends a frame and receives one; TimeoutError after the deadline, EOFError when the worker is gone."""
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        sink, source = process.stdin.fileno(), process.stdout.fileno()
        poller = select.poll()
        poller.register(source, select.POLLIN)
        view = memoryview(frame)
        if view:
            poller.register(sink, select.POLLOUT)
        received = bytearray()
        needed = protocol.LENGTHS.size
        sizes: tuple[int, int] | None = None
        while len(received) < needed:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError
            for descriptor, _ in poller.poll(remaining * 1000 + 1):
                if descriptor == sink:
                    view = _write_some(sink, view)
                    if not view:
                        poller.unregister(sink)
                else:
                    part = os.read(source, 1 << 20)
                    if not part:
                        raise EOFError
                    received += part
            if sizes is None and len(received) >= needed:
                sizes = protocol.lengths(bytes(received[:needed]))
                needed += sum(sizes)
        assert sizes is not None
        start = protocol.LENGTHS.size
        middle = start + sizes[0]
        return protocol.decode(bytes(received[start:middle]), bytes(received[middle:needed]))

    def _trim_stderr(self) -> int:
        """Where the output of the next request begins in the error file; empties the file when it has grown."""
        assert self._stderr is not None
        descriptor = self._stderr.fileno()
        size = os.fstat(descriptor).st_size
        if size > _STDERR_LIMIT_BYTES:
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)  # the worker shares this offset
            size = 0
        return size

    def _stderr_tail(self) -> str:
        assert self._stderr is not None
        descriptor = self._stderr.fileno()
        size = os.fstat(descriptor).st_size
        offset = max(0, size - _STDERR_TAIL_BYTES)
        return os.pread(descriptor, _STDERR_TAIL_BYTES, offset).decode(errors="replace")

    def _death(self, stage: str, text: str) -> CodegenError:
        """The error for a worker that died on a request; cleans up."""
        process = self._process
        assert process is not None
        try:
            status = process.wait(timeout=10)
        except subprocess.TimeoutExpired:  # it closed its pipe or sent rubbish, but lives
            status = None
        tail = self._stderr_tail()
        self._kill()
        return explain_death(status, tail, stage, text)

    def _kill(self) -> None:
        process, self._process = self._process, None
        stderr, self._stderr = self._stderr, None
        if process is not None:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            _close(process)
        if stderr is not None:
            stderr.close()

    def _forget(self) -> None:
        """In a forked child: the process belongs to the parent, and the lock may be held by a thread that is gone."""
        process, self._process = self._process, None
        stderr, self._stderr = self._stderr, None
        self._lock = threading.RLock()
        if process is not None:
            _close(process)
            process.returncode = 0  # not ours to wait for
        if stderr is not None:
            stderr.close()


def _widen(pipe: int) -> None:
    """Lets a pipe hold a whole text. With less the side that writes is woken for each part of it, and waits for the interpreter lock each
    time while another thread of its process computes."""
    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    except OSError:  # the user has too many: the pipe stays as it is
        pass


def _write_some(descriptor: int, view: memoryview) -> memoryview:
    try:
        return view[os.write(descriptor, view) :]
    except BlockingIOError:
        return view
    except BrokenPipeError:
        raise EOFError from None


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except BrokenPipeError:
                pass


def _check_request(stage: str, target: str, version: int | None, opt: int, passes: str, emit: tuple[str, ...]) -> None:
    def require(value: object, legal: Sequence[object], what: str) -> None:
        if value not in legal:
            raise CodegenError(f"{what} {value!r} is not one of {', '.join(map(str, legal))}")

    require(stage, STAGES, "stage")
    require(target, targets.names(), "target")
    require(passes, PASSES, "pass pipeline")
    require(opt, (0, 1, 2, 3), "code generation level")
    if version is not None:
        require(version, CODE_OBJECT_VERSIONS, "code object version")
    for output in emit:
        require(output, OUTPUTS[OUTPUTS.index(stage) :], f"output of stage '{stage}'")
    if not emit:
        raise CodegenError("no output was asked for")


_workers: dict[tuple[str, ...], Worker] = {}
_workers_lock = threading.Lock()


def worker_for(options: Sequence[str] = ()) -> Worker:
    """The worker of this process for a set of LLVM options; made, but not started, on first use."""
    key = tuple(options)
    with _workers_lock:
        if key not in _workers:
            _workers[key] = Worker(key)
        return _workers[key]


def stop_all() -> None:
    """Ends all workers of this process."""
    for worker in list(_workers.values()):
        worker.stop()


def _after_fork() -> None:
    global _workers_lock
    _workers_lock = threading.Lock()
    for worker in _workers.values():
        worker._forget()  # pyright: ignore[reportPrivateUsage]


atexit.register(stop_all)
os.register_at_fork(after_in_child=_after_fork)
