"""Content-addressed cache of compiled ops on disk.

An entry is the object code of one op; its name is the SHA-256 of everything that determines it. The directory belongs
to the user and nobody else may write to it: machine code is executed from it. Entries are written atomically and carry
a digest, so that a truncated or foreign file is recompiled and never run.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

_DIGEST_BYTES = 32
_VERSIONS_KEPT = 4


def default_directory() -> Path | None:
    """``$TILEIR_CACHE_DIR/simulator``, else ``$XDG_CACHE_HOME/tileir/simulator``, else ``~/.cache/tileir/simulator``; none
    where ``$TILEIR_CACHE`` is 0, or the user has no home."""
    if os.environ.get("TILEIR_CACHE") in ("0", "off"):
        return None
    chosen = os.environ.get("TILEIR_CACHE_DIR")
    if chosen:
        return Path(chosen) / "simulator"
    root = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(root) if root else Path.home() / ".cache") / "tileir" / "simulator"
    except RuntimeError:
        return None


class ObjectCache:
    """Maps keys (hexadecimal digests) to bytes in a private directory; a directory of ``None`` caches nothing.

    Entries of one version of the generator share a subdirectory; the least recently used versions are removed.
    """

    def __init__(self, directory: Path | None, version: str) -> None:
        self.directory: Path | None = None
        if directory is None or not self._prepare(directory) or not self._prepare(directory / version):
            return
        self.directory = directory / version
        try:
            os.utime(self.directory)
            self._prune(directory)
        except OSError:
            return

    @staticmethod
    def _prune(directory: Path) -> None:
        versions = [entry for entry in directory.iterdir() if entry.is_dir() and len(entry.name) == 2 * _DIGEST_BYTES]
        versions.sort(key=lambda entry: entry.stat().st_mtime, reverse=True)
        for entry in versions[_VERSIONS_KEPT:]:
            shutil.rmtree(entry, ignore_errors=True)

    @staticmethod
    def _prepare(directory: Path) -> bool:
        try:
            for made in (*reversed(directory.parents), directory):  # `parents` would give those the mode of the umask
                if not made.exists():
                    made.mkdir(mode=0o700, exist_ok=True)
            status = directory.stat()
            way = [parent.stat() for parent in directory.resolve().parents]
        except OSError:
            return False
        me, others = os.getuid(), stat.S_IWGRP | stat.S_IWOTH
        # Who may rename a directory on the way may put another one in its place.
        if any(s.st_uid not in (0, me) or (s.st_mode & others and not s.st_mode & stat.S_ISVTX) for s in way):
            return False
        return status.st_uid == me and not status.st_mode & others

    def get(self, key: str) -> bytes | None:
        """The entry, or ``None`` when it is absent or damaged."""
        if self.directory is None:
            return None
        try:
            blob = (self.directory / key).read_bytes()
        except OSError:
            return None
        digest, data = blob[:_DIGEST_BYTES], blob[_DIGEST_BYTES:]
        return data if hashlib.sha256(data).digest() == digest else None

    def put(self, key: str, data: bytes) -> None:
        """Stores an entry; failure to write is not an error, the op is compiled again next time."""
        if self.directory is None:
            return
        try:
            handle, name = tempfile.mkstemp(dir=self.directory, prefix=".new-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(hashlib.sha256(data).digest() + data)
                os.replace(name, self.directory / key)
            except OSError:
                os.unlink(name)
                raise
        except OSError:
            return


def digest(parts: Iterable[str | bytes]) -> str:
    """SHA-256 over length-prefixed parts."""
    h = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        h.update(len(data).to_bytes(8, "little"))
        h.update(data)
    return h.hexdigest()
