"""Atomic updates of global memory, element by element (pairs of 16-bit floats), and fences.

Each update stands in a branch of its own for the lanes that are inside the view; sums through buffer instructions need none, as these
drop what is outside. What the chip has no instruction for, LLVM makes a loop of compare-and-swap. Orderings are fences of the text
(`order-atomics`): the updates themselves are relaxed.
"""

from __future__ import annotations

from tileir.ir.core import Op
from tileir.lowering.amdgpu.emit.bounds import Access, Bounds, BufferOffsets, both
from tileir.lowering.amdgpu.emit.clipped import ClippedOffsets, can_clip
from tileir.lowering.amdgpu.emit.coords import coordinate, masks
from tileir.lowering.amdgpu.emit.state import State
from tileir.lowering.amdgpu.emit.tiles import Tile
from tileir.lowering.amdgpu.emit.views import access_of, address, base_offset, descriptor, owner_test, vector_length
from tileir.lowering.amdgpu.emit.writer import scalar_type, vector_type
from tileir.passes.split_access import adds_unseen

# LLVM's names of our scopes (AMDGPUUsage, memory scopes); the widest has none.
_SCOPES = {"workgroup": 'syncscope("workgroup") ', "device": 'syncscope("agent") ', "system": ""}
_INTEGER = {"add": "add", "max": "max", "min": "min", "and": "_and", "or": "_or", "xor": "_xor", "xchg": "xchg"}
_FLOAT = {"add": "fadd", "max": "fmax", "min": "fmin", "xchg": "xchg"}


def atomic(s: State, op: Op) -> None:
    """An update of a tile of elements in the layout of its operand. Scalars are tiles of one element by now."""
    w = s.w
    value = op.operands[0].tile
    layout = value.layout
    if layout is None or op.attrs.get("ordering", "relaxed") != "relaxed":
        raise s.unsupported(f"this '{op.name}'", op.loc, "the passes lower-conversions and order-atomics run before")
    a = access_of(s, op, layout)
    n = vector_length(s, op, value)
    bounds = Bounds(s, a, value.shape, [masks(layout, d) for d in range(value.rank)])
    owner = owner_test(s, layout)
    if op.attrs.get("via") == "buffer":
        _add_through_buffer(s, op, a, n, bounds, owner)
        return
    start = base_offset(s, a)
    operands = op.operands[: 2 if op.name == "atomic_cas" else 1]
    pieces = [s.tile(v).pieces(w, n) for v in operands]
    element = scalar_type(value.elem)
    t = vector_type(element, n)
    zero = s.splat_literal(0, value.elem, n)
    found: list[str] = []
    for i, r in enumerate(range(0, layout.num_registers, n)):
        if r & layout.free.reg:  # a copy of another register
            found.append(zero)
            continue
        coords = [coordinate(w, layout, r, d) for d in range(value.rank)]
        parts = [piece(i) for piece in pieces]
        pointer = address(s, a, start, coords)
        inside = both(w, owner, bounds.test(coords)) or w.const(1, "i1")
        then, after = w.label(), w.label()
        if not op.results:
            w.cond_branch(inside, then, after)
            w.start(then)
            _update(s, op, pointer, parts, t)
            w.branch(after)
            w.start(after)
            continue
        w.cond_branch(inside, then, after, other_args=([zero], [t]))
        w.start(then)
        old = _update(s, op, pointer, parts, t)
        w.branch(after, [old], [t])
        result = w.name()
        w.start(after, [(result, t)])
        found.append(result)
    if op.results:
        s.values[op.result] = Tile(op.result.tile, n, found)


def _add_through_buffer(s: State, op: Op, a: Access, n: int, bounds: Bounds, owner: str) -> None:
    """Adds f32, one element an instruction, which every wave issues: what is outside the view has an offset that is out of range. Without a
    bit of scope the step is indivisible for the device (AMDGPUUsage, memory model of gfx942: agent scope)."""
    w, value = s.w, op.operands[0].tile
    assert value.layout is not None
    if not adds_unseen(op) or n != 1:
        raise s.unsupported(f"this '{op.name}' through a buffer", op.loc, "via = global")
    if can_clip(s, op, a, bounds):
        with s.opaque_symbols(s.has_products and w.in_loop):
            offsets = ClippedOffsets(s, op, a, value.shape, owner)
        resource = offsets.resource
    else:
        offsets, resource = BufferOffsets(s, a, bounds, owner), descriptor(s, a, base_offset(s, a))
    zero = w.const(0)
    piece = s.tile(op.operands[0]).pieces(w, 1)
    for r in range(value.layout.num_registers):
        if r & value.layout.free.reg:
            continue  # a copy of another register
        offset = offsets.get([coordinate(w, value.layout, r, d) for d in range(value.rank)])
        w.line(f"rocdl.raw.ptr.buffer.atomic.fadd {piece(r)}, {resource}, {offset}, {zero}, {zero} : f32")


def _update(s: State, op: Op, pointer: str, parts: list[str], t: str) -> str:
    """One instruction; gives the old value."""
    w = s.w
    elem = op.operands[0].tile.elem
    scope = str(op.attrs.get("scope", "device"))
    kind = op.name.removeprefix("atomic_")
    where = f"{_SCOPES[scope]}monotonic"
    if kind == "cas":
        word = f"i{elem.bits}"
        expected, desired = (w.bitcast(x, t, word) for x in parts)
        pair = w.op(
            f"llvm.cmpxchg {pointer}, {expected}, {desired} {where} monotonic {{alignment = {elem.bytes} : i64}} : "
            f"!llvm.ptr<1>, {word}"
        )
        return w.bitcast(w.op(f"llvm.extractvalue {pair}[0] : !llvm.struct<({word}, i1)>"), word, t)
    name = (_FLOAT if elem.is_float else _INTEGER)[kind]
    size = elem.bytes * (2 if t.startswith("vector") else 1)
    # Instructions that add floats may do nothing in memory of the host: only what a whole system may look at goes without them.
    device = "" if scope == "system" else ", rocdl.no_fine_grained_memory"
    return w.op(
        f"llvm.atomicrmw {name} {pointer}, {parts[0]} {where} {{alignment = {size} : i64{device}}} : !llvm.ptr<1>, {t}"
    )


def fence(s: State, op: Op) -> None:
    s.w.line(f"llvm.fence {_SCOPES[str(op.attrs.get('scope', 'device'))]}{op.attrs['ordering']}")
