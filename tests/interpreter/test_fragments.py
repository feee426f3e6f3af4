"""Ops on fragments: registers of tiles taken apart and put together, single reads, writes and copies, one matrix instruction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tileir.frontend import parse
from tileir.interpreter import InterpreterError, run
from tileir.ir.diagnostics import CompileError
from tileir.layout import mfma_accumulator, mfma_operand

LINE = "linear(reg = [[64], [128]], lane = [[1], [2], [4], [8], [16], [32]], wave = [])"
SQUARE = "linear(reg = [[0, 1], [0, 2], [16, 0], [32, 0]], lane = [[1, 0], [2, 0], [4, 0], [8, 0], [0, 4], [0, 8]], wave = [])"


def execute(body: str, x: Any, y: Any, waves: int = 1) -> Any:
    """Runs a kernel with views %X and %Y of the arrays; gives the second, which it may write."""
    names = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "int32": "i32"}
    views = ", ".join(
        f"%{n}: global<{names[a.dtype.name]}{list(a.shape)}>" for n, a in (("X", x), ("Y", y))
    )  # fmt: skip
    text = f"tileir 1\nkernel @k({views}) grid(1) with(waves = {waves}) {{\n{body}\n}}\n"
    run(parse(text, "k.tile").kernels[0], {"X": x, "Y": y})
    return y


def test_split_and_join() -> None:
    """Registers 0 to 3 of a lane are 64 elements apart; the halves are exchanged."""
    x = np.arange(256, dtype=np.float32)
    body = f"""
  %x = load(%X[0 +: 256]) : tile<f32[256], {LINE}>
  %low, %high = split_registers(%x) : fragment<f32[2]>, fragment<f32[2]>
  %y = join_registers(%high, %low) : tile<f32[256], {LINE}>
  store(%y, %Y[0 +: 256])"""
    y = execute(body, x, np.zeros_like(x))
    assert y.tolist() == [*range(128, 256), *range(128)]


def test_slices_and_joined_fragments() -> None:
    x = np.arange(256, dtype=np.float32)
    body = f"""
  %x = load(%X[0 +: 256]) : tile<f32[256], {LINE}>
  %all = split_registers(%x) : fragment<f32[4]>
  %a = slice_fragment<at = 3>(%all) : fragment<f32[1]>
  %b = slice_fragment<at = 0>(%all) : fragment<f32[3]>
  %turned = join_fragments(%a, %b)
  %y = join_registers(%turned) : tile<f32[256], {LINE}>
  store(%y, %Y[0 +: 256])"""
    y = execute(body, x, np.zeros_like(x))
    assert y.tolist() == [*range(192, 256), *range(192)]


@pytest.mark.parametrize(("kind", "reference"), [("add", np.sum), ("max", np.max), ("min", np.min)])
def test_folded_fragments(kind: str, reference: Callable[..., Any]) -> None:
    """Elementwise ops on fragments, one element for all, and the elements of a lane put together: registers are 64 elements apart."""
    x = np.random.default_rng(1).standard_normal(256).astype(np.float32)
    body = f"""
  %x = load(%X[0 +: 256]) : tile<f32[256], {LINE}>
  %all = split_registers(%x) : fragment<f32[4]>
  %first = slice_fragment<at = 0>(%all) : fragment<f32[1]>
  %rest = slice_fragment<at = 1>(%all) : fragment<f32[3]>
  %m = fold_fragment<{kind}>(%first, %rest) : fragment<f32[1]>
  %d = sub(%all, %m) : fragment<f32[4]>
  %y = join_registers(%d) : tile<f32[256], {LINE}>
  store(%y, %Y[0 +: 256])"""
    y = execute(body, x, np.zeros_like(x))
    lanes = x.reshape(4, 64)
    np.testing.assert_allclose(y.reshape(4, 64), lanes - reference(lanes, axis=0), rtol=0, atol=1e-6)


@pytest.mark.parametrize("lane", range(6))
def test_swapped_fragments(lane: int) -> None:
    """The bit of the lane and that which tells the fragments apart change places."""
    x = np.arange(128, dtype=np.float32)
    line = LINE.replace("[64], [128]", "[64]")
    body = f"""
  %x = load(%X[0 +: 128]) : tile<f32[128], {line}>
  %a, %b = split_registers(%x) : fragment<f32[1]>, fragment<f32[1]>
  %c, %d = swap_fragments<lane = {lane}>(%a, %b) : fragment<f32[1]>, fragment<f32[1]>
  %y = join_registers(%c, %d) : tile<f32[128], {line}>
  store(%y, %Y[0 +: 128])"""
    y = execute(body, x, np.zeros_like(x))
    low, high = np.arange(128) >> lane & 1, np.arange(128) >> 6
    mask = (1 << lane) | 64
    assert y.tolist() == [(i & ~mask) | (h << lane) | (b << 6) for i, b, h in zip(range(128), low, high, strict=True)]


@pytest.mark.parametrize("read", ["shared_load_fragment", "shared_load_transposed_fragment"])
def test_lds_by_single_accesses(read: str) -> None:
    """Written by two writes, read by four reads in another order."""
    x = np.arange(256, dtype=np.float32)
    reads = "\n".join(f"  %r{i} = {read}<at = {i}>(%s, %m) : fragment<f32[1]>" for i in range(4))
    body = f"""
  %s = shared_alloc() : shared<f32[256]>
  %m = register_map() : tile<f32[256], {LINE}>
  %x = load(%X[0 +: 256]) : tile<f32[256], {LINE}>
  %f, %g = split_registers(%x) : fragment<f32[2]>, fragment<f32[2]>
  shared_store_fragment(%f, %s, %m)
  shared_store_fragment<at = 2>(%g, %s, %m)
  wait<lgkm = 0>()
  schedule_fence()
  barrier_of<half = 1>()
  priority<1>()
  barrier_of<half = 0>()
{reads}
  %y = join_registers(%r3, %r2, %r1, %r0) : tile<f32[256], {LINE}>
  store(%y, %Y[0 +: 256])"""
    y = execute(body, x, np.zeros_like(x))
    assert y.tolist() == [*range(192, 256), *range(128, 192), *range(64, 128), *range(64)]


def test_a_part_that_nobody_wrote() -> None:
    body = f"""
  %s = shared_alloc() : shared<f32[256]>
  %m = register_map() : tile<f32[256], {LINE}>
  %x = load(%X[0 +: 256]) : tile<f32[256], {LINE}>
  %f, %g = split_registers(%x) : fragment<f32[2]>, fragment<f32[2]>
  shared_store_fragment(%f, %s, %m)
  %r = shared_load_fragment<at = AT>(%s, %m) : fragment<f32[2]>
  %y = join_registers(%r, %r) : tile<f32[256], {LINE}>
  store(%y, %Y[0 +: 256])"""
    x = np.arange(256, dtype=np.float32)
    y = execute(body.replace("AT", "0"), x, np.zeros_like(x))
    assert y.tolist() == [*range(128), *range(128)]
    with pytest.raises(InterpreterError, match="E1702"):
        execute(body.replace("AT", "2"), x, np.zeros_like(x))


def test_copies_by_single_instructions_land_one_by_one() -> None:
    """Four instructions of 16 bytes a lane for 4096 bytes; a read needs only those that fill its rows."""
    body = f"""
  %c = constant<0>() : i32
  %s = shared_alloc() : shared<f32[64, 16], rows>
  %m = register_map() : tile<f32[64, 16], {SQUARE}>
  copy_async_part<bytes = 16, part = 0>(%X[%c +: 64, %c +: 16], %s)
  copy_async_part<bytes = 16, part = 1>(%X[%c +: 64, %c +: 16], %s)
  copy_async_part<bytes = 16, part = 2>(%X[%c +: 64, %c +: 16], %s)
  copy_async_part<bytes = 16, part = 3>(%X[%c +: 64, %c +: 16], %s)
  wait<vm = VM>()
  %r0 = shared_load_fragment(%s, %m) : fragment<f32[4]>
  %r1 = shared_load_fragment<at = 4>(%s, %m) : fragment<f32[4]>
  wait<vm = 0>()
  %r2 = shared_load_fragment<at = 8>(%s, %m) : fragment<f32[4]>
  %r3 = shared_load_fragment<at = 12>(%s, %m) : fragment<f32[4]>
  %y = join_registers(%r0, %r1, %r2, %r3) : tile<f32[64, 16], {SQUARE}>
  store(%y, %Y[%c +: 64, %c +: 16])"""
    x = np.arange(1024, dtype=np.float32).reshape(64, 16)
    for vm in (0, 1, 2):
        assert np.array_equal(execute(body.replace("VM", str(vm)), x, np.zeros_like(x)), x)
    with pytest.raises(InterpreterError, match="E1703"):
        execute(body.replace("VM", "3"), x, np.zeros_like(x))


@pytest.mark.parametrize(
    ("together", "part", "runs"),
    [(1, 0, [0, 1]), (1, 3, [6, 7]), (2, 0, [0, 2]), (2, 1, [1, 3]), (4, 0, [0, 4]), (4, 3, [3, 7])],
)
def test_parts_side_by_side(together: int, part: int, runs: list[int]) -> None:
    """Which of eight runs of 64 pieces a part fills, of two waves."""
    lines = "linear(reg = [[0, 1], [0, 2], [64, 0], [128, 0]], lane = [[1, 0], [2, 0], [4, 0], [8, 0], [16, 0], [32, 0]], wave = [[256, 0]])"
    body = f"""
  %c = constant<0>() : i32
  %zero = fill(0.0) : tile<f32[512, 4], {lines}>
  %s = shared_alloc() : shared<f32[512, 4], rows>
  shared_store(%zero, %s)
  wait<lgkm = 0>()
  barrier()
  copy_async_part<bytes = 16, part = {part}, together = {together}>(%X[%c +: 512, %c +: 4], %s)
  wait<vm = 0>()
  barrier()
  %y = shared_load(%s) : tile<f32[512, 4], {lines}>
  store(%y, %Y[%c +: 512, %c +: 4])"""
    x = np.ones((512, 4), np.float32)
    y = execute(body, x, np.zeros_like(x), waves=2).reshape(8, -1)
    assert [i for i, run in enumerate(y) if run.all()] == runs and y.sum() == 2 * 256


def test_load_by_single_instructions() -> None:
    """Elements outside the view are zero."""
    body = f"""
  %c = constant<0>() : i32
  %m = register_map() : tile<f32[64, 16], {SQUARE}>
  %r0 = load_fragment(%X[%c +: 64, %c +: 16], %m) : fragment<f32[8]>
  %r1 = load_fragment<at = 8>(%X[%c +: 64, %c +: 16], %m) : fragment<f32[8]>
  %y = join_registers(%r0, %r1) : tile<f32[64, 16], {SQUARE}>
  store(%y, %Y[%c +: 64, %c +: 16])"""
    x = np.arange(600, dtype=np.float32).reshape(50, 12)
    y = execute(body, x, np.full((64, 16), 7, np.float32))
    assert np.array_equal(y[:50, :12], x) and not y[50:].any() and not y[:, 12:].any()


@pytest.mark.parametrize(
    ("dtype", "instr"), [("f16", (16, 16, 32)), ("bf16", (32, 32, 16)), ("i8", (16, 16, 64)), ("f32", (16, 16, 4))]
)
def test_one_matrix_instruction(dtype: str, instr: tuple[int, int, int]) -> None:
    """The lanes' maps of operands and accumulator are those of the layouts, the value is that of the product."""
    m, n, k = instr
    t: Any = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "f32": np.float32}[dtype]
    acc, out = ("i32", np.int32) if dtype == "i8" else ("f32", np.float32)
    bits = np.dtype(t).itemsize * 8
    a, b, c = mfma_operand(m, k, bits=bits), mfma_operand(n, k, bits=bits), mfma_accumulator(m, n)
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (m + n, k)).astype(t)
    y = rng.integers(-9, 9, (m, n)).astype(out)
    body = f"""
  %z = constant<0>() : i32
  %o = constant<{m}>() : i32
  %a = load(%X[%z +: {m}, %z +: {k}]) : tile<{dtype}[{m}, {k}], {a}>
  %b = load(%X[%o +: {n}, %z +: {k}]) : tile<{dtype}[{n}, {k}], {b}>
  %c = load(%Y[%z +: {m}, %z +: {n}]) : tile<{acc}[{m}, {n}], {c}>
  %fa = split_registers(%a) : fragment<{dtype}[{a.num_registers}]>
  %fb = split_registers(%b) : fragment<{dtype}[{b.num_registers}]>
  %fc = split_registers(%c) : fragment<{acc}[{c.num_registers}]>
  %d = mfma<instr = [{m}, {n}, {k}]>(%fa, %fb, %fc)
  %y = join_registers(%d) : tile<{acc}[{m}, {n}], {c}>
  store(%y, %Y[%z +: {m}, %z +: {n}])"""
    want = x[:m].astype(np.float64) @ x[m:].astype(np.float64).T + y
    assert np.array_equal(execute(body, x, y), want.astype(out))


HEAD = f"  %m = register_map() : tile<f32[256], {LINE}>\n  %s = shared_alloc() : shared<f32[256]>\n"
FRAGMENT = "  %f = shared_load_fragment(%s, %m) : fragment<f32[4]>\n"
WRONG = {
    "E0370": FRAGMENT + "  %g = slice_fragment<at = 0>(%m) : fragment<f32[1]>",
    "E0371": "  %g = shared_load_fragment(%s, %m)",
    "E0372": "  %t = fill(0.0) : tile<f32[256]>\n  %g = shared_load_fragment(%s, %t) : fragment<f32[1]>",
    "E0373": "  %g = shared_load_fragment<at = 3>(%s, %m) : fragment<f32[2]>",
    "E0374": "  %g = split_registers(%m) : fragment<f32[3]>",
    "E0375": FRAGMENT + "  %d = mfma<instr = [16, 16, 3]>(%f, %f, %f)",
    "E0306": "  priority<4>()",
}


@pytest.mark.parametrize("code", sorted(WRONG))
def test_rejected(code: str) -> None:
    text = "tileir 1\nkernel @k(%X: global<f32[256]>) grid(1) with(waves = 1) {\n" + HEAD + WRONG[code] + "\n}\n"
    with pytest.raises(CompileError) as e:
        parse(text, "k.tile")
    d = e.value.diagnostics[0]
    assert d.code == code and d.legal and d.loc.line > 3, d


COVERS = {
    "register_map": [test_lds_by_single_accesses],
    "split_registers": [test_split_and_join],
    "join_registers": [test_split_and_join],
    "slice_fragment": [test_slices_and_joined_fragments],
    "join_fragments": [test_slices_and_joined_fragments],
    "shared_load_fragment": [test_lds_by_single_accesses, test_a_part_that_nobody_wrote],
    "shared_load_transposed_fragment": [test_lds_by_single_accesses],
    "shared_store_fragment": [test_lds_by_single_accesses],
    "copy_async_part": [test_copies_by_single_instructions_land_one_by_one, test_parts_side_by_side],
    "load_fragment": [test_load_by_single_instructions],
    "fold_fragment": [test_folded_fragments],
    "swap_fragments": [test_swapped_fragments],
    "mfma": [test_one_matrix_instruction],
    "schedule_fence": [test_lds_by_single_accesses],
    "priority": [test_lds_by_single_accesses],
    "barrier_of": [test_lds_by_single_accesses],
}
