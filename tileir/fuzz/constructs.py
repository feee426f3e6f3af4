"""More that a random kernel may hold: loops over blocks under masks, functions with stated bounds, ops without results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tileir.ir.core import AttrValue, Block, Op, Text, Value
from tileir.ir.location import Loc
from tileir.ir.types import I32, TileType, scalar

if TYPE_CHECKING:
    from tileir.fuzz.generate import Maker

FUNCTIONS = (
    "exp exp2 log log2 sin cos tan sinh cosh tanh erf sigmoid rsqrt".split(),
    ["pow", "atan2"],
)
"""Of one operand and of two. Their results are stored and never computed with: only their bounds are known."""
_BLOCKS = (1, 2, 4, 8, 8, 16, 16, 24, 32)
_MOST_BLOCKS = 4


def masked_loop(m: Maker) -> Value:
    """A loop over blocks of a view that combines what masks leave of them, as causal attention does: columns below a limit, up to the row, or
    within a window before it."""
    c = m.choices
    block, rows = c.pick(_BLOCKS), c.pick([1, 1, 4, 8, 16])
    view = c.pick(m.views)
    elem = view.view.elem
    number = m.number
    most = block * c.integer(0, _MOST_BLOCKS)
    end = number(most - c.integer(0, block - 1) if most else 0)
    if c.integer(0, 2) == 0:  # an end that is not known before the launch, but bounded
        end = m.emit("min", [end, m.emit("mul", [m.emit("add", [m.ids[0], number(1)]), number(block)])])
    start, step = number(c.pick([0, 0, 0, block, -block])), number(block)
    at = [m.index() for _ in range(view.view.rank - 1)]
    tile = TileType(elem, (rows, block))
    limit = number(c.integer(0, most + 1))
    row = m.emit("iota", attrs={"shape": (rows, 1)})
    if c.boolean():
        row = m.emit("add", [row, m.emit("mul", [m.ids[0], number(rows)])])
    neutral: AttrValue = 0 if elem.is_int else float("-inf")
    init = m.emit("fill", [m.emit("constant", attrs={"value": neutral}, types=[scalar(elem)])], types=[tile])
    kinds = [k for k in ("limit", "causal", "window") if c.boolean()] or ["limit"]
    extra = m.any_value() if c.boolean() else None
    args = [m.fresh(scalar(I32), "k"), m.fresh(tile, "c"), *([m.fresh(extra.tile, "e")] if extra else [])]

    outer, pool = m.b.block, list(m.pool)
    m.b.block = Block(list(args))
    m.depth += 1
    m.pool.append(args[0])
    x = m.emit("load", [view, *at, args[0]], spans=(*([None] * len(at)), block))
    x = m.emit("reshape", [x], attrs={"shape": (1, block)})
    columns = m.emit("add", [m.emit("iota", attrs={"shape": (1, block), "axis": 1}), args[0]])
    mask: Value | None = None
    for kind in kinds:
        if kind == "limit":
            one = m.emit("lt", [columns, limit])
        elif kind == "causal":
            one = m.emit(c.pick(["le", "lt"]), [columns, row])
        else:
            one = m.emit("gt", [columns, m.emit("sub", [row, number(block)])])
        mask = one if mask is None else m.emit("and", [mask, one])
    assert mask is not None
    kept = m.emit("where", [mask, x, m.emit("constant", attrs={"value": neutral}, types=[scalar(elem)])])
    if c.integer(0, 3) == 0:
        m.step()
    out = m.emit("add" if elem.is_int else "max", [args[1], kept])
    results = [out, *([m.of_type(extra.tile)] if extra else [])]
    m.b.insert(Op("yield", results, loc=Loc("random.tile", m.line, 1, m.line, 6)))
    m.depth -= 1
    body, m.b.block, m.pool = m.b.block, outer, pool
    m.control("for", [start, end, step, init, *([extra] if extra else [])], [body])
    return m.pool[-1]


def talk(m: Maker) -> None:
    """One of the ops without results: `print` of a few values, `prefetch`, or an `assume` of something that holds."""
    c = m.choices
    m.line += 1
    loc = Loc("random.tile", m.line, 3, m.line, 9)
    match c.integer(0, 2):
        case 0:
            values = m.pool[-c.integer(1, 2) :]
            message = Text("p " + "{} " * len(values))
            m.b.op("print", values, attrs={"message": message, "limit": c.integer(1, 4)}, loc=loc)
        case 1:
            view = c.pick(m.views)
            spans = [c.pick([1, 8]) if c.boolean() else None for _ in range(view.view.rank)]
            m.b.op("prefetch", [view, *(m.index() for _ in spans)], spans=tuple(spans), num_results=0, loc=loc)
        case _:
            sizes = m.b.op("num_programs", num_results=len(m.ids), hint="g")
            m.pool += sizes.results
            m.b.op("assume", [m.emit("lt", [m.ids[0], sizes.results[0]])], num_results=0, loc=loc)


def function(m: Maker) -> Value | None:
    """A function of one or two float values; None where there is no float."""
    c = m.choices
    known = [v for v in m.tiles("float") if v.tile.elem.bits >= 16]
    if not known:
        return None
    a = c.pick(known)
    one, two = FUNCTIONS
    if c.integer(0, 4):
        return m.b.value(c.pick(one), [a])
    return m.b.value(c.pick(two), m.shuffled(a, c.pick(m.like(a))))


def all_functions() -> frozenset[str]:
    return frozenset(name for names in FUNCTIONS for name in names)
