"""Kernels of one file that are alternatives for one problem: each is tuned, and they are ranked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tileir.frontend import parse
from tileir.frontend.source import Source, decode
from tileir.ir.core import Kernel
from tileir.passes.manager import find_kernel, find_target
from tileir.target import Target
from tileir.tuning.model import Model
from tileir.tuning.report import Compared, Tuned
from tileir.tuning.search import tune
from tileir.tuning.space import Given
from tileir.tuning.text import parameter_names
from tileir.tuning.work import work_of


def compare(
    source: str | Path,
    target: str,
    shape: Mapping[str, int],
    kernels: Sequence[str],
    *,
    params: Given | None = None,
    filename: str = "<text>",
    **search: Any,
) -> Compared:
    """Tunes several kernels of one file that are alternatives for the same problem – with and without split-K, say – and ranks them.

    What a kernel adds to (atomic updates) must hold something before; the time to fill that with zeros counts. params: each
    kernel takes those that it declares. Other arguments: as of `tune`. Raises CompileError like it.
    """
    text = source
    if isinstance(source, Path):
        filename, text = str(source), decode(source.read_bytes(), str(source))
    assert isinstance(text, str)
    text = Source(text, filename).text
    found: list[tuple[Tuned, float]] = []
    given = dict(params or {})
    declared = {name: parameter_names(text, filename, name) for name in kernels}
    unknown = {n for n in given if not any(n in names for names in declared.values())}
    for name in kernels:
        own = {n: v for n, v in given.items() if n in declared[name] or n in unknown}  # for the error that says so
        made = tune(text, target, shape, kernel=name, params=own, filename=filename, **search)
        text = made.text
        kernel = find_kernel(parse(text, filename, made.fixed, kernel=name), name)
        found.append((made, _fill_seconds(kernel, find_target(kernel, target), shape, made.product)))
    ranked = sorted(found, key=lambda x: x[0].best.result.estimated_seconds + x[1])
    return Compared(tuple(ranked), text)


def _fill_seconds(kernel: Kernel, target: Target, shape: Mapping[str, int], product: str) -> float:
    """How long the memory takes to be written, of the largest view that a kernel adds to."""
    work = work_of(kernel, {**dict.fromkeys(kernel.symbols(), 1), **shape})
    updates = [t.view_bytes for phase in work.phases for t in phase.atomics]
    return max(updates, default=0.0) / (Model(target, product).hbm * target.clock_hz)
