"""Fragments: one op of the text is one instruction, in the order of the text."""

from __future__ import annotations

from tileir.ir.core import Kernel, Op, Value
from tileir.ir.diagnostics import error
from tileir.ir.ops.contract import SCALE
from tileir.ir.types import FragmentType, SharedType, TileType
from tileir.layout.transposed import elements_per_read
from tileir.lowering.amdgpu.emit import packed, shared, views
from tileir.lowering.amdgpu.emit.coords import coordinate, masks, wave
from tileir.lowering.amdgpu.emit.matrix import Scales, emit_product, matrix_instruction
from tileir.lowering.amdgpu.emit.state import State
from tileir.lowering.amdgpu.emit.tiles import Tile, at_pin, pin_constraint, tied
from tileir.lowering.amdgpu.emit.writer import Writer, fragment_type, scalar_type, vector_type
from tileir.passes.chains import carried_links, reached
from tileir.passes.lds_accesses import access_bytes, over_buffer
from tileir.passes.mfma_choice import SCALES_TOGETHER
from tileir.passes.transposing_reads import addressed_layout
from tileir.target import packs_under_products

ACCUMULATION = "accumulation"


def type_of(v: Value) -> FragmentType:
    assert isinstance(v.type, FragmentType), v
    return v.type


def mlir_type(t: FragmentType) -> str:
    return fragment_type(t.elem, t.count)


def _check_no_scales(s: State, op: Op) -> None:
    """Scales are words, of which no parts have a name."""
    for v in (*op.operands, *op.results):
        if isinstance(v.type, FragmentType) and v.type.elem.name == SCALE:
            raise s.unsupported(
                f"'{op.name}' of {v.type}", op.loc, "the fragment that 'load_fragment' gives, as an operand of 'mfma'"
            )


def _scale_word(w: Writer, raw: str, n: int) -> str:
    """Loaded scales as a word."""
    return raw if n == SCALES_TOGETHER else w.op(f"llvm.zext {raw} : {views.memory_type(n)} to i32")


def accumulator_ties(kernel: Kernel) -> dict[Value, str]:
    """Fragments that are accumulators in the accumulation file at some time: constraint of their ties."""
    products = [op for op in kernel.walk() if op.name == "mfma" and op.attrs.get("file") == ACCUMULATION]
    if not products:
        return {}
    links = carried_links(kernel)
    return dict.fromkeys(reached(links, [v for op in products for v in (op.result, op.operands[2])]), "a")


def accumulator_pins(kernel: Kernel) -> dict[Value, str]:
    """Fragments that are pinned accumulators at some time: constraint of the registers."""
    pins: dict[Value, str] = {}
    links = None
    for op in kernel.walk():
        if op.name == "mfma" and op.attrs.get("pin") and op.result not in pins:
            links = links or carried_links(kernel)
            constraint = pin_constraint(op, 0, type_of(op.result).registers)
            pins.update(dict.fromkeys(reached(links, [op.result, op.operands[2]]), constraint))
    return pins


def split(s: State, op: Op) -> None:
    _check_no_scales(s, op)
    pieces = s.tile(op.operands[0]).get(s.w, type_of(op.results[0]).count)
    for v, piece in zip(op.results, pieces, strict=True):
        s.values[v] = piece


def join(s: State, op: Op) -> None:
    """A tile from fragments of one size. Those in the accumulation file stay there until each is used."""
    _check_no_scales(s, op)
    sizes = {type_of(v).count for v in op.operands}
    if len(sizes) != 1:
        raise s.unsupported("'join_registers' of fragments of different sizes", op.loc, "fragments of one size")
    tile = Tile(op.result.tile, sizes.pop(), [s.scalar(v) for v in op.operands])
    tile.tie = s.fragment_ties.get(op.operands[0], "")
    s.values[op.result] = tile


def slice_fragment(s: State, op: Op) -> None:
    _check_no_scales(s, op)
    t, source, at = type_of(op.result), type_of(op.operands[0]), op.attrs["at"]
    assert isinstance(at, int)
    x = s.scalar(op.operands[0])
    if scalar_type(t.elem) in packed.WIDTHS:
        s.values[op.result] = packed.part(s.w, x, scalar_type(t.elem), source.count, at, t.count)
        return
    if t.count == 1:
        s.values[op.result] = s.w.extract(x, at, mlir_type(source))
        return
    picks = ", ".join(str(at + i) for i in range(t.count))
    s.values[op.result] = s.w.op(f"llvm.shufflevector {x}, {x} [{picks}] : {mlir_type(source)}")


def join_fragments(s: State, op: Op) -> None:
    """Pairs of equal size become vectors of twice the size, until one is left."""
    _check_no_scales(s, op)
    types = [type_of(v) for v in op.operands]
    if len({t.count for t in types}) != 1 or len(types) & (len(types) - 1):
        raise s.unsupported(f"'join_fragments' of {len(types)} parts", op.loc, "1, 2, 4, … parts of one size")
    parts, n, element = [s.scalar(v) for v in op.operands], types[0].count, scalar_type(types[0].elem)
    if element in packed.WIDTHS:
        s.values[op.result] = packed.joined(s.w, parts, element, n)
        return
    if n == 1:
        s.values[op.result] = s.w.pack(parts, element)
        return
    while len(parts) > 1:
        picks = ", ".join(str(i) for i in range(2 * n))
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [s.w.op(f"llvm.shufflevector {a}, {b} [{picks}] : {vector_type(element, n)}") for a, b in pairs]
        n *= 2
    s.values[op.result] = parts[0]


def _at(op: Op) -> int:
    at = op.attrs.get("at", 0)
    assert isinstance(at, int)
    return at


def _check_width(op: Op, t: FragmentType, most: int) -> int:
    """Bytes of an access to LDS, which must be one that an instruction has and the layouts keep together."""
    width = t.count * t.elem.bits // 8
    if width not in (1, 2, 4, 8, 16) or width > most:
        raise error(
            "E0720",
            f"'{op.name}' of {width} bytes a lane, but the layouts keep {most} bytes together",
            op.loc,
            legal=f"a fragment of {most // max(1, t.elem.bits // 8)} elements or fewer",
        )
    return width


def shared_load(s: State, op: Op) -> None:
    t, tile, buffer = type_of(op.result), op.operands[1].tile, op.operands[0]
    assert tile.layout is not None and isinstance(buffer.type, SharedType)
    layout = over_buffer(tile.layout, buffer.type)
    width = _check_width(op, t, access_bytes(TileType(t.elem, layout.shape, layout), shared.buffer_layout(buffer.type)))
    address = shared.read_address(s, buffer, layout, _at(op), buffer.type)
    if t.elem.name == SCALE:
        raise s.unsupported(f"'{op.name}' of {t}", op.loc, "scales by 'load_fragment'")
    text = f"llvm.load {address} {{alignment = {width} : i64, {shared.ACCESS_SCOPES}}} : {shared.POINTER} -> "
    s.values[op.result] = shared.without_holes(s, layout, _at(op), s.w.load(text, mlir_type(t)), t.elem, t.count)


def shared_load_transposed(s: State, op: Op) -> None:
    w, t, tile = s.w, type_of(op.result), op.operands[1].tile
    source = addressed_layout(tile)
    assert tile.layout is not None
    n = elements_per_read(t.elem.bits)
    if source is None or t.count != n:
        raise error(
            "E0720", f"no transposing read gives {t}", op.loc, legal=f"fragment<{t.elem}[{n}]> of a layout for it"
        )
    raw = "vector<2xi32>" if t.elem.bits == 8 else mlir_type(t)
    address = shared.read_address(s, op.operands[0], source, _at(op))
    value = w.op(f"rocdl.ds.read.tr{t.elem.bits}.b64 {address} {{{shared.ACCESS_SCOPES}}} : {shared.POINTER} -> {raw}")
    value = w.bitcast(value, raw, mlir_type(t))
    s.values[op.result] = shared.without_holes(s, tile.layout, _at(op), value, t.elem, n)


def shared_store(s: State, op: Op) -> None:
    w, t, tile, buffer = s.w, type_of(op.operands[0]), op.operands[2].tile, op.operands[1]
    assert tile.layout is not None and isinstance(buffer.type, SharedType)
    layout = over_buffer(tile.layout, buffer.type)
    width = _check_width(op, t, access_bytes(TileType(t.elem, layout.shape, layout), shared.buffer_layout(buffer.type)))
    if _at(op) & layout.free.reg:
        return  # a copy of registers that another store writes
    (address,) = shared.addresses(s, buffer, layout, [_at(op)])
    inside, owner = shared.hole_test(s, layout, _at(op)), views.owner_test(s, layout)
    if owner:
        inside = w.binary("and", inside, owner, "i1") if inside else owner
    text = f"llvm.store {s.scalar(op.operands[0])}, {address} {{alignment = {width} : i64, {shared.ACCESS_SCOPES}}} : {mlir_type(t)}, {shared.POINTER}"
    w.when(inside, text)


def copy_part(s: State, op: Op) -> None:
    part = op.attrs["part"]
    assert isinstance(part, int)
    shared.copy_direct(s, op, part)


def load_global(s: State, op: Op) -> None:
    """One load of a lane, zeros outside."""
    w, t, tile = s.w, type_of(op.result), op.operands[-1].tile
    assert tile.layout is not None
    if op.attrs.get("via", "buffer") != "buffer":
        raise s.unsupported("a fragment through a plain address", op.loc, "via = buffer")
    if op in s.streams:
        stream = s.streams[op]
        resource, offset, moved = stream.resource, stream.piece(s, 0), stream.offset
    else:
        a = views.access_of(s, op)
        resource, moved = views.descriptor(s, a, views.base_offset(s, a)), w.const(0)
        coords = [coordinate(w, tile.layout, _at(op), d) for d in range(tile.rank)]
        holes = [masks(tile.layout, d) for d in range(tile.rank)]
        offset = views.BufferOffsets(s, a, views.Bounds(s, a, tile.shape, holes)).get(coords)
    raw_type = views.memory_type(t.count * t.elem.bits // 8)
    raw = w.op(f"rocdl.raw.ptr.buffer.load {resource}, {offset}, {moved}, {views.policy(w, op)} : {raw_type}")
    if t.elem.name == SCALE and t.count <= SCALES_TOGETHER:
        s.values[op.result] = _scale_word(w, raw, t.count)
        return
    s.values[op.result] = views.from_memory(w, raw, TileType(t.elem, (t.count,)), t.count)


def mfma(s: State, op: Op) -> None:
    a, b, c, *scales = (type_of(v) for v in op.operands)
    chosen = matrix_instruction(s, op, (a.elem, b.elem), c.elem)
    x, y = (_placed(s, op, i) for i in (0, 1))
    product = emit_product(s, chosen, (a.elem, b.elem), mlir_type(c))
    given: Scales | None = None
    if scales:
        places = op.attrs["scale_at"]
        assert isinstance(places, tuple)
        given = (s.scalar(op.operands[3]), places[0]), (s.scalar(op.operands[4]), places[1])
    old = at_pin(s.w, op, 0, s.scalar(op.operands[2]), mlir_type(c), c.registers, first=op.operands[2].owner is None)
    made = product(x, y, old, given)
    s.values[op.result] = made
    constraint = {"vector": "v", ACCUMULATION: "a"}.get(str(op.attrs.get("file")), "")
    s.shadow = (
        (s.w.block, made, mlir_type(c), constraint) if constraint and packs_under_products(s.target.name) else None
    )


def _placed(s: State, op: Op, i: int) -> str:
    """An operand in the register file that the text states."""
    piece = s.scalar(op.operands[i])
    constraint = s.operand_constraint(str(op.attrs.get(("file_a", "file_b")[i], "")))
    return tied(s.w, piece, mlir_type(type_of(op.operands[i])), constraint, ordered=False) if constraint else piece


def fence(s: State, op: Op) -> None:
    s.w.line("rocdl.sched.barrier 0")


def priority(s: State, op: Op) -> None:
    s.w.line(f"rocdl.s.setprio {op.attrs['level']}")


def barrier_of(s: State, op: Op) -> None:
    """A branch that is uniform over the wave."""
    w, waves = s.w, s.kernel.attrs["waves"]
    assert isinstance(waves, int)
    predicate = "uge" if op.attrs["half"] == 1 else "ult"
    w.line("rocdl.sched.barrier 0")
    shared.compiler_fence(w)
    w.when(w.icmp(predicate, wave(w), w.const(waves // 2)), "rocdl.s.barrier")
    w.line("rocdl.sched.barrier 0")
