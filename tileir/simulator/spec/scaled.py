"""Scaled conversions between small and wide floats, lane by lane in exact arithmetic. [see native/scaled.py for sources]"""

from __future__ import annotations

import math
import re
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from .convert import bf16_bits
from .matrix import BITS, SMALL, decode_small, encode_small, value_of

Rows = NDArray[np.uint32]
"""Registers of an operand: [register][lane]."""
_NAME = re.compile(r"v_cvt_scalef32_(sr_)?(2xpk16_|pk32_|pk_)?([a-z0-9]+)_([a-z0-9]+)$")


def stochastic(value: float, random: int, e_bits: int, m_bits: int, bias: int) -> int:
    """Magnitude code of a finite number, rounded up when its remainder and the random fraction make a whole step. The
    random fraction has as many bits as an f32 loses in this conversion."""
    magnitude = abs(Fraction(value))
    if magnitude == 0:
        return 0
    exponent = max(math.frexp(abs(value))[1] - 1, 1 - bias)
    dropped = 23 - m_bits + min(max(0, 1 - bias - (math.frexp(abs(value))[1] - 1)), 24)
    noise = Fraction((random << 32) >> (64 - dropped), 1 << dropped)
    steps = math.floor(magnitude / Fraction(2) ** (exponent - m_bits) + noise)
    # counting steps from the start of the binade gives the code itself, a carry into the exponent included
    return steps + ((exponent + bias - 1) << m_bits)


def narrow(value: float, kind: str, saturate: bool, random: int | None) -> int:
    """Code of a number in a small format: to nearest even, or stochastic with the given random bits."""
    if random is None or not math.isfinite(value):
        return encode_small(value, kind, saturate)
    e_bits, m_bits, bias, nan = SMALL[kind]
    sign = 1 << (e_bits + m_bits) if math.copysign(1, value) < 0 else 0
    code = 0 if abs(value) < 2.0**-126 else stochastic(value, random, e_bits, m_bits, bias)
    if code == 0 and nan == "fnuz":
        return 0
    largest = max(c for c in range(1 << e_bits + m_bits) if math.isfinite(decode_small(c, kind)))
    if code <= largest:
        return sign | code
    if saturate or not nan:
        return sign | largest
    if nan == "fnuz":
        return 1 << (e_bits + m_bits)
    return sign | (((1 << e_bits) - 1) << m_bits if nan == "ieee" else (1 << e_bits + m_bits) - 1)


def stochastic16(value: float, kind: str, random: int) -> int:
    """f32 to f16 or bf16 (``kind``), not NaN: the code after a stochastic rounding. f32 denormals count as zeros for
    f16; what overflows becomes infinite."""
    sign = 0x8000 if math.copysign(1, value) < 0 else 0
    if math.isinf(value):
        return sign | (0x7C00 if kind == "f16" else 0x7F80)
    if kind == "bf16":  # in units of the smallest f32 of the binade, of which 16 bits are lost everywhere
        pattern = int(np.float32(abs(value)).view(np.uint32))
        return sign | (pattern + (random >> 16)) // 65536
    if abs(value) < 2.0**-126:
        return sign
    return sign | min(stochastic(value, random, 5, 10, 15), 0x7C00)


def _wide_code(value: float, kind: str) -> int:
    with np.errstate(over="ignore", invalid="ignore"):
        if kind == "f16":
            return int(np.float64(value).astype(np.float16).view(np.uint16))
        single = np.array([value]).astype(np.float32)
    return int(bf16_bits(single)[0]) if kind == "bf16" else int(single.view(np.uint32)[0])


def convert(
    name: str,
    op_sel: int,
    sources: list[Rows],
    scale: NDArray[np.uint32],
    random: NDArray[np.uint32] | None,
    old: Rows,
    saturate: bool = False,
) -> Rows:
    """The destination of a ``v_cvt_scalef32_*`` after it ran on all lanes; ``old`` is what it held before."""
    match = _NAME.match(name)
    assert match, name
    group, to, source = (match[2] or "").rstrip("_"), match[3], match[4]
    n = {"": 1, "pk": 2, "pk32": 32, "2xpk16": 32}[group]
    down = to in SMALL
    if down:
        first = 0
    elif n == 2 and BITS[source] == 8:
        first = 16 * (op_sel & 1)
    else:
        first = 8 * (op_sel & 3) if n < 32 else 0
    size = n * BITS[to]
    position = 0
    if size == 8:
        position = 8 * (op_sel >> 2 & 3)
    elif size == 16:
        position = 16 * (op_sel >> (3 if len(sources) == 2 or random is not None else 2) & 1)
    out = old.copy()
    for lane in range(64):
        streams = [sum(int(v) << 32 * r for r, v in enumerate(rows[:, lane])) for rows in sources]
        per_stream = n // len(streams)
        codes = [
            stream >> first + BITS[source] * i & ((1 << BITS[source]) - 1)
            for i in range(per_stream)
            for stream in streams
        ]
        exponent = int(scale[lane]) >> 23 & 255
        result = 0
        for i, code in enumerate(codes):
            value = float(value_of(code, source, "gfx950"))
            if exponent == 255:
                value = math.nan
            elif math.isfinite(value):
                value = math.ldexp(value, (127 - exponent) if down else (exponent - 127))
            noise = None if random is None else int(random[lane])
            encoded = narrow(value, to, saturate, noise) if down else _wide_code(value, to)
            result |= encoded << BITS[to] * i
        held = sum(int(v) << 32 * r for r, v in enumerate(old[:, lane]))
        held = held & ~((1 << size) - 1 << position) | result << position
        out[:, lane] = [held >> 32 * r & 0xFFFFFFFF for r in range(len(old))]
    return out
