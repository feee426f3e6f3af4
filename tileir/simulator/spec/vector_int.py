"""Vector integer ops and bit manipulation. [CDNA3 ISA, "Vector ALU instructions"]"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .core import DTYPES, Array, vector

U32, U64, I64 = np.uint32, np.uint64, np.int64


def _low24(x: Array) -> Array:
    """Signed 24 bits."""
    return (x.astype(np.int32) << 8) >> 8


def bfe(x: Array, offset: Array, width: Array, signed: bool) -> Array:
    """Bit field extract, bit by bit."""
    out: list[int] = []
    for v, o, w in zip(x.tolist(), offset.tolist(), width.tolist(), strict=True):
        o, w = o & 31, w & 31
        available = min(w, 32 - o)
        field = (v & 0xFFFFFFFF) >> o & ((1 << available) - 1)
        if signed and available and field >> (available - 1) & 1:
            field -= 1 << available
        out.append(field & 0xFFFFFFFF if w else 0)
    return np.array(out, dtype=U32)


def perm(x: Array, y: Array, selector: Array) -> Array:
    """v_perm_b32: see the table of selectors in the ISA."""
    out: list[int] = []
    for v, w, s in zip(x.tolist(), y.tolist(), selector.tolist(), strict=True):
        data = (w.to_bytes(4, "little")) + v.to_bytes(4, "little")
        result = []
        for code in s.to_bytes(4, "little"):
            if code >= 13:
                result.append(0xFF)
            elif code == 12:
                result.append(0)
            elif code >= 8:
                result.append(0xFF if data[(code - 8) * 2 + 1] & 0x80 else 0)
            else:
                result.append(data[code])
        out.append(int.from_bytes(bytes(result), "little"))
    return np.array(out, dtype=U32)


def _count_leading(x: Array, width: int = 32) -> Array:
    return np.array([width - int(v).bit_length() if v else -1 for v in x.tolist()], dtype=np.int32).view(U32)


def _count_trailing(x: Array) -> Array:
    return np.array([(int(v) & -int(v)).bit_length() - 1 for v in x.tolist()], dtype=np.int32).view(U32)


def _reverse(x: Array) -> Array:
    return np.array([int(f"{v:032b}"[::-1], 2) for v in x.tolist()], dtype=U32)


def _bits(x: Array) -> Array:
    return np.array([int(v).bit_count() for v in x.tolist()], dtype=U32)


def _saturating(x: Array, y: Array, operation: Callable[[Array, Array], Array]) -> Array:
    limits = np.iinfo(x.dtype)
    return np.clip(operation(x.astype(I64), y.astype(I64)), limits.min, limits.max).astype(x.dtype)


SATURATING = {
    "v_add_u32": lambda x, y: _saturating(x, y, np.add),
    "v_sub_u32": lambda x, y: _saturating(x, y, np.subtract),
    "v_subrev_u32": lambda x, y: _saturating(y, x, np.subtract),
    "v_add_i32": lambda x, y: _saturating(x, y, np.add),
    "v_sub_i32": lambda x, y: _saturating(x, y, np.subtract),
    "v_add_u16": lambda x, y: _saturating(x, y, np.add),
    "v_sub_u16": lambda x, y: _saturating(x, y, np.subtract),
    "v_add_i16": lambda x, y: _saturating(x, y, np.add),
    "v_sub_i16": lambda x, y: _saturating(x, y, np.subtract),
}
"""Results with the clamp bit."""


def _add_carry(x: Array, y: Array, carry: Array | int = 0) -> tuple[Array, Array]:
    total = x.astype(U64) + y.astype(U64) + np.asarray(carry).astype(U64)
    return total.astype(U32), total > 0xFFFFFFFF


def _sub_borrow(x: Array, y: Array, borrow: Array | int = 0) -> tuple[Array, Array]:
    total = x.astype(I64) - y.astype(I64) - np.asarray(borrow).astype(I64)
    return (total & 0xFFFFFFFF).astype(U32), total < 0


def _mad_wide(x: Array, y: Array, z: Array, signed: bool) -> tuple[Array, Array]:
    values, carries = [], []
    low, high = (-(1 << 63), (1 << 63) - 1) if signed else (0, (1 << 64) - 1)
    for p, q, r in zip(x.tolist(), y.tolist(), z.tolist(), strict=True):
        total = p * q + r
        values.append(total & ((1 << 64) - 1))
        carries.append(not low <= total <= high)
    return np.array(values, dtype=U64).view(z.dtype), np.array(carries)


def _sad(x: Array, y: Array, z: Array, width: int) -> Array:
    out: list[int] = []
    for p, q, r in zip(x.tolist(), y.tolist(), z.tolist(), strict=True):
        mask = (1 << width) - 1
        total = r + sum(abs((p >> s & mask) - (q >> s & mask)) for s in range(0, 32, width))
        out.append(total & 0xFFFFFFFF)
    return np.array(out, dtype=U32)


def _dot(x: Array, y: Array, z: Array, width: int, signed: bool) -> Array:
    out: list[int] = []

    def part(v: int, s: int) -> int:
        field = v >> s & ((1 << width) - 1)
        return field - (1 << width) if signed and field >> (width - 1) else field

    for p, q, r in zip(x.tolist(), y.tolist(), z.tolist(), strict=True):
        out.append((r + sum(part(p, s) * part(q, s) for s in range(0, 32, width))) & 0xFFFFFFFF)
    return np.array(out, dtype=U32)


def _median(x: Array, y: Array, z: Array) -> Array:
    return np.sort(np.stack([x, y, z]), axis=0)[1]


def _bfm(x: Array, y: Array) -> Array:
    return np.array(
        [(((1 << (p & 31)) - 1) << (q & 31)) & 0xFFFFFFFF for p, q in zip(x.tolist(), y.tolist(), strict=True)],
        dtype=U32,
    )


def _align(x: Array, y: Array, shift: Array) -> Array:
    pair = x.astype(U64) << U64(32) | y.astype(U64)
    return (pair >> shift.astype(U64)).astype(U32)


def _shift(x: Array, y: Array, bits: int, operation: Callable[[Array, Array], Array]) -> Array:
    """Reversed-operand shift of y by x."""
    return operation(y, (x.astype(np.int64) & (bits - 1)).astype(y.dtype))


def _mbcnt(x: Array, y: Array, lane: Array, high: bool) -> Array:
    out: list[int] = []
    for v, base, position in zip(x.tolist(), y.tolist(), lane.tolist(), strict=True):
        below = (1 << position) - 1
        mask = below >> 32 if high else below & 0xFFFFFFFF
        out.append((v & mask).bit_count() + base & 0xFFFFFFFF)
    return np.array(out, dtype=U32)


def _high(x: Array, y: Array) -> Array:
    wide = U64 if x.dtype == U32 else I64
    return ((x.astype(wide) * y.astype(wide)) >> wide(32)).astype(x.dtype)


def _saturate_bytes(x: Array) -> Array:
    low = np.clip(x.astype(U32).astype(np.uint16).view(np.int16), 0, 255).astype(U32)
    high = np.clip((x.astype(U32) >> U32(16)).astype(np.uint16).view(np.int16), 0, 255).astype(U32)
    return (low | high << U32(8)).astype(np.uint16)


def _same(x: Array) -> Array:
    return x


vector("v_mov_b32 v_accvgpr_mov_b32 v_accvgpr_read_b32 v_accvgpr_write_b32", "u32 = u32", _same)
vector("v_mov_b64", "u64 = u64", _same)
vector("v_not_b32", "u32 = u32", lambda x: ~x)
vector("v_bfrev_b32", "u32 = u32", _reverse)
vector("v_ffbh_u32", "u32 = u32", _count_leading)
vector("v_ffbl_b32", "u32 = u32", _count_trailing)
vector("v_ffbh_i32", "u32 = i32", lambda x: _count_leading((x ^ (x >> 31)).view(U32)))
vector("v_and_b32", "u32 = u32 u32", np.bitwise_and)
vector("v_or_b32", "u32 = u32 u32", np.bitwise_or)
vector("v_xor_b32", "u32 = u32 u32", np.bitwise_xor)
vector("v_xnor_b32", "u32 = u32 u32", lambda x, y: ~(x ^ y))
for _bits_, _types in ((16, ("u16", "u16", "i16")), (32, ("u32", "u32", "i32")), (64, ("u64", "u64", "i64"))):
    _count = "u16" if _bits_ == 16 else "u32"
    for _name, _ty, _operation in zip(
        ("lshlrev_b", "lshrrev_b", "ashrrev_i"),
        _types,
        (np.left_shift, np.right_shift, np.right_shift),
        strict=True,
    ):
        vector(
            f"v_{_name}{_bits_}",
            f"{_ty} = {_count} {_ty}",
            lambda x, y, n=_bits_, operation=_operation: _shift(x, y, n, operation),
        )
vector("v_lshl_add_u64", "u64 = u64 u32 u64", lambda x, y, z: (x << (y & 7).astype(U64)) + z)
for _w in ("16", "32"):
    vector(f"v_add_u{_w}", f"u{_w} = u{_w} u{_w}", np.add)
    vector(f"v_sub_u{_w}", f"u{_w} = u{_w} u{_w}", np.subtract)
    vector(f"v_subrev_u{_w}", f"u{_w} = u{_w} u{_w}", lambda x, y: y - x)
    vector(f"v_add_i{_w}", f"i{_w} = i{_w} i{_w}", np.add)
    vector(f"v_sub_i{_w}", f"i{_w} = i{_w} i{_w}", np.subtract)
    for _s in "iu":
        _t = f"{_s}{_w}"
        vector(f"v_min_{_t}", f"{_t} = {_t} {_t}", np.minimum)
        vector(f"v_max_{_t}", f"{_t} = {_t} {_t}", np.maximum)
        vector(f"v_min3_{_t}", f"{_t} = {_t} {_t} {_t}", lambda x, y, z: np.minimum(np.minimum(x, y), z))
        vector(f"v_max3_{_t}", f"{_t} = {_t} {_t} {_t}", lambda x, y, z: np.maximum(np.maximum(x, y), z))
        vector(f"v_med3_{_t}", f"{_t} = {_t} {_t} {_t}", _median)
vector("v_add_co_u32", "u32 mask = u32 u32", _add_carry)
vector("v_sub_co_u32", "u32 mask = u32 u32", _sub_borrow)
vector("v_subrev_co_u32", "u32 mask = u32 u32", lambda x, y: _sub_borrow(y, x))
vector("v_addc_co_u32", "u32 mask = u32 u32 mask", _add_carry)
vector("v_subb_co_u32", "u32 mask = u32 u32 mask", _sub_borrow)
vector("v_subbrev_co_u32", "u32 mask = u32 u32 mask", lambda x, y, c: _sub_borrow(y, x, c))
vector("v_mul_lo_u32", "u32 = u32 u32", np.multiply)
vector("v_mul_lo_u16", "u16 = u16 u16", np.multiply)
vector("v_mul_hi_u32", "u32 = u32 u32", _high)
vector("v_mul_hi_i32", "i32 = i32 i32", _high)
vector("v_mul_i32_i24", "i32 = u32 u32", lambda x, y: _low24(x) * _low24(y))
vector("v_mul_u32_u24", "u32 = u32 u32", lambda x, y: (x & 0xFFFFFF) * (y & 0xFFFFFF))
vector("v_mul_hi_i32_i24", "i32 = u32 u32", lambda x, y: _high(_low24(x), _low24(y)))
vector("v_mul_hi_u32_u24", "u32 = u32 u32", lambda x, y: _high(x & U32(0xFFFFFF), y & U32(0xFFFFFF)))
vector("v_mad_i32_i24", "i32 = u32 u32 i32", lambda x, y, z: _low24(x) * _low24(y) + z)
vector("v_mad_u32_u24", "u32 = u32 u32 u32", lambda x, y, z: (x & 0xFFFFFF) * (y & 0xFFFFFF) + z)
vector("v_mad_u64_u32", "u64 mask = u32 u32 u64", lambda x, y, z: _mad_wide(x, y, z, False))
vector("v_mad_i64_i32", "i64 mask = i32 i32 i64", lambda x, y, z: _mad_wide(x, y, z, True))
vector("v_mad_u32_u16", "u32 = u16 u16 u32", lambda x, y, z: x.astype(U32) * y.astype(U32) + z)
vector("v_mad_i32_i16", "i32 = i16 i16 i32", lambda x, y, z: x.astype(np.int32) * y.astype(np.int32) + z)
vector("v_mad_legacy_i16", "i16 = i16 i16 i16", lambda x, y, z: x * y + z)
vector("v_mad_u16 v_mad_legacy_u16", "u16 = u16 u16 u16", lambda x, y, z: x * y + z)
vector("v_mad_i16", "i16 = i16 i16 i16", lambda x, y, z: x * y + z)
vector("v_bfe_u32", "u32 = u32 u32 u32", lambda x, y, z: bfe(x, y, z, False))
vector("v_bfe_i32", "u32 = u32 u32 u32", lambda x, y, z: bfe(x, y, z, True))
vector("v_bfi_b32", "u32 = u32 u32 u32", lambda x, y, z: (x & y) | (~x & z))
vector("v_bfm_b32", "u32 = u32 u32", _bfm)
vector("v_bcnt_u32_b32", "u32 = u32 u32", lambda x, y: _bits(x) + y)
vector("v_alignbit_b32", "u32 = u32 u32 u32", lambda x, y, z: _align(x, y, z & U32(31)))
vector("v_alignbyte_b32", "u32 = u32 u32 u32", lambda x, y, z: _align(x, y, (z & U32(3)) * U32(8)))
vector("v_perm_b32", "u32 = u32 u32 u32", perm)
vector("v_lshl_add_u32", "u32 = u32 u32 u32", lambda x, y, z: (x << (y & U32(31))) + z)
vector("v_add_lshl_u32", "u32 = u32 u32 u32", lambda x, y, z: (x + y) << (z & U32(31)))
vector("v_add3_u32", "u32 = u32 u32 u32", lambda x, y, z: x + y + z)
vector("v_lshl_or_b32", "u32 = u32 u32 u32", lambda x, y, z: (x << (y & U32(31))) | z)
vector("v_and_or_b32", "u32 = u32 u32 u32", lambda x, y, z: (x & y) | z)
vector("v_or3_b32", "u32 = u32 u32 u32", lambda x, y, z: x | y | z)
vector("v_xad_u32", "u32 = u32 u32 u32", lambda x, y, z: (x ^ y) + z)
vector("v_sad_u8", "u32 = u32 u32 u32", lambda x, y, z: _sad(x, y, z, 8))
vector("v_sad_u16", "u32 = u32 u32 u32", lambda x, y, z: _sad(x, y, z, 16))
vector("v_sad_u32", "u32 = u32 u32 u32", lambda x, y, z: _sad(x, y, z, 32))
vector("v_mbcnt_lo_u32_b32", "u32 = u32 u32", lambda x, y, lane: _mbcnt(x, y, lane, False), lane=True)
vector("v_mbcnt_hi_u32_b32", "u32 = u32 u32", lambda x, y, lane: _mbcnt(x, y, lane, True), lane=True)
vector("v_cndmask_b32", "u32 = u32 u32 mask", lambda x, y, mask: np.where(mask, y, x))
for _name, _width, _signed in (
    ("dot4_i32_i8", 8, True),
    ("dot4_u32_u8", 8, False),
    ("dot8_i32_i4", 4, True),
    ("dot8_u32_u4", 4, False),
    ("dot2_i32_i16", 16, True),
    ("dot2_u32_u16", 16, False),
):
    vector(f"v_{_name}", "u32 = u32 u32 u32", lambda x, y, z, w=_width, s=_signed: _dot(x, y, z, w, s))
for _name, _width in (("dot4c_i32_i8", 8), ("dot8c_i32_i4", 4), ("dot2c_i32_i16", 16)):
    vector(f"v_{_name}", "u32 = u32 u32", lambda x, y, z, w=_width: _dot(x, y, z, w, True), accumulate=True)
vector("v_pack_b32_f16", "u32 = u16 u16", lambda x, y: x.astype(U32) | y.astype(U32) << U32(16))
vector("v_sat_pk_u8_i16", "u16 = u32", _saturate_bytes)

vector("v_prng_b32", "u32 = u32", lambda x: (x << U32(1)) ^ np.where(x >> U32(31), U32(197), U32(0)))


def _shift_pack(x: Array, y: Array, z: Array, low: int, high: int) -> Array:
    shift = (z & U32(31)).astype(np.int32)
    parts = [(np.clip(v >> shift, low, high) & 0xFF).astype(np.uint16) for v in (x, y)]
    return parts[0] | parts[1] << np.uint16(8)


vector("v_ashr_pk_i8_i32", "u16 = i32 i32 u32", lambda x, y, z: _shift_pack(x, y, z, -128, 127))
vector("v_ashr_pk_u8_i32", "u16 = i32 i32 u32", lambda x, y, z: _shift_pack(x, y, z, 0, 255))

_COMPARE = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "f": lambda x, y: np.zeros(x.shape, bool),
    "t": lambda x, y: np.ones(x.shape, bool),
}
for _w in ("16", "32", "64"):
    for _s in "iu":
        for _name, _operation in _COMPARE.items():
            assert f"{_s}{_w}" in DTYPES
            vector(f"v_cmp_{_name}_{_s}{_w}", f"mask = {_s}{_w} {_s}{_w}", _operation)


def bitop3(table: int, x: Array, y: Array, z: Array) -> Array:
    """Bit ``4 x + 2 y + z`` of the table, for every bit of the operands. [CDNA4 ISA, V_BITOP3_B32]"""
    out = np.zeros_like(x)
    for bit in range(8 * x.dtype.itemsize):
        shift = x.dtype.type(bit)
        index = (x >> shift & 1) * 4 + (y >> shift & 1) * 2 + (z >> shift & 1)
        out |= (np.uint64(table) >> index.astype(np.uint64) & np.uint64(1)).astype(x.dtype) << shift
    return out


def _parts(x: int, width: int, signed: bool) -> list[int]:
    out = []
    for i in range(32 // width):
        part = x >> width * i & ((1 << width) - 1)
        out.append(part - (1 << width) if signed and part >> width - 1 else part)
    return out


def _exact_dot(width: int, signed: bool) -> Callable[[int, int, int], int]:
    def dot(x: int, y: int, z: int) -> int:
        pairs = zip(_parts(x & 0xFFFFFFFF, width, signed), _parts(y & 0xFFFFFFFF, width, signed), strict=True)
        return sum(p * q for p, q in pairs) + z

    return dot


def _exact_sad(width: int) -> Callable[[int, int, int], int]:
    return lambda x, y, z: (
        sum(abs(p - q) for p, q in zip(_parts(x, width, False), _parts(y, width, False), strict=True)) + z
    )


def _low(x: int, signed: bool) -> int:
    x &= 0xFFFFFF
    return x - (1 << 24) if signed and x >> 23 else x


CLAMPED: dict[str, tuple[str, Callable[[int, int, int], int]]] = {
    "v_mad_i32_i24": ("i32", lambda x, y, z: _low(x, True) * _low(y, True) + z),
    "v_mad_u32_u24": ("u32", lambda x, y, z: _low(x, False) * _low(y, False) + z),
    "v_mad_u32_u16": ("u32", lambda x, y, z: x * y + z),
    "v_mad_i32_i16": ("i32", lambda x, y, z: x * y + z),
    **dict.fromkeys(("v_mad_u16", "v_mad_legacy_u16"), ("u16", lambda x, y, z: x * y + z)),
    **dict.fromkeys(("v_mad_i16", "v_mad_legacy_i16"), ("i16", lambda x, y, z: x * y + z)),
    "v_sad_u8": ("u32", _exact_sad(8)),
    "v_sad_u16": ("u32", _exact_sad(16)),
    **{f"v_dot{32 // w}_{'i' if s else 'u'}32_{'i' if s else 'u'}{w}": ("i32" if s else "u32", _exact_dot(w, s))
       for w in (4, 8, 16) for s in (True, False)},
    **{f"v_dot{32 // w}c_i32_i{w}": ("i32", _exact_dot(w, True)) for w in (4, 8, 16)},
}  # fmt: skip
"""Result type and exact value of three-operand ops, which the clamp bit limits to that type."""
