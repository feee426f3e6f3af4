"""Scalar ALU: SOP1, SOP2, SOPC, SOPK. An op is a function of 32- or 64-bit scalars; SCC is an optional last result."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .. import state
from ..decoder import Instruction
from .builder import Builder, Value
from .op import Context, Lower, Op, Unsupported, checks_of, slot_of

Expression = Callable[..., object]
_Entry = tuple[str, str, Expression]

_KEEP = None


def _nonzero(value: Value) -> tuple[Value, Value]:
    return value, value.cmp("ne", 0)


def _add_carry(b: Builder, x: Value, y: Value, carry: Value | None = None) -> tuple[Value, Value]:
    total = x.zext("i64") + y.zext("i64")
    if carry is not None:
        total = total + carry.zext("i64")
    return total.trunc("i32"), (total >> 32).cmp("ne", 0)


def _sub_borrow(b: Builder, x: Value, y: Value, borrow: Value | None = None) -> tuple[Value, Value]:
    total = x.zext("i64") - y.zext("i64")
    if borrow is not None:
        total = total - borrow.zext("i64")
    return total.trunc("i32"), (total >> 63).cmp("ne", 0)


def _add_signed(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    out = x + y
    return out, ((x ^ out) & (y ^ out)).cmp("slt", 0)


def _sub_signed(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    out = x - y
    return out, ((x ^ y) & (x ^ out)).cmp("slt", 0)


def _pick(predicate: str) -> Expression:
    def expression(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
        first = x.cmp(predicate, y)
        return first.select(x, y), first

    return expression


def _logic(operation: Callable[[Value, Value], Value]) -> Expression:
    return lambda b, x, y: _nonzero(operation(x, y))


_LOGIC: Mapping[str, Callable[[Value, Value], Value]] = {
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "andn2": lambda x, y: x & ~y,
    "orn2": lambda x, y: x | ~y,
    "nand": lambda x, y: ~(x & y),
    "nor": lambda x, y: ~(x | y),
    "xnor": lambda x, y: ~(x ^ y),
    "andn1": lambda x, y: ~x & y,
    "orn1": lambda x, y: ~x | y,
}


def _bfe(b: Builder, x: Value, field: Value, signed: bool) -> tuple[Value, Value]:
    """Offset in bits 4:0 (5:0 for 64 bit), width in bits 22:16. [CDNA3 ISA, S_BFE]"""
    width_bits = 64 if x.ty == "i64" else 32
    y = field.zext(x.ty)
    offset, width = y & (width_bits - 1), (y >> 16) & 0x7F
    shifted = x.ashr(offset) if signed else x >> offset
    left = b.const(x.ty, width_bits) - width
    inside = left & (width_bits - 1)
    cut = shifted << inside
    narrow = cut.ashr(inside) if signed else cut >> inside
    # A field that reaches past the top ends at the top.
    out = width.cmp("eq", 0).select(0, width.cmp("uge", width_bits).select(shifted, narrow))
    return _nonzero(out)


def _bfm(b: Builder, x: Value, y: Value, ty: str) -> Value:
    n = 63 if ty == "i64" else 31
    one = b.const(ty, 1)
    return ((one << (x.zext(ty) & n)) - 1) << (y.zext(ty) & n)


def _mul_hi(b: Builder, x: Value, y: Value, signed: bool) -> Value:
    a, c = (x.sext("i64"), y.sext("i64")) if signed else (x.zext("i64"), y.zext("i64"))
    return ((a * c) >> 32).trunc("i32")


def _shift_add(n: int) -> Expression:
    def expression(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
        total = (x.zext("i64") << n) + y.zext("i64")
        return total.trunc("i32"), total.cmp("ugt", 0xFFFFFFFF)

    return expression


def _abs_diff(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    return _nonzero(b.intrinsic("abs", x - y, b.const("i1", 0), ty="i32"))


def _find_first(b: Builder, x: Value, *, leading: bool) -> Value:
    name = "ctlz" if leading else "cttz"
    found = b.intrinsic(name, x, b.const("i1", 0), ty=x.ty)
    return x.cmp("eq", 0).select(-1, found.trunc("i32") if x.ty == "i64" else found)


def _sign_bits(b: Builder, x: Value) -> Value:
    """Leading bits equal to the sign bit, -1 when all are. [CDNA3 ISA, S_FLBIT_I32]"""
    return _find_first(b, x ^ x.ashr(63 if x.ty == "i64" else 31), leading=True)


def _count(b: Builder, x: Value) -> tuple[Value, Value]:
    n = b.intrinsic("ctpop", x)
    return _nonzero(n.trunc("i32") if x.ty == "i64" else n)


def _quad_any(b: Builder, x: Value) -> Value:
    one = 0x1111111111111111 if x.ty == "i64" else 0x11111111
    return (x | (x >> 1) | (x >> 2) | (x >> 3)) & one


def _quad_mask(b: Builder, x: Value) -> Value:
    """Bit i says whether any bit of quad i is set. [CDNA3 ISA, S_QUADMASK_B32]"""
    out = _quad_any(b, x)
    steps = ((3, 0x03030303), (6, 0x000F000F), (12, 0x000000FF))
    if x.ty == "i64":
        steps = ((3, 0x0303030303030303), (6, 0x000F000F000F000F), (12, 0x000000FF000000FF), (24, 0xFFFF))
    for shift, mask in steps:
        out = (out | (out >> shift)) & mask
    return out


def _bit_set(on: bool) -> Expression:
    def expression(b: Builder, x: Value, old: Value) -> Value:
        bit = b.const(old.ty, 1) << (x.zext(old.ty) & (63 if old.ty == "i64" else 31))
        return old | bit if on else old & ~bit

    return expression


def _bit_compare(wanted: int) -> Expression:
    def expression(b: Builder, x: Value, y: Value) -> tuple[None, Value]:
        n = 63 if x.ty == "i64" else 31
        return None, ((x >> (y.zext(x.ty) & n)) & 1).cmp("eq", wanted)

    return expression


def _replicate(b: Builder, x: Value) -> Value:
    """Each bit twice."""
    out = x.zext("i64")
    for shift, mask in (
        (16, 0x0000FFFF0000FFFF),
        (8, 0x00FF00FF00FF00FF),
        (4, 0x0F0F0F0F0F0F0F0F),
        (2, 0x3333333333333333),
        (1, 0x5555555555555555),
    ):
        out = (out | (out << shift)) & mask
    return out | (out << 1)


_TABLE: dict[str, _Entry] = {
    "s_add_u32": ("w", "ww", _add_carry),
    "s_sub_u32": ("w", "ww", _sub_borrow),
    "s_addc_u32": ("w", "wwc", _add_carry),
    "s_subb_u32": ("w", "wwc", _sub_borrow),
    "s_add_i32": ("w", "ww", _add_signed),
    "s_sub_i32": ("w", "ww", _sub_signed),
    "s_min_i32": ("w", "ww", _pick("slt")),
    "s_min_u32": ("w", "ww", _pick("ult")),
    "s_max_i32": ("w", "ww", _pick("sgt")),
    "s_max_u32": ("w", "ww", _pick("ugt")),
    "s_cselect_b32": ("w", "wwc", lambda b, x, y, c: c.select(x, y)),
    "s_cselect_b64": ("d", "ddc", lambda b, x, y, c: c.select(x, y)),
    "s_lshl_b32": ("w", "ww", lambda b, x, y: _nonzero(x << (y & 31))),
    "s_lshr_b32": ("w", "ww", lambda b, x, y: _nonzero(x >> (y & 31))),
    "s_ashr_i32": ("w", "ww", lambda b, x, y: _nonzero(x.ashr(y & 31))),
    "s_lshl_b64": ("d", "dw", lambda b, x, y: _nonzero(x << (y.zext("i64") & 63))),
    "s_lshr_b64": ("d", "dw", lambda b, x, y: _nonzero(x >> (y.zext("i64") & 63))),
    "s_ashr_i64": ("d", "dw", lambda b, x, y: _nonzero(x.ashr(y.zext("i64") & 63))),
    "s_bfm_b32": ("w", "ww", lambda b, x, y: _bfm(b, x, y, "i32")),
    "s_bfm_b64": ("d", "ww", lambda b, x, y: _bfm(b, x, y, "i64")),
    "s_mul_i32": ("w", "ww", lambda b, x, y: x * y),
    "s_mul_hi_u32": ("w", "ww", lambda b, x, y: _mul_hi(b, x, y, False)),
    "s_mul_hi_i32": ("w", "ww", lambda b, x, y: _mul_hi(b, x, y, True)),
    "s_bfe_u32": ("w", "ww", lambda b, x, y: _bfe(b, x, y, False)),
    "s_bfe_i32": ("w", "ww", lambda b, x, y: _bfe(b, x, y, True)),
    "s_bfe_u64": ("d", "dw", lambda b, x, y: _bfe(b, x, y, False)),
    "s_bfe_i64": ("d", "dw", lambda b, x, y: _bfe(b, x, y, True)),
    "s_absdiff_i32": ("w", "ww", _abs_diff),
    "s_lshl1_add_u32": ("w", "ww", _shift_add(1)),
    "s_lshl2_add_u32": ("w", "ww", _shift_add(2)),
    "s_lshl3_add_u32": ("w", "ww", _shift_add(3)),
    "s_lshl4_add_u32": ("w", "ww", _shift_add(4)),
    "s_pack_ll_b32_b16": ("w", "ww", lambda b, x, y: (x & 0xFFFF) | (y << 16)),
    "s_pack_lh_b32_b16": ("w", "ww", lambda b, x, y: (x & 0xFFFF) | (y & -0x10000)),
    "s_pack_hh_b32_b16": ("w", "ww", lambda b, x, y: (x >> 16) | (y & -0x10000)),
    # SOP1
    "s_mov_b32": ("w", "w", lambda b, x: x),
    "s_mov_b64": ("d", "d", lambda b, x: x),
    "s_cmov_b32": ("w", "woc", lambda b, x, old, c: c.select(x, old)),
    "s_cmov_b64": ("d", "doc", lambda b, x, old, c: c.select(x, old)),
    "s_not_b32": ("w", "w", lambda b, x: _nonzero(~x)),
    "s_not_b64": ("d", "d", lambda b, x: _nonzero(~x)),
    "s_wqm_b32": ("w", "w", lambda b, x: _nonzero(_quad_any(b, x) * 15)),
    "s_wqm_b64": ("d", "d", lambda b, x: _nonzero(_quad_any(b, x) * 15)),
    "s_quadmask_b32": ("w", "w", lambda b, x: _nonzero(_quad_mask(b, x))),
    "s_quadmask_b64": ("d", "d", lambda b, x: _nonzero(_quad_mask(b, x))),
    "s_brev_b32": ("w", "w", lambda b, x: b.intrinsic("bitreverse", x)),
    "s_brev_b64": ("d", "d", lambda b, x: b.intrinsic("bitreverse", x)),
    "s_bcnt0_i32_b32": ("w", "w", lambda b, x: _count(b, ~x)),
    "s_bcnt0_i32_b64": ("w", "d", lambda b, x: _count(b, ~x)),
    "s_bcnt1_i32_b32": ("w", "w", _count),
    "s_bcnt1_i32_b64": ("w", "d", _count),
    "s_ff0_i32_b32": ("w", "w", lambda b, x: _find_first(b, ~x, leading=False)),
    "s_ff0_i32_b64": ("w", "d", lambda b, x: _find_first(b, ~x, leading=False)),
    "s_ff1_i32_b32": ("w", "w", lambda b, x: _find_first(b, x, leading=False)),
    "s_ff1_i32_b64": ("w", "d", lambda b, x: _find_first(b, x, leading=False)),
    "s_flbit_i32_b32": ("w", "w", lambda b, x: _find_first(b, x, leading=True)),
    "s_flbit_i32_b64": ("w", "d", lambda b, x: _find_first(b, x, leading=True)),
    "s_flbit_i32": ("w", "w", _sign_bits),
    "s_flbit_i32_i64": ("w", "d", _sign_bits),
    "s_sext_i32_i8": ("w", "w", lambda b, x: x.trunc("i8").sext("i32")),
    "s_sext_i32_i16": ("w", "w", lambda b, x: x.trunc("i16").sext("i32")),
    "s_bitset0_b32": ("w", "wo", _bit_set(False)),
    "s_bitset0_b64": ("d", "wo", _bit_set(False)),
    "s_bitset1_b32": ("w", "wo", _bit_set(True)),
    "s_bitset1_b64": ("d", "wo", _bit_set(True)),
    "s_abs_i32": ("w", "w", lambda b, x: _nonzero(b.intrinsic("abs", x, b.const("i1", 0), ty="i32"))),
    "s_bitreplicate_b64_b32": ("d", "w", _replicate),
    # SOPC
    "s_cmp_eq_u64": ("", "dd", lambda b, x, y: (_KEEP, x.cmp("eq", y))),
    "s_cmp_lg_u64": ("", "dd", lambda b, x, y: (_KEEP, x.cmp("ne", y))),
    "s_bitcmp0_b32": ("", "ww", _bit_compare(0)),
    "s_bitcmp1_b32": ("", "ww", _bit_compare(1)),
    "s_bitcmp0_b64": ("", "dw", _bit_compare(0)),
    "s_bitcmp1_b64": ("", "dw", _bit_compare(1)),
    # SOPK; "k" is the sign-extended 16-bit immediate, "u" the zero-extended one, "o" the old destination
    "s_movk_i32": ("w", "k", lambda b, x: x),
    "s_cmovk_i32": ("w", "koc", lambda b, x, old, c: c.select(x, old)),
    "s_addk_i32": ("w", "ko", lambda b, x, old: _add_signed(b, old, x)),
    "s_mulk_i32": ("w", "ko", lambda b, x, old: old * x),
}
for _name, _operation in _LOGIC.items():
    if not _name.endswith("n1"):
        _TABLE[f"s_{_name}_b32"] = ("w", "ww", _logic(_operation))
        _TABLE[f"s_{_name}_b64"] = ("d", "dd", _logic(_operation))

_PREDICATES = {"eq": "eq", "lg": "ne", "gt": "gt", "ge": "ge", "lt": "lt", "le": "le"}


def _compare(predicate: str) -> Expression:
    return lambda b, x, y: (_KEEP, x.cmp(predicate, y))


for _name, _predicate in _PREDICATES.items():
    for _sign in "iu":
        _full = _predicate if _predicate in ("eq", "ne") else ("s" if _sign == "i" else "u") + _predicate
        _TABLE[f"s_cmp_{_name}_{_sign}32"] = ("", "ww", _compare(_full))
        _TABLE[f"s_cmpk_{_name}_{_sign}32"] = ("", "w" + ("k" if _sign == "i" else "u"), _compare(_full))


def _lower(inst: Instruction, context: Context) -> Op:
    result, sources, expression = _TABLE[inst.name]
    operands = inst.operands
    explicit = [c for c in sources if c in "wdku"]
    if len(operands) != len(result) + len(explicit):
        raise Unsupported(f"{inst.name} with {len(operands)} operands")
    kinds = "".join(slot_of(o)[0] for o in operands)
    if "v" in kinds or "k" in kinds[: len(result)]:
        raise Unsupported(f"{inst.name} with these operands")

    def make(symbol: str) -> str:
        b = Builder(symbol)
        values: list[Value] = []
        position = len(result)
        for c in sources:
            if c == "c":
                values.append(b.load("i32", b.w, state.SCC).cmp("ne", 0))
            elif c == "o":
                values.append(b.load("i64" if result == "d" else "i32", b.row(0)))
            else:
                ty = "i64" if c == "d" else "i32"
                if c in "ku":
                    narrow = b.slot(position, "i32").trunc("i16")
                    value = narrow.sext("i32") if c == "k" else narrow.zext("i32")
                elif kinds[position] == "k":
                    value = b.slot(position, ty)
                else:
                    value = b.load(ty, b.row(position))
                values.append(value)
                position += 1
        out = expression(b, *values)
        scc: Value | None = None
        if isinstance(out, tuple):
            out, scc = out
        if result:
            assert isinstance(out, Value)
            b.store(out, b.row(0))
        if scc is not None:
            b.store(scc.zext("i32"), b.w, state.SCC)
        b.next()
        return b.text()

    return Op(f"{inst.name}|{kinds}", make, tuple(slot_of(o)[1] for o in operands), checks_of(*operands))


def _lower_saveexec(inst: Instruction, context: Context) -> Op:
    """``D = EXEC; EXEC = S op EXEC`` (saveexec) or ``EXEC = S op EXEC; D = EXEC`` (wrexec); SCC = EXEC != 0."""
    operation = _LOGIC[inst.name.split("_")[1]]
    after = "wrexec" in inst.name
    kind = slot_of(inst.operands[1])[0]
    if slot_of(inst.operands[0])[0] != "s" or kind == "v":
        raise Unsupported(f"{inst.name} with these operands")

    def make(symbol: str) -> str:
        b = Builder(symbol)
        source = b.slot(1) if kind == "k" else b.load("i64", b.row(1))
        old = b.exec_mask()
        new = operation(source, old)
        b.store(new if after else old, b.row(0))
        b.store(new, b.w, state.EXEC, 8)
        b.store(new.cmp("ne", 0).zext("i32"), b.w, state.SCC)
        b.next()
        return b.text()

    return Op(f"{inst.name}|{kind}", make, tuple(slot_of(o)[1] for o in inst.operands), checks_of(*inst.operands))


OPS: dict[str, Lower] = dict.fromkeys(_TABLE, _lower)
for _name in _LOGIC:
    OPS[f"s_{_name}_saveexec_b64"] = _lower_saveexec
OPS["s_andn1_wrexec_b64"] = _lower_saveexec
OPS["s_andn2_wrexec_b64"] = _lower_saveexec
