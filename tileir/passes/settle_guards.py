"""Decides which guards stay regions that waves skip.

A wave enters the region of a `guard` on its own, so the region must not exchange data with other waves: a barrier there would
wait for waves that never come. A guard whose region has LDS traffic – an operand of a product that is staged, a conversion or a
reduction across waves – is taken apart: all waves run its region, and each row takes the new value where it needs it,

    %r = guard %need carry(%x = %x0) {
      %s = shared_alloc() : shared<f32[64, 64]>
      …
      yield %y
    }

becomes

    %s = shared_alloc() : shared<f32[64, 64]>
    …
    %r = where(%need, %y, %x0) : tile<f32[64, 64], linear(…)>

with the remark R0805. A guard that carries nothing has no effect and goes.
"""

from __future__ import annotations

from tileir.ir.core import Kernel, Op, Value
from tileir.ir.diagnostics import Diagnostic, Log, Note, error
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.ir.types import SharedType
from tileir.passes.base import Context, Pass

_BY_HAND = frozenset({"wait", "barrier"})  # what only a person writes before `synchronise`: refused there, never moved


def traffic(guard: Op) -> Op | None:
    """The first op in the region of a guard that touches LDS, if there is one."""
    for op in guard.regions[0].walk():
        if any(isinstance(v.type, SharedType) for v in (*op.operands, *op.results)):
            return op
    return None


def take_apart(rw: Rewriter, op: Op, inits: list[Value], masks: list[Value]) -> None:
    """Writes the ops of a guard's region in place, for all waves, and selects by row; `inits` and `masks` are the new carried
    values and, for each, the new mask in its layout."""
    region = op.regions[0]
    rw.mapping.update(zip(region.args, inits, strict=True))
    for inner in region.ops[:-1]:
        rw.loc = inner.loc
        if not rw.rule(rw, inner):
            rw.copy(inner)
    rw.loc = op.loc
    yielded = [rw.use(v) for v in region.terminator.operands]
    chosen = [
        rw.value("where", [mask, new, old], names=[r.name], loc=op.loc)
        for mask, new, old, r in zip(masks, yielded, inits, op.results, strict=True)
    ]
    rw.replace(op, chosen)


def remark(log: Log, guard: Op, why: str, at: Op | None = None) -> None:
    """R0805 for a guard that no wave can skip."""
    notes = (Note("here", at.loc),) if at is not None and at.loc.line else ()
    log.diagnostics.append(Diagnostic("R0805", f"every wave runs this 'guard': {why}", guard.loc, "remark", notes))


def check_guards(kernel: Kernel) -> None:
    """Raises CompileError (E1034) for a guard whose region touches LDS."""
    for guard in kernel.walk():
        op = traffic(guard) if guard.name == "guard" else None
        if op is not None:
            raise error(
                "E1034",
                f"'{op.name}' exchanges data between waves inside a 'guard', which some waves skip",
                op.loc,
                legal="the exchange before or behind the guard",
                notes=[Note("the guard", guard.loc)],
            )


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    if not any(op.name == "guard" for op in kernel.walk()):
        return kernel

    def rule(rw: Rewriter, op: Op) -> bool:
        if op.name != "guard":
            return False
        if not op.results:
            return True
        found = traffic(op)
        if found is None or any(inner.name in _BY_HAND for inner in op.walk()):
            return False
        remark(ctx.log, op, f"'{found.name}' exchanges data between waves", found)
        mask = rw.use(op.operands[0])
        take_apart(rw, op, [rw.use(v) for v in op.operands[1:]], [mask] * len(op.results))
        return True

    return rewrite(kernel, rule)


PASS = Pass(
    "settle-guards",
    _run,
    requires=frozenset({"converted"}),
    establishes=frozenset({"guards_settled"}),
    summary="takes guards apart whose regions exchange data between waves",
)

__all__ = ["PASS", "check_guards", "remark", "take_apart", "traffic"]
