"""Wave-level ops: LDS buffers, asynchronous copies, waits, barriers, changes of layout. Passes make them, experts may."""

from __future__ import annotations

from collections.abc import Sequence

from tileir.ir.ops.common import check_shape, wanted_layout
from tileir.ir.ops.memory import CACHE_ATTR, access_shape, check_pad
from tileir.ir.registry import AttrSpec, Check, OpDef, declare
from tileir.ir.types import GlobalType, SharedType, TileType, Type

MAX_STAGES = 16
"""Stages of one buffer: more would not fit LDS."""


def _alloc(c: Check) -> Sequence[Type]:
    want = c.wanted()
    if not isinstance(want, SharedType):
        c.fail("E0338", "'shared_alloc' needs its type", legal="shared_alloc() : shared<bf16[256, 64]>")
    check_shape(c, want.shape, "buffer")
    offset = c.attrs.get("offset", -1)
    assert isinstance(offset, int)
    if offset != -1 and (offset < 0 or offset % 16):
        c.fail("E0339", f"LDS offset {offset}", legal="a multiple of 16 bytes, at least 0")
    depth = c.attrs.get("depth", 0)
    assert isinstance(depth, int)
    if not 0 <= depth <= MAX_STAGES:
        c.fail("E0661", f"a depth of {depth} stages", legal=f"1 to {MAX_STAGES}, or 0 to leave it open")
    return [want]


declare(
    OpDef(
        "shared_alloc",
        "An LDS buffer of the workgroup. Its contents are undefined until written; `offset` is its place in bytes once allocated, "
        "`depth` the number of stages that `pipeline-loops` shall make of it (0: as many as suit the loop).",
        (),
        _alloc,
        attrs=(AttrSpec("offset", "int", default=-1), AttrSpec("depth", "int", default=0)),
        level="wave",
        effects=frozenset({"alloc"}),
        category="wave",
        semantics=lambda ctx, op, args: ctx.shared_alloc(op),
        example="%buf = shared_alloc() : shared<f32[64, 64]>",
    )
)


def _buffer(c: Check, i: int) -> SharedType:
    t = c.operands[i]
    if not isinstance(t, SharedType):
        c.fail("E0340", f"'{c.name}' wants an LDS buffer here, not {t}", i, legal="the result of shared_alloc")
    return t


def _shared_load(c: Check) -> Sequence[Type]:
    t, want = _buffer(c, 0), c.wanted()
    shape = want.shape if isinstance(want, TileType) else t.shape
    if shape != t.shape:
        if c.name != "shared_load" or (t.layout is not None and t.layout.kind != "rows"):
            c.fail(
                "E0341",
                f"a tile of {list(shape)} is not read from {t}",
                0,
                legal="equal shapes, or a buffer laid out as rows",
            )
        if TileType(t.elem, shape).size != TileType(t.elem, t.shape).size:
            c.fail("E0341", f"a tile of {list(shape)} has not as many elements as {t}", 0, legal="as many elements")
    return [TileType(t.elem, shape, wanted_layout(c, shape))]


declare(
    OpDef(
        "shared_load",
        "Reads a whole LDS buffer into registers, in the layout of the result type; a result of another shape takes the elements in "
        "row-major order.",
        ("buffer",),
        _shared_load,
        level="wave",
        effects=frozenset({"read"}),
        category="wave",
        semantics=lambda ctx, op, args: ctx.shared_load(op, args[0]),
        example="%x = shared_load(%buf) : tile<f32[64, 64]>",
    )
)


declare(
    OpDef(
        "shared_load_transposed",
        "The same as shared_load, by transposing reads: lanes hold runs of rows of the buffer, not of columns. Elements of 16 or 8 bits, "
        "chips that have such reads.",
        ("buffer",),
        _shared_load,
        level="wave",
        effects=frozenset({"read"}),
        category="wave",
        semantics=lambda ctx, op, args: ctx.shared_load(op, args[0]),
        example="%x = shared_load_transposed(%buf) : tile<f32[64, 64]>",
    )
)


def _shared_store(c: Check) -> Sequence[Type]:
    value, t = c.tile(0), _buffer(c, 1)
    if value.shape != t.shape or value.elem != t.elem:
        c.fail("E0341", f"{value.with_layout(None)} does not fit {t}", 0, legal=f"tile<{t.elem}{list(t.shape)}>")
    return []


declare(
    OpDef(
        "shared_store",
        "Writes a tile to a whole LDS buffer.",
        ("value", "buffer"),
        _shared_store,
        level="wave",
        effects=frozenset({"write"}),
        category="wave",
        semantics=lambda ctx, op, args: ctx.shared_store(op, args[0], args[1]),
        example="shared_store(%a, %buf)",
    )
)


def _copy(c: Check) -> Sequence[Type]:
    shape = access_shape(c, 0)
    view = c.operands[0]
    assert isinstance(view, GlobalType)
    t = _buffer(c, len(c.operands) - 1)
    if shape != t.shape or view.elem != t.elem:
        c.fail(
            "E0341",
            f"a span of {list(shape)} of {view.elem} does not fit {t}",
            0,
            legal=f"a span of {list(t.shape)} of {t.elem}",
        )
    check_pad(c, view.elem)
    return []


declare(
    OpDef(
        "copy_async",
        "Starts a direct copy from global memory to a whole LDS buffer; outside elements are 0. It has landed after a `wait` for it "
        "(and, for other waves, a barrier).",
        ("access", "buffer"),
        _copy,
        attrs=(AttrSpec("bytes", "int", doc="bytes per lane and instruction"), CACHE_ATTR),
        level="wave",
        effects=frozenset({"read", "write", "async"}),
        category="wave",
        semantics=lambda ctx, op, args: ctx.copy_async(op, args[0], args[1:-1], args[-1]),
        example="copy_async<bytes = 16>(%A[%i +: 64, %j +: 64], %buf)",
    )
)
declare(
    OpDef(
        "copy",
        "Copies a span of global memory to a whole LDS buffer through registers, a few elements of each lane at a time; "
        "outside elements read as `pad`. The slow, always possible way.",
        ("access", "buffer"),
        _copy,
        attrs=(
            AttrSpec("bytes", "int", doc="bytes per lane and access"),
            CACHE_ATTR,
            AttrSpec("pad", "number", default=0, paren=True),
        ),
        level="wave",
        effects=frozenset({"read", "write"}),
        category="wave",
        semantics=lambda ctx, op, args: ctx.copy(op, args[0], args[1:-1], args[-1]),
        example="copy<bytes = 4>(%A[%i +: 64, %j +: 64], %buf)",
    )
)
declare(
    OpDef(
        "wait",
        "Waits until at most `vm` vector-memory operations (loads, direct copies, stores) and `lgkm` LDS and scalar operations of "
        "this wave are outstanding; -1 leaves a counter alone.",
        (),
        lambda c: [],
        attrs=(AttrSpec("vm", "int", default=-1), AttrSpec("lgkm", "int", default=-1)),
        level="wave",
        effects=frozenset({"sync"}),
        category="wave",
        semantics=lambda ctx, op, args: ctx.wait(op),
        example="wait<vm = 0, lgkm = 0>()",
    )
)
declare(
    OpDef(
        "barrier",
        "All waves of the workgroup meet.",
        (),
        lambda c: [],
        level="wave",
        effects=frozenset({"sync"}),
        category="wave",
        semantics=lambda ctx, op, args: None,
        example="barrier()",
    )
)


def _convert_layout(c: Check) -> Sequence[Type]:
    t, want = c.tile(0, "a tile"), c.wanted()
    if not isinstance(want, TileType) or want.layout is None or want.with_layout(None) != t.with_layout(None):
        c.fail(
            "E0342", f"'convert_layout' of {t.with_layout(None)} to {want}", 0, legal="the same tile type with a layout"
        )
    return [want]


declare(
    OpDef(
        "convert_layout",
        "The same tile in another register layout.",
        ("x",),
        _convert_layout,
        level="wave",
        category="wave",
        semantics=lambda ctx, op, args: args[0],
        example="%y = convert_layout(%x) : tile<f32[1], linear(reg = [], lane = [[0], [0], [0], [0], [0], [0]], wave = [])>",
    )
)
