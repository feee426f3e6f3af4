"""What the command line tools share: reading and writing files, diagnostics, and a last resort for faults of our own."""

from __future__ import annotations

import argparse
import errno
import functools
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tileir.collector import end_without_collection

if TYPE_CHECKING:
    from tileir.ir.diagnostics import Diagnostic

EXIT_OK, EXIT_ERROR, EXIT_USAGE, EXIT_INTERNAL = 0, 1, 2, 3


class UsageError(Exception):
    """The command line asks for something that cannot be; the message is shown after the name of the tool."""


def run_tool(name: str, main: Callable[[Sequence[str]], int], argv: Sequence[str] | None) -> int:
    """Runs a tool and turns everything that can go wrong into a message and an exit status: 1 for diagnostics, 2 for
    usage, 3 for a fault of TileIR itself. Never a traceback."""
    if argv is None:  # the process ends with this tool
        end_without_collection()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = functools.partial(_show_warning, name)
            status = main(sys.argv[1:] if argv is None else argv)
        if sys.stdout is not None:  # None where the descriptor was closed before the start
            sys.stdout.flush()
        return status
    except UsageError as e:
        print(f"{name}: {e}\nTry '{name} --help'.", file=sys.stderr)
        return EXIT_USAGE
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader has gone; nothing to say to it
        return EXIT_OK
    except KeyboardInterrupt:
        return 130
    except OSError as e:
        if e.filename is not None or e.errno not in (errno.ENOSPC, errno.EIO, errno.EBADF):
            return _internal(name, e)
        print(f"{name}: cannot write the output: {e.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left in the buffer has nowhere to go
        return EXIT_USAGE
    except (Exception, RecursionError) as e:
        # the compiler's errors: where it has not been loaded there are none, and the simulator's tool never loads it
        if "tileir.ir.diagnostics" in sys.modules:
            from tileir.ir.diagnostics import CompileError

            if isinstance(e, CompileError):
                print(e.render(), file=sys.stderr)
                return EXIT_ERROR
        return _internal(name, e)


def _show_warning(name: str, message: Warning | str, category: type[Warning], *place: object, **more: object) -> None:
    """A warning as one line."""
    print(f"{name}: warning: {message}", file=sys.stderr)


def _internal(name: str, e: BaseException) -> int:
    """The last resort."""
    place = traceback.extract_tb(e.__traceback__)[-1]
    where = f"{Path(place.filename).name}:{place.lineno}"
    print(
        f"{name}: internal error [E0900]: {type(e).__name__}: {e} ({where})\n"
        "  = note: this is a fault of TileIR, not of the file; please report it with the command and the file",
        file=sys.stderr,
    )
    if os.environ.get("TILEIR_TRACEBACK"):
        traceback.print_exception(e)
    return EXIT_INTERNAL


def read_text(path: str) -> tuple[str, str]:
    """Text of a file (`-` is standard input) and its name in diagnostics. Raises UsageError, or CompileError for bytes
    that are no UTF-8."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as e:
        raise UsageError(f"cannot read '{path}': {e.strerror or e}") from None
    name = "<stdin>" if path == "-" else path
    try:
        return data.decode("utf-8"), name
    except UnicodeDecodeError:
        from tileir.frontend.source import decode  # loads the front end: only to say where the fault is

        return decode(data, name), name


def write_output(path: str | None, data: str | bytes) -> None:
    """Writes to a file, whole or not at all, or to standard output (None or `-`)."""
    binary = data if isinstance(data, bytes) else data.encode()
    if path in (None, "-"):
        if sys.stdout is None:
            raise UsageError("standard output is closed; -o OUT writes to a file")
        if isinstance(data, bytes) and sys.stdout.isatty():
            raise UsageError("binary output goes to a file: -o OUT, or redirect it")
        sys.stdout.buffer.write(binary)
        sys.stdout.buffer.flush()
        return
    assert path is not None
    target = Path(path)
    if target.exists() and not target.is_file():  # a device such as /dev/null cannot be replaced
        try:
            target.write_bytes(binary)
        except OSError as e:
            raise UsageError(f"cannot write '{path}': {e.strerror or e}") from None
        return
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent or ".")
        with os.fdopen(handle, "wb") as f:
            f.write(binary)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except OSError as e:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise UsageError(f"cannot write '{path}': {e.strerror or e}") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def parameters(definitions: Iterable[str]) -> dict[str, str]:
    """`NAME=VALUE` settings of -D. Raises UsageError."""
    found: dict[str, str] = {}
    for text in definitions:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise UsageError(f"-D wants NAME=VALUE, not '{text}'; for example -D BM=128 or -D T=f16")
        if name.strip() in found:
            raise UsageError(f"-D {name.strip()} is given twice")
        found[name.strip()] = value.strip()
    return found


def report(diagnostics: Iterable[Diagnostic], sources: Mapping[str, str], *, remarks: bool) -> None:
    """Warnings, and remarks if wanted, on standard error; each once."""
    shown: set[str] = set()
    for d in diagnostics:
        text = d.render(sources)
        if (d.severity != "remark" or remarks) and text not in shown:
            shown.add(text)
            print(text, file=sys.stderr)


class Parser(argparse.ArgumentParser):
    """An argument parser with our exit status and formatting."""

    def __init__(self, *, prog: str, description: str, epilog: str):
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self.add_argument("--version", action="version", version=f"%(prog)s {_version()}")


def _version() -> str:
    import tileir

    return tileir.__version__
