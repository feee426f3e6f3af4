"""Structured control flow. Conditions are scalars and uniform over the workgroup; `guard` is the tile-level exception."""

from __future__ import annotations

from collections.abc import Sequence

from tileir.ir.diagnostics import Note, error
from tileir.ir.registry import AttrSpec, Check, OpDef, declare, get
from tileir.ir.types import SharedType, TileType, Type
from tileir.layout.linear import broadcast_source


def _yielded(c: Check, region: int) -> list[Type]:
    ops = c.regions[region].ops
    return [v.type for v in ops[-1].operands] if ops and ops[-1].name == "yield" else []


def _match(c: Check, region: int, want: Sequence[Type], what: str) -> None:
    ops = c.regions[region].ops
    got = _yielded(c, region)
    loc = ops[-1].loc if ops else c.loc
    if len(got) != len(want):
        raise error(
            "E0503",
            f"{what} yields {len(got)} value{'s' if len(got) != 1 else ''}, but carries {len(want)}",
            loc,
            legal=f"yield {len(want)} values",
        )
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        if g != w:
            raise error(
                "E0504",
                f"{what} yields {g} as value {i}, but carries {w}",
                ops[-1].loc_of(i),
                legal=f"a value of type {w}",
            )


def _carried(c: Check, region: int, inits: Sequence[Type], skip: int = 0) -> None:
    args = [a.type for a in c.regions[region].args[skip:]]
    if args != list(inits):
        c.fail(
            "E0505",
            f"'{c.name}' carries {[str(t) for t in args]}, but starts from {[str(t) for t in inits]}",
            legal="equal types",
        )


def _condition(c: Check) -> None:
    t = c.tile(0)
    if not t.is_scalar or not t.elem.is_bool:
        c.fail(
            "E0506",
            f"the condition of '{c.name}' is {t}",
            0,
            legal="a scalar i1; 'where' selects per element, 'guard' per row",
        )


def _for(c: Check) -> Sequence[Type]:
    bounds = [c.tile(i) for i in range(3)]
    for i, t in enumerate(bounds):
        if not t.is_scalar or not t.elem.is_int or t.elem.bits < 32 or t.elem != bounds[0].elem:
            c.fail(
                "E0507",
                f"loop bounds are {', '.join(str(b) for b in bounds)}",
                i,
                legal="three i32 or three i64 scalars",
            )
    iv = c.regions[0].args[0]
    if iv.type != bounds[0]:
        c.fail("E0505", f"the loop variable is {iv.type}, but the bounds are {bounds[0]}", legal="equal types")
    inits = c.operands[3:]
    _carried(c, 0, inits, skip=1)
    _match(c, 0, inits, "the loop")
    return list(inits)


declare(
    OpDef(
        "for",
        "Counts from start (inclusive) to end (exclusive) by a positive step; runs zero times if end <= start.",
        ("start", "end", "step", "init*"),
        _for,
        attrs=(
            AttrSpec("pattern", "word", default="", choices=("", "plain", "ping_pong", "interleave")),
            AttrSpec("slices", "shape", default=()),
            AttrSpec("few", "bool", default=False, doc="a rest of few iterations: it is not worth much code"),
            AttrSpec("masks", "word", default="", choices=("", "split", "whole")),
            AttrSpec("part", "int", default=0),
        ),
        level="both",
        effects=frozenset({"control"}),
        regions=1,
        category="control",
        example="%r = for %k = %lo to %hi step %step carry(%x = %zero) {\n  %y = add(%x, %zero) : f32\n  yield %y\n}",
    )
)


def _while(c: Check) -> Sequence[Type]:
    _carried(c, 0, c.operands)
    _carried(c, 1, c.operands)
    cond = _yielded(c, 0)
    if len(cond) != 1 or not isinstance(cond[0], TileType) or not cond[0].is_scalar or not cond[0].elem.is_bool:
        c.fail(
            "E0506", "the condition region of 'while' must yield one scalar i1", legal="yield a comparison of scalars"
        )
    _match(c, 1, c.operands, "the loop")
    return list(c.operands)


declare(
    OpDef(
        "while",
        "Runs the second region as long as the first yields true; both see the carried values.",
        ("init*",),
        _while,
        level="both",
        effects=frozenset({"control"}),
        regions=2,
        category="control",
        example="%r = while carry(%x = %zero) {\n  %c = lt(%x, %one) : i1\n  yield %c\n} do carry(%y = %x) {\n  %z = add(%y, %one) : f32\n  yield %z\n}",
    )
)


def _if(c: Check) -> Sequence[Type]:
    _condition(c)
    inits = list(c.operands[1:])
    for r in range(len(c.regions)):
        _carried(c, r, inits)
    if len(c.regions) == 1:
        _match(c, 0, inits, "the branch")
        return inits
    results = _yielded(c, 0)
    _match(c, 1, results, "the other branch")
    return results


declare(
    OpDef(
        "if",
        "Runs one of two regions; without `else` the carried values pass through when the condition is false.",
        ("condition", "init*"),
        _if,
        level="both",
        effects=frozenset({"control"}),
        regions=2,
        category="control",
        example="%r = if %cond carry(%x = %zero) {\n  yield %x\n} else carry(%y = %zero) {\n  yield %one\n}",
    )
)


def _guard(c: Check) -> Sequence[Type]:
    need = c.tile(0)
    selects = c.attrs.get("selects", True)
    if not need.elem.is_bool or need.rank != 2 or (need.shape[1] != 1 and (selects or need.layout is None)):
        c.fail("E0508", f"'guard' wants a row mask, not {need}", 0, legal="tile<i1[r, 1]>")
    for i, t in enumerate(c.operands[1:]):
        if not isinstance(t, TileType) or t.rank != 2 or t.shape[0] != need.shape[0]:
            c.fail(
                "E0509",
                f"'guard' over {need.shape[0]} rows carries {t}",
                i + 1,
                legal=f"tiles with {need.shape[0]} rows",
            )
    _carried(c, 0, c.operands[1:])
    _match(c, 0, c.operands[1:], "the guard")
    _check_cold_region(c)
    for i, t in enumerate(c.operands[1:], 1):
        assert isinstance(t, TileType)
        if t.layout is None or not selects:
            continue
        rows = broadcast_source(t.layout, need.shape)
        if need.layout is not None and need.layout != rows:
            c.fail(
                "E0312",
                f"the mask of 'guard' has layout {need.layout}, but the rows of operand {i} lie as {rows}",
                0,
                legal="convert_layout the mask first, and carry tiles whose rows lie in the same lanes and waves",
            )
    return list(c.operands[1:])


def _check_cold_region(c: Check) -> None:
    """Only waves that need a row run the region, so it may read and compute, but nothing outside may see that it ran."""
    for op in c.regions[0].walk():
        effects = get(op.name).effects
        in_lds = any(isinstance(v.type, SharedType) for v in op.operands)
        if effects & {"atomic", "host"} or ("write" in effects and not in_lds):
            raise error(
                "E0517",
                f"'{op.name}' inside a 'guard', which runs only in waves that need a row",
                op.loc,
                notes=(Note("the guard", c.loc),),
                legal="yield the value and use it behind the guard",
            )


declare(
    OpDef(
        "guard",
        "A cold region: rows whose mask is true get the yielded values, the others keep the carried ones; a wave that needs no row "
        "skips it. The region reads and computes; it does not write to memory, print or assert. With `selects = false` the mask may "
        "have several columns and only says which waves need the region: its values hold for all rows of such a wave, and must be the "
        "carried ones in rows without a bit.",
        ("need", "init*"),
        _guard,
        attrs=(AttrSpec("selects", "bool", default=True, doc="whether each row of the mask chooses"),),
        level="both",
        effects=frozenset({"control"}),
        regions=1,
        category="control",
        example="%r = guard %m carry(%x = %a) {\n  %y = add(%x, %a) : tile<f32[64, 64]>\n  yield %y\n}",
    )
)
declare(
    OpDef(
        "yield",
        "Ends a region and hands its values on.",
        ("value*",),
        lambda c: [],
        level="both",
        effects=frozenset({"control"}),
        category="control",
        example="for %k = %lo to %hi step %step {\n  yield\n}",
    )
)
