"""Views: bounds, padding, strides, gather and scatter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileir.interpreter import run
from tileir.ir.binding import LaunchError
from tileir.ir.builder import Builder
from tileir.ir.core import Value
from tileir.ir.diagnostics import CompileError
from tileir.ir.types import BF16, F32, I32, I64, GlobalType, TileType, Type

from .kernels import elem_of, load_all, make_kernel, store_all

INF = float("inf")


def view_type(array: np.ndarray, *, symbolic_strides: bool = False) -> GlobalType:
    strides = tuple(f"S{d}" for d in range(array.ndim)) if symbolic_strides else None
    return GlobalType(elem_of(array), array.shape, strides)


def do_load(
    array: np.ndarray, indices: Sequence[Any], spans: tuple[int | None, ...], *, strided: bool = False, **attrs: Any
) -> np.ndarray:
    """The tile `%x[indices with spans]`; an array as index is a tile index."""
    shape = tuple(s if s is not None else np.size(i) for i, s in zip(indices, spans, strict=True) if s or np.ndim(i))
    out = np.zeros(shape or (1,), array.dtype)
    given = {f"i{d}": np.asarray(i) for d, i in enumerate(indices)}

    def body(b: Builder, x: Value, y: Value, *index: Value) -> None:
        at = [load_all(b, v) if isinstance(v.type, GlobalType) else v for v in index]
        store_all(b, b.value("load", [x, *at], attrs, spans=spans), y)

    types: dict[str, Type] = {
        k: view_type(v) if v.ndim else TileType(I64 if v.dtype == np.int64 else I32) for k, v in given.items()
    }
    kernel = make_kernel({"x": view_type(array, symbolic_strides=strided), "y": view_type(out), **types}, body)
    run(kernel, {"x": array, "y": out, **given})
    return out


def do_store(
    array: np.ndarray,
    value: np.ndarray,
    indices: Sequence[Any],
    spans: tuple[int | None, ...],
    *,
    strided: bool = False,
) -> None:
    """Stores the tile to `%y[indices with spans]`."""
    given = {f"i{d}": np.asarray(i) for d, i in enumerate(indices)}

    def body(b: Builder, x: Value, y: Value, *index: Value) -> None:
        at = [load_all(b, v) if isinstance(v.type, GlobalType) else v for v in index]
        b.op("store", [load_all(b, x), y, *at], spans=spans)

    types: dict[str, Type] = {
        k: view_type(v) if v.ndim else TileType(I64 if v.dtype == np.int64 else I32) for k, v in given.items()
    }
    kernel = make_kernel({"x": view_type(value), "y": view_type(array, symbolic_strides=strided), **types}, body)
    run(kernel, {"x": value, "y": array, **given})


X = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_load_inside() -> None:
    assert do_load(X, [1, 1], (2, 2)).tolist() == [[5, 6], [9, 10]]


def test_load_outside_reads_the_pad() -> None:
    assert do_load(X, [2, 3], (2, 2)).tolist() == [[11, 0], [0, 0]]
    assert do_load(X, [-1, -1], (2, 2)).tolist() == [[0, 0], [0, 0]]
    assert do_load(X, [-1, -1], (2, 2), pad=7).tolist() == [[7, 7], [7, 0]]
    assert do_load(X, [-1, 1], (2, 2), pad=-INF).tolist() == [[-INF, -INF], [1, 2]]
    assert do_load(X, [3, 0], (2, 2), pad=1.5).tolist() == [[1.5, 1.5], [1.5, 1.5]]
    assert do_load(X, [-50, 0], (2, 2), pad=2).tolist() == [[2, 2], [2, 2]]


def test_a_span_at_the_end_of_i32_does_not_wrap() -> None:
    assert do_load(X, [2**31 - 1, 0], (2, 1), pad=9).tolist() == [[9], [9]]
    assert do_load(X, [-(2**31), np.int64(2**62)], (1, 2), pad=9).tolist() == [[9, 9]]


def test_plain_indices_drop_dimensions() -> None:
    assert do_load(X, [1, 0], (None, 4)).tolist() == [4, 5, 6, 7]
    assert do_load(X, [0, 2], (3, None)).tolist() == [2, 6, 10]
    assert do_load(X, [2, 3], (None, None)).tolist() == [11]
    assert do_load(X, [3, 0], (None, 4), pad=1).tolist() == [1, 1, 1, 1]
    assert do_load(X, [-1, 3], (None, None), pad=1).tolist() == [1]


def test_a_view_of_rank_5() -> None:
    x = np.arange(2 * 3 * 4 * 5 * 6, dtype=np.int32).reshape(2, 3, 4, 5, 6)
    got = do_load(x, [1, 1, 3, 4, 2], (None, 2, None, 2, 3))
    want = np.zeros((2, 2, 3), np.int32)
    want[:, :1] = x[1, 1:3, 3, 4:5, 2:5]
    assert got.tolist() == want.tolist()


def test_load_through_strides() -> None:
    base = np.arange(40, dtype=np.float32).reshape(4, 10)
    assert do_load(base[:, 1:9:2], [1, 2], (2, 2), strided=True).tolist() == [[15, 17], [25, 27]]
    assert do_load(base.T, [9, 0], (2, 4), strided=True).tolist() == [[9, 19, 29, 39], [0, 0, 0, 0]]
    repeated = np.broadcast_to(np.arange(4, dtype=np.float32), (3, 4))
    assert do_load(repeated, [1, 1], (2, 2), strided=True).tolist() == [[1, 2], [1, 2]]


def test_gather() -> None:
    rows = np.array([2, 0, 3, -1, 2], np.int32)
    want = [[8, 9], [0, 1], [5, 5], [5, 5], [8, 9]]
    assert do_load(X, [rows, 0], (None, 2), pad=5).tolist() == want
    assert do_load(X, [rows.reshape(5, 1), 0], (None, 2), pad=5).tolist() == want
    assert do_load(X, [1, np.array([3, 1], np.int64)], (2, None)).tolist() == [[7, 5], [11, 9]]
    assert do_load(X, [1, np.array([3, 4], np.int64)], (None, None), pad=5).tolist() == [7, 5]
    cube = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    got = do_load(cube, [1, np.array([2, 0], np.int32), 3], (None, None, 2), pad=-1)
    assert got.tolist() == [[23, -1], [15, -1]]


def test_gather_through_a_stride_of_zero() -> None:
    repeated = np.broadcast_to(np.arange(4, dtype=np.float32), (3, 4))
    assert do_load(repeated, [np.array([2, 5], np.int32), 0], (None, 2), strided=True).tolist() == [[0, 1], [0, 0]]


def test_store_drops_what_lies_outside() -> None:
    y = np.zeros((3, 4), np.float32)
    do_store(y, np.array([[1, 2], [3, 4]], np.float32), [2, 3], (2, 2))
    do_store(y, np.array([[1, 2], [3, 4]], np.float32), [-1, -1], (2, 2))
    do_store(y, np.array([[1, 2], [3, 4]], np.float32), [-5, 9], (2, 2))
    assert y.tolist() == [[4, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]


def test_store_through_strides_touches_nothing_else() -> None:
    base = np.zeros((4, 10), np.float32)
    do_store(base[1:3, 1:9:3], np.array([[1, 2, 9], [3, 4, 9]], np.float32), [0, 1], (2, 3), strided=True)
    want = np.zeros((4, 10), np.float32)
    want[1:3, 4], want[1:3, 7] = [1, 3], [2, 4]
    assert base.tolist() == want.tolist()


def test_scatter() -> None:
    y = np.zeros((3, 4), np.float32)
    do_store(y, np.array([[1, 2], [3, 4], [5, 6]], np.float32), [np.array([2, -1, 0], np.int32), 3], (None, 2))
    assert y.tolist() == [[0, 0, 0, 5], [0, 0, 0, 0], [0, 0, 0, 1]]


def test_store_then_load_sees_the_new_elements_and_old_tiles_keep_theirs() -> None:
    x = np.arange(4, dtype=np.float32)
    out = np.zeros(4, np.float32)

    def body(b: Builder, view: Value, result: Value) -> None:
        old = load_all(b, view)
        store_all(b, b.value("add", [old, old]), view)
        store_all(b, b.value("sub", [load_all(b, view), old]), result)

    run(make_kernel({"x": view_type(x), "out": view_type(out)}, body), {"x": x, "out": out})
    assert x.tolist() == [0, 2, 4, 6] and out.tolist() == [0, 1, 2, 3]


def test_narrow_elements() -> None:
    x = np.arange(6).astype(BF16.np)
    assert do_load(x, [4], (3,), pad=-INF).astype(np.float32).tolist() == [4, 5, -INF]


def test_a_pad_that_is_no_integer_is_rejected_for_integers() -> None:
    with pytest.raises(CompileError, match="E0319"):
        do_load(np.arange(3, dtype=np.int32), [0], (4,), pad=INF)


def test_a_read_only_array_cannot_be_written() -> None:
    with pytest.raises(LaunchError, match="%y is written, but its array is read-only"):
        do_store(
            np.broadcast_to(np.zeros(2, np.float32), (2, 2)), np.ones((2, 2), np.float32), [0, 0], (2, 2), strided=True
        )


def test_accessible_is_true_for_the_interpreter() -> None:
    out = np.zeros(1, np.bool_)

    def body(b: Builder, x: Value, y: Value) -> None:
        zero = b.constant(0, I32)
        store_all(b, b.value("accessible", [x, zero], {"bytes": 16}, spans=(4,)), y)

    run(make_kernel({"x": GlobalType(F32, (8,)), "y": view_type(out)}, body), {"x": np.zeros(8, np.float32), "y": out})
    assert out[0]


@given(
    shape=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    start=st.tuples(st.integers(-8, 8), st.integers(-8, 8)),
    span=st.tuples(st.integers(1, 7), st.integers(1, 7)),
)
def test_load_and_store_element_by_element(
    shape: tuple[int, int], start: tuple[int, int], span: tuple[int, int]
) -> None:
    x = np.arange(1, shape[0] * shape[1] + 1, dtype=np.int32).reshape(shape)
    loaded = do_load(x, list(start), span, pad=-1)
    value = np.arange(100, 100 + span[0] * span[1], dtype=np.int32).reshape(span)
    stored, want = x.copy(), x.copy()
    do_store(stored, value, list(start), span)
    for i in range(span[0]):
        for j in range(span[1]):
            r, c = start[0] + i, start[1] + j
            inside = 0 <= r < shape[0] and 0 <= c < shape[1]
            assert loaded[i, j] == (x[r, c] if inside else -1)
            if inside:
                want[r, c] = value[i, j]
    assert stored.tolist() == want.tolist()


def test_a_prefetch_changes_nothing() -> None:
    x = np.arange(4, dtype=np.float32)

    def body(b: Builder, view: Value) -> None:
        b.op("prefetch", [view, b.constant(2, I32)], spans=(8,))

    run(make_kernel({"x": view_type(x)}, body), {"x": x})
    assert x.tolist() == [0, 1, 2, 3]


COVERS = {
    "prefetch": [test_a_prefetch_changes_nothing],
    "load": [test_load_inside, test_load_outside_reads_the_pad, test_gather],
    "store": [test_store_drops_what_lies_outside, test_scatter],
    "accessible": [test_accessible_is_true_for_the_interpreter],
}
