"""Which classes of tiles and which matrix products are alike, so that what is chosen for one is right for all.

Two ops are alike if they do the same, as often, on tiles of the same types whose classes are alike; two classes are alike if alike
ops work on them, as many of each. The largest such relation is found by refinement: all start alike, and what differs in
something is told apart, until nothing changes. A kernel of a thousand equal steps costs no more than one of a few.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from tileir.ir.core import Op, Value
from tileir.ir.types import TileType
from tileir.layout import Layout
from tileir.passes.layout_classes import Classes, is_free, is_tile
from tileir.passes.priced_ops import Product

MOST_ROUNDS = 12
"""Long chains of which no two links are alike need as many rounds as they have links: then nothing is merged."""
_STRUCTURE = frozenset({"for", "while", "if", "yield"})  # what they carry is in one class


class Alike(Classes):
    """The classes of a kernel with those that are alike taken as one.

    Attributes:
        exact: the classes themselves.
        kinds: for each op that works on classes a number, equal for ops that are alike.
    """

    def __init__(self, classes: Classes, known: Mapping[Value, Layout], counted: Mapping[Op, float]) -> None:
        self.exact = classes
        roots = {op: _roots(op, classes) for op in counted if op.name not in _STRUCTURE}
        self._colour: dict[Value, int] = {}
        self.kinds: dict[Op, int] = {}
        self._refine(roots, known, counted)
        first: dict[int, Value] = {}
        self._first = {root: first.setdefault(colour, root) for root, colour in self._colour.items()}
        seen: set[int] = set()
        self.relations = []
        for op in classes.relations:
            if op in counted and self.kinds[op] not in seen:
                seen.add(self.kinds[op])
                self.relations.append(op)

    def root(self, v: Value) -> Value:
        """The value that stands for the class of `v` and all that are alike."""
        exact = self.exact.root(v)
        return self._first.get(exact, exact)

    def _refine(
        self, roots: Mapping[Op, Sequence[Value | None]], known: Mapping[Value, Layout], counted: Mapping[Op, float]
    ) -> None:
        numbers: dict[Hashable, int] = {}

        def number(x: Hashable) -> int:
            return numbers.setdefault(x, len(numbers))

        plain = {op: number(_what(op, counted[op])) for op in roots}
        self._colour = {r: number(("class", known.get(r))) for found in roots.values() for r in found if r is not None}
        count = 0
        for _ in range(MOST_ROUNDS):
            numbers.clear()
            colour = self._colour
            for op, found in roots.items():
                self.kinds[op] = number((plain[op], *(None if r is None else colour[r] for r in found)))
            touched: dict[Value, list[tuple[int, int]]] = {r: [] for r in colour}
            for op, found in roots.items():
                for place, r in enumerate(found):
                    if r is not None:
                        touched[r].append((self.kinds[op], place))
            self._colour = {r: number((colour[r], tuple(sorted(at)))) for r, at in touched.items()}
            before, count = count, len(numbers)
            if before == count:
                return
        self._colour = {r: i for i, r in enumerate(self._colour)}
        self.kinds = {op: i for i, op in enumerate(roots)}

    def merged(self, products: Sequence[Product]) -> list[Product]:
        """The products with those that are alike as one, which runs as often as all together."""
        teams: dict[tuple[int, tuple[tuple[str, int, bool], ...]], list[Product]] = {}
        team_of: list[int] = []
        numbers: dict[Hashable, int] = {}
        for p in products:
            sources = tuple((name, team_of[number], turned) for name, (number, turned) in p.producers.items())
            key = self.kinds[p.op], sources
            team_of.append(numbers.setdefault(key, len(numbers)))
            teams.setdefault(key, []).append(p)
        return [
            replace(
                mine[0],
                ops=tuple(op for p in mine for op in p.ops),
                trips=sum(p.trips for p in mine),
                producers={name: (team, turned) for name, team, turned in sources},
                reads=(sum(p.reads[0] for p in mine), sum(p.reads[1] for p in mine)),
                alike=len(mine),
            )
            for (_, sources), mine in teams.items()
        ]


def _roots(op: Op, classes: Classes) -> list[Value | None]:
    """The classes of an op's tiles; of an `mma` without the accumulator, which is in the class of the result or free."""
    operands = op.operands[:2] if op.name == "mma" else op.operands
    return [classes.root(v) if is_tile(v) and not is_free(v) else None for v in (*operands, *op.results)]


def _what(op: Op, trips: float) -> Hashable:
    """What an op does, but for the classes of its tiles."""
    operands = op.operands[:2] if op.name == "mma" else op.operands
    types = tuple(
        v.type.with_layout(None) if isinstance(v.type, TileType) else v.type for v in (*operands, *op.results)
    )
    attrs = tuple(sorted((k, str(v)) for k, v in op.attrs.items()))
    return "op", op.name, attrs, None if op.spans is None else tuple(op.spans), types, trips
