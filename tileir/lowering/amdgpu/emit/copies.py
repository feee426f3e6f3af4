"""`copy`: element by element from global memory to LDS, for views that nothing wider can read."""

from __future__ import annotations

from tileir.ir.core import Op
from tileir.ir.types import SharedType, TileType
from tileir.layout.shared import SharedLayout
from tileir.lowering.amdgpu.emit import lds_sources, views
from tileir.lowering.amdgpu.emit.bounds import Access, Bounds, both, scaled
from tileir.lowering.amdgpu.emit.coords import Coordinate, thread
from tileir.lowering.amdgpu.emit.shared import ACCESS_SCOPES, POINTER, base, buffer_layout
from tileir.lowering.amdgpu.emit.state import State
from tileir.passes.lds_accesses import copies_by_place
from tileir.records import dataclass

COPY_UNROLL = 8  # elements of a lane in flight: hides latency, costs few registers


@dataclass(frozen=True)
class _Shape:
    """A copy of `total` units, of which `threads` threads take `unroll` each in every one of `trips` rounds."""

    shared: SharedLayout
    by_place: bool
    threads: int
    total: int
    unroll: int
    trips: int
    padded: bool

    @property
    def whole(self) -> bool:
        """Whether every thread has a unit each time."""
        return self.trips * self.unroll * self.threads == self.total and not self.padded


def copy_elements(s: State, op: Op) -> None:
    """A loop in which the threads of the workgroup take consecutive places of the buffer in turn, or consecutive elements
    of the tile (see `copies_by_place`)."""
    t = op.operands[-1].type
    assert isinstance(t, SharedType)
    shared, waves = buffer_layout(t), s.kernel.attrs["waves"]
    assert isinstance(waves, int)
    threads = waves * views.LANES
    together, size = t.elem.unit
    by_place = copies_by_place(t.elem)
    total = shared.size_bytes // size if by_place else shared.rows * shared.cols // together
    per_lane = -(-total // threads)
    unroll = min(COPY_UNROLL, per_lane)
    padded = by_place and shared.size_bytes != shared.image_bytes
    shape = _Shape(shared, by_place, threads, total, unroll, -(-per_lane // unroll), padded)
    step = _rows_apart(shape, waves, size) if len(t.shape) == 2 else 0
    w = s.w
    body, after = w.label(), w.label()
    a = views.access_of(s, op)
    start = views.base_offset(s, a)
    trip = w.name()
    w.branch(body, [w.const(0)], ["i32"])
    w.start(body, [(trip, "i32")])
    if step:
        _by_rows(s, op, a, shape, start, trip, step)
    else:
        _by_units(s, op, a, shape, start, trip)
    following = w.add(trip, 1)
    more = w.icmp("ult", following, w.const(shape.trips))
    w.cond_branch(more, body, after, ([following], ["i32"]))
    w.start(after)


def _rows_apart(shape: _Shape, waves: int, size: int) -> int:
    """The number of rows by which what a thread takes is below what it took before, if it is always in the same column; else 0."""
    if not shape.by_place or not shape.whole or shape.shared.kind in ("padded", "slabs"):
        return 0
    found = lds_sources.slabs(shape.shared, shape.trips * shape.unroll, waves, size)
    step = found[1][1] if len(found) > 1 else 0
    return step if all(place == (0, i * step, 0) for i, place in enumerate(found)) else 0


def _by_rows(s: State, op: Op, a: Access, shape: _Shape, start: str, trip: str, step: int) -> None:
    """One round in which each unit of a thread is `step` rows below the one before: one place, and sums."""
    w, t = s.w, op.operands[-1].type
    assert isinstance(t, SharedType)
    size = t.elem.unit[1]
    at = w.mul(thread(w), size)
    row, place = lds_sources.place(w, shape.shared, at)
    col = Coordinate(w.mul(w.binary("lshr", place, w.const(size.bit_length() - 1)), t.elem.unit[0]), 0)
    row = w.binary("add", row, w.mul(trip, shape.unroll * step))
    bounds = Bounds(s, a, t.shape, [False] * 2)
    beside = both(w, bounds.fixed, bounds.along(1, col))
    pointer = views.address(s, a, start, [Coordinate(row, 0), col])
    down = scaled(s, w.const(step, "i64"), a.type, a.tile_dims[0], "i64")
    loaded: list[str] = []
    for i in range(shape.unroll):
        if i:
            pointer = w.op(f"llvm.getelementptr {pointer}[{down}] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8")
        inside = both(w, bounds.along(0, Coordinate(row, i * step)), beside)
        loaded.append(_loaded(s, op, t, pointer, inside, inside))
    distance = shape.threads * size
    at = w.binary("add", at, w.mul(trip, shape.unroll * distance))
    for i, raw in enumerate(loaded):
        _write(s, op, t, raw, w.add(at, i * distance), "")


def _by_units(s: State, op: Op, a: Access, shape: _Shape, start: str, trip: str) -> None:
    """One round in which the place of every unit is computed."""
    w, t, shared = s.w, op.operands[-1].type, shape.shared
    assert isinstance(t, SharedType)
    together, size = t.elem.unit
    first = w.binary("add", w.mul(trip, shape.unroll * shape.threads), thread(w))
    loaded: list[tuple[str, str, str]] = []
    for i in range(shape.unroll):
        index = w.add(first, i * shape.threads)
        if shape.by_place:
            at = w.mul(index, size)
            row, place = lds_sources.place(w, shared, at)
            col = w.binary("lshr", place, w.const(size.bit_length() - 1))
        else:
            row, col = (w.binary(f, index, w.const(shared.cols // together)) for f in ("udiv", "urem"))
            at = w.binary("add", w.mul(row, shared.row_bytes), w.mul(col, size))
        coords = [Coordinate(x, 0) for x in _unflatten(s, row, t.shape[:-1])] + [Coordinate(w.mul(col, together), 0)]
        inside = Bounds(s, a, t.shape, [False] * t.rank).test(coords)
        mine = w.icmp("ult", index, w.const(shape.total))
        if shape.padded:
            for x, n in ((row, shared.rows), (col, shared.cols // together)):
                mine = w.binary("and", mine, w.icmp("ult", x, w.const(n)), "i1")
        address = views.address(s, a, start, coords)
        valid = w.binary("and", inside, mine, "i1") if inside else mine
        loaded.append((_loaded(s, op, t, address, valid, inside), at, mine))
    for raw, at, mine in loaded:
        _write(s, op, t, raw, at, "" if shape.whole else mine)


def _loaded(s: State, op: Op, t: SharedType, address: str, valid: str, inside: str) -> str:
    """A unit from an address where that is `valid` ("": always), else zero; the pad where it is not `inside` of the view."""
    w, pad = s.w, op.attrs.get("pad", 0)
    assert isinstance(pad, int | float)
    together, size = t.elem.unit
    element = views.memory_type(size)
    address = w.select(valid, address, s.zeros(), "!llvm.ptr<1>") if valid else address
    align = f"alignment = {views.alignment(size)} : i64{views.hint(op)}"
    raw = w.op(f"llvm.load {address} {{{align}}} : !llvm.ptr<1> -> {element}")
    if pad == 0 or not inside:
        return raw
    outside = views.to_memory(w, s.splat_literal(pad, t.elem, together), TileType(t.elem), together)
    return w.select(inside, raw, outside, element)


def _write(s: State, op: Op, t: SharedType, raw: str, at: str, mine: str) -> None:
    """A unit to byte `at` of the buffer, by the lanes of which that is `mine`."""
    w, size = s.w, t.elem.unit[1]
    target = w.op(f"llvm.getelementptr inbounds {base(s, op.operands[-1])}[{at}] : ({POINTER}, i32) -> {POINTER}, i8")
    scopes = f"alignment = {views.alignment(size)} : i64, {ACCESS_SCOPES}"
    w.when(mine, f"llvm.store {raw}, {target} {{{scopes}}} : {views.memory_type(size)}, {POINTER}")


def _unflatten(s: State, row: str, shape: tuple[int, ...]) -> list[str]:
    """Coordinates of a row number along the leading dimensions."""
    w = s.w
    out: list[str] = []
    for n in reversed(shape[1:]):
        out.append(w.binary("urem", row, w.const(n)))
        row = w.binary("udiv", row, w.const(n))
    return [row, *reversed(out)] if shape else []
