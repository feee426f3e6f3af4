"""Symbols, grid and scalars from arrays, and what a launch that does not fit is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tileir.interpreter.arrays import array_info
from tileir.ir.binding import ArrayInfo, Binding, LaunchError, bind, check_overlap, used_symbols, written_views
from tileir.ir.core import Block, Kernel, Value
from tileir.ir.expr import Expr, binary, integer, symbol
from tileir.ir.location import Loc
from tileir.ir.types import BF16, ELEMS, F32, I1, I32, I64, Elem, GlobalType, TileType, Type

BF = np.dtype(BF16.np)


def kernel_of(grid: tuple[Expr, ...] = (integer(1),), **args: Type) -> Kernel:
    values = [Value(n, t, Loc("k.tile", 3, 10 * i + 1)) for i, (n, t) in enumerate(args.items())]
    return Kernel("k", {}, values, grid, Block(), loc=Loc("k.tile", 2, 1))


GEMM = kernel_of(
    (binary("cdiv", symbol("M"), integer(256)), binary("cdiv", symbol("N"), integer(256))),
    A=GlobalType(BF16, ("M", "K")),
    B=GlobalType(BF16, ("N", "K")),
    C=GlobalType(BF16, ("M", "N")),
)


def dense(*shape: int, dtype: Any = BF) -> ArrayInfo:
    info = array_info(np.broadcast_to(np.zeros(1, dtype), shape))
    strides = [1]
    for n in reversed(shape[1:]):
        strides.insert(0, strides[0] * n)
    return ArrayInfo(info.dtype, shape, tuple(strides))


def message(kernel: Kernel, arguments: dict[str, Any], **kw: Any) -> str:
    with pytest.raises(LaunchError) as caught:
        bind(kernel, arguments, **kw)
    return str(caught.value)


def test_symbols_and_grid() -> None:
    found = bind(GEMM, {"A": dense(300, 512), "B": dense(1000, 512), "C": dense(300, 1000)})
    assert found == Binding({"M": 300, "K": 512, "N": 1000}, (2, 4), {})


def test_a_mismatch_names_the_symbol_and_both_arrays() -> None:
    text = message(GEMM, {"A": dense(300, 512), "B": dense(1000, 500), "C": dense(301, 1000)})
    assert "k.tile:3:11: error: [E1611] K is 512 in %A but 500 in %B" in text
    assert "k.tile:3:21: error: [E1611] M is 300 in %A but 301 in %C" in text
    assert "k.tile:3:1: note: first determined here" in text


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({"B": None}, "[E1601] no value for %B of @k"),
        ({"X": 3}, "[E1602] @k has no argument %X"),
        ({"A": 3.5}, "[E1603] %A is a view, but gets float 3.5"),
        ({"A": dense(300, 512, dtype=np.float32)}, "[E1604] %A has elements of bf16, but the array has dtype float32"),
        ({"A": dense(300)}, "[E1605] %A has rank 2, but the array has shape [300]"),
        ({"A": dense(2**31, 512)}, "[E1607] dimension 0 of %A is 2147483648"),
        ({"A": ArrayInfo(BF, (300, 512), (512, -1))}, "[E1608] %A has negative strides [512, -1]"),
        ({"A": ArrayInfo(BF, (300, 512), (1, 300))}, "[E1609] %A is row-major, but the array of shape [300, 512]"),
    ],
)
def test_faults(change: dict[str, Any], want: str) -> None:
    arguments = {"A": dense(300, 512), "B": dense(1000, 512), "C": dense(300, 1000), **change}
    text = message(GEMM, {k: v for k, v in arguments.items() if v is not None})
    assert want in text and "legal:" in text


def test_literal_dimensions_and_strides() -> None:
    kernel = kernel_of(A=GlobalType(F32, ("M", 8), ("S", 1)))
    assert bind(kernel, {"A": ArrayInfo(np.float32, (3, 8), (20, 1))}).symbols == {"M": 3, "S": 20}
    assert "dimension 1 of %A is 8, but the array has 9" in message(kernel, {"A": dense(3, 9, dtype=np.float32)})
    wrong = ArrayInfo(np.float32, (3, 8), (20, 2))
    assert "[E1610] stride 1 of %A is 1, but the array has 2" in message(kernel, {"A": wrong})


def test_strides_of_single_elements_do_not_matter() -> None:
    assert bind(kernel_of(A=GlobalType(F32, ("M", "N"))), {"A": ArrayInfo(np.float32, (1, 4), (999, 1))})
    assert bind(kernel_of(A=GlobalType(F32, ("M", "N"))), {"A": ArrayInfo(np.float32, (0, 4), (7, 7))})
    kernel = kernel_of(A=GlobalType(F32, ("M", 4), ("S", 1)), B=GlobalType(F32, ("N", 4), ("S", 1)))
    one, many = ArrayInfo(np.float32, (1, 4), (999, 1)), ArrayInfo(np.float32, (5, 4), (16, 1))
    assert bind(kernel, {"A": one, "B": many}).symbols["S"] == 16
    assert bind(kernel, {"A": many, "B": one}).symbols["S"] == 16
    other = ArrayInfo(np.float32, (5, 4), (8, 1))
    assert "S is 16 in the strides of %A but 8 in the strides of %B" in message(kernel, {"A": many, "B": other})


def test_a_stride_of_zero() -> None:
    kernel = kernel_of(A=GlobalType(F32, ("M", "N"), ("S", 1)))
    assert bind(kernel, {"A": ArrayInfo(np.float32, (5, 4), (0, 1))}).symbols["S"] == 0


def test_stated_symbols() -> None:
    free = kernel_of((symbol("N"),), A=GlobalType(F32, ("M",)))
    info = dense(7, dtype=np.float32)
    assert used_symbols(free) == ("M", "N")
    assert bind(free, {"A": info}, {"N": 3, "M": 7}).grid == (3,)
    assert "[E1613] nothing determines the symbol N" in message(free, {"A": info})
    assert "M is 7 in %A but 8 in the given symbols" in message(free, {"A": info}, symbols={"M": 8, "N": 1})
    assert "[E1612] @k has no symbol Q" in message(free, {"A": info}, symbols={"Q": 8, "N": 1})


def test_grids_that_cannot_be() -> None:
    by_zero = kernel_of((binary("div", integer(8), symbol("M")),), A=GlobalType(F32, ("M",)))
    text = message(by_zero, {"A": dense(0, dtype=np.float32)})
    assert "k.tile:2:1: error: [E1616] the grid size '8 / M' divides by zero" in text and "with M = 0" in text
    negative = kernel_of((binary("sub", symbol("M"), integer(8)),), A=GlobalType(F32, ("M",)))
    assert "[E1617] the grid size 'M - 8' is -3" in message(negative, {"A": dense(5, dtype=np.float32)})


def scalar(elem: Elem, value: Any) -> np.ndarray:
    found = bind(kernel_of(x=TileType(elem)), {"x": value}).scalars["x"]
    assert found.dtype == elem.np and found.shape == ()
    return found


def test_scalars_get_the_exact_type() -> None:
    assert scalar(F32, 0.1) == np.float32(0.1)
    assert scalar(F32, 3) == 3
    assert scalar(F32, np.float64(0.1)) == np.float32(0.1)
    assert scalar(BF16, 1.0) == 1
    assert scalar(ELEMS["f16"], BF16.np.type(2.0)) == 2
    assert scalar(I32, 2**32 - 1) == -1
    assert scalar(I64, -(2**63)) == -(2**63)
    assert scalar(I32, np.int64(5)) == 5
    assert scalar(I32, np.array(5, np.int32)) == 5
    assert scalar(I1, True) and not scalar(I1, np.bool_(False))


@pytest.mark.parametrize(
    ("elem", "value", "want"),
    [
        (I32, 2**32, "[E1614] 4294967296 does not fit %x: i32"),
        (I32, 1.5, "[E1615] %x is i32, but gets float 1.5"),
        (I32, True, "[E1615] %x is i32, but gets bool True"),
        (I1, 1, "[E1615] %x is i1, but gets int 1"),
        (F32, True, "[E1615] %x is f32, but gets bool True"),
        (F32, "1", "[E1615] %x is f32, but gets str 1"),
        (F32, 10**400, "[E1614]"),
        (F32, np.zeros(3), "[E1615] %x is f32, but gets ndarray"),
        (F32, None, "[E1615] %x is f32, but gets NoneType None"),
    ],
)
def test_scalars_that_do_not_fit(elem: Elem, value: Any, want: str) -> None:
    assert want in message(kernel_of(x=TileType(elem)), {"x": value})


def test_array_info_of_odd_strides() -> None:
    records = np.zeros(4, np.dtype([("tag", np.uint8), ("x", np.float32)]))
    kernel = kernel_of(A=GlobalType(F32, (4,), ("S",)))
    assert "strides (5,) in bytes" in message(kernel, {"A": array_info(records["x"])})


def storing(*stored: str, aliases: tuple[tuple[str, str], ...] = ()) -> Kernel:
    from interpreter.kernels import load_all, make_kernel, store_all

    types: dict[str, Type] = {n: GlobalType(I32, (4,)) for n in "ABC"}

    def body(b: Any, *views: Value) -> None:
        for v in views:
            if v.name in stored:
                store_all(b, load_all(b, views[0]), v)

    return make_kernel(types, body, aliases=aliases)


def test_written_views() -> None:
    assert written_views(storing("C", "B")) == ("B", "C")
    assert written_views(storing()) == ()


def test_overlap_matters_only_where_something_is_written_and_not_declared() -> None:
    everything = lambda a, b: True  # noqa: E731
    check_overlap(storing(), (), everything)
    with pytest.raises(LaunchError) as caught:
        check_overlap(storing("B"), ("B",), everything)
    text = str(caught.value)
    assert "[E1618] %A and %B share memory" in text and "%B and %C share memory" in text and "%A and %C" not in text
    assert "alias(%A, %B)" in text
    check_overlap(storing("B", aliases=(("B", "A"), ("B", "C"))), ("B",), everything)
    check_overlap(storing("B"), ("B",), lambda a, b: False)
