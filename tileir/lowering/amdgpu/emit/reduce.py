"""Reductions: registers of a lane first, then lanes by butterfly exchange. (Waves exchange through LDS; `lower-conversions`
has made that explicit.)"""

from __future__ import annotations

from collections.abc import Callable

from tileir.ir.core import Op
from tileir.ir.ops.reduce import neutral
from tileir.ir.types import F32, Elem
from tileir.lowering.amdgpu.emit.coords import lane
from tileir.lowering.amdgpu.emit.elementwise import Pieces
from tileir.lowering.amdgpu.emit.shared import hole_test
from tileir.lowering.amdgpu.emit.state import State
from tileir.lowering.amdgpu.emit.tiles import Tile
from tileir.lowering.amdgpu.emit.writer import scalar_type

# ds_swizzle in bit-mask mode exchanges lane i with lane (i & and | or) ^ xor inside 32 lanes: offset bits 4:0 are the and
# mask, 14:10 the xor mask (CDNA3 ISA, DS_SWIZZLE_B32).
_SWIZZLE_AND = 0x1F
_SWIZZLE_XOR_SHIFT = 10
_SWIZZLE_LANES = 32


def reduce(s: State, op: Op) -> None:
    w = s.w
    x = op.operands[0].tile
    layout, axis = x.layout, op.attrs["axis"]
    assert layout is not None and isinstance(axis, int)
    wide = F32 if x.elem.is_float and x.elem.bits < 32 else x.elem
    p = Pieces(s, op, 1)
    values = [p.convert(v, x.elem, wide) for v in s.tile(op.operands[0]).scalars(w)]
    combine = _combiner(p, op.name, wide)
    element = scalar_type(wide)
    rest = s.splat_literal(neutral(op.name, wide), wide, 1)
    skip = layout.free.reg

    def value(r: int) -> str:
        if layout.padded_shape[axis] == layout.shape[axis]:
            return values[r]
        test = hole_test(s, layout, r)
        return w.select(test, values[r], rest, element) if test else values[r]

    out: list[str] = []
    for group in layout.reduce_sources(axis):
        unique = [r for r in group if not r & skip]
        total = _tree([value(r) for r in unique], combine)
        for bit, vector in enumerate(layout.lane):
            if vector[axis] and not layout.free.lane >> bit & 1:
                total = combine(total, exchange(s, total, 1 << bit, wide))
        out.append(p.convert(total, wide, x.elem))
    s.values[op.result] = Tile(op.result.tile, 1, out)


def _tree(values: list[str], combine: Callable[[str, str], str]) -> str:
    """Pairwise combination: short dependence chains and few live values."""
    while len(values) > 1:
        values = [combine(*values[i : i + 2]) if i + 1 < len(values) else values[i] for i in range(0, len(values), 2)]
    return values[0]


def _combiner(p: Pieces, name: str, elem: Elem) -> Callable[[str, str], str]:
    kind = name.removeprefix("reduce_")
    if kind in ("add", "mul"):
        return lambda a, b: p.plain(("f" if elem.is_float else "") + kind, a, b, elem=elem)
    intrinsic = f"{kind}num" if elem.is_float else f"s{kind}"
    return lambda a, b: p.intrinsic(intrinsic, a, b, elem=elem)


def exchange(s: State, value: str, mask: int, elem: Elem) -> str:
    """The value of lane ^ mask."""
    w = s.w
    element = scalar_type(elem)
    if elem.bits == 64:
        halves = w.bitcast(value, element, "vector<2xi32>")
        swapped = [_exchange32(s, w.extract(halves, i, "vector<2xi32>"), mask) for i in range(2)]
        return w.bitcast(w.pack(swapped, "i32"), "vector<2xi32>", element)
    if elem.bits == 32:
        return w.bitcast(_exchange32(s, w.bitcast(value, element, "i32"), mask), "i32", element)
    wide = w.op(f"llvm.sext {value} : {element} to i32")
    return w.op(f"llvm.trunc {_exchange32(s, wide, mask)} : i32 to {element}")


def _exchange32(s: State, value: str, mask: int) -> str:
    w = s.w
    if mask < _SWIZZLE_LANES:
        pattern = w.const(_SWIZZLE_AND | mask << _SWIZZLE_XOR_SHIFT)
        return w.op(f"rocdl.ds_swizzle {value}, {pattern} : (i32, i32) -> i32")
    index = w.hoist(("partner", mask), lambda: w.mul(w.binary("xor", lane(w), w.const(mask)), 4))
    return w.op(f"rocdl.ds_bpermute {index}, {value} : (i32, i32) -> i32")
