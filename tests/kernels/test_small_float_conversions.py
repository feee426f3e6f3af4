"""Conversions from and to floats of 8 bits and less and with other roundings, on both chips against the interpreter's semantics,
and those against exact arithmetic."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import CHIPS, compiled, device
from tileir.ir.ops.numeric import convert_array, round_to
from tileir.ir.small_floats import format_of
from tileir.ir.types import ELEMS, F32
from tileir.runtime import launch

EIGHT = ("f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E5M2FNUZ")
NARROW = (*EIGHT, "f16", "bf16")
MODES = ("nearest_even", "nearest_away", "toward_zero", "stochastic")
COLUMNS = 256

TEXT = """tileir 1
kernel @k<S: type, T: type>(%X: global<S[M, 256]>, %R: global<i32[M, 256]>, %Y: global<T[M, 256]>) grid(cdiv(M, 16)) {{
  %i = program_id()
  %x = load(%X[%i * 16 +: 16, 0 +: 256])
  %r = load(%R[%i * 16 +: 16, 0 +: 256])
  store({convert}, %Y[%i * 16 +: 16, 0 +: 256])
}}
"""


def values_for(target: str, source: str = "f32") -> Any:
    """Every value of the target, the midpoints between them and their neighbours, numbers of any bit pattern; rows of 256."""
    rng = np.random.default_rng(5)
    patterns = rng.integers(0, 1 << 32, 6000, dtype=np.uint32).view(np.float32)
    ordinary = (rng.standard_normal(6000) * 2.0 ** rng.integers(-20, 12, 6000)).astype(np.float32)
    elem = ELEMS[target]
    with np.errstate(all="ignore"):
        codes = np.arange(1 << elem.bits, dtype=f"u{elem.bytes}").view(elem.np).astype(np.float64)
        codes = codes[:: max(1, len(codes) // 4096)]
        finite = np.sort(codes[np.isfinite(codes)])
        middles = ((finite[1:] + finite[:-1]) / 2).astype(np.float32)
        near = [np.nextafter(middles, np.float32(x)) for x in (-np.inf, np.inf)]
        edges = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-45, -1e-45, 3e38, -3e38], np.float32)
        found = np.concatenate([codes, middles, *near, edges, patterns, ordinary]).astype(ELEMS[source].np)
    return np.resize(found, (-(-len(found) // COLUMNS), COLUMNS))


def run(chip: str, x: Any, source: str, target: str, attributes: str = "", bits: Any = None) -> Any:
    """The conversion of an array of rows of 256 on the simulator."""
    random = ", %r" if bits is not None else ""
    text = TEXT.format(convert=f"convert<{target}{attributes}>(%x{random})")
    y = np.zeros(x.shape, ELEMS[target].np)
    r = np.zeros(x.shape, np.int32) if bits is None else bits
    kernel = compiled(text, chip, (("S", source), ("T", target)))
    launch(kernel, {"X": x, "R": r, "Y": y}, device(f"simulator:{chip}"))
    return y


def same(got: Any, want: Any) -> bool:
    """Equal bits, or NaN both."""
    with np.errstate(all="ignore"):
        nan = np.isnan(got.astype(np.float64)) & np.isnan(want.astype(np.float64))
    raw = f"u{got.dtype.itemsize}"
    return bool(np.all((got.view(raw) == want.view(raw)) | nan))


@pytest.mark.parametrize("target", EIGHT)
@pytest.mark.parametrize("chip", CHIPS)
def test_to_eight_bits(chip: str, target: str) -> None:
    """To nearest even and saturating, by the chip's instructions for its own kind."""
    x = values_for(target)
    assert same(run(chip, x, "f32", target), convert_array(x, F32, ELEMS[target]))


@pytest.mark.parametrize("source", [*EIGHT, "f8E8M0FNU"])
@pytest.mark.parametrize("chip", CHIPS)
def test_all_codes_to_wider_types(chip: str, source: str) -> None:
    """Case fnuz-nan: all 256 codes, NaN of FNUZ among them."""
    x = np.resize(np.arange(256, dtype=np.uint8).view(ELEMS[source].np), (3, COLUMNS))
    for target in ("f32", "bf16", "f8E5M2"):
        assert same(run(chip, x, source, target), convert_array(x, ELEMS[source], ELEMS[target])), target
    assert np.isnan(run(chip, x, source, "f32")[0, 128]) == source.endswith("UZ")


@pytest.mark.parametrize("source", ["f64", "f16", "bf16", "i32", "i64", "i8"])
@pytest.mark.parametrize("chip", CHIPS)
def test_from_other_types(chip: str, source: str) -> None:
    """One rounding from every source: f64 and integers that f32 does not hold are no exception."""
    rng = np.random.default_rng(2)
    elem = ELEMS[source]
    for target in ("f8E4M3FN", "f8E5M2FNUZ"):
        if elem.is_float:
            x = values_for(target, source)
            if source == "f64":  # just beside the middle between two values, by less than f32 shows
                x[0] = x[0] * (1 + 2.0**-40)
                x[1] = x[1] * (1 - 2.0**-40)
        else:
            width = rng.integers(1, elem.bits, (8, COLUMNS))
            x = (rng.integers(-(1 << elem.bits - 1), 1 << elem.bits - 1, (8, COLUMNS)) >> width).astype(elem.np)
        assert same(run(chip, x, source, target), convert_array(x, elem, ELEMS[target])), target


@pytest.mark.parametrize("elem", ["f6E2M3FN", "f6E3M2FN", "f4E2M1FN"])
@pytest.mark.parametrize("chip", CHIPS)
def test_six_and_four_bits(chip: str, elem: str) -> None:
    """Packed in memory: values of every kind in, in two modes, and all codes out."""
    x = values_for(elem)
    bits = np.random.default_rng(3).integers(-(1 << 31), 1 << 31, x.shape).astype(np.int32)
    assert same(run(chip, x, "f32", elem), convert_array(x, F32, ELEMS[elem]))
    got = run(chip, x, "f32", elem, ", rounding = stochastic", bits)
    assert same(got, round_to(x, ELEMS[elem], "stochastic", bits=bits))
    codes = np.resize(np.arange(1 << ELEMS[elem].bits, dtype=np.uint8).view(ELEMS[elem].np), (3, COLUMNS))
    for target in ("f32", "f8E4M3FN"):
        assert same(run(chip, codes, elem, target), convert_array(codes, ELEMS[elem], ELEMS[target])), target


MOVES = {
    "turned": ("N, M", "transpose(%x)", "0 +: 64, %i * 16 +: 16"),
    "selected": ("M, N", "where(iota<[16, 64], axis = 1>() % 3 == %i, %x, %z)", "%i * 16 +: 16, 0 +: 64"),
}


@pytest.mark.parametrize("how", list(MOVES))
@pytest.mark.parametrize("elem", ["f6E3M2FN", "f4E2M1FN"])
@pytest.mark.parametrize("chip", CHIPS)
def test_packed_elements_move(chip: str, elem: str, how: str) -> None:
    """Tiles that are turned or put together from others; at the end of the view nothing else is written."""
    dims, value, place = MOVES[how]
    value = value.replace("iota<[16, 64], axis = 1>() % 3 == %i", "mod(iota<[16, 64], axis = 1>(), 3) == %i")
    text = (
        f"tileir 1\nkernel @k(%X: global<{elem}[M, N]>, %Y: global<{elem}[{dims}], strides = [L, 1]>) grid(cdiv(M, 16)) {{\n"
        "  %i = program_id()\n  %x = load(%X[%i * 16 +: 16, 0 +: 64])\n  %z = load(%X[%i * 16 + 16 +: 16, 0 +: 64])\n"
        f"  store({value}, %Y[{place}])\n}}\n"
    )
    rows, cols = 40, 52
    rng = np.random.default_rng(1)
    x = rng.integers(0, 1 << ELEMS[elem].bits, (rows, cols)).astype(np.uint8).view(ELEMS[elem].np)
    shape = (cols, rows) if how == "turned" else (rows, cols)
    frame = np.full((shape[0], shape[1] + 8), 1, np.uint8).view(ELEMS[elem].np)
    launch(compiled(text, chip), {"X": x, "Y": frame[:, : shape[1]]}, device(f"simulator:{chip}"))
    if how == "turned":
        want = x.T
    else:
        below = np.concatenate([x[16:], np.zeros((16, cols), np.uint8).view(x.dtype)])
        want = np.where(np.arange(cols) % 3 == np.arange(rows)[:, None] // 16, x, below)
    assert np.array_equal(frame[:, : shape[1]].view(np.uint8), np.ascontiguousarray(want).view(np.uint8))
    assert np.all(frame[:, shape[1] :].view(np.uint8) == 1)


@pytest.mark.parametrize(("rounding", "overflow"), list(itertools.product(MODES, ("saturate", "infinity"))))
@pytest.mark.parametrize("chip", CHIPS)
def test_roundings(chip: str, rounding: str, overflow: str) -> None:
    """Every mode; which types take turns, of each kind of format one."""
    for target in NARROW[(MODES.index(rounding) + CHIPS.index(chip)) % 2 :: 2]:
        x = values_for(target)
        bits = np.random.default_rng(3).integers(-(1 << 31), 1 << 31, x.shape).astype(np.int32)
        given = bits if rounding == "stochastic" else None
        got = run(chip, x, "f32", target, f", rounding = {rounding}, overflow = {overflow}", given)
        assert same(got, round_to(x, ELEMS[target], rounding, overflow, bits)), target


@pytest.mark.parametrize("chip", CHIPS)
def test_scales(chip: str) -> None:
    """f8E8M0FNU is the exponent of f32: to the nearest power of two, or the one below."""
    x = values_for("f8E5M2")
    assert same(run(chip, x, "f32", "f8E8M0FNU"), convert_array(x, F32, ELEMS["f8E8M0FNU"]))
    below = run(chip, x, "f32", "f8E8M0FNU", ", rounding = toward_zero")
    assert same(below, round_to(x, ELEMS["f8E8M0FNU"], "toward_zero"))
    powers = np.ldexp(1.0, np.arange(-127, 129)).astype(np.float64)
    x = np.stack([powers, powers * (1.5 - 2**-20), powers * 1.5, -powers])[:, :255].astype(np.float32)
    got = run(chip, np.pad(x, ((0, 0), (0, 1))), "f32", "f8E8M0FNU").astype(np.float64)[:, :255]
    assert np.array_equal(got[:3], np.stack([powers[:255], powers[:255], np.minimum(powers[1:], powers[254])]))
    assert np.isnan(got[3]).all()


@pytest.mark.parametrize("target", [*NARROW, "f6E2M3FN", "f6E3M2FN", "f4E2M1FN"])
def test_semantics_are_exact(target: str) -> None:
    """The NumPy semantics against rational arithmetic: the neighbour that every mode states."""
    f, elem = format_of(ELEMS[target]), ELEMS[target]
    with np.errstate(all="ignore"):
        numbers = [Fraction(float(v)) for v in np.arange(f.largest + 1, dtype=f"u{elem.bytes}").view(elem.np)]
    x = values_for(target)[:, ::7].reshape(-1)
    x = x[np.isfinite(x) & (np.abs(x.astype(np.float64)) <= float(numbers[-1]))]
    bits = np.random.default_rng(4).integers(-(1 << 31), 1 << 31, x.shape).astype(np.int32)
    found = {mode: round_to(x, elem, mode, bits=bits).astype(np.float64) for mode in MODES}
    at = np.searchsorted([float(v) for v in numbers], np.abs(x.astype(np.float64)), side="right") - 1
    for i, value in enumerate(x.tolist()):
        size, low = abs(Fraction(value)), int(at[i])
        above = numbers[min(low + 1, f.largest)]
        share = Fraction(0) if size == numbers[low] else (size - numbers[low]) / (above - numbers[low])
        up = {
            "nearest_even": share > Fraction(1, 2) or (share == Fraction(1, 2) and low % 2 == 1),
            "nearest_away": share >= Fraction(1, 2),
            "toward_zero": False,
            "stochastic": int(share * 2**32) + (int(bits[i]) & 0xFFFFFFFF) >= 2**32,
        }
        for mode, away in up.items():
            assert abs(Fraction(found[mode][i])) == (above if away else numbers[low]), (mode, value)


def test_stochastic_rounding_is_unbiased() -> None:
    """On average over random bits, the value itself."""
    x = np.full(1 << 14, 1.09, np.float32)
    bits = np.random.default_rng(1).integers(-(1 << 31), 1 << 31, x.shape).astype(np.int32)
    mean = round_to(x, ELEMS["f8E4M3FN"], "stochastic", bits=bits).astype(np.float64).mean()
    assert abs(mean - 1.09) < 4 * 0.0625 / 2**7
