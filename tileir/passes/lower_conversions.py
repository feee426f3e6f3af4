"""Makes exchanges between waves explicit: layout conversions and reductions that cross lanes go through LDS.

    %y = convert_layout(%x) : tile<f32[64, 64], linear(…)>

becomes, unless it only renames registers,

    %s = shared_alloc() : shared<f32[64, 64]>
    shared_store(%x, %s)
    %y = shared_load(%s) : tile<f32[64, 64], linear(…)>

and a reduction along an axis over which waves are spread becomes a partial one per wave, an exchange of the parts, and a
reduction of the parts in every lane:

    %p = reduce_add<parts = 4, inner = 16>(%x, axis = 1) : tile<f32[64, 4], linear(…)>
    shared_store(%p, %s)
    %q = shared_load(%s) : tile<f32[64, 4], linear(…)>
    %y = reduce_add(%q, axis = 1) : tile<f32[64, 1], linear(…)>
"""

from __future__ import annotations

from tileir.ir.core import Kernel, Op, Value
from tileir.ir.diagnostics import error
from tileir.ir.ops.shape import reshapes_in_place
from tileir.ir.registry import get
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.ir.types import F32, I1, I8, SharedType, TileType
from tileir.layout import Layout
from tileir.layout.conversion import conversion
from tileir.passes.base import Context, Pass


def moves_data(op: Op) -> bool:
    """Whether the conversion needs more than a renaming of registers."""
    src, dst = op.operands[0].tile.layout, op.result.tile.layout
    assert src is not None and dst is not None
    return conversion(src, dst).sources is None


def crosses_waves(op: Op) -> bool:
    """Whether the reduction combines values of different waves."""
    layout = op.operands[0].tile.layout
    axis = op.attrs["axis"]
    assert layout is not None and isinstance(axis, int)
    return op.attrs.get("parts", 1) == 1 and any(v[axis] for v in layout.wave)


def exchange(rw: Rewriter, x: Value, layout: Layout, names: list[str]) -> Value:
    """`x` in another layout (and, row-major, of its shape), through an LDS buffer."""
    t = x.tile
    if t.elem.is_bool:
        wide = rw.value("convert", [x], {"elem": I8}, hint=x.name)
        back = exchange(rw, wide, layout, [])
        return rw.value("convert", [back], {"elem": I1}, names=names, hint=x.name)
    buffer = rw.value("shared_alloc", types=[SharedType(t.elem, t.shape)], hint="exchange")
    rw.op("shared_store", [x, buffer])
    return rw.value("shared_load", [buffer], types=[TileType(t.elem, layout.shape, layout)], names=names, hint=x.name)


def _reduce(rw: Rewriter, op: Op) -> None:
    x = rw.use(op.operands[0])
    layout = x.tile.layout
    axis = op.attrs["axis"]
    assert layout is not None and isinstance(axis, int)
    elem = x.tile.elem
    widened = elem.is_float and elem.bits < 32 and op.name in ("reduce_add", "reduce_mul")
    if widened:  # parts in a narrow type would be rounded once more
        x = rw.value("convert", [x], {"elem": F32}, hint=x.name)
    along = sorted(v[axis] for v in layout.wave if v[axis])
    inner, parts = along[0], 1 << len(along)
    mixed = any(v[axis] and any(c for d, c in enumerate(v) if d != axis) for v in layout.wave)
    if mixed or along != [inner << i for i in range(len(along))]:
        raise error(
            "E0902",
            f"cannot reduce over waves laid out as {layout}",
            op.loc,
            legal="waves whose basis vectors along the axis are consecutive powers of two",
        )

    def clear(v: tuple[int, ...], value: int = 0) -> tuple[int, ...]:
        return tuple(value if d == axis else c for d, c in enumerate(v))

    reduced = layout.reduce(axis)
    shape = tuple(parts if d == axis else n for d, n in enumerate(reduced.shape))
    wave = [clear(v, v[axis] // inner) for v in layout.wave]
    partial = Layout.from_bases(shape, reduced.reg, reduced.lane, wave, reduced.reps)
    unit = tuple(1 if d == axis else 0 for d in range(len(shape)))
    part_bits = [tuple(c << i for c in unit) for i in range(len(along))]
    whole = Layout.from_bases(shape, [*part_bits, *reduced.reg], reduced.lane, reduced.wave, reduced.reps)
    attrs = {**op.attrs, "parts": parts, "inner": inner}
    part = rw.value(op.name, [x], attrs, types=[TileType(x.tile.elem, shape, partial)], hint="part")
    parts_value = exchange(rw, part, whole, [])
    name = op.result.name
    total = rw.value(op.name, [parts_value], op.attrs, names=[] if widened else [name], hint=name)
    rw.replace(op, [rw.value("convert", [total], {"elem": elem}, names=[name]) if widened else total])


def _rule(rw: Rewriter, op: Op) -> bool:
    moves = op.name == "convert_layout" and moves_data(op)
    if op.name == "reshape" and op.operands[0].tile.rank and op.result.tile.rank:
        moves = not reshapes_in_place(op.operands[0].tile, op.result.tile)
    if moves:
        layout = op.result.tile.layout
        assert layout is not None
        rw.replace(op, [exchange(rw, rw.use(op.operands[0]), layout, [op.result.name])])
        return True
    if get(op.name).category == "reduce" and crosses_waves(op):
        _reduce(rw, op)
        return True
    return False


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    return rewrite(kernel, _rule)


PASS = Pass(
    "lower-conversions",
    _run,
    requires=frozenset({"laid_out"}),
    establishes=frozenset({"converted"}),
    summary="makes exchanges between lanes and waves explicit as LDS traffic",
)
