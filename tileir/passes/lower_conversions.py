"""Makes the movement of elements explicit: layout conversions and reductions that cross lanes or waves.

    %y = convert_layout(%x) : tile<f32[64, 64], linear(…)>

stays where it only renames registers. Inside waves it becomes a chain of steps, each with its means,

    %x_0 = swap_lanes<register = 2, lane = 5, via = permlane_swap>(%x) : tile<f32[64, 64], linear(…)>
    %y = swap_lanes<register = 2, lane = 4, via = permlane_swap>(%x_0) : tile<f32[64, 64], linear(…)>

if that costs fewer clocks (`conversion_cost`) than the way that is always open,

    %s = shared_alloc() : shared<f32[64, 64]>
    shared_store(%x, %s)
    %y = shared_load(%s) : tile<f32[64, 64], linear(…)>

A reduction along an axis over which waves are spread becomes a partial one per wave, an exchange of the parts, and a
reduction of the parts in every lane:

    %p = reduce_add<parts = 4, inner = 16>(%x, axis = 1) : tile<f32[64, 4], linear(…)>
    shared_store(%p, %s)
    %q = shared_load(%s) : tile<f32[64, 4], linear(…)>
    %y = reduce_add(%q, axis = 1) : tile<f32[64, 1], linear(…)>

A scalar that an atomic update takes becomes a tile of one element, which one lane updates; where several lanes stand for an
element and its old value is used, the one that made the update hands it on through LDS:

    %o = atomic_add(%v, %C[%i +: 1]) : tile<i32[1], linear(…)>
    shared_store(%o, %s)
    %old = shared_load(%s) : tile<i32[1], linear(…)>

Remarks say by which means each is done: R0501 (inside waves), R0502 (through LDS), R0503 (reductions).
"""

from __future__ import annotations

from tileir.ir.core import AttrValue, Kernel, Op, Value
from tileir.ir.diagnostics import error
from tileir.ir.ops.atomic import is_atomic
from tileir.ir.ops.shape import reshapes_in_place
from tileir.ir.registry import get
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.ir.types import ELEMS, F32, I8, Elem, SharedType, TileType
from tileir.layout import Layout, LayoutError
from tileir.layout.linear import LANE_BITS
from tileir.passes.base import Context, Pass
from tileir.passes.conversion_cost import buffer_bytes, cheapest_route, exchange_clocks
from tileir.passes.lane_code import combines, reduced_bits, reduced_waves
from tileir.passes.transposing_reads import has_transposing_read

_TURN = (1, 0)
_NEVER = 1 << 60
CARRIER = ELEMS["f8E4M3FN"]  # three mantissa bits and exponents from -6 to 8: every value of the 6- and 4-bit floats


def crosses_waves(op: Op) -> bool:
    """Whether the reduction combines values of different waves."""
    layout = op.operands[0].tile.layout
    axis = op.attrs["axis"]
    assert layout is not None and isinstance(axis, int)
    return op.attrs.get("parts", 1) == 1 and bool(reduced_waves(layout, axis))


def carrier(elem: Elem) -> Elem:
    """The type in which elements below a byte travel between lanes and waves; it holds all their values."""
    if elem.is_bool:
        return I8
    return CARRIER if elem.unit[0] > 1 else elem


def exchange(rw: Rewriter, x: Value, layout: Layout, names: list[str]) -> Value:
    """`x` in another layout (and, row-major, of its shape), through an LDS buffer."""
    t = x.tile
    if carrier(t.elem) != t.elem:
        wide = rw.value("convert", [x], {"elem": carrier(t.elem)}, hint=x.name)
        back = exchange(rw, wide, layout, [])
        return rw.value("convert", [back], {"elem": t.elem}, names=names, hint=x.name)
    buffer = rw.value("shared_alloc", types=[SharedType(t.elem, t.shape)], hint="exchange")
    rw.op("shared_store", [x, buffer])
    return rw.value("shared_load", [buffer], types=[TileType(t.elem, layout.shape, layout)], names=names, hint=x.name)


def convert(rw: Rewriter, x: Value, layout: Layout, name: str, ctx: Context, in_guard: bool = False) -> Value:
    """`x` in another layout of its shape, called `name`, the cheapest way, with a remark; `in_guard` inside waves at any
    price, if that is possible, so that waves can still skip the guard."""
    t = x.tile
    assert t.layout is not None
    bits = carrier(t.elem).bits
    route = cheapest_route(t.layout, layout, bits, ctx.target) if bits >= 8 else None
    through_lds = exchange_clocks(t.layout, layout, max(bits, 8), ctx.target)
    turned = _turned_clocks(t, layout, max(bits, 8), ctx)
    across = turned < through_lds
    through_lds = min(through_lds, turned)
    if route is None or (route.clocks > through_lds and not in_guard):
        why = "elements move between waves"
        if route is not None:
            why = f"{through_lds} clocks, inside waves {route.clocks} ({route})"
        size = buffer_bytes(t.with_elem(carrier(t.elem)))
        ctx.log.remark("R0502", f"%{name} gets its layout through {size} bytes of LDS: {why}", rw.loc)
        if across:
            back = exchange(rw, rw.value("transpose", [x], hint=x.name), layout.transpose(_TURN), [])
            return rw.value("transpose", [back], types=[t.with_layout(layout)], names=[name])
        return exchange(rw, x, layout, [name])
    cost = f"{route.clocks} clocks, through LDS {through_lds}" if route.clocks else "no instruction"
    ctx.log.remark("R0501", f"%{name} gets its layout inside waves by {route}: {cost}", rw.loc)
    moves_data = any(m.op != "convert_layout" for m in route.moves)
    wide = carrier(t.elem)
    value = rw.value("convert", [x], {"elem": wide}, hint=x.name) if wide != t.elem and moves_data else x
    for move in route.moves:
        last = move is route.moves[-1] and value.tile.elem == t.elem
        types = [] if move.op == "swap_lanes" else [value.tile.with_layout(move.layout)]
        value = rw.value(move.op, [value], dict(move.attrs), types=types, names=[name] if last else [], hint=x.name)
    return value if value.tile.elem == t.elem else rw.value("convert", [value], {"elem": t.elem}, names=[name])


def _turned_clocks(t: TileType, layout: Layout, bits: int, ctx: Context) -> int:
    """Clocks of an exchange through a buffer in which the columns of a matrix are rows, for chips that read it no other way along columns."""
    assert t.layout is not None
    if t.rank != len(_TURN) or has_transposing_read(bits, t.shape, ctx.target):
        return _NEVER
    return exchange_clocks(t.layout.transpose(_TURN), layout.transpose(_TURN), bits, ctx.target)


def _reduce(rw: Rewriter, op: Op) -> None:
    x = rw.use(op.operands[0])
    layout = x.tile.layout
    axis = op.attrs["axis"]
    assert layout is not None and isinstance(axis, int)
    elem = x.tile.elem
    widened = elem.is_float and elem.bits < 32 and op.name in ("reduce_add", "reduce_mul")
    if widened:  # parts in a narrow type would be rounded once more
        x = rw.value("convert", [x], {"elem": F32}, hint=x.name)
    parts_value, _ = part_totals(rw, op.name, x, axis)
    name = op.result.name
    total = rw.value(op.name, [parts_value], op.attrs, names=[] if widened else [name], hint=name)
    rw.replace(op, [rw.value("convert", [total], {"elem": elem}, names=[name]) if widened else total])


def part_totals(rw: Rewriter, name: str, x: Value, axis: int) -> tuple[Value, dict[str, AttrValue]]:
    """The reduction `name` of what each wave holds along the axis: a tile with all parts in every lane, and the attributes that
    say which elements are of which part."""
    layout = x.tile.layout
    assert layout is not None
    bits = reduced_waves(layout, axis)
    along = sorted(layout.wave[j][axis] for j in bits)
    inner, parts = along[0], 1 << len(along)
    mixed = any(any(c for d, c in enumerate(layout.wave[j]) if d != axis) for j in bits)
    if mixed or along != [inner << i for i in range(len(along))]:
        raise error(
            "E0902",
            f"cannot reduce over waves laid out as {layout}",
            rw.loc,
            legal="waves whose basis vectors along the axis are consecutive powers of two",
        )

    def clear(v: tuple[int, ...], value: int = 0) -> tuple[int, ...]:
        return tuple(value if d == axis else c for d, c in enumerate(v))

    reduced = layout.reduce(axis)
    shape = tuple(parts if d == axis else n for d, n in enumerate(reduced.shape))
    wave = [clear(v, v[axis] // inner if j in bits else 0) for j, v in enumerate(layout.wave)]
    partial = Layout.from_bases(shape, reduced.reg, reduced.lane, wave, reduced.reps)
    unit = tuple(1 if d == axis else 0 for d in range(len(shape)))
    part_bits = [tuple(c << i for c in unit) for i in range(len(along))]
    whole = Layout.from_bases(shape, [*part_bits, *reduced.reg], reduced.lane, reduced.wave, reduced.reps)
    attrs: dict[str, AttrValue] = {"parts": parts, "inner": inner}
    part = rw.value(name, [x], {"axis": axis, **attrs}, types=[TileType(x.tile.elem, shape, partial)], hint="part")
    return exchange(rw, part, whole, []), attrs


def _scan(rw: Rewriter, op: Op) -> bool:
    """A scan along an axis over which waves are spread takes the totals of all waves through LDS."""
    x = rw.use(op.operands[0])
    layout = x.tile.layout
    axis = op.attrs["axis"]
    assert layout is not None and isinstance(axis, int)
    along = [v[axis] for v in layout.wave if v[axis]]
    if not along or len(op.operands) > 1:
        return False
    elem, name = x.tile.elem, op.result.name
    widened = elem.is_float and elem.bits < 32 and op.name in ("scan_add", "scan_mul")
    if widened:
        x = rw.value("convert", [x], {"elem": F32}, hint=x.name)
    totals, attrs = part_totals(rw, op.name.replace("scan", "reduce"), x, axis)
    total = rw.value(op.name, [x, totals], {**op.attrs, **attrs}, names=[] if widened else [name], hint=name)
    rw.replace(op, [rw.value("convert", [total], {"elem": elem}, names=[name]) if widened else total])
    return True


def _remark_reduction(op: Op, across: bool, ctx: Context) -> None:
    """R0503: registers, lanes and waves that the reduction combines, and how."""
    layout, axis = op.operands[0].tile.layout, op.attrs["axis"]
    assert layout is not None and isinstance(axis, int)
    results = layout.reduce(axis).num_registers
    steps = combines(reduced_bits(layout, axis), ctx.target)
    means = {kind: sum(step.kind == kind for step in steps) for kind in dict.fromkeys(step.kind for step in steps)}
    parts = [
        f"{layout.num_registers} registers to {results}" if layout.num_registers > results else f"{results} registers"
    ]
    if steps:
        how = ", ".join(f"{kind} ({count})" if count > 1 else kind for kind, count in means.items())
        parts.append(f"lanes in {len(steps)} steps by {how}")
    if across:
        parts.append(f"{1 << len(reduced_waves(layout, axis))} waves through LDS")
    ctx.log.remark("R0503", f"'{op.name}' to %{op.result.name} combines {'; '.join(parts)}", op.loc)


def _reshape(rw: Rewriter, op: Op, ctx: Context, in_guard: bool) -> None:
    """A reshape to a layout that does not keep elements in place: first in place, if any layout does, then a conversion."""
    x, t = rw.use(op.operands[0]), op.result.tile
    layout = t.layout
    assert layout is not None and x.tile.layout is not None
    try:
        between = t.with_layout(x.tile.layout.reshape(t.shape))
    except LayoutError:
        size = buffer_bytes(t.with_elem(carrier(t.elem)))
        why = "no layout keeps the elements in place"
        ctx.log.remark("R0502", f"%{op.result.name} gets its shape through {size} bytes of LDS: {why}", op.loc)
        rw.replace(op, [exchange(rw, x, layout, [op.result.name])])
        return
    value = rw.value("reshape", [x], op.attrs, types=[between], hint=x.name)
    rw.replace(op, [convert(rw, value, layout, op.result.name, ctx, in_guard)])


def _atomic(rw: Rewriter, op: Op, waves: int) -> bool:
    """See above. (Results are there only if they are used: `expand-ops`.)"""
    at = get(op.name).access_position
    assert at is not None and op.spans is not None
    operands, spans, t = [rw.use(v) for v in op.operands], op.spans, op.operands[0].tile
    layout = t.layout
    if t.is_scalar:
        spans = (*spans[:-1], 1)
        layout = Layout.from_bases((1,), [], [(0,)] * LANE_BITS, [(0,)] * (waves.bit_length() - 1))
        t = TileType(t.elem, (1,), layout)
        operands[:at] = [rw.value("fill", [v], types=[t], hint=v.name) for v in operands[:at]]
    assert layout is not None
    if not op.operands[0].tile.is_scalar and (layout.is_injective or not op.results):
        return False
    names = [v.name for v in op.results] if layout.is_injective else []
    new = rw.op(
        op.name, operands, op.attrs, spans=spans, names=names, loc=op.loc, operand_locs=op.operand_locs,
        num_results=len(op.results),
    )  # fmt: skip
    if op.results:
        scalar = op.result.tile.is_scalar
        shared = exchange(rw, new.result, layout, [] if scalar else [op.result.name])
        if scalar:
            shared = rw.value("reshape", [shared], {"shape": ()}, names=[op.result.name])
        rw.replace(op, [shared])
    return True


def _rule(rw: Rewriter, op: Op, ctx: Context, waves: int, in_guard: bool) -> bool:
    rw.loc = op.loc
    if is_atomic(op):
        return _atomic(rw, op, waves)
    if op.name == "convert_layout":
        layout = op.result.tile.layout
        assert layout is not None
        rw.replace(op, [convert(rw, rw.use(op.operands[0]), layout, op.result.name, ctx, in_guard)])
        return True
    if op.name == "reshape" and op.operands[0].tile.rank and op.result.tile.rank:
        if reshapes_in_place(op.operands[0].tile, op.result.tile):
            return False
        _reshape(rw, op, ctx, in_guard)
        return True
    if get(op.name).category == "scan":
        return _scan(rw, op)
    if get(op.name).category == "reduce":
        across = crosses_waves(op)
        _remark_reduction(op, across, ctx)
        if across:
            _reduce(rw, op)
        return across
    return False


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    waves = kernel.attrs["waves"]
    assert isinstance(waves, int)
    guarded = {op for guard in kernel.walk() if guard.name == "guard" for op in guard.walk()}
    return rewrite(kernel, lambda rw, op: _rule(rw, op, ctx, waves, op in guarded))


PASS = Pass(
    "lower-conversions",
    _run,
    requires=frozenset({"laid_out"}),
    establishes=frozenset({"converted"}),
    summary="makes exchanges between lanes and waves explicit: steps inside waves, or LDS traffic",
)
