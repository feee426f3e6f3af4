"""Computes the polynomials of the elementwise functions and the constants of their argument reductions.

    python tools/fit_functions.py            # writes tileir/lowering/amdgpu/emit/functions.json
    python tools/fit_functions.py --check    # exit status 1 if the committed file differs

Everything is computed in decimal arithmetic with 90 digits. A polynomial interpolates its function in Chebyshev nodes of its interval,
which is within a small factor of the best one (Trefethen, "Approximation theory and approximation practice", 2013, chapters 8
and 16); its degree is the first that meets the wanted error. Coefficients are rounded to f64; `error` is the largest deviation that
the rounded polynomial has in exact arithmetic on a grid, absolute.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, getcontext
from itertools import pairwise
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "tileir/lowering/amdgpu/emit/functions.json"
DIGITS = 90
GRID = 400
getcontext().prec = DIGITS
D = Decimal
Function = Callable[[Decimal], Decimal]


def series(term: Decimal, following: Callable[[Decimal, int], Decimal]) -> Decimal:
    """Sum of a series from its first term on."""
    total, n = D(0), 0
    while abs(term) > D(10) ** -(DIGITS + 10):
        total += term
        n += 1
        term = following(term, n)
    return total


def arctan_of_inverse(n: int) -> Decimal:
    return sum((D((-1) ** k) / ((2 * k + 1) * D(n) ** (2 * k + 1)) for k in range(DIGITS)), D(0))


PI = 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))  # Machin
LN2 = D(2).ln()


def sine(x: Decimal) -> Decimal:
    return series(x, lambda t, n: -t * x * x / (2 * n * (2 * n + 1)))


def cosine(x: Decimal) -> Decimal:
    return series(D(1), lambda t, n: -t * x * x / ((2 * n - 1) * 2 * n))


def erf(x: Decimal) -> Decimal:
    """2/√π · exp(-x²) · Σ 2ⁿ x²ⁿ⁺¹ / (2n+1)!!: all terms are positive."""
    return 2 / PI.sqrt() * (-x * x).exp() * series(x, lambda t, n: t * 2 * x * x / (2 * n + 1))


def tanh(x: Decimal) -> Decimal:
    e = (2 * x).exp()
    return (e - 1) / (e + 1)


def sinh(x: Decimal) -> Decimal:
    return (x.exp() - (-x).exp()) / 2


def arctan(t: Decimal) -> Decimal:
    """Halved three times by atan t = 2 atan(t / (1 + √(1 + t²))), then the series."""
    for _ in range(3):
        t = t / (1 + (1 + t * t).sqrt())
    return 8 * sum(((-1) ** n * t ** (2 * n + 1) / (2 * n + 1) for n in range(70)), D(0))


def of_root(f: Function) -> Function:
    """A function of y = x²."""
    return lambda y: f(y.sqrt())


@dataclass(frozen=True)
class Fit:
    """A polynomial in (x - centre) / scale, where `formula` is the function that it stands for on [low, high]."""

    formula: str
    function: Function
    low: float
    high: float
    error: float
    centre: float = 0.0
    scale: float = 1.0


E64, E32 = 2.0**-56, 2.0**-30
PI_4 = 0.7854
FITS: dict[str, Fit] = {
    "exp_f64": Fit("(exp(r) - 1 - r) / r²", lambda r: (r.exp() - 1 - r) / (r * r), -0.3466, 0.3466, E64 * 4),
    "exp2_f64": Fit("(2ʳ - 1) / r", lambda r: ((r * LN2).exp() - 1) / r, -0.5, 0.5, E64),
    "log_f64": Fit(
        "(log((1 + s) / (1 - s)) - 2s) / s³ of s²",
        of_root(lambda s: (((1 + s) / (1 - s)).ln() - 2 * s) / s**3), 0.0, 0.02945, E64 * 8,
    ),
    "sin_f64": Fit("(sin r - r) / r³ of r²", of_root(lambda r: (sine(r) - r) / r**3), 0.0, PI_4**2, E64 / 4),
    "cos_f64": Fit("(cos r - 1 + r²/2) / r⁴ of r²", of_root(lambda r: (cosine(r) - 1 + r * r / 2) / r**4), 0.0, PI_4**2, E64 / 4),
    "sin_f32": Fit("(sin r - r) / r³ of r²", of_root(lambda r: (sine(r) - r) / r**3), 0.0, PI_4**2, E32 / 8),
    "cos_f32": Fit("(cos r - 1 + r²/2) / r⁴ of r²", of_root(lambda r: (cosine(r) - 1 + r * r / 2) / r**4), 0.0, PI_4**2, E32 / 8),
    "tanh_f64": Fit("(tanh x - x) / x³ of x²", of_root(lambda x: (tanh(x) - x) / x**3), 0.0, 0.625**2, E64),
    "tanh_f32": Fit("(tanh x - x) / x³ of x²", of_root(lambda x: (tanh(x) - x) / x**3), 0.0, 0.625**2, E32),
    "sinh_f64": Fit("(sinh x - x) / x³ of x²", of_root(lambda x: (sinh(x) - x) / x**3), 0.0, 1.0, E64),
    "atan_f64": Fit("(atan t - t) / t³ of t²", of_root(lambda t: (arctan(t) - t) / t**3), 0.0, 1.0, E64),
    "log_rest_f64": Fit(
        "(log((1 + s) / (1 - s)) - 2s - 2/3 s³) / s⁵ of s²",
        of_root(lambda s: (((1 + s) / (1 - s)).ln() - 2 * s - D(2) / 3 * s**3) / s**5), 0.0, 0.02945, E64 * 8,
    ),
    "erf_f64": Fit("(erf x - x) / x of x²", of_root(lambda x: (erf(x) - x) / x), 0.0, 2.25, E64),
    "erf_f32": Fit("(erf x - x) / x of x²", of_root(lambda x: (erf(x) - x) / x), 0.0, 1.0, E32 * 2),
    "erfc_f64": Fit("-log(1 - erf x)", lambda x: -(1 - erf(x)).ln(), 1.5, 6.0, E64 * 16, 3.75, 2.25),
    "erfc_f32": Fit("-log(1 - erf x)", lambda x: -(1 - erf(x)).ln(), 1.0, 4.0, E32 * 16, 2.5, 1.5),
}  # fmt: skip


def interpolated(fit: Fit, degree: int) -> list[Decimal]:
    """Coefficients, lowest first, of the polynomial through degree + 1 Chebyshev nodes, by Newton's divided differences."""
    middle, half = (D(fit.high) + D(fit.low)) / 2, (D(fit.high) - D(fit.low)) / 2
    count = degree + 1
    nodes = [middle + half * cosine(PI * (2 * k + 1) / (2 * count)) for k in range(count)]
    values = [fit.function(x) for x in nodes]
    places = [(x - D(fit.centre)) / D(fit.scale) for x in nodes]
    for level in range(1, count):
        for i in range(count - 1, level - 1, -1):
            values[i] = (values[i] - values[i - 1]) / (places[i] - places[i - level])
    out = [values[-1]]
    for value, place in zip(values[-2::-1], places[-2::-1], strict=True):
        out = [value - place * out[0], *(a - place * b for a, b in pairwise(out)), out[-1]]
    return out


def deviation(fit: Fit, coefficients: Sequence[float | Decimal]) -> float:
    """Largest absolute error on the grid."""
    worst = D(0)
    for i in range(GRID):
        x = D(fit.low) + (D(fit.high) - D(fit.low)) * (D(i) + D("0.5")) / GRID
        u, total = (x - D(fit.centre)) / D(fit.scale), D(0)
        for c in reversed(coefficients):
            total = total * u + D(c)
        worst = max(worst, abs(total - fit.function(x)))
    return float(worst)


def fitted(fit: Fit) -> dict[str, object]:
    for degree in range(1, 40):
        exact = interpolated(fit, degree)
        if deviation(fit, exact) <= fit.error:  # the unrounded polynomial decides on the degree
            coefficients = [float(c) for c in exact]
            return {
                "formula": fit.formula,
                "interval": [fit.low, fit.high],
                "centre": fit.centre,
                "scale": fit.scale,
                "error": float(f"{deviation(fit, coefficients):.2g}"),
                "coefficients": coefficients,
            }
    raise AssertionError(f"{fit.formula} does not reach {fit.error}")


def split(value: Decimal, bits: tuple[int, ...]) -> list[float]:
    """The number as a sum of floats with at most so many bits each, the first ones truncated, the last rounded."""
    out: list[float] = []
    for n in bits:
        exponent = 0
        while D(2) ** exponent > abs(value):
            exponent -= 1
        while D(2) ** (exponent + 1) <= abs(value):
            exponent += 1
        unit = D(2) ** (exponent - n + 1)
        part = (value / unit).to_integral_value(rounding="ROUND_DOWN") * unit if n < 53 else D(float(value))
        out.append(float(part))
        value -= part
    return out


def constants() -> dict[str, list[float]]:
    """Numbers as sums of floats: parts with few bits, so that products with small integers are exact."""
    return {
        "log2(e)": split(1 / LN2, (53, 53)),
        "2/3": split(D(2) / 3, (53, 53)),
        "pi": split(PI, (53, 53)),
        "ln 2": split(LN2, (53, 53)),
        "ln 2 short": split(LN2, (40, 53)),
        "2/pi": split(2 / PI, (53,)),
        "pi/2": split(PI / 2, (53, 53)),
        "pi/2 short": split(PI / 2, (33, 33, 33, 53)),
    }


def content() -> str:
    data = {"constants": constants(), "polynomials": {name: fitted(fit) for name, fit in FITS.items()}}
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the committed file")
    text = content()
    if parser.parse_args().check:
        return int(TARGET.read_text(encoding="utf-8") != text)
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
