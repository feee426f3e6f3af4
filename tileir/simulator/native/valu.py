"""Frame of the vector ALU ops: operand fetch with modifiers, DPP and SDWA, lane masks, result store.

A vector op is declared by a :class:`Signature` – types of results and sources, and an expression on one chunk of lanes.
Everything around the expression is the same for all of them and lives here.

Types: ``i16 i32 i64 f16 f32 f64`` per lane; ``m`` a lane mask (a scalar register pair with one bit per lane).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tileir.records import dataclass

from .. import state
from ..decoder import Instruction, Operand
from . import dpp as dpp_module
from .builder import LANES, Builder, Value, is_float, rounded, vec
from .op import Context, Op, Unsupported, checks_of, require, slot_of

LLVM_TYPE = {"i16": "i16", "i32": "i32", "i64": "i64", "f16": "half", "f32": "float", "f64": "double", "m": "i1"}
WIDTH = {"i16": 16, "i32": 32, "i64": 64, "f16": 16, "f32": 32, "f64": 64}


@dataclass(frozen=True)
class Signature:
    """Declaration of a vector op.

    results, sources: types in operand order (destinations are not repeated for read-modify-write ops: see
    ``accumulate``). expression: chunk values in, one value or a tuple out. accumulate: the destination is a further
    source behind the others. saturate: expression used instead when the clamp bit is set on an integer op. preserve:
    a 16-bit result keeps the other half of the destination (gfx9 rule for the op). raw: no denormal flushing of
    sources and results (moves and bit operations on float types). flush: denormals are flushed in every mode.
    vcc: the lane mask in VCC is a further source that no operand names. lane: the lane number is a further source.
    plain: a packed encoding of which only the default selectors are executed. nearest: rounds to nearest even whatever
    MODE says. endless: an infinite result of finite sources is no overflow.
    """

    results: tuple[str, ...]
    sources: tuple[str, ...]
    expression: Callable[..., Value | tuple[Value, ...]]
    accumulate: bool = False
    saturate: Callable[..., Value] | None = None
    preserve: bool = False
    raw: bool = False
    flush: bool = False
    vcc: bool = False
    lane: bool = False
    plain: bool = False
    nearest: bool = False
    endless: bool = False
    rounds: int | None = None


def sig(text: str, expression: Callable[..., Value | tuple[Value, ...]], **options: object) -> Signature:
    """``sig("f32 = f32 f32", …)``."""
    left, right = text.split("=")
    return Signature(tuple(left.split()), tuple(right.split()), expression, **options)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Source:
    kind: str
    ty: str
    neg: bool
    abs: bool
    sext: bool
    high: bool
    select: int

    def text(self) -> str:
        flags = "".join(c for c, on in (("n", self.neg), ("a", self.abs), ("x", self.sext), ("h", self.high)) if on)
        return f"{self.kind}{flags}{self.select if self.select != 6 else ''}"


def sign_mask(ty: str) -> int:
    return 1 << (WIDTH[ty] - 1)


def flush_denormals(b: Builder, value: Value, ty: str, keep: Value | None) -> Value:
    """Replaces denormals by zeros of the same sign; ``keep`` (an i1) is the mode bit that leaves them alone."""
    integer, exponent = {
        "f16": ("i16", 0x7C00),
        "f32": ("i32", 0x7F800000),
        "f64": ("i64", 0x7FF0000000000000),
    }[ty]
    raw = value.bitcast(integer)
    zero_exponent = (raw & exponent).cmp("eq", 0)
    if keep is not None:
        zero_exponent = zero_exponent & b.splat(~keep)
    sign = sign_mask(ty) - (1 << WIDTH[ty])  # as a signed constant
    return zero_exponent.select(raw & sign, raw).bitcast(LLVM_TYPE[ty])


FP16_OVERFLOW = 1 << 23
"""MODE.FP16_OVFL: f16 results that overflow become the largest finite number."""


def limit_half(b: Builder, value: Value, sources: list[Value]) -> Value:
    """Applies MODE.FP16_OVFL: an infinity that no source brought becomes the largest finite number of its sign.
    [CDNA3 ISA, "MODE"]"""
    on = b.splat((b.load("i32", b.w, state.MODE) & FP16_OVERFLOW).cmp("ne", 0))
    overflow = on & b.intrinsic("fabs", value).cmp("oeq", math.inf)
    for source in sources:
        if is_float(source.ty):
            overflow = overflow & b.intrinsic("fabs", source).cmp("one", math.inf)
    largest = b.intrinsic("copysign", b.const(value.ty, 65504.0), value)
    return overflow.select(largest, value)


_NO_OVERFLOW = (
    "v_min",
    "v_max",
    "v_med3",
    "v_cvt_i",
    "v_cvt_u",
    "v_cvt_flr",
    "v_cvt_rpi",
    "v_cvt_norm",
    "v_cvt_pknorm",
)
"""Integer results that are one of the sources, or saturate anyway: the clamp bit changes nothing."""


class Frame:
    """Emits one specialised vector op."""

    def __init__(self, inst: Instruction, context: Context, signature: Signature) -> None:
        self.inst, self.context, self.signature = inst, context, signature
        modifiers = inst.modifiers
        n_results, n_sources = len(signature.results), len(signature.sources)
        if len(inst.operands) != n_results + n_sources:
            raise Unsupported(f"{inst.name} with {len(inst.operands)} operands")
        self.results = inst.operands[:n_results]
        self.operands = inst.operands[n_results:]
        op_sel = modifiers.get("op_sel", 0)
        default = (1 << n_sources) - 1
        if signature.plain:
            if (
                op_sel
                or modifiers.get("op_sel_hi", default) != default
                or any(modifiers.get(n) for n in ("neg_lo", "neg_hi"))
            ):
                raise Unsupported(f"{inst.name} with selectors or negation")
        self.dst_high = bool(op_sel >> n_sources & 1) if signature.results[0] in ("i16", "f16") else False
        self.clamp = bool(modifiers.get("clamp", 0))
        self.omod = modifiers.get("omod", 0)
        self.sdwa = inst.encoding == "sdwa"
        self.dst_sel = modifiers.get("dst_sel", 6) if self.sdwa else 6
        self.dst_unused = modifiers.get("dst_unused", 0) if self.sdwa else 0
        self.dpp = dpp_module.Dpp.of(inst) if inst.encoding == "dpp" else None
        self.sources = [
            self._source(i, operand, ty, op_sel)
            for i, (operand, ty) in enumerate(zip(self.operands, signature.sources, strict=True))
        ]
        for operand, ty in zip(self.results, signature.results, strict=True):
            if (operand.kind in ("v", "a")) == (ty == "m") or operand.kind not in ("v", "a", "s", "special"):
                raise Unsupported(f"{inst.name} with destination {operand.kind}{operand.index}")
            if ty != "m":
                require(operand, WIDTH[ty] // 32, inst.name)
        integer = signature.results[0] in ("i16", "i32", "i64")
        if self.clamp and integer and signature.saturate is None and not inst.name.startswith(_NO_OVERFLOW):
            raise Unsupported(f"clamp on {inst.name}")

    def _source(self, i: int, operand: Operand, ty: str, op_sel: int) -> _Source:
        kind, _ = slot_of(operand)
        if kind == "v":
            require(operand, WIDTH.get(ty, 32) // 32, self.inst.name)
        select = self.inst.modifiers.get(f"src{i}_sel", 6) if self.sdwa else 6
        high = ty in ("i16", "f16") and bool(op_sel >> i & 1)
        if ty == "m" and kind == "v":
            raise Unsupported(f"{self.inst.name} with a vector register as lane mask")
        return _Source(kind, ty, operand.neg, operand.abs, operand.sext, high, select)

    def key(self) -> str:
        signature, context = self.signature, self.context
        parts = [self.inst.name, ",".join(source.text() for source in self.sources)]
        if self.dst_high:
            parts.append("hi")
        if self.clamp:
            parts.append("clamp" if context.dx10_clamp else "clampn")
        if self.omod and context.dynamic_mode:
            parts.append(f"omod{self.omod}")
        if not context.ieee and ("_min" in self.inst.name or "_max" in self.inst.name or "_med3" in self.inst.name):
            parts.append("ieee0")
        if self.sdwa:
            parts.append(f"sdwa{self.dst_sel}{self.dst_unused}")
        if self.dpp:
            parts.append(self.dpp.key())
        types = set(signature.results + signature.sources)
        if context.dynamic_mode and types & {"f16", "f32", "f64"} and not signature.raw:
            parts.append("mode")
        return "|".join(parts)

    def op(self) -> Op:
        slots = tuple(slot_of(o)[1] for o in (*self.results, *self.operands))
        checks = checks_of(*self.results, *self.operands)
        if self.signature.vcc:
            checks = (*checks, (state.CHECK_SGPR + state.VCC // 4, 2))
        return Op(self.key(), self.make, slots, checks)

    # ---- emission
    def make(self, symbol: str) -> str:
        shift = self._rounding()
        return self._make(symbol) if shift is None else rounded(symbol, self._make, shift)

    def _rounding(self) -> int | None:
        """Bit of MODE where the rounding mode stands that applies, None when the op always rounds to nearest even:
        results that are no floats, approximations, moves. [CDNA3 ISA, "MODE", "Floating-point rounding"]"""
        signature = self.signature
        if not self.context.dynamic_mode or signature.raw or signature.nearest:
            return None
        return {"f32": 0, "f16": 2, "f64": 2}.get(signature.results[0], signature.rounds)

    def _make(self, symbol: str) -> str:
        b = Builder(symbol)
        b.ieee = self.context.ieee
        signature = self.signature
        n_results = len(self.results)
        write = b.exec_mask()
        rows: list[Value | None] = []
        scalars: list[Value | None] = []
        for i, source in enumerate(self.sources):
            slot = n_results + i
            scalar: Value | None = None
            row: Value | None = None
            wide = source.ty in ("i64", "f64", "m")
            if source.kind == "v":
                row = b.row(slot)
            elif source.kind == "s":
                scalar = b.load("i64" if wide else "i32", b.row(slot))
            else:
                scalar = b.slot(slot, "i64" if wide else "i32")
            rows.append(row)
            scalars.append(scalar)
        if self.dpp:
            rows[0], write = self.dpp.apply(b, rows[0], write, wide=WIDTH.get(self.sources[0].ty, 32) == 64)
        masks = [b.var("i64", 0) if ty == "m" else None for ty in signature.results]
        keep_in, keep_out = self._denormal_bits(b)
        overflows = self.context.dynamic_mode and not signature.raw and not signature.endless
        with b.chunks() as chunk:
            values = [
                self._fetch(b, source, rows[i], scalars[i], chunk, keep_in) for i, source in enumerate(self.sources)
            ]
            if signature.accumulate:
                plain = _Source("v", signature.results[0], False, False, False, self.dst_high, 6)
                values.append(self._fetch(b, plain, b.row(0), None, chunk, keep_in))
            if signature.vcc:
                values.append(b.chunk_mask(b.load("i64", b.w, state.VCC), chunk))
            if signature.lane:
                values.append(b.lane_numbers(chunk))
            if self.clamp and signature.saturate:
                out: Value | tuple[Value, ...] = signature.saturate(b, *values)
            else:
                out = signature.expression(b, *values)
            outs = out if isinstance(out, tuple) else (out,)
            outs = tuple(
                limit_half(b, value, values) if overflows and ty == "f16" else value
                for value, ty in zip(outs, signature.results, strict=True)
            )
            for i, (value, ty) in enumerate(zip(outs, signature.results, strict=True)):
                mask = masks[i]
                if mask is not None:
                    bits_ = value.bitcast(f"i{LANES}").zext("i64") << (chunk * LANES)
                    mask.set(mask.get() | bits_)
                else:
                    self._store(b, i, ty, self._finish(b, value, ty, keep_out), chunk, write)
        for i, mask in enumerate(masks):
            if mask is not None:
                b.store(mask.get() & write, b.row(i), 0)
        b.next()
        return b.text()

    def _denormal_bits(self, b: Builder) -> tuple[dict[str, Value | None], dict[str, Value | None]]:
        """Per float type the mode bit that keeps denormal sources and results; absent when nothing is flushed."""
        if self.signature.flush:
            return {"f32": None, "f16": None}, {"f32": None, "f16": None}
        if not self.context.dynamic_mode or self.signature.raw:
            return {}, {}
        mode = b.load("i32", b.w, state.MODE)

        def bit(n: int) -> Value:
            return ((mode >> n) & 1).cmp("ne", 0)

        single_in, single_out, double_in, double_out = bit(4), bit(5), bit(6), bit(7)
        return (
            {"f32": single_in, "f16": double_in, "f64": double_in},
            {"f32": single_out, "f16": double_out, "f64": double_out},
        )

    def _fetch(
        self,
        b: Builder,
        source: _Source,
        row: Value | None,
        scalar: Value | None,
        chunk: Value,
        keep: dict[str, Value | None],
    ) -> Value:
        ty = source.ty
        width = WIDTH.get(ty, 1)
        if ty == "m":
            assert scalar is not None
            return b.chunk_mask(scalar, chunk)
        if row is not None:
            at = b.ptr(row, chunk * (4 * LANES))
            value = b.load(vec("i32", LANES), at, 0, 4 * LANES)
            if width == 64:
                high = b.load(vec("i32", LANES), at, 256, 4 * LANES)
                value = value.zext("i64") | (high.zext("i64") << 32)
        else:
            assert scalar is not None
            value = b.splat(scalar)
        if source.select != 6:
            value = self._sdwa_select(value, source, ty)
        if width == 16:
            if source.high:
                value = value >> 16
            value = value.trunc("i16")
        # Modifiers act on the sign bit of the pattern, whatever the declared type is.
        if source.abs:
            value = value & (sign_mask(ty) - 1)
        if source.neg:
            value = value ^ (sign_mask(ty) - (1 << width))
        if ty.startswith("f"):
            value = value.bitcast(LLVM_TYPE[ty])
            if ty in keep:
                value = flush_denormals(b, value, ty, keep[ty])
        return value

    @staticmethod
    def _sdwa_select(value: Value, source: _Source, ty: str) -> Value:
        """SDWA source selection: byte 0-3, word 4-5. [CDNA3 ISA, SDWA]"""
        width, shift = (8, 8 * source.select) if source.select < 4 else (16, 16 * (source.select - 4))
        if source.sext:
            return (value << (32 - width - shift)).ashr(32 - width)
        value = value >> shift if shift else value
        return value & ((1 << width) - 1)

    def _finish(self, b: Builder, value: Value, ty: str, keep: dict[str, Value | None]) -> Value:
        if not ty.startswith("f"):
            return value
        if self.omod and self.context.dynamic_mode:
            value = self._output_modifier(b, value, ty)
        if self.clamp:
            nan = value.cmp("uno", value)
            zero, one = b.const(value.ty, 0.0), b.const(value.ty, 1.0)
            low = value.cmp("olt", 0.0).select(zero, value)
            clamped = low.cmp("ogt", 1.0).select(one, low)
            value = nan.select(zero, clamped) if self.context.dx10_clamp else clamped
        if ty in keep:
            value = flush_denormals(b, value, ty, keep[ty])
        return value

    def _output_modifier(self, b: Builder, value: Value, ty: str) -> Value:
        """Multiplies by 2, 4 or 1/2; -0 becomes +0. Ignored while denormal results or IEEE mode are on.
        [CDNA3 ISA, "Output Modifiers"]"""
        mode = b.load("i32", b.w, state.MODE)
        off = (mode & ((1 << 9) | (1 << (5 if ty == "f32" else 7)))).cmp("ne", 0)
        scaled = value * {1: 2.0, 2: 4.0, 3: 0.5}[self.omod]
        scaled = scaled.cmp("oeq", 0.0).select(b.const(value.ty, 0.0), scaled)
        return b.splat(off).select(value, scaled)

    def _store(self, b: Builder, i: int, ty: str, value: Value, chunk: Value, write: Value) -> None:
        at = b.ptr(b.row(i), chunk * (4 * LANES))
        active = b.chunk_mask(write, chunk)
        width = WIDTH[ty]
        raw = value.bitcast(f"i{width}")
        parts = [raw]
        if width == 64:
            parts = [raw.trunc("i32"), (raw >> 32).trunc("i32")]
        old = b.load(vec("i32", LANES), at, 0, 4 * LANES)
        if width == 16:
            wide = raw.zext("i32")
            if self.dst_high:
                wide = (wide << 16) | (old & 0xFFFF)
            elif self.signature.preserve or self.inst.modifiers.get("op_sel", 0) >> len(self.sources) & 1:
                wide = wide | (old & -0x10000)
            parts = [wide]
        if self.sdwa and self.dst_sel != 6:
            parts = [self._sdwa_insert(parts[0], old)]
        for k, part in enumerate(parts):
            previous = old if k == 0 else b.load(vec("i32", LANES), at, 256 * k, 4 * LANES)
            b.store(active.select(part, previous), at, 256 * k, 4 * LANES)

    def _sdwa_insert(self, value: Value, old: Value) -> Value:
        """SDWA destination: unused bits are zero (0), sign extended (1) or kept (2). [CDNA3 ISA, SDWA]"""
        select = self.dst_sel
        width, shift = (8, 8 * select) if select < 4 else (16, 16 * (select - 4))
        mask = (1 << width) - 1
        part = value & mask
        if self.dst_unused == 2:
            return (part << shift) | (old & ~(mask << shift))
        if self.dst_unused == 1:
            return (part << (32 - width)).ashr(32 - width) << shift
        return part << shift


def lower_with(signature: Signature) -> Callable[[Instruction, Context], Op]:
    """The translator of an op with this signature."""

    def lower(inst: Instruction, context: Context) -> Op:
        return Frame(inst, context, signature).op()

    return lower
