"""VOP3P: two 16-bit or two 32-bit operations at once, and the mixed-precision fma."""

from __future__ import annotations

from collections.abc import Callable

from .. import state
from ..decoder import Instruction, Operand
from .builder import LANES, Builder, Value, rounded, vec
from .op import Context, Lower, Op, Unsupported, checks_of, require, slot_of
from .valu import LLVM_TYPE, WIDTH, flush_denormals, limit_half, sign_mask
from .valu_float import fma, fmax, fmin, propagating

Expression = Callable[..., Value]


def _saturating(name: str) -> Expression:
    return lambda b, *v: b.intrinsic(name, *v)


_PACKED: dict[str, tuple[str, int, Expression]] = {
    "v_pk_add_f16": ("f16", 2, lambda b, x, y: x + y),
    "v_pk_mul_f16": ("f16", 2, lambda b, x, y: x * y),
    "v_pk_fma_f16": ("f16", 3, fma),
    "v_pk_min_f16": ("f16", 2, fmin),
    "v_pk_max_f16": ("f16", 2, fmax),
    "v_pk_minimum3_f16": ("f16", 3, lambda b, x, y, z: propagating(b, propagating(b, x, y, False), z, False)),
    "v_pk_maximum3_f16": ("f16", 3, lambda b, x, y, z: propagating(b, propagating(b, x, y, True), z, True)),
    "v_pk_add_i16": ("i16", 2, lambda b, x, y: x + y),
    "v_pk_add_u16": ("i16", 2, lambda b, x, y: x + y),
    "v_pk_sub_i16": ("i16", 2, lambda b, x, y: x - y),
    "v_pk_sub_u16": ("i16", 2, lambda b, x, y: x - y),
    "v_pk_mul_lo_u16": ("i16", 2, lambda b, x, y: x * y),
    "v_pk_mad_i16": ("i16", 3, lambda b, x, y, z: x * y + z),
    "v_pk_mad_u16": ("i16", 3, lambda b, x, y, z: x * y + z),
    "v_pk_min_i16": ("i16", 2, lambda b, x, y: b.intrinsic("smin", x, y)),
    "v_pk_max_i16": ("i16", 2, lambda b, x, y: b.intrinsic("smax", x, y)),
    "v_pk_min_u16": ("i16", 2, lambda b, x, y: b.intrinsic("umin", x, y)),
    "v_pk_max_u16": ("i16", 2, lambda b, x, y: b.intrinsic("umax", x, y)),
    "v_pk_lshlrev_b16": ("i16", 2, lambda b, x, y: y << (x & 15)),
    "v_pk_lshrrev_b16": ("i16", 2, lambda b, x, y: y >> (x & 15)),
    "v_pk_ashrrev_i16": ("i16", 2, lambda b, x, y: y.ashr(x & 15)),
    "v_pk_add_f32": ("f32", 2, lambda b, x, y: x + y),
    "v_pk_mul_f32": ("f32", 2, lambda b, x, y: x * y),
    "v_pk_fma_f32": ("f32", 3, fma),
    "v_pk_mov_b32": ("i32", 2, lambda b, x, y: x),
}
_CLAMPED: dict[str, Expression] = {
    "v_pk_add_i16": _saturating("sadd.sat"),
    "v_pk_add_u16": _saturating("uadd.sat"),
    "v_pk_sub_i16": _saturating("ssub.sat"),
    "v_pk_sub_u16": _saturating("usub.sat"),
}


class _Sources:
    """Fetches halves of packed sources."""

    def __init__(self, b: Builder, operands: tuple[Operand, ...], element: str, first: int) -> None:
        self.b, self.element, self.operands, self.first = b, element, operands, first
        self.kinds = [slot_of(o)[0] for o in operands]

    def half(self, i: int, high: bool, chunk: Value) -> Value:
        """The low or high element of source ``i`` as an integer vector."""
        b, kind, slot = self.b, self.kinds[i], self.first + i
        wide = WIDTH[self.element] == 32
        if kind == "v":
            at = b.ptr(b.row(slot), chunk * (4 * LANES))
            value = b.load(vec("i32", LANES), at, 256 if wide and high else 0, 4 * LANES)
        elif kind == "s":
            value = b.splat(b.load("i32", b.row(slot), 4 if wide and high else 0))
        else:
            # A 32-bit inline constant stands in both elements.
            value = b.splat(b.slot(slot, "i32"))
        if wide:
            return value
        return (value >> 16 if high else value).trunc("i16")


def _lower(inst: Instruction, context: Context) -> Op:
    element, n, expression = _PACKED[inst.name]
    destination, operands = inst.operands[0], inst.operands[1:]
    if len(operands) != n:
        raise Unsupported(f"{inst.name} with {len(operands)} sources")
    dwords = WIDTH[element] // 16
    for operand in inst.operands:
        if operand.kind in ("v", "a") or operand is destination:
            require(operand, dwords, inst.name)
    m = inst.modifiers
    op_sel, op_sel_hi = m.get("op_sel", 0), m.get("op_sel_hi", (1 << n) - 1)
    neg_lo, neg_hi = m.get("neg_lo", 0), m.get("neg_hi", 0)
    clamp = bool(m.get("clamp", 0))
    integer = element.startswith("i")
    if clamp and integer:
        if inst.name not in _CLAMPED:
            raise Unsupported(f"clamp on {inst.name}")
        expression = _CLAMPED[inst.name]
    kinds = "".join(slot_of(o)[0] for o in operands)
    moved = inst.name == "v_pk_mov_b32"
    dynamic = context.dynamic_mode and not integer

    def make(symbol: str) -> str:
        b = Builder(symbol)
        b.ieee = context.ieee
        sources = _Sources(b, operands, element, 1)
        write = b.exec_mask()
        keep_in: Value | None = None
        keep_out: Value | None = None
        if dynamic:
            mode = b.load("i32", b.w, state.MODE)
            shift = 4 if element == "f32" else 6
            keep_in, keep_out = (((mode >> shift + i) & 1).cmp("ne", 0) for i in (0, 1))
        with b.chunks() as chunk:
            halves: list[Value] = []
            for which, select, negate in ((0, op_sel, neg_lo), (1, op_sel_hi, neg_hi)):
                values: list[Value] = []
                for i in range(n):
                    # v_pk_mov_b32: the low result comes from source 0 and the high one from source 1, both by op_sel.
                    source = which if moved else i
                    high = op_sel >> source & 1 if moved else select >> i & 1
                    value = sources.half(source, bool(high), chunk)
                    if negate >> i & 1:
                        value = value ^ (sign_mask(element) - (1 << WIDTH[element]))
                    if not integer:
                        value = value.bitcast(LLVM_TYPE[element])
                        if dynamic:
                            value = flush_denormals(b, value, element, keep_in)
                    values.append(value)
                out = expression(b, *values)
                if not integer:
                    if dynamic and element == "f16":
                        out = limit_half(b, out, values)
                    if clamp:
                        zero, one = b.const(out.ty, 0.0), b.const(out.ty, 1.0)
                        nan = out.cmp("uno", out)
                        low = out.cmp("olt", 0.0).select(zero, out)
                        clamped = low.cmp("ogt", 1.0).select(one, low)
                        out = nan.select(zero, clamped) if context.dx10_clamp else clamped
                    if dynamic:
                        out = flush_denormals(b, out, element, keep_out)
                halves.append(out.bitcast(f"i{WIDTH[element]}"))
            at = b.ptr(b.row(0), chunk * (4 * LANES))
            active = b.chunk_mask(write, chunk)
            if WIDTH[element] == 16:
                parts = [halves[0].zext("i32") | (halves[1].zext("i32") << 16)]
            else:
                parts = halves
            for k, part in enumerate(parts):
                old = b.load(vec("i32", LANES), at, 256 * k, 4 * LANES)
                b.store(active.select(part, old), at, 256 * k, 4 * LANES)
        b.next()
        return b.text()

    emit = make
    if dynamic and element in ("f16", "f32"):

        def emit(symbol: str) -> str:
            return rounded(symbol, make, 0 if element == "f32" else 2)

    tail = ("|clamp" if context.dx10_clamp else "|clampn") if clamp else ""
    tail += "|mode" if dynamic else ""
    tail += "|ieee0" if not context.ieee and not integer else ""
    key = f"{inst.name}|{kinds}|{op_sel}.{op_sel_hi}.{neg_lo}.{neg_hi}{tail}"
    return Op(key, emit, tuple(slot_of(o)[1] for o in inst.operands), checks_of(*inst.operands))


def _lower_mix(inst: Instruction, context: Context) -> Op:
    """fma of f32 and f16 sources; op_sel_hi marks a source as f16, op_sel its half. [CDNA3 ISA, V_FMA_MIX]"""
    operands = inst.operands[1:]
    require(inst.operands[0], 1, inst.name)
    m = inst.modifiers
    op_sel, op_sel_hi = m.get("op_sel", 0), m.get("op_sel_hi", 0)
    negate, absolute = m.get("neg_lo", 0), m.get("neg_hi", 0)
    for i, operand in enumerate(operands):
        negate |= operand.neg << i
        absolute |= operand.abs << i
    clamp, dynamic = bool(m.get("clamp", 0)), context.dynamic_mode
    kinds = "".join(slot_of(o)[0] for o in operands)
    half = inst.name.removeprefix("v_fma_mix").removesuffix("_f16").removesuffix("_f32")

    def make(symbol: str) -> str:
        b = Builder(symbol)
        narrow = _Sources(b, operands, "f16", 1)
        single = _Sources(b, operands, "f32", 1)
        write = b.exec_mask()
        keep = {}
        if dynamic:
            mode = b.load("i32", b.w, state.MODE)
            keep = {bit: ((mode >> bit) & 1).cmp("ne", 0) for bit in (4, 5, 6, 7)}
        with b.chunks() as chunk:
            values: list[Value] = []
            for i in range(3):
                if op_sel_hi >> i & 1:
                    short = narrow.half(i, bool(op_sel >> i & 1), chunk).bitcast("half")
                    if dynamic:
                        short = flush_denormals(b, short, "f16", keep[6])
                    value = short.cast("fpext", "float")
                else:
                    value = single.half(i, False, chunk).bitcast("float")
                    if dynamic:
                        value = flush_denormals(b, value, "f32", keep[4])
                if absolute >> i & 1:
                    value = b.intrinsic("fabs", value)
                if negate >> i & 1:
                    value = -value
                values.append(value)
            out = b.fma(*values)
            if half:
                out = out.cast("fptrunc", "half")
                if dynamic:
                    out = limit_half(b, out, values)
            if clamp:
                nan = out.cmp("uno", out)
                zero, one = b.const(out.ty, 0.0), b.const(out.ty, 1.0)
                low = out.cmp("olt", 0.0).select(zero, out)
                low = low.cmp("ogt", 1.0).select(one, low)
                out = nan.select(zero, low) if context.dx10_clamp else low
            if dynamic:
                out = flush_denormals(b, out, "f16" if half else "f32", keep[7 if half else 5])
            at = b.ptr(b.row(0), chunk * (4 * LANES))
            old = b.load(vec("i32", LANES), at, 0, 4 * LANES)
            if half:
                short = out.bitcast("i16").zext("i32")
                word = (old & -0x10000) | short if half == "lo" else (old & 0xFFFF) | (short << 16)
            else:
                word = out.bitcast("i32")
            b.store(b.chunk_mask(write, chunk).select(word, old), at, 0, 4 * LANES)
        b.next()
        return b.text()

    def emit(symbol: str) -> str:
        return rounded(symbol, make, 2 if half else 0) if dynamic else make(symbol)

    tail = ("|clamp" if context.dx10_clamp else "|clampn") if clamp else ""
    key = f"{inst.name}|{kinds}|{op_sel}.{op_sel_hi}.{negate}.{absolute}{tail}{'|mode' if dynamic else ''}"
    return Op(key, emit, tuple(slot_of(o)[1] for o in inst.operands), checks_of(*inst.operands))


OPS: dict[str, Lower] = dict.fromkeys(_PACKED, _lower)
OPS.update(dict.fromkeys(("v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16"), _lower_mix))
