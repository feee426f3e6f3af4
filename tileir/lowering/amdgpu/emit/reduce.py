"""Reductions: registers of a lane first, then lanes, by what `lane_code.combines` chooses. (Waves exchange through LDS;
`lower-conversions` has made that explicit.) All lanes that share a result hold the same bits: whatever two lanes combine, both
combine the same values, and the operations commute."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from tileir.ir.core import Op, Value
from tileir.ir.ops.reduce import neutral
from tileir.ir.types import F32, I32, Elem, FragmentType
from tileir.layout.linear import LANE_BITS, WAVE
from tileir.lowering.amdgpu.emit.coords import register_table
from tileir.lowering.amdgpu.emit.elementwise import Pieces
from tileir.lowering.amdgpu.emit.lanes import Emitter
from tileir.lowering.amdgpu.emit.shared import hole_test
from tileir.lowering.amdgpu.emit.state import State
from tileir.lowering.amdgpu.emit.tiles import Tile
from tileir.lowering.amdgpu.emit.writer import scalar_type, vector_type
from tileir.passes.lane_code import DWORD_BITS, Combine, LaneIndex, combines, reduced_bits, swizzle_pattern

Combiner = Callable[[str, str], str]


def reduce(s: State, op: Op) -> None:
    w = s.w
    x = op.operands[0].tile
    layout, axis = x.layout, op.attrs["axis"]
    assert layout is not None and isinstance(axis, int)
    wide = x.elem if x.elem.bits >= DWORD_BITS else F32 if x.elem.is_float else I32
    p = Pieces(s, op, 1)
    values = [p.convert(v, x.elem, wide) for v in s.tile(op.operands[0]).scalars(w)]
    combine = combiner(p, op.name, wide)
    element = scalar_type(wide)
    rest = s.splat_literal(neutral(op.name, x.elem), wide, 1)
    skip = layout.free.reg
    # Lanes and waves that hold parts of the result keep them.
    parts = op.result.tile.layout
    assert parts is not None
    steps = combines(tuple(j for j in reduced_bits(layout, axis) if not parts.lane[j][axis]), s.target)

    def value(r: int) -> str:
        if layout.padded_shape[axis] == layout.shape[axis]:
            return values[r]
        test = hole_test(s, layout, r)
        return w.select(test, values[r], rest, element) if test else values[r]

    groups: dict[tuple[tuple[int, int], ...], tuple[int, ...]] = {}  # by place: registers of the result may be copies
    places = register_table(layout.reduce(axis))
    for place, group in zip(places, layout.reduce_sources(axis), strict=True):
        groups.setdefault(place, group)
    pairs = _Pairs.of(s, op)
    arity = 3 if op.name in ("reduce_max", "reduce_min") else 2  # v_max3, v_min3
    members = [[r for r in group if not r & skip] for group in groups.values()]
    if pairs is not None and all(pairs.covers(group) for group in members):
        totals = [pairs.total(group) for group in members]
    else:
        totals = [_tree([value(r) for r in group], combine, arity) for group in members]
    results = [p.convert(total, wide, x.elem) for total in _across(s, totals, steps, combine, wide)]
    by_place = dict(zip(groups, results, strict=True))
    out = [by_place[place] for place in places]
    s.values[op.result] = Tile(op.result.tile, 1, out)


def fold(s: State, op: Op) -> None:
    """`fold_fragment`: the running value with two elements of the fragment at a time, where an instruction takes two."""
    w, kind = s.w, str(op.attrs["kind"])
    acc, x = op.operands
    assert isinstance(x.type, FragmentType)
    n, elem, total = x.type.count, acc.elem, s.scalar(acc)
    if kind == "add" and op.attrs.get("flush", False) and n % 2 == 0 and adds_pairs(s, x.elem):
        t = vector_type(scalar_type(x.elem), n)
        for i in range(0, n, 2):
            pair = (
                s.scalar(x) if n == 2 else w.op(f"llvm.shufflevector {s.scalar(x)}, {s.scalar(x)} [{i}, {i + 1}] : {t}")
            )
            total = add_pair(s, pair, total, x.elem)
        s.values[op.result] = total
        return
    p = Pieces(s, op, 1)
    combine = combiner(p, f"reduce_{kind}", elem)
    for i in range(n):
        part = s.scalar(x) if n == 1 else w.extract(s.scalar(x), i, vector_type(scalar_type(x.elem), n))
        total = combine(total, p.convert(part, x.elem, elem))
    s.values[op.result] = total


class _Pairs:
    """Sums of 16-bit floats in f32, two at a time: dot products with ones. They flush denormal numbers, so the text must allow it."""

    def __init__(self, s: State, narrow: Value):
        self.s, self.elem = s, narrow.tile.elem
        self.pieces = s.tile(narrow).pieces(s.w, 2)

    @staticmethod
    def of(s: State, op: Op) -> _Pairs | None:
        """For a sum of converted 16-bit floats on a chip that has the instruction."""
        source = op.operands[0].owner
        if not op.attrs.get("flush", False) or source is None or source.name != "convert":
            return None
        narrow = source.operands[0]
        layout = narrow.tile.layout
        if layout is None or layout.padded_shape != layout.shape or layout.num_registers % 2:
            return None
        return _Pairs(s, narrow) if adds_pairs(s, narrow.tile.elem) else None

    def covers(self, registers: Sequence[int]) -> bool:
        """Whether registers come in pairs that one piece holds."""
        return all(a % 2 == 0 and b == a + 1 for a, b in zip(registers[::2], registers[1::2], strict=False)) and (
            len(registers) % 2 == 0
        )

    def total(self, registers: Sequence[int]) -> str:
        total = self.s.splat_literal(0.0, F32, 1)
        for r in registers[::2]:
            total = add_pair(self.s, self.pieces(r // 2), total, self.elem)
        return total


DOT_PRODUCTS = {"bf16": ("dot2_bf16", "llvm.amdgcn.fdot2.f32.bf16"), "f16": ("dot2_f16", "llvm.amdgcn.fdot2")}
"""By element type the feature of a chip that adds a product of pairs to a f32, and LLVM's intrinsic for it."""


def adds_pairs(s: State, elem: Elem) -> bool:
    """Whether the chip adds two elements to a f32 in one instruction."""
    return elem.name in DOT_PRODUCTS and s.target.supports(DOT_PRODUCTS[elem.name][0])


def add_pair(s: State, pair: str, total: str, elem: Elem) -> str:
    """The total and both elements of a pair: its dot product with ones."""
    t, one, off = vector_type(scalar_type(elem), 2), s.splat_literal(1.0, elem, 2), s.w.const(0, "i1")
    name = DOT_PRODUCTS[elem.name][1]
    return s.w.op(f'llvm.call_intrinsic "{name}"({pair}, {one}, {total}, {off}) : ({t}, {t}, f32, i1) -> f32')


def _tree(values: list[str], combine: Combiner, arity: int) -> str:
    """Combination of two or three at a time: short dependence chains and few live values. Where three go at a time, one pair makes
    an even number odd, so that every other step takes two more."""
    if arity == 3 and len(values) % 2 == 0:
        values = [*values[2:], combine(*values[:2])]
    while len(values) > 1:
        whole = len(values) - len(values) % arity
        done = [functools.reduce(combine, values[i : i + arity]) for i in range(0, whole, arity)]
        values = [*values[whole:], *done]
    return values[0]


def combiner(p: Pieces, name: str, elem: Elem) -> Combiner:
    """How a reduction combines two values of an element type."""
    kind = name.removeprefix("reduce_")
    if kind in ("and", "or", "xor"):
        return lambda a, b: p.plain(kind, a, b, elem=elem)
    if kind in ("add", "mul"):
        return lambda a, b: p.plain(("f" if elem.is_float else "") + kind, a, b, elem=elem)
    intrinsic = f"{kind}num" if elem.is_float else f"s{kind}"
    return lambda a, b: p.intrinsic(intrinsic, a, b, elem=elem)


def _across(s: State, values: list[str], steps: Sequence[Combine], combine: Combiner, elem: Elem) -> list[str]:
    """Each value combined over lanes. Permlane swaps take two values at a time: one swap and one operation leave the one
    complete in the lower, the other in the upper lanes; so half as many values go on, and one more swap gives both to all."""
    swaps = [step for step in steps if step.kind == "permlane_swap"]
    if not swaps:
        for step in steps:
            values = [_with_partner(s, v, step, combine, elem) for v in values]
        return values
    last = swaps[-1]
    pairs = list(zip(values[::2], values[1::2], strict=False))
    halves = [combine(*swapped(s, a, b, last, elem)) for a, b in pairs]
    alone = [combine(*swapped(s, v, v, last, elem)) for v in values[2 * len(pairs) :]]
    done = _across(s, halves + alone, [step for step in steps if step is not last], combine, elem)
    both = [v for half in done[: len(pairs)] for v in swapped(s, half, half, last, elem)]
    return both + done[len(pairs) :]


def swapped(s: State, a: str, b: str, step: Combine, elem: Elem) -> tuple[str, str]:
    """Lower lanes' part of both values in all, and upper lanes' part."""
    m = Emitter(s)
    pairs = [m.swap(x, y, step.lane) for x, y in zip(dwords(s, a, elem), dwords(s, b, elem), strict=True)]
    first, second = (element_of(s, part, elem) for part in zip(*pairs, strict=True))
    return first, second


def _with_partner(s: State, value: str, step: Combine, combine: Combiner, elem: Elem) -> str:
    """The value combined with that of other lanes."""
    m = Emitter(s)
    if step.kind == "last_lane":
        for control in step.controls:
            other = [m.dpp(x, control) for x in dwords(s, value, elem)]
            value = combine(value, element_of(s, other, elem))
        last = s.w.const(WAVE - 1)
        read = [s.w.op(f"rocdl.readlane {x}, {last} : (i32, i32) -> i32") for x in dwords(s, value, elem)]
        return element_of(s, read, elem)
    other = [partner(s, m, x, step) for x in dwords(s, value, elem)]
    return combine(value, element_of(s, other, elem))


def partner(s: State, m: Emitter, x: str, step: Combine) -> str:
    """A dword of the lane that a step combines with the own one."""
    flip = 1 << step.lane
    if step.kind == "ds_swizzle":
        pattern = swizzle_pattern(tuple(l ^ flip for l in range(WAVE)), s.target)
        assert pattern is not None
        return m.swizzle(x, pattern)
    if step.kind == "ds_bpermute":
        # the number of the other lane is flipped where it is hoisted, and kept in a register
        return m.permute(x, LaneIndex(tuple(1 << j for j in range(LANE_BITS)), (), flip))
    for control in step.controls:
        x = m.dpp(x, control)
    return x


def dwords(s: State, value: str, elem: Elem) -> list[str]:
    """A value as one or two i32."""
    w, element = s.w, scalar_type(elem)
    if elem.bits == DWORD_BITS:
        return [w.bitcast(value, element, "i32")]
    halves = w.bitcast(value, element, "vector<2xi32>")
    return [w.extract(halves, i, "vector<2xi32>") for i in range(2)]


def element_of(s: State, dwords: Sequence[str], elem: Elem) -> str:
    """The inverse of `dwords`."""
    w, element = s.w, scalar_type(elem)
    if elem.bits == DWORD_BITS:
        return w.bitcast(dwords[0], "i32", element)
    return w.bitcast(w.pack(dwords, "i32"), "vector<2xi32>", element)
