"""The worker process: reads requests from standard input, answers on what was standard output.

Started by `worker.Worker`. Its arguments are the process-wide LLVM options.
"""

from __future__ import annotations

import faulthandler
import json
import os
import select
import sys
import threading
import time
from typing import Any, cast

from tileir.lowering.amdgpu import protocol
from tileir.lowering.amdgpu.failure import FATAL, MESSAGE_MARK

_PARENT_CHECK_SECONDS = 1.0


def main(options: tuple[str, ...], chip: str) -> None:
    """Serves requests until the other end closes the pipe."""
    faulthandler.enable()
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    # Libraries print to standard output too: the pipe gets descriptors of its own.
    requests, answers = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)

    # The MLIR bindings import numpy where they can, for conversions that nobody asks for here; it costs 40 ms.
    sys.modules["numpy"] = cast(Any, None)
    from tileir.lowering.amdgpu import codegen

    try:
        contexts = codegen.initialise(options)
    except codegen.Rejected as error:
        print(MESSAGE_MARK + json.dumps([FATAL, str(error), "", 0, 0]), file=sys.stderr)
        sys.exit(1)
    codegen.warm_up(contexts, chip, lambda: bool(select.select([requests], [], [], 0)[0]))
    while (frame := _receive(requests)) is not None:
        message, blobs = frame
        answer, outputs, spent = _answer(message, blobs, contexts)
        _send(answers, answer, outputs)
        spent.clear()
        contexts.prepare()


def _end_with(parent: int) -> None:
    """Ends this process soon after the one that it works for, which may be killed in the middle of a long compile."""
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_SECONDS)
    os._exit(1)


def _answer(
    message: dict[str, Any], blobs: dict[str, bytes], contexts: Any
) -> tuple[dict[str, Any], dict[str, bytes], list[Any]]:
    """The answer, what was made, and what to free once that is sent."""
    from tileir.lowering.amdgpu import codegen

    request = codegen.Request(
        stage=message["stage"],
        text=blobs["text"].decode(),
        target=message["target"],
        code_object_version=message["code_object_version"],
        opt=message["opt"],
        passes=message["passes"],
        emit=tuple(message["emit"]),
        moved=tuple((a, b, count) for a, b, count in message["moved"]),
    )
    try:
        result = codegen.compile_request(request, contexts)
    except codegen.Rejected as error:
        located = [[d.severity, d.message, d.file, d.line, d.column] for d in error.located]
        return {"rejected": str(error), "located": located}, {}, []
    return {"timings": result.timings}, result.outputs, result.spent


def _receive(descriptor: int) -> tuple[dict[str, Any], dict[str, bytes]] | None:
    prefix = _read(descriptor, protocol.LENGTHS.size)
    if prefix is None:
        return None
    header_size, body_size = protocol.lengths(prefix)
    header = _read(descriptor, header_size)
    body = _read(descriptor, body_size)
    return None if header is None or body is None else protocol.decode(header, body)


def _read(descriptor: int, size: int) -> bytes | None:
    """`size` bytes, or None when the pipe closes first."""
    parts: list[bytes] = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _send(descriptor: int, message: dict[str, Any], blobs: dict[str, bytes]) -> None:
    view = memoryview(protocol.encode(message, blobs))
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BrokenPipeError:
            sys.exit(0)
