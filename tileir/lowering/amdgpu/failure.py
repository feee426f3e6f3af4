"""What went wrong in code generation, and how the last words of a dying worker are read."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Sequence

from tileir.records import dataclass

MESSAGE_MARK = "tileir-message "
"""Starts a line on the worker's error output that carries a located message, so that it outlives the worker."""
FATAL = "fatal"
"""The severity of a message because of which the worker ended by itself."""


@dataclass(frozen=True)
class CodegenDiagnostic:
    """A message of MLIR, LLVM or the assembler. `line` and `column` count from 1, 0 where unknown.

    `file` is the name in the MLIR location or debug info (usually a `.tile` file); empty means the text handed in.
    """

    severity: str
    message: str
    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        column = f"{self.column}:" if self.column else ""
        place = f"{self.file or '<input>'}:{self.line}:{column} " if self.line else ""
        return f"{place}{self.severity}: {self.message}"


class CodegenError(Exception):
    """Code generation failed.

    `message` says what in one line, `diagnostics` are the located messages there are, `stderr` is the tail of what
    the worker printed before it died (empty when it did not), `crashed` tells whether the process died.
    """

    def __init__(
        self,
        message: str,
        diagnostics: Sequence[CodegenDiagnostic] = (),
        stderr: str = "",
        crashed: bool = False,
    ) -> None:
        self.message = message
        self.diagnostics = tuple(diagnostics)
        self.stderr = stderr
        self.crashed = crashed
        told = any(d.message == message for d in self.diagnostics)
        super().__init__("\n".join([*([] if told else [message]), *map(str, self.diagnostics)]))


# What a dying LLVM prints, and what it means. `{operation}` is the intrinsic that the output names.
_DEATHS = (
    (
        re.compile(
            r"local memory \((?P<used>\d+)\) exceeds limit \((?P<limit>\d+)\)(?: in function '(?P<name>[^']*)')?"
        ),
        "{name} needs {used} bytes of LDS, the chip has {limit}",
    ),
    (
        re.compile(r"Cannot select: .*|Do not know how to .*"),
        "the instruction selector has no machine instruction for {operation} on this chip",
    ),
    (re.compile(r"Assertion `(?P<claim>.*)' failed"), "an assertion inside MLIR or LLVM failed: {claim}"),
    (re.compile(r"LLVM ERROR: (?P<what>.*)"), "LLVM gave up: {what}"),
    (re.compile(r"^error: (?:\S+:\d+:\d+: )?(?P<what>.*)", re.MULTILINE), "LLVM rejected the kernel: {what}"),
)
_INTRINSIC = re.compile(r"\b(llvm\.[a-z0-9]+\.[\w.]*\w)")
# A place in debug info: at the start of a message, or at the end of a line of a printed graph node.
_PLACE = re.compile(r"(?:^error: |, )([^\s:]+):(\d+):(\d+)(?:: |$)", re.MULTILINE)


def explain_death(status: int | None, stderr: str, stage: str, text: str) -> CodegenError:
    """The error for a worker that ended while it compiled `text`.

    `status` is its exit status, negative for a signal, None if it lives but answered nonsense; `stderr` what it
    printed last.
    """
    output = stderr.partition("Fatal Python error")[0]
    messages = read_messages(output)
    for message in messages:
        if message.severity == FATAL:
            return CodegenError(message.message, (), stderr, True)
    reported = [m for m in messages if m.severity == "error" and m.line]
    output = "".join(line for line in output.splitlines(True) if not line.startswith(MESSAGE_MARK))
    for pattern, words in _DEATHS:
        found = pattern.search(output)
        if found is not None:
            values = {key: value or "the kernel" for key, value in found.groupdict().items()}
            named = _INTRINSIC.search(output)
            values["operation"] = named[1] if named else found[0].partition(":")[2].strip() or "an operation"
            message = words.format(**values)
            place = _place(output) or (_first_use(stage, text, named[1]) if named else None)
            if place is not None and not reported:
                reported = [CodegenDiagnostic("error", message, *place)]
            return CodegenError(message, reported, stderr, True)
    if reported:
        return CodegenError("MLIR could not be translated to LLVM IR", reported, stderr, True)
    return CodegenError(_unknown_death(status, output), (), stderr, True)


def _unknown_death(status: int | None, output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if status is None:
        return "the code generator sent something that is not an answer"
    if status >= 0:
        # A Python error prints its cause last.
        return f"the code generator ended with status {status}" + (f": {lines[-1]}" if lines else "")
    name = signal.Signals(-status).name + (" (out of memory?)" if status == -signal.SIGKILL else "")
    return f"the code generator died of {name}" + (f": {lines[0]}" if lines else "")


def _place(output: str) -> tuple[str, int, int] | None:
    found = _PLACE.search(output)
    if found is None or found[1].startswith("<"):
        return None
    return ("" if found[1] == "-" else found[1], int(found[2]), int(found[3]))


def _first_use(stage: str, text: str, intrinsic: str) -> tuple[str, int, int] | None:
    """Where `text` first uses an intrinsic: the location that MLIR text gives the line, else the line itself."""
    if stage == "mlir":
        found = re.search(rf"(?<![\w.]){re.escape(intrinsic.replace('llvm.amdgcn.', 'rocdl.'))}(?![\w.])", text)
    else:
        found = re.search(rf"\bcall [^\n]*@{re.escape(intrinsic)}\(", text)
    if found is None:
        return None
    start = text.rfind("\n", 0, found.start()) + 1
    line = text[start : text.find("\n", found.start())]
    location = re.search(r'loc\((?:"([^"]+)":(\d+):(\d+)|(#\w+))', line)
    if location is not None and location[4]:
        location = re.search(rf'^{location[4]} = loc\("([^"]+)":(\d+):(\d+)\)', text, re.MULTILINE)
    if location is not None:
        return location[1], int(location[2]), int(location[3])
    return "", text.count("\n", 0, start) + 1, found.start() - start + 1


def read_messages(printed: str) -> tuple[CodegenDiagnostic, ...]:
    """The messages in what a worker printed: marked ones, and lines of LLVM."""
    found: list[CodegenDiagnostic] = []
    for line in printed.splitlines():
        if line.startswith(MESSAGE_MARK):
            severity, message, file, row, column = json.loads(line.removeprefix(MESSAGE_MARK))
            found.append(CodegenDiagnostic(severity, message, file, row, column))
        elif line.strip():
            parts = re.fullmatch(r"(?:(\S+?):(\d+):(\d+): )?(?:(warning|remark|error): )?(.*)", line.strip())
            assert parts is not None
            file, row, column, severity, message = parts.groups()
            place = (file, int(row), int(column)) if file is not None and not file.startswith("<") else ("", 0, 0)
            found.append(CodegenDiagnostic(severity or "warning", message, *place))
    return tuple(found)
