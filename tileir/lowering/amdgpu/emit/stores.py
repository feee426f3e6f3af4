"""Stores to global memory."""

from __future__ import annotations

from tileir.ir.core import Op
from tileir.lowering.amdgpu.emit.bounds import Access, Bounds, BufferOffsets, both
from tileir.lowering.amdgpu.emit.coords import coordinate, masks, thread
from tileir.lowering.amdgpu.emit.far_stores import far_store
from tileir.lowering.amdgpu.emit.state import State
from tileir.lowering.amdgpu.emit.views import (
    access_of,
    address,
    alignment,
    base_offset,
    buffer_store,
    descriptor,
    hint,
    memory_type,
    owner_test,
    to_memory,
    vector_length,
)


def store(s: State, op: Op) -> None:
    w = s.w
    t = op.operands[0].tile
    a = access_of(s, op, t.layout)
    if t.is_scalar:
        _store_scalar(s, op, a)
        return
    if a.picked is not None:
        _scatter(s, op, a)
        return
    if op.attrs["via"] == "global":
        far_store(s, op, a)
        return
    layout = t.layout
    assert layout is not None
    n = vector_length(s, op, t)
    tile = s.tile(op.operands[0])
    bounds = Bounds(s, a, t.shape, [masks(layout, d) for d in range(t.rank)])
    offsets = BufferOffsets(s, a, bounds, owner_test(s, layout))
    resource = descriptor(s, a, base_offset(s, a))
    piece = tile.pieces(w, n)
    for i, r in enumerate(range(0, layout.num_registers, n)):
        if r & layout.free.reg:
            continue  # a copy of another register
        coords = [coordinate(w, layout, r, d) for d in range(t.rank)]
        buffer_store(s, op, to_memory(w, piece(i), t, n), t.elem.run_bytes(n), resource, offsets.get(coords))


def _scatter(s: State, op: Op, a: Access) -> None:
    """Stores to picked rows, each for the lanes that are inside the view."""
    w, t = s.w, op.operands[0].tile
    layout = t.layout
    assert layout is not None
    n = vector_length(s, op, t)
    bounds = Bounds(s, a, t.shape, [masks(layout, d) for d in range(t.rank)])
    owner = owner_test(s, layout)
    start = base_offset(s, a)
    piece = s.tile(op.operands[0]).pieces(w, n)
    size = t.elem.run_bytes(n)
    for i, r in enumerate(range(0, layout.num_registers, n)):
        if r & layout.free.reg:
            continue
        coords = [coordinate(w, layout, r, d) for d in range(t.rank)]
        raw = to_memory(w, piece(i), t, n)
        pointer = address(s, a, start, coords)
        align = alignment(size)
        text = (
            f"llvm.store {raw}, {pointer} {{alignment = {align} : i64{hint(op)}}} : {memory_type(size)}, !llvm.ptr<1>"
        )
        w.when(both(w, owner, bounds.test(coords)), text)


def _store_scalar(s: State, op: Op, a: Access) -> None:
    """One lane of the workgroup stores a scalar."""
    w, t = s.w, op.operands[0].tile
    first = w.icmp("eq", thread(w), w.const(0))
    inside = Bounds(s, a, (), ()).test([])
    inside = w.binary("and", inside, first, "i1") if inside else first
    raw = to_memory(w, s.scalar(op.operands[0]), t, 1)
    pointer = address(s, a, base_offset(s, a), [])
    size = t.elem.bytes
    w.when(
        inside,
        f"llvm.store {raw}, {pointer} {{alignment = {size} : i64{hint(op)}}} : {memory_type(size)}, !llvm.ptr<1>",
    )
