"""Conversions with a scale between 8-, 6- and 4-bit floats and wider ones, and stochastic rounding to 16 bits (gfx950).

The scale is the exponent field of an f32: conversions to small formats divide by the power of two, conversions from them
multiply. [LLVM's ROCDL dialect, "cvt.scalef32"; CDNA4 ISA, "V_CVT_SCALEF32_*"; the selectors are those that LLVM 22 emits
for its intrinsics.] The sources of V_CVT_SCALEF32_2XPK16_* interleave: element 2i comes from the first, 2i + 1 from the
second [tests that their authors ran on the chip]. Assumed, not documented: a scale of 0xFF makes every element NaN; NaN
becomes the largest number in formats without NaN; all elements of one instruction use the same random number.
"""

from __future__ import annotations

import re

from tileir.records import dataclass

from .. import state
from ..decoder import Instruction, Operand
from .builder import LANES, Builder, Value, vec
from .convert import bf16_rne
from .op import Context, Lower, Op, Unsupported, checks_of, is_vector, require, slot_of
from .smallfloat import BF6, BF8_OCP, FP4, FP6, FP8_OCP, SmallFloat, decode, encode

SMALL = {"fp8": FP8_OCP, "bf8": BF8_OCP, "fp6": FP6, "bf6": BF6, "fp4": FP4}
_F16 = SmallFloat("f16", 5, 10, 15, "ieee")
_WIDE = {"f32": 32, "f16": 16, "bf16": 16}
_COUNT = {"": 1, "pk": 2, "pk32": 32, "2xpk16": 32}
_NAME = re.compile(
    r"v_cvt_scalef32_(?P<sr>sr_)?(?:(?P<group>2xpk16|pk32|pk)_)?(?P<to>[a-z0-9]+)_(?P<source>[a-z0-9]+)$"
)
_ROW = 4 * LANES


@dataclass(frozen=True)
class Shape:
    """What a mnemonic says. group: "", "pk", "pk32" or "2xpk16"."""

    stochastic: bool
    group: str
    to: str
    source: str

    @classmethod
    def of(cls, name: str) -> Shape:
        match = _NAME.match(name)
        assert match, name
        return cls(bool(match["sr"]), match["group"] or "", match["to"], match["source"])

    @property
    def count(self) -> int:
        """Elements."""
        return _COUNT[self.group]

    @property
    def down(self) -> bool:
        """From a wide format to a small one."""
        return self.to in SMALL

    @property
    def sources(self) -> tuple[int, ...]:
        """Registers of the operands that hold elements."""
        if self.group == "2xpk16":
            return 16, 16
        if self.down and self.group == "pk" and self.source == "f32" and not self.stochastic:
            return 1, 1
        return (max(1, self.count * (_WIDE[self.source] if self.down else SMALL[self.source].bits) // 32),)

    @property
    def registers(self) -> int:
        """Of the destination."""
        return max(1, self.count * (SMALL[self.to].bits if self.down else _WIDE[self.to]) // 32)

    @property
    def width(self) -> int:
        """Bits that are written, from the bit on that the selector names; the others keep their value."""
        bits = self.count * (SMALL[self.to].bits if self.down else _WIDE[self.to])
        return bits if bits < 32 else 32 * self.registers

    def source_bit(self, op_sel: int) -> int:
        """First bit of the elements in a small source."""
        if self.down or self.group == "pk32":
            return 0
        return 16 * (op_sel & 1) if self.group == "pk" and SMALL[self.source].bits == 8 else 8 * (op_sel & 3)

    def result_bit(self, op_sel: int) -> int:
        """First bit of a result that does not fill its register."""
        if self.width >= 32:
            return 0
        if self.width == 8:
            return 8 * (op_sel >> 2 & 3)
        return 16 * (op_sel >> (3 if self.down and self.source == "f32" else 2) & 1)

    def selectors(self) -> int:
        """The bits of op_sel that have a meaning."""
        used = 0
        if not self.down and self.group != "pk32":
            used |= 1 if self.group == "pk" and SMALL[self.source].bits == 8 else 3
        if self.width == 8:
            used |= 12
        elif self.width == 16:
            used |= 8 if self.down and self.source == "f32" else 4
        return used


def _widen(source: str, word: Value, high: bool) -> Value:
    """An element of a wide format as f32."""
    if source == "f32":
        return word.bitcast("float")
    if source == "bf16":
        return (word & -0x10000 if high else word << 16).bitcast("float")
    return (word >> 16 if high else word).trunc("i16").bitcast("half").cast("fpext", "float")


def _scaled(b: Builder, x: Value, scale: Value, down: bool) -> Value:
    """x divided (down) or multiplied by the power of two in the exponent field of ``scale``."""
    exponent = (scale >> 23) & 255
    if down:
        exponent = b.const(exponent.ty, 254) - exponent
    # 2^-127 is a denormal, which the exponent field alone does not express
    factor = exponent.cmp("eq", 0).select(b.const(exponent.ty, 0x00400000), exponent << 23).bitcast("float")
    invalid = ((scale >> 23) & 255).cmp("eq", 255)
    return invalid.select(b.const(vec("i32", LANES), 0x7FC00000).bitcast("float"), x * factor)


def _put(words: list[Value | None], code: Value, bit: int, bits: int) -> None:
    """Or-s the low bits of ``code`` into a stream of dwords at a bit position."""
    word, shift = divmod(bit, 32)
    for at, part in ((word, code << shift if shift else code), (word + 1, code >> (32 - shift) if shift else code)):
        if at == word or shift + bits > 32:
            old = words[at]
            words[at] = part if old is None else old | part


def _take(b: Builder, words: list[Value], bit: int, bits: int) -> Value:
    """An element of a stream of dwords; what lies above it may be garbage."""
    word, shift = divmod(bit, 32)
    value = words[word] >> shift if shift else words[word]
    return value if shift + bits <= 32 else value | (words[word + 1] << (32 - shift))


class _Operand:
    """A source: rows of a vector register, or the same dword for all lanes."""

    def __init__(self, inst: Instruction, number: int, registers: int) -> None:
        operand: Operand = inst.operands[number]
        self.slot, self.registers, self.vector = number, registers, is_vector(operand)
        self.neg, self.abs = operand.neg, operand.abs
        if self.vector:
            require(operand, registers, inst.name)
        elif registers > 1:
            raise Unsupported(f"{inst.name} with a source of {registers} registers that is no vector register")
        self.kind = slot_of(operand)[0]

    def load(self, b: Builder, chunk: Value) -> list[Value]:
        if self.vector:
            at = [b.ptr(b.row(self.slot, r), chunk * _ROW) for r in range(self.registers)]
            return [b.load(vec("i32", LANES), pointer, 0, _ROW) for pointer in at]
        return [b.splat(b.load("i32", b.row(self.slot)) if self.kind == "s" else b.slot(self.slot, "i32"))]

    def modified(self, pattern: Value) -> Value:
        """An f32 with the source modifiers."""
        if self.abs:
            pattern = pattern & 0x7FFFFFFF
        return pattern ^ -0x80000000 if self.neg else pattern


def _elements(b: Builder, shape: Shape, sources: list[list[Value]], op_sel: int) -> list[Value]:
    """The source elements as f32."""
    if not shape.down:
        f, first = SMALL[shape.source], shape.source_bit(op_sel)
        return [decode(b, f, _take(b, sources[0], first + i * f.bits, f.bits)) for i in range(shape.count)]
    if len(sources) == 2:
        return [word.bitcast("float") for pair in zip(*sources, strict=True) for word in pair]
    if shape.source == "f32":
        return [word.bitcast("float") for word in sources[0]]
    return [_widen(shape.source, sources[0][i // 2], bool(i & 1)) for i in range(shape.count)]


def _code(b: Builder, shape: Shape, x: Value, saturate: Value, random: Value | None) -> Value:
    """An element in the destination's format, in the low bits."""
    if shape.down:
        return encode(b, SMALL[shape.to], x, saturate, random=random)
    if shape.to == "f32":
        return x.bitcast("i32")
    return bf16_rne(b, x) if shape.to == "bf16" else x.cast("fptrunc", "half").bitcast("i16").zext("i32")


def _lower(inst: Instruction, context: Context) -> Op:
    shape = Shape.of(inst.name)
    op_sel = inst.modifiers.get("op_sel", 0)
    if op_sel & ~shape.selectors() or set(inst.modifiers) - {"op_sel"}:
        raise Unsupported(f"{inst.name} with other selectors or modifiers than its own")
    require(inst.operands[0], shape.registers, inst.name)
    sources = [_Operand(inst, 1 + i, registers) for i, registers in enumerate(shape.sources)]
    random = _Operand(inst, 1 + len(sources), 1) if shape.stochastic else None
    scale = _Operand(inst, 1 + len(sources) + shape.stochastic, 1)
    if any((s.neg or s.abs) and (shape.count > 2 or s.registers > 1 or shape.source != "f32") for s in sources):
        raise Unsupported(f"{inst.name} with a modifier on packed elements")

    def make(symbol: str) -> str:
        b = Builder(symbol)
        write = b.exec_mask()
        # MODE.FP16_OVFL, bit 23
        saturate = ((b.load("i32", b.w, state.MODE) >> 23) & 1).cmp("ne", 0)
        with b.chunks() as chunk:
            loaded = [s.load(b, chunk) for s in sources]
            for s, row in zip(sources, loaded, strict=True):
                row[0] = s.modified(row[0])
            noise = random.load(b, chunk)[0] if random else None
            factor = scale.load(b, chunk)[0]
            bits = SMALL[shape.to].bits if shape.down else _WIDE[shape.to]
            words: list[Value | None] = [None] * (shape.registers + 1)
            for i, x in enumerate(_elements(b, shape, loaded, op_sel)):
                _put(words, _code(b, shape, _scaled(b, x, factor, shape.down), saturate, noise), i * bits, bits)
            active = b.chunk_mask(write, chunk)
            first, mask = shape.result_bit(op_sel), (1 << min(shape.width, 32)) - 1
            for r in range(shape.registers):
                at = b.ptr(b.row(0, r), chunk * _ROW)
                old = b.load(vec("i32", LANES), at, 0, _ROW)
                new = words[r]
                assert new is not None
                if shape.width < 32:
                    keep = ~(mask << first) & 0xFFFFFFFF
                    new = ((new & mask) << first) | (old & (keep - (keep >> 31 << 32)))
                b.store(active.select(new, old), at, 0, _ROW)
        b.next()
        return b.text()

    parts = [inst.name, f"{op_sel}"]
    parts += [f"{s.kind}{'n' * s.neg}{'a' * s.abs}" for s in (*sources, *([random] if random else []), scale)]
    return Op("|".join(parts), make, tuple(slot_of(o)[1] for o in inst.operands), checks_of(*inst.operands))


def _lower_stochastic_half(inst: Instruction, context: Context) -> Op:
    """v_cvt_sr_f16_f32 and v_cvt_sr_bf16_f32: the half that op_sel does not name keeps its value."""
    op_sel = inst.modifiers.get("op_sel", 0)
    if op_sel & 3 or set(inst.modifiers) - {"op_sel"}:
        raise Unsupported(f"{inst.name} with other selectors or modifiers than its own")
    require(inst.operands[0], 1, inst.name)
    source, random = _Operand(inst, 1, 1), _Operand(inst, 2, 1)
    brain, shift = "bf16" in inst.name, 16 * (op_sel >> 2 & 1)

    def make(symbol: str) -> str:
        b = Builder(symbol)
        write = b.exec_mask()
        saturate = ((b.load("i32", b.w, state.MODE) >> 23) & 1).cmp("ne", 0)
        with b.chunks() as chunk:
            pattern, noise = source.modified(source.load(b, chunk)[0]), random.load(b, chunk)[0]
            if brain:
                rounded = (pattern + (noise >> 16)) >> 16
                code = (pattern & 0x7FFFFFFF).cmp("ugt", 0x7F800000).select((pattern >> 16) | 0x40, rounded)
            else:
                code = encode(b, _F16, pattern.bitcast("float"), saturate, random=noise)
            at = b.ptr(b.row(0), chunk * _ROW)
            old = b.load(vec("i32", LANES), at, 0, _ROW)
            new = (code << 16) | (old & 0xFFFF) if shift else (code & 0xFFFF) | (old & -0x10000)
            b.store(b.chunk_mask(write, chunk).select(new, old), at, 0, _ROW)
        b.next()
        return b.text()

    flags = f"{source.kind}{'n' * source.neg}{'a' * source.abs}{random.kind}"
    key = f"{inst.name}|{shift}|{flags}"
    return Op(key, make, tuple(slot_of(o)[1] for o in inst.operands), checks_of(*inst.operands))


def _names() -> list[str]:
    """The scaled conversions that gfx950 has."""
    names: list[str] = []
    for small in ("fp8", "bf8"):
        names += [f"pk_{small}_{w}" for w in _WIDE] + [f"sr_{small}_{w}" for w in _WIDE]
        names += [f"pk_{w}_{small}" for w in _WIDE] + [f"f32_{small}", f"f16_{small}"]
    names += [form.format(w) for w in _WIDE for form in ("pk_fp4_{}", "sr_pk_fp4_{}", "pk_{}_fp4")]
    for small in ("fp6", "bf6"):
        names += [f"2xpk16_{small}_f32", *(f"sr_pk32_{small}_{w}" for w in _WIDE)]
        names += [f"pk32_{small}_{w}" for w in ("f16", "bf16")] + [f"pk32_{w}_{small}" for w in _WIDE]
    return [f"v_cvt_scalef32_{name}" for name in names]


OPS: dict[str, Lower] = {
    **dict.fromkeys(_names(), _lower),
    **dict.fromkeys(("v_cvt_sr_f16_f32", "v_cvt_sr_bf16_f32"), _lower_stochastic_half),
}
