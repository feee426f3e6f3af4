"""What a kernel does for given sizes: workgroups, trips of its loops, products, bytes – read from the IR before any pass.

The scalars of the kernel – loop bounds, addresses – are evaluated for some workgroups of the grid: the first, a middle and the last along
each dimension. What depends on data is not known; a `guard` counts as never taken, a condition that is not known as taken.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import field

from tileir.ir.core import Block, Kernel, Op, Value
from tileir.ir.expr import apply
from tileir.ir.registry import get
from tileir.ir.types import GlobalType, TileType
from tileir.passes.mma_cost import TRANSCENDENTAL
from tileir.records import dataclass

_ARITHMETIC = {"add", "sub", "mul", "div", "cdiv", "mod", "min", "max"}
_COMPARISONS = {
    "lt": int.__lt__,
    "le": int.__le__,
    "gt": int.__gt__,
    "ge": int.__ge__,
    "eq": int.__eq__,
    "ne": int.__ne__,
}
_FREE = {
    "constant",
    "dim",
    "program_id",
    "fill",
    "yield",
    "transpose",
    "assume",
    "reshape",
    "expand_dims",
    "broadcast",
    "iota",
}
_THROUGH = {"transpose", "convert", "unpack"}
"""Ops between a load and a product whose operand it is."""
_MOST_SAMPLES = 27


@dataclass(frozen=True)
class Transfer:
    """One access to global memory by one execution of an op.

    bytes: of elements inside the view, on average over the grid. tile_bytes: of the whole tile. view_bytes: of the view, 0 where that is not
    known. dims: dimensions of the grid that its place depends on. staged: an operand of a product, which passes through LDS.
    """

    bytes: float
    tile_bytes: float
    view_bytes: float
    dims: frozenset[int]
    staged: bool = False


@dataclass
class Phase:
    """Straight code, or the body of an innermost loop. `trips` counts executions by one workgroup."""

    loop: str = ""
    trips: float = 1.0
    products: list[Op] = field(default_factory=list[Op])
    loads: list[Transfer] = field(default_factory=list[Transfer])
    stores: list[Transfer] = field(default_factory=list[Transfer])
    atomics: list[Transfer] = field(default_factory=list[Transfer])
    vector: float = 0.0  # elements through the vector unit
    rounded: float = 0.0  # those of them that are rounded to bf16
    transcendental: float = 0.0
    exchanges: int = 0  # reductions and scans, whose lanes and waves wait for each other

    @property
    def row_bytes(self) -> int:
        """Bytes of k of the operands of the first product."""
        if not self.products:
            return 0
        t = self.products[0].operands[0].tile
        return t.shape[1] * t.elem.bits // 8

    @property
    def only_products(self) -> bool:
        """Whether the loop does nothing but sum products of what it loads."""
        return bool(self.products) and not (
            self.vector or self.transcendental or self.exchanges or self.stores or self.atomics
        )


@dataclass(frozen=True)
class Work:
    """A kernel under sizes. grid: workgroups along each dimension. phases: of the workgroup with the most work. share: work of the average
    workgroup of those that were looked at, as a part of that. output: views that are written, in bytes."""

    kernel: Kernel
    grid: tuple[int, ...]
    phases: tuple[Phase, ...]
    share: float

    @property
    def workgroups(self) -> int:
        return math.prod(self.grid)


def work_of(kernel: Kernel, symbols: Mapping[str, int]) -> Work:
    """The work of a kernel under these sizes. Raises KeyError for a symbol that is missing, ZeroDivisionError for a grid that divides by 0."""
    grid = tuple(max(0, e.evaluate(symbols)) for e in kernel.grid)
    places = itertools.product(*(sorted({0, max(0, (n - 1) // 2), max(0, n - 1)}) for n in grid))
    found = [_Reader(kernel, symbols, grid, p).phases() for p in itertools.islice(places, _MOST_SAMPLES)]
    weights = [_weight(phases) for phases in found]
    heaviest = max(range(len(found)), key=lambda i: weights[i])
    average = sum(weights) / len(weights)
    return Work(kernel, grid, tuple(found[heaviest]), average / weights[heaviest] if weights[heaviest] else 1.0)


def _weight(phases: list[Phase]) -> float:
    """How much work that is, to compare workgroups of one kernel."""
    return sum(
        p.trips
        * (sum(math.prod(_shape(op)) for op in p.products) + p.vector + sum(t.bytes for t in p.loads + p.stores))
        for p in phases
    )


def _shape(op: Op) -> tuple[int, int, int]:
    m, k = op.operands[0].tile.shape[-2:]
    return m, op.result.tile.shape[-1], k


def product_shape(op: Op) -> tuple[int, int, int]:
    """m, n, k of the tile that one `mma` computes."""
    return _shape(op)


class _Reader:
    """One workgroup's way through the kernel."""

    def __init__(self, kernel: Kernel, symbols: Mapping[str, int], grid: tuple[int, ...], place: tuple[int, ...]):
        self.kernel, self.symbols, self.grid, self.place = kernel, symbols, grid, place
        self.values: dict[Value, int | bool | None] = {}
        self.dims: dict[Value, frozenset[int]] = {}
        self.staged = set(_staged(kernel))
        self.found: list[Phase] = []

    def phases(self) -> list[Phase]:
        straight = Phase()
        self.found = [straight]
        self._block(self.kernel.body, straight, 1.0)
        return self.found

    def _block(self, block: Block, phase: Phase, trips: float) -> None:
        for op in block.ops:
            self._op(op, phase, trips)

    def _op(self, op: Op, phase: Phase, trips: float) -> None:
        for r in op.results:
            self.dims[r] = frozenset[int]().union(*(self.dims.get(v, frozenset()) for v in op.operands))
        match op.name:
            case "constant":
                self._know(op, op.attrs["value"])
            case "dim":
                self._know(op, self.symbols[str(op.attrs["symbol"])])
            case "program_id":
                for d, (r, at) in enumerate(zip(op.results, self.place, strict=False)):
                    self.values[r], self.dims[r] = at, frozenset({d})
            case "for":
                self._for(op, phase, trips)
            case "while":
                for region in op.regions:
                    self._block(region, phase, trips)
            case "if":
                condition = self.values.get(op.operands[0])
                taken = op.regions[:1] if condition is None or condition else op.regions[1:]
                for region in taken:
                    self._block(region, phase, trips)
            case "guard":
                pass
            case _ if op.results and not _is_tile(op.result):
                self._scalar(op)
            case _:
                self._tile(op, phase, trips / phase.trips)

    def _know(self, op: Op, value: object) -> None:
        self.values[op.result] = value if isinstance(value, int) else None

    def _scalar(self, op: Op) -> None:
        got = [self.values.get(v) for v in op.operands]
        if any(v is None for v in got):
            return
        numbers = [int(v) for v in got if v is not None]
        if op.name in _ARITHMETIC and len(numbers) == 2:
            divides = op.name in ("div", "cdiv", "mod")
            self.values[op.result] = None if divides and numbers[1] == 0 else apply(op.name, *numbers)
        elif op.name in _COMPARISONS and len(numbers) == 2:
            self.values[op.result] = bool(_COMPARISONS[op.name](*numbers))
        elif op.name == "where" and len(numbers) == 3:
            self.values[op.result] = numbers[1] if numbers[0] else numbers[2]
        elif op.name == "convert" and len(numbers) == 1 and op.result.tile.elem.is_int:
            self.values[op.result] = numbers[0]

    def _for(self, op: Op, phase: Phase, trips: float) -> None:
        low, high, step = (self.values.get(v) for v in op.operands[:3])
        count = 1
        if isinstance(low, int) and isinstance(high, int) and isinstance(step, int) and step > 0:
            count = max(0, -(-(high - low) // step))
        body, index = op.regions[0], op.regions[0].args[0]
        self.values[index] = low if isinstance(low, int) else None
        self.dims[index] = self.dims.get(op.operands[0], frozenset())
        nested = any(inner.name == "for" for inner in body.walk())
        own = Phase(index.name, trips * count)
        if count:
            self._block(body, own, trips * count)
        if count and not nested:
            self.found.append(own)
        elif count:  # what stands beside an inner loop is straight code, done `trips * count` times
            for name in ("loads", "stores", "atomics", "products"):
                many = max(1, round(own.trips))
                getattr(phase, name).extend(_repeated(getattr(own, name), many))
            phase.vector += own.vector * own.trips
            phase.rounded += own.rounded * own.trips
            phase.transcendental += own.transcendental * own.trips
            phase.exchanges += round(own.exchanges * own.trips)

    def _tile(self, op: Op, phase: Phase, times: float) -> None:
        definition = get(op.name)
        if op.name in ("mma", "mma_scaled"):
            phase.products.append(op)
        elif definition.access_position is not None and op.spans is not None:
            at = definition.access_position
            transfer = self._transfer(op, at, op in self.staged)
            effects = definition.effects
            where = phase.atomics if "atomic" in effects else phase.stores if "write" in effects else phase.loads
            where.append(transfer)
        elif op.name not in _FREE and op.results:
            elements = max(math.prod(v.tile.shape) for v in (*op.operands, *op.results) if _is_tile(v))
            if op.name in TRANSCENDENTAL:
                phase.transcendental += elements * times
            else:
                phase.vector += elements * times
                if op.name == "convert" and op.result.tile.elem.name == "bf16":
                    phase.rounded += elements * times
            if definition.category in ("reduce", "scan") or op.name.startswith(("reduce", "cumulative")):
                phase.exchanges += 1

    def _transfer(self, op: Op, at: int, staged: bool) -> Transfer:
        view = op.operands[at].type
        assert isinstance(view, GlobalType) and op.spans is not None
        inside = elements = 1.0
        for dim, extent in zip(view.dims, op.spans, strict=True):
            size = dim if isinstance(dim, int) else self.symbols.get(dim, 0)
            if extent is not None:
                elements *= extent
                inside *= size / (-(-size // extent) * extent) if size else 0.0
        places = op.operands[at + 1 : at + 1 + len(op.spans)]
        dims = frozenset[int]().union(*(self.dims.get(v, frozenset()) for v in places))
        sizes = [d if isinstance(d, int) else self.symbols.get(d, 0) for d in view.dims]
        size = view.elem.bits / 8
        return Transfer(elements * inside * size, elements * size, math.prod(sizes) * size, dims, staged)


def _repeated(transfers: list[Transfer], many: int) -> Iterator[Transfer]:
    for t in transfers:
        yield from itertools.repeat(t, many)


def _is_tile(v: Value) -> bool:
    return isinstance(v.type, TileType) and not v.type.is_scalar


def _staged(kernel: Kernel) -> Iterator[Op]:
    """Loads of operands of products inside loops."""
    for loop in kernel.walk():
        if loop.name != "for":
            continue
        for op in loop.walk():
            if op.name not in ("mma", "mma_scaled"):
                continue
            for v in op.operands[:2]:
                owner = v.owner
                while owner is not None and owner.name in _THROUGH:
                    owner = owner.operands[0].owner
                if owner is not None and owner.name == "load":
                    yield owner
