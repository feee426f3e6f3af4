"""Files of a cache: private, written whole or not at all, checked when read, bounded in size.

An entry is one file, named by its key (64 hexadecimal digits). Its bytes:

    8   magic "TILEIRC1"
    8   length of the body, little-endian
    32  SHA-256 of key and body
    …   the body

The digest covers the key, so that an entry under another's name is damaged. Reading and writing need no locks: writers make a
temporary file and rename it, readers see an old entry, a new one, or none. Locks only spare processes the making of what another
one is making (`alone`); without them, everything is as right. Time of last use is the modification time. Only this module's
own names are ever removed from the directory.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import secrets
import stat
import struct
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from tileir.cache.directories import OTHERS_WRITE, Unusable, open_private
from tileir.records import dataclass

MAGIC = b"TILEIRC1"
PREFIX = struct.Struct("<8sQ32s")
MAX_BYTES = 1 << 30
"""Of one entry: more is not read."""
_KEY = re.compile(r"[0-9a-f]{64}")
_TEMPORARY, _LOCK = ".new-", ".lock-"
LONGEST_WAIT = 120.0
"""Seconds that a process waits for another one that makes the entry it wants."""
_POLL_SECONDS = 0.02
_ABANDONED_SECONDS = 3600.0  # a temporary file this old has no writer any more
_KEPT = 0.9  # of the limit, after entries were removed: the next writer need not remove again


@dataclass(frozen=True)
class Entry:
    """One file: key, bytes, seconds since the epoch of its last use."""

    key: str
    size: int
    used: float


@dataclass(frozen=True)
class Removed:
    """What was removed: files and bytes."""

    count: int = 0
    size: int = 0


class Damaged(Exception):
    """Bytes that are no entry, and why."""


def pack(key: str, body: bytes) -> bytes:
    """The bytes of an entry."""
    return PREFIX.pack(MAGIC, len(body), hashlib.sha256(key.encode() + body).digest()) + body


def unpack(key: str, data: bytes) -> bytes:
    """The body of an entry. Raises Damaged."""
    if len(data) < PREFIX.size:
        raise Damaged(f"{len(data)} bytes are too few")
    magic, length, digest = PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise Damaged("it does not begin as an entry")
    body = data[PREFIX.size :]
    if len(body) != length:
        raise Damaged(f"it holds {len(body)} bytes of {length}")
    if hashlib.sha256(key.encode() + body).digest() != digest:
        raise Damaged("its checksum does not fit")
    return body


class Store:
    """A directory of entries of at most `limit` bytes together (a little more while several processes write).

    `report` is told what keeps the store from working, in a sentence. Reading and writing never raise: what cannot be
    read is not there, and what cannot be written is left out.
    """

    def __init__(self, directory: Path, limit: int, report: Callable[[str], None]):
        self.directory = directory
        self.limit = limit
        self._report = report
        self._unchecked = -1  # bytes that may be written until sizes are looked at again; negative: look now

    def get(self, key: str) -> bytes | None:
        """The body of an entry, None if there is none. A damaged one is removed."""
        with self._opened(create=False) as directory:
            if directory is None:
                return None
            try:
                return self._read(directory, key, touch=True)
            except FileNotFoundError:
                return None
            except Damaged:
                _unlink(directory, key)
                return None
        return None

    def peek(self, key: str) -> bytes | None:
        """The body of an entry, None if there is none or it is damaged; leaves everything as it is."""
        with self._opened(create=False) as directory:
            if directory is None:
                return None
            try:
                return self._read(directory, key, touch=False)
            except (FileNotFoundError, Damaged):
                return None
        return None

    def has(self, key: str) -> bool:
        """Whether there is an entry, good or damaged."""
        with self._opened(create=False) as directory:
            if directory is None:
                return False
            return _exists(directory, key)
        return False

    def put(self, key: str, body: bytes) -> bool:
        """Writes an entry; whether it is there now."""
        if not _KEY.fullmatch(key):
            raise ValueError(f"'{key}' is not a key")
        data = pack(key, body)
        if len(data) > min(self.limit, MAX_BYTES):
            return False
        with self._opened(create=True) as directory:
            if directory is None:
                return False
            if not _write(directory, key, data):
                return False
            self._unchecked -= len(data)
            if self._unchecked < 0:
                self._make_room(directory)
            return True
        return False

    @contextmanager
    def alone(self, key: str) -> Generator[bool, None, None]:
        """While an entry is made: waits for whoever is making it already, until it is there, the other one has gone, or
        `LONGEST_WAIT` has passed. Gives whether it had to wait: then the entry may be there."""
        lock, waited = self._lock(key)
        try:
            yield waited
        finally:
            if lock is not None:
                # whoever has opened this file already may get its lock beside the owner of a new one: both make the entry
                with self._opened(create=False) as directory:
                    if directory is not None:
                        _unlink(directory, _LOCK + key)
                os.close(lock)

    def _lock(self, key: str) -> tuple[int | None, bool]:
        """The lock of a key, None if somebody else keeps it or locks do not work here; and whether it had to wait."""
        waited = False
        with self._opened(create=True) as directory:
            if directory is None:
                return None, False
            lock = os.open(_LOCK + key, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory)
            deadline = time.monotonic() + LONGEST_WAIT
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return lock, waited
                except BlockingIOError:
                    waited = True
                except OSError:
                    break
                if time.monotonic() > deadline or _exists(directory, key):
                    break
                time.sleep(_POLL_SECONDS)
            os.close(lock)
        return None, waited

    def discard(self, key: str) -> None:
        """Removes an entry."""
        with self._opened(create=False) as directory:
            if directory is not None:
                _unlink(directory, key)

    def entries(self) -> list[Entry]:
        """All entries, the least recently used first."""
        with self._opened(create=False) as directory:
            return [] if directory is None else _entries(directory)
        return []

    def damaged(self) -> Generator[tuple[Entry, str], None, None]:
        """Entries that do not hold what was written, and why; reads all of them."""
        with self._opened(create=False) as directory:
            for entry in [] if directory is None else _entries(directory):
                assert directory is not None
                try:
                    self._read(directory, entry.key, touch=False)
                except FileNotFoundError:
                    continue
                except (Damaged, OSError) as e:
                    yield entry, str(e)

    def clear(self) -> Removed:
        """Removes all entries and what writers left behind."""
        with self._opened(create=False) as directory:
            if directory is None:
                return Removed()
            return _remove(directory, [*_entries(directory), *_temporaries(directory, older_than=0.0)])
        return Removed()

    @contextmanager
    def _opened(self, *, create: bool) -> Generator[int | None, None, None]:
        """The directory; problems with it, or with what is done in it, are reported and end the block."""
        descriptor: int | None = None
        try:
            descriptor = open_private(self.directory, create=create)
        except (Unusable, OSError) as e:
            self._complain(e, create)
        try:
            yield descriptor
        except OSError as e:
            self._complain(e, create)
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _complain(self, e: Unusable | OSError, writing: bool) -> None:
        if isinstance(e, Unusable):
            self._report(f"the cache is not used: {e}")
        else:
            done = "written" if writing else "read"
            self._report(f"the cache in '{self.directory}' cannot be {done}: {e.strerror or e}")

    def _read(self, directory: int, key: str, *, touch: bool) -> bytes:
        try:
            descriptor = os.open(key, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
        except OSError as e:
            if e.errno == errno.ELOOP:
                raise Damaged("it is a link") from None
            raise
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise Damaged("it is not a file")
            if status.st_uid != os.geteuid() or status.st_mode & OTHERS_WRITE:
                raise Damaged("others may write to it")
            if status.st_size > MAX_BYTES:
                raise Damaged(f"it has {status.st_size} bytes")
            body = unpack(key, file.read())
            if touch:
                try:
                    os.utime(descriptor)
                except OSError:
                    pass  # a directory that is only read keeps its times
            return body

    def _make_room(self, directory: int) -> None:
        """Removes the least recently used entries where all together pass the limit, and abandoned temporary files."""
        _remove(directory, _temporaries(directory, older_than=_ABANDONED_SECONDS))
        entries = _entries(directory)
        total = sum(e.size for e in entries)
        if total > self.limit:
            old: list[Entry] = []
            for entry in entries[:-1]:  # the last is what was written just now
                if total <= self.limit * _KEPT:
                    break
                old.append(entry)
                total -= entry.size
            _remove(directory, old)
        self._unchecked = (self.limit - total) // 16  # others write, too


def _write(directory: int, key: str, data: bytes) -> bool:
    """Temporary file, flush to the disk, rename. False if the temporary file was cleared away meanwhile."""
    temporary = f"{_TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600, dir_fd=directory)
    try:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, key, src_dir_fd=directory, dst_dir_fd=directory)
        return True
    except FileNotFoundError:
        return False
    except BaseException:
        _unlink(directory, temporary)
        raise


def _exists(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _unlink(directory: int, name: str) -> bool:
    try:
        os.unlink(name, dir_fd=directory)
        return True
    except OSError:
        return False


def _listed(directory: int, wanted: Callable[[str], bool]) -> list[Entry]:
    found: list[Entry] = []
    with os.scandir(directory) as names:
        for item in names:
            if wanted(item.name):
                try:
                    status = item.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if not stat.S_ISDIR(status.st_mode):
                    found.append(Entry(item.name, status.st_size, status.st_mtime))
    return sorted(found, key=lambda e: (e.used, e.key))


def _entries(directory: int) -> list[Entry]:
    return _listed(directory, lambda name: _KEY.fullmatch(name) is not None)


def _temporaries(directory: int, *, older_than: float) -> list[Entry]:
    limit = time.time() - older_than
    return [e for e in _listed(directory, lambda name: name.startswith((_TEMPORARY, _LOCK))) if e.used <= limit]


def _remove(directory: int, entries: list[Entry]) -> Removed:
    gone = [e for e in entries if _unlink(directory, e.key)]
    return Removed(len(gone), sum(e.size for e in gone))
