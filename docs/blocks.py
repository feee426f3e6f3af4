"""Runs every example of the documentation, so that none can go stale. `tests/docs` calls it; so can you:

    python docs/blocks.py README.md docs/*.md          # run, report what does not hold
    python docs/blocks.py --update README.md           # write the output that commands really give

What is run, by the words after the three backquotes:

    tile                 the text parses; one that does not begin with "tileir" is taken as statements of a kernel (FRAME)
    tile compile         ... and compiles to a code object for both chips
    tile error=E0105     ... or is rejected with that code
    tile whole           ... is a whole file whatever it begins with
    tile op=NAME         the example in the declaration of an op
    tile file=NAME       the text is there under that name for the blocks below
    sh                   lines "$ command" run, one after the other, in a directory of this document; what follows them up to
                         the next command is their output, standard error included. Exit status 0 is wanted
    sh fails             ... the last command must fail
    python               a script; an `output` block right below holds what it prints
    python needs=MODULE  ... that is only run where the module is installed

In expected output "…" stands for any text within a line, and a line that is only "…" for any lines: for what changes from
run to run, such as times. Blocks with any other word are shown only. The commands of TileIR are those of this tree; `examples/` is there.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT = 300.0
"""Seconds that one command may take."""

FRAME = """tileir 1

kernel @example(%A: global<f32[M, K]>, %B: global<f32[N, K]>, %C: global<f32[M, N]>, %x: f32, %n: i32)
    grid(cdiv(M, 64), cdiv(N, 64)) {{
  %i, %j = program_id()
{body}
}}
"""

_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ ((?:[^\n]*\\\n)*[^\n]*)\n?", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: the words behind its fence, its text, where it begins (line of the text, offset of the text)."""

    document: Path
    words: tuple[str, ...]
    text: str
    line: int
    offset: int

    @property
    def language(self) -> str:
        return self.words[0] if self.words else ""

    def value(self, key: str) -> str:
        """The value of a word `key=value`, "" if there is none."""
        return next((w.partition("=")[2] for w in self.words if w.startswith(f"{key}=")), "")

    def __str__(self) -> str:
        return f"{self.document.name}:{self.line}"


def blocks(document: Path) -> list[Block]:
    """All fenced blocks of a document."""
    text = document.read_text(encoding="utf-8")
    found: list[Block] = []
    for m in _FENCE.finditer(text):
        line = text.count("\n", 0, m.start(2)) + 1
        found.append(Block(document, tuple(m.group(1).split()), m.group(2), line, m.start(2)))
    return found


@dataclass(frozen=True)
class Command:
    """A command of an `sh` block and the output that the document shows."""

    text: str
    expected: str
    start: int
    end: int


def commands(block: Block) -> Iterator[Command]:
    """The commands of a block; `start` and `end` are the offsets of the expected output within the document."""
    found = list(_COMMAND.finditer(block.text))
    for m, following in itertools.zip_longest(found, found[1:]):
        end = following.start() if following is not None else len(block.text)
        expected = block.text[m.end() : end]
        yield Command(m.group(1), expected, block.offset + m.end(), block.offset + end)


def matches(expected: str, actual: str) -> bool:
    """Whether an output is the expected one, with "…" for what may differ. Space at line ends does not count."""
    pattern = ""
    for line in _stripped(expected):
        if line == "…":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += "[^\n]*".join(map(re.escape, line.split("…"))) + r"\n"
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in _stripped(actual))) is not None


def merged(expected: str, actual: str) -> str:
    """The actual output, with the lines of the expected one that stand for it kept: they may hide what varies."""
    kept = [line for line in _stripped(expected) if "…" in line and line != "…"]
    lines = [next((k for k in kept if matches(k, line)), line) for line in _stripped(actual)]
    return "".join(f"{line}\n" for line in lines)


def _stripped(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")] if text.strip() else []


class Runner:
    """Runs the blocks of one document in a directory that is removed afterwards."""

    def __init__(self, document: Path):
        self.document = document
        self.failures: list[str] = []
        self.actual: list[tuple[int, int, str]] = []
        self.count = 0

    def run(self) -> list[str]:
        """Everything that does not hold, each with its place."""
        found = blocks(self.document)
        with tempfile.TemporaryDirectory(prefix="tileir-docs-") as directory:
            self.directory = Path(directory)
            (self.directory / "examples").symlink_to(ROOT / "examples")
            self._commands()
            for block, following in itertools.zip_longest(found, found[1:]):
                self._block(block, following)
        return self.failures

    def _commands(self) -> None:
        """Small scripts with the names of the console commands."""
        bin_directory = self.directory / ".bin"
        bin_directory.mkdir()
        for name in ("opt", "run", "inspect", "sim", "cache", "bundle", "tune"):
            script = bin_directory / f"tileir-{name}"
            script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tileir.tools.{name} "$@"\n')
            script.chmod(0o755)
        python = bin_directory / "python"
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        python.chmod(0o755)
        path = os.pathsep.join([str(bin_directory), os.environ.get("PATH", "")])
        pythonpath = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.environment = {**os.environ, "PATH": path, "PYTHONPATH": pythonpath, "COLUMNS": "120"}
        self.environment.pop("PYTHONHASHSEED", None)
        self.environment["TILEIR_CACHE"] = (
            "simulator"  # examples show compilations; those of the cache say so themselves
        )

    def _block(self, block: Block, following: Block | None) -> None:
        match block.language:
            case "tile":
                self._tile(block)
            case "sh":
                self._sh(block)
            case "python":
                if (needed := block.value("needs")) and importlib.util.find_spec(needed) is None:
                    return
                self._python(block, following)
            case _:
                return
        self.count += 1

    def _fail(self, block: Block, text: str) -> None:
        self.failures.append(f"{block}: {text}")

    def _tile(self, block: Block) -> None:
        from tileir.frontend import parse
        from tileir.frontend.examples import example_kernel
        from tileir.ir.diagnostics import CompileError
        from tileir.ir.registry import get
        from tileir.lowering.amdgpu.compile import compile_kernel

        text = block.text
        if name := block.value("op"):
            text = example_kernel(get(name))
            if block.text.rstrip() != get(name).example:
                self._fail(block, f"this is not the example that '{name}' is declared with")
        if not text.startswith("tileir") and "whole" not in block.words:
            text = FRAME.format(body="\n".join(f"  {line}" for line in text.rstrip().split("\n")))
        if name := block.value("file"):
            (self.directory / name).write_text(block.text, encoding="utf-8")
        code = block.value("error")
        try:
            module = parse(text, block.value("file") or str(block))
            if code or "compile" in block.words:
                for kernel in module.kernels:
                    for chip in ("gfx942", "gfx950"):
                        compile_kernel(module, kernel.name, chip)
        except CompileError as e:
            codes = [d.code for d in e.diagnostics]
            if not code:
                self._fail(block, f"this should be accepted\n{e}")
            elif code not in codes:
                self._fail(block, f"this should be rejected with {code}, not {', '.join(codes)}\n{e}")
            return
        if code:
            self._fail(block, f"this should be rejected with {code}")

    def _sh(self, block: Block) -> None:
        found = list(commands(block))
        if not found:
            self._fail(block, "a sh block without a line '$ command' runs nothing")
        for i, command in enumerate(found):
            done = self._execute(["/bin/sh", "-c", command.text])
            if done is None:
                self._fail(block, f"`{command.text}` took more than {TIMEOUT:g} s")
                return
            wanted = "fails" not in block.words or i < len(found) - 1
            if (done.returncode == 0) != wanted:
                self._fail(block, f"`{command.text}` ended with status {done.returncode}\n{done.stdout}")
            if not matches(command.expected, done.stdout):
                self._fail(block, f"`{command.text}` printed\n{done.stdout}\ninstead of\n{command.expected}")
                self.actual.append((command.start, command.end, merged(command.expected, done.stdout)))

    def _python(self, block: Block, following: Block | None) -> None:
        done = self._execute([sys.executable, "-c", block.text])
        if done is None or done.returncode != 0:
            self._fail(block, f"the script failed\n{done.stdout if done is not None else 'timeout'}")
            return
        if following is None or following.language != "output":
            if done.stdout.strip():
                self._fail(block, f"the script prints\n{done.stdout}\nbut no `output` block follows")
        elif not matches(following.text, done.stdout):
            self._fail(block, f"the script printed\n{done.stdout}\ninstead of\n{following.text}")
            end = following.offset + len(following.text)
            self.actual.append((following.offset, end, merged(following.text, done.stdout)))

    def _execute(self, command: Sequence[str]) -> subprocess.CompletedProcess[str] | None:
        try:
            return subprocess.run(
                command,
                cwd=self.directory,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=TIMEOUT,
            )
        except subprocess.TimeoutExpired:
            return None

    def update(self) -> None:
        """Writes what the commands printed into the document, in place of what was shown."""
        text = self.document.read_text(encoding="utf-8")
        for start, end, actual in sorted(self.actual, reverse=True):
            text = text[:start] + actual + text[end:]
        self.document.write_text(text, encoding="utf-8")


def main() -> int:
    """Runs documents; exit status 1 if anything does not hold."""
    about = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about[0], epilog=about[2], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("documents", nargs="+", type=Path)
    parser.add_argument("--update", action="store_true", help="write the output that commands really give")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    status = 0
    for document in options.documents:
        runner = Runner(document.resolve())
        for failure in runner.run():
            print(failure)
            status = 1
        if options.update:
            runner.update()
        print(f"{document}: {runner.count} examples, {len(runner.failures)} do not hold")
    return status


if __name__ == "__main__":
    sys.exit(main())
