"""Sparse matrix instructions: native library against the specification, index sets, and a vector worked out by hand."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
from simulator_harness import Bench, instruction, v

from tileir.simulator.native.sparse import OPS, shape_of
from tileir.simulator.spec.matrix import BITS
from tileir.simulator.spec.sparse import sparse_product

D, A, B, INDEX = 10, 40, 60, v(80)
KINDS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "i8": np.int8}
FLOAT8 = {
    "gfx942": {"fp8": ml_dtypes.float8_e4m3fnuz, "bf8": ml_dtypes.float8_e5m2fnuz},
    "gfx950": {"fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2},
}


def operand(kind: str, chip: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """[register][lane] of small integers, which every format holds and whose sums are exact."""
    dtype = KINDS.get(kind) or FLOAT8[chip][kind]
    values = rng.integers(-4, 5, (64, count)).astype(np.float32).astype(dtype)
    return np.ascontiguousarray(values.view(np.uint8).reshape(64, -1).view(np.uint32).T)


def run(b: Bench, name: str, a: np.ndarray, x: np.ndarray, index: np.ndarray, **modifiers: int) -> np.ndarray:
    """D as [row][column] bit patterns; C is what D held before."""
    m = shape_of(name).m
    for rows, first in ((a, A), (x, B)):
        for r, row in enumerate(rows):
            b.row(v(first), r)[:] = row
    b.row(INDEX)[:] = index
    registers = m * m // 64
    b.must_run(instruction(name, v(D, registers), v(A, len(a)), v(B, len(x)), INDEX, encoding="vop3p_mai", **modifiers))
    out = np.zeros((m, m), np.uint32)
    for e in range(registers):
        for lane in range(64):
            row = 4 * (lane // m) + (e if m == 16 else e % 4 + 8 * (e // 4))
            out[row, lane % m] = b.row(v(D), e)[lane]
    return out


def check_op(name: str, chip: str) -> None:
    rng = np.random.default_rng(len(name))
    shape = shape_of(name)
    per_lane = shape.k * shape.m // 64
    sets = 32 // per_lane
    for cbsz, abid in [(0, s) for s in range(sets)] + [(1, sets - 1)]:
        b = Bench(chip)
        b.exec = 1  # ignored
        a, x = operand(shape.a, chip, per_lane // 2, rng), operand(shape.b, chip, per_lane, rng)
        index = rng.integers(0, 1 << 32, 64, dtype=np.uint32)
        start = np.float32(3).view(np.uint32) if shape.result == "f32" else 3
        for r in range(shape.m * shape.m // 64):
            b.row(v(D), r)[:] = start
        modifiers = {n: value for n, value in (("cbsz", cbsz), ("abid", abid)) if value}
        got = run(b, name, a, x, index, **modifiers).view(np.float32 if shape.result == "f32" else np.int32)
        want = sparse_product(name, a, x, index, chip, cbsz, abid) + 3
        assert np.array_equal(got, want), (cbsz, abid)


def test_by_hand_and_what_is_not_there() -> None:
    """Row 2 of A is 5 at k = 1 and 7 at k = 3 (lane 2, index fields 1 and 3); B[k][c] = 10^k with infinities elsewhere."""
    b = Bench("gfx942")
    a = np.zeros((2, 64), np.uint32)
    a[0, 2] = int(np.array([5, 7], np.float16).view(np.uint32)[0])
    column = np.full((64, 8), np.inf, np.float16)
    column[:16, 1], column[:16, 3] = 10, 1000
    column[:16, 4] = column[:16, 5] = column[16:, 0] = column[16:, 4] = 1  # opposite to zeros of A
    x = np.ascontiguousarray(column.view(np.uint8).reshape(64, -1).view(np.uint32).T)
    index = np.zeros(64, np.uint32)
    index[:16] = 0b01_00_11_01
    for r in range(4):
        b.row(v(D), r)[:] = 0
    got = run(b, "v_smfmac_f32_16x16x32_f16", a, x, index).view(np.float32)
    assert (got[2] == 7050).all() and (np.delete(got, 2, 0) == 0).all()


def test_registers_per_operand_follow_from_the_shape() -> None:
    for name in OPS:
        shape = shape_of(name)
        bits = shape.k * shape.m // 64 * BITS[shape.b]
        assert bits in (128, 256) and re.search(rf"_{shape.m}x{shape.m}x{shape.k}_", name)
