"""Operations on packed bytes from video coding. [CDNA3 ISA, VOP3A opcodes]"""

from __future__ import annotations

from .builder import Builder, Value
from .op import Lower
from .valu import Signature, lower_with, sig


def _bytes(x: Value, n: int = 4) -> list[Value]:
    return [(x >> 8 * i if i else x) & 255 for i in range(n)]


def _distance(b: Builder, x: Value, y: Value) -> Value:
    """|x - y| of small unsigned numbers."""
    return b.intrinsic("umax", x, y) - b.intrinsic("umin", x, y)


def _lerp(b: Builder, x: Value, y: Value, z: Value) -> Value:
    """Average of bytes; bit 0 of a byte of z rounds up."""
    out: Value | None = None
    for i, (p, q, r) in enumerate(zip(_bytes(x), _bytes(y), _bytes(z), strict=True)):
        part = ((p + q + (r & 1)) >> 1) << 8 * i
        out = part if out is None else out | part
    assert out is not None
    return out


def _sum(b: Builder, x: Value, reference: Value, masked: bool) -> Value:
    """Sum of absolute differences of four bytes; ``masked``: only where the reference byte is not zero."""
    total: Value | None = None
    for p, q in zip(_bytes(x), _bytes(reference), strict=True):
        part = _distance(b, p, q)
        if masked:
            part = q.cmp("ne", 0).select(part, 0)
        total = part if total is None else total + part
    assert total is not None
    return total


def _four_sums(masked: bool) -> Signature:
    """Sums at byte offsets 0 to 3 of a 64-bit source, added to the 16-bit parts of an accumulator."""

    def expression(b: Builder, x: Value, y: Value, z: Value) -> Value:
        out: Value | None = None
        for i in range(4):
            window = (x >> 8 * i if i else x).trunc("i32")
            part = (_sum(b, window, y, masked) + (z >> 16 * i if i else z).trunc("i32")) & 0xFFFF
            wide = part.zext("i64") << 16 * i
            out = wide if out is None else out | wide
        assert out is not None
        return out

    return sig("i64 = i64 i32 i64", expression)


SIGNATURES: dict[str, Signature] = {
    "v_lerp_u8": sig("i32 = i32 i32 i32", _lerp),
    "v_sad_hi_u8": sig("i32 = i32 i32 i32", lambda b, x, y, z: (_sum(b, x, y, False) << 16) + z),
    "v_msad_u8": sig("i32 = i32 i32 i32", lambda b, x, y, z: _sum(b, x, y, True) + z),
    "v_qsad_pk_u16_u8": _four_sums(False),
    "v_mqsad_pk_u16_u8": _four_sums(True),
}
OPS: dict[str, Lower] = {name: lower_with(signature) for name, signature in SIGNATURES.items()}
