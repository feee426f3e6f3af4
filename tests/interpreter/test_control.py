"""Control flow: loops, branches, guards and the values that they carry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tileir.interpreter import InterpreterError, run
from tileir.ir.builder import Builder
from tileir.ir.core import Block, Value
from tileir.ir.location import Loc
from tileir.ir.types import F32, I1, I32, I64, Elem, GlobalType, TileType, Type

from .kernels import load_all, make_kernel, store_all


def region(b: Builder, args: dict[str, Type], body: Callable[..., list[Value]]) -> Block:
    """A block whose `body(builder, *args)` returns what it yields."""
    values = [Value(b.names.fresh(n), t) for n, t in args.items()]
    inner = Builder(Block(values), b.names)
    inner.op("yield", body(inner, *values))
    return inner.block


def scalar_program(body: Callable[[Builder, Value], Value], elem: Elem = I32, **inputs: Any) -> Any:
    """Runs `body(builder, *inputs)` on i32 arguments and returns the scalar that it computes."""
    out = np.zeros(1, elem.np)
    args: dict[str, Type] = {k: TileType(I32) for k in inputs}

    def whole(b: Builder, *values: Value) -> None:
        store_all(b, body(b, *values[:-1]), values[-1])

    run(make_kernel({**args, "out": GlobalType(elem, (1,))}, whole), {**inputs, "out": out}, max_iterations=1000)
    return out[0]


def sum_of_range(start: int, end: int, step: int) -> int:
    def body(b: Builder, lo: Value, hi: Value, by: Value) -> Value:
        loop = region(
            b, {"i": TileType(I32), "acc": TileType(I32)}, lambda x, i, acc: [x.value("add", [acc, i], hint="n")]
        )
        return b.op("for", [lo, hi, by, b.constant(100, I32)], regions=[loop]).result

    return int(scalar_program(body, lo=start, hi=end, by=step))


@pytest.mark.parametrize(
    ("start", "end", "step", "want"),
    [
        (0, 5, 1, 110),
        (0, 5, 2, 106),
        (3, 3, 1, 100),
        (5, 3, 1, 100),
        (-3, 0, 2, 96),
        (2**31 - 3, 2**31 - 1, 5, 93 + 4 - 2**31),
    ],
)
def test_for(start: int, end: int, step: int, want: int) -> None:
    # the last case adds 2^31 - 3 to 100 and wraps: 100 + 2^31 - 3 - 2^32 = 97 - 2^31
    assert sum_of_range(start, end, step) == want


def test_for_counts_in_i64() -> None:
    def body(b: Builder) -> Value:
        lo, hi, by = (b.constant(v, I64) for v in (2**40, 2**40 + 3, 2))
        loop = region(b, {"i": TileType(I64), "last": TileType(I64)}, lambda x, i, last: [i])
        return b.op("for", [lo, hi, by, lo], regions=[loop]).result

    assert scalar_program(body, I64) == 2**40 + 2


def test_for_rejects_a_step_that_is_not_positive() -> None:
    with pytest.raises(InterpreterError, match="step of the loop is 0"):
        sum_of_range(0, 5, 0)


def collatz(n: int) -> int:
    """Steps until the sequence reaches 1."""

    def step(x: Builder, v: Value, count: Value) -> list[Value]:
        two = x.constant(2, I32)
        odd = x.value("eq", [x.value("mod", [v, two]), x.constant(1, I32)])
        triple = x.value("add", [x.value("mul", [v, x.constant(3, I32)]), x.constant(1, I32)])
        return [
            x.value("where", [odd, triple, x.value("div", [v, two])]),
            x.value("add", [count, x.constant(1, I32)]),
        ]

    def body(b: Builder, start: Value) -> Value:
        carried: dict[str, Type] = {"v": TileType(I32), "count": TileType(I32)}
        more = region(b, carried, lambda x, v, count: [x.value("ne", [v, x.constant(1, I32)])])
        loop = region(b, carried, step)
        return b.op("while", [start, b.constant(0, I32)], regions=[more, loop]).results[1]

    return int(scalar_program(body, start=n))


def test_while() -> None:
    assert [collatz(n) for n in (1, 2, 3, 27)] == [0, 1, 7, 111]


def test_an_endless_loop_is_stopped() -> None:
    def body(b: Builder) -> Value:
        carried: dict[str, Type] = {"v": TileType(I32)}
        more = region(b, carried, lambda x, v: [x.constant(True, I1)])
        loop = region(b, carried, lambda x, v: [v])
        return b.op("while", [b.constant(0, I32)], regions=[more, loop], loc=Loc("f.tile", 3, 5)).result

    with pytest.raises(InterpreterError, match=r"f\.tile:3:5: error: .* more than 1000 times"):
        scalar_program(body)


def branch(x: int, *, otherwise: bool) -> int:
    def body(b: Builder, v: Value) -> Value:
        positive = b.value("gt", [v, b.constant(0, I32)])
        carried: dict[str, Type] = {"w": TileType(I32)}
        regions = [region(b, carried, lambda x, w: [x.value("add", [w, x.constant(10, I32)])])]
        if otherwise:
            regions.append(region(b, carried, lambda x, w: [x.value("neg", [w])]))
        return b.op("if", [positive, v], regions=regions).result

    return int(scalar_program(body, v=x))


def test_if() -> None:
    assert [branch(x, otherwise=True) for x in (5, 0, -5)] == [15, 0, 5]
    assert [branch(x, otherwise=False) for x in (5, 0, -5)] == [15, 0, -5]


def guarded(need: list[int]) -> np.ndarray:
    """Doubles the rows that need it."""
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    mask = np.array(need, np.bool_).reshape(3, 1)
    out = np.zeros_like(x)

    def body(b: Builder, view: Value, rows: Value, result: Value) -> None:
        tile, m = load_all(b, view), load_all(b, rows)

        def inside(g: Builder, v: Value) -> list[Value]:
            return [g.value("add", [v, v])]

        guard = b.op("guard", [m, tile], regions=[region(b, {"v": tile.type}, inside)])
        store_all(b, guard.result, result)

    views = {"x": GlobalType(F32, (3, 2)), "m": GlobalType(I1, (3, 1)), "out": GlobalType(F32, (3, 2))}
    run(make_kernel(views, body), {"x": x, "m": mask, "out": out})
    return out


def test_guard() -> None:
    assert guarded([1, 0, 1]).tolist() == [[0, 2], [2, 3], [8, 10]]


def test_guard_keeps_everything_when_no_row_needs_it() -> None:
    assert guarded([0, 0, 0]).tolist() == [[0, 1], [2, 3], [4, 5]]


COVERS = {
    "for": [test_for, test_for_counts_in_i64],
    "while": [test_while],
    "if": [test_if],
    "guard": [test_guard],
    "yield": [test_for, test_if],
}
