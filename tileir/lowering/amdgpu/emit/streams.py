"""Accesses that advance with a loop: what their addresses need is computed before the loop, not in it.

    for %k = %lo to %hi step %s {
      copy_async(%A[%i +: 256, %k +: 64], %sa)

The place of such an access is linear in the loop's counter along one dimension and fixed along the others. So the loop becomes two:

    outer:  for the iterations from k on: a descriptor that begins at the tile of iteration k, the offset of each of the lane's
            pieces from there (beyond every descriptor where it lies outside the view), and how many iterations these serve
    inner:  as long as they do: the accesses, with a scalar offset that grows by the same number of bytes each time

They serve as long as all tiles lie inside the view along the dimension in which they move, and as the scalar offset stays
below `REACH`: in a view of ordinary size that is every iteration but the last few, in which the tile is ragged or, if data is
fetched ahead, lies outside. Each of those is an iteration of the outer loop. In between, no iteration computes an address.

Accesses of one iteration that differ by a constant along that dimension, such as the tiles of a pipelined loop, share the
descriptor. So the launch-time test `accessible` must cover the span of them all (`reaches`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from tileir.ir.core import Block, Op, Value
from tileir.ir.registry import get
from tileir.ir.types import GlobalType, SharedType
from tileir.lowering.amdgpu.emit import shared, views
from tileir.lowering.amdgpu.emit.bounds import Access, known_stride
from tileir.lowering.amdgpu.emit.clipped import clipped_row, is_row, row_offsets
from tileir.lowering.amdgpu.emit.coords import Coordinate, coordinate, masks, thread, wave
from tileir.lowering.amdgpu.emit.state import State, Stream
from tileir.lowering.amdgpu.emit.tiles import tied
from tileir.lowering.amdgpu.emit.writer import Scope, scalar_type
from tileir.passes.split_access import WIDEST
from tileir.records import dataclass

# Bytes that the scalar offset may grow to, and that one tile may span: both together stay within every descriptor, also of one that
# begins before its tile by what offsets in instructions add (of 12 bits).
REACH = views.OUTSIDE // 2 - (1 << 12)
# Vector registers of a lane for the offsets of its pieces, and scalar ones (in descriptors, of four each): what comes after that
# in a loop computes its addresses in it. A wave that has a SIMD to itself has twice the registers.
MOST_PIECES = 32
MOST_PIECES_ALONE = 64
MOST_DESCRIPTORS = 8
# Scalar registers for these and for the addresses of all views, which are kept for the next descriptors; of 106.
MOST_SCALARS = 64


@dataclass(frozen=True)
class Linear:
    """An index as factor · counter + terms (each a value from outside of the loop, and its sign) + constant."""

    factor: int
    terms: tuple[tuple[Value, int], ...] = ()
    constant: int = 0


@dataclass(frozen=True)
class Moving:
    """An access that moves along dimension `dim` of its view; `indices` says how, for each dimension."""

    op: Op
    view: Value
    dim: int
    indices: tuple[Linear, ...]

    @property
    def factor(self) -> int:
        return self.indices[self.dim].factor

    @property
    def constant(self) -> int:
        return self.indices[self.dim].constant

    @cached_property
    def group(self) -> tuple[object, ...]:
        """Accesses with the same one differ by a constant distance along `dim`, in every iteration."""
        d, along = self.dim, self.indices[self.dim]
        return self.view, self.indices[:d], along.factor, along.terms, self.indices[d + 1 :], self.op.spans


@dataclass(frozen=True)
class Served:
    """An access of the inner loop: its descriptor in words (see `views.as_words`), the number of the counter that it adds, and the
    offsets of its pieces, each a value and a constant."""

    op: Op
    resource: str
    counter: int
    pieces: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Plan:
    """What the outer loop has prepared. `steps` are the bytes that each counter (i32, from 0 on) of the inner loop grows by in an
    iteration: a number or an i32 value. The first counts the loop's own variable, times 2^`shift`, and is `last` in the last
    iteration that is served."""

    served: tuple[Served, ...]
    steps: tuple[int | str, ...]
    shift: int
    last: str


def moving(s: State, loop: Op) -> list[Moving]:
    """The accesses of a loop that can be served so, as far as registers allow. None in a text that spares registers, or where the
    step is no constant."""
    if loop not in s.moving:
        s.moving[loop] = _find(s, loop)
    return s.moving[loop]


def _find(s: State, loop: Op) -> list[Moving]:
    step = views.constant_of(loop.operands[2])
    if s.sparing or step is None or step <= 0:
        return []
    body = loop.regions[0]
    inside = {v for op in body.walk() for v in op.results} | set(body.args)
    found: list[Moving] = []
    pieces, waves = 0, s.kernel.attrs["waves"]
    assert isinstance(waves, int)
    views_of_kernel = sum(isinstance(v.type, GlobalType) for v in s.kernel.args)
    descriptors = min(MOST_DESCRIPTORS, max(0, MOST_SCALARS - 2 * views_of_kernel) // 4)
    most = MOST_PIECES_ALONE if s.target.waves_per_simd(waves) == 1 else MOST_PIECES
    for op in body.ops:
        m = _moving(op, body, inside) if op.name in PLACES else None
        if m is None or _known_bytes(m, m.factor * step) > REACH:
            continue
        count = 1 if _is_row(s, m, loop) else PIECES[op.name](s, op)
        groups = {x.group for x in [*found, m]}
        if pieces + count <= most and len(groups) <= descriptors and _within_reach(s, [*found, m], m):
            pieces += count
            found.append(m)
    return found


def _extent(accesses: Sequence[Moving], group: tuple[object, ...]) -> int:
    """Elements along their dimension from the first of a group's tiles to the end of the last."""
    members = [m for m in accesses if m.group == group]
    m = members[0]
    span = m.op.spans[m.dim] if m.op.spans is not None else None
    assert span is not None
    return span + max(x.constant for x in members) - min(x.constant for x in members)


def _group_spans(accesses: Sequence[Moving], m: Moving) -> tuple[int | None, ...]:
    assert m.op.spans is not None
    return (*m.op.spans[: m.dim], _extent(accesses, m.group), *m.op.spans[m.dim + 1 :])


def _within_reach(s: State, accesses: Sequence[Moving], m: Moving) -> bool:
    """Whether all tiles of a group lie within `REACH`: as a fact, or because the launch will test it."""
    view, at = m.view.type, get(m.op.name).access_position
    assert isinstance(view, GlobalType) and at is not None
    if (m.view, m.op.spans) in s.tested:
        return True
    spans = [(d, n) for d, n in enumerate(_group_spans(accesses, m)) if n is not None]
    strides = [known_stride(view, d) for d, n in spans if n > 1]
    if None in strides:
        return False
    return sum((n - 1) * (known_stride(view, d) or 0) for d, n in spans) * view.elem.bytes + WIDEST <= REACH


def reaches(s: State, test: Op) -> list[tuple[int | None, ...]]:
    """Spans of the accesses that an `accessible` must allow `REACH` for, instead of a whole descriptor."""
    found: list[tuple[int | None, ...]] = []
    for loop in s.kernel.walk():
        accesses = moving(s, loop) if loop.name == "for" else []
        found += [
            _group_spans(accesses, m) for m in accesses if m.view is test.operands[0] and m.op.spans == test.spans
        ]
    return list(dict.fromkeys(found))


def _moving(op: Op, body: Block, inside: set[Value]) -> Moving | None:
    at = get(op.name).access_position
    assert at is not None and op.spans is not None
    indices = tuple(_linear(v, body.args[0], inside) for v in op.operands[at + 1 : at + 1 + len(op.spans)])
    known = tuple(x for x in indices if x is not None)
    moved = [d for d, x in enumerate(known) if x.factor]
    if len(known) < len(indices) or len(moved) != 1 or op.spans[moved[0]] is None:
        return None
    factor = known[moved[0]].factor
    if factor < 0 or factor & (factor - 1) or op.attrs.get("pad", 0) != 0:
        return None
    if op.name in ("load", "load_fragment") and op.attrs.get("via", "buffer") != "buffer":
        return None
    view = op.operands[at].type
    if not isinstance(view, GlobalType):
        return None
    found = Moving(op, op.operands[at], moved[0], known)
    together = view.elem.unit[
        0
    ]  # elements below a byte: bytes of a distance are a number if it is of whole runs of them
    unaligned = factor % together or found.constant % together or (together > 1 and not _known_bytes(found, together))
    return None if unaligned else found


def _linear(v: Value, counter: Value, inside: set[Value]) -> Linear | None:
    if not v.tile.is_scalar:
        return None
    if v is counter:
        return Linear(1)
    constant = views.constant_of(v)
    if constant is not None:
        return Linear(0, (), constant)
    if v not in inside:
        return Linear(0, ((v, 1),))
    op = v.owner
    if op is None or op.name not in ("add", "sub", "mul") or op.result.type != counter.type:
        return None
    a, b = (_linear(x, counter, inside) for x in op.operands)
    if a is None or b is None:
        return None
    if op.name == "mul":
        scale, other = (a, b) if not (a.factor or a.terms) else (b, a)
        if scale.factor or scale.terms or other.terms:
            return None
        return Linear(other.factor * scale.constant, (), other.constant * scale.constant)
    sign = 1 if op.name == "add" else -1
    terms = (*a.terms, *((x, sign * n) for x, n in b.terms))
    return Linear(a.factor + sign * b.factor, terms, a.constant + sign * b.constant)


def _known_bytes(m: Moving, elements: int) -> int:
    """Bytes of so many elements along the dimension of the movement, which are whole ones; 0 where only the launch says."""
    view = m.view.type
    assert isinstance(view, GlobalType)
    return view.elem.run_bytes(elements * (known_stride(view, m.dim) or 0))


# The outer loop


def prepare(s: State, accesses: list[Moving], loop: Op, k: str, end: str) -> Plan:
    """Writes what is needed to serve the accesses from iteration `k` on, into the block that begins here. Nothing of it is
    computed before the loop: it would have to be kept while the loop runs."""
    w = s.w
    counters = _Counters(s, accesses, loop)
    # Each group has its own, or LLVM would compute what several need for all of them first.
    stretches: dict[tuple[object, ...], Scope] = {}
    with s.opaque_symbols():
        room = _Room(s, loop, k, end, REACH >> counters.shift)
        terms = _Terms(s)
        resources: dict[tuple[object, ...], tuple[str, int]] = {}
        before: dict[tuple[object, ...], int] = {}  # bytes from where a descriptor begins to its first tile
        distances: dict[object, int | str] = {}
        served: list[Served] = []
        for m in accesses:
            w.loc = m.op.loc
            a = _access(s, m, loop, k, terms)
            if m.group not in stretches:
                stretches[m.group] = w.stretch(_places(s))
            row = all(_is_row(s, x, loop) for x in accesses if x.group == m.group)
            if m.group not in resources:
                first = min((x for x in accesses if x.group == m.group), key=lambda x: x.constant)
                origin = _access(s, first, loop, k, terms)
                room.limit(origin, first, _extent(accesses, m.group))
                before[m.group] = max(_beside(s, x.op) for x in accesses if x.group == m.group)
                if row:
                    resource = clipped_row(s, origin, _extent(accesses, m.group), positive=True).resource
                else:
                    begin = views.base_offset(s, origin)
                    if before[m.group]:
                        begin = w.binary("sub", begin, w.const(before[m.group], "i64"), "i64")
                    resource = views.descriptor(s, origin, begin)
                resources[m.group] = views.as_words(s, resource), first.constant
            words, lowest = resources[m.group]
            with w.local(stretches[m.group]):
                places, holes, shape = PLACES[m.op.name](s, m.op)
                if row:
                    moved = [Coordinate(c.base, c.offset + m.constant - lowest) for (c,) in places]
                    pieces = row_offsets(s, moved, m.op.result.tile.elem.bytes)
                    served.append(Served(m.op, words, counters.of(m), tuple(pieces)))
                    continue
                offsets = views.BufferOffsets(s, a, views.Bounds(s, a, shape, holes))
                pieces = tuple(_lowest_outside(s, offsets.get(place)) for place in places)
                key = _distance(m), m.constant - lowest
                if key not in distances:
                    distances[key] = _bytes(s, m, m.constant - lowest)
                more, apart = before[m.group] - _beside(s, m.op), distances[key]
                if isinstance(apart, int):
                    more += apart
                else:
                    pieces = tuple(w.binary("add", piece, apart) for piece in pieces)
                served.append(Served(m.op, words, counters.of(m), tuple((w.add(piece, more), 0) for piece in pieces)))
        w.loc = loop.loc
        last = w.op(f"rocdl.readfirstlane {w.mul(room.rounds, 1 << counters.shift)} : i32")
    return Plan(tuple(served), counters.steps(), counters.shift, last)


def _is_row(s: State, m: Moving, loop: Op) -> bool:
    """Whether an access reads along a row of a contiguous view, from its start or behind it."""
    view, along = m.view.type, m.indices[m.dim]
    assert isinstance(view, GlobalType)
    if m.op.name != "load" or not is_row(s, m.op, view) or any(sign < 0 for _, sign in along.terms):
        return False
    variables = [loop.regions[0].args[0], *(v for v, _ in along.terms)]
    return along.constant >= 0 and all(s.ranges.of(v)[0] >= 0 for v in variables)


def _beside(s: State, op: Op) -> int:
    """What the offset in an instruction adds to the address in memory."""
    return shared.beside(s, op) if op.name == "copy_async_part" else 0


def _lowest_outside(s: State, offset: str) -> str:
    """The offset, or `OUTSIDE` if it is beyond: with the scalar offset it stays below 2^32."""
    w = s.w
    return w.op(f"llvm.intr.umin({offset}, {w.const(views.OUTSIDE - (1 << 32))}) : (i32, i32) -> i32")


def _places(s: State) -> dict[object, str]:
    """Numbers of the work-item, lane and wave, opaque, so that what is computed from them stays here; that of the wave in a vector
    register, as there are more of these."""
    w = s.w
    item = tied(w, thread(w), "i32", "v", ordered=True)
    number = w.binary("and", item, w.const(views.LANES - 1))
    return {"thread": item, "lane": number, "wave": tied(w, wave(w), "i32", "v", ordered=True)}


def enter(s: State, plan: Plan, counters: Sequence[str]) -> None:
    """Tells the accesses of the inner loop, which begins here, their addresses in an iteration with these counters."""
    for x in plan.served:
        s.streams[x.op] = Stream(views.from_words(s, x.resource), counters[x.counter], x.pieces)


def _bytes(s: State, m: Moving, elements: int) -> int | str:
    """Distance of so many elements along the dimension of the movement."""
    view = m.view.type
    assert isinstance(view, GlobalType)
    if not elements or known_stride(view, m.dim):
        return _known_bytes(m, elements)
    return views.scaled(s, s.w.const(elements), view, m.dim, "i32")


class _Counters:
    """The scalar offsets that the accesses of a loop need, one for each distance between iterations."""

    def __init__(self, s: State, accesses: list[Moving], loop: Op):
        self.s = s
        step = views.constant_of(loop.operands[2])
        assert step is not None
        self.step = step
        # The first counts the loop, too: by what known distance it can, else by the loop's variable itself.
        sizes = [_known_bytes(m, m.factor) for m in accesses]
        unit = next((n for n in sizes if n and n & (n - 1) == 0), 1)
        self.shift = unit.bit_length() - 1
        self.keys: dict[object, Moving | None] = {
            unit: next((m for m, n in zip(accesses, sizes, strict=True) if n == unit), None)
        }
        for m in accesses:
            self.keys.setdefault(_distance(m), m)

    def of(self, m: Moving) -> int:
        return list(self.keys).index(_distance(m))

    def steps(self) -> tuple[int | str, ...]:
        """Bytes by which each grows."""
        out: list[int | str] = []
        for key, m in self.keys.items():
            if isinstance(key, int):
                out.append(key * self.step)
            else:
                assert m is not None
                out.append(_bytes(self.s, m, m.factor * self.step))
        return tuple(out)


def _distance(m: Moving) -> object:
    """Equal for accesses that move by as many bytes; the number where it is known."""
    known = _known_bytes(m, m.factor)
    if known:
        return known
    view = m.view.type
    assert isinstance(view, GlobalType)
    inner = view.dims[m.dim + 1 :] if view.strides is None else (view.strides[m.dim],)
    return view.elem.bytes * m.factor, inner


class _Terms:
    """Values from outside of the loop in a form that keeps what is computed from them here."""

    def __init__(self, s: State):
        self.s = s
        self._values: dict[Value, str] = {}

    def get(self, v: Value) -> str:
        if v not in self._values:
            self._values[v] = tied(self.s.w, self.s.scalar(v), scalar_type(v.tile.elem), "s", ordered=True)
        return self._values[v]


def _access(s: State, m: Moving, loop: Op, k: str, terms: _Terms) -> Access:
    """The access as it is in iteration `k`."""
    t = scalar_type(loop.operands[0].tile.elem)
    at = get(m.op.name).access_position
    assert at is not None and m.op.spans is not None
    values: list[str] = []
    types: list[str] = []
    for x, operand in zip(m.indices, m.op.operands[at + 1 :], strict=False):
        type = scalar_type(operand.tile.elem)
        value = s.w.mul(k, x.factor, t) if x.factor else ""
        for v, sign in x.terms:
            if value or sign < 0:
                value = s.w.binary("add" if sign > 0 else "sub", value or s.w.const(0, type), terms.get(v), type)
            else:
                value = terms.get(v)
        value = s.w.add(value, x.constant, type) if value else s.w.const(x.constant, type)
        values.append(value)
        types.append(type)
    tile_dims = [d for d, span in enumerate(m.op.spans) if span is not None]
    starts = tuple(x.constant if not x.factor and not x.terms else None for x in m.indices)
    return Access(m.view, m.op.spans, values, types, tile_dims, starts=starts)


class _Room:
    """How many values of the loop's variable behind `k` are served: `rounds` (i32), 0 if only `k` itself."""

    def __init__(self, s: State, loop: Op, k: str, end: str, most: int):
        w, t = s.w, scalar_type(loop.operands[0].tile.elem)
        self.s = s
        self._done: set[object] = set()
        left = w.binary("sub", w.binary("sub", end, k, t), w.const(1, t), t)  # fits as an unsigned number
        self.rounds = self._narrow(left, t, most)

    def _narrow(self, value: str, type: str, most: int) -> str:
        """The smaller one of an unsigned value and a number below 2^31, as i32."""
        w = self.s.w
        value = w.op(f"llvm.intr.umin({value}, {w.const(most, type)}) : ({type}, {type}) -> {type}")
        return value if type == "i32" else w.op(f"llvm.trunc {value} : i64 to i32")

    def limit(self, a: Access, m: Moving, extent: int) -> None:
        """Ends before `extent` elements from the start of access `a` leave its view along the dimension in which it moves, or
        the scalar offset its reach."""
        s, w = self.s, self.s.w
        size = a.type.dims[m.dim]
        key = m.indices[m.dim], a.index_types[m.dim], size, extent, _distance(m)
        if key in self._done:
            return
        self._done.add(key)
        wide = a.index_types[m.dim] == "i64" or (isinstance(size, str) and s.symbol(size)[1] == "i64")
        t = "i64" if wide else "i32"
        at = w.to_i64(a.indices[m.dim], a.index_types[m.dim]) if wide else a.indices[m.dim]
        end = views.dim_value(s, size) if wide else w.const(size) if isinstance(size, int) else s.symbol(size)[0]
        behind = w.binary("sub", end, at, t)  # elements from the first of the tile on, if that one is inside
        free = w.binary("sub", behind, w.const(extent, t), t)
        shift = m.factor.bit_length() - 1
        rounds = self._narrow(w.binary("lshr", free, w.const(shift, t), t) if shift else free, t, REACH)
        rounds = w.op(f"llvm.intr.umin({rounds}, {self._window(a, m)}) : (i32, i32) -> i32")
        # One after the other: a conjunction would be computed lane by lane.
        for test in w.icmp("ult", at, end, t), w.icmp("sge", behind, w.const(extent, t), t):
            rounds = w.select(test, rounds, w.const(0), "i32")
        self.rounds = w.op(f"llvm.intr.umin({self.rounds}, {rounds}) : (i32, i32) -> i32")

    def _window(self, a: Access, m: Moving) -> str:
        """`REACH` over the distance of two iterations, that one rounded up to a power of two."""
        w = self.s.w
        known = _known_bytes(m, m.factor)
        if known:
            return w.const(REACH // known)
        distance = views.scaled(self.s, w.const(m.factor, "i64"), a.type, m.dim, "i64")
        less = w.binary("sub", distance, w.const(1, "i64"), "i64")
        zeros = w.op(f'"llvm.intr.ctlz"({less}) <{{is_zero_poison = false}}> : (i64) -> i64')
        bits = w.op(f"llvm.trunc {w.binary('sub', w.const(64, 'i64'), zeros, 'i64')} : i64 to i32")
        bits = w.op(f"llvm.intr.umin({bits}, {w.const(31)}) : (i32, i32) -> i32")
        return w.binary("lshr", w.const(REACH), bits)


# Where the pieces of a lane lie in the tile


def _load_places(s: State, op: Op) -> tuple[list[list[Coordinate]], list[bool], tuple[int, ...]]:
    t = op.result.tile
    assert t.layout is not None
    n = views.vector_length(s, op, t)
    places = views.piece_places(s, t.layout, n)
    return places, [masks(t.layout, d) for d in range(t.rank)], t.shape


def _fragment_places(s: State, op: Op) -> tuple[list[list[Coordinate]], list[bool], tuple[int, ...]]:
    t, at = op.operands[-1].tile, op.attrs.get("at", 0)
    assert t.layout is not None and isinstance(at, int)
    place = [coordinate(s.w, t.layout, at, d) for d in range(t.rank)]
    return [place], [masks(t.layout, d) for d in range(t.rank)], t.shape


def _copy_places(s: State, op: Op) -> tuple[list[list[Coordinate]], list[bool], tuple[int, ...]]:
    t = op.operands[-1].type
    assert isinstance(t, SharedType)
    numbers = _slabs(s, op)
    return [shared.slab(s, op, i).coords for i in numbers], shared.ragged(t), t.shape


def _slabs(s: State, op: Op) -> list[int]:
    """Numbers of the instructions of a direct copy that an op stands for."""
    part = op.attrs.get("part")
    return [part] if isinstance(part, int) else list(range(len(shared.slab_sources(s, op))))


def _load_pieces(s: State, op: Op) -> int:
    t = op.result.tile
    assert t.layout is not None
    return t.layout.num_registers // views.vector_length(s, op, t)


PLACES = {
    "load": _load_places,
    "load_fragment": _fragment_places,
    "copy_async": _copy_places,
    "copy_async_part": _copy_places,
}
PIECES = {
    "load": _load_pieces,
    "load_fragment": lambda s, op: 1,
    "copy_async": lambda s, op: len(_slabs(s, op)),
    "copy_async_part": lambda s, op: len(_slabs(s, op)),
}
