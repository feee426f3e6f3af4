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

from tileir.ir.core import Kernel, Op, Value
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.passes.base import Context, Pass
from tileir.passes.loop_stages import Plan, allocation, depth_of, plans
from tileir.passes.pipeliner import Pipeliner
from tileir.passes.schedule_loops import scheduled


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    staged = plans(kernel)
    fills: dict[Op, tuple[Plan, Op]] = {}  # by allocation
    for plan in staged.values():
        for fill in (*plan.copies, *plan.stores):
            alloc = allocation(fill.operands[-1])
            assert alloc is not None
            fills[alloc] = plan, fill
    waves = kernel.attrs["waves"]
    assert isinstance(waves, int)
    budget = ctx.target.registers_per_wave(max(1, -(-waves // ctx.target.simds_per_cu)))
    stages: dict[Op, dict[Op, list[Value]]] = {loop: {} for loop in staged}

    def rule(rw: Rewriter, op: Op) -> bool:
        if op.name == "shared_alloc" and depth_of(op) > 1:
            attrs = {k: v for k, v in op.attrs.items() if k != "depth"}
            name, count = op.result.name, 1
            plan, fill = fills.get(op, (None, None))
            if plan is not None and fill is not None:
                count = plan.stages(fill)
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
            if plan is not None and fill is not None:
                stages[plan.loop][fill] = made
            rw.replace(op, made[:1])
            return True
        if op not in staged:
            return False
        scheduler = scheduled(rw, staged[op], stages[op], kernel, budget)
        rw.replace(op, (scheduler or Pipeliner(rw, staged[op], stages[op], kernel)).write())
        return True

    return rewrite(kernel, rule)


PASS = Pass(
    "pipeline-loops",
    _run,
    requires=frozenset({"lds_laid_out"}),
    establishes=frozenset({"pipelined"}),
    summary="lets the data of later iterations travel while one computes",
)
