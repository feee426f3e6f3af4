"""Software pipelining: the data of later iterations is on its way while this one computes.

    %s = shared_alloc<depth = 2>() : shared<bf16[64, 64], …>
    %r = for %k = %lo to %hi step %c64 carry(%c = %zero) {
      copy_async<bytes = 16>(%A[%i +: 64, %k +: 64], %s)
      %a = shared_load(%s) : tile<bf16[64, 64], …>
      …
      yield %d
    }

becomes

    %s = shared_alloc() : …                                 // one buffer per stage
    %s_1 = shared_alloc() : …
    copy_async(%A[%i +: 64, %lo +: 64], %s)                 // prologue: the first depth - 1 tiles
    %r = for %k = %lo to %even step %c128 carry(%c = %zero) {
      wait<vm = 0, lgkm = 0>()                              // tile k has landed, reads of the stage to be filled are done
      barrier()
      copy_async(%A[%i +: 64, %k + 64 +: 64], %s_1)         // the tile after next
      %a = shared_load(%s) …                                // this tile
      …
      wait<vm = 0, lgkm = 0>()
      barrier()
      copy_async(%A[%i +: 64, %k + 128 +: 64], %s)
      %a_0 = shared_load(%s_1) …
      yield …
    }
    if … { … }                                              // the tiles left over, which are in LDS already

The loop runs as many tiles a trip as there are stages, so that every stage has a fixed address. Copies past the end fetch nothing:
outside elements are zeros, and nobody reads them.

Where tiles go through registers, the registers are a stage of their own: at depth 2 the next tile is loaded into them while
this one is computed, with one LDS buffer and one tile a trip; depth d takes d - 1 buffers.

What would change meaning is an error at the loop: addresses that depend on what the loop computes, a view that the loop
writes, a buffer that is used in other ways.
"""

from __future__ import annotations

import math

from tileir.ir.core import Kernel, Op, Value
from tileir.ir.diagnostics import CompileError, Note, error
from tileir.ir.location import Loc
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.passes.allocate_lds import allocate
from tileir.passes.base import Context, Pass
from tileir.passes.choose_waves import chosen_spread, depths_asked, patterns_asked, sums_products, trip_of
from tileir.passes.hazards import Memory
from tileir.passes.iteration import Iteration, iteration_of
from tileir.passes.lds_sizes import buffers
from tileir.passes.loop_model import LoopModel, Way
from tileir.passes.loop_stages import MOST_DEPTH, Plan, allocation, depth_of, is_ordered, plan, plans
from tileir.passes.order_ops import instruction_clocks
from tileir.passes.ping_pong import PingPong
from tileir.passes.pipeliner import Pipeliner
from tileir.passes.pressure import budget, peak, registers_of
from tileir.passes.rotate_loops import RESERVE
from tileir.passes.schedule_loops import Scheduler
from tileir.passes.weave import plan_of
from tileir.target import Target

# Registers of a SIMD's lane for the addresses of copies and of scales in one trip of a loop.
MOST_ADDRESSES = 64


class _Shapes:
    """How to write the loop of a plan instruction by instruction, or why that is not possible: worked out once for each plan."""

    def __init__(self, kernel: Kernel, ctx: Context) -> None:
        self._kernel, self._ctx = kernel, ctx
        self._known: dict[
            int, tuple[Plan, Iteration | str]
        ] = {}  # by identity, which lasts while the plan is kept here

    def of(self, made: Plan) -> Iteration | str:
        known = self._known.get(id(made))
        if known is None:
            known = self._known[id(made)] = made, iteration_of(made, self._kernel, self._ctx.target, self._ctx.spare)
        return known[1]


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    ways = {} if ctx.whole_tiles else _ways(kernel, ctx)
    kernel, ways = _with_patterns(kernel, ways)
    asked, shapes = plans(kernel), _Shapes(kernel, ctx)
    chosen = _open_loops(kernel, ctx, asked, ways, shapes)
    _check_orders(kernel, ctx, {**asked, **chosen}, shapes)
    while True:
        new = _write(kernel, ctx, {**asked, **chosen}, shapes)
        if not chosen or _fits(new, ctx):
            _remarks(kernel, ctx, {**asked, **chosen}, ways)
            return new
        chosen = _shallower(kernel, ctx, chosen, shapes)


Ways = dict[Op, list[Way]]
"""The ways that the model knows of loops whose pattern or stages are open, the best first."""


def _ways(kernel: Kernel, ctx: Context) -> Ways:
    """The loops that sum products, each with the ways for which registers and LDS suffice."""
    found: Ways = {}
    memory, model = Memory(kernel), LoopModel(ctx.target)
    for loop in kernel.walk():
        if loop.name != "for" or not sums_products(loop) or not any(op.name == "mma" for op in loop.regions[0].ops):
            continue
        depths, patterns = depths_asked(loop), patterns_asked(loop)
        if depths and len(patterns) == 1:
            continue
        try:
            made = plan(loop, kernel, memory, lambda alloc: depth_of(alloc) or 2)
        except CompileError:
            continue
        shape = iteration_of(made, kernel, ctx.target, ctx.spare) if made is not None else ""
        if made is None or isinstance(shape, str):
            continue
        spreads = {op: chosen_spread(op) for op in loop.regions[0].ops if op.name == "mma"}
        trip = trip_of(loop, shape.waves, model, spreads)
        if len(patterns) > 1:
            if not shape.fits:
                patterns = tuple(p for p in patterns if p != "interleave")
            if trip.registers > budget(kernel, ctx.target):
                patterns = tuple(p for p in patterns if p != "ping_pong")
            if depths:  # one stage and another order is not what the text asks for
                patterns = tuple(p for p in patterns if p != "plain")
        ways = model.ways(trip, shape.waves, depths, patterns)
        if ways:
            found[loop] = ways
    return found


def _with_patterns(kernel: Kernel, ways: Ways) -> tuple[Kernel, Ways]:
    """The kernel in which loops have another pattern than the usual one where the model says so, and the ways of its loops."""
    other = {op: w[0].pattern for op, w in ways.items() if not op.attrs.get("pattern") and w[0].pattern != "interleave"}
    if not other:
        return kernel, ways
    made: dict[Op, Op] = {}

    def rule(rw: Rewriter, op: Op) -> bool:
        if op not in ways:
            return False
        attrs = {**op.attrs, "pattern": other[op]} if op in other else op.attrs
        region = rw.region(op.regions[0])
        names = [v.name for v in op.results]
        made[op] = rw.op("for", [rw.use(v) for v in op.operands], attrs, regions=[region], loc=op.loc, names=names)
        rw.replace(op, made[op].results)
        return True

    return rewrite(kernel, rule), {made[op]: w for op, w in ways.items()}


def _remarks(kernel: Kernel, ctx: Context, staged: dict[Op, Plan], ways: Ways) -> None:
    """R0819 for each loop whose pattern or stages were chosen: what became of it, and what the model says of the others."""
    for loop, found in ways.items():
        pattern = str(loop.attrs.get("pattern", "")) or "interleave"
        depth = staged[loop].depth if loop in staged and pattern != "plain" else 1
        own = next((w for w in found if (w.pattern, w.depth) == (pattern, depth)), None)
        if own is None or len(found) == 1:
            continue
        text = f"%{loop.regions[0].args[0].name}, by the clocks of an iteration: {own}"
        text += "".join(f"; {w}" for w in found if w is not own)
        ctx.log.remark("R0819", text, loop.loc)


def _check_orders(kernel: Kernel, ctx: Context, staged: dict[Op, Plan], shapes: _Shapes) -> None:
    """Raises CompileError, at the directive, where the text asks for an order of single instructions that a loop cannot have."""
    for loop in kernel.walk():
        if loop.name != "for" or not is_ordered(loop) or any(op.name == "copy" for op in loop.walk()):
            continue  # the version for views that are not aligned is never in order
        pattern, waves = str(loop.attrs["pattern"]), kernel.attrs["waves"]
        assert isinstance(waves, int)
        made = staged.get(loop) or plan(loop, kernel, Memory(kernel), lambda alloc: depth_of(alloc) or 2)
        why = "nothing in it is staged in LDS" if made is None else ""
        shape = shapes.of(made) if made is not None else why
        if isinstance(shape, str):
            why = shape
        elif pattern == "ping_pong" and waves % (2 * ctx.target.simds_per_cu):
            why = f"{waves} waves do not put two on every SIMD"
        elif pattern != "ping_pong" and loop.attrs.get("slices"):
            why = "only ping_pong cuts the accumulator"
        if why:
            raise error(
                "E0607",
                f"this loop cannot have the pattern {pattern}: {why}",
                _directive(loop, kernel, ctx),
                legal="pattern plain, or a loop that sums products of tiles that it loads; ping_pong for 8 or 16 waves",
                notes=[Note("the loop", loop.loc)],
            )


def _directive(loop: Op, kernel: Kernel, ctx: Context) -> Loc:
    """Where the schedule speaks of the loop; the loop itself where it does not."""
    name = loop.regions[0].args[0].name
    return next((d.loc for d in ctx.directives(kernel) if d.kind == "loop" and name in d.values), loop.loc)


def _fits(kernel: Kernel, ctx: Context) -> bool:
    found = buffers(kernel)
    offsets = allocate(found)
    return max((offsets[b.op] + b.size for b in found), default=0) <= ctx.target.lds_bytes


def _open_loops(kernel: Kernel, ctx: Context, asked: dict[Op, Plan], ways: Ways, shapes: _Shapes) -> dict[Op, Plan]:
    """Loops that leave their depth open: those that can be written instruction by instruction, each with the depth that suits it,
    and others that copy directly, with two stages, as that takes no registers."""
    found: dict[Op, Plan] = {}
    memory = Memory(kernel)
    for op in reversed(list(kernel.walk())) if not ctx.whole_tiles else ():
        if op.name != "for" or any(inner in found or inner in asked for inner in op.walk()):
            continue
        made = _open_plan(op, kernel, memory, ctx, 2, shapes)
        if made is None:
            continue
        shape = shapes.of(made)
        if op in ways:
            depth = ways[op][0].depth
        else:
            depth = _depth(shape) if isinstance(shape, Iteration) else _depth_of_tiles(made, kernel, ctx)
        found[op] = _open_plan(op, kernel, memory, ctx, depth, shapes) or made
    return found


def _open_plan(loop: Op, kernel: Kernel, memory: Memory, ctx: Context, depth: int, shapes: _Shapes) -> Plan | None:
    """A plan for a loop whose buffers all leave their depth open; None where it would cost registers that do not suffice."""
    if loop.attrs.get("pattern") == "plain":
        return None
    try:
        made = plan(loop, kernel, memory, lambda alloc: depth if depth_of(alloc) == 0 else 0)
    except CompileError:
        return None
    if made is None:
        return None
    shape = shapes.of(made)
    if isinstance(shape, str):
        ahead = not made.loads or _holds_loads(made, kernel, ctx)
        return made if ahead and not _waits_for_memory(made) else None
    return made if shape.fits or is_ordered(loop) else None


def _waits_for_memory(made: Plan) -> bool:
    """Whether each iteration loads an operand past LDS. Loads arrive in order: waiting for it is waiting for all copies before it."""
    return any(op.name == "load" and op.attrs.get("stage") == "none" for op in made.consumers)


def _holds_loads(made: Plan, kernel: Kernel, ctx: Context) -> bool:
    """Whether registers suffice, by estimate, to keep the loads of the next tile while this one is computed; only where products are
    chained, so that there is much to compute."""
    if _products(made.loop) < 2:
        return False
    held = sum(registers_of(load.result) for load in made.loads)
    return peak(kernel).registers + held + RESERVE <= budget(kernel, ctx.target)


def _products(loop: Op) -> int:
    """Matrix products of an iteration."""
    return sum(op.name == "mma" for op in loop.regions[0].ops)


def _waves_per_simd(kernel: Kernel, target: Target) -> int:
    waves = kernel.attrs["waves"]
    assert isinstance(waves, int)
    return target.waves_per_simd(waves)


def _depth(made: Iteration) -> int:
    """The smallest depth at which a tile is on its way for as long as memory takes under load. With scales not so many that the
    addresses of a trip do not fit registers."""
    depth = _depth_for(made.weave.steps * made.clocks * made.waves_per_simd, made.target)
    if made.weave.scales:
        accesses = len(made.weave.scales) + len(made.copies)
        depth = min(depth, max(2, MOST_ADDRESSES // made.waves_per_simd // accesses))
    return depth


def _depth_of_tiles(made: Plan, kernel: Kernel, ctx: Context) -> int:
    """The same for a loop that is written tile by tile."""
    if made.loads or made.loop.attrs.get("few"):
        return 2
    clocks = 0
    for op in made.consumers:
        if op.name == "mma" and (steps := plan_of(op)) is not None:
            clocks += len(steps.steps) * instruction_clocks(op, ctx.target)
    return _depth_for(clocks * _waves_per_simd(kernel, ctx.target), ctx.target) if clocks else 2


def _depth_for(clocks: float, target: Target) -> int:
    latency = float(target.fact("loaded_latency_ns").value) * 1e-9 * target.clock_hz  # type: ignore[arg-type]
    return min(MOST_DEPTH, max(2, 1 + math.ceil(latency / clocks)))


def _shallower(kernel: Kernel, ctx: Context, chosen: dict[Op, Plan], shapes: _Shapes) -> dict[Op, Plan]:
    """One stage less for the loops with the most; none at all from two on."""
    most = max(p.depth for p in chosen.values())
    memory = Memory(kernel)
    found: dict[Op, Plan] = {}
    for loop, old in chosen.items():
        if old.depth < most:
            found[loop] = old
        elif most > 2 and (made := _open_plan(loop, kernel, memory, ctx, most - 1, shapes)) is not None:
            found[loop] = made
    return found


def _write(kernel: Kernel, ctx: Context, staged: dict[Op, Plan], shapes: _Shapes) -> Kernel:
    """The kernel with these loops in their pipelined form."""
    fills: dict[Op, tuple[Plan, Op]] = {}  # by allocation
    for made in staged.values():
        for fill in (*made.copies, *made.stores):
            alloc = allocation(fill.operands[-1])
            assert alloc is not None
            fills[alloc] = made, fill
    stages: dict[Op, dict[Op, list[Value]]] = {loop: {} for loop in staged}

    def rule(rw: Rewriter, op: Op) -> bool:
        if op.name == "shared_alloc" and (op in fills or depth_of(op) > 0):
            attrs = {k: v for k, v in op.attrs.items() if k != "depth"}
            name, count = op.result.name, 1
            made_plan, fill = fills.get(op, (None, None))
            if made_plan is not None and fill is not None:
                count = made_plan.stages(fill)
            made = [
                rw.value(
                    "shared_alloc",
                    (),
                    attrs,
                    types=[op.result.type],
                    loc=op.loc,
                    names=[name] if i == 0 else [],
                    hint=name,
                )
                for i in range(count)
            ]
            if made_plan is not None and fill is not None:
                stages[made_plan.loop][fill] = made
            rw.replace(op, made[:1])
            return True
        if op not in staged:
            return False
        plain = op.attrs.get("pattern") == "plain" or (ctx.whole_tiles and not is_ordered(op))
        shape = "" if plain else shapes.of(staged[op])
        if isinstance(shape, str):
            writer = Pipeliner(rw, staged[op], stages[op], kernel)
        else:
            writer = (PingPong if op.attrs.get("pattern") == "ping_pong" else Scheduler)(rw, stages[op], shape)
        rw.replace(op, writer.write())
        return True

    return rewrite(kernel, rule)


PASS = Pass(
    "pipeline-loops",
    _run,
    requires=frozenset({"lds_laid_out"}),
    establishes=frozenset({"pipelined"}),
    summary="lets the data of later iterations travel while one computes",
)
