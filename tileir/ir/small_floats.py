"""Floating-point formats of 16 bits and less as numbers: what conversions in bits need to know of an element type.

Everything follows from the definitions in `ml_dtypes` and NumPy (OCP OFP8 and MX specifications; FNUZ as in MLIR).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from tileir.ir.types import Elem
from tileir.records import dataclass

SCALE = "f8E8M0FNU"


@dataclass(frozen=True)
class Format:
    """A format with sign, exponent and mantissa.

    Codes are magnitudes: the bits without the sign. Finite magnitudes ascend with their codes, from 0 to `largest`.
    """

    exponent_bits: int
    mantissa_bits: int
    least_exponent: int
    """Exponent of the smallest normal number; subnormals have it, too."""
    largest: int
    infinity: int | None
    nan: int | None
    """Magnitude code of a NaN; None where the format has none, or where NaN is what would be minus zero (`unsigned_zero`)."""
    unsigned_zero: bool
    """FNUZ: no minus zero; its code (the sign alone) is the only NaN."""

    @property
    def sign(self) -> int:
        """The sign bit."""
        return 1 << self.exponent_bits + self.mantissa_bits


@cache
def format_of(elem: Elem) -> Format:
    """The format of a float of at most 16 bits with a sign."""
    assert elem.is_float and elem.bits <= 16 and elem.name != SCALE, elem
    info: Any = ml_dtypes.finfo(elem.np)
    unsigned = np.uint16 if elem.bits == 16 else np.uint8
    with np.errstate(invalid="ignore"):  # signalling NaNs are among the codes
        values = np.arange(1 << elem.bits - 1, dtype=unsigned).view(elem.np).astype(np.float64)
    finite = np.flatnonzero(np.isfinite(values))
    infinite, nans = np.flatnonzero(np.isinf(values)), np.flatnonzero(np.isnan(values))
    minus_zero = np.asarray(1 << elem.bits - 1, unsigned).view(elem.np).astype(np.float64)
    mantissa = int(info.nmant)
    quiet = [int(c) for c in nans if c >> max(0, mantissa - 1) & 1]
    return Format(
        elem.bits - 1 - mantissa,
        mantissa,
        int(np.log2(float(info.smallest_normal))),
        int(finite[-1]),
        int(infinite[0]) if len(infinite) else None,
        quiet[0] if quiet else None,
        bool(np.isnan(minus_zero)),
    )
