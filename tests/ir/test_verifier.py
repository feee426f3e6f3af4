"""The verifier rejects kernels that no text can express but a faulty pass could build."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tileir.ir import expr
from tileir.ir.builder import Builder, Names
from tileir.ir.core import Block, Kernel, Op, Value
from tileir.ir.diagnostics import CompileError
from tileir.ir.types import F16, F32, I1, I32, GlobalType, TileType, scalar
from tileir.ir.verifier import verify


def kernel(build: Callable[[Builder, Value], object]) -> Kernel:
    view = Value("A", GlobalType(F32, ("M",)))
    block = Block()
    build(Builder(block, Names({"A"})), view)
    return Kernel("k", {}, [view], (expr.symbol("M"),), block)


def code_of(k: Kernel) -> str:
    with pytest.raises(CompileError) as caught:
        verify(k)
    (d,) = caught.value.diagnostics
    assert d.legal
    return d.code


def test_a_sound_kernel_verifies() -> None:
    verify(kernel(lambda b, a: b.op("store", [b.constant(1.0, F32), a, b.constant(0, I32)], spans=(None,))))


def test_names_are_unique() -> None:
    k = kernel(lambda b, a: [b.constant(1.0, F32), b.constant(2.0, F32)])
    k.body.ops[1].results[0].name = k.body.ops[0].results[0].name
    assert code_of(k) == "E0202"
    k.body.ops[1].results[0].name = "A"
    assert code_of(k) == "E0202"


def test_uses_follow_definitions() -> None:
    k = kernel(lambda b, a: b.op("neg", [b.constant(1.0, F32)]))
    k.body.ops.reverse()
    assert code_of(k) == "E0203"


def test_values_of_a_region_stay_inside() -> None:
    def build(b: Builder, a: Value) -> None:
        condition = b.constant(True, I1)
        inner = Block()
        x = Builder(inner, b.names).constant(1.0, F32)
        inner.ops.append(Op("yield", []))
        b.op("if", [condition], regions=[inner])
        b.op("neg", [x])

    assert code_of(kernel(build)) == "E0203"


def test_ops_exist() -> None:
    k = kernel(lambda b, a: None)
    k.body.ops.append(Op("frobnicate", []))
    assert code_of(k) == "E0201"


def test_result_types_are_what_the_op_gives() -> None:
    k = kernel(lambda b, a: b.op("neg", [b.constant(1.0, F32)]))
    k.body.ops[1].results[0].type = scalar(F16)
    assert code_of(k) == "E0304"
    k.body.ops[1].results.append(Value("more", scalar(F32)))
    assert code_of(k) == "E0303"


def test_regions_end_in_yield() -> None:
    k = kernel(lambda b, a: b.op("if", [b.constant(True, I1)], regions=[Block(ops=[Op("yield", [])])]))
    k.body.ops[1].regions[0].ops.clear()
    assert code_of(k) == "E0502"
    k = kernel(lambda b, a: b.constant(True, I1))
    k.body.ops.append(Op("yield", []))
    assert code_of(k) == "E0501"


def test_carried_values_keep_their_types() -> None:
    def build(b: Builder, a: Value) -> None:
        start, end, step = (b.constant(n, I32) for n in (0, 4, 1))
        c = Value("carried", scalar(F32))
        body = Block([Value("k", scalar(I32)), c], [Op("yield", [c])])
        b.op("for", [start, end, step, b.constant(1.0, F32)], regions=[body])

    k = kernel(build)
    verify(k)
    loop = k.body.ops[-1]
    loop.regions[0].args[1].type = scalar(F16)
    assert code_of(k) == "E0505"
    loop.regions[0].args[1].type = scalar(F32)
    loop.regions[0].args[0].type = TileType(F32)
    assert code_of(k) == "E0505"


def test_the_grid_has_as_many_positions() -> None:
    assert code_of(kernel(lambda b, a: b.op("program_id", num_results=2))) == "E0511"


def test_symbols_come_from_arguments() -> None:
    verify(kernel(lambda b, a: b.op("dim", attrs={"symbol": "M"})))
    assert code_of(kernel(lambda b, a: b.op("dim", attrs={"symbol": "N"}))) == "E0205"
