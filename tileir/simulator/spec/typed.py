"""Formatted buffer elements, in exact arithmetic. [see native/typed.py for sources]"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from .core import round_exact

NAMES = {
    1: "8", 2: "16", 3: "8_8", 4: "32", 5: "16_16", 6: "10_11_11", 7: "11_11_10", 8: "10_10_10_2", 9: "2_10_10_10",
    10: "8_8_8_8", 11: "32_32", 12: "16_16_16_16", 13: "32_32_32", 14: "32_32_32_32",
}  # fmt: skip
"""Data formats; a name gives the widths of the components from the highest bits down, x is the lowest."""


def widths(data: int) -> list[int]:
    """Widths of x, y, z, w."""
    return [int(part) for part in reversed(NAMES[data].split("_"))]


def size(data: int) -> int:
    """Bytes of an element."""
    return sum(widths(data)) // 8


def loadable(data: int, number: int) -> bool:
    """Whether the combination has a meaning for loads."""
    small = widths(data)[0] in (8, 2) or (len(widths(data)) == 4 and widths(data)[0] == 10)
    return number in (0, 1, 2, 3, 4, 5) or (number == 7 and not small)


def storable(data: int, number: int) -> bool:
    """Whether the combination has a meaning for stores."""
    return loadable(data, number) and number not in (2, 3) and not (number == 7 and widths(data)[0] in (10, 11))


def _small_float(code: int, mantissa: int) -> Fraction | float:
    """An unsigned float with five bits of exponent."""
    exponent, fraction = code >> mantissa, code & ((1 << mantissa) - 1)
    if exponent == 31:
        return math.nan if fraction else math.inf
    if exponent == 0:
        return Fraction(fraction, 1 << mantissa) / (1 << 14)
    return (1 + Fraction(fraction, 1 << mantissa)) * Fraction(2) ** (exponent - 15)


def _component(code: int, width: int, number: int) -> int | float | Fraction:
    """A component as a number; integers for integer formats."""
    signed = code - (1 << width) if code >> (width - 1) else code
    if number == 4:
        return code
    if number == 5:
        return signed
    if number == 0:
        return Fraction(code, (1 << width) - 1)
    if number == 1:
        return max(Fraction(signed, max(1, (1 << width - 1) - 1)), Fraction(-1))
    if number in (2, 3):
        return Fraction(signed if number == 3 else code)
    if width == 32:
        return float(np.array(code, np.uint32).view(np.float32))
    if width == 16:
        return float(np.array(code, np.uint16).view(np.float16))
    return _small_float(code, 6 if width == 11 else 5)


def _bits(value: int | float | Fraction, number: int, half: bool) -> int:
    """A component as a register holds it: 32 or 16 bits."""
    if number in (4, 5):
        return int(value) & (0xFFFF if half else 0xFFFFFFFF)
    with np.errstate(over="ignore", invalid="ignore"):
        single = round_exact(value, np.float32) if isinstance(value, Fraction) else np.float32(value)
        return int(single.astype(np.float16).view(np.uint16) if half else single.view(np.uint32))


def load(element: bytes, data: int, number: int, half: bool, select: tuple[int, ...] | None = None) -> list[int]:
    """x, y, z, w of an element as registers hold them. select: DST_SEL of the descriptor, none for MTBUF."""
    word, out, at = int.from_bytes(element, "little"), [], 0
    for width in widths(data):
        out.append(_bits(_component(word >> at & ((1 << width) - 1), width, number), number, half))
        at += width
    out += [0] * (4 - len(out))
    if select is None:
        return out
    one = 1 if number in (4, 5) else 0x3C00 if half else 0x3F800000
    return [one if s == 1 else out[s - 4] if s >= 4 else 0 for s in select]


def store(registers: list[int], data: int, number: int, half: bool) -> bytes:
    """The element of components as registers hold them."""
    word, at = 0, 0
    for code, width in zip(registers, widths(data), strict=False):
        dtype = (np.uint16, np.float16) if half else (np.uint32, np.float32)
        value = float(np.array(code, dtype[0]).view(dtype[1]))
        if number in (4, 5):
            bits = code - (1 << 16) if half and number == 5 and code >> 15 else code
        elif number == 7:
            with np.errstate(over="ignore"):
                bits = code if (width == 16) == half else int(np.float16(value).view(np.uint16))
                if half and width == 32:
                    bits = int(np.float32(value).view(np.uint32))
        else:
            low, scale = (0.0, (1 << width) - 1) if number == 0 else (-1.0, max(1, (1 << width - 1) - 1))
            clean = 0.0 if math.isnan(value) else min(max(value, low), 1.0)
            bits = round(Fraction(clean) * scale)
        word |= (bits & ((1 << width) - 1)) << at
        at += width
    return word.to_bytes(size(data), "little")
