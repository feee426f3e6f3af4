"""Matrix fused multiply-add. D = A·B + C on 64 lanes; EXEC is ignored. [CDNA3 / CDNA4 ISA, "Matrix instructions"]

A and B are first spread out as f32, f64 or i32 matrices ``A[k][row]`` and ``B[k][column]`` in local memory; then rows
of D, which are contiguous lanes of a register, are accumulated with k ascending, one fused step per product. Products
of 16- and 8-bit formats are exact in f32. The hardware's order of accumulation is not published; results are compared
with tolerances that grow with k.

Lane maps, lane l, element e counted over the registers of the operand. One block: ``row = l % M``,
``k = (K·M / 64)·(l / M) + e``; several blocks: ``row = l % M``, ``block = l / M``, ``k = e``. D, 32-bit:
``column = l % N``, ``row = 4·(l / N) + e % 4 + 8·(e / 4)`` for 32x32 and ``4·(l / 16) + e`` for 16x16, further blocks
in further registers; 4x4: ``row = e``, ``block = l / 4``. D, f64 16x16: ``row = l / 16 + 4·e``.
f8f6f4: 8-bit operands ``k = 16·(l / M) + (K/2)·(vgpr / 4) + 4·(vgpr % 4) + byte``; 6- and 4-bit operands
``k = 32·(l / M) + e``; the scale of row r and k-block b (32 elements) is in lane ``M·b + r``.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tileir.records import dataclass

from ..decoder import Instruction, Operand
from .builder import Builder, Value, vec
from .op import Context, Lower, Op, Unsupported, checks_of, require, slot_of
from .smallfloat import BF6, FP4, FP6, SmallFloat, bf8, decode, fp8

_NAME = re.compile(r"v_mfma_(?:scale_)?(f32|f64|i32)_(\d+)x(\d+)x(\d+)(?:_(\d+)b)?_([a-z0-9_]+)$")


@dataclass(frozen=True)
class Shape:
    """M = N, K, number of blocks, formats of A and B, result type."""

    result: str
    m: int
    k: int
    blocks: int
    a: str
    b: str


def shape_of(name: str) -> Shape:
    """The shape that a mnemonic says."""
    match = _NAME.match(name)
    if match is None:
        raise Unsupported(name)
    result, m, n, k, blocks, kinds = match.groups()
    if m != n:
        raise Unsupported(name)
    parts = kinds.split("_")
    if parts[-1] == "1k":
        parts.pop()
    if len(parts) == 1:
        parts *= 2
    return Shape(result, int(m), int(k), int(blocks or 1), parts[0], parts[1])


ELEMENT = {"f32": "float", "f64": "double", "i32": "i32"}
_F8F6F4 = ("fp8", "bf8", "fp6", "bf6", "fp4")
ROWS_AT_ONCE = 8
"""Vectors of 16 lanes accumulated together: enough to hide the latency of a host fma, few enough for its registers."""


def small_format(kind: str, chip: str) -> SmallFloat | None:
    return {"fp8": fp8(chip), "bf8": bf8(chip), "fp6": FP6, "bf6": BF6, "fp4": FP4}.get(kind)


def bits_of(kind: str) -> int:
    return {
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
    }.get(kind, 4)


def k_of(shape: Shape, kind: str, group: int, element: int) -> int:
    """k of an element; ``group = l / M`` (single block)."""
    if shape.a == "f8f6f4" or (shape.k >= 64 and kind in _F8F6F4):
        if bits_of(kind) == 8:
            vgpr, byte = divmod(element, 4)
            return 16 * group + shape.k // 2 * (vgpr // 4) + 4 * (vgpr % 4) + byte
        return 32 * group + element
    return shape.k * shape.m // 64 * group + element


def d_row(shape: Shape, element: int, group: int) -> int:
    """Row of D of element ``element`` in lanes ``group·N …``; blocks counted separately."""
    if shape.result == "f64":
        return group + 4 * element
    if shape.m == 32:
        return 4 * group + element % 4 + 8 * (element // 4)
    return 4 * group + element


class Spread:
    """Writes operand elements as ``buffer[k][row]``; several blocks as ``buffer[k][lane]``."""

    def __init__(self, b: Builder, shape: Shape, kind: str, chip: str, slot: int, *, negated: bool = False) -> None:
        self.negated = negated
        """Only f64 operands can be negated. [CDNA3 ISA, V_MFMA_F64: BLGP holds NEG]"""
        self.b, self.shape, self.kind, self.chip, self.slot = b, shape, kind, chip, slot
        self.element = ELEMENT[shape.result]
        self.width = 64 if shape.blocks > 1 else shape.m
        self.size = 8 if self.element == "double" else 4
        self.buffer = b.alloca(f"[{shape.k * self.width} x {self.element}]")

    def at(self, k: int, row: int = 0) -> int:
        """Byte offset of an entry."""
        return self.size * (k * self.width + row)

    def run(self) -> None:
        b, shape = self.b, self.shape
        row = b.row(self.slot)
        bits_ = bits_of(self.kind)
        per_lane = shape.k if shape.blocks > 1 else shape.k * shape.m // 64
        if bits_ == 6:
            for e in range(per_lane):
                dword, shift = divmod(6 * e, 32)
                low = b.load("<64 x i32>", row, 256 * dword, 64) >> shift
                if shift > 26:
                    low = low | (b.load("<64 x i32>", row, 256 * (dword + 1), 64) << (32 - shift))
                self._put(e, self._convert(low, 0))
            return
        if bits_ == 64:
            low = b.load("<64 x i32>", row, 0, 64).zext("i64")
            high = b.load("<64 x i32>", row, 256, 64).zext("i64")
            value = (low | (high << 32)).bitcast("double")
            self._put(0, -value if self.negated else value)
            return
        for e in range(per_lane):
            dword, part = divmod(e, 32 // bits_)
            self._put(e, self._convert(b.load("<64 x i32>", row, 256 * dword, 64), bits_ * part))

    def _convert(self, raw: Value, shift: int) -> Value:
        b = self.b
        small = small_format(self.kind, self.chip)
        if small is not None:
            return decode(b, small, raw >> shift if shift else raw)
        if self.kind == "bf16":
            return (raw & -0x10000 if shift else raw << 16).bitcast("float")
        if self.kind == "f16":
            return (raw >> shift if shift else raw).trunc("i16").bitcast("half").cast("fpext", "float")
        if self.kind == "i8":
            return (raw << (24 - shift)).ashr(24)
        if self.kind == "xf32":
            # Ten explicit mantissa bits are used; the hardware's rounding of the rest is not published: truncated.
            return (raw & -(1 << 13)).bitcast("float")
        if self.kind == "f32":
            return raw.bitcast("float")
        raise Unsupported(f"matrix operand of type {self.kind}")

    def _put(self, element: int, values: Value) -> None:
        b, shape = self.b, self.shape
        if shape.blocks > 1:
            b.store(values, self.buffer, self.at(element), 64)
            return
        for group in range(64 // shape.m):
            part = values.shuffle(list(range(group * shape.m, (group + 1) * shape.m)))
            b.store(part, self.buffer, self.at(k_of(shape, self.kind, group, element)), 4)

    def scale(self, slot: int, scalar: str, byte: int) -> None:
        """Multiplies by 2**(scale - 127); 255 is NaN."""
        b, shape = self.b, self.shape
        if scalar == "v":
            raw = b.load("<64 x i32>", b.row(slot), 0, 64)
        elif scalar == "s":
            raw = b.splat(b.load("i32", b.row(slot)), 64)
        else:
            raw = b.splat(b.slot(slot, "i32"), 64)
        code = (raw >> (8 * byte)) & 0xFF
        # 2**-127 is the denormal 0x00400000.
        pattern = code.cmp("eq", 0).select(b.const(code.ty, 0x00400000), code << 23)
        pattern = code.cmp("eq", 255).select(b.const(code.ty, 0x7FC00000), pattern)
        factors = pattern.bitcast("float")
        for k in range(shape.k):
            block = k // 32
            part = factors.shuffle(list(range(block * shape.m, (block + 1) * shape.m)))
            old = b.load(vec("float", shape.m), self.buffer, self.at(k), 4)
            b.store(old * part, self.buffer, self.at(k), 4)


def accumulate(b: Builder, a: Value, x: Value, c: Value) -> Value:
    return a * x + c if c.ty.endswith("i32>") else b.fma(a, x, c)


class Result:
    """Rows of C and D."""

    def __init__(
        self, b: Builder, element: str, c_kind: str, d_slot: int, c_slot: int, *, negated: bool = False
    ) -> None:
        self.negated = negated
        self.b, self.element, self.c_kind, self.d_slot, self.c_slot = b, element, c_kind, d_slot, c_slot
        self.wide = element == "double"
        self.source: Value | None = None

    def set_aside(self, count: int) -> None:
        """Copies the ``count`` registers of C, which overlap those of D: all are read before any is written."""
        b = self.b
        self.source = b.alloca(f"[{64 * count} x i32]")
        row = b.row(self.c_slot)
        for register in range(count):
            b.store(b.load("<64 x i32>", row, 256 * register, 4), self.source, 256 * register, 4)

    def load(self, register: int, first: int, n: int) -> Value:
        b = self.b
        if self.c_kind == "k":
            constant = b.slot(self.c_slot, "i64" if self.wide else "i32").bitcast(self.element)
            return b.splat(-constant if self.negated else constant, n)
        row = self.source or b.row(self.c_slot)
        if not self.wide:
            return b.load(vec(self.element, n), row, 256 * register + 4 * first, 4)
        low = b.load(vec("i32", n), row, 512 * register + 4 * first, 4).zext("i64")
        high = b.load(vec("i32", n), row, 512 * register + 256 + 4 * first, 4).zext("i64")
        value = (low | (high << 32)).bitcast("double")
        return -value if self.negated else value

    def store(self, value: Value, register: int, first: int) -> None:
        b = self.b
        row = b.row(self.d_slot)
        if not self.wide:
            b.store(value, row, 256 * register + 4 * first, 4)
            return
        raw = value.bitcast("i64")
        b.store(raw.trunc("i32"), row, 512 * register + 4 * first, 4)
        b.store((raw >> 32).trunc("i32"), row, 512 * register + 256 + 4 * first, 4)


def _single_block(b: Builder, shape: Shape, left: Spread, right: Spread, result: Result) -> None:
    """Rows of D are runs of N lanes; a batch of rows is accumulated over k in a loop."""
    n, element = shape.m, ELEMENT[shape.result]
    registers = shape.m * shape.m // 64
    rows = [(e, g) for e in range(registers) for g in range(64 // n)]
    batch = max(1, ROWS_AT_ONCE * 16 // n)
    for start in range(0, len(rows), batch):
        part = rows[start : start + batch]
        sums = [b.var(vec(element, n), result.load(e, g * n, n)) for e, g in part]
        with b.loop(shape.k) as k:
            line = b.load(vec(element, n), b.ptr(right.buffer, k * right.at(1)), 0, 4)
            column = b.ptr(left.buffer, k * left.at(1))
            for (e, g), total in zip(part, sums, strict=True):
                factor = b.splat(b.load(element, column, left.size * d_row(shape, e, g)), n)
                total.set(accumulate(b, factor, line, total.get()))
        for (e, g), total in zip(part, sums, strict=True):
            result.store(total.get(), e, g * n)


def block_row_lanes(shape: Shape, element: int) -> tuple[list[int], list[int]]:
    """For several blocks: for each lane of D's element the lane of A (its row) and the lane of B (its column)."""
    m = shape.m
    a_lanes: list[int] = []
    b_lanes: list[int] = []
    for lane in range(64):
        if m == 4:
            block, row, column = lane // 4, element, lane % 4
        else:
            per_block = m * m // 64
            block, within = divmod(element, per_block)
            row, column = d_row(shape, within, lane // m), lane % m
        a_lanes.append(block * m + row)
        b_lanes.append(block * m + column)
    return a_lanes, b_lanes


def _blocks(
    b: Builder, shape: Shape, left: Spread, right: Spread, result: Result, a_map: list[int], b_map: list[int]
) -> None:
    element = ELEMENT[shape.result]
    ty = f"<64 x {element}>"
    outs: list[Value] = []
    registers = shape.m * shape.m * shape.blocks // 64
    for e in range(registers):
        a_lanes, b_lanes = block_row_lanes(shape, e)
        total = result.load(e, 0, 64)
        for k in range(shape.k):
            factor = b.load(ty, left.buffer, left.at(k), 64).shuffle([a_map[i] for i in a_lanes])
            line = b.load(ty, right.buffer, right.at(k), 64).shuffle([b_map[i] for i in b_lanes])
            total = accumulate(b, factor, line, total)
        outs.append(total)
    for e, out in enumerate(outs):
        result.store(out, e, 0)


def _f64_4x4(b: Builder, left: Spread, right: Spread, result: Result) -> None:
    """v_mfma_f64_4x4x4_4b: A row l % 4, block (l / 4) % 4, k = l / 16; D row l / 16, column l % 4."""
    ty = "<64 x double>"
    total = result.load(0, 0, 64)
    a, x = b.load(ty, left.buffer, 0, 64), b.load(ty, right.buffer, 0, 64)
    for k in range(4):
        a_lanes = [16 * k + 4 * (lane // 4 % 4) + lane // 16 for lane in range(64)]
        b_lanes = [16 * k + lane % 16 for lane in range(64)]
        total = b.fma(a.shuffle(a_lanes), x.shuffle(b_lanes), total)
    result.store(total, 0, 0)


def broadcast_lanes(cbsz: int, abid: int, m: int) -> list[int]:
    """CBSZ/ABID: block ``abid`` of each group of 2**cbsz blocks of A stands for the whole group."""
    group = m << cbsz
    return [lane // group * group + abid * m + lane % m if cbsz else lane for lane in range(64)]


def pattern_lanes(blgp: int) -> list[int]:
    """BLGP: permutation of B's lanes. [CDNA3 ISA, "BLGP"]"""
    maps: dict[int, Callable[[int], int]] = {
        0: lambda lane: lane,
        1: lambda lane: lane % 32,
        2: lambda lane: 32 + lane % 32,
        3: lambda lane: (lane + 16) % 64,
        4: lambda lane: lane % 16,
        5: lambda lane: 16 + lane % 16,
        6: lambda lane: 32 + lane % 16,
        7: lambda lane: 48 + lane % 16,
    }
    return [maps[blgp](lane) for lane in range(64)]


def _operand_kind(shape: Shape, which: str, modifiers: dict[str, int]) -> str:
    if shape.a != "f8f6f4":
        return shape.a if which == "a" else shape.b
    code = modifiers.get("cbsz" if which == "a" else "blgp", 0)
    if code >= len(_F8F6F4):
        raise Unsupported(f"matrix format {code}")
    return _F8F6F4[code]


def _lower(inst: Instruction, context: Context) -> Op:
    shape = shape_of(inst.name)
    modifiers = dict(inst.modifiers)
    scaled = "_scale_" in inst.name
    d, a, x, c = inst.operands[:4]
    scales = inst.operands[4:6] if scaled else ()
    if a.kind not in ("v", "a") or x.kind not in ("v", "a"):
        raise Unsupported(f"{inst.name} with a scalar matrix operand")
    c_kind = slot_of(c)[0]
    if c_kind == "s":
        raise Unsupported(f"{inst.name} with a scalar accumulator")
    a_kind, b_kind = _operand_kind(shape, "a", modifiers), _operand_kind(shape, "b", modifiers)
    plain = shape.a == "f8f6f4"
    cbsz, abid, blgp = (0, 0, 0) if plain else (modifiers.get(n, 0) for n in ("cbsz", "abid", "blgp"))
    neg = modifiers.get("neg", 0)
    if neg and shape.result != "f64":
        raise Unsupported(f"{inst.name} with negated operands")
    if shape.result == "f64" and (blgp or cbsz):
        raise Unsupported(f"{inst.name} with cbsz or blgp")
    if (cbsz or blgp) and shape.blocks == 1:
        raise Unsupported(f"{inst.name} with cbsz or blgp")
    if 1 << cbsz > shape.blocks or abid >= 1 << cbsz:
        raise Unsupported(f"{inst.name} with cbsz {cbsz} and abid {abid} for {shape.blocks} blocks")
    op_sel, op_sel_hi = modifiers.get("op_sel", 0), modifiers.get("op_sel_hi", 0) if scaled else 0
    scale_kinds = "".join(slot_of(o)[0] for o in scales)
    _require_registers(inst, d, shape)
    per_lane = 1 if a_kind == "f64" else shape.k if shape.blocks > 1 else shape.k * shape.m // 64
    for operand, kind in ((a, a_kind), (x, b_kind)):
        require(operand, per_lane * bits_of(kind) // 32, inst.name)
    if c_kind == "v":
        require(c, d.count, inst.name)
    for operand in scales:
        if operand.kind in ("v", "a"):
            require(operand, 1, inst.name)

    overlap = c.kind == d.kind and 0 < abs(c.index - d.index) < d.count

    def make(symbol: str) -> str:
        b = Builder(symbol)
        left = Spread(b, shape, a_kind, context.chip, 1, negated=bool(neg & 1))
        right = Spread(b, shape, b_kind, context.chip, 2, negated=bool(neg & 2))
        left.run()
        right.run()
        for which, side in enumerate((left, right) if scaled else ()):
            byte = (op_sel >> which & 1) | (op_sel_hi >> which & 1) << 1
            side.scale(4 + which, scale_kinds[which], byte)
        result = Result(b, ELEMENT[shape.result], c_kind, 0, 3, negated=bool(neg & 4))
        if overlap:
            result.set_aside(d.count)
        if shape.result == "f64" and shape.m == 4:
            _f64_4x4(b, left, right, result)
        elif shape.blocks > 1:
            _blocks(b, shape, left, right, result, broadcast_lanes(cbsz, abid, shape.m), pattern_lanes(blgp))
        else:
            _single_block(b, shape, left, right, result)
        b.next()
        return b.text()

    key = f"{inst.name}|{context.chip}|{a_kind}{b_kind}{c_kind}|{cbsz}.{abid}.{blgp}|{scale_kinds}{op_sel}.{op_sel_hi}|{d.count if overlap else 0}|{neg}"
    operands = inst.operands[: 4 + len(scales)]
    return Op(key, make, tuple(slot_of(o)[1] for o in operands), checks_of(*operands))


def _require_registers(inst: Instruction, d: Operand, shape: Shape) -> None:
    wanted = shape.m * shape.m * shape.blocks // 64 * (2 if shape.result == "f64" else 1)
    if d.kind not in ("v", "a") or d.count != wanted:
        raise Unsupported(f"{inst.name} with a result of {d.count} registers, {wanted} expected")


def _names() -> list[str]:
    names: list[str] = []
    for kind in ("bf16", "f16"):
        shapes = ("16x16x16", "32x32x8", "16x16x32", "32x32x16", "32x32x4_2b", "16x16x4_4b", "4x4x4_16b")
        names += [f"v_mfma_f32_{s}_{kind}" for s in shapes]
    names += [f"v_mfma_f32_{s}_f32" for s in ("32x32x1_2b", "16x16x1_4b", "4x4x1_16b", "32x32x2", "16x16x4")]
    names += ["v_mfma_f32_16x16x8_xf32", "v_mfma_f32_32x32x4_xf32"]
    names += ["v_mfma_f64_16x16x4_f64", "v_mfma_f64_4x4x4_4b_f64"]
    shapes = ("32x32x4_2b", "16x16x4_4b", "4x4x4_16b", "32x32x16", "16x16x32", "16x16x64", "32x32x32")
    names += [f"v_mfma_i32_{s}_i8" for s in shapes]
    pairs = [f"{p}_{q}" for p in ("fp8", "bf8") for q in ("fp8", "bf8")]
    names += [f"v_mfma_f32_{s}_{pair}" for s in ("16x16x32", "32x32x16") for pair in pairs]
    for s in ("16x16x128", "32x32x64"):
        names += [f"v_mfma_f32_{s}_f8f6f4", f"v_mfma_scale_f32_{s}_f8f6f4"]
    return names


OPS: dict[str, Lower] = dict.fromkeys(_names(), _lower)
