"""Stores of single elements that are right however far the rows of a tile lie apart.

Buffer stores drop what is outside without a branch per element, but reach only 2 GiB from their descriptor. So the
stores stand in a loop over *turns*: if the tile spans less, there is one for all lanes; else one for each lane, with the
descriptor at that lane's elements.

A lane may hold hundreds of elements. With a store for each, this was 40 % of the code of a GEMM, all of it for views that are rarely met; so a
loop over the registers (`_rolled`) stores them by a register number that the loop counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from tileir.ir.core import Op, Value
from tileir.lowering.amdgpu.emit.bounds import OUTSIDE, Access, Bounds, BufferOffsets, both, lane_offset, scaled
from tileir.lowering.amdgpu.emit.coords import Coordinate, coordinate, lane, masks
from tileir.lowering.amdgpu.emit.elementwise import Pieces
from tileir.lowering.amdgpu.emit.state import State
from tileir.lowering.amdgpu.emit.tiles import Tile, joined
from tileir.lowering.amdgpu.emit.views import (
    LANES,
    base_offset,
    buffer_store,
    descriptor,
    owner_test,
    tile_span,
    to_memory,
    vector_length,
)
from tileir.lowering.amdgpu.emit.writer import Writer, scalar_type, vector_type
from tileir.passes.split_access import contiguous_dim
from tileir.records import dataclass

WORD = 32  # bits of a register
TUPLE = 16  # consecutive registers that one index reaches; LLVM takes longer to place more (32 is its most)
AT_ONCE = 8 * TUPLE  # registers that wait for one loop in such vectors
# The same for tiles of the accumulation file, from which LLVM copies also what the next loops store: with a file full of sums, 128 did not fit
# (LLVM 22.1, 256 x 256 in f32 that begins with a loaded tile, four waves).
AT_ONCE_OF_ACCUMULATORS = 6 * TUPLE
FEWEST = 32  # registers for which the loop is smaller than their stores


def far_store(s: State, op: Op, a: Access) -> None:
    """A store of single elements to an access whose rows may lie anywhere."""
    source, late = _source(s, op.operands[0])
    registers = None if s.wholly_sparing else _registers(s, op, source)
    if registers is None:
        _one_by_one(s, op, a)
    else:
        _rolled(s, op, a, registers, source, late)


def _source(s: State, v: Value) -> tuple[Value, list[Op]]:
    """The value whose registers a loop takes, and the conversions of it to `v` that are still to be made, the last one first."""
    late: list[Op] = []
    while v.owner is not None and v.owner.name == "convert" and len(v.owner.operands) == 1:
        if not s.is_deferrable(v.owner) or not s.tile(v).is_deferred or s.tile(v.owner.operands[0]).splat:
            break
        late.append(v.owner)
        v = v.owner.operands[0]
    return v, late


@dataclass
class _Registers:
    """What a lane holds as words of `elements` elements. Along tile dimension d the element e of word i lies at
    `bases[d] + spread(i, words[d]) + within[e][d]`, where spread adds up the numbers of the bits that are set."""

    count: int
    elements: int
    bases: list[str]
    words: list[list[int]]
    within: list[list[int]]


def _registers(s: State, op: Op, source: Value) -> _Registers | None:
    """The words of a store's `source` that a loop can take by their number; None if there are too few, or places that are no sum."""
    w, t = s.w, source.tile
    layout = t.layout
    assert layout is not None
    bits = t.elem.bits
    if layout.free.reg or any(e.bits not in (8, 16, WORD) or e.is_bool for e in (t.elem, op.operands[0].elem)):
        return None
    elements = WORD // bits
    count, rest = divmod(layout.num_registers, elements)
    if rest or count < FEWEST or count % TUPLE:
        return None
    places = [[coordinate(w, layout, r, d) for d in range(t.rank)] for r in range(layout.num_registers)]
    powers = [1 << j for j in range((layout.num_registers - 1).bit_length())]
    for r, place in enumerate(places):
        for d, c in enumerate(place):
            if c.base != places[0][d].base or c.offset != sum(places[p][d].offset for p in powers if r & p):
                return None
    return _Registers(
        count,
        elements,
        [c.base for c in places[0]],
        [[places[p][d].offset for p in powers if p >= elements] for d in range(t.rank)],
        [[c.offset for c in place] for place in places[:elements]],
    )


def _rolled(s: State, op: Op, a: Access, registers: _Registers, source: Value, late: Sequence[Op]) -> None:
    """A loop over the words of `source`, in which the elements of a word are converted (`late`), and stored in a loop over turns."""
    w, t = s.w, op.operands[0].tile
    layout, size = t.layout, t.elem.bytes
    assert layout is not None
    contiguous = contiguous_dim(a.type)
    column = a.tile_dims.index(contiguous) if contiguous in a.tile_dims else None
    start = base_offset(s, a)
    far = w.icmp("ugt", tile_span(s, a, size), w.const(OUTSIDE, "i64"), "i64")
    trips = w.select(far, w.const(LANES), w.const(1), "i32")
    near = w.binary("xor", far, w.const(-1, "i1"), "i1")
    part = _halves(w, lane_offset(s, a, [Coordinate(base, 0) for base in registers.bases]))
    lanes = w.select(near, part[0], w.const(0), "i32")
    owner = owner_test(s, layout)
    outside = w.const(OUTSIDE - (1 << 32))
    most = AT_ONCE_OF_ACCUMULATORS if s.tile(source).tie else AT_ONCE
    for first in range(0, registers.count, most):
        end = min(first + most, registers.count)
        tuples = _tuples(w, s.tile(source), registers.elements, range(first, end))
        words, turns, after_word, after = w.label(), w.label(), w.label(), w.label()
        w.branch(words, [w.const(first)], ["i32"])
        number = w.name()
        w.start(words, [(number, "i32")])
        raw = _elements(s, op, _picked_word(w, s.tile(source), tuples, number, first), source, late, registers.elements)
        moved = [_spread(w, number, steps) for steps in registers.words]
        bounds = Bounds(s, a, t.shape, [masks(layout, d) for d in range(t.rank)])
        offsets: list[str] = []
        for within in registers.within:
            coords = [
                Coordinate(w.binary("add", base, x) if x else base, c)
                for base, x, c in zip(registers.bases, moved, within, strict=True)
            ]
            offset, test = lanes, both(w, owner, bounds.fixed)
            for d, c in enumerate(coords):
                test = both(w, test, bounds.along(d, c))
            if column is not None:
                along = w.add(moved[column], within[column]) if moved[column] else w.const(within[column])
                offset = w.binary("add", offset, scaled(s, along, a.type, a.tile_dims[column], "i32"))
            offsets.append(w.select(test, offset, outside, "i32") if test else offset)
        starts: dict[
            tuple[int, ...], str
        ] = {}  # of the descriptors, by what is added in other dimensions than `column`
        rows = [tuple(0 if d == column else c for d, c in enumerate(within)) for within in registers.within]
        for row in rows:
            if row not in starts:
                starts[row] = _moved_start(s, a, start, row, moved, column)
        w.branch(turns, [w.const(0)], ["i32"])
        turn = w.name()
        w.start(turns, [(turn, "i32")])
        mine = w.binary("or", near, w.icmp("eq", lane(w), turn), "i1")
        own = w.select(far, _of_turn(w, part, turn), w.const(0, "i64"), "i64")
        resources = {row: descriptor(s, a, w.binary("add", at, own, "i64")) for row, at in starts.items()}
        for x, offset, row in zip(raw, offsets, rows, strict=True):
            buffer_store(s, op, x, size, resources[row], w.select(mine, offset, outside, "i32"))
        _again(w, turn, trips, turns, after_word)
        w.start(after_word)
        _again(w, number, w.const(end), words, after)
        w.start(after)


def _tuples(w: Writer, tile: Tile, elements: int, words: range) -> list[str]:
    """Some words of a tile in vectors of `TUPLE` registers. One word stands for all of a splat."""
    if tile.splat:
        return [w.bitcast(tile.part(w, 0, elements), vector_type(tile.element, elements), "i32")]
    together = tile.chunk if tile.chunk % elements == 0 and tile.chunk // elements <= TUPLE else elements
    count = together // elements
    if count & (count - 1):
        together, count = elements, 1
    pieces = tile.get(w, together)
    found: list[str] = []
    for at in range(words.start, words.stop, TUPLE):
        parts = [
            w.bitcast(piece, vector_type(tile.element, together), vector_type("i32", count))
            for piece in pieces[at // count : (at + TUPLE) // count]
        ]
        found.append(w.pack(parts, "i32") if count == 1 else joined(w, parts, "i32", count)[0])
    return found


def _picked_word(w: Writer, tile: Tile, tuples: Sequence[str], number: str, first: int) -> str:
    """The word with a number, which is the same in all lanes, of vectors of which the first begins with the word `first`."""
    if tile.splat:
        return tuples[0]
    picked = ""
    index = w.binary("and", number, w.const(TUPLE - 1))
    for i, words in enumerate(tuples):
        word = w.op(f"llvm.extractelement {words}[{index} : i32] : {vector_type('i32', TUPLE)}")
        if i:
            before = w.icmp("ult", number, w.const(first + i * TUPLE))
            word = w.select(before, picked, word, "i32")
        picked = word
    return picked


def _elements(s: State, op: Op, word: str, source: Value, late: Sequence[Op], n: int) -> list[str]:
    """The `n` elements of a word as the store `op` carries them."""
    w, stored = s.w, op.operands[0].tile
    piece = w.bitcast(word, "i32", vector_type(scalar_type(source.elem), n))
    for conversion in reversed(late):
        piece = Pieces(s, conversion, n).emit([piece])
    t = vector_type(scalar_type(stored.elem), n)
    return [to_memory(w, w.extract(piece, e, t) if n > 1 else piece, stored, 1) for e in range(n)]


def _spread(w: Writer, number: str, steps: Sequence[int]) -> str:
    """The sum of `steps[j]` over the bits j of a number that are set, "" if that is always 0. Steps that double are one product."""
    total, j = "", 0
    while j < len(steps):
        n = 1
        while j + n < len(steps) and steps[j + n] == steps[j] << n:
            n += 1
        if steps[j]:
            field = w.binary("lshr", number, w.const(j)) if j else number
            field = w.mul(w.binary("and", field, w.const((1 << n) - 1)), steps[j])
            total = w.binary("add", total, field) if total else field
        j += n
    return total


def _moved_start(s: State, a: Access, start: str, row: Sequence[int], moved: Sequence[str], column: int | None) -> str:
    """Byte offset (i64) of a word's descriptor, without the lanes' part: all that is moved in other dimensions than `column`."""
    w, at = s.w, start
    for d, (x, c) in enumerate(zip(moved, row, strict=True)):
        if d != column and (x or c):
            steps = w.add(x, c) if x else w.const(c)
            steps = w.op(f"llvm.zext {steps} : i32 to i64")
            at = w.binary("add", at, scaled(s, steps, a.type, a.tile_dims[d], "i64"), "i64")
    return at


def _again(w: Writer, number: str, end: str, body: str, after: str) -> None:
    """The end of a loop that counts to `end`."""
    following = w.add(number, 1)
    w.cond_branch(w.icmp("ult", following, end), body, after, ([following], ["i32"]))


def _one_by_one(s: State, op: Op, a: Access) -> None:
    """A store for each element, in a loop over turns."""
    w = s.w
    t = op.operands[0].tile
    layout = t.layout
    assert layout is not None
    contiguous = contiguous_dim(a.type)
    start = base_offset(s, a)
    far = w.icmp("ugt", tile_span(s, a, t.elem.bytes), w.const(OUTSIDE, "i64"), "i64")
    trips = w.select(far, w.const(LANES), w.const(1), "i32")
    unit = t.elem.unit[0]
    if unit > 1:
        vector_length(s, op, t)  # that a lane has whole bytes
    registers = [r for r in range(0, layout.num_registers, unit) if not r & layout.free.reg]
    parts: dict[tuple[str, ...], str] = {}
    for r in registers:
        bases = [Coordinate(coordinate(w, layout, r, d).base, 0) for d in range(t.rank)]
        key = tuple(c.base for c in bases)
        if key not in parts:
            parts[key] = lane_offset(s, a, bases)
    body, after = w.label(), w.label()
    kept = _tied_sources(s, op.operands[0])
    values, types = _pieces_of(kept)
    w.branch(body, [w.const(0), *values], ["i32", *types])
    turn = w.name()
    w.start(body, [(turn, "i32"), *_enter(w, kept, types)])
    with s.opaque_symbols():
        near = w.binary("xor", far, w.const(-1, "i1"), "i1")
        mine = both(w, w.binary("or", near, w.icmp("eq", lane(w), turn), "i1"), owner_test(s, layout))
        bounds = Bounds(s, a, t.shape, [masks(layout, d) for d in range(t.rank)])
        column = a.tile_dims.index(contiguous) if contiguous in a.tile_dims else None
        offsets = BufferOffsets(s, a, bounds, mine, near, column)
        tile = s.tile(op.operands[0])
        by_place: dict[tuple[str, tuple[int, ...]], list[int]] = {}
        for r in registers:
            coords = [coordinate(w, layout, r, d) for d in range(t.rank)]
            steps = tuple(0 if d == column else c.offset for d, c in enumerate(coords))
            by_place.setdefault((parts[tuple(c.base for c in coords)], steps), []).append(r)
        for (part, steps), together in by_place.items():  # one descriptor at a time: each takes four scalar registers
            resource = _turn_descriptor(s, a, start, part, steps, far, turn)
            for r in together:
                piece = tile.register(w, r) if unit == 1 else tile.part(w, r // unit, unit)
                raw = to_memory(w, piece, t, unit)
                offset = offsets.get([coordinate(w, layout, r, d) for d in range(t.rank)])
                buffer_store(s, op, raw, t.elem.run_bytes(unit), resource, offset)
    following = w.add(turn, 1)
    more = w.icmp("ult", following, trips)
    w.cond_branch(more, body, after, ([following, *_pieces_of(kept)[0]], ["i32", *types]))
    w.start(after)
    for source in kept:
        source.in_place = False


def _tied_sources(s: State, v: Value) -> list[Tile]:
    """Tiles tied to a register file from which the pieces of a value are made when they are used.

    A loop that uses such pieces carries them: tied where they stand, each would need a copy that survives to the next trip,
    and a file that is full has no room for copies."""
    found: list[Tile] = []
    tile = s.tile(v)
    if tile.tie:
        found.append(tile)
    elif tile.is_deferred and v.owner is not None and s.is_deferrable(v.owner):
        for x in v.owner.operands:
            if not x.tile.is_scalar:
                found += [t for t in _tied_sources(s, x) if t not in found]
    return found


def _pieces_of(tiles: Sequence[Tile]) -> tuple[list[str], list[str]]:
    """Pieces of tiles and their MLIR types."""
    values = [x for t in tiles for x in t.chunks]
    return values, [vector_type(t.element, t.chunk) for t in tiles for _ in t.chunks]


def _enter(w: Writer, tiles: Sequence[Tile], types: Sequence[str]) -> list[tuple[str, str]]:
    """Block arguments that the pieces of tiles become; from now on a tie replaces its piece."""
    arguments = [(w.name(), t) for t in types]
    names = iter(name for name, _ in arguments)
    for tile in tiles:
        tile.chunks = [next(names) for _ in tile.chunks]
        tile.in_place = True
    return arguments


def _turn_descriptor(s: State, a: Access, start: str, part: str, steps: Sequence[int], far: str, turn: str) -> str:
    """Descriptor for one turn of a far store: at the registers' part of the offset, and for a far tile also at the part
    of the one lane whose turn it is."""
    w = s.w
    own = _of_turn(w, _halves(w, part), turn)
    at = w.binary("add", start, w.select(far, own, w.const(0, "i64"), "i64"), "i64")
    for d, step in zip(a.tile_dims, steps, strict=True):
        if step:
            at = w.binary("add", at, scaled(s, w.const(step, "i64"), a.type, d, "i64"), "i64")
    return descriptor(s, a, at)


def _halves(w: Writer, offset: str) -> tuple[str, str]:
    """The low and the high word of an i64."""
    high = w.binary("lshr", offset, w.const(WORD, "i64"), "i64")
    return w.op(f"llvm.trunc {offset} : i64 to i32"), w.op(f"llvm.trunc {high} : i64 to i32")


def _of_turn(w: Writer, halves: tuple[str, str], turn: str) -> str:
    """An offset (i64) of the lane whose turn it is."""
    own = [w.op(f"rocdl.readlane {x}, {turn} : (i32, i32) -> i32") for x in halves]
    return w.bitcast(w.pack(own, "i32"), "vector<2xi32>", "i64")
