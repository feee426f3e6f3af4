"""Operations on packed bytes from video coding, cube map coordinates, argument reduction. [CDNA3 ISA, VOP3A opcodes]"""

from __future__ import annotations

from ..decoder import Instruction
from .builder import LANES, Builder, Value, count, vec
from .op import Context, Lower, Op, Unsupported, checks_of, require, slot_of
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


def _cube(b: Builder, x: Value, y: Value, z: Value, along: tuple[Value, Value, Value]) -> Value:
    """One of three values, by the axis of the largest magnitude; z wins ties, then y."""
    ax, ay, az = (b.intrinsic("fabs", v) for v in (x, y, z))
    on_z = az.cmp("oge", ax) & az.cmp("oge", ay)
    return on_z.select(along[2], ay.cmp("oge", ax).select(along[1], along[0]))


def _cube_face(b: Builder, x: Value, y: Value, z: Value) -> Value:
    def face(v: Value, positive: float) -> Value:
        return v.cmp("olt", 0.0).select(b.const(v.ty, positive + 1), b.const(v.ty, positive))

    return _cube(b, x, y, z, (face(x, 0.0), face(y, 2.0), face(z, 4.0)))


def _cube_s(b: Builder, x: Value, y: Value, z: Value) -> Value:
    return _cube(b, x, y, z, (x.cmp("olt", 0.0).select(z, -z), x, z.cmp("olt", 0.0).select(-x, x)))


def _cube_t(b: Builder, x: Value, y: Value, z: Value) -> Value:
    return _cube(b, x, y, z, (-y, y.cmp("olt", 0.0).select(-z, z), -y))


def _two_over_pi() -> list[int]:
    """2/pi to 1201 bits as words, most significant first, zeros behind. Machin's formula, in integers."""
    unit = 1 << 1300

    def arctan_of_inverse(n: int) -> int:
        term = total = unit // n
        k, sign = 1, -1
        while term:
            term //= n * n
            k += 2
            total += sign * (term // k)
            sign = -sign
        return total

    pi = 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))
    bits = (2 * unit << 1201) // pi
    words = [bits << 64 * 45 - 1201 >> 64 * (44 - i) & (1 << 64) - 1 for i in range(45)]
    return [w - (1 << 64) if w >> 63 else w for w in words]


def _trig_preop(b: Builder, x: Value, segment: Value) -> Value:
    """53 bits of 2/pi from bit 53 * segment on, later where x is large, as the double that they stand for."""
    lanes = count(x.ty)
    table = b.table("two_over_pi", _two_over_pi())
    inputs, segments, outputs = b.alloca(vec("i64", lanes)), b.alloca(vec("i64", lanes)), b.alloca(vec("double", lanes))
    b.store(x.bitcast("i64"), inputs, 0, 64)
    b.store((segment & 31).zext("i64"), segments, 0, 64)

    def power(exponent: Value) -> Value:
        return ((exponent + 1023) << 52).bitcast("double")

    with b.loop(lanes) as lane:
        exponent = (b.load("i64", b.ptr(inputs, lane << 3), 0, 8) >> 52) & 2047
        shift = b.load("i64", b.ptr(segments, lane << 3), 0, 8) * 53
        shift = shift + b.intrinsic("smax", exponent - 1077, b.const("i64", 0))
        at = b.ptr(table, (shift >> 6) << 3)
        window = b.intrinsic("fshl", b.load("i64", at, 0, 8), b.load("i64", at, 8, 8), shift & 63) >> 11
        scale = b.const("i64", -53) - shift + exponent.cmp("uge", 1968).select(b.const("i64", 128), b.const("i64", 0))
        # in two steps, because the power itself may be below the smallest double
        first = b.intrinsic("smax", scale, b.const("i64", -1000))
        rest = b.intrinsic("smax", scale - first, b.const("i64", -1022))
        b.store(window.cast("sitofp", "double") * power(first) * power(rest), b.ptr(outputs, lane << 3), 0, 8)
    return b.load(vec("double", lanes), outputs, 0, 64)


SIGNATURES: dict[str, Signature] = {
    "v_lerp_u8": sig("i32 = i32 i32 i32", _lerp),
    "v_sad_hi_u8": sig("i32 = i32 i32 i32", lambda b, x, y, z: (_sum(b, x, y, False) << 16) + z),
    "v_msad_u8": sig("i32 = i32 i32 i32", lambda b, x, y, z: _sum(b, x, y, True) + z),
    "v_qsad_pk_u16_u8": _four_sums(False),
    "v_mqsad_pk_u16_u8": _four_sums(True),
    "v_cubeid_f32": sig("f32 = f32 f32 f32", _cube_face),
    "v_cubesc_f32": sig("f32 = f32 f32 f32", _cube_s),
    "v_cubetc_f32": sig("f32 = f32 f32 f32", _cube_t),
    "v_cubema_f32": sig("f32 = f32 f32 f32", lambda b, x, y, z: _cube(b, x, y, z, (x, y, z)) * 2.0),
    "v_cvt_off_f32_i4": sig("f32 = i32", lambda b, x: (x << 28).ashr(28).cast("sitofp", "float") * 0.0625),
    "v_trig_preop_f64": sig("f64 = f64 i32", _trig_preop),
}


def _four_wide_sums(inst: Instruction, context: Context) -> Op:
    """v_mqsad_u32_u8: the masked sums at four byte offsets, added to four dwords. [CDNA3 ISA, V_MQSAD_U32_U8]"""
    destination, x, y, z = inst.operands
    kinds = [slot_of(o)[0] for o in (x, y)]
    require(destination, 4, inst.name)
    require(z, 4, inst.name)
    if kinds[0] == "v":
        require(x, 2, inst.name)
    if inst.modifiers.get("clamp", 0):
        raise Unsupported(f"clamp on {inst.name}")

    def make(symbol: str) -> str:
        b = Builder(symbol)
        write = b.exec_mask()

        def source(slot: int, kind: str, register: int, chunk: Value) -> Value:
            if kind == "v":
                return b.load(vec("i32", LANES), b.ptr(b.row(slot), chunk * (4 * LANES)), 256 * register, 4 * LANES)
            if kind == "s":
                return b.splat(b.load("i32", b.row(slot), 4 * register))
            return b.splat((b.slot(slot) >> 32 * register if register else b.slot(slot)).trunc("i32"))

        with b.chunks() as chunk:
            wide = source(1, kinds[0], 0, chunk).zext("i64") | (source(1, kinds[0], 1, chunk).zext("i64") << 32)
            reference = source(2, kinds[1], 0, chunk)
            sums = [
                _sum(b, (wide >> 8 * i if i else wide).trunc("i32"), reference, True) + source(3, "v", i, chunk)
                for i in range(4)
            ]
            active = b.chunk_mask(write, chunk)
            at = b.ptr(b.row(0), chunk * (4 * LANES))
            for i, value in enumerate(sums):
                old = b.load(vec("i32", LANES), at, 256 * i, 4 * LANES)
                b.store(active.select(value, old), at, 256 * i, 4 * LANES)
        b.next()
        return b.text()

    key = f"{inst.name}|{''.join(kinds)}"
    return Op(key, make, tuple(slot_of(o)[1] for o in inst.operands), checks_of(*inst.operands))


OPS: dict[str, Lower] = {name: lower_with(signature) for name, signature in SIGNATURES.items()}
OPS["v_mqsad_u32_u8"] = _four_wide_sums
