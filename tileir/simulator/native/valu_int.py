"""Vector integer ops, moves and bit manipulation. Semantics: CDNA3 ISA, "Vector ALU instructions"."""

from __future__ import annotations

from collections.abc import Callable

from ..decoder import Instruction
from .builder import LANES, Builder, Value, count
from .op import Context, Lower, Op
from .valu import Frame, Signature, lower_with, sig


def _no(b: Builder) -> Value:
    return b.const("i1", 0)


def _mul_hi(b: Builder, x: Value, y: Value, signed: bool) -> Value:
    p, q = (x.sext("i64"), y.sext("i64")) if signed else (x.zext("i64"), y.zext("i64"))
    return ((p * q) >> 32).trunc("i32")


def _low24(x: Value, signed: bool) -> Value:
    return (x << 8).ashr(8) if signed else x & 0xFFFFFF


def _mul24(signed: bool, high: bool) -> Callable[[Builder, Value, Value], Value]:
    def expression(b: Builder, x: Value, y: Value) -> Value:
        p, q = _low24(x, signed), _low24(y, signed)
        return _mul_hi(b, p, q, signed) if high else p * q

    return expression


def _bfe(b: Builder, x: Value, y: Value, z: Value, signed: bool) -> Value:
    """Offset y[4:0], width z[4:0]; a field that reaches past bit 31 ends there."""
    offset, width = y & 31, z & 31
    shifted = x.ashr(offset) if signed else x >> offset
    left = (b.const(x.ty, 32) - width) & 31
    cut = shifted << left
    narrow = cut.ashr(left) if signed else cut >> left
    return width.cmp("eq", 0).select(b.const(x.ty, 0), narrow)


def _find_high(b: Builder, x: Value) -> Value:
    n = b.intrinsic("ctlz", x, _no(b), ty=x.ty)
    return x.cmp("eq", 0).select(b.const(x.ty, -1), n)


def _find_low(b: Builder, x: Value) -> Value:
    n = b.intrinsic("cttz", x, _no(b), ty=x.ty)
    return x.cmp("eq", 0).select(b.const(x.ty, -1), n)


def _perm(b: Builder, x: Value, y: Value, selector: Value) -> Value:
    """Byte permutation of {x, y} (y holds bytes 0-3). Selector 8-11: sign of byte 1, 3 of y and of x; 12: zero;
    13 and up: 0xFF. [CDNA3 ISA, V_PERM_B32]"""
    pair = (x.zext("i64") << 32) | y.zext("i64")
    out: Value | None = None
    for i in range(4):
        s = (selector >> (8 * i)) & 0xFF
        byte = (pair >> ((s & 7).zext("i64") << 3)).trunc("i32") & 0xFF
        sign_at = ((s & 3) << 4) + 15  # bits 15, 31, 47, 63 of the pair
        sign = b.const(x.ty, 0) - ((pair >> sign_at.zext("i64")).trunc("i32") & 1)
        special = s.cmp("uge", 13).select(b.const(x.ty, 0xFF), s.cmp("eq", 12).select(b.const(x.ty, 0), sign & 0xFF))
        chosen = s.cmp("uge", 8).select(special, byte) << (8 * i)
        out = chosen if out is None else out | chosen
    assert out is not None
    return out


def _carry(b: Builder, total: Value) -> Value:
    return (total >> 32).cmp("ne", 0)


def _add_co(b: Builder, x: Value, y: Value, carry: Value | None = None) -> tuple[Value, Value]:
    total = x.zext("i64") + y.zext("i64")
    if carry is not None:
        total = total + carry.zext("i64")
    return total.trunc("i32"), _carry(b, total)


def _sub_co(b: Builder, x: Value, y: Value, borrow: Value | None = None) -> tuple[Value, Value]:
    total = x.zext("i64") - y.zext("i64")
    if borrow is not None:
        total = total - borrow.zext("i64")
    return total.trunc("i32"), _carry(b, total)


def _mad64(b: Builder, x: Value, y: Value, z: Value, signed: bool) -> tuple[Value, Value]:
    p, q = (x.sext("i64"), y.sext("i64")) if signed else (x.zext("i64"), y.zext("i64"))
    product = p * q
    out = product + z
    if signed:
        overflow = ((product ^ out) & (z ^ out)).cmp("slt", 0)
        return out, overflow
    return out, out.cmp("ult", product)


def _sad(width: int) -> Callable[[Builder, Value, Value, Value], Value]:
    def expression(b: Builder, x: Value, y: Value, z: Value) -> Value:
        total = z
        mask = (1 << width) - 1
        for shift in range(0, 32, width):
            p, q = (x >> shift) & mask, (y >> shift) & mask
            total = total + (b.intrinsic("umax", p, q) - b.intrinsic("umin", p, q))
        return total

    return expression


def _med(b: Builder, x: Value, y: Value, z: Value, sign: str) -> Value:
    low, high = b.intrinsic(f"{sign}min", x, y), b.intrinsic(f"{sign}max", x, y)
    return b.intrinsic(f"{sign}max", low, b.intrinsic(f"{sign}min", high, z))


def _dot(parts: int, signed: bool) -> Callable[[Builder, Value, Value, Value], Value]:
    width = 32 // parts

    def expression(b: Builder, x: Value, y: Value, z: Value) -> Value:
        total = z
        for i in range(parts):
            left = 32 - width - width * i
            p, q = ((v << left).ashr(32 - width) if signed else (v << left) >> (32 - width) for v in (x, y))
            total = total + p * q
        return total

    return expression


def _bit_mask(b: Builder, x: Value, y: Value) -> Value:
    one = b.const(x.ty, 1)
    return ((one << (x & 31)) - 1) << (y & 31)


def _shl64(b: Builder, x: Value, y: Value) -> Value:
    return y << (x.zext("i64") & 63)


def _lshl_add_64(b: Builder, x: Value, y: Value, z: Value) -> Value:
    return (x << (y.zext("i64") & 7)) + z


def _align_byte(b: Builder, x: Value, y: Value, z: Value) -> Value:
    return b.intrinsic("fshr", x, y, (z & 3) << 3)


def _mbcnt(high: bool) -> Callable[[Builder, Value, Value, Value], Value]:
    """Bits of x below the lane's own position, added to y. [CDNA3 ISA, V_MBCNT]"""

    def expression(b: Builder, x: Value, y: Value, lane: Value) -> Value:
        position = lane - 32 if high else lane
        below = (b.const(lane.ty, 1) << (position & 31)) - 1
        inside = (below & x, b.const(lane.ty, 0)) if high else (below & x, x)
        half = lane.cmp("uge", 32)
        part = half.select(inside[0], inside[1]) if high else half.select(inside[1], inside[0])
        return b.intrinsic("ctpop", part) + y

    return expression


def _saturating(name: str) -> Callable[[Builder, Value, Value], Value]:
    return lambda b, x, y: b.intrinsic(name, x, y)


def _limited(expression: Callable[..., Value], kind: str) -> Callable[..., Value]:
    """An exact sum as i64, as ``expression`` gives it, clamped to a type such as ``u16`` or ``i32``."""
    bits_ = int(kind[1:])
    low, high = (0, (1 << bits_) - 1) if kind[0] == "u" else (-(1 << bits_ - 1), (1 << bits_ - 1) - 1)

    def saturate(b: Builder, *sources: Value) -> Value:
        exact = expression(b, *sources)
        inside = b.intrinsic("smin", b.intrinsic("smax", exact, b.const(exact.ty, low)), b.const(exact.ty, high))
        return inside.trunc(f"i{bits_}")

    return saturate


def _wide(signed: bool) -> Callable[[Value], Value]:
    return (lambda v: v.sext("i64")) if signed else (lambda v: v.zext("i64"))


def _wide_mad(kind: str, *, low24: bool = False) -> Callable[..., Value]:
    """x y + z, clamped."""
    extend = _wide(kind[0] == "i")

    def expression(b: Builder, x: Value, y: Value, z: Value) -> Value:
        if low24:
            x, y = _low24(x, kind[0] == "i"), _low24(y, kind[0] == "i")
        return extend(x) * extend(y) + extend(z)

    return _limited(expression, kind)


def _wide_dot(parts: int, signed: bool) -> Callable[..., Value]:
    width, extend = 32 // parts, _wide(signed)

    def expression(b: Builder, x: Value, y: Value, z: Value) -> Value:
        total = extend(z)
        for i in range(parts):
            p, q = (extend((v >> width * i if i else v).trunc(f"i{width}")) for v in (x, y))
            total = total + p * q
        return total

    return _limited(expression, "i32" if signed else "u32")


def _wide_sad(width: int) -> Callable[..., Value]:
    zero = _sad(width)
    return _limited(lambda b, x, y, z: zero(b, x, y, b.const(z.ty, 0)).zext("i64") + z.zext("i64"), "u32")


def _cndmask(b: Builder, x: Value, y: Value, mask: Value) -> Value:
    return mask.select(y, x)


SIGNATURES: dict[str, Signature] = {
    "v_mov_b32": sig("i32 = i32", lambda b, x: x),
    "v_mov_b64": sig("i64 = i64", lambda b, x: x),
    "v_accvgpr_mov_b32": sig("i32 = i32", lambda b, x: x),
    "v_accvgpr_read_b32": sig("i32 = i32", lambda b, x: x),
    "v_accvgpr_write_b32": sig("i32 = i32", lambda b, x: x),
    "v_not_b32": sig("i32 = i32", lambda b, x: ~x),
    "v_bfrev_b32": sig("i32 = i32", lambda b, x: b.intrinsic("bitreverse", x)),
    "v_ffbh_u32": sig("i32 = i32", _find_high),
    "v_ffbl_b32": sig("i32 = i32", _find_low),
    "v_ffbh_i32": sig("i32 = i32", lambda b, x: _find_high(b, x ^ x.ashr(31))),
    "v_and_b32": sig("i32 = i32 i32", lambda b, x, y: x & y),
    "v_or_b32": sig("i32 = i32 i32", lambda b, x, y: x | y),
    "v_xor_b32": sig("i32 = i32 i32", lambda b, x, y: x ^ y),
    "v_xnor_b32": sig("i32 = i32 i32", lambda b, x, y: ~(x ^ y)),
    "v_lshlrev_b32": sig("i32 = i32 i32", lambda b, x, y: y << (x & 31)),
    "v_lshrrev_b32": sig("i32 = i32 i32", lambda b, x, y: y >> (x & 31)),
    "v_ashrrev_i32": sig("i32 = i32 i32", lambda b, x, y: y.ashr(x & 31)),
    "v_lshlrev_b64": sig("i64 = i32 i64", _shl64),
    "v_lshrrev_b64": sig("i64 = i32 i64", lambda b, x, y: y >> (x.zext("i64") & 63)),
    "v_ashrrev_i64": sig("i64 = i32 i64", lambda b, x, y: y.ashr(x.zext("i64") & 63)),
    "v_lshl_add_u64": sig("i64 = i64 i32 i64", _lshl_add_64),
    "v_add_u32": sig("i32 = i32 i32", lambda b, x, y: x + y, saturate=_saturating("uadd.sat")),
    "v_sub_u32": sig("i32 = i32 i32", lambda b, x, y: x - y, saturate=_saturating("usub.sat")),
    "v_subrev_u32": sig("i32 = i32 i32", lambda b, x, y: y - x, saturate=lambda b, x, y: b.intrinsic("usub.sat", y, x)),
    "v_add_i32": sig("i32 = i32 i32", lambda b, x, y: x + y, saturate=_saturating("sadd.sat")),
    "v_sub_i32": sig("i32 = i32 i32", lambda b, x, y: x - y, saturate=_saturating("ssub.sat")),
    "v_add_co_u32": sig("i32 m = i32 i32", _add_co),
    "v_sub_co_u32": sig("i32 m = i32 i32", _sub_co),
    "v_subrev_co_u32": sig("i32 m = i32 i32", lambda b, x, y: _sub_co(b, y, x)),
    "v_addc_co_u32": sig("i32 m = i32 i32 m", _add_co),
    "v_subb_co_u32": sig("i32 m = i32 i32 m", _sub_co),
    "v_subbrev_co_u32": sig("i32 m = i32 i32 m", lambda b, x, y, c: _sub_co(b, y, x, c)),
    "v_mul_lo_u32": sig("i32 = i32 i32", lambda b, x, y: x * y),
    "v_mul_hi_u32": sig("i32 = i32 i32", lambda b, x, y: _mul_hi(b, x, y, False)),
    "v_mul_hi_i32": sig("i32 = i32 i32", lambda b, x, y: _mul_hi(b, x, y, True)),
    "v_mul_i32_i24": sig("i32 = i32 i32", _mul24(True, False)),
    "v_mul_u32_u24": sig("i32 = i32 i32", _mul24(False, False)),
    "v_mul_hi_i32_i24": sig("i32 = i32 i32", _mul24(True, True)),
    "v_mul_hi_u32_u24": sig("i32 = i32 i32", _mul24(False, True)),
    "v_mad_i32_i24": sig(
        "i32 = i32 i32 i32", lambda b, x, y, z: _mul24(True, False)(b, x, y) + z, saturate=_wide_mad("i32", low24=True)
    ),
    "v_mad_u32_u24": sig(
        "i32 = i32 i32 i32", lambda b, x, y, z: _mul24(False, False)(b, x, y) + z, saturate=_wide_mad("u32", low24=True)
    ),
    "v_mad_u64_u32": sig("i64 m = i32 i32 i64", lambda b, x, y, z: _mad64(b, x, y, z, False)),
    "v_mad_i64_i32": sig("i64 m = i32 i32 i64", lambda b, x, y, z: _mad64(b, x, y, z, True)),
    "v_mad_u32_u16": sig(
        "i32 = i16 i16 i32", lambda b, x, y, z: x.zext("i32") * y.zext("i32") + z, saturate=_wide_mad("u32")
    ),
    "v_mad_i32_i16": sig(
        "i32 = i16 i16 i32", lambda b, x, y, z: x.sext("i32") * y.sext("i32") + z, saturate=_wide_mad("i32")
    ),
    "v_min_i32": sig("i32 = i32 i32", lambda b, x, y: b.intrinsic("smin", x, y)),
    "v_max_i32": sig("i32 = i32 i32", lambda b, x, y: b.intrinsic("smax", x, y)),
    "v_min_u32": sig("i32 = i32 i32", lambda b, x, y: b.intrinsic("umin", x, y)),
    "v_max_u32": sig("i32 = i32 i32", lambda b, x, y: b.intrinsic("umax", x, y)),
    "v_min3_i32": sig("i32 = i32 i32 i32", lambda b, x, y, z: b.intrinsic("smin", b.intrinsic("smin", x, y), z)),
    "v_max3_i32": sig("i32 = i32 i32 i32", lambda b, x, y, z: b.intrinsic("smax", b.intrinsic("smax", x, y), z)),
    "v_min3_u32": sig("i32 = i32 i32 i32", lambda b, x, y, z: b.intrinsic("umin", b.intrinsic("umin", x, y), z)),
    "v_max3_u32": sig("i32 = i32 i32 i32", lambda b, x, y, z: b.intrinsic("umax", b.intrinsic("umax", x, y), z)),
    "v_med3_i32": sig("i32 = i32 i32 i32", lambda b, x, y, z: _med(b, x, y, z, "s")),
    "v_med3_u32": sig("i32 = i32 i32 i32", lambda b, x, y, z: _med(b, x, y, z, "u")),
    "v_bfe_u32": sig("i32 = i32 i32 i32", lambda b, x, y, z: _bfe(b, x, y, z, False)),
    "v_bfe_i32": sig("i32 = i32 i32 i32", lambda b, x, y, z: _bfe(b, x, y, z, True)),
    "v_bfi_b32": sig("i32 = i32 i32 i32", lambda b, x, y, z: (x & y) | (~x & z)),
    "v_bfm_b32": sig("i32 = i32 i32", _bit_mask),
    "v_bcnt_u32_b32": sig("i32 = i32 i32", lambda b, x, y: b.intrinsic("ctpop", x) + y),
    "v_alignbit_b32": sig("i32 = i32 i32 i32", lambda b, x, y, z: b.intrinsic("fshr", x, y, z & 31)),
    "v_alignbyte_b32": sig("i32 = i32 i32 i32", _align_byte),
    "v_perm_b32": sig("i32 = i32 i32 i32", _perm),
    "v_lshl_add_u32": sig("i32 = i32 i32 i32", lambda b, x, y, z: (x << (y & 31)) + z),
    "v_add_lshl_u32": sig("i32 = i32 i32 i32", lambda b, x, y, z: (x + y) << (z & 31)),
    "v_add3_u32": sig("i32 = i32 i32 i32", lambda b, x, y, z: x + y + z),
    "v_lshl_or_b32": sig("i32 = i32 i32 i32", lambda b, x, y, z: (x << (y & 31)) | z),
    "v_and_or_b32": sig("i32 = i32 i32 i32", lambda b, x, y, z: (x & y) | z),
    "v_or3_b32": sig("i32 = i32 i32 i32", lambda b, x, y, z: x | y | z),
    "v_xad_u32": sig("i32 = i32 i32 i32", lambda b, x, y, z: (x ^ y) + z),
    "v_sad_u8": sig("i32 = i32 i32 i32", _sad(8), saturate=_wide_sad(8)),
    "v_sad_u16": sig("i32 = i32 i32 i32", _sad(16), saturate=_wide_sad(16)),
    "v_sad_u32": sig("i32 = i32 i32 i32", _sad(32)),
    "v_mbcnt_lo_u32_b32": sig("i32 = i32 i32", _mbcnt(False), lane=True),
    "v_mbcnt_hi_u32_b32": sig("i32 = i32 i32", _mbcnt(True), lane=True),
    "v_cndmask_b32": sig("i32 = i32 i32 m", _cndmask),
    "v_dot4_i32_i8": sig("i32 = i32 i32 i32", _dot(4, True), plain=True, saturate=_wide_dot(4, True)),
    "v_dot4_u32_u8": sig("i32 = i32 i32 i32", _dot(4, False), plain=True, saturate=_wide_dot(4, False)),
    "v_dot8_i32_i4": sig("i32 = i32 i32 i32", _dot(8, True), plain=True, saturate=_wide_dot(8, True)),
    "v_dot8_u32_u4": sig("i32 = i32 i32 i32", _dot(8, False), plain=True, saturate=_wide_dot(8, False)),
    "v_dot2_i32_i16": sig("i32 = i32 i32 i32", _dot(2, True), plain=True, saturate=_wide_dot(2, True)),
    "v_dot2_u32_u16": sig("i32 = i32 i32 i32", _dot(2, False), plain=True, saturate=_wide_dot(2, False)),
    "v_dot4c_i32_i8": sig("i32 = i32 i32", _dot(4, True), accumulate=True, saturate=_wide_dot(4, True)),
    "v_dot8c_i32_i4": sig("i32 = i32 i32", _dot(8, True), accumulate=True, saturate=_wide_dot(8, True)),
    "v_dot2c_i32_i16": sig("i32 = i32 i32", _dot(2, True), accumulate=True, saturate=_wide_dot(2, True)),
    # 16 bit
    "v_add_u16": sig("i16 = i16 i16", lambda b, x, y: x + y, saturate=_saturating("uadd.sat")),
    "v_sub_u16": sig("i16 = i16 i16", lambda b, x, y: x - y, saturate=_saturating("usub.sat")),
    "v_subrev_u16": sig("i16 = i16 i16", lambda b, x, y: y - x, saturate=lambda b, x, y: b.intrinsic("usub.sat", y, x)),
    "v_add_i16": sig("i16 = i16 i16", lambda b, x, y: x + y, saturate=_saturating("sadd.sat")),
    "v_sub_i16": sig("i16 = i16 i16", lambda b, x, y: x - y, saturate=_saturating("ssub.sat")),
    "v_mul_lo_u16": sig("i16 = i16 i16", lambda b, x, y: x * y),
    "v_mad_u16": sig("i16 = i16 i16 i16", lambda b, x, y, z: x * y + z, preserve=True, saturate=_wide_mad("u16")),
    "v_mad_i16": sig("i16 = i16 i16 i16", lambda b, x, y, z: x * y + z, preserve=True, saturate=_wide_mad("i16")),
    "v_mad_legacy_u16": sig("i16 = i16 i16 i16", lambda b, x, y, z: x * y + z, saturate=_wide_mad("u16")),
    "v_mad_legacy_i16": sig("i16 = i16 i16 i16", lambda b, x, y, z: x * y + z, saturate=_wide_mad("i16")),
    "v_lshlrev_b16": sig("i16 = i16 i16", lambda b, x, y: y << (x & 15)),
    "v_lshrrev_b16": sig("i16 = i16 i16", lambda b, x, y: y >> (x & 15)),
    "v_ashrrev_i16": sig("i16 = i16 i16", lambda b, x, y: y.ashr(x & 15)),
    "v_min_i16": sig("i16 = i16 i16", lambda b, x, y: b.intrinsic("smin", x, y)),
    "v_max_i16": sig("i16 = i16 i16", lambda b, x, y: b.intrinsic("smax", x, y)),
    "v_min_u16": sig("i16 = i16 i16", lambda b, x, y: b.intrinsic("umin", x, y)),
    "v_max_u16": sig("i16 = i16 i16", lambda b, x, y: b.intrinsic("umax", x, y)),
    "v_min3_i16": sig("i16 = i16 i16 i16", lambda b, x, y, z: b.intrinsic("smin", b.intrinsic("smin", x, y), z)),
    "v_max3_i16": sig("i16 = i16 i16 i16", lambda b, x, y, z: b.intrinsic("smax", b.intrinsic("smax", x, y), z)),
    "v_min3_u16": sig("i16 = i16 i16 i16", lambda b, x, y, z: b.intrinsic("umin", b.intrinsic("umin", x, y), z)),
    "v_max3_u16": sig("i16 = i16 i16 i16", lambda b, x, y, z: b.intrinsic("umax", b.intrinsic("umax", x, y), z)),
    "v_med3_i16": sig("i16 = i16 i16 i16", lambda b, x, y, z: _med(b, x, y, z, "s")),
    "v_med3_u16": sig("i16 = i16 i16 i16", lambda b, x, y, z: _med(b, x, y, z, "u")),
    "v_pack_b32_f16": sig("i32 = i16 i16", lambda b, x, y: x.zext("i32") | (y.zext("i32") << 16)),
    "v_prng_b32": sig("i32 = i32", lambda b, x: (x << 1) ^ (x.ashr(31) & 197)),
    "v_ashr_pk_i8_i32": sig("i16 = i32 i32 i32", lambda b, x, y, z: _shift_pack(b, x, y, z, -128, 127), preserve=True),
    "v_ashr_pk_u8_i32": sig("i16 = i32 i32 i32", lambda b, x, y, z: _shift_pack(b, x, y, z, 0, 255), preserve=True),
    "v_sat_pk_u8_i16": sig("i16 = i32", lambda b, x: _sat_pack(b, x)),
}


def _shift_pack(b: Builder, x: Value, y: Value, z: Value, low: int, high: int) -> Value:
    """Shifts right arithmetically, saturates to a byte; two results side by side. [CDNA4 ISA, V_ASHR_PK_I8_I32]"""
    parts = [
        b.intrinsic("smin", b.intrinsic("smax", v.ashr(z & 31), b.const(v.ty, low)), b.const(v.ty, high)) & 0xFF
        for v in (x, y)
    ]
    return (parts[0] | (parts[1] << 8)).trunc("i16")


def _sat_pack(b: Builder, x: Value) -> Value:
    def saturate(v: Value) -> Value:
        return b.intrinsic("smin", b.intrinsic("smax", v, b.const(v.ty, 0)), b.const(v.ty, 255))

    low, high = saturate((x << 16).ashr(16)), saturate(x.ashr(16))
    return (low | (high << 8)).trunc("i16")


def bitop3(b: Builder, table: int, x: Value, y: Value, z: Value) -> Value:
    """Any function of three bits; bit ``x << 2 | y << 1 | z`` of the table is the result. [CDNA4 ISA, V_BITOP3_B32]"""
    out = b.const(x.ty, 0)
    for i in range(8):
        if table >> i & 1:
            term = (x if i & 4 else ~x) & (y if i & 2 else ~y) & (z if i & 1 else ~z)
            out = out | term
    return out


OPS: dict[str, Lower] = {name: lower_with(signature) for name, signature in SIGNATURES.items()}


def _lower_bitop3(width: int) -> Lower:
    def lower(inst: Instruction, context: Context) -> Op:
        table = inst.modifiers.get("bitop3", 0)
        ty = f"i{width}"
        frame = Frame(inst, context, sig(f"{ty} = {ty} {ty} {ty}", lambda b, x, y, z: bitop3(b, table, x, y, z)))
        op = frame.op()
        return Op(f"{op.key}|{table}", op.make, op.slots, op.checks)

    return lower


OPS["v_bitop3_b32"] = _lower_bitop3(32)
OPS["v_bitop3_b16"] = _lower_bitop3(16)

_INTEGER = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}


def _constant_mask(value: int) -> Callable[[Builder, Value, Value], Value]:
    return lambda b, x, y: b.const(f"<{count(x.ty) or LANES} x i1>", value)


def _compare(predicate: str) -> Callable[[Builder, Value, Value], Value]:
    return lambda b, x, y: x.cmp(predicate, y)


COMPARES: dict[str, Signature] = {}
for _width in ("16", "32", "64"):
    for _sign in "iu":
        for _name, _base in _INTEGER.items():
            _predicate = _base if _base in ("eq", "ne") else ("s" if _sign == "i" else "u") + _base
            COMPARES[f"{_name}_{_sign}{_width}"] = sig(f"m = i{_width} i{_width}", _compare(_predicate))
        for _name, _value in (("f", 0), ("t", 1)):
            COMPARES[f"{_name}_{_sign}{_width}"] = sig(f"m = i{_width} i{_width}", _constant_mask(_value))
