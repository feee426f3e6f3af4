"""Programs in a grid: positions, symbols, assumptions, and random numbers that depend on them."""

from __future__ import annotations

import numpy as np
import pytest

from tileir.interpreter import InterpreterError, run
from tileir.ir.builder import Builder
from tileir.ir.core import Value
from tileir.ir.expr import binary, integer, symbol
from tileir.ir.location import Loc
from tileir.ir.ops.random import philox4x32
from tileir.ir.types import F32, I32, I64, GlobalType, TileType

from .kernels import make_kernel, store_all

GRID = (symbol("M"), binary("cdiv", symbol("N"), integer(2)))


def visits(kernel_body: object, m: int, n: int, **kw: object) -> np.ndarray:
    out = np.full((m, n), -1, np.int32)
    kernel = make_kernel({"out": GlobalType(I32, ("M", "N"))}, kernel_body, GRID)  # type: ignore[arg-type]
    run(kernel, {"out": out}, **kw)  # type: ignore[arg-type]
    return out


def number_programs(b: Builder, out: Value) -> None:
    """out[i, 2j] = i + 10 j + 100 · size of the grid along y."""
    i, j = b.op("program_id", num_results=2).results
    _, ny = b.op("num_programs", num_results=2).results
    value = b.value("add", [i, b.value("mul", [j, b.constant(10, I32)])])
    value = b.value("add", [value, b.value("mul", [ny, b.constant(100, I32)])])
    b.op("store", [value, out, i, b.value("mul", [j, b.constant(2, I32)])], spans=(None, None))


def test_every_program_runs_and_knows_its_place() -> None:
    assert visits(number_programs, 2, 3).tolist() == [[200, -1, 210], [201, -1, 211]]


def test_programs_run_with_the_first_dimension_fastest() -> None:
    seen: list[tuple[int, int]] = []
    trace = np.zeros(1, np.int32)

    def body(b: Builder, out: Value, last: Value) -> None:
        i, j = b.op("program_id", num_results=2).results
        store_all(b, b.value("add", [i, b.value("mul", [j, b.constant(10, I32)])]), last)

    kernel = make_kernel({"out": GlobalType(I32, ("M", "N")), "last": GlobalType(I32, (1,))}, body, GRID)
    arrays = {"out": np.zeros((3, 4), np.int32), "last": trace}
    run(kernel, arrays, progress=lambda done, total: seen.append((int(trace[0]), total)))
    assert seen == [(0, 6), (1, 6), (2, 6), (10, 6), (11, 6), (12, 6)]


def test_chosen_programs() -> None:
    assert visits(number_programs, 2, 3, programs=[(1, 1)]).tolist() == [[-1, -1, -1], [-1, -1, 211]]


def test_an_empty_grid_runs_nothing() -> None:
    assert visits(number_programs, 0, 3).shape == (0, 3)


def test_dim() -> None:
    def body(b: Builder, x: Value, out: Value, wide: Value) -> None:
        store_all(b, b.value("dim", attrs={"symbol": "K"}), out)
        store_all(b, b.value("dim", attrs={"symbol": "S"}, types=[TileType(I64)]), wide)

    kernel = make_kernel(
        {"x": GlobalType(F32, ("M", "K"), ("S", 1)), "out": GlobalType(I32, (1,)), "wide": GlobalType(I64, (1,))}, body
    )
    out, wide = np.zeros(1, np.int32), np.zeros(1, np.int64)
    run(kernel, {"x": np.zeros((3, 9), np.float32)[:, :5], "out": out, "wide": wide})
    assert (out[0], wide[0]) == (5, 9)


def run_assumption(k: int) -> None:
    def body(b: Builder, n: Value) -> None:
        cond = b.value("eq", [b.value("mod", [n, b.constant(64, I32)]), b.constant(0, I32)], names=["cond"])
        b.op("assume", [cond], loc=Loc("k.tile", 4, 3))

    run(make_kernel({"n": TileType(I32)}, body), {"n": k})


def test_assume() -> None:
    run_assumption(128)
    with pytest.raises(InterpreterError, match=r"k\.tile:4:3: error: .*%cond does not hold") as caught:
        run_assumption(100)
    assert "in program (0)" in str(caught.value)


def test_more_positions_than_the_grid_has() -> None:
    kernel = make_kernel({}, lambda b: b.op("program_id", num_results=1))
    kernel.body.ops[0].results.append(Value("extra", TileType(I32)))  # the verifier rejects this
    with pytest.raises(InterpreterError, match="2 values of a grid of 1 dimension"):
        run(kernel, {})


def test_philox_known_answers() -> None:
    # kat_vectors of Random123, philox4x32 with 10 rounds
    ones = 0xFFFFFFFF
    vectors = [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ones, ones, ones, ones), (ones, ones), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ]
    for counter, key, want in vectors:
        assert tuple(int(w) for w in philox4x32(counter, key)) == want


COVERS = {
    "program_id": [test_every_program_runs_and_knows_its_place],
    "num_programs": [test_every_program_runs_and_knows_its_place],
    "dim": [test_dim],
    "assume": [test_assume],
}
