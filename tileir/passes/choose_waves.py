"""How many waves a workgroup has, where nobody says: by the model of its loops (`loop_model`).

This is for kernels all of whose products in loops are summed in what the loop carries, with nothing else in the body. For each number of
waves, each loop gets the pattern and the stages that suit it best, and numbers are compared by the clocks of all loops together. Registers and LDS
are constraints: a number of waves that they do not suffice for is not a candidate.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tileir.ir.core import Kernel, Op, Value
from tileir.ir.diagnostics import CompileError
from tileir.ir.types import SharedType, TileType
from tileir.passes.loop_model import LoopModel, Trip, Way
from tileir.passes.loop_stages import allocation, depth_of
from tileir.passes.mfma_choice import MOST_OPEN_WAVES, mappings
from tileir.passes.mfma_choice import Mapping as Spread
from tileir.passes.pressure import budget
from tileir.records import dataclass
from tileir.target import Target

WORTH_OTHER_WAVES = 0.95
"""Another than the usual number of waves must be cheaper by so much: the model is not exact."""
SMALLEST = 16  # rows and columns of the smallest matrix instruction of the fast ones
_PARTS = frozenset(
    {"mma", "transpose", "shared_load", "shared_load_transposed", "copy_async", "load", "shared_store", "yield"}
)


@dataclass(frozen=True)
class Priced:
    """A number of waves, and the best way of each loop with its trips; `score` is what numbers are compared by."""

    waves: int
    ways: tuple[tuple[Op, float, Way], ...]

    @property
    def score(self) -> float:
        return sum(trips * way.score for _, trips, way in self.ways)

    def __str__(self) -> str:
        loops = "; ".join(f"%{op.regions[0].args[0].name} {way}" for op, _, way in self.ways)
        return f"{self.waves} waves: {loops}"


def loops_of(kernel: Kernel, trips: Mapping[Op, float]) -> list[Op] | None:
    """The loops that sum products, of those ops that count; None where products of a loop are not all there is to it."""
    found: list[Op] = []
    for op in kernel.walk():
        if op.name != "for" or op not in trips or not any(o.name == "mma" for o in op.walk()):
            continue
        if any(inner.name == "copy" for inner in op.regions[0].ops):
            continue  # the version for views that are not aligned, which has the waves of the other
        if any(inner.regions for inner in op.regions[0].ops):
            if any(inner.name == "mma" for inner in op.regions[0].ops):
                return None
            continue  # the loop around one
        if not sums_products(op):
            return None
        found.append(op)
    return found


def sums_products(loop: Op) -> bool:
    """Whether nothing is in the body of a loop but products without scales of what it stages, and scalars."""
    return all(
        (op.name in _PARTS and not (op.name == "mma" and len(op.operands) > 3)) or _is_scalar(op)
        for op in loop.regions[0].ops
    )


def _is_scalar(op: Op) -> bool:
    values = (*op.results, *op.operands)
    return not op.regions and all(isinstance(v.type, TileType) and v.type.is_scalar for v in values)


def trip_of(loop: Op, waves: int, model: LoopModel, spreads: Mapping[Op, Collection[Spread]]) -> Trip:
    """An iteration of a loop whose products have these mappings. Raises CompileError for an instruction that the chip does not have."""
    body = loop.regions[0].ops
    trip = Trip(direct=all(op.name != "shared_store" for op in body))
    staged = sum(_bytes(op.operands[-1]) for op in body if op.name in ("copy_async", "shared_store"))
    moved = sum(_bytes(op.operands[-1]) for op in body if op.name == "copy_async")
    moved += sum(_bytes(op.result) for op in body if op.name == "load")
    for op in body:
        if op.name == "mma":
            (m, k), n = op.operands[0].tile.shape, op.result.tile.shape[1]
            trip.add(model.product(op, (m, n, k), spreads[op], waves))
    model.stage(trip, staged, moved, waves)
    trip.memory += moved * model.nearest(model.target.num_cus)
    return trip


def _bytes(v: Value) -> float:
    """Of a tile, or of a buffer."""
    t = v.type
    assert isinstance(t, SharedType | TileType)
    return math.prod(t.shape) * t.elem.bits / 8


def depths_asked(loop: Op) -> tuple[int, ...]:
    """The stages that the text asks for, empty where that is open."""
    fills = (op for op in loop.regions[0].ops if op.name in ("copy_async", "shared_store"))
    asked = {depth_of(alloc) for op in fills if (alloc := allocation(op.operands[-1])) is not None}
    return (max(asked),) if asked and max(asked) > 1 else ()


def patterns_asked(loop: Op) -> tuple[str, ...]:
    """The patterns that the text leaves: the one it states, else all."""
    stated = str(loop.attrs.get("pattern", ""))
    return (stated,) if stated else ("interleave", "ping_pong", "plain")


def price(loops: list[Op], trips: Mapping[Op, float], waves: int, kernel: Kernel, target: Target) -> Priced | None:
    """A number of waves with the mappings that keep units busy for the shortest time; None if it has none for which registers and LDS
    suffice."""
    model = LoopModel(target)
    found: list[tuple[Op, float, Way]] = []
    for loop in loops:
        products = [op for op in loop.regions[0].ops if op.name == "mma"]
        if any(not _has_work(op, waves) for op in products):
            return None
        try:
            spreads = {op: [replace(m, k_of="wide") for m in _plainest(mappings(op, waves, target))] for op in products}
            trip = trip_of(loop, waves, model, spreads)
        except CompileError:
            return None
        if trip.registers > budget(kernel, target, waves):
            return None
        ways = model.ways(trip, waves, depths_asked(loop), patterns_asked(loop))
        if not ways:
            return None
        found.append((loop, trips[loop.regions[0].ops[0]], ways[0]))
    return Priced(waves, tuple(found))


def _plainest(found: Sequence[Spread]) -> list[Spread]:
    """Mappings that are not swapped, which take as long as those that are, or all where the text asks for swapped ones."""
    return [m for m in found if not m.swapped] or list(found)


def _has_work(op: Op, waves: int) -> bool:
    """Whether every wave has a fragment of the result of its own."""
    rows, cols = op.result.tile.shape
    return -(-rows // SMALLEST) * -(-cols // SMALLEST) >= waves


def choose_waves(kernel: Kernel, trips: Mapping[Op, float], usual: int, target: Target) -> list[Priced]:
    """All numbers of waves that are possible, the chosen one first, then the others by their clocks; empty where the model does not apply. The
    usual number is taken unless another is cheaper by a twentieth."""
    loops = loops_of(kernel, trips)
    if not loops or any(op.attrs.get("waves") for op in kernel.walk()):
        return []
    counts = [1 << n for n in range(MOST_OPEN_WAVES.bit_length()) if 1 << n <= MOST_OPEN_WAVES]
    priced = [p for w in counts if (p := price(loops, trips, w, kernel, target)) is not None]
    own = next((p for p in priced if p.waves == usual), None)
    if own is None:
        return []
    ranked = sorted(priced, key=lambda p: (p.score, p.waves))
    best = ranked[0] if ranked[0].score < WORTH_OTHER_WAVES * own.score else own
    return [best, *(p for p in ranked if p is not best)]


def chosen_spread(op: Op) -> list[Spread]:
    """The mapping that `assign-layouts` has written into a product."""
    instr, grid = op.attrs["instr"], op.attrs["waves"]
    assert isinstance(instr, tuple) and isinstance(grid, tuple)
    return [Spread((instr[0], instr[1], instr[2]), (grid[0], grid[1]), False)]
