"""Chooses the mappings of all matrix products of a kernel together, by estimated clocks.

A choice fixes the layouts of operands and results, and with them those of every tile that depends on these. Each choice is
priced over the whole kernel by `mma_cost`: products, LDS reads, conversions where layouts meet, reductions, stores, registers;
ops inside loops count once per trip. Choices are tried in the order of a lower bound (products and LDS reads alone) until no
other can be better, so all are compared though few are worked out. Products that are alike have one mapping (`alike`).

Versions of one product – the branches that `split-access` makes – have one mapping, priced in the first branch, which is the one
for aligned views.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import field, replace

from tileir.ir.core import Kernel, Op, Value
from tileir.ir.diagnostics import error
from tileir.layout import Layout, LayoutError
from tileir.passes.alike import Alike
from tileir.passes.choose_waves import Priced, choose_waves
from tileir.passes.held_operands import Held, Way, find, ways
from tileir.passes.layout_classes import Classes, Layouts, is_free, reachable, stated, transposed
from tileir.passes.lds_sizes import InUse
from tileir.passes.legality import is_scaled
from tileir.passes.mfma_choice import (
    MOST_OPEN_WAVES,
    Mapping,
    fragments_of,
    has_scales,
    instruction_of,
    layouts_of,
    mappings,
    scale_layouts,
    usual_waves,
    waves_along,
)
from tileir.passes.mma_cost import Clocks, CostModel, registers_of
from tileir.passes.pressure import budget
from tileir.passes.price_mapping import Demand, Item, Known, Points, Prices, exchange_room, staged_bytes
from tileir.passes.priced_ops import Liveness, Product, priced, products
from tileir.passes.scaled_products import FIRST_SCALE, scale_source
from tileir.passes.split_access import WIDEST
from tileir.records import dataclass
from tileir.target import Target

RESERVED_REGISTERS = 32  # for addresses and temporaries: what the library's GEMMs take besides their tiles
MOST_HELD = (
    4  # operands for each of which it is asked whether it is held or comes again in each pass; more are taken together
)
MOST_EVALUATED = 400  # choices that are worked out, if the bound does not end the search before
# Of kernels with more products that are unlike, fewer: each choice takes as long as there are products.
USUAL_PRODUCTS = 8
WORTH_OTHER_WAVES = 0.9  # another than the usual number of waves must be cheaper by a tenth
ALONE = 0.1  # share of the time of a lone workgroup that counts besides the throughput of several


Candidates = list[tuple[float, int, Mapping]]  # lower bound, rank, mapping


@dataclass(frozen=True)
class Choice:
    """Mappings of all products, what they demand, the clocks of the kernel and the registers of its fullest point; for each operand
    from before a loop the ways that its versions take, and the clocks of the first one."""

    mappings: tuple[Mapping, ...]
    demands: tuple[Demand, ...]
    clocks: Clocks
    registers: int
    ways: tuple[tuple[Way, ...], ...] = ()
    held: tuple[Clocks, ...] = ()

    @property
    def holds(self) -> int:
        """Operands from before loops that are held in registers."""
        return sum(not chosen[0].again for chosen in self.ways)


@dataclass
class Decision:
    """The choice for a kernel, and for each product the cheapest choice that maps it otherwise (None if there is none)."""

    waves: int
    products: list[Product]
    best: Choice
    others: list[Choice | None]
    candidates: list[int] = field(default_factory=list[int])  # how many mappings each product has
    evaluated: int = 0
    held: list[Held] = field(default_factory=list[Held])
    numbers: list[Priced] = field(default_factory=list[Priced])
    """Numbers of waves by the model of the loops, the chosen one first; empty where it was not asked."""

    def demands(self) -> dict[Op, Demand]:
        """What each `mma` of the kernel demands."""
        return {op: d for p, d in zip(self.products, self.best.demands, strict=True) for op in p.ops}

    def mapping_of(self) -> dict[Op, Mapping]:
        """The mapping of each `mma` of the kernel."""
        return {op: m for p, m in zip(self.products, self.best.mappings, strict=True) for op in p.ops}

    def way_of(self) -> dict[Op, Way]:
        """The way of each operand that is loaded before a loop of its products, by its load."""
        found = zip(self.held, self.best.ways, strict=True)
        return {op: way for held, chosen in found for op, way in zip(held.loads, chosen, strict=True)}

    def moved(self, old: Kernel, new: Kernel) -> Decision:
        """The same for a kernel with the same products in the same order, whose held operands are on their ways."""
        now = dict(zip(_products_in(old), _products_in(new), strict=True))
        products = [replace(p, ops=tuple(now[op] for op in p.ops)) for p in self.products]
        return replace(self, products=products, held=[], best=replace(self.best, ways=()))


def _products_in(kernel: Kernel) -> list[Op]:
    return [op for op in kernel.walk() if op.name == "mma"]


def decide(kernel: Kernel, target: Target, classes: Classes) -> Decision | None:
    """The best mappings of the kernel's products, None if it has none. Raises CompileError where none exist."""
    if not any(op.name == "mma" for op in kernel.walk()):
        return None
    given = kernel.attrs.get("waves")
    problem = Problem(kernel, target, classes)
    if isinstance(given, int):
        return problem.search(given)
    usual = usual_waves(kernel)
    numbers = choose_waves(kernel, problem.trips, usual, target)
    if numbers:
        return replace(problem.search(numbers[0].waves), numbers=numbers)
    best = problem.search(usual)
    for waves in (usual * 2, usual // 2) if not problem.scaled else (usual // 2,):
        if 1 <= waves <= MOST_OPEN_WAVES and not any(op.attrs.get("waves") for op in kernel.walk()):
            limit = problem.throughput(best) * WORTH_OTHER_WAVES
            if problem.least_throughput(waves) < limit:
                other = problem.search(waves)
                if problem.throughput(other) < limit and other.best.holds >= best.best.holds:
                    best = other
    return best


class Problem:
    """What there is to choose for a kernel, and what a choice costs."""

    def __init__(self, kernel: Kernel, target: Target, classes: Classes) -> None:
        self.kernel = kernel
        self.target = target
        self.known = stated(kernel, classes)
        self.scaled = has_scales(kernel)
        self.open_waves = not isinstance(kernel.attrs.get("waves"), int)
        self.trips = dict(priced(kernel.body))
        self.classes = Alike(classes, self.known, self.trips)
        self.known = {self.classes.root(v): layout for v, layout in self.known.items()}
        self.products = self.classes.merged(products(kernel, self.trips, classes))
        self.relations = self.classes.relations
        starts = [v for p in self.products for v in (*p.op.operands, p.op.result)]
        self.reach = reachable(self.classes, starts, self.relations)
        self.points = Points.of(Liveness(self.trips).places(kernel), self.classes)
        self.room = exchange_room(kernel, target)
        self.in_use = InUse(kernel)
        self.held = find(kernel, self.products, self.trips, self.in_use, target)
        self._prices: dict[int, Prices] = {}
        self._ways: dict[object, list[tuple[Clocks, Way]]] = {}

    def prices(self, waves: int) -> Prices:
        """The prices for a number of waves."""
        if waves not in self._prices:
            model = CostModel(self.target, waves)
            held = {op for h in self.held for op in h.loads}
            ops = [(op, n) for op, n in self.trips.items() if op not in held]
            self._prices[waves] = Prices(model, self.classes, ops, self.reach, self.room)
        return self._prices[waves]

    def model(self, waves: int) -> CostModel:
        """The cost model for a number of waves."""
        return self.prices(waves).model

    # -- searching ---------------------------------------------------------------------------------------------------

    def candidates(self, product: Product, waves: int) -> Candidates:
        """(lower bound, rank, mapping), cheapest first; the rank makes the order of equals certain."""
        model = self.model(waves)
        found = mappings(product.op, waves, self.target, tuple(product.producers))
        bounds = [(self._bound(product, m, model).total, i, m) for i, m in enumerate(found)]
        return sorted(bounds, key=lambda x: x[:2])

    def _bound(self, product: Product, mapping: Mapping, model: CostModel) -> Clocks:
        """Clocks of the products and of the LDS reads of their operands."""
        rows, cols, depth = fragments_of(product.shape, mapping)
        cost = self._instructions(product, mapping, model)
        for fragments, unit, reads, bits in zip(
            (rows, cols), mapping.instr[:2], product.reads, product.bits, strict=True
        ):
            elements = fragments * depth * unit * mapping.instr[2] / self.target.wave_size
            cost.add(model.lds_access(elements * bits / 8 / WIDEST, "ds_read_b128"), reads)
        return cost

    def _instructions(self, product: Product, mapping: Mapping, model: CostModel) -> Clocks:
        """Clocks of the matrix instructions."""
        rows, cols, depth = fragments_of(product.shape, mapping)
        cost = Clocks()
        cost.add(
            model.products(rows * cols * depth, instruction_of(product.op, mapping.instr, self.target)[1]),
            product.trips,
        )
        return cost

    def search(self, waves: int) -> Decision:
        """The cheapest choice for a number of waves. Raises CompileError where there is none."""
        lists = [self.candidates(p, waves) for p in self.products]
        rest = sum(item.least * item.trips for item in self.prices(waves).items)
        if len(lists) > 1:
            own = self._own_items(waves)
            lists = [self._sharpened(i, found, waves, own[i]) for i, found in enumerate(lists)]
        most = max(1, min(MOST_EVALUATED, MOST_EVALUATED * USUAL_PRODUCTS // len(lists)))
        best: Choice | None = None
        others: list[Choice | None] = [None] * len(lists)
        failure: LayoutError | None = None
        evaluated = 0
        for bound, chosen in _best_first([[c[0] for c in found] for found in lists]):
            if best is not None:
                enough = max(best.clocks.total, *(o.clocks.total if o else math.inf for o in others))
                if evaluated >= most or bound + rest >= enough:
                    break
            picked = tuple(found[i][2] for found, i in zip(lists, chosen, strict=True))
            try:
                choice = self.evaluate(waves, picked)
            except LayoutError as e:
                failure = e
                continue
            evaluated += 1
            if best is None or choice.clocks.total < best.clocks.total:
                best, choice = choice, best
                others = [o if o and o.mappings[i] != best.mappings[i] else None for i, o in enumerate(others)]
            if choice is not None:
                for i, other in enumerate(others):
                    differs = choice.mappings[i] != best.mappings[i]
                    if differs and (other is None or choice.clocks.total < other.clocks.total):
                        others[i] = choice
        if best is None:
            op = self.products[0].op
            raise error(
                "E0337", f"no layout for this 'mma': {failure}", op.loc, legal="a tile that the wave grid divides"
            )
        return Decision(waves, self.products, best, others, [len(x) for x in lists], evaluated, self.held)

    def _own_items(self, waves: int) -> list[list[Item]]:
        """For each product what depends on its result alone: work on it, and its reductions."""
        owner: dict[Value, int] = {}
        shared = set(self.known)
        for i, p in enumerate(self.products):
            for v in reachable(self.classes, [p.op.result], self.relations, exactly=True):
                if owner.setdefault(v, i) != i:
                    shared.add(v)
        found: list[list[Item]] = [[] for _ in self.products]
        for item in self.prices(waves).items:
            numbers = {-1 if v in shared else owner.get(v, -1) for v in item.roots}
            if len(numbers) == 1 and (number := numbers.pop()) >= 0:
                found[number].append(item)
        return found

    def _sharpened(self, number: int, found: Candidates, waves: int, items: Sequence[Item]) -> Candidates:
        """Bounds that also hold the `items` that depend on the result of this product alone."""
        product = self.products[number]
        extra: dict[Mapping, float] = {}
        sharp: Candidates = []
        for bound, rank, mapping in found:
            plain = mapping if mapping.k_of == "blocks" else replace(mapping, k_of="wide")
            if plain not in extra:
                try:
                    layouts = Layouts(self.classes, self.known)
                    layouts.put(product.op.result, layouts_of(product.shape, product.bits, plain)[2])
                    layouts.propagate(self.relations)
                    extra[plain] = sum((i.price(layouts.layout).total - i.least) * i.trips for i in items)
                except LayoutError:
                    extra[plain] = 0.0
            sharp.append((bound + extra[plain] + self._moves(number, mapping), rank, mapping))
        return sorted(sharp, key=lambda x: x[:2])

    def _moves(self, number: int, mapping: Mapping) -> float:
        """What later products must pay at least for an operand of which this mapping leaves no wave a whole row of k."""
        v = self.products[number].op.result
        model, cost = self.model(mapping.waves), 0.0
        for product in self.products:
            for name, (source, turned) in product.producers.items():
                axis = 1 if (name == "a") != turned else 0
                if source == number and waves_along(self.products[number].shape, mapping, axis) > 1:
                    operand = product.op.operands["ab".index(name)].tile.elem
                    accesses = v.tile.size * operand.bytes / WIDEST / (mapping.waves * self.target.wave_size)
                    cost += product.trips * model.least_exchange(accesses).total
        return cost

    def evaluate(self, waves: int, picked: tuple[Mapping, ...]) -> Choice:
        """Works out a choice. Raises LayoutError where a mapping has no layouts."""
        demands: list[Demand] = []
        for product, mapping in zip(self.products, picked, strict=True):
            producer = None
            if mapping.k_of in product.producers:
                number, turned = product.producers[mapping.k_of]
                producer = demands[number][2]
                producer = transposed(producer, (1, 0)) if turned else producer
            demands.append(layouts_of(product.shape, product.bits, mapping, producer))
        layouts = Layouts(self.classes, self.known)
        layouts.put_products({p.op: d for p, d in zip(self.products, demands, strict=True)})
        for product, mapping in zip(self.products, picked, strict=True):
            scales = scale_layouts(product.shape, mapping) if is_scaled(product.op) else ()
            for v, layout in zip(product.op.operands[FIRST_SCALE:], scales, strict=False):
                layouts.put(v, layout)
        layouts.propagate(self.relations)
        known, prices = layouts.layout, self.prices(waves)
        cost = prices.total(known)
        for product, mapping, demand in zip(self.products, picked, demands, strict=True):
            cost.add(self._instructions(product, mapping, prices.model))
            cost.add(prices.product(product.op, demand, known), product.trips)
            cost.sync += self._exposed(product, mapping, demand[2], prices.model)
            cost.add(self._scales(product, mapping, prices.model), product.trips)
        registers, chosen, clocks = self._hold(waves, known)
        for part in clocks:
            cost.add(part)
        cost.add(prices.model.over_budget(registers, self._budget(waves)))
        cost.add(prices.model.over_lds(self._exchanged(prices.model, demands, known)))
        return Choice(picked, tuple(demands), cost, registers, chosen, clocks)

    def _scales(self, product: Product, mapping: Mapping, model: CostModel) -> Clocks:
        """Loads of the scales of a product, of which a lane takes as many at once as lie side by side."""
        cost = Clocks()
        if not is_scaled(product.op):
            return cost
        for axis, v, layout in zip(
            (1, 0), product.op.operands[FIRST_SCALE:], scale_layouts(product.shape, mapping), strict=True
        ):
            load = scale_source(v)
            width = load.attrs.get("bytes", 1) if load is not None else 1
            assert isinstance(width, int)
            cost.add(model.operand_load(layout, v.tile.elem, axis, width))
        return cost

    def _exchanged(self, model: CostModel, demands: Sequence[Demand], known: Known) -> int:
        """Bytes of LDS in use where an operand passes between waves for its product, at most; 0 if none does."""
        most = 0
        for product, demand in zip(self.products, demands, strict=True):
            for v, want in zip(product.op.operands[:2], demand, strict=False):
                if v.owner is None or v.owner.name in ("load", "shared_load") or is_free(v):
                    continue
                have = known.get(self.classes.root(v))
                if have is not None and model.movement(have, want) == "waves":
                    most = max(most, self.in_use.around(product.op)[0] + int(v.tile.size * v.tile.elem.bytes))
        return most

    def _hold(self, waves: int, known: Known) -> tuple[int, tuple[tuple[Way, ...], ...], tuple[Clocks, ...]]:
        """Registers of the fullest point, and the ways of the operands from before loops, with their clocks: all are held, unless
        registers do not suffice and it is cheaper to bring some of them in each pass."""
        prices, budget = self.prices(waves), self._budget(waves)
        count = len(self.held)
        together = [(flag,) * count for flag in (False, True)]
        picks = itertools.product((False, True), repeat=count) if count <= MOST_HELD else together
        best: tuple[float, int, tuple[tuple[Way, ...], ...], tuple[Clocks, ...]] | None = None
        for again in picks:
            passing = {self.classes.root(h.tile) for h, a in zip(self.held, again, strict=True) if a}
            registers = self.points.registers(prices, known, passing) + RESERVED_REGISTERS
            found = [self._ways_of(h, prices, known, a) for h, a in zip(self.held, again, strict=True)]
            clocks = tuple(x[0][0] for x in found)
            total = sum(c.total for c in clocks) + prices.model.over_budget(registers, budget).total
            if best is None or total < best[0]:
                best = total, registers, tuple(tuple(way for _, way in x) for x in found), clocks
            if registers <= budget and not any(again):
                break
        assert best is not None
        return best[1:]

    def _ways_of(self, held: Held, prices: Prices, known: Known, again: bool) -> list[tuple[Clocks, Way]]:
        """The cheapest way of each version of an operand."""
        layout = prices.layout(known, held.tile)
        key = held.tile, layout, prices.model.waves, again
        if key not in self._ways:
            versions = range(len(held.loads))
            self._ways[key] = [ways(held, layout, prices.model, again, i)[0] for i in versions]
        return self._ways[key]

    def _exposed(self, product: Product, mapping: Mapping, acc: Layout, model: CostModel) -> float:
        """Clocks that products in a loop wait for LDS. The fragments of a slice of k are read while the slice before is computed;
        of two slices that do not fit beside the accumulators, each read too many is waited for."""
        if product.trips <= 1 or not all(product.reads):
            return 0.0
        rows, cols, _ = fragments_of(product.shape, mapping)
        m, n, depth = mapping.instr
        elements = max(depth, self.target.wave_size // max(m, n) * WIDEST * 8 // max(product.bits))
        row_bits = self.target.register_bytes * 8 * self.target.wave_size
        lines = zip((rows * m, cols * n), product.bits, strict=True)
        slice_registers = sum(-(-line * elements * bits // row_bits) for line, bits in lines)
        # The accumulation file does not hold fragments that are read from LDS by turns.
        room = self._budget(mapping.waves) - registers_of(acc, product.op.result.tile.elem) - RESERVED_REGISTERS
        room = min(room, self.target.max_arch_vgprs - RESERVED_REGISTERS)
        reads = -(-max(0, 2 * slice_registers - room) * self.target.register_bytes // WIDEST)
        return model.lds_latency * reads * -(-product.shape[2] // elements) * product.trips

    def _budget(self, waves: int) -> int:
        """Registers of a wave. Where the number of waves is open, it is chosen so that the vector file suffices; not for products with
        scales, which have both files to themselves rather than share them."""
        most = budget(self.kernel, self.target, waves)
        return min(most, self.target.max_arch_vgprs) if self.open_waves and not self.scaled else most

    # -- numbers of waves --------------------------------------------------------------------------------------------

    def throughput(self, decision: Decision) -> float:
        """Clocks per workgroup where a CU has as many workgroups as fit, with a share of those of a lone one."""
        needed = decision.best.registers + RESERVED_REGISTERS
        per_wave = -(-needed // self.target.vgpr_granule) * self.target.vgpr_granule
        slots = min(self.target.max_waves_per_simd, max(1, self.target.registers_per_lane // per_wave))
        by_registers = slots * self.target.simds_per_cu // decision.waves
        resident = max(1, min(by_registers, self.target.lds_bytes // max(1, staged_bytes(self.kernel, self.trips))))
        c = decision.best.clocks
        alone = c.total
        return max(self._busy(c, decision.waves), alone / resident) + ALONE * alone

    def _busy(self, c: Clocks, waves: int) -> float:
        """Clocks in which the busiest unit of a CU works for one workgroup."""
        per_simd = self.target.waves_per_simd(waves)
        simds = (c.matrix + c.vector) / per_simd * waves / self.target.simds_per_cu
        return max(simds, c.lds, c.memory) + c.registers

    def least_throughput(self, waves: int) -> float:
        """No choice for this number of waves has a better `throughput`."""
        if self.points.least(self.prices(waves)) + RESERVED_REGISTERS > self._budget(waves):
            return math.inf
        cost = Clocks()
        for p in self.products:
            cost.add(self._bound(p, self.candidates(p, waves)[0][2], self.model(waves)))
        return self._busy(replace(cost, lds=0.0), waves) + ALONE * cost.total


def _best_first(lists: Sequence[Sequence[float]]) -> Iterator[tuple[float, tuple[int, ...]]]:
    """(sum, indices) of every way to take one number of each ascending list, by ascending sum; equal sums by indices."""
    start: tuple[int, ...] = (0,) * len(lists)
    heap: list[tuple[float, tuple[int, ...]]] = [(sum(x[0] for x in lists), start)]
    seen: set[tuple[int, ...]] = {start}
    while heap:
        total, chosen = heapq.heappop(heap)
        yield total, chosen
        for i, found in enumerate(lists):
            following = (*chosen[:i], chosen[i] + 1, *chosen[i + 1 :])
            if following[i] < len(found) and following not in seen:
                seen.add(following)
                heapq.heappush(heap, (sum(x[j] for x, j in zip(lists, following, strict=True)), following))
