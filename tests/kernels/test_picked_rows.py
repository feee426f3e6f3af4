"""Gather and scatter: rows that a tile of indices picks, on the simulator against the interpreter, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

from tileir.ir.types import BF16
from tileir.runtime import BufferView, launch

from .harness import CHIPS, compiled, device, integers
from .test_conversions import mnemonics
from .test_shapes import TYPES, agree

# Negative and too large indices, some of them far away, are outside.
ROWS = np.array([5, 0, -1, 7, 7, 29, 30, 1 << 20, -(1 << 31), 3, 12, 12, (1 << 31) - 1, 2, 28, 1], np.int64)


def rows(n: int, most: int, seed: int = 0) -> np.ndarray:
    """`n` indices, a quarter of them outside of a view of `most` rows."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random(n) < 0.25, np.resize(ROWS, n), rng.integers(0, most, n))


GATHER = """tileir 1
kernel @k<E: type = f32, I: type = i32, R: int = 16, C: int = 32, W: int = 4>(%A: global<E[M, N]>, %I: global<I[L]>,
    %B: global<E[L, N]>) grid(cdiv(L, R), cdiv(N, C)) with(waves = W) {
  %i, %j = program_id()
  %rows = load(%I[%i * R +: R], pad = -1)
  %x = load(%A[%rows, %j * C +: C]PAD)
  store(%x, %B[%i * R +: R, %j * C +: C])
}
"""


def gather(
    chip: str, elem: str, index: str, r: int, c: int, waves: int, m: int, n: int, length: int, pad: str = ""
) -> None:
    t = TYPES[elem]
    a = integers(np.random.default_rng(1), (m, n), t, 100)
    at = rows(length, m).astype(index.replace("i", "int"))
    params = (("E", elem), ("I", index), ("R", r), ("C", c), ("W", waves))
    kernel = compiled(GATHER.replace("PAD", pad), chip, params)
    b = np.zeros((length, n), t)
    launch(kernel, {"A": a, "I": at, "B": b}, device(f"simulator:{chip}"))
    outside = (at < 0) | (at >= m)
    want = np.where(outside[:, None], np.asarray(3 if pad else 0, t), a[np.where(outside, 0, at)])
    np.testing.assert_array_equal(b, want)


@pytest.mark.parametrize(
    ("elem", "index", "r", "c", "waves", "m", "n", "length"),
    [
        ("f32", "i32", 16, 32, 4, 30, 64, 33),  # wide
        ("bf16", "i64", 64, 128, 4, 40, 136, 70),  # wide, ragged columns
        ("f16", "i32", 32, 16, 1, 30, 33, 100),  # rows that are not aligned
        ("i8", "i32", 96, 80, 8, 50, 160, 96),  # no powers of two
        ("f64", "i32", 1, 64, 2, 30, 7, 5),
        ("i32", "i64", 256, 1, 4, 30, 1, 300),
    ],
)
def test_gather(elem: str, index: str, r: int, c: int, waves: int, m: int, n: int, length: int) -> None:
    gather(CHIPS[waves % 2], elem, index, r, c, waves, m, n, length)


@pytest.mark.parametrize("chip", CHIPS)
def test_gather_with_a_pad(chip: str) -> None:
    gather(chip, "f32", "i32", 16, 32, 4, 30, 64, 33, ", pad = 3.0")


@pytest.mark.parametrize("chip", CHIPS)
def test_rows_are_read_16_bytes_at_a_time(chip: str) -> None:
    """The wide version: one load per lane for 8 elements of bf16."""
    kernel = compiled(GATHER.replace("PAD", ""), chip, (("E", "bf16"), ("R", 64), ("C", 128)))
    assert mnemonics(kernel)["global_load_dwordx4"] == 64 * 128 // (256 * 8)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("elem", "n", "waves"), [("f32", 64, 4), ("bf16", 72, 2), ("i8", 33, 1), ("f64", 40, 8)])
def test_scatter(elem: str, n: int, waves: int, chip: str) -> None:
    """Every row once; rows and columns outside are dropped, everything else stays."""
    text = f"""tileir 1
kernel @k(%A: global<{elem}[L, N]>, %I: global<i32[L]>, %B: global<{elem}[M, N]>) grid(cdiv(L, 16), cdiv(N, 32))
    with(waves = {waves}) {{
  %i, %j = program_id()
  %rows = reshape<[16, 1]>(load(%I[%i * 16 +: 16], pad = -1))
  %x = load(%A[%i * 16 +: 16, %j * 32 +: 32])
  store(%x, %B[%rows, %j * 32 +: 32])
}}
"""
    rng = np.random.default_rng(3)
    t = TYPES[elem]
    a = integers(rng, (40, n), t)
    at = rng.permutation(50)[:40].astype(np.int32)
    at[::7] = [-1, 50, 1 << 30, -(1 << 31), 99, -7]
    b = integers(rng, (50, n), t)
    want = b.copy()
    inside = (at >= 0) & (at < 50)
    want[at[inside]] = a[inside]
    launch(compiled(text, chip), {"A": a, "I": at, "B": b}, device(f"simulator:{chip}"))
    np.testing.assert_array_equal(b, want)


@pytest.mark.parametrize("waves", [1, 4])
def test_picked_places_of_vectors_columns_and_planes(waves: int) -> None:
    """Elements of a vector, columns (elements apart), planes of a view of rank 3; indices that are computed, carried by a
    loop, and used twice."""
    text = f"""tileir 1
kernel @k(%A: global<f32[40]>, %B: global<f32[20, 40]>, %C: global<f32[6, 5, 40]>, %X: global<f32[3, 16, 8]>,
    %Y: global<f32[4, 3, 8]>) grid(1) with(waves = {waves}) {{
  %i = iota<[8]>(axis = 0) * 5 - 2
  store(load(%A[%i]), %X[0, 0, 0 +: 8])
  %start = iota<[8]>(axis = 0)
  %last = for %k = 0 to 3 step 1 carry(%at = %start) {{
    store(load(%B[2 +: 16, %at]), %X[%k, 0 +: 16, 0 +: 8])
    yield %at * 2 + 1
  }}
  %planes = mod(%last, 7) - 1
  store(load(%C[iota<[4]>(axis = 0) * 2, 1 +: 3, 8 +: 8]), %Y[0 +: 4, 0 +: 3, 0 +: 8])
  store(load(%C[%planes, 2, 0 +: 8]) + load(%A[%planes]), %X[1, 0 +: 8, 0 +: 8])
}}
"""
    rng = np.random.default_rng(4)
    arrays = {n: integers(rng, s, np.float32, 9) for n, s in {"A": (40,), "B": (20, 40), "C": (6, 5, 40)}.items()}
    arrays |= {"X": np.zeros((3, 16, 8), np.float32), "Y": np.zeros((4, 3, 8), np.float32)}
    both = {n: a.copy() for n, a in arrays.items()}
    agree(text.replace("+ load(%A[%planes])", ""), CHIPS[waves // 4], arrays, "X")
    agree(text.replace("+ load(%A[%planes])", ""), CHIPS[waves // 4], both, "Y")


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("n", [64, 63])
def test_products_of_picked_rows(n: int, chip: str) -> None:
    """Operands of matrix products, plain and turned, in a loop (as in attention over pages)."""
    text = """tileir 1
kernel @k(%A: global<bf16[64, K]>, %B: global<bf16[R, K]>, %V: global<bf16[R, 64]>, %I: global<i32[P, 32]>,
    %C: global<f32[64, 64]>) grid(1) {
  %a = load(%A[0 +: 64, 0 +: 64])
  %zero = fill(0.0) : tile<f32[64, 64]>
  %c = for %p = 0 to P step 1 carry(%x = %zero) {
    %rows = load(%I[%p, 0 +: 32])
    %s = mma(%a, transpose(load(%B[%rows, 0 +: 64])))
    yield mma(convert<bf16>(%s), load(%V[%rows, 0 +: 64]), %x)
  }
  store(%c, %C[0 +: 64, 0 +: 64])
}
"""
    rng = np.random.default_rng(5)
    t = TYPES["bf16"]
    at = rows(96, 30).reshape(3, 32).astype(np.int32)
    a, b, v = (integers(rng, shape, t, 1) for shape in ((64, n), (30, n), (30, 64)))
    c = np.zeros((64, 64), np.float32)
    launch(compiled(text, chip), {"A": a, "B": b, "V": v, "I": at, "C": c}, device(f"simulator:{chip}"))
    inside = ((at >= 0) & (at < 30)).reshape(-1, 1)
    flat = np.where(inside, at.reshape(-1, 1), 0)[:, 0]
    bs, vs = (np.where(inside, x[flat].astype(np.float32), 0) for x in (b, v))
    np.testing.assert_array_equal(c, (a.astype(np.float32) @ bs.T) @ vs)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("pitch", [1 << 30, (1 << 30) + 1])
def test_rows_beyond_4_gib(chip: str, pitch: int) -> None:
    """Rows 2 GiB apart (and unaligned): loads and stores of picked rows reach all of them."""
    text = """tileir 1
kernel @k(%A: global<bf16[8, N], strides = [S, 1]>, %I: global<i32[4]>, %B: global<bf16[4, N]>) grid(1) {
  %rows = load(%I[0 +: 4])
  %x = load(%A[%rows, 0 +: 32])
  store(%x, %B[0 +: 4, 0 +: 32])
  store(%x + 1.0, %A[%rows - 1, 0 +: 32])
}
"""
    n, t, dev = 24, TYPES["bf16"], device(f"simulator:{chip}")
    kernel = compiled(text, chip)
    a = integers(np.random.default_rng(6), (8, n), t)
    buffer = dev.alloc(7 * pitch * 2 + 4096)
    try:
        for i in range(8):
            dev.copy_in(buffer, a[i].view(np.uint8), i * pitch * 2)
        b = np.zeros((4, n), t)
        view = BufferView(buffer, BF16, (8, n), (pitch, 1))
        launch(kernel, {"A": view, "I": np.array([7, 5, 3, 1], np.int32), "B": b}, dev)
        np.testing.assert_array_equal(b, a[[7, 5, 3, 1]])
        for i in range(8):
            got = dev.copy_out(buffer, n * 2, i * pitch * 2).view(t)
            np.testing.assert_array_equal(got, a[i] if i % 2 else (a[i + 1] + t(1)))
    finally:
        dev.free(buffer)
