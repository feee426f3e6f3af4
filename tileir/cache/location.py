"""Where the cache lies, how large it may become, and whether it is wanted: all from the environment.

TILEIR_CACHE        0: nothing is read or written; simulator: only the simulator's own cache is used; else everything
TILEIR_CACHE_DIR    the directory (default: $XDG_CACHE_HOME/tileir, ~/.cache/tileir)
TILEIR_CACHE_LIMIT  bytes of compiled kernels, with K, M or G for powers of 1024 (default 1G)
"""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path

from tileir.cache.store import Store
from tileir.records import dataclass

DEFAULT_LIMIT = 1 << 30
KERNELS, SIMULATOR = "kernels", "simulator"
"""Subdirectories: compiled kernels, and the native code of the simulator (`tileir.simulator.cache`)."""
_SIZE = re.compile(r"(\d{1,12})([KMG]?)", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_said: set[str] = set()


class CacheWarning(UserWarning):
    """The cache does not work; compiling does, without it."""


@dataclass(frozen=True)
class Settings:
    """What the environment says. `directory` is None if there is no place for it."""

    enabled: bool
    directory: Path | None
    limit: int


def settings() -> Settings:
    """The settings as they are now."""
    return Settings(os.environ.get("TILEIR_CACHE", "") not in ("0", "off", SIMULATOR), _directory(), _limit())


def store(*, disabled_too: bool = False) -> Store | None:
    """The store of compiled kernels; None if it is not wanted or has no place."""
    found = settings()
    if found.directory is None or not (found.enabled or disabled_too):
        return None
    return Store(found.directory / KERNELS, found.limit, warn_once)


def warn_once(message: str) -> None:
    """Says something once in a process, as a CacheWarning."""
    if message not in _said:
        _said.add(message)
        warnings.warn(f"{message} (TILEIR_CACHE=0 does without)", CacheWarning, stacklevel=2)


def _directory() -> Path | None:
    if chosen := os.environ.get("TILEIR_CACHE_DIR"):
        return Path(chosen)
    root = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(root):  # relative ones are to be ignored (XDG Base Directory Specification)
        return Path(root) / "tileir"
    try:
        return Path.home() / ".cache" / "tileir"
    except RuntimeError:
        return None


def _limit() -> int:
    text = os.environ.get("TILEIR_CACHE_LIMIT", "").strip()
    if not text:
        return DEFAULT_LIMIT
    match = _SIZE.fullmatch(text)
    if match is None:
        warn_once(f"TILEIR_CACHE_LIMIT is '{text}', not a size such as 512M; the limit is 1G")
        return DEFAULT_LIMIT
    return int(match[1]) * _UNITS[match[2].upper()]
