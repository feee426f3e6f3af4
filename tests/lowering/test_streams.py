"""Accesses that advance with a loop (`emit/streams.py`): right wherever one stretch of iterations ends and the next begins, and
without work of their own in the loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import CHIPS, DTYPES, device, integers
from tileir import kernels
from tileir.frontend import parse
from tileir.lowering.amdgpu.compile import Compiled, compile_kernel
from tileir.lowering.amdgpu.emit import streams
from tileir.runtime import BufferView, launch
from tileir.simulator.inspect import inspect

FORMS = ("nt", "nn", "tt", "tn")
SHAPES = ((70, 50, 8), (64, 72, 96), (64, 64, 200), (40, 64, 472))


def form(name: str, chip: str, depth: int) -> Compiled:
    params = {"BM": 64, "BN": 64, "BK": 32, "O": "f32"}
    names = {"gfx942": "via_registers", "gfx950": "direct"}
    stage = f"\nschedule @s of @gemm_{name} for {chip} {{\n  stage %a, %b in shared depth {depth} {names[chip]}\n}}\n"
    text = kernels.source("gemm_forms") + stage
    return compile_kernel(parse(text, "forms.tile", params, kernel=f"gemm_{name}"), f"gemm_{name}", chip)


def check(kernel: Compiled, name: str, chip: str) -> None:
    rng = np.random.default_rng(5)
    for m, n, k in SHAPES:
        a, b = integers(rng, (m, k), DTYPES["bf16"]), integers(rng, (k, n), DTYPES["bf16"])
        c = np.full((m, n), 7, np.float32)
        x = a if name[0] == "n" else np.ascontiguousarray(a.T)
        y = b if name[1] == "n" else np.ascontiguousarray(b.T)
        launch(kernel, {"A": x, "B": y, "C": c}, device(f"simulator:{chip}"))
        assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32)), (name, m, n, k)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("chip", CHIPS)
def test_short_reach(chip: str, name: str, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Descriptors are made anew every few iterations, or in each, when scalar offsets may grow to 256 bytes only."""
    monkeypatch.setattr(streams, "REACH", 256)
    check(form(name, chip, depth), name, chip)


@pytest.mark.parametrize(("chip", "name"), [("gfx942", "nt"), *(("gfx950", name) for name in FORMS)])
def test_loops_compute_no_addresses(chip: str, name: str) -> None:
    """The loop has no vector arithmetic; scalar work is one instruction for the place in LDS of each direct copy, one for
    each distance that offsets grow by, and the loop's own comparison."""
    loop = inspect(form(name, chip, 1).hsaco).kernel.hot_loop
    assert loop is not None
    counts = loop.counts.classes
    assert counts["valu"] == 0 and counts["salu"] <= counts["direct_to_lds"] + 4, counts
    check(form(name, chip, 1), name, chip)


SLIDING = """tileir 1
kernel @sliding(%A: global<f32[M, K]>, %B: global<f32[K, 32]>, %C: global<f32[16, 32]>, %first: i64) grid(1) {
  %zero = fill(0.0) : tile<f32[16, 32]>
  %acc = for %j = 0 to 7 step 1 carry(%s = %zero) {
    %x = load(%A[0 +: 16, %j * 32 - 64 +: 32])
    %y = load(%A[8 +: 16, %j * 32 +: 32])
    %z = load(%B[%j * 16 + 4 +: 16, 0 +: 32])
    yield %s + %x + 2.0 * %y + 4.0 * %z
  }
  store(%acc, %C[0 +: 16, 0 +: 32])
}
"""


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("counter", ["0 to 7 step 1", "convert<i64>(0) to convert<i64>(7) step convert<i64>(1)"])
@pytest.mark.parametrize(("rows", "columns"), [(24, 192), (12, 100), (3, 32)])
def test_windows_before_and_behind_the_view(chip: str, counter: str, rows: int, columns: int) -> None:
    """Starts below zero, tiles that leave the view in the middle of the loop, and a counter that is scaled."""
    text = SLIDING.replace("0 to 7 step 1", counter).replace(", %first: i64", "")
    kernel = compile_kernel(parse(text, "sliding.tile"), "sliding", chip)
    rng = np.random.default_rng(3)
    a, b = integers(rng, (rows, columns), np.float32), integers(rng, (columns, 32), np.float32)
    c = np.full((16, 32), 7, np.float32)
    launch(kernel, {"A": a, "B": b, "C": c}, device(f"simulator:{chip}"))

    def tile(x: np.ndarray, row: int, col: int) -> np.ndarray:
        padded = np.pad(x, ((0, 400), (64, 400)))
        return padded[row : row + 16, col + 64 : col + 96]

    want = sum(tile(a, 0, 32 * j - 64) + 2 * tile(a, 8, 32 * j) + 4 * tile(b, 16 * j + 4, 0) for j in range(7))
    assert np.array_equal(c, want)


@pytest.mark.parametrize("chip", CHIPS)
def test_rows_far_apart(chip: str) -> None:
    """Rows of B 16 MiB apart, over which k runs: the scalar offset reaches its end in the middle, and the descriptor moves on."""
    kernel = form("nn", chip, 1)
    m, n, k, pitch = 40, 24, 168, 1 << 23
    rng = np.random.default_rng(8)
    a, b = integers(rng, (m, k), DTYPES["bf16"]), integers(rng, (k, n), DTYPES["bf16"])
    c = np.full((m, n), 7, np.float32)
    dev = device(f"simulator:{chip}")
    assert (k - 1) * pitch * 2 > 2 * streams.REACH and kernel.kernel is not None
    buffer = dev.alloc((k - 1) * pitch * 2 + 4096)
    try:
        for i in range(k):
            dev.copy_in(buffer, np.ascontiguousarray(b[i]).view(np.uint8), i * pitch * 2)
        elem = kernel.kernel.args[1].type.elem  # type: ignore[union-attr]
        launch(kernel, {"A": a, "B": BufferView(buffer, elem, (k, n), (pitch, 1)), "C": c}, dev)
    finally:
        dev.free(buffer)
    assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


LAST = """tileir 1
kernel @last(%A: global<f32[2, 6, 8]>, %B: global<f32[2, 2, 6, 8]>) grid(1) with(waves = 2) {
  store(reduce_add(load(%A[0 +: 2, 0 +: 6, 0 +: 8]), axis = 0), %B[0, 0 +: 1, 0 +: 6, 0 +: 8])
}
"""


@pytest.mark.parametrize("chip", CHIPS)
def test_two_masks_and_a_plain_offset(chip: str) -> None:
    """A copy of another wave's rows, in lanes beyond the tile: both masks together saturate, and no offset is added on top."""
    a, b = np.arange(96, dtype=np.float32).reshape(2, 6, 8), np.full((2, 2, 6, 8), 7, np.float32)
    launch(compile_kernel(parse(LAST, "last.tile"), "last", chip), {"A": a, "B": b}, device(f"simulator:{chip}"))
    assert np.array_equal(b[0, 0], a.sum(axis=0)) and np.all(b[0, 1] == 7) and np.all(b[1] == 7)


@pytest.mark.parametrize("first", ["%start", "max(%start, 0)"])
@pytest.mark.parametrize("chip", CHIPS)
def test_stretches_of_a_row(chip: str, first: str) -> None:
    """In a loop with products, and before it, descriptors end with the row. Stretches begin before it, which may be known not to be, end behind
    it, and lie in no row at all."""
    text = """tileir 1
kernel @k(%A: global<bf16[64, 64]>, %S: global<f32[B, N]>, %C: global<f32[64, 64]>, %start: i32, %b: i32) grid(1) with(waves = 1) {
  %a = load(%A[0 +: 64, 0 +: 64])
  %first = FIRST
  %before = broadcast<[64, 64]>(reshape<[1, 64]>(load(%S[%b, %first +: 64])))
  %sum = for %i = %first to N step 64 carry(%c = %before) {
    %s = load(%S[%b, %i +: 64])
    yield mma(%a, transpose(%a), %c) + broadcast<[64, 64]>(reshape<[1, 64]>(%s))
  }
  store(%sum, %C[0 +: 64, 0 +: 64])
}
""".replace("FIRST", first)
    compiled = compile_kernel(parse(text, "k.tile"), "k", chip)
    rng = np.random.default_rng(1)
    a = integers(rng, (64, 64), DTYPES["bf16"])
    square = a.astype(np.float32) @ a.astype(np.float32).T
    for n, start, b in ((300, -37, 1), (300, 5, 0), (300, 0, 3), (64, 0, -1), (7, -64, 2), (200, 199, 2), (9, 40, 1)):
        whole = integers(rng, (5, n), np.float32)
        c = np.zeros((64, 64), np.float32)
        launch(compiled, {"A": a, "S": whole[1:-1], "C": c, "start": start, "b": b}, device(f"simulator:{chip}"))

        def row(i: int, whole: np.ndarray[Any, Any] = whole, n: int = n, b: int = b) -> np.ndarray[Any, Any]:
            at = np.arange(i, i + 64)
            return np.where((at >= 0) & (at < n) & (0 <= b < 3), whole[b + 1][np.clip(at, 0, n - 1)], 0)

        begin = start if first == "%start" else max(start, 0)
        want = np.zeros((64, 64), np.float32) + row(begin)
        for i in range(begin, n, 64):
            want += square + row(i)
        np.testing.assert_array_equal(c, want)
