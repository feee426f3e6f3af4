"""Scalar ops on Python integers. [CDNA3 ISA, "Scalar ALU Operations"]

A function takes the sources as unsigned integers (and ``scc`` and the old destination where the op reads them) and
returns (result, scc); a ``None`` stands for "unchanged" or "no result".
"""

from __future__ import annotations

from collections.abc import Callable

from tileir.records import dataclass

Result = tuple[int | None, bool | None]


@dataclass(frozen=True)
class ScalarSpec:
    """result, sources: widths in bits (0: no result). reads: "scc" and "old" as further arguments, in this order."""

    name: str
    result: int
    sources: tuple[int, ...]
    function: Callable[..., Result]
    reads: tuple[str, ...] = ()


SCALAR: dict[str, ScalarSpec] = {}


def signed(x: int, bits: int = 32) -> int:
    return x - (1 << bits) if x >> (bits - 1) & 1 else x


def mask(x: int, bits: int = 32) -> int:
    return x & ((1 << bits) - 1)


def scalar(name: str, result: int, sources: tuple[int, ...], function: Callable[..., Result], *reads: str) -> None:
    SCALAR[name] = ScalarSpec(name, result, sources, function, reads)


def _nonzero(value: int, bits: int) -> Result:
    return mask(value, bits), mask(value, bits) != 0


def _overflow(value: int) -> Result:
    return mask(value), not -(1 << 31) <= value < 1 << 31


def _first(x: int, y: int, chosen: bool) -> Result:
    return (x if chosen else y), chosen


def _field(x: int, y: int, bits: int, is_signed: bool) -> Result:
    offset, width = y & (bits - 1), y >> 16 & 0x7F
    available = max(0, min(width, bits - offset))
    value = x >> offset & ((1 << available) - 1)
    if is_signed and available and value >> (available - 1) & 1:
        value -= 1 << available
    return _nonzero(value if width else 0, bits)


def _leading(x: int, bits: int) -> int:
    return mask(bits - x.bit_length()) if x else mask(-1)


def _trailing(x: int) -> int:
    return (x & -x).bit_length() - 1 if x else mask(-1)


def _sign_run(x: int, bits: int) -> int:
    flipped = mask(~x, bits) if x >> (bits - 1) & 1 else x
    return _leading(flipped, bits)


def _whole_quads(x: int, bits: int) -> Result:
    out = 0
    for quad in range(0, bits, 4):
        if x >> quad & 15:
            out |= 15 << quad
    return _nonzero(out, bits)


def _quads(x: int, bits: int) -> Result:
    return _nonzero(sum((x >> quad & 15 != 0) << quad // 4 for quad in range(0, bits, 4)), bits)


def _carry(total: int) -> Result:
    return mask(total), total > 0xFFFFFFFF


def _borrow(total: int) -> Result:
    return mask(total), total < 0


W, D = 32, 64
scalar("s_add_u32", W, (W, W), lambda x, y: _carry(x + y))
scalar("s_addc_u32", W, (W, W), lambda x, y, scc: _carry(x + y + scc), "scc")
scalar("s_sub_u32", W, (W, W), lambda x, y: _borrow(x - y))
scalar("s_subb_u32", W, (W, W), lambda x, y, scc: _borrow(x - y - scc), "scc")
scalar("s_add_i32", W, (W, W), lambda x, y: _overflow(signed(x) + signed(y)))
scalar("s_sub_i32", W, (W, W), lambda x, y: _overflow(signed(x) - signed(y)))
scalar("s_min_i32", W, (W, W), lambda x, y: _first(x, y, signed(x) < signed(y)))
scalar("s_min_u32", W, (W, W), lambda x, y: _first(x, y, x < y))
scalar("s_max_i32", W, (W, W), lambda x, y: _first(x, y, signed(x) > signed(y)))
scalar("s_max_u32", W, (W, W), lambda x, y: _first(x, y, x > y))
scalar("s_absdiff_i32", W, (W, W), lambda x, y: _nonzero(abs(signed(mask(signed(x) - signed(y)))), W))
scalar("s_mul_i32", W, (W, W), lambda x, y: (mask(x * y), None))
scalar("s_mul_hi_u32", W, (W, W), lambda x, y: (x * y >> 32, None))
scalar("s_mul_hi_i32", W, (W, W), lambda x, y: (mask(signed(x) * signed(y) >> 32), None))
scalar("s_pack_ll_b32_b16", W, (W, W), lambda x, y: (x & 0xFFFF | (y & 0xFFFF) << 16, None))
scalar("s_pack_lh_b32_b16", W, (W, W), lambda x, y: (x & 0xFFFF | y >> 16 << 16, None))
scalar("s_pack_hh_b32_b16", W, (W, W), lambda x, y: (x >> 16 | y >> 16 << 16, None))
scalar("s_bfm_b32", W, (W, W), lambda x, y: (mask(((1 << (x & 31)) - 1) << (y & 31)), None))
scalar("s_bfm_b64", D, (W, W), lambda x, y: (mask(((1 << (x & 63)) - 1) << (y & 63), D), None))
scalar("s_bitreplicate_b64_b32", D, (W,), lambda x: (sum((x >> i & 1) * 3 << 2 * i for i in range(32)), None))
scalar("s_abs_i32", W, (W,), lambda x: _nonzero(abs(signed(x)), W))
scalar("s_sext_i32_i8", W, (W,), lambda x: (mask(signed(x & 0xFF, 8)), None))
scalar("s_sext_i32_i16", W, (W,), lambda x: (mask(signed(x & 0xFFFF, 16)), None))
for _n in range(1, 5):
    scalar(f"s_lshl{_n}_add_u32", W, (W, W), lambda x, y, n=_n: _carry((x << n) + y))
for _name, _operation in {
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "andn2": lambda x, y: x & ~y,
    "orn2": lambda x, y: x | ~y,
    "nand": lambda x, y: ~(x & y),
    "nor": lambda x, y: ~(x | y),
    "xnor": lambda x, y: ~(x ^ y),
}.items():
    for _bits in (32, 64):
        scalar(
            f"s_{_name}_b{_bits}",
            _bits,
            (_bits, _bits),
            lambda x, y, operation=_operation, bits=_bits: _nonzero(operation(x, y), bits),
        )
for _bits in (32, 64):
    _n = _bits - 1
    scalar(f"s_lshl_b{_bits}", _bits, (_bits, W), lambda x, y, n=_n: _nonzero(x << (y & n), n + 1))
    scalar(f"s_lshr_b{_bits}", _bits, (_bits, W), lambda x, y, n=_n: _nonzero(x >> (y & n), n + 1))
    scalar(f"s_ashr_i{_bits}", _bits, (_bits, W), lambda x, y, n=_n: _nonzero(signed(x, n + 1) >> (y & n), n + 1))
    scalar(f"s_bfe_u{_bits}", _bits, (_bits, W), lambda x, y, n=_bits: _field(x, y, n, False))
    scalar(f"s_bfe_i{_bits}", _bits, (_bits, W), lambda x, y, n=_bits: _field(x, y, n, True))
    scalar(f"s_cselect_b{_bits}", _bits, (_bits, _bits), lambda x, y, scc: (x if scc else y, None), "scc")
    scalar(f"s_mov_b{_bits}", _bits, (_bits,), lambda x: (x, None))
    scalar(f"s_cmov_b{_bits}", _bits, (_bits,), lambda x, scc, old: (x if scc else old, None), "scc", "old")
    scalar(f"s_not_b{_bits}", _bits, (_bits,), lambda x, n=_bits: _nonzero(~x, n))
    scalar(f"s_wqm_b{_bits}", _bits, (_bits,), lambda x, n=_bits: _whole_quads(x, n))
    scalar(f"s_quadmask_b{_bits}", _bits, (_bits,), lambda x, n=_bits: _quads(x, n))
    scalar(f"s_brev_b{_bits}", _bits, (_bits,), lambda x, n=_bits: (int(f"{x:0{n}b}"[::-1], 2), None))
    scalar(f"s_bcnt0_i32_b{_bits}", W, (_bits,), lambda x, n=_bits: _nonzero(n - x.bit_count(), W))
    scalar(f"s_bcnt1_i32_b{_bits}", W, (_bits,), lambda x: _nonzero(x.bit_count(), W))
    scalar(f"s_ff0_i32_b{_bits}", W, (_bits,), lambda x, n=_bits: (_trailing(mask(~x, n)), None))
    scalar(f"s_ff1_i32_b{_bits}", W, (_bits,), lambda x: (_trailing(x), None))
    scalar(f"s_flbit_i32_b{_bits}", W, (_bits,), lambda x, n=_bits: (_leading(x, n), None))
    scalar("s_flbit_i32" if _bits == 32 else "s_flbit_i32_i64", W, (_bits,), lambda x, n=_bits: (_sign_run(x, n), None))
    scalar(
        f"s_bitset0_b{_bits}", _bits, (W,), lambda x, old, n=_n: (old & ~(1 << (x & n)) & ((2 << n) - 1), None), "old"
    )
    scalar(f"s_bitset1_b{_bits}", _bits, (W,), lambda x, old, n=_n: (old | 1 << (x & n), None), "old")
    scalar(f"s_bitcmp0_b{_bits}", 0, (_bits, W), lambda x, y, n=_n: (None, not x >> (y & n) & 1))
    scalar(f"s_bitcmp1_b{_bits}", 0, (_bits, W), lambda x, y, n=_n: (None, bool(x >> (y & n) & 1)))
scalar("s_cmp_eq_u64", 0, (D, D), lambda x, y: (None, x == y))
scalar("s_cmp_lg_u64", 0, (D, D), lambda x, y: (None, x != y))
for _name, _operation in {
    "eq": lambda x, y: x == y,
    "lg": lambda x, y: x != y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
}.items():
    scalar(f"s_cmp_{_name}_u32", 0, (W, W), lambda x, y, operation=_operation: (None, operation(x, y)))
    scalar(f"s_cmp_{_name}_i32", 0, (W, W), lambda x, y, operation=_operation: (None, operation(signed(x), signed(y))))
    # The 16-bit immediate is zero-extended by the unsigned forms and sign-extended by the signed ones.
    scalar(f"s_cmpk_{_name}_u32", 0, (W, 16), lambda x, y, operation=_operation: (None, operation(x, y)))
    scalar(
        f"s_cmpk_{_name}_i32",
        0,
        (W, 16),
        lambda x, y, operation=_operation: (None, operation(signed(x), signed(y, 16))),
    )
scalar("s_movk_i32", W, (16,), lambda x: (mask(signed(x, 16)), None))
scalar("s_cmovk_i32", W, (16,), lambda x, scc, old: (mask(signed(x, 16)) if scc else old, None), "scc", "old")
scalar("s_addk_i32", W, (16,), lambda x, old: _overflow(signed(old) + signed(x, 16)), "old")
scalar("s_mulk_i32", W, (16,), lambda x, old: (mask(signed(old) * signed(x, 16)), None), "old")
