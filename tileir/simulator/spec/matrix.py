"""Matrix instructions: lane maps in closed form and the product. [CDNA3 / CDNA4 ISA, "Matrix instructions"]

Independent of the native builders: registers are taken apart into matrices of float64 (or Python-int) numbers here, by
maps written per instruction shape, and the result is put together again.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

_NAME = re.compile(r"v_mfma_(?:scale_)?(f32|f64|i32)_(\d+)x\2x(\d+)(?:_(\d+)b)?_(\w+?)$")
BITS = {
    "f16": 16,
    "bf16": 16,
    "f32": 32,
    "xf32": 32,
    "f64": 64,
    "i8": 8,
    "fp8": 8,
    "bf8": 8,
    "fp6": 6,
    "bf6": 6,
    "fp4": 4,
}
SMALL = {  # exponent bits, mantissa bits, bias, kind of NaN
    "fp8": (4, 3, 7, "fn"),
    "bf8": (5, 2, 15, "ieee"),
    "fp8fnuz": (4, 3, 8, "fnuz"),
    "bf8fnuz": (5, 2, 16, "fnuz"),
    "fp6": (2, 3, 1, ""),
    "bf6": (3, 2, 3, ""),
    "fp4": (2, 1, 1, ""),
}


def parse(name: str) -> tuple[str, int, int, int, list[str]]:
    """Result type, M = N, K, blocks, formats of A and B."""
    match = _NAME.match(name)
    assert match, name
    result, m, k, blocks, kinds = match.groups()
    parts = kinds.split("_")
    return result, int(m), int(k), int(blocks or 1), parts * 2 if len(parts) == 1 else parts


def decode_small(code: int, kind: str) -> float:
    """Value of an 8-, 6- or 4-bit float code, by the definition of the format."""
    e_bits, m_bits, bias, nan = SMALL[kind]
    sign = -1.0 if code >> (e_bits + m_bits) & 1 else 1.0
    magnitude = code & ((1 << (e_bits + m_bits)) - 1)
    e, m = magnitude >> m_bits, magnitude & ((1 << m_bits) - 1)
    top = (1 << e_bits) - 1
    if nan == "fnuz" and sign < 0 and magnitude == 0:
        return float("nan")
    if nan == "fn" and magnitude == (top << m_bits | (1 << m_bits) - 1):
        return float("nan")
    if nan == "ieee" and e == top:
        return sign * float("inf") if m == 0 else float("nan")
    if e == 0:
        return sign * m * 2.0 ** (1 - bias - m_bits)
    return sign * (1 + m / (1 << m_bits)) * 2.0 ** (e - bias)


def encode_small(value: float, kind: str, saturate: bool = True) -> int:
    """Nearest code, ties to even. What rounds beyond the largest finite number becomes that number (``saturate``), or
    infinity, or NaN in formats without infinity."""
    e_bits, m_bits, _bias, nan = SMALL[kind]
    sign_bit = 1 << (e_bits + m_bits)
    sign = sign_bit if np.signbit(value) else 0
    nan_code = sign_bit if nan == "fnuz" else sign | (sign_bit - 1)
    if np.isnan(value):
        return nan_code
    finite = [c for c in range(sign_bit) if np.isfinite(decode_small(c, kind))]
    magnitude = abs(float(value))
    # The next number of the same spacing decides which values are too large.
    spacing = decode_small(finite[-1], kind) - decode_small(finite[-2], kind)
    middle = decode_small(finite[-1], kind) + spacing / 2
    if magnitude > middle or (magnitude == middle and finite[-1] & 1):
        if saturate:
            return sign | finite[-1]
        return sign | ((1 << e_bits) - 1) << m_bits if nan == "ieee" else nan_code
    best = min(finite, key=lambda c: (abs(decode_small(c, kind) - magnitude), c & 1))
    return best if best == 0 and nan == "fnuz" else best | sign


def elements(registers: NDArray[np.uint32], bits: int) -> list[list[int]]:
    """Codes of each lane: ``registers`` is [register][lane]."""
    out: list[list[int]] = []
    for lane in range(registers.shape[1]):
        word = sum(int(v) << 32 * i for i, v in enumerate(registers[:, lane]))
        out.append([word >> bits * e & ((1 << bits) - 1) for e in range(32 * registers.shape[0] // bits)])
    return out


def value_of(code: int, kind: str, chip: str) -> float | int:
    """A code as a number."""
    if kind in ("fp8", "bf8") and chip == "gfx942":
        kind += "fnuz"
    if kind in SMALL:
        return decode_small(code, kind)
    if kind == "i8":
        return code - 256 if code & 128 else code
    if kind == "bf16":
        return float(np.array(code << 16, np.uint32).view(np.float32))
    if kind == "xf32":
        return float(np.array(code & ~0x1FFF, np.uint32).view(np.float32))
    dtype = {16: (np.uint16, np.float16), 32: (np.uint32, np.float32), 64: (np.uint64, np.float64)}[BITS[kind]]
    return float(np.array(code, dtype[0]).view(dtype[1]))


def operand_index(m: int, k: int, blocks: int, kind: str, mixed: bool, lane: int, element: int) -> tuple[int, int, int]:
    """(block, row, k) of an element of A; B is the same with columns for rows."""
    if blocks > 1 and kind == "f64":
        return lane // 4 % 4, lane % 4, lane // 16
    if blocks > 1:
        return lane // m, lane % m, element
    group = lane // m
    if mixed and BITS[kind] == 8:
        return 0, lane % m, 16 * group + k // 2 * (element // 16) + element % 16
    if mixed:
        return 0, lane % m, 32 * group + element
    return 0, lane % m, k * m // 64 * group + element


def result_index(result: str, m: int, blocks: int, lane: int, element: int) -> tuple[int, int, int]:
    """(block, row, column) of an element of D."""
    if result == "f64":
        return (lane // 4 % 4, lane // 16, lane % 4) if m == 4 else (0, lane // 16 + 4 * element, lane % 16)
    if m == 4:
        return lane // 4, element, lane % 4
    per_block = m * m // 64
    block, e = divmod(element, per_block)
    if m == 32:
        return block, 8 * (e // 4) + 4 * (lane // 32) + e % 4, lane % 32
    return block, 4 * (lane // 16) + e, lane % 16


def multiply(
    name: str,
    chip: str,
    a: NDArray[np.uint32],
    b: NDArray[np.uint32],
    c: NDArray[np.uint32],
    formats: tuple[str, str] | None = None,
    scales: tuple[NDArray[np.uint32], NDArray[np.uint32]] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """D as [element][lane] of float64, and the sum of the magnitudes of all terms (for error bounds).

    a, b, c: registers, [register][lane]. formats: of A and B for f8f6f4. scales: byte exponents per lane.
    """
    result, m, k, blocks, kinds = parse(name)
    mixed = kinds[0] == "f8f6f4"
    kind_a, kind_b = formats if formats else (kinds[0], kinds[1])
    operands: list[NDArray[np.float64]] = []
    for registers, kind, scale in ((a, kind_a, 0), (b, kind_b, 1)):
        matrix = np.zeros((blocks, m, k))
        for lane, codes in enumerate(elements(registers, BITS[kind])):
            for e, code in enumerate(codes):
                block, row, at = operand_index(m, k, blocks, kind, mixed, lane, e)
                value = value_of(code, kind, chip)
                if scales is not None:
                    exponent = int(scales[scale][m * (at // 32) + row])
                    value = float("nan") if exponent == 255 else value * 2.0 ** (exponent - 127)
                matrix[block, row, at] = value
        operands.append(matrix)
    product = np.einsum("brk,bck->brc", operands[0], operands[1])
    size = np.einsum("brk,bck->brc", np.abs(operands[0]), np.abs(operands[1]))
    n = m * m * blocks // 64
    out, bound = np.zeros((n, 64)), np.zeros((n, 64))
    view = np.float64 if result == "f64" else np.float32 if result == "f32" else np.int32
    for lane in range(64):
        for e in range(n):
            where = result_index(result, m, blocks, lane, e)
            if result == "f64":
                old = float(np.array([c[2 * e, lane], c[2 * e + 1, lane]], np.uint32).view(view)[0])
            else:
                old = float(np.array([c[e, lane]], np.uint32).view(view)[0])
            out[e, lane] = product[where] + old
            bound[e, lane] = size[where] + abs(old)
    return out, bound
