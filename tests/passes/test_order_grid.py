"""order-grid: a bijection for every grid (cases xcd-bijection and raster-tail), and the text computes the same."""

from __future__ import annotations

import numpy as np
import pytest

from tileir.frontend import parse
from tileir.interpreter import run
from tileir.ir.core import Kernel, Module
from tileir.ir.verifier import verify
from tileir.passes.base import Context
from tileir.passes.order_grid import PASS, Numbers, remap, remap_line
from tileir.passes.simplify import simplify
from tileir.target import get

NUMBERS = Numbers()
XCDS = (1, 2, 4, 6, 8)


@pytest.mark.parametrize("xcds", XCDS)
@pytest.mark.parametrize("chunk", [None, 1, 16, 64])
def test_chunks_are_a_bijection_for_every_grid(xcds: int, chunk: int | None) -> None:
    for n in range(1, 4097):
        position = remap_line(NUMBERS, np.arange(n), n, xcds=xcds, chunk=chunk)
        assert np.array_equal(np.bincount(position, minlength=n), np.ones(n)), n


@pytest.mark.parametrize("xcds", XCDS)
def test_chunks_and_windows_are_a_bijection_for_every_small_grid(xcds: int) -> None:
    for rows in range(1, 34):
        for columns in range(1, 18):
            for chunk, window in ((None, None), (2, 3), (64, 8), (5, 40)):
                row, column = remap(
                    NUMBERS, np.arange(rows * columns), rows, columns, xcds=xcds, chunk=chunk, window=window
                )
                assert row.min() >= 0 and row.max() < rows and column.min() >= 0 and column.max() < columns
                assert len(np.unique(row * columns + column)) == rows * columns, (rows, columns, chunk, window)


@pytest.mark.parametrize("size", [1152, 1280, 1536])
@pytest.mark.parametrize("tile", [64, 128, 256])
def test_raster_tail(size: int, tile: int) -> None:
    n = -(-size // tile)
    for window in (1, 4, 5, 7, 8):
        row, column = remap(NUMBERS, np.arange(n * n), n, n, xcds=8, chunk=16, window=window)
        assert len(np.unique(row * n + column)) == n * n


def test_every_chiplet_gets_runs_of_neighbours() -> None:
    n, xcds, chunk = 1000, 8, 16
    position = remap_line(NUMBERS, np.arange(n), n, xcds=xcds, chunk=chunk)
    owner = np.empty(n, int)
    owner[position] = np.arange(n) % xcds
    full = n // (xcds * chunk) * xcds * chunk
    assert all(len(np.unique(owner[i : i + chunk])) == 1 for i in range(0, full, chunk))
    assert np.count_nonzero(np.diff(owner[full:])) == xcds - 1  # one run each in the rest


def test_the_table_in_the_documentation() -> None:
    row, column = remap(NUMBERS, np.arange(12), 4, 3, xcds=2, chunk=2, window=2)
    grid = np.empty((4, 3), int)
    grid[row, column] = np.arange(12)
    assert grid.tolist() == [[0, 1, 4], [2, 3, 6], [5, 8, 9], [7, 10, 11]]


KERNEL = """tileir 1
kernel @k(%A: global<i32[M, N, 2]>, %B: global<i32[P]>) grid({grid}) {attrs} {{
  {ids} = program_id()
  {store}
}}
"""


def ordered(grid: str, ids: str, store: str, order: str) -> Kernel:
    attrs = f"with(target = gfx950{order})"
    module = parse(KERNEL.format(grid=grid, ids=ids, store=store, attrs=attrs), "order.tile")
    kernel = PASS.run(module.kernels[0], Context(get("gfx950"), module))
    verify(kernel)
    assert kernel.attrs["ordered"] is True
    return simplify(kernel)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (7, 5), (8, 8), (9, 3), (13, 17), (30, 11)])
@pytest.mark.parametrize(("chunk", "window"), [(0, 0), (4, 0), (0, 3), (4, 3), (64, 8), (3, 2)])
def test_the_text_computes_the_mapping(m: int, n: int, chunk: int, window: int) -> None:
    """Every program writes which hardware position it has to the place it works on."""
    order = (
        ", order = xcd"
        + (f", order_chunk = {chunk}" if chunk else "")
        + (f", order_window = {window}" if window else "")
    )
    kernel = ordered("cdiv(M, 2), cdiv(N, 2), 2", "%i, %j, %p", "store(%j + 1, %A[%i, %j, %p])", order)
    assert sum(op.name == "program_id" for op in kernel.walk()) == 1
    # The interpreter runs programs in the order of the hardware; record it with one program at a time.
    rows, columns = m, n
    wanted = remap(
        NUMBERS, np.arange(rows * columns), rows, columns, xcds=8, chunk=chunk or None, window=window or None
    )
    for linear in range(0, rows * columns, max(1, rows * columns // 40)):
        array = np.zeros((2 * m, 2 * n, 2), np.int32)
        run(
            kernel,
            {"A": array, "B": np.zeros(1, np.int32)},
            programs=[(linear % rows, linear // rows, 1)],
        )
        where = np.argwhere(array)
        assert where.tolist() == [[int(wanted[0][linear]), int(wanted[1][linear]), 1]]


def test_lines_and_fewer_names_than_dimensions() -> None:
    kernel = ordered("P", "%i", "store(%i, %B[%i])", ", order = xcd, order_chunk = 3")
    b = np.full(29, -1, np.int32)
    run(kernel, {"A": np.zeros((1, 1, 2), np.int32), "B": b})
    assert b.tolist() == list(range(29))


def test_without_an_order_nothing_changes_and_twice_is_once() -> None:
    kernel = ordered("M, N", "%i, %j", "store(%i, %A[%i, %j, 0])", "")
    assert [op.name for op in kernel.walk()].count("program_id") == 1
    assert not any(op.name in ("div", "mod") for op in kernel.walk())
    done = ordered("M, N", "%i, %j", "store(%i, %A[%i, %j, 0])", ", order = xcd")
    assert PASS.run(done, Context(get("gfx950"), Module([done]))) is done


def test_powers_of_two_need_no_division() -> None:
    kernel = ordered("P", "%i", "store(%i, %B[%i])", ", order = xcd, order_chunk = 16")
    assert not any(op.name in ("div", "mod", "cdiv") for op in kernel.walk())
