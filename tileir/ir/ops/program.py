"""Ops about the running program: its place in the grid, symbols, facts that the author asserts."""

from __future__ import annotations

from collections.abc import Sequence

from tileir.ir.registry import AttrSpec, Check, OpDef, declare
from tileir.ir.types import I32, TileType, Type, scalar


def _ids(c: Check) -> Sequence[Type]:
    return [scalar(I32)] * (c.num_results or 1)


declare(
    OpDef(
        "program_id",
        "Position of this workgroup in the grid, one i32 per grid dimension (as many names as the grid has).",
        (),
        _ids,
        category="program",
        semantics=lambda ctx, op, args: ctx.program_id(len(op.results)),
        example="%i, %j = program_id() : i32, i32",
    )
)
declare(
    OpDef(
        "num_programs",
        "Size of the grid, one i32 per grid dimension.",
        (),
        _ids,
        category="program",
        semantics=lambda ctx, op, args: ctx.num_programs(len(op.results)),
        example="%ni, %nj = num_programs() : i32, i32",
    )
)


def _dim(c: Check) -> Sequence[Type]:
    want = c.wanted()
    return [want if isinstance(want, TileType) and want.is_scalar and want.elem.is_int else scalar(I32)]


declare(
    OpDef(
        "dim",
        "Value of a dimension symbol; in expressions the bare symbol (`M`) means this.",
        (),
        _dim,
        attrs=(AttrSpec("symbol", "symbol", positional=True),),
        category="program",
        semantics=lambda ctx, op, args: ctx.symbol(op.attrs["symbol"], op.results[0].tile.elem),
        example="%m = dim<M>() : i32",
    )
)


def _assume(c: Check) -> Sequence[Type]:
    t = c.tile(0)
    if not t.is_scalar or not t.elem.is_bool:
        c.fail("E0317", f"'assume' wants a scalar condition (i1), not {t}", 0, legal="assume(mod(K, 64) == 0)")
    return []


declare(
    OpDef(
        "assume",
        "States a fact about scalars that the compiler may use. The interpreter checks it; a launch that breaks it is undefined.",
        ("condition",),
        _assume,
        literals=("i1",),
        effects=frozenset({"control"}),
        category="program",
        semantics=lambda ctx, op, args: ctx.assume(op, args[0]),
        example="assume(%cond)",
    )
)
