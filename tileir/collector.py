"""Keeps Python's cyclic garbage collector from slowing long compilations down.

The IR is a net of references, so what a collection of the oldest generation walks grows with the kernel, and how often it
happens grows with the allocations: together worse than linear.
"""

from __future__ import annotations

import atexit
import gc
from collections.abc import Generator
from contextlib import contextmanager

ENOUGH = 2_000_000
"""Containers that may pile up before `collect_if_much` collects: a few hundred megabytes."""


@contextmanager
def collector_paused() -> Generator[None, None, None]:
    """No collections within, unless somebody else in the process turns them on."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def collect_if_much() -> None:
    """A collection if many containers were made since the last one. For places in a long pause that leave garbage behind."""
    if not gc.isenabled() and gc.get_count()[0] > ENOUGH:
        gc.collect()


def collect_young() -> None:
    """A collection of what was made since the last one. For a time in a long pause when nobody waits: else it comes with its end."""
    if not gc.isenabled():
        gc.collect(0)


def end_without_collection() -> None:
    """Lets the process end without a last search for garbage, which after a compile takes longer than the front end. For programs, not
    for libraries: objects in cycles are then not finalised."""
    atexit.register(gc.freeze)
