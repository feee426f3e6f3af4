"""Scaled conversions of gfx950: native library against the specification, and vectors worked out by hand."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from simulator_harness import Bench, instruction, v

from tileir.simulator.native.op import Context, Unsupported
from tileir.simulator.native.scaled import OPS, Shape
from tileir.simulator.spec import scaled
from tileir.simulator.spec.matrix import BITS, decode_small, elements

OVFL = 1 << 23
DST, SRC, SRC2, RANDOM, SCALE = v(10, 32), 50, 90, v(120), v(121)


def wide_samples(kind: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """Codes of a wide format: every special value, then numbers around the range of the small formats."""
    special = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        448,
        464,
        465,
        57344,
        61440,
        65000,
        6,
        5,
        7,
        7.5,
        28,
        30,
        0.0625,
        1e-5,
        -1e-7,
    ]
    values = np.ldexp(rng.uniform(1, 2, count), rng.integers(-20, 18, count)) * rng.choice([-1, 1], count)
    values[rng.permutation(count)[: count // 4]] = np.resize(special, count // 4)
    dtype = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[kind]
    with np.errstate(over="ignore"):
        return values.astype(dtype).view(f"u{BITS[kind] // 8}").astype(np.uint32)


def source_rows(name: str, rng: np.random.Generator) -> list[np.ndarray]:
    shape = Shape.of(name)
    rows: list[np.ndarray] = []
    for registers in shape.sources:
        if not shape.down:
            rows.append(rng.integers(0, 1 << 32, (registers, 64), dtype=np.uint32))
        elif shape.source == "f32":
            rows.append(wide_samples("f32", registers * 64, rng).reshape(registers, 64))
        else:
            low, high = (wide_samples(shape.source, registers * 64, rng) for _ in range(2))
            rows.append((low | high << 16).astype(np.uint32).reshape(registers, 64))
    return rows


def run(
    b: Bench, name: str, op_sel: int, sources: list[np.ndarray], scale: np.ndarray, random: np.ndarray | None
) -> np.ndarray:
    shape = Shape.of(name)
    operands = [v(10, shape.registers)]
    for rows, first in zip(sources, (SRC, SRC2), strict=False):
        for r, row in enumerate(rows):
            b.row(v(first), r)[:] = row
        operands.append(v(first, len(rows)))
    b.row(SCALE)[:] = scale
    if random is not None:
        b.row(RANDOM)[:] = random
        operands.append(RANDOM)
    modifiers = {"op_sel": op_sel} if op_sel else {}
    b.must_run(instruction(name, *operands, SCALE, **modifiers))
    return np.array([b.row(DST, r) for r in range(shape.registers)])


def same(got: np.ndarray, want: np.ndarray, name: str) -> np.ndarray:
    """Elements that agree; NaNs of a wide format agree whatever their payload."""
    shape = Shape.of(name)
    equal = got == want
    if shape.down or equal.all():
        return equal
    width = BITS[shape.to]
    dtype = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[shape.to]
    codes = [np.array(elements(rows, width)) for rows in (got, want)]
    g, w = (c.astype(f"u{width // 8}").view(dtype) for c in codes)
    return (codes[0] == codes[1]) | (np.isnan(g.astype(np.float32)) & np.isnan(w.astype(np.float32)))


def check_op(name: str) -> None:
    rng = np.random.default_rng(len(name))
    shape = Shape.of(name)
    legal = shape.selectors()
    choices = [s for s in range(16) if not s & ~legal]
    for op_sel, overflow in itertools.product(choices, (False, True) if shape.down else (False,)):
        b = Bench("gfx950")
        b.mode |= OVFL if overflow else 0
        b.exec = 0xF0F0_1234_5678_9ABC if op_sel else (1 << 64) - 1
        active = np.array([bool(b.exec >> i & 1) for i in range(64)])
        old = rng.integers(0, 1 << 32, (shape.registers, 64), dtype=np.uint32)
        for r in range(shape.registers):
            b.row(DST, r)[:] = old[r]
        scale = (rng.integers(117, 138, 64) << 23 | rng.integers(0, 1 << 23, 64)).astype(np.uint32)
        scale[:5] = np.array([0, 254, 255, 127, 1]) << 23
        scale[5] = 0x80000000 | 130 << 23  # the sign does not matter
        random = rng.integers(0, 1 << 32, 64, dtype=np.uint32) if shape.stochastic else None
        sources = source_rows(name, rng)
        got = run(b, name, op_sel, sources, scale, random)
        want = scaled.convert(name, op_sel, sources, scale, random, old, overflow)
        want[:, ~active] = old[:, ~active]
        ok = same(got, want, name)
        assert ok.all(), (op_sel, overflow, np.argwhere(~ok)[:4].tolist())


def test_scale_divides_on_the_way_down_and_multiplies_on_the_way_up() -> None:
    """12 / 4 = 3 is e4m3 0x44, and 3 · 4 = 12; the mantissa of the scale is ignored."""
    b = Bench("gfx950")
    twelve, one = (np.full((1, 64), np.float32(x).view(np.uint32)) for x in (12.0, 1.0))
    b.row(DST)[:] = 0x12345678
    scale = np.full(64, np.float32(5.75).view(np.uint32))
    assert (run(b, "v_cvt_scalef32_pk_fp8_f32", 8, [twelve, one], scale, None) == 0x28445678).all()
    up = run(b, "v_cvt_scalef32_pk_f32_fp8", 1, [np.full((1, 64), 0x28440000, np.uint32)], scale, None)
    assert (up[0].view(np.float32) == 12).all() and (up[1].view(np.float32) == 1).all()


def test_fp4_pairs_and_saturation() -> None:
    """e2m1: 6 is 7, 100 saturates to 6, -0.5 is 9; the other three bytes stay."""
    b = Bench("gfx950")
    one = np.full(64, np.float32(1).view(np.uint32))
    x = [np.full((1, 64), np.float32(value).view(np.uint32)) for value in (100.0, -0.5)]
    b.row(DST)[:] = 0xAABBCCDD
    assert (run(b, "v_cvt_scalef32_pk_fp4_f32", 8, x, one, None) == 0xAA97CCDD).all()


def test_two_sources_of_sixteen_interleave() -> None:
    b = Bench("gfx950")
    one = np.full(64, np.float32(1).view(np.uint32))
    first, second = (np.array([decode_small(c + k, "fp6") for c in range(0, 32, 2)], np.float32) for k in (0, 1))
    rows = [np.repeat(x.view(np.uint32)[:, None], 64, 1) for x in (first, second)]
    got = run(b, "v_cvt_scalef32_2xpk16_fp6_f32", 0, rows, one, None)
    stream = sum(c << 6 * c for c in range(32))
    assert all((got[r] == (stream >> 32 * r & 0xFFFFFFFF)).all() for r in range(6))


def check_stochastic16(name: str) -> None:
    """v_cvt_sr_f16_f32 and v_cvt_sr_bf16_f32 on special and random numbers, both halves of the destination."""
    rng = np.random.default_rng(2)
    kind = "f16" if "_f16_" in name else "bf16"
    special = np.array(
        [0, 0x80000000, 1, 0x807FFFFF, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x477FEFFF], np.uint32
    )
    for half in (0, 1):
        for source in (
            np.resize(special, 64),
            wide_samples("f32", 64, rng),
            rng.integers(0, 1 << 32, 64, dtype=np.uint32),
        ):
            x = source.astype(np.uint32).view(np.float32)
            random = rng.integers(0, 1 << 32, 64, dtype=np.uint32)
            random[:4] = [0, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF]
            b = Bench("gfx950")
            b.set(v(1), x)
            b.row(v(2))[:] = random
            b.row(v(3))[:] = 0x12345678
            b.must_run(instruction(name, v(3), v(1), v(2), op_sel=4 * half))
            for lane in range(64):
                word = int(b.row(v(3))[lane])
                got, kept = (word >> 16, word & 0xFFFF) if half else (word & 0xFFFF, word >> 16)
                assert kept == (0x5678 if half else 0x1234)
                if np.isnan(x[lane]):
                    assert got & 0x7FFF > (0x7C00 if kind == "f16" else 0x7F80)
                else:
                    assert got == scaled.stochastic16(float(x[lane]), kind, int(random[lane])), (
                        x[lane],
                        hex(random[lane]),
                    )


@pytest.mark.parametrize("name,step", [("v_cvt_sr_bf16_f32", 2.0**-7), ("v_cvt_sr_f16_f32", 2.0**-10)])
@pytest.mark.parametrize("half", [0, 1])
def test_stochastic_rounding_to_16_bits(name: str, step: float, half: int) -> None:
    b = Bench("gfx950")
    dtype = np.float16 if "_f16_" in name else ml_dtypes.bfloat16

    def convert(x: np.ndarray, random: np.ndarray) -> np.ndarray:
        b.set(v(1), x.astype(np.float32))
        b.row(v(2))[:] = random
        b.row(v(3))[:] = 0x12345678
        b.must_run(instruction(name, v(3), v(1), v(2), op_sel=4 * half))
        row = b.row(v(3))
        assert ((row >> (0 if half else 16) & 0xFFFF) == (0x5678 if half else 0x1234)).all()
        return (row >> 16 * half & 0xFFFF).astype(np.uint16).view(dtype).astype(np.float64)

    got = convert(np.full(64, 1 + 0.3 * step), np.linspace(0, (1 << 32) - 1, 64).astype(np.uint32))
    assert set(got) == {1.0, 1 + step} and got[0] == 1 and got[-1] == 1 + step
    assert 0.25 < np.mean(got == 1 + step) < 0.35
    exact = np.resize([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan, 2.0**-14, -(2.0**-14) * 1.25], 64)
    for random in (0, 0xFFFFFFFF):
        got = convert(exact, np.full(64, random, np.uint32))
        assert np.array_equal(got, exact, equal_nan=True) and np.array_equal(np.signbit(got), np.signbit(exact))
    if "_f16_" in name:  # denormals: 2^-24 is the step; numbers too large for all random bits stay finite for none
        assert set(convert(np.full(64, 1.5 * 2.0**-24), np.resize(np.array([0, 0xFFFFFFFF], np.uint32), 64))) == {
            2.0**-24,
            2.0**-23,
        }
        assert np.isinf(convert(np.full(64, 65519.0), np.full(64, 0xFFFFFFFF, np.uint32))).all()


def test_source_modifiers() -> None:
    b = Bench("gfx950")
    b.set(v(1), np.full(64, np.float32(-3)))
    b.set(v(2), np.full(64, np.float32(1)))
    b.row(v(3))[:] = 0
    b.must_run(instruction("v_cvt_scalef32_pk_fp8_f32", v(3), v(1, abs=True), v(2, neg=True), v(2)))
    assert (b.row(v(3)) == 0xB844).all()


def test_unknown_selectors_are_refused() -> None:
    with pytest.raises(Unsupported):
        OPS["v_cvt_scalef32_pk_fp8_f16"](
            instruction("v_cvt_scalef32_pk_fp8_f16", v(0), v(1), v(2), op_sel=1), Context("gfx950")
        )
