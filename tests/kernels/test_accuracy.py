"""Elementwise functions stay within the bounds that docs/language.md states: all values of 16-bit types, many of the others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kernels.accuracy import PAIRS, REFERENCES, TYPES, every_value, measure, measure_pairs, pairs, samples
from tests.kernels.harness import CHIPS, compiled, device
from tileir.ir.ops.elementwise import accuracy
from tileir.ir.registry import all_ops
from tileir.lowering.amdgpu.emit.functions import polynomial
from tileir.runtime import launch

ROOT = Path(__file__).resolve().parents[2]
NAMES = tuple(REFERENCES)


def check(names: tuple[str, ...], x: Any, elem: str, chip: str) -> dict[str, tuple[float, float]]:
    found = measure(names, x, elem, chip)
    for name, (error, at) in found.items():
        bound, allowance = accuracy(name, elem)
        assert error <= bound, f"{name} of {elem} is {error:.4g} ulp wrong at {at!r}, stated are {bound}"
        assert allowance <= bound - 0.5, name
    return found


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("elem", ["f16", "bf16"])
def test_every_value_of_16_bit_types(chip: str, elem: str) -> None:
    check(NAMES, every_value(elem), elem, chip)


@pytest.mark.parametrize(("chip", "elem"), [("gfx942", "f32"), ("gfx950", "f64"), ("gfx942", "f64")])
def test_samples_and_special_values_of_wide_types(chip: str, elem: str) -> None:
    """f32 and f64 against the longest floats of the host. What the documents allow the hardware on top of what the simulator does is
    taken off the bound here."""
    x = samples(elem, 4000)
    for name, (error, at) in check(NAMES, x, elem, chip).items():
        bound, allowance = accuracy(name, elem)
        assert error <= bound - allowance + 0.5 * (allowance > 0), (name, elem, error, at)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(
    ("elem", "chip"), [("f64", "gfx950"), ("f32", "gfx942"), ("f16", "gfx950"), ("bf16", "gfx942")]
)
def test_functions_of_two_operands(name: str, elem: str, chip: str) -> None:
    error, at = measure_pairs(name, *pairs(elem, 5000), elem, chip)
    assert error <= accuracy(name, elem)[0], (name, elem, error, at)


@pytest.mark.nightly
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("elem", TYPES)
@pytest.mark.parametrize("chip", CHIPS)
def test_many_pairs(name: str, elem: str, chip: str) -> None:
    for seed in range(4):
        error, at = measure_pairs(name, *pairs(elem, 100_000, seed + 1), elem, chip)
        assert error <= accuracy(name, elem)[0], (name, elem, error, at)


HIGH = """tileir 1
kernel @high<T: type = i32>(%X: global<T[N]>, %Y: global<T[N]>, %A: global<T[N]>, %B: global<T[N]>) grid(cdiv(N, 256)) {
  %i = program_id()
  %x = load(%X[%i * 256 +: 256])
  %y = load(%Y[%i * 256 +: 256])
  store(mulhi(%x, %y), %A[%i * 256 +: 256])
  store(mulhi_unsigned(%x, %y), %B[%i * 256 +: 256])
}
"""


@pytest.mark.parametrize("chip", [*CHIPS, "interpreter"])
@pytest.mark.parametrize("elem", ["i8", "i16", "i32", "i64"])
def test_upper_halves_of_products(chip: str, elem: str) -> None:
    """Against Python's integers."""
    t, bits = np.dtype(elem.replace("i", "int")), int(elem[1:])
    info = np.iinfo(t)
    special = np.array([0, 1, -1, 2, -2, 3, info.max, info.min, info.min + 1], t)
    x, y = (np.ascontiguousarray(g.ravel()) for g in np.meshgrid(special, special))
    rng = np.random.default_rng(bits)
    x, y = (np.concatenate([v, rng.integers(info.min, info.max, 300, t, endpoint=True)]) for v in (x, y))
    a, b = np.zeros_like(x), np.zeros_like(x)
    kernel = compiled(HIGH, "gfx950" if chip == "interpreter" else chip, (("T", elem),))
    launch(kernel, {"X": x, "Y": y, "A": a, "B": b}, device(chip if chip == "interpreter" else f"simulator:{chip}"))
    mask = (1 << bits) - 1
    for p, q, signed, unsigned in zip(x.tolist(), y.tolist(), a.tolist(), b.tolist(), strict=True):
        assert signed == (p * q) >> bits, (p, q)
        assert unsigned & mask == ((p & mask) * (q & mask)) >> bits, (p, q)


@pytest.mark.nightly
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("elem", ["f32", "f64"])
@pytest.mark.parametrize("seed", range(4))
def test_many_samples(chip: str, elem: str, seed: int) -> None:
    print({k: round(e, 3) for k, (e, _) in check(NAMES, samples(elem, 300_000, seed + 1), elem, chip).items()})


def test_every_function_has_a_bound_and_no_other_op() -> None:
    stated = json.loads((ROOT / "tileir/ir/ops/accuracy.json").read_text(encoding="utf-8"))["bounds"]
    assert set(stated) == {*NAMES, *PAIRS} <= set(all_ops())
    assert all(set(by_type) == set(TYPES) for by_type in stated.values())


@pytest.mark.parametrize("name", ["exp_f64", "sin_f64", "cos_f64", "tanh_f64", "tanh_f32"])
def test_polynomials_stand_for_their_functions(name: str) -> None:
    """At the ends of their intervals, where they are worst, written out by hand."""
    fit: Any = polynomial(name)
    low, high = fit["interval"]
    u = np.longdouble(high)
    value = sum(np.longdouble(c) * u**i for i, c in enumerate(fit["coefficients"]))
    r = np.sqrt(u)
    exact = {
        "exp": lambda: (np.exp(u) - 1 - u) / (u * u),
        "sin": lambda: (np.sin(r) - r) / (r * u),
        "cos": lambda: (np.cos(r) - 1 + u / 2) / (u * u),
        "tanh": lambda: (np.tanh(r) - r) / (r * u),
    }[name.split("_")[0]]()
    assert low < high and abs(value - exact) <= fit["error"] + 1e-16, (value, exact)


@pytest.mark.nightly
def test_coefficients_are_what_the_tool_computes() -> None:
    subprocess.run([sys.executable, ROOT / "tools/fit_functions.py", "--check"], check=True)


TURNS = """tileir 1
kernel @turns<T: type = f32>(%X: global<T[M, 48]>, %Y: global<T[M, 48]>, %Z: global<T[M]>, %s: T) grid(1) with(waves = 2) {
  %x = load(%X[0 +: 16, 0 +: 48])
  %f = fill(%s) : tile<T[16, 48]>
  %y = for %k = 0 to 3 step 1 carry(%a = %x) {
    %b = sin(%a) + cos(%f)
    %c = guard reduce_max(%b, axis = 1) > 1.5 carry(%d = %b) {
      yield cos(%d * 30.0)
    }
    yield %c * 4.0
  }
  store(%y, %Y[0 +: 16, 0 +: 48])
  store(sin(%s), %Z[0])
}
"""


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("elem", ["f32", "f64"])
@pytest.mark.parametrize("size", [1.0, 1e12])
def test_sine_in_loops_guards_and_of_scalars(chip: str, elem: str, size: float) -> None:
    """The branch for large arguments among other control flow, taken by some waves, by all, by none."""
    t = TYPES[elem]
    kernel = compiled(TURNS, chip, (("T", elem),))
    rng = np.random.default_rng(1)
    x = rng.standard_normal((13, 48)).astype(t)
    x[3, 5] *= t(size)
    y, z, scale = np.zeros_like(x), np.zeros(13, t), float(t(0.3 * size))
    launch(kernel, {"X": x, "Y": y, "Z": z, "s": scale}, device(f"simulator:{chip}"))
    want = np.zeros((16, 48), t)
    want[:13] = x
    for _ in range(3):
        b = np.sin(want.astype(np.float64)).astype(t) + np.cos(np.float64(t(scale))).astype(t)
        cold = np.cos((b * t(30)).astype(np.float64)).astype(t)
        want = np.where(b.max(axis=1, keepdims=True) > 1.5, cold, b) * t(4)
    # Errors of half an ulp grow by 4 with every trip, and by 30 in the region.
    assert np.abs(y - want[:13]).max() < (1e-8 if elem == "f64" else 0.5)
    assert np.isclose(z[0], np.sin(np.float64(t(scale))), rtol=1e-6)
