"""8-bit floats: all 256 codes both ways, rounding, overflow, both flavours (FNUZ on gfx942, OCP on gfx950)."""

from __future__ import annotations

import itertools

import numpy as np
from simulator_harness import Bench, instruction, v

from tileir.simulator.spec.matrix import SMALL, decode_small, encode_small
from tileir.simulator.spec.scaled import narrow

CASES = [
    (chip, kind, kind + ("fnuz" if chip == "gfx942" else ""))
    for chip in ("gfx942", "gfx950")
    for kind in ("fp8", "bf8")
]
OVFL = 1 << 23


def same(x: np.ndarray, y: np.ndarray) -> bool:
    return bool((((x == y) & (np.signbit(x) == np.signbit(y))) | (np.isnan(x) & np.isnan(y))).all())


def check_decoding(chip: str, kind: str, name: str) -> None:
    b = Bench(chip)
    for start in range(0, 256, 64):
        codes = np.arange(start, start + 64, dtype=np.uint32)
        want = np.array([decode_small(int(c), name) for c in codes], np.float32)
        b.set(v(1), codes | 0xAABBCC00)
        b.must_run(instruction(f"v_cvt_f32_{kind}", v(2), v(1), encoding="vop1", size=4))
        assert same(b.get(v(2), np.float32), want)
        b.set(v(1), codes << 16 | 0xAA00BBCC)
        b.must_run(instruction(f"v_cvt_f32_{kind}", v(2), v(1), encoding="sdwa", src0_sel=2, dst_sel=6))
        assert same(b.get(v(2), np.float32), want)
        b.set(v(1), codes | (255 - codes) << 8)
        b.must_run(instruction(f"v_cvt_pk_f32_{kind}", v(2, 2), v(1), encoding="vop1", size=4))
        other = np.array([decode_small(255 - int(c), name) for c in codes], np.float32)
        assert same(b.get(v(2), np.float32), want) and same(b.get(v(3), np.float32), other)


def test_fnuz_by_hand() -> None:
    """0x80 is NaN, the largest numbers are 240 and 57344, the smallest 2**-10 and 2**-17, and OCP: 448, 57344."""
    assert np.isnan(decode_small(0x80, "fp8fnuz")) and np.isnan(decode_small(0x80, "bf8fnuz"))
    assert decode_small(0x7F, "fp8fnuz") == 240 and decode_small(0x7F, "bf8fnuz") == 57344
    assert decode_small(1, "fp8fnuz") == 2.0**-10 and decode_small(1, "bf8fnuz") == 2.0**-17
    assert (
        decode_small(0x7E, "fp8") == 448 and np.isnan(decode_small(0x7F, "fp8")) and decode_small(0x7B, "bf8") == 57344
    )
    assert decode_small(0x7C, "bf8") == np.inf and decode_small(0x80, "fp8") == 0


def _values(name: str) -> np.ndarray:
    finite = [decode_small(c, name) for c in range(256)]
    finite = sorted({abs(x) for x in finite if np.isfinite(x)})
    middles = [(x + y) / 2 for x, y in itertools.pairwise(finite)]
    top = finite[-1]
    edge = [top * f for f in (1.01, 1.05, 1.0625, 1.07, 1.125, 1.2, 4.0)] + [np.inf, np.nan, 1e-30, 1e-40, 3e38]
    near = [m * f for m in middles for f in (1 - 2e-7, 1 + 2e-7)]
    values = np.array(finite + middles + near + edge, np.float32)
    values = np.concatenate([values, -values])
    return np.resize(values, (len(values) + 127) // 128 * 128)


def check_rounding(chip: str, kind: str, name: str, saturate: bool) -> None:
    b = Bench(chip)
    b.mode |= OVFL if saturate else 0
    values = _values(name).reshape(-1, 2, 64)
    for x, y in values:
        b.set(v(1), x)
        b.set(v(2), y)
        b.row(v(3))[:] = 0x12345678
        b.must_run(instruction(f"v_cvt_pk_{kind}_f32", v(3), v(1), v(2), op_sel=4))
        for lane in range(64):
            want = encode_small(float(x[lane]), name, saturate) | encode_small(float(y[lane]), name, saturate) << 8
            assert b.row(v(3))[lane] == (want << 16 | 0x5678), (x[lane], y[lane])


def check_stochastic(chip: str, kind: str, name: str) -> None:
    """Against the specification on special and random numbers. Random bits 0 truncate, all ones round up any inexact
    number; in between the probability is proportional."""
    rng = np.random.default_rng(8)
    for values in (_values(name)[:64], _values(name)[-64:], rng.normal(0, 4, 64).astype(np.float32)):
        b = Bench(chip)
        random = rng.integers(0, 1 << 32, 64, dtype=np.uint32)
        random[:4] = [0, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF]
        b.set(v(1), values)
        b.set(v(2), random)
        b.row(v(3))[:] = 0x12345678
        b.must_run(instruction(f"v_cvt_sr_{kind}_f32", v(3), v(1), v(2), op_sel=4))
        want = [narrow(float(x), name, False, int(r)) for x, r in zip(values, random, strict=True)]
        assert b.row(v(3)).tolist() == [0x12340078 | code << 8 for code in want]
    b = Bench(chip)
    x = np.float32(1.0 + 0.3 * 2.0 ** -SMALL[name][1])
    low, high = encode_small(1.0, name), encode_small(1.0 + 2.0 ** -SMALL[name][1], name)
    b.set(v(1), np.full(64, x))
    b.set(v(2), np.linspace(0, (1 << 32) - 1, 64).astype(np.uint32))
    b.row(v(3))[:] = 0
    b.must_run(instruction(f"v_cvt_sr_{kind}_f32", v(3), v(1), v(2), op_sel=8))
    codes = b.row(v(3)) >> 16
    assert set(codes.tolist()) == {low, high}
    assert codes[0] == low and codes[-1] == high and 0.25 < np.mean(codes == high) < 0.35
