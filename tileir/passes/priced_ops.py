"""Which ops of a kernel count when mappings are compared, how often each runs, and which tiles are alive at its products.

Branches that hold the same products are versions of one computation; the first one counts. (`split-access` makes such
versions, the first for aligned views.) So are the parts of a loop that `split-loops` made of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tileir.ir.core import Block, Kernel, Op, Value
from tileir.ir.ops.shape import permutation
from tileir.passes.late import late_ops
from tileir.passes.layout_classes import Classes, is_free, is_tile
from tileir.passes.mfma_choice import Shape
from tileir.records import dataclass

ASSUMED_TRIPS = 16  # of a loop whose bounds are not constant


@dataclass(frozen=True)
class Product:
    """An `mma` and its other versions.

    Attributes:
        ops: the version that is priced, then the others.
        shape: m, n, k of the tile product.
        trips: how often it runs.
        producers: for each operand ("a", "b") that is the result of an earlier product, that product's number and whether it
            comes transposed.
        reads: for each operand how often it is read from LDS for this product.
        alike: how many products this one stands for; `ops`, `trips` and `reads` are those of all.
    """

    ops: tuple[Op, ...]
    shape: Shape
    trips: float
    producers: dict[str, tuple[int, bool]]
    reads: tuple[float, float]
    alike: int = 1

    @property
    def op(self) -> Op:
        """The version that is priced."""
        return self.ops[0]

    @property
    def bits(self) -> tuple[int, int]:
        """Bits of an element of either operand."""
        a, b = self.op.operands[:2]
        return a.tile.elem.bits, b.tile.elem.bits


def products(kernel: Kernel, trips: Mapping[Op, float], classes: Classes) -> list[Product]:
    """The products of a kernel in program order; `trips` has the ops that count."""
    mine: dict[object, list[Op]] = {}
    others: dict[object, list[Op]] = {}
    for op in kernel.walk():
        if op.name == "mma":
            (mine if op in trips else others).setdefault(_version_key(op), []).append(op)
    readers: dict[Value, int] = {}
    for op in trips:
        if op.name == "mma":
            for source in {through_transposes(v)[0] for v in op.operands[:2]}:
                readers[source] = readers.get(source, 0) + 1

    def reads(v: Value) -> float:
        source = through_transposes(v)[0]
        owner = source.owner
        return trips.get(owner, 1.0) / readers[source] if owner is not None and owner.name == "shared_load" else 0.0

    found: list[Product] = []
    number: dict[Value, int] = {}
    for op in (o for o in trips if o.name == "mma"):
        key = _version_key(op)
        same = mine[key]
        versions = others.get(key, [])[same.index(op) :: len(same)]
        (m, k), (_, n) = op.operands[0].tile.shape, op.operands[1].tile.shape
        producers: dict[str, tuple[int, bool]] = {}
        for name, v in zip("ab", op.operands, strict=False):
            source, turned = through_transposes(v)
            if classes.root(source) in number:
                producers[name] = number[classes.root(source)], turned
        found.append(
            Product((op, *versions), (m, n, k), trips[op], producers, (reads(op.operands[0]), reads(op.operands[1])))
        )
        number.setdefault(classes.root(op.result), len(found) - 1)
    return found


def _version_key(op: Op) -> object:
    types = tuple(v.tile.with_layout(None) for v in (*op.operands, op.result))
    return op.loc, types, tuple(sorted((k, str(v)) for k, v in op.attrs.items()))


def through_transposes(v: Value) -> tuple[Value, bool]:
    """The value that `v` is a transposition of (itself if of none), and whether it is turned in the end."""
    turned = False
    while v.owner is not None and v.owner.name == "transpose" and v.tile.rank == 2:
        turned ^= tuple(permutation(v.owner.attrs, 2)) == (1, 0)
        v = v.owner.operands[0]
    return v, turned


def priced(block: Block, trips: float = 1.0) -> Iterator[tuple[Op, float]]:
    """Every op that counts, in program order, and how often it runs; of two branches, or parts of a loop, with the same products the
    first."""
    part: list[object] = []  # products of the part of a loop that was last
    for op in block.ops:
        yield op, trips
        regions = op.regions
        if op.name == "for" and op.attrs.get("part"):
            same = _products_of(regions[0]) == part != []
            part = _products_of(regions[0])
            if same and op.attrs["part"] != 1:
                continue
        if op.name == "if" and len(regions) == 2 and _products_of(regions[0]) == _products_of(regions[1]) != []:
            regions = regions[:1]
        inner = trips * _trips(op) if op.name in ("for", "while") else trips
        for region in regions:
            yield from priced(region, inner)


def _products_of(block: Block) -> list[object]:
    return [_version_key(op) for op in block.walk() if op.name == "mma"]


def _trips(op: Op) -> float:
    """Trips of a loop, assumed where its bounds are not constant."""
    if op.name == "for":
        owners = [v.owner for v in op.operands[:3]]
        bounds = [o.attrs.get("value") if o is not None and o.name == "constant" else None for o in owners]
        start, end, step = bounds
        if isinstance(start, int) and isinstance(end, int) and isinstance(step, int) and step > 0:
            return float(max(1, -(-(end - start) // step)))
    return float(ASSUMED_TRIPS)


@dataclass(frozen=True)
class Place:
    """The tiles alive where a product runs; of those in `passing`, read from LDS for it alone, never more than a few pieces."""

    tiles: tuple[Value, ...]
    passing: frozenset[Value]


class Liveness:
    """Which tiles are alive where a product runs. (Like `pressure`, but before there are layouts.)"""

    def __init__(self, counted: Mapping[Op, float]) -> None:
        self.counted = counted
        self.found: list[Place] = []
        self.late: set[Value] = set()  # read from LDS when the product that they are for comes, whatever stands between

    def places(self, kernel: Kernel) -> list[Place]:
        """One for each product."""
        self.late = {op.result for op in late_ops(kernel).reads}
        self._block(kernel.body, {})
        return self.found

    def _block(self, block: Block, after: dict[Value, None]) -> dict[Value, None]:
        """Values alive before a block, given those alive after it; dictionaries keep their order."""
        live = dict(after)
        for op in reversed(block.ops):
            if op not in self.counted:
                continue
            for v in op.results:
                live.pop(v, None)
            inside = {**live, **dict.fromkeys(op.operands)}
            for region in op.regions:
                outside = inside
                if op.name in (
                    "for",
                    "while",
                ):  # what a loop uses from outside is alive all through it, initial values are not
                    defined = _defined(region)
                    used = (v for o in region.walk() for v in o.operands if v not in defined)
                    outside = {**live, **dict.fromkeys(used)}
                before = self._block(region, outside)
                live.update((v, None) for v in before if v not in region.args)
            if op.name == "mma":
                self._note(op, live)
            live.update(dict.fromkeys(op.operands))
        return live

    def _note(self, op: Op, after: Mapping[Value, None]) -> None:
        in_place = len(op.operands) > 2 and op.operands[2] not in after
        now = {**after, **dict.fromkeys(op.operands), **({} if in_place else dict.fromkeys(op.results))}
        sources = dict.fromkeys(through_transposes(v)[0] for v in now)  # a transposition takes no registers
        kept = {through_transposes(v)[0] for v in after} - self.late
        read = [through_transposes(v)[0] for v in op.operands[:2]]
        late = self.late.difference(read)
        tiles = tuple(v for v in sources if is_tile(v) and not is_free(v) and not v.tile.elem.is_bool and v not in late)
        passing = frozenset(v for v in read if v not in kept and v.owner is not None and v.owner.name == "shared_load")
        self.found.append(Place(tiles, passing))


def _defined(block: Block) -> set[Value]:
    found = set(block.args)
    for op in block.walk():
        found.update(op.results)
        for region in op.regions:
            found.update(region.args)
    return found
