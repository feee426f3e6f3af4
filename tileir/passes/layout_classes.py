"""Which tile values must have the same register layout, and how the layout of one follows from that of another.

Values that must agree – operands and results of elementwise ops, values carried by loops – form classes. `Layouts` gives each
class a layout: first what the text states, then what the matrix products demand, then what follows from those through
reductions, broadcasts and transpositions, then what suits a load, then what suits memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from heapq import heappop, heappush
from itertools import combinations

from tileir.ir.core import Block, Kernel, Op, Value
from tileir.ir.ops.atomic import is_atomic
from tileir.ir.ops.memory import indices_of, picked_dim, tile_dims
from tileir.ir.ops.packing import elements_per_word
from tileir.ir.ops.shape import permutation
from tileir.ir.registry import get
from tileir.ir.types import GlobalType, TileType
from tileir.layout import Layout, LayoutError, blocked, broadcast_source
from tileir.layout.regroup import apart, together
from tileir.passes.grain_layouts import grain_layout
from tileir.passes.lds_sizes import BANK_ROW
from tileir.passes.scan_layouts import scan_layout
from tileir.passes.split_access import contiguous_dim

# Results of these can be made anew in any layout at no cost, so they belong to no class.
REGROUPS = ("pack", "unpack")  # elements along the last dimension are taken together, or apart
FREE = frozenset({"fill", "iota", "table"})
LANE_BYTES = 16  # preferred bytes of a lane's run in a coalesced layout

Uses = Mapping[Value, list[tuple[Op, int]]]


def is_tile(v: Value) -> bool:
    """A value with registers to lay out."""
    return isinstance(v.type, TileType) and not v.type.is_scalar


def is_free(v: Value) -> bool:
    """Whether each use of the value can make its own copy at no cost."""
    return v.owner is not None and (
        v.owner.name in FREE or (v.owner.name == "broadcast" and v.owner.operands[0].tile.is_scalar)
    )


class Classes:
    """The classes of a kernel's tile values (union-find), and the ops that relate two classes."""

    def __init__(self, kernel: Kernel) -> None:
        self._parent: dict[Value, Value] = {}
        self.relations: list[Op] = []
        for op in kernel.walk():
            self._join_op(op)
            if _relates(op):
                self.relations.append(op)

    def root(self, v: Value) -> Value:
        """The value that stands for the class of `v`."""
        while self._parent.setdefault(v, v) is not v:
            self._parent[v] = self._parent[self._parent[v]]
            v = self._parent[v]
        return v

    def _join(self, a: Value, b: Value) -> None:
        if is_tile(a) and is_tile(b) and not is_free(a) and not is_free(b) and a.tile.shape == b.tile.shape:
            self._parent[self.root(a)] = self.root(b)

    def _join_op(self, op: Op) -> None:
        if get(op.name).elementwise:
            for v in op.operands:
                self._join(v, op.result)
        elif op.name == "mma" and len(op.operands) > 2:
            self._join(op.operands[2], op.result)
        elif op.name == "assert":
            for v in op.operands[1:]:
                self._join(op.operands[0], v)
        elif is_atomic(op):
            at = get(op.name).access_position
            assert at is not None
            for v in [*op.operands[1:at], *op.results]:
                self._join(op.operands[0], v)
        for init, arg, out in carried(op):
            self._join(init, arg)
            self._join(arg, out)
        for i, region in enumerate(op.regions):
            if (op.name == "while" and i == 0) or not region.ops:
                continue
            for v, r in zip(region.terminator.operands, op.results, strict=True):
                self._join(v, r)


def carried(op: Op) -> Iterator[tuple[Value, Value, Value]]:
    """(initial value, block argument, result) of everything that a control-flow op carries."""
    skip = {"for": 3, "if": 1, "guard": 1, "while": 0}.get(op.name)
    if skip is None:
        return
    inits = op.operands[skip:]
    for region in op.regions:
        args = region.args[1:] if op.name == "for" else region.args
        yield from zip(inits, args, op.results if inits else [], strict=False)


def _relates(op: Op) -> bool:
    """Whether a layout of one of the op's tiles says something about that of another class."""
    definition = get(op.name)
    if definition.category in ("reduce", "scan") or op.name in ("transpose", "broadcast", "guard"):
        return True
    if op.name in REGROUPS:
        return is_tile(op.operands[0])
    if op.name == "reshape":
        return is_tile(op.operands[0]) and is_tile(op.result)
    if picks_rows(op):
        return True
    if not definition.elementwise:
        return False
    return any(is_tile(v) and v.tile.shape != op.result.tile.shape for v in op.operands)


def picks_rows(op: Op) -> bool:
    """Whether the op accesses rows of a view that a tile of indices picks."""
    return op.spans is not None and picked_dim(op) is not None


def picks(op: Op) -> tuple[Value, Value]:
    """The accessed tile and the tile of indices of an op that picks rows."""
    tile = op.result if op.name == "load" else op.operands[0]
    dim = picked_dim(op)
    assert dim is not None
    return tile, indices_of(op)[dim]


def index_layout(op: Op, tile: Layout) -> Layout:
    """The layout that the tile of indices of an access needs for a tile in layout `tile`: every lane has the indices of its
    own rows."""
    dim = picked_dim(op)
    assert dim is not None
    return _rows(tile, tile_dims(op).index(dim), indices_of(op)[dim].tile.shape)


class Layouts:
    """A layout for each class, as far as it is known."""

    def __init__(self, classes: Classes, known: Mapping[Value, Layout] | None = None) -> None:
        self.classes = classes
        self.layout: dict[Value, Layout] = dict(known or {})  # by the root of the class
        self._touching: dict[Value, list[int]] = {}  # numbers of the relations of a class
        self._set: list[Value] = []  # roots of classes in the order in which they got their layouts

    def get(self, v: Value) -> Layout | None:
        """The layout of the value's class; None while it has none."""
        return self.layout.get(self.classes.root(v))

    def put(self, v: Value, layout: Layout) -> bool:
        """Sets the layout of a class unless it has one; true if it was set."""
        if not is_tile(v) or is_free(v):
            return False
        root = self.classes.root(v)
        if root in self.layout:
            return False
        self.layout[root] = layout
        self._set.append(root)
        return True

    def put_products(self, demands: Mapping[Op, tuple[Layout, Layout, Layout]]) -> None:
        """What the matrix products demand: results of all before operands of any."""
        for op, layouts in demands.items():
            self.put(op.result, layouts[2])
        for op, layouts in demands.items():
            for v, layout in zip(op.operands[:2], layouts, strict=False):
                self.put(v, layout)

    def propagate(self, relations: Iterable[Op]) -> None:
        """Carries known layouts across ops that relate two classes, until nothing changes."""
        changed = True
        while changed:
            changed = False
            for op in relations:
                changed |= self._across(op)

    def spread(self, v: Value) -> None:
        """`propagate` over all relations after `v` got a layout. From the second call on it looks only at the ops that new layouts
        touch, in the same order."""
        relations = self.classes.relations
        if not self._touching:
            self.propagate(relations)
            for i, op in enumerate(relations):
                for root in dict.fromkeys(self.classes.root(x) for x in (*op.operands, *op.results)):
                    self._touching.setdefault(root, []).append(i)
            return
        waiting = [
            (0, i) for i in self._touching.get(self.classes.root(v), ())
        ]  # sweep over the relations, number of one
        while waiting:
            sweep, i = heappop(waiting)
            before = len(self._set)
            if self._across(relations[i]):
                for j in sorted({j for root in self._set[before:] for j in self._touching.get(root, ())}):
                    heappush(waiting, (sweep + (j <= i), j))

    def _across(self, op: Op) -> bool:
        changed = False
        if get(op.name).category == "reduce":
            source = self.get(op.operands[0])
            if source is not None and self.get(op.result) is None:
                changed |= self.put(op.result, reduced(source, axis_of(op)))
        elif get(op.name).category == "scan":
            source = self.get(op.operands[0])
            if source is not None and self.get(op.result) is None:
                changed |= self.put(op.result, scan_layout(source, axis_of(op)))
        elif op.name == "transpose":
            x, r = op.operands[0], op.result
            perm = tuple(permutation(op.attrs, x.tile.rank))
            known, other = self.get(x), self.get(r)
            if known is not None and other is None:
                changed |= self.put(r, transposed(known, perm))
            elif other is not None and known is None:
                changed |= self.put(x, transposed(other, tuple(perm.index(d) for d in range(len(perm)))))
        elif op.name in REGROUPS:
            n = elements_per_word(op.name, op.operands[0].tile.elem, op.result.tile.elem)
            words, parts = (op.operands[0], op.result) if op.name == "unpack" else (op.result, op.operands[0])
            of_words, of_parts = self.get(words), self.get(parts)
            if of_words is not None and of_parts is None:
                changed |= self.put(parts, apart(of_words, n))
            elif of_parts is not None and of_words is None:
                with suppress(LayoutError):
                    changed |= self.put(words, together(of_parts, n))
        elif op.name == "reshape":
            for a, b in ((op.operands[0], op.result), (op.result, op.operands[0])):
                known = self.get(a)
                if known is not None and self.get(b) is None:
                    try:
                        changed |= self.put(b, reshaped(known, b.tile.shape))
                    except LayoutError:
                        continue
        elif picks_rows(op):
            tile, index = picks(op)
            known = self.get(tile)
            if known is not None and self.get(index) is None:
                changed |= self.put(index, index_layout(op, known))
        elif op.name == "guard":
            need, *inits = op.operands
            known = self.get(inits[0]) if inits else None
            if known is not None and self.get(need) is None:
                changed |= self.put(need, broadcast_operand(known, need.tile.shape))
        else:
            known = self.get(op.result)
            for v in op.operands:
                if known is not None and is_tile(v) and v.tile.shape != op.result.tile.shape and self.get(v) is None:
                    changed |= self.put(v, broadcast_operand(known, v.tile.shape))
        return changed


def axis_of(op: Op) -> int:
    """The axis of a reduction."""
    axis = op.attrs["axis"]
    assert isinstance(axis, int)
    return axis


# The same few layouts are asked for again and again while mappings are compared.


@lru_cache(maxsize=1024)
def reduced(layout: Layout, axis: int) -> Layout:
    """`Layout.reduce`, remembered."""
    return layout.reduce(axis)


@lru_cache(maxsize=1024)
def transposed(layout: Layout, perm: tuple[int, ...]) -> Layout:
    """`Layout.transpose`, remembered."""
    return layout.transpose(perm)


@lru_cache(maxsize=1024)
def broadcast_operand(layout: Layout, shape: tuple[int, ...]) -> Layout:
    """`broadcast_source`, remembered."""
    return broadcast_source(layout, shape)


@lru_cache(maxsize=1024)
def _rows(layout: Layout, dim: int, shape: tuple[int, ...]) -> Layout:
    """Layout of the coordinates along `dim` as a tile of `shape`, [n] or [n, 1]."""
    return layout.project(dim).reshape(shape)


@lru_cache(maxsize=1024)
def reshaped(layout: Layout, shape: tuple[int, ...]) -> Layout:
    """`Layout.reshape`, remembered."""
    return layout.reshape(shape)


def stated(kernel: Kernel, classes: Classes) -> dict[Value, Layout]:
    """Layouts that the text states, by class; of several the first."""
    known: dict[Value, Layout] = {}
    for v in values(kernel):
        if is_tile(v) and not is_free(v) and v.tile.layout is not None:
            known.setdefault(classes.root(v), v.tile.layout)
    return known


def values(kernel: Kernel) -> Iterator[Value]:
    """Every value that an op or a region of the kernel defines, in program order."""
    for op in kernel.walk():
        yield from op.results
        for region in op.regions:
            yield from region.args


def finish(layouts: Layouts, kernel: Kernel, waves: int, users: Uses) -> None:
    """Gives the classes that no product reaches a layout: first those that are loaded, then the others."""
    relations = layouts.classes.relations
    indices = {layouts.classes.root(picks(op)[1]) for op in relations if picks_rows(op)}
    loads = [op for op in kernel.walk() if op.name == "load" and is_tile(op.result)]
    # Indices follow the tiles that they are for: a lane loads those that it needs.
    for op in sorted(loads, key=lambda op: layouts.classes.root(op.result) in indices):
        if layouts.get(op.result) is None:
            layouts.put(op.result, layout_of_load(op, waves, users))
            layouts.spread(op.result)
    for op in kernel.walk():
        if get(op.name).category == "assemble":
            for v in (op.result, *op.operands):
                if layouts.put(v, grain_layout(op, v.tile.shape, waves, v.tile.elem.bytes)):
                    layouts.spread(v)
    for v in values(kernel):
        if is_tile(v) and layouts.get(v) is None and layouts.put(v, coalesced(v.tile, None, None, waves)):
            layouts.spread(v)


def layout_of_load(op: Op, waves: int, users: Uses) -> Layout:
    """What suits a load for itself: coalesced, or turned on its way to LDS."""
    view = op.operands[0].type
    assert isinstance(view, GlobalType)
    if op.result.tile.rank == 2 and _goes_turned_to_lds(op, users):
        return turned(op.result.tile, waves)
    layout = coalesced(op.result.tile, view, tile_dims(op), waves)
    stored = any(user.name == "shared_store" for user, _ in users.get(op.result, []))
    return rows_apart(layout, op.result.tile) if stored else layout


def rows_apart(layout: Layout, t: TileType) -> Layout:
    """The layout with the rows of a wave in another order, if need be, so that the lanes that write to LDS together, 16 bytes
    each, fill all banks where rows lie densely: rows of 160 bytes overlap in the banks of the next but not in those of
    the next but one. The order of rows does not matter to memory."""
    row_bytes = t.shape[-1] * t.elem.bytes
    if t.rank != 2 or row_bytes & (row_bytes - 1) == 0:
        return layout
    along = [v for v in layout.lane if not v[0]]
    rows = [v for v in layout.lane if v[0]]
    lanes = BANK_ROW // LANE_BYTES
    if (
        [*along, *rows] != list(layout.lane)
        or 1 << len(along) >= lanes
        or layout.contiguous(1) * t.elem.bytes != LANE_BYTES
    ):
        return layout
    count = (lanes >> len(along)).bit_length() - 1
    for first in combinations(rows, count):
        group = [(0, 0)]
        for v in (*along, *first):
            group += [(r + v[0], c + v[1]) for r, c in group]
        if len({(r * row_bytes + c * t.elem.bytes) % BANK_ROW // LANE_BYTES for r, c in group}) == lanes:
            rest = [v for v in rows if v not in first]
            return Layout.from_bases(layout.shape, layout.reg, [*along, *first, *rest], layout.wave, layout.reps)
    return layout


def memory_axis(view: GlobalType, dims: tuple[int, ...]) -> int | None:
    """The dimension of a tile along which an access of `view` is contiguous, given the view's dimensions that the tile runs
    along; None if there is none."""
    d = contiguous_dim(view)
    return dims.index(d) if d in dims else None


def coalesced(t: TileType, view: GlobalType | None, dims: tuple[int, ...] | None, waves: int, least: int = 1) -> Layout:
    """Lanes along the dimension that is contiguous in memory, up to 16 bytes each, but never more than share it out; at least
    `least` elements together."""
    axis = memory_axis(view, dims) if view is not None and dims is not None else None
    axis = t.rank - 1 if axis is None else axis
    per_lane = max(1, t.size // (64 * waves))
    vector = min(max(1, LANE_BYTES // t.elem.bytes), 1 << (per_lane.bit_length() - 1))
    unit = max(least, t.elem.unit[0])
    if unit > 1:  # whole bytes, though some lanes have nothing then
        most = t.shape[axis] & -t.shape[axis]
        vector = max(unit, min(LANE_BYTES * 8 // t.elem.bits // unit * unit, 1 << (per_lane.bit_length() - 1)))
        vector = min(1 << (vector.bit_length() - 1), most)
    order = [axis, *(d for d in reversed(range(t.rank)) if d != axis)]
    return blocked(t.shape, waves, axis_order=order, vector=vector)


def turned(t: TileType, waves: int) -> Layout:
    """Layout of a loaded tile [k, n] that goes to LDS as [n, k]: a lane holds a small block, so that it reads runs of
    columns from memory and writes runs of rows, of up to 16 bytes each, to LDS."""
    rows, cols = t.shape
    per_lane = max(1, t.size // (64 * waves))
    run = LANE_BYTES // t.elem.bytes
    k_run = min(run, 1 << (rows.bit_length() - 1), 1 << (per_lane.bit_length() - 1))
    n_run = min(run, 1 << (cols.bit_length() - 1), 1 << (max(1, per_lane // k_run).bit_length() - 1))
    if rows % k_run or cols % n_run:
        return blocked(t.shape, waves, axis_order=[1, 0], vector=1)
    outer = blocked((rows // k_run, cols // n_run), waves, axis_order=[1, 0], vector=1)

    def widen(vectors: tuple[tuple[int, ...], ...]) -> list[tuple[int, int]]:
        return [(v[0] * k_run, v[1] * n_run) for v in vectors]

    block = [(0, 1 << i) for i in range(n_run.bit_length() - 1)] + [(1 << i, 0) for i in range(k_run.bit_length() - 1)]
    return Layout.from_bases(t.shape, [*block, *widen(outer.reg)], widen(outer.lane), widen(outer.wave), outer.reps)


def _goes_turned_to_lds(op: Op, users: Uses) -> bool:
    return any(
        user.name == "transpose" and any(last.name == "shared_store" for last, _ in users.get(user.result, []))
        for user, _ in users.get(op.result, [])
    )


def yield_targets(kernel: Kernel) -> dict[Op, list[Value]]:
    """For every yield the values that its operands become."""
    found: dict[Op, list[Value]] = {}

    def visit(block: Block) -> None:
        for op in block.ops:
            for i, region in enumerate(op.regions):
                visit(region)
                if region.ops and region.terminator.name == "yield":
                    condition = op.name == "while" and i == 0
                    found[region.terminator] = list(region.terminator.operands if condition else op.results)

    visit(kernel.body)
    return found


def reachable(
    classes: Classes, starts: Iterable[Value], relations: Collection[Op], exactly: bool = False
) -> set[Value]:
    """Roots of the classes that the layouts of the values `starts` may have to do with; `exactly`: of those whose layouts follow
    from them by `Layouts.propagate`."""

    def roots(values: Iterable[Value]) -> list[Value]:
        return [classes.root(v) for v in values if is_tile(v) and not is_free(v)]

    found = set(roots(starts))
    changed = True
    while changed:
        changed = False
        for op in relations:
            operands, results = roots(op.operands), roots(op.results)
            if get(op.name).category in ("reduce", "scan"):
                ways = [(operands, results)]
            elif picks_rows(op):
                tile, index = picks(op)
                ways = [(roots([tile]), roots([index]))]
            elif op.name in ("transpose", "reshape", *REGROUPS) or not exactly:
                ways = [(operands, results), (results, operands)]
            else:
                ways = [(results, operands)]
            for sources, targets in ways:
                if any(r in found for r in sources) and not found.issuperset(targets):
                    found.update(targets)
                    changed = True
    return found
