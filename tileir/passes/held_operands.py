"""Operands of products that are loaded before the loop of the products: the way that each takes to the registers.

    %q = load(%Q[%i +: 256, 0 +: 128])            // before the loop
    … for %j = … {
      %s = mma(%q, transpose(%k))

There are four, priced by `mma_cost` for the layout that the products want:

* straight from memory to registers, where it is held: `load<stage = none>`. Waves that share elements each load them;
* through LDS, from where it is read before the loop and held in registers;
* through LDS, where it stays, and is read again in each pass;
* loaded again from memory in each pass, past LDS: where neither registers nor LDS can hold it.

An operand of which no two waves need the same elements goes straight: LDS would cost a write, a read and two barriers for nothing.
Where four waves share it, one trip through LDS costs less than four loads. What LDS has no room for does not pass through it, what
registers have no room for is not held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tileir.ir.core import Kernel, Op, Value
from tileir.ir.rewriter import Rewriter, rewrite, uses
from tileir.layout import Layout
from tileir.passes.layout_classes import coalesced, memory_axis, transposed
from tileir.passes.lds_sizes import InUse, buffer_bytes
from tileir.passes.mma_cost import Clocks, CostModel
from tileir.passes.place_memory import (
    buffer_type,
    fill,
    goes_turned,
    held_loads,
    innermost,
    read_back,
)
from tileir.passes.price_mapping import access_of
from tileir.passes.priced_ops import Product, through_transposes
from tileir.records import dataclass
from tileir.target import Target


@dataclass(frozen=True)
class Way:
    """How a tile comes to the registers: through LDS or past it, once before the loop or again in each pass."""

    in_lds: bool
    again: bool

    def __str__(self) -> str:
        if self.again:
            return "read from LDS in each pass" if self.in_lds else "loaded again in each pass, past LDS"
        return "through LDS, held in registers" if self.in_lds else "straight to registers"


@dataclass(frozen=True)
class Held:
    """An operand that is loaded before the loop of its products.

    Attributes:
        loads: the load that is priced, then those of other versions.
        trips: how often it is loaded, and how often the products use it.
        room: for each load bytes of LDS in use at the load and until the last of its products, by other buffers.
        turned: for each load whether the tile is turned in registers on its way to LDS.
    """

    loads: tuple[Op, ...]
    trips: tuple[float, float]
    room: tuple[tuple[int, int], ...]
    turned: tuple[bool, ...]

    @property
    def tile(self) -> Value:
        """The loaded tile of the version that is priced."""
        return self.loads[0].result


def find(
    kernel: Kernel, products: Sequence[Product], trips: Mapping[Op, float], in_use: InUse, target: Target
) -> list[Held]:
    """The operands of the priced products that are loaded before their loops, in program order."""
    candidates = held_loads(kernel)
    if not candidates:
        return []
    versions: dict[Op, dict[Op, None]] = {}
    passes: dict[Op, float] = {}
    for product in products:
        for number in (0, 1):
            loads = [through_transposes(op.operands[number])[0].owner for op in product.ops]
            first = loads[0]
            if first in candidates:
                found = versions.setdefault(first, {})
                found.update((x, None) for x in loads if x is not None and x in candidates)
                passes[first] = passes.get(first, 0.0) + product.trips
    users, loop = uses(kernel), innermost(kernel)
    loops = {x: _loops_of(x.result, users, loop) for found in versions.values() for x in found}
    return [
        Held(
            tuple(found),
            (trips.get(first, 1.0), passes[first]),
            tuple(in_use.around(x, loops[x]) for x in found),
            tuple(goes_turned(x, users, target) for x in found),
        )
        for first, found in versions.items()
    ]


def _loops_of(v: Value, users: Mapping[Value, list[tuple[Op, int]]], loop: Mapping[Op, Op]) -> list[Op]:
    found: list[Op] = []
    for op, _ in users.get(v, []):
        if op.name == "transpose":
            found += _loops_of(op.result, users, loop)
        elif op in loop:
            found.append(loop[op])
    return found


def ways(held: Held, layout: Layout, model: CostModel, again: bool, number: int = 0) -> list[tuple[Clocks, Way]]:
    """The ways that version `number` of an operand can take into a layout, `again` in each pass or once, the cheapest first: clocks
    for all passes. The one past LDS is always there."""
    op = held.loads[number]
    t = op.result.tile
    view, dims, width = access_of(op)
    axis = memory_axis(view, dims)
    once, passes = held.trips
    straight = Clocks()
    load = model.operand_load(layout, t.elem, axis, width)
    if again:
        load.sync += model.l2_latency
    straight.add(load, passes if again else once)
    found = [(straight, Way(False, again))]
    turned = held.turned[number]
    size = buffer_bytes(buffer_type(op, turned))
    if size + held.room[number][again] <= model.target.lds_bytes:
        staged = Clocks()
        staged.add(model.staging(t, coalesced(t, view, dims, model.waves), axis, width), once)
        read = transposed(layout, (1, 0)) if turned else layout
        staged.add(model.lds_read(read, t.elem), passes if again else once)
        found.append((staged, Way(True, again)))
    return sorted(found, key=lambda x: x[0].total)


def place(kernel: Kernel, chosen: Mapping[Op, Way], target: Target) -> Kernel:
    """The kernel with every one of these loads on its way."""
    users = uses(kernel)
    turned = {op for op in chosen if goes_turned(op, users, target)}
    again = {op for op, way in chosen.items() if way.again}
    buffers: dict[Op, Value] = {}

    def chain(v: Value) -> list[Op]:
        """The transpositions from a load that comes again to this value, and the load; empty if it is none of them."""
        found: list[Op] = []
        while v.owner is not None and v.owner.name == "transpose":
            found.append(v.owner)
            v = v.owner.operands[0]
        return [*found, v.owner] if v.owner in again else []

    def bring(rw: Rewriter, links: Sequence[Op]) -> None:
        """The load and what follows it, here."""
        load = links[-1]
        name = rw.names.fresh(load.result.name)
        if load in buffers:
            rw.replace(load, [read_back(rw, load, buffers[load], load in turned, name)])
        else:
            attrs = {**load.attrs, "stage": "none"}
            operands = [rw.use(v) for v in load.operands]
            value = rw.value(
                "load", operands, attrs, spans=load.spans, names=[name], loc=load.loc, operand_locs=load.operand_locs
            )
            rw.replace(load, [value])
        for op in reversed(links[:-1]):
            value = rw.value(op.name, [rw.use(v) for v in op.operands], op.attrs, loc=op.loc, hint=op.result.name)
            rw.replace(op, [value])

    def rule(rw: Rewriter, op: Op) -> bool:
        way = chosen.get(op)
        if way is None:
            if op.name == "transpose" and chain(op.result):
                return True  # comes with the load
            if op.name == "mma":
                for links in dict.fromkeys(tuple(chain(v)) for v in op.operands[:2]):
                    if links:
                        bring(rw, links)
            return False
        if way.in_lds:
            kind = buffer_type(op, op in turned)
            buffers[op] = rw.value("shared_alloc", types=[kind], hint=f"s{op.result.name}", loc=op.loc)
            fill(rw, op, buffers[op], op in turned, target)
        if not way.again and way.in_lds:
            rw.replace(op, [read_back(rw, op, buffers[op], op in turned)])
        elif not way.again:
            rw.copy(op, attrs={**op.attrs, "stage": "none"})
        return True

    return rewrite(kernel, rule)
