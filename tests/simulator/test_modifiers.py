"""Source and result modifiers: neg, abs, clamp, omod, op_sel, DPP, SDWA, packed selectors, float modes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from simulator_harness import FULL, VCC, Bench, imm, instruction, s, v
from simulator_samples import rounds, ulp_distance

from tileir.simulator.native.dpp import source_lanes
from tileir.simulator.spec import packed
from tileir.simulator.spec.core import DTYPES
from tileir.simulator.spec.vector_int import CLAMPED, SATURATING, bitop3

LANES = np.arange(64)


def floats(*values: float) -> np.ndarray:
    return np.resize(np.array(values, np.float32), 64)


def run(bench: Bench, *args: object, **kwargs: object) -> None:
    bench.must_run(instruction(*args, **kwargs))  # type: ignore[arg-type]


def test_negation_and_absolute_value() -> None:
    b = Bench()
    x, y = floats(1.5, -2.0, 0.0, -0.0, np.inf), floats(3.0, -4.0, 5.0)
    b.set(v(1), x)
    b.set(v(2), y)
    run(b, "v_add_f32", v(3), v(1, neg=True), v(2, abs=True))
    assert np.array_equal(b.get(v(3), np.float32), -x + np.abs(y))
    run(b, "v_mul_f32", v(3), v(1, neg=True, abs=True), v(2))
    assert np.array_equal(b.get(v(3), np.float32), -np.abs(x) * y)
    b.set_sgpr(5, int(np.float32(2.5).view(np.uint32)))
    run(b, "v_sub_f32", v(3), s(5, neg=True), imm(int(np.float32(0.5).view(np.uint32))))
    assert (b.get(v(3), np.float32) == -3.0).all()


def test_output_modifiers() -> None:
    """omod works only with denormal results and IEEE mode off; clamp always."""
    b = Bench(dynamic=True)
    b.mode = 0xD0 | 1 << 8
    x = floats(0.25, -3.0, 7.0, np.nan, np.inf, 1.0)
    b.set(v(1), x)
    b.set(v(2), floats(0.0))
    for omod, factor in ((1, 2.0), (2, 4.0), (3, 0.5)):
        run(b, "v_add_f32", v(3), v(1), v(2), omod=omod)
        assert np.array_equal(b.get(v(3), np.float32), x * np.float32(factor), equal_nan=True)
    run(b, "v_add_f32", v(3), v(1), v(2), clamp=1)
    assert np.array_equal(b.get(v(3), np.float32), np.clip(np.nan_to_num(x, nan=0.0, posinf=9.0), 0, 1))
    run(b, "v_add_f32", v(3), v(1), v(2), clamp=1, omod=2)
    assert np.array_equal(b.get(v(3), np.float32), np.clip(np.nan_to_num(4 * x, nan=0.0, posinf=9.0), 0, 1))
    b.set(v(1), floats(-0.0))
    b.set(v(2), floats(-0.0))
    run(b, "v_add_f32", v(3), v(1), v(2), omod=1)
    assert not np.signbit(b.get(v(3), np.float32)).any()
    b.set(v(1), floats(3.0))
    for mode in (0xF0 | 1 << 8, 0xD0 | 1 << 9):
        b.mode = mode
        run(b, "v_add_f32", v(3), v(1), v(2), omod=1)
        assert (b.get(v(3), np.float32) == 3.0).all()
    plain = Bench()
    plain.set(v(1), floats(3.0))
    plain.set(v(2), floats(0.0))
    run(plain, "v_add_f32", v(3), v(1), v(2), omod=1)
    assert (plain.get(v(3), np.float32) == 3.0).all()


def test_minimum_without_ieee_mode() -> None:
    """A signalling NaN wins in IEEE mode and loses like any other without it."""
    b = Bench()
    b.row(v(1))[:] = 0x7FA00001
    b.set(v(2), floats(2.0))
    for name in ("v_min_f32", "v_max_f32"):
        b.ieee = True
        run(b, name, v(3), v(1), v(2))
        assert (b.row(v(3)) == 0x7FE00001).all()
        b.ieee = False
        run(b, name, v(3), v(1), v(2))
        assert (b.get(v(3), np.float32) == 2.0).all()


@pytest.mark.parametrize("name", sorted(SATURATING))
def test_integer_saturation(name: str) -> None:
    ty = name.rpartition("_")[2]
    b = Bench()
    for patterns in rounds([ty, ty], seed=5):
        x, y = (p.view(DTYPES[ty]) for p in patterns)
        b.set(v(1), x)
        b.set(v(2), y)
        run(b, name, v(3), v(1), v(2), clamp=1)
        assert np.array_equal(b.get(v(3), DTYPES[ty]), SATURATING[name](x, y))


@pytest.mark.parametrize("name", sorted(CLAMPED))
def test_integer_clamp(name: str) -> None:
    """The exact result, limited to the type."""
    ty, exact = CLAMPED[name]
    narrow = name.endswith("16") and "mad" in name
    wide = f"{ty[0]}32"
    types = [f"{ty[0]}16"] * 2 + [ty] if narrow else [wide] * 3
    dtype = DTYPES[ty]
    limits = np.iinfo(dtype)
    accumulates = "c_" in name
    b = Bench()
    for patterns in rounds(types, seed=7):
        sources = [p.view(DTYPES[t]) for p, t in zip(patterns, types, strict=True)]
        operands = [v(1), v(2), v(3) if accumulates else v(4)]
        for operand, values in zip(operands, sources, strict=True):
            b.set(operand, values)
        run(b, name, v(3), v(1), v(2), *([] if accumulates else [v(4)]), clamp=1)
        want = [max(limits.min, min(limits.max, exact(*(int(x) for x in lane)))) for lane in zip(*sources, strict=True)]
        assert b.get(v(3), dtype).tolist() == want


def test_sixteen_bit_halves() -> None:
    """op_sel picks source halves (bits 0-2) and the destination half (bit 3 of three-operand, bit 2 of two-operand
    forms); gfx9 clears the other half of ordinary 16-bit results and keeps it for v_fma_f16 and op_sel results."""
    b = Bench()
    low, high = np.arange(64, dtype=np.uint16), np.arange(64, dtype=np.uint16) + 1000
    b.row(v(1))[:] = low.astype(np.uint32) | high.astype(np.uint32) << 16
    b.row(v(2))[:] = 0x00050007
    b.row(v(3))[:] = 0x11112222
    run(b, "v_add_u16", v(3), v(1), v(2))
    assert np.array_equal(b.row(v(3)), low + 7)
    run(b, "v_add_u16", v(3), v(1), v(2), op_sel=0b011)
    assert np.array_equal(b.row(v(3)), high + 5)
    b.row(v(3))[:] = 0x11112222
    run(b, "v_add_u16", v(3), v(1), v(2), op_sel=0b110)
    assert np.array_equal(b.row(v(3)), (low + 5).astype(np.uint32) << 16 | 0x2222)
    one = np.uint32(0x3C00)
    b.row(v(1))[:] = one
    b.row(v(3))[:] = 0x11112222
    run(b, "v_fma_f16", v(3), v(1), v(1), v(1))
    assert (b.row(v(3)) == 0x11114000).all()


@pytest.mark.parametrize(
    "control",
    [0x1B, 0x101, 0x10F, 0x111, 0x118, 0x121, 0x12F, 0x130, 0x134, 0x138, 0x13C, 0x140, 0x141, 0x142, 0x143, 0x155],
)
@pytest.mark.parametrize("bound", [0, 1])
@pytest.mark.parametrize("execute", [FULL, 0x5A5AFFFF0000F0F1])
def test_dpp(control: int, bound: int, execute: int) -> None:
    """A lane without a source (none in the row, or switched off) reads zero or keeps its old result."""
    b = Bench()
    x, y = LANES.astype(np.uint32) * 3 + 1, LANES.astype(np.uint32) + 500
    b.set(v(1), x)
    b.set(v(2), y)
    b.row(v(3))[:] = 77
    b.exec = execute
    run(
        b,
        "v_add_u32",
        v(3),
        v(1),
        v(2),
        encoding="dpp",
        dpp_ctrl=control,
        row_mask=0xB,
        bank_mask=0xE,
        bound_ctrl=bound,
    )
    table = source_lanes(control)
    for lane in range(64):
        source = table[lane]
        valid = source >= 0 and execute >> source & 1
        enabled = execute >> lane & 1 and 0xB >> lane // 16 & 1 and 0xE >> lane % 16 // 4 & 1
        want = 77
        if enabled and valid:
            want = int(x[source]) + int(y[lane])
        elif enabled and bound:
            want = int(y[lane])
        assert b.row(v(3))[lane] == want, lane


def test_dpp_tables_by_hand() -> None:
    """[CDNA3 ISA, DPP_CTRL] Lane 15 of each row goes to the next row; lane 31 to rows 2 and 3; shifts stay in a row."""
    assert source_lanes(0x142) == [-1] * 16 + [15] * 16 + [31] * 16 + [47] * 16
    assert source_lanes(0x143) == [-1] * 32 + [31] * 32
    assert source_lanes(0x111)[:18] == [-1, *range(15), -1, 16]
    assert source_lanes(0x101)[13:18] == [14, 15, -1, 17, 18]
    assert source_lanes(0x121)[:3] == [15, 0, 1]
    assert source_lanes(0x140)[:2] == [15, 14] and source_lanes(0x141)[:9] == [7, 6, 5, 4, 3, 2, 1, 0, 15]
    assert source_lanes(0b00_01_10_11)[:4] == [3, 2, 1, 0]
    assert source_lanes(0x153)[40] == 35


@pytest.mark.parametrize("select", range(7))
@pytest.mark.parametrize("sext", [False, True])
def test_sdwa_sources(select: int, sext: bool) -> None:
    b = Bench()
    x = np.random.default_rng(select).integers(0, 1 << 32, 64).astype(np.uint32)
    b.set(v(1), x)
    b.set(v(2), np.zeros(64, np.uint32))
    run(b, "v_add_u32", v(3), v(1, sext=sext), v(2), encoding="sdwa", src0_sel=select, src1_sel=6, dst_sel=6)
    raw = (
        x.view(np.uint8).reshape(64, 4)[:, select]
        if select < 4
        else x.view(np.uint16).reshape(64, 2)[:, select - 4]
        if select < 6
        else x
    )
    signed = {1: np.int8, 2: np.int16, 4: np.int32}[raw.dtype.itemsize]
    want = np.ascontiguousarray(raw).view(signed).astype(np.int32).view(np.uint32) if sext else raw.astype(np.uint32)
    assert np.array_equal(b.row(v(3)), want)


@pytest.mark.parametrize("select,unused", list(itertools.product(range(6), range(3))))
def test_sdwa_destination(select: int, unused: int) -> None:
    b = Bench()
    x = np.random.default_rng(7).integers(0, 1 << 32, 64).astype(np.uint32)
    b.set(v(1), x)
    b.row(v(3))[:] = 0x13579BDF
    run(b, "v_mov_b32", v(3), v(1), encoding="sdwa", src0_sel=6, dst_sel=select, dst_unused=unused)
    width, shift = (8, 8 * select) if select < 4 else (16, 16 * (select - 4))
    for value, got in zip(x.tolist(), b.row(v(3)).tolist(), strict=True):
        part = value & ((1 << width) - 1)
        if unused == 0:
            want = part << shift
        elif unused == 1:
            want = ((part - (1 << width) if part >> (width - 1) else part) << shift) & 0xFFFFFFFF
        else:
            want = part << shift | 0x13579BDF & ~(((1 << width) - 1) << shift)
        assert got == want


def check_packed(name: str) -> None:
    ty, n, _ = packed.PACKED[name]
    dtype = DTYPES[ty]
    b = Bench()
    selectors = [(0, (1 << n) - 1, 0, 0), (1, 2, 0, 0), ((1 << n) - 1, 0, 0, 0)]
    if ty.startswith("f"):
        selectors += [(0, (1 << n) - 1, 1, 2), (2, 1, 3, 0)]
    for (op_sel, op_sel_hi, neg_lo, neg_hi), patterns in zip(
        itertools.cycle(selectors), rounds([ty] * 2 * n, seed=n), strict=False
    ):
        halves = [(patterns[2 * i].view(dtype), patterns[2 * i + 1].view(dtype)) for i in range(n)]
        sources = [v(10 + 2 * i, 2 if ty == "f32" else 1) for i in range(n)]
        for operand, (low, high) in zip(sources, halves, strict=True):
            if ty == "f32":
                b.row(operand)[:], b.row(operand, 1)[:] = low.view(np.uint32), high.view(np.uint32)
            else:
                b.row(operand)[:] = low.view(np.uint16).astype(np.uint32) | high.view(np.uint16).astype(np.uint32) << 16
        modifiers = {"op_sel": op_sel, "op_sel_hi": op_sel_hi, "neg_lo": neg_lo, "neg_hi": neg_hi}
        run(b, name, v(0, 2 if ty == "f32" else 1), *sources, encoding="vop3p", **modifiers)
        want = packed.apply(name, halves, **modifiers)
        if ty == "f32":
            got = (b.row(v(0)).copy().view(dtype), b.row(v(0), 1).copy().view(dtype))
        else:
            got = (b.row(v(0)).astype(np.uint16).view(dtype), (b.row(v(0)) >> 16).astype(np.uint16).view(dtype))
        for g, w in zip(got, want, strict=True):
            if ty.startswith("f"):
                assert (ulp_distance(g, w.astype(dtype)) == 0).all()
            else:
                assert np.array_equal(g, w)


def check_packed_move(name: str) -> None:
    """v_pk_mov_b32: low from source 0, high from source 1, each by its op_sel bit."""
    b = Bench()
    for i in range(4):
        b.row(v(10 + i))[:] = 100 * i + LANES
    for op_sel, want in ((0, (0, 2)), (1, (1, 2)), (2, (0, 3)), (3, (1, 3))):
        run(b, name, v(0, 2), v(10, 2), v(12, 2), encoding="vop3p", op_sel=op_sel, op_sel_hi=3)
        assert np.array_equal(b.row(v(0)), 100 * want[0] + LANES)
        assert np.array_equal(b.row(v(1)), 100 * want[1] + LANES)


def check_mixed_fma(name: str) -> None:
    b = Bench()
    rng = np.random.default_rng(1)
    halves = [tuple(rng.normal(size=64).astype(np.float16) for _ in range(2)) for _ in range(3)]
    raws = [
        low.view(np.uint16).astype(np.uint32) | high.view(np.uint16).astype(np.uint32) << 16 for low, high in halves
    ]
    for op_sel, op_sel_hi in ((0, 7), (5, 7), (2, 2), (0, 0), (4, 6)):
        for i, raw in enumerate(raws):
            b.row(v(10 + i))[:] = raw
        singles = [raw.view(np.float32) for raw in raws]
        with np.errstate(all="ignore"):
            want = packed.fma_mix(singles, halves, op_sel, op_sel_hi)
        b.row(v(0))[:] = 0xAAAABBBB
        run(b, name, v(0), v(10), v(11), v(12), encoding="vop3p", op_sel=op_sel, op_sel_hi=op_sel_hi)
        with np.errstate(all="ignore"):
            half = want.astype(np.float16)
        if name == "v_fma_mix_f32":
            assert (ulp_distance(b.get(v(0), np.float32), want) == 0).all()
        elif name == "v_fma_mixlo_f16":
            assert (ulp_distance(b.get(v(0), np.float16), half) == 0).all()
            assert (b.row(v(0)) >> 16 == 0xAAAA).all()
        else:
            assert (ulp_distance((b.row(v(0)) >> 16).astype(np.uint16).view(np.float16), half) == 0).all()
            assert (b.row(v(0)) & 0xFFFF == 0xBBBB).all()


@pytest.mark.parametrize("mode", [0xF0, 0xC0, 0xD0, 0xE0])
def test_denormal_modes(mode: int) -> None:
    """MODE bits 4 and 5: keep denormal sources and results of f32."""
    b = Bench(dynamic=True)
    b.mode = mode
    tiny = np.float32(2.0**-130)
    b.set(v(1), np.full(64, tiny))
    b.set(v(2), floats(2.0**100, 1.0))
    keep_in, keep_out = mode >> 4 & 1, mode >> 5 & 1
    run(b, "v_mul_f32", v(3), v(1), v(2))
    big, same = (float(tiny) * 2.0**100 if keep_in else 0.0), (float(tiny) if keep_in and keep_out else 0.0)
    assert b.get(v(3), np.float32)[:2].tolist() == [big, same]
    b.set(v(1), floats(2.0**-100, -(2.0**-100)))
    b.set(v(2), floats(2.0**-30))
    run(b, "v_mul_f32", v(3), v(1), v(2))
    got = b.get(v(3), np.float32)[:2]
    assert got.tolist() == ([2.0**-130, -(2.0**-130)] if keep_out else [0.0, -0.0])
    assert np.signbit(got).tolist() == [False, True]


def test_perm_by_hand() -> None:
    """Bytes 0-3 come from the second source, 4-7 from the first; 8-11 replicate signs, 12 is zero, 13+ is 0xFF."""
    b = Bench()
    b.row(v(1))[:] = 0x8070FF01
    b.row(v(2))[:] = 0x44835211
    for selector, want in {
        0x03020100: 0x44835211,
        0x07060504: 0x8070FF01,
        0x04000703: 0x01118044,
        0x0B0A0908: 0xFFFF0000,  # signs of 0x52, 0x44, 0xFF, 0x80
        0x0C0D0EFF: 0x00FFFFFF,
    }.items():
        b.row(v(4))[:] = selector
        run(b, "v_perm_b32", v(3), v(1), v(2), v(4))
        assert (b.row(v(3)) == want).all(), hex(selector)


def test_bf16_rounding_by_hand() -> None:
    """Round to nearest even at bit 16; NaN stays NaN even when its payload is only in the low half."""
    b = Bench()
    cases = {
        0x3F800000: 0x3F80, 0x3F808000: 0x3F80, 0x3F818000: 0x3F82, 0x3F808001: 0x3F81, 0x7F7FFFFF: 0x7F80,
        0x7F800001: 0x7FC0, 0xFF800000: 0xFF80, 0x00008000: 0x0000, 0x00018000: 0x0002, 0x80000001: 0x8000,
    }  # fmt: skip
    patterns = np.resize(np.array(list(cases), np.uint32), 64)
    b.set(v(1), patterns)
    run(b, "v_cvt_pk_bf16_f32", v(3), v(1), v(1))
    for pattern, got in zip(patterns.tolist(), b.row(v(3)).tolist(), strict=True):
        assert got == cases[pattern] * 0x10001


def test_div_scale_by_hand() -> None:
    """[CDNA3 ISA, V_DIV_SCALE_F32] numerator 2**100, denominator 2**-20: only the denominator is scaled, by 2**64."""
    b = Bench()
    n, d = floats(2.0**100), floats(2.0**-20)
    b.set(v(1), n)
    b.set(v(2), d)
    run(b, "v_div_scale_f32", v(3), VCC, v(2), v(2), v(1))
    assert (b.get(v(3), np.float32) == 2.0**44).all() and b.vcc == FULL
    run(b, "v_div_scale_f32", v(3), VCC, v(1), v(2), v(1))
    assert (b.get(v(3), np.float32) == 2.0**100).all() and b.vcc == FULL
    b.set(v(1), floats(1.0))
    b.set(v(2), floats(2.0**-127))  # denormal denominator: both are scaled up
    run(b, "v_div_scale_f32", v(3), VCC, v(2), v(2), v(1))
    assert (b.get(v(3), np.float32) == 2.0**-63).all()
    run(b, "v_div_scale_f32", v(3), VCC, v(2), v(1), floats_operand(b, 0.0))
    assert np.isnan(b.get(v(3), np.float32)).all() and b.vcc == 0


def floats_operand(b: Bench, value: float) -> object:
    b.set(v(9), floats(value))
    return v(9)


def test_lane_access() -> None:
    b = Bench()
    b.set(v(1), LANES.astype(np.uint32) + 100)
    b.exec = 0xFF00
    run(b, "v_readfirstlane_b32", s(10), v(1))
    assert b.sgpr(10) == 108
    run(b, "v_readlane_b32", s(10), v(1), imm(70))
    assert b.sgpr(10) == 106
    b.set_sgpr(12, 3)
    run(b, "v_writelane_b32", v(1), imm(9), s(12))
    assert b.row(v(1))[3] == 9 and b.row(v(1))[4] == 104


@pytest.mark.parametrize("width", [16, 32])
def test_permlane_swap(width: int) -> None:
    """Odd groups of the first register change places with even groups of the second."""
    b = Bench()
    x, y = LANES.astype(np.uint32), LANES.astype(np.uint32) + 100
    b.set(v(1), x)
    b.set(v(2), y)
    run(b, f"v_permlane{width}_swap_b32", v(1), v(2), encoding="vop1", size=4)
    odd = LANES // width % 2 == 1
    want_x, want_y = x.copy(), y.copy()
    want_x[odd], want_y[~odd] = y[~odd], x[odd]
    assert np.array_equal(b.row(v(1)), want_x) and np.array_equal(b.row(v(2)), want_y)


def test_compare_writes_exec() -> None:
    b = Bench()
    b.set(v(1), LANES.astype(np.uint32))
    b.exec = 0xFFFF
    copy = instruction("v_mov_b32", v(3), imm(1), encoding="vop1", size=4)
    b.row(v(3))[:] = 0
    b.must_run(instruction("v_cmpx_lt_u32", s(20, 2), v(1), imm(5)), copy)
    assert b.sgpr64(20) == 0x1F
    assert np.array_equal(b.row(v(3)), (LANES < 5).astype(np.uint32))


def check_bitop3(name: str) -> None:
    """Functions of three bits: single ones of the truth table, their complements, and others."""
    ty = np.uint16 if name.endswith("16") else np.uint32
    b = Bench()
    x, y, z = (np.random.default_rng(i).integers(0, 1 << 32, 64).astype(ty) for i in range(3))
    for operand, values in zip((v(1), v(2), v(4)), (x, y, z), strict=True):
        b.set(operand, values)
    for table in (*(1 << i for i in range(8)), *(255 ^ 1 << i for i in range(8)), 0, 255, 0xF0, 0xCC, 0xAA, 0x96, 0xE8):
        run(b, name, v(3), v(1), v(2), v(4), bitop3=table)
        assert np.array_equal(b.get(v(3), ty), bitop3(table, x, y, z)), hex(table)


def test_bitop3_by_hand() -> None:
    x, y, z = (np.array([n], np.uint32) for n in (0b1100, 0b1010, 0b0110))
    assert bitop3(0x96, x, y, z)[0] == 0b1100 ^ 0b1010 ^ 0b0110
    assert bitop3(0x78, x, y, z)[0] == 0b1100 ^ (0b1010 & 0b0110)
    assert bitop3(0xF0, x, y, z)[0] == 0b1100
