"""Prices of a kernel's ops under given layouts, and the way that a store takes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from collections.abc import Mapping as Dict
from dataclasses import replace

from tileir.ir.core import Kernel, Op, Value
from tileir.ir.ops.memory import tile_dims
from tileir.ir.ops.shape import permutation
from tileir.ir.registry import get
from tileir.ir.types import GlobalType
from tileir.layout import Layout, LayoutError
from tileir.passes.alike import Alike
from tileir.passes.layout_classes import (
    Classes,
    axis_of,
    broadcast_operand,
    coalesced,
    is_free,
    is_tile,
    memory_axis,
    reduced,
    reshaped,
    transposed,
)
from tileir.passes.lds_sizes import buffers, least_bytes
from tileir.passes.mma_cost import Clocks, CostModel, registers_of
from tileir.passes.priced_ops import Place, priced
from tileir.passes.split_access import WIDEST
from tileir.records import dataclass
from tileir.target import Target

# Registers of a tile that is read from LDS for one product: its pieces are read when the product comes to them, so that few
# are alive at one time (the library's GEMMs have up to 60 registers besides their accumulators, addresses included).
IN_FLIGHT = 32
ALL = 1 << 30
WORTH_EXCHANGE = 0.8  # of the clocks of a plain store: an exchange also takes LDS, registers and code

Demand = tuple[Layout, Layout, Layout]
Known = Dict[Value, Layout]  # layouts by the root of the class


@dataclass(frozen=True)
class Item:
    """Something that costs clocks: `price` from the layouts of the classes `roots`, `least` in any layout, `trips` times."""

    roots: tuple[Value, ...]
    trips: float
    price: Callable[[Known], Clocks]
    least: float = 0.0

    def again(self, trips: float) -> Item:
        """The same, so many times more."""
        return replace(self, trips=self.trips + trips)


class Prices:
    """What the ops of a kernel cost, prepared so that many choices of layouts can be priced.

    Elementwise ops cost the same for every element a lane holds, so they are one number per class; conversions arise
    only between classes.
    """

    def __init__(
        self, model: CostModel, classes: Alike, ops: Iterable[tuple[Op, float]], reach: Collection[Value], room: int
    ) -> None:
        self.model = model
        self.classes = classes
        self.reach = reach
        self.room = room
        self._items: dict[Hashable, Item] = {}
        self._defaults: dict[Value, Layout] = {}
        self._vector: dict[Value, tuple[Value, float]] = {}  # class -> its tile, clocks of each element of a lane
        self._masks: dict[Value, tuple[Value, float]] = {}  # class of truth values -> its tile, how often it is made
        self._crossings: set[object] = set()
        for op, trips in ops:
            self._add(op, trips)
        for root, (v, clocks) in self._vector.items():
            self._add_vector(root, v, clocks)
        if self._masks:
            self._add_masks([v for v, _ in self._masks.values()], max(n for _, n in self._masks.values()))
        self.items = list(self._items.values())

    def layout(self, known: Known, v: Value) -> Layout:
        """The layout of a value; of one that has none yet, what suits memory."""
        root = self.classes.root(v)
        found = known.get(root)
        if found is None:
            if root not in self._defaults:
                self._defaults[root] = coalesced(v.tile, None, None, self.model.waves)
            found = self._defaults[root]
        return found

    def share(self, v: Value) -> float:
        """Elements per lane of a tile that is shared out without copies."""
        return v.tile.size / (self.model.waves * self.model.target.wave_size)

    def total(self, known: Known) -> Clocks:
        """The clocks of everything."""
        cost = Clocks()
        for item in self.items:
            cost.add(item.price(known), item.trips)
        return cost

    def product(self, op: Op, demand: Demand, known: Known) -> Clocks:
        """What an `mma` costs besides its instructions: the conversions of its operands and result."""
        cost = Clocks()
        for v, want in zip(op.operands, demand, strict=False):
            if not is_free(v):
                cost.add(self.model.conversion(self.layout(known, v), want, v.tile.elem))
        cost.add(self.model.conversion(demand[2], self.layout(known, op.result), op.result.tile.elem))
        return cost

    # -- preparing ---------------------------------------------------------------------------------------------------

    def _item(
        self, of: Hashable, values: Sequence[Value], trips: float, price: Callable[[Known], Clocks], least: float = 0.0
    ) -> None:
        """Adds what depends on the classes of `values`. `of` and the classes say what it is: what is equal is priced once."""
        roots = tuple(self.classes.root(v) for v in values)
        if any(r in self.reach for r in roots):
            known = self._items.get((of, roots))
            self._items[of, roots] = Item(roots, trips, price, least) if known is None else known.again(trips)

    def _add(self, op: Op, trips: float) -> None:
        definition, kind = get(op.name), self.classes.kinds.get(op)
        if definition.elementwise or op.name == "broadcast":
            self._add_elementwise(op, trips)
        elif definition.category == "reduce":
            self._add_reduction(op, trips)
        elif op.name in ("transpose", "reshape"):
            self._add_derived(op, trips)
        elif op.name == "shared_load":
            v = op.result
            self._item(kind, [v], trips, lambda known: self.model.lds_read(self.layout(known, v), v.tile.elem))
        elif op.name == "shared_store" and is_tile(op.operands[0]) and not is_free(op.operands[0]):
            v = op.operands[0]
            self._item(kind, [v], trips, lambda known: self.model.lds_write(self.layout(known, v), v.tile.elem))
        elif op.name in ("load", "store"):
            self._add_memory(op, trips)

    def _add_elementwise(self, op: Op, trips: float) -> None:
        r = op.result
        if not is_tile(r) or is_free(r):
            return
        if op.name != "broadcast":
            root = self.classes.root(r)
            v, clocks = self._vector.get(root, (r, 0.0))
            self._vector[root] = v, clocks + trips * self.model.elementwise(op.name, 1, r.tile.elem).vector
            if r.tile.elem.is_bool:
                self._masks[self.classes.exact.root(r)] = r, trips
        for v in op.operands:
            if is_tile(v) and not is_free(v):
                self._add_crossing(op, v, r, trips)

    def _add_crossing(self, op: Op, v: Value, r: Value, trips: float) -> None:
        """A value used where another class's layout is needed, or its own shape is broadcast."""
        same = v.tile.shape == r.tile.shape
        exact = self.classes.exact
        key = (v, exact.root(r))
        if (same and exact.root(v) is exact.root(r)) or key in self._crossings:
            return
        self._crossings.add(key)

        def price(known: Known) -> Clocks:
            want = self.layout(known, r)
            want = want if same else broadcast_operand(want, v.tile.shape)
            return self.model.conversion(self.layout(known, v), want, v.tile.elem)

        self._item(("crossing", self.classes.kinds[op]), [v, r], trips, price)

    def _add_vector(self, root: Value, v: Value, clocks: float) -> None:
        self._item(
            "vector",
            [v],
            1.0,
            lambda known: Clocks(vector=clocks * self.layout(known, v).num_registers),
            clocks * self.share(v),
        )

    def _add_masks(self, tiles: Sequence[Value], trips: float) -> None:
        self._item("masks", tiles, trips, lambda known: self.model.masks([self.layout(known, v) for v in tiles]))

    def _add_reduction(self, op: Op, trips: float) -> None:
        x, r, axis, kind = op.operands[0], op.result, axis_of(op), self.classes.kinds[op]
        if is_free(x):
            return

        def source(known: Known) -> Layout:
            layout = self.layout(known, x)
            return coalesced(x.tile, None, None, self.model.waves) if mixes(layout, axis) else layout

        def price(known: Known) -> Clocks:
            used, cost = source(known), Clocks()
            cost.add(self.model.conversion(self.layout(known, x), used, x.tile.elem))
            cost.add(self.model.reduction(used, axis, x.tile.elem, reduced(used, axis)))
            return cost

        self._item(kind, [x], trips, price, self.model.instructions(max(0.0, self.share(x) - 1)))
        if is_tile(r):
            self._item(
                kind,
                [x, r],
                trips,
                lambda known: self.model.conversion(reduced(source(known), axis), self.layout(known, r), r.tile.elem),
            )

    def _add_derived(self, op: Op, trips: float) -> None:
        x, r = op.operands[0], op.result
        if not is_tile(x) or not is_tile(r) or is_free(x):
            return

        def price(known: Known) -> Clocks:
            have, want = self.layout(known, x), self.layout(known, r)
            try:
                if op.name == "transpose":
                    moved = transposed(have, tuple(permutation(op.attrs, x.tile.rank)))
                else:
                    moved = reshaped(have, r.tile.shape)
            except LayoutError:
                return self.model.through_lds(coalesced(r.tile, None, None, self.model.waves), want, r.tile.elem)
            return self.model.conversion(moved, want, r.tile.elem)

        self._item(self.classes.kinds[op], [x, r], trips, price)

    def _add_memory(self, op: Op, trips: float) -> None:
        v = op.operands[0] if op.name == "store" else op.result
        if not is_tile(v) or is_free(v):
            return
        view, dims, width = access_of(op)
        axis = memory_axis(view, dims)

        def price(known: Known) -> Clocks:
            if op.name == "store":
                return store_route(self.model, op, self.layout(known, v), self.room)[1]
            return self.model.memory(self.layout(known, v), v.tile.elem, axis, width)

        size = v.tile.size * v.tile.elem.bytes
        accesses = size / WIDEST / (self.model.waves * self.model.target.wave_size)
        self._item(
            self.classes.kinds[op],
            [v],
            trips,
            price,
            size / self.model.request_bytes + self.model.instructions(2 * accesses),
        )


@dataclass(frozen=True)
class Points:
    """The places of a kernel where most tiles are alive, as numbers of tiles of each class and element type."""

    tiles: tuple[tuple[tuple[Value, int, int], ...], ...]  # (tile, how many like it, most registers) for each place

    @classmethod
    def of(cls, places: Iterable[Place], classes: Classes) -> Points:
        """From the tiles alive at each place."""
        found: dict[object, tuple[tuple[Value, int, int], ...]] = {}
        for place in places:
            like: dict[object, tuple[Value, int, int]] = {}
            for v in place.tiles:
                most = IN_FLIGHT if v in place.passing else ALL
                key = (classes.root(v), v.tile.elem.name, most)
                first, count, _ = like.get(key, (v, 0, most))
                like[key] = first, count + 1, most
            found.setdefault(frozenset((k, x[1]) for k, x in like.items()), tuple(like.values()))
        return cls(tuple(found.values()))

    def registers(self, prices: Prices, known: Known, passing: Collection[Value] = ()) -> int:
        """Registers of the fullest place; the tiles `passing` come anew to each product, piece by piece."""

        def most(v: Value, stated: int) -> int:
            return min(stated, IN_FLIGHT) if v in passing else stated

        return max(
            (
                sum(n * min(most(v, m), registers_of(prices.layout(known, v), v.tile.elem)) for v, n, m in place)
                for place in self.tiles
            ),
            default=0,
        )

    def least(self, prices: Prices) -> float:
        """No layouts need fewer registers."""
        words = prices.model.target.register_bytes
        return max(
            (sum(n * min(most, prices.share(v) * v.tile.elem.bytes / words) for v, n, most in p) for p in self.tiles),
            default=0.0,
        )


def mixes(layout: Layout, axis: int) -> bool:
    """Whether a vector moves along the axis and another dimension at once, so that a reduction must convert first."""
    vectors = (*layout.reg, *layout.lane, *layout.wave)
    return any(v[axis] and any(c for d, c in enumerate(v) if d != axis) for v in vectors)


def access_of(op: Op) -> tuple[GlobalType, tuple[int, ...], int]:
    """View, its dimensions that the tile runs along, and bytes per lane of a load or store of global memory."""
    view = op.operands[1 if op.name == "store" else 0].type
    width = op.attrs.get("bytes") or WIDEST
    assert isinstance(view, GlobalType) and isinstance(width, int)
    return view, tile_dims(op), width


def store_route(model: CostModel, op: Op, layout: Layout, room: int) -> tuple[Layout, Clocks]:
    """The layout in which a tile is stored, and the clocks of the store: as it lies, or coalesced, through LDS, where that
    is cheaper and an exchange of the tile has at most `room` bytes."""
    v = op.operands[0]
    view, dims, width = access_of(op)
    axis = memory_axis(view, dims)
    direct = model.memory(layout, v.tile.elem, axis, width)
    if axis is None or v.tile.size * v.tile.elem.bytes > room:
        return layout, direct
    best = coalesced(v.tile, view, dims, model.waves)
    kind = model.movement(layout, best)
    cost = Clocks() if kind == "registers" else model.through_lds(layout, best, v.tile.elem, waves=kind == "waves")
    routed = Clocks()
    routed.add(cost)
    routed.add(model.memory(best, v.tile.elem, axis, width))
    waiting = routed.sync  # once per workgroup, while others work
    return (best, routed) if routed.total - waiting < WORTH_EXCHANGE * direct.total else (layout, direct)


def exchange_room(kernel: Kernel, target: Target) -> int:
    """Bytes that an exchange before a store may take: no more than leaves room for a second workgroup, or than the kernel's
    buffers take anyway (exchanges share their place, since they are not alive at the same time), and than there are."""
    return min(target.lds_bytes, max(staged_bytes(kernel, dict(priced(kernel.body))), target.lds_bytes // 2))


def staged_bytes(kernel: Kernel, counted: Dict[Op, float]) -> int:
    """Bytes that the LDS buffers of the first version take at one time; those of loops after each other share their place."""
    return least_bytes([b for b in buffers(kernel) if b.op in counted])
