"""Accesses whose descriptor ends where the view does, so that lanes test no rows.

Where a tile of a contiguous view may leave it only along the outermost of the tile's dimensions, its rows, all that is outside lies behind the
last row of the view or before the first. So the descriptor begins at the tile's first element, or in row 0 if that is further on, and
has as many bytes as the view has rows left. What lies before it has a negative offset: as a number without sign it is behind every descriptor,
as the tile spans at most half of what one reaches (`reaches`), and as nothing is added to it in the instruction, where sums do not wrap. A
row that a lane holds costs the addition of a scalar, which is computed again in each tile: of 16 rows, LLVM would keep as many scalar registers
through a loop. Elements of one row (`is_row`) are constants from one register.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tileir.ir.core import Op
from tileir.ir.registry import get
from tileir.ir.types import I32, GlobalType
from tileir.lowering.amdgpu.emit.bounds import OUTSIDE, Access, Bounds, base_offset, descriptor, known_stride, scaled
from tileir.lowering.amdgpu.emit.coords import Coordinate, masks
from tileir.lowering.amdgpu.emit.state import State
from tileir.lowering.amdgpu.emit.tiles import tied
from tileir.passes.split_access import adds_unseen

MOST_SPAN = OUTSIDE // 2
FEW = 4  # registers that hold no more than what it would cost to have fewer
DWORD = 4  # bytes in which the hardware tests whether an access is within its descriptor


class Clipped:
    """Descriptor of an access whose tile has `extent` rows along dimension `d` of its view, of `pitch` bytes (i32) each. It begins no further
    back than in row 0 and serves `most` rows from there on; `before` are the bytes (i32, 0 or negative) from there to the tile's first row, ""
    if that is known not to be negative (`positive`)."""

    def __init__(
        self, s: State, a: Access, bounds: Bounds, d: int, extent: int, pitch: str, most: int, *, positive: bool
    ):
        w = s.w

        def scalar(value: str) -> str:
            """Hides where a value comes from: for a clamp and for a conjunction LLVM knows vector instructions only."""
            return tied(w, value, "i32", "s", ordered=False)

        index, size, zero = a.indices[d], a.type.dims[d], w.const(0)
        first = index if positive else w.op(f"llvm.intr.smax({index}, {zero}) : (i32, i32) -> i32")
        size = w.const(size) if isinstance(size, int) else s.symbol(size)[0]
        # Also if the index passed 2^31, which is none of the view's rows.
        left = w.select(w.icmp("ult", first, size), w.binary("sub", size, first), zero, "i32")
        left = w.op(f"llvm.intr.smin({scalar(left)}, {w.const(most)}) : (i32, i32) -> i32")
        bytes = w.binary("mul", left, pitch)
        in_row = _in_row(s, a, d)
        if in_row:  # no row is left, or more bytes of it than these
            bytes = w.op(f"llvm.intr.smax({w.binary('sub', bytes, in_row)}, {zero}) : (i32, i32) -> i32")
        for test in bounds.of_plain():
            bytes = w.select(test, scalar(bytes), zero, "i32")
        begin = replace(a, indices=[first if i == d else x for i, x in enumerate(a.indices)])
        reach = w.op(f"llvm.zext {bytes} : i32 to i64")
        self.resource = descriptor(s, a, base_offset(s, begin), reach)
        self.before = ""
        if not positive:
            behind = w.op(f"llvm.intr.smin({index}, {zero}) : (i32, i32) -> i32")
            behind = w.op(f"llvm.intr.smax({scalar(behind)}, {w.const(-extent)}) : (i32, i32) -> i32")
            self.before = w.binary("mul", behind, pitch)


def _in_row(s: State, a: Access, row: int) -> str:
    """Bytes by which a tile begins behind the start of a row of the view, right where all indices along the row are inside; "" if none."""
    w, total = s.w, ""
    for d, index, t in a.scalars:
        if d > row and a.starts[d : d + 1] != (0,):
            index = index if t == "i32" else w.op(f"llvm.trunc {index} : i64 to i32")
            part = scaled(s, index, a.type, d, "i32")
            total = w.binary("add", total, part) if total else part
    return total


class ClippedOffsets:
    """Descriptor and byte offsets (i32) of an access that `can_clip`; `owner` is a test that must hold besides ("": none)."""

    def __init__(self, s: State, op: Op, a: Access, shape: Sequence[int], owner: str):
        positive = not_negative(s, op, a.tile_dims[0])
        a = _hidden(s, a)
        self.s, self.a, self.owner = s, a, owner
        d, bounds = a.tile_dims[0], Bounds(s, a, shape, [False] * len(shape))
        self.pitch = scaled(s, s.w.const(1), a.type, d, "i32")
        if known_stride(a.type, d) is None:
            self.pitch = tied(s.w, self.pitch, "i32", "s", ordered=True)
        clipped = Clipped(s, a, bounds, d, _extent(a), self.pitch, _extent(a), positive=positive)
        self.resource, self.before = clipped.resource, clipped.before
        self._lanes: dict[tuple[str, ...], str] = {}

    def get(self, coords: Sequence[Coordinate]) -> str:
        s, w, view = self.s, self.s.w, self.a.type
        bases = tuple(c.base for c in coords)
        parts = list(zip(self.a.tile_dims, coords, strict=True))

        def lanes() -> str:
            total = ""
            for d, c in parts:
                part = scaled(s, c.base, view, d, "i32")
                total = w.binary("add", total, part) if total else part
            return total

        if bases not in self._lanes:
            offset = w.hoist(("clipped", bases, view, tuple(self.a.tile_dims)), lanes)
            offset = w.binary("add", offset, self.before) if self.before else offset
            if self.owner:
                offset = w.select(self.owner, offset, w.const(OUTSIDE - (1 << 32)), "i32")
            self._lanes[bases] = offset
        (_, row), *others = parts
        step = w.mul(self.pitch, row.offset) if row.offset else ""
        for d, c in others:
            if c.offset:
                part = scaled(s, w.const(c.offset), view, d, "i32")
                step = w.binary("add", step, part) if step else part
        # Opaque, or LLVM would multiply and add at once, which takes four times as long, and have the instruction add constants.
        return (
            w.binary("add", self._lanes[bases], tied(w, step, "i32", "s", ordered=False))
            if step
            else self._lanes[bases]
        )


def _hidden(s: State, a: Access) -> Access:
    """An access whose indices are opaque here, so that what is computed from them stays: LLVM would compute all that a loop does not change before
    it, and keep a register for each part."""
    known = [a.starts[d : d + 1] not in ((), (None,)) for d in range(len(a.indices))]
    parts = zip(a.indices, a.index_types, known, strict=True)
    return replace(a, indices=[x if fixed else tied(s.w, x, t, "s", ordered=True) for x, t, fixed in parts])


def _extent(a: Access) -> int:
    extent = a.spans[a.tile_dims[0]]
    assert extent is not None
    return extent


def can_clip(s: State, op: Op, a: Access, bounds: Bounds) -> bool:
    """Whether the only test of an access in which lanes differ is that of the outermost dimension of its tile, in a contiguous view, and all
    of the tile is within half of what a descriptor reaches: as a fact, or because the launch tests it."""
    if a.picked is not None or a.type.strides is not None or a.type.elem.bytes < DWORD or any(bounds.holes):
        return False
    if not a.tile_dims or a.tile_dims[0] != min(a.tile_dims) or bounds.fits[0] or not all(bounds.fits[1:]):
        return False
    d = a.tile_dims[0]
    size = a.type.dims[d]
    narrow = a.index_types[d] == "i32" and (isinstance(size, int) or s.symbols[size][1] == "i32")
    return narrow and _extent(a) > 1 and ((a.view, op.spans) in s.tested or _known_span(a) <= MOST_SPAN)


def clipped_row(s: State, a: Access, extent: int, *, positive: bool) -> Clipped:
    """The same for a stretch of a row, which `is_row`: all of the row from there on is served."""
    bounds, size = Bounds(s, a, (), ()), a.type.elem.bytes
    return Clipped(s, a, bounds, a.type.rank - 1, extent, s.w.const(size), OUTSIDE // size, positive=positive)


def row_offsets(s: State, places: Sequence[Coordinate], size: int, before: str = "") -> list[tuple[str, int]]:
    """Offsets (i32, and a constant to add) of elements of `size` bytes of such a row: one register for those of a lane that differ by constants, or
    for each of a few, which costs no move in a loop."""
    w = s.w
    lanes: dict[str, str] = {}
    for c in places:
        if c.base not in lanes:
            own = w.mul(c.base, size)
            lanes[c.base] = w.binary("add", own, before) if before else own
    if len(places) <= FEW:
        return [(w.add(lanes[c.base], c.offset * size), 0) for c in places]
    return [(lanes[c.base], c.offset * size) for c in places]


def not_negative(s: State, op: Op, d: int) -> bool:
    """Whether the index along dimension `d` of an access is known to be none below 0."""
    at = get(op.name).access_position
    assert at is not None
    return s.ranges.of(op.operands[at + 1 + d])[0] >= 0


def is_row(s: State, op: Op, view: GlobalType) -> bool:
    """Whether an access is to a stretch of a row of a contiguous view, of whole dwords, and lanes hold no holes. Only in kernels with products:
    others have registers to spare."""
    size, spans = view.dims[-1], op.spans or (None,)
    if not s.has_products or view.strides is not None or view.elem.bytes < DWORD:
        return False
    if spans[-1] is None or any(n is not None for n in spans[:-1]):
        return False
    at, t = get(op.name).access_position, op.result.tile
    assert at is not None
    narrow = op.operands[at + len(spans)].tile.elem is I32 and (isinstance(size, int) or s.symbols[size][1] == "i32")
    return narrow and t.layout is not None and not masks(t.layout, 0)


def _known_span(a: Access) -> int:
    """Bytes from the first element of a tile to the end of the last, more than anything reaches if only the launch says."""
    sizes = [(n, known_stride(a.type, d)) for d, n in enumerate(a.spans) if n is not None and n > 1]
    distances = [(n - 1) * x for n, x in sizes if x is not None]
    return (sum(distances) + 1) * a.type.elem.bytes if len(distances) == len(sizes) else OUTSIDE


def reaches(s: State, test: Op) -> list[tuple[int | None, ...]]:
    """Spans of an `accessible` that may take half of what a descriptor reaches, as accesses that clip have them."""
    if test.spans is None:
        return []
    view = test.operands[0]
    clips = [op for op in s.kernel.walk() if is_clipped(op) and view in op.operands and op.spans == test.spans]
    return [test.spans] if clips else []


def is_clipped(op: Op) -> bool:
    """Whether an access takes this form if it `can_clip`."""
    return adds_unseen(op) and op.attrs.get("via") == "buffer"
