"""Elementwise ops, on scalars and on the pieces of tiles alike: LLVM's arithmetic works on vectors of any length."""

from __future__ import annotations

from collections.abc import Callable

from tileir.ir.core import Op, Value
from tileir.ir.types import BF16, F32, F64, I1, I16, I32, I64, Elem, FragmentType, TileType
from tileir.layout.broadcasts import broadcast_registers
from tileir.lowering.amdgpu.emit import packed
from tileir.lowering.amdgpu.emit.coords import Coordinate
from tileir.lowering.amdgpu.emit.small_floats import SmallFloats, needs_codes
from tileir.lowering.amdgpu.emit.state import State
from tileir.lowering.amdgpu.emit.tiles import Tile, tied
from tileir.lowering.amdgpu.emit.writer import scalar_type, vector_type
from tileir.passes.uniform import axes_of

_INT = {"add": "add", "sub": "sub", "mul": "mul", "div": "sdiv", "mod": "srem", "and": "and", "or": "or", "xor": "xor"}
_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "mod": "frem"}
_COMPARE = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}
_FCOMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
# Functions that exist as LLVM intrinsics and are single instructions.
_INTRINSIC = {"floor": "floor", "ceil": "ceil", "round": "roundeven"}
_PACKED = ("add", "sub", "mul", "fma")  # one instruction for two f32
_FAST_FLAGS = {
    "default": " {fastmathFlags = #llvm.fastmath<contract>}",
    "strict": "",
    "fast": " {fastmathFlags = #llvm.fastmath<contract, reassoc, arcp, afn>}",
}


class Pieces:
    """Emits one op for operands in pieces of `n` elements."""

    def __init__(self, s: State, op: Op, n: int):
        self.s, self.w, self.op, self.n = s, s.w, op, n
        self.elem = op.operands[0].elem
        self.flags = _FAST_FLAGS[s.kernel.fp]

    def type(self, elem: Elem | None = None) -> str:
        return vector_type(scalar_type(elem or self.elem), self.n)

    def const(self, value: int | float | bool, elem: Elem | None = None) -> str:
        return self.s.splat_literal(value, elem or self.elem, self.n)

    def plain(self, name: str, *args: str, elem: Elem | None = None, flags: bool = True) -> str:
        """An LLVM operation with operands and result of one type."""
        elem = elem or self.elem
        text = self.flags if flags and elem.is_float else ""
        return self.w.op(f"llvm.{name} {', '.join(args)}{text} : {self.type(elem)}")

    def intrinsic(self, name: str, *args: str, elem: Elem | None = None) -> str:
        t = self.type(elem)
        return self.w.op(f"llvm.intr.{name}({', '.join(args)}) : ({', '.join([t] * len(args))}) -> {t}")

    def cast(self, name: str, x: str, source: Elem, target: Elem) -> str:
        return self.w.op(f"llvm.{name} {x} : {self.type(source)} to {self.type(target)}")

    def select(self, c: str, a: str, b: str, elem: Elem | None = None) -> str:
        return self.w.op(f"llvm.select {c}, {a}, {b} : {self.type(I1)}, {self.type(elem)}")

    # -- the ops -------------------------------------------------------------------------------------------------------

    def emit(self, a: list[str]) -> str:
        name, e = self.op.name, self.elem
        if name == "convert":
            return self.conversion(a)
        if e.is_float and e.bits <= 8 and name != "bitcast":
            raise self.s.unsupported(f"'{name}' on {e}", self.op.loc, "convert to f32 on the host, or keep bytes as i8")
        if name in _COMPARE:
            kind = "fcmp" if e.is_float else "icmp"
            predicate = (_FCOMPARE if e.is_float else _COMPARE)[name]
            if e.is_bool and name in ("lt", "le", "gt", "ge"):
                predicate = predicate.replace("s", "u", 1)
            return self.w.op(f'llvm.{kind} "{predicate}" {a[0]}, {a[1]} : {self.type()}')
        if name == "bitcast":
            target = self.op.attrs["elem"]
            assert isinstance(target, Elem)
            return self.w.bitcast(a[0], self.type(), self.type(target))
        if name == "where":
            element = self.op.operands[1].elem
            if scalar_type(element) in packed.WIDTHS:
                return packed.select(self.w, a[0], a[1], a[2], scalar_type(element), self.n)
            return self.select(a[0], a[1], a[2], element)
        if e.is_float:
            return self.float_op(name, a)
        return self.int_op(name, a)

    def int_op(self, name: str, a: list[str]) -> str:
        e = self.elem
        if name in ("div", "mod", "cdiv") and not _harmless_divisor(self.op.operands[1]):
            return self.guarded_division(name, a)
        if name in _INT:
            return self.plain(_INT[name], *a)
        match name:
            case "min" | "max":
                return self.intrinsic(f"s{name}", *a)
            case "clamp":
                return self.intrinsic("smin", self.intrinsic("smax", a[0], a[1]), a[2])
            case "neg":
                return self.plain("sub", self.const(0), a[0])
            case "not":
                return self.plain("xor", a[0], self.const(True if e.is_bool else -1))
            case "abs":
                t = self.type()
                return self.w.op(f'"llvm.intr.abs"({a[0]}) <{{is_int_min_poison = false}}> : ({t}) -> {t}')
            case "shl" | "shr":
                count = self.plain("and", a[1], self.const(e.bits - 1))
                return self.plain("shl" if name == "shl" else "ashr", a[0], count)
            case "cdiv":
                return self.ceil_division(*a)
            case "mulhi" | "mulhi_unsigned":
                return self.high_product(name == "mulhi", *a)
            case "fma":
                return self.plain("add", self.plain("mul", a[0], a[1]), a[2])
            case _:
                raise self.s.unsupported(f"'{name}' on {e}", self.op.loc, "convert to f32 first")

    def high_product(self, signed: bool, a: str, b: str) -> str:
        """The upper half of a product in twice the width."""
        bits = self.elem.bits
        wide = vector_type(f"i{2 * bits}", self.n)
        extend = "sext" if signed else "zext"
        x, y = (self.w.op(f"llvm.{extend} {v} : {self.type()} to {wide}") for v in (a, b))
        product = self.w.binary("mul", x, y, wide)
        count = self.s.w.splat_const(str(bits), f"i{2 * bits}", self.n)
        return self.w.op(f"llvm.trunc {self.w.binary('lshr', product, count, wide)} : {wide} to {self.type()}")

    def guarded_division(self, name: str, a: list[str]) -> str:
        """A division whose divisor may be 0 or -1, for which LLVM defines no result: division by 1, then the results that
        the language states (0: quotient -1, remainder the dividend; -1: the dividend negated, remainder 0)."""
        zero, minus_one = self.const(0), self.const(-1)
        by_zero = self.w.op(f'llvm.icmp "eq" {a[1]}, {zero} : {self.type()}')
        by_minus_one = self.w.op(f'llvm.icmp "eq" {a[1]}, {minus_one} : {self.type()}')
        safe = self.select(self.plain("or", by_zero, by_minus_one, elem=I1), self.const(1), a[1], self.elem)
        if name == "mod":  # the remainder of a division by 1 is 0
            return self.select(by_zero, a[0], self.plain("srem", a[0], safe), self.elem)
        quotient = self.plain("sdiv", a[0], safe) if name == "div" else self.ceil_division(a[0], safe)
        quotient = self.select(by_minus_one, self.plain("sub", zero, a[0]), quotient, self.elem)
        return self.select(by_zero, minus_one, quotient, self.elem)

    def ceil_division(self, a: str, b: str) -> str:
        e = self.elem
        q = self.plain("sdiv", a, b)
        rest = self.plain("sub", a, self.plain("mul", q, b))
        inexact = self.w.op(f'llvm.icmp "ne" {rest}, {self.const(0)} : {self.type()}')
        signs = self.plain("xor", a, b)
        same = self.w.op(f'llvm.icmp "sge" {signs}, {self.const(0)} : {self.type()}')
        up = self.plain("and", inexact, same, elem=I1)
        return self.plain("add", q, self.cast("zext", up, I1, e))

    def float_op(self, name: str, a: list[str]) -> str:
        if name == "mod" and self.elem.name == "bf16":  # has no frem; remainders are exact, so f32 gives the same
            wide = self.plain("frem", *(self.convert(x, self.elem, F32) for x in a), elem=F32)
            return self.convert(wide, F32, self.elem)
        if name in _FLOAT:
            return self.plain(_FLOAT[name], *a)
        match name:
            case "min" | "max":
                return self.intrinsic(f"{name}num", *a)
            case "clamp":
                return self.intrinsic("minnum", self.intrinsic("maxnum", a[0], a[1]), a[2])
            case "neg":
                return self.plain("fneg", a[0], flags=False)
            case "abs":
                return self.intrinsic("fabs", a[0])
            case _:
                return self.function(name, a)

    def function(self, name: str, a: list[str]) -> str:
        """Functions that are computed in f32 (f64 where the hardware has it) and rounded once."""
        e = self.elem
        if name == "fma" and e.bits == 16:
            return self.narrow_fma(a)
        wide = e if e.bits == 64 else F32
        x = [self.convert(v, e, wide) for v in a]
        one = self.const(1.0, wide)
        match name:
            case "fma":
                y = self.intrinsic("fma", *x, elem=wide)
            case "sqrt":
                y = self.intrinsic("sqrt", *x, elem=wide)
            case "rsqrt":
                y = self.plain("fdiv", one, self.intrinsic("sqrt", *x, elem=wide), elem=wide)
            case "rcp":
                y = self.plain("fdiv", one, x[0], elem=wide)
            case _ if name in _INTRINSIC:
                y = self.intrinsic(_INTRINSIC[name], *x, elem=wide)
            case _:
                raise self.s.unsupported(
                    f"'{name}' on {e}", self.op.loc, "the ops that docs/language.md marks as compiled"
                )
        return self.convert(y, wide, e)

    def narrow_fma(self, a: list[str]) -> str:
        """a·b + c of 16-bit floats with a single rounding: an instruction for f16. Products of bf16 are exact in f64; their
        sum is rounded to odd there (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008), so that
        the rounding to bf16 sees on which side of a tie it lies. The error of the sum is Knuth's TwoSum."""
        if self.elem.name == "f16":
            return self.intrinsic("fma", *a)
        x, y, c = (self.cast("fpext", v, self.elem, F64) for v in a)

        def exact(name: str, *args: str) -> str:
            return self.plain(name, *args, elem=F64, flags=False)

        p = exact("fmul", x, y)
        total = exact("fadd", p, c)
        other = exact("fsub", total, p)
        error = exact("fadd", exact("fsub", p, exact("fsub", total, other)), exact("fsub", c, other))
        inexact = self.w.op(f'llvm.fcmp "one" {error}, {self.const(0, F64)} : {self.type(F64)}')
        bits, error_bits = (self.w.bitcast(v, self.type(F64), self.type(I64)) for v in (total, error))
        low = self.plain("and", bits, self.const(1, I64), elem=I64)
        even = self.w.op(f'llvm.icmp "eq" {low}, {self.const(0, I64)} : {self.type(I64)}')
        signs = self.plain("xor", bits, error_bits, elem=I64)
        grows = self.w.op(f'llvm.icmp "sge" {signs}, {self.const(0, I64)} : {self.type(I64)}')
        step = self.select(grows, self.const(1, I64), self.const(-1, I64), I64)
        moves = self.plain("and", inexact, even, elem=I1)
        odd = self.select(moves, self.plain("add", bits, step, elem=I64), bits, I64)
        return self.cast("fptrunc", self.w.bitcast(odd, self.type(I64), self.type(F64)), F64, self.elem)

    def conversion(self, a: list[str]) -> str:
        """The op `convert` with its attributes."""
        attrs, e = self.op.attrs, self.elem
        target, rounding, overflow = attrs["elem"], attrs.get("rounding", "nearest_even"), attrs.get("overflow", "")
        assert isinstance(target, Elem) and isinstance(rounding, str) and isinstance(overflow, str)
        if attrs.get("finite", False) and (e, target, rounding, overflow) == (F32, BF16, "nearest_away", ""):
            return self.rounded_away(a[0])
        if e != target and needs_codes(e, target, rounding, overflow):
            return SmallFloats(self).convert(a[0], e, target, rounding, overflow, a[1] if len(a) > 1 else "")
        return self.convert(a[0], e, target)

    def rounded_away(self, x: str) -> str:
        """f32 to bf16, halves away from zero: half of the last place is added to the bits, whose carry reaches infinity where it must. The
        bits of a NaN may wrap around."""
        bits = self.plain("add", self.w.bitcast(x, self.type(F32), self.type(I32)), self.const(0x8000, I32), elem=I32)
        high = self.plain("lshr", bits, self.const(16, I32), elem=I32)
        return self.w.bitcast(self.cast("trunc", high, I32, I16), self.type(I16), self.type(BF16))

    def convert(self, x: str, source: Elem, target: Elem) -> str:
        """To nearest even, between types of which none is a small float."""
        if source == target:
            return x
        if target.is_bool:
            kind, predicate = ("fcmp", "une") if source.is_float else ("icmp", "ne")
            return self.w.op(f'llvm.{kind} "{predicate}" {x}, {self.const(0, source)} : {self.type(source)}')
        if source.is_float and target.is_float:
            return self.cast("fpext" if target.bits > source.bits else "fptrunc", *self._via_f32(x, source, target))
        if source.is_float:
            return self._to_int(x, source, target)
        if target.is_float:
            if target.bits == 16 and source.bits > 16:
                return self._int_to_half(x, source, target)
            return self.cast("uitofp" if source.is_bool else "sitofp", x, source, target)
        if target.bits < source.bits:
            return self.cast("trunc", x, source, target)
        return self.cast("zext" if source.is_bool else "sext", x, source, target)

    def _via_f32(self, x: str, source: Elem, target: Elem) -> tuple[str, Elem, Elem]:
        """f16 and bf16 convert into each other through f32, which holds both."""
        if source.bits == target.bits:
            return self.cast("fpext", x, source, F32), F32, target
        return x, source, target

    def _to_int(self, x: str, source: Elem, target: Elem) -> str:
        """Truncation with saturation, NaN to 0."""
        if source.bits < 32:
            x, source = self.cast("fpext", x, source, F32), F32
        s, t = self.type(source), self.type(target)
        suffix = f"{_suffix(target, self.n)}.{_suffix(source, self.n)}"
        return self.w.op(f'llvm.call_intrinsic "llvm.fptosi.sat.{suffix}"({x}) : ({s}) -> {t}')

    def _int_to_half(self, x: str, source: Elem, target: Elem) -> str:
        """Wide integers go to 16-bit floats through f64, which LLVM rounds to them correctly. Where f64 does not hold an i64,
        the low bits only tell on which side of a tie it lies: bit 10 says whether any of bits 0 to 10 is set."""
        if source.bits == 64:
            low = self.plain("and", x, self.const(0x7FF, source), elem=source)
            high = self.plain("and", x, self.const(-0x800, source), elem=source)
            sticky = self.plain("or", high, self.const(0x400, source), elem=source)
            size = self.plain("add", x, self.const(1 << 53, source), elem=source)  # in [0, 2^54] where f64 is exact
            large = self.w.op(f'llvm.icmp "ugt" {size}, {self.const(1 << 54, source)} : {self.type(source)}')
            some = self.w.op(f'llvm.icmp "ne" {low}, {self.const(0, source)} : {self.type(source)}')
            x = self.select(self.plain("and", large, some, elem=I1), sticky, x, source)
        return self.cast("fptrunc", self.cast("sitofp", x, source, F64), F64, target)


def _harmless_divisor(v: Value) -> bool:
    """A constant by which LLVM divides as the language does."""
    op = v.owner
    if op is not None and op.name in ("fill", "broadcast"):
        return _harmless_divisor(op.operands[0])
    if op is None or op.name != "constant":
        return False
    value, mask = op.attrs["value"], (1 << v.tile.elem.bits) - 1
    return isinstance(value, int) and value & mask not in (0, mask)


def _suffix(elem: Elem, n: int) -> str:
    name = elem.name
    return name if n == 1 else f"v{n}{name}"


def operand_pieces(s: State, v: Value, result: TileType, n: int) -> list[str]:
    """Pieces of an operand of an elementwise op, broadcast to the result's shape."""
    w, layout = s.w, result.layout
    assert layout is not None
    if v.tile.is_scalar:
        return [s.spread(v, n)] * (layout.num_registers // n)
    if v.tile.shape == result.shape:
        return s.tile(v).get(w, n)
    scalars = s.tile(v).scalars(w)
    picked = [scalars[i] for i in broadcast_registers(layout, v.tile.shape)]
    element = scalar_type(v.tile.elem)
    return [w.pack(picked[i : i + n], element) for i in range(0, len(picked), n)]


def column(s: State, v: Value, result: TileType, n: int) -> Callable[[int], str]:
    """Piece by number of an operand. Pieces that are tied to a register file or deferred are made one by one, when used."""
    tile = s.values[v]
    if isinstance(tile, Tile) and tile.is_deferred and v.tile.shape != result.shape and result.layout is not None:
        sources, element, known = broadcast_registers(result.layout, v.tile.shape), scalar_type(v.tile.elem), tile
        return lambda i: s.w.pack([known.part(s.w, r, 1) for r in sources[i * n : (i + 1) * n]], element)
    if isinstance(tile, Tile) and not tile.splat and v.tile.shape == result.shape and tile.chunk == n:
        return lambda i: tile.piece(s.w, i)
    pieces = operand_pieces(s, v, result, n)
    return lambda i: pieces[i]


def _hidden_sum(s: State, op: Op, v: Value, n: int) -> Callable[[int], str] | None:
    """Pieces of a scalar operand in a loop that is added to positions: LLVM would add the constant parts of the positions to it instead, before
    the loop, and keep a scalar register for each. None for any other."""
    if (
        op.name not in ("add", "sub")
        or not (s.has_products and s.w.in_loop)
        or not v.tile.is_scalar
        or v.tile.elem.name != "i32"
    ):
        return None
    if v.owner is not None and v.owner.name == "constant":
        return None
    piece = s.w.pack([tied(s.w, s.scalar(v), "i32", "s", ordered=True)] * n, "i32")
    return lambda i: piece


def _moved(s: State, op: Op) -> Tile | None:
    """Positions to which a scalar is added in a loop: it is added to what they share, once. None for any other op."""
    if op.name != "add" or not s.w.in_loop:
        return None
    for v, other in (op.operands, op.operands[::-1]):
        tile = None if v.tile.is_scalar else s.tile(v)
        if tile is None or not tile.places or not other.tile.is_scalar or v.tile.shape != op.result.tile.shape:
            continue
        w = s.w
        scalar, bases = s.scalar(other), dict[str, str]()
        for c in tile.places:
            if c.base not in bases:  # opaque, or LLVM would add constants to one of the summands before the loop
                bases[c.base] = tied(w, w.binary("add", c.base, scalar), "i32", "v", ordered=True)
        return Tile.at_places(op.result.tile, w, [Coordinate(bases[c.base], c.offset) for c in tile.places])
    return None


def _of_fragment(s: State, v: Value, n: int) -> str:
    """`n` elements of an operand of an op on fragments; one element, or a scalar, stands for all."""
    if n == 1 or (isinstance(v.type, FragmentType) and v.type.count == n):
        return s.scalar(v)
    return s.spread(v, n) if isinstance(v.type, TileType) else s.w.pack([s.scalar(v)] * n, scalar_type(v.elem))


def _order(s: State, op: Op, n: int) -> list[int]:
    """The pieces of a result in the order in which they are made: those for which a mask is the same one after the other, since it takes two
    scalar registers from the first to the last of them."""
    layout = op.result.tile.layout
    assert layout is not None
    every = list(range(layout.num_registers // n))
    mask = op.operands[0]
    if op.name != "where" or mask.tile.shape != op.result.tile.shape or not (axes := axes_of(mask, s.uniform)):
        return every
    sources = broadcast_registers(layout, tuple(1 if d in axes else size for d, size in enumerate(mask.tile.shape)))
    first: dict[tuple[int, ...], int] = {}
    return sorted(every, key=lambda i: (first.setdefault(sources[i * n : (i + 1) * n], i), i))


def elementwise(s: State, op: Op, emit: Callable[[State, Op, int, list[str]], str] | None = None) -> None:
    """Any elementwise op; `emit` computes one piece (by default by `Pieces`)."""
    emit = emit or (lambda s, op, n, a: Pieces(s, op, n).emit(a))
    if isinstance(op.result.type, FragmentType):
        n = op.result.type.count
        if n > 1 and op.name in _PACKED and op.result.elem is F32:
            s.keep_packed()
        s.values[op.result] = emit(s, op, n, [_of_fragment(s, v, n) for v in op.operands])
        return
    t = op.result.tile
    if t.is_scalar:
        s.values[op.result] = emit(s, op, 1, [s.scalar(v) for v in op.operands])
        return
    moved = _moved(s, op)
    if moved is not None:
        s.values[op.result] = moved
        return
    layout = t.layout
    assert layout is not None
    widths = [s.tile(v).chunk for v in op.operands if v.tile.shape == t.shape and not s.tile(v).splat]
    n = min(widths, default=1)
    columns = [_hidden_sum(s, op, v, n) or column(s, v, t, n) for v in op.operands]

    make = s.at(op.loc, lambda i: emit(s, op, n, [column(i) for column in columns]))

    if s.is_deferrable(op):
        s.values[op.result] = Tile.deferred(t, n, make)
    else:
        pieces = {i: make(i) for i in _order(s, op, n)}
        s.values[op.result] = Tile(t, n, [pieces[i] for i in range(len(pieces))])
