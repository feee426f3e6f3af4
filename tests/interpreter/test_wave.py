"""Wave-level ops: LDS that nobody wrote, copies in flight, places that buffers share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tileir.interpreter import InterpreterError, run
from tileir.ir.binding import written_views
from tileir.ir.builder import Builder
from tileir.ir.core import Value
from tileir.ir.expr import integer
from tileir.ir.location import Loc
from tileir.ir.ops import lanes
from tileir.ir.types import F32, I32, GlobalType, SharedType, TileType
from tileir.layout import Layout
from tileir.layout.blocked import blocked

from .kernels import evaluate, make_kernel, store_all
from .test_control import region

N = 256  # elements: one copy of 4 bytes per lane is 4 instructions of one wave
X = np.arange(1, N + 1, dtype=np.float32)


def execute(body: Callable[[Builder, Value, Value], None], waves: int = 1) -> np.ndarray:
    """Runs `body(builder, %x, %y)` on X and returns y, which starts as zeros."""
    y = np.zeros_like(X)
    kernel = make_kernel({"x": GlobalType(F32, (N,)), "y": GlobalType(F32, (N,))}, body, attrs={"waves": waves})
    run(kernel, {"x": X, "y": y})
    return y


def alloc(b: Builder, offset: int = -1, line: int = 1) -> Value:
    return b.value("shared_alloc", (), {"offset": offset}, types=[SharedType(F32, (N,))], loc=Loc("w.tile", line, 1))


def copy(b: Builder, x: Value, buffer: Value, start: int = 0) -> None:
    b.op("copy_async", [x, b.constant(start, I32), buffer], {"bytes": 4}, spans=(N,), loc=Loc("w.tile", 7, 1))


def load_view(b: Builder, x: Value) -> Value:
    return b.value("load", [x, b.constant(0, I32)], spans=(N,))


@pytest.mark.parametrize("read", ["shared_load", "shared_load_transposed"])
def test_shared_round_trip(read: str) -> None:
    def body(b: Builder, x: Value, y: Value) -> None:
        s = alloc(b)
        b.op("shared_store", [load_view(b, x), s])
        b.op("barrier")
        store_all(b, b.value(read, [s]), y)

    assert execute(body).tolist() == X.tolist()


def test_a_buffer_is_read_in_another_shape() -> None:
    """Its elements in row-major order: what a reshape through LDS becomes (fuzz seed general 117)."""

    def body(b: Builder, x: Value, y: Value) -> None:
        buffer = alloc(b)
        b.op("shared_store", [load_view(b, x), buffer])
        read = b.value("shared_load", [buffer], types=[TileType(F32, (4, N // 4))])
        flat = b.value("reshape", [b.value("transpose", [read])], {"shape": (N,)})
        b.op("store", [flat, y, b.constant(0, I32)], spans=(N,))

    assert np.array_equal(execute(body), X.reshape(4, N // 4).T.ravel())


def test_lds_that_nobody_wrote() -> None:
    def body(b: Builder, x: Value, y: Value) -> None:
        store_all(b, b.value("shared_load", [alloc(b, line=3)], loc=Loc("w.tile", 9, 4)), y)

    with pytest.raises(InterpreterError, match=r"w\.tile:9:4: error: .* read before it is written") as caught:
        execute(body)
    assert "w.tile:3:1: note: the buffer" in str(caught.value)


def waited(vm: int | None, later_copies: int, waves: int = 1) -> np.ndarray:
    """Copies x to LDS, then elsewhere, waits, and reads the first copy."""

    def body(b: Builder, x: Value, y: Value) -> None:
        s = alloc(b)
        copy(b, x, s)
        for _ in range(later_copies):
            copy(b, x, alloc(b))
        if vm is not None:
            b.op("wait", (), {"vm": vm})
        b.op("barrier")
        store_all(b, b.value("shared_load", [s]), y)

    return execute(body, waves)


def test_a_copy_lands_at_a_wait_that_covers_it() -> None:
    assert waited(0, 0).tolist() == X.tolist()
    assert waited(4, 1).tolist() == X.tolist()  # four younger instructions may stay outstanding
    assert waited(3, 1).tolist() == X.tolist()
    assert waited(8, 2).tolist() == X.tolist()
    assert waited(1, 1, waves=4).tolist() == X.tolist()  # four waves share a copy: one instruction each


@pytest.mark.parametrize(("vm", "later", "waves"), [(None, 0, 1), (-1, 0, 1), (1, 0, 1), (5, 1, 1), (2, 1, 4)])
def test_a_copy_that_no_wait_covers_is_not_there(vm: int | None, later: int, waves: int) -> None:
    with pytest.raises(InterpreterError, match="is read while a copy to it is in flight") as caught:
        waited(vm, later, waves)
    assert "w.tile:7:1: note: the copy" in str(caught.value)


def test_writing_under_a_copy_in_flight() -> None:
    def body(b: Builder, x: Value, y: Value) -> None:
        s = alloc(b)
        copy(b, x, s)
        b.op("shared_store", [load_view(b, x), s])

    with pytest.raises(InterpreterError, match="is written while a copy"):
        execute(body)


def test_two_copies_to_one_buffer_need_a_wait_between() -> None:
    def body(b: Builder, x: Value, y: Value) -> None:
        s = alloc(b)
        copy(b, x, s)
        copy(b, x, s)

    with pytest.raises(InterpreterError, match="is copied to again while a copy"):
        execute(body)


def test_a_copy_fills_with_zero_outside_the_view() -> None:
    def body(b: Builder, x: Value, y: Value) -> None:
        s = alloc(b)
        copy(b, x, s, start=N - 2)
        b.op("wait", (), {"vm": 0})
        store_all(b, b.value("shared_load", [s]), y)

    got = execute(body)
    assert got[:2].tolist() == [N - 1, N] and not got[2:].any()


def test_a_copy_through_registers_is_there_at_once_and_pads() -> None:
    def body(b: Builder, x: Value, y: Value) -> None:
        s = alloc(b)
        b.op("copy", [x, b.constant(2 - N, I32), s], {"bytes": 4, "pad": 7}, spans=(N,))
        store_all(b, b.value("shared_load", [s]), y)

    got = execute(body)
    assert got[-2:].tolist() == [1, 2] and set(got[:-2].tolist()) == {7}


def test_a_copy_to_lds_writes_no_view() -> None:
    def body(b: Builder, x: Value, y: Value) -> None:
        s = alloc(b)
        copy(b, x, s)
        b.op("copy", [x, b.constant(0, I32), s], {"bytes": 4}, spans=(N,))

    assert written_views(make_kernel({"x": GlobalType(F32, (N,)), "y": GlobalType(F32, (N,))}, body)) == ()


def shared_place(second: int) -> np.ndarray:
    """Writes one buffer, then another one that begins at byte `second`, and reads the first."""

    def body(b: Builder, x: Value, y: Value) -> None:
        first, other = alloc(b, 0), alloc(b, second)
        b.op("shared_store", [load_view(b, x), first])
        b.op("shared_store", [load_view(b, x), other], loc=Loc("w.tile", 8, 1))
        store_all(b, b.value("shared_load", [first]), y)

    return execute(body)


def test_buffers_that_share_bytes_clobber_each_other() -> None:
    assert shared_place(4 * N).tolist() == X.tolist()
    with pytest.raises(InterpreterError, match="read before it is written") as caught:
        shared_place(4 * N - 16)
    assert "w.tile:8:1: note: overwritten through a buffer in the same place" in str(caught.value)


def test_every_program_has_fresh_lds() -> None:
    def body(b: Builder, x: Value, y: Value) -> None:
        first = b.value("eq", [b.value("program_id"), b.constant(0, I32)])
        s = alloc(b)

        def fill(g: Builder) -> list[Value]:
            g.op("shared_store", [load_view(g, x), s])
            return []

        b.op("if", [first], regions=[region(b, {}, fill)])
        store_all(b, b.value("shared_load", [s]), y)

    kernel = make_kernel({"x": GlobalType(F32, (N,)), "y": GlobalType(F32, (N,))}, body, (integer(2),))
    with pytest.raises(InterpreterError, match=r"read before it is written[\s\S]*in program \(1\)"):
        run(kernel, {"x": X, "y": np.zeros_like(X)})


def test_convert_layout_keeps_the_elements() -> None:
    layout = blocked((64,), 1, axis_order=(0,), vector=1)
    x = np.arange(64, dtype=np.float32)
    got = evaluate("convert_layout", [x], types=[TileType(F32, (64,), layout)])
    assert got.tolist() == x.tolist()


LINE = [[1 << j] for j in range(6)]
HELD = Layout.from_bases((N,), [[64], [128]], LINE, [])
STEPS = {
    "swap_lanes": ({"register": 1, "lane": 3, "via": "dpp"}, [[64], [8]], [*LINE[:3], [128], *LINE[4:]]),
    "shuffle_lanes": ({"via": "ds_bpermute"}, [[65], [128]], [LINE[5], *LINE[1:5], LINE[0]]),
    "select_registers": ({}, [[128], [64]], [LINE[0], [2 ^ 64], *LINE[2:]]),
}


def stepped(name: str) -> np.ndarray:
    """X after a step from HELD to another layout."""
    attrs, reg, lane = STEPS[name]

    def body(b: Builder, x: Value, y: Value) -> None:
        held = b.value("load", [x, b.constant(0, I32)], spans=(N,), types=[TileType(F32, (N,), HELD)])
        types = [] if name == "swap_lanes" else [TileType(F32, (N,), Layout.from_bases((N,), reg, lane, []))]
        moved = b.value(name, [held], attrs, types=types)
        assert moved.tile.layout == Layout.from_bases((N,), reg, lane, [])
        store_all(b, moved, y)

    return execute(body)


@pytest.mark.parametrize("name", STEPS)
def test_steps_of_conversions_keep_the_elements(name: str) -> None:
    assert stepped(name).tolist() == X.tolist()


def test_steps_of_conversions_really_move_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter carries the movement out: were it left out, the elements would be in the wrong places."""
    monkeypatch.setattr(lanes, "bits_swapped", lambda registers, register, lane: registers)
    monkeypatch.setattr(lanes, "moved", lambda registers, motion, layout: registers)
    for name in STEPS:
        assert stepped(name).tolist() != X.tolist()


COVERS = {
    "shared_alloc": [test_lds_that_nobody_wrote],
    "shared_load": [test_shared_round_trip, test_lds_that_nobody_wrote],
    "shared_load_transposed": [test_shared_round_trip],
    "shared_store": [test_shared_round_trip],
    "copy_async": [test_a_copy_lands_at_a_wait_that_covers_it, test_a_copy_fills_with_zero_outside_the_view],
    "copy": [test_a_copy_through_registers_is_there_at_once_and_pads],
    "wait": [test_a_copy_lands_at_a_wait_that_covers_it],
    "barrier": [test_shared_round_trip],
    "swap_lanes": [test_steps_of_conversions_keep_the_elements, test_steps_of_conversions_really_move_registers],
    "shuffle_lanes": [test_steps_of_conversions_keep_the_elements, test_steps_of_conversions_really_move_registers],
    "select_registers": [test_steps_of_conversions_keep_the_elements, test_steps_of_conversions_really_move_registers],
    "convert_layout": [test_convert_layout_keeps_the_elements],
}
