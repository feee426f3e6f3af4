"""Vectors worked out by hand from the ISA documents, for instructions whose rules surprise."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_harness import FULL, Bench, instruction, s, v


def f32(*values: float) -> np.ndarray:
    return np.resize(np.array(values, np.float32), 64)


def one(name: str, *sources: np.ndarray, vcc: int = 0, dtype: type = np.float32) -> list[float]:
    """The first lanes of an instruction with 32-bit operands."""
    b = Bench()
    b.vcc = vcc
    for i, x in enumerate(sources):
        b.set(v(1 + i), x)
    b.must_run(instruction(name, v(10), *(v(1 + i) for i in range(len(sources)))))
    return b.get(v(10), dtype)[:8].tolist()


def test_div_fmas() -> None:
    """[V_DIV_FMAS_F32] With VCC the result is scaled by 2**64 when the addend is large, else by 2**-64."""
    x, y, z = f32(3.0), f32(2.0), f32(4.0, 0.5)
    assert one("v_div_fmas_f32", x, y, z)[:2] == [10.0, 6.5]
    assert one("v_div_fmas_f32", x, y, z, vcc=FULL)[:2] == [10.0 * 2.0**64, 6.5 * 2.0**-64]


def test_div_fixup() -> None:
    """[V_DIV_FIXUP_F32] quotient, denominator, numerator: x / 0, 0 / 0, x / inf, inf / x, NaN, signs."""
    denominator = f32(0.0, 0.0, np.inf, -2.0, np.nan, -4.0, -0.0)
    numerator = f32(5.0, 0.0, 3.0, np.inf, 1.0, 2.0, 7.0)
    out = one("v_div_fixup_f32", f32(0.5), denominator, numerator)
    assert out[0] == np.inf and np.isnan(out[1]) and out[2] == 0.0 and out[3] == -np.inf and np.isnan(out[4])
    assert out[5] == -0.5 and out[6] == -np.inf


def test_med3_with_nan() -> None:
    """[V_MED3_F32] With a NaN the result is the minimum of all three, in which a quiet NaN loses."""
    nan = np.nan
    assert one("v_med3_f32", f32(1, nan, 5, nan), f32(2, 7, nan, nan), f32(3, 4, 6, 9))[:4] == [2.0, 4.0, 5.0, 9.0]
    assert one("v_med3_f32", f32(3, -1), f32(3, 8), f32(1, -5))[:2] == [3.0, -1.0]


def test_alignbyte_and_alignbit() -> None:
    """[V_ALIGNBYTE_B32] {S0, S1} shifted right by 8 · S2[1:0]; alignbit by S2[4:0]."""
    high, low = np.full(64, 0x11223344, np.uint32), np.full(64, 0x55667788, np.uint32)
    count = np.resize(np.array([0, 1, 3, 4, 7], np.uint32), 64)
    got = one("v_alignbyte_b32", high, low, count, dtype=np.uint32)[:5]
    assert got == [0x55667788, 0x44556677, 0x22334455, 0x55667788, 0x22334455]
    count = np.resize(np.array([4, 36, 31], np.uint32), 64)
    assert one("v_alignbit_b32", high, low, count, dtype=np.uint32)[:3] == [0x45566778, 0x45566778, 0x22446688]


@pytest.mark.parametrize(
    "name,x,field,want,scc",
    [
        ("s_bfe_u32", 0xABCD1234, 8 | 8 << 16, 0x12, 1),
        ("s_bfe_i32", 0xABCD1234, 24 | 8 << 16, 0xFFFFFFAB, 1),
        ("s_bfe_i32", 0xABCD1234, 28 | 8 << 16, 0xFFFFFFFA, 1),  # ends at bit 31
        ("s_bfe_u32", 0xABCD1234, 4, 0, 0),  # no width
        ("s_bfe_u32", 0xABCD1234, 32 | 64 << 16, 0xABCD1234, 1),  # offset modulo 32, wider than the register
    ],
)
def test_bit_fields(name: str, x: int, field: int, want: int, scc: int) -> None:
    """[S_BFE_U32] offset in bits 4:0, width in bits 22:16; SCC says whether the result is not zero."""
    b = Bench()
    b.set_sgpr(10, x)
    b.set_sgpr(11, field)
    b.must_run(instruction(name, s(12), s(10), s(11), encoding="sop2", size=4))
    assert (b.sgpr(12), b.scc) == (want, scc)


def test_bitreplicate() -> None:
    """[S_BITREPLICATE_B64_B32] Every bit twice: 0b101 becomes 0b110011, the top bit bits 62 and 63."""
    b = Bench()
    b.set_sgpr(10, 0x80000005)
    b.must_run(instruction("s_bitreplicate_b64_b32", s(12, 2), s(10), encoding="sop1", size=4))
    assert b.sgpr64(12) == 0xC000000000000033


def test_quadmask() -> None:
    """[S_QUADMASK_B64] One bit per quad."""
    b = Bench()
    b.set_sgpr64(10, 0x8000_0000_0000_0F10)
    b.must_run(instruction("s_quadmask_b64", s(12, 2), s(10, 2), encoding="sop1", size=4))
    assert b.sgpr64(12) == 0b1000_0000_0000_0110 and b.scc == 1


def test_row_shift_and_broadcast_without_a_source() -> None:
    """[DPP] row_shr:1 has no source for the first lane of a row: bound_ctrl gives zero, without it the lane keeps its old
    value. row_bcast:15 sends lane 15 of a row to all of the next; row 0 has no source."""
    x = np.arange(64, dtype=np.uint32) + 100
    for control, empty in ((0x111, [0, 16, 32, 48]), (0x142, list(range(16)))):
        for bound in (0, 1):
            b = Bench()
            b.set(v(1), x)
            b.row(v(2))[:] = 7
            move = instruction(
                "v_mov_b32", v(2), v(1), encoding="dpp", dpp_ctrl=control, row_mask=15, bank_mask=15, bound_ctrl=bound
            )
            b.must_run(move)
            got = b.row(v(2))
            assert all(got[lane] == (0 if bound else 7) for lane in empty)
            assert got[17] == (116 if control == 0x111 else 115) and got[63] == (162 if control == 0x111 else 147)


def test_legacy_multiply() -> None:
    """[V_MUL_LEGACY_F32] Zero times anything is zero, NaN and infinity included."""
    assert one("v_mul_legacy_f32", f32(0.0, -0.0, 2.0), f32(np.nan, np.inf, 3.0))[:3] == [0.0, 0.0, 6.0]


def test_legacy_half_clears_the_upper_half() -> None:
    """[V_FMA_LEGACY_F16] v_fma_f16 keeps the other half of the destination, the legacy form clears it."""
    b = Bench()
    b.row(v(1))[:] = 0x3C00
    for name, upper in (
        ("v_fma_f16", 0xABCD0000),
        ("v_fma_legacy_f16", 0),
        ("v_mad_f16", 0xABCD0000),
        ("v_mad_legacy_f16", 0),
    ):
        b.row(v(2))[:] = 0xABCD1234
        b.must_run(instruction(name, v(2), v(1), v(1), v(1)))
        assert (b.row(v(2)) == (upper | 0x4000)).all(), name


def test_normalised_halves() -> None:
    """[V_CVT_NORM_I16_F16] -1 to 1 over -32767 to 32767; unsigned 0 to 1 over 0 to 65535; NaN is zero."""
    x = np.resize(np.array([1, -1, 0.5, 2, np.nan, -3], np.float16), 64)
    b = Bench()
    b.set(v(1), x)
    b.must_run(instruction("v_cvt_norm_i16_f16", v(2), v(1)), instruction("v_cvt_norm_u16_f16", v(3), v(1)))
    assert b.get(v(2), np.int16)[:6].tolist() == [32767, -32767, 16384, 32767, 0, -32767]
    assert b.get(v(3), np.uint16)[:6].tolist() == [65535, 0, 32768, 65535, 0, 0]
