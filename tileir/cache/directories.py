"""Opening a directory that nobody else can have prepared or can change.

The path is walked from the root, one component at a time, and everything later happens relative to the descriptor that
comes out: who may replace a component afterwards could have done so only as root or as the user.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_WALK = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_LINKS = 40  # as many as the kernel follows (path_resolution(7))
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Unusable(Exception):
    """A directory that is not safe to use, or cannot be; the message says why and what would be legal."""


def open_private(path: Path, *, create: bool) -> int | None:
    """A descriptor of the directory, made with mode 0700 where it does not exist; None if it does not and is not to be made.

    Every directory on the way belongs to root or the user, and only they can write to it (or it has the sticky bit, as
    /tmp); links belong to root or the user; the directory itself belongs to the user. Raises Unusable, OSError.
    """
    pending = list(reversed((Path.cwd() / path).parts[1:]))
    links = 0
    here, walked = os.open("/", _WALK), "/"
    try:
        _check_way(here, walked)
        while pending:
            name = pending.pop()
            try:
                there = os.open(name, _WALK, dir_fd=here)
            except FileNotFoundError:
                if not create:
                    return None
                try:
                    os.mkdir(name, 0o700, dir_fd=here)
                except FileExistsError:
                    links += 1  # made in the meantime, or a link to nowhere, which must not be tried for ever
                    if links > _MAX_LINKS:
                        raise Unusable(f"'{os.path.join(walked, name)}' is not a directory") from None
                pending.append(name)
                continue
            except OSError as e:
                if e.errno not in (errno.ENOTDIR, errno.ELOOP):
                    raise
                links += 1
                target = _link(here, name, os.path.join(walked, name), links)
                pending.extend(reversed([p for p in Path(target).parts if p != "/"]))
                if os.path.isabs(target):
                    os.close(here)
                    here, walked = os.open("/", _WALK), "/"
                continue
            os.close(here)
            here, walked = there, os.path.join(walked, name)
            _check_way(here, walked)
        _check_own(here, walked)
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=here)
    finally:
        os.close(here)


def _link(here: int, name: str, shown: str, links: int) -> str:
    """Where a link of a trusted owner leads."""
    status = os.stat(name, dir_fd=here, follow_symlinks=False)
    if not stat.S_ISLNK(status.st_mode):
        raise Unusable(f"'{shown}' is not a directory")
    if status.st_uid not in (0, os.geteuid()):
        raise Unusable(
            f"the link '{shown}' belongs to user {status.st_uid}; links of root and of your own are followed"
        )
    if links > _MAX_LINKS:
        raise Unusable(f"too many links at '{shown}'")
    return os.readlink(name, dir_fd=here)


def _check_way(descriptor: int, shown: str) -> None:
    status = os.fstat(descriptor)
    if status.st_uid not in (0, os.geteuid()):
        raise Unusable(f"'{shown}' belongs to user {status.st_uid}; it must belong to you or to root")
    if status.st_mode & OTHERS_WRITE and not status.st_mode & stat.S_ISVTX:
        raise Unusable(f"others may write to '{shown}' (mode {stat.S_IMODE(status.st_mode):04o}); chmod go-w ends that")


def _check_own(descriptor: int, shown: str) -> None:
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid():
        raise Unusable(f"'{shown}' belongs to user {status.st_uid}; it must belong to you")
    if status.st_mode & OTHERS_WRITE:
        raise Unusable(f"others may write to '{shown}' (mode {stat.S_IMODE(status.st_mode):04o}); chmod go-w ends that")
