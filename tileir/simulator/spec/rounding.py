"""Arithmetic in every rounding mode, exact and then rounded once. [CDNA3 ISA, "MODE"; IEEE 754]

Modes: 0 to nearest even, 1 toward plus infinity, 2 toward minus infinity, 3 toward zero. Sums that are exactly zero are
-0 toward minus infinity and +0 otherwise, unless all their terms are zeros of one sign.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from tileir.records import dataclass

from .core import DTYPES, VECTOR, Array, round_exact

Term = tuple[Fraction, bool]
"""A term of a sum: exact value, and whether it is negative (which matters for zeros)."""


def _number(x: np.number) -> Term:
    return Fraction(x.item() if isinstance(x, np.integer) else float(x)), bool(np.signbit(x))


def _product(x: Term, y: Term) -> Term:
    return x[0] * y[0], x[1] != y[1]


def _negated(x: Term) -> Term:
    return -x[0], not x[1]


@dataclass(frozen=True)
class Rounded:
    """result, sources: keys of DTYPES. terms: of the exact sum, from the sources. steps: partial sums that are rounded
    one after the other (one entry each); most ops have a single one. accumulate: the destination is the last source."""

    result: str
    sources: tuple[str, ...]
    terms: Callable[..., Sequence[Term]]
    accumulate: bool = False


def total(terms: Sequence[Term], dtype: type[np.floating], mode: int) -> np.floating:
    """The rounded sum."""
    exact = sum((value for value, _ in terms), Fraction(0))
    if exact:
        rounded = round_exact(exact, dtype, mode)
        return np.copysign(rounded, dtype(-1 if exact < 0 else 1))  # a result that underflows keeps its sign
    signs = {negative for _, negative in terms}
    zeros = all(value == 0 for value, _ in terms)
    negative = signs == {True} if zeros and len(signs) == 1 else mode == 2
    return dtype(-0.0) if negative else dtype(0.0)


ROUNDED: dict[str, Rounded] = {}


def _declare(name: str, types: str, terms: Callable[..., Sequence[Term]], accumulate: bool = False) -> None:
    left, right = types.split("=")
    ROUNDED[name] = Rounded(left.strip(), tuple(right.split()), terms, accumulate)


for _t in ("f16", "f32", "f64"):
    _two = f"{_t} = {_t} {_t}"
    _declare(f"v_add_{_t}", _two, lambda x, y: (x, y))
    _declare(f"v_sub_{_t}", _two, lambda x, y: (x, _negated(y)))
    _declare(f"v_subrev_{_t}", _two, lambda x, y: (y, _negated(x)))
    _declare(f"v_mul_{_t}", _two, lambda x, y: (_product(x, y),))
    _declare(f"v_fma_{_t}", f"{_t} = {_t} {_t} {_t}", lambda x, y, z: (_product(x, y), z))
    _declare(f"v_fmac_{_t}", _two, lambda x, y, z: (_product(x, y), z), True)
    _declare(
        f"v_ldexp_{_t}",
        f"{_t} = {_t} {'i16' if _t == 'f16' else 'i32'}",
        lambda x, n: ((x[0] * Fraction(2) ** max(-2500, min(2500, int(n[0]))), x[1]),),
    )
_declare("v_fmaak_f32", "f32 = f32 f32 f32", lambda x, y, z: (_product(x, y), z))
_declare("v_fmamk_f32", "f32 = f32 f32 f32", lambda x, y, z: (_product(x, y), z))
_declare("v_fma_legacy_f16", "f16 = f16 f16 f16", lambda x, y, z: (_product(x, y), z))
_declare("v_cvt_f16_f32", "f16 = f32", lambda x: (x,))
_declare("v_cvt_f32_f64", "f32 = f64", lambda x: (x,))
for _name, _types in {
    "v_cvt_f32_i32": "f32 = i32",
    "v_cvt_f32_u32": "f32 = u32",
    "v_cvt_f64_i32": "f64 = i32",
    "v_cvt_f64_u32": "f64 = u32",
    "v_cvt_f16_i16": "f16 = i16",
    "v_cvt_f16_u16": "f16 = u16",
}.items():
    _declare(_name, _types, lambda x: (x,))


def apply(name: str, mode: int, *sources: Array) -> Array:
    """The op on every lane. Lanes with an infinite or NaN source do not depend on the mode: there the ordinary
    specification answers."""
    spec = ROUNDED[name]
    dtype = DTYPES[spec.result]
    with np.errstate(all="ignore"):
        out = np.array(VECTOR[name].function(*sources))
    for lane, values in enumerate(zip(*sources, strict=True)):
        if all(np.isfinite(v) for v in values):
            out[lane] = total(spec.terms(*map(_number, values)), dtype, mode)  # type: ignore[arg-type]
    return out
