"""Accesses to views of global memory: `%view[index, start +: extent]` on NumPy arrays of any strides.

Spans are clipped against the view in Python integers, so an index near the end of its type does not wrap.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tileir.records import dataclass

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class _Clipped:
    """The part of an access that lies inside the view.

    `source` selects it from the view and `target` the same elements from the accessed tile; in both every dimension of
    the view is present (plain indices with size 1). `rows` are the row numbers of a gather with its dimension.
    """

    source: tuple[slice, ...]
    target: tuple[Any, ...]
    full: tuple[int, ...]
    rows: tuple[int, Array] | None


def _clip(shape: Sequence[int], indices: Sequence[Array], spans: Sequence[int | None]) -> _Clipped:
    source: list[slice] = []
    target: list[Any] = []
    full: list[int] = []
    rows: tuple[int, Array] | None = None
    for d, (size, index, span) in enumerate(zip(shape, indices, spans, strict=True)):
        if span is None and np.ndim(index):
            numbers = np.asarray(index).reshape(-1).astype(np.int64)
            inside = np.flatnonzero((numbers >= 0) & (numbers < size))
            rows = d, numbers[inside]
            source.append(slice(None))
            target.append(inside)
            full.append(len(numbers))
            continue
        start, extent = int(index), 1 if span is None else span
        low, high = min(max(start, 0), size), min(max(start + extent, 0), size)
        source.append(slice(low, high))
        target.append(slice(low - start, max(low, high) - start) if high > low else slice(0, 0))
        full.append(extent)
    return _Clipped(tuple(source), tuple(target), tuple(full), rows)


def load(
    view: Array, indices: Sequence[Array], spans: Sequence[int | None], shape: tuple[int, ...], pad: Array
) -> Array:
    """A new array of `shape` with the accessed elements, `pad` where the access lies outside the view."""
    c = _clip(view.shape, indices, spans)
    found = view[c.source]
    if c.rows is not None:
        found = np.take(found, c.rows[1], axis=c.rows[0])
    if found.shape == c.full:
        return np.array(found).reshape(shape)
    out = np.full(c.full, pad, view.dtype)
    out[c.target] = found
    return out.reshape(shape)


def store(view: Array, indices: Sequence[Array], spans: Sequence[int | None], value: Array) -> None:
    """Writes `value` to the accessed elements and drops those outside the view."""
    c = _clip(view.shape, indices, spans)
    inside = np.reshape(value, c.full)[c.target]
    into = view[c.source]
    if c.rows is None:
        into[...] = inside
    else:
        into[tuple(c.rows[1] if d == c.rows[0] else slice(None) for d in range(view.ndim))] = inside


def update(
    view: Array,
    indices: Sequence[Array],
    spans: Sequence[int | None],
    change: Callable[..., Any],
    operands: Sequence[Array],
) -> Array:
    """Replaces each accessed element inside the view by `change(old, *operands)`, one after the other where several are the
    same; scalar operands count for all. A new array with what was there before, 0 outside the view."""
    c = _clip(view.shape, indices, spans)
    old = np.zeros(c.full, view.dtype)
    values = [np.broadcast_to(x, c.full) if np.ndim(x) == 0 else np.reshape(x, c.full) for x in operands]
    for source, target in _groups(view, c):
        before = np.array(view[source])
        old[target] = before
        view[source] = change(before, *(v[target] for v in values)).astype(view.dtype)
    kept = [
        n for n, s, i in zip(c.full, spans, indices, strict=True) if s is not None or np.ndim(i)
    ]  # plain indices give no dimension
    return old.reshape(kept)


def _groups(view: Array, c: _Clipped) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Pairs of places in the view and in the accessed tile, in each of which no element occurs twice."""
    repeated = [d for d, s in enumerate(view.strides) if s == 0]
    target = [c.target[d] if isinstance(c.target[d], slice) else slice(None) for d in range(view.ndim)]
    source: list[Any] = list(c.source)
    choices: list[list[tuple[int, Any, Any]]] = []
    if c.rows is not None:
        d, rows = c.rows
        choices.append([(d, slice(r, r + 1), slice(t, t + 1)) for r, t in zip(rows, c.target[d], strict=True)])
    for d in repeated:
        if c.rows is None or d != c.rows[0]:
            size = c.source[d].stop - c.source[d].start
            first, to = c.source[d].start, c.target[d].start
            choices.append([(d, slice(first + i, first + i + 1), slice(to + i, to + i + 1)) for i in range(size)])
    for chosen in itertools.product(*choices):
        for d, s, t in chosen:
            source[d], target[d] = s, t
        yield tuple(source), tuple(target)
