"""Ops that access views of device memory."""

from __future__ import annotations

from collections.abc import Sequence

from tileir.ir.core import AttrValue, Op, Value
from tileir.ir.ops.common import wanted_layout
from tileir.ir.registry import AttrSpec, Check, OpDef, declare, format_attr, get
from tileir.ir.types import I1, Elem, GlobalType, TileType, Type, scalar

# Attributes that passes put on accesses. `bytes` is the width of one access of a lane, `via` the kind of instruction;
# `stage`, `depth` are a schedule's wish for a load that feeds an `mma`.
ACCESS_ATTRS = (
    AttrSpec("bytes", "int", default=0, doc="bytes per lane and access; 0 = not chosen yet"),
    AttrSpec("via", "word", default="", choices=("", "buffer", "global"), doc="buffer or global instructions"),
)


CACHE_ATTR = AttrSpec(
    "cache",
    "word",
    default="",
    choices=("", "streaming"),
    doc="`streaming`: data that is used once, which caches give up first (a hint: results do not depend on it)",
)


def access_shape(c: Check, at: int) -> tuple[int, ...]:
    """Shape of the tile that the access at operand `at` spans; checks the view and the indices."""
    view = c.operands[at]
    if not isinstance(view, GlobalType):
        c.fail(
            "E0401",
            f"'{c.name}' accesses a view of global memory, not {view}",
            at,
            legal="a kernel argument of type global<…>",
        )
    assert c.spans is not None
    if len(c.spans) != view.rank:
        c.fail(
            "E0402",
            f"{len(c.spans)} indices for a view of rank {view.rank}, {view}",
            at,
            legal=f"{view.rank} indices: 'start +: extent' or a plain index each",
        )
    shape: list[int] = []
    gathers = 0
    for d, span in enumerate(c.spans):
        i = at + 1 + d
        index = c.tile(i, "an integer index")
        if not index.elem.is_int or index.elem.bits < 32:
            c.fail("E0403", f"index {d} has type {index}", i, legal="an i32 or i64 scalar (or integer tile of rows)")
        if span is not None:
            if not index.is_scalar:
                c.fail(
                    "E0404",
                    f"the start of a span must be a scalar, not {index}",
                    i,
                    legal="a plain tile index, without '+:'",
                )
            if span < 1:
                c.fail("E0405", f"a span of extent {span} is empty", i, legal="an extent of at least 1")
            shape.append(span)
        elif not index.is_scalar:
            gathers += 1
            if gathers > 1:
                c.fail("E0406", "two tile indices in one access", i, legal="at most one tile of indices per access")
            if index.rank > 2 or (index.rank == 2 and index.shape[1] != 1):
                c.fail("E0407", f"a tile index of shape {list(index.shape)}", i, legal="shape [n] or [n, 1]")
            shape.append(index.shape[0])
    if len(shape) > 3:
        c.fail("E0315", f"the access spans a tile of rank {len(shape)}", at, legal="spans in at most 3 dimensions")
    return tuple(shape)


def indices_of(op: Op) -> list[Value]:
    """The start or plain index of each view dimension of an access."""
    at = get(op.name).access_position
    assert at is not None and op.spans is not None
    return op.operands[at + 1 : at + 1 + len(op.spans)]


def cache_of(op: Op) -> dict[str, AttrValue]:
    """The cache policy of an access as an attribute of what takes its place."""
    return {"cache": op.attrs["cache"]} if op.attrs.get("cache") else {}


def tile_dims(op: Op) -> tuple[int, ...]:
    """For each dimension of the accessed tile the dimension of the view that it runs along."""
    assert op.spans is not None
    pairs = zip(op.spans, indices_of(op), strict=True)
    return tuple(d for d, (span, index) in enumerate(pairs) if span is not None or not index.tile.is_scalar)


def picked_dim(op: Op) -> int | None:
    """The dimension of the view whose rows a tile of indices picks, or None."""
    return next((d for d, index in enumerate(indices_of(op)) if not index.tile.is_scalar), None)


def check_pad(c: Check, elem: Elem) -> None:
    """What stands in for elements outside of a view must be a value of its elements."""
    pad = c.attrs.get("pad", 0)
    assert isinstance(pad, int | float)
    if not elem.is_int:
        return
    low, high = -(1 << (elem.bits - 1)), (1 << elem.bits) - 1
    if isinstance(pad, float) and not pad.is_integer():
        c.fail("E0319", f"pad = {format_attr(pad)} is not a value of {elem}", legal=f"an integer from {low} to {high}")
    if not low <= pad <= high:
        c.fail("E0320", f"pad = {format_attr(pad)} does not fit in {elem}", legal=f"{low} to {high}")


def _load(c: Check) -> Sequence[Type]:
    view = c.operands[0]
    shape = access_shape(c, 0)
    assert isinstance(view, GlobalType)
    check_pad(c, view.elem)
    return [TileType(view.elem, shape, wanted_layout(c, shape))]


declare(
    OpDef(
        "load",
        "Reads the elements that the access spans; elements outside the view (also for negative starts) read as `pad`. A "
        "pad of 0 means zero bits, which in f8E8M0FNU are 2^-127.",
        ("access",),
        _load,
        attrs=(
            AttrSpec("pad", "number", default=0, paren=True),
            *ACCESS_ATTRS,
            CACHE_ATTR,
            AttrSpec(
                "stage",
                "word",
                default="",
                choices=("", "direct", "via_registers", "none"),
                doc="how it reaches LDS; `none` past it, to registers",
            ),
            AttrSpec("depth", "int", default=0, doc="stages in flight that the schedule asks for"),
        ),
        level="both",
        effects=frozenset({"read"}),
        category="memory",
        semantics=lambda ctx, op, args: ctx.load(op, args[0], args[1:]),
        example="%t = load(%A[%i +: 64, %j +: 64]) : tile<f32[64, 64]>",
    )
)


def _store(c: Check) -> Sequence[Type]:
    value = c.tile(0)
    shape = access_shape(c, 1)
    view = c.operands[1]
    assert isinstance(view, GlobalType)
    if value.elem != view.elem:
        c.fail(
            "E0313", f"a value of {value.elem} is stored to a view of {view.elem}", 0, legal=f"convert<{view.elem}>(…)"
        )
    if value.shape != shape:
        c.fail(
            "E0408",
            f"a tile of shape {list(value.shape)} is stored to a span of {list(shape)}",
            0,
            legal="equal shapes",
        )
    return []


declare(
    OpDef(
        "store",
        "Writes a tile to the elements that the access spans; elements outside the view are dropped.",
        ("value", "access"),
        _store,
        attrs=(*ACCESS_ATTRS, CACHE_ATTR),
        level="both",
        effects=frozenset({"write"}),
        category="memory",
        semantics=lambda ctx, op, args: ctx.store(op, args[0], args[1], args[2:]),
        example="store(%a, %A[%i +: 64, %j +: 64])",
    )
)


def _prefetch(c: Check) -> Sequence[Type]:
    access_shape(c, 0)
    return []


declare(
    OpDef(
        "prefetch",
        "Says that the elements which the access spans will be read soon. A hint: it changes no value, and touches no memory outside the view. "
        "gfx942 and gfx950 have no instruction for it, so there it goes.",
        ("access",),
        _prefetch,
        effects=frozenset({"read"}),
        category="memory",
        semantics=lambda ctx, op, args: (),
        example="prefetch(%A[%i +: 64, %j +: 64])",
    )
)


def _accessible(c: Check) -> Sequence[Type]:
    access_shape(c, 0)
    return [scalar(I1)]


declare(
    OpDef(
        "accessible",
        "True iff lanes may access the view with `bytes` each: base address, strides and row end are multiples of `bytes`, the "
        "fastest dimension is contiguous, and the span of one access stays below 2 GiB, that of all tiles of one trip of a loop "
        "below 1 GiB. Both answers compute the same; the "
        "interpreter says true. (The indices of the access are not looked at.)",
        ("access",),
        _accessible,
        attrs=(AttrSpec("bytes", "int"),),
        level="wave",
        category="memory",
        semantics=lambda ctx, op, args: True,
        example="%f = accessible<bytes = 16>(%A[%i +: 64, %j +: 64]) : i1",
    )
)
