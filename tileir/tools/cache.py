"""`tileir-cache`: looks at, checks and empties the cache of compiled kernels."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tileir.cache import location
from tileir.cache.outcome import Outcome, decode
from tileir.cache.store import Entry, Store
from tileir.tools.common import EXIT_ERROR, EXIT_OK, Parser, UsageError, run_tool

DESCRIPTION = """\
Looks at, checks and empties the cache of compiled kernels, and the native code that the simulator keeps beside it."""

EPILOG = """\
commands:
  info     where the cache is, how large it is and may become; with --list every kernel in it
  clear    remove everything; kernels are compiled again when they are needed
  verify   read every entry and report those that are damaged; with --remove, remove them (a compilation does so by itself)

environment:
  TILEIR_CACHE        0: read and write no cache; simulator: only that of the simulator
  TILEIR_CACHE_DIR    the directory (default: $XDG_CACHE_HOME/tileir, else ~/.cache/tileir)
  TILEIR_CACHE_LIMIT  how large compiled kernels may become together, such as 512M or 4G (default 1G)

exit status: 0 success, 1 damaged entries were found, 2 wrong usage, 3 a fault of TileIR."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = Parser(prog="tileir-cache", description=DESCRIPTION, epilog=EPILOG)
    p.add_argument("command", choices=("info", "clear", "verify"), help="what to do; see below")
    p.add_argument("--json", action="store_true", help="print as JSON (info)")
    p.add_argument("--list", action="store_true", help="list all kernels, the least recently used first (info)")
    p.add_argument("--remove", action="store_true", help="remove damaged entries (verify)")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `tileir-cache`; returns the exit status."""
    return run_tool("tileir-cache", _main, argv)


def _main(argv: Sequence[str]) -> int:
    args = parser().parse_args(argv)
    if (args.json or args.list) and args.command != "info":
        raise UsageError("--json and --list belong to info")
    if args.remove and args.command != "verify":
        raise UsageError("--remove belongs to verify; clear removes everything")
    settings = location.settings()
    store = location.store(disabled_too=True)
    if store is None or settings.directory is None:
        raise UsageError("there is no place for a cache: the user has no home directory; set TILEIR_CACHE_DIR")
    match args.command:
        case "info":
            return _info(args, store, settings)
        case "clear":
            return _clear(store, settings.directory / location.SIMULATOR)
        case _:
            return _verify(store, remove=args.remove)


def _info(args: argparse.Namespace, store: Store, settings: location.Settings) -> int:
    assert settings.directory is not None
    entries = store.entries()
    native = _files(settings.directory / location.SIMULATOR)
    listed = [(e, _read(store, e)) for e in entries] if args.list else []
    if args.json:
        found: dict[str, object] = {
            "directory": str(settings.directory),
            "enabled": settings.enabled,
            "kernels": len(entries),
            "bytes": sum(e.size for e in entries),
            "limit": settings.limit,
            "simulator_files": len(native),
            "simulator_bytes": sum(native),
        }
        if args.list:
            found["entries"] = [
                {"key": e.key, "bytes": e.size, "used": e.used, "kernel": _name(o), "target": o.target if o else None}
                for e, o in listed
            ]
        print(json.dumps(found, indent=2))
        return EXIT_OK
    off = "" if settings.enabled else ", switched off by TILEIR_CACHE"
    print(f"directory  {settings.directory}{off}")
    print(f"kernels    {len(entries)} in {size_text(sum(e.size for e in entries))} of {size_text(settings.limit)}")
    if entries:
        print(f"last use   {_when(entries[0].used)} to {_when(entries[-1].used)}")
    print(f"simulator  {len(native)} files in {size_text(sum(native))}")
    for entry, outcome in listed:
        what = f"{_name(outcome)} for {outcome.target}" if outcome is not None else "damaged"
        print(f"{entry.key[:16]}  {_when(entry.used)}  {size_text(entry.size):>9}  {what}")
    return EXIT_OK


def _clear(store: Store, simulator: Path) -> int:
    removed = store.clear()
    native = _files(simulator)
    shutil.rmtree(simulator, ignore_errors=True)
    print(f"removed {removed.count} files of kernels ({size_text(removed.size)})", end="")
    print(f" and {len(native)} of the simulator ({size_text(sum(native))})")
    return EXIT_OK


def _verify(store: Store, *, remove: bool) -> int:
    entries = store.entries()
    bad = list(store.damaged())
    broken = {e.key for e, _ in bad}
    bad += [(e, "it holds no compiled kernel") for e in entries if e.key not in broken and _read(store, e) is None]
    for entry, reason in bad:
        print(f"{entry.key}: {reason}", file=sys.stderr)
        if remove:
            store.discard(entry.key)
    print(f"{len(entries) - len(bad)} entries are sound, {len(bad)} damaged{' and removed' if remove and bad else ''}")
    return EXIT_ERROR if bad else EXIT_OK


def _read(store: Store, entry: Entry) -> Outcome | None:
    """What an entry holds; None if it is damaged."""
    try:
        body = store.peek(entry.key)
        return None if body is None else decode(body)
    except ValueError:
        return None


def _name(outcome: Outcome | None) -> str | None:
    return str(outcome.stats.get("kernel")) if outcome is not None else None


def _files(directory: Path) -> list[int]:
    """Sizes of all files below a directory."""
    found: list[int] = []
    for path in directory.rglob("*") if directory.is_dir() else ():
        try:
            if path.is_file():
                found.append(path.stat().st_size)
        except OSError:
            continue
    return found


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def size_text(size: int) -> str:
    """Bytes for people: three significant digits and a unit of a power of 1024."""
    value, units = float(size), iter(("KiB", "MiB", "GiB"))
    unit = "bytes"
    while value >= 1000:
        value, unit = value / 1024, next(units, "TiB")
        if unit == "TiB":
            break
    return f"{value:.3g} {unit}"


if __name__ == "__main__":
    sys.exit(main())
